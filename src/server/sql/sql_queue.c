/*
 * sql/sql_queue.c
 *		Implements the SQL functions that wait without blocking a connection.
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
	Assert(reply.token > 0 && (granted || (reply.status == LE_QUEUED && reply.position > 0)));

	/* a repeated enqueue on a lease adds no hold: cancel releases that would end it */
	if (cmd.lease != 0)
		le_pending_cancel_all(&cmd, reply.token);
	if (granted)
		le_warn_old_snapshot(fcinfo, &cmd, &reply);

	le_channel_name(cmd.kind, le_command_name(&cmd, 0), channel);
	le_tuple_add(&tuple, Int64GetDatum(reply.token));
	le_tuple_add(&tuple, BoolGetDatum(granted));
	le_tuple_add(&tuple, Int64GetDatum(granted ? 0 : (int64) reply.position));
	le_tuple_add_string(&tuple, channel);
	return le_tuple_datum(fcinfo, &tuple);
}

/* Waits until the place with this token is granted.  Returns at once if the token already holds the lock. */
Datum
le_await(FunctionCallInfo fcinfo, LeAsk ask)
{
	LeCommand cmd = {.type = LE_CMD_AWAIT, .role = GetUserId()};
	LeReply reply;
	bool gave_up;

	le_arg_names_of(fcinfo, ask, &cmd);
	cmd.token = le_arg_token(fcinfo, 1, le_token_word(cmd.kind));
	cmd.wait = le_arg_wait(fcinfo, 2);
	gave_up = le_wait_for(fcinfo, &cmd, &reply);
	if (reply.status == LE_OK && !gave_up)
		le_warn_old_snapshot(fcinfo, &cmd, &reply);
	PG_RETURN_BOOL(reply.status == LE_OK);
}
