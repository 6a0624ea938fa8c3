/* The heap of deadlines, the hashes, and iteration by place. */
/* Promises: - */
#include "fixture.h"
#include "core/containers.h"

#define TIMERS 2000
#define LOCKS  5000

static uint32_t
random_below(uint32_t n)
{
	static uint64_t state = 42;

	state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (uint32_t) ((state >> 33) % n);
}

static bool
heap_is_ordered(void)
{
	for (uint32_t i = 0; i < core->heap.len; i++)
	{
		if (core->heap.items[i]->pos != i + 1 ||
			core->heap.items[i]->at < core->heap.items[i > 0 ? (i - 1) / 2 : 0]->at)
			return false;
	}
	return true;
}

static void
test_heap(void)
{
	static LeTimer timers[TIMERS];
	bool good = true;
	LeTime last = 0;
	int armed = 0, rung = 0;

	start();
	ok(le_heap_reserve(core, TIMERS), "reserve");
	for (int round = 0; round < 20000; round++)
	{
		LeTimer *timer = &timers[random_below(TIMERS)];

		if (random_below(4) == 0)
			le_timer_clear(core, timer);
		else
			le_timer_set(core, timer, 1 + random_below(1000));
		if (round % 100 == 0)
			good = good && heap_is_ordered();
	}
	ok(good && heap_is_ordered(), "the heap stays in order");
	for (int i = 0; i < TIMERS; i++)
		armed += timers[i].pos != 0;
	is_int(core->heap.len, armed, "the heap contains all armed timers");
	for (good = true; core->heap.len > 0; rung++)
	{
		LeTimer *timer = core->heap.items[0];

		good = good && timer->at >= last;
		last = timer->at;
		le_timer_clear(core, timer);
	}
	ok(good && rung == armed, "timers fire in order of time");
	le_timer_set(core, &timers[0], 5);
	le_timer_set(core, &timers[0], LE_NEVER);
	is_int(core->heap.len, 0, "a timer set to LE_NEVER is not armed");
	stop();
}

static void
name_of(char *name, int i)
{
	snprintf(name, 32, "lock number %d", i);
}

static void
test_many_locks(void)
{
	char name[32];
	int64_t tokens[LOCKS];
	uint32_t seen = 0;
	bool good = true;

	start();
	for (int i = 0; i < LOCKS; i++)
	{
		name_of(name, i);
		tokens[i] = apply(request(0, name, X, 0)).token;
	}
	is_int(le_core_lock_count(core), LOCKS, "the core has many locks");
	for (int i = 0; i < LOCKS; i++)
	{
		name_of(name, i);
		good = good && le_core_find_lock(core, LE_KIND_LOCK, text(name)) != NULL &&
			   le_core_find_lock(core, LE_KIND_ELECTION, text(name)) == NULL && held(name, tokens[i]);
	}
	ok(good, "each lock is found by name and by token");
	for (uint32_t i = 0; i < le_core_lock_indexes(core); i++)
		seen += le_core_lock_at(core, i) != NULL;
	is_int(seen, LOCKS, "each lock has an index");
	ok(le_core_lock_at(core, le_core_lock_indexes(core)) == NULL, "there is no lock after the last index");
	batch();
	le_core_check(core);

	for (int i = 0; i < LOCKS; i += 2)
	{
		name_of(name, i);
		release(0, name, tokens[i]);
	}
	batch();
	pass(LE_LINGER + LE_LINGER_STEP);
	is_int(le_core_lock_count(core), LOCKS / 2, "half of the locks are removed");
	for (int i = 1; i < LOCKS; i += 2)
	{
		name_of(name, i);
		good = good && held(name, tokens[i]);
	}
	ok(good, "the other half of the locks is still found");
	stop();
}

static void
test_names(void)
{
	char longest[LE_MAX_NAME];
	LeCommand cmd = {0};
	bool good = true;

	start();
	memset(longest, 'x', sizeof(longest));
	for (uint32_t len = 1; len <= LE_MAX_NAME; len++)
	{
		cmd = request(0, NULL, X, 0);
		cmd.name = (LeText){longest, len};
		good = good && apply(cmd).status == LE_OK;
	}
	ok(good, "names of every length are different names");
	is_int(le_core_lock_count(core), LE_MAX_NAME, "names of every length are as many locks");
	cmd = request(0, NULL, X, 0);
	cmd.name = (LeText){"a\0b", 3};
	apply(cmd);
	cmd.name = (LeText){"a\0c", 3};
	is_int(apply(cmd).status, LE_OK, "names that differ after a zero byte are different names");
	stop();
}

/*
 * Hashes of names: SipHash-1-3 with a key of zeros, compared with another implementation (CPython's,
 * PYTHONHASHSEED=0).
 */
static void
test_reference(void)
{
	static const struct
	{
		const char *name;
		uint64_t hash;
	} known[] = {
		{"a", UINT64_C(0x407448d2b89b1813)},
		{"1234567", UINT64_C(0xa33d651594fdae81)},
		{"12345678", UINT64_C(0x3489982430560a87)},
		{"123456789", UINT64_C(0x0fbc0f0007965fcf)},
		{"the orders of the third warehouse", UINT64_C(0x6be128e1cec51299)},
	};
	static const uint16_t one = 1;
	LeCore zeros;

	memset(&zeros, 0, sizeof(zeros));
	zeros.env.seed[1] = LE_KIND_LOCK;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		/* words of the name are read in the byte order of the processor */
		ok(*(const char *) &one == 0 ||
			   le_hash_name(&zeros, LE_KIND_LOCK, text(known[i].name)) == known[i].hash,
		   known[i].name);
}

/* Ids are assigned in sequence: each bit of the hash must be set for about half of them. */
static void
test_ids(void)
{
	bool even = true;

	for (int bit = 0; bit < 32; bit++)
	{
		int set = 0;

		for (int64_t id = FIRST; id < FIRST + 1000; id++)
			set += (le_hash_id(id) >> bit) & 1;
		even = even && set > 400 && set < 600;
	}
	ok(even, "ids in sequence use all bits of the hash");
}

static void
test_hash(void)
{
	LeCore other;
	int same = 0;

	start();
	memset(&other, 0, sizeof(other));
	other.env.seed[0] = 3;
	for (int i = 0; i < 1000; i++)
	{
		char name[32];

		name_of(name, i);
		same += (le_hash_name(core, LE_KIND_LOCK, text(name)) & 1023) ==
				(le_hash_name(&other, LE_KIND_LOCK, text(name)) & 1023);
	}
	ok(same < 20, "another seed changes the hashes");
	ok(le_hash_name(core, LE_KIND_LOCK, text("x")) != le_hash_name(core, LE_KIND_ELECTION, text("x")),
	   "another namespace changes the hash");
	stop();
}

static void
test_row_life(void)
{
	LeReply a;
	LeSlot *slot;

	start();
	a = acquire(1, "x", X);
	slot = find_token(a.token)->slot;
	batch();
	ok(slot->row.on_disk && !slot->row.dirty, "a holder has a row");
	is_int(find_token(a.token)->lsn, lsn, "a holder has the LSN of its write");
	release(1, "x", a.token);
	ok(le_next_dirty_slot(core, NULL) == slot && le_slot_holder(slot) == NULL && !slot->drop,
	   "the row of a released holder is kept");
	batch();
	a = acquire(1, "x", X);
	ok(find_token(a.token)->slot == slot, "the kept row is used again");
	release(1, "x", a.token);
	batch();
	now += LE_LINGER + LE_LINGER_STEP;
	le_core_expire(core, now, 10);
	ok(le_next_dirty_slot(core, NULL) == slot && slot->drop,
	   "a row that is unused for a while is marked for deletion");
	a = acquire(1, "x", X);
	ok(!slot->drop && le_slot_holder(slot) != NULL, "a row that is needed in the same batch is not deleted");
	batch();
	ok(held("x", a.token), "the holder with the kept row holds");
	stop();
}

/* Each lock, entry and lease reserves room for its timer, whatever their number. */
static void
test_timers(void)
{
	char name[32];

	for (uint32_t readers = 1; readers <= 2; readers++)
	{
		bool good = true;

		start();
		for (uint32_t i = 1; i <= readers; i++)
			acquire(i, "x", S);
		for (int i = 0; i < LOCKS; i++)
		{
			name_of(name, i);
			acquire(0, name, X);
			good = good && core->heap.cap >= core->locks.used + core->entries.used;
		}
		ok(good, "there is room for all timers");
		stop();
	}
}

/* A lock that is created and ends several times in a batch is freed once at the end of the batch. */
static void
test_come_and_gone(void)
{
	start();
	for (int i = 0; i < 6; i++)
	{
		const char *name = i % 2 == 0 ? "x" : "y";

		release(1, name, acquire(1, name, X).token);
	}
	is_int(le_core_lock_count(core), 2, "two locks that have ended exist until the end of the batch");
	batch();
	is_int(le_core_lock_count(core), 0, "locks that have ended are freed with the batch");
	stop();
}

int
main(void)
{
	test_heap();
	test_many_locks();
	test_names();
	test_reference();
	test_ids();
	test_hash();
	test_row_life();
	test_timers();
	test_come_and_gone();
	return done_testing();
}
