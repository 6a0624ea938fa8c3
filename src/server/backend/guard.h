/*
 * backend/guard.h
 *		The extension's tables stay as the extension has made them.
 */
#ifndef LE_GUARD_H
#define LE_GUARD_H

#include "nodes/nodes.h"

/* An error if this utility command adds something to a table of the extension. */
extern void le_guard_tables(const Node *command);

#endif /* LE_GUARD_H */
