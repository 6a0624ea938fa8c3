/*
 * moved.c
 *		The extension gets another schema while sessions use it.
 */
#include "client.h"

#define TTL 20000

static PGconn *db;
static int moves;

/* From the schema locksN to locksN+1. */
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

/* Each statement finds another schema than the one before it. */
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
	is_status(lock(s, "x", 0, &one), LE_OK, "a lock is acquired");
	move();
	is_status(le_acquire(s, names, 2, NULL, PATIENCE, &both, &error), LE_OK, "then several");
	move();
	is_status(lock_how(s, "p", (le_how){.permits = 2}, 0, &permit), LE_OK, "a permit");
	move();
	is_status(le_campaign(s, "e", "me", PATIENCE, &term, &error), LE_OK, "a term");
	move();
	is_status(le_proclaim(term, "still me", &error), LE_OK, "which is proclaimed");
	move();
	is_status(le_leader(s, "e", &leader, &error), LE_OK, "and told");
	ok(strcmp(leader.candidate, "still me") == 0, "with its text");
	move();
	is_status(le_observe(s, "e", 0, on_change, NULL, &observer, &error), LE_OK, "an observer");
	eventually(told > before, "reads");
	move();
	is_status(le_release(permit, 0, &error), LE_OK, "a permit is released");
	move();
	is_status(le_release(both, 0, &error), LE_OK, "several locks are");
	move();
	is_status(le_release(one, 1, &error), LE_OK, "one is, with hold_for");
	move();
	is_status(le_resign(term, &error), LE_OK, "a term is resigned");
	le_unobserve(observer);

	held = must_lock(other, "x");
	waits = enqueue(s, "x");
	eventually(le_position(waits) == 1, "one waits");
	move();
	is_status(le_release(held, 0, &error), LE_OK, "the lock is released by another session");
	is_status(le_await(waits, PATIENCE, &error), LE_OK, "and the grant is noticed");
	ok(le_get_state(s) == LE_CONNECTED, "no failure was counted");
	le_release(waits, 0, NULL);
	move();
	is_status(le_close(s, -1, &error), LE_OK, "the lease is revoked");
	is_status(le_close(other, -1, &error), LE_OK, "also that of the other session");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.leases")), 0, "nothing is left");
}

/* A renewal, and what hangs on it. */
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
		eventually(le_deadline(s) > deadline, "a lease is renewed in the new schema");
	}
	ok(le_valid(hold) && le_get_state(s) == LE_CONNECTED, "and nothing is lost");
	le_release(hold, 0, NULL);
	le_close(s, -1, NULL);
}

/* The application's transaction cannot be tried again by the library, but by the application. */
static void
fences(void)
{
	le_session *s = open_session(600000);
	le_hold *hold = must_lock(s, "x");
	PGconn *mine = connect_db();
	int64_t deadline = le_deadline(s);

	move();
	query(mine, "BEGIN");
	is_status(le_fence(hold, mine, &error), LE_UNAVAILABLE, "a fence that does not find the schema");
	query(mine, "ROLLBACK");
	eventually(le_deadline(s) > deadline, "has the session look for it");
	query(mine, "BEGIN");
	is_status(le_fence(hold, mine, &error), LE_OK, "so that the next one does");
	query(mine, "COMMIT");
	PQfinish(mine);
	le_release(hold, 0, NULL);
	le_close(s, -1, NULL);
}

/* Dropped and made again elsewhere: no lease is left, which is a loss like others. */
static void
made_again(void)
{
	le_session *s = open_session(3000);
	le_hold *hold = must_lock(s, "x"), *none;

	query(db, "SET client_min_messages = warning; DROP EXTENSION lock_election;"
			  " CREATE SCHEMA elsewhere; CREATE EXTENSION lock_election SCHEMA elsewhere");
	is_status(lock(s, "y", 0, &none), LE_LOST, "nothing is acquired on the lease that was");
	eventually(le_get_state(s) == LE_ENDED, "the session has ended");
	ok(!le_valid(hold), "with what it held");
	is_status(le_await(hold, 0, &error), LE_LOST, "which is lost");
	ok(strstr(error.message, "the server has ended the lease") != NULL,
	   "because the server knows no such lease");
	le_release(hold, 0, NULL);
	is_status(le_reopen(s, &error), LE_OK, "it is opened again");
	is_status(lock(s, "x", 0, &hold), LE_OK, "and acquires");
	is_status(le_release(hold, 0, &error), LE_OK, "and releases");
	is_status(le_close(s, -1, &error), LE_OK, "in the other schema");
}

/* Not there at all: the caller is told what to type, and a new one is found before the deadline. */
static void
away(void)
{
	le_session *s = open_session(600000);
	le_hold *none;

	query(db, "DROP EXTENSION lock_election; DROP SCHEMA elsewhere");
	is_status(lock(s, "y", PATIENCE, &none), LE_UNAVAILABLE, "a caller who waits is told at once");
	ok(strstr(error.message, "CREATE EXTENSION lock_election") != NULL, "what to do");
	query(db, "CREATE EXTENSION lock_election");
	is_status(lock(s, "y", 0, &none), LE_LOST, "then the lease is not known");
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
