/*
 * manager/chore.c
 *		Chores: what the manager does with its tables between two batches.
 */
#include "postgres.h"

#include "access/xact.h"
#include "pgstat.h"
#include "utils/memutils.h"

#include "manager/internal.h"
#include "store/store.h"

void
le_chore(void (*work)(void))
{
	PG_TRY();
	{
		MemoryContextReset(le_mgr.batch_context);
		MemoryContextSwitchTo(le_mgr.batch_context);
		le_batch_begin();
		if (le_store_find())
			work();
		else
			(void) le_batch_commit(false);
		pgstat_report_stat(false);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(le_mgr.batch_context);
		EmitErrorReport();
		FlushErrorState();
		AbortCurrentTransaction();
	}
	PG_END_TRY();
}
