/*
 * backend/guard.h
 *		Prevents changes to the definition of the extension's tables.
 */
#ifndef LE_GUARD_H
#define LE_GUARD_H

#include "nodes/nodes.h"

/*
 * Raises an error if this utility command would add an object to a table of the extension or make the table
 * unlogged.
 */
extern void le_guard_tables(const Node *command);

#endif /* LE_GUARD_H */
