/*
 * backend/extension.h
 *		The backend's part in CREATE EXTENSION and DROP EXTENSION.
 */
#ifndef LE_EXTENSION_H
#define LE_EXTENSION_H

/* Called from _PG_init, once per process. */
extern void le_extension_init(void);

/*
 * Returns whether this transaction has created the extension.  Subtransactions that rolled back do not count.
 */
extern bool le_created_in_this_transaction(void);

#endif /* LE_EXTENSION_H */
