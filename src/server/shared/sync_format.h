/*
 * shared/sync_format.h
 *		What lease_sync() sends to the manager, and what it is answered.
 *
 * The body of the request is, see shared/names.h:
 *
 *	results		one LeReply for each item; the manager fills them in
 *	LeSyncHead
 *	items		each with its texts behind it, from a multiple of 8 on
 *
 * The manager appends news to the mailbox's payload, in the order of their numbers.
 */
#ifndef LE_SYNC_FORMAT_H
#define LE_SYNC_FORMAT_H

#include "shared/shmem.h"

/* Most items of a call, and names of all its items. */
#define LE_SYNC_ITEMS 128
#define LE_SYNC_NAMES LE_MAX_NAMES

/* So many bytes of the payload are for the body; a longer one goes into a segment. */
#define LE_SYNC_BODY 2048

/* What one item asks for. */
typedef enum LeSyncAction
{
	LE_SYNC_RELEASE, /* of a lock, or a place for it; with hold_for */
	LE_SYNC_RESIGN,  /* of an election */
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

/* Does it ask for a holder, or for a place? */
static inline bool
le_sync_acquires(LeSyncAction action)
{
	return !le_sync_releases(action) && action != LE_SYNC_PROCLAIM;
}

/* Is its kind an election? */
static inline bool
le_sync_elects(LeSyncAction action)
{
	return action == LE_SYNC_RESIGN || action == LE_SYNC_TRY_CANDIDATE ||
		   action == LE_SYNC_ENQUEUE_CANDIDATE || action == LE_SYNC_PROCLAIM;
}

typedef struct LeSyncHead
{
	int64 call;        /* number of this sending; only higher ones than before count */
	int64 incarnation; /* of which the caller has seen news; 0: of none */
	uint64 seen;       /* number of the newest news that it has seen */
	uint64 begun;      /* LeSyncTold.begun of the page before; 0: this is the first one */
} LeSyncHead;

/* A request, or one name of a request for several locks. */
typedef struct LeSyncItem
{
	int64 number;   /* token; of permits their number */
	int64 hold_for; /* RELEASE */
	uint16 name_len;
	uint16 owner_len;
	uint16 value_len;
	uint8 action;
	bool has_owner;
	bool has_value;
	bool more; /* the next item is another name of this request */
} LeSyncItem;

static inline Size
le_sync_item_size(const LeSyncItem *item)
{
	return MAXALIGN(sizeof(LeSyncItem) + item->name_len + item->owner_len + item->value_len);
}

/* What has become of something on the lease; name and owner follow, from a multiple of 8 on. */
typedef struct LeNewsItem
{
	int64 token;
	uint16 name_len;
	uint8 owner_len;
	uint8 kind;
	uint8 ending; /* LeEnd: it is lost, or will be; LE_END_NONE: it is there */
	bool granted; /* it holds; with an ending: it is evicted */
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
