/*
 * worker.c
 *		The command that lockctl runs in its torture test: while it runs, it claims
 *		the lock, and records the claim for the checker.
 *
 *		lockctl lock NAME -- worker DIRECTORY ASKED MODE RUN [deaf] [apart]
 *
 * ASKED: start time of lockctl, in ns of CLOCK_BOOTTIME; MODE: as in a history;
 * RUN: duration of the work, in ms.  deaf: SIGTERM does not end it.  apart: a
 * child in a separate session does the work.
 *
 * The history is that of a client whose lock is bound to its connection: held
 * from the start of the process to its last sign of life.  The last two lines
 * are written over and over by one pwrite(2), so a kill loses nothing.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STEP_NS 2000000

static long long
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (long long) t.tv_sec * 1000000000 + t.tv_nsec;
}

static void
put(int file, const char *text, off_t at)
{
	ssize_t length = (ssize_t) strlen(text);

	if (pwrite(file, text, (size_t) length, at) != length)
	{
		perror("history");
		exit(1);
	}
}

static void
work(const char *directory, const char *asked, const char *mode, long long run_ms)
{
	const char *name = getenv("LOCK_NAME"), *token = getenv("LOCK_TOKEN");
	long long start = now();
	char text[1024];
	int file, head;

	if (name == NULL || token == NULL)
	{
		fprintf(stderr, "worker: no LOCK_NAME or LOCK_TOKEN\n");
		exit(1);
	}
	snprintf(text, sizeof(text), "%s/w%d-%s.history", directory, (int) getpid(), token);
	file = open(text, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (file < 0)
	{
		perror(text);
		exit(1);
	}
	/* the times of the last two lines always have the same number of digits */
	head =
		snprintf(text, sizeof(text),
				 "P %s %d w%d\nS %s 1 0\nC %s 1 1 acquire %s mode=%s ttl=0 wait=0 owner=-\nA %lld 1 ok %s\n",
				 asked, (int) getpid(), (int) getpid(), asked, asked, name, mode, start, token);
	do
	{
		long long t = now();

		snprintf(text + head, sizeof(text) - (size_t) head,
				 "C %020lld 2 1 is_held %s token=%s\nA %020lld 2 ok t\n", t, name, token, t);
		put(file, text, 0);
		nanosleep(&(struct timespec){0, STEP_NS}, NULL);
	} while (now() < start + run_ms * 1000000);
	exit(0);
}

int
main(int argc, char **argv)
{
	int i = 5;

	if (argc < 5)
	{
		fprintf(stderr, "usage: worker DIRECTORY ASKED MODE RUN [deaf] [apart]\n");
		return 2;
	}
	if (i < argc && strcmp(argv[i], "deaf") == 0)
	{
		signal(SIGTERM, SIG_IGN);
		i++;
	}
	if (i < argc && strcmp(argv[i], "apart") == 0)
	{
		pid_t child = fork();

		if (child > 0)
		{
			waitpid(child, NULL, 0);
			return 0;
		}
		setsid();
	}
	work(argv[1], argv[2], argv[3], atoll(argv[4]));
}
