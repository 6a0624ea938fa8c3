/*
 * launcher/launcher.h
 *		The launcher: the worker that starts the managers.
 */
#ifndef LE_LAUNCHER_H
#define LE_LAUNCHER_H

#include "shared/shmem.h"

/* Registers the launcher.  Called from _PG_init while shared_preload_libraries is loaded. */
extern void le_launcher_register(void);

/* Entry point of the launcher's process.  The argument is not used. */
extern PGDLLEXPORT void le_launcher_main(Datum arg);

/* Returns whether a client is connected to the database.  Ignores process except_pid. */
extern bool le_client_connected(Oid dboid, int except_pid);

#endif /* LE_LAUNCHER_H */
