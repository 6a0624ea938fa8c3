/*
 * check.h
 *		The checker of histories: the records, the claims derived from them, and
 *		the rules, which are explained in check.c.
 */
#ifndef TORTURE_CHECK_H
#define TORTURE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int64_t Time; /* nanoseconds of CLOCK_MONOTONIC */

#define FOREVER   INT64_MAX
#define MS        INT64_C(1000000)
#define SECOND    (1000 * MS)
#define MAX_NAMES 8
/* However long a call takes, it has reached its manager within this time, or never does. */
#define CARRIED_OUT (20 * SECOND)

/* A growing array: APPEND(list, count, room) is the place of a new element. */
extern void *grow(void *list, size_t count, size_t *room, size_t size);
#define APPEND(l) ((l).at = grow((l).at, (l).n, &(l).room, sizeof(*(l).at)), &(l).at[(l).n++])
#define LIST(type)                                                                                           \
	struct                                                                                                   \
	{                                                                                                        \
		type *at;                                                                                            \
		size_t n, room;                                                                                      \
	}

typedef enum Status
{
	STATUS_OK,
	STATUS_NULL,
	STATUS_ERROR,
	STATUS_UNKNOWN
} Status;

/* A call and its answer, or the beginning or end of a connection (op S, X). */
typedef struct Call
{
	struct Client *client;
	const char *op;
	long number, connection;
	const char *asked_line, *answer_line;
	int names[MAX_NAMES];
	int nnames;
	char mode; /* x, s, p */
	int permits;
	Time ttl;  /* 0: none given, or bound */
	Time wait; /* FOREVER: no limit */
	Time hold_for;
	const char *owner;
	int64_t lease, token, value, after;
	Time sent, received; /* of an unknown outcome: when it was known to be unknown */
	Status status;
	const char *answer;
} Call;

typedef struct Client
{
	const char *name;
	long pid;
	Time death; /* killed by the nemesis; else FOREVER */
	LIST(Call) calls;
} Client;

/* Something the nemesis did. */
typedef struct Window
{
	Time from, to;
	const char *kind;
	long pid; /* of the one client that it hit; 0: everybody */
	const char *line;
} Window;

typedef struct Left
{
	const char *what;
	long count;
	const char *line;
} Left;

typedef LIST(Client) Clients;
typedef LIST(Window) Windows;
typedef LIST(Left) Lefts;

extern Clients clients;
extern Windows windows;
extern Lefts lefts;
extern void read_history(const char *path);
extern void finish_reading(void);
extern int name_number(const char *name);
extern const char *name_text(int number);
extern int name_count(void);
extern bool is_op(const Call *call, const char *op);

/* When the next primary after t goes down with what an asynchronous promotion loses. */
extern Time lost_after(Time t);
extern bool in_lost_tail(Time t);

/* What a lock, place or lease lives on. Several locks of one call share it. */
typedef struct Lease
{
	int64_t number; /* 0: a lock's own */
	Time ttl;       /* FOREVER: bound to the connection */
	Time ttl_high;  /* the longest that it may be */
	Time proof;     /* the sending of what has renewed it last */
	Time latest;    /* at which it has ended, if nobody has renewed it */
} Lease;

typedef struct Segment
{
	Time from, to;
	const Call *by; /* the call that has shown it */
} Segment;

/*
 * A token and what its client knows of it.  The segments are the times at
 * which it was held for certain.
 */
typedef struct Hold
{
	Client *client;
	int name;
	int64_t token;
	char mode;
	int permits;
	Lease *lease;
	const Call *asked;
	const Call *granted; /* NULL: a place */
	const Call *ended;
	LIST(Segment) segments;
	Time deadline;   /* up to which the lease is claimed */
	int count;       /* holds of one owner */
	bool closed;     /* nothing is claimed any more */
	bool in_xact;    /* acquired in a transaction that is still open */
	bool pending;    /* released in it */
	Time fence_from; /* FOREVER: not fenced */
	Time gone;       /* at which it has ended for certain; FOREVER: by its lease */
	Time keeps;      /* not before this, because of a fence or connection */
	bool uncertain;  /* how many holds there are */
	bool was_fenced;
	Time hold_for;     /* of its release: the name is closed for so long from the grant on; 0: not */
	const Call *force; /* the first that may have ended it; NULL: none */
} Hold;

typedef LIST(Hold *) Holds;

extern Holds holds; /* of all clients */
extern void find_holds(void);
extern bool is_acquire(const Call *call);
extern bool covers(const Hold *hold, Time from, Time to);
extern Time hold_gone(const Hold *hold);
extern bool waited_for_no_standby(const Hold *h);
extern bool forced_between(int name, Time from, Time to);

extern void check_exclusion(void); /* M */
extern void check_closed(void);    /* C */
extern void check_forces(void);    /* E */
extern void check_order(void);     /* T, Q */
extern void check_revisions(void); /* R */
extern void check_handoffs(void);  /* W, L */
extern void check_leaders(void);   /* M, D */
extern void check_histories(void); /* H */
extern void check_updates(void);   /* F */
extern void check_left(void);      /* G */
extern Time outside_windows(Time t);
extern bool clock_jumped(Time from, Time to);

/* Calls that set, or show, how many permits of a name there are, in order of their sending. */
typedef LIST(const Call *) Calls;

extern void permit_calls(int name, Calls *calls);
extern int permits_of(const Call *call);
extern size_t calls_sent(const Calls *calls, Time t);
extern bool was_stopped(const Client *client, Time from, Time to);

typedef struct Figures
{
	long handoffs;
	Time p50, p99, longest;
	long updates, lost;
	long checked[128]; /* by letter */
} Figures;

extern Figures figures;
extern bool unfenced; /* lost updates are counted, not violations */
extern Time slack;    /* that a single hand-off may take on top of 20 ms */
extern Time percentile_limit;

extern void violation(char rule, const char *text, const Call *a, const Call *b, const char *line);

#endif /* TORTURE_CHECK_H */
