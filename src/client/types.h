/*
 * types.h
 *		Types and shared state of liblockelection.  The functions of each file are
 *		declared in a header of its name; those of the threads in threads.h, and
 *		those of secret.c in error.h.
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
#ifndef LE_CLIENT_TYPES_H
#define LE_CLIENT_TYPES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "clock.h"
#include "list.h"
#include "lock_election.h"

/* First pause between two retries, in ns; each further pause is twice as long as the one before. */
#define LE_RETRY_FIRST (50 * LE_MS_NS)
/* Pause after a temporary server error, in ns */
#define LE_PAUSE (100 * LE_MS_NS)

/* Maximum number of items in a call */
#define LE_ITEMS_MAX  128
#define LE_STATES_MAX 16

#define LE_NAME_MAX      255
#define LE_NAMES_MAX     1000
#define LE_CANDIDATE_MAX 4096
#define LE_OWNER_MAX     200
/* Size of a channel name: "le_" and 32 hexadecimal digits, with some room */
#define LE_CHANNEL_SIZE 64
/* Size of the end of an owner text: "#", 16 digits, "-", number of the request */
#define LE_MARKER_SIZE 64

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

#endif /* LE_CLIENT_TYPES_H */
