/*
 * manager/chores.c
 *		Does the work of the manager after and between its batches.
 *
 * The chores terminate connections whose fences last too long, delete old rows of the history of elections,
 * rewrite a table that consists mostly of dead rows, and record the uptime.  Each chore does only a little
 * work at a time, so that it does not delay grants.
 */
#include "postgres.h"

#include <signal.h>

#include "access/htup_details.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

#include "manager/chores.h"
#include "manager/state.h"
#include "manager/txn.h"
#include "shared/fault.h"
#include "shared/fence_lock.h"
#include "shared/settings.h"
#include "shared/words.h"

/* --- fences that last too long --- */

/*
 * Terminates the whole connection.  Canceling only its statement would leave fences that were taken before a
 * savepoint, and would not affect an idle client.
 */
void
le_fence_end_overdue(LeCore *core, LeTime now)
{
	LeTime timeout = (LeTime) le_fence_timeout_ms * LE_MS;
	LeEntry *entry;

	while (timeout > 0 && (entry = le_core_overdue(core, timeout, now)) != NULL)
	{
		List *pids = le_fence_pids(entry->token, SIGTERM);
		ListCell *lc;

		Assert(entry->state == LE_STATE_LAPSED);
		foreach (lc, pids)
			ereport(
				LOG,
				(errmsg("terminating connection of process %d due to lock_election.fence_timeout",
						lfirst_int(lc)),
				 errdetail("Its transaction has fenced %s \"%.*s\", whose lease ended more than %d ms ago.",
						   le_kind_word((LeKind) entry->lock->kind), (int) entry->lock->name_len,
						   entry->lock->name, le_fence_timeout_ms)));
	}
}

/* --- the size of each role's history of elections --- */

/* Number of pages per step, and the time between two steps of a pass over the history table. */
#define PRUNE_PAGES 32
#define PRUNE_STEP  (100 * LE_MS)
/*
 * Maximum time between two passes, and the time before a retry after a failed step, for example because the
 * table was locked.
 */
#define PRUNE_PASS  (600 * LE_SECOND)
#define PRUNE_RETRY (60 * LE_SECOND)

static LeTime prune_at = 0;
static uint32 prune_from = 0; /* page at which the next step starts; 0 = a new pass */

/*
 * Size of a role's history, for lock_election.max_history_per_role.  Rows that this manager writes are added,
 * and deleted rows are subtracted.  Older rows are counted by the first pass over the table, which deletes
 * nothing.  Until that pass is done, a role may exceed its limit.
 */
typedef struct RoleHistory
{
	Oid role; /* hash key */
	int64 bytes;
} RoleHistory;

#define ROLES_AT_FIRST 64

static HTAB *role_history = NULL;
static int64 first_change = 0; /* number of the first change that this manager made, in its load or later */
static bool counted = false;   /* the first pass over the table is done */

/* Amounts by which one step changes the totals of roles.  They are added after the commit of the step. */
static RoleHistory step[PRUNE_PAGES * MaxHeapTuplesPerPage];
static int step_rows;

/* Returns the history size of a role; creates it if needed.  May fail for lack of memory. */
static RoleHistory *
history_of(Oid role)
{
	bool found;
	RoleHistory *entry = hash_search(role_history, &role, HASH_ENTER, &found);

	if (!found)
		entry->bytes = 0;
	return entry;
}

/* Adds to the size of a role's history.  bytes may be negative. */
static void
add_bytes(Oid role, int64 bytes)
{
	RoleHistory *entry = history_of(role);

	entry->bytes += bytes;
	if (entry->bytes <= 0)
		(void) hash_search(role_history, &role, HASH_REMOVE, NULL);
}

void
le_history_begin(int64 next_change)
{
	HASHCTL ctl = {.keysize = sizeof(Oid), .entrysize = sizeof(RoleHistory)};

	Assert(next_change > 0 && role_history == NULL && !counted);
	first_change = next_change;
	role_history = hash_create("lock_election history", ROLES_AT_FIRST, &ctl, HASH_ELEM | HASH_BLOBS);
}

bool
le_history_admits(const LeCommand *cmd)
{
	const RoleHistory *entry;

	if (cmd->kind != LE_KIND_ELECTION || (cmd->type != LE_CMD_ACQUIRE && cmd->type != LE_CMD_PROCLAIM) ||
		le_max_history_per_role_mb == 0)
		return true;
	entry = hash_search(role_history, &cmd->role, HASH_FIND, NULL);
	return entry == NULL || entry->bytes < le_max_history_per_role_mb * LE_MB;
}

void
le_history_reserve(LeCore *core)
{
	for (const LeChange *change = NULL; (change = le_next_change(core, change)) != NULL;)
		(void) history_of(change->role);
}

void
le_history_written(LeCore *core)
{
	for (const LeChange *change = NULL; (change = le_next_change(core, change)) != NULL;)
	{
		Assert(hash_search(role_history, &change->role, HASH_FIND, NULL) != NULL);
		add_bytes(change->role, le_store_history_bytes(change->lock->name_len, change->value_len));
	}
}

static void
count_row(Oid role, int64 change, int64 bytes, bool deleted)
{
	if (deleted || (!counted && change < first_change))
	{
		Assert(bytes > 0 && step_rows < lengthof(step));
		step[step_rows++] = (RoleHistory){role, deleted ? -bytes : bytes};
	}
}

/* --- deletion of old rows of the history of elections, a few pages at a time --- */

/*
 * Runs one step: deletes expired rows from the next few pages, and, during the first pass, counts the rows
 * on them.  An error after the commit is harmless: it only makes the totals of the roles wrong.
 */
static void
prune(void)
{
	LeTime retention = (LeTime) le_history_retention_min * SECS_PER_MINUTE * LE_SECOND;
	TimestampTz before = counted ? GetCurrentTimestamp() - retention : DT_NOBEGIN;
	LeTime pause = PRUNE_STEP;

	Assert(!counted || retention > 0);
	step_rows = 0;
	le_store_prune_history(before, PRUNE_PAGES, &prune_from, count_row);
	LE_FAULT("history-pruned");
	(void) le_txn_commit(false);
	Assert(prune_from % PRUNE_PAGES == 0);
	for (int i = 0; i < step_rows; i++)
		add_bytes(step[i].role, step[i].bytes);
	if (prune_from == 0 && counted)
		pause = Min(retention, PRUNE_PASS);
	counted |= prune_from == 0;
	prune_at = le_clock() + pause;
}

LeTime
le_history_tend(void)
{
	if (le_history_retention_min == 0 && counted)
		return LE_NEVER;
	if (le_clock() < prune_at)
		return prune_at;
	prune_at = le_clock() + PRUNE_RETRY;
	le_txn_chore(prune);
	return prune_at;
}

/* --- the size of the tables; store/shrink.c does the work --- */

/*
 * Time between two measurements of the tables.  Also the time before the first one, because requests that
 * have waited for the manager to start are more urgent.
 */
#define LOOK_AFTER (5 * LE_SECOND)

static LeTime look_at = 0;
static uint64 batches = PG_UINT64_MAX; /* number of batches at the last measurement */

/*
 * Measures the tables, and rewrites one if needed.  Must not fail after the commit, because the core must
 * know where its rows are.
 */
static void
look(void)
{
	uint64 bytes[LE_DB_TABLES];

	for (int i = 0; i < LE_DB_TABLES; i++)
		bytes[i] = pg_atomic_read_u64(&le_mgr.db->table_bytes[i]);
	le_store_shrink(le_mgr.core, le_mgr.batch_context, bytes);
	LE_FAULT("shrink-done");
	(void) le_txn_commit(false);
	le_store_shrunk();
	LE_FAULT_NOFAIL("shrink-committed");
	for (int i = 0; i < LE_DB_TABLES; i++)
	{
		Assert(bytes[i] % BLCKSZ == 0);
		pg_atomic_write_u64(&le_mgr.db->table_bytes[i], bytes[i]);
	}
}

LeTime
le_shrink_tend(void)
{
	uint64 written = pg_atomic_read_u64(&le_mgr.db->counters.batches);

	/*
	 * A rewrite needs the positions of the core's rows, which are valid only while the core agrees with the
	 * tables.  If there was no batch since the last measurement, no table has grown.
	 */
	if (!core_is_loaded() || written == batches)
		return LE_NEVER;
	if (look_at == 0)
		look_at = le_clock() + LOOK_AFTER;
	if (le_clock() < look_at)
		return look_at;
	look_at = le_clock() + LOOK_AFTER;
	batches = written;
	le_txn_chore(look);
	return look_at;
}

/* --- the uptime of this manager --- */

/* Time before the next try if the uptime could not be recorded. */
#define RECORD_RETRY (2 * LE_SECOND)

static LeTime record_at = 0;

/* Records the uptime.  Must not fail after the commit, because le_mgr.meta must agree with the table. */
static void
record(void)
{
	LeMeta meta = le_mgr.meta;
	bool written;

	meta.uptime = (uint32) (uptime(core_now()) / LE_LIFE_TICK);
	Assert(meta.life == le_mgr.life.number);
	written = le_store_write_life(&meta);
	(void) le_txn_commit(false);
	if (!written)
		return;
	le_mgr.meta = meta;
	record_at = le_clock() + LE_LIFE_RECORD;
}

LeTime
le_life_tend(void)
{
	if (!core_is_loaded() || le_core_unmarked(le_mgr.core) == 0)
		return LE_NEVER;
	if (record_at == 0)
		record_at = le_clock() + LE_LIFE_RECORD;
	if (le_clock() < record_at)
		return record_at;
	record_at = le_clock() + RECORD_RETRY;
	le_txn_chore(record);
	return record_at;
}
