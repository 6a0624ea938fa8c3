/*
 * shared/fault.h
 *		Declares fault points: named points in the code where a test can make the server sleep, wait, fail or
 *		die.  They exist only in a build for tests (make LE_FAULTS=1).
 *
 * LE_FAULT() marks a point where the surrounding code can handle an ERROR.  LE_FAULT_NOFAIL() marks a point
 * in code that must not fail once it has begun: a test can delay or kill a process there, but an error that
 * it requests is ignored.
 */
#ifndef LE_FAULT_H
#define LE_FAULT_H

#ifdef LE_FAULTS

#include "core/objects.h"
#include "shared/compat.h"

/*
 * Return the size of the table of fault points, and initialize the table.  Called while shared memory is
 * created.
 */
extern Size le_fault_size(void);
extern void le_fault_init(void *memory, bool found);

/*
 * Called when this process reaches the point with this name.  Carries out the point's action, if it is armed.
 */
extern void le_fault_point(const char *name, bool can_fail);

/*
 * Aborts the process if an invariant of the core's state is violated.  A check of a large state takes a while,
 * so checks are skipped if they would take more than a fifth of the manager's run time.
 */
extern void le_fault_check(const LeCore *core);

/* Entry point of the worker of shared/fault_worker.c. */
extern PGDLLEXPORT LE_NORETURN void le_fault_worker_main(Datum arg);

#define LE_FAULT(name)          le_fault_point((name), true)
#define LE_FAULT_NOFAIL(name)   le_fault_point((name), false)
#define LE_FAULT_SIZE()         le_fault_size()
#define LE_FAULT_INIT(p, found) le_fault_init((p), (found))
#define LE_FAULT_CHECK(core)    le_fault_check(core)

#else

#define LE_FAULT(name)          ((void) 0)
#define LE_FAULT_NOFAIL(name)   ((void) 0)
#define LE_FAULT_SIZE()         ((Size) 0)
#define LE_FAULT_INIT(p, found) ((void) 0)
#define LE_FAULT_CHECK(core)    ((void) 0)

#endif

#endif /* LE_FAULT_H */
