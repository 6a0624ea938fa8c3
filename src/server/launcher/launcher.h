/*
 * launcher/launcher.h
 *		The launcher: the worker that starts the managers.
 */
#ifndef LE_LAUNCHER_H
#define LE_LAUNCHER_H

#include "shared/shmem.h"

/* Called from _PG_init while shared_preload_libraries is loaded. */
extern void le_launcher_register(void);

/* Entry point of the worker, which takes no argument. */
extern PGDLLEXPORT void le_launcher_main(Datum arg);

/* Returns whether a client other than process except_pid is connected to the database. */
extern bool le_client_connected(Oid dboid, int except_pid);

#endif /* LE_LAUNCHER_H */
