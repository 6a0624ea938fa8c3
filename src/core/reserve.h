/*
 * core/reserve.h
 *		Reserves memory before a command is applied.
 */
#ifndef LE_RESERVE_H
#define LE_RESERVE_H

#include "objects.h"

/* Reserves memory for a command: the first step, see core/core.h.  Returns false if out of memory. */
extern bool le_core_reserve(LeCore *core, const LeCommand *cmd);

/* --- for the core alone --- */

typedef struct LeEntrySpec LeEntrySpec; /* core/state.h */
typedef struct LePrealloc LePrealloc;

/* Reserve memory for entries or a lease, from a command or rows.  Return false if out of memory. */
extern bool le_reserve_entries(LeCore *core, LeKind kind, const LeText *names, uint32_t n,
							   const LeEntrySpec *spec);
extern bool le_reserve_lease(LeCore *core, LeText owner);
/*
 * le_prealloc_free() frees the copies of texts that no command has used; le_prealloc_take() returns
 * the next copy.
 */
extern void le_prealloc_free(LeCore *core);
extern char *le_prealloc_take(LePrealloc *texts);

#endif /* LE_RESERVE_H */
