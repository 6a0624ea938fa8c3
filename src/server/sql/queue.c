/*
 * sql/queue.c
 *		The SQL functions for those who wait without blocking a connection.
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "backend/durability.h"
#include "backend/request.h"
#include "backend/session.h"
#include "backend/snapshot.h"
#include "shared/channel.h"
#include "shared/compat.h"
#include "shared/words.h"
#include "sql/args.h"
#include "sql/sql.h"

LE_FUNCTION(le_enqueue_lock);
LE_FUNCTION(le_enqueue_permit);
LE_FUNCTION(le_enqueue_locks);
LE_FUNCTION(le_await_lock);
LE_FUNCTION(le_await_locks);

/* Columns of the answer of enqueue_lock() and enqueue_candidate(), in their order. */
enum
{
	ENQUEUE_TOKEN,
	ENQUEUE_GRANTED,
	ENQUEUE_POSITION,
	ENQUEUE_CHANNEL,
	ENQUEUE_COLUMNS
};

static Datum
place_datum(FunctionCallInfo fcinfo, const LeCommand *cmd, const LeReply *reply)
{
	char channel[LE_CHANNEL_SIZE];
	Datum values[ENQUEUE_COLUMNS];
	bool nulls[ENQUEUE_COLUMNS] = {false};
	bool granted = reply->status == LE_OK;
	TupleDesc desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	le_channel_name(cmd->kind, cmd->nnames > 0 ? cmd->names[0] : cmd->name, channel);
	values[ENQUEUE_TOKEN] = Int64GetDatum(reply->token);
	values[ENQUEUE_GRANTED] = BoolGetDatum(granted);
	values[ENQUEUE_POSITION] = Int64GetDatum(granted ? 0 : (int64) reply->position);
	values[ENQUEUE_CHANNEL] = CStringGetTextDatum(channel);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

Datum
le_enqueue(FunctionCallInfo fcinfo, LeCommand *cmd)
{
	LeReply reply;

	cmd->type = LE_CMD_ACQUIRE;
	cmd->enqueue = true;
	cmd->role = GetUserId();
	le_request(cmd, &reply, false);
	if (cmd->nnames > 0)
		cmd->name = cmd->names[reply.which]; /* an error tells it */
	if (reply.status != LE_QUEUED)
		le_check_reply(cmd, &reply);
	le_wait_durable(&reply, le_kind_word(cmd->kind), cmd->name);
	if (reply.status == LE_OK)
		le_warn_old_snapshot(fcinfo, cmd, &reply);
	return place_datum(fcinfo, cmd, &reply);
}

/* enqueue_lock(name, ttl, mode, owner, lease) */
Datum
le_enqueue_lock(PG_FUNCTION_ARGS)
{
	LeCommand cmd = {.kind = LE_KIND_LOCK};

	cmd.name = le_arg_name(fcinfo, 0);
	cmd.ttl = le_arg_ttl(fcinfo, 1, LE_TTL_BOUND);
	cmd.mode = le_arg_mode(fcinfo, 2);
	cmd.owner = le_arg_owner(fcinfo, 3);
	cmd.lease = le_lease_arg(fcinfo, 4);
	return le_enqueue(fcinfo, &cmd);
}

/* enqueue_permit(name, permits, ttl, owner, lease) */
Datum
le_enqueue_permit(PG_FUNCTION_ARGS)
{
	LeCommand cmd = {.kind = LE_KIND_LOCK, .mode = LE_MODE_PERMIT};

	cmd.name = le_arg_name(fcinfo, 0);
	cmd.permits = le_arg_permits(fcinfo, 1);
	cmd.ttl = le_arg_ttl(fcinfo, 2, LE_TTL_BOUND);
	cmd.owner = le_arg_owner(fcinfo, 3);
	cmd.lease = le_lease_arg(fcinfo, 4);
	return le_enqueue(fcinfo, &cmd);
}

/* enqueue_locks(names, ttl, mode, owner, lease) */
Datum
le_enqueue_locks(PG_FUNCTION_ARGS)
{
	LeCommand cmd = {.kind = LE_KIND_LOCK};

	cmd.names = le_arg_names(fcinfo, 0, &cmd.nnames);
	cmd.name = cmd.names[0];
	cmd.ttl = le_arg_ttl(fcinfo, 1, LE_TTL_BOUND);
	cmd.mode = le_arg_mode(fcinfo, 2);
	cmd.owner = le_arg_owner(fcinfo, 3);
	cmd.lease = le_lease_arg(fcinfo, 4);
	return le_enqueue(fcinfo, &cmd);
}

/* Of a place or a holder; the name, or names, and the token are there. */
static Datum
await(FunctionCallInfo fcinfo, LeCommand *cmd)
{
	LeReply reply;
	bool gave_up = false;

	cmd->type = LE_CMD_AWAIT;
	cmd->wait = le_arg_wait(fcinfo, 2);
	cmd->role = GetUserId();
	le_check_can_attach();
	if (cmd->wait != 0)
		gave_up = le_snapshot_give_up(fcinfo);
	le_request(cmd, &reply, cmd->wait != 0 && !gave_up);
	if (cmd->nnames > 0)
		cmd->name = cmd->names[reply.which];

	/* that the place is still there is worth as much as a grant */
	if (reply.status == LE_OK || reply.status == LE_QUEUED)
		le_wait_durable(&reply, le_kind_word(cmd->kind), cmd->name);
	if (gave_up)
		le_snapshot_take();
	if (reply.status != LE_QUEUED)
		le_check_reply(cmd, &reply);
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

	cmd.names = le_arg_names(fcinfo, 0, &cmd.nnames);
	cmd.name = cmd.names[0];
	cmd.token = le_arg_token(fcinfo, 1);
	return await(fcinfo, &cmd);
}

/* await_lock(name, token, wait) */
Datum
le_await_lock(PG_FUNCTION_ARGS)
{
	return le_await(fcinfo, LE_KIND_LOCK);
}
