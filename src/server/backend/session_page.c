/*
 * backend/session_page.c
 *		A session reads the live state, page by page.  The manager's half is
 *		manager/fillpage.c.
 */
#include "postgres.h"

#include "backend/session_page.h"
#include "backend/session_request.h"
#include "shared/page_format.h"
#include "shared/shmem.h"

void
le_page_locks(LeKind kind, LeText name, LePageCallback callback, void *arg)
{
	char *copy = palloc(LE_PAYLOAD_SIZE);
	LePageRequest request = {.kind = kind, .name = name};

	while (request.from.index >= 0)
	{
		LeText page = le_request_page(LE_REQUEST_PAGE, &request);

		/* the callback may make requests of its own */
		memcpy(copy, page.data, page.len);
		for (uint32 at = 0; at < page.len;)
		{
			LePageItem *item = (LePageItem *) (copy + at);

			Assert(at + le_page_size(item) <= page.len);
			callback(arg, item);
			at += le_page_size(item);
		}
	}
	pfree(copy);
}

void
le_page_leases(LePageLeaseCallback callback, void *arg)
{
	LePageRequest request = {0};

	while (request.from.index >= 0)
	{
		LeText page = le_request_page(LE_REQUEST_LEASE_PAGE, &request);

		for (uint32 at = 0; at < page.len;)
		{
			const LePageLease *item = (const LePageLease *) (page.data + at);

			callback(arg, item);
			at += MAXALIGN(sizeof(LePageLease) + item->owner_len);
		}
	}
}
