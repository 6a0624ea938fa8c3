/*
 * manager/memory.c
 *		Limits the memory of the core to lock_election.max_memory.
 *
 * The limit applies only to commands that may add locks or leases.  State that was admitted earlier is always
 * loaded again, even beyond the limit.  Commands that end something or free memory are never refused.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "manager/chores.h"
#include "manager/memory.h"
#include "manager/state.h"
#include "shared/settings.h"

/*
 * The core's memory context has blocks of STATE_BLOCK bytes.  A piece larger than SMALL_PIECE has its own
 * block, which is freed with the piece, so the size of the context is the memory in use.  Smaller pieces are
 * texts that belong to larger pieces.
 */
#define SMALL_PIECE 128
#define STATE_BLOCK 1024

/*
 * Set while memory is reserved for a command that adds something. le_memory_alloc() then refuses memory
 * beyond the limit.
 */
static bool refuse_beyond_limit = false;

static Size
limit(void)
{
	return (Size) (le_max_memory_mb * LE_MB);
}

MemoryContext
le_memory_new_context(void)
{
	return AllocSetContextCreate(TopMemoryContext, "lock_election state", 0, STATE_BLOCK, STATE_BLOCK);
}

Size
le_memory_used(void)
{
	return MemoryContextMemAllocated(le_mgr.core_context, false);
}

void *
le_memory_alloc(void *arg, size_t size)
{
	Assert(le_mgr.core_context != NULL && size > 0);
	/* allow for the headers of a new block, and for another block for smaller pieces */
	if (refuse_beyond_limit && size > SMALL_PIECE && le_memory_used() + size + STATE_BLOCK > limit())
		return NULL;
	return MemoryContextAllocExtended(le_mgr.core_context, size, MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
}

void
le_memory_free(void *arg, void *p)
{
	Assert(GetMemoryChunkContext(p) == le_mgr.core_context);
	pfree(p);
}

/*
 * Calls le_core_reserve(), with the limit if the command adds something.  Returns false if there is no room.
 */
static bool
reserve_memory(const LeCommand *cmd)
{
	bool adds =
		cmd->type == LE_CMD_ACQUIRE || cmd->type == LE_CMD_GRANT_LEASE || cmd->type == LE_CMD_PROCLAIM;
	bool reserved;

	Assert(!refuse_beyond_limit && core_is_loaded());

	/* the state may exceed the limit already, because a load ignores it */
	if (adds && le_memory_used() > limit())
		return false;
	refuse_beyond_limit = adds;
	reserved = le_core_reserve(le_mgr.core, cmd);
	refuse_beyond_limit = false;
	return reserved;
}

LeStatus
le_memory_reserve(const LeCommand *cmd)
{
	if (!le_history_admits(cmd))
		return LE_LIMIT_HISTORY;
	return reserve_memory(cmd) ? LE_OK : LE_LIMIT_MEMORY;
}

void
le_memory_warn(void)
{
	Size is_used = le_memory_used();

	if (is_used <= limit())
		return;
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("the locks of this database take %zu MB, more than lock_election.max_memory (%d MB)",
					is_used / (Size) LE_MB, le_max_memory_mb),
			 errdetail("No more locks are granted until they take less."),
			 errhint("Raise it and reload the configuration, or release the locks of a role with "
					 "force_release_role().")));
}
