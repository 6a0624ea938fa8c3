/*
 * sql/sql_history.c
 *		Implements the SQL functions for the observers of an election.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "backend/durability.h"
#include "backend/session_request.h"
#include "backend/session_mailbox.h"
#include "shared/channel.h"
#include "shared/compat.h"
#include "shared/shmem.h"
#include "shared/words.h"
#include "sql/sql_args.h"
#include "sql/sql.h"
#include "store/store.h"

LE_FUNCTION(le_observe_election);
LE_FUNCTION(le_election_history);

/* Implements observe_election(election). */
Datum
le_observe_election(PG_FUNCTION_ARGS)
{
	char channel[LE_CHANNEL_SIZE];

	if (le_shared == NULL)
		le_check_can_attach(); /* this call raises the error */
	le_channel_name(LE_KIND_ELECTION, le_arg_name(fcinfo, LE_KIND_ELECTION), channel);
	PG_RETURN_TEXT_P(cstring_to_text(channel));
}

/* Adds a row of election_history(): change, how, candidate, term, elected_at, changed_at, ended_at. */
static void
put_change(void *arg, const LeStoredChange *change)
{
	LeTuple tuple = {0};
	bool ended = change->how != LE_HOW_ELECTED && change->how != LE_HOW_PROCLAIMED;

	le_tuple_add(&tuple, Int64GetDatum(change->number));
	le_tuple_add_string(&tuple, le_how_name(change->how));
	le_tuple_add_text(&tuple, change->candidate);
	le_tuple_add(&tuple, Int64GetDatum(change->term));
	le_tuple_add(&tuple, TimestampTzGetDatum(change->elected_at));
	le_tuple_add(&tuple, TimestampTzGetDatum(change->at));
	le_tuple_add_if(&tuple, ended, TimestampTzGetDatum(change->at));
	le_tuple_put(arg, &tuple);
}

/*
 * Waits until the rows that were read are durable: they are committed, but perhaps not flushed or replicated
 * yet.  The manager replies after the batch that wrote them, with the LSN of the batch's end.
 */
static void
wait_until_durable(void)
{
	LeReply reply;

	le_request_changes(&reply);
	(void) le_durable_in_time(&reply);
}

/* Implements election_history(election, after). */
Datum
le_election_history(PG_FUNCTION_ARGS)
{
	LeText election;

	if (le_shared == NULL)
		le_check_can_attach(); /* this call raises the error */
	election = le_arg_name(fcinfo, LE_KIND_ELECTION);
	InitMaterializedSRF(fcinfo, 0);
	le_store_scan_history(election, PG_ARGISNULL(1) ? 0 : PG_GETARG_INT64(1), put_change, fcinfo->resultinfo);
	if (!RecoveryInProgress() &&
		tuplestore_tuple_count(((ReturnSetInfo *) fcinfo->resultinfo)->setResult) > 0)
		wait_until_durable();
	return (Datum) 0;
}
