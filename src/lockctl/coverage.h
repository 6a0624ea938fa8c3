/*
 * coverage.h
 *		In a coverage build, writes the coverage counters when a process ends.
 */
#ifndef COVERAGE_H
#define COVERAGE_H

/*
 * Without these macros, only exit() writes the coverage counters.  But the guardian calls _exit(), and
 * lockctl may die from the signal that has ended CMD.
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
