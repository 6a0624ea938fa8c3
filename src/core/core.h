/*
 * core/core.h
 *		The lock state machine: decides who holds a lock, who waits, and in which order.
 *
 * Plain C11.  No PostgreSQL header, no clock, no I/O: time is an input.  The core leaves
 * rows to write and replies to give in lists, and its environment (the manager process,
 * the unit tests or the simulator) carries them out.
 *
 * One command is handled in two steps:
 *
 *	1.	le_core_reserve() allocates everything that the command may need.  If it fails,
 *		nothing has changed.
 *	2.	le_core_apply() carries the command out.  It cannot run out of memory; every
 *		outcome is a reply.
 *
 * Commands and expiries are collected into a batch.  At the end of the batch
 * the environment writes all dirty slots, leases and places, and the changes, in
 * one transaction, gives the replies, and calls le_core_batch_done().  If the
 * write fails, the whole core is thrown away and loaded again.
 *
 * This header declares the life of a core and the two steps of a command.  Three others
 * have the rest of the interface:
 *
 *	core/command.h	commands and replies, which sessions fill and read
 *	core/effects.h	rows to write, replies to give and changes to announce after a batch
 *	core/view.h		the objects of a core, for code that reads its state
 *
 * core/load.h defines what stored rows mean, core/life.h how long leases last across
 * restarts, and core/pause.h which time does not count against leases.
 */
#ifndef LE_CORE_H
#define LE_CORE_H

#include "command.h"
#include "effects.h"
#include "view.h"

/*
 * Time for which the row of an unused slot lingers before it is deleted.  Rows that are due within
 * the same step are deleted together, in one batch.
 */
#define LE_LINGER      (1 * LE_SECOND)
#define LE_LINGER_STEP (100 * LE_MS)
/* Maximum time before the core checks again whether a lapsed holder is still fenced. */
#define LE_FENCE_RETRY (1 * LE_SECOND)

/* Services of the environment. */
typedef struct LeEnv
{
	void *arg;
	void *(*alloc)(void *arg, size_t size); /* returns NULL when out of memory */
	void (*free)(void *arg, void *p);

	/*
	 * Returns whether a transaction fences this token now.  Called before any holder is ended.  NULL
	 * = tokens are never fenced.
	 */
	bool (*fenced)(void *arg, int64_t token);

	/* Returns whether the WAL is flushed up to this LSN.  NULL = always. */
	bool (*flushed)(void *arg, uint64_t lsn);
	uint64_t seed[2]; /* secret seed of the hash of names, so that callers cannot create collisions */
	uint32_t *epochs; /* see core/epoch.h; NULL = not used */
} LeEnv;

typedef struct LeLimits
{
	int64_t waiters_per_lock; /* 0 = no limit */
	int64_t locks_per_role;   /* counts holders, waiters, places and closed names; 0 = no limit */
	int64_t leases_per_role;  /* 0 = no limit */
	int64_t bytes_per_role;   /* memory of all of these and of leases; 0 = no limit */
	int64_t work;             /* maximum number of entries granted or ended in one batch, where work can be
							   * cut into steps; 0 = no limit */
	LeTime expiry_grace;      /* time from an expiry, or from the end of a connection, to the next grant; 0 =
							   * none */
} LeLimits;

/* --- life of a core --- */

/*
 * Returns an empty core, or NULL if out of memory.  The sessno of each session must be below
 * max_sessions. next_revision is the first revision that the core gives out.
 */
extern LeCore *le_core_create(const LeEnv *env, uint32_t max_sessions, int64_t next_revision);
extern void le_core_destroy(LeCore *core);
extern void le_core_set_limits(LeCore *core, const LeLimits *limits);

/* Returns the revision that the next request will get. */
extern int64_t le_core_next_revision(const LeCore *core);

/* Raises that revision; a lower value is ignored. */
extern void le_core_raise_revision(LeCore *core, int64_t revision);

/*
 * What a starting manager knows about its predecessors.  Incarnations follow the number of minutes
 * since 2025-01-01, so that the server does not give out tokens again after an older state was
 * restored.  Times are microseconds since 2025-01-01.
 */
typedef struct LeStart
{
	int64_t stored;     /* stored incarnation; 0 = none */
	LeTime stored_at;   /* time when the stored incarnation was taken */
	int64_t floor;      /* minimum incarnation to use; 0 = no minimum */
	LeTime time;        /* latest known time: from the clock, or from a replayed commit or checkpoint */
	uint32_t timelines; /* number of timelines that the server has begun since the stored one */
} LeStart;

/* Returns the incarnation to use from this start on. */
extern int64_t le_next_incarnation(const LeStart *start);
/* Returns the first revision of that incarnation if it starts at this time. */
extern int64_t le_first_revision(int64_t incarnation, LeTime time);

/* --- commands --- */

/* The first step of a command, see the top of this file.  Returns false if out of memory. */
extern bool le_core_reserve(LeCore *core, const LeCommand *cmd);

/* The second step.  Must not fail: le_core_reserve() has allocated all that it needs. */
extern void le_core_apply(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);

/*
 * The second step of a command with "each". replies must have room for one reply per name.  *all
 * gets what the replies have in common.  If *all is an error, nothing was changed, all->which is the
 * name that caused it, and replies are not set.  Otherwise *all is LE_OK, and the status of each
 * reply is LE_OK, LE_QUEUED, LE_NOT_GRANTED or LE_NOT_HELD. Must not fail, like le_core_apply().
 */
extern void le_core_apply_each(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *replies,
							   LeReply *all);

/*
 * Notes a numbered call of the client that keeps a lease alive.  Returns false if a call with this
 * number or a higher one was noted before: this call is then old, or a copy, and must not be
 * carried out.  A load after a failed batch forgets only the calls of that batch.
 */
extern bool le_core_take_call(LeCore *core, LeLease *lease, int64_t number);

/*
 * Sets the horizon.  A lease expires only if its deadline is at or before the horizon, even if the
 * commands, or le_core_expire(), have a later time, because a renewal posted in time may not have
 * been applied yet.
 */
extern void le_core_set_horizon(LeCore *core, LeTime horizon);

/*
 * Sets how long this life of a manager has lasted, at least as much as is recorded of it.  The time
 * in which nothing could be written does not count.  A value smaller than before is ignored: a pause
 * has set back the clock of the environment.
 */
extern void le_core_set_uptime(LeCore *core, LeTime uptime);

/*
 * Sets whether rows can be written.  While they cannot, commands that write rows must not be
 * applied, and a renewal leaves its row unchanged.
 */
extern void le_core_set_writable(LeCore *core, bool writable);

/*
 * Handles at most max timers that are due at the horizon. now is the time of the batch's commands:
 * if an end leads to a grant, the new hold begins at that time.  Returns the number of timers
 * handled; while it returns max, call it again after writing.  Must not fail: an end needs no
 * memory, and memory for a grant is reserved.
 */
extern int le_core_expire(LeCore *core, LeTime now, int max);

/* Returns when le_core_expire() is next needed; LE_NEVER = not at all. */
extern LeTime le_core_next_deadline(const LeCore *core);

/*
 * Ends the wait of this session's call, which already got its reply.  A place stays; any other entry
 * ends.  Must not fail.
 */
extern void le_core_stop_waiting(LeCore *core, uint64_t session, uint32_t sessno, LeTime now);

/* Returns whether the end of this session would end no wait and no bound entry. */
extern bool le_core_end_is_quiet(const LeCore *core, uint64_t session, uint32_t sessno);

/* Returns whether this UNDO would end a hold or a place, rather than only a wait. */
extern bool le_core_has_to_undo(const LeCore *core, const LeCommand *cmd);

/* Returns whether any renewal since the last call would have written a row if the core had been writable. */
extern bool le_core_wanted_to_write(LeCore *core);

/*
 * Returns a holder that ended at least this long ago and is still fenced, or NULL. Returns the same
 * holder again only after the timeout has passed once more.
 */
extern LeEntry *le_core_overdue(LeCore *core, LeTime timeout, LeTime now);

/*
 * le_core_is_full() returns whether this batch has done its share of work (LeLimits.work), so that
 * the rest must wait for the next batch. le_core_worked() adds work that the core does not see,
 * such as reads of its state.
 */
extern bool le_core_is_full(const LeCore *core);
extern void le_core_worked(LeCore *core, uint32_t work);

/*
 * Returns whether this session has at least LE_FEW entries and holds.  If so, the end of the session
 * or of its transaction is heavy.
 */
extern bool le_core_end_is_heavy(const LeCore *core, uint64_t session, uint32_t sessno);

/* Checks every internal invariant, for tests.  A violation aborts with a message. */
extern void le_core_check(const LeCore *core);
/*
 * Check a reply of le_core_apply() or of le_entry_answer() against the core.  They must be called
 * before the core changes again.
 */
extern void le_core_check_reply(const LeCore *core, const LeCommand *cmd, LeTime now, const LeReply *reply);
extern void le_core_check_answer(const LeCore *core, const LeEntry *entry, LeTime now, const LeReply *reply);

#endif /* LE_CORE_H */
