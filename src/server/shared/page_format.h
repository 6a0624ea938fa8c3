/*
 * shared/page_format.h
 *		Defines the pages of the live state that views read.  Each request reads a single page, so that a view
 *		over a million locks never delays a grant for long.
 */
#ifndef LE_PAGE_FORMAT_H
#define LE_PAGE_FORMAT_H

#include "shared/shmem.h"

/* Value of "kind" for pages of leases and their items.  It is no LeKind. */
#define LE_PAGE_LEASES 0

/*
 * One holder or waiter, a closed name without a holder (token 0), or a named lease (kind LE_PAGE_LEASES).
 * Its texts follow; the next item begins at a multiple of 8.  On a page about one lease, items have no
 * acquirer, and the value of an item of a group is the name of the lock whose channel announces the grant.
 */
typedef struct LePageItem
{
	int64 token;
	int64 lease;
	TimestampTz since;        /* start of the hold or of the wait */
	TimestampTz expires_at;   /* DT_NOEND = the hold ends with its connection */
	TimestampTz closed_until; /* end of the time for which the lock is closed; 0 = the name is open */
	LeTime time_left_us;
	LeTime ttl_us; /* TTL of a lease */
	uint64 session;
	Oid role;   /* for a closed name: the role of the holder that closed it */
	int32 slot; /* slot of a holder; -1 = none */
	int32 holds;
	uint32 waiters;  /* number of waiters in the lock's queue */
	uint32 position; /* position in the queue, from 1; 0 = a holder */
	uint16 name_len;
	uint16 value_len;
	uint8 owner_len;
	uint8 acquirer_len;
	bool named; /* the owner is a text; false: it is a connection */
	uint8 kind;
	uint8 mode;
	bool lapsed;
	bool evicted;
	bool shown; /* on a page about one lease: the caller may see this item */
} LePageItem;

/*
 * A page must have room for any single item.  Otherwise the page would stay empty, and would be requested
 * again and again.
 */
StaticAssertDecl(MAXALIGN(sizeof(LePageItem) + LE_MAX_NAME + LE_MAX_OWNER + LE_MAX_VALUE + LE_MAX_ACQUIRER) <=
					 LE_PAYLOAD_SIZE,
				 "the longest item does not fit into a page");

/* The texts of an item, in the order in which they follow the item.  A missing text has data NULL. */
typedef struct LePageTexts
{
	LeText name, owner, value, acquirer;
} LePageTexts;

/* Returns the texts of an item on a page, as pointers into the page. */
static inline LePageTexts
le_page_texts(const LePageItem *item)
{
	const char *name = (const char *) (item + 1);
	const char *owner = name + item->name_len;
	const char *value = owner + item->owner_len;

	return (LePageTexts){.name = {name, item->name_len},
						 .owner = {item->named ? owner : NULL, item->owner_len},
						 .value = {item->value_len > 0 ? value : NULL, item->value_len},
						 .acquirer = {value + item->value_len, item->acquirer_len}};
}

static inline Size
le_page_size(const LePageItem *item)
{
	return MAXALIGN(sizeof(LePageItem) + item->name_len + item->owner_len + item->value_len +
					item->acquirer_len);
}

#endif /* LE_PAGE_FORMAT_H */
