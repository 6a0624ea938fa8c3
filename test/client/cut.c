/*
 * cut.c
 *		The network is cut, and nobody is told: no end of the connection, no
 *		refusal.
 */
#include "client.h"

static void
short_cut(void)
{
	le_options o = options_of(8000);
	le_session *s;
	le_hold *held;

	o.call_ms = 400;
	s = open_with(&o);
	held = must_lock(s, "x");
	ask("cut");
	eventually(le_get_state(s) == LE_SUSPENDED, "a renewal is not answered: suspended");
	ok(le_valid(held), "what is held is held");
	ask("mend");
	eventually(le_get_state(s) == LE_CONNECTED, "connected again");
	ok(le_valid(held), "and still held");
	is_status(le_release(held, 0, &error), LE_OK, "released");
	le_close(s, -1, NULL);
}

static void
long_cut(void)
{
	le_options o = options_of(1500);
	le_session *s;
	le_hold *held;
	int64_t start, deadline;

	o.call_ms = 300;
	s = open_with(&o);
	held = must_lock(s, "x");
	ask("cut");
	is_int(atoi(ask("held x")), 1, "the server does not know");
	start = le_now();
	while (le_valid(held) && le_now() < start + PATIENCE)
		usleep(1000);
	deadline = le_now();
	is_int(atoi(ask("held x")), 1, "the holder knows before the server lets anybody else in");
	ok(deadline - start <= 1500, "at its deadline");
	is_status(le_await(held, -1, &error), LE_LOST, "lost");
	eventually(atoi(ask("held x")) == 0, "then the server lets go");
	start = le_now();
	is_status(le_close(s, 300, &error), LE_OK, "closing has nothing to revoke");
	ok(le_now() - start < 10000, "and does not wait for the network");
	le_drop(held);
	ask("mend");
}

static void
tests(void)
{
	short_cut();
	long_cut();
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
