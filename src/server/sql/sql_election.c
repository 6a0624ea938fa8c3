/*
 * sql/sql_election.c
 *		Implements the SQL functions for leader election.  Elections are locks with a separate namespace.  The
 *		holder is the leader; its value, the candidate text, can be changed.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "backend/durability.h"
#include "backend/session_request.h"
#include "shared/compat.h"
#include "shared/shmem.h"
#include "sql/sql_args.h"
#include "sql/sql.h"
#include "store/store.h"

LE_FUNCTION(le_proclaim);
LE_FUNCTION(le_resign);
LE_FUNCTION(le_current_leader);

/* --- functions of the leader --- */

/* Implements proclaim(election, term, candidate). */
Datum
le_proclaim(PG_FUNCTION_ARGS)
{
	LeCommand cmd = {.type = LE_CMD_PROCLAIM, .kind = LE_KIND_ELECTION};
	LeReply reply;

	le_arg_holder(fcinfo, &cmd);
	cmd.value = le_arg_text(fcinfo, 2, "candidate", LE_MAX_VALUE);
	cmd.role = GetUserId();
	le_request(&cmd, &reply, false);
	le_check_reply(&cmd, &reply);
	if (reply.status != LE_OK)
		PG_RETURN_BOOL(false);
	le_wait_durable(&reply, "election", cmd.name);
	PG_RETURN_BOOL(true);
}

/* Implements resign(election, term), which releases nothing if the term is NULL. */
Datum
le_resign(PG_FUNCTION_ARGS)
{
	LeCommand cmd = {.kind = LE_KIND_ELECTION};

	cmd.name = le_arg_name(fcinfo, cmd.kind);
	if (PG_ARGISNULL(1))
		PG_RETURN_BOOL(false);
	cmd.token = le_arg_token(fcinfo, 1, "term");
	return le_release(fcinfo, &cmd);
}

/* --- the current leader --- */

typedef struct Leader
{
	LeText candidate;
	int64 term;
	TimestampTz elected_at;
	TimestampTz expires_at;
	LeTime valid_for_us; /* microseconds; LE_NEVER = unknown, or bound to a connection */
} Leader;

/* Adds the row of current_leader(): candidate, term, elected_at, expires_at, valid_for. */
static void
put_leader(ReturnSetInfo *rsinfo, const Leader *leader)
{
	LeTuple tuple = {0};

	Assert(leader->term > 0 && leader->candidate.len > 0 && leader->valid_for_us >= 0);
	le_tuple_add_text(&tuple, leader->candidate);
	le_tuple_add(&tuple, Int64GetDatum(leader->term));
	le_tuple_add(&tuple, TimestampTzGetDatum(leader->elected_at));
	le_tuple_add_if(&tuple, leader->expires_at != 0, TimestampTzGetDatum(leader->expires_at));
	le_tuple_add_if(&tuple, leader->valid_for_us != LE_NEVER, le_interval_datum(leader->valid_for_us));
	le_tuple_put(rsinfo, &tuple);
}

/*
 * Adds the row of the leader, if there is one.  Waits until the leader, or the end of the last term, is as
 * durable as the caller's synchronous_commit requires, so that an observer that has seen a leader does not
 * see an earlier leader after a crash.
 */
static void
put_live_leader(ReturnSetInfo *rsinfo, LeText election)
{
	LeCommand cmd = {.type = LE_CMD_CHECK, .kind = LE_KIND_ELECTION, .name = election};
	LeReply reply;
	LeLeader live;
	Leader leader;

	do
	{
		le_request_leader(&cmd, &reply, &live);
		if (reply.status != LE_OK)
		{
			(void) le_durable_in_time(&reply);
			return;
		}
		leader.candidate.data = pnstrdup(live.candidate.data, live.candidate.len);
		leader.candidate.len = live.candidate.len;
		leader.elected_at = live.since;
	} while (!le_durable_in_time(&reply)); /* if the term ended meanwhile, read the new leader */
	leader.term = reply.token;
	leader.valid_for_us = le_valid_for(&reply);
	leader.expires_at =
		leader.valid_for_us == LE_NEVER ? DT_NOEND : GetCurrentTimestamp() + leader.valid_for_us;
	put_leader(rsinfo, &leader);
}

typedef struct StoredLeader
{
	ReturnSetInfo *rsinfo;
	LeText election;
} StoredLeader;

/* On a standby: adds the row of a slot, if the slot contains the leader of this election. */
static void
put_stored_leader(void *arg, const LeStoredEntry *slot)
{
	StoredLeader *stored = arg;

	Leader leader = {slot->value, slot->token, slot->since, slot->expires_at, LE_NEVER};

	if (slot->kind == LE_KIND_ELECTION && slot->mode != 0 && slot->end == LE_END_NONE &&
		slot->name.len == stored->election.len &&
		memcmp(slot->name.data, stored->election.data, slot->name.len) == 0)
		put_leader(stored->rsinfo, &leader);
}

/* Implements current_leader(election): returns at most one row; on a standby, from the replayed state. */
Datum
le_current_leader(PG_FUNCTION_ARGS)
{
	StoredLeader stored;

	stored.election = le_arg_name(fcinfo, LE_KIND_ELECTION);
	InitMaterializedSRF(fcinfo, 0);
	stored.rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	if (RecoveryInProgress())
		le_store_scan(put_stored_leader, &stored);
	else
		put_live_leader(stored.rsinfo, stored.election);
	return (Datum) 0;
}
