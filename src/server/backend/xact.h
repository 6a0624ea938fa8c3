/*
 * backend/xact.h
 *		What transactions do to locks: undo of acquires, ends of fences.
 */
#ifndef LE_XACT_H
#define LE_XACT_H

/* From _PG_init; once per process. */
extern void le_xact_init(void);

#endif /* LE_XACT_H */
