/*
 * cut.c
 *		The network is cut without a reset: the connection neither ends nor
 *		returns an error.
 */
#include "client.h"

static void
short_cut(void)
{
	le_options o = options_of(12000);
	le_session *s;
	le_hold *held;

	/* a limit that a busy machine can keep */
	o.call_ms = 2000;
	s = open_with(&o);
	held = must_lock(s, "x");
	ask("cut");
	eventually(le_get_state(s) == LE_SUSPENDED, "the session is suspended if a renewal gets no reply");
	ok(le_valid(held), "a hold is valid while the session is suspended");
	ask("mend");
	eventually(le_get_state(s) == LE_CONNECTED, "the session is connected again");
	ok(le_valid(held), "the hold is valid after the reconnect");
	is_status(le_release(held, 0, &error), LE_OK, "the hold is released after the reconnect");
	le_close(s, -1, NULL);
}

/*
 * By the clock of this machine: the last moment at which the holder is valid is before the first one of the
 * next holder.
 */
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
	eventually(le_position(next) == 1, "another session with a working network waits");
	ask("cut");
	start = le_now();
	do
	{
		now = le_now();
		if (le_valid(held))
			valid_at = now;
	} while (le_await(next, 0, NULL) != LE_OK && now < start + PATIENCE);
	ok(le_valid(next), "the other session is granted the lock");
	ok(!le_valid(held) && valid_at <= start + 6000, "the first hold was invalid before its lease expired");
	is_status(le_await(held, -1, &error), LE_LOST, "the first hold is lost");
	start = le_now();
	is_status(le_close(s, 300, &error), LE_OK, "le_close succeeds because the lease has ended");
	ok(le_now() - start < 10000, "le_close does not wait for the network");
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
