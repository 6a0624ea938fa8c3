/*
 * fixture.h
 *		A core with an environment that a test controls: a clock that is set by
 *		the test, memory that can run out, fences, and a store that only marks
 *		rows as written.
 *
 * Session n has the dense number n, role 10 and, unless a test changes it,
 * transaction number 1.
 */
#ifndef FIXTURE_H
#define FIXTURE_H

#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "core/epoch.h"
#include "core/load.h"
#include "tap.h"

#define SESSIONS   32
#define FIRST      (INT64_C(7) << LE_COUNTER_BITS)
#define TTL        (10 * LE_SECOND)
#define ROLE       10
#define ALL_FENCED (-1)

static LeCore *core;
static LeTime now;
static int64_t fenced_token;          /* ALL_FENCED: all tokens */
static int64_t blocks;                /* of memory in use */
static int64_t allocations_left = -1; /* -1: no limit */
static bool refuse_once;              /* only the next allocation fails */
static bool refused;                  /* an allocation has failed */
static uint64_t lsn;
static uint32_t epochs[LE_EPOCH_WORDS];
static uint32_t xacts[SESSIONS];
static uint64_t core_seed = 1; /* each core has another one */
static bool gone[SESSIONS];    /* sessions that are no longer connected */

/* The replies to the waiters in the last batch. */
static LeReply told[SESSIONS];
static bool was_told[SESSIONS];

static inline void *
fixture_alloc(void *arg, size_t size)
{
	(void) arg;
	if (allocations_left == 0)
	{
		refused = true;
		if (refuse_once)
			allocations_left = -1;
		return NULL;
	}
	if (allocations_left > 0)
		allocations_left--;
	blocks++;
	return malloc(size);
}

static inline void
fixture_free(void *arg, void *p)
{
	(void) arg;
	blocks--;
	free(p);
}

static inline bool
fixture_fenced(void *arg, int64_t token)
{
	(void) arg;
	return token == fenced_token || fenced_token == ALL_FENCED;
}

static inline LeEnv
fixture_env(void)
{
	return (LeEnv){.alloc = fixture_alloc,
				   .free = fixture_free,
				   .fenced = fixture_fenced,
				   .seed = {core_seed, 2},
				   .epochs = epochs};
}

static inline void
start_at(int64_t next_revision)
{
	LeEnv env = fixture_env();

	core = le_core_create(&env, SESSIONS, next_revision);
	memset(told, 0, sizeof(told));
	memset(was_told, 0, sizeof(was_told));
	fenced_token = 0;
}

static inline void
start(void)
{
	now = 1000 * LE_SECOND;
	memset(gone, 0, sizeof(gone));
	for (int i = 0; i < SESSIONS; i++)
		xacts[i] = 1;
	start_at(FIRST);
}

static inline void
stop(void)
{
	le_core_check(core);
	le_core_destroy(core);
	core = NULL;
	is_int(blocks, 0, "all memory is returned");
}

/* Returns an entry with this token; the entries of a group share their token. */
static inline LeEntry *
find_token(int64_t token)
{
	for (uint32_t i = 0; i < le_core_lock_indexes(core); i++)
	{
		LeLock *lock = le_core_lock_at(core, i);
		LeEntry *found = lock == NULL ? NULL
									  : le_core_find_entry(core, (LeKind) lock->kind,
														   (LeText){lock->name, lock->name_len}, token);

		if (found != NULL)
			return found;
	}
	return NULL;
}

static inline LeText
text(const char *s)
{
	return (LeText){s, s != NULL ? (uint32_t) strlen(s) : 0};
}

static inline LeReply
apply(LeCommand cmd)
{
	LeReply reply;

	memset(&reply, 0, sizeof(reply));
	if (!le_core_reserve(core, &cmd))
		abort();
	le_core_apply(core, &cmd, now, &reply);
	le_core_check_reply(core, &cmd, now, &reply);
	return reply;
}

/*
 * Applies RELEASE or CHECK to several names with the command's token. The status is the first one that is not
 * LE_OK.
 */
static inline LeReply
apply_to_all(LeCommand cmd)
{
	static LeReply replies[LE_MAX_NAMES];
	static int64_t tokens[LE_MAX_NAMES];
	LeReply all;

	for (uint32_t i = 0; i < cmd.nnames; i++)
		tokens[i] = cmd.token;
	cmd.each = true;
	cmd.tokens = tokens;
	if (!le_core_reserve(core, &cmd))
		abort();
	le_core_apply_each(core, &cmd, now, replies, &all);
	for (uint32_t i = 0; i < cmd.nnames && all.status == LE_OK; i++)
		all.status = replies[i].status;
	return all;
}

static inline LeCommand
command(LeCommandType type, uint32_t session, const char *name)
{
	return (LeCommand){.type = type,
					   .kind = LE_KIND_LOCK,
					   .name = text(name),
					   .session = session + 100,
					   .sessno = session,
					   .xact = xacts[session],
					   .subxact = 1,
					   .request = 1,
					   .role = ROLE};
}

/* The acquirer of a session: a text of its own. */
static inline LeText
acquirer_of(uint32_t session)
{
	static const char texts[SESSIONS + 1] = "abcdefghijklmnopqrstuvwxyz012345";

	return (LeText){&texts[session % SESSIONS], 1};
}

static inline LeCommand
request(uint32_t session, const char *name, LeMode mode, LeTime wait)
{
	LeCommand cmd = command(LE_CMD_ACQUIRE, session, name);

	cmd.mode = mode;
	cmd.ttl = TTL;
	cmd.wait = wait;
	cmd.acquirer = acquirer_of(session);
	return cmd;
}

/* The usual request, which waits without a limit. */
static inline LeReply
acquire(uint32_t session, const char *name, LeMode mode)
{
	return apply(request(session, name, mode, LE_WAIT_FOREVER));
}

static inline LeReply
acquire_as(uint32_t session, const char *name, LeMode mode, const char *owner)
{
	LeCommand cmd = request(session, name, mode, LE_WAIT_FOREVER);

	cmd.owner = text(owner);
	return apply(cmd);
}

static inline LeReply
enqueue(uint32_t session, const char *name, LeMode mode)
{
	LeCommand cmd = request(session, name, mode, 0);

	cmd.enqueue = true;
	return apply(cmd);
}

static inline LeReply
on_token(LeCommandType type, uint32_t session, const char *name, int64_t token)
{
	LeCommand cmd = command(type, session, name);

	cmd.token = token;
	return apply(cmd);
}

static inline LeReply
release(uint32_t session, const char *name, int64_t token)
{
	return on_token(LE_CMD_RELEASE, session, name, token);
}

static inline LeReply
await(uint32_t session, const char *name, int64_t token, LeTime wait)
{
	LeCommand cmd = command(LE_CMD_AWAIT, session, name);

	cmd.token = token;
	cmd.wait = wait;
	return apply(cmd);
}

static inline LeReply
undo(uint32_t session, uint32_t subxact)
{
	LeCommand cmd = command(LE_CMD_UNDO, session, NULL);

	cmd.subxact = subxact;
	return apply(cmd);
}

static inline LeReply
end_session(uint32_t session)
{
	return apply(command(LE_CMD_SESSION_END, session, NULL));
}

static inline int64_t
grant_lease(LeTime ttl)
{
	LeCommand cmd = command(LE_CMD_GRANT_LEASE, 0, NULL);

	cmd.ttl = ttl;
	return apply(cmd).lease;
}

static inline LeReply
on_lease(LeCommandType type, int64_t lease)
{
	LeCommand cmd = command(type, 0, NULL);

	cmd.lease = lease;
	return apply(cmd);
}

/* --- stored rows --- */

/* The wall clock at time 0 of the core. */
#define WALL_OFFSET (INT64_C(800000000) * LE_SECOND)

static inline bool
fixture_alive(void *arg, uint64_t session, uint32_t *sessno)
{
	(void) arg;
	*sessno = (uint32_t) session - 100;
	return *sessno < SESSIONS && !gone[*sessno];
}

static inline bool
fixture_uncommitted(void *arg, uint64_t session, uint32_t xact)
{
	(void) arg;
	return xacts[session - 100] == xact;
}

static inline LeLoadEnv
fixture_load(void)
{
	return (LeLoadEnv){.clock = {now, now + WALL_OFFSET},
					   .lsn = ++lsn,
					   .alive = fixture_alive,
					   .uncommitted = fixture_uncommitted};
}

/* Creates a core into which rows are loaded. */
static inline void
start_load(void)
{
	LeLoadEnv env;

	start();
	env = fixture_load();
	le_core_load_begin(core, &env);
}

/* Simulates a batch that cannot be written: the rows stored before it are loaded again. */
static inline LeCore *
start_reload(void)
{
	LeLoadEnv env = fixture_load();
	LeCore *failed = core;

	core_seed++;
	start_at(le_core_next_revision(core));
	env.failed = failed;
	env.lsn = ++lsn;
	le_core_load_begin(core, &env);
	return failed;
}

/* Returns the row of a slot that is held, or of a place. */
static inline LeStoredEntry
stored(const char *name, int64_t token, LeMode mode)
{
	return (LeStoredEntry){.kind = LE_KIND_LOCK,
						   .name = text(name),
						   .mode = mode,
						   .token = token,
						   .ttl = TTL,
						   .time_left = TTL,
						   .holds = 1,
						   .permits = mode == LE_MODE_PERMIT ? 1 : 0,
						   .since = now + WALL_OFFSET,
						   .role = ROLE,
						   .locator = 77};
}

static inline LeStoredEntry
stored_free(const char *name)
{
	return (LeStoredEntry){.kind = LE_KIND_LOCK, .name = text(name), .locator = 77};
}

static inline LeStoredLease
stored_lease(int64_t id)
{
	return (LeStoredLease){.id = id, .ttl = TTL, .time_left = TTL, .role = ROLE, .locator = 5};
}

/* Adds a hold of this session's transaction to the holds of a row. */
static inline void
add_stored_hold(LeStoredEntry *row, LeStoredHold *holds, uint32_t session, uint32_t subxact)
{
	LeStoredHold *hold = &holds[row->uncommitted.len / sizeof(LeStoredHold)];

	*hold = (LeStoredHold){session + 100, xacts[session], subxact};
	row->uncommitted.data = (const char *) holds;
	row->uncommitted.len += sizeof(LeStoredHold);
}

static inline LeLoadStatus
load_slot(LeStoredEntry row)
{
	int64_t newest;

	return le_core_load_slot(core, &row, &newest);
}

static inline LeLoadStatus
load_place(LeStoredEntry row)
{
	return le_core_load_place(core, &row);
}

static inline LeLoadStatus
load_lease(LeStoredLease row)
{
	return le_core_load_lease(core, &row);
}

static inline void
load_done(void)
{
	le_core_load_done(core, now);
}

/* Commits the session's transaction, and begins its next one. */
static inline void
commit(uint32_t session)
{
	xacts[session]++;
}

static inline bool
held(const char *name, int64_t token)
{
	return on_token(LE_CMD_CHECK, 0, name, token).status == LE_OK;
}

static inline LeCommand
candidate(uint32_t session, const char *name, const char *value)
{
	LeCommand cmd = request(session, name, LE_MODE_EXCLUSIVE, LE_WAIT_FOREVER);

	cmd.kind = LE_KIND_ELECTION;
	cmd.value = text(value);
	return cmd;
}

static inline LeReply
campaign(uint32_t session, const char *name, const char *value)
{
	return apply(candidate(session, name, value));
}

static inline LeReply
on_term(LeCommandType type, uint32_t session, const char *name, int64_t term, const char *value)
{
	LeCommand cmd = command(type, session, name);

	cmd.kind = LE_KIND_ELECTION;
	cmd.token = term;
	cmd.value = text(value);
	return apply(cmd);
}

static inline LeReply
resign(uint32_t session, const char *name, int64_t term)
{
	return on_term(LE_CMD_RELEASE, session, name, term, NULL);
}

static inline bool
slot_is_dirty(int64_t token)
{
	LeEntry *entry = find_token(token);

	return entry != NULL && le_entry_has_slot(entry) && entry->slot->row.dirty;
}

/* Ends a batch: marks everything as written, and collects the replies. */
static inline void
batch(void)
{
	memset(was_told, 0, sizeof(was_told));
	for (LeSlot *slot = NULL; (slot = le_next_dirty_slot(core, slot)) != NULL;)
		slot->row.on_disk = le_slot_holder(slot) != NULL || (slot->row.on_disk && !slot->drop);
	for (LeLease *lease = NULL; (lease = le_next_dirty_lease(core, lease)) != NULL;)
		lease->row.on_disk = !lease->ended;
	for (LeEntry *entry = NULL; (entry = le_next_dirty_place(core, entry)) != NULL;)
		entry->waiter->row.on_disk = entry->state == LE_STATE_QUEUED;
	for (LeEntry *entry = NULL; (entry = le_next_answer(core, entry)) != NULL;)
	{
		was_told[entry->waiter->sessno] = true;
		le_entry_answer(core, entry, now, &told[entry->waiter->sessno]);
		le_core_check_answer(core, entry, now, &told[entry->waiter->sessno]);
	}
	le_core_check(core);
	le_core_batch_done(core, ++lsn);
	le_core_check(core);
}

static inline void
expire(void)
{
	while (le_core_expire(core, now, 100) == 100)
		;
	batch();
}

static inline void
pass(LeTime time)
{
	now += time;
	expire();
}

/* Lets so much time pass that an unused core becomes empty. */
static inline void
pass_all(void)
{
	while (le_core_next_deadline(core) != LE_NEVER)
	{
		now = le_core_next_deadline(core);
		expire();
	}
}

static inline bool
got(uint32_t session, LeStatus status)
{
	return was_told[session] && told[session].status == status;
}

#define X LE_MODE_EXCLUSIVE
#define S LE_MODE_SHARED
#define P LE_MODE_PERMIT

#endif /* FIXTURE_H */
