/*
 * shard.c
 *		Which shard a name belongs to.  The vectors are also in
 *		docs/operation/scaling.md.  If one of them has to be changed here, the map
 *		of existing users has changed.
 */
#include "client.h"

#define NAMES 20000

static const char *const three[] = {"a", "b", "c"};
static const char *const four[] = {"east", "west", "north", "south"};

static void
test_vectors(void)
{
	static const struct
	{
		const char *name, *of_three, *of_two;
	} vectors[] = {{"invoices", "c", "east"}, {"nightly", "a", "east"},   {"report", "b", "east"},
				   {"Grüße", "b", "east"},    {"account 7", "c", "west"}, {"account 8", "c", "east"},
				   {"scheduler", "c", "west"}};
	char longest[256], title[100];

	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
	{
		int x = le_shard(vectors[i].name, three, 3), y = le_shard(vectors[i].name, four, 2);

		snprintf(title, sizeof(title), "\"%s\" is on shard %s of three, on %s of two", vectors[i].name,
				 vectors[i].of_three, vectors[i].of_two);
		ok(strcmp(three[x], vectors[i].of_three) == 0 && strcmp(four[y], vectors[i].of_two) == 0, title);
	}
	memset(longest, 'x', 255);
	longest[255] = '\0';
	ok(strcmp(four[le_shard(longest, four, 4)], "west") == 0, "the longest name");
}

static void
test_bad(void)
{
	const char *const hole[] = {"a", NULL};

	ok(le_shard("x", three, 0) == -1, "no shards");
	ok(le_shard("x", NULL, 3) == -1, "no list");
	ok(le_shard(NULL, three, 3) == -1, "no name");
	ok(le_shard("x", hole, 2) == -1, "a shard without a name");
	ok(le_shard("x", three, 1) == 0, "a single shard has all names");
}

/* One more shard takes names from all others, and no other name moves. */
static void
test_spread(void)
{
	const char *const reversed[] = {"south", "north", "west", "east"};
	int count[4] = {0}, moved = 0, from[3] = {0}, different = 0;

	for (int i = 0; i < NAMES; i++)
	{
		char name[32];
		int small, large;

		snprintf(name, sizeof(name), "name %d", i);
		small = le_shard(name, four, 3);
		large = le_shard(name, four, 4);
		count[large]++;
		if (large == 3)
			from[small]++;
		else if (large != small)
			moved++;
		if (strcmp(reversed[le_shard(name, reversed, 4)], four[large]) != 0)
			different++;
	}
	ok(different == 0, "the order of the shards does not matter");
	ok(moved == 0, "names move only to the new shard");
	for (int i = 0; i < 4; i++)
		ok(count[i] > NAMES / 4 * 0.95 && count[i] < NAMES / 4 * 1.05,
		   "each of four shards has a quarter of the names");
	for (int i = 0; i < 3; i++)
		ok(from[i] > NAMES / 12 * 0.9 && from[i] < NAMES / 12 * 1.1,
		   "the new shard has taken an equal part from each other shard");
}

static void
tests(void)
{
	test_vectors();
	test_bad();
	test_spread();
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
