/*
 * backend/guard.h
 *		Keeps the extension's tables as the extension has created them.
 */
#ifndef LE_GUARD_H
#define LE_GUARD_H

#include "nodes/nodes.h"

/* Raises an error if this utility command adds something to a table of the extension. */
extern void le_guard_tables(const Node *command);

#endif /* LE_GUARD_H */
