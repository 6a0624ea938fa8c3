/*
 * guardian.h
 *		Declares the guardian, and the functions that control the processes of CMD.
 */
#ifndef GUARDIAN_H
#define GUARDIAN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* --- the protocol --- */

typedef enum lc_what
{
	/* to the guardian */
	LC_START = 1, /* start CMD; value = 1: make its group the foreground group */
	LC_DEADLINE,  /* new deadline */
	LC_SIGNAL,    /* value = signal to send to CMD's process group */
	LC_END,       /* end CMD, because it has run for --at-most */

	/* from the guardian */
	LC_STARTED, /* value = CMD's process id */
	LC_STOPPED, /* value = the signal that stopped CMD */
	LC_EXITED,  /* value = CMD's wait status; descendants of CMD may still run */
	LC_LATE,    /* the deadline is near: CMD is being ended, or was not started */
	LC_GONE     /* CMD and all its descendants have ended */
} lc_what;

typedef struct lc_message
{
	int32_t what;
	int32_t value;
	int64_t token;
	int64_t deadline; /* in ms, on the clock of le_now() */
} lc_message;

typedef struct lc_command
{
	char **argv;
	int ttl, grace; /* ms */
	bool notify;    /* NOTIFY_SOCKET is meant for lockctl, so it is removed from CMD's environment */
} lc_command;

typedef struct lc_guardian
{
	pid_t pid;
	int fd;      /* socket to the guardian; -1 = none */
	pid_t child; /* pid of CMD; 0 = not started */
	bool exited, late, gone;
	bool killed;         /* lockctl has killed the guardian */
	bool wants_terminal; /* CMD is stopped because it needs the terminal */
	bool interrupted;    /* a key of the terminal, such as Ctrl-C, ended CMD */
	int status;          /* wait status of CMD */
} lc_guardian;

/* --- guardian.c --- */

/* Returns how many ms before the deadline CMD is killed. */
extern int lc_reserve(int ttl);
/* Interval in ms at which SIGKILL is repeated */
#define LC_KILL_AGAIN_MS 10
/* Runs the guardian process, and exits at its end. */
extern void lc_guardian_main(const lc_command *command, int fd) __attribute__((noreturn));

/* --- link.c: lockctl's side of the guardian --- */

/* Forks the guardian.  Must be called before any thread is started. */
extern void lc_guardian_fork(lc_guardian *guardian, const lc_command *command);
extern void lc_guardian_send(lc_guardian *guardian, lc_what what, int value, int64_t token, int64_t deadline);
/* Makes the guardian start CMD. */
extern void lc_guardian_start(lc_guardian *guardian, int64_t token, int64_t deadline);
/* Reads the guardian's messages.  If the guardian was killed, kills CMD and its descendants. */
extern void lc_guardian_read(lc_guardian *guardian);
/*
 * Kills CMD and its descendants without the guardian, which may be stopped.  The caller repeats the call
 * until guardian.gone is set.
 */
extern void lc_guardian_kill(lc_guardian *guardian);
/* Continues a stopped CMD, after the shell has continued lockctl. */
extern void lc_guardian_continue(lc_guardian *guardian);
/* Makes lockctl's group the foreground group again, and ends the guardian. */
extern void lc_guardian_finish(lc_guardian *guardian);

/* --- tree.c --- */

/* Returns whether /proc shows this child of lockctl. */
extern bool lc_tree_is_visible(pid_t child);
/*
 * Sends a signal to all descendants of a process, including those in other
 * sessions, and continues stopped descendants.  Returns the number of processes
 * to which the signal was sent.
 */
extern int lc_tree_signal(pid_t root, int signo);

/* --- cgroup.c --- */

/*
 * Finds out whether CMD can have its own control group.  If not, lc_cgroup_fork() only forks, and the
 * functions below it do nothing.
 */
extern void lc_cgroup_find(void);
/* Forks a child inside the group. */
extern pid_t lc_cgroup_fork(void);
/* Kills all processes in the group. */
extern void lc_cgroup_kill(void);
/* Removes the group, which must be empty. */
extern void lc_cgroup_remove(void);

#endif /* GUARDIAN_H */
