/*
 * hosts.c
 *		A session with several hosts: the host that it uses fails in several
 *		ways, and a standby is promoted.
 */
#include "client.h"

static _Atomic int suspended;

static void
on_state(le_session *s, le_state state, void *arg)
{
	(void) s;
	(void) arg;
	suspended += state == LE_SUSPENDED;
}

static void
tests(void)
{
	le_options o = options_of(20000);
	le_session *s, *other;
	le_hold *held, *next, *term;
	int64_t token;

	o.call_ms = 1500; /* a limit that a busy machine can keep */
	o.on_state = on_state;
	s = open_with(&o);
	other = open_with(&o);
	held = must_lock(s, "x");
	next = enqueue(other, "x");
	eventually(le_position(next) == 1, "one session holds the lock, and another waits for it");
	is_status(le_campaign(s, "e", "s", 0, &term, &error), LE_OK, "the holder is also elected");
	token = le_token(held);
	ask("fail");
	eventually(suspended >= 2, "both sessions are suspended after the host has failed");
	ok(le_valid(held) && le_valid(term), "hold and term are valid while the session is suspended");
	eventually(le_get_state(s) == LE_CONNECTED && le_get_state(other) == LE_CONNECTED,
			   "both sessions connect to the next host");
	ok(le_valid(held) && le_token(held) == token && le_valid(term), "hold and term survive on the next host");
	ok(le_get_hold_state(next) == LE_HOLD_WAITING, "the waiter still waits on the next host");
	is_status(le_proclaim(term, "still s", &error), LE_OK, "the leader proclaims on the next host");
	is_status(le_release(held, 0, &error), LE_OK, "the lock is released on the next host");
	is_status(le_await(next, PATIENCE, &error), LE_OK, "the waiter is granted on the next host");
	ok(le_token(next) > token, "the token of the waiter is higher");
	le_release(next, 0, NULL);
	le_resign(term, NULL);
	is_status(le_close(s, -1, &error), LE_OK, "closed");
	is_status(le_close(other, -1, &error), LE_OK, "closed");
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
