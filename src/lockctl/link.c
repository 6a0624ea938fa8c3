/*
 * link.c
 *		The guardian, seen from lockctl.
 */
#include "lockctl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool has_terminal;

void
lc_guardian_fork(lc_guardian *guardian, const lc_command *command)
{
	int fds[2];

	*guardian = (lc_guardian){.fd = -1};
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
		lc_die(LC_EXIT_CANNOT_RUN, "socketpair failed: %s", strerror(errno));
	/* What loses its guardian comes to us. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
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
 * CMD becomes the foreground group if we are it.  Not where our output goes to
 * a pipe: then the group has other members, such as a pager, that read the
 * terminal.
 */
static bool
is_foreground(void)
{
	struct stat output;

	if (!isatty(STDIN_FILENO) || tcgetpgrp(STDIN_FILENO) != getpgrp())
		return false;
	return fstat(STDOUT_FILENO, &output) != 0 || !(S_ISFIFO(output.st_mode) || S_ISSOCK(output.st_mode));
}

static void
give_terminal(pid_t group)
{
	sigset_t block, old;

	sigemptyset(&block);
	sigaddset(&block, SIGTTOU);
	pthread_sigmask(SIG_BLOCK, &block, &old);
	tcsetpgrp(STDIN_FILENO, group);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void
take_terminal(void)
{
	if (has_terminal)
		give_terminal(getpgrp());
	has_terminal = false;
}

/* Ctrl-Z: the shell gets its terminal back.  Nothing is renewed now, and the deadline stays. */
static void
stopped(lc_guardian *guardian)
{
	if (!has_terminal || guardian->exited)
		return;
	take_terminal();
	raise(SIGSTOP);
}

void
lc_guardian_continue(lc_guardian *guardian)
{
	if (guardian->child == 0 || guardian->exited)
		return;
	if (!has_terminal && is_foreground())
	{
		give_terminal(guardian->child);
		has_terminal = true;
	}
	lc_guardian_send(guardian, LC_SIGNAL, SIGCONT, 0, 0);
}

/* --- what it tells --- */

void
lc_guardian_start(lc_guardian *guardian, int64_t token, int64_t deadline)
{
	has_terminal = is_foreground();
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
	lc_error("the guardian was killed: ending the command");
	do
	{
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
			stopped(guardian);
			break;
		case LC_EXITED:
			guardian->exited = true;
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
}

void
lc_guardian_finish(lc_guardian *guardian)
{
	take_terminal();
	if (guardian->fd >= 0)
		close(guardian->fd);
	guardian->fd = -1;
	if (guardian->pid > 0)
		waitpid(guardian->pid, NULL, 0);
	guardian->pid = 0;
}
