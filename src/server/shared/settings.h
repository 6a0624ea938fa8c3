/*
 * shared/settings.h
 *		The settings of lock_election.
 *
 * Durations are in the unit that the name ends with: _ms as most settings and
 * PostgreSQL's time-outs, _min for the history's retention.  Elsewhere in core and
 * server they are LeTime, microseconds, with _us where a reader could doubt it.  A
 * moment is a LeTime as well: of le_clock() in the server, of the core's clock in the
 * core and where a comment says so.
 */
#ifndef LE_SETTINGS_H
#define LE_SETTINGS_H

/* 24 days: the longest TTL and hold_for. */
#define LE_MAX_DURATION_MS (24 * 24 * 60 * 60 * 1000)

/* From _PG_init: of what needs no shared memory, wherever the library is loaded. */
extern void le_settings_define_everywhere(void);

/* From _PG_init, while shared_preload_libraries are loaded. */
extern void le_settings_define(void);

/* lock_election.notify: which hints are sent */
typedef enum LeNotify
{
	LE_NOTIFY_NONE = 0,
	LE_NOTIFY_WAITERS = 1,
	LE_NOTIFY_ELECTIONS = 2,
	LE_NOTIFY_ALL = LE_NOTIFY_WAITERS | LE_NOTIFY_ELECTIONS
} LeNotify;

/* lock_election.min_durability: what no synchronous_commit goes below */
typedef enum LeMinDurability
{
	LE_DURABLE_OFF = 0,
	LE_DURABLE_LOCAL,
	LE_DURABLE_REMOTE /* and there has to be a synchronous standby */
} LeMinDurability;

/* Bytes of a setting's MB. */
#define LE_MB INT64CONST(1048576)

extern int le_max_databases;
extern int le_max_waiters_per_lock;
extern int le_max_locks_per_role;
extern int le_max_leases_per_role;
extern int le_max_memory_per_role_mb; /* 0: no limit, as of the next two */
extern int le_max_history_per_role_mb;
extern int le_max_keys_per_role_mb;
extern int le_max_memory_mb; /* of a manager */
extern int le_max_ttl_ms;
extern int le_max_hold_for_ms;
extern int le_expiry_grace_ms;
extern int le_min_batch_interval_ms;
extern int le_min_durability; /* LeMinDurability */
extern bool le_durable_release;
extern bool le_advisory_on_standby;
extern int le_notify;                /* LeNotify */
extern int le_history_retention_min; /* 0: for ever */
extern int le_fence_timeout_ms;      /* 0: none */

/*
 * Of an answer to a session that needs a standby: is there one to wait for?
 * SyncRepRequested() would ask for this process's own level.  Where there has to
 * be one, the session looks whether it is defined.
 */
extern bool le_waits_for_standby(bool need_standby);

#endif /* LE_SETTINGS_H */
