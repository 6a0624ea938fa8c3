/*
 * shared/look.h
 *		Pages of the live state, for views: a request reads one page, so that
 *		a view over a million locks never keeps a grant waiting for long.
 */
#ifndef LE_LOOK_H
#define LE_LOOK_H

#include "shared/shmem.h"

/*
 * One holder or waiter, or a name that is closed and that nobody holds (token
 * 0).  Texts follow, the next item begins at a multiple of 8.
 */
typedef struct LeLookItem
{
	int64 token;
	int64 lease;
	TimestampTz since;        /* it acquired, or began to wait */
	TimestampTz expires_at;   /* DT_NOEND: with its connection */
	TimestampTz closed_until; /* of the lock; 0: it is open */
	LeTime time_left;
	uint64 session;
	Oid role;   /* of a closed name: whose holder left it so */
	int32 slot; /* -1: none */
	int32 holds;
	uint32 waiters;  /* behind the lock */
	uint32 position; /* in the queue, from 1; 0: a holder */
	uint16 name_len;
	uint16 value_len;
	uint8 owner_len;
	uint8 acquirer_len;
	bool named; /* owner is a text, not a connection */
	uint8 kind;
	uint8 mode;
	bool lapsed;
} LeLookItem;

/* or a page would stay empty, and be asked for again without end */
StaticAssertDecl(MAXALIGN(sizeof(LeLookItem) + LE_MAX_NAME + LE_MAX_OWNER + LE_MAX_VALUE + LE_MAX_ACQUIRER) <=
					 LE_PAYLOAD_SIZE,
				 "the longest item does not fit into a page");

/* They begin with the name; the owner, the value and the acquirer follow. */
#define le_look_text(item) ((const char *) (item) + sizeof(LeLookItem))

static inline Size
le_look_size(const LeLookItem *item)
{
	return MAXALIGN(sizeof(LeLookItem) + item->name_len + item->owner_len + item->value_len +
					item->acquirer_len);
}

typedef struct LeLookLease
{
	int64 id;
	LeTime ttl;
	TimestampTz expires_at;
	LeTime time_left;
	Oid role;
	uint8 owner_len;
	bool named;
	/* the owner follows; the next begins at a multiple of 8 */
} LeLookLease;

#endif /* LE_LOOK_H */
