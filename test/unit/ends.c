/* All ways in which a holder, place or waiting call ends: the counters, and later information about it. */
/* Promises: - */
#include "fixture.h"

#define OTHER (ROLE + 1)

/* The kind of entry that ends. */
typedef enum What
{
	HOLDER,
	PLACE,
	CALL
} What;

static LeStats before;

static void
is_counted(LeStats expected, const char *name)
{
	const LeStats *now_counted = le_core_stats(core);

	is_int(now_counted->grants - before.grants, expected.grants, name);
	is_int(now_counted->waits - before.waits, expected.waits, "waits");
	is_int(now_counted->handoffs - before.handoffs, expected.handoffs, "hand-offs");
	is_int(now_counted->expiries - before.expiries, expected.expiries, "expiries");
	is_int(now_counted->timeouts - before.timeouts, expected.timeouts, "timeouts");
	is_int(now_counted->undone - before.undone, expected.undone, "undone entries");
	is_int(now_counted->elected - before.elected, expected.elected, "elections");
	for (int i = 0; i < LE_DURATION_TYPES; i++)
		is_int(now_counted->durations[i].count - before.durations[i].count, expected.durations[i].count,
			   "counts of durations");
	before = *now_counted;
}

/* Session 2 requests x; its entry will end in this way. */
static LeReply
ask(LeKind kind, What what, LeEnd how, int64_t lease)
{
	LeCommand cmd = request(2, "x", X, LE_WAIT_FOREVER);

	cmd.kind = kind;
	cmd.value = text(kind == LE_KIND_ELECTION ? "value" : NULL);
	cmd.role = OTHER;
	cmd.enqueue = what == PLACE;
	if (how == LE_END_REVOKED)
		cmd.lease = lease;
	if (how == LE_END_SESSION)
		cmd.ttl = LE_TTL_BOUND;
	if (how == LE_END_TIMEOUT)
		cmd.wait = TTL;
	return apply(cmd);
}

static void
end(LeKind kind, LeEnd how, int64_t token, int64_t lease)
{
	LeCommand cmd = command(LE_CMD_RELEASE, 2, "x");

	cmd.kind = kind;
	cmd.role = OTHER;
	switch (how)
	{
		case LE_END_RELEASED:
			cmd.token = token;
			apply(cmd);
			break;
		case LE_END_EXPIRED:
		case LE_END_TIMEOUT:
			pass(TTL);
			return;
		case LE_END_REVOKED:
			cmd.type = LE_CMD_REVOKE_LEASE;
			cmd.lease = lease;
			apply(cmd);
			break;
		case LE_END_FORCED:
			cmd.type = LE_CMD_FORCE_ROLE;
			apply(cmd);
			break;
		case LE_END_UNDONE:
			undo(2, 1);
			break;
		case LE_END_SESSION:
			end_session(2);
			break;
		default:
			abort();
	}
	batch();
}

/* Returns the kind of change for this ending. */
static LeHow
how_of(LeEnd how)
{
	return how == LE_END_RELEASED  ? LE_HOW_RESIGNED
		   : how == LE_END_EXPIRED ? LE_HOW_EXPIRED
		   : how == LE_END_REVOKED ? LE_HOW_REVOKED
		   : how == LE_END_FORCED  ? LE_HOW_FORCED
		   : how == LE_END_UNDONE  ? LE_HOW_UNDONE
								   : LE_HOW_DISCONNECTED;
}

static void
ends(LeKind kind, What what, LeEnd how)
{
	bool lost = what == PLACE || how == LE_END_EXPIRED || how == LE_END_REVOKED || how == LE_END_FORCED;
	bool lock = kind == LE_KIND_LOCK;
	LeStats expected = {0};
	LeCommand cmd;
	LeReply first = {0}, it, other;
	int64_t lease;

	start();
	memset(&before, 0, sizeof(before));
	cmd = command(LE_CMD_GRANT_LEASE, 2, NULL);
	cmd.role = OTHER;
	cmd.ttl = 3 * TTL;
	lease = apply(cmd).lease;
	cmd = request(1, "x", X, 0);
	cmd.kind = kind;
	cmd.value = text(lock ? NULL : "first");
	cmd.ttl = 5 * TTL;
	if (what != HOLDER)
		first = apply(cmd);
	it = ask(kind, what, how, lease);
	batch();
	expected.grants = expected.elected = 1;
	expected.elected -= lock;
	expected.waits = what != HOLDER;
	is_counted(expected, "counters of the grant or the wait");
	cmd = request(3, "x", X, LE_WAIT_FOREVER);
	cmd.kind = kind;
	cmd.value = text(lock ? NULL : "next");
	cmd.ttl = 5 * TTL;
	other = apply(cmd);
	batch();
	is_counted((LeStats){.waits = 1}, "counters of another waiter");

	end(kind, how, it.token, lease);
	memset(&expected, 0, sizeof(expected));
	expected.expiries = how == LE_END_EXPIRED;
	expected.timeouts = how == LE_END_TIMEOUT;
	expected.undone = how == LE_END_UNDONE;
	if (what == HOLDER)
	{
		expected.grants = expected.handoffs = 1;
		expected.elected = !lock;
		expected.durations[LE_DURATION_WAIT].count = lock;
		expected.durations[lock ? LE_DURATION_HOLD : LE_DURATION_TERM].count = 1;
		ok(got(3, LE_OK) && told[3].token == other.token, "the next waiter is granted");
	}
	else
		expected.durations[LE_DURATION_FRUITLESS_WAIT].count = lock;
	is_counted(expected, "counters of the end");
	ok(what != CALL || (got(2, lost ? LE_LOST : LE_NOT_GRANTED) && (!lost || told[2].ending == how)),
	   "the blocked call gets its ending");

	/* later requests */
	now += LE_SECOND;
	cmd = command(LE_CMD_RENEW, 2, "x");
	cmd.kind = kind;
	cmd.role = OTHER;
	cmd.token = it.token;
	it = apply(cmd);
	ok(it.status == LE_NOT_HELD && it.ending == how && it.ending_ago == LE_SECOND,
	   "a later renewal returns the ending and its time");
	cmd.role = ROLE;
	is_int(apply(cmd).ending, LE_END_NONE, "another role does not get the ending");
	ok(what == HOLDER || on_term(LE_CMD_CHECK, 1, "x", first.token, NULL).status == LE_OK || lock,
	   "the first holder still holds");
	batch();
	stop();
}

/* The newest change of an election contains the way in which its term has ended. */
static void
test_change(LeEnd how)
{
	LeCommand cmd;
	LeReply it;
	LeChange *newest = NULL;
	int64_t lease;

	start();
	cmd = command(LE_CMD_GRANT_LEASE, 2, NULL);
	cmd.role = OTHER;
	cmd.ttl = 3 * TTL;
	lease = apply(cmd).lease;
	it = ask(LE_KIND_ELECTION, HOLDER, how, lease);
	batch();
	if (how == LE_END_EXPIRED)
	{
		now += TTL;
		le_core_expire(core, now, 100);
	}
	else
	{
		cmd = command(LE_CMD_RELEASE, 2, "x");
		cmd.kind = LE_KIND_ELECTION;
		cmd.role = OTHER;
		cmd.type = how == LE_END_RELEASED  ? LE_CMD_RELEASE
				   : how == LE_END_REVOKED ? LE_CMD_REVOKE_LEASE
				   : how == LE_END_FORCED  ? LE_CMD_FORCE_ROLE
				   : how == LE_END_UNDONE  ? LE_CMD_UNDO
										   : LE_CMD_SESSION_END;
		cmd.token = it.token;
		cmd.lease = lease;
		apply(cmd);
	}
	for (LeChange *change = NULL; (change = le_next_change(core, change)) != NULL;)
		newest = change;
	ok(newest != NULL && newest->how == how_of(how) && newest->term == it.token && newest->at == now &&
		   newest->role == OTHER,
	   "the change has the ending, the role and the time");
	batch();
	stop();
}

int
main(void)
{
	static const LeEnd any[] = {LE_END_RELEASED, LE_END_EXPIRED, LE_END_REVOKED,
								LE_END_FORCED,   LE_END_UNDONE,  LE_END_SESSION};

	for (int i = 0; i < 6; i++)
	{
		for (LeKind kind = LE_KIND_LOCK; kind <= LE_KIND_ELECTION; kind++)
		{
			ends(kind, HOLDER, any[i]);
			ends(kind, PLACE, any[i]);
			if (any[i] != LE_END_RELEASED && any[i] != LE_END_EXPIRED)
				ends(kind, CALL, any[i]);
		}
		test_change(any[i]);
	}
	ends(LE_KIND_LOCK, CALL, LE_END_TIMEOUT);
	ends(LE_KIND_ELECTION, CALL, LE_END_TIMEOUT);
	return done_testing();
}
