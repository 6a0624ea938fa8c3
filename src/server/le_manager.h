/*
 * le_manager.h
 *		The manager of one database: a background worker that owns its locks.
 */
#ifndef LE_MANAGER_H
#define LE_MANAGER_H

#include "postgres.h"

/* Entry point of the worker; the argument is the database's OID. */
extern PGDLLEXPORT void le_manager_main(Datum arg);

/* A setting that a worker keeps whatever ALTER DATABASE or ALTER ROLE say. */
typedef struct LeSetting
{
	const char *name;
	const char *value;
} LeSetting;

extern void le_pin_settings(const LeSetting *settings, int n);

#endif /* LE_MANAGER_H */
