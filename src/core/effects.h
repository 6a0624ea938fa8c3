/*
 * core/effects.h
 *		The effects of a batch of commands and expiries: rows to write, replies to
 *		give, changes to announce.
 *
 * At the end of a batch the environment walks these lists, each from its first object to
 * NULL: it writes the dirty rows and the changes, gives the replies, and calls
 * le_core_batch_done().
 */
#ifndef LE_EFFECTS_H
#define LE_EFFECTS_H

#include "view.h"

/* A change of an election, to be written and announced with its batch. */
typedef struct LeChange
{
	struct LeChange *next;
	LeLock *lock;
	const char *value; /* the leader's value, from then on or up to the end */
	char *dropped;     /* a value that is freed with the batch */
	int64_t number;    /* a revision */
	int64_t previous;  /* number of the election's previous change; 0 = not known */
	int64_t term;
	LeTime elected_at;
	LeTime at;
	uint32_t role; /* of the leader */
	uint16_t value_len;
	uint8_t how; /* LeHow */
	bool place;  /* elected from a queue place */
} LeChange;

/*
 * Gives the rows of idle locks to slots that have none, see core/recycle.c.  To be called before
 * the lists are walked.
 */
extern void le_core_recycle_rows(LeCore *core, LeTime now);

/*
 * The lists: each function returns the object after this one, or the first if "after" is NULL;
 * NULL = no more.
 */

/* Slots whose row has to be written, or deleted (drop). */
extern LeSlot *le_next_dirty_slot(const LeCore *core, const LeSlot *after);

/* Leases whose row has to be written, or deleted (ended). */
extern LeLease *le_next_dirty_lease(const LeCore *core, const LeLease *after);

/* Entries whose queue row has to be written (QUEUED) or deleted. */
extern LeEntry *le_next_dirty_place(const LeCore *core, const LeEntry *after);

/* Changes of elections, in this order. */
extern LeChange *le_next_change(const LeCore *core, const LeChange *after);

/* Entries whose waiter gets a reply, in this order, and that reply. */
extern LeEntry *le_next_answer(const LeCore *core, const LeEntry *after);
extern void le_entry_answer(const LeCore *core, const LeEntry *entry, LeTime now, LeReply *reply);

/*
 * Releases that need not be written yet, see core/later.c: the time of the oldest, LE_NEVER =
 * none; and have all of them written with this batch.
 */
extern LeTime le_core_later_since(const LeCore *core);
extern void le_core_write_now(LeCore *core);

/*
 * Finishes a batch that is committed and replied to.  Its record ends at this LSN, perhaps not
 * flushed yet; 0 = the batch has written nothing.  Must not fail: the replies are given.
 */
extern void le_core_batch_done(LeCore *core, uint64_t lsn);

/*
 * The rows of the three tables by the index of their object: slots, leases, queue places.  NULL =
 * no object there, or its row is not on disk.  Objects that end with this batch are included: if
 * it fails, their rows stay where they were.
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
