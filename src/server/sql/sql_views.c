/*
 * sql/sql_views.c
 *		Implements the functions behind the views of schema lock_election.
 *
 * Every role may see names and states, and also leaders and their terms.  To see the details of a holder
 * (owner, token, connection), a role must be a member of the holder's role or of pg_read_all_stats.
 */
#include "postgres.h"

#include <arpa/inet.h>

#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/inet.h"
#include "utils/timestamp.h"

#include "backend/session_acquirer.h"
#include "backend/session_page.h"
#include "backend/session_mailbox.h"
#include "core/stats.h"
#include "shared/compat.h"
#include "shared/page_format.h"
#include "shared/shmem.h"
#include "shared/words.h"
#include "sql/sql_args.h"
#include "sql/sql.h"
#include "store/store.h"

LE_FUNCTION(le_look_sql);
LE_FUNCTION(le_look_leases_sql);
LE_FUNCTION(le_manager_info);
LE_FUNCTION(le_stat);
LE_FUNCTION(le_histogram);
LE_FUNCTION(le_stat_reset);

/* A row of look(): a holder, a waiter, or a closed name without a holder (token 0). */
typedef struct Shown
{
	LePageItem item; /* its lengths are unused; absent members are marked as in LePageItem */
	bool live;       /* true: on a primary, where the waiters and the connection's state are known */
	LePageTexts texts;
} Shown;

bool
le_may_see_details(Oid role)
{
	return has_privs_of_role(GetUserId(), role) || has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
}

/* Returns whether the connection of a session is still open. */
static bool
session_is_there(uint64 session)
{
	uint32 proc = le_session_proc(session);

	return session != 0 && le_my_mailbox != NULL && proc < (uint32) le_shared->max_sessions &&
		   le_mailbox(le_my_database(), proc)->session == session;
}

/* Adds a row of look(), in the order of its columns.  Details that the caller may not see are NULL. */
static void
put_shown(ReturnSetInfo *rsinfo, const Shown *shown)
{
	const LePageItem *item = &shown->item;
	const char *mode = item->mode == LE_MODE_SHARED   ? "shared"
					   : item->mode == LE_MODE_PERMIT ? "permit"
													  : "exclusive";
	bool held = item->token != 0, details = held && le_may_see_details(item->role);
	LeAcquirerParts acquirer = {0};
	struct in6_addr net;
	bool has_addr;
	LeTuple tuple = {0};

	Assert(held || item->closed_until != 0);
	Assert(item->position == 0 || (held && item->slot < 0));

	/* 1. parse the acquirer; the text may be invalid, because a row may have been written by hand */
	if (details)
		le_acquirer_parse(shown->texts.acquirer, &acquirer);
	has_addr = acquirer.client_addr != NULL && (inet_pton(AF_INET, acquirer.client_addr, &net) == 1 ||
												inet_pton(AF_INET6, acquirer.client_addr, &net) == 1);

	/* 2. add the columns */
	le_tuple_add_string(&tuple, le_kind_word((LeKind) item->kind));
	le_tuple_add_text(&tuple, shown->texts.name);
	le_tuple_add_if(&tuple, item->slot >= 0, Int32GetDatum(item->slot));
	le_tuple_add_string(&tuple, held ? mode : NULL);
	le_tuple_add_text(&tuple, details ? shown->texts.owner : (LeText){0});
	le_tuple_add_text(&tuple, held ? shown->texts.value : (LeText){0});
	le_tuple_add(&tuple, ObjectIdGetDatum(item->role));
	le_tuple_add_if(&tuple, details, Int64GetDatum(item->token));
	le_tuple_add_if(&tuple, details && item->lease != 0, Int64GetDatum(item->lease));
	le_tuple_add_if(&tuple, held, Int32GetDatum(item->holds));
	le_tuple_add_if(&tuple, held, TimestampTzGetDatum(item->since));
	le_tuple_add_if(&tuple, held && item->expires_at != 0, TimestampTzGetDatum(item->expires_at));
	le_tuple_add_if(&tuple, held && item->time_left_us != LE_NEVER, le_interval_datum(item->time_left_us));
	le_tuple_add_if(&tuple, shown->live, Int64GetDatum(item->waiters));
	le_tuple_add_if(&tuple, item->closed_until != 0, TimestampTzGetDatum(item->closed_until));
	le_tuple_add(&tuple, Int64GetDatum(item->position));
	le_tuple_add_if(&tuple, acquirer.pid != 0, Int32GetDatum(acquirer.pid));
	le_tuple_add_if(&tuple, held && item->kind == LE_KIND_ELECTION && item->position == 0,
					Int64GetDatum(item->token));
	le_tuple_add_string(&tuple, acquirer.application_name);
	le_tuple_add_if(&tuple, has_addr,
					has_addr ? DirectFunctionCall1(inet_in, CStringGetDatum(acquirer.client_addr)) : 0);
	le_tuple_add_if(&tuple, details && shown->live, BoolGetDatum(session_is_there(item->session)));
	le_tuple_add_if(&tuple, held && item->position == 0, BoolGetDatum(item->evicted));
	le_tuple_put(rsinfo, &tuple);
}

/* On a primary: adds an item of a page from the manager. */
static void
put_live(void *arg, const LePageItem *item)
{
	Shown shown = {.item = *item, .live = true, .texts = le_page_texts(item)};

	put_shown(arg, &shown);
}

/* On a standby: adds a replayed row.  Its time left is unknown, because no manager runs there. */
static void
put_stored(void *arg, const LeStoredEntry *slot)
{
	bool held = slot->mode != 0;
	Shown shown = {
		.item = {.token = held ? slot->token : 0,
				 .lease = slot->lease != slot->token ? slot->lease : 0,
				 .since = slot->since,
				 .expires_at = slot->expires_at,
				 .closed_until = slot->closed_until,
				 .time_left_us = LE_NEVER,
				 .role = slot->role,
				 .slot = held ? slot->slot : -1,
				 .holds = slot->holds,
				 .kind = slot->kind,
				 .mode = slot->mode,
				 .evicted = slot->evicted},
		.texts = {.name = slot->name, .owner = slot->owner, .value = slot->value, .acquirer = slot->acquirer},
	};

	put_shown(arg, &shown);
}

/* Implements look(): returns every holder and waiter.  On a standby, reads the replayed rows. */
Datum
le_look_sql(PG_FUNCTION_ARGS)
{
	LeText all = {NULL, 0};

	InitMaterializedSRF(fcinfo, 0);
	if (RecoveryInProgress())
		le_store_scan(put_stored, fcinfo->resultinfo);
	else
		le_page_each(LE_KIND_LOCK, all, put_live, fcinfo->resultinfo);
	return (Datum) 0;
}

/* Adds a row of look_leases(): lease, owner, role, ttl, expires_at, time_left. */
static void
put_lease(void *arg, const LePageItem *lease)
{
	bool details = le_may_see_details(lease->role);
	LeTuple tuple = {0};

	le_tuple_add_if(&tuple, details, Int64GetDatum(lease->lease));
	le_tuple_add_text(&tuple, details ? le_page_texts(lease).owner : (LeText){0});
	le_tuple_add(&tuple, ObjectIdGetDatum(lease->role));
	le_tuple_add(&tuple, le_interval_datum(lease->ttl_us));
	le_tuple_add(&tuple, TimestampTzGetDatum(lease->expires_at));
	le_tuple_add(&tuple, le_interval_datum(lease->time_left_us));
	le_tuple_put(arg, &tuple);
}

/* Implements look_leases(): returns every named lease; on a standby none, because no manager runs there. */
Datum
le_look_leases_sql(PG_FUNCTION_ARGS)
{
	InitMaterializedSRF(fcinfo, 0);
	if (!RecoveryInProgress())
		le_page_each(LE_PAGE_LEASES, (LeText){NULL, 0}, put_lease, fcinfo->resultinfo);
	return (Datum) 0;
}

/* Returns this database's entry, or NULL if it does not have one yet. */
static LeDatabase *
my_entry(void)
{
	LeDatabase *db;

	if (le_shared == NULL)
		le_check_can_attach(); /* this call raises the error */
	LWLockAcquire(le_shared->lock, LW_SHARED);
	db = le_database_find(MyDatabaseId, false);
	LWLockRelease(le_shared->lock);
	return db;
}

static void
add_counter(LeTuple *tuple, pg_atomic_uint64 *counter)
{
	le_tuple_add(tuple, Int64GetDatum((int64) pg_atomic_read_u64(counter)));
}

/*
 * Implements manager_info(): returns pid, started, incarnation, revision, locks, held, waiting, oldest_wait,
 * memory, and the sizes of tables.
 */
Datum
le_manager_info(PG_FUNCTION_ARGS)
{
	LeDatabase *db = my_entry();
	LeTuple tuple = {0};
	uint64 revision, oldest;

	if (db == NULL || pg_atomic_read_u32(&db->running) == 0)
		PG_RETURN_NULL();
	revision = pg_atomic_read_u64(&db->revision);
	oldest = pg_atomic_read_u64(&db->oldest_wait);
	le_tuple_add(&tuple, Int32GetDatum(db->worker_pid));
	le_tuple_add(&tuple, TimestampTzGetDatum(db->started));
	le_tuple_add(&tuple, Int64GetDatum(revision >> LE_COUNTER_BITS));
	le_tuple_add(&tuple, Int64GetDatum(revision));
	add_counter(&tuple, &db->locks);
	add_counter(&tuple, &db->held);
	add_counter(&tuple, &db->queued);
	le_tuple_add_if(&tuple, oldest != 0, TimestampTzGetDatum((TimestampTz) oldest));
	add_counter(&tuple, &db->memory);
	for (int i = 0; i < LE_DB_TABLES; i++)
		add_counter(&tuple, &db->table_bytes[i]);
	return le_tuple_datum(fcinfo, &tuple);
}

/* Implements counters(): returns the counters of this database, in the order of the columns of view stat. */
Datum
le_stat(PG_FUNCTION_ARGS)
{
	LeDatabase *db = my_entry();
	LeCounters *counters;
	LeTuple tuple = {0};

	if (db == NULL)
		PG_RETURN_NULL();
	counters = &db->counters;

	/* 1. requests, by type */
	add_counter(&tuple, &counters->requests[LE_CMD_ACQUIRE]);
	add_counter(&tuple, &counters->requests[LE_CMD_RENEW]);
	add_counter(&tuple, &counters->requests[LE_CMD_RELEASE]);
	add_counter(&tuple, &counters->requests[LE_CMD_CHECK]);
	add_counter(&tuple, &counters->requests[LE_CMD_FORCE]);
	add_counter(&tuple, &counters->requests[LE_CMD_AWAIT]);

	/* 2. the outcomes of requests */
	add_counter(&tuple, &counters->grants);
	add_counter(&tuple, &counters->waits);
	add_counter(&tuple, &counters->handoffs);
	add_counter(&tuple, &counters->elected);
	add_counter(&tuple, &counters->expiries);
	add_counter(&tuple, &counters->timeouts);
	add_counter(&tuple, &counters->undone);

	/* 3. the work of the manager */
	add_counter(&tuple, &counters->batches);
	add_counter(&tuple, &counters->failed_batches);
	add_counter(&tuple, &counters->key_violations);
	add_counter(&tuple, &counters->xids);
	add_counter(&tuple, &counters->rows);
	add_counter(&tuple, &counters->flushes);
	add_counter(&tuple, &counters->stalls);
	add_counter(&tuple, &counters->hints_sent);
	add_counter(&tuple, &counters->hints_dropped);
	le_tuple_add(&tuple, Float8GetDatum((double) pg_atomic_read_u64(&counters->write_us) / 1000.0));
	le_tuple_add(&tuple, TimestampTzGetDatum((TimestampTz) pg_atomic_read_u64(&counters->reset_at)));
	return le_tuple_datum(fcinfo, &tuple);
}

/* Adds the rows of a histogram, with cumulative buckets as in Prometheus. */
static void
put_histogram(ReturnSetInfo *rsinfo, const char *name, LeDurationCounters *durations)
{
	double sum = (double) pg_atomic_read_u64(&durations->sum) / LE_SECOND;
	int64 count = 0;

	for (int i = 0; i <= LE_DURATION_BOUNDS; i++)
	{
		LeTuple tuple = {0};

		count += (int64) pg_atomic_read_u64(&durations->n[i]);
		le_tuple_add_string(&tuple, name);
		le_tuple_add(&tuple,
					 Float8GetDatum(i < LE_DURATION_BOUNDS ? (double) le_duration_bounds[i] / LE_SECOND
														   : get_float8_infinity()));
		le_tuple_add(&tuple, Int64GetDatum(count));
		le_tuple_add(&tuple, Float8GetDatum(sum));
		le_tuple_put(rsinfo, &tuple);
	}
}

/* Implements histograms(): returns the durations of waits, holds and terms. */
Datum
le_histogram(PG_FUNCTION_ARGS)
{
	static const char *const names[] = {
		[LE_DURATION_WAIT] = "wait",
		[LE_DURATION_FRUITLESS_WAIT] = "fruitless_wait",
		[LE_DURATION_HOLD] = "hold",
		[LE_DURATION_TERM] = "term",
	};
	LeDatabase *db = my_entry();

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; db != NULL && i < LE_DURATION_TYPES; i++)
		put_histogram((ReturnSetInfo *) fcinfo->resultinfo, names[i], &db->counters.durations[i]);
	return (Datum) 0;
}

/* Implements stat_reset(). */
Datum
le_stat_reset(PG_FUNCTION_ARGS)
{
	LeDatabase *db = my_entry();

	if (db != NULL)
		le_counters_reset(&db->counters);
	PG_RETURN_VOID();
}
