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

static int terminal = -1; /* descriptor of the controlling terminal; -1: none */
static bool has_terminal; /* CMD's group, not ours, is its foreground group */

void
lc_guardian_fork(lc_guardian *guardian, const lc_command *command)
{
	int fds[2];

	*guardian = (lc_guardian){.fd = -1};
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
		lc_die(LC_EXIT_CANNOT_RUN, "socketpair failed: %s", strerror(errno));
	/* Adopt descendants that lose their guardian. */
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
	/* A guardian that has failed has reported why. */
	if (waitpid(guardian->pid, NULL, WNOHANG) == guardian->pid)
		exit(LC_EXIT_CANNOT_RUN);
	/* Without /proc we could not find the descendants of CMD. */
	lc_die(LC_EXIT_CANNOT_RUN,
		   "/proc does not show the processes of this PID namespace: the command could not be ended in time");
}

void
lc_guardian_send(lc_guardian *guardian, lc_what what, int value, int64_t token, int64_t deadline)
{
	lc_message message = {.what = what, .value = value, .token = token, .deadline = deadline};

	/*
	 * Do not block: a guardian that does not read is stopped, and a deadline that comes later would be too
	 * late.
	 */
	if (guardian->fd >= 0)
		send(guardian->fd, &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* --- the terminal --- */

/*
 * CMD has a process group of its own, but to the user both groups are one job.  A key that affects one group
 * must affect the other one, since our group may contain a shell that runs a script, and the user's shell
 * only knows our group.
 */

/* Without a terminal tcgetpgrp() returns -1, which is no group. */
static bool
is_foreground(void)
{
	return tcgetpgrp(terminal) == getpgrp();
}

/*
 * Returns whether CMD's group becomes the foreground group: if ours is, and our output does not go to a
 * pipe.  Behind a pipe the group has other members, such as a pager, which read the terminal.
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
 * Stops our group until the shell continues it.  Returns false if the kernel has not stopped it, because
 * there is no shell that would continue it (ssh -t, docker run -it).
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
	/* A stop signal discards pending SIGCONTs, so one that is pending now came later. */
	sigpending(&set);
	return sigismember(&set, SIGCONT) != 0;
}

/*
 * CMD was stopped.  After Ctrl-Z, gives the terminal back to the shell and stops as well: nothing is
 * renewed, and the deadline stays.
 *
 * If CMD was stopped because it uses the terminal in the background, it waits for the shell's fg, and
 * renewals continue.
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
	/* A SIGSTOP that somebody sent to CMD is not for us. */
	if (!has_terminal && signo == SIGSTOP)
		return;
	take_terminal();
	if (!stop_group(signo == SIGSTOP ? SIGTSTP : signo) && signo != SIGSTOP)
		lc_guardian_continue(guardian);
}

/*
 * Gives the terminal to CMD if it waits for that: the shell's fg of a job that it has not stopped sends no
 * signal.
 */
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

/* --- messages of the guardian --- */

void
lc_guardian_start(lc_guardian *guardian, int64_t token, int64_t deadline)
{
	has_terminal = gives_terminal();
	lc_guardian_send(guardian, LC_START, has_terminal, token, deadline);
}

/* Handles the death of the guardian: kills CMD and its descendants, which are our children now. */
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

/* Handles a message of the guardian. */
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
	/* 0 would be our own group, -1 all processes */
	assert(guardian->pid > 0);
	lc_cgroup_kill();
	if (lc_tree_signal(guardian->pid, SIGKILL) > 0)
		return;
	/* A stopped guardian would not report that nothing is left. */
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
	/* Nothing runs any more, and the guardian may be stopped. */
	if (guardian->pid > 0)
	{
		kill(guardian->pid, SIGKILL);
		waitpid(guardian->pid, NULL, 0);
	}
	guardian->pid = 0;
	lc_cgroup_remove();
}
