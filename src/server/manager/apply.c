/*
 * manager/apply.c
 *		Applies a command to the core in a batch that may not have locked the tables
 *		for writing.
 */
#include "postgres.h"

#include "manager/apply.h"
#include "manager/state.h"
#include "manager/txn.h"

void
le_apply_one(Batch *batch, const LeCommand *cmd, LeReply *reply)
{
	le_core_apply(le_mgr.core, cmd, batch->now, reply);
	if (!le_core_wanted_to_write(le_mgr.core))
		return;

	/* unlike a renewal, an AWAIT gets no shorter validity: its reply must wait until the row is written */
	if (batch->looks_only)
		reply->wrote |= cmd->type == LE_CMD_AWAIT;
	else if (le_txn_lock_tables(batch))
		le_core_apply(le_mgr.core, cmd, batch->now, reply);
}
