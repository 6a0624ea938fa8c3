/*
 * schedule.c
 *		Runs of a world, each in a process of its own, so that whatever kills
 *		one is an outcome like others.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

/* Steps between two looks at the clock on the wall. */
#define LOOK_EVERY 256

static double
clock_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + (double) t.tv_nsec / 1e9;
}

static uint64_t
step_word(const Config *conf, const Schedule *schedule, uint64_t number)
{
	if (schedule->words != NULL)
		return rng_mix(schedule->words[number - 1]);
	return rng_mix(rng_mix(conf->seed) + number);
}

static void
count(Outcome *outcome, const World *w)
{
	outcome->commands = w->commands;
	outcome->answers = w->answers;
	outcome->batches = w->batches;
	outcome->reloads = w->reloads;
}

/* In this process; outcome->n tells how far it came, also when it dies. */
void
schedule_run(const Config *conf, const Schedule *schedule, Outcome *outcome)
{
	World *w = calloc(1, sizeof(World));
	double end = conf->seconds > 0 ? clock_seconds() + conf->seconds : 0;

	if (w == NULL)
		abort();
	world_start(w, conf);
	for (uint64_t i = 0; i < schedule->n; i++)
	{
		uint64_t number = schedule->only != NULL ? schedule->only[i] : i + 1;

		if (end > 0 && i % LOOK_EVERY == 0 && clock_seconds() > end)
			break;
		outcome->n = i + 1;
		world_step(w, number, step_word(conf, schedule, number));
	}
	count(outcome, w);
	w->step++;
	world_end(w);
	free(w);
}

/* Shared with the process that runs. */
static Outcome *
shared_outcome(void)
{
	static Outcome *shared;

	if (shared == NULL)
		shared = mmap(NULL, sizeof(Outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		abort();
	return shared;
}

static void
be_quiet(void)
{
	int null = open("/dev/null", O_WRONLY);

	if (null < 0 || dup2(null, STDOUT_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0)
		_exit(0);
}

/*
 * In a process of its own.  A quiet one is an attempt, whose output nobody
 * reads, and which has not failed if it takes too long.
 */
bool
schedule_try(const Config *conf, const Schedule *schedule, bool quiet, Outcome *outcome)
{
	Outcome *shared = shared_outcome();
	pid_t child;
	int status;

	memset(shared, 0, sizeof(*shared));
	fflush(stdout);
	child = fork();
	if (child < 0)
		abort();
	if (child == 0)
	{
		if (quiet)
			be_quiet();
		if (quiet && conf->seconds > 0)
			alarm((unsigned) conf->seconds + 1);
		schedule_run(conf, schedule, shared);
		fflush(stdout);
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child)
		abort();
	*outcome = *shared;
	outcome->failed = status != 0 && !(quiet && WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
	if (outcome->failed && !quiet && WIFSIGNALED(status))
		printf("seed %llu, step %llu: killed by signal %d\n", (unsigned long long) conf->seed,
			   (unsigned long long) outcome->n, WTERMSIG(status));
	return outcome->failed;
}

/* --- as text: 3,7-9,12 --- */

bool
schedule_parse(const char *text, Schedule *schedule)
{
	uint64_t n = 0, max = 0;

	schedule->only = NULL;
	while (*text != '\0')
	{
		char *end;
		unsigned long from = strtoul(text, &end, 10), to = from;

		if (*end == '-')
			to = strtoul(end + 1, &end, 10);
		if (end == text || from == 0 || to < from || to >= UINT32_MAX || (*end != ',' && *end != '\0'))
			return false;
		for (unsigned long k = from; k <= to; k++)
		{
			if (n == max)
			{
				max = max ? max * 2 : 64;
				schedule->only = realloc(schedule->only, max * sizeof(uint32_t));
				if (schedule->only == NULL)
					abort();
			}
			schedule->only[n++] = (uint32_t) k;
		}
		text = *end == ',' ? end + 1 : end;
	}
	schedule->n = n;
	return n > 0;
}

void
schedule_print(FILE *to, const Schedule *schedule)
{
	for (uint64_t i = 0, k; i < schedule->n; i = k)
	{
		for (k = i + 1; k < schedule->n && schedule->only[k] == schedule->only[k - 1] + 1; k++)
			;
		fprintf(to, i > 0 ? ",%u" : "%u", schedule->only[i]);
		if (k > i + 1)
			fprintf(to, "-%u", schedule->only[k - 1]);
	}
}

/* --- as bytes: the world, and a word for each step --- */

static uint32_t
read_word(const uint8_t *data, size_t size)
{
	uint32_t word = 0;

	for (size_t i = 0; i < sizeof(word) && i < size; i++)
		word |= (uint32_t) data[i] << (8 * i);
	return word;
}

/* Any bytes are a schedule. */
void
schedule_decode(const uint8_t *data, size_t size, Config *conf, Schedule *schedule)
{
	uint32_t *words = malloc(FUZZ_MAX);

	if (words == NULL)
		abort();
	conf->seed = read_word(data, size);
	conf->small = true;
	schedule->words = words;
	schedule->n = 0;
	for (size_t at = sizeof(*words); at < size && at < FUZZ_MAX; at += sizeof(*words))
		words[schedule->n++] = read_word(data + at, size - at);
}
