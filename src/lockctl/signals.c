/*
 * signals.c
 *		Handles the signals that are forwarded to CMD, or end a wait.
 *
 * A signal that was ignored when the program started (nohup) stays ignored, for
 * CMD as well.
 */
#include "signals.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "coverage.h"
#include "globals.h"
#include "message.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

#define NSIGNALS (sizeof(signals) / sizeof(signals[0]))

static bool handled[NSIGNALS]; /* signals that were not ignored when the program started */
static bool pipe_ignored;
static sigset_t old_mask, read_set;

/* Lets a signal end the program by its default action: shells check which signal has ended a command. */
static void
end(int signo)
{
	sigset_t set;

	signal(signo, SIG_DFL);
	raise(signo);
	sigemptyset(&set);
	sigaddset(&set, signo);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	/* Reached only in a container's first process, which the signal does not kill. */
	_exit(LC_EXIT_SIGNAL + signo);
}

void
lc_signals_start(void)
{
	struct sigaction action = {.sa_handler = end}, old;
	sigset_t unblock;

	sigemptyset(&unblock);
	for (size_t i = 0; i < NSIGNALS; i++)
	{
		sigaction(signals[i], NULL, &old);
		handled[i] = old.sa_handler != SIG_IGN;
		if (handled[i])
			sigaction(signals[i], &action, NULL);
		sigaddset(&unblock, signals[i]);
	}
	sigprocmask(SIG_UNBLOCK, &unblock, &old_mask);
	/*
	 * Ignore SIGPIPE, so that write() fails instead of killing the program if the server or the reader of the
	 * output is gone.
	 */
	sigaction(SIGPIPE, NULL, &old);
	pipe_ignored = old.sa_handler == SIG_IGN;
	signal(SIGPIPE, SIG_IGN);
	/* Restore SIGCHLD, because if it were ignored, children would leave no status. */
	signal(SIGCHLD, SIG_DFL);
}

int
lc_signals_fd(void)
{
	int fd;

	sigemptyset(&read_set);
	for (size_t i = 0; i < NSIGNALS; i++)
	{
		if (handled[i])
			sigaddset(&read_set, signals[i]);
	}
	sigaddset(&read_set, SIGCONT);
	sigprocmask(SIG_BLOCK, &read_set, NULL);
	fd = signalfd(-1, &read_set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		lc_die(LC_EXIT_SERVER, "signalfd failed");
	return fd;
}

int
lc_signals_next(int fd)
{
	struct signalfd_siginfo info;

	return read(fd, &info, sizeof(info)) == sizeof(info) ? (int) info.ssi_signo : 0;
}

void
lc_signals_add(int fd, int signo)
{
	sigset_t set;

	sigaddset(&read_set, signo);
	signalfd(fd, &read_set, 0);
	sigemptyset(&set);
	sigaddset(&set, signo);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void
lc_signals_allow(int signo)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, signo);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void
lc_signals_die(int signo)
{
	fflush(NULL);
#ifdef __SANITIZE_ADDRESS__
	/* Check for leaks here, because the program does not end by exit(). */
	__lsan_do_leak_check();
#endif
	LC_DUMP_COVERAGE();
	/* Prevent a core dump, because CMD may have dumped its own core. */
	prctl(PR_SET_DUMPABLE, 0);
	end(signo);
	_exit(LC_EXIT_SIGNAL + signo);
}

void
lc_signals_restore(void)
{
	for (size_t i = 0; i < NSIGNALS; i++)
	{
		if (handled[i])
			signal(signals[i], SIG_DFL);
	}
	if (!pipe_ignored)
		signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &old_mask, NULL);
}
