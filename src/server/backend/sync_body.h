/*
 * backend/sync_body.h
 *		A lease_sync(), as a session sends it, and what it is told.
 */
#ifndef LE_SYNC_BODY_H
#define LE_SYNC_BODY_H

#include "lib/stringinfo.h"

#include "shared/shmem.h"
#include "shared/sync_format.h"

/* An item of a call, with its texts. */
typedef struct LeSyncSpec
{
	LeSyncAction action;
	int64 number; /* token; of permits their number */
	LeTime hold_for;
	LeText name;
	LeText owner; /* data NULL: none, as of value */
	LeText value;
	bool more; /* the next one is another name of this request */
} LeSyncSpec;

/* A call, and what it was told. */
typedef struct LeSync
{
	/* the call */
	int64 lease;
	Oid role;
	int64 call;
	int64 incarnation; /* 0: no news were seen */
	uint64 seen;
	uint64 begun; /* told.begun of the page before; 0: this is the first one */
	LeTime wait;  /* so long for what the reply rests on to be durable */
	const LeSyncSpec *items;
	uint32 nitems;

	/* what it was told */
	bool answered;
	LeReply renewal;  /* its status is LE_OK, LE_NO_LEASE with how the lease has ended, or LE_DENIED */
	LeTime validity;  /* what a crash would leave of the lease, from the sending on; 0: that is not certain */
	LeReply *results; /* of each item, if told.applied; there is room for all */
	LeSyncTold told;  /* incarnation and seen: of the last page of news */
	StringInfoData news; /* LeNewsItem, in the order of their numbers */
	bool durable;        /* results and news are */
	int sqlstate;        /* not 0: no item was carried out, and why */
	char *message;
} LeSync;

/* Put the body of the request behind the "at" bytes of the payload that are taken. */
extern void le_sync_put(LeMailbox *box, const LeSync *sync, uint32 at);
/* The request is answered: read what it was told, apart from validity and durable. */
extern void le_sync_read(const LeMailbox *box, LeSync *sync);

#endif /* LE_SYNC_BODY_H */
