/*
 * backend/session_sync.c
 *		Carries out lease_sync() in the backend; the manager's part is in manager/sync.c.
 *
 *	1.	One request renews the lease, carries out the items, and returns a page of news.  Further requests,
 *		without items, get the other pages.
 *	2.	If the manager rejects the request because it cannot write, a second request without items renews the
 *		lease, and each item gets the error as its result.
 *	3.	The call waits for at most "wait" until everything that it returns is durable.  Results that are not
 *		durable by then are returned as pending, and news that is not durable is returned by a later call.
 */
#include "postgres.h"

#include "backend/session_request.h"
#include "backend/session_sync.h"
#include "shared/shmem.h"

/*
 * Renews the lease without the items, because the request with the items failed.  Raises an error if this
 * fails, too.
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
 * Reads all pages of news after the first.  Leaves news that cannot be read now, or is not durable, to a
 * later call.  If the lease keeps losing locks, the manager restarts the listing each time; when the time is
 * up, this call leaves all news to a later call.
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

	/* evicted holders end before the lease, but the news lists them; all others are valid as long as the lease */
	if (sync->durable && sync->validity > 0)
		sync->validity = Max(sync->validity, sync->renewal.valid_lease);
}
