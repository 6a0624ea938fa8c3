/*
 * backend/sync_body.h
 *		Declares a lease_sync() call, as a session sends it, and its results.
 */
#ifndef LE_SYNC_BODY_H
#define LE_SYNC_BODY_H

#include "lib/stringinfo.h"

#include "shared/shmem.h"
#include "shared/sync_format.h"

/* An item of a call, with its strings. */
typedef struct LeSyncSpec
{
	LeSyncAction action;
	int64 number; /* token, or number of permits */
	LeTime hold_for;
	LeText name;
	LeText owner; /* data NULL: no owner; the same applies to value */
	LeText value;
	bool more; /* the next item is another name of the same request */
} LeSyncSpec;

/* A call and its results. */
typedef struct LeSync
{
	/* the call */
	int64 lease;
	Oid role;
	int64 call;
	int64 incarnation; /* incarnation of the manager whose news the client has seen; 0 = none */
	uint64 seen;
	uint64 begun; /* told.begun of the previous page; 0 = this is the first page */
	LeTime wait;  /* maximum time to wait for the reply to become durable */
	const LeSyncSpec *items;
	uint32 nitems;

	/* results */
	bool answered;
	LeReply renewal;  /* status is LE_OK, LE_DENIED, or LE_NO_LEASE with the way in which the lease ended */
	LeTime validity;  /* validity even after a crash, in us from the sending of the call; 0 = unknown */
	LeReply *results; /* one result per item, valid if told.applied; the caller provides the memory */
	LeSyncTold told;  /* incarnation and seen are from the last page of news */
	StringInfoData news; /* LeNewsItem structs, ordered by number */
	bool durable;        /* results and news are durable */
	int sqlstate;        /* SQLSTATE of the error, if no item was carried out; 0 = none */
	char *message;
} LeSync;

/* Writes the body of the request to the payload, after its first "at" bytes, which are in use. */
extern void le_sync_put(LeMailbox *box, const LeSync *sync, uint32 at);
/* Reads the results from the reply, except "validity" and "durable". */
extern void le_sync_read(const LeMailbox *box, LeSync *sync);

#endif /* LE_SYNC_BODY_H */
