/*
 * shared/settings.c
 *		The settings of lock_election.
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

/* Limits in megabytes. */
static void
define_sizes(void)
{
	DefineCustomIntVariable(
		"lock_election.max_memory", "Memory that the locks of a database can take.",
		"Acquires beyond it are refused.  A manager that starts loads all rows, and warns.",
		&le_max_memory_mb, 512, 8, 1024 * 1024, PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"lock_election.max_memory_per_role",
		"Memory that the locks, waits and leases of a role can take in a database; 0 is no limit.", NULL,
		&le_max_memory_per_role_mb, 128, 0, 1024 * 1024, PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"lock_election.max_history_per_role",
		"Size that the history of a role's elections can have in a database; 0 is no limit.", NULL,
		&le_max_history_per_role_mb, 256, 0, 1024 * 1024, PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"lock_election.max_keys_per_role",
		"Size that a role's keys of compare_and_set can have in a database; 0 is no limit.",
		"Counted are name, value and 150 bytes of each key as it is now; not its older row versions, which "
		"take room until VACUUM removes them, nor WAL.",
		&le_max_keys_per_role_mb, 256, 0, 1024 * 1024, PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
}

void
le_settings_define_everywhere(void)
{
	DefineCustomBoolVariable("lock_election.advisory_on_standby",
							 "Lets advisory_acquire take locks on a standby.",
							 "They exclude only those that ask the same standby: not for programs whose "
							 "statements a proxy may send to any server.",
							 &le_advisory_on_standby, false, PGC_USERSET, 0, NULL, NULL, NULL);
}

void
le_settings_define(void)
{
	/* 1. the version, for scripts, and the release, for people */
	DefineCustomStringVariable("lock_election.version", "Version of the library that the server has loaded.",
							   NULL, &version, LE_VERSION, PGC_INTERNAL, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("lock_election.release", "Release that the loaded library is from.", NULL,
							   &release, LE_RELEASE, PGC_INTERNAL, 0, NULL, NULL, NULL);

	/* 2. limits */
	DefineCustomIntVariable("lock_election.max_databases", "Number of databases that can use lock_election.",
							NULL, &le_max_databases, 4, 1, 1024, PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("lock_election.max_waiters_per_lock",
							"Requests that can queue for one lock; 0 is no limit.", NULL,
							&le_max_waiters_per_lock, 1000, 0, INT_MAX, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("lock_election.max_locks_per_role",
							"Locks and queue places that a role can have in a database; 0 is no limit.",
							"Permits, elections, requests that wait and names that are closed count as well.",
							&le_max_locks_per_role, 100000, 0, INT_MAX, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("lock_election.max_leases_per_role",
							"Named leases that a role can have in a database; 0 is no limit.", NULL,
							&le_max_leases_per_role, 10000, 0, INT_MAX, PGC_SIGHUP, 0, NULL, NULL, NULL);
	define_sizes();

	/* 3. durations */
	DefineCustomIntVariable("lock_election.max_ttl", "Longest TTL that a lock or lease can be given.", NULL,
							&le_max_ttl_ms, LE_MAX_DURATION_MS, 100, LE_MAX_DURATION_MS, PGC_SIGHUP,
							GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("lock_election.max_hold_for",
							"Longest time for which release_lock can keep a name closed.", NULL,
							&le_max_hold_for_ms, 24 * 60 * 60 * 1000, 0, LE_MAX_DURATION_MS, PGC_SIGHUP,
							GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("lock_election.expiry_grace",
							"Time from the end of a lease, or of a connection, to the next grant.",
							"For resources that cannot be fenced.", &le_expiry_grace_ms, 0, 0,
							24 * 60 * 60 * 1000, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("lock_election.fence_timeout",
							"Time that a transaction can fence a lock whose lease has ended; 0 is no limit.",
							"After that its connection is terminated.", &le_fence_timeout_ms, 60 * 1000, 0,
							INT_MAX, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("lock_election.min_batch_interval",
							"Shortest time between two batches, which take a transaction id each.", NULL,
							&le_min_batch_interval_ms, 0, 0, 500, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);

	/* 4. durability */
	DefineCustomEnumVariable(
		"lock_election.min_durability", "Durability of locks that synchronous_commit cannot go below.",
		"remote refuses locks while no synchronous standby is defined.", &le_min_durability, LE_DURABLE_OFF,
		durability_levels, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("lock_election.durable_release",
							 "Releases are answered when they are as durable as synchronous_commit asks for.",
							 "Otherwise a crash may bring back a lock that was just released, until its TTL "
							 "ends.",
							 &le_durable_release, false, PGC_USERSET, 0, NULL, NULL, NULL);

	/* 5. hints and history */
	DefineCustomEnumVariable(
		"lock_election.notify", "What is announced with NOTIFY.",
		"Grants to queue places (waiters), changes of leaders (elections), all, or none.", &le_notify,
		LE_NOTIFY_ALL, notify_kinds, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"lock_election.history_retention", "Time for which the history of elections is kept; 0 keeps all.",
		NULL, &le_history_retention_min, 7 * 24 * 60, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MIN, NULL, NULL, NULL);
	MarkGUCPrefixReserved("lock_election");
}

bool
le_waits_for_standby(bool need_standby)
{
	return need_standby && max_wal_senders > 0 &&
		   (le_sync_standbys_defined() || le_min_durability == LE_DURABLE_REMOTE);
}
