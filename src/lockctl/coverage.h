/*
 * coverage.h
 *		Writes the counters of a coverage build at a process's end.
 */
#ifndef COVERAGE_H
#define COVERAGE_H

/*
 * The coverage counters are written only at exit().  The guardian does not end
 * by exit(), nor does lockctl when it dies by CMD's signal.
 */
#ifdef LE_COVERAGE
#include <unistd.h>

extern void __gcov_dump(void);

#define LC_DUMP_COVERAGE() __gcov_dump()
#define _exit(code)        (__gcov_dump(), (_exit) (code))
#else
#define LC_DUMP_COVERAGE() ((void) 0)
#endif

#endif /* COVERAGE_H */
