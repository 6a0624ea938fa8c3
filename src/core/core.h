/*
 * core/core.h
 *		The lock state machine: decides who holds a lock, who waits, and in which order.
 *
 * Plain C11.  No PostgreSQL header, no clock, no I/O: time is an input.  The core puts rows
 * to write and replies to send into lists, and its environment (the manager process, the
 * unit tests or the simulator) processes them.
 *
 * One command is handled in two steps:
 *
 *	1.	le_core_reserve() allocates everything that the command may need.  If it fails,
 *		nothing has changed.
 *	2.	le_core_apply() applies the command.  It cannot run out of memory; every outcome is
 *		a reply.
 *
 * Commands and expiries are collected into a batch.  At the end of the batch the
 * environment writes all dirty slots, leases and places, and the changes, in one
 * transaction, sends the replies, and calls le_core_batch_done().  If the write fails, the
 * whole core is discarded, and a new one is loaded.
 *
 * This header declares the functions of core/core.c, and includes the rest of the
 * interface:
 *
 *	core/command.h	commands and replies, which sessions fill in and read
 *	core/env.h		the environment
 *	core/objects.h	the objects of a core; core/view.h finds them
 *	core/effects.h	rows to write, replies to send and changes to announce after a batch
 *
 * and some functions of other files. core/load.h builds a core from stored rows
 * (core/stored.h), core/life.h defines how long leases last across restarts, and
 * core/pause.h measures time that does not count against leases.
 *
 * Only the environment includes this header.  Inside the core, a file includes the headers
 * of the files that it calls, and core/state.h, which declares the state that all of them
 * share.
 */
#ifndef LE_CORE_H
#define LE_CORE_H

#include "check.h"
#include "command.h"
#include "each.h"
#include "effects.h"
#include "env.h"
#include "incarnation.h"
#include "later.h"
#include "news.h"
#include "objects.h"
#include "recycle.h"
#include "reserve.h"
#include "saved.h"
#include "sessions.h"
#include "stats.h"
#include "view.h"

/* --- life of a core --- */

/*
 * Returns an empty core, or NULL if out of memory.  The sessno of each session must be below
 * max_sessions. next_revision is the first revision that the core assigns.
 */
extern LeCore *le_core_create(const LeEnv *env, uint32_t max_sessions, int64_t next_revision);
extern void le_core_destroy(LeCore *core);
extern void le_core_set_limits(LeCore *core, const LeLimits *limits);

/* Returns the revision that the next request will get. */
extern int64_t le_core_next_revision(const LeCore *core);

/* --- commands --- */

/*
 * Applies a command: the second step, after le_core_reserve() has allocated all memory that it needs.
 * Must not fail.
 */
extern void le_core_apply(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);

/*
 * Sets the horizon.  A lease expires only if its deadline is at or before the horizon, even if the
 * commands or le_core_expire() get a later time, because a renewal posted in time may not have been
 * applied yet.
 */
extern void le_core_set_horizon(LeCore *core, LeTime horizon);

/*
 * Sets how long this life of the manager has lasted, without the time in which nothing could be
 * written.  The value must be at least the recorded uptime of this life.  A value that is smaller than
 * an earlier one is ignored, because a pause sets back the clock.
 */
extern void le_core_set_uptime(LeCore *core, LeTime uptime);

/*
 * Sets whether rows can be written.  While rows cannot be written, the caller must not apply
 * commands that write rows, and a renewal leaves the row of its lease unchanged.
 */
extern void le_core_set_writable(LeCore *core, bool writable);

/*
 * Handles at most max timers that are due at the horizon. now is the time of the batch's commands: if
 * an end leads to a grant, the new hold begins at that time.  Returns the number of timers handled; if
 * it returns max, the caller must write the batch and call it again.  Must not fail: an end needs no
 * memory, and memory for a grant is reserved.
 */
extern int le_core_expire(LeCore *core, LeTime now, int max);

/* Returns when le_core_expire() is next needed; LE_NEVER = not at all. */
extern LeTime le_core_next_deadline(const LeCore *core);

/*
 * Returns a lapsed holder that ended at least "timeout" ago, or NULL.  Returns the same holder again
 * only after another "timeout".
 */
extern LeEntry *le_core_overdue(LeCore *core, LeTime timeout, LeTime now);

#endif /* LE_CORE_H */
