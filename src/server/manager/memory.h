/*
 * manager/memory.h
 *		Allocates the memory of the core, and limits it.
 */
#ifndef LE_MANAGER_MEMORY_H
#define LE_MANAGER_MEMORY_H

#include "core/core.h"

/*
 * Create the memory context of a core, and allocate and free memory in it.  The last two functions are
 * callbacks of LeEnv.
 */
extern MemoryContext le_memory_new_context(void);
extern void *le_memory_alloc(void *arg, size_t size);
extern void le_memory_free(void *arg, void *p);

/* Returns the memory used by the core's state, in bytes. */
extern Size le_memory_used(void);

/*
 * Reserves memory for everything that the command may add.  Returns LE_LIMIT_MEMORY or LE_LIMIT_HISTORY if
 * there is no room for it.
 */
extern LeStatus le_memory_reserve(const LeCommand *cmd);

/* Called after a load: warns if the state takes more memory than the limit. */
extern void le_memory_warn(void);

#endif /* LE_MANAGER_MEMORY_H */
