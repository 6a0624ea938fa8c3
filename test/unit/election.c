/* Changes of elections: one each, in order, with the correct value and term. */
/* Promises: H */
#include "fixture.h"

/*
 * The changes of this batch in short: E (elected), P (proclaimed), or R, X, V, F, U, D for the way in which a
 * term ended, each with the value.
 */
static const char *
story(void)
{
	static char told_so_far[256];
	size_t n = 0;

	for (LeChange *c = NULL; (c = le_next_change(core, c)) != NULL;)
	{
		told_so_far[n++] = "?EPRXVFUD"[c->how];
		memcpy(told_so_far + n, c->value, c->value_len);
		n += c->value_len;
		told_so_far[n++] = ' ';
	}
	told_so_far[n] = '\0';
	return told_so_far;
}

static bool
story_is(const char *expected)
{
	bool same = strcmp(story(), expected) == 0;

	if (!same)
		printf("# %s\n", story());
	batch();
	return same;
}

static void
test_changes(void)
{
	LeReply a, b;
	int64_t last;
	LeChange *c;

	start();
	a = campaign(1, "e", "one");
	c = le_next_change(core, NULL);
	ok(c->number > a.token && c->term == a.token && c->previous == 0,
	   "a change has its own revision, term and previous change");
	ok(c->elected_at == now && c->at == now && !c->place, "a change has its times");
	last = c->number;
	ok(story_is("Eone "), "an election is a change");
	now += LE_SECOND;
	on_term(LE_CMD_PROCLAIM, 1, "e", a.token, "uno");
	c = le_next_change(core, NULL);
	ok(c->previous == last && c->number > last && c->elected_at == now - LE_SECOND,
	   "a change refers to the previous one");
	on_term(LE_CMD_PROCLAIM, 1, "e", a.token, "eins");
	ok(story_is("Puno Peins "), "each proclamation is a change with its value");
	b = campaign(2, "e", "two");
	ok(story_is(""), "a waiting candidate is no change");
	resign(1, "e", a.token);
	ok(story_is("Reins Etwo "), "a hand-over is two changes");
	is_int(on_term(LE_CMD_PROCLAIM, 1, "e", a.token, "late").status, LE_NOT_HELD,
		   "a past term cannot proclaim");
	is_int(resign(1, "e", a.token).status, LE_NOT_HELD, "a past term cannot resign");
	ok(story_is(""), "a failed resignation is no change");
	now += TTL;
	(void) le_core_expire(core, now, 100);
	ok(story_is("Xtwo "), "an expiry is a change");
	(void) b;
	stop();
}

/* Each command reserves room for all changes of the batch, because later steps must not fail. */
static void
test_many_candidates(void)
{
	char name[16];
	int64_t lease;
	int n = 0;

	start();
	lease = grant_lease(TTL);
	for (int i = 0; i < 600; i++)
	{
		LeCommand cmd;

		snprintf(name, sizeof(name), "e%d", i);
		cmd = candidate(1, name, "v");
		cmd.lease = lease;
		apply(cmd);
		if (i % 50 == 0)
			batch();
	}
	le_core_check(core);
	batch();
	on_lease(LE_CMD_REVOKE_LEASE, lease);
	for (LeChange *c = NULL; (c = le_next_change(core, c)) != NULL;)
		n++;
	is_int(n, 600, "each of many terms that end at once is a change");
	batch();
	stop();
}

/*
 * Ends that a session mails reserve no memory, although each candidate of a batch can still be elected and
 * end.
 */
static void
test_all_end(void)
{
	enum
	{
		N = SESSIONS - 1
	};
	int elections = 0, ended = 0;

	start();
	for (int e = 0; e < 10; e++)
	{
		for (int i = 0; i < N; i++)
		{
			LeCommand cmd = candidate((uint32_t) i, (const char[]){(char) ('a' + e), '\0'}, "v");

			cmd.ttl = LE_TTL_BOUND;
			cmd.enqueue = true;
			apply(cmd);
		}
	}
	batch();
	apply(command(LE_CMD_CHECK, 0, "a"));
	allocations_left = 0;
	for (int i = 0; i < N; i++)
	{
		LeCommand cmd = command(LE_CMD_SESSION_END, (uint32_t) i, NULL);
		LeReply reply = {0};

		le_core_apply(core, &cmd, now, &reply);
	}
	allocations_left = -1;
	for (LeChange *c = NULL; (c = le_next_change(core, c)) != NULL;)
	{
		if (c->how == LE_HOW_ELECTED)
			elections++;
		else
			ended++;
	}
	ok(elections == 10 * (N - 1) && ended == 10 * N, "each candidate is elected, and ends, without memory");
	batch();
	stop();
}

/* Grants of places are announced to waiters outside of the server. */
static void
test_place(void)
{
	LeCommand cmd = candidate(1, "e", "v");
	int64_t term;

	start();
	cmd.enqueue = true;
	term = apply(cmd).token;
	ok(le_next_change(core, NULL)->place, "the change of a granted place is marked");
	batch();
	resign(1, "e", term);
	batch();
	stop();
}

static void
test_ends(void)
{
	LeCommand cmd;
	int64_t lease;

	start();
	campaign(1, "e", "a");
	undo(1, 1);
	ok(story_is("Ea Ua "), "undone");
	cmd = candidate(1, "e", "b");
	cmd.ttl = LE_TTL_BOUND;
	apply(cmd);
	end_session(1);
	ok(story_is("Eb Db "), "disconnected");
	lease = grant_lease(TTL);
	cmd = candidate(2, "e", "c");
	cmd.lease = lease;
	apply(cmd);
	on_lease(LE_CMD_REVOKE_LEASE, lease);
	ok(story_is("Ec Vc "), "revoked");
	campaign(3, "e", "d");
	cmd = command(LE_CMD_FORCE, 4, "e");
	cmd.kind = LE_KIND_ELECTION;
	cmd.any_role = true;
	apply(cmd);
	ok(story_is("Ed Fd "), "forced");
	acquire(5, "e", X);
	ok(story_is(""), "a lock of the same name creates no change");
	stop();
}

static void
test_again(void)
{
	LeCommand cmd;
	LeReply a, b;

	start();
	cmd = candidate(1, "e", "one");
	cmd.owner = text("w");
	a = apply(cmd);
	commit(1);
	acquire(1, "its next transaction", X);
	cmd = candidate(2, "e", "two");
	cmd.owner = text("w");
	cmd.ttl = 2 * TTL;
	b = apply(cmd);
	ok(b.status == LE_OK && b.token == a.token && b.reentrant && !b.counted,
	   "the same owner has the same term");
	is_int(b.valid_for, 2 * TTL, "the longer TTL counts");
	ok(story_is("Eone Ptwo "), "the second campaign of the owner is a proclamation");
	b = apply(cmd);
	ok(b.token == a.token && story_is(""), "a campaign with the same value is no change");
	undo(2, 1);
	is_int(resign(2, "e", a.token).status, LE_OK, "one resignation ends the term");
	ok(story_is("Rtwo "), "one resignation ends all holds of the term");

	/* the second hold is counted as long as the first can be undone */
	cmd = candidate(3, "f", "x");
	cmd.owner = text("w");
	a = apply(cmd);
	cmd.session++;
	cmd.sessno++;
	ok(apply(cmd).counted, "the second hold is counted while the first is not committed");
	undo(3, 1);
	ok(story_is("Ex "), "the second hold survives the rollback of the first");
	is_int(resign(4, "f", a.token).status, LE_OK, "the second hold ends with one resignation");
	ok(story_is("Rx "), "the resignation of the second hold is a change");
	stop();
}

/* Waiters of the same owner join the new leader, and the value of the last one counts. */
static void
test_joined(void)
{
	LeReply a;

	start();
	a = campaign(1, "e", "one");
	for (uint32_t i = 2; i < 5; i++)
	{
		char *value = (char[]){(char) ('0' + i), '\0'};
		LeCommand cmd = candidate(i, "e", value);

		cmd.owner = text("w");
		apply(cmd);
	}
	batch();
	resign(1, "e", a.token);
	ok(story_is("Rone E2 P3 P4 "), "each joined waiter is a proclamation of its value");
	stop();
}

static void
test_many(void)
{
	char name[2] = "a";
	int64_t lease;
	uint32_t n = 0;

	start();
	lease = grant_lease(TTL);
	for (uint32_t i = 0; i < 20; i++)
	{
		LeCommand cmd = candidate(1, name, "leader");

		name[0] = (char) ('a' + i);
		cmd.name = text(name);
		cmd.lease = lease;
		apply(cmd);
		campaign(2 + i, name, "next");
		batch();
	}
	on_lease(LE_CMD_REVOKE_LEASE, lease);
	for (LeChange *c = NULL; (c = le_next_change(core, c)) != NULL;)
		n++;
	is_int(n, 40, "the end of one lease ends 40 terms, each with a change");
	batch();
	stop();
}

static void
test_loaded(void)
{
	LeStoredEntry row;
	LeChange *c;

	start_load();
	le_core_raise_revision(core, FIRST + 100);
	row = stored("kept", FIRST + 1, X);
	row.kind = LE_KIND_ELECTION;
	row.value = text("k");
	row.since -= LE_SECOND;
	load_slot(row);
	row.name = text("bound");
	row.value = text("b");
	row.token = FIRST + 2;
	row.ttl = LE_TTL_BOUND;
	load_slot(row);
	row.name = text("leased");
	row.value = text("l");
	row.token = FIRST + 3;
	row.ttl = TTL;
	row.lease = FIRST + 4;
	load_slot(row);
	load_done();
	c = le_next_change(core, NULL);
	ok(c->term == FIRST + 2 && c->elected_at == now - LE_SECOND && c->number >= FIRST + 100,
	   "a loaded leader whose lease has expired ends with a change");
	ok(story_is("Db Xl "), "the changes name the reasons of the ends");
	stop();
}

/* The time of day was set back while a leader was bound to its connection. */
static void
test_loaded_from_tomorrow(void)
{
	LeStoredEntry row;
	LeChange *c;

	start_load();
	le_core_raise_revision(core, FIRST + 100);
	row = stored("bound", FIRST + 2, X);
	row.kind = LE_KIND_ELECTION;
	row.value = text("b");
	row.ttl = LE_TTL_BOUND;
	row.since += 86400 * LE_SECOND;
	load_slot(row);
	load_done();
	c = le_next_change(core, NULL);
	ok(c->term == FIRST + 2 && c->elected_at == now && c->at == now, "a term does not end before it begins");
	stop();
}

static void
test_out_of_memory(void)
{
	LeCommand cmd = candidate(1, "e", "one");
	int64_t failures = -1;
	bool good;

	start();
	do
	{
		allocations_left = ++failures;
		good = le_core_reserve(core, &cmd);
		allocations_left = -1;
		le_core_check(core);
	} while (!good);
	ok(failures > 5, "a candidacy that fails at any allocation changes nothing");
	stop();
}

int
main(void)
{
	test_changes();
	test_many_candidates();
	test_all_end();
	test_place();
	test_ends();
	test_again();
	test_joined();
	test_many();
	test_loaded();
	test_loaded_from_tomorrow();
	test_out_of_memory();
	return done_testing();
}
