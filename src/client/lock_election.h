/*
 * lock_election.h
 *		liblockelection: locks and leader election of the PostgreSQL extension
 *		lock_election, for programs in C.
 *
 * A session has one connection, one lease on the server, and threads of its
 * own that keep the lease alive.  Everything that the session acquires or waits
 * for belongs to that lease.  A process needs only one session, whatever it
 * locks: a thousand waiters share its connection, and what many threads request
 * or release at the same time travels in one statement.  A caller that finds
 * the connection free runs that statement in its own thread.
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
 * THE DEADLINE.  A lease lasts for its TTL.  The session renews it after a third
 * of the TTL, and retries until it succeeds.  A renewal moves the local deadline
 * to the time at which the renewal was *sent*, plus the validity that the server
 * returned, minus a margin.  The validity is the TTL, or less if the server has
 * restarted repeatedly or could not write; a shorter one never moves the
 * deadline back.  Until the deadline nobody else can get what the session holds,
 * whatever happens to the network.  After it the session has ended, whatever the
 * network says.  The clock is CLOCK_BOOTTIME, which keeps running while the
 * machine is suspended.  A failed renewal loses nothing.  Nor does a broken
 * connection: the session reconnects, perhaps to another host of the connection
 * string, and renews the same lease.
 *
 * A process that is stopped between le_valid() and its write can still write
 * late.  Only a fence, le_fence(), prevents that.
 *
 * THREADS.  Every function may be called from any thread at any time, with two
 * exceptions: no other thread may use an object during or after the call that
 * frees it (le_close, le_orphan, le_release, le_drop, le_unobserve, le_stop);
 * and these functions must not be called from a callback of their own session.
 * Functions that are marked "local" do no I/O, do not wait, and are cheap.
 * Nothing here may be called from a signal handler.  There is no global state.
 * The session's threads block all signals.
 *
 * CALLBACKS of a session and of its observers run one at a time in one thread of
 * the session, which is not the one that renews: a slow callback delays other
 * callbacks, but never a renewal, and never the results of local functions.
 *
 * OWNERSHIP.  A call that creates an object does so only if it returns LE_OK.
 * Each object is freed by one call: a session by le_close or le_orphan, a hold
 * by le_release, le_resign or le_drop, an observer by le_unobserve, a runner by
 * le_stop.  That call frees the object whatever it returns: the status says what
 * has become of the lock or the lease, and there is nothing to repeat.  No other
 * call frees anything.
 *
 * FORK.  The threads of a session stay in the parent, and so does the session.
 * In a child nothing is held: le_valid is false.  Functions that give something
 * back (le_close, le_orphan, le_release, le_resign, le_drop, le_cancel,
 * le_unobserve, le_stop) do nothing there and return LE_OK.  Functions that
 * request something return LE_INVALID.  Nothing is freed.  All descriptors are
 * closed by exec.
 *
 * TEXTS are in UTF-8, whatever the encoding of the environment, the database and
 * the program's own connections.  Other texts are rejected with LE_INVALID.
 *
 * TIMES are milliseconds.  A wait of -1 has no limit; other negative waits are
 * rejected with LE_INVALID.  Points in time are milliseconds of CLOCK_BOOTTIME,
 * see le_now().
 *
 * STRUCTS that begin with a size can grow at their end: set the size, and leave
 * members that you do not need at zero.  A program works with older and newer
 * libraries than the header that it was built with.  Members that the program's
 * struct does not have yet are taken as zero, which is the default.  Members
 * that the library does not know must be zero: LE_INVALID otherwise.  In a
 * struct that the library fills, such members become zero.  Structs without a
 * size do not grow, except le_change, which only the library creates.  New
 * statuses, states and kinds of events may be added: expect unknown ones.
 */
#ifndef LOCK_ELECTION_H
#define LOCK_ELECTION_H

#include <stddef.h>
#include <stdint.h>

#include <libpq-fe.h>

/* The linkage of each function that the library exports */
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
	LE_WAITING,     /* le_await: not granted yet, and the hold keeps waiting */
	LE_TIMEOUT,     /* not granted within the limit: nothing is held, and nothing waits */
	LE_CANCELED,    /* canceled by le_cancel: nothing is held */
	LE_LOST,        /* LE001: the lease or this hold has ended; or the local deadline has passed */
	LE_DEADLOCK,    /* 40P01: roll the transaction back and repeat it */
	LE_LIMIT,       /* 53200, 53400: a limit of the server; the message names its setting */
	LE_DENIED,      /* 42501, 28xxx: no permission, or a wrong password */
	LE_INVALID,     /* 22xxx, a bad argument, or a wrong state; the message names it */
	LE_UNAVAILABLE, /* no server, no extension, locked tables, or no reply in time: no lasting effect */
	LE_UNKNOWN,     /* not confirmed: may have taken effect, or may take effect later */
	LE_NO_MEMORY,   /* out of memory, threads or descriptors: no effect */
	LE_FAILED       /* any other error of the server: no effect */
} le_status;

/* Optional in every call: pass NULL.  Empty if the call returns LE_OK, filled otherwise. */
typedef struct le_error
{
	le_status status;
	char sqlstate[6]; /* from the server, or "" */
	char message[506];
} le_error;

/*
 * Describes why a connection of the application's own could not be made,
 * without any part of its connection string that may be a password: libpq's own
 * message quotes what it cannot parse.  For errors and logs that others read.
 * Returns the status.  Local.
 */
LE_API le_status le_connection_error(const PGconn *conn, le_error *error);

/* Returns a word for messages, such as "timeout".  Local. */
LE_API const char *le_status_name(le_status status);

/* Returns the version of the library that runs, e.g. "1.0.0".  Local. */
LE_API const char *le_version(void);

/* Returns the time in milliseconds of CLOCK_BOOTTIME.  Local. */
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
	 * "service=...", several hosts.  NULL: the environment (PGHOST, ...).  Only
	 * a primary is accepted, even if the role's transactions are read-only by
	 * default; standbys are skipped.  A target_session_attrs applies as well.
	 */
	const char *conninfo;

	/* The beginning of "owner" in the server's views.  Cut to 200 bytes.  NULL: none. */
	const char *name;

	/* The TTL of the lease.  100 to 2073600000 (24 days); 0: 30000. */
	int ttl_ms;

	/*
	 * How much earlier the local deadline is than the end of the lease.  0: a
	 * twentieth of the TTL, at most 1000.
	 */
	int margin_ms;

	/*
	 * How long connecting to one address of a host may take, unless conninfo
	 * has connect_timeout.  0: 5000.
	 */
	int connect_ms;

	/*
	 * How long the server may take to reply to one statement before the session
	 * reconnects.  0: a quarter of the TTL, at least 200 and at most 10000.
	 */
	int call_ms;

	/*
	 * If not 0: renew only while le_progress() is called at least this often,
	 * so that a hung process loses its lease.
	 */
	int progress_ms;

	/*
	 * How the session notices that a waiter was granted.  0: by LISTEN where it
	 * works, which is tested once per connection when somebody waits; otherwise
	 * by polling, for example behind a pooler in transaction mode.  1: by
	 * LISTEN only; a waiting call returns LE_UNAVAILABLE where LISTEN does not
	 * work.  -1: by polling.
	 */
	int listen;

	/* The interval of polling where LISTEN does not work.  0: 250. */
	int poll_ms;

	/*
	 * Called after each change of state, in order.  If a callback is slow,
	 * states in between may be skipped, but never LE_ENDED and never the last
	 * one.  Not called for the LE_CONNECTED of le_open.
	 */
	void (*on_state)(le_session *session, le_state state, void *arg);

	/* Called after each renewal with the local deadline.  If a callback is slow, some are skipped. */
	void (*on_renewed)(le_session *session, int64_t deadline, void *arg);

	void *arg;
} le_options;

/*
 * Connects and grants the lease.  Tries every host once.  options NULL: all
 * defaults.  Waits for at most connect_ms per address and call_ms per
 * statement, and for name resolution.
 *
 * Returns LE_DENIED for a wrong password or a missing right; LE_INVALID for a
 * bad option; LE_UNAVAILABLE if there is no server, or lock_election is not
 * installed in the database (CREATE EXTENSION) or not in
 * shared_preload_libraries; LE_LIMIT.
 */
LE_API le_status le_open(const le_options *options, le_session **session, le_error *error);

/*
 * Revokes the lease, which ends all holds and queue places at once, closes the
 * connection, and frees the session.  Before that, calls of other threads that
 * wait on it return LE_LOST.  Holds stay valid as objects until they are
 * released; observers and runners must be freed before.
 *
 * Waits for at most wait_ms (-1: call_ms), even if name resolution or a
 * callback hangs: then a thread of the session cleans up in the background, and
 * that callback may still be running.
 *
 * Returns LE_OK if the lease was revoked or had ended; LE_UNKNOWN if that was
 * not confirmed: the lease expires at the latest after its TTL.  The session is
 * freed in any case.
 */
LE_API le_status le_close(le_session *session, int wait_ms, le_error *error);

/*
 * Like le_close, but does not revoke the lease: what the session holds stays
 * held until the lease expires, or for as long as somebody else keeps it alive
 * with keep_alive(lease).  Queue places stay, too: cancel them first.
 */
LE_API void le_orphan(le_session *session);

/*
 * After LE_ENDED: grants a new lease to the same session.  Old holds stay lost,
 * because a hold belongs to the lease under which it was requested.  Also
 * returns LE_OK if the session has not ended.  Waits for the connection like
 * le_open.  With progress_ms, returns LE_UNAVAILABLE until le_progress() has
 * been called again.
 */
LE_API le_status le_reopen(le_session *session, le_error *error);

/* Returns the state: LE_ENDED as soon as the local deadline has passed.  Local. */
LE_API le_state le_get_state(const le_session *session);

/* Returns the number of the lease on the server, e.g. for keep_alive() after le_orphan.  Local. */
LE_API int64_t le_lease(const le_session *session);

/*
 * Return the local deadline as a point of le_now(), and the time left until it.
 * At 0 or less all work under the session's holds must have stopped.  Both are
 * about the present lease: after le_reopen, ask the hold instead.  Local.
 */
LE_API int64_t le_deadline(const le_session *session);
LE_API int64_t le_time_left(const le_session *session);

/* Reports that the application makes progress, see progress_ms.  Local. */
LE_API void le_progress(le_session *session);

/* --- events, for programs with a loop of their own --- */

typedef enum le_event_kind
{
	LE_EVENT_STATE = 1, /* the state of the session has changed */
	LE_EVENT_RENEWED,   /* the lease was renewed */
	LE_EVENT_HOLD       /* a hold was granted, or has ended: see its state */
} le_event_kind;

typedef struct le_event
{
	le_event_kind kind;
	le_state state;   /* STATE: the present one; states in between may be missing */
	int64_t deadline; /* RENEWED, STATE: the present one */
	le_hold *hold;    /* HOLD: the hold that has changed */
} le_event;

/*
 * Returns a descriptor that is readable while there are events.  Use it only
 * with poll, select and the like: do not read, write or close it.  Valid until
 * le_close.  Local.
 */
LE_API int le_fd(const le_session *session);

/*
 * Takes the next event.  Returns 0 if there is none.  A hold whose state
 * changes twice before its event is taken has one event.  The event of a hold
 * is dropped when the hold is released.  Local.
 */
LE_API int le_next_event(le_session *session, le_event *event);

/* --- holds --- */

typedef enum le_hold_state
{
	LE_HOLD_WAITING = 1, /* has a queue place, or is about to take one */
	LE_HOLD_HELD,        /* granted; le_valid tells whether it is still held */
	LE_HOLD_OVER         /* not granted, lost, or canceled: le_await says which */
} le_hold_state;

typedef struct le_how
{
	size_t size;
	int shared;    /* if not 0: admits other shared holders */
	int permits;   /* if not 0: one of this many permits; for one name only, and not with shared */
	int64_t until; /* if not 0: do not wait beyond this point of le_now(), whatever wait_ms says */
} le_how;

/*
 * Acquires one lock, or one permit, or several locks at once: all or none,
 * under one token.  how NULL: exclusive.  Waits for at most wait_ms (0: tries
 * once and takes no queue place; -1: no limit), in the order of arrival.
 * wait_ms limits the time in the queue: the first reply of the server may take
 * call_ms in any case, so that even a short wait acquires a free lock.
 *
 * A lock that this session holds is not granted to it again: two holds of one
 * session exclude each other like those of two processes.
 *
 * While the connection is down the wait continues, as long as the lease lasts;
 * a queue place keeps its rank over a reconnect, a restart of the server and
 * the promotion of a standby.
 *
 * Returns LE_OK if the lock is held: *hold must be released.  Otherwise *hold
 * is NULL and nothing is held: a grant whose reply was lost is released in the
 * background.  Other statuses: LE_TIMEOUT; LE_LOST if the session has ended;
 * LE_INVALID; LE_LIMIT; LE_DENIED; LE_UNAVAILABLE, for example if wait_ms is 0
 * and the server did not reply within call_ms.
 */
LE_API le_status le_acquire(le_session *session, const char *const *names, int n, const le_how *how,
							int wait_ms, le_hold **hold, le_error *error);

/*
 * Like le_acquire, but does not wait: the session takes a queue place as soon
 * as it can.  *hold is waiting; le_await or le_fd report what becomes of it,
 * and it must be released in any case.  At how->until the wait ends with
 * LE_TIMEOUT.  Local, except that it allocates memory.
 *
 * Returns LE_OK; LE_INVALID; LE_LOST if the session has ended; LE_NO_MEMORY.
 */
LE_API le_status le_enqueue(le_session *session, const char *const *names, int n, const le_how *how,
							le_hold **hold, le_error *error);

/*
 * Waits until the hold is granted or has ended.  Returns LE_OK if it is held;
 * LE_WAITING if it is not granted yet: it keeps its place.  Every other status
 * is final: LE_TIMEOUT if how->until has passed, LE_CANCELED, LE_LOST,
 * LE_INVALID, LE_LIMIT, LE_DENIED, ...  wait_ms 0: local.  Several threads may
 * wait for one hold.
 */
LE_API le_status le_await(le_hold *hold, int wait_ms, le_error *error);

/* Like le_await, but waits until a point of le_now(). */
LE_API le_status le_await_until(le_hold *hold, int64_t until, le_error *error);

/*
 * Ends the wait for a hold: le_await returns LE_CANCELED at once, and the place
 * is given back in the background.  Has no effect on a hold that is granted or
 * has ended, so look at le_get_hold_state afterwards.  Does not free the hold.
 * Local.
 */
LE_API void le_cancel(le_hold *hold);

/* Returns the state, see le_hold_state.  Local. */
LE_API le_hold_state le_get_hold_state(const le_hold *hold);

/*
 * Returns the proof of ownership.  For an exclusive lock and a term it is also
 * the fencing token: higher than that of every earlier holder.  0 if the hold
 * was never granted.  Local.
 */
LE_API int64_t le_token(const le_hold *hold);

/*
 * Returns the position in the queue, from 1, when the place was taken; 1 if
 * that reply was lost; 0 if the hold was not queued.  Local.
 */
LE_API int64_t le_position(const le_hold *hold);

/*
 * Returns whether the hold is held and the local deadline has not passed.
 * Local: two atomic reads and the clock.
 */
LE_API int le_valid(const le_hold *hold);

/* Returns for how many milliseconds le_valid stays true if no renewal succeeds; 0 if it is false.  Local. */
LE_API int64_t le_hold_time_left(const le_hold *hold);

/* Set and return a pointer of the application.  Local. */
LE_API void le_set_user(le_hold *hold, void *user);
LE_API void *le_user(const le_hold *hold);

/*
 * Fences the hold in the open transaction of yours, a connection of the
 * application to the same database: from here to the end of the transaction
 * nobody else is granted this lock, or elected.  What the transaction writes
 * after this is written by the holder, or not at all.  Fences all locks of the
 * hold.
 *
 * Uses only that connection, and waits for its server like PQexec.  Returns
 * LE_LOST if the hold is not held any more: roll back; LE_INVALID if there is
 * no open transaction; LE_DEADLOCK, LE_LIMIT, LE_DENIED; LE_UNAVAILABLE if the
 * connection broke, or the extension was moved to another schema: nothing is
 * written, so repeat the transaction.
 */
LE_API le_status le_fence(le_hold *hold, PGconn *yours, le_error *error);

/*
 * Releases the hold, or gives its queue place back, and frees it whatever the
 * status is.  A term is resigned.  If hold_for_ms is not 0, ownership ends now,
 * but nobody is granted the lock until this long after it was acquired (not for
 * a term).  Waits for the server, at most call_ms.
 *
 * Returns LE_OK if the hold was released or was not held.  LE_LOST: it had been
 * lost before, so another holder may have worked at the same time.  LE_UNKNOWN:
 * there was no reply, or the server refused the release, as error says: the
 * session keeps retrying in the background, and the lock is free at the latest
 * when the lease ends; whether hold_for_ms took effect is unknown.  LE_INVALID:
 * hold_for_ms is not allowed, and the hold was released without it.
 */
LE_API le_status le_release(le_hold *hold, int hold_for_ms, le_error *error);

/* Like le_release, but in the background: does not wait for the server.  Local. */
LE_API void le_drop(le_hold *hold);

/* --- leader election --- */

/*
 * Campaigns in an election and waits to be elected, like le_acquire for a lock.
 * candidate: the text that everybody sees, 1 to 4096 bytes.  The hold is the
 * term, and its token the number of the term.
 */
LE_API le_status le_campaign(le_session *session, const char *election, const char *candidate, int wait_ms,
							 le_hold **hold, le_error *error);

/* Like le_enqueue, for a candidacy. */
LE_API le_status le_enqueue_candidate(le_session *session, const char *election, const char *candidate,
									  le_hold **hold, le_error *error);

/*
 * Changes the text that everybody sees, without a new election.  Waits for the
 * server, and for a new connection if necessary, at most call_ms.  Returns
 * LE_LOST if this term does not lead any more; LE_UNKNOWN if there was no
 * reply: everybody may see the old or the new text.
 */
LE_API le_status le_proclaim(le_hold *hold, const char *candidate, le_error *error);

/* Resigns the term or withdraws the candidacy, and frees the hold: le_release(hold, 0, error). */
LE_API le_status le_resign(le_hold *hold, le_error *error);

typedef struct le_leader_info
{
	size_t size;
	int64_t term;       /* 0: nobody leads */
	int64_t elected_at; /* microseconds since 1970, the server's clock */
	int64_t valid_ms;   /* time left as the server sees it; -1: unknown */
	char candidate[4097];
} le_leader_info;

/* Reads the leader of an election.  Waits for the server, at most call_ms.  leader->size must be set. */
LE_API le_status le_leader(le_session *session, const char *election, le_leader_info *leader,
						   le_error *error);

/* --- observers --- */

typedef struct le_observer le_observer;

typedef struct le_change
{
	int64_t change; /* number of the change; later changes have higher ones */
	int64_t term;
	const char *
		how; /* elected, proclaimed; the term ended: resigned, expired, revoked, forced, undone, disconnected */
	const char *candidate;
	int64_t elected_at; /* microseconds since 1970, the server's clock */
	int64_t changed_at;
	int leads; /* elected or proclaimed: this term leads; 0: the election is vacant */
} le_change;

/*
 * Calls on_change for every change of an election after the one whose number is
 * after: in order, once each, without gaps, also over reconnects, for as long
 * as the server keeps changes (lock_election.history_retention, 7 days).  after
 * 0: from the oldest one that is kept; -1: the present leader, if any, and all
 * later changes.  A program that stores the last number it has handled misses
 * nothing over a restart of its own.  Continues when the lease is lost, since
 * it needs only the connection.  The texts are valid during the call.
 *
 * Local, except that it allocates memory.  Returns LE_OK, LE_INVALID,
 * LE_NO_MEMORY.
 */
LE_API le_status le_observe(le_session *session, const char *election, int64_t after,
							void (*on_change)(const le_change *change, void *arg), void *arg,
							le_observer **observer, le_error *error);

/* Ends the observer.  When this returns, no callback of it is running, and none will run. */
LE_API void le_unobserve(le_observer *observer);

/* --- the runner: campaigns again and again --- */

typedef struct le_runner le_runner;

typedef struct le_callbacks
{
	size_t size;

	/*
	 * Called when this process has been elected, in a thread of its own.  Runs
	 * for as long as the application wants to lead; should return when
	 * le_must_stop() is true.  The term is resigned only after it has returned,
	 * so that this leader's work never overlaps with the next one's; nor does
	 * the runner call on_elected again before that.  Returns 0 to campaign
	 * again, anything else to stop the runner.  Must not release the hold.
	 */
	int (*on_elected)(le_hold *term, void *arg);

	/*
	 * Called when the term is lost while on_elected runs: end its work now.
	 * Called at most once per term, and never before on_elected.  Runs in the
	 * thread of the runner, so it may overlap with the return of on_elected.
	 * Optional: le_must_stop() tells the same.
	 */
	void (*on_lost)(le_hold *term, void *arg);

	/*
	 * Called when a leader was elected (perhaps this process), or has
	 * proclaimed another text.  candidate NULL: nobody leads.  Runs as a
	 * callback of the session.  Optional.
	 */
	void (*on_new_leader)(const char *candidate, int64_t term, void *arg);

	void *arg;
} le_callbacks;

/*
 * Campaigns in the background until le_stop.  When the lease is lost, grants
 * the session a new one (le_reopen) and campaigns again.  Retries after
 * temporary errors, with a growing delay.  Local, except that it allocates
 * memory and starts threads.
 */
LE_API le_status le_run(le_session *session, const char *election, const char *candidate,
						const le_callbacks *callbacks, le_runner **runner, le_error *error);

/* Sets the text of later candidacies.  Local.  For the present term use le_proclaim. */
LE_API le_status le_set_candidate(le_runner *runner, const char *candidate, le_error *error);

/*
 * le_must_stop returns whether on_elected must stop, because the term is lost
 * or le_stop was called.  Once true, it stays true for the rest of the term.
 * Local.  le_wait_stop waits until it is true, for at most wait_ms, and returns
 * whether it is.
 */
LE_API int le_must_stop(const le_hold *term);
LE_API int le_wait_stop(le_hold *term, int wait_ms);

/*
 * Ends the runner: waits without limit until on_elected has returned, resigns,
 * and frees the runner.  Must be called for each runner, before le_close.
 * Returns LE_OK; LE_FAILED if a permanent error had ended the runner, as error
 * says.
 */
LE_API le_status le_stop(le_runner *runner, le_error *error);

/* --- several servers --- */

/*
 * For names of locks and elections that are spread over several servers:
 * returns to which of the n shards a name belongs, as a position in shards; -1
 * if there are none, or one of the texts is NULL.
 *
 * shards are names, not connection strings.  The result depends on the names
 * alone, not on their order, and is the same in every version and on every
 * machine: the shard with the highest SHA-256 of its name, a zero byte and the
 * name of the lock.  An additional shard takes its part from all others, and
 * leaves every other name where it is.  A change of the shards must be
 * prepared: docs/operation/scaling.md.
 *
 * Names on different shards cannot be acquired together, nor fenced in one
 * transaction.  Local.
 */
LE_API int le_shard(const char *name, const char *const *shards, int n);

/* --- the portable edition --- */

/*
 * Installs the portable edition of lock_election, the one without C, in the
 * database of a connection of the application's own, or upgrades an older
 * version, in one transaction.  Does nothing if this version is installed
 * already, whatever the role.  The role needs CREATE on the database, and will
 * own all locks: it should not be the application's.
 *
 * schema: the schema of the functions, created if it is missing; NULL: the
 * first one of search_path.  An installed edition stays in its schema.
 * grantee: the role that may use the schema; NULL: everybody may use a schema
 * that is created.
 *
 * Waits for the server like PQexec.  Returns LE_DENIED if the role lacks
 * CREATE, or another role owns the edition; LE_UNAVAILABLE on a standby, or in
 * a read-only session; LE_INVALID if yours has an open transaction, or there is
 * no schema for the functions; LE_FAILED if a newer version or the extension in
 * C is installed, or the server cannot run the edition; LE_UNKNOWN if it may be
 * installed: call again.
 */
LE_API le_status le_install(PGconn *yours, const char *schema, const char *grantee, le_error *error);

/*
 * Returns the script that le_install runs, the file lock_election.sql, for
 * tools that run it themselves.  Local.
 */
LE_API const char *le_install_script(void);

#endif /* LOCK_ELECTION_H */
