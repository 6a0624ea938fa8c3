/*
 * backend/extension.h
 *		Tracks CREATE EXTENSION and DROP EXTENSION in a backend.
 */
#ifndef LE_EXTENSION_H
#define LE_EXTENSION_H

/* Installs hooks and callbacks.  Called by _PG_init(). */
extern void le_extension_init(void);

/* Returns whether this transaction has created the extension.  Ignores subtransactions that rolled back. */
extern bool le_created_in_this_transaction(void);

#endif /* LE_EXTENSION_H */
