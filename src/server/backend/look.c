/*
 * look.c
 *		A session reads the live state, page by page.  The manager's half is
 *		manager/look.c.
 */
#include "postgres.h"

#include "backend/look.h"
#include "backend/request.h"
#include "shared/look.h"
#include "shared/shmem.h"

void
le_look(LeKind kind, LeText name, LeLookCallback callback, void *arg)
{
	char *copy = palloc(LE_PAYLOAD_SIZE);
	LeLookCursor cursor = {0};

	while (cursor.place >= 0)
	{
		LeCommand cmd = {.kind = kind, .name = name, .token = cursor.place, .revision = cursor.last};
		LeReply reply;
		char *page;
		uint32 len = le_request_look(LE_REQUEST_LOOK, &cmd, &reply, &page);

		/* the callback may make requests of its own */
		memcpy(copy, page, len);
		for (uint32 at = 0; at < len;)
		{
			LeLookItem *item = (LeLookItem *) (copy + at);

			callback(arg, item);
			at += MAXALIGN(sizeof(LeLookItem) + item->name_len + item->owner_len + item->value_len);
		}
		cursor.place = reply.token;
		cursor.last = reply.count;
	}
	pfree(copy);
}

void
le_look_leases(LeLookLeaseCallback callback, void *arg)
{
	int64 cursor = 0;

	while (cursor >= 0)
	{
		LeCommand cmd = {.token = cursor};
		LeReply reply;
		char *page;
		uint32 len = le_request_look(LE_REQUEST_LOOK_LEASES, &cmd, &reply, &page);

		for (uint32 at = 0; at < len;)
		{
			LeLookLease *item = (LeLookLease *) (page + at);

			callback(arg, item);
			at += MAXALIGN(sizeof(LeLookLease) + item->owner_len);
		}
		cursor = reply.token;
	}
}
