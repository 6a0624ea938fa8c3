/* The row of an unused lock is reused for another one. */
/* Promises: D */
#include "fixture.h"
#include "core/state.h"

static uint64_t inserted; /* rows */
static uint64_t recycled;

/* Simulates the store. */
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
	ok(slot_of(b)->row.locator == 1 && inserted == 1, "another lock gets the row of an idle lock");
	is_int(le_core_lock_count(core), 1, "a lock whose row was recycled is removed");
	a = take("a");
	ok(slot_of(a)->row.locator == 2, "a removed lock gets a new row");
	wait_idle(LE_LINGER + LE_LINGER_STEP);
	ok(held("a", a.token) && held("b", b.token), "rows of held locks are not recycled");
	stop();
}

/* The lock that has been idle longest gives its row away, but not before a while. */
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
	is_int(slot_of(a)->row.locator, 1, "an idle lock that is acquired again keeps its row");
	drop("a", a);
	wait_idle(1);
	is_int(slot_of(take("d"))->row.locator, 2, "the row that has been idle longest is recycled");
	is_int(slot_of(take("e"))->row.locator, 4, "a row that was used meanwhile is not recycled");
	wait_idle(LE_IDLE_BEFORE_RECYCLED);
	is_int(slot_of(take("f"))->row.locator, 1, "a row is recycled when it has been idle for long enough");
	ok(held("c", c.token), "a row in use is not recycled");
	stop();
}

/* A row becomes idle, and is needed, in the same batch. */
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
	ok(slot_of(a) == old && old->row.locator == 1, "a lock that is acquired again keeps its row");
	is_int(slot_of(b)->row.locator, 2, "another lock gets a new row");
	drop("a", a);
	drop("b", b);
	is_int((int64_t) recycled, 0, "no row was recycled before");
	wait_idle(LE_IDLE_BEFORE_RECYCLED);
	take("c");
	take("d");
	is_int((int64_t) (recycled * 10 + inserted), 22, "two rows are recycled for two more locks");
	is_int(le_core_lock_count(core), 2, "the locks whose rows were recycled are removed");
	stop();
}

/* Releases one lock and acquires another one in the same batch. */
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
	ok(slot_of(b)->row.locator == 1 && inserted == 1,
	   "a row that becomes idle is recycled in the same batch");
	is_int(le_core_lock_count(core), 1, "the lock that had the recycled row is removed");
	a = change("b", b, "a");
	is_int(slot_of(a)->row.locator, 1, "the row is recycled a second time");
	b = change("a", a, "b");
	is_int(slot_of(b)->row.locator, 2, "a name that was acquired again keeps its row");
	a = change("b", b, "a");
	is_int(slot_of(a)->row.locator, 1, "a name in a cycle keeps its row");
	b = change("a", a, "b");
	ok(slot_of(b)->row.locator == 2 && inserted == 2, "both names of a cycle keep their rows");
	drop("b", b);
	wait_idle(LE_IDLE_BEFORE_RECYCLED);
	is_int(slot_of(take("c"))->row.locator, 3, "a third name does not get the row of a cycle");
	wait_idle(LE_IDLE_BEFORE_RECYCLED);
	is_int(slot_of(take("d"))->row.locator, 1,
		   "a row of a cycle is recycled when it has been idle for a while");
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

	/* it was idle once, and is still remembered */
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
	is_int(slot_of(c)->row.locator, 3, "the rows of a closed name and of an election are not recycled");

	drop("c", c);
	wait_idle(LE_LINGER + LE_LINGER_STEP);
	ok(le_core_find_lock(core, LE_KIND_LOCK, text("c")) == NULL, "an idle row is deleted after a while");
	is_int(slot_of(take("new"))->row.locator, 4, "a deleted row is not recycled");

	s1 = acquire(1, "s", S);
	s2 = acquire(2, "s", S);
	write_rows();
	freed = slot_of(s1)->row.locator;
	release(1, "s", s1.token);
	write_rows();
	wait_idle(LE_IDLE_BEFORE_RECYCLED);
	is_int((int64_t) slot_of(take("t"))->row.locator, (int64_t) freed,
		   "the row of a free slot is recycled although its lock is in use");
	ok(held("s", s2.token), "the lock of the recycled row stays");
	s1 = acquire(1, "s", S);
	write_rows();
	is_int(slot_of(s1)->row.locator, 7, "the slot gets another row");
	stop();
}

/* Idle rows are remembered by their slot, which can belong to an election when it is recycled. */
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
	is_int(le_core_lock_count(core), 0, "the idle lock is removed");
	a = campaign(1, "e", "me");
	write_rows();
	ok(slot_of(a) == slot, "an election uses the same slot");
	resign(1, "e", a.token);
	write_rows();
	wait_idle(LE_IDLE_BEFORE_RECYCLED);
	is_int(slot_of(take("b"))->row.locator, 3, "the election keeps its row");
	stop();
}

/* More idle locks than can be remembered; each row is recycled at most once. */
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
	is_int((int64_t) recycled, LE_MAX_IDLE, "all remembered rows are recycled");
	ok(good, "each remembered row is recycled once");
	pass(LE_LINGER + LE_LINGER_STEP);
	is_int(le_core_lock_count(core), MANY, "the other idle locks are removed");
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
