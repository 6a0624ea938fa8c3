/*
 * hosts.c
 *		A session with several hosts: the one that it uses fails, in one way or
 *		another, and a standby is promoted.
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

	o.call_ms = 1500; /* what a busy machine can keep */
	o.on_state = on_state;
	s = open_with(&o);
	other = open_with(&o);
	held = must_lock(s, "x");
	next = enqueue(other, "x");
	eventually(le_position(next) == 1, "one holds, one waits");
	is_status(le_campaign(s, "e", "s", 0, &term, &error), LE_OK, "and leads");
	token = le_token(held);
	ask("fail");
	eventually(suspended >= 2, "the host has failed");
	ok(le_valid(held) && le_valid(term), "what is held is held");
	eventually(le_get_state(s) == LE_CONNECTED && le_get_state(other) == LE_CONNECTED,
			   "the next host is used");
	ok(le_valid(held) && le_token(held) == token && le_valid(term), "with the same lease");
	ok(le_get_hold_state(next) == LE_HOLD_WAITING, "who waited waits");
	is_status(le_proclaim(term, "still s", &error), LE_OK, "the leader proclaims");
	is_status(le_release(held, 0, &error), LE_OK, "released");
	is_status(le_await(next, PATIENCE, &error), LE_OK, "granted in the old order");
	ok(le_token(next) > token, "with a higher token");
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
