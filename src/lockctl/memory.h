/*
 * memory.h
 *		Memory, copies of texts, and results, which nobody has to free one by one.
 *
 * They are kept until the program ends.  What runs for long marks where its
 * round begins, and then frees everything that the round has allocated.  With
 * elect --listen, only the thread of the callbacks allocates.
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
/* Keeps a result in the same way, and returns it. */
extern PGresult *lc_keep(PGresult *result);
/* Returns the result that was kept last, for a caller that frees it with PQclear(). */
extern PGresult *lc_own(void);
/* Returns a mark; frees everything that was allocated after a mark. */
extern size_t lc_mark(void);
extern void lc_free_since(size_t mark);

#endif /* MEMORY_H */
