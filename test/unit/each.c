/* Several independent names in one command: like several commands, or an error that changes nothing. */
/* Promises: - */
#include "fixture.h"

#define N 5

static const LeText names[N] = {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}};

/* What there is already, and how the names are asked for. */
typedef struct
{
	const char *title;
	int held;       /* so many of the names are held, by this session and owner */
	bool committed; /* ... in a transaction that is over */
	bool others;    /* the last two are another session's */
	bool enqueue;
	const char *owner;
} situation;

static const situation situations[] = {
	{.title = "free names"},
	{.title = "free names, places", .enqueue = true},
	{.title = "held in this transaction", .held = 3, .others = true},
	{.title = "held by the owner", .held = 3, .committed = true, .owner = "o"},
	{.title = "held by the owner in this transaction", .held = 5, .owner = "o"},
	{.title = "somebody else's", .others = true},
	{.title = "somebody else's, places", .others = true, .enqueue = true},
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

/* One after the other: how many there are before the first error, and that one. */
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

/* Is it the same in one command? */
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

/* At every bound: each of these limits is reached in every way. */
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
	is_int(wrong, 0, "... by number");
	wrong = 0;
	for (int64_t n = 0; n < 3; n++)
		wrong += !is_same(s, &(LeLimits){.waiters_per_lock = n});
	is_int(wrong, 0, "... of those who wait");
}

int
main(void)
{
	for (size_t i = 0; i < sizeof(situations) / sizeof(situations[0]); i++)
		test_bounds(&situations[i]);
	return done_testing();
}
