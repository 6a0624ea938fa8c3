/*
 * moved.c
 *		The extension is moved to another schema while sessions use it.
 */
#include "client.h"

#define TTL 20000

static PGconn *db;
static int moves;

/* Renames schema locksN to locksN+1. */
static void
move(void)
{
	const char *error_text = query(db, "ALTER SCHEMA locks%d RENAME TO locks%d; SELECT ''", moves, moves + 1);

	moves++;
	if (error_text[0] != '\0')
		die("%s", error_text);
}

static _Atomic int told;

static void
on_change(const le_change *change, void *arg)
{
	(void) arg;
	told += change->leads;
}

/* The schema has another name at each statement. */
static void
each_statement(int listen)
{
	static const char *const names[] = {"a", "b"};
	le_options o = options_of(TTL);
	le_leader_info leader = {.size = sizeof(leader)};
	le_session *s, *other = open_session(TTL);
	le_hold *one, *both, *permit, *term, *held, *waits;
	le_observer *observer;
	int before = told;

	o.listen = listen;
	s = open_with(&o);
	is_status(lock(s, "x", 0, &one), LE_OK, "a lock is acquired in the first schema");
	move();
	is_status(le_acquire(s, names, 2, NULL, PATIENCE, &both, &error), LE_OK,
			  "several locks are acquired after the schema was renamed");
	move();
	is_status(lock_how(s, "p", (le_how){.permits = 2}, 0, &permit), LE_OK,
			  "a permit is acquired after the schema was renamed");
	move();
	is_status(le_campaign(s, "e", "me", PATIENCE, &term, &error), LE_OK, "a term");
	move();
	is_status(le_proclaim(term, "still me", &error), LE_OK,
			  "a leader proclaims after the schema was renamed");
	move();
	is_status(le_leader(s, "e", &leader, &error), LE_OK, "le_leader after the schema was renamed");
	ok(strcmp(leader.candidate, "still me") == 0, "le_leader returns the proclaimed text");
	move();
	is_status(le_observe(s, "e", 0, on_change, NULL, &observer, &error), LE_OK,
			  "an observer starts after the schema was renamed");
	eventually(told > before, "the observer reads the changes");
	move();
	is_status(le_release(permit, 0, &error), LE_OK, "a permit is released after the schema was renamed");
	move();
	is_status(le_release(both, 0, &error), LE_OK, "several locks are released after the schema was renamed");
	move();
	is_status(le_release(one, 1, &error), LE_OK,
			  "a lock is released with hold_for after the schema was renamed");
	move();
	is_status(le_resign(term, &error), LE_OK, "the leader resigns after the schema was renamed");
	le_unobserve(observer);

	held = must_lock(other, "x");
	waits = enqueue(s, "x");
	eventually(le_position(waits) == 1, "a request waits");
	move();
	is_status(le_release(held, 0, &error), LE_OK, "another session releases after the schema was renamed");
	is_status(le_await(waits, PATIENCE, &error), LE_OK, "the waiting session notices the grant");
	ok(le_get_state(s) == LE_CONNECTED, "the session is connected, not suspended");
	le_release(waits, 0, NULL);
	move();
	is_status(le_close(s, -1, &error), LE_OK, "the first session is closed, which revokes its lease");
	is_status(le_close(other, -1, &error), LE_OK, "the second session is closed");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.leases")), 0, "nothing is left");
}

/* Renewals after the schema was renamed, and the holds on the lease. */
static void
renewals(void)
{
	le_session *s = open_session(3000);
	le_hold *hold = must_lock(s, "x");
	int64_t deadline;

	for (int i = 0; i < 3; i++)
	{
		deadline = le_deadline(s);
		move();
		eventually(le_deadline(s) > deadline, "the lease is renewed in the new schema");
	}
	ok(le_valid(hold) && le_get_state(s) == LE_CONNECTED, "no hold is lost by the renewals");
	le_release(hold, 0, NULL);
	le_close(s, -1, NULL);
}

/* The library cannot retry a statement in the application's transaction, but the application can. */
static void
fences(void)
{
	le_session *s = open_session(600000);
	le_hold *hold = must_lock(s, "x");
	PGconn *mine = connect_db();
	int64_t deadline = le_deadline(s);

	move();
	query(mine, "BEGIN");
	is_status(le_fence(hold, mine, &error), LE_UNAVAILABLE, "a fence fails after the schema was renamed");
	query(mine, "ROLLBACK");
	eventually(le_deadline(s) > deadline, "the failed fence makes the session search the schema");
	query(mine, "BEGIN");
	is_status(le_fence(hold, mine, &error), LE_OK, "the next fence finds the schema");
	query(mine, "COMMIT");
	PQfinish(mine);
	le_release(hold, 0, NULL);
	le_close(s, -1, NULL);
}

/*
 * The extension is dropped and created in another schema. No lease is left, which is a loss like any other.
 */
static void
made_again(void)
{
	le_session *s = open_session(3000);
	le_hold *hold = must_lock(s, "x"), *none;

	query(db, "SET client_min_messages = warning; DROP EXTENSION lock_election;"
			  " CREATE SCHEMA elsewhere; CREATE EXTENSION lock_election SCHEMA elsewhere");
	is_status(lock(s, "y", 0, &none), LE_LOST, "a request on the lost lease returns LE_LOST");
	eventually(le_get_state(s) == LE_ENDED, "the session has ended with its lease");
	ok(!le_valid(hold), "the hold of the ended session is invalid");
	is_status(le_await(hold, 0, &error), LE_LOST, "the hold of the ended session is lost");
	ok(strstr(error.message, "the server has ended the lease") != NULL,
	   "the error says that the server has ended the lease");
	le_release(hold, 0, NULL);
	is_status(le_reopen(s, &error), LE_OK, "the session is reopened in the other schema");
	is_status(lock(s, "x", 0, &hold), LE_OK, "the reopened session acquires a lock");
	is_status(le_release(hold, 0, &error), LE_OK, "the reopened session releases the lock");
	is_status(le_close(s, -1, &error), LE_OK, "the reopened session is closed");
}

/*
 * The extension is missing: the error names the command to type, and a new extension is found before the
 * deadline.
 */
static void
away(void)
{
	le_session *s = open_session(600000);
	le_hold *none;

	query(db, "DROP EXTENSION lock_election; DROP SCHEMA elsewhere");
	is_status(lock(s, "y", PATIENCE, &none), LE_UNAVAILABLE,
			  "a waiting call returns immediately if the extension is missing");
	ok(strstr(error.message, "CREATE EXTENSION lock_election") != NULL, "the error names CREATE EXTENSION");
	query(db, "CREATE EXTENSION lock_election");
	is_status(lock(s, "y", 0, &none), LE_LOST, "a new extension does not have the lease");
	is_status(le_close(s, -1, &error), LE_OK, "the session is closed");
}

static void
tests(void)
{
	db = connect_db();
	each_statement(0);
	each_statement(-1);
	renewals();
	fences();
	made_again();
	away();
	PQfinish(db);
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
