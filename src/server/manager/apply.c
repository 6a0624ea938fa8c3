/*
 * manager/apply.c
 *		A command is applied to the core, in a batch that may not have expected that it
 *		writes.
 */
#include "postgres.h"

#include "manager/manager.h"

void
le_apply_one(Batch *batch, const LeCommand *cmd, LeReply *reply)
{
	le_core_apply(le_mgr.core, cmd, batch->now, reply);
	if (!le_core_wanted_to_write(le_mgr.core))
		return;

	/* that a place is granted says nothing of its validity, so it is told when the row is written */
	if (batch->looks_only)
		reply->wrote |= cmd->type == LE_CMD_AWAIT;
	else if (le_txn_lock_tables(batch))
		le_core_apply(le_mgr.core, cmd, batch->now, reply);
}
