/*
 * memory.h
 *		Memory and copies of texts.
 */
#ifndef MEMORY_H
#define MEMORY_H

#include <stdarg.h>
#include <stddef.h>

extern void *lc_alloc(size_t size); /* zeroed; never returns NULL */
extern char *lc_copy(const char *text);
extern char *lc_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern char *lc_vformat(const char *format, va_list args) __attribute__((format(printf, 1, 0)));

#endif /* MEMORY_H */
