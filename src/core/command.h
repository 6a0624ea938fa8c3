/*
 * core/command.h
 *		What goes into the core and comes out of it: commands and replies.
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
#define LE_MAX_HOLDS INT32_MAX /* of one holder: its row has no room for more */
#define LE_FEW       16        /* entries that can be ended at once, without a step of their own */

#define LE_MAX_ACQUIRER 127 /* bytes of what is kept of an acquirer */

#define LE_MS     INT64_C(1000)
#define LE_SECOND INT64_C(1000000)
#define LE_NEVER  INT64_MAX

/* The TTL of an entry that lives as long as its connection. */
#define LE_TTL_BOUND INT64_C(-1)
/* The wait of a request that waits without limit. */
#define LE_WAIT_FOREVER INT64_C(-1)

/*
 * A lease that is longer than this, and has not been renewed for as long, has its
 * time left saved, so that restarts cannot keep a dead lease alive.  The renewal
 * after that is written before it is answered.
 */
#define LE_SAVE_INTERVAL (300 * LE_SECOND)

/* Revision = incarnation << LE_COUNTER_BITS | counter; stays below 2^53. */
#define LE_COUNTER_BITS    28
#define LE_COUNTER_MAX     ((INT64_C(1) << LE_COUNTER_BITS) - 1)
#define LE_INCARNATION_MAX ((INT64_C(1) << (53 - LE_COUNTER_BITS)) - 1)
/* The highest argument of advance_revision(); leaves 2^20 incarnations. */
#define LE_ADVANCE_MAX ((LE_INCARNATION_MAX + 1 - (INT64_C(1) << 20)) << LE_COUNTER_BITS)

/*
 * Microseconds: a moment on the monotonic clock of the environment, or a duration
 * (ttl, wait, hold_for, ..).  The core has no other unit; wall times of rows are
 * int64_t, in microseconds too (core/load.h).
 */
typedef int64_t LeTime;

typedef struct LeText
{
	const char *data; /* NULL: absent */
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
	LE_END_EVICTED, /* ... and its client was given the time that it had been told */
	LE_END_UNDONE,  /* its (sub)transaction rolled back */
	LE_END_SESSION, /* its connection ended */
	LE_END_TIMEOUT, /* its wait ran out */
	LE_END_REPLACED /* granted as one more hold of the same owner */
} LeEnd;

/* Changes of an election. */
typedef enum LeHow
{
	LE_HOW_ELECTED = 1,
	LE_HOW_PROCLAIMED, /* the leader's value is another one */
	LE_HOW_RESIGNED,   /* from here on: the term has ended */
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
	LE_WAITING,       /* the answer comes with a later batch */
	LE_NOT_GRANTED,   /* not within the wait: SQL NULL */
	LE_NOT_HELD,      /* no such holder or queue place: SQL false */
	LE_LOST,          /* was there and ended while it waited: LE001 */
	LE_QUEUED,        /* a queue place that is not granted yet */
	LE_DENIED,        /* another role's: 42501 */
	LE_BAD_MODE,      /* one name used in two ways: 22023 */
	LE_BAD_PERMITS,   /* another number of permits in use: 22023 */
	LE_BAD_UPGRADE,   /* shared holder asks for exclusive: 22023 */
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
	LE_CMD_CHECK,    /* is this token a holder, or queued?  Token 0:
								 * the session's own; role 0: anybody's */
	LE_CMD_FORCE,    /* end all holders of a name, and open it */
	LE_CMD_EVICT,    /* all holders of a name are renewed no more */
	LE_CMD_PROCLAIM, /* change a holder's value */
	LE_CMD_SET_PERMITS,
	LE_CMD_GRANT_LEASE,
	LE_CMD_KEEP_ALIVE,
	LE_CMD_REVOKE_LEASE,
	LE_CMD_LEASE_TTL,
	LE_CMD_LEASE_HOLDS, /* the same; the environment adds a page of what hangs on the lease */
	LE_CMD_FORCE_ROLE,  /* end all that a role has */
	LE_CMD_ADVANCE,     /* the next revision is to be this one at least */
	LE_CMD_UNDO,        /* a (sub)transaction rolled back */
	LE_CMD_SESSION_END,
	LE_CMD_FENCE_ENDED /* a fence may have ended: ask again */
} LeCommandType;

/*
 * One command.  Fields that a command does not use are zero.
 *
 * session is never reused; sessno is its dense number (0 <= sessno <
 * max_sessions), used by one session at a time: SESSION_END for the old one
 * comes before the first command of the next.
 */
typedef struct LeCommand
{
	LeCommandType type;
	LeKind kind; /* lock or election */
	LeText name;
	const LeText *names;   /* several, each once, instead of name: ACQUIRE and AWAIT of all
							* together; or "each" */
	uint32_t nnames;       /* 0: name alone */
	bool each;             /* ACQUIRE with no wait, RELEASE and CHECK of several, each for
							* itself: see le_core_apply_each() */
	const int64_t *tokens; /* each: token of each name, or what ACQUIRE has in reenter;
								 * NULL: 0 for all */
	LeMode mode;
	int32_t permits;  /* for LE_MODE_PERMIT and SET_PERMITS */
	LeTime ttl;       /* LE_TTL_BOUND, or > 0; RENEW: 0 keeps it */
	LeTime wait;      /* 0: do not wait; LE_WAIT_FOREVER; ACQUIRE and
								 * AWAIT */
	bool enqueue;     /* ACQUIRE: enter the queue, answer at once */
	bool tells_lease; /* ... and its grant is announced on the channel of its lease alone */
	bool all_holds;   /* RELEASE */
	bool later;       /* RELEASE: what may return need not be written with this batch */
	uint32_t holds;   /* RELEASE: so many of them; 0: one */
	int64_t from;     /* FORCE, EVICT, FORCE_ROLE, SET_PERMITS, REVOKE_LEASE, LEASE_HOLDS: go on from
								 * here, as the reply before has said; 0: begin */
	LeTime hold_for;  /* RELEASE: 0 or > 0, counted from acquisition */
	int64_t token;    /* 0: RELEASE of the session's own */
	int64_t revision; /* ACQUIRE: 0, or the one that a waiter had
								 * before a reload.  ADVANCE: the next */
	LeTime since;     /* ACQUIRE with revision: when it entered the queue;
								 * 0: now */
	int64_t before;   /* CHECK with token 0: of the session's own the
								 * newest before this one; 0: of all */
	int64_t reenter;  /* ACQUIRE: 0, or the session's own holder that
								 * it is one more hold of; of one name, it does
								 * not wait for that one */
	int64_t lease;    /* 0: a lease of its own.  RELEASE: that of the client which releases, and need
								 * not be told of that; 0: it has none */
	LeText owner;     /* data NULL: this connection */
	LeText value;     /* ACQUIRE of an election, PROCLAIM.  SET_PERMITS, EVICT: the roles
								 * (uint32_t each) that the caller has the right for */
	LeText acquirer;  /* ACQUIRE: the connection that asks, for people who look; it decides nothing */
	uint32_t role;
	bool any_role; /* FORCE, EVICT, SET_PERMITS: the caller has the right, whoever holds it */
	uint64_t session;
	uint32_t sessno;
	uint32_t xact;    /* transaction number within the session */
	uint32_t subxact; /* number of the acquire within the transaction, from 1; 0: it cannot be undone.
								 * UNDO: the first that is void */
	uint32_t request; /* the requester's number for this request */
} LeCommand;

/* The names of a command, one or several: how many, and each. */
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

/* The same command for one of its several names, with that one's token. */
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
	int64_t token;      /* granted or queued; LE_HELD_BOUND: of that holder */
	int64_t lease;      /* GRANT_LEASE: its id */
	int64_t revision;   /* ADVANCE: the next */
	LeTime valid_for;   /* time left; LE_NEVER when bound.  RENEW, KEEP_ALIVE: what a crash
								 * of the server would leave, once lsn is flushed */
	LeTime valid_least; /* RENEW, KEEP_ALIVE: the same before that */
	LeTime valid_lease; /* of a named lease: valid_for, but for the evicted holders on it */
	bool raised;        /* these two differ */
	uint32_t position;  /* ACQUIRE, LE_QUEUED: in the queue, from 1; of
								 * several names the one farthest back */
	uint32_t holds;     /* CHECK: of the entry */
	int32_t ended;      /* FORCE, FORCE_ROLE, EVICT: how many */
	bool reopened;      /* FORCE: the name was closed */
	int64_t next;       /* FORCE, EVICT, FORCE_ROLE, SET_PERMITS, REVOKE_LEASE, LEASE_HOLDS,
								 * UNDO, SESSION_END: there is more to do: the
								 * same command again, from here; 0: done */
	uint8_t ending;     /* LOST, NOT_HELD, NO_LEASE: how it ended (LeEnd); LE_END_NONE:
								 * that is not known, or not for this role */
	LeTime ending_ago;
	int32_t permits;   /* SET_PERMITS, LE_BAD_PERMITS: that were in use */
	uint32_t which;    /* several names: index of the one that the error,
								 * or own_session, refers to */
	bool own_session;  /* WAITING: behind a holder of this very session;
								 * CHECK: held by it without a named owner */
	bool reentrant;    /* one more hold of a lock already held */
	bool shared_owner; /* one more hold by this named owner, of what another
								 * connection acquired */
	bool waited;       /* set by the manager: came with a later batch */
	bool counted;      /* the grant added an uncommitted hold: UNDO removes
								 * it, and its row tells a reload of it */
	bool bound;        /* it tells only of what ends with the connection, and
								 * so with the server: nothing has to last */
	uint64_t lsn;      /* newest write that the answer rests on; 0: the
								 * batch itself or none */
	bool wrote;        /* the answer rests on this batch's writes */
	uint32_t epoch;    /* a grant's: which one, see core/epoch.h, and what */
	uint32_t epoch_is; /* it is; 0: that is not known */
	bool may_return;   /* RELEASE, REVOKE_LEASE: nothing rests on it.  If a crash
								 * brings back what it has ended, that is held for its
								 * TTL once more: LE_SAVE_INTERVAL at most */

	/* AWAIT has taken the place's wait over from this request, whose answer
	 * is LE_QUEUED; session 0: from nobody */
	uint64_t displaced_session;
	uint32_t displaced_sessno;
	uint32_t displaced_request;
} LeReply;

#endif /* LE_COMMAND_H */
