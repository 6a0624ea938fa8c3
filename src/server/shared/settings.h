/*
 * shared/settings.h
 *		Declares the settings of lock_election.
 *
 * The name of a duration ends with its unit: _ms, as in most settings and in PostgreSQL's timeouts, or _min
 * for the retention of the history.  Everywhere else in core and server, a duration is a LeTime, in
 * microseconds; its name ends with _us where the unit could be in doubt.  A point in time is a LeTime as
 * well: on le_clock() in the server, unless a comment says otherwise; on the core's clock in the core.
 */
#ifndef LE_SETTINGS_H
#define LE_SETTINGS_H

/* Milliseconds in 24 days, the upper limit of a TTL and of hold_for. */
#define LE_MAX_DURATION_MS (24 * 24 * 60 * 60 * 1000)

/*
 * Defines the settings that need no shared memory.  Called from _PG_init, even if the library is not
 * preloaded.
 */
extern void le_settings_define_everywhere(void);

/* Defines all other settings.  Called from _PG_init while shared_preload_libraries is loaded. */
extern void le_settings_define(void);

/* Values of lock_election.notify: the hints that are sent. */
typedef enum LeNotify
{
	LE_NOTIFY_NONE = 0,
	LE_NOTIFY_WAITERS = 1,
	LE_NOTIFY_ELECTIONS = 2,
	LE_NOTIFY_ALL = LE_NOTIFY_WAITERS | LE_NOTIFY_ELECTIONS
} LeNotify;

/* Values of lock_election.min_durability: the lower limit of synchronous_commit. */
typedef enum LeMinDurability
{
	LE_DURABLE_OFF = 0,
	LE_DURABLE_LOCAL,
	LE_DURABLE_REMOTE /* also requires that a synchronous standby is defined */
} LeMinDurability;

/* Bytes in one MB of a setting. */
#define LE_MB INT64CONST(1048576)

extern int le_max_databases;
extern int le_max_waiters_per_lock;
extern int le_max_locks_per_role;
extern int le_max_leases_per_role;
extern int le_max_memory_per_role_mb; /* 0 = unlimited, as in the next two settings */
extern int le_max_history_per_role_mb;
extern int le_max_keys_per_role_mb;
extern int le_max_memory_mb; /* limit for the memory of a manager */
extern int le_max_ttl_ms;
extern int le_max_hold_for_ms;
extern int le_expiry_grace_ms;
extern int le_min_batch_interval_ms;
extern int le_min_durability; /* LeMinDurability */
extern bool le_durable_release;
extern bool le_advisory_on_standby;
extern int le_notify;                /* LeNotify */
extern int le_history_retention_min; /* 0 = forever */
extern int le_fence_timeout_ms;      /* 0 = no timeout */

/*
 * Returns whether a reply to a session has to wait for a standby.  need_standby: the session's
 * synchronous_commit requires it.  SyncRepRequested() would use the setting of the calling process instead.
 * If min_durability requires a standby, the session itself checks whether one is defined.
 */
extern bool le_waits_for_standby(bool need_standby);

#endif /* LE_SETTINGS_H */
