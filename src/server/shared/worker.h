/*
 * shared/worker.h
 *		Declares the common code of lock_election's background workers: registration, names in messages, and
 *		protection from settings of databases and roles.
 */
#ifndef LE_WORKER_H
#define LE_WORKER_H

#include "postmaster/bgworker.h"

/*
 * Fills in an empty worker, which PostgreSQL will not restart by itself.  "role" is launcher, manager or
 * notifier; "main" is the name of its function in this library.
 */
extern void le_worker_init(BackgroundWorker *worker, const char *role, const char *main);

/* Adds the name of this worker to the context of all messages that it logs. */
extern void le_worker_name_context(void);

/* A setting whose value in a worker must not depend on ALTER DATABASE or ALTER ROLE. */
typedef struct LeSetting
{
	const char *name;
	const char *value;
} LeSetting;

/* Sets n settings for the lifetime of the worker, with priority over all other sources of their values. */
extern void le_worker_pin(const LeSetting *settings, int n);

#endif /* LE_WORKER_H */
