/*
 * backend/xact.h
 *		What the ends of transactions do to locks: they undo acquires and end fences.
 */
#ifndef LE_XACT_H
#define LE_XACT_H

/* Called from _PG_init, once per process. */
extern void le_xact_init(void);

#endif /* LE_XACT_H */
