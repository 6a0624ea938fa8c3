/*
 * sql/sql_each.c
 *		Implements the SQL functions that acquire, enqueue or release many locks in one request, each
 *		independently of the others.
 */
#include "postgres.h"

#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"

#include "backend/durability.h"
#include "backend/session_fence.h"
#include "backend/pending.h"
#include "backend/session_request.h"
#include "backend/session_mailbox.h"
#include "shared/channel.h"
#include "shared/compat.h"
#include "shared/words.h"
#include "sql/sql_args.h"
#include "sql/sql.h"

LE_FUNCTION(le_try_acquire_each);
LE_FUNCTION(le_enqueue_each);
LE_FUNCTION(le_release_each);
LE_FUNCTION(le_release_locks);

/* --- acquire --- */

/*
 * Returns, for each name, the token of this connection's holder that has a pending release in this
 * transaction, or 0 if there is none.  The acquire then adds a hold to that token, as in le_acquire().
 * Returns NULL if there are no such holders, or if the request is for a lease.  If there is a named owner,
 * the manager ignores these tokens.
 */
static const int64 *
pending_of_each(const LeCommand *cmd)
{
	int64 *reenter = NULL;

	if (cmd->lease != 0)
		return NULL;
	for (uint32 i = 0; i < cmd->nnames; i++)
	{
		int64 own = le_pending_own(cmd->kind, cmd->names[i]);

		if (own == 0)
			continue;
		if (reenter == NULL)
			reenter = palloc0_array(int64, cmd->nnames);
		reenter[i] = own;
	}
	return reenter;
}

/*
 * Reads the arguments into an empty command, and acquires or enqueues each name.  Returns one result for each
 * name.  All results are durable.
 */
static LeEachAnswer *
acquire_each(FunctionCallInfo fcinfo, LeCommand *cmd)
{
	LeEachAnswer *answers;
	LeReply reply;
	int granted = -1; /* index of the first newly granted name; -1 = none */
	bool told_owner = false;

	/* 1. send the request, unless there are no names */
	cmd->type = LE_CMD_ACQUIRE;
	cmd->each = true;
	cmd->role = GetUserId();
	le_arg_ask(fcinfo, LE_ASK_LOCKS, cmd);
	le_check_can_attach();
	if (cmd->nnames == 0)
		return NULL;
	cmd->tokens = pending_of_each(cmd);
	answers = palloc0_array(LeEachAnswer, cmd->nnames);
	le_request_each(cmd, &reply, answers);
	le_check_reply(cmd, &reply);
	if (reply.status != LE_OK)
	{
		/* the manager did not reply in time: nothing was granted */
		Assert(reply.status == LE_NOT_GRANTED);
		for (uint32 i = 0; i < cmd->nnames; i++)
			answers[i] = (LeEachAnswer){.status = LE_NOT_GRANTED};
		return answers;
	}
	le_wait_durable(&reply, le_kind_word(cmd->kind), cmd->name);

	/* 2. issue notices and warnings, and cancel pending releases, as after a grant of a single lock */
	for (uint32 i = 0; i < cmd->nnames; i++)
	{
		LeEachAnswer *answer = &answers[i];

		/* a repeated acquire on a lease adds no hold: cancel releases that would end it */
		if (cmd->lease != 0 && (answer->status == LE_OK || answer->status == LE_QUEUED))
			le_pending_cancel(answer->token, cmd->names[i]);
		if (answer->status != LE_OK)
			continue;
		cmd->name = cmd->names[i];
		if (answer->shared_owner && !told_owner)
			le_notice_shared_owner(cmd);
		told_owner |= answer->shared_owner;
		if (!answer->reentrant && granted < 0)
			granted = (int) i;
	}
	if (granted >= 0)
	{
		cmd->name = cmd->names[granted];
		le_warn_old_snapshot(fcinfo, cmd, &reply);
	}
	return answers;
}

/* Implements try_acquire_each(names, ttl, mode, owner, lease). */
Datum
le_try_acquire_each(PG_FUNCTION_ARGS)
{
	LeCommand cmd = {0};
	LeEachAnswer *answers = acquire_each(fcinfo, &cmd);

	InitMaterializedSRF(fcinfo, 0);
	for (uint32 i = 0; i < cmd.nnames; i++)
	{
		LeTuple row = {0};

		le_tuple_add_text(&row, cmd.names[i]);
		le_tuple_add_if(&row, answers[i].status == LE_OK, Int64GetDatum(answers[i].token));
		le_tuple_put((ReturnSetInfo *) fcinfo->resultinfo, &row);
	}
	return (Datum) 0;
}

/* Implements enqueue_each(names, ttl, mode, owner, lease). */
Datum
le_enqueue_each(PG_FUNCTION_ARGS)
{
	LeCommand cmd = {.enqueue = true};
	LeEachAnswer *answers = acquire_each(fcinfo, &cmd);

	InitMaterializedSRF(fcinfo, 0);
	for (uint32 i = 0; i < cmd.nnames; i++)
	{
		bool granted = answers[i].status == LE_OK;
		char channel[LE_CHANNEL_SIZE];
		LeTuple row = {0};

		Assert(answers[i].token > 0 && (granted || answers[i].position > 0));
		le_channel_name(cmd.kind, cmd.names[i], channel);
		le_tuple_add_text(&row, cmd.names[i]);
		le_tuple_add(&row, Int64GetDatum(answers[i].token));
		le_tuple_add(&row, BoolGetDatum(granted));
		le_tuple_add(&row, Int64GetDatum(granted ? 0 : (int64) answers[i].position));
		le_tuple_add_string(&row, channel);
		le_tuple_put((ReturnSetInfo *) fcinfo->resultinfo, &row);
	}
	return (Datum) 0;
}

/* --- release --- */

/*
 * Releases at the commit, as release_at_commit() in sql_lock.c does for one lock.  Checks the locks, takes
 * their fences, and checks the locks again: a lock that is still held after it was fenced keeps its slot until
 * the transaction ends.  The results are those of the second check, except that locks without a hold to release
 * get LE_NOT_HELD.
 */
static void
release_each_at_commit(LeCommand *cmd, LeEachAnswer *answers)
{
	bool *held = palloc0_array(bool, cmd->nnames);
	bool any = false;
	LeReply reply;

	/* 1. take the fences of the locks that have a hold without a pending release */
	cmd->type = LE_CMD_CHECK;
	le_request_each(cmd, &reply, answers);
	le_check_reply(cmd, &reply);
	for (uint32 i = 0; i < cmd->nnames; i++)
	{
		held[i] = (answers[i].status == LE_OK || answers[i].status == LE_QUEUED) &&
				  le_pending_count(answers[i].token, cmd->names[i]) < answers[i].holds;
		any |= held[i];
		if (held[i])
			le_fence_take(answers[i].token);
	}

	/* 2. check a second time */
	if (any)
	{
		le_request_each(cmd, &reply, answers);
		le_check_reply(cmd, &reply);
		le_wait_durable_fenced(cmd, &reply);
	}

	/* 3. add the pending releases */
	for (uint32 i = 0; i < cmd->nnames; i++)
	{
		if (!held[i] || (answers[i].status != LE_OK && answers[i].status != LE_QUEUED))
			answers[i].status = LE_NOT_HELD;
		else
		{
			le_pending_add(answers[i].token, cmd->kind, cmd->names[i], 0, 1, answers[i].own_session);
			answers[i].status = LE_OK;
		}
	}
}

/* Releases each name of a command, at once or at the commit.  The caller has read the arguments. */
static LeEachAnswer *
release_each(FunctionCallInfo fcinfo, LeCommand *cmd)
{
	LeEachAnswer *answers = palloc0_array(LeEachAnswer, cmd->nnames);
	LeReply reply;

	cmd->kind = LE_KIND_LOCK;
	cmd->each = true;
	cmd->role = GetUserId();
	if (!le_release_is_final(fcinfo))
	{
		release_each_at_commit(cmd, answers);
		return answers;
	}
	cmd->type = LE_CMD_RELEASE;
	le_request_each(cmd, &reply, answers);
	le_check_reply(cmd, &reply);
	le_wait_durable_fenced(cmd, &reply);
	return answers;
}

/* Raises an error if a name cannot be sent to the client because the client's encoding lacks a character. */
static void
check_can_send(const LeCommand *cmd)
{
	for (uint32 i = 0; i < cmd->nnames; i++)
		(void) pg_server_to_client(cmd->names[i].data, (int) cmd->names[i].len);
}

/* Implements release_each(names, tokens). */
Datum
le_release_each(PG_FUNCTION_ARGS)
{
	LeCommand cmd = {.each = true};
	LeEachAnswer *answers;

	le_arg_names(fcinfo, &cmd);
	cmd.tokens = le_arg_tokens(fcinfo, 1, cmd.nnames);

	/* an error would not undo immediate releases, so first do everything that can raise one */
	InitMaterializedSRF(fcinfo, 0);
	check_can_send(&cmd);
	if (cmd.nnames == 0)
		return (Datum) 0;
	answers = release_each(fcinfo, &cmd);
	for (uint32 i = 0; i < cmd.nnames; i++)
	{
		LeTuple row = {0};

		le_tuple_add_text(&row, cmd.names[i]);
		le_tuple_add(&row, BoolGetDatum(answers[i].status == LE_OK));
		le_tuple_put((ReturnSetInfo *) fcinfo->resultinfo, &row);
	}
	return (Datum) 0;
}

/* Implements release_locks(names, token): returns true if the token held all locks. */
Datum
le_release_locks(PG_FUNCTION_ARGS)
{
	LeCommand cmd = {0};
	LeEachAnswer *answers;
	int64 *tokens;
	bool all = true;

	le_arg_names(fcinfo, &cmd);
	if (PG_ARGISNULL(1))
		PG_RETURN_BOOL(false);
	tokens = palloc_array(int64, cmd.nnames);
	for (uint32 i = 0; i < cmd.nnames; i++)
		tokens[i] = le_arg_token(fcinfo, 1, "token");
	cmd.tokens = tokens;
	answers = release_each(fcinfo, &cmd);
	for (uint32 i = 0; i < cmd.nnames; i++)
		all &= answers[i].status == LE_OK;
	PG_RETURN_BOOL(all);
}
