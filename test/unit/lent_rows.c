/* The row of a lock that has become idle serves the next new one. */
#include "fixture.h"
#include "core/internal.h"

static uint64_t places; /* rows that were ever inserted */

/* As the store does: a slot without a row gets a new place. */
static void
write_rows(void)
{
	for (LeSlot *slot = le_core_dirty_slots(core); slot != NULL; slot = slot->dirty_next)
	{
		if (slot->holder != NULL && !slot->row.on_disk)
			slot->row.locator = ++places & 0xffffff;
	}
	batch();
}

static LeSlot *
slot_of(LeReply granted)
{
	return le_core_find_token(core, granted.token)->slot;
}

static void
begin(void)
{
	start();
	places = 0;
}

static void
test_lent(void)
{
	LeReply a, b;

	begin();
	a = acquire(1, "a", X);
	write_rows();
	release(1, "a", a.token);
	write_rows();
	is_int(le_core_lock_count(core), 1, "an idle lock is kept");
	b = acquire(1, "b", X);
	ok(slot_of(b)->row.on_disk && slot_of(b)->row.locator == 1, "until another one takes its row");
	write_rows();
	is_int(le_core_lock_count(core), 1, "then it goes");
	a = acquire(2, "a", X);
	ok(!slot_of(a)->row.on_disk, "and comes back as a new one");
	write_rows();
	is_int((int64_t) places, 2, "two held locks, two rows");
	pass(LE_LINGER + LE_LINGER_STEP);
	ok(held("a", a.token) && held("b", b.token), "of which nothing is taken");
	stop();
}

static void
test_same_batch(void)
{
	LeReply a, b, again;
	LeSlot *old;

	begin();
	a = acquire(1, "a", X);
	write_rows();
	old = slot_of(a);
	release(1, "a", a.token);
	b = acquire(1, "b", X);
	ok(!old->row.on_disk && slot_of(b)->row.locator == 1,
	   "a release and an acquire are one write of one row");
	again = acquire(2, "a", X);
	ok(slot_of(again) == old && !old->row.on_disk, "who wants the first one in the same batch");
	write_rows();
	ok(old->row.on_disk && old->row.locator == 2, "has a row of its own");
	ok(held("a", again.token) && held("b", b.token), "both are held");
	is_int(le_core_lock_count(core), 2, "and there");
	stop();
}

static void
test_not_lent(void)
{
	LeReply a, b, c;
	LeCommand cmd;

	begin();
	a = acquire(1, "a", X);
	b = campaign(1, "e", "me");
	write_rows();

	/* it was idle once, and is remembered */
	release(1, "a", a.token);
	write_rows();
	a = acquire(1, "a", X);
	write_rows();
	cmd = command(LE_CMD_RELEASE, 1, "a");
	cmd.token = a.token;
	cmd.hold_for = 10 * LE_SECOND;
	apply(cmd);
	resign(1, "e", b.token);
	write_rows();
	c = acquire(1, "c", X);
	ok(!slot_of(c)->row.on_disk, "a row is not lent that says when its lock is free, nor an election's");
	write_rows();

	release(1, "c", c.token);
	write_rows();
	c = acquire(1, "c", X);
	write_rows();
	b = acquire(1, "b", X);
	ok(!slot_of(b)->row.on_disk, "nor one that is in use again");
	write_rows();

	release(1, "c", c.token);
	release(1, "b", b.token);
	write_rows();
	pass(LE_LINGER + LE_LINGER_STEP);
	a = acquire(1, "new", X);
	ok(!slot_of(a)->row.on_disk, "nor one that was deleted");
	stop();
}

/* Idle locks are remembered by their place, which an election may have by now. */
static void
test_election_in_its_place(void)
{
	LeReply a;

	begin();
	a = acquire(1, "a", X);
	write_rows();
	release(1, "a", a.token);
	write_rows();
	pass(LE_LINGER + LE_LINGER_STEP);
	is_int(le_core_lock_count(core), 0, "an idle lock has gone");
	a = campaign(1, "e", "me");
	write_rows();
	resign(1, "e", a.token);
	write_rows();
	a = acquire(1, "b", X);
	ok(!slot_of(a)->row.on_disk, "the election in its place keeps its row");
	stop();
}

/* More idle locks than are remembered, and each of them lends its row once. */
static void
test_many(void)
{
	enum
	{
		MANY = IDLE_LOCKS + 50
	};
	LeReply first[MANY], second[MANY];
	bool taken[MANY + 1] = {false}, good = true;
	int lent = 0;

	begin();
	for (int round = 0; round < 2; round++)
	{
		LeReply *replies = round == 0 ? first : second;

		for (int i = 0; i < MANY; i++)
		{
			char name[32];

			snprintf(name, sizeof(name), "%s %d", round == 0 ? "first" : "second", i);
			replies[i] = acquire(1, name, X);
			if (round == 1 && slot_of(replies[i])->row.on_disk)
			{
				good = good && !taken[slot_of(replies[i])->row.locator];
				taken[slot_of(replies[i])->row.locator] = true;
				lent++;
			}
		}
		write_rows();
		for (int i = 0; i < MANY && round == 0; i++)
		{
			char name[32];

			snprintf(name, sizeof(name), "first %d", i);
			release(1, name, first[i].token);
		}
		write_rows();
	}
	is_int(lent, IDLE_LOCKS, "as many rows are lent as idle locks are remembered");
	ok(good, "each of them once");
	pass(LE_LINGER + LE_LINGER_STEP);
	is_int(le_core_lock_count(core), MANY, "the others are deleted");
	stop();
}

int
main(void)
{
	test_lent();
	test_same_batch();
	test_not_lent();
	test_election_in_its_place();
	test_many();
	return done_testing();
}
