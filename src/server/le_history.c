/*
 * le_history.c
 *		The manager's care for the history of elections: what is too old goes,
 *		a few pages at a time, so that no grant waits for long.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/timestamp.h"

#include "le_batch_internal.h"
#include "le_history.h"

/* As many at a time; after it the next time while there is something to delete,
 * and when there was nothing. */
#define PRUNE_PAGES 32
#define PRUNE_BUSY  (1 * LE_SECOND)
#define PRUNE_IDLE  (60 * LE_SECOND)

static bool any = true; /* not known yet */
static LeTime prune_at = 0;
static uint32 prune_from = 0;

void
le_history_written(void)
{
	any = true;
}

static void
prune(void)
{
	TimestampTz before =
		GetCurrentTimestamp() - (int64) le_history_retention * SECS_PER_MINUTE * USECS_PER_SEC;
	int rows;

	le_batch_begin();
	if (!le_store_find())
	{
		(void) le_batch_commit(false);
		return;
	}
	any = le_store_has_history();
	rows = le_store_prune_history(before, PRUNE_PAGES, &prune_from);
	(void) le_batch_commit(false);
	prune_at = le_clock() + (rows > 0 ? PRUNE_BUSY : PRUNE_IDLE);
}

LeTime
le_history_tend(void)
{
	if (le_history_retention == 0 || !any)
		return LE_NEVER;
	if (le_clock() < prune_at)
		return prune_at;
	prune_at = le_clock() + PRUNE_IDLE;
	PG_TRY();
	{
		MemoryContextSwitchTo(le_mgr.batch_context);
		prune();
	}
	PG_CATCH();
	{
		/* somebody has the table; the next time is soon enough */
		MemoryContextSwitchTo(le_mgr.batch_context);
		EmitErrorReport();
		FlushErrorState();
		AbortCurrentTransaction();
	}
	PG_END_TRY();
	return prune_at;
}
