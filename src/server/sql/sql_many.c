/*
 * sql/sql_many.c
 *		The SQL functions for several locks at once.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "backend/session_fence.h"
#include "backend/pending.h"
#include "backend/session_request.h"
#include "backend/session_mailbox.h"
#include "backend/xactstate.h"
#include "shared/compat.h"
#include "sql/sql_args.h"
#include "sql/sql.h"

LE_FUNCTION(le_acquire_locks);
LE_FUNCTION(le_release_locks);

/* acquire_locks(names, ttl, wait, mode, owner, lease) */
Datum
le_acquire_locks(PG_FUNCTION_ARGS)
{
	return le_acquire(fcinfo, LE_ASK_LOCKS);
}

/*
 * The usual case, in two requests for any number of names: the token holds all of
 * them, and no release of it is pending.  As in le_release_at_commit(), the fence comes
 * before the second request; the names share their token, so one fence is enough.
 */
static bool
release_all_at_commit(LeCommand *cmd)
{
	LeReply reply;

	Assert(cmd->type == LE_CMD_CHECK && cmd->nnames > 0);
	if (le_pending_any(cmd->token))
		return false;
	le_request(cmd, &reply, false);
	if (reply.status != LE_OK)
		return false;
	le_fence_take(cmd->token);
	le_request(cmd, &reply, false);
	if (reply.status != LE_OK)
		return false;
	le_wait_durable_fenced(cmd, &reply);
	for (uint32 i = 0; i < cmd->nnames; i++)
		le_pending_add(cmd->token, cmd->kind, cmd->names[i], 0, 1, reply.own_session);
	return true;
}

/* Release those names that the token holds; true: it holds all of them. */
static bool
release_each_at_commit(const LeCommand *cmd)
{
	bool all = true;

	for (uint32 i = 0; i < cmd->nnames; i++)
	{
		LeCommand one = le_command_for(cmd, i);

		all &= le_release_at_commit(&one);
	}
	return all;
}

/* release_locks(names, token) */
Datum
le_release_locks(PG_FUNCTION_ARGS)
{
	LeCommand cmd = {.type = LE_CMD_CHECK, .kind = LE_KIND_LOCK};

	le_arg_names(fcinfo, &cmd);
	if (PG_ARGISNULL(1))
		PG_RETURN_BOOL(false);
	cmd.token = le_arg_token(fcinfo, 1, "token");
	cmd.role = GetUserId();
	le_check_can_attach();
	if (le_release_is_final(fcinfo))
		PG_RETURN_BOOL(le_release_now(&cmd));
	PG_RETURN_BOOL(release_all_at_commit(&cmd) || release_each_at_commit(&cmd));
}
