/*
 * promises.c
 *		A renewal is valid for as long as the server has returned; and a wait
 *		that is shorter than a round trip.
 */
#include "client.h"
#include "statements.h"

#define TTL    6000
#define MARGIN 300

static PGconn *db;

/* --- the validity of turns --- */

/* Makes calls return only this part of the validity. */
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
	eventually(turns.seen >= 3, "a lease is renewed again if the server returns a validity of 0");
	ok(turns.least >= TTL / 20 * 9 / 10 - 1, "renewals with a validity of 0 have pauses");
	is_int(le_deadline(s), deadline, "a validity of 0 does not move the deadline back");
	ok(le_valid(hold) && le_get_state(s) == LE_CONNECTED, "nothing is lost by a validity of 0");

	scale("0.5");
	eventually(le_deadline(s) > deadline, "a validity of half the TTL moves the deadline");
	sent = turns.at;
	ok(le_deadline(s) <= sent + TTL / 2 - MARGIN, "the deadline follows the returned validity");
	turns.seen = 0;
	turns.least = INT64_MAX;
	eventually(turns.seen >= 3, "the lease with the shorter validity is renewed");
	ok(turns.least >= TTL / 6 * 9 / 10 - 1, "the lease is renewed after a third of the returned validity");
	ok(le_valid(hold), "the hold with the shorter validity is valid");

	scale("10");
	deadline = le_deadline(s);
	eventually(le_deadline(s) > deadline + TTL / 4, "a validity of ten TTLs moves the deadline");
	ok(le_deadline(s) <= turns.at + TTL - MARGIN, "the deadline is at most a TTL away");

	/*
	 * The last returned validity is half a TTL: the waiter of another session does not wait longer for this
	 * session.
	 */
	scale("0.5");
	turns.seen = 0;
	eventually(turns.seen >= 2, "the lease is renewed twice with half the TTL");
	query(db, "UPDATE told SET fails = true");
	waits = enqueue(other, "x");
	eventually(!le_valid(hold), "the hold is lost without renewals");
	query(db, "UPDATE told SET fails = false");
	is_status(le_await(hold, PATIENCE, &error), LE_LOST, "le_await returns LE_LOST without renewals");
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

/* A wait times out before its first reply can arrive. */
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
	is_status(le_campaign(other, "e", "other", 0, &leads, &error), LE_OK, "another session leads");
	set_slow(SLOW);
	is_status(lock(s, "free", SHORT, &hold), LE_OK, "a free lock is acquired with a short wait");
	is_status(le_release(hold, 0, &error), LE_OK, "the lock is released");
	is_status(le_acquire(s, names, 2, NULL, SHORT, &hold, &error), LE_OK,
			  "several free locks are acquired with a short wait");
	le_release(hold, 0, NULL);
	is_status(lock_how(s, "p", (le_how){.permits = 1}, SHORT, &hold), LE_OK,
			  "a permit is acquired with a short wait");
	le_release(hold, 0, NULL);
	is_status(le_campaign(s, "e2", "me", SHORT, &hold, &error), LE_OK, "a term");
	le_release(hold, 0, NULL);
	soon.until = le_now() + SHORT;
	is_status(le_enqueue(s, &name, 1, &soon, &hold, &error), LE_OK,
			  "a place for a free lock with a short limit");
	is_status(le_await(hold, PATIENCE, &error), LE_OK, "the place for the free lock is granted");
	le_release(hold, 0, NULL);

	start = le_now();
	is_status(lock(s, "x", SHORT, &hold), LE_TIMEOUT, "a held lock is not acquired with a short wait");
	ok(le_now() - start < 5000, "the short wait ends with the first reply");
	is_status(le_campaign(s, "e", "me", SHORT, &hold, &error), LE_TIMEOUT,
			  "a term is not won with a short wait");
	soon.until = le_now() + SHORT;
	name = "x";
	is_status(le_enqueue(s, &name, 1, &soon, &hold, &error), LE_OK,
			  "a place for a held lock with a short limit");
	/* no thread waits for it, and a call can take longer than this test waits */
	eventually(le_get_hold_state(hold) == LE_HOLD_OVER,
			   "the place for the held lock ends with its first reply");
	is_status(le_await(hold, PATIENCE, &error), LE_TIMEOUT, "the place for the held lock is not granted");
	le_release(hold, 0, NULL);
	set_slow(0);
	eventually(strcmp(query(db, "SELECT count(*) FROM lock_election.waiters"), "0") == 0, "no place is left");

	/* A wait that is longer than a round trip limits the time in the queue. */
	start = le_now();
	is_status(lock(s, "x", SLOW, &hold), LE_TIMEOUT, "a wait longer than a round trip times out");
	ok(le_now() - start >= SLOW, "the longer wait lasts for its whole time");
	le_release(held, 0, NULL);
	le_resign(leads, NULL);
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/* Without a first reply, the limit of a call applies before the limit of the wait. */
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
	is_status(lock(s, "x", SHORT, &hold), LE_TIMEOUT, "a short wait times out if the server does not reply");
	ok(le_now() - start >= 1000 && le_now() - start < 20000, "the short wait lasts for the limit of a call");
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
