/*
 * lock_election.h
 *		liblockelection: the C client library of lock_election, the PostgreSQL
 *		extension for locks and leader election.
 *
 * A session has one connection, one lease on the server, and threads of its own
 * that keep the lease alive.  Everything that the session holds or waits for
 * belongs to that lease.  A process needs only one session for all its locks: a
 * thousand waiters share its connection, and simultaneous requests and releases
 * of many threads are sent in one statement.
 *
 *		le_options options = {.size = sizeof(options), .ttl_ms = 10000};
 *		const char *name = "invoices";
 *		le_session *session;
 *		le_hold *hold;
 *		le_error error;
 *
 *		if (le_open(&options, &session, &error) != LE_OK)
 *			die(error.message);
 *		if (le_acquire(session, &name, 1, NULL, 5000, &hold, &error) == LE_OK)
 *		{
 *			while (more_work() && le_valid(hold))
 *				work();
 *			le_release(hold, 0, NULL);
 *		}
 *		le_close(session, 1000, NULL);
 *
 * THE DEADLINE.  A lease lasts for its TTL.  The session renews it after a
 * third of the TTL, and retries until it succeeds.  A renewal moves the local
 * deadline to the time at which the renewal was *sent*, plus the validity that
 * the server returned, minus a margin.  The validity is the TTL, or less if the
 * server has restarted repeatedly or could not write.  A shorter validity never
 * moves the deadline back.  Until the deadline no other client can get the
 * session's locks, even if the network fails.  After the deadline the session
 * has ended, even if the network still works.  The clock is CLOCK_BOOTTIME,
 * which keeps running while the machine is suspended.  A failed renewal or a
 * broken connection does not end the lease: the session reconnects, perhaps to
 * another host of the connection string, and renews the same lease.
 *
 * A process that pauses between le_valid() and its write can still write after
 * the deadline.  Only a fence, le_fence(), prevents that.
 *
 * THREADS.  Every function may be called from any thread at any time, with two
 * exceptions: no other thread may use an object during or after the call that
 * frees it (le_close, le_orphan, le_release, le_drop, le_unobserve, le_stop);
 * and these functions must not be called from a callback of their own session.
 * Functions whose comment says "Does no I/O" are cheap and do not wait.  Nothing
 * here may be called from a signal handler.  The library has no global state.
 * The session's threads block all signals.
 *
 * CALLBACKS of a session and of its observers run one at a time, in one thread
 * of the session.  Another thread renews the lease, so a slow callback delays
 * other callbacks, but never a renewal, and never the results of functions that
 * do no I/O.
 *
 * OWNERSHIP.  A call that creates an object does so only if it returns LE_OK.
 * Each object is freed by one call: a session by le_close or le_orphan, a hold
 * by le_release, le_resign or le_drop, an observer by le_unobserve, a runner by
 * le_stop.  That call frees the object whatever it returns.  The status only
 * says what happened to the lock or the lease; do not repeat the call.
 *
 * FORK.  A session and its threads stay in the parent.  A child process holds
 * nothing: le_valid returns false.  Functions that end or free something
 * (le_close, le_orphan, le_release, le_resign, le_drop, le_cancel,
 * le_unobserve, le_stop) do nothing in a child, free nothing, and return LE_OK.
 * Functions that request something return LE_INVALID.  All descriptors of the
 * library are closed by exec.
 *
 * TEXTS are in UTF-8, whatever encoding the environment, the database and the
 * program's own connections use.  Texts that are not valid UTF-8 are rejected
 * with LE_INVALID.
 *
 * TIMES are in milliseconds.  A wait of -1 has no limit; other negative waits
 * are rejected with LE_INVALID.  Points in time are milliseconds of
 * CLOCK_BOOTTIME, see le_now().
 *
 * STRUCTS that begin with a size can grow at their end.  Set the size, and leave
 * members that you do not need at zero.  Then the program also works with
 * libraries that are older or newer than its header.  The library treats
 * members that the program's struct lacks as zero, which is the default.  If
 * the struct has members that the library does not know, they must be zero;
 * otherwise the library rejects the struct with LE_INVALID.  When the library
 * fills a struct, it sets members that it does not know to zero.  Structs without
 * a size do not grow, except le_change, which only the library creates.  Programs
 * must expect unknown values, because statuses, states and kinds of events may be
 * added.
 */
#ifndef LOCK_ELECTION_H
#define LOCK_ELECTION_H

#include <stddef.h>
#include <stdint.h>

#include <libpq-fe.h>

/* Linkage of each exported function */
#ifdef __cplusplus
#define LE_LINKAGE extern "C"
#else
#define LE_LINKAGE extern
#endif
#if defined(__GNUC__)
#define LE_API LE_LINKAGE __attribute__((visibility("default")))
#else
#define LE_API LE_LINKAGE
#endif

#define LE_VERSION_MAJOR 1
#define LE_VERSION_MINOR 0

/* --- results of calls --- */

typedef enum le_status
{
	LE_OK = 0,
	LE_WAITING,     /* le_await: not granted yet; the hold keeps waiting */
	LE_TIMEOUT,     /* not granted in time; the hold does not wait any more */
	LE_CANCELED,    /* the wait was canceled by le_cancel; nothing is held */
	LE_LOST,        /* LE001: the lease or this hold has ended, or the local deadline has passed */
	LE_DEADLOCK,    /* 40P01: roll the transaction back and repeat it */
	LE_LIMIT,       /* 53200, 53400: a server limit was reached; the message names its setting */
	LE_DENIED,      /* 42501, 28xxx: no permission, or a wrong password */
	LE_INVALID,     /* 22xxx, a bad argument, or a wrong state; the message names it */
	LE_UNAVAILABLE, /* no server, no extension, locked tables, or no reply in time; no lasting effect */
	LE_UNKNOWN,     /* not confirmed; may have taken effect, or may take effect later */
	LE_NO_MEMORY,   /* out of memory, threads or descriptors; no effect */
	LE_FAILED       /* any other server error; no effect */
} le_status;

/* Describes an error.  Each call fills it, or clears it if the call returns LE_OK; pass NULL to ignore it. */
typedef struct le_error
{
	le_status status;
	char sqlstate[6]; /* the server's SQLSTATE, or "" */
	char message[506];
} le_error;

/*
 * Stores the reason why a connection of the application failed in *error,
 * without any part of the connection string that may be a password, which
 * libpq's own message may quote.  Returns the status.  Does no I/O.
 */
LE_API le_status le_connection_error(const PGconn *conn, le_error *error);

/* Returns the status as a word for messages, such as "timeout".  Does no I/O. */
LE_API const char *le_status_name(le_status status);

/* Returns the version of the loaded library, such as "1.0.0".  Does no I/O. */
LE_API const char *le_version(void);

/* Returns the current time in milliseconds of CLOCK_BOOTTIME. Does no I/O. */
LE_API int64_t le_now(void);

/* --- sessions --- */

typedef struct le_session le_session;
typedef struct le_hold le_hold; /* a lock, a permit, several locks, or a candidacy and its term */

typedef enum le_state
{
	LE_CONNECTED = 1, /* the lease is kept alive */
	LE_SUSPENDED,     /* no connection, or renewals fail; holds stay valid until the deadline */
	LE_ENDED          /* the lease was lost or revoked, and all holds with it */
} le_state;

typedef struct le_options
{
	size_t size;

	/*
	 * A connection string as for PQconnectdb: "key=value ...", a URI,
	 * "service=...", with one or several hosts.  NULL = taken from the
	 * environment (PGHOST, ...).  The session accepts only a primary and skips
	 * standbys.  It accepts a primary even if the role's transactions are
	 * read-only by default.  A target_session_attrs applies in addition.
	 */
	const char *conninfo;

	/* Beginning of the "owner" in the server's views, cut to 200 bytes.  NULL = none. */
	const char *name;

	/* The TTL of the lease in milliseconds, 100 to 2073600000 (24 days).  0 = default (30000). */
	int ttl_ms;

	/*
	 * Milliseconds by which the local deadline is earlier than the end of the
	 * lease.  0 = default (a twentieth of the TTL, at most 1000).
	 */
	int margin_ms;

	/*
	 * Time limit in milliseconds for connecting to one address of a host,
	 * unless conninfo has connect_timeout.  0 = default (5000).
	 */
	int connect_ms;

	/*
	 * Time limit in milliseconds for the server's reply to one statement, after
	 * which the session reconnects.  0 = default (a quarter of the TTL, at
	 * least 200 and at most 10000).
	 */
	int call_ms;

	/*
	 * Maximum interval in milliseconds between calls of le_progress().  If it
	 * is exceeded, the session stops renewing the lease until the next call, so
	 * that a hung process loses its lease.  0 = renew always.
	 */
	int progress_ms;

	/*
	 * How the session learns that a waiter was granted.  0 = by LISTEN where it
	 * works, otherwise by polling, for example behind a pooler in transaction
	 * mode; the session tests LISTEN once per connection, when a hold waits or
	 * an observer exists.  1 = by LISTEN only; a waiting call returns
	 * LE_UNAVAILABLE where LISTEN does not work.  -1 = by polling only.
	 */
	int listen;

	/* Polling interval in milliseconds where LISTEN does not work.  0 = default (250). */
	int poll_ms;

	/*
	 * Called after each change of state, in order.  While a callback is slow,
	 * intermediate states may be skipped, but never LE_ENDED and never the last
	 * state.  Not called for the LE_CONNECTED that le_open sets.
	 */
	void (*on_state)(le_session *session, le_state state, void *arg);

	/*
	 * Called after each renewal, with the new local deadline.  While a callback
	 * is slow, some calls are skipped.
	 */
	void (*on_renewed)(le_session *session, int64_t deadline, void *arg);

	void *arg;
} le_options;

/*
 * Opens a session: connects and obtains a lease.  Tries every host once.
 * options may be NULL, which means all defaults.  Waits for at most connect_ms
 * per address and call_ms per statement, plus the time for name resolution.
 *
 * Returns LE_OK; LE_DENIED for a wrong password or a missing privilege;
 * LE_INVALID for a bad option; LE_LIMIT if a server limit was reached;
 * LE_UNAVAILABLE if there is no server, or lock_election is not installed in
 * the database (CREATE EXTENSION) or not in shared_preload_libraries.
 */
LE_API le_status le_open(const le_options *options, le_session **session, le_error *error);

/*
 * Revokes the lease, which ends all holds and queue places at once, closes the
 * connection, and frees the session.  Before that, other threads' calls that
 * wait on the session return LE_LOST.  Hold objects stay usable until they are
 * released.  Observers and runners must be freed before this call.
 *
 * Waits for at most wait_ms (-1 = call_ms).  If name resolution or a callback
 * still hangs then, a session thread cleans up in the background, and the
 * callback may still be running when le_close returns.
 *
 * Returns LE_OK if the lease was revoked or had ended; LE_UNKNOWN if the server
 * has not confirmed that, so that the lease may last until its TTL expires.
 * The session is freed in any case.
 */
LE_API le_status le_close(le_session *session, int wait_ms, le_error *error);

/*
 * Like le_close, but does not revoke the lease.  The session's locks, terms and
 * queue places remain until the lease expires; another client can keep the
 * lease alive with keep_alive(lease).  Before this call, cancel the queue
 * places that must not remain.
 */
LE_API void le_orphan(le_session *session);

/*
 * Obtains a new lease for a session that has ended (LE_ENDED).  Old holds
 * remain lost, because a hold belongs to the lease under which it was
 * requested.  Returns LE_OK without any effect if the session has not ended.
 * Waits for the connection like le_open.  If progress_ms is set, returns
 * LE_UNAVAILABLE until le_progress() has been called again.
 */
LE_API le_status le_reopen(le_session *session, le_error *error);

/* Returns the session's state, which is LE_ENDED as soon as the local deadline has passed.  Does no I/O. */
LE_API le_state le_get_state(const le_session *session);

/* Returns the lease's number on the server, for keep_alive() after le_orphan.  Does no I/O. */
LE_API int64_t le_lease(const le_session *session);

/*
 * Return the local deadline as a point of le_now(), and the milliseconds left
 * until it.  When the time left is 0 or less, all work under the session's
 * holds must have stopped.  Both functions refer to the current lease; after
 * le_reopen, use le_hold_time_left for an old hold.  Do no I/O.
 */
LE_API int64_t le_deadline(const le_session *session);
LE_API int64_t le_time_left(const le_session *session);

/* Reports that the application makes progress, see progress_ms.  Does no I/O. */
LE_API void le_progress(le_session *session);

/* --- events, for programs with their own event loop --- */

typedef enum le_event_kind
{
	LE_EVENT_STATE = 1, /* the state of the session has changed */
	LE_EVENT_RENEWED,   /* the lease was renewed */
	LE_EVENT_HOLD       /* a hold was granted, or has ended: see its state */
} le_event_kind;

typedef struct le_event
{
	le_event_kind kind;
	le_state state;   /* STATE: the current state; intermediate states may be missing */
	int64_t deadline; /* RENEWED, STATE: the current local deadline */
	le_hold *hold;    /* HOLD: the hold whose state has changed */
} le_event;

/*
 * Returns a file descriptor that is readable while events are pending.  Use it
 * only with poll, select and the like: do not read, write or close it.  Valid
 * until le_close.  Does no I/O.
 */
LE_API int le_fd(const le_session *session);

/*
 * Removes the next event from the session's queue and stores it in *event.
 * Returns 1, or 0 if there is no event.  A hold whose state changes twice
 * before its event is taken has only one event.  Releasing a hold drops its
 * event.  Does no I/O.
 */
LE_API int le_next_event(le_session *session, le_event *event);

/* --- holds --- */

typedef enum le_hold_state
{
	LE_HOLD_WAITING = 1, /* has a queue place, or is about to take one */
	LE_HOLD_HELD,        /* granted; le_valid returns whether it is still held */
	LE_HOLD_OVER         /* not granted, lost, or canceled; le_await returns which */
} le_hold_state;

typedef struct le_how
{
	size_t size;
	int shared;    /* not 0 = shared: allows other shared holders */
	int permits;   /* not 0 = request a permit of a lock with this number of permits; for one name only, not
				    * with shared */
	int64_t until; /* not 0 = end the wait at this point of le_now() even if wait_ms is longer */
} le_how;

/*
 * Acquires one lock, one permit, or several locks atomically (all or none)
 * under one token.  how may be NULL, which means exclusive.  Waits in order of
 * arrival, for at most wait_ms (0 = try once without taking a queue place; -1 =
 * no limit).  wait_ms limits the time in the queue.  The server's first reply
 * may take call_ms in any case, so that even a short wait acquires a free lock.
 *
 * A lock that a session holds is not granted to it a second time: two holds of
 * one session exclude each other like the holds of two processes.
 *
 * While the connection is down, the wait continues for as long as the lease
 * lasts.  A queue place keeps its position across a reconnect, a server restart
 * and the promotion of a standby.
 *
 * Returns LE_OK if the lock is held; then *hold must be released.  Otherwise
 * *hold is NULL and nothing is held; if the reply to a grant was lost, the
 * session releases that grant in the background.  Other statuses: LE_TIMEOUT;
 * LE_LOST if the session has ended; LE_INVALID; LE_LIMIT; LE_DENIED;
 * LE_UNAVAILABLE, for example if wait_ms is 0 and the server did not reply
 * within call_ms.
 */
LE_API le_status le_acquire(le_session *session, const char *const *names, int n, const le_how *how,
							int wait_ms, le_hold **hold, le_error *error);

/*
 * Like le_acquire, but does not wait: the session takes a queue place in the
 * background, as soon as it can.  The new *hold is waiting, and must be
 * released in any case.  Use le_await or le_fd to learn of the grant.  At
 * how->until the wait ends with LE_TIMEOUT.  Does no I/O, but allocates memory.
 *
 * Returns LE_OK; LE_INVALID; LE_LOST if the session has ended; LE_NO_MEMORY.
 */
LE_API le_status le_enqueue(le_session *session, const char *const *names, int n, const le_how *how,
							le_hold **hold, le_error *error);

/*
 * Waits until the hold is granted or has ended, for at most wait_ms.  Returns
 * LE_OK if it is held; LE_WAITING if it is not granted yet and keeps its place.
 * Every other status is final: LE_TIMEOUT if how->until has passed,
 * LE_CANCELED, LE_LOST, LE_INVALID, LE_LIMIT, LE_DENIED, and so on.  With
 * wait_ms 0 it does no I/O.  Several threads may wait for one hold.
 */
LE_API le_status le_await(le_hold *hold, int wait_ms, le_error *error);

/* Like le_await, but waits until a point of le_now() at the latest. */
LE_API le_status le_await_until(le_hold *hold, int64_t until, le_error *error);

/*
 * Ends the wait for a hold: le_await returns LE_CANCELED at once, and the
 * session releases the place in the background.  Has no effect on a hold that
 * is granted or has ended, so check le_get_hold_state afterwards.  Does not
 * free the hold.  Does no I/O.
 */
LE_API void le_cancel(le_hold *hold);

/* Returns the hold's state; see le_hold_state.  Does no I/O. */
LE_API le_hold_state le_get_hold_state(const le_hold *hold);

/*
 * Returns the token, which proves ownership, or 0 if the hold was never
 * granted.  For an exclusive lock and a term it is also the fencing token,
 * which is higher than the token of every earlier holder.  Does no I/O.
 */
LE_API int64_t le_token(const le_hold *hold);

/*
 * Returns the position at which the hold entered the queue, counted from 1.
 * Returns 1 if the server's reply was lost, and 0 if the hold was not queued.
 * Does no I/O.
 */
LE_API int64_t le_position(const le_hold *hold);

/*
 * Returns whether the hold is held and the local deadline has not passed.  Does
 * no I/O: it makes two atomic reads and reads the clock.
 */
LE_API int le_valid(const le_hold *hold);

/*
 * Returns the milliseconds for which le_valid stays true without another
 * renewal; 0 if it is false.  Does no I/O.
 */
LE_API int64_t le_hold_time_left(const le_hold *hold);

/* Set and return a pointer for the application's own use.  Do no I/O. */
LE_API void le_set_user(le_hold *hold, void *user);
LE_API void *le_user(const le_hold *hold);

/*
 * Fences all locks of the hold, or the term, in the open transaction of
 * "yours", a connection of the application to the same database.  Until that
 * transaction ends, no other client is granted the lock, or elected.  So
 * everything that the transaction writes after this call is written before the
 * next grant, or not at all.
 *
 * Uses only that connection, and waits for its server like PQexec.  Returns
 * LE_LOST if the hold is no longer held; then roll back.  Returns LE_INVALID if
 * there is no open transaction; LE_DEADLOCK, LE_LIMIT, LE_DENIED.  Returns
 * LE_UNAVAILABLE if the connection broke, or the extension was moved to another
 * schema; then the transaction writes nothing, so repeat it.
 */
LE_API le_status le_fence(le_hold *hold, PGconn *yours, le_error *error);

/*
 * Releases the hold or its queue place, or resigns its term, and frees the hold
 * whatever the status is.  If hold_for_ms is not 0, ownership ends now, but the
 * lock is not granted again until hold_for_ms milliseconds after it was
 * acquired; this is not allowed for a term.  If the process dies before the
 * release, the lock is free after the session's TTL, so for work that must not
 * be repeated, make ttl_ms at least as long as hold_for_ms.  Waits for the
 * server, at most call_ms.
 *
 * Returns LE_OK if the hold was released or was not held.  Returns LE_LOST if
 * it had been lost before, so that another holder may have worked at the same
 * time.  Returns LE_UNKNOWN if there was no reply, or if the server refused the
 * release; error then describes why.  In both cases the session keeps retrying
 * in the background, the lock is free at the latest when the lease ends, and
 * hold_for_ms may or may not have taken effect.  Returns LE_INVALID if
 * hold_for_ms is not allowed; the hold was released without it.
 */
LE_API le_status le_release(le_hold *hold, int hold_for_ms, le_error *error);

/* Like le_release, but does not wait: the session releases the hold in the background.  Does no I/O. */
LE_API void le_drop(le_hold *hold);

/* --- leader election --- */

/*
 * Campaigns in an election and waits to be elected, like le_acquire for a lock.
 * candidate is the public text of the candidate, 1 to 4096 bytes.  The
 * hold is the term, and its token is the term's number.
 */
LE_API le_status le_campaign(le_session *session, const char *election, const char *candidate, int wait_ms,
							 le_hold **hold, le_error *error);

/* Like le_campaign, but does not wait; see le_enqueue. */
LE_API le_status le_enqueue_candidate(le_session *session, const char *election, const char *candidate,
									  le_hold **hold, le_error *error);

/*
 * Changes the leader's public text without a new election.  Waits for the
 * server, and for a new connection if necessary, at most call_ms.  Returns
 * LE_LOST if this term no longer leads; LE_UNKNOWN if there was no reply, so
 * that either the old or the new text may be visible.
 */
LE_API le_status le_proclaim(le_hold *hold, const char *candidate, le_error *error);

/* Resigns the term or withdraws the candidacy, and frees the hold.  Same as le_release(hold, 0, error). */
LE_API le_status le_resign(le_hold *hold, le_error *error);

typedef struct le_leader_info
{
	size_t size;
	int64_t term;       /* 0 = there is no leader */
	int64_t elected_at; /* microseconds since 1970, the server's clock */
	int64_t valid_ms;   /* time until the leader's lease ends, by the server's clock; -1 = unknown */
	char candidate[4097];
} le_leader_info;

/* Reads the leader of an election. leader->size must be set.  Waits for the server, at most call_ms. */
LE_API le_status le_leader(le_session *session, const char *election, le_leader_info *leader,
						   le_error *error);

/* --- observers --- */

typedef struct le_observer le_observer;

typedef struct le_change
{
	int64_t change; /* number of the change; later changes have higher numbers */
	int64_t term;
	const char *
		how; /* elected, proclaimed; at the term's end: resigned, expired, revoked, forced, undone, disconnected */
	const char *candidate;
	int64_t elected_at; /* microseconds since 1970, the server's clock */
	int64_t changed_at;
	int leads; /* 1 = this term leads (elected, proclaimed); 0 = the election is vacant */
} le_change;

/*
 * Calls on_change for every change of an election whose number is higher than
 * after.  Changes are reported in order, once each and without gaps, even
 * across reconnects, for as long as the server keeps them
 * (lock_election.history_retention, 7 days).  If after is 0, reports all
 * changes that are kept; if after is -1, reports the current leader, if any,
 * and all later changes.  A program that stores the number of the last change
 * that it has handled misses nothing when it restarts.  The observer continues
 * when the lease is lost, because it needs only the connection.  The texts of a
 * change are valid during the callback only.
 *
 * Does no I/O, but allocates memory.  Returns LE_OK, LE_INVALID or
 * LE_NO_MEMORY.
 */
LE_API le_status le_observe(le_session *session, const char *election, int64_t after,
							void (*on_change)(const le_change *change, void *arg), void *arg,
							le_observer **observer, le_error *error);

/* Ends the observer and frees it.  When this returns, none of its callbacks is running or will run. */
LE_API void le_unobserve(le_observer *observer);

/* --- the runner: campaigns repeatedly --- */

typedef struct le_runner le_runner;

typedef struct le_callbacks
{
	size_t size;

	/*
	 * Called in a separate thread when this process has been elected.  Runs for
	 * as long as the application wants to lead, and should return when
	 * le_must_stop() is true.  The runner resigns the term only after this
	 * callback has returned, so that this leader's work never overlaps with the
	 * next leader's, and never runs the callback twice at the same time.
	 * Returns 0 to campaign again, anything else to stop the runner.  Must not
	 * release the hold.
	 */
	int (*on_elected)(le_hold *term, void *arg);

	/*
	 * Called when the term is lost while on_elected runs; on_elected must then
	 * stop its work immediately.  Called at most once per term, and never
	 * before on_elected.  Runs in the runner's thread, so it may overlap with
	 * the return of on_elected.  Optional, because le_must_stop() returns the
	 * same information.
	 */
	void (*on_lost)(le_hold *term, void *arg);

	/*
	 * Called when a leader was elected (perhaps this process) or has proclaimed
	 * another text, and when there is no leader any more (candidate NULL, term
	 * 0).  Runs as a callback of the session.  Optional.
	 */
	void (*on_new_leader)(const char *candidate, int64_t term, void *arg);

	void *arg;
} le_callbacks;

/*
 * Starts a runner, which campaigns in the background until le_stop.  When the
 * lease is lost, the runner obtains a new one (le_reopen) and campaigns again.
 * After temporary errors it retries with a growing delay.  Does no I/O, but
 * allocates memory and starts threads.
 */
LE_API le_status le_run(le_session *session, const char *election, const char *candidate,
						const le_callbacks *callbacks, le_runner **runner, le_error *error);

/* Sets the public text of later candidacies; for the current term, use le_proclaim.  Does no I/O. */
LE_API le_status le_set_candidate(le_runner *runner, const char *candidate, le_error *error);

/*
 * le_must_stop returns whether on_elected must stop, because the term is lost
 * or le_stop was called.  Once true, it stays true for the rest of the term.
 * Does no I/O.  le_wait_stop waits until le_must_stop is true, for at most
 * wait_ms, and returns its value.
 */
LE_API int le_must_stop(const le_hold *term);
LE_API int le_wait_stop(le_hold *term, int wait_ms);

/*
 * Stops the runner: waits without limit until on_elected has returned, resigns,
 * and frees the runner.  Must be called for each runner, before le_close.
 * Returns LE_OK; or LE_FAILED, and a description in error, if a permanent error
 * had ended the runner.
 */
LE_API le_status le_stop(le_runner *runner, le_error *error);

/* --- several servers --- */

/*
 * Returns the shard, one of n, to which the name of a lock or an election
 * belongs, for programs that distribute names over several servers.  The result
 * is a position in shards, or -1 if n is 0, or name or a shard is NULL.
 *
 * shards has the shards' names, not their connection strings.  The result is
 * the shard with the highest SHA-256 of its name, a zero byte and the lock's
 * name.  It depends on the names alone, not on their order, and is the same in
 * every version and on every machine.  A new shard takes over some names from
 * each other shard; all other names stay on their shard.  A change of the
 * shards needs preparation, see docs/operation/scaling.md.
 *
 * Names on different shards can be neither acquired together nor fenced in one
 * transaction.  Does no I/O.
 */
LE_API int le_shard(const char *name, const char *const *shards, int n);

/* --- the portable edition --- */

/*
 * Installs the portable edition of lock_election, which is written in SQL only,
 * or upgrades an older version of it, in one transaction.  "yours" is a
 * connection of the application to the database.  If this version is already
 * installed, does nothing and needs no privilege.  Otherwise the role of the
 * connection needs CREATE on the database.  This role becomes the owner of all
 * locks, so it should not be the role that the application uses.
 *
 * schema is the schema of the functions, which is created if it is missing;
 * NULL means the first schema of search_path.  An edition that is already
 * installed stays in its schema.  grantee is the role that may use the schema;
 * NULL means that all roles may use a schema that this call creates.
 *
 * Waits for the server like PQexec.  Returns LE_OK; LE_DENIED if the role lacks
 * CREATE, or another role owns the edition; LE_UNAVAILABLE on a standby or in a
 * read-only session; LE_INVALID if yours has an open transaction, or there is
 * no schema for the functions; LE_FAILED if a newer version or the C extension
 * is installed, or the server cannot run the edition; LE_UNKNOWN if the outcome
 * is not known, in which case the call can be repeated.
 */
LE_API le_status le_install(PGconn *yours, const char *schema, const char *grantee, le_error *error);

/*
 * Returns the script that le_install runs (the file lock_election.sql), for
 * tools that run it themselves.  Does no I/O.
 */
LE_API const char *le_install_script(void);

#endif /* LOCK_ELECTION_H */
