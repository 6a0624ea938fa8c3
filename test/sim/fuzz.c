/*
 * fuzz.c
 *		The simulator driven by libFuzzer instead of by a seed: make fuzz.
 *
 * The input is a world and a word for each step, as sim --replay reads it.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define WORD 4

extern int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);
extern size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Config conf = {.model = true};
	Schedule schedule = {0};
	Outcome outcome;

	sim_abort_on_failure();
	schedule_decode(data, size, &conf, &schedule);
	schedule_run(&conf, &schedule, &outcome);
	free((void *) schedule.words);
	return 0;
}

/* Mutates whole words, because a shift by a byte would change all later steps. */
size_t
LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
	Rng rng;
	size_t n = size / WORD, at, len;

	rng_seed(&rng, seed);
	at = n > 0 ? rng_below(&rng, (uint32_t) n) : 0;
	len = n > at ? 1 + rng_below(&rng, (uint32_t) (n - at < 16 ? n - at : 16)) : 0;
	switch (rng_below(&rng, 4))
	{
		case 0: /* leave some out */
			if (n < 2)
				break;
			memmove(data + at * WORD, data + (at + len) * WORD, (n - at - len) * WORD);
			return (n - len) * WORD;
		case 1: /* again, somewhere else */
			if (len == 0 || (n + len) * WORD > max)
				break;
			memmove(data + (at + len) * WORD, data + at * WORD, (n - at) * WORD);
			return (n + len) * WORD;
		case 2: /* new ones at the end */
			for (uint32_t k = 1 + rng_below(&rng, 64); k > 0 && (n + 1) * WORD <= max; k--, n++)
			{
				uint32_t word = (uint32_t) rng_next(&rng);

				memcpy(data + n * WORD, &word, WORD);
			}
			return n * WORD;
		default:
			break;
	}
	if (n > 0)
		LLVMFuzzerMutate(data + at * WORD, WORD, WORD);
	return n * WORD;
}
