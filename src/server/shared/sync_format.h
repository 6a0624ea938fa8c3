/*
 * shared/sync_format.h
 *		Defines the request that lease_sync() sends to the manager, and the reply to it.
 *
 * The body of the request (see shared/names.h) consists of:
 *
 *	results		one LeReply for each item; the manager fills them in
 *	LeSyncHead
 *	items		each followed by its texts, aligned to a multiple of 8
 *
 * The manager appends news to the mailbox's payload, in the order of their numbers.
 */
#ifndef LE_SYNC_FORMAT_H
#define LE_SYNC_FORMAT_H

#include "shared/shmem.h"

/* Upper limits of the number of items in a call, and of names in all its items. */
#define LE_SYNC_ITEMS 128
#define LE_SYNC_NAMES LE_MAX_NAMES

/* Bytes of the payload that the body may use; a longer body goes into a segment. */
#define LE_SYNC_BODY 2048

/* The action that an item requests. */
typedef enum LeSyncAction
{
	LE_SYNC_RELEASE, /* releases a lock, or a place in its queue; may have hold_for */
	LE_SYNC_RESIGN,  /* resigns from an election */
	LE_SYNC_TRY_LOCK,
	LE_SYNC_TRY_SHARED,
	LE_SYNC_TRY_PERMIT,
	LE_SYNC_TRY_CANDIDATE,
	LE_SYNC_ENQUEUE_LOCK,
	LE_SYNC_ENQUEUE_SHARED,
	LE_SYNC_ENQUEUE_PERMIT,
	LE_SYNC_ENQUEUE_CANDIDATE,
	LE_SYNC_PROCLAIM,
	LE_SYNC_ACTIONS
} LeSyncAction;

static inline bool
le_sync_releases(LeSyncAction action)
{
	return action <= LE_SYNC_RESIGN;
}

/* Returns whether the action requests a hold or a place. */
static inline bool
le_sync_acquires(LeSyncAction action)
{
	return !le_sync_releases(action) && action != LE_SYNC_PROCLAIM;
}

/* Returns whether the action is for an election. */
static inline bool
le_sync_elects(LeSyncAction action)
{
	return action == LE_SYNC_RESIGN || action == LE_SYNC_TRY_CANDIDATE ||
		   action == LE_SYNC_ENQUEUE_CANDIDATE || action == LE_SYNC_PROCLAIM;
}

typedef struct LeSyncHead
{
	int64 call;        /* number of this call; ignored unless this is higher than all earlier numbers */
	int64 incarnation; /* incarnation of the manager whose news the caller has seen; 0 = none */
	uint64 seen;       /* sequence number of the newest news item that the caller has seen */
	uint64 begun;      /* LeSyncTold.begun of the previous page; 0 = this is the first page */
} LeSyncHead;

/* An item of a call, or one name of an item for several locks. */
typedef struct LeSyncItem
{
	int64 number;   /* token; for a permit, the number of permits */
	int64 hold_for; /* RELEASE: hold_for in microseconds */
	uint16 name_len;
	uint16 owner_len;
	uint16 value_len;
	uint8 action;
	bool has_owner;
	bool has_value;
	bool more; /* the next item is another name of the same request */
} LeSyncItem;

static inline Size
le_sync_item_size(const LeSyncItem *item)
{
	return MAXALIGN(sizeof(LeSyncItem) + item->name_len + item->owner_len + item->value_len);
}

/*
 * News about a holder or place on the lease.  Its name and owner follow; the next item begins at a multiple
 * of 8.
 */
typedef struct LeNewsItem
{
	int64 token;
	uint16 name_len;
	uint8 owner_len;
	uint8 kind;
	uint8 ending; /* LeEnd: how the item was lost or will be lost; LE_END_NONE = not lost */
	bool granted; /* true: the item is a holder, which was evicted if "ending" is set; false: a place */
	bool has_owner;
} LeNewsItem;

static inline Size
le_news_size(const LeNewsItem *item)
{
	return MAXALIGN(sizeof(LeNewsItem) + item->name_len + item->owner_len);
}

StaticAssertDecl(LE_SYNC_BODY + MAXALIGN(sizeof(LeNewsItem) + LE_MAX_NAME + LE_MAX_OWNER) <= LE_PAYLOAD_SIZE,
				 "the longest news do not fit behind a body");

#endif /* LE_SYNC_FORMAT_H */
