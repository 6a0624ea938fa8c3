/*
 * sql/sql_views.c
 *		Functions under the views of schema lock_election.
 *
 * Names and states are for everyone, and so are who leads and in which term.
 * Who holds (owner, token, connection) is for the role itself and for members
 * of pg_read_all_stats.
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

/* Columns of lock_election.look(), in their order. */
enum
{
	COLUMN_KIND,
	COLUMN_NAME,
	COLUMN_SLOT,
	COLUMN_MODE,
	COLUMN_OWNER,
	COLUMN_VALUE,
	COLUMN_ROLE,
	COLUMN_TOKEN,
	COLUMN_LEASE,
	COLUMN_HOLDS,
	COLUMN_SINCE,
	COLUMN_EXPIRES_AT,
	COLUMN_TIME_LEFT,
	COLUMN_WAITERS,
	COLUMN_CLOSED_UNTIL,
	COLUMN_POSITION,
	COLUMN_PID,
	COLUMN_TERM,
	COLUMN_APPLICATION_NAME,
	COLUMN_CLIENT_ADDR,
	COLUMN_CONNECTED,
	COLUMN_COLUMNS
};

typedef struct ViewRow
{
	Datum values[COLUMN_COLUMNS];
	bool nulls[COLUMN_COLUMNS];
} ViewRow;

static void
set(ViewRow *row, int column, Datum value)
{
	row->values[column] = value;
	row->nulls[column] = false;
}

static Datum
text_datum(const char *data, uint32 len)
{
	return PointerGetDatum(cstring_to_text_with_len(data, (int) len));
}

static Datum
mode_datum(int mode)
{
	return CStringGetTextDatum(mode == LE_MODE_SHARED   ? "shared"
							   : mode == LE_MODE_PERMIT ? "permit"
														: "exclusive");
}

static Datum
kind_datum(int kind)
{
	return CStringGetTextDatum(le_kind_word((LeKind) kind));
}

bool
le_may_see_details(Oid role)
{
	return has_privs_of_role(GetUserId(), role) || has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
}

/* Is this connection still open? */
static bool
session_is_there(uint64 session)
{
	uint32 proc = le_session_proc(session);

	return session != 0 && le_my_mailbox != NULL && proc < (uint32) le_shared->max_sessions &&
		   le_mailbox(le_my_database(), proc)->session == session;
}

/* Who has acquired it, or waits: a row may have been written by hand. */
static void
set_acquirer(ViewRow *row, LeText text)
{
	LeAcquirerParts parts;
	struct in6_addr net;

	le_acquirer_parse(text, &parts);
	if (parts.pid != 0)
		set(row, COLUMN_PID, Int32GetDatum(parts.pid));
	if (parts.application_name != NULL)
		set(row, COLUMN_APPLICATION_NAME, CStringGetTextDatum(parts.application_name));
	if (parts.client_addr != NULL && (inet_pton(AF_INET, parts.client_addr, &net) == 1 ||
									  inet_pton(AF_INET6, parts.client_addr, &net) == 1))
		set(row, COLUMN_CLIENT_ADDR, DirectFunctionCall1(inet_in, CStringGetDatum(parts.client_addr)));
}

static void
put_row(ReturnSetInfo *rsinfo, ViewRow *row)
{
	le_put_row(rsinfo, row->values, row->nulls, COLUMN_COLUMNS);
}

static void
put_live(void *arg, const LePageItem *item)
{
	const char *text = le_page_text(item);
	ViewRow row;

	memset(row.nulls, true, sizeof(row.nulls));
	set(&row, COLUMN_KIND, kind_datum(item->kind));
	set(&row, COLUMN_NAME, text_datum(text, item->name_len));
	if (item->slot >= 0)
		set(&row, COLUMN_SLOT, Int32GetDatum(item->slot));
	set(&row, COLUMN_WAITERS, Int64GetDatum(item->waiters));
	set(&row, COLUMN_POSITION, Int64GetDatum(item->position));
	set(&row, COLUMN_ROLE, ObjectIdGetDatum(item->role));
	if (item->closed_until != 0)
		set(&row, COLUMN_CLOSED_UNTIL, TimestampTzGetDatum(item->closed_until));
	if (item->token == 0)
	{
		put_row(arg, &row);
		return;
	}
	set(&row, COLUMN_MODE, mode_datum(item->mode));
	set(&row, COLUMN_HOLDS, Int32GetDatum(item->holds));
	set(&row, COLUMN_SINCE, TimestampTzGetDatum(item->since));
	set(&row, COLUMN_EXPIRES_AT, TimestampTzGetDatum(item->expires_at));
	if (item->time_left != LE_NEVER)
		set(&row, COLUMN_TIME_LEFT, le_interval_datum(item->time_left));
	if (le_may_see_details(item->role))
	{
		set(&row, COLUMN_TOKEN, Int64GetDatum(item->token));
		if (item->lease != 0)
			set(&row, COLUMN_LEASE, Int64GetDatum(item->lease));
		if (item->named)
			set(&row, COLUMN_OWNER, text_datum(text + item->name_len, item->owner_len));
		set_acquirer(&row,
					 (LeText){text + item->name_len + item->owner_len + item->value_len, item->acquirer_len});
		set(&row, COLUMN_CONNECTED, BoolGetDatum(session_is_there(item->session)));
	}
	if (item->kind == LE_KIND_ELECTION && item->position == 0)
		set(&row, COLUMN_TERM, Int64GetDatum(item->token));
	if (item->value_len > 0)
		set(&row, COLUMN_VALUE, text_datum(text + item->name_len + item->owner_len, item->value_len));
	put_row(arg, &row);
}

/* On a standby: what has been replayed, with nobody's time running. */
static void
put_stored(void *arg, const LeStoredEntry *slot)
{
	ViewRow row;

	memset(row.nulls, true, sizeof(row.nulls));
	set(&row, COLUMN_KIND, kind_datum(slot->kind));
	set(&row, COLUMN_NAME, text_datum(slot->name.data, slot->name.len));
	set(&row, COLUMN_ROLE, ObjectIdGetDatum(slot->role));
	set(&row, COLUMN_POSITION, Int64GetDatum(0));
	if (slot->closed)
		set(&row, COLUMN_CLOSED_UNTIL, TimestampTzGetDatum(slot->closed_until));
	if (slot->mode == 0)
	{
		put_row(arg, &row);
		return;
	}
	set(&row, COLUMN_SLOT, Int32GetDatum(slot->slot));
	set(&row, COLUMN_MODE, mode_datum(slot->mode));
	set(&row, COLUMN_HOLDS, Int32GetDatum(slot->holds));
	set(&row, COLUMN_SINCE, TimestampTzGetDatum(slot->since));
	if (slot->has_expiry)
		set(&row, COLUMN_EXPIRES_AT, TimestampTzGetDatum(slot->expires_at));
	if (le_may_see_details(slot->role))
	{
		set(&row, COLUMN_TOKEN, Int64GetDatum(slot->token));
		if (slot->lease != 0 && slot->lease != slot->token)
			set(&row, COLUMN_LEASE, Int64GetDatum(slot->lease));
		if (slot->owner.data != NULL)
			set(&row, COLUMN_OWNER, text_datum(slot->owner.data, slot->owner.len));
		set_acquirer(&row, slot->acquirer);
	}
	if (slot->kind == LE_KIND_ELECTION)
		set(&row, COLUMN_TERM, Int64GetDatum(slot->token));
	if (slot->value.data != NULL)
		set(&row, COLUMN_VALUE, text_datum(slot->value.data, slot->value.len));
	put_row(arg, &row);
}

/* look(): every holder and waiter, live on a primary */
Datum
le_look_sql(PG_FUNCTION_ARGS)
{
	LeText all = {NULL, 0};

	InitMaterializedSRF(fcinfo, 0);
	if (RecoveryInProgress())
		le_store_scan(put_stored, fcinfo->resultinfo);
	else
		le_page_locks(LE_KIND_LOCK, all, put_live, fcinfo->resultinfo);
	return (Datum) 0;
}

/* Columns of lock_election.page_leases(), in their order. */
enum
{
	LEASES_ID,
	LEASES_OWNER,
	LEASES_ROLE,
	LEASES_TTL,
	LEASES_EXPIRES_AT,
	LEASES_TIME_LEFT,
	LEASES_COLUMNS
};

static void
put_lease(void *arg, const LePageLease *lease)
{
	ReturnSetInfo *rsinfo = arg;
	Datum values[LEASES_COLUMNS];
	bool nulls[LEASES_COLUMNS] = {false};
	bool details = le_may_see_details(lease->role);

	values[LEASES_ID] = Int64GetDatum(lease->id);
	nulls[LEASES_ID] = !details;
	nulls[LEASES_OWNER] = !details || !lease->named;
	if (!nulls[LEASES_OWNER])
		values[LEASES_OWNER] = text_datum((const char *) lease + sizeof(LePageLease), lease->owner_len);
	values[LEASES_ROLE] = ObjectIdGetDatum(lease->role);
	values[LEASES_TTL] = le_interval_datum(lease->ttl);
	values[LEASES_EXPIRES_AT] = TimestampTzGetDatum(lease->expires_at);
	values[LEASES_TIME_LEFT] = le_interval_datum(lease->time_left);
	le_put_row(rsinfo, values, nulls, LEASES_COLUMNS);
}

/* page_leases(): every named lease; none on a standby, where no time runs */
Datum
le_look_leases_sql(PG_FUNCTION_ARGS)
{
	InitMaterializedSRF(fcinfo, 0);
	if (!RecoveryInProgress())
		le_page_leases(put_lease, fcinfo->resultinfo);
	return (Datum) 0;
}

/* This database's entry; NULL: none (yet). */
static LeDatabase *
my_entry(void)
{
	LeDatabase *db;

	if (le_shared == NULL)
		le_check_can_attach(); /* says what is wrong */
	LWLockAcquire(le_shared->lock, LW_SHARED);
	db = le_database_find(MyDatabaseId, false);
	LWLockRelease(le_shared->lock);
	return db;
}

/* manager(): OUT pid, started, incarnation, revision, locks, held, waiting, oldest_wait, memory, and sizes of tables */
Datum
le_manager_info(PG_FUNCTION_ARGS)
{
	LeDatabase *db = my_entry();
	Datum values[9 + LE_DB_TABLES];
	bool nulls[9 + LE_DB_TABLES] = {false};
	uint64 revision, oldest;

	if (db == NULL || pg_atomic_read_u32(&db->running) == 0)
		PG_RETURN_NULL();
	revision = pg_atomic_read_u64(&db->revision);
	values[0] = Int32GetDatum(db->worker_pid);
	values[1] = TimestampTzGetDatum(db->started);
	values[2] = Int64GetDatum(revision >> LE_COUNTER_BITS);
	values[3] = Int64GetDatum(revision);
	values[4] = Int64GetDatum(pg_atomic_read_u64(&db->locks));
	values[5] = Int64GetDatum(pg_atomic_read_u64(&db->held));
	values[6] = Int64GetDatum(pg_atomic_read_u64(&db->queued));
	oldest = pg_atomic_read_u64(&db->oldest_wait);
	values[7] = TimestampTzGetDatum((TimestampTz) oldest);
	nulls[7] = oldest == 0;
	values[8] = Int64GetDatum(pg_atomic_read_u64(&db->memory));
	for (int i = 0; i < LE_DB_TABLES; i++)
		values[9 + i] = Int64GetDatum(pg_atomic_read_u64(&db->table_bytes[i]));
	return le_row_datum(fcinfo, values, nulls, lengthof(values));
}

#define COUNTER(name) Int64GetDatum(pg_atomic_read_u64(&db->counters.name))

/* stat(): the counters of this database, in the order of the view */
Datum
le_stat(PG_FUNCTION_ARGS)
{
	LeDatabase *db = my_entry();
	Datum values[24];
	bool nulls[24] = {false};
	int n = 0;

	if (db == NULL)
		PG_RETURN_NULL();
	values[n++] = COUNTER(requests[LE_CMD_ACQUIRE]);
	values[n++] = COUNTER(requests[LE_CMD_RENEW]);
	values[n++] = COUNTER(requests[LE_CMD_RELEASE]);
	values[n++] = COUNTER(requests[LE_CMD_CHECK]);
	values[n++] = COUNTER(requests[LE_CMD_FORCE]);
	values[n++] = COUNTER(requests[LE_CMD_AWAIT]);
	values[n++] = COUNTER(grants);
	values[n++] = COUNTER(waits);
	values[n++] = COUNTER(handoffs);
	values[n++] = COUNTER(elected);
	values[n++] = COUNTER(expiries);
	values[n++] = COUNTER(timeouts);
	values[n++] = COUNTER(undone);
	values[n++] = COUNTER(batches);
	values[n++] = COUNTER(failed_batches);
	values[n++] = COUNTER(key_violations);
	values[n++] = COUNTER(xids);
	values[n++] = COUNTER(rows);
	values[n++] = COUNTER(flushes);
	values[n++] = COUNTER(stalls);
	values[n++] = COUNTER(hints_sent);
	values[n++] = COUNTER(hints_dropped);
	values[n++] = Float8GetDatum((double) pg_atomic_read_u64(&db->counters.write_us) / 1000.0);
	values[n++] = TimestampTzGetDatum((TimestampTz) pg_atomic_read_u64(&db->counters.reset_at));
	Assert(n == lengthof(values));
	return le_row_datum(fcinfo, values, nulls, lengthof(values));
}

/* Columns of lock_election.histograms(), in their order. */
enum
{
	HISTOGRAM_NAME,
	HISTOGRAM_LE,
	HISTOGRAM_COUNT,
	HISTOGRAM_SUM,
	HISTOGRAM_COLUMNS
};

/* Cumulative, as Prometheus wants them. */
static void
put_histogram(ReturnSetInfo *rsinfo, const char *name, LeDurationCounters *durations)
{
	double sum = (double) pg_atomic_read_u64(&durations->sum) / LE_SECOND;
	int64 count = 0;

	for (int i = 0; i <= LE_DURATION_BOUNDS; i++)
	{
		Datum values[HISTOGRAM_COLUMNS];
		bool nulls[HISTOGRAM_COLUMNS] = {false};

		count += (int64) pg_atomic_read_u64(&durations->n[i]);
		values[HISTOGRAM_NAME] = CStringGetTextDatum(name);
		values[HISTOGRAM_LE] = Float8GetDatum(
			i < LE_DURATION_BOUNDS ? (double) le_duration_bounds[i] / LE_SECOND : get_float8_infinity());
		values[HISTOGRAM_COUNT] = Int64GetDatum(count);
		values[HISTOGRAM_SUM] = Float8GetDatum(sum);
		le_put_row(rsinfo, values, nulls, HISTOGRAM_COLUMNS);
	}
}

/* histograms(): how long waits, holds and terms have taken */
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

/* stat_reset() */
Datum
le_stat_reset(PG_FUNCTION_ARGS)
{
	LeDatabase *db = my_entry();

	if (db != NULL)
		le_counters_reset(&db->counters);
	PG_RETURN_VOID();
}
