/*
 * main.c
 *		The command line: sim --help.
 *
 * Runs random worlds and compares every step with the model.  A failed run is
 * minimised and shown, and the program exits with 1.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "sim.h"

typedef struct Options
{
	Config conf;
	Schedule schedule;
	const char *file; /* the file of the words */
	uint64_t seeds;
	double seconds;
	uint32_t every;
	bool minimise, exhaustive;
	const char *course;
} Options;

static const char *const broken_names[] = {"nothing", "row", "wake-up"};

static void
usage(FILE *to)
{
	fprintf(to,
			"usage: sim [--seed S] [--seeds K] [--steps N]   N steps in each of the worlds S .. S + K - 1\n"
			"           [--seconds T]        no new world, and no new step, after that\n"
			"           [--only 3,7-9]       of the steps only these\n"
			"           [--replay FILE]      a fuzzer's input: a world and its steps\n"
			"           [--break row|wake-up] let the world lose rows or answers, to see it noticed\n"
			"           [--no-model]         invariants alone\n"
			"           [--no-minimise] [--verbose]\n"
			"       sim --exhaustive [--every K --seed S] [--seconds T]   every interleaving, or every K., "
			"of tiny worlds\n"
			"       sim --course PROGRAMS:ORDER:WAY                       one of them\n");
}

/* CPU time of this process and its children: other processes of the machine do not count. */
static double
processor_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_CHILDREN, &u);
	return (double) (u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
		   (double) (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Prints the command that reproduces this failure. */
static void
print_command(const Options *o)
{
	printf("to see it again: build/sim");
	if (o->file != NULL)
		printf(" --replay %s", o->file);
	else
		printf(" --seed %llu", (unsigned long long) o->conf.seed);
	if (!o->conf.model)
		printf(" --no-model");
	if (o->conf.broken != BROKEN_NOTHING)
		printf(" --break %s", broken_names[o->conf.broken]);
	printf(" --only ");
	schedule_print(stdout, &o->schedule);
	printf("\n");
}

static void
explain(Options *o, const Outcome *outcome)
{
	Outcome again;

	if (o->minimise)
		minimise(&o->conf, &o->schedule, outcome->n);
	if (o->schedule.only == NULL)
		return;
	o->conf.verbose = true;
	o->conf.every = true;
	o->conf.seconds = 0;
	schedule_try(&o->conf, &o->schedule, false, &again);
	print_command(o);
}

static bool
run_world(Options *o)
{
	Outcome outcome;
	double seconds = processor_seconds();

	if (schedule_try(&o->conf, &o->schedule, false, &outcome))
	{
		explain(o, &outcome);
		return false;
	}
	seconds = processor_seconds() - seconds;
	printf("seed %llu: %llu steps, %llu commands, %llu answers, %llu batches, %llu reloads, %llu restarts, "
		   "%.0f steps/s\n",
		   (unsigned long long) o->conf.seed, (unsigned long long) outcome.n,
		   (unsigned long long) outcome.commands, (unsigned long long) outcome.answers,
		   (unsigned long long) outcome.batches, (unsigned long long) outcome.reloads,
		   (unsigned long long) outcome.restarts, (double) outcome.n / seconds);
	return true;
}

static bool
run_worlds(Options *o)
{
	double end = wall_seconds() + o->seconds;

	for (uint64_t k = 0; k < o->seeds; k++, o->conf.seed++)
	{
		if (o->seconds > 0)
		{
			o->conf.seconds = end - wall_seconds();
			if (o->conf.seconds <= 0)
				break;
		}
		if (!run_world(o))
			return false;
	}
	return true;
}

/* --- a fuzzer's input --- */

static bool
read_file(Options *o, const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data = malloc(FUZZ_MAX);
	size_t size;

	if (file == NULL || data == NULL)
		return false;
	size = fread(data, 1, FUZZ_MAX, file);
	fclose(file);
	o->file = path;
	schedule_decode(data, size, &o->conf, &o->schedule);
	free(data);
	return true;
}

static bool
parse_broken(Options *o, const char *value)
{
	for (int i = BROKEN_NOTHING; i <= BROKEN_WAKE_UP; i++)
	{
		if (strcmp(value, broken_names[i]) == 0)
		{
			o->conf.broken = (Broken) i;
			return true;
		}
	}
	return false;
}

static bool
parse_option(Options *o, const char *name, const char *value)
{
	if (strcmp(name, "--seed") == 0)
		o->conf.seed = strtoull(value, NULL, 10);
	else if (strcmp(name, "--seeds") == 0)
		o->seeds = strtoull(value, NULL, 10);
	else if (strcmp(name, "--steps") == 0)
		o->schedule.n = strtoull(value, NULL, 10);
	else if (strcmp(name, "--seconds") == 0)
		o->seconds = strtod(value, NULL);
	else if (strcmp(name, "--replay") == 0)
		return read_file(o, value);
	else if (strcmp(name, "--every") == 0)
		return (o->every = (uint32_t) strtoul(value, NULL, 10)) > 0;
	else if (strcmp(name, "--course") == 0)
		o->course = value;
	else if (strcmp(name, "--break") == 0)
		return parse_broken(o, value);
	else if (strcmp(name, "--only") == 0)
	{
		o->conf.every = o->conf.verbose = true;
		return schedule_parse(value, &o->schedule);
	}
	else
		return false;
	return true;
}

static bool
parse_flag(Options *o, const char *name)
{
	if (strcmp(name, "--no-model") == 0)
		o->conf.model = false;
	else if (strcmp(name, "--exhaustive") == 0)
		o->exhaustive = true;
	else if (strcmp(name, "--no-minimise") == 0)
		o->minimise = false;
	else if (strcmp(name, "--verbose") == 0)
		o->conf.verbose = true;
	else
		return false;
	return true;
}

int
main(int argc, char **argv)
{
	static Options o = {.conf = {.seed = 1, .model = true},
						.schedule = {.n = 100000},
						.seeds = 1,
						.every = 1,
						.minimise = true};

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 1; i < argc; i++)
	{
		if (parse_flag(&o, argv[i]))
			continue;
		if (i + 1 >= argc || !parse_option(&o, argv[i], argv[i + 1]))
		{
			usage(strcmp(argv[i], "--help") == 0 ? stdout : stderr);
			return 2;
		}
		i++;
	}
	if (o.course != NULL)
		return exhaust_replay(o.course) ? 0 : 1;
	if (o.exhaustive)
		return exhaust(o.every, o.conf.seed, o.seconds) ? 0 : 1;
	return run_worlds(&o) ? 0 : 1;
}
