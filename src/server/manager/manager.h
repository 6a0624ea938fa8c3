/*
 * manager/manager.h
 *		The manager of one database: a background worker that owns its locks.
 */
#ifndef LE_MANAGER_H
#define LE_MANAGER_H

#include "postgres.h"

/* Entry point of the worker; the argument is the database's OID. */
extern PGDLLEXPORT void le_manager_main(Datum arg);

#endif /* LE_MANAGER_H */
