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
/* A call reaches its manager within this time, or never. */
#define CARRIED_OUT (20 * SECOND)

/* A growing array: APPEND(list) returns the address of a new element. */
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

/* A call and its reply, or the start or end of a connection (op S, X). */
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
	Time ttl;  /* 0: not given, or bound */
	Time wait; /* FOREVER: no limit */
	Time hold_for;
	const char *owner;
	int64_t lease, token, value, after;
	Time sent, received; /* if the outcome is unknown: when the client learned that */
	Status status;
	const char *answer;
} Call;

typedef struct Client
{
	const char *name;
	long pid;
	Time death; /* when the nemesis killed it; FOREVER: it did not */
	LIST(Call) calls;
} Client;

/* A fault that the nemesis injected. */
typedef struct Window
{
	Time from, to;
	const char *kind;
	long pid; /* the only client that was hit; 0: all */
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

/* Returns the end of the next window whose changes an asynchronous promotion has lost; FOREVER: none. */
extern Time lost_after(Time t);
extern bool in_lost_tail(Time t);

/* The lease of a lock or a place. Several locks of one call share it. */
typedef struct Lease
{
	int64_t number; /* 0: the own lease of a lock */
	Time ttl;       /* FOREVER: bound to the connection */
	Time ttl_high;  /* the longest possible TTL */
	Time proof;     /* when the last renewal was sent */
	Time latest;    /* when it has certainly ended without another renewal */
} Lease;

typedef struct Segment
{
	Time from, to;
	const Call *by; /* the call that proves it */
} Segment;

/*
 * A token and its client's knowledge about it.  The segments are the times at
 * which it was certainly held.
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
	Time deadline;   /* the lease is claimed until then */
	int count;       /* holds of one owner */
	bool closed;     /* no longer claimed */
	bool in_xact;    /* acquired in a transaction that is still open */
	bool pending;    /* released in the open transaction */
	Time fence_from; /* FOREVER: not fenced */
	Time gone;       /* when it has certainly ended; FOREVER: ends by its lease */
	Time keeps;      /* it may last until then because of a fence or a connection */
	bool uncertain;  /* the number of holds is uncertain */
	bool was_fenced;
	Time hold_for;     /* of its release: the name is closed for this time from the grant on; 0: not closed */
	const Call *force; /* the first call that may have ended it by force; NULL: none */
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

/* Calls that set or show the number of permits of a name, in order of their sending. */
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
extern bool unfenced; /* lost updates are counted, and are no violations */
extern Time slack;    /* time that a single hand-off may take in addition to 20 ms */
extern Time percentile_limit;

extern void violation(char rule, const char *text, const Call *a, const Call *b, const char *line);

#endif /* TORTURE_CHECK_H */
