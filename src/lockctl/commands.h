/*
 * commands.h
 *		Declares the commands.  Each function returns the exit code.
 */
#ifndef COMMANDS_H
#define COMMANDS_H

/* Runs a command under a lock. */
extern int lc_lock(int argc, char **argv);
/* Runs a command as the leader of an election. */
extern int lc_elect(int argc, char **argv);
/* Prints the current leader, and each later change. */
extern int lc_elect_listen(const char *election);
/* Acquires a lock, and prints its token. */
extern int lc_acquire(int argc, char **argv);
/* Renews a lock. */
extern int lc_renew(int argc, char **argv);
/* Releases a lock by its token, or by force. */
extern int lc_release(int argc, char **argv);
/* Checks whether a token still holds its lock. */
extern int lc_held(int argc, char **argv);
/* Grants, keeps alive, revokes, shows or lists leases. */
extern int lc_lease(int argc, char **argv);
/* Shows locks. */
extern int lc_locks(int argc, char **argv);
/* Shows waiters. */
extern int lc_waiters(int argc, char **argv);
/* Shows elections. */
extern int lc_elections(int argc, char **argv);
/* Shows the manager and its counters. */
extern int lc_show_status(int argc, char **argv);
/* Prints changes of the locks' holders and waiters. */
extern int lc_watch(int argc, char **argv);
/* Shows locks, queues and rates, on a full screen. */
extern int lc_top(int argc, char **argv);
/* Checks the installation for problems. */
extern int lc_doctor(int argc, char **argv);
/* Installs or upgrades the portable edition. */
extern int lc_install(int argc, char **argv);
/* Prints the shard of each name. */
extern int lc_shard(int argc, char **argv);

#endif /* COMMANDS_H */
