/*
 * link.c
 *		The part of lockctl that controls the guardian, and gives CMD the terminal.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "globals.h"
#include "guardian.h"
#include "message.h"

static int terminal = -1; /* descriptor of the controlling terminal; -1 = none */
static bool has_terminal; /* CMD's group is the terminal's foreground group */

void
lc_guardian_fork(lc_guardian *guardian, const lc_command *command)
{
	int fds[2];

	*guardian = (lc_guardian){.fd = -1};
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
		lc_die(LC_EXIT_CANNOT_RUN, "socketpair failed: %s", strerror(errno));
	/* Adopt CMD's descendants if the guardian dies. */
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
	/* If the guardian has failed, it has already reported the reason. */
	if (waitpid(guardian->pid, NULL, WNOHANG) == guardian->pid)
		exit(LC_EXIT_CANNOT_RUN);
	/* Without /proc, lockctl could not find CMD's descendants. */
	lc_die(LC_EXIT_CANNOT_RUN,
		   "/proc does not show the processes of this PID namespace: the command could not be ended in time");
}

void
lc_guardian_send(lc_guardian *guardian, lc_what what, int value, int64_t token, int64_t deadline)
{
	lc_message message = {.what = what, .value = value, .token = token, .deadline = deadline};

	/* Do not block: a guardian that does not read is stopped, and would read the deadline too late. */
	if (guardian->fd >= 0)
		send(guardian->fd, &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* --- the terminal --- */

/*
 * CMD has its own process group, but the user sees lockctl and CMD as one job.  So a key such as Ctrl-C,
 * which signals one group, must affect the other group, too: lockctl's group may contain a shell that runs a
 * script, and the user's shell controls only lockctl's group.
 */

/*
 * Returns whether lockctl's group is the foreground group; false without a terminal, because tcgetpgrp() then
 * returns -1.
 */
static bool
is_foreground(void)
{
	return tcgetpgrp(terminal) == getpgrp();
}

/*
 * Returns whether CMD's group should become the foreground group.  This requires that lockctl's group is the
 * foreground group, and that lockctl's output is no pipe: with a pipe, lockctl's group has other members that
 * read the terminal, such as a pager.
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
 * Stops lockctl's group until the shell continues it.  Returns false if the kernel has not stopped the group,
 * as the kernel does when no shell could continue the group (ssh -t, docker run -it).
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
	/* A stop signal discards pending SIGCONTs, so a SIGCONT that is pending now has ended the stop. */
	sigpending(&set);
	return sigismember(&set, SIGCONT) != 0;
}

/*
 * Handles a stop of CMD.  After Ctrl-Z, gives the terminal back to the shell and stops lockctl as well.
 * While lockctl is stopped, it renews nothing, and the deadline does not move.
 *
 * If CMD was stopped because it used the terminal in the background, CMD waits for the shell's fg, and
 * lockctl continues to renew.
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
	/* Do not stop lockctl after a SIGSTOP that was sent to CMD alone. */
	if (!has_terminal && signo == SIGSTOP)
		return;
	take_terminal();
	if (!stop_group(signo == SIGSTOP ? SIGTSTP : signo) && signo != SIGSTOP)
		lc_guardian_continue(guardian);
}

/*
 * Gives the terminal to CMD if CMD waits for it and lockctl's group has it.  The caller must poll, because
 * the shell's fg sends no signal to a job that the shell has not stopped.
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

/* --- the guardian's messages --- */

void
lc_guardian_start(lc_guardian *guardian, int64_t token, int64_t deadline)
{
	has_terminal = gives_terminal();
	lc_guardian_send(guardian, LC_START, has_terminal, token, deadline);
}

/*
 * Handles the end of the guardian.  CMD and its descendants are now lockctl's children.  Kills all of them that
 * still run.
 */
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

/* Handles a message from the guardian. */
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
	/* kill() of pid 0 would signal lockctl's own group, and of pid -1 all processes */
	assert(guardian->pid > 0);
	lc_cgroup_kill();
	if (lc_tree_signal(guardian->pid, SIGKILL) > 0)
		return;
	/* No descendant is left.  Kill the guardian, because a stopped guardian would not report LC_GONE. */
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
	/* Kill the guardian, which may be stopped.  No process of CMD runs any more. */
	if (guardian->pid > 0)
	{
		kill(guardian->pid, SIGKILL);
		waitpid(guardian->pid, NULL, 0);
	}
	guardian->pid = 0;
	lc_cgroup_remove();
}
