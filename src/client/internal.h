/*
 * internal.h
 *		What the files of liblockelection share.
 *
 * A session talks to the server in *turns*: a turn is one call of lease_sync()
 * with everything that is queued (docs/reference/lease-sync.md).  A thread that
 * finds the connection free makes the turn itself; the others wait for their
 * results.  So there are three kinds of threads:
 *
 *	1.	The application's.  A thread that requests something queues it, makes a
 *		turn if the connection is free, and then waits (le_turn_join).
 *	2.	The session thread (engine.c).  It makes the turns that nobody else makes:
 *		renewals, reads of news, and what was queued during a turn.  Only this
 *		thread connects.  It listens for notifications while something waits.
 *	3.	The callback thread (dispatch.c).  It calls the application.  It also
 *		watches the local deadline, so that neither a hanging name resolution nor
 *		a slow server delays the end of the session.
 *
 * One mutex per session protects everything that is not atomic.  It is never
 * held during I/O or a callback.  The connection, session.net, belongs to the
 * thread that has set session.busy.  Functions whose comment says "locked" are
 * called with the mutex held; those whose comment says "busy" are called by the
 * thread that owns the connection, without the mutex.
 *
 * The phases of a hold on the server, and the list that it is in:
 *
 *		NEW       ASKS                to be requested
 *		SENT      ASKS, OPEN          requested, and without a reply
 *		QUEUED    HELD, GIVES, LATER  has a place
 *		GRANTED   HELD, GIVES, LATER  is granted
 *		DONE      none                the server has nothing of it
 *
 * The state that the application sees is separate: WAITING, HELD, OVER.  A hold
 * that is OVER and has a token is released: it is in GIVES, or in LATER after an
 * error.
 */
#ifndef LE_CLIENT_INTERNAL_H
#define LE_CLIENT_INTERNAL_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "lock_election.h"

#define LE_US_NS  INT64_C(1000)
#define LE_MS_NS  INT64_C(1000000)
#define LE_SEC_NS (1000 * LE_MS_NS)

#define LE_NEVER INT64_MAX

/* SQLSTATEs of a server without the extension */
#define LE_NOT_INSTALLED "55000 42883 3F000"

/* The first pause between two retries; each pause is twice as long as the one before. */
#define LE_RETRY_FIRST (50 * LE_MS_NS)
/* The pause after a temporary error of the server */
#define LE_PAUSE (100 * LE_MS_NS)

/* The maximum number of items in a call */
#define LE_ITEMS_MAX 128
/* The maximum number of changes that an observer reads at once */
#define LE_OBSERVE_MAX 64
#define LE_STATES_MAX  16

#define LE_NAME_MAX      255
#define LE_NAMES_MAX     1000
#define LE_CANDIDATE_MAX 4096
#define LE_OWNER_MAX     200
/* "le_" and 32 hexadecimal digits, with some room */
#define LE_CHANNEL_SIZE 64
/* "#", 16 digits, "-", number of the request */
#define LE_MARKER_SIZE 64

/* --- lists --- */

/* A circular list.  A head or link that is in no list points to itself. */
typedef struct le_link
{
	struct le_link *next, *prev;
} le_link;

#define le_container(ptr, type, member) ((type *) ((char *) (ptr) -offsetof(type, member)))

static inline void
le_link_init(le_link *link)
{
	link->next = link->prev = link;
}

static inline bool
le_link_empty(const le_link *head)
{
	return head->next == head;
}

static inline void
le_link_remove(le_link *link)
{
	link->next->prev = link->prev;
	link->prev->next = link->next;
	le_link_init(link);
}

/* Moves a link to the end of a list, out of the list that it is in. */
static inline void
le_link_append(le_link *head, le_link *link)
{
	le_link_remove(link);
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

/* Moves a link to the front of a list. */
static inline void
le_link_prepend(le_link *head, le_link *link)
{
	le_link_remove(link);
	le_link_append(head->next, link);
}

/* Loops over the items of a list.  The body may remove the present one. */
#define le_foreach(type, item, head)                                                                         \
	for (type *item = le_container((head)->next, type, link), *item##_next;                                  \
		 item##_next = le_container(item->link.next, type, link), &item->link != (head); item = item##_next)

/* --- objects --- */

typedef enum le_phase
{
	LE_PHASE_NEW,
	LE_PHASE_SENT,
	LE_PHASE_QUEUED,
	LE_PHASE_GRANTED,
	LE_PHASE_DONE
} le_phase;

typedef enum le_kind
{
	LE_KIND_LOCK,
	LE_KIND_PERMIT,
	LE_KIND_TERM,
	LE_KIND_PROCLAIM /* not a hold, but a request: a new candidate text for the term server_token */
} le_kind;

struct le_hold
{
	le_session *session;
	le_link link;       /* in one of the session's lists, see above */
	le_link event_link; /* in session->events while it has an event */
	int refs;           /* references of the application, the session's list, and turns */
	int waiters;        /* number of threads that wait for changed */
	pthread_cond_t changed;

	/* never change */
	le_kind kind;
	int n;
	char **names;
	bool shared, try;
	int permits;
	int64_t until;     /* ns; when its wait in the queue ends; LE_NEVER: no limit */
	int64_t answer_by; /* ns; when the wait for the first reply ends, if that is later */
	int64_t asked;     /* number of the request, a part of its owner text */
	char *candidate;

	_Atomic int state;      /* le_hold_state */
	_Atomic int stop_asked; /* set by le_stop */
	_Atomic int64_t token;  /* 0: never granted */
	_Atomic int64_t position;
	_Atomic(void *) user;

	/* under the session's mutex */
	le_phase phase;
	int64_t server_token; /* of the place or the hold; 0: none known */
	bool pending;         /* requested, but not durable yet */
	int given, left;      /* names whose release was sent; names whose release has no result yet */
	bool again, lost;     /* a release was sent before; and its reply was lost */
	int hold_for_ms;      /* of the release */
	bool dropped;         /* the application has released it */
	int64_t seen_call;    /* number of the last call whose reply named this hold */
	int seen_names;       /* how many of its names that reply had */
	bool release_done;    /* le_release need not wait any longer */
	le_error error;       /* why it is OVER, or the result of the release */
};

struct le_observer
{
	le_session *session;
	le_link link;
	char *election;
	void (*on_change)(const le_change *change, void *arg);
	void *arg;

	/* under the session's mutex */
	int64_t after;      /* number of the last change that was read; 0: none, -1: see start_now */
	int64_t due_at;     /* ns; when to read again */
	bool calling;       /* the callback thread reads changes, or calls on_change */
	bool gone;          /* le_unobserve was called */
	bool start_now;     /* after was -1, and nothing has been read yet */
	bool own_end;       /* le_unobserve was called in on_change: the callback thread frees it */
	int64_t start_term; /* the term that was reported from current_leader(); 0: none */
	char channel[LE_CHANNEL_SIZE];
	pthread_cond_t changed;
};

/* The connection.  Only the thread that has set session.busy uses it. */
typedef struct le_net
{
	PGconn *conn;    /* NULL: not connected */
	bool pooled;     /* a pooler is between the client and the server */
	bool prepared;   /* lease_sync() is prepared */
	bool plain;      /* do not prepare it, or not any more */
	char *places[3]; /* host, hostaddr and port, as libpq returns them: lists, if there are several hosts */
	int nhosts;
	int host;           /* number of the host to be tried next */
	int64_t connect_ns; /* time limit of connecting to one address; 0: options not read yet */
	int64_t until;      /* ns; the end of a statement, if earlier than its own limit; LE_NEVER: none */
	le_error error;     /* the last failure */
} le_net;

/* The lists of holds, see above */
enum
{
	LE_ASKS,
	LE_OPEN,
	LE_HELD,
	LE_GIVES,
	LE_LATER,
	LE_LISTS
};

struct le_session
{
	pthread_mutex_t lock;
	pthread_cond_t changed; /* the session was opened or closed, or the connection is free */
	int watchers;           /* number of threads that wait for changed */
	pthread_cond_t to_tell; /* the callback thread has work */
	int refs;               /* references of the application, both threads, holds, and calls */
	pid_t process;          /* not that of a forked child */
	pthread_t net_thread, dispatch_thread;
	bool net_started, dispatch_started, net_done, dispatch_done;
	int wake_net[2], wake_user[2]; /* pipes: to the session thread; to le_fd() */

	/* never change */
	le_options options;
	char *conninfo, *name;
	int64_t ttl, margin, call, connect, progress, poll; /* ns */
	char marker[24]; /* "#" and 16 random digits: in the owner text of each request */

	_Atomic int state;        /* le_state */
	_Atomic int64_t deadline; /* ns; local deadline of the present lease */
	_Atomic int64_t lease;
	_Atomic int64_t progress_at; /* ns */
	_Atomic int withheld;        /* renewals are held back until le_progress() */

	/* under the mutex */
	bool opened; /* the first connection has succeeded or failed */
	bool closing, orphan;
	int64_t close_until; /* ns; the end of closing */
	bool revoked;        /* by the session, when it closed */
	bool lease_gone;     /* the server has reported the end of the lease */
	bool connected;
	bool busy;           /* a thread owns the connection */
	int asking;          /* number of threads that wait for it with statements of their own */
	int64_t rests_until; /* until when the session thread rests; 0: it does not rest */
	bool rests_deaf;     /* it rests without waiting for notifications */
	int64_t renew_at;    /* ns; when the next renewal is due */
	int failures;        /* number of consecutive failures to renew or connect */
	int64_t retry_at;    /* do not connect before */
	le_error error;      /* why the session has ended or did not open */
	le_error trouble;    /* the last failure of the connection or a renewal */
	le_link lists[LE_LISTS], observers, events;
	int64_t requests;   /* number of the last request */
	int64_t next_until; /* when the first wait ends, or earlier */
	char *schema;       /* of the extension, quoted; changed only by the thread that owns the connection */
	bool state_event, renewed_event, user_woken;
	le_state states[LE_STATES_MAX]; /* not reported to on_state yet */
	int nstates;
	bool renewed_told; /* false: on_renewed must be called */

	/* turns, of the present lease */
	int64_t calls;    /* number of the last call */
	int64_t last_at;  /* ns; when it was sent */
	char seen[2][24]; /* incarnation and news of the latest reply; "": none */
	bool look;        /* there may be news: make a turn */
	bool bare;        /* the next call only reads news, see turn.c */
	bool apart;       /* the last call had releases, and left requests for the next one */
	int alone;        /* number of items to send one by one, to find the one that the call fails for */
	int64_t ask_at, later_at; /* ns; before ask_at send no requests, before later_at no releases in LATER */
	int waiting;              /* number of places that somebody waits for */
	int64_t waited_at;        /* ns; when the last such wait ended */
	int woken;                /* number of times that waiting threads were woken up */

	/* LISTEN, of the present connection */
	char channel[LE_CHANNEL_SIZE]; /* of the lease; "": not known */
	bool listens;                  /* LISTEN was sent for it */
	bool relisten;                 /* the channels of observers have changed */
	int64_t listen_at;             /* ns; do not send LISTEN before */
	bool deaf;                     /* LISTEN does not work */
	bool heard;                    /* LISTEN works: a notification has come */
	int64_t tested_at;             /* ns; when the session notified itself as a test; 0: not yet */

	le_net net;
};

/* Returns from the function if a call does not return LE_OK */
#define le_must(call)                                                                                        \
	do                                                                                                       \
	{                                                                                                        \
		le_status must_status = (call);                                                                      \
		if (must_status != LE_OK)                                                                            \
			return must_status;                                                                              \
	} while (0)

/* Moves a point in time to an earlier one. */
static inline void
le_sooner(int64_t *next, int64_t at)
{
	if (at < *next)
		*next = at;
}

static inline int64_t
le_clamp(int64_t value, int64_t low, int64_t high)
{
	return value < low ? low : value > high ? high : value;
}

/* --- clock.c --- */

extern int64_t le_now_ns(void);              /* CLOCK_BOOTTIME in ns */
extern int64_t le_ms_up(int64_t ns);         /* in ms, rounded up; 0 if negative */
extern int64_t le_add(int64_t a, int64_t b); /* saturates */
/* Returns the point of le_now_ns() that is wait_ms from now; -1: LE_NEVER. */
extern int64_t le_until(int wait_ms);
/* Converts a point of le_now() into one of le_now_ns(). */
extern int64_t le_until_point(int64_t ms);
/* Calls poll() until a point of le_now_ns() at the latest; it may return earlier. */
extern void le_poll(struct pollfd *fds, int n, int64_t until);
extern int le_cond_init(pthread_cond_t *cond);
/*
 * Waits for a condition until a point of le_now_ns() at the latest.  It may
 * return earlier: check the time.
 */
extern void le_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until);
extern int64_t le_jitter(int64_t ns); /* a random value between 0.9 and 1.1 of it */
extern uint64_t le_random(void);
/* A pipe that wakes up a thread in poll(): create it, write to it, and empty it */
extern bool le_pipe(int fds[2]);
extern void le_wake(int fds[2]);
extern void le_drain(int fds[2]);

/* --- error.c --- */

/* Fill an error, unless it is NULL, and return its status.  result: of a failed statement. */
extern le_status le_error_set(le_error *error, le_status status, const char *sqlstate, const char *format,
							  ...) __attribute__((format(printf, 4, 5)));
#define le_invalid(error, ...) le_error_set((error), LE_INVALID, "", __VA_ARGS__)
extern le_status le_error_clear(le_error *error);
extern le_status le_error_copy(le_error *to, const le_error *from);
extern le_status le_error_result(le_error *error, const PGresult *result);
/* From the fields of a server error; message and hint may be NULL. */
extern le_status le_error_server(le_error *error, const char *sqlstate, const char *message,
								 const char *hint);
extern le_status le_no_memory(le_error *error);
extern le_status le_status_of(const char *sqlstate);
/* Returns whether its SQLSTATE is one of these. */
extern bool le_error_is(const le_error *error, const char *sqlstates);
/* Returns whether the schema, or a function in it, does not exist. */
extern bool le_error_is_absent(const le_error *error);
/* Returns whether the error is temporary, so that a retry may help. */
extern bool le_error_passes(const le_error *error);
/* Returns whether another connection is needed, perhaps to another host. */
extern bool le_error_ends_connection(const le_error *error);

/* --- secret.c: errors of connections, without passwords --- */

/*
 * Fills the error of a connection string that libpq cannot parse.  message:
 * libpq's; only the kind of mistake is shown.
 */
extern le_status le_error_unparsed(le_error *error, const char *message);
/*
 * Returns why an error of this connection must not be shown: an option has
 * characters that do not belong there, for example because libpq took a part of
 * a password for the host.  NULL if it may be shown.
 */
extern const char *le_misread(const PGconn *conn);

/* --- text.c --- */

/* A text that grows.  failed: memory ran out, and the text is not complete. */
typedef struct le_text
{
	char *data;
	size_t len, size;
	bool failed;
} le_text;

/* Append to a text.  Once failed, a text stays failed. */
extern void le_text_add(le_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
extern void le_text_add_bytes(le_text *text, const void *data, size_t len);
extern char *le_copy(const char *text); /* returns NULL if out of memory */

/* --- arguments.c: the errors say which argument is wrong, what it is, and what is allowed --- */

/* Structs of programs that were built with another version of the header */
extern le_status le_struct_read(void *to, size_t size, const void *from, const char *name, le_error *error);
extern le_status le_struct_check(const void *to, size_t least, const char *name, le_error *error);
extern void le_struct_write(void *to, const void *from, size_t size);
/* Checks for 1 to max bytes of UTF-8.  what: the name of the argument. */
extern le_status le_check_text(const char *what, const char *text, int max, le_error *error);
/* Checks for UTF-8 of any length. */
extern le_status le_check_utf8(const char *what, const char *text, le_error *error);
extern le_status le_check_names(const char *const *names, int n, le_error *error);
extern le_status le_check_candidacy(const char *election, const char *candidate, le_error *error);
/* Checks for -1 or more. */
extern le_status le_check_wait(int wait_ms, le_error *error);
/* Checks le_how for a request of n names. */
extern le_status le_check_how(const le_how *how, int n, le_error *error);
/* Checks that a pointer is not NULL, and clears the error.  what: the name of the argument. */
extern le_status le_check_pointer(const void *pointer, const char *what, le_error *error);
/*
 * For functions that request something: check that the object is not NULL and
 * not of a parent process.  Clear the error.
 */
extern le_status le_check_session(const le_session *session, le_error *error);
extern le_status le_check_hold(const le_hold *hold, le_error *error);
/* Returns whether this is a child process that was forked after le_open. */
extern bool le_in_child(const le_session *s);

/* --- connection.c: busy --- */

/* Tries each host once.  Returns false if none of them works, see net.error. */
extern bool le_connect(le_session *s);
extern void le_disconnect(le_session *s);
/*
 * Runs a statement; n < 0: several statements without arguments.  "@extschema@"
 * stands for the schema of the extension; if that was renamed, learns its new
 * name.  Returns NULL if the connection was lost.  In that case, and for an
 * error, sets net.error.
 */
extern PGresult *le_exec(le_session *s, const char *sql, int n, const char *const *values);

/* The columns of a reply to le_sync(), in the order of its statement; validity is in us */
typedef enum LeColumn
{
	LE_COLUMN_ITEM,
	LE_COLUMN_EVENT,
	LE_COLUMN_KIND,
	LE_COLUMN_NAME,
	LE_COLUMN_TOKEN,
	LE_COLUMN_QUEUE_POSITION,
	LE_COLUMN_OWNER,
	LE_COLUMN_REASON,
	LE_COLUMN_SQLSTATE,
	LE_COLUMN_MESSAGE,
	LE_COLUMN_HINT,
	LE_COLUMN_VALIDITY,
	LE_COLUMN_INCARNATION,
	LE_COLUMN_NEWS,
	LE_COLUMN_COMPLETE,
	LE_COLUMN_CHANNEL
} LeColumn;

/* Runs the call of a turn; its items are in binary format.  Returns as le_exec. */
extern PGresult *le_sync(le_session *s, const char *const *values, int items_length);
/* Reads what the server has sent, and handles notifications. */
extern void le_receive(le_session *s);

/* --- session.c --- */

/* The session's mutex and its references */
extern void le_lock(const le_session *s);
extern void le_unlock(const le_session *s);
extern void le_session_unref(le_session *s); /* not locked */
/* Starts a thread that blocks all signals. */
extern bool le_start_thread(pthread_t *thread, void *(*run)(void *), void *arg);

/* --- state.c: locked --- */

/* Sets the state, and queues its events. */
extern void le_set_state(le_session *s, le_state state);
/* Returns whether there is a lease, as far as is known.  Also not locked. */
extern bool le_is_alive(const le_session *s);
/* Ends the session and all its holds, because the lease has ended. */
extern void le_end(le_session *s, const char *sqlstate, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Ends the session if its deadline has passed.  Returns true if it did so. */
extern bool le_check_deadline(le_session *s);
/* Records a renewal that was sent at sent_at, and is valid for validity ns from then on. */
extern void le_renewed(le_session *s, int64_t sent_at, int64_t validity);
/* Records a failure to renew or connect.  Returns when to retry. */
extern int64_t le_failed(le_session *s, const le_error *why);
/* Sets a hold to OVER for the application. */
extern void le_hold_over(le_hold *hold, const le_error *error);
/* Sets a hold to HELD for the application. */
extern void le_hold_held(le_hold *hold);
/* Ends the wait of a hold if its limit has passed. */
extern void le_hold_check_until(le_hold *hold, int64_t now);
extern int64_t le_hold_ends(const le_hold *hold); /* ns; when its wait ends */
/* Forgets a hold of which the server has nothing any more. */
extern void le_hold_done(le_hold *hold);
extern void le_hold_unref(le_hold *hold);
/* Wakes up the threads that wait for the hold. */
extern void le_hold_changed(le_hold *hold);

/* --- turn.c: locked at entry and exit, not in between --- */

/* Returns when the next turn is due. */
extern int64_t le_due(le_session *s);
/* Makes a turn. */
extern void le_turn(le_session *s);
/* After something was queued: makes a turn if the connection is free; otherwise another thread will. */
extern void le_turn_join(le_session *s);

/* --- engine.c --- */

/* The main function of the session thread */
extern void *le_net_main(void *session);
/* Busy.  Grants the session a lease. */
extern bool le_grant(le_session *s);
/* Locked.  Wakes up the session thread if it has work before it would wake up by itself. */
extern void le_wake_net(le_session *s);
/* Locked.  Gives up the connection. */
extern void le_give(le_session *s);
/* Locked.  Handles a notification. */
extern void le_hear(le_session *s, const char *channel);
/* Locked at entry and exit.  Waits until the connection is free, but not beyond until, and takes it. */
extern le_status le_take(le_session *s, int64_t until, le_error *error);
/*
 * Locked at entry and exit.  Runs a statement like le_exec, and retries over
 * reconnects, for at most call_ms.
 */
extern PGresult *le_ask(le_session *s, const char *sql, int n, const char *const *values, le_error *error);

/* --- dispatch.c --- */

/* The main function of the callback thread */
extern void *le_dispatch_main(void *session);

/* --- hold.c --- */

/* Creates a hold that is not queued yet.  Returns NULL if out of memory. */
extern le_hold *le_hold_alloc(le_session *s, le_kind kind, const char *const *names, int n,
							  const char *candidate);
extern void le_hold_free(le_hold *hold);
/* Waits until the hold is not WAITING any more, or until then. */
extern le_status le_hold_wait(le_hold *hold, int64_t until, le_error *error);

/* --- observe.c --- */

/*
 * Locked at entry and exit; for the callback thread.  Reads and reports changes
 * of one observer that is due.  Returns false if there was none, and moves
 * *next to the time when there will be.
 */
extern bool le_observe_work(le_session *s, int64_t *next);
/* Locked.  Makes the observers of a channel due; NULL: all. */
extern void le_observers_due(le_session *s, const char *channel);

#endif /* LE_CLIENT_INTERNAL_H */
