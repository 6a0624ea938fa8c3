/*
 * core/core.h
 *		The lock state machine: decides who holds a lock, who waits, and in which order.
 *
 * Plain C11.  No PostgreSQL header, no clock, no I/O: time is an input, and
 * rows to write and replies to give are left in lists for the environment
 * (the manager process, the unit tests, the simulator) to carry out.
 *
 * One command is handled in two steps:
 *
 *	1.	le_core_reserve() allocates everything that the command may need.
 *		It may fail, and then nothing has changed.
 *	2.	le_core_apply() carries the command out.  It cannot fail for lack of
 *		memory; every outcome is a reply.
 *
 * Commands and expiries are collected into a batch.  At the end of the batch
 * the environment writes all dirty slots, leases and places, and the changes, in
 * one transaction, gives the replies, and calls le_core_batch_done().  If the
 * write fails, the whole core is thrown away and loaded again.
 *
 * The interface is in three headers; this one has the life of a core and the two
 * steps of a command.
 *
 *	core/command.h	commands and replies, which sessions fill and read
 *	core/effects.h	rows to write, replies to give and changes to announce after a batch
 *	core/view.h		the objects of a core, for code that reads its state
 *
 * core/load.h defines what stored rows mean, core/life.h how long leases last over
 * restarts, core/pause.h which time does not count.
 */
#ifndef LE_CORE_H
#define LE_CORE_H

#include "command.h"
#include "effects.h"
#include "view.h"

/*
 * The row of an unused slot lingers this long before it is deleted; rows due within one step are
 * deleted together, in one batch.
 */
#define LE_LINGER      (1 * LE_SECOND)
#define LE_LINGER_STEP (100 * LE_MS)
/* Longest time before the core asks again whether a lapsed holder is still fenced. */
#define LE_FENCE_RETRY (1 * LE_SECOND)

/* Services of the environment. */
typedef struct LeEnv
{
	void *arg;
	void *(*alloc)(void *arg, size_t size); /* returns NULL when out of memory */
	void (*free)(void *arg, void *p);

	/*
	 * Returns whether a transaction has fenced this token now.  Called before anything ends a
	 * holder.  NULL = never fenced.
	 */
	bool (*fenced)(void *arg, int64_t token);

	/* Returns whether the WAL is flushed up to this LSN.  NULL = always. */
	bool (*flushed)(void *arg, uint64_t lsn);
	uint64_t seed[2]; /* secret seed of the hash of names, so that callers cannot make names collide */
	uint32_t *epochs; /* see core/epoch.h; NULL = not used */
} LeEnv;

typedef struct LeLimits
{
	int64_t waiters_per_lock; /* 0 = no limit */
	int64_t locks_per_role;   /* 0 = no limit; holders, waiters, places and closed names */
	int64_t leases_per_role;  /* 0 = no limit */
	int64_t bytes_per_role;   /* 0 = no limit; for all of these */
	int64_t work;             /* entries granted or ended in one batch, where work can be cut into steps; 0
							   * = no limit */
	LeTime expiry_grace;      /* from an expiry, or a connection's end, to the next grant */
} LeLimits;

/* --- life of a core --- */

/*
 * Returns an empty core, or NULL if out of memory.  The sessno of each session is below
 * max_sessions. next_revision is the first revision that the core gives out.
 */
extern LeCore *le_core_create(const LeEnv *env, uint32_t max_sessions, int64_t next_revision);
extern void le_core_destroy(LeCore *core);
extern void le_core_set_limits(LeCore *core, const LeLimits *limits);

/* The revision that the next request will get. */
extern int64_t le_core_next_revision(const LeCore *core);

/* Raises that revision; a lower value is ignored. */
extern void le_core_raise_revision(LeCore *core, int64_t revision);

/*
 * What a starting manager knows of its predecessors.  Incarnations start from a minute count, so
 * that a restored older state does not hand out tokens again.  Times are counted from 2025-01-01.
 */
typedef struct LeStart
{
	int64_t stored;     /* stored incarnation; 0 = none */
	LeTime stored_at;   /* when the stored incarnation was taken */
	int64_t floor;      /* lowest incarnation to take; 0 = none */
	LeTime time;        /* the latest time known: of the clock, or of a replayed commit or checkpoint */
	uint32_t timelines; /* timelines of the server since the stored one; 0 = the same timeline */
} LeStart;

/* Returns the incarnation of this start. */
extern int64_t le_next_incarnation(const LeStart *start);
/* Returns the first revision in that incarnation, at this time. */
extern int64_t le_first_revision(int64_t incarnation, LeTime time);

/* --- commands --- */

/* The first step of a command, see the top.  Returns false if out of memory. */
extern bool le_core_reserve(LeCore *core, const LeCommand *cmd);

/* The second step.  Must not fail: le_core_reserve() has allocated all that it needs. */
extern void le_core_apply(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);

/*
 * The second step of a command with "each". replies has room for all names and gets the reply for
 * each; *all gets what they have in common.  If *all is an error, nothing was changed, all->which
 * is the name, and replies are not set.  Otherwise *all is LE_OK, and each name has LE_OK,
 * LE_QUEUED, LE_NOT_GRANTED or LE_NOT_HELD.  Must not fail, like le_core_apply().
 */
extern void le_core_apply_each(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *replies,
							   LeReply *all);

/*
 * Notes a numbered call of the client that keeps a lease alive.  Returns false if a call with
 * this number or a higher one has come before: then this call is old, or a copy, and must not be
 * carried out.  A load after a failed batch forgets the calls of that batch, and no others.
 */
extern bool le_core_take_call(LeCore *core, LeLease *lease, int64_t number);

/*
 * Sets the horizon: a lease expires only if its deadline has passed by this time, even if the
 * time of the commands, and of le_core_expire(), is later.  A renewal may still arrive.
 */
extern void le_core_set_horizon(LeCore *core, LeTime horizon);

/*
 * Sets how long this life of a manager has lasted until now, without the time in which nothing
 * could be written: at least what is recorded of it.  A value smaller than before is ignored: a
 * pause has set the clock of the environment back to its beginning.
 */
extern void le_core_set_uptime(LeCore *core, LeTime uptime);

/*
 * Sets whether rows can be written.  While they cannot, commands that write rows must not be
 * applied; a renewal leaves its row as it is.
 */
extern void le_core_set_writable(LeCore *core, bool writable);

/*
 * Handles at most max timers that are due at the horizon. now is the time of the batch's
 * commands: a grant that follows an end holds from then on.  Returns how many were handled; call
 * it again (after writing) while it returns max.  Must not fail: an end needs no memory, and a
 * grant has it reserved.
 */
extern int le_core_expire(LeCore *core, LeTime now, int max);

/* Returns when le_core_expire() has something to do next; LE_NEVER = nothing. */
extern LeTime le_core_next_deadline(const LeCore *core);

/*
 * Ends the wait of this session's call, which has been replied to: a place stays, any other entry
 * ends.  Must not fail.
 */
extern void le_core_stop_waiting(LeCore *core, uint64_t session, uint32_t sessno, LeTime now);

/* Returns whether the end of this session would end neither a wait nor a bound entry. */
extern bool le_core_end_is_quiet(const LeCore *core, uint64_t session, uint32_t sessno);

/* Returns whether this UNDO would end a hold or a place, and not only a wait. */
extern bool le_core_has_to_undo(const LeCore *core, const LeCommand *cmd);

/* Returns whether renewals since the last call would have written a row if the core had been writable. */
extern bool le_core_wanted_to_write(LeCore *core);

/*
 * Returns a holder that ended at least this long ago and is still fenced, or NULL.  The same
 * holder is not returned again before the timeout has passed once more.
 */
extern LeEntry *le_core_overdue(LeCore *core, LeTime timeout, LeTime now);

/*
 * le_core_is_full(): has this batch done its share of work (LeLimits.work), so that the rest is
 * for the next?  le_core_worked() adds work that the core does not see, such as reads of its
 * state.
 */
extern bool le_core_is_full(const LeCore *core);
extern void le_core_worked(LeCore *core, uint32_t work);

/*
 * Does this session have LE_FEW entries and holds or more, so that its end, or its transaction's,
 * is heavy?
 */
extern bool le_core_end_is_heavy(const LeCore *core, uint64_t session, uint32_t sessno);

/* Checks every internal invariant; aborts with a message.  For tests. */
extern void le_core_check(const LeCore *core);
/*
 * Check a reply of le_core_apply(), or of le_entry_answer(), against the core, before anything
 * changes it again.
 */
extern void le_core_check_reply(const LeCore *core, const LeCommand *cmd, LeTime now, const LeReply *reply);
extern void le_core_check_answer(const LeCore *core, const LeEntry *entry, LeTime now, const LeReply *reply);

#endif /* LE_CORE_H */
