/*
 * backend/extension.h
 *		A session's side of CREATE EXTENSION and DROP EXTENSION.
 */
#ifndef LE_EXTENSION_H
#define LE_EXTENSION_H

/* Called from _PG_init, once per process. */
extern void le_extension_init(void);

/* Has this transaction, or a subtransaction of it that has not rolled back, created the extension? */
extern bool le_created_in_this_transaction(void);

#endif /* LE_EXTENSION_H */
