/*
 * lock_election.h
 *		liblockelection: locks and leader election of the PostgreSQL extension
 *		lock_election, for programs in C.
 *
 * A session has one connection, one lease on the server, and threads of its
 * own that keep the lease alive.  Everything that the session acquires or
 * waits for hangs on that lease.  A process needs one session, whatever it
 * locks: a thousand waiters share its connection, and the locks that many
 * threads ask for, or give back, at one time travel in one statement.  A caller
 * that finds the connection free makes that statement in its own thread.
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
 * THE DEADLINE.  A lease lasts for its TTL.  The session renews it at a third
 * of the TTL, and again and again after a failure.  The local deadline is the
 * time at which a renewal that succeeded was *sent*, plus what the server has
 * promised with it, less a margin.  That is the TTL, and less where the server
 * has restarted again and again, or could not write; a shorter promise does not
 * take back a longer one.  Until then nobody else can have what the session holds, whatever
 * has become of the network; afterwards the session is over, whatever the
 * network says.  The clock is CLOCK_BOOTTIME, which goes on while the machine
 * is suspended.  A renewal that fails loses nothing.  A broken connection loses
 * nothing: the session connects again, also to another host of the connection
 * string, and renews the same lease.
 *
 * A process that is stopped between le_valid() and its write can still write
 * late.  Only a fence, le_fence(), excludes that.
 *
 * THREADS.  Every function may be called from any thread at any time, with two
 * exceptions: no other thread may use an object while, or after, it is given
 * back (le_close, le_orphan, le_release, le_drop, le_unobserve, le_stop); and
 * these must not be called from a callback of their own session.  Functions
 * that are marked "local" do no I/O, wait for nothing and are cheap.  Nothing
 * here may be called from a signal handler.  There is no global state.  The
 * session's threads block all signals.
 *
 * CALLBACKS run one after the other in one thread of the session, which is not
 * the one that renews: a slow callback delays other callbacks, never a renewal,
 * and never what the local functions tell.
 *
 * OWNERSHIP.  A call that makes an object makes it with LE_OK, and with no other
 * answer.  Each object is given back by one call: a session by le_close or
 * le_orphan, a hold by le_release, le_resign or le_drop, an observer by
 * le_unobserve, a runner by le_stop.  That call frees the object, whatever it
 * answers: the answer tells what has become of the lock or the lease, and there
 * is nothing to repeat.  No other call frees anything.
 *
 * FORK.  The threads of a session stay in the parent, and so does the session.
 * In a child nothing is held: le_valid is false.  What gives something back
 * (le_close, le_orphan, le_release, le_resign, le_drop, le_cancel, le_unobserve,
 * le_stop) does nothing there, and answers LE_OK; what asks for something
 * answers LE_INVALID.  Nothing is freed.  All descriptors are closed by exec.
 *
 * TEXTS are in UTF-8, whatever the encoding of the environment, the database and
 * the program's own connections.  Others answer LE_INVALID.
 *
 * TIMES are milliseconds.  A wait of -1 has no limit; other negative ones answer
 * LE_INVALID.  Points in time are
 * milliseconds of CLOCK_BOOTTIME, see le_now().
 *
 * STRUCTS that begin with a size can grow at their end: set it, and leave at
 * zero what is not needed.  A program works with an older and with a newer
 * library than the header that it was built with.  What the program's struct
 * does not have is zero, that is the default.  What the library's does not have
 * has to be zero: LE_INVALID otherwise.  In a struct that the library fills, it
 * becomes zero.  Structs without a size do not grow, but for le_change, which
 * the library makes.  New statuses, states and kinds of events may come: expect
 * some that you do not know.
 */
#ifndef LOCK_ELECTION_H
#define LOCK_ELECTION_H

#include <stddef.h>
#include <stdint.h>

#include <libpq-fe.h>

/* All that the library exports. */
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

/* --- what calls answer --- */

typedef enum le_status
{
	LE_OK = 0,
	LE_WAITING,     /* le_await: not granted yet, and the hold goes on waiting */
	LE_TIMEOUT,     /* not granted within the limit: nothing is held, and nothing waits */
	LE_CANCELED,    /* by le_cancel: nothing is held */
	LE_LOST,        /* the lease, or this hold, has ended: LE001, or the local deadline has passed */
	LE_DEADLOCK,    /* 40P01: roll the transaction back and repeat it */
	LE_LIMIT,       /* 53xxx: a limit of the server; the message names its setting */
	LE_DENIED,      /* 42501, 28xxx: not allowed, or a wrong password */
	LE_INVALID,     /* 22023 or a bad argument, or a wrong state; the message names it */
	LE_UNAVAILABLE, /* no server, no extension, locked tables, or no answer in time: no effect that lasts */
	LE_UNKNOWN,     /* not confirmed: may have taken effect, or may take effect later */
	LE_NO_MEMORY,   /* out of memory, threads or descriptors: no effect */
	LE_FAILED       /* any other error of the server: no effect */
} le_status;

/* Optional everywhere: pass NULL.  Filled unless the call answers LE_OK; then it is empty. */
typedef struct le_error
{
	le_status status;
	char sqlstate[6]; /* of the server, or "" */
	char message[506];
} le_error;

/*
 * Why a connection of the application's own could not be made, without a piece
 * of its connection string that may be a password: libpq's own message quotes
 * what it cannot parse.  For errors and logs that others read.  Local.
 */
LE_API le_status le_connection_error(const PGconn *conn, le_error *error);

/* "timeout", ...: a word for messages.  Local. */
LE_API const char *le_status_name(le_status status);

/* The version of the library that runs, e.g. "1.0.0".  Local. */
LE_API const char *le_version(void);

/* Milliseconds of CLOCK_BOOTTIME.  Local. */
LE_API int64_t le_now(void);

/* --- sessions --- */

typedef struct le_session le_session;
typedef struct le_hold le_hold; /* a lock, a permit, several locks, or a candidacy and its term */

typedef enum le_state
{
	LE_CONNECTED = 1, /* the lease is kept alive */
	LE_SUSPENDED,     /* no connection now; what is held is still held: see the deadline */
	LE_ENDED          /* the lease is lost or given back, and all holds of it */
} le_state;

typedef struct le_options
{
	size_t size;

	/*
 * As for PQconnectdb: "key=value ...", a URI, "service=...", several
 * hosts; NULL: the environment (PGHOST, ...).  A primary is asked for, which
 * the role need not be allowed to write to, unless target_session_attrs says
 * something else; a standby is passed over in any case.
 */
	const char *conninfo;

	/* Shown as the start of "owner" in the server's views.  Cut to 200 bytes.  NULL: nothing. */
	const char *name;

	/* Of the lease.  100 to 2073600000 (24 days); 0: 30000. */
	int ttl_ms;

	/* The local deadline is earlier than the end of the lease by this.  0: a twentieth of the TTL, at most 1000. */
	int margin_ms;

	/* How long connecting to one host may take, unless conninfo has connect_timeout.  0: 5000. */
	int connect_ms;

	/*
 * How long the server may take to answer one statement, before the
 * connection is given up and made again.  0: a quarter of the TTL, at least
 * 200 and at most 10000.
 */
	int call_ms;

	/* Not 0: renew only while le_progress() is called at least this often, so that a hung process loses its lease. */
	int progress_ms;

	/*
 * How a grant to a waiter is noticed.  0: by LISTEN where it works, which
 * is tested once for a connection when somebody waits; else by asking,
 * as behind a pooler in transaction mode.  1: by LISTEN only; a waiting
 * call answers LE_UNAVAILABLE where it does not work.  -1: by asking.
 */
	int listen;

	/* How often to ask where LISTEN does not work.  0: 250. */
	int poll_ms;

	/*
 * Called when the state has changed, in order.  Where a callback is slow,
 * states in between may be missing, but never LE_ENDED and never the last.
 * LE_CONNECTED of le_open is not told.
 */
	void (*on_state)(le_session *session, le_state state, void *arg);

	/* Called after every renewal with the new local deadline. May skip some when a callback is slow. */
	void (*on_renewed)(le_session *session, int64_t deadline, void *arg);

	void *arg;
} le_options;

/*
 * Connects and grants the lease.  Every host is tried once.  options NULL: all
 * defaults.  Waits for at most connect_ms a host and call_ms a statement, and
 * for name resolution.
 *
 * LE_DENIED a wrong password or no right; LE_INVALID a bad option;
 * LE_UNAVAILABLE no server, or lock_election is not installed in the database
 * (CREATE EXTENSION) or not in shared_preload_libraries; LE_LIMIT.
 */
LE_API le_status le_open(const le_options *options, le_session **session, le_error *error);

/*
 * Revokes the lease, which ends all holds and queue places at once, closes the
 * connection, and frees the session.  Calls of other threads that wait on it
 * answer LE_LOST first.  Holds stay valid as objects until they are released;
 * observers and runners have to be given back before.
 *
 * Waits for at most wait_ms (-1: call_ms), also where name resolution or a
 * callback hangs: then a thread of the session cleans up in the background, and
 * that callback may still be running.  LE_OK the lease is
 * revoked, or had ended; LE_UNKNOWN it was not confirmed: the lease ends by
 * itself at the latest after its TTL.  The session is gone in any case.
 */
LE_API le_status le_close(le_session *session, int wait_ms, le_error *error);

/*
 * As le_close, but leaves the lease as it is: what the session holds stays held
 * until the lease ends, or is kept alive with keep_alive(lease) by somebody
 * else.  Queue places stay too: cancel those first.
 */
LE_API void le_orphan(le_session *session);

/*
 * After LE_ENDED: grants a new lease to the same session.  Old holds stay lost;
 * a hold belongs to the lease under which it was asked for.  LE_OK also if the
 * session has not ended.  Waits as le_open does for the connection; with
 * progress_ms LE_UNAVAILABLE until le_progress() has been called again.
 */
LE_API le_status le_reopen(le_session *session, le_error *error);

/* Local. */
LE_API le_state le_get_state(const le_session *session);

/* The number of the lease on the server, e.g. for le_orphan.  Local. */
LE_API int64_t le_lease(const le_session *session);

/*
 * The local deadline as le_now() counts, and the time left until it; 0 or less:
 * all work under what is held has to be over.  Of the present lease: after
 * le_reopen ask the hold instead.  Local.
 */
LE_API int64_t le_deadline(const le_session *session);
LE_API int64_t le_time_left(const le_session *session);

/* The application lives, see progress_ms.  Local. */
LE_API void le_progress(le_session *session);

/* --- events, for programs with a loop of their own --- */

typedef enum le_event_kind
{
	LE_EVENT_STATE = 1, /* the state of the session has changed */
	LE_EVENT_RENEWED,   /* there is a new deadline */
	LE_EVENT_HOLD       /* a hold was granted, or has ended: see its state */
} le_event_kind;

typedef struct le_event
{
	le_event_kind kind;
	le_state state;   /* STATE: of now; states in between may be missing */
	int64_t deadline; /* RENEWED, STATE: of now */
	le_hold *hold;    /* HOLD */
} le_event;

/*
 * A descriptor that is readable while there are events.  For poll, select and
 * the like only: do not read, write or close it.  Valid until le_close.  Local.
 */
LE_API int le_fd(const le_session *session);

/*
 * Takes the next event; 0: there is none.  A hold whose state changes twice
 * before it is taken is one event.  The events of a hold that is given back
 * go with it.  Local.
 */
LE_API int le_next_event(le_session *session, le_event *event);

/* --- holds --- */

typedef enum le_hold_state
{
	LE_HOLD_WAITING = 1, /* its queue place is taken, or about to be */
	LE_HOLD_HELD,        /* granted; le_valid tells whether it still is */
	LE_HOLD_OVER         /* not granted, lost, or canceled: le_await says which */
} le_hold_state;

typedef struct le_how
{
	size_t size;
	int shared;    /* not 0: beside other shared holders */
	int permits;   /* not 0: one of so many permits; one name only; not with shared */
	int64_t until; /* not 0: do not wait beyond this point of le_now(), whatever wait_ms says */
} le_how;

/*
 * Acquires one lock, or one permit, or several locks at once: all or none,
 * under one token.  how NULL: exclusive.  Waits for at most wait_ms (0: tries
 * once and takes no queue place; -1: no limit) in the order of arrival.  wait_ms
 * bounds the time in the queue: the first answer of the server may take call_ms
 * in any case, so that a short wait acquires what is free.
 *
 * A lock that this session holds is not granted to it again: two holds of one
 * session exclude each other as those of two processes do.
 *
 * While the connection is down the wait goes on, as long as the lease lasts; a
 * queue place keeps its rank over a reconnect, a restart of the server and a
 * promotion of a standby.
 *
 * LE_OK held, *hold has to be released.  Otherwise *hold is NULL and nothing is
 * held: what an answer that was lost may have granted is given back in the
 * background.  LE_TIMEOUT, LE_LOST the session has ended, LE_INVALID, LE_LIMIT,
 * LE_DENIED; LE_UNAVAILABLE: wait_ms is 0 and the server did not answer within
 * call_ms.
 */
LE_API le_status le_acquire(le_session *session, const char *const *names, int n, const le_how *how,
							int wait_ms, le_hold **hold, le_error *error);

/*
 * As le_acquire, but does not wait: the session takes a queue place as soon as
 * it can.  *hold is waiting; le_await or le_fd tell what becomes of it, and it
 * has to be released in any case.  At how->until the wait is over (LE_TIMEOUT).
 * Local, but for memory.
 *
 * LE_OK, LE_INVALID, LE_LOST the session has ended, LE_NO_MEMORY.
 */
LE_API le_status le_enqueue(le_session *session, const char *const *names, int n, const le_how *how,
							le_hold **hold, le_error *error);

/*
 * Waits until the hold is granted, or over.  LE_OK it is held; LE_WAITING not
 * yet, and it keeps its place.  Every other answer is for good: LE_TIMEOUT
 * how->until has passed, LE_CANCELED, LE_LOST, LE_INVALID, LE_LIMIT, LE_DENIED,
 * ...  wait_ms 0: local.  Several threads may wait for one hold.
 */
LE_API le_status le_await(le_hold *hold, int wait_ms, le_error *error);

/* As le_await, until a point of le_now(). */
LE_API le_status le_await_until(le_hold *hold, int64_t until, le_error *error);

/*
 * Ends the wait for a hold: le_await answers LE_CANCELED at once, and its place
 * is given back in the background.  No effect once it is granted or over; so
 * the caller looks at le_get_hold_state afterwards.  Does not free it.  Local.
 */
LE_API void le_cancel(le_hold *hold);

/* Local. */
LE_API le_hold_state le_get_hold_state(const le_hold *hold);

/*
 * The proof of ownership, and for an exclusive lock and a term the fencing
 * token: higher than that of every holder before.  0: was never granted.  Local.
 */
LE_API int64_t le_token(const le_hold *hold);

/* The position in the queue when the place was taken, from 1; 1 if that answer was lost; 0 not queued.  Local. */
LE_API int64_t le_position(const le_hold *hold);

/* Is it held, and is the local deadline to come?  Local: one atomic read and the clock. */
LE_API int le_valid(const le_hold *hold);

/* Milliseconds for which le_valid will be true if no renewal succeeds; 0: it is not.  Local. */
LE_API int64_t le_hold_time_left(const le_hold *hold);

/* Any pointer of the application.  Local. */
LE_API void le_set_user(le_hold *hold, void *user);
LE_API void *le_user(const le_hold *hold);

/*
 * In the application's own connection, to the same database, and its open
 * transaction: from here to the end of the transaction nobody else gets this
 * lock, or leads.  What the transaction writes after this is written by the
 * holder, or not at all.  Several locks: all of them.
 *
 * Uses only that connection, and waits for its server as PQexec does.  LE_LOST
 * not held any more: roll back.  LE_INVALID no open transaction; LE_DEADLOCK,
 * LE_LIMIT, LE_DENIED; LE_UNAVAILABLE the connection broke, or the extension was
 * moved to another schema, and so nothing is written: repeat the transaction.
 */
LE_API le_status le_fence(le_hold *hold, PGconn *yours, le_error *error);

/*
 * Gives the hold, or its queue place, back, and frees it, whatever the answer
 * is.  For a term: resigns.  hold_for_ms not 0: ownership ends now, but nobody
 * is granted the lock until that long after it was acquired (not for a term).
 * Waits for the server, at most call_ms.
 *
 * LE_OK it is given back, or was not held.  LE_LOST it had been lost before:
 * what was done under it may not have been alone.  LE_UNKNOWN no answer, or the
 * server refuses it, which error tells: the session goes on trying in the
 * background, and the lock is free at the latest when the lease ends; whether
 * hold_for_ms took effect is not known.  LE_INVALID hold_for_ms is not allowed:
 * it is given back without.
 */
LE_API le_status le_release(le_hold *hold, int hold_for_ms, le_error *error);

/* As le_release, in the background: does not wait for the server.  Local. */
LE_API void le_drop(le_hold *hold);

/* --- leader election --- */

/*
 * Stands for election and waits to be elected, as le_acquire waits for a lock.
 * candidate: the text that everybody sees, 1 to 4096 bytes.  The hold is the
 * term, its token the number of the term.
 */
LE_API le_status le_campaign(le_session *session, const char *election, const char *candidate, int wait_ms,
							 le_hold **hold, le_error *error);

/* As le_enqueue. */
LE_API le_status le_enqueue_candidate(le_session *session, const char *election, const char *candidate,
									  le_hold **hold, le_error *error);

/*
 * Changes the text that everybody sees, without a new election.  Waits for the
 * server, at most call_ms, also for a new connection.  LE_LOST this term does
 * not lead any more; LE_UNKNOWN no answer: it may be the old or the new text.
 */
LE_API le_status le_proclaim(le_hold *hold, const char *candidate, le_error *error);

/* Gives the term, or the candidacy, back and frees the hold: le_release(hold, 0, error). */
LE_API le_status le_resign(le_hold *hold, le_error *error);

typedef struct le_leader_info
{
	size_t size;
	int64_t term;       /* 0: nobody leads */
	int64_t elected_at; /* microseconds since 1970, the server's clock */
	int64_t valid_ms;   /* as the server sees it; -1: not known */
	char candidate[4097];
} le_leader_info;

/* Who leads?  Waits for the server, at most call_ms.  leader->size has to be set. */
LE_API le_status le_leader(le_session *session, const char *election, le_leader_info *leader,
						   le_error *error);

/* --- observers --- */

typedef struct le_observer le_observer;

typedef struct le_change
{
	int64_t change; /* the number of the change; they grow */
	int64_t term;
	const char *
		how; /* elected, proclaimed; the term ended: resigned, expired, revoked, forced, undone, disconnected */
	const char *candidate;
	int64_t elected_at; /* microseconds since 1970, the server's clock */
	int64_t changed_at;
	int leads; /* elected or proclaimed: this term leads; otherwise the election is vacant */
} le_change;

/*
 * Calls on_change for every change of an election after the one with the number
 * after, in order, once, none missing: also over reconnects, for as long as the
 * server keeps them (lock_election.history_retention, 7 days).  after 0: from
 * the first one that is kept; -1: the present leader, if any, and what comes.
 * A program that remembers the last number it has handled misses nothing over a
 * restart of its own.  Goes on when the lease is lost: it needs the connection
 * only.  The texts are valid during the call.
 *
 * Local, but for memory.  LE_OK, LE_INVALID, LE_LOST, LE_NO_MEMORY.
 */
LE_API le_status le_observe(le_session *session, const char *election, int64_t after,
							void (*on_change)(const le_change *change, void *arg), void *arg,
							le_observer **observer, le_error *error);

/* Ends it.  When this returns no call is running, and none comes. */
LE_API void le_unobserve(le_observer *observer);

/* --- the runner: stands for election again and again --- */

typedef struct le_runner le_runner;

typedef struct le_callbacks
{
	size_t size;

	/*
 * This process leads.  Runs in a thread of its own for as long as the
 * application wants to lead; should return when le_must_stop() is true.
 * Only after it has returned the term is resigned, so that the next leader
 * never meets the work of this one; the next on_elected of this runner
 * comes only after that.  Returns 0 to stand again, anything else to stop
 * the runner.  Must not release the hold.
 */
	int (*on_elected)(le_hold *term, void *arg);

	/*
 * The term is lost while on_elected runs: end its work now.  At most once a
 * term, never before on_elected was called, and not after it has returned.
 * Runs in the thread of the runner.  Optional: le_must_stop() tells the same.
 */
	void (*on_lost)(le_hold *term, void *arg);

	/*
 * A leader was elected, this process included, or has proclaimed another
 * text; candidate NULL: nobody leads.  Runs as a callback of the session.
 * Optional.
 */
	void (*on_new_leader)(const char *candidate, int64_t term, void *arg);

	void *arg;
} le_callbacks;

/*
 * Stands for election in the background until le_stop.  When the lease is lost
 * it grants the session a new one (le_reopen) and stands again.  Errors that
 * pass are tried again with a growing delay.  Local, but for memory and threads.
 */
LE_API le_status le_run(le_session *session, const char *election, const char *candidate,
						const le_callbacks *callbacks, le_runner **runner, le_error *error);

/* What the next candidacies are to be called.  Local.  For the present term use le_proclaim. */
LE_API le_status le_set_candidate(le_runner *runner, const char *candidate, le_error *error);

/*
 * Has on_elected to stop: the term is lost, or le_stop was called.  Once true,
 * true for the rest of the term.  Local.  le_wait_stop waits until it is true,
 * for at most wait_ms, and tells whether it is.
 */
LE_API int le_must_stop(const le_hold *term);
LE_API int le_wait_stop(le_hold *term, int wait_ms);

/*
 * Ends the runner: waits until on_elected has returned, without limit, resigns,
 * and frees the runner.  Has to be called for each runner, before le_close.
 * LE_OK; LE_FAILED the runner had ended by an error that does not pass, which
 * error tells.
 */
LE_API le_status le_stop(le_runner *runner, le_error *error);

/* --- several servers --- */

/*
 * Where the names of locks and elections are spread over several servers:
 * which of the n shards this name belongs to.  The answer is a position in
 * shards; -1 if there are none, or one of the texts is NULL.
 *
 * shards are names, not connection strings.  The answer depends on the names
 * alone, not on their order, and is the same in every version and on every
 * machine: the shard with the highest SHA-256 of its name, a zero byte and the
 * name of the lock.  One more shard takes its part from all others, and leaves
 * every other name where it is.  A change of the shards has to be prepared:
 * docs/operation/scaling.md.
 *
 * Names on different shards cannot be acquired together, nor fenced in one
 * transaction.  Local.
 */
LE_API int le_shard(const char *name, const char *const *shards, int n);

/* --- the portable edition --- */

/*
 * Installs the portable edition of lock_election, the one without C, in the
 * database of a connection of the application's own, or upgrades an older
 * version, in one transaction.  Does nothing where this version is there
 * already, whoever calls.  The role needs CREATE on the database, and owns all
 * locks afterwards: it should not be the application's.
 *
 * schema: for the functions, made if it is missing; NULL: the first one of
 * search_path.  An edition that is installed stays in its schema.  grantee: the
 * role that may use the schema; NULL: everybody may use one that is made.
 *
 * Waits for the server as PQexec does.  LE_DENIED no CREATE, or another role's;
 * LE_UNAVAILABLE a standby, or a read-only session; LE_INVALID yours has an open
 * transaction, or there is no schema for the functions; LE_FAILED a newer version
 * is there, or the extension in C, or the server cannot run it; LE_UNKNOWN it may
 * be installed: call again.
 */
LE_API le_status le_install(PGconn *yours, const char *schema, const char *grantee, le_error *error);

/* What it runs: the file lock_election.sql, for tools that run it themselves.  Local. */
LE_API const char *le_install_script(void);

#endif /* LOCK_ELECTION_H */
