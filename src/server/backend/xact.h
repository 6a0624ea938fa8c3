/*
 * backend/xact.h
 *		Undoes acquires, posts releases and ends fences at the end of transactions.
 */
#ifndef LE_XACT_H
#define LE_XACT_H

/* Registers the callbacks.  Called by _PG_init(). */
extern void le_xact_init(void);

#endif /* LE_XACT_H */
