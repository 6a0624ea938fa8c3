/*
 * types.h
 *		Types and shared state of liblockelection.  The functions of a file are
 *		declared in the header of the same name, except that threads.h declares
 *		those of the session's threads, and error.h also those of secret.c.
 *
 * A session communicates with the server in *turns*: a turn is one call of
 * lease_sync() that sends the queued requests and releases
 * (docs/reference/lease-sync.md).  A thread that finds the connection free runs
 * the turn itself; the other threads wait for their results.  There are three
 * kinds of threads:
 *
 *	1.	The application's threads.  A thread queues its request, runs a turn if the
 *		connection is free (le_turn_join), and then waits for the result.
 *	2.	The session thread (engine.c).  It runs all other turns: renewals, reads
 *		of news, and requests that were queued during a turn.  Only this thread
 *		connects.  It listens for notifications while a hold waits.
 *	3.	The callback thread (dispatch.c).  It calls the application.  It also
 *		watches the local deadline, so that the session ends in time even if the
 *		session thread hangs in name resolution or waits for a slow server.
 *
 * Each session has one mutex, session.lock, which protects all members that are
 * neither atomic nor constant.  It is never held during I/O or a callback.  The
 * connection, session.net, is *owned* by the thread that has set session.busy,
 * and only that thread uses it.
 *
 * The phase of a hold describes its request, grant or place on the server.  It
 * determines in which of the session's lists the hold can be:
 *
 *		NEW       ASKS                not requested yet
 *		SENT      ASKS, OPEN          requested; no reply yet
 *		QUEUED    HELD, GIVES, LATER  has a place
 *		GRANTED   HELD, GIVES, LATER  is granted
 *		DONE      none                neither granted nor waiting
 *
 * The application sees another state: WAITING, HELD or OVER.  A hold that is
 * OVER but still has a token on the server must be released: it is in GIVES, or
 * in LATER after an error.
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

/* Pause before the first retry, in ns; doubled for each further retry */
#define LE_RETRY_FIRST (50 * LE_MS_NS)
/* Pause after a temporary server error, in ns */
#define LE_PAUSE (100 * LE_MS_NS)

/* Maximum number of items in a call of lease_sync() */
#define LE_ITEMS_MAX  128
#define LE_STATES_MAX 16

#define LE_NAME_MAX      255
#define LE_NAMES_MAX     1000
#define LE_CANDIDATE_MAX 4096
#define LE_OWNER_MAX     200
/* Buffer size in bytes for a channel name, which is "le_" and 32 hexadecimal digits */
#define LE_CHANNEL_SIZE 64
/*
 * Buffer size in bytes for the end of an owner text: "#", 16 hexadecimal
 * digits, "-", number of the request
 */
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
	LE_KIND_PROCLAIM /* not a hold, but a request to change the candidate text of term server_token */
} le_kind;

struct le_hold
{
	le_session *session;
	le_link link;       /* link in one of session->lists */
	le_link event_link; /* link in session->events while the hold has an unread event */
	int refs;           /* number of references: the application, the session's list, and turns */
	int waiters;        /* number of threads that wait for hold->changed */
	pthread_cond_t changed;

	/* constant once the hold is queued */
	le_kind kind;
	int n;
	char **names;
	bool shared, try;
	int permits;
	int64_t until;     /* end of the wait in the queue, in ns; LE_NEVER = no limit */
	int64_t answer_by; /* end of the wait for the first reply, in ns; replaces an earlier "until" */
	int64_t asked;     /* number of the request; part of its owner text */
	char *candidate;

	_Atomic int state;      /* le_hold_state, as the application sees it */
	_Atomic int stop_asked; /* 1 = le_stop was called for this term */
	_Atomic int64_t token;  /* token for the application; 0 = never granted */
	_Atomic int64_t position;
	_Atomic(void *) user;

	/* protected by the session's mutex */
	le_phase phase;
	int64_t server_token; /* token of the place or grant on the server; 0 = not known */
	bool pending;         /* the request was carried out, but is not durable yet */
	int given, left;      /* number of names whose release was sent; number of names whose release has no
						   * result yet */
	bool again, lost;     /* the release was sent before; its reply was lost */
	int hold_for_ms;      /* hold_for of the release, in ms; 0 = none */
	bool dropped;         /* the application has released the hold */
	int64_t seen_call;    /* number of the last call whose reply contained this hold */
	int seen_names;       /* number of the hold's names in that reply */
	bool release_done;    /* le_release need not wait any longer */
	le_error error;       /* reason why the hold is OVER, or the result of its release */
};

struct le_observer
{
	le_session *session;
	le_link link;
	char *election;
	void (*on_change)(const le_change *change, void *arg);
	void *arg;

	/* protected by the session's mutex */
	int64_t after;      /* number of the last change that was reported; 0 = none; -1 while start_now is set */
	int64_t due_at;     /* time of the next read, in ns */
	bool calling;       /* the callback thread is reading changes or calling on_change */
	bool gone;          /* le_unobserve was called */
	bool start_now;     /* nothing was read yet, and the first read starts at the current leader */
	bool own_end;       /* le_unobserve was called in on_change: the callback thread frees the observer */
	int64_t start_term; /* term that was reported because it was current at the start; 0 = none */
	char channel[LE_CHANNEL_SIZE];
	pthread_cond_t changed;
};

/* The connection.  Used only by the thread that has set session.busy. */
typedef struct le_net
{
	PGconn *conn;    /* NULL = not connected */
	bool pooled;     /* a pooler is between the client and the server */
	bool prepared;   /* the statement that calls lease_sync() is prepared */
	bool plain;      /* the statement that calls lease_sync() must not be prepared */
	char *places[3]; /* host, hostaddr and port as libpq returns them; comma-separated for several hosts */
	int nhosts;
	int host;           /* index of the host to try next */
	int64_t connect_ns; /* time limit for connecting to one address, in ns; 0 = options not read yet */
	int64_t until;      /* time by which a statement must end, in ns; LE_NEVER = only call_ms limits it */
	le_error error;     /* last failure */
} le_net;

/* Indexes of session.lists, the lists of holds */
enum
{
	LE_ASKS,  /* requests to send */
	LE_OPEN,  /* requests that were sent and have no reply yet */
	LE_HELD,  /* places and grants */
	LE_GIVES, /* places and grants to release */
	LE_LATER, /* failed releases, which are retried after a pause */
	LE_LISTS
};

struct le_session
{
	pthread_mutex_t lock;
	pthread_cond_t changed; /* signaled when the session opens or closes, or the connection becomes free */
	int watchers;           /* number of threads that wait for changed */
	pthread_cond_t to_tell; /* signaled when the callback thread has work */
	int refs;               /* number of references: the application, both threads, holds, and calls */
	pid_t process;          /* pid of the process that opened the session, not of a forked child */
	pthread_t net_thread, dispatch_thread;
	bool net_started, dispatch_started, net_done, dispatch_done;
	int wake_net[2], wake_user[2]; /* pipes that wake up the session thread, and the poller of le_fd() */

	/* constant */
	le_options options;
	char *conninfo, *name;
	int64_t ttl, margin, call, connect, progress, poll; /* options of these names, in ns */
	char marker[24]; /* "#" and 16 random hexadecimal digits; part of the owner text of each request */

	_Atomic int state;        /* le_state */
	_Atomic int64_t deadline; /* local deadline of the current lease, in ns */
	_Atomic int64_t lease;
	_Atomic int64_t progress_at; /* time of the last le_progress(), in ns */
	_Atomic int withheld;        /* renewals are withheld until le_progress() is called */

	/* protected by the mutex */
	bool opened;          /* the first attempt to obtain a lease has succeeded or failed */
	bool closing, orphan; /* le_close or le_orphan was called; le_orphan was called */
	int64_t close_until;  /* time by which closing must end, in ns */
	bool revoked;         /* closing has revoked the lease, or need not revoke it */
	bool lease_gone;      /* the server has reported that the lease has ended */
	bool connected;
	bool busy;           /* a thread owns the connection */
	int asking;          /* number of threads that wait in le_take() to own the connection */
	int64_t rests_until; /* time until which the session thread sleeps, in ns; 0 = it does not sleep */
	bool rests_deaf;     /* the session thread sleeps, and no notification wakes it up */
	int64_t renew_at;    /* time of the next renewal, in ns */
	int failures;        /* number of consecutive failures to renew or connect */
	int64_t retry_at;    /* earliest time of the next attempt to connect, in ns */
	le_error error;      /* reason why the session ended or could not be opened */
	le_error trouble;    /* last failure to connect or to renew, shown in later errors */
	le_link lists[LE_LISTS], observers, events;
	int64_t requests;   /* number of the last request */
	int64_t next_until; /* time of the next check for waits that have timed out, in ns */
	char *schema;       /* the extension's schema, quoted; only the connection's owner changes it */
	bool state_event, renewed_event, user_woken; /* unread events; le_fd() is readable */
	le_state states[LE_STATES_MAX];              /* states not yet reported to on_state, oldest first */
	int nstates;
	bool renewed_told; /* false = on_renewed must be called */

	/* turns of the current lease */
	int64_t calls;    /* number of the last call of lease_sync() */
	int64_t last_at;  /* time at which the last call was sent, in ns */
	char seen[2][24]; /* incarnation, and number of the newest news item, of the latest reply; "" = none */
	bool look;        /* the server may have news, so a turn is due */
	bool bare;        /* the next call only reads news, see turn.c */
	bool apart;       /* the last call sent only releases, and left the requests to the next call */
	int alone;        /* number of items to send one by one, to find the item that makes the call fail */
	int64_t ask_at, later_at; /* earliest time, in ns, to send requests, and to send the releases in LATER */
	int waiting;              /* number of queue places that the application waits for */
	int64_t waited_at;        /* time at which the last wait in a queue ended, in ns; 0 = none */
	int woken;                /* counter of wake-ups of threads that wait for a hold */

	/* state of LISTEN on the current connection */
	char channel[LE_CHANNEL_SIZE]; /* channel of the lease; "" = not known */
	bool listens;                  /* LISTEN was sent for the lease's channel */
	bool relisten;                 /* the observers' channels have changed, so LISTEN must be sent again */
	int64_t listen_at;             /* earliest time of the next LISTEN, in ns */
	bool deaf;                     /* LISTEN does not work or is not wanted */
	bool heard;                    /* LISTEN works: a notification was received */
	int64_t tested_at; /* time at which the session sent itself a test notification, in ns; 0 = none yet */

	le_net net;
};

#endif /* LE_CLIENT_TYPES_H */
