/*
 * link.c
 *		The guardian, seen from lockctl.
 */
#include "lockctl.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int terminal = -1; /* that controls us; -1: none does */
static bool has_terminal; /* CMD's group, not ours, is in its foreground */

void
lc_guardian_fork(lc_guardian *guardian, const lc_command *command)
{
	int fds[2];

	*guardian = (lc_guardian){.fd = -1};
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
		lc_die(LC_EXIT_CANNOT_RUN, "socketpair failed: %s", strerror(errno));
	/* What loses its guardian comes to us. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	lc_cgroup_find();
	fflush(NULL);
	guardian->pid = fork();
	if (guardian->pid < 0)
		lc_die(LC_EXIT_CANNOT_RUN, "cannot fork: %s", strerror(errno));
	if (guardian->pid == 0)
	{
		close(fds[0]);
		lc_guardian_main(command, fds[1]);
	}
	close(fds[1]);
	guardian->fd = fds[0];
	terminal = open("/dev/tty", O_RDWR | O_CLOEXEC);
	if (lc_tree_is_visible(guardian->pid))
		return;
	/* A guardian that cannot be one has told why. */
	if (waitpid(guardian->pid, NULL, WNOHANG) == guardian->pid)
		exit(LC_EXIT_CANNOT_RUN);
	/* Without /proc we could not find what CMD has started. */
	lc_die(LC_EXIT_CANNOT_RUN,
		   "/proc does not show the processes of this PID namespace: the command could not be ended in time");
}

void
lc_guardian_send(lc_guardian *guardian, lc_what what, int value, int64_t token, int64_t deadline)
{
	lc_message message = {.what = what, .value = value, .token = token, .deadline = deadline};

	/* It never blocks us: where the guardian does not read, it is stopped, and a later deadline would come too late. */
	if (guardian->fd >= 0)
		send(guardian->fd, &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* --- the terminal --- */

/*
 * CMD has a group of its own.  To the user it is one with ours: what a key does
 * to the one it has to do to the other, since our group may have a shell in it
 * that runs a script, and it is ours that the user's shell knows.
 */

/* Without a terminal tcgetpgrp() fails, and -1 is no group. */
static bool
is_foreground(void)
{
	return tcgetpgrp(terminal) == getpgrp();
}

/*
 * CMD becomes the foreground group if we are it.  Not where our output goes to
 * a pipe: then the group has other members, such as a pager, that read the
 * terminal.
 */
static bool
gives_terminal(void)
{
	struct stat output;

	if (!is_foreground() || tcgetpgrp(STDIN_FILENO) != getpgrp())
		return false;
	return fstat(STDOUT_FILENO, &output) != 0 || !(S_ISFIFO(output.st_mode) || S_ISSOCK(output.st_mode));
}

static void
set_foreground(pid_t group)
{
	sigset_t block, old;

	sigemptyset(&block);
	sigaddset(&block, SIGTTOU);
	pthread_sigmask(SIG_BLOCK, &block, &old);
	tcsetpgrp(terminal, group);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	has_terminal = group != getpgrp();
}

static void
take_terminal(void)
{
	if (has_terminal)
		set_foreground(getpgrp());
}

/*
 * Stops our group, until the shell continues it.  False: the kernel has not
 * stopped it, because there is no shell that would (ssh -t, docker run -it).
 */
static bool
stop_group(int signo)
{
	sigset_t set, old;

	sigemptyset(&set);
	sigaddset(&set, signo);
	pthread_sigmask(SIG_UNBLOCK, &set, &old);
	kill(0, signo);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	/* A stop signal takes back those that have come before. */
	sigpending(&set);
	return sigismember(&set, SIGCONT) != 0;
}

/*
 * Ctrl-Z: the shell gets its terminal back.  Nothing is renewed now, and the
 * deadline stays.
 *
 * CMD may read the terminal in the background as well.  Then it waits for the
 * shell's fg, and we go on with renewals.
 */
static void
stopped(lc_guardian *guardian, int signo)
{
	if (terminal < 0 || guardian->exited)
		return;
	if (!has_terminal && (signo == SIGTTIN || signo == SIGTTOU))
	{
		if (!is_foreground())
			lc_notice("the command is stopped, because it wants the terminal");
		guardian->wants_terminal = true;
		return;
	}
	/* Somebody else's SIGSTOP is not for us. */
	if (!has_terminal && signo == SIGSTOP)
		return;
	take_terminal();
	if (!stop_group(signo == SIGSTOP ? SIGTSTP : signo) && signo != SIGSTOP)
		lc_guardian_continue(guardian);
}

/* The shell's fg of a job that it has not stopped tells nobody. */
static void
look_for_terminal(lc_guardian *guardian)
{
	if (!guardian->wants_terminal || guardian->exited || !is_foreground())
		return;
	set_foreground(guardian->child);
	lc_guardian_continue(guardian);
}

void
lc_guardian_continue(lc_guardian *guardian)
{
	if (guardian->child == 0 || guardian->exited)
		return;
	if (!has_terminal && gives_terminal())
		set_foreground(guardian->child);
	guardian->wants_terminal = false;
	lc_guardian_send(guardian, LC_SIGNAL, SIGCONT, 0, 0);
}

/* --- what it tells --- */

void
lc_guardian_start(lc_guardian *guardian, int64_t token, int64_t deadline)
{
	has_terminal = gives_terminal();
	lc_guardian_send(guardian, LC_START, has_terminal, token, deadline);
}

/* The guardian was killed.  What it guarded is ours now. */
static void
lost_guardian(lc_guardian *guardian)
{
	int status;
	pid_t pid;

	close(guardian->fd);
	guardian->fd = -1;
	if (guardian->gone)
		return;
	if (!guardian->killed)
		lc_error("the guardian was killed: ending the command");
	do
	{
		lc_cgroup_kill();
		lc_tree_signal(getpid(), SIGKILL);
		while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		{
			if (pid == guardian->child)
				guardian->status = status;
		}
		if (pid == 0)
			poll(NULL, 0, 5);
	} while (pid >= 0 || errno != ECHILD);
	if (!guardian->exited && guardian->status == 0)
		guardian->status = SIGKILL;
	guardian->pid = 0;
	guardian->exited = guardian->gone = true;
}

static void
take(lc_guardian *guardian, const lc_message *message)
{
	switch (message->what)
	{
		case LC_STARTED:
			guardian->child = message->value;
			lc_detail("runs as process %d", message->value);
			break;
		case LC_STOPPED:
			stopped(guardian, message->value);
			break;
		case LC_EXITED:
			guardian->exited = true;
			guardian->interrupted =
				has_terminal && WIFSIGNALED(message->value) &&
				(WTERMSIG(message->value) == SIGINT || WTERMSIG(message->value) == SIGQUIT);
			guardian->status = message->value;
			break;
		case LC_LATE:
			guardian->late = true;
			break;
		case LC_GONE:
			guardian->gone = guardian->exited = true;
			break;
		default:
			break;
	}
}

void
lc_guardian_read(lc_guardian *guardian)
{
	lc_message message;
	ssize_t length;

	if (guardian->fd < 0)
		return;
	while ((length = recv(guardian->fd, &message, sizeof(message), MSG_DONTWAIT)) ==
		   (ssize_t) sizeof(message))
		take(guardian, &message);
	if (length == 0 || (length < 0 && errno != EAGAIN && errno != EINTR))
		lost_guardian(guardian);
	look_for_terminal(guardian);
}

void
lc_guardian_kill(lc_guardian *guardian)
{
	/* 0 would be our own group, -1 everybody */
	assert(guardian->pid > 0);
	lc_cgroup_kill();
	if (lc_tree_signal(guardian->pid, SIGKILL) > 0)
		return;
	/* Where it has been stopped it would not tell of the end. */
	guardian->killed = true;
	kill(guardian->pid, SIGKILL);
}

void
lc_guardian_finish(lc_guardian *guardian)
{
	take_terminal();
	if (guardian->fd >= 0)
		close(guardian->fd);
	guardian->fd = -1;
	/* Nothing runs any more, and it may have been stopped. */
	if (guardian->pid > 0)
	{
		kill(guardian->pid, SIGKILL);
		waitpid(guardian->pid, NULL, 0);
	}
	guardian->pid = 0;
	lc_cgroup_remove();
}
