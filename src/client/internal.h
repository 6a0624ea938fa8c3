/*
 * internal.h
 *		What the files of liblockelection share.
 *
 * All that a session does with the server is a *turn*: one call of lease_sync()
 * with what is queued (docs/reference/lease-sync.md).  Whoever finds the
 * connection free makes the turn, in its own thread; the others wait for their
 * results.  So there are three kinds of threads:
 *
 *	1.	The application's.  One that asks for something queues it, makes a turn if
 *		the connection is free, and then waits (le_turn_join).
 *	2.	The session thread (engine.c).  It makes the turns that nobody else makes:
 *		renewals, what was queued during a turn, looks.  It alone connects, and
 *		listens for notifications while something waits.
 *	3.	The callback thread (dispatch.c).  It calls the application.  It also
 *		watches the local deadline, which neither a hanging name resolution nor a
 *		slow server hides.
 *
 * One mutex a session protects everything that is not atomic.  It is never held
 * during I/O or a callback.  The connection, session.net, belongs to the thread
 * that has set session.busy.  Functions whose comment says "locked" are called
 * with the mutex held; those that say "busy" by the thread that has the
 * connection, without the mutex.
 *
 * The life of a hold on the server (phase), and the list that it is in:
 *
 *		NEW       ASKS                to be asked for
 *		SENT      ASKS, OPEN          asked for, and not answered
 *		QUEUED    HELD, GIVES, LATER  has a place
 *		GRANTED   HELD, GIVES, LATER  is granted
 *		DONE      none                nothing of it is on the server
 *
 * What the application sees (state) is apart: WAITING, HELD, OVER.  What is OVER
 * and has a token is given back: GIVES, or LATER after an error.
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

/* SQLSTATEs of a server without the extension. */
#define LE_NOT_INSTALLED "55000 42883 3F000"

/* The first pause between two tries; each one is twice as long as the one before. */
#define LE_RETRY_FIRST (50 * LE_MS_NS)
/* After an error of the server that passes. */
#define LE_PAUSE (100 * LE_MS_NS)

/* The most items of a call. */
#define LE_ITEMS_MAX 128
/* The most changes that an observer reads at once. */
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

/* A ring; a head or a link that is in no list points to itself. */
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

/* To the end of a list, from wherever it is; before another link: to its front. */
static inline void
le_link_append(le_link *head, le_link *link)
{
	le_link_remove(link);
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

static inline void
le_link_prepend(le_link *head, le_link *link)
{
	le_link_remove(link);
	le_link_append(head->next, link);
}

/* The items of a list, of which the present one may be removed. */
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
	LE_KIND_PROCLAIM /* no hold, but a request: the candidate's new text, for the term server_token */
} le_kind;

struct le_hold
{
	le_session *session;
	le_link link;       /* in one of the session's lists, see above */
	le_link event_link; /* in session->events, while there is an event */
	int refs;           /* the application, the session's list, turns */
	int waiters;        /* threads */
	pthread_cond_t changed;

	/* fixed */
	le_kind kind;
	int n;
	char **names;
	bool shared, try;
	int permits;
	int64_t until;     /* ns; the end of its wait in the queue; LE_NEVER: none */
	int64_t answer_by; /* ns; the end of the wait for the first answer, where that is later */
	int64_t asked;     /* the number of the request, in its owner text */
	char *candidate;

	_Atomic int state;      /* le_hold_state */
	_Atomic int stop_asked; /* by le_stop */
	_Atomic int64_t token;  /* 0: was never granted */
	_Atomic int64_t position;
	_Atomic(void *) user;

	/* under the session's mutex */
	le_phase phase;
	int64_t server_token; /* of the place or the hold */
	bool pending;         /* asked for, and not durable yet */
	int given, left;      /* names whose release was sent, is not answered */
	bool again, lost;     /* a release was sent before; and its answer was lost */
	int hold_for_ms;      /* for giving back */
	bool dropped;         /* the application has given it back */
	int64_t seen_call;    /* the last reply that had it, and with how many names */
	int seen_names;
	bool release_done;
	le_error error; /* of state OVER, or of the release */
};

struct le_observer
{
	le_session *session;
	le_link link;
	char *election;
	void (*on_change)(const le_change *change, void *arg);
	void *arg;

	/* under the session's mutex */
	int64_t after;
	int64_t due_at;
	bool calling;       /* the callback thread reads, or tells */
	bool gone;          /* le_unobserve waits */
	bool start_now;     /* after was -1, and nothing has been read */
	bool own_end;       /* le_unobserve in the callback: the callback thread frees it */
	int64_t start_term; /* was told from current_leader() */
	char channel[LE_CHANNEL_SIZE];
	pthread_cond_t changed;
};

/* Of the thread that has the connection. */
typedef struct le_net
{
	PGconn *conn;    /* NULL: none */
	bool pooled;     /* somebody between us and the server */
	bool prepared;   /* lease_sync() is */
	bool plain;      /* it is not prepared, or not any more */
	char *places[3]; /* host, hostaddr and port, as libpq has them: lists, if there are several hosts */
	int nhosts;
	int host; /* that is tried next */
	int64_t connect_ns;
	int64_t until;  /* of a statement, if its caller does not wait for as long as its limit */
	le_error error; /* of the last failure */
} le_net;

/* Of holds, see above. */
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
	pthread_cond_t changed; /* opened, closed, the connection is free */
	int watchers;           /* who wait for that */
	pthread_cond_t to_tell; /* the callback thread has something to do */
	int refs;               /* the application, both threads, holds, calls */
	pid_t process;
	pthread_t net_thread, dispatch_thread;
	bool net_started, dispatch_started, net_done, dispatch_done;
	int wake_net[2], wake_user[2];

	/* fixed */
	le_options options;
	char *conninfo, *name;
	int64_t ttl, margin, call, connect, progress, poll; /* ns */
	char marker[24];

	_Atomic int state;        /* le_state */
	_Atomic int64_t deadline; /* ns; of the present lease */
	_Atomic int64_t lease;
	_Atomic int64_t progress_at; /* ns */
	_Atomic int withheld;        /* turns wait for le_progress() */

	/* under the mutex */
	bool opened; /* the first connection has succeeded or failed */
	bool closing, orphan;
	int64_t close_until;
	bool revoked;
	bool lease_gone; /* the server has said so */
	bool connected;
	bool busy;           /* a thread has the connection */
	int asking;          /* threads that wait for it, with statements of their own */
	int64_t rests_until; /* of the session thread; 0: it does not rest */
	bool rests_deaf;     /* it does not wait for notifications */
	int64_t renew_at;
	int failures;     /* of renewals, or of connecting, in a row */
	int64_t retry_at; /* connect not before */
	le_error error;   /* why it has ended, or did not open */
	le_error trouble; /* the last failure of the connection or a renewal */
	le_link lists[LE_LISTS], observers, events;
	int64_t requests;   /* so many have a number */
	int64_t next_until; /* the nearest end of a wait, or earlier */
	char *schema;       /* of the extension, quoted; changed by who has the connection */
	bool state_event, renewed_event, user_woken;
	le_state states[LE_STATES_MAX]; /* to be told */
	int nstates;
	bool renewed_told; /* false: on_renewed is to be called */

	/* turns, of the present lease */
	int64_t calls;            /* the number of the last one */
	int64_t last_at;          /* when it was sent */
	char seen[2][24];         /* incarnation and news of the newest reply; "": none */
	bool look;                /* there may be news */
	bool bare;                /* news have to be read before anything is asked for again */
	bool apart;               /* the last call had releases, and left requests to the next one */
	int alone;                /* so many items travel alone, to find the one that the server cannot read */
	int64_t ask_at, later_at; /* not before */
	int waiting;              /* places */
	int64_t waited_at;        /* when there was the last one */
	int woken;                /* threads that turns have woken */

	/* LISTEN, of the present connection */
	char channel[LE_CHANNEL_SIZE]; /* of the lease; "": none */
	bool listens;                  /* to that */
	bool relisten;                 /* to others than before */
	int64_t listen_at;             /* LISTEN not before */
	bool deaf;                     /* LISTEN does not work */
	bool heard;                    /* it works */
	int64_t tested_at;             /* when the session has notified itself */

	le_net net;
};

/* Ends the function with the status of a call that is not LE_OK. */
#define le_must(call)                                                                                        \
	do                                                                                                       \
	{                                                                                                        \
		le_status must_status = (call);                                                                      \
		if (must_status != LE_OK)                                                                            \
			return must_status;                                                                              \
	} while (0)

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

extern int64_t le_now_ns(void); /* ns of CLOCK_BOOTTIME */
extern int64_t le_ms_up(int64_t ns);
extern int64_t le_add(int64_t a, int64_t b); /* saturates */
/* The point that is wait_ms from now; -1: LE_NEVER. */
extern int64_t le_until(int wait_ms);
extern int64_t le_until_point(int64_t ms);
/* poll() until a point of le_now_ns(), or a while less. */
extern void le_poll(struct pollfd *fds, int n, int64_t until);
extern int le_cond_init(pthread_cond_t *cond);
/* Waits for a condition until a point of le_now_ns(), or a while less; the caller looks at the time. */
extern void le_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until);
extern int64_t le_jitter(int64_t ns); /* 0.9 to 1.1 of it */
extern uint64_t le_random(void);
/* A pipe to wake a thread that polls: make it, write, and empty it. */
extern bool le_pipe(int fds[2]);
extern void le_wake(int fds[2]);
extern void le_drain(int fds[2]);

/* --- error.c --- */

/* Fill an error, if it is wanted; they return its status.  result: of a failed statement. */
extern le_status le_error_set(le_error *error, le_status status, const char *sqlstate, const char *format,
							  ...) __attribute__((format(printf, 4, 5)));
#define le_invalid(error, ...) le_error_set((error), LE_INVALID, "", __VA_ARGS__)
extern le_status le_error_clear(le_error *error);
extern le_status le_error_copy(le_error *to, const le_error *from);
extern le_status le_error_result(le_error *error, const PGresult *result);
/* As the server tells it; message and hint may be NULL. */
extern le_status le_error_server(le_error *error, const char *sqlstate, const char *message,
								 const char *hint);
extern le_status le_no_memory(le_error *error);
extern le_status le_status_of(const char *sqlstate);
/* Is its SQLSTATE one of these? */
extern bool le_error_is(const le_error *error, const char *sqlstates);
/* The schema, or the function in it, is not there. */
extern bool le_error_is_absent(const le_error *error);
/* Trying again may help. */
extern bool le_error_passes(const le_error *error);
/* Another connection is needed, perhaps to another host. */
extern bool le_error_ends_connection(const le_error *error);

/* --- secret.c: errors of connections, without passwords --- */

/* A connection string that libpq does not parse; message: libpq's, of which the kind of mistake is told. */
extern le_status le_error_unparsed(le_error *error, const char *message);
/*
 * Why an error of this connection must not be shown: an option has what does not
 * belong there, as where libpq takes a part of a password for the host.  NULL:
 * it may.
 */
extern const char *le_misread(const PGconn *conn);

/* --- text.c --- */

/* A text that grows; failed: out of memory, and the text is not complete. */
typedef struct le_text
{
	char *data;
	size_t len, size;
	bool failed;
} le_text;

/* Append, as printf does; a text that ran out of memory stays so. */
extern void le_text_add(le_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
extern void le_text_add_bytes(le_text *text, const void *data, size_t len);
extern char *le_copy(const char *text); /* NULL: out of memory */

/* --- arguments.c: LE_INVALID says which one is wrong, what it is, and what is allowed --- */

/* Structs of programs of other versions. */
extern le_status le_struct_read(void *to, size_t size, const void *from, const char *name, le_error *error);
extern le_status le_struct_check(const void *to, size_t least, const char *name, le_error *error);
extern void le_struct_write(void *to, const void *from, size_t size);
/* 1 to max bytes of UTF-8; what: the name of the argument. */
extern le_status le_check_text(const char *what, const char *text, int max, le_error *error);
/* Any text of UTF-8. */
extern le_status le_check_utf8(const char *what, const char *text, le_error *error);
extern le_status le_check_names(const char *const *names, int n, le_error *error);
extern le_status le_check_candidacy(const char *election, const char *candidate, le_error *error);
/* -1 or more. */
extern le_status le_check_wait(int wait_ms, le_error *error);
/* What is asked for n names. */
extern le_status le_check_how(const le_how *how, int n, le_error *error);
/* A pointer that must not be NULL; what: the name of the argument.  Clears the error. */
extern le_status le_check_pointer(const void *pointer, const char *what, le_error *error);
/* For what asks the server for something: not NULL, and not of a parent process.  Clears the error. */
extern le_status le_check_session(const le_session *session, le_error *error);
extern le_status le_check_hold(const le_hold *hold, le_error *error);
extern bool le_in_child(const le_session *s);

/* --- connection.c: busy --- */

/* One pass over all hosts.  False: see net.error. */
extern bool le_connect(le_session *s);
extern void le_disconnect(le_session *s);
/*
 * Runs a statement; n < 0: several without arguments.  "@extschema@" in it is
 * the schema of the extension, which is learned again where it has got another
 * name.  NULL: the connection is gone; then, and for an error, net.error.
 */
extern PGresult *le_exec(le_session *s, const char *sql, int n, const char *const *values);

/* The columns of a reply of le_sync(), in the order of its statement; validity is in us. */
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

/* The call of a turn, whose items are in binary format. */
extern PGresult *le_sync(le_session *s, const char *const *values, int items_length);
/* Takes what the server has sent. */
extern void le_receive(le_session *s);

/* --- session.c --- */

/* The session's mutex and its references. */
extern void le_lock(const le_session *s);
extern void le_unlock(const le_session *s);
extern void le_session_unref(le_session *s);                                     /* not locked */
extern bool le_start_thread(pthread_t *thread, void *(*run)(void *), void *arg); /* it takes no signals */

/* --- state.c: locked --- */

/* A new state, with its events. */
extern void le_set_state(le_session *s, le_state state);
extern bool le_is_alive(const le_session *s); /* also not locked: there is a lease, as far as is known */
/* The lease is over: all holds of it are. */
extern void le_end(le_session *s, const char *sqlstate, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Has the deadline passed? Then ends the session. */
extern bool le_check_deadline(le_session *s);
/* A renewal that was sent then has succeeded, and is valid for so many ns. */
extern void le_renewed(le_session *s, int64_t sent_at, int64_t validity);
/* A renewal, or a connection, has failed.  Returns when to try again. */
extern int64_t le_failed(le_session *s, const le_error *why);
/* Makes a hold over for the application. */
extern void le_hold_over(le_hold *hold, const le_error *error);
extern void le_hold_held(le_hold *hold);
/* Ends a wait whose own limit has passed. */
extern void le_hold_check_until(le_hold *hold, int64_t now);
extern int64_t le_hold_ends(const le_hold *hold); /* ns; of its wait */
/* The server has nothing of it any more. */
extern void le_hold_done(le_hold *hold);
extern void le_hold_unref(le_hold *hold);
/* Wakes who wait for it. */
extern void le_hold_changed(le_hold *hold);

/* --- turn.c: locked at entry and exit, not in between --- */

/* When the next turn is due. */
extern int64_t le_due(le_session *s);
extern void le_turn(le_session *s);
/* Something is queued: makes a turn, if the connection is free.  Otherwise those who have it do. */
extern void le_turn_join(le_session *s);

/* --- engine.c --- */

/* The session thread. */
extern void *le_net_main(void *session);
extern bool le_grant(le_session *s); /* busy */
/* Locked.  Wakes the session thread, if there is something to do for it before it wakes by itself. */
extern void le_wake_net(le_session *s);
/* Locked.  The connection is free again. */
extern void le_give(le_session *s);
/* Locked.  Has it been heard, on a channel of ours?  Then there is something to be looked at. */
extern void le_hear(le_session *s, const char *channel);
/* Locked at entry and exit.  Waits for the connection until then. */
extern le_status le_take(le_session *s, int64_t until, le_error *error);
/* Locked at entry and exit.  Runs a statement as le_exec, over reconnects, for the limit of a call. */
extern PGresult *le_ask(le_session *s, const char *sql, int n, const char *const *values, le_error *error);

/* --- dispatch.c --- */

/* The callback thread. */
extern void *le_dispatch_main(void *session);

/* --- hold.c --- */

/* A hold that nobody has asked for; NULL: out of memory. */
extern le_hold *le_hold_alloc(le_session *s, le_kind kind, const char *const *names, int n,
							  const char *candidate);
extern void le_hold_free(le_hold *hold);
extern le_status le_hold_wait(le_hold *hold, int64_t until, le_error *error);

/* --- observe.c --- */

/* Locked at entry and exit; of the callback thread.  False: nothing was to be done; *next: when there is. */
extern bool le_observe_work(le_session *s, int64_t *next);
extern void le_observers_due(le_session *s, const char *channel); /* locked; NULL: all */

#endif /* LE_CLIENT_INTERNAL_H */
