/*
 * shared/startup.h
 *		Creates the shared memory when the server starts.
 */
#ifndef LE_STARTUP_H
#define LE_STARTUP_H

/*
 * Installs the hooks that create the shared memory.  Called from _PG_init while shared_preload_libraries is
 * loaded.
 */
extern void le_startup_init_hooks(void);

#endif /* LE_STARTUP_H */
