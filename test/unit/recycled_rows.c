/* The row of an unused lock is reused for another one. */
/* Promises: D */
#include "fixture.h"
#include "core/state.h"

static uint64_t inserted; /* rows */
static uint64_t recycled;

/* As the store does. */
static void
write_rows(void)
{
	le_core_recycle_rows(core, now);
	for (LeSlot *slot = NULL; (slot = le_next_dirty_slot(core, slot)) != NULL;)
	{
		recycled += slot->row.recycled;
		if (le_slot_holder(slot) != NULL && !slot->row.on_disk)
			slot->row.locator = ++inserted;
	}
	batch();
}

static LeSlot *
slot_of(LeReply granted)
{
	return find_token(granted.token)->slot;
}

static LeReply
take(const char *name)
{
	LeReply reply = acquire(1, name, X);

	write_rows();
	return reply;
}

static void
drop(const char *name, LeReply granted)
{
	release(1, name, granted.token);
	write_rows();
}

static void
wait_idle(LeTime time)
{
	now += time;
	le_core_expire(core, now, 100);
	write_rows();
}

static void
begin(void)
{
	start();
	inserted = recycled = 0;
}

static void
test_lent(void)
{
	LeReply a, b;

	begin();
	a = take("a");
	drop("a", a);
	is_int(le_core_lock_count(core), 1, "an idle lock is kept");
	wait_idle(LE_IDLE_BEFORE_RECYCLED);
	b = take("b");
	ok(slot_of(b)->row.locator == 1 && inserted == 1, "until another one takes its row");
	is_int(le_core_lock_count(core), 1, "then it goes");
	a = take("a");
	ok(slot_of(a)->row.locator == 2, "and comes back with a new row");
	wait_idle(LE_LINGER + LE_LINGER_STEP);
	ok(held("a", a.token) && held("b", b.token), "of two held locks nothing is taken");
	stop();
}

/* The one that has been idle longest, and not before a while. */
static void
test_longest(void)
{
	LeReply a, b, c;

	begin();
	a = take("a");
	b = take("b");
	drop("a", a);
	drop("b", b);
	c = take("c");
	is_int(slot_of(c)->row.locator, 3, "a row that has just become idle is not recycled");
	wait_idle(LE_IDLE_BEFORE_RECYCLED - 1);
	a = take("a");
	is_int(slot_of(a)->row.locator, 1, "its own lock finds it again");
	drop("a", a);
	wait_idle(1);
	is_int(slot_of(take("d"))->row.locator, 2, "the one is recycled that has been idle longest");
	is_int(slot_of(take("e"))->row.locator, 4, "not the one that was used meanwhile");
	wait_idle(LE_IDLE_BEFORE_RECYCLED);
	is_int(slot_of(take("f"))->row.locator, 1, "until it has been idle for as long");
	ok(held("c", c.token), "and none that is in use");
	stop();
}

/* Freed and wanted in one batch. */
static void
test_same_batch(void)
{
	LeReply a, b;
	LeSlot *old;

	begin();
	a = take("a");
	old = slot_of(a);
	drop("a", a);
	wait_idle(LE_IDLE_BEFORE_RECYCLED);
	a = acquire(1, "a", X);
	b = acquire(1, "b", X);
	write_rows();
	ok(slot_of(a) == old && old->row.locator == 1, "a lock that is wanted again keeps its row");
	is_int(slot_of(b)->row.locator, 2, "the other one gets a new one");
	drop("a", a);
	drop("b", b);
	is_int((int64_t) recycled, 0, "nothing was recycled");
	wait_idle(LE_IDLE_BEFORE_RECYCLED);
	take("c");
	take("d");
	is_int((int64_t) (recycled * 10 + inserted), 22, "two rows serve two more locks");
	is_int(le_core_lock_count(core), 2, "whose names have gone");
	stop();
}

/* One is released and the other acquired, in one batch. */
static LeReply
change(const char *from, LeReply granted, const char *to)
{
	LeReply reply;

	release(1, from, granted.token);
	reply = acquire(1, to, X);
	write_rows();
	return reply;
}

static void
test_handed_over(void)
{
	LeReply a, b;

	begin();
	a = take("a");
	b = change("a", a, "b");
	ok(slot_of(b)->row.locator == 1 && inserted == 1, "a row that becomes idle serves the next lock at once");
	is_int(le_core_lock_count(core), 1, "whose predecessor goes");
	a = change("b", b, "a");
	is_int(slot_of(a)->row.locator, 1, "and once more");
	b = change("a", a, "b");
	is_int(slot_of(b)->row.locator, 2, "but a name that came back keeps its row");
	a = change("b", b, "a");
	is_int(slot_of(a)->row.locator, 1, "so few names cycle on rows of their own");
	b = change("a", a, "b");
	ok(slot_of(b)->row.locator == 2 && inserted == 2, "both of them");
	drop("b", b);
	wait_idle(LE_IDLE_BEFORE_RECYCLED);
	is_int(slot_of(take("c"))->row.locator, 3, "and keep them");
	wait_idle(LE_IDLE_BEFORE_RECYCLED);
	is_int(slot_of(take("d"))->row.locator, 1, "until they are idle for a while");
	stop();
}

static void
test_not_lent(void)
{
	LeReply a, b, c, s1, s2;
	LeCommand cmd;
	uint64_t freed;

	begin();
	a = take("a");
	b = campaign(1, "e", "me");
	write_rows();

	/* it was idle once, and is remembered */
	drop("a", a);
	a = take("a");
	cmd = command(LE_CMD_RELEASE, 1, "a");
	cmd.token = a.token;
	cmd.hold_for = 10 * LE_SECOND;
	apply(cmd);
	resign(1, "e", b.token);
	write_rows();
	wait_idle(LE_IDLE_BEFORE_RECYCLED);
	c = take("c");
	is_int(slot_of(c)->row.locator, 3,
		   "a row is not recycled that says when its lock is free, nor an election's");

	drop("c", c);
	wait_idle(LE_LINGER + LE_LINGER_STEP);
	ok(le_core_find_lock(core, LE_KIND_LOCK, text("c")) == NULL, "an idle row is deleted in the end");
	is_int(slot_of(take("new"))->row.locator, 4, "and is not recycled then");

	s1 = acquire(1, "s", S);
	s2 = acquire(2, "s", S);
	write_rows();
	freed = slot_of(s1)->row.locator;
	release(1, "s", s1.token);
	write_rows();
	wait_idle(LE_IDLE_BEFORE_RECYCLED);
	is_int((int64_t) slot_of(take("t"))->row.locator, (int64_t) freed,
		   "a free slot of a lock that is in use gives its row away");
	ok(held("s", s2.token), "and the lock stays");
	s1 = acquire(1, "s", S);
	write_rows();
	is_int(slot_of(s1)->row.locator, 7, "the slot gets another one");
	stop();
}

/* Idle rows are remembered by their slot, which an election may have by now. */
static void
test_election_in_its_place(void)
{
	LeReply a;
	LeSlot *slot;

	begin();
	a = take("a");
	slot = slot_of(a);
	drop("a", a);
	wait_idle(LE_LINGER + LE_LINGER_STEP);
	is_int(le_core_lock_count(core), 0, "an idle lock has gone");
	a = campaign(1, "e", "me");
	write_rows();
	ok(slot_of(a) == slot, "an election has its slot");
	resign(1, "e", a.token);
	write_rows();
	wait_idle(LE_IDLE_BEFORE_RECYCLED);
	is_int(slot_of(take("b"))->row.locator, 3, "and keeps its row");
	stop();
}

/* More idle locks than are remembered, and each of them gives its row away once. */
static void
test_many(void)
{
	enum
	{
		MANY = LE_MAX_IDLE + 50
	};
	static LeReply replies[2][MANY];
	static bool taken[2 * MANY + 1];
	bool good = true;
	char name[32];

	begin();
	for (int round = 0; round < 2; round++)
	{
		for (int i = 0; i < MANY; i++)
		{
			snprintf(name, sizeof(name), "%d %d", round, i);
			replies[round][i] = acquire(1, name, X);
		}
		write_rows();
		for (int i = 0; i < MANY && round == 0; i++)
		{
			snprintf(name, sizeof(name), "%d %d", round, i);
			release(1, name, replies[round][i].token);
		}
		write_rows();
		now += LE_IDLE_BEFORE_RECYCLED;
	}
	for (int i = 0; i < MANY; i++)
	{
		uint64_t row = slot_of(replies[1][i])->row.locator;

		good = good && !taken[row];
		taken[row] = true;
	}
	is_int((int64_t) recycled, LE_MAX_IDLE, "as many rows are recycled as are remembered");
	ok(good, "each of them once");
	pass(LE_LINGER + LE_LINGER_STEP);
	is_int(le_core_lock_count(core), MANY, "the others are deleted");
	stop();
}

int
main(void)
{
	test_lent();
	test_longest();
	test_same_batch();
	test_handed_over();
	test_not_lent();
	test_election_in_its_place();
	test_many();
	return done_testing();
}
