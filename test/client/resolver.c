/*
 * resolver.c
 *		Name resolution hangs: the session still ends at its local deadline, and
 *		only calls that are documented to wait do so, within their limits.
 */
#include <dlfcn.h>
#include <netdb.h>

#include "client.h"

#define TTL  6000
#define CALL 500
/*
 * Milliseconds in which a call that does not wait for the resolver must return. It may have to wait for a
 * processor.
 */
#define SOON 20000

static _Atomic bool hangs;
static _Atomic int inside; /* threads that wait for a reply of the resolver */
static _Atomic bool ended;

typedef int (*resolve)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

/* Replaces the function of the system, also for libpq; knows one name. */
int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **list)
{
	resolve next;

	*(void **) &next = dlsym(RTLD_NEXT, "getaddrinfo");
	inside++;
	while (hangs)
		usleep(1000);
	inside--;
	return next(node != NULL && strcmp(node, "db.test") == 0 ? "127.0.0.1" : node, service, hints, list);
}

static void
on_state(le_session *s, le_state state, void *arg)
{
	(void) s;
	(void) arg;
	if (state == LE_ENDED)
		ended = true;
}

/* Calls every function that is documented as local, and ends nothing. */
static void
call_local(le_session *s, le_hold *held, le_hold *queued)
{
	const char *name = "another";
	le_hold *more;
	le_event event;

	ok(le_valid(held) && le_time_left(s) > 0 && le_hold_time_left(held) > 0 && le_deadline(s) > le_now(),
	   "local: the hold is valid");
	ok(le_get_state(s) == LE_SUSPENDED && le_lease(s) != 0 && le_fd(s) >= 0 && le_token(held) != 0 &&
		   le_position(queued) == 1,
	   "local: state, lease, descriptor, token and position");
	le_progress(s);
	while (le_next_event(s, &event))
		;
	is_status(le_enqueue(s, &name, 1, NULL, &more, &error), LE_OK, "local: a place is requested");
	le_cancel(more);
	is_status(le_await(more, 0, &error), LE_CANCELED, "local: the place is canceled");
	le_drop(more);
}

static void
tests(void)
{
	le_options o = options_of(TTL);
	le_session *s, *other, *closed;
	le_hold *held, *queued, *busy, *tried, *more;
	le_how soon = {.size = sizeof(soon)};
	const char *name = "v";
	int64_t start, deadline;

	o.call_ms = CALL;
	o.connect_ms = CALL;
	closed = open_with(&o);
	o.on_state = on_state;
	s = open_with(&o);
	other = open_session(60000);
	held = must_lock(s, "x");
	busy = must_lock(other, "y");
	queued = enqueue(s, "y");
	more = must_lock(closed, "z");
	eventually(le_position(queued) == 1, "one lock is held, one waited for");

	hangs = true;
	ask("cut");
	eventually(inside >= 3 && le_get_state(s) == LE_SUSPENDED,
			   "the sessions reconnect, and the resolver hangs");
	deadline = le_deadline(s);

	start = le_now();
	call_local(s, held, queued);
	ok(le_now() - start < SOON && le_now() < deadline, "local calls return immediately");
	start = le_now();
	is_status(le_await(queued, 100, &error), LE_WAITING, "a wait for an existing place times out");
	is_status(lock(s, "w", 100, &tried), LE_TIMEOUT, "a wait for a new request times out");
	soon.until = le_now() + 50;
	is_status(le_enqueue(s, &name, 1, &soon, &tried, &error), LE_OK, "a place with a deadline is requested");
	is_status(le_await(tried, -1, &error), LE_TIMEOUT, "the wait for the place with a deadline times out");
	le_drop(tried);
	is_status(le_close(closed, 100, &error), LE_UNKNOWN, "le_close times out");
	le_drop(more);
	ok(le_now() - start < 350 + 2 * CALL + SOON, "all waits return within their limits");

	eventually_quietly(le_now() > deadline);
	ok(!le_valid(held) && le_hold_time_left(held) <= 0, "the hold is invalid at the local deadline");
	eventually(le_get_state(s) == LE_ENDED && ended, "the callback reports the end while the resolver hangs");
	ok(le_now() - deadline < SOON, "the callback is called soon after the deadline");
	is_status(le_await(queued, PATIENCE, &error), LE_LOST, "the waiting place is lost");
	is_status(le_release(held, 0, &error), LE_LOST, "the hold is lost");
	le_drop(queued);
	ok(inside > 0 && hangs, "the resolver still hangs");

	hangs = false;
	eventually(le_get_state(other) == LE_CONNECTED && le_valid(busy),
			   "a session with a longer lease reconnects when the resolver replies");
	eventually(inside == 0, "no thread waits for the resolver");
	is_status(le_close(s, -1, &error), LE_OK, "the ended session is closed");
	is_status(le_release(busy, 0, &error), LE_OK, "the hold of the other session is released");
	is_status(le_close(other, -1, &error), LE_OK, "the other session is closed");
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
