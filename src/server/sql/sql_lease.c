/*
 * sql/sql_lease.c
 *		The SQL functions for leases and permits.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#include "backend/durability.h"
#include "backend/session_request.h"
#include "shared/compat.h"
#include "sql/sql_args.h"
#include "sql/sql.h"

LE_FUNCTION(le_grant_lease);
LE_FUNCTION(le_keep_alive);
LE_FUNCTION(le_revoke_lease);
LE_FUNCTION(le_lease_time_to_live);
LE_FUNCTION(le_acquire_permit);
LE_FUNCTION(le_set_permits);

/* --- leases --- */

static void
wait_durable(const LeReply *reply, int64 lease)
{
	char number[MAXINT8LEN + 1];

	le_wait_durable(reply, "lease", (LeText){number, pg_lltoa(lease, number)});
}

/* grant_lease(ttl, owner) */
Datum
le_grant_lease(PG_FUNCTION_ARGS)
{
	LeCommand cmd = {.type = LE_CMD_GRANT_LEASE};
	LeReply reply;

	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("ttl must not be null"),
						errdetail("A lease has a ttl from 100 milliseconds to 24 days.")));
	cmd.ttl = le_arg_ttl(fcinfo, 0, 0);
	cmd.owner = le_arg_owner(fcinfo, 1);
	cmd.role = GetUserId();
	le_request(&cmd, &reply, false);
	le_check_reply(&cmd, &reply);
	wait_durable(&reply, reply.lease);
	PG_RETURN_INT64(reply.lease);
}

/* A command on the lease of the first argument; false: there is no such lease (any more). */
static bool
lease_request(FunctionCallInfo fcinfo, LeCommandType type, LeReply *reply)
{
	LeCommand cmd = {.type = type};

	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("lease must not be null")));
	cmd.lease = PG_GETARG_INT64(0);
	cmd.role = GetUserId();
	le_request(&cmd, reply, false);
	if (reply->status == LE_NO_LEASE)
		return false;

	/* a lease with thousands of locks ends in steps, by itself: wait for the last of them */
	while (reply->next != 0)
	{
		wait_durable(reply, cmd.lease);
		cmd.from = reply->next;
		le_request(&cmd, reply, false);
	}
	if (reply->status == LE_DENIED)
		le_raise_other_lease(cmd.lease);
	wait_durable(reply, cmd.lease);
	return true;
}

/* keep_alive(lease) */
Datum
le_keep_alive(PG_FUNCTION_ARGS)
{
	LeReply reply;

	if (!lease_request(fcinfo, LE_CMD_KEEP_ALIVE, &reply))
		PG_RETURN_NULL();
	return le_interval_datum(reply.valid_for);
}

/* revoke_lease(lease) */
Datum
le_revoke_lease(PG_FUNCTION_ARGS)
{
	LeReply reply;

	PG_RETURN_BOOL(lease_request(fcinfo, LE_CMD_REVOKE_LEASE, &reply));
}

/* lease_time_to_live(lease) */
Datum
le_lease_time_to_live(PG_FUNCTION_ARGS)
{
	LeReply reply;

	if (!lease_request(fcinfo, LE_CMD_LEASE_TTL, &reply))
		PG_RETURN_NULL();
	return le_interval_datum(reply.valid_for);
}

/* --- permits --- */

/* acquire_permit(name, permits, ttl, wait, owner, lease) */
Datum
le_acquire_permit(PG_FUNCTION_ARGS)
{
	return le_acquire(fcinfo, LE_ASK_PERMIT);
}

/* set_permits(name, permits) */
Datum
le_set_permits(PG_FUNCTION_ARGS)
{
	LeCommand cmd = {.type = LE_CMD_SET_PERMITS, .kind = LE_KIND_LOCK};
	LeReply reply;
	int32 before;

	cmd.name = le_arg_name(fcinfo, LE_KIND_LOCK);
	cmd.permits = le_arg_permits(fcinfo, 1);
	if (!le_may_manage(cmd.kind, cmd.name))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("permission denied to change the permits of \"%.*s\"", (int) cmd.name.len,
							   cmd.name.data),
						errhint("Only members of all holders' roles, or of pg_signal_backend, may.")));
	le_request(&cmd, &reply, false);
	if (reply.status == LE_NOT_HELD)
		PG_RETURN_NULL();
	le_check_reply(&cmd, &reply);
	before = reply.permits;
	while (reply.status == LE_OK && reply.next != 0)
	{
		/* the rows of very many holders */
		le_wait_durable(&reply, "permits", cmd.name);
		cmd.from = reply.next;
		le_request(&cmd, &reply, false);
	}
	le_wait_durable(&reply, "permits", cmd.name);
	PG_RETURN_INT32(before);
}
