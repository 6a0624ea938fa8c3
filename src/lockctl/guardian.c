/*
 * guardian.c
 *		The guardian: CMD's parent process, which ends CMD before the deadline.
 *
 * The guardian has no threads and no connection, and does not wait for lockctl.
 * It acts when the deadline is near, even if lockctl is stopped or has ended.
 *
 *		IDLE     The guardian waits for LC_START.
 *		RUNNING  CMD runs, until CMD or lockctl ends, LC_END arrives, or
 *				 deadline - reserve - grace has passed.
 *		ENDING   SIGTERM was sent to all descendants.  The state ends after the
 *				 grace, or at deadline - reserve if that is earlier.
 *		KILLING  The guardian sends SIGKILL repeatedly, until no descendant is left.
 *
 * The guardian blocks all signals, so that a signal that is meant for CMD (such
 * as a supervisor's SIGTERM for all processes) does not end the guardian first.
 */
#include "guardian.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "coverage.h"
#include "globals.h"
#include "lock_election.h"
#include "message.h"
#include "signals.h"

typedef enum state
{
	IDLE,
	RUNNING,
	ENDING,
	KILLING
} state;

typedef struct guardian
{
	const lc_command *command;
	int fd, signal_fd, timer_fd;
	state state;
	pid_t child; /* pid of CMD; 0 = not started, or already reaped */
	bool started;
	int64_t deadline, ended_at, kill_again_at;
} guardian;

/* Reserves time for the kill, which takes longer on a busy machine or with many processes. */
int
lc_reserve(int ttl)
{
	return ttl < 1500 ? 150 : ttl < 5000 ? ttl / 10 : 500;
}

static void
tell(guardian *g, lc_what what, int value)
{
	lc_message message = {.what = what, .value = value};

	/* Do not block: lockctl may have ended; if it is stopped, it reads the message when it continues. */
	send(g->fd, &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* --- CMD --- */

/*
 * Returns whether a command exists in PATH.  This check is needed because execvp() fails with EACCES instead
 * of ENOENT if a directory in PATH cannot be searched.
 */
static bool
is_in_path(const char *name)
{
	const char *path = getenv("PATH");
	char file[4096];

	if (strchr(name, '/') != NULL || path == NULL)
		return true;
	while (*path != '\0')
	{
		size_t length = strcspn(path, ":");

		snprintf(file, sizeof(file), "%.*s/%s", (int) length, path, name);
		if (access(file, F_OK) == 0)
			return true;
		path += length + (path[length] == ':');
	}
	return false;
}

/*
 * Runs CMD in the child process, in its own process group.  If foreground is set, makes that group the
 * terminal's foreground group.
 */
static void __attribute__((noreturn)) child_main(guardian *g, int64_t token, bool foreground, pid_t parent)
{
	char number[32];
	int code;

	/* Make the kernel kill at least CMD itself if the guardian is killed. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(LC_EXIT_SIGNAL + SIGKILL);
	setpgid(0, 0);
	if (foreground)
		tcsetpgrp(STDIN_FILENO, getpid());
	snprintf(number, sizeof(number), "%lld", (long long) token);
	if (setenv("LOCK_TOKEN", number, 1) != 0)
		_exit(LC_EXIT_CANNOT_RUN);
	if (g->command->notify)
		unsetenv("NOTIFY_SOCKET");
	lc_signals_restore();
	execvp(g->command->argv[0], g->command->argv);
	if (errno == EACCES && !is_in_path(g->command->argv[0]))
		errno = ENOENT;
	code = errno == ENOENT ? LC_EXIT_NOT_FOUND : LC_EXIT_CANNOT_RUN;
	lc_error("cannot run \"%s\": %s", g->command->argv[0], strerror(errno));
	_exit(code);
}

/* Starts CMD, unless the deadline is too near. */
static void
start(guardian *g, const lc_message *message)
{
	pid_t self = getpid(), pid;

	g->deadline = message->deadline;
	/* Set this even if no child is started, so that reap() ends the guardian. */
	g->started = true;
	/* Do not start CMD late: if the guardian was stopped, another holder may already have the lock. */
	if (le_now() >= g->deadline - lc_reserve(g->command->ttl))
	{
		tell(g, LC_LATE, 0);
		return;
	}
	fflush(NULL);
	pid = lc_cgroup_fork();
	if (pid == 0)
		child_main(g, message->token, message->value != 0, self);
	if (pid < 0)
	{
		lc_error("cannot fork: %s", strerror(errno));
		tell(g, LC_EXITED, LC_EXIT_CANNOT_RUN << 8);
		return;
	}
	/* The child does the same, because either process may run first. */
	setpgid(pid, pid);
	g->child = pid;
	g->state = RUNNING;
	tell(g, LC_STARTED, pid);
}

/* --- the end --- */

/* Returns the time at which the current state ends or SIGKILL is repeated; INT64_MAX = never. */
static int64_t
next_time(const guardian *g)
{
	int64_t last = g->deadline - lc_reserve(g->command->ttl);

	switch (g->state)
	{
		case IDLE:
			return INT64_MAX;
		case RUNNING:
			return last - g->command->grace;
		case ENDING:
			return g->ended_at + g->command->grace < last ? g->ended_at + g->command->grace : last;
		case KILLING:
			return g->kill_again_at;
	}
	return 0;
}

/* Sends SIGTERM to all descendants, and enters ENDING. */
static void
end_tree(guardian *g)
{
	if (g->state != RUNNING)
		return;
	g->state = ENDING;
	g->ended_at = le_now();
	/* Skip SIGTERM if SIGKILL is already due. */
	if (g->ended_at < next_time(g))
		lc_tree_signal(getpid(), SIGTERM);
}

/* Sends SIGKILL to all descendants, and enters KILLING. */
static void
kill_tree(guardian *g)
{
	g->state = KILLING;
	g->kill_again_at = le_now() + LC_KILL_AGAIN_MS;
	lc_cgroup_kill();
	if (g->child != 0)
		kill(-g->child, SIGKILL);
	lc_tree_signal(getpid(), SIGKILL);
}

/* Reaps descendants that have ended.  Ends the guardian when no descendant is left. */
static void
reap(guardian *g)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0)
	{
		if (pid != g->child)
			continue;
		if (WIFSTOPPED(status))
		{
			tell(g, LC_STOPPED, WSTOPSIG(status));
			continue;
		}
		g->child = 0;
		tell(g, LC_EXITED, status);
	}
	if (pid < 0 && errno == ECHILD && g->started)
	{
		lc_cgroup_remove();
		tell(g, LC_GONE, 0);
		_exit(0);
	}
	/* If CMD has ended, end its descendants that still run. */
	if (g->child == 0 && g->state == RUNNING)
		end_tree(g);
}

/* Ends or kills CMD if next_time() has passed. */
static void
act(guardian *g)
{
	int64_t now = le_now();

	/* Both steps may be due, if the guardian was stopped. */
	if (g->state == RUNNING && now >= next_time(g))
	{
		tell(g, LC_LATE, 0);
		end_tree(g);
	}
	if ((g->state == ENDING || g->state == KILLING) && now >= next_time(g))
		kill_tree(g);
}

/* --- lockctl --- */

/*
 * Sends a signal to CMD's process group.  If the signal requests the end of CMD, also continues a stopped
 * CMD, as a shell's kill does.
 */
static void
pass_on(const guardian *g, int signo)
{
	if (g->child == 0)
		return;
	kill(-g->child, signo);
	if (signo == SIGINT || signo == SIGTERM || signo == SIGHUP || signo == SIGQUIT)
		kill(-g->child, SIGCONT);
}

/* Handles a message from lockctl. */
static void
take(guardian *g, const lc_message *message)
{
	switch (message->what)
	{
		case LC_START:
			if (g->state == IDLE)
				start(g, message);
			break;
		case LC_DEADLINE:
			if (message->deadline > g->deadline)
				g->deadline = message->deadline;
			break;
		case LC_SIGNAL:
			pass_on(g, message->value);
			break;
		case LC_END:
			end_tree(g);
			break;
		default:
			break;
	}
}

/* Reads lockctl's messages.  Ends CMD if the socket is closed, because lockctl has ended. */
static void
receive(guardian *g)
{
	lc_message message;
	ssize_t length;

	while ((length = recv(g->fd, &message, sizeof(message), MSG_DONTWAIT)) == (ssize_t) sizeof(message))
		take(g, &message);
	if (length < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	/* The socket is closed. */
	if (!g->started)
		_exit(0);
	close(g->fd);
	g->fd = -1;
	end_tree(g);
}

/* Waits for a message, the end of a child, or the next time to act. */
static void
wait_for_something(guardian *g)
{
	int64_t until = next_time(g);
	struct itimerspec when = {.it_value = {.tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000}};
	struct pollfd fds[] = {{.fd = g->signal_fd, .events = POLLIN},
						   {.fd = g->timer_fd, .events = POLLIN},
						   {.fd = g->fd, .events = POLLIN}};
	struct signalfd_siginfo info;

	if (until == INT64_MAX)
		when = (struct itimerspec){0};
	else if (until <= 0)
		when.it_value = (struct timespec){.tv_nsec = 1};
	timerfd_settime(g->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
	poll(fds, 3, -1);
	while (read(g->signal_fd, &info, sizeof(info)) == sizeof(info))
		;
}

void
lc_guardian_main(const lc_command *command, int fd)
{
	guardian g = {.command = command, .fd = fd};
	sigset_t all, child;

	/* create the guardian's own process group, and block all signals */
	setpgid(0, 0);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	prctl(PR_SET_NAME, "lockctl-guard");
	/* create the descriptors for SIGCHLD and the timer; adopt orphaned descendants of CMD */
	g.signal_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	g.timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (g.signal_fd < 0 || g.timer_fd < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
	{
		lc_error("cannot guard a command: %s", strerror(errno));
		_exit(LC_EXIT_CANNOT_RUN);
	}
	for (;;)
	{
		if (g.fd >= 0)
			receive(&g);
		act(&g);
		if (g.started)
			reap(&g);
		wait_for_something(&g);
	}
}
