/*
 * shared/settings.c
 *		Defines the settings of lock_election.
 */
#include "postgres.h"

#include <limits.h>

#include "replication/walsender.h"
#include "utils/guc.h"

#include "shared/compat.h"
#include "shared/settings.h"

int le_max_databases = 4;
int le_max_waiters_per_lock = 1000;
int le_max_locks_per_role = 100000;
int le_max_leases_per_role = 10000;
int le_max_memory_per_role_mb = 128;
int le_max_history_per_role_mb = 256;
int le_max_keys_per_role_mb = 256;
int le_max_memory_mb = 512;
int le_max_ttl_ms = LE_MAX_DURATION_MS;
int le_max_hold_for_ms = 24 * 60 * 60 * 1000;
int le_expiry_grace_ms = 0;
int le_min_batch_interval_ms = 0;
int le_min_durability = LE_DURABLE_OFF;
bool le_durable_release = false;
bool le_advisory_on_standby = false;
int le_notify = LE_NOTIFY_ALL;
int le_history_retention_min = 7 * 24 * 60;
int le_fence_timeout_ms = 60 * 1000;

static const struct config_enum_entry durability_levels[] = {{"off", LE_DURABLE_OFF, false},
															 {"local", LE_DURABLE_LOCAL, false},
															 {"remote", LE_DURABLE_REMOTE, false},
															 {NULL, 0, false}};

static const struct config_enum_entry notify_kinds[] = {{"waiters", LE_NOTIFY_WAITERS, false},
														{"elections", LE_NOTIFY_ELECTIONS, false},
														{"all", LE_NOTIFY_ALL, false},
														{"none", LE_NOTIFY_NONE, false},
														{NULL, 0, false}};

static char *version;
static char *release;

/* Defines the limits that are in megabytes. */
static void
define_sizes(void)
{
	DefineCustomIntVariable(
		"lock_election.max_memory", "Maximum memory for the locks of a database.",
		"Acquires beyond this limit fail. A starting manager loads all rows even beyond it, and logs a "
		"warning.",
		&le_max_memory_mb, 512, 8, 1024 * 1024, PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"lock_election.max_memory_per_role",
		"Maximum memory for the locks, waits and leases of a role in a database; 0 means no limit.", NULL,
		&le_max_memory_per_role_mb, 128, 0, 1024 * 1024, PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"lock_election.max_history_per_role",
		"Maximum size of the history of a role's elections in a database; 0 means no limit.", NULL,
		&le_max_history_per_role_mb, 256, 0, 1024 * 1024, PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"lock_election.max_keys_per_role",
		"Maximum size of a role's keys of compare_and_set in a database; 0 means no limit.",
		"Each key counts with its current name and value, plus 150 bytes. Older row versions, which take "
		"space until VACUUM removes them, do not count.",
		&le_max_keys_per_role_mb, 256, 0, 1024 * 1024, PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
}

void
le_settings_define_everywhere(void)
{
	DefineCustomBoolVariable("lock_election.advisory_on_standby",
							 "Allows advisory_acquire to take locks on a standby.",
							 "These locks exclude only sessions on the same standby. Do not use them in "
							 "programs whose statements a proxy may send to any server.",
							 &le_advisory_on_standby, false, PGC_USERSET, 0, NULL, NULL, NULL);
}

void
le_settings_define(void)
{
	/* 1. the version, which scripts check, and the release, which is for information */
	DefineCustomStringVariable("lock_election.version", "Version of the library that the server has loaded.",
							   NULL, &version, LE_VERSION, PGC_INTERNAL, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("lock_election.release", "Release of the library that the server has loaded.",
							   NULL, &release, LE_RELEASE, PGC_INTERNAL, 0, NULL, NULL, NULL);

	/* 2. limits */
	DefineCustomIntVariable("lock_election.max_databases",
							"Maximum number of databases that can use lock_election.", NULL,
							&le_max_databases, 4, 1, 1024, PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("lock_election.max_waiters_per_lock",
							"Maximum number of requests that can queue for one lock; 0 means no limit.", NULL,
							&le_max_waiters_per_lock, 1000, 0, INT_MAX, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"lock_election.max_locks_per_role",
		"Maximum number of locks and queue places of a role in a database; 0 means no limit.",
		"Permits, elections, waiting requests and closed names also count.", &le_max_locks_per_role, 100000,
		0, INT_MAX, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("lock_election.max_leases_per_role",
							"Maximum number of named leases of a role in a database; 0 means no limit.", NULL,
							&le_max_leases_per_role, 10000, 0, INT_MAX, PGC_SIGHUP, 0, NULL, NULL, NULL);
	define_sizes();

	/* 3. durations */
	DefineCustomIntVariable("lock_election.max_ttl", "Maximum TTL of a lock or lease.", NULL, &le_max_ttl_ms,
							LE_MAX_DURATION_MS, 100, LE_MAX_DURATION_MS, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL,
							NULL);
	DefineCustomIntVariable("lock_election.max_hold_for",
							"Maximum time for which release_lock can keep a name closed.", NULL,
							&le_max_hold_for_ms, 24 * 60 * 60 * 1000, 0, LE_MAX_DURATION_MS, PGC_SIGHUP,
							GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("lock_election.expiry_grace",
							"Minimum time between the end of a lease or connection and the next grant.",
							"Use it for resources that cannot be fenced.", &le_expiry_grace_ms, 0, 0,
							24 * 60 * 60 * 1000, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"lock_election.fence_timeout",
		"Maximum time for which a lock stays fenced after its lease has ended; 0 means no limit.",
		"After this time, the connection of the fencing transaction is terminated.", &le_fence_timeout_ms,
		60 * 1000, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("lock_election.min_batch_interval",
							"Minimum time between two batches, each of which uses a transaction ID.", NULL,
							&le_min_batch_interval_ms, 0, 0, 500, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);

	/* 4. durability */
	DefineCustomEnumVariable(
		"lock_election.min_durability", "Minimum durability of locks, even if synchronous_commit is lower.",
		"If it is remote, locks are refused while no synchronous standby is defined.", &le_min_durability,
		LE_DURABLE_OFF, durability_levels, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("lock_election.durable_release",
							 "Makes releases wait until they are as durable as synchronous_commit requires.",
							 "Otherwise a crash may bring back a released lock until its TTL ends.",
							 &le_durable_release, false, PGC_USERSET, 0, NULL, NULL, NULL);

	/* 5. hints and history */
	DefineCustomEnumVariable(
		"lock_election.notify", "Selects what is announced with NOTIFY.",
		"Values: waiters (grants to queue places), elections (changes of leaders), all (both), none.",
		&le_notify, LE_NOTIFY_ALL, notify_kinds, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("lock_election.history_retention",
							"Time for which the history of elections is kept; 0 means forever.", NULL,
							&le_history_retention_min, 7 * 24 * 60, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MIN,
							NULL, NULL, NULL);
	MarkGUCPrefixReserved("lock_election");
}

bool
le_waits_for_standby(bool need_standby)
{
	return need_standby && max_wal_senders > 0 &&
		   (le_sync_standbys_defined() || le_min_durability == LE_DURABLE_REMOTE);
}
