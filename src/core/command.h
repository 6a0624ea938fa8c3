/*
 * core/command.h
 *		The input and output of the core: commands and replies.
 *
 * Sessions fill in commands and read replies, and use no other part of the core.
 */
#ifndef LE_COMMAND_H
#define LE_COMMAND_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LE_MAX_NAME  255       /* bytes in the name of a lock or election */
#define LE_MAX_OWNER 255       /* bytes in a named owner */
#define LE_MAX_VALUE 4096      /* bytes in a candidate's value */
#define LE_MAX_NAMES 1000      /* names per command */
#define LE_MAX_HOLDS INT32_MAX /* maximum number of holds of one holder, which its row stores as an int4 */
#define LE_FEW       16        /* minimum number of entries whose end at once counts as heavy work */

#define LE_MAX_ACQUIRER 127 /* bytes in the text that describes an acquirer */

#define LE_MS     INT64_C(1000)
#define LE_SECOND INT64_C(1000000)
#define LE_NEVER  INT64_MAX

/* TTL of an entry that ends with its connection. */
#define LE_TTL_BOUND INT64_C(-1)
/* Value of LeCommand.wait for a request without a time limit. */
#define LE_WAIT_FOREVER INT64_C(-1)

/*
 * If a lease has a longer TTL than this and is not renewed for this time, its time left is saved in its
 * row.  Otherwise each restart would give a dead client the full TTL again.  The next renewal of the
 * lease writes the row before the reply is sent.
 */
#define LE_SAVE_INTERVAL (300 * LE_SECOND)

/* Revision = incarnation << LE_COUNTER_BITS | counter.  Revisions stay below 2^53. */
#define LE_COUNTER_BITS    28
#define LE_COUNTER_MAX     ((INT64_C(1) << LE_COUNTER_BITS) - 1)
#define LE_INCARNATION_MAX ((INT64_C(1) << (53 - LE_COUNTER_BITS)) - 1)
/* The highest argument of advance_revision().  It leaves room for 2^20 more incarnations. */
#define LE_ADVANCE_MAX ((LE_INCARNATION_MAX + 1 - (INT64_C(1) << 20)) << LE_COUNTER_BITS)

/*
 * A time in microseconds: a moment on the monotonic clock of the environment, or a duration (ttl, wait,
 * hold_for, ..).  The core uses no other unit.  Wall-clock times of rows are int64_t, also in
 * microseconds (core/stored.h).
 */
typedef int64_t LeTime;

/* Returns the sum of a moment and a duration, at most LE_NEVER. */
static inline LeTime
le_add(LeTime a, LeTime b)
{
	return a > LE_NEVER - b ? LE_NEVER : a + b;
}

typedef struct LeText
{
	const char *data; /* not null-terminated; NULL = absent */
	uint32_t len;
} LeText;

typedef enum LeKind
{
	LE_KIND_LOCK = 1,
	LE_KIND_ELECTION = 2
} LeKind;

typedef enum LeMode
{
	LE_MODE_EXCLUSIVE = 1,
	LE_MODE_SHARED = 2,
	LE_MODE_PERMIT = 3
} LeMode;

typedef enum LeEnd
{
	LE_END_NONE = 0,
	LE_END_RELEASED,
	LE_END_EXPIRED,
	LE_END_REVOKED, /* its lease was revoked */
	LE_END_FORCED,
	LE_END_EVICTED, /* it was evicted: it cannot be renewed, and ends at its fixed deadline */
	LE_END_UNDONE,  /* its (sub)transaction rolled back */
	LE_END_SESSION, /* its connection ended */
	LE_END_TIMEOUT, /* its wait timed out */
	LE_END_REPLACED /* the waiter became one more hold of a holder with the same owner */
} LeEnd;

/* Types of changes of an election. */
typedef enum LeHow
{
	LE_HOW_ELECTED = 1,
	LE_HOW_PROCLAIMED, /* the leader's value was replaced */
	LE_HOW_RESIGNED,   /* this and all values below: the term has ended */
	LE_HOW_EXPIRED,
	LE_HOW_REVOKED,
	LE_HOW_FORCED,
	LE_HOW_UNDONE,       /* its transaction rolled back */
	LE_HOW_DISCONNECTED, /* its connection ended */
	LE_HOW_EVICTED
} LeHow;

/* The result of a command.  Most comments end with the SQLSTATE that the SQL function raises. */
typedef enum LeStatus
{
	LE_OK = 0,        /* done, granted, or true */
	LE_WAITING,       /* no result yet; the reply is sent with a later batch */
	LE_NOT_GRANTED,   /* not granted before the wait ended: SQL NULL */
	LE_NOT_HELD,      /* no such holder or place: SQL false */
	LE_LOST,          /* the entry ended while the caller waited for the grant: LE001 */
	LE_QUEUED,        /* has a place in the queue, not granted yet */
	LE_DENIED,        /* the token or lease belongs to another role: 42501 */
	LE_BAD_MODE,      /* either the request or the lock uses permits, but not both: 22023 */
	LE_BAD_PERMITS,   /* the name is in use with another number of permits: 22023 */
	LE_BAD_UPGRADE,   /* the holder of a shared lock requests an exclusive one: 22023 */
	LE_BAD_GROUP,     /* the same owner already holds some of the names, or all of them with different tokens:
					   * 22023 */
	LE_BAD_TTL,       /* one lock would have both bound and unbound holds, or a TTL was given for an entry on
					   * a named lease: 22023 */
	LE_NO_LEASE,      /* the named lease has ended: LE001 */
	LE_LIMIT_LOCKS,   /* exceeds max_locks_per_role: 53400 */
	LE_LIMIT_LEASES,  /* exceeds max_leases_per_role: 53400 */
	LE_LIMIT_BYTES,   /* exceeds max_memory_per_role: 53400 */
	LE_LIMIT_WAITERS, /* exceeds max_waiters_per_lock: 53400 */
	LE_LIMIT_HOLDS,   /* exceeds LE_MAX_HOLDS: 53400 */
	LE_HELD_BOUND,    /* EVICT: one of the holders is bound, so it has no deadline: 55000 */

	/* set by the environment only */
	LE_LIMIT_MEMORY, /* exceeds max_memory: 53400 */
	LE_LIMIT_HISTORY /* exceeds max_history_per_role: 53400 */
} LeStatus;

typedef enum LeCommandType
{
	LE_CMD_ACQUIRE = 1, /* acquire a lock or a permit, or campaign in an election */
	LE_CMD_AWAIT,       /* wait for a queue place to be granted */
	LE_CMD_RENEW,
	LE_CMD_RELEASE,  /* release a lock, resign, or leave the queue */
	LE_CMD_CHECK,    /* report whether this token is a holder or a place.  Token 0 = the session's newest
					  * holder; role 0 = any role */
	LE_CMD_FORCE,    /* end all holders of a name, and open the name */
	LE_CMD_EVICT,    /* evict all holders of a name, so that they are not renewed any more */
	LE_CMD_PROCLAIM, /* change a holder's value */
	LE_CMD_SET_PERMITS,
	LE_CMD_GRANT_LEASE,
	LE_CMD_KEEP_ALIVE,
	LE_CMD_REVOKE_LEASE,
	LE_CMD_LEASE_TTL,
	LE_CMD_LEASE_HOLDS, /* LEASE_TTL; the environment adds a page of the lease's entries to the reply */
	LE_CMD_FORCE_ROLE,  /* end all waits, leases, holders and closed names of a role */
	LE_CMD_ADVANCE,     /* raise the next revision to at least the given one */
	LE_CMD_UNDO,        /* a (sub)transaction rolled back: undo its acquires */
	LE_CMD_SESSION_END,
	LE_CMD_FENCE_ENDED /* a fence may have ended: end the lapsed holders that are no longer fenced */
} LeCommandType;

/*
 * One command.  Fields that a command does not use are zero.
 *
 * The value of session is never reused. sessno is a small number (0 <= sessno < max_sessions) that only
 * one session uses at a time.  If a new session gets the sessno of an earlier one, the SESSION_END of
 * the earlier session precedes the first command of the new one.
 */
typedef struct LeCommand
{
	LeCommandType type;
	LeKind kind; /* lock or election */
	LeText name;
	const LeText *names;   /* several distinct names, used instead of name by ACQUIRE and AWAIT of all names
							* together, and by commands with "each" */
	uint32_t nnames;       /* length of names; 0 = the command uses name */
	bool each;             /* apply ACQUIRE without wait, RELEASE or CHECK to each of several names
							* separately, see le_core_apply_each() */
	const int64_t *tokens; /* with "each": the token of each name (ACQUIRE: the value of reenter); NULL = all
							* are 0 */
	LeMode mode;
	int32_t permits;  /* number of permits, for LE_MODE_PERMIT and SET_PERMITS */
	LeTime ttl;       /* LE_TTL_BOUND, or > 0; RENEW: 0 = keep the TTL */
	LeTime wait;      /* ACQUIRE, AWAIT: maximum time to wait; 0 = do not wait; or LE_WAIT_FOREVER */
	bool enqueue;     /* ACQUIRE: enter the queue as a place, and reply at once */
	bool tells_lease; /* with enqueue: announce the grant only on the channel of the lease */
	bool all_holds;   /* RELEASE: release all holds */
	bool later;       /* RELEASE: the row may be written in a later batch if the reply sets may_return */
	uint32_t holds;   /* RELEASE: number of holds to release; 0 = one */
	int64_t from;     /* FORCE, EVICT, FORCE_ROLE, SET_PERMITS, REVOKE_LEASE, LEASE_HOLDS: where to continue:
					   * LeReply.next of the previous step; 0 = at the beginning */
	LeTime hold_for;  /* RELEASE: how long the name stays closed, counted from the acquisition; 0 = do not
					   * close it */
	int64_t token;    /* token of the entry; RELEASE, CHECK: 0 = the session's newest holder */
	int64_t revision; /* ACQUIRE: the revision that this waiter had before a reload; 0 = a new request.
					   * ADVANCE: the minimum for the next revision */
	LeTime since;     /* ACQUIRE with revision: time at which the request entered the queue; 0 = now */
	int64_t before;   /* CHECK with token 0: return the session's newest holder with a token below this one; 0
					   * = any token */
	int64_t reenter;  /* ACQUIRE: token of the holder to re-enter, which this session acquired; 0 = none.  If
					   * that holder is gone, a request for one name does not wait */
	int64_t lease;    /* named lease; 0 = the entry gets a lease of its own.  RELEASE: the releasing client's
					   * lease, which gets no news of this release; 0 = none */
	LeText owner;     /* named owner; data NULL = this connection is the owner */
	LeText value;     /* ACQUIRE of an election, PROCLAIM: the value.  SET_PERMITS, FORCE, EVICT: the roles
					   * (uint32_t each) that the caller may manage */
	LeText acquirer;  /* ACQUIRE: a description of the connection, only for views */
	uint32_t role;
	bool any_role; /* FORCE, EVICT, SET_PERMITS: the caller may manage the holders of all roles */
	uint64_t session;
	uint32_t sessno;
	uint32_t xact;    /* transaction number within the session */
	uint32_t subxact; /* number of the acquire within the transaction, from 1; 0 = it cannot be undone.  UNDO:
					   * the first acquire to undo */
	uint32_t request; /* number that the session gave to this request */
} LeCommand;

/* Return the number of names of a command, and its i-th name. */
static inline uint32_t
le_command_names(const LeCommand *cmd)
{
	return cmd->nnames > 0 ? cmd->nnames : 1;
}

static inline LeText
le_command_name(const LeCommand *cmd, uint32_t i)
{
	assert(i < le_command_names(cmd));
	return cmd->nnames > 0 ? cmd->names[i] : cmd->name;
}

/* Returns a copy of the command for only one of its names, with the token of that name. */
static inline LeCommand
le_command_for(const LeCommand *cmd, uint32_t i)
{
	LeCommand one = *cmd;

	assert(i < cmd->nnames);
	one.name = cmd->names[i];
	one.names = NULL;
	one.nnames = 0;
	one.each = false;
	one.tokens = NULL;
	if (cmd->tokens != NULL && cmd->type == LE_CMD_ACQUIRE)
		one.reenter = cmd->tokens[i];
	else if (cmd->tokens != NULL)
		one.token = cmd->tokens[i];
	return one;
}

typedef struct LeReply
{
	LeStatus status;
	int64_t token;      /* token of the granted or queued entry; LE_HELD_BOUND: token of the bound holder */
	int64_t lease;      /* GRANT_LEASE: id of the new lease */
	int64_t revision;   /* ADVANCE: the next revision */
	LeTime valid_for;   /* time left; LE_NEVER = bound.  RENEW, KEEP_ALIVE: time that would be left if the
						 * server crashed after lsn is flushed */
	LeTime valid_least; /* RENEW, KEEP_ALIVE: time that would be left if the server crashed before lsn is
						 * flushed */
	LeTime valid_lease; /* KEEP_ALIVE: valid_for of the lease itself, ignoring its evicted holders */
	bool raised;        /* RENEW, KEEP_ALIVE: valid_least is less than valid_for */
	uint32_t position;  /* ACQUIRE with LE_QUEUED: position in the queue, from 1; for several names, the
						 * highest position */
	uint32_t holds;     /* CHECK: number of holds of the entry */
	int32_t ended;      /* FORCE, FORCE_ROLE, EVICT: number of entries, leases and names ended or evicted */
	bool reopened;      /* FORCE, FORCE_ROLE: a name was closed and is open now */
	int64_t next;       /* FORCE, EVICT, FORCE_ROLE, SET_PERMITS, REVOKE_LEASE, LEASE_HOLDS, UNDO,
						 * SESSION_END: value of "from" with which the command must be repeated, because work
						 * is left; 0 = done */
	uint8_t ending;     /* LOST, NOT_HELD, NO_LEASE: how the token or lease ended (LeEnd); LE_END_NONE = not
						 * known, or it belongs to another role */
	LeTime ending_ago;
	int32_t permits;   /* SET_PERMITS: previous number of permits.  LE_BAD_PERMITS: number of permits of the
						* lock */
	uint32_t which;    /* several names: index of the name that the error, or own_session, refers to */
	bool own_session;  /* ACQUIRE, AWAIT: not granted, and the requesting session itself has a slot of the
					    * lock.  CHECK: this session holds the lock without a named owner */
	bool reentrant;    /* the request became one more hold of a lock already held */
	bool shared_owner; /* the request became one more hold of a named owner's lock that another connection
					    * acquired */
	bool waited;       /* set by the manager: the reply was sent with a later batch */
	bool counted;      /* the request added an uncommitted hold, which UNDO removes; the row records the hold
					    * for a reload */
	bool bound;        /* all entries of the reply end with the connection, and therefore with the server, so
						* that nothing has to be durable */
	uint64_t lsn;      /* LSN of the newest earlier write that the reply depends on; 0 = none */
	bool wrote;        /* the reply depends on writes of this batch */
	uint32_t epoch;    /* grant: index of the name's epoch, see core/epoch.h */
	uint32_t epoch_is; /* grant: value of the name's epoch; 0 = not known */
	bool may_return; /* RELEASE, REVOKE_LEASE: the end need not be durable.  If a crash undoes it, the entries
					  * are held again for their TTL, which is at most LE_SAVE_INTERVAL */

	/*
	 * The request whose wait for a place this AWAIT has replaced; that request gets the reply
	 * LE_QUEUED. session 0 = none.
	 */
	uint64_t displaced_session;
	uint32_t displaced_sessno;
	uint32_t displaced_request;
} LeReply;

#endif /* LE_COMMAND_H */
