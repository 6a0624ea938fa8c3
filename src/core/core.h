/*
 * core/core.h
 *		The lock state machine: who holds what, who waits, in which order.
 *
 * Plain C11.  No PostgreSQL header, no clock, no I/O: time is an input, and
 * what has to be written or answered is left in lists for the environment
 * (the manager process, the unit tests, the simulator) to carry out.
 *
 * One command is handled in two steps:
 *
 *	1.	le_core_reserve() makes sure that everything the command may need is
 *		allocated.  It may fail, and then nothing has changed.
 *	2.	le_core_apply() carries the command out.  It cannot fail for want of
 *		memory; whatever it says is an answer.
 *
 * Commands and expiries are collected into a batch.  At the end of the batch
 * the environment writes all dirty slots, leases and places, and the changes, in
 * one transaction, gives the answers, and calls le_core_batch_done().  If the
 * writing fails, the whole core is thrown away and loaded anew.
 *
 * The interface is in three headers; this one has the life of a core and the two
 * steps of a command.
 *
 *	core/command.h	commands and replies: what sessions fill and read
 *	core/effects.h	what has to be written, answered and announced after a batch
 *	core/view.h		the objects of a core, for those who read its state
 *
 * core/load.h has what stored rows mean, core/life.h for how long leases go on over
 * restarts, core/pause.h which time does not count.
 */
#ifndef LE_CORE_H
#define LE_CORE_H

#include "command.h"
#include "effects.h"
#include "view.h"

/*
 * An unused slot's row lingers this long before it is deleted; those of one
 * step go together, in one batch.
 */
#define LE_LINGER      (1 * LE_SECOND)
#define LE_LINGER_STEP (100 * LE_MS)
/* A lapsed but fenced holder is asked about again after this long at most. */
#define LE_FENCE_RETRY (1 * LE_SECOND)

/* Services of the environment. */
typedef struct LeEnv
{
	void *arg;
	void *(*alloc)(void *arg, size_t size); /* NULL when out of memory */
	void (*free)(void *arg, void *p);

	/*
	 * Is this token fenced by somebody right now?  Asked before a holder is
	 * ended by anything.  NULL: never.
	 */
	bool (*fenced)(void *arg, int64_t token);

	/* Is the log flushed that far?  NULL: always. */
	bool (*flushed)(void *arg, uint64_t lsn);
	uint64_t seed[2]; /* of the hash of names, kept from callers so
								 * that nobody can make names collide */
	uint32_t *epochs; /* see core/epoch.h; NULL: nobody looks */
} LeEnv;

typedef struct LeLimits
{
	int64_t waiters_per_lock; /* 0: no limit */
	int64_t locks_per_role;   /* 0: no limit; holders, waiters, places and closed names */
	int64_t leases_per_role;  /* 0: no limit */
	int64_t bytes_per_role;   /* 0: no limit; of all of these */
	int64_t work;             /* entries that are granted or ended in one batch, where
								 * that can be cut into steps; 0: no limit */
	LeTime expiry_grace;      /* from an expiry, or a connection's end, to
								 * the next grant */
} LeLimits;

/* --- life of a core --- */

/*
 * sessno of its sessions is below max_sessions.  The first revision that it gives
 * out is next_revision.  NULL: out of memory.
 */
extern LeCore *le_core_create(const LeEnv *env, uint32_t max_sessions, int64_t next_revision);
extern void le_core_destroy(LeCore *core);
extern void le_core_set_limits(LeCore *core, const LeLimits *limits);

/* The revision that the next request will get. */
extern int64_t le_core_next_revision(const LeCore *core);

/* Raise it; a lower value is ignored. */
extern void le_core_raise_revision(LeCore *core, int64_t revision);

/*
 * What a starting manager knows of its predecessors.  Incarnations start from a
 * minute count, so that restored older state does not hand tokens out again.
 * Times are counted from 2025-01-01.
 */
typedef struct LeStart
{
	int64_t stored;     /* incarnation; 0: none */
	LeTime stored_at;   /* when that one was taken */
	int64_t floor;      /* at least this one; 0: none */
	LeTime time;        /* the latest that anything here tells */
	uint32_t timelines; /* of the server since the stored one; 0: it is the same */
} LeStart;

/* The incarnation of this start. */
extern int64_t le_next_incarnation(const LeStart *start);
/* And the first revision in it, at this time. */
extern int64_t le_first_revision(int64_t incarnation, LeTime time);

/* --- commands --- */

/* The first step of a command, see the top.  False: out of memory. */
extern bool le_core_reserve(LeCore *core, const LeCommand *cmd);

/* The second step.  May not fail: le_core_reserve() has got all that it needs. */
extern void le_core_apply(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);

/*
 * The second step of a command with "each": the answer for each name goes to
 * replies, which has room for all, and what they have in common to *all.  Where
 * that is an error, nothing was changed, all->which is the name, and replies are
 * not set; else it is LE_OK, and each name has LE_OK, LE_QUEUED, LE_NOT_GRANTED or
 * LE_NOT_HELD.  May not fail, as le_core_apply().
 */
extern void le_core_apply_each(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *replies,
							   LeReply *all);

/*
 * A call of the client that keeps a lease alive has come, with a number.  False: one with this number or a
 * higher one has come before, so this one is old, or a copy, and nothing that it asks for may be done.  A load
 * after a failed batch has forgotten the calls of that batch, and no others.
 */
extern bool le_core_take_call(LeCore *core, LeLease *lease, int64_t number);

/*
 * A lease has ended only if its deadline has passed by this time, though that of
 * the commands, and of le_core_expire(), is later: what keeps the lease alive may
 * still come.
 */
extern void le_core_set_horizon(LeCore *core, LeTime horizon);

/*
 * For how long this life of a manager has lasted until now, without the time in which nothing could
 * be written: at least what is recorded of it.  One that is less than before is ignored: a pause has
 * set the clock of the environment back to its beginning.
 */
extern void le_core_set_uptime(LeCore *core, LeTime uptime);

/*
 * Can rows be written?  While they cannot, no command may be applied that writes any; a renewal
 * leaves its row as it is.
 */
extern void le_core_set_writable(LeCore *core, bool writable);

/*
 * End what is due at the horizon, at most max items.  now is the time of the
 * batch's commands: a grant that follows an end holds from then on.
 * Returns how many were handled; call again (after writing) while it returns max.
 * May not fail: an end needs no memory, and a grant has it reserved.
 */
extern int le_core_expire(LeCore *core, LeTime now, int max);

/* When le_core_expire() has something to do next; LE_NEVER: nothing. */
extern LeTime le_core_next_deadline(const LeCore *core);

/*
 * The call of this session waits no longer, as it was answered: a place stays, anything else ends.
 * May not fail.
 */
extern void le_core_stop_waiting(LeCore *core, uint64_t session, uint32_t sessno, LeTime now);

/* Does the end of this session end nothing, neither a wait nor what is bound to it? */
extern bool le_core_end_is_quiet(const LeCore *core, uint64_t session, uint32_t sessno);

/* Does this UNDO end a hold or a place, and not only a wait? */
extern bool le_core_has_to_undo(const LeCore *core, const LeCommand *cmd);

/* Would the renewals since the last call have written a row, if the core were writable? */
extern bool le_core_wanted_to_write(LeCore *core);

/*
 * A holder that has ended this long ago and is still fenced; it is not
 * returned again before as much time has passed once more.  NULL: none.
 */
extern LeEntry *le_core_overdue(LeCore *core, LeTime timeout, LeTime now);

/*
 * This batch has done its share (LeLimits.work): what has not been begun is for
 * the next.  Looking at the state is work as well.
 */
extern bool le_core_is_full(const LeCore *core);
extern void le_core_worked(LeCore *core, uint32_t work);

/* Has this session LE_FEW entries or holds, so that its end, or its transaction's, is much work? */
extern bool le_core_end_is_heavy(const LeCore *core, uint64_t session, uint32_t sessno);

/* Checks every internal invariant; aborts with a message.  For tests. */
extern void le_core_check(const LeCore *core);
/*
 * The same of a reply, as soon as le_core_apply() has given it, and of an answer as
 * soon as le_entry_answer() has: it tells what the core has, and nothing else.
 */
extern void le_core_check_reply(const LeCore *core, const LeCommand *cmd, LeTime now, const LeReply *reply);
extern void le_core_check_answer(const LeCore *core, const LeEntry *entry, LeTime now, const LeReply *reply);

#endif /* LE_CORE_H */
