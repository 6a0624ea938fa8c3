/* Several independent names in one command: like several commands, or an error that changes nothing. */
/* Promises: - */
#include "fixture.h"

#define N 5

static const LeText names[N] = {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}};

/* The initial state, and the form of the request. */
typedef struct
{
	const char *title;
	int held;       /* number of names that are held by this session and owner */
	bool committed; /* they are held by a committed transaction */
	bool others;    /* the last two names are held by another session */
	bool enqueue;
	const char *owner;
} situation;

static const situation situations[] = {
	{.title = "free names"},
	{.title = "free names, places", .enqueue = true},
	{.title = "held in this transaction", .held = 3, .others = true},
	{.title = "held by the owner", .held = 3, .committed = true, .owner = "o"},
	{.title = "held by the owner in this transaction", .held = 5, .owner = "o"},
	{.title = "held by another session", .others = true},
	{.title = "held by another session, places", .others = true, .enqueue = true},
};

static LeCommand
ask(const situation *s)
{
	LeCommand cmd = request(1, NULL, X, 0);

	cmd.owner = text(s->owner);
	cmd.enqueue = s->enqueue;
	return cmd;
}

static void
prepare(const situation *s, const LeLimits *limits)
{
	start();
	for (int i = 0; i < s->held; i++)
	{
		LeCommand cmd = ask(s);

		cmd.name = names[i];
		cmd.enqueue = false;
		apply(cmd);
	}
	if (s->others)
	{
		acquire(2, "d", X);
		acquire(2, "e", X);
	}
	if (s->committed)
		commit(1);
	batch();
	le_core_set_limits(core, limits);
}

/* Sends one command for each name: returns the number of commands before the first error, and that error. */
static uint32_t
one_by_one(const situation *s, LeStatus *status, LeStatus *each)
{
	for (uint32_t i = 0; i < N; i++)
	{
		LeCommand cmd = ask(s);

		cmd.name = names[i];
		each[i] = *status = apply(cmd).status;
		if (*status != LE_OK && *status != LE_NOT_GRANTED && *status != LE_QUEUED)
			return i;
	}
	*status = LE_OK;
	return N;
}

/* Checks that one command for all names has the same result. */
static bool
is_same(const situation *s, const LeLimits *limits)
{
	LeCommand cmd;
	LeStatus expected, each[N];
	LeReply all, replies[N];
	uint32_t before;
	int64_t revision;
	bool same, wrote = false, counted = false;

	prepare(s, limits);
	before = one_by_one(s, &expected, each);
	batch();
	le_core_destroy(core);

	prepare(s, limits);
	revision = le_core_next_revision(core);
	cmd = ask(s);
	cmd.names = names;
	cmd.nnames = N;
	cmd.each = true;
	if (!le_core_reserve(core, &cmd))
		abort();
	le_core_apply_each(core, &cmd, now, replies, &all);
	same = all.status == expected;
	if (same && expected != LE_OK)
		same = all.which == before && le_core_next_revision(core) == revision;
	for (uint32_t i = 0; same && expected == LE_OK && i < N; i++)
	{
		same = replies[i].status == each[i];
		wrote |= replies[i].wrote;
		counted |= replies[i].counted;
	}
	same = same && (expected != LE_OK || (all.wrote == wrote && all.counted == counted));
	le_core_check(core);
	batch();
	le_core_destroy(core);
	return same;
}

/* Sets each of these limits to every value at which it can be reached. */
static void
test_bounds(const situation *s)
{
	int wrong = 0;

	for (int64_t bytes = 8; bytes < 6000; bytes += 8)
		wrong += !is_same(s, &(LeLimits){.bytes_per_role = bytes});
	is_int(wrong, 0, s->title);
	wrong = 0;
	for (int64_t n = 1; n < 14; n++)
		wrong += !is_same(s, &(LeLimits){.locks_per_role = n});
	is_int(wrong, 0, "same result at every limit of locks");
	wrong = 0;
	for (int64_t n = 0; n < 3; n++)
		wrong += !is_same(s, &(LeLimits){.waiters_per_lock = n});
	is_int(wrong, 0, "same result at every limit of waiters");
}

int
main(void)
{
	for (size_t i = 0; i < sizeof(situations) / sizeof(situations[0]); i++)
		test_bounds(&situations[i]);
	return done_testing();
}
