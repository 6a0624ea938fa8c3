/*
 * apart.c
 *		Runs a function in a separate process, so that a crash is an outcome like
 *		others.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

double
wall_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + (double) t.tv_nsec / 1e9;
}

/* Allocates memory that such a process shares with its parent. */
void *
apart_alloc(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}

static void
be_quiet(void)
{
	int null = open("/dev/null", O_WRONLY);

	if (null < 0 || dup2(null, STDOUT_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0)
		_exit(0);
}

/*
 * Returns whether the process exits with 0.  With a limit in seconds, the run is
 * an attempt: its output is dropped, and a timeout is no failure.
 */
bool
apart_run(void (*run)(void *arg), void *arg, unsigned limit)
{
	pid_t child;
	int status;

	fflush(stdout);
	child = fork();
	if (child < 0)
		abort();
	if (child == 0)
	{
		if (limit > 0)
		{
			be_quiet();
			alarm(limit);
		}
		run(arg);
		fflush(stdout);
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child)
		abort();
	if (WIFSIGNALED(status) && limit == 0)
		printf("killed by signal %d\n", WTERMSIG(status));
	return status == 0 || (limit > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
}
