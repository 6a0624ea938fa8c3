/*
 * backend/session_sync.c
 *		The backend's side of lease_sync(): see manager/sync.c for the manager's.
 *
 *	1.	One request renews the lease, carries the items out, and brings a page of news.
 *		More pages are asked for by calls without items.
 *	2.	If the manager refuses the request because nothing can be written, the lease is
 *		renewed by a request without items, and they are told the error.
 *	3.	What the replies rest on is waited for, for "wait" at most.  Where that is not
 *		enough, the client is told nothing of what is not durable yet: results are
 *		pending, and the news come again with a later call.
 */
#include "postgres.h"

#include "backend/session_request.h"
#include "backend/session_sync.h"
#include "shared/shmem.h"

/*
 * The lease was not renewed because of what was asked for: renew it alone.  If that is refused too,
 * it is the caller's error.
 */
static void
renew_alone(LeSync *sync, LeTime until)
{
	const LeSyncSpec *items = sync->items;
	uint32 nitems = sync->nitems;
	int sqlstate = sync->sqlstate;

	sync->items = NULL;
	sync->nitems = 0;
	if (nitems > 0)
		le_request_sync(sync, until);
	if (!sync->answered)
		le_raise_answer(sync->sqlstate, sync->message);
	sync->items = items;
	sync->nitems = nitems;
	sync->sqlstate = sqlstate;
	sync->told.applied = false;
}

/*
 * All pages of news behind the first.  Of what cannot be read now, or is not durable, the client is told
 * by a later call; and of all, where they begin anew again and again, because so much is lost meanwhile.
 */
static void
read_more(LeSync *sync, LeTime until)
{
	bool from_start = sync->told.from_start;

	while (sync->told.more && sync->durable)
	{
		LeSync page = {.lease = sync->lease,
					   .role = sync->role,
					   .incarnation = sync->told.incarnation,
					   .seen = sync->told.seen,
					   .begun = sync->told.begun,
					   .news = sync->news};

		le_request_sync(&page, until);
		sync->news = page.news;
		sync->durable = page.answered && page.renewal.status == LE_OK && page.durable &&
						!(page.told.from_start && le_clock() >= until);
		from_start |= page.told.from_start;
		if (!sync->durable)
			break;
		page.told.applied = sync->told.applied;
		sync->told = page.told;
	}
	sync->told.from_start = from_start;
}

void
le_sync(LeSync *sync)
{
	LeTime until = le_clock() + sync->wait;

	initStringInfo(&sync->news);
	le_request_sync(sync, until);
	if (!sync->answered)
		renew_alone(sync, until);
	if (sync->renewal.status == LE_OK)
		read_more(sync, until);

	/* a client that is told which of its holders are evicted need not take all others for them */
	if (sync->durable && sync->validity > 0)
		sync->validity = Max(sync->validity, sync->renewal.valid_lease);
}
