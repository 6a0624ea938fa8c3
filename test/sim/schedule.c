/*
 * schedule.c
 *		The steps of a run: their sources, and their execution.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

/* Number of steps between two reads of the wall clock. */
#define LOOK_EVERY 256

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
	outcome->restarts = w->restarts;
}

/* Runs in this process; outcome->n is the step that was reached, also if the process dies. */
void
schedule_run(const Config *conf, const Schedule *schedule, Outcome *outcome)
{
	World *w = calloc(1, sizeof(World));
	Config chosen;
	double end = conf->seconds > 0 ? wall_seconds() + conf->seconds : 0;

	if (w == NULL)
		abort();
	chosen = *conf;
	world_choose(&chosen);
	world_start(w, &chosen);
	for (uint64_t i = 0; i < schedule->n; i++)
	{
		uint64_t number = schedule->only != NULL ? schedule->only[i] : i + 1;

		if (end > 0 && i % LOOK_EVERY == 0 && wall_seconds() > end)
			break;
		outcome->n = i + 1;
		world_step(w, number, step_word(conf, schedule, number));
	}
	count(outcome, w);
	w->step++;
	world_end(w);
	free(w);
}

typedef struct Run
{
	const Config *conf;
	const Schedule *schedule;
	Outcome *outcome;
} Run;

static void
run_it(void *arg)
{
	Run *run = arg;

	schedule_run(run->conf, run->schedule, run->outcome);
}

/* Runs in a separate process; a quiet run has a time limit. */
bool
schedule_try(const Config *conf, const Schedule *schedule, bool quiet, Outcome *outcome)
{
	static Outcome *shared;
	Run run = {conf, schedule, NULL};

	if (shared == NULL)
		shared = apart_alloc(sizeof(Outcome));
	memset(shared, 0, sizeof(*shared));
	run.outcome = shared;
	shared->failed = !apart_run(run_it, &run, quiet ? (unsigned) conf->seconds + 1 : 0);
	*outcome = *shared;
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

/* Any bytes are a valid schedule. */
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
