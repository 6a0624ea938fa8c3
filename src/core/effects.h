/*
 * core/effects.h
 *		What a batch of commands and expiries has to write, answer and announce.
 *
 * At the end of a batch the environment walks these lists, each from its first object to
 * NULL: it writes the dirty rows and the changes, gives the answers, and calls
 * le_core_batch_done().
 */
#ifndef LE_EFFECTS_H
#define LE_EFFECTS_H

#include "view.h"

/* A change of an election, to be written and told with its batch. */
typedef struct LeChange
{
	struct LeChange *next;
	LeLock *lock;
	const char *value; /* the leader's, from then on or up to the end */
	char *dropped;     /* a value that goes with the batch */
	int64_t number;    /* a revision */
	int64_t previous;  /* number of the election's change before; 0: not known */
	int64_t term;
	LeTime elected_at;
	LeTime at;
	uint32_t role; /* of the leader */
	uint16_t value_len;
	uint8_t how; /* LeHow */
	bool place;  /* elected from a queue place */
} LeChange;

/* First of all: give the rows of idle locks to slots that have none, see core/recycle.c. */
extern void le_core_recycle_rows(LeCore *core, LeTime now);

/*
 * The lists: the object after this one, or the first if "after" is NULL; NULL: no
 * more.
 */

/* Slots whose row has to be written, or deleted (drop). */
extern LeSlot *le_next_dirty_slot(const LeCore *core, const LeSlot *after);

/* Leases whose row has to be written, or deleted (ended). */
extern LeLease *le_next_dirty_lease(const LeCore *core, const LeLease *after);

/* Entries whose queue row has to be written (QUEUED) or deleted. */
extern LeEntry *le_next_dirty_place(const LeCore *core, const LeEntry *after);

/* Changes of elections, in this order. */
extern LeChange *le_next_change(const LeCore *core, const LeChange *after);

/* Entries whose waiter gets an answer, in this order, and the answer. */
extern LeEntry *le_next_answer(const LeCore *core, const LeEntry *after);
extern void le_entry_answer(const LeCore *core, const LeEntry *entry, LeTime now, LeReply *reply);

/*
 * Releases that need not be written yet, see core/later.c: since when the oldest waits, LE_NEVER:
 * none; and all of them are to be written with this batch.
 */
extern LeTime le_core_later_since(const LeCore *core);
extern void le_core_write_now(LeCore *core);

/*
 * The batch is committed and answered.  The end of its record is at this LSN, perhaps not flushed
 * yet; 0: the batch has written nothing.  May not fail: the answers are given.
 */
extern void le_core_batch_done(LeCore *core, uint64_t lsn);

/*
 * What has a row in one of the three tables, by index: slots, leases, queue
 * places.  NULL: nothing there, or it is not on disk.  Also what ends with this
 * batch: a batch that fails leaves its row where it was.
 */
typedef enum LeRowType
{
	LE_ROW_SLOT,
	LE_ROW_LEASE,
	LE_ROW_PLACE
} LeRowType;

extern uint32_t le_core_row_indexes(const LeCore *core, LeRowType type);
extern LeRow *le_core_row_at(LeCore *core, LeRowType type, uint32_t index);

#endif /* LE_EFFECTS_H */
