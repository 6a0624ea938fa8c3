/*
 * internal.h
 *		What the files of liblockelection share.
 *
 * A session has two threads.  The network thread (engine.c) owns the
 * connection: no other thread touches it.  The callback thread (dispatch.c)
 * calls the application.  Each of them also watches the local deadline, so that
 * neither a hanging name resolution nor a slow callback hides it.
 *
 * One mutex a session protects everything that is not atomic or marked as the
 * network thread's.  It is never held during I/O or a callback.  Functions
 * whose comment says "locked" are called with it held.
 *
 * The life of a hold, as the network thread sees it (phase):
 *
 *		NEW -> SENT -> QUEUED -> GRANTED -> DONE
 *
 * SENT: asked for, and not answered.  Where the connection breaks then, it
 * stays SENT, and reconcile.c finds out what has become of it.  What the
 * application sees (state) is apart: WAITING, HELD, OVER.  A hold that is OVER
 * for the application and has a token is given back to the server.
 */
#ifndef LE_CLIENT_INTERNAL_H
#define LE_CLIENT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lock_election.h"

#define LE_US_NS  INT64_C(1000)
#define LE_MS_NS  INT64_C(1000000)
#define LE_SEC_NS (1000 * LE_MS_NS)

#define LE_NEVER INT64_MAX

/* The first pause between two tries; each one is twice as long as the one before. */
#define LE_RETRY_FIRST (50 * LE_MS_NS)

/* The most holds that one statement asks about. */
#define LE_CHECK_MAX 256
/* The most holds that a renewal looks at. */
#define LE_RENEW_CHECK_MAX 64
/* The most changes that an observer reads at once. */
#define LE_OBSERVE_MAX 64
#define LE_STATES_MAX  16

#define LE_NAME_MAX      255
#define LE_NAMES_MAX     1000
#define LE_CANDIDATE_MAX 4096
#define LE_OWNER_MAX     200
/* "le_" and 32 hexadecimal digits */
#define LE_CHANNEL_SIZE 36
/* "#", 16 digits, "-", number of the statement */
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

/* To the end of a list, from wherever it is. */
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

/* --- objects --- */

typedef enum le_phase
{
	LE_PHASE_NEW,
	LE_PHASE_SENT,
	LE_PHASE_QUEUED,
	LE_PHASE_GRANTED,
	LE_PHASE_DONE /* nothing of it is on the server, as far as is known */
} le_phase;

typedef enum le_hold_kind
{
	LE_KIND_LOCK,
	LE_KIND_PERMIT,
	LE_KIND_LOCKS,
	LE_KIND_TERM
} le_hold_kind;

/* A channel that somebody of the session wants to hear. */
typedef struct le_channel
{
	le_link link;
	int refs;
	bool listening; /* the present connection listens */
	bool fresh;     /* since the last LISTEN */
	char name[LE_CHANNEL_SIZE];
} le_channel;

struct le_hold
{
	le_session *session;
	le_link link;       /* in the session's list of its phase */
	le_link event_link; /* in session->events, while there is an event */
	int refs;           /* the application, the session's list, calls that wait */
	pthread_cond_t changed;

	/* fixed */
	le_hold_kind kind;
	int n;
	char **names;
	bool shared, try;
	int permits;
	int64_t until;     /* ns; the end of its wait in the queue; LE_NEVER: none */
	int64_t answer_by; /* ns; the end of the wait for the first answer, where that is later */

	_Atomic int state;      /* le_hold_state */
	_Atomic int stop_asked; /* by le_stop */
	_Atomic int64_t token;  /* 0: was never granted */
	_Atomic int64_t position;
	_Atomic(void *) user;

	/* under the session's mutex */
	le_phase phase;
	char *candidate;      /* of a term: the text to stand with */
	int64_t server_token; /* of the place or the hold */
	int64_t asked;        /* the number of the statement that asked for it */
	bool alone;           /* together with others it failed */
	int releases;         /* times that giving back was sent */
	int hold_for_ms;      /* ms, for giving back */
	bool hint;            /* was announced: look at it first */
	bool dropped;         /* the application has given it back */
	bool release_done;
	le_status release_status;
	le_channel *channel;
	le_error error; /* of state OVER */
};

typedef enum le_op_kind
{
	LE_OP_REOPEN,
	LE_OP_LEADER,
	LE_OP_PROCLAIM
} le_op_kind;

/* What the network thread does for a call that waits.  It outlives a call that gives up. */
typedef struct le_op
{
	le_link link;
	int refs; /* the call, the network thread */
	le_op_kind kind;
	bool sent, done;
	pthread_cond_t changed;
	char *name, *text;
	int64_t token;
	int64_t give_up_at;
	le_error error;
	le_leader_info leader;
} le_op;

struct le_observer
{
	le_session *session;
	le_link link;
	char *election;
	void (*on_change)(const le_change *change, void *arg);
	void *arg;

	int64_t after;
	int64_t due_at;
	bool reading;       /* the network thread is reading for it */
	bool calling;       /* a callback is running */
	bool gone;          /* le_unobserve waits */
	PGresult *rows;     /* to be told; then nothing more is read */
	bool start_now;     /* after was -1, and nothing has been read */
	bool own_end;       /* le_unobserve in the callback: the callback thread frees it */
	int64_t start_term; /* was told from current_leader() */
	le_channel *channel;
	pthread_cond_t changed;
};

typedef struct le_host
{
	char *host, *hostaddr, *port;
} le_host;

/* Of the network thread alone. */
typedef struct le_net
{
	PGconn *conn;      /* NULL: none */
	char *schema;      /* of the extension, quoted */
	int timer;         /* a timerfd, or -1 */
	bool pooled;       /* somebody between us and the server */
	bool listen_locks; /* grants are announced to us */
	bool listen_terms;
	bool listen_tested;
	bool listen_works;
	bool heard; /* the notification to ourselves */
	char heard_name[LE_MARKER_SIZE];
	le_host *hosts; /* rotated: a host that did not answer goes to the end */
	int nhosts;
	bool rotated;
	int64_t connect_ns;
	int failures;     /* of connecting, in a row */
	int64_t retry_at; /* connect not before */
	int64_t ask_at;   /* after an error of the server: no requests before */
	int64_t check_at; /* look at waiting holds */
	bool not_ended;   /* the backend of a connection that broke may still be at a statement */
	int old_pid;      /* of a connection that broke in the middle of a statement */
	char old_start[40];
	int pid;
	char start[40];
	bool busy;        /* a statement is under way */
	bool lost_answer; /* a statement's outcome is not known: reconcile */
	int64_t reconcile_at;
	int reconcile_left; /* repeats */
	le_error error;     /* of the last failure */
} le_net;

struct le_session
{
	pthread_mutex_t lock;
	pthread_cond_t changed; /* opened, closed */
	int refs;               /* the application, both threads, holds, calls */
	pid_t process;
	pthread_t net_thread, dispatch_thread;
	bool net_started, dispatch_started, net_done, dispatch_done;
	int wake_net[2], wake_dispatch[2], wake_user[2];

	/* fixed */
	le_options options;
	char *conninfo, *name;
	int64_t ttl, margin, call, connect, progress, poll; /* ns */
	char marker[24];

	_Atomic int state;        /* le_state */
	_Atomic int64_t deadline; /* ns; of the present lease */
	_Atomic int64_t lease;
	_Atomic int64_t progress_at; /* ns */
	_Atomic int withheld;        /* renewals wait for le_progress() */

	/* under the mutex */
	bool opened; /* the first connection has succeeded or failed */
	bool closing, orphan;
	int64_t close_until;
	bool revoked;
	bool lease_gone; /* the server has said so */
	int64_t renew_at;
	int renew_failures;
	le_error error;   /* why it has ended, or did not open */
	le_error trouble; /* the last failure of the connection or a renewal */
	le_link todo;     /* holds to be asked for or given back, in order */
	le_link sent, queued, granted;
	le_link refused; /* releases that the server refuses: tried again with each renewal */
	le_link ops, observers, channels, events;
	int64_t asks;       /* statements that asked for holds */
	int64_t next_until; /* the nearest how->until of a waiting hold, or earlier */
	char *fence_schema; /* net.schema for other threads */
	bool state_event, renewed_event, user_woken;
	le_state states[LE_STATES_MAX]; /* to be told */
	int nstates;
	bool renewed_told; /* false: on_renewed is to be called */

	le_net net;
};

/* --- clock.c --- */

extern int64_t le_now_ns(void); /* ns of CLOCK_BOOTTIME */
extern int64_t le_ms_up(int64_t ns);
extern int64_t le_add(int64_t a, int64_t b); /* saturates */
/* The point that is wait_ms from now; -1: LE_NEVER. */
extern int64_t le_until(int wait_ms);
extern int64_t le_until_point(int64_t ms);
extern int le_timer_new(void);
/* poll() until a point of le_now_ns(); timer may be -1.  As poll, for the caller's descriptors. */
struct pollfd;
extern int le_poll(struct pollfd *fds, int n, int timer, int64_t until);
extern int le_cond_init(pthread_cond_t *cond);
/* Waits for a condition until a point of le_now_ns(), or a while less; the caller looks at the time. */
extern void le_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until);
extern int64_t le_jitter(int64_t ns); /* 0.9 to 1.1 of it */
extern bool le_random(void *to, size_t size);

/* --- error.c --- */

/* Fill an error, if it is wanted; they return its status.  result: of a failed statement. */
extern le_status le_error_set(le_error *error, le_status status, const char *sqlstate, const char *format,
							  ...) __attribute__((format(printf, 4, 5)));
extern le_status le_error_clear(le_error *error);
extern le_status le_error_copy(le_error *to, const le_error *from);
extern le_status le_error_result(le_error *error, const PGresult *result);
extern le_status le_status_of(const char *sqlstate);
/* Its outcome is not known. */
extern bool le_error_is_unknown(const le_error *error);
/* The schema, or the function in it, is not there. */
extern bool le_error_is_absent(const le_error *error);
/* Trying again may help. */
extern bool le_error_passes(const le_error *error);
/* Why an error of the server means another connection, perhaps to another host; NULL: this one stays. */
extern const char *le_error_ends_connection(const le_error *error);

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
/* An element of an array in PostgreSQL's notation, quoted. */
extern void le_text_add_element(le_text *text, const char *value);
extern void le_text_free(le_text *text);
extern char *le_copy(const char *text); /* NULL: out of memory */
/* The length of a message without the newline of libpq. */
extern int le_line_length(const char *text);

/* --- struct.c: structs of programs of other versions --- */

extern le_status le_struct_read(void *to, size_t size, const void *from, const char *name, le_error *error);
extern le_status le_struct_check(const void *to, size_t least, const char *name, le_error *error);
extern void le_struct_write(void *to, const void *from, size_t size);

/* --- arguments.c: LE_INVALID says which one is wrong, what it is, and what is allowed --- */

/* 1 to LE_NAMES_MAX names, each as a name may be. */
extern le_status le_check_names(const char *const *names, int n, le_error *error);
/* 1 to LE_NAME_MAX bytes of UTF-8. */
extern le_status le_check_election(const char *election, le_error *error);
/* 1 to LE_CANDIDATE_MAX bytes of UTF-8. */
extern le_status le_check_candidate(const char *candidate, le_error *error);
/* Any text of UTF-8; what: the name of the argument. */
extern le_status le_check_utf8(const char *what, const char *text, le_error *error);
/* -1 or more. */
extern le_status le_check_wait(int wait_ms, le_error *error);
/* What is asked for n names. */
extern le_status le_check_how(const le_how *how, int n, le_error *error);
/* A pointer that must not be NULL; what: the name of the argument. */
extern le_status le_check_pointer(const void *pointer, const char *what, le_error *error);

/* --- election.c --- */

/* Both of its texts. */
extern le_status le_check_candidacy(const char *election, const char *candidate, le_error *error);

/* --- connection.c: of the network thread --- */

/* One pass over all hosts.  False: see net.error. */
extern bool le_connect(le_session *s);
extern void le_disconnect(le_session *s);
extern void le_net_free(le_net *net);
/*
 * Runs a statement; n < 0: several without arguments.  "@extschema@" in it is
 * the schema of the extension, which is learned again where it has got another
 * name.  NULL: no answer, and the connection is gone; then, and for an error,
 * net.error.
 */
extern PGresult *le_exec(le_session *s, int64_t until, const char *sql, int n, const char *const *values);
/* As le_exec, with the text's SQL; frees it. */
extern PGresult *le_exec_text(le_session *s, int64_t until, le_text *sql, int n, const char *const *values);
/* Takes what the server has sent.  False: the connection is gone. */
extern bool le_receive(le_session *s);
/* Waits for the server, a wake-up, or the time. */
extern void le_idle(le_session *s, int64_t until);
extern void le_set_broken(le_session *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- wake.c --- */

/* A pipe to wake a thread that polls: make it, write, and empty it. */
extern bool le_pipe(int fds[2]);
extern void le_wake(int fds[2]);
extern void le_drain(int fds[2]);

/* --- session.c --- */

/* The session's mutex and its references. */
extern void le_lock(const le_session *s);
extern void le_unlock(const le_session *s);
extern void le_session_ref(le_session *s);   /* locked */
extern void le_session_unref(le_session *s); /* not locked */
/* Locked.  A new state, with its events. */
extern void le_set_state(le_session *s, le_state state);
/* Locked.  The lease is over: all holds of it are. */
extern void le_end(le_session *s, le_status status, const char *sqlstate, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Locked.  Has the deadline passed? Then ends the session. */
extern bool le_check_deadline(le_session *s);
/* Locked.  A renewal that was sent then has succeeded, and is valid for so many ns. */
extern void le_renewed(le_session *s, int64_t sent_at, int64_t validity);
/* ns; the longest pause between two tries to renew, or to connect while there is a lease to save. */
extern int64_t le_retry_most(const le_session *s);
extern bool le_in_child(const le_session *s);
/* For what asks the server for something: not NULL, and not the session of a parent process. */
extern le_status le_check_session(const le_session *session, le_error *error);
/* As le_check_session, of the hold's session. */
extern le_status le_check_hold(const le_hold *hold, le_error *error);
extern void le_wake_net(le_session *s);
extern void le_wake_user(le_session *s); /* locked */

/* --- engine.c --- */

/* The network thread. */
extern void *le_net_main(void *session);

/* --- lease.c: of the network thread --- */

extern bool le_grant(le_session *s); /* not locked */
extern void le_renew(le_session *s);
extern bool le_renewal_is_due(le_session *s, int64_t now); /* locked */
extern void le_revoke(le_session *s);

/* --- dispatch.c --- */

/* The callback thread. */
extern void *le_dispatch_main(void *session);

/* --- hold.c --- */

/* Makes a hold and hands it to the network thread.  until, in ns: one that has passed takes no queue place. */
extern le_status le_hold_new(le_session *s, le_hold_kind kind, const char *const *names, int n,
							 const le_how *how, const char *candidate, int64_t until, le_hold **hold,
							 le_error *error);
extern void le_hold_unref(le_hold *hold); /* locked */
/* Locked.  It is over for the application. */
extern void le_hold_over(le_hold *hold, const le_error *error);
extern void le_hold_held(le_hold *hold);
extern void le_hold_check_until(le_hold *hold, int64_t now);
extern int64_t le_hold_ends(const le_hold *hold); /* ns; of its wait */
extern void le_hold_answered(le_hold *hold);
/* Locked.  The server has nothing of it any more. */
extern void le_hold_done(le_hold *hold);
extern le_status le_hold_wait(le_hold *hold, int64_t until, le_error *error);
extern le_status le_hold_finish(le_hold *own, le_hold **hold, le_error *error);
/* As an argument of the functions of the server. */
extern void le_hold_names(const le_hold *hold, le_text *text);

/* --- request.c: of the network thread; what is asked for holds --- */

/*
 * Locked at entry and exit, not in between.  Asks for the first hold of the list
 * todo, or gives it back, and with it others that can go in one statement.
 */
extern void le_request(le_session *s);
/* The owner that the server is told. */
extern void le_hold_owner(const le_hold *hold, char owner[LE_OWNER_MAX + LE_MARKER_SIZE]);
extern void le_release_answer(le_hold *hold, bool released); /* locked */

/* --- queue.c: of the network thread; how waiters learn of their grants --- */

/* The connection is there, or is gone. */
extern void le_queue_connected(le_session *s);
extern void le_queue_lost(le_session *s); /* locked: nothing is listened to any more */
/* Locked.  The channel of this name, with a reference more; NULL: out of memory. */
extern le_channel *le_channel_get(le_session *s, const char *name);
extern void le_channel_put(le_channel *channel); /* locked */
extern void le_channels_free(le_session *s);
/* A notification has come.  Not locked. */
extern void le_notified(le_session *s, const char *channel, const char *payload);
/* Locked at entry and exit.  Does what is to be done; false: nothing was.  *next: when to come again. */
extern bool le_queue_work(le_session *s, int64_t now, int64_t *next);
/* Locked at entry and exit.  Finds out whether LISTEN works; true. */
extern bool le_queue_test(le_session *s);
/* Locked.  Look at it next. */
extern void le_queue_announce(le_session *s, le_hold *hold);
/* Locked.  Is there work that must not wait for requests? */
extern bool le_queue_is_urgent(const le_session *s, int64_t now);
/* The SQL of a look at holds, with the arrays that it takes; ordinals of the held ones are answered. */
typedef struct le_look
{
	le_hold *holds[LE_CHECK_MAX];
	int n;
	le_text names, tokens, terms;
} le_look;

extern void le_look_add(le_look *look, le_hold *hold); /* locked; takes a reference */
extern void le_look_sql(int first, le_text *sql);
extern bool le_look_failed(le_look *look);
/* Locked.  held: the array of ordinals that was answered, NULL if there was none. */
extern void le_look_apply(le_session *s, le_look *look, const char *held);
extern void le_look_free(le_look *look); /* locked */

/* --- reconcile.c: of the network thread --- */

/* Locked at entry and exit. */
extern void le_reconcile(le_session *s);
/*
 * Not locked.  End the backend of the broken connection; net.old_pid is 0 when it has
 * ended.  False: this connection is gone as well.
 */
extern bool le_end_old_backend(le_session *s);

/* --- op.c --- */

/* An operation without answer yet; NULL: out of memory. */
extern le_op *le_op_new(le_session *s, le_op_kind kind, const char *name, const char *text);
/* Queues it, and waits until then.  Frees the reference of the call. */
extern le_status le_op_run(le_session *s, le_op *op, int64_t until, le_leader_info *leader, le_error *error);
extern void le_op_done(le_op *op, const le_error *error); /* locked */
/* Locked at entry and exit. */
extern void le_op_work(le_session *s, le_op *op);
extern void le_op_unref(le_op *op); /* locked */

/* --- observe.c --- */

/* Locked.  Is there reading that has waited for too long? */
extern bool le_observe_is_urgent(const le_session *s, int64_t now);
/* Locked at entry and exit; of the network thread. */
extern bool le_observe_work(le_session *s, int64_t now, int64_t *next);
/* Locked at entry and exit; of the callback thread.  False: nothing to tell. */
extern bool le_observe_tell(le_session *s);
extern void le_observers_due(le_session *s, const le_channel *channel); /* locked; NULL: all */

#endif /* LE_CLIENT_INTERNAL_H */
