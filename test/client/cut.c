/*
 * cut.c
 *		The network is cut, and nobody is told: no end of the connection, no
 *		refusal.
 */
#include "client.h"

static void
short_cut(void)
{
	le_options o = options_of(12000);
	le_session *s;
	le_hold *held;

	/* what a busy machine can keep */
	o.call_ms = 2000;
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

/* Both by one clock: the holder's last moment is before the next one's first. */
static void
long_cut(void)
{
	le_options o = options_of(6000), direct;
	le_session *s, *other;
	le_hold *held, *next;
	int64_t start, valid_at = 0, now;

	o.call_ms = 1500;
	s = open_with(&o);
	direct = o;
	direct.conninfo = ask("direct");
	direct.ttl_ms = 30000;
	direct.call_ms = 0;
	other = open_with(&direct);
	held = must_lock(s, "x");
	next = enqueue(other, "x");
	eventually(le_position(next) == 1, "somebody waits whose network is well");
	ask("cut");
	start = le_now();
	do
	{
		now = le_now();
		if (le_valid(held))
			valid_at = now;
	} while (le_await(next, 0, NULL) != LE_OK && now < start + PATIENCE);
	ok(le_valid(next), "is let in at last");
	ok(!le_valid(held) && valid_at <= start + 6000,
	   "when the holder has known for some time that it is none");
	is_status(le_await(held, -1, &error), LE_LOST, "lost");
	start = le_now();
	is_status(le_close(s, 300, &error), LE_OK, "closing has nothing to revoke");
	ok(le_now() - start < 10000, "and does not wait for the network");
	le_drop(held);
	le_drop(next);
	le_close(other, -1, NULL);
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
