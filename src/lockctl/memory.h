/*
 * memory.h
 *		Manages memory, copies of texts, and query results.  Callers do not free them one by one.
 *
 * Everything is kept until the program ends, except in long-running loops: each
 * round of a loop begins with lc_mark(), and ends with lc_free_since().  Not
 * thread-safe: with elect --listen, only the callbacks' thread allocates.
 */
#ifndef MEMORY_H
#define MEMORY_H

#include <stdarg.h>
#include <stddef.h>

#include <libpq-fe.h>

extern void *lc_alloc(size_t size); /* zeroed; never returns NULL */
extern char *lc_copy(const char *text);
extern char *lc_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern char *lc_vformat(const char *format, va_list args) __attribute__((format(printf, 1, 0)));
/* Registers a result to be freed like other memory, and returns it. */
extern PGresult *lc_keep(PGresult *result);
/* Unregisters the result that was registered last, and returns it; the caller frees it with PQclear(). */
extern PGresult *lc_own(void);
/* lc_mark() returns a mark; lc_free_since() frees everything that was allocated after it. */
extern size_t lc_mark(void);
extern void lc_free_since(size_t mark);

#endif /* MEMORY_H */
