/*
 * signals.c
 *		The signals that are forwarded to CMD, or end a wait.
 *
 * A signal that was ignored when the program began (nohup) stays ignored, also
 * for CMD.
 */
#include "lockctl.h"

#include <sys/signalfd.h>
#include <unistd.h>

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

#define NSIGNALS (sizeof(signals) / sizeof(signals[0]))

static bool handled[NSIGNALS]; /* was not ignored */
static bool pipe_ignored;
static sigset_t old_mask;

static void
end(int signo)
{
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
	/* A server or reader that goes is an error of write, not a death. */
	sigaction(SIGPIPE, NULL, &old);
	pipe_ignored = old.sa_handler == SIG_IGN;
	signal(SIGPIPE, SIG_IGN);
	/* Where it was ignored, children would leave no status. */
	signal(SIGCHLD, SIG_DFL);
}

int
lc_signals_fd(void)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	for (size_t i = 0; i < NSIGNALS; i++)
	{
		if (handled[i])
			sigaddset(&set, signals[i]);
	}
	sigaddset(&set, SIGCONT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
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
lc_signals_allow(int signo)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, signo);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
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
