/*
 * core/command.h
 *		The input and output of the core: commands and replies.
 *
 * Sessions fill commands and read replies; they need nothing else of the core.
 */
#ifndef LE_COMMAND_H
#define LE_COMMAND_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LE_MAX_NAME  255       /* bytes of a lock or election name */
#define LE_MAX_OWNER 255       /* bytes of an owner */
#define LE_MAX_VALUE 4096      /* bytes of a candidate */
#define LE_MAX_NAMES 1000      /* names in one command */
#define LE_MAX_HOLDS INT32_MAX /* holds of one holder: the column of its row is an int4 */
#define LE_FEW       16        /* number of entries that can be ended at once, without a step of their own */

#define LE_MAX_ACQUIRER 127 /* bytes of the text about an acquirer */

#define LE_MS     INT64_C(1000)
#define LE_SECOND INT64_C(1000000)
#define LE_NEVER  INT64_MAX

/* The TTL of an entry that lives as long as its connection. */
#define LE_TTL_BOUND INT64_C(-1)
/* The wait of a request that waits without limit. */
#define LE_WAIT_FOREVER INT64_C(-1)

/*
 * If a lease is longer than this, and was not renewed for as long, its time left is saved, so
 * that restarts cannot keep a dead lease alive.  The next renewal is written before its reply is
 * given.
 */
#define LE_SAVE_INTERVAL (300 * LE_SECOND)

/* Revision = incarnation << LE_COUNTER_BITS | counter; stays below 2^53. */
#define LE_COUNTER_BITS    28
#define LE_COUNTER_MAX     ((INT64_C(1) << LE_COUNTER_BITS) - 1)
#define LE_INCARNATION_MAX ((INT64_C(1) << (53 - LE_COUNTER_BITS)) - 1)
/* The highest argument of advance_revision(); it leaves 2^20 incarnations. */
#define LE_ADVANCE_MAX ((LE_INCARNATION_MAX + 1 - (INT64_C(1) << 20)) << LE_COUNTER_BITS)

/*
 * Microseconds: a moment on the monotonic clock of the environment, or a duration
 * (ttl, wait, hold_for, ..).  The core has no other unit; wall times of rows are
 * int64_t, in microseconds too (core/load.h).
 */
typedef int64_t LeTime;

typedef struct LeText
{
	const char *data; /* NULL = absent */
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
	LE_END_EVICTED, /* evicted, and its client was given the time that it had been told */
	LE_END_UNDONE,  /* its (sub)transaction rolled back */
	LE_END_SESSION, /* its connection ended */
	LE_END_TIMEOUT, /* its wait ran out */
	LE_END_REPLACED /* became one more hold of a holder of the same owner */
} LeEnd;

/* Changes of an election. */
typedef enum LeHow
{
	LE_HOW_ELECTED = 1,
	LE_HOW_PROCLAIMED, /* the leader's value was replaced */
	LE_HOW_RESIGNED,   /* this and the following: the term has ended */
	LE_HOW_EXPIRED,
	LE_HOW_REVOKED,
	LE_HOW_FORCED,
	LE_HOW_UNDONE,       /* its transaction rolled back */
	LE_HOW_DISCONNECTED, /* its connection ended */
	LE_HOW_EVICTED
} LeHow;

typedef enum LeStatus
{
	LE_OK = 0,        /* done; granted; true */
	LE_WAITING,       /* the reply comes with a later batch */
	LE_NOT_GRANTED,   /* not within the wait: SQL NULL */
	LE_NOT_HELD,      /* no such holder or queue place: SQL false */
	LE_LOST,          /* ended while the caller waited for it: LE001 */
	LE_QUEUED,        /* a queue place that is not granted yet */
	LE_DENIED,        /* belongs to another role: 42501 */
	LE_BAD_MODE,      /* one name used in two ways: 22023 */
	LE_BAD_PERMITS,   /* the name is in use with another number of permits: 22023 */
	LE_BAD_UPGRADE,   /* a shared holder asks for exclusive: 22023 */
	LE_BAD_GROUP,     /* the same owner holds some of the names already,
								 * with another token: 22023 */
	LE_BAD_TTL,       /* bound and unbound mixed, or a lease's own
								 * TTL given: 22023 */
	LE_NO_LEASE,      /* the named lease is gone: LE001 */
	LE_LIMIT_LOCKS,   /* max_locks_per_role: 53400 */
	LE_LIMIT_LEASES,  /* max_leases_per_role: 53400 */
	LE_LIMIT_BYTES,   /* max_memory_per_role: 53400 */
	LE_LIMIT_WAITERS, /* max_waiters_per_lock: 53400 */
	LE_LIMIT_HOLDS,   /* LE_MAX_HOLDS: 53400 */
	LE_HELD_BOUND,    /* EVICT: a holder has no deadline: 55000 */

	/* of the environment */
	LE_LIMIT_MEMORY, /* max_memory: 53400 */
	LE_LIMIT_HISTORY /* max_history_per_role: 53400 */
} LeStatus;

typedef enum LeCommandType
{
	LE_CMD_ACQUIRE = 1, /* also permits and campaigns */
	LE_CMD_AWAIT,       /* wait for a queue place to be granted */
	LE_CMD_RENEW,
	LE_CMD_RELEASE,  /* also resign, and leaving the queue */
	LE_CMD_CHECK,    /* is this token a holder, or queued?  Token 0 = the session's own; role 0 = of any
					  * role */
	LE_CMD_FORCE,    /* end all holders of a name, and open it */
	LE_CMD_EVICT,    /* evict all holders of a name: they are not renewed any more */
	LE_CMD_PROCLAIM, /* change a holder's value */
	LE_CMD_SET_PERMITS,
	LE_CMD_GRANT_LEASE,
	LE_CMD_KEEP_ALIVE,
	LE_CMD_REVOKE_LEASE,
	LE_CMD_LEASE_TTL,
	LE_CMD_LEASE_HOLDS, /* LEASE_TTL, to which the environment adds a page of the lease's entries */
	LE_CMD_FORCE_ROLE,  /* end everything that a role has */
	LE_CMD_ADVANCE,     /* raise the next revision to at least this one */
	LE_CMD_UNDO,        /* a (sub)transaction rolled back */
	LE_CMD_SESSION_END,
	LE_CMD_FENCE_ENDED /* a fence may have ended: end lapsed holders without one */
} LeCommandType;

/*
 * One command.  Fields that a command does not use are zero.
 *
 * The values of session are never reused. sessno is a dense number of the session (0 <= sessno <
 * max_sessions), used by one session at a time: SESSION_END for the old one comes before the
 * first command of the next.
 */
typedef struct LeCommand
{
	LeCommandType type;
	LeKind kind; /* lock or election */
	LeText name;
	const LeText *names;   /* several distinct names instead of name: ACQUIRE and AWAIT of all together, or
						    * "each" */
	uint32_t nnames;       /* 0 = name alone */
	bool each;             /* ACQUIRE without wait, RELEASE and CHECK of several names, each on its own:
						    * see le_core_apply_each() */
	const int64_t *tokens; /* "each": the token of each name, for ACQUIRE its reenter; NULL = all 0 */
	LeMode mode;
	int32_t permits;  /* for LE_MODE_PERMIT and SET_PERMITS */
	LeTime ttl;       /* LE_TTL_BOUND, or > 0; RENEW: 0 = unchanged */
	LeTime wait;      /* ACQUIRE, AWAIT: 0 = do not wait; LE_WAIT_FOREVER */
	bool enqueue;     /* ACQUIRE: take a place in the queue, reply at once */
	bool tells_lease; /* ... whose grant is announced only on the channel of its lease */
	bool all_holds;   /* RELEASE */
	bool later;       /* RELEASE: where the reply sets may_return, its row need not be written with this
					   * batch */
	uint32_t holds;   /* RELEASE: number of holds to give back; 0 = one */
	int64_t from;     /* FORCE, EVICT, FORCE_ROLE, SET_PERMITS, REVOKE_LEASE, LEASE_HOLDS: continue here,
					   * from LeReply.next; 0 = begin */
	LeTime hold_for;  /* RELEASE: the name stays closed this long, counted from acquisition; 0 = not at all */
	int64_t token;    /* RELEASE, CHECK: 0 = the session's own */
	int64_t revision; /* ACQUIRE: 0, or the revision of a waiter from before a reload.  ADVANCE: the next
					   * revision */
	LeTime since;     /* ACQUIRE with revision: when it entered the queue; 0 = now */
	int64_t before;   /* CHECK with token 0: the session's newest holder before this token; 0 = its newest */
	int64_t reenter;  /* ACQUIRE: 0, or the token of the session's own holder to re-enter; of one name, it
					   * does not wait without that holder */
	int64_t lease;    /* 0 = a lease of its own.  RELEASE: the lease of the client that releases, which
					   * gets no news of it; 0 = none */
	LeText owner;     /* data NULL = this connection */
	LeText value;     /* ACQUIRE of an election, PROCLAIM: the value.  SET_PERMITS, FORCE, EVICT: the roles
					   * (uint32_t each) that the caller has the right for */
	LeText acquirer;  /* ACQUIRE: a description of the connection, for views; it decides nothing */
	uint32_t role;
	bool any_role; /* FORCE, EVICT, SET_PERMITS: the caller has the right for holders of all roles */
	uint64_t session;
	uint32_t sessno;
	uint32_t xact;    /* transaction number within the session */
	uint32_t subxact; /* number of the acquire within the transaction, from 1; 0 = it cannot be undone.
					   * UNDO: the first to undo */
	uint32_t request; /* the requester's number for this request */
} LeCommand;

/* The number of names of a command, and each of them. */
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

/* Returns the same command for one of its several names, with the token of that name. */
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
	int64_t token;      /* of the granted or queued entry; LE_HELD_BOUND: of that holder */
	int64_t lease;      /* GRANT_LEASE: its id */
	int64_t revision;   /* ADVANCE: the next revision */
	LeTime valid_for;   /* time left; LE_NEVER when bound.  RENEW, KEEP_ALIVE: time left after a crash of
						 * the server, once lsn is flushed */
	LeTime valid_least; /* RENEW, KEEP_ALIVE: the same before lsn is flushed */
	LeTime valid_lease; /* of a named lease: valid_for, regardless of its evicted holders */
	bool raised;        /* valid_least is less than valid_for */
	uint32_t position;  /* ACQUIRE, LE_QUEUED: position in the queue, from 1; of several names the highest */
	uint32_t holds;     /* CHECK: number of holds of the entry */
	int32_t ended;      /* FORCE, FORCE_ROLE, EVICT: how many were ended or evicted */
	bool reopened;      /* FORCE, FORCE_ROLE: a name was closed */
	int64_t next;       /* FORCE, EVICT, FORCE_ROLE, SET_PERMITS, REVOKE_LEASE, LEASE_HOLDS, UNDO,
						 * SESSION_END: repeat the command with this "from", there is more to do; 0 = done */
	uint8_t ending;     /* LOST, NOT_HELD, NO_LEASE: how it ended (LeEnd); LE_END_NONE = not known, or of
						 * another role */
	LeTime ending_ago;
	int32_t permits;   /* SET_PERMITS, LE_BAD_PERMITS: the number in use before */
	uint32_t which;    /* several names: index of the one that the error, or own_session, refers to */
	bool own_session;  /* WAITING: this very session has a slot of the lock; CHECK: this session holds it
					    * without a named owner */
	bool reentrant;    /* one more hold of a lock already held */
	bool shared_owner; /* one more hold by a named owner, of a lock that another connection acquired */
	bool waited;       /* set by the manager: the reply came with a later batch */
	bool counted;      /* the request added an uncommitted hold: UNDO removes it, and the row records it
					    * for a reload */
	bool bound;        /* everything it tells of ends with the connection, and so with the server: nothing
					    * has to be durable */
	uint64_t lsn;      /* newest earlier write that the reply depends on; 0 = none */
	bool wrote;        /* the reply depends on writes of this batch */
	uint32_t epoch;    /* grant: the index of its epoch, see core/epoch.h */
	uint32_t epoch_is; /* grant: the value of that epoch; 0 = not known */
	bool may_return;   /* RELEASE, REVOKE_LEASE: nothing depends on the end.  If a crash brings the entries
					    * back, they are held for their TTL once more: LE_SAVE_INTERVAL at most */

	/*
	 * AWAIT has taken over the wait for a place from this request, whose reply is LE_QUEUED;
	 * session 0 = from none
	 */
	uint64_t displaced_session;
	uint32_t displaced_sessno;
	uint32_t displaced_request;
} LeReply;

#endif /* LE_COMMAND_H */
