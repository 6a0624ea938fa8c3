/*
 * core/env.h
 *		The services and limits that the environment provides to a core.
 */
#ifndef LE_ENV_H
#define LE_ENV_H

#include "command.h"

/*
 * Time for which the row of an unused slot lingers before it is deleted.  Rows that are due within
 * the same step are deleted together, in one batch.
 */
#define LE_LINGER      (1 * LE_SECOND)
#define LE_LINGER_STEP (100 * LE_MS)
/* Maximum time before the core checks again whether a lapsed holder is still fenced. */
#define LE_FENCE_RETRY (1 * LE_SECOND)

/* Services of the environment. */
typedef struct LeEnv
{
	void *arg;
	void *(*alloc)(void *arg, size_t size); /* returns NULL when out of memory */
	void (*free)(void *arg, void *p);

	/*
	 * Returns whether a transaction fences this token now.  Called before any holder is ended.  NULL
	 * = tokens are never fenced.
	 */
	bool (*fenced)(void *arg, int64_t token);

	/* Returns whether the WAL is flushed up to this LSN.  NULL = always. */
	bool (*flushed)(void *arg, uint64_t lsn);
	uint64_t seed[2]; /* secret seed of the hash of names, so that callers cannot create collisions */
	uint32_t *epochs; /* counters, see core/epoch.h; NULL = not used */
} LeEnv;

typedef struct LeLimits
{
	int64_t waiters_per_lock; /* 0 = no limit */
	int64_t locks_per_role;   /* number of a role's holders, waiters, places and closed names; 0 = no limit */
	int64_t leases_per_role;  /* 0 = no limit */
	int64_t bytes_per_role;   /* memory of a role's holders, waiters, places, closed names and leases; 0 = no
							   * limit */
	int64_t work;             /* maximum number of entries granted or ended in one batch; commands that work
							   * in steps continue in the next batch; 0 = no limit */
	LeTime expiry_grace;      /* time from an expiry, or from the end of a connection, to the next grant; 0 =
							   * none */
} LeLimits;

#endif /* LE_ENV_H */
