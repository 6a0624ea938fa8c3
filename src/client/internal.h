/*
 * internal.h
 *		Declarations shared by the files of liblockelection.
 *
 * A session talks to the server in *turns*: a turn is one call of lease_sync()
 * with everything that is queued (docs/reference/lease-sync.md).  A thread that
 * finds the connection free runs the turn itself; the other threads wait for
 * their results.  There are three kinds of threads:
 *
 *	1.	The application's.  A thread that requests something queues it, runs a
 *		turn if the connection is free, and then waits (le_turn_join).
 *	2.	The session thread (engine.c).  It runs all other turns: renewals, reads
 *		of news, and requests that were queued during a turn.  Only this thread
 *		connects.  It listens for notifications while a hold waits.
 *	3.	The callback thread (dispatch.c).  It calls the application.  It also
 *		watches the local deadline, so that neither a hanging name resolution nor
 *		a slow server delays the end of the session.
 *
 * One mutex per session protects everything that is not atomic.  It is never
 * held during I/O or a callback.  The connection, session.net, belongs to the
 * thread that has set session.busy.  Functions whose comment says "locked" are
 * called with the mutex held.  Functions whose comment says "busy" are called
 * without the mutex, by the thread that owns the connection.
 *
 * The phase of a hold on the server determines the list that the hold is in:
 *
 *		NEW       ASKS                to be requested
 *		SENT      ASKS, OPEN          requested, and without a reply
 *		QUEUED    HELD, GIVES, LATER  has a place
 *		GRANTED   HELD, GIVES, LATER  is granted
 *		DONE      none                the server has nothing of it
 *
 * The state that the application sees is separate: WAITING, HELD or OVER.  A
 * hold that is OVER and has a token is to be released: it is in GIVES, or in
 * LATER after an error.
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

/* First pause between two retries, in ns; each further pause is twice as long as the one before. */
#define LE_RETRY_FIRST (50 * LE_MS_NS)
/* Pause after a temporary server error, in ns */
#define LE_PAUSE (100 * LE_MS_NS)

/* Maximum number of items in a call */
#define LE_ITEMS_MAX 128
/* Maximum number of changes that an observer reads at once */
#define LE_OBSERVE_MAX 64
#define LE_STATES_MAX  16

#define LE_NAME_MAX      255
#define LE_NAMES_MAX     1000
#define LE_CANDIDATE_MAX 4096
#define LE_OWNER_MAX     200
/* Size of a channel name: "le_" and 32 hexadecimal digits, with some room */
#define LE_CHANNEL_SIZE 64
/* Size of the end of an owner text: "#", 16 digits, "-", number of the request */
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

/* Moves a link from the list that it is in to the end of a list. */
static inline void
le_link_append(le_link *head, le_link *link)
{
	le_link_remove(link);
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

/* Moves a link from the list that it is in to the front of a list. */
static inline void
le_link_prepend(le_link *head, le_link *link)
{
	le_link_remove(link);
	le_link_append(head->next, link);
}

/* Loops over the items of a list.  The body may remove the current item. */
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
	LE_KIND_PROCLAIM /* a request for a new candidate text of the term server_token; not a hold */
} le_kind;

struct le_hold
{
	le_session *session;
	le_link link;       /* link in one of the session's lists, see above */
	le_link event_link; /* link in session->events while the hold has an event */
	int refs;           /* references held by the application, the session's list, and turns */
	int waiters;        /* number of threads that wait for hold->changed */
	pthread_cond_t changed;

	/* never change */
	le_kind kind;
	int n;
	char **names;
	bool shared, try;
	int permits;
	int64_t until;     /* end of the wait in the queue, in ns; LE_NEVER = no limit */
	int64_t answer_by; /* end of the wait for the first reply, in ns; applies if later than until */
	int64_t asked;     /* number of the request; part of its owner text */
	char *candidate;

	_Atomic int state;      /* le_hold_state */
	_Atomic int stop_asked; /* set by le_stop */
	_Atomic int64_t token;  /* 0 = never granted */
	_Atomic int64_t position;
	_Atomic(void *) user;

	/* under the session's mutex */
	le_phase phase;
	int64_t server_token; /* token of the place or the hold; 0 = not known */
	bool pending;         /* requested, but not durable yet */
	int given, left;      /* given: names whose release was sent; left: those without a result yet */
	bool again, lost;     /* again: a release was sent before; lost: the reply to it was lost */
	int hold_for_ms;      /* hold_for of the release; 0 = none */
	bool dropped;         /* the application has released it */
	int64_t seen_call;    /* number of the last call whose reply named this hold */
	int seen_names;       /* number of the hold's names in that reply */
	bool release_done;    /* le_release can stop waiting */
	le_error error;       /* reason why the hold is OVER, or the result of its release */
};

struct le_observer
{
	le_session *session;
	le_link link;
	char *election;
	void (*on_change)(const le_change *change, void *arg);
	void *arg;

	/* under the session's mutex */
	int64_t after;      /* number of the last change that was read; 0 = none, -1 = see start_now */
	int64_t due_at;     /* time of the next read, in ns */
	bool calling;       /* the callback thread is reading changes or calling on_change */
	bool gone;          /* le_unobserve was called */
	bool start_now;     /* le_observe was called with after = -1, and nothing has been read yet */
	bool own_end;       /* le_unobserve was called in on_change: the callback thread frees the observer */
	int64_t start_term; /* term that was reported from current_leader(); 0 = none */
	char channel[LE_CHANNEL_SIZE];
	pthread_cond_t changed;
};

/* The connection.  Only the thread that has set session.busy uses it. */
typedef struct le_net
{
	PGconn *conn;    /* NULL = not connected */
	bool pooled;     /* a pooler is between the client and the server */
	bool prepared;   /* lease_sync() is prepared */
	bool plain;      /* lease_sync() must not be prepared (any more) */
	char *places[3]; /* host, hostaddr and port as libpq returns them; lists if there are several hosts */
	int nhosts;
	int host;           /* index of the host to try next */
	int64_t connect_ns; /* time limit for connecting to one address, in ns; 0 = options not read yet */
	int64_t until;      /* time by which a statement must end, in ns, if earlier than call; LE_NEVER = none */
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
	pthread_cond_t changed; /* the session was opened or closed, or the connection has become free */
	int watchers;           /* number of threads that wait for session->changed */
	pthread_cond_t to_tell; /* the callback thread has work */
	int refs;               /* references held by the application, both threads, holds, and calls */
	pid_t process;          /* pid of the process that opened the session, not of a forked child */
	pthread_t net_thread, dispatch_thread;
	bool net_started, dispatch_started, net_done, dispatch_done;
	int wake_net[2], wake_user[2]; /* pipes to the session thread and to le_fd() */

	/* never change */
	le_options options;
	char *conninfo, *name;
	int64_t ttl, margin, call, connect, progress, poll; /* ns */
	char marker[24]; /* "#" and 16 random hexadecimal digits; part of the owner text of each request */

	_Atomic int state;        /* le_state */
	_Atomic int64_t deadline; /* local deadline of the current lease, in ns */
	_Atomic int64_t lease;
	_Atomic int64_t progress_at; /* ns */
	_Atomic int withheld;        /* renewals are withheld until le_progress() is called */

	/* under the mutex */
	bool opened; /* the first connection has succeeded or failed */
	bool closing, orphan;
	int64_t close_until; /* time by which closing must end, in ns */
	bool revoked;        /* the session has revoked its lease, when it was closed */
	bool lease_gone;     /* the server has reported that the lease has ended */
	bool connected;
	bool busy;           /* a thread owns the connection */
	int asking;          /* number of threads that wait for the connection to run their own statement */
	int64_t rests_until; /* end of the session thread's rest, in ns; 0 = it does not rest */
	bool rests_deaf;     /* the session thread rests without waiting for notifications */
	int64_t renew_at;    /* time of the next renewal, in ns */
	int failures;        /* number of consecutive failures to renew or connect */
	int64_t retry_at;    /* earliest time of the next attempt to connect, in ns */
	le_error error;      /* reason why the session has ended or could not be opened */
	le_error trouble;    /* the last failure to connect or to renew */
	le_link lists[LE_LISTS], observers, events;
	int64_t requests;   /* number of the last request */
	int64_t next_until; /* time at which the first wait ends, or an earlier time, in ns */
	char *schema;       /* the extension's schema, quoted; only the connection's owner changes it */
	bool state_event, renewed_event, user_woken;
	le_state states[LE_STATES_MAX]; /* states not yet reported to on_state, oldest first */
	int nstates;
	bool renewed_told; /* false = on_renewed must be called */

	/* turns of the current lease */
	int64_t calls;    /* number of the last call */
	int64_t last_at;  /* time at which the last call was sent, in ns */
	char seen[2][24]; /* incarnation and number of the news in the latest reply; "" = none */
	bool look;        /* there may be news, so a turn is due */
	bool bare;        /* the next call only reads news, see turn.c */
	bool apart;       /* the last call had releases, and left requests to the next call */
	int alone;        /* number of items to send one by one, to find the item for which the call fails */
	int64_t ask_at, later_at; /* earliest times of the next requests and of the releases in LATER, in ns */
	int waiting;              /* number of queue places with a waiting hold */
	int64_t waited_at;        /* time at which the last such wait ended, in ns */
	int woken;                /* how often waiting threads were woken up */

	/* LISTEN on the current connection */
	char channel[LE_CHANNEL_SIZE]; /* the lease's channel; "" = not known */
	bool listens;                  /* LISTEN was sent for that channel */
	bool relisten;                 /* the observers' channels have changed */
	int64_t listen_at;             /* earliest time of the next LISTEN, in ns */
	bool deaf;                     /* LISTEN does not work */
	bool heard;                    /* LISTEN works: a notification was received */
	int64_t tested_at; /* time of the session's test notification to itself, in ns; 0 = none yet */

	le_net net;
};

/* Returns the call's status from the calling function, unless it is LE_OK. */
#define le_must(call)                                                                                        \
	do                                                                                                       \
	{                                                                                                        \
		le_status must_status = (call);                                                                      \
		if (must_status != LE_OK)                                                                            \
			return must_status;                                                                              \
	} while (0)

/* Sets *next to the earlier of *next and at. */
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
extern int64_t le_ms_up(int64_t ns);         /* ns converted to ms, rounded up; 0 if negative */
extern int64_t le_add(int64_t a, int64_t b); /* saturates */
/* Returns the point of le_now_ns() that is wait_ms from now; LE_NEVER if wait_ms is negative. */
extern int64_t le_until(int wait_ms);
/* Converts a point of le_now() into a point of le_now_ns(). */
extern int64_t le_until_point(int64_t ms);
/*
 * Calls poll() until a point of le_now_ns() at the latest.  It may return
 * earlier, so the caller checks the time.
 */
extern void le_poll(struct pollfd *fds, int n, int64_t until);
extern int le_cond_init(pthread_cond_t *cond);
/*
 * Waits for a condition until a point of le_now_ns() at the latest.  It may
 * return earlier, so the caller checks the time.
 */
extern void le_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until);
extern int64_t le_jitter(int64_t ns); /* a random value between 0.9 * ns and 1.1 * ns */
extern uint64_t le_random(void);
/* Create, write to, and empty a pipe that wakes up a thread in poll(). */
extern bool le_pipe(int fds[2]);
extern void le_wake(int fds[2]);
extern void le_drain(int fds[2]);

/* --- error.c --- */

/* Fill an error, unless it is NULL, and return its status.  result is the result of a failed statement. */
extern le_status le_error_set(le_error *error, le_status status, const char *sqlstate, const char *format,
							  ...) __attribute__((format(printf, 4, 5)));
#define le_invalid(error, ...) le_error_set((error), LE_INVALID, "", __VA_ARGS__)
extern le_status le_error_clear(le_error *error);
extern le_status le_error_copy(le_error *to, const le_error *from);
extern le_status le_error_result(le_error *error, const PGresult *result);
/* Fills an error from the fields of a server error; message and hint may be NULL. */
extern le_status le_error_server(le_error *error, const char *sqlstate, const char *message,
								 const char *hint);
extern le_status le_no_memory(le_error *error);
extern le_status le_status_of(const char *sqlstate);
/* Returns whether the error's SQLSTATE is one of a list that is separated by spaces. */
extern bool le_error_is(const le_error *error, const char *sqlstates);
/* Returns whether the error says that the schema, or a function in it, does not exist. */
extern bool le_error_is_absent(const le_error *error);
/* Returns whether the error is temporary, so that a retry may help. */
extern bool le_error_passes(const le_error *error);
/* Returns whether the error makes a new connection necessary, perhaps to another host. */
extern bool le_error_ends_connection(const le_error *error);

/* --- secret.c: errors of connections, without passwords --- */

/*
 * Sets the error for a connection string that libpq cannot parse.  message is
 * libpq's error message.  The error normally names only the kind of mistake,
 * because the message quotes the string, which may contain a password.
 */
extern le_status le_error_unparsed(le_error *error, const char *message);
/*
 * Returns the reason why this connection's error message must not be shown, or
 * NULL if it may be shown.  The reason is that an option has characters that do
 * not belong there, for example because libpq took a part of a password for the
 * host.
 */
extern const char *le_misread(const PGconn *conn);

/* --- text.c --- */

/* A text that grows.  failed is set if memory ran out, so that the text is incomplete. */
typedef struct le_text
{
	char *data;
	size_t len, size;
	bool failed;
} le_text;

/* Append to a text.  Once failed, a text stays failed. */
extern void le_text_add(le_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
extern void le_text_add_bytes(le_text *text, const void *data, size_t len);
extern char *le_copy(const char *text); /* NULL if out of memory */

/* --- arguments.c: errors name the wrong argument, its value, and the allowed values --- */

/* Read, check and write structs of programs that were built with another version of the header. */
extern le_status le_struct_read(void *to, size_t size, const void *from, const char *name, le_error *error);
extern le_status le_struct_check(const void *to, size_t least, const char *name, le_error *error);
extern void le_struct_write(void *to, const void *from, size_t size);
/* Checks that a text has 1 to max bytes of UTF-8.  what is the argument's name. */
extern le_status le_check_text(const char *what, const char *text, int max, le_error *error);
/* Checks that a text is UTF-8, of any length. */
extern le_status le_check_utf8(const char *what, const char *text, le_error *error);
extern le_status le_check_names(const char *const *names, int n, le_error *error);
extern le_status le_check_candidacy(const char *election, const char *candidate, le_error *error);
/* Checks that wait_ms is -1 or more. */
extern le_status le_check_wait(int wait_ms, le_error *error);
/* Checks le_how for a request of n names. */
extern le_status le_check_how(const le_how *how, int n, le_error *error);
/* Checks that a pointer is not NULL, and clears the error.  what is the argument's name. */
extern le_status le_check_pointer(const void *pointer, const char *what, le_error *error);
/*
 * Check, for functions that request something, that the object is not NULL and
 * does not belong to a parent process.  Clear the error.
 */
extern le_status le_check_session(const le_session *session, le_error *error);
extern le_status le_check_hold(const le_hold *hold, le_error *error);
/* Returns whether this process is a child that was forked after le_open. */
extern bool le_in_child(const le_session *s);

/* --- connection.c: busy --- */

/*
 * Connects to the first host that works, trying each host once.  Returns false
 * and sets net.error if none works.
 */
extern bool le_connect(le_session *s);
extern void le_disconnect(le_session *s);
/*
 * Runs a statement with n arguments; n < 0 means several statements without
 * arguments.  Replaces "@extschema@" with the extension's schema.  If that
 * schema was renamed, reads its new name from the server and repeats the
 * statement.  Returns NULL if the connection was lost.  In that case, and after
 * a server error, sets net.error.
 */
extern PGresult *le_exec(le_session *s, const char *sql, int n, const char *const *values);

/* Columns of a reply to le_sync(), in the order of its statement; the validity is in microseconds */
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

/* Runs a turn's call, with the items in binary format.  Returns the same as le_exec. */
extern PGresult *le_sync(le_session *s, const char *const *values, int items_length);
/* Reads the data that the server has sent, and handles notifications. */
extern void le_receive(le_session *s);

/* --- session.c --- */

/* Lock and unlock the session's mutex, and drop a reference. */
extern void le_lock(const le_session *s);
extern void le_unlock(const le_session *s);
extern void le_session_unref(le_session *s); /* not locked */
/* Starts a thread that blocks all signals. */
extern bool le_start_thread(pthread_t *thread, void *(*run)(void *), void *arg);

/* --- state.c: locked --- */

/* Sets the state, and queues its events. */
extern void le_set_state(le_session *s, le_state state);
/*
 * Returns whether the session has a lease that it does not know to have ended.
 * May be called without the mutex.
 */
extern bool le_is_alive(const le_session *s);
/* Ends the session and all its holds, because the lease has ended. */
extern void le_end(le_session *s, const char *sqlstate, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Ends the session if its deadline has passed.  Returns whether this call has ended it. */
extern bool le_check_deadline(le_session *s);
/* Records a renewal that was sent at sent_at and is valid for validity ns from that time. */
extern void le_renewed(le_session *s, int64_t sent_at, int64_t validity);
/* Records a failure to renew or connect.  Returns the time of the next attempt, in ns. */
extern int64_t le_failed(le_session *s, const le_error *why);
/* Sets a hold to OVER for the application. */
extern void le_hold_over(le_hold *hold, const le_error *error);
/* Sets a hold to HELD for the application. */
extern void le_hold_held(le_hold *hold);
/* Ends the wait of a hold if its limit has passed. */
extern void le_hold_check_until(le_hold *hold, int64_t now);
extern int64_t le_hold_ends(const le_hold *hold); /* returns the end of its wait, in ns */
/* Removes a hold from the session's lists after the server has neither a grant nor a place of it. */
extern void le_hold_done(le_hold *hold);
extern void le_hold_unref(le_hold *hold);
/* Wakes up the threads that wait for the hold. */
extern void le_hold_changed(le_hold *hold);

/* --- turn.c: locked at entry and exit, not in between --- */

/* Returns the time at which the next turn is due, in ns; 0 = now, LE_NEVER = never. */
extern int64_t le_due(le_session *s);
/* Runs a turn. */
extern void le_turn(le_session *s);
/*
 * Called after something was queued.  Runs a turn if the connection is free;
 * otherwise another thread will do so.
 */
extern void le_turn_join(le_session *s);

/* --- engine.c --- */

/* Main function of the session thread */
extern void *le_net_main(void *session);
/* Busy.  Requests a lease for the session.  Returns false and sets net.error if none was granted. */
extern bool le_grant(le_session *s);
/* Locked.  Wakes up the session thread if it has work before the end of its rest. */
extern void le_wake_net(le_session *s);
/* Locked.  Gives up the ownership of the connection (session.busy). */
extern void le_give(le_session *s);
/* Locked.  Handles a notification. */
extern void le_hear(le_session *s, const char *channel);
/*
 * Locked at entry and exit.  Waits until the connection is free, at most until
 * a point of le_now_ns(), and takes it.
 */
extern le_status le_take(le_session *s, int64_t until, le_error *error);
/*
 * Locked at entry and exit.  Runs a statement like le_exec, and retries it
 * after temporary errors and reconnects, for at most call_ms.  Returns NULL
 * after an error.
 */
extern PGresult *le_ask(le_session *s, const char *sql, int n, const char *const *values, le_error *error);

/* --- dispatch.c --- */

/* Main function of the callback thread */
extern void *le_dispatch_main(void *session);

/* --- hold.c --- */

/* Creates a hold that is not queued yet.  Returns NULL if out of memory. */
extern le_hold *le_hold_alloc(le_session *s, le_kind kind, const char *const *names, int n,
							  const char *candidate);
extern void le_hold_free(le_hold *hold);
/* Waits until the hold is no longer WAITING, at most until a point of le_now_ns(). */
extern le_status le_hold_wait(le_hold *hold, int64_t until, le_error *error);

/* --- observe.c --- */

/*
 * Locked at entry and exit; called by the callback thread.  Reads and reports
 * changes for one observer that is due, and returns true.  If no observer is
 * due, returns false, and sets *next to the time at which the first one will
 * be, if that is earlier.
 */
extern bool le_observe_work(le_session *s, int64_t *next);
/* Locked.  Makes the observers of a channel due at once; NULL = all observers. */
extern void le_observers_due(le_session *s, const char *channel);

#endif /* LE_CLIENT_INTERNAL_H */
