/*
 * minimise.c
 *		Minimises a failed run: leaves out steps as long as it still fails.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim.h"

#define MAX_TRIALS  3000
#define MAX_SECONDS 60
/* seconds; the limit of one attempt */
#define TRIAL_SECONDS 5

typedef struct Search
{
	Config conf;
	Schedule best;
	uint32_t *work;
	uint64_t trials;
	time_t end;
} Search;

static bool
over(const Search *s)
{
	return s->trials >= MAX_TRIALS || time(NULL) >= s->end;
}

/* Returns whether the run also fails without these n steps. */
static bool
fails_without(Search *s, uint64_t from, uint64_t n)
{
	Schedule trial = s->best;
	Outcome outcome;

	trial.only = s->work;
	trial.n = s->best.n - n;
	memcpy(s->work, s->best.only, from * sizeof(uint32_t));
	memcpy(s->work + from, s->best.only + from + n, (trial.n - from) * sizeof(uint32_t));
	s->trials++;
	if (!schedule_try(&s->conf, &trial, true, &outcome))
		return false;
	s->best.n = outcome.n < trial.n ? outcome.n : trial.n;
	memcpy(s->best.only, s->work, s->best.n * sizeof(uint32_t));
	return true;
}

/* Drops pieces of this size, from the end, because late steps depend on early ones. */
static bool
drop_pieces(Search *s, uint64_t size)
{
	bool dropped = false;

	for (uint64_t end = s->best.n; end > 0 && !over(s);)
	{
		uint64_t n = end < size ? end : size;

		if (n < s->best.n && fails_without(s, end - n, n))
			dropped = true;
		end -= n;
		if (end > s->best.n)
			end = s->best.n;
	}
	return dropped;
}

/* Reduces n steps that fail to few; the result is never worse than the first one. */
void
minimise(const Config *conf, Schedule *schedule, uint64_t n)
{
	Search s = {.conf = *conf, .best = *schedule, .end = time(NULL) + MAX_SECONDS};
	bool again = true;

	s.conf.verbose = false;
	s.conf.seconds = TRIAL_SECONDS;
	s.conf.every = true;
	s.best.n = n < schedule->n ? n : schedule->n;
	s.best.only = malloc((s.best.n + 1) * sizeof(uint32_t));
	s.work = malloc((s.best.n + 1) * sizeof(uint32_t));
	if (s.best.only == NULL || s.work == NULL)
		abort();
	for (uint64_t i = 0; i < s.best.n; i++)
		s.best.only[i] = schedule->only != NULL ? schedule->only[i] : (uint32_t) i + 1;
	fails_without(&s, 0, 0);
	for (uint64_t size = s.best.n / 2; size > 1 && !over(&s);
		 size = size > s.best.n ? s.best.n / 2 : size / 2)
		drop_pieces(&s, size);
	while (again && !over(&s))
		again = drop_pieces(&s, 1);
	free(s.work);
	*schedule = s.best;
	printf("minimised to %llu steps in %llu attempts%s\n", (unsigned long long) s.best.n,
		   (unsigned long long) s.trials, over(&s) ? ", not to the end" : "");
}
