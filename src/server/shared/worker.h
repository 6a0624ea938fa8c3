/*
 * shared/worker.h
 *		What the background workers of lock_election have in common: how they
 *		are registered, named in messages, and kept from the settings of others.
 */
#ifndef LE_WORKER_H
#define LE_WORKER_H

#include "postmaster/bgworker.h"

/*
 * Fill in an empty worker that PostgreSQL does not restart by itself.  "role" is
 * launcher, manager or notifier; "main" is its function in this library.
 */
extern void le_worker_init(BackgroundWorker *worker, const char *role, const char *main);

/* This worker puts its name, with the database's, into the context of its messages. */
extern void le_worker_name_context(void);

/* A setting that a worker keeps whatever ALTER DATABASE or ALTER ROLE say. */
typedef struct LeSetting
{
	const char *name;
	const char *value;
} LeSetting;

/* Set them with the highest priority, for as long as the worker lives. */
extern void le_worker_pin(const LeSetting *settings, int n);

#endif /* LE_WORKER_H */
