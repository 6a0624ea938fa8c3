/*
 * sql/sql_queue.c
 *		The SQL functions for those who wait without blocking a connection.
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "backend/durability.h"
#include "backend/pending.h"
#include "backend/session_request.h"
#include "backend/session_mailbox.h"
#include "shared/channel.h"
#include "shared/compat.h"
#include "shared/words.h"
#include "sql/sql_args.h"
#include "sql/sql.h"

LE_FUNCTION(le_enqueue_lock);
LE_FUNCTION(le_enqueue_permit);
LE_FUNCTION(le_enqueue_locks);
LE_FUNCTION(le_await_lock);
LE_FUNCTION(le_await_locks);

Datum
le_enqueue(FunctionCallInfo fcinfo, LeAsk ask)
{
	LeCommand cmd = {.type = LE_CMD_ACQUIRE, .enqueue = true, .role = GetUserId()};
	LeReply reply;
	char channel[LE_CHANNEL_SIZE];
	bool granted;
	LeTuple tuple = {0};

	le_arg_ask(fcinfo, ask, &cmd);
	le_request(&cmd, &reply, false);
	if (reply.status != LE_QUEUED)
		le_check_reply(&cmd, &reply);
	le_wait_durable(&reply, le_kind_word(cmd.kind), cmd.name);
	granted = reply.status == LE_OK;

	/* on a lease nothing is counted: asking again takes back what was to be released */
	if (cmd.lease != 0)
		le_pending_cancel_all(&cmd, reply.token);
	if (granted)
		le_warn_old_snapshot(fcinfo, &cmd, &reply);

	le_channel_name(cmd.kind, cmd.nnames > 0 ? cmd.names[0] : cmd.name, channel);
	le_tuple_add(&tuple, Int64GetDatum(reply.token));
	le_tuple_add(&tuple, BoolGetDatum(granted));
	le_tuple_add(&tuple, Int64GetDatum(granted ? 0 : (int64) reply.position));
	le_tuple_add_string(&tuple, channel);
	return le_tuple_datum(fcinfo, &tuple);
}

/* enqueue_lock(name, ttl, mode, owner, lease) */
Datum
le_enqueue_lock(PG_FUNCTION_ARGS)
{
	return le_enqueue(fcinfo, LE_ASK_LOCK);
}

/* enqueue_permit(name, permits, ttl, owner, lease) */
Datum
le_enqueue_permit(PG_FUNCTION_ARGS)
{
	return le_enqueue(fcinfo, LE_ASK_PERMIT);
}

/* enqueue_locks(names, ttl, mode, owner, lease) */
Datum
le_enqueue_locks(PG_FUNCTION_ARGS)
{
	return le_enqueue(fcinfo, LE_ASK_LOCKS);
}

/* Wait for a grant to the token of a place or a holder; its name, or names, and the token are in cmd. */
static Datum
await(FunctionCallInfo fcinfo, LeCommand *cmd)
{
	LeReply reply;
	bool gave_up;

	cmd->type = LE_CMD_AWAIT;
	cmd->wait = le_arg_wait(fcinfo, 2);
	cmd->role = GetUserId();
	le_check_can_attach();
	gave_up = le_wait_for(fcinfo, cmd, &reply);
	if (reply.status == LE_OK && !gave_up)
		le_warn_old_snapshot(fcinfo, cmd, &reply);
	PG_RETURN_BOOL(reply.status == LE_OK);
}

Datum
le_await(FunctionCallInfo fcinfo, LeKind kind)
{
	LeCommand cmd = {.kind = kind};

	le_arg_holder(fcinfo, &cmd);
	return await(fcinfo, &cmd);
}

/* await_locks(names, token, wait) */
Datum
le_await_locks(PG_FUNCTION_ARGS)
{
	LeCommand cmd = {.kind = LE_KIND_LOCK};

	le_arg_names(fcinfo, &cmd);
	cmd.token = le_arg_token(fcinfo, 1, "token");
	return await(fcinfo, &cmd);
}

/* await_lock(name, token, wait) */
Datum
le_await_lock(PG_FUNCTION_ARGS)
{
	return le_await(fcinfo, LE_KIND_LOCK);
}
