/*
 * backend/look.c
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
	LeLook look = {.kind = kind, .name = name};

	while (look.from.index >= 0)
	{
		LeText page = le_request_look(LE_REQUEST_LOOK, &look);

		/* the callback may make requests of its own */
		memcpy(copy, page.data, page.len);
		for (uint32 at = 0; at < page.len;)
		{
			LeLookItem *item = (LeLookItem *) (copy + at);

			callback(arg, item);
			at += le_look_size(item);
		}
	}
	pfree(copy);
}

void
le_look_leases(LeLookLeaseCallback callback, void *arg)
{
	LeLook look = {0};

	while (look.from.index >= 0)
	{
		LeText page = le_request_look(LE_REQUEST_LOOK_LEASES, &look);

		for (uint32 at = 0; at < page.len;)
		{
			const LeLookLease *item = (const LeLookLease *) (page.data + at);

			callback(arg, item);
			at += MAXALIGN(sizeof(LeLookLease) + item->owner_len);
		}
	}
}
