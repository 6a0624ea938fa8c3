/*
 * promises.c
 *		What a renewal promises, which is what the server has returned, and how
 *		long a wait lasts that is shorter than a round trip.
 */
#include "client.h"
#include "statements.h"

#define TTL    6000
#define MARGIN 300

static PGconn *db;

/* --- the validity of turns --- */

/* From here on a call returns a part of the validity. */
static void
scale(const char *factor)
{
	query(db, "UPDATE told SET factor = %s", factor);
}

static void
validity(void)
{
	le_session *s, *other = open_session(600000);
	le_hold *hold, *waits;
	int64_t deadline, sent;

	wrap_calls(db);
	scale("0");
	s = open_session(TTL);
	hold = must_lock(s, "x");
	deadline = le_deadline(s);
	turns.seen = 0;
	turns.least = INT64_MAX;
	eventually(turns.seen >= 3, "a lease is renewed, though the server promises nothing");
	ok(turns.least >= TTL / 20 * 9 / 10 - 1, "not without a pause");
	is_int(le_deadline(s), deadline, "which does not take back what was promised");
	ok(le_valid(hold) && le_get_state(s) == LE_CONNECTED, "nothing is lost");

	scale("0.5");
	eventually(le_deadline(s) > deadline, "half of the TTL is promised");
	sent = turns.at;
	ok(le_deadline(s) <= sent + TTL / 2 - MARGIN, "and no more is believed");
	turns.seen = 0;
	turns.least = INT64_MAX;
	eventually(turns.seen >= 3, "the lease is renewed");
	ok(turns.least >= TTL / 6 * 9 / 10 - 1, "at a third of what was promised");
	ok(le_valid(hold), "and held");

	scale("10");
	deadline = le_deadline(s);
	eventually(le_deadline(s) > deadline + TTL / 4, "more than the TTL is promised");
	ok(le_deadline(s) <= turns.at + TTL - MARGIN, "which is not believed");

	/* the last promise is of half a TTL: the waiter of another session is not kept waiting by us any longer */
	scale("0.5");
	turns.seen = 0;
	eventually(turns.seen >= 2, "half of it again");
	query(db, "UPDATE told SET fails = true");
	waits = enqueue(other, "x");
	eventually(!le_valid(hold), "without renewals it is lost");
	query(db, "UPDATE told SET fails = false");
	is_status(le_await(hold, PATIENCE, &error), LE_LOST, "and told");
	le_drop(waits);
	le_release(hold, 0, NULL);
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
	unwrap_calls(db);
}

/* --- short waits --- */

#define SLOW  300
#define SHORT 20

static void
set_slow(int ms)
{
	turns.slow_ms = ms;
}

/* A wait is over before its first answer can be there. */
static void
short_waits(void)
{
	static const char *const names[] = {"a", "b"};
	le_options o = options_of(600000);
	le_session *s, *other = open_session(600000);
	le_how soon = {.size = sizeof(soon)};
	le_hold *hold, *held = must_lock(other, "x"), *leads;
	const char *name = "free";
	int64_t start;

	o.call_ms = 2 * PATIENCE;
	s = open_with(&o);
	is_status(le_campaign(other, "e", "other", 0, &leads, &error), LE_OK, "another one leads");
	set_slow(SLOW);
	is_status(lock(s, "free", SHORT, &hold), LE_OK, "what is free is acquired");
	is_status(le_release(hold, 0, &error), LE_OK, "and released");
	is_status(le_acquire(s, names, 2, NULL, SHORT, &hold, &error), LE_OK, "also several locks");
	le_release(hold, 0, NULL);
	is_status(lock_how(s, "p", (le_how){.permits = 1}, SHORT, &hold), LE_OK, "a permit");
	le_release(hold, 0, NULL);
	is_status(le_campaign(s, "e2", "me", SHORT, &hold, &error), LE_OK, "a term");
	le_release(hold, 0, NULL);
	soon.until = le_now() + SHORT;
	is_status(le_enqueue(s, &name, 1, &soon, &hold, &error), LE_OK, "a place with a limit");
	is_status(le_await(hold, PATIENCE, &error), LE_OK, "which is granted");
	le_release(hold, 0, NULL);

	start = le_now();
	is_status(lock(s, "x", SHORT, &hold), LE_TIMEOUT, "what is not free is not acquired");
	ok(le_now() - start < 5000, "when the answer is there");
	is_status(le_campaign(s, "e", "me", SHORT, &hold, &error), LE_TIMEOUT, "nor is a term");
	soon.until = le_now() + SHORT;
	name = "x";
	is_status(le_enqueue(s, &name, 1, &soon, &hold, &error), LE_OK, "a place with a limit");
	/* nobody waits for it, and a call may take for longer than this test waits */
	eventually(le_get_hold_state(hold) == LE_HOLD_OVER, "which is over with its first answer");
	is_status(le_await(hold, PATIENCE, &error), LE_TIMEOUT, "and not granted");
	le_release(hold, 0, NULL);
	set_slow(0);
	eventually(strcmp(query(db, "SELECT count(*) FROM lock_election.waiters"), "0") == 0, "no place is left");

	/* a wait that is longer than a round trip bounds the queue */
	start = le_now();
	is_status(lock(s, "x", SLOW, &hold), LE_TIMEOUT, "a longer wait");
	ok(le_now() - start >= SLOW, "lasts for as long as it says");
	le_release(held, 0, NULL);
	le_resign(leads, NULL);
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/* Without a first answer the limit of a call counts, and then the wait's own. */
static void
no_answer(void)
{
	le_options o = options_of(600000);
	le_session *s;
	le_hold *hold;
	int64_t start;

	o.call_ms = 1000;
	s = open_with(&o);
	query(db, "BEGIN; LOCK pg_extension; LOCK TABLE pg_proc IN ACCESS EXCLUSIVE MODE");
	start = le_now();
	is_status(lock(s, "x", SHORT, &hold), LE_TIMEOUT, "a server that does not answer");
	ok(le_now() - start >= 1000 && le_now() - start < 20000, "is waited for as for any statement");
	query(db, "COMMIT");
	le_close(s, -1, NULL);
}

static void
tests(void)
{
	db = connect_db();
	statements_begin(db);
	validity();
	short_waits();
	no_answer();
	eventually(strcmp(query(db, "SELECT count(*) FROM lock_election.look()"), "0") == 0, "nothing is left");
	PQfinish(db);
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
