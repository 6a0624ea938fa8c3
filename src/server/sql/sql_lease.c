/*
 * sql/sql_lease.c
 *		Implements the SQL functions for leases and permits.
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "backend/durability.h"
#include "backend/session_page.h"
#include "backend/session_request.h"
#include "shared/channel.h"
#include "shared/compat.h"
#include "shared/words.h"
#include "sql/sql_args.h"
#include "sql/sql.h"

LE_FUNCTION(le_grant_lease);
LE_FUNCTION(le_keep_alive);
LE_FUNCTION(le_revoke_lease);
LE_FUNCTION(le_lease_time_to_live);
LE_FUNCTION(le_lease_holds);
LE_FUNCTION(le_set_permits);

/* --- leases --- */

static void
wait_durable(const LeReply *reply, int64 lease)
{
	char number[MAXINT8LEN + 1];

	le_wait_durable(reply, "lease", (LeText){number, pg_lltoa(lease, number)});
}

/* Implements grant_lease(ttl, owner, wait). */
Datum
le_grant_lease(PG_FUNCTION_ARGS)
{
	LeCommand cmd = {.type = LE_CMD_GRANT_LEASE};
	LeReply reply;

	cmd.ttl = le_arg_ttl(fcinfo, 0, 0);
	if (cmd.ttl == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("ttl must not be null"),
						errdetail("A lease has a ttl from 100 milliseconds to 24 days.")));
	cmd.owner = le_arg_owner(fcinfo, 1);
	cmd.role = GetUserId();
	if (PG_ARGISNULL(2))
		le_request(&cmd, &reply, false);
	else
		(void) le_request_until(&cmd, &reply, le_clock() + Min(le_arg_wait(fcinfo, 2), LE_MAX_TTL));
	le_check_reply(&cmd, &reply);
	Assert(reply.status == LE_OK && reply.lease > 0);
	if (PG_ARGISNULL(2))
		wait_durable(&reply, reply.lease);
	PG_RETURN_INT64(reply.lease);
}

/* Returns a command for the lease that the first argument names. */
static LeCommand
lease_command(FunctionCallInfo fcinfo, LeCommandType type)
{
	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("lease must not be null")));
	return (LeCommand){.type = type, .lease = PG_GETARG_INT64(0), .role = GetUserId()};
}

/*
 * Sends a command for the lease that the first argument names.  Returns false if that lease does not exist,
 * or has ended.
 */
static bool
lease_request(FunctionCallInfo fcinfo, LeCommandType type, LeReply *reply)
{
	LeCommand cmd = lease_command(fcinfo, type);

	/*
	 * A lease with thousands of locks ends in several steps, even if this call is cancelled.  Wait for the
	 * last step.
	 */
	do
	{
		le_request(&cmd, reply, false);
		if (reply->status == LE_NO_LEASE && cmd.from == 0)
			return false;
		if (reply->status == LE_DENIED)
			le_raise_other_lease(cmd.lease);
		wait_durable(reply, cmd.lease);
		cmd.from = reply->next;
	} while (cmd.from != 0);
	return true;
}

/* Implements keep_alive(lease). */
Datum
le_keep_alive(PG_FUNCTION_ARGS)
{
	LeReply reply;

	if (!lease_request(fcinfo, LE_CMD_KEEP_ALIVE, &reply))
		PG_RETURN_NULL();
	return le_interval_datum(reply.valid_for);
}

/* Implements revoke_lease(lease). */
Datum
le_revoke_lease(PG_FUNCTION_ARGS)
{
	LeReply reply;

	PG_RETURN_BOOL(lease_request(fcinfo, LE_CMD_REVOKE_LEASE, &reply));
}

/* Implements lease_time_to_live(lease). */
Datum
le_lease_time_to_live(PG_FUNCTION_ARGS)
{
	LeReply reply;

	if (!lease_request(fcinfo, LE_CMD_LEASE_TTL, &reply))
		PG_RETURN_NULL();
	return le_interval_datum(le_valid_for(&reply));
}

/* Maximum number of times that lease_holds() and set_permits() start again. */
#define MAX_RESTARTS 20

/*
 * Adds a row of lease_holds(): kind, name, token, granted, queue_position, channel, owner.  Skips a token
 * that the manager does not show to this session, for example of an evicted holder.
 */
static void
put_hold(void *arg, const LePageItem *item)
{
	LePageTexts texts = le_page_texts(item);
	LeText announced = texts.value.len > 0 ? texts.value : texts.name;
	char channel[LE_CHANNEL_SIZE];
	LeTuple tuple = {0};

	if (!item->shown)
		return;
	le_channel_name((LeKind) item->kind, announced, channel);
	le_tuple_add_string(&tuple, le_kind_word((LeKind) item->kind));
	le_tuple_add_text(&tuple, texts.name);
	le_tuple_add(&tuple, Int64GetDatum(item->token));
	le_tuple_add(&tuple, BoolGetDatum(item->position == 0));
	le_tuple_add(&tuple, Int64GetDatum((int64) item->position));
	le_tuple_add_string(&tuple, channel);
	le_tuple_add_text(&tuple, texts.owner);
	le_tuple_put(arg, &tuple);
}

/*
 * Implements lease_holds(lease): reads the holds page by page.  Raises LE001 if the lease ends before the
 * last page is read.  Waits for the durability of each page, because each page depends on different rows.
 */
Datum
le_lease_holds(PG_FUNCTION_ARGS)
{
	LeCommand cmd = lease_command(fcinfo, LE_CMD_LEASE_HOLDS);
	LeReply reply;
	ReturnSetInfo *rsinfo;
	char *copy = palloc(LE_PAYLOAD_SIZE);
	int restarts = 0;

	InitMaterializedSRF(fcinfo, 0);
	rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	do
	{
		le_page_holds(&cmd, &reply, copy, put_hold, rsinfo);
		le_check_reply(&cmd, &reply);
		wait_durable(&reply, cmd.lease);
		if (reply.status == LE_OK)
			continue;
		if (++restarts > MAX_RESTARTS)
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("the holds of lease " INT64_FORMAT " have changed too often while they were read",
							cmd.lease),
					 errdetail("Reading them was restarted %d times.", restarts)));
		tuplestore_clear(rsinfo->setResult);
	} while (reply.status != LE_OK || cmd.from != 0);
	return (Datum) 0;
}

/* --- permits --- */

/* Implements set_permits(name, permits). */
Datum
le_set_permits(PG_FUNCTION_ARGS)
{
	LeCommand cmd = {.type = LE_CMD_SET_PERMITS, .kind = LE_KIND_LOCK};
	LeReply reply;
	int32 before = 0;
	int restarts = 0;
	bool look = true;

	cmd.name = le_arg_name(fcinfo, LE_KIND_LOCK);
	cmd.permits = le_arg_permits(fcinfo, 1);
	do
	{
		/* 1. check the rights, and check them again if another role has acquired the name meanwhile */
		if (look && !le_may_manage(&cmd))
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("permission denied to change the permits of \"%.*s\"", (int) cmd.name.len,
							cmd.name.data),
					 errhint("Only members of all holders' roles, or of pg_signal_backend, may do this.")));

		/* 2. change the number of permits */
		le_request(&cmd, &reply, false);
		look = reply.status == LE_DENIED;
		if (look)
		{
			if (++restarts > MAX_RESTARTS)
				ereport(ERROR,
						(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
						 errmsg("the holders of \"%.*s\" have changed too often while their roles were read",
								(int) cmd.name.len, cmd.name.data)));
			continue;
		}
		if (reply.status == LE_NOT_HELD && cmd.from == 0)
			PG_RETURN_NULL();
		le_check_reply(&cmd, &reply);
		if (cmd.from == 0)
			before = reply.permits;
		le_wait_durable(&reply, "permits", cmd.name);

		/* 3. if there are very many holders, continue with the next step */
		cmd.from = reply.next;
	} while (look || cmd.from != 0);
	PG_RETURN_INT32(before);
}
