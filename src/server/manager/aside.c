/*
 * manager/aside.c
 *		What the manager does with its tables beside the batches, between two of
 *		them.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"

#include "manager/internal.h"

void
le_aside(void (*work)(void))
{
	PG_TRY();
	{
		MemoryContextReset(le_mgr.batch_context);
		MemoryContextSwitchTo(le_mgr.batch_context);
		work();
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
