/*
 * report.c
 *		Prints events as lines, and ends a failed run.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

/* le_core_check() and assertions abort: then this world is shown. */
static World *the_world;
static bool abort_on_failure;

static void
on_abort(int number)
{
	sim_fail(the_world, "signal %d", number);
}

void
sim_watch(World *w)
{
	the_world = w;
	if (!abort_on_failure)
		signal(SIGABRT, on_abort);
}

/* Makes a failure abort the process, as a fuzzer requires. */
void
sim_abort_on_failure(void)
{
	abort_on_failure = true;
}

void
sim_note(World *w, const char *fmt, ...)
{
	char *line = w->history[w->nhistory++ % HISTORY];
	int n = snprintf(line, sizeof(w->history[0]), "%8llu %12lld ", (unsigned long long) w->step,
					 (long long) w->now);
	va_list args;

	va_start(args, fmt);
	vsnprintf(line + n, sizeof(w->history[0]) - (size_t) n, fmt, args);
	va_end(args);
	if (w->conf.verbose)
		printf("%s\n", line);
}

void
sim_fail(World *w, const char *fmt, ...)
{
	va_list args;
	uint64_t n = w->nhistory < HISTORY ? w->nhistory : HISTORY;

	for (uint64_t i = w->nhistory - n; i < w->nhistory && !w->conf.verbose; i++)
		printf("%s\n", w->history[i % HISTORY]);
	printf("seed %llu, step %llu: ", (unsigned long long) w->conf.seed, (unsigned long long) w->step);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	if (abort_on_failure)
		abort();
	_Exit(1);
}
