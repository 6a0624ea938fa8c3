/* News of a lease: a client that reads them knows everything on its lease, whatever it has missed. */
/* Promises: G */
#include "fixture.h"

#define NAMES 6
#define MOST  64

static const char *const names[NAMES] = {"a", "b", "c", "d", "e", "f"};
static int64_t lease_id;
static uint64_t seen;
static uint32_t walked;

/* The state that the client assumes. */
static int64_t known[MOST];
static bool known_held[MOST];
static int nknown;

static LeLease *
lease(void)
{
	return le_core_find_lease(core, lease_id);
}

static LeReply
ask(const char *name, bool place)
{
	LeCommand cmd = request(1, name, X, 0);

	cmd.lease = lease_id;
	cmd.enqueue = place;
	return apply(cmd);
}

static void
force(const char *name)
{
	LeCommand cmd = command(LE_CMD_FORCE, 3, name);

	cmd.any_role = true;
	(void) apply(cmd);
}

static void
believe(int64_t token, bool held)
{
	int i = 0;

	while (i < nknown && known[i] != token)
		i++;
	if (i == nknown)
		nknown++;
	known[i] = token;
	known_held[i] = held;
}

static bool
forget(int64_t token)
{
	for (int i = 0; i < nknown; i++)
	{
		if (known[i] != token)
			continue;
		nknown--;
		known[i] = known[nknown];
		known_held[i] = known_held[nknown];
		return true;
	}
	return false;
}

/* Reads at most this many news since the client's last read, and the losses in between, in order. */
static bool
look(int most)
{
	LeEntry *entry;
	uint32_t nloss = 0;
	uint64_t since;

	if (!le_news_kept(lease(), seen))
	{
		seen = 0;
		nknown = 0;
	}
	since = seen;
	entry = le_news_after(lease(), since, NULL, &walked);
	for (; most > 0; most--)
	{
		const LeLoss *loss = le_news_loss(lease(), since, nloss);

		if (loss == NULL && entry == NULL)
			return false;
		if (loss != NULL && (entry == NULL || loss->number < entry->news))
		{
			nloss++;
			(void) forget(loss->token);
			seen = loss->number;
			continue;
		}
		if (entry->state == LE_STATE_HELD || entry->place)
			believe(entry->token, entry->state == LE_STATE_HELD);
		seen = entry->news;
		entry = le_news_after(lease(), since, entry, &walked);
	}
	return true;
}

/* Returns whether the client's assumed state is the real one. */
static bool
believes_truth(void)
{
	int there = 0;

	for (const LeLink *link = lease()->entries.next; link != &lease()->entries; link = link->next)
	{
		const LeEntry *entry = le_container(link, LeEntry, lease_link);
		int i = 0;

		if (entry->state == LE_STATE_LAPSED || (entry->state == LE_STATE_QUEUED && !entry->place))
			continue;
		there++;
		while (i < nknown && known[i] != entry->token)
			i++;
		if (i == nknown || known_held[i] != (entry->state == LE_STATE_HELD))
			return false;
	}
	return there == nknown;
}

static void
begin(void)
{
	start();
	lease_id = grant_lease(24 * 3600 * LE_SECOND);
	seen = 0;
	nknown = 0;
	batch();
}

static void
test_each_kind(void)
{
	LeReply held, place, other;

	begin();
	ok(le_news_after(lease(), 0, NULL, &walked) == NULL && le_news_loss(lease(), 0, 0) == NULL,
	   "a new lease has no news");
	held = ask("a", false);
	ok(le_news_after(lease(), 0, NULL, &walked)->token == held.token, "a grant is news");
	other = acquire(2, "b", X);
	place = ask("b", true);
	seen = lease()->newest;
	ok(le_news_after(lease(), seen, NULL, &walked) == NULL, "seen news are not returned");
	release(2, "b", other.token);
	ok(le_news_after(lease(), seen, NULL, &walked)->token == place.token, "the grant of a place is news");
	ok(le_news_after(lease(), seen, le_news_after(lease(), seen, NULL, &walked), &walked) == NULL,
	   "only the grant of the place is news");
	ok(le_news_after(lease(), 0, NULL, &walked)->token == held.token,
	   "from the beginning, all entries are news");

	/* ends of entries */
	seen = lease()->newest;
	force("a");
	is_int(le_news_loss(lease(), seen, 0)->token, held.token, "a forced end is a loss");
	is_int(le_news_loss(lease(), seen, 0)->how, LE_END_FORCED, "a forced end is a loss with its reason");
	seen = lease()->newest;
	release(3, "b", place.token);
	is_int(le_news_loss(lease(), seen, 0)->how, LE_END_RELEASED, "a release by another session is a loss");
	seen = lease()->newest;
	held = ask("c", false);
	seen = lease()->newest;
	{
		LeCommand cmd = command(LE_CMD_RELEASE, 1, "c");

		cmd.token = held.token;
		cmd.lease = lease_id;
		is_int(apply(cmd).status, LE_OK, "the client of the lease releases");
	}
	ok(le_news_loss(lease(), seen, 0) == NULL, "a release by the client of the lease is no loss");
	stop();
}

static void
test_too_many_losses(void)
{
	char name[2] = "A";

	begin();
	for (int i = 0; i < LE_LOSSES; i++, name[0]++)
	{
		ask(name, false);
		force(name);
	}
	ok(le_news_kept(lease(), 0), "all losses are kept up to the limit");
	ask(name, false);
	force(name);
	ok(!le_news_kept(lease(), 0), "the oldest loss is dropped after one more");
	ok(le_news_kept(lease(), le_news_loss(lease(), 0, 0)->number - 1),
	   "a client that has seen the dropped loss misses nothing");
	stop();
}

/* A request that cannot be undone is committed immediately: the end of its transaction changes nothing. */
static void
test_not_undone(void)
{
	LeCommand cmd;
	LeReply held, place, group;
	const LeText both[] = {{"x", 1}, {"y", 1}};

	begin();
	cmd = request(1, "a", X, 0);
	cmd.subxact = 0;
	cmd.lease = lease_id;
	held = apply(cmd);
	acquire(2, "b", X);
	cmd.name = text("b");
	cmd.enqueue = true;
	place = apply(cmd);
	cmd.names = both;
	cmd.nnames = 2;
	group = apply(cmd);
	ok(!held.counted && !place.counted && !group.counted, "none of them is counted");
	undo(1, 1);
	ok(find_token(held.token)->state == LE_STATE_HELD && find_token(place.token)->state == LE_STATE_QUEUED,
	   "a hold and a place stay after a rollback");
	is_int(find_token(group.token)->state, LE_STATE_HELD, "a group stays after a rollback");
	end_session(1);
	ok(find_token(held.token) != NULL && find_token(place.token) != NULL,
	   "a hold and a place stay after the end of the session");
	stop();
}

static void
test_calls(void)
{
	begin();
	ok(le_core_take_call(core, lease(), 1), "the first call is accepted");
	ok(!le_core_take_call(core, lease(), 1), "a repeated call is rejected");
	ok(le_core_take_call(core, lease(), 5) && !le_core_take_call(core, lease(), 4),
	   "an older call is rejected");
	ask("a", false);
	batch();
	seen = lease()->newest;
	ok(le_news_kept(lease(), seen), "the news that the client has seen are kept");

	/* The calls of a failed batch are repeated, others are not. */
	ok(le_core_take_call(core, lease(), 6) && le_core_take_call(core, lease(), 7),
	   "two calls of a batch are accepted");
	{
		LeCore *failed = start_reload();

		load_lease(stored_lease(lease_id));
		load_done();
		le_core_destroy(failed);
	}
	ok(!le_core_take_call(core, lease(), 5), "a call from before the failed batch is rejected");
	ok(le_core_take_call(core, lease(), 6), "a call of the failed batch is accepted again");
	ok(!le_news_kept(lease(), seen), "news from before the failed batch are not kept");
	ok(lease()->newest > seen, "news after the failed batch have higher numbers");
	stop();
}

/* Random changes between the client's reads, and few news in each read. */
static void
test_random(unsigned seed)
{
	int wrong = 0;

	begin();
	srand(seed);
	for (int step = 0; step < 3000; step++)
	{
		const char *name = names[rand() % NAMES];
		LeLock *lock = le_core_find_lock(core, LE_KIND_LOCK, text(name));
		LeEntry *holder = NULL;

		for (LeSlot *slot = lock != NULL ? lock->slots : NULL; slot != NULL && holder == NULL;
			 slot = slot->next)
			holder = le_slot_holder(slot);
		switch (rand() % 9)
		{
			case 0:
			case 1:
				ask(name, rand() % 2 == 0);
				break;
			case 2:
				enqueue(2, name, X);
				break;
			case 3:
				force(name);
				break;
			case 4:
			case 5:
				if (holder != NULL)
					release(rand() % 2 ? 1 : 2, name, holder->token);
				break;
			case 6:
			{
				/* The client releases an entry that it knows, or one that it has never seen. */
				LeCommand cmd = command(LE_CMD_RELEASE, 1, name);

				cmd.lease = lease_id;
				cmd.token = holder != NULL && holder->lease != NULL ? holder->token : 0;
				if (cmd.token != 0 && apply(cmd).status == LE_OK)
					(void) forget(cmd.token);
				break;
			}
			case 7:
				(void) look(1 + rand() % 3);
				break;
			case 8:
				while (look(1 + rand() % 3))
					;
				wrong += !believes_truth();
				break;
		}
		if (rand() % 4 == 0)
			batch();
		le_core_check(core);
	}
	is_int(wrong, 0, "the client knows the entries on its lease");
	stop();
}

int
main(void)
{
	test_each_kind();
	test_too_many_losses();
	test_calls();
	test_not_undone();
	for (unsigned seed = 1; seed <= 20; seed++)
		test_random(seed);
	return done_testing();
}
