/*
 * manager/history.c
 *		The manager's care for the history of elections: what is too old goes,
 *		a few pages at a time, so that no grant waits for long.
 */
#include "postgres.h"

#include "access/xact.h"
#include "pgstat.h"
#include "utils/timestamp.h"

#include "manager/history.h"
#include "manager/internal.h"
#include "shared/fault.h"
#include "shared/settings.h"
#include "shared/shmem.h"
#include "store/store.h"

/* As many at a time, one after the other until the whole table was looked at */
#define PRUNE_PAGES 32
#define PRUNE_STEP  (100 * LE_MS)
/* From one look at the table to the next at most; and when somebody has it */
#define PRUNE_PASS  (600 * LE_SECOND)
#define PRUNE_RETRY (60 * LE_SECOND)

static bool any = true; /* not known yet */
static LeTime prune_at = 0;
static uint32 prune_from = 0; /* page; 0: the next pass is to begin */

void
le_history_written(void)
{
	any = true;
}

static void
prune(void)
{
	LeTime retention = (LeTime) le_history_retention * SECS_PER_MINUTE * LE_SECOND;

	le_batch_begin();
	if (!le_store_find())
	{
		(void) le_batch_commit(false);
		return;
	}
	any = le_store_has_history();
	le_store_prune_history(GetCurrentTimestamp() - retention, PRUNE_PAGES, &prune_from);
	LE_FAULT("history-pruned");
	(void) le_batch_commit(false);
	pgstat_report_stat(false);
	prune_at = le_clock() + (prune_from > 0 ? PRUNE_STEP : Min(retention, PRUNE_PASS));
}

LeTime
le_history_tend(void)
{
	if (le_history_retention == 0 || !any)
		return LE_NEVER;
	if (le_clock() < prune_at)
		return prune_at;
	prune_at = le_clock() + PRUNE_RETRY;
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
