/*
 * sql/sql_lock.c
 *		Implements the SQL functions for locks, and parts of those for permits and elections, see
 *		sql/sql_calls.c.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "backend/durability.h"
#include "backend/session_acquirer.h"
#include "backend/session_fence.h"
#include "backend/granted.h"
#include "backend/pending.h"
#include "backend/session_page.h"
#include "backend/session_request.h"
#include "backend/session_mailbox.h"
#include "backend/snapshot.h"
#include "backend/statement.h"
#include "backend/xactstate.h"
#include "shared/compat.h"
#include "shared/fence_lock.h"
#include "shared/page_format.h"
#include "shared/settings.h"
#include "shared/shmem.h"
#include "shared/words.h"
#include "sql/sql_args.h"
#include "sql/sql.h"

LE_FUNCTION(le_release_lock);
LE_FUNCTION(le_force_release_role);
LE_FUNCTION(le_advance_revision);

/* --- errors --- */

/* Raises LE001, because a token or a wait has ended. */
static void
raise_lost(const LeCommand *cmd, const LeReply *reply)
{
	if (cmd->type == LE_CMD_ACQUIRE)
		ereport(ERROR, (errcode(ERRCODE_LE_LOST),
						errmsg("the wait for %s was ended", le_named(cmd->kind, cmd->name)),
						errdetail_internal("%s", le_lost_wait_detail(reply))));
	Assert(cmd->type == LE_CMD_AWAIT);
	le_raise_lost_token(cmd, reply);
}

/* Raises LE001, because the lease does not exist.  detail: says how the lease ended; NULL = unknown. */
static void
raise_no_lease(int64 lease, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_LE_LOST), errmsg("lease " INT64_FORMAT " does not exist, or has ended", lease),
			 detail != NULL ? errdetail_internal("%s", detail) : 0));
}

void
le_raise_other_lease(int64 lease)
{
	ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					errmsg("lease " INT64_FORMAT " belongs to another role", lease)));
}

/* Raises 42501, because the caller does not have the role that acquired the lock. */
static void
raise_other_role(const LeCommand *cmd)
{
	bool election = cmd->kind == LE_KIND_ELECTION;

	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("%s is held by another role", le_named(cmd->kind, cmd->name)),
			 errhint("%s belongs to the role that acquired it: SET ROLE to that role, or use %s().",
					 election ? "An election" : "A lock", election ? "force_resign" : "force_release_lock")));
}

/* A search for a holder by its token. */
typedef struct Sought
{
	int64 token;
	int pid; /* process of the connection that acquired the lock; 0 = unknown */
} Sought;

static void
note_pid(void *arg, const LePageItem *item)
{
	Sought *sought = arg;
	LeAcquirerParts acquirer;

	if (item->position != 0 || item->token != sought->token)
		return;
	le_acquirer_parse(le_page_texts(item).acquirer, &acquirer);
	sought->pid = acquirer.pid;
}

/*
 * Raises 55000, because a holder has no deadline and so cannot be evicted.  None of the holders was evicted.
 */
static void
raise_bound(const LeCommand *cmd, const LeReply *reply)
{
	Sought sought = {.token = reply->token};

	le_page_each(cmd->kind, cmd->name, note_pid, &sought);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("%s cannot be evicted: it is bound to a connection", le_named(cmd->kind, cmd->name)),
			 errdetail("%s " INT64_FORMAT " has no ttl, so it never expires.",
					   cmd->kind == LE_KIND_ELECTION ? "Term" : "Token", reply->token),
			 sought.pid != 0
				 ? errhint("pg_terminate_backend(%d) ends the connection, and the hold with it.", sought.pid)
				 : errhint("It ends with its connection.")));
}

/* Raises 22023, because the request does not fit the current use of the name. */
static void
raise_bad_use(const LeCommand *cmd, const LeReply *reply)
{
	int len = (int) cmd->name.len;

	switch (reply->status)
	{
		case LE_BAD_MODE:
			ereport(
				ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%.*s\" is in use in another way", len, cmd->name.data),
				 errdetail(
					 "A name can be used for a lock or for permits, but not for both at the same time.")));
			break;
		case LE_BAD_PERMITS:
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("\"%.*s\" is in use with %d permits, not %d", len, cmd->name.data,
								   reply->permits, cmd->permits),
							errhint("All users of a name must pass the same number; set_permits() changes it "
									"while the name is in use.")));
			break;
		case LE_BAD_UPGRADE:
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("lock \"%.*s\" is held in mode shared by the same owner, which now "
								   "requests mode exclusive",
								   len, cmd->name.data),
							errhint("Release it first, or acquire it in mode exclusive from the start.")));
			break;
		case LE_BAD_GROUP:
			ereport(
				ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lock \"%.*s\" is already held by the same owner", len, cmd->name.data),
				 errdetail(
					 "Locks that are acquired together share one token, and this lock already has another."),
				 errhint("Release it first, or acquire all of them together from the start.")));
			break;
		case LE_BAD_TTL:
			ereport(
				ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s has another kind of lease", le_named(cmd->kind, cmd->name)),
				 errdetail("It was acquired with a ttl, with a named lease, or with ttl => NULL (for as long "
						   "as its connection lasts), and cannot change that until it is released.")));
			break;
		default:
			elog(ERROR, "unexpected reply %d from the lock_election manager", (int) reply->status);
	}
}

static void
raise_role_limit(const LeCommand *cmd, const char *what, const char *setting, int value)
{
	ereport(ERROR, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					errmsg("role \"%s\" has too many %s in this database",
						   GetUserNameFromId(cmd->role, false), what),
					errhint("See lock_election.%s (%d).", setting, value)));
}

/* Raises 53400, because a limit is reached. */
static void
raise_limit(const LeCommand *cmd, const LeReply *reply)
{
	switch (reply->status)
	{
		case LE_LIMIT_WAITERS:
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("too many requests wait for %s", le_named(cmd->kind, cmd->name)),
					 errhint("See lock_election.max_waiters_per_lock (%d).", le_max_waiters_per_lock)));
			break;
		case LE_LIMIT_HOLDS:
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("%s is already held %d times", le_named(cmd->kind, cmd->name), LE_MAX_HOLDS)));
			break;
		case LE_LIMIT_LOCKS:
			raise_role_limit(cmd, "locks", "max_locks_per_role", le_max_locks_per_role);
			break;
		case LE_LIMIT_LEASES:
			raise_role_limit(cmd, "leases", "max_leases_per_role", le_max_leases_per_role);
			break;
		case LE_LIMIT_BYTES:
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("the locks and leases of role \"%s\" take too much memory in this database",
							GetUserNameFromId(cmd->role, false)),
					 errhint("See lock_election.max_memory_per_role (%d MB).", le_max_memory_per_role_mb)));
			break;
		case LE_LIMIT_MEMORY:
			ereport(ERROR, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
							errmsg("the locks of this database take too much memory"),
							errhint("See lock_election.max_memory (%d MB).", le_max_memory_mb)));
			break;
		case LE_LIMIT_HISTORY:
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("the history of the elections of role \"%s\" is too long in this database",
							GetUserNameFromId(cmd->role, false)),
					 errhint("See lock_election.max_history_per_role (%d MB).", le_max_history_per_role_mb)));
			break;
		default:
			elog(ERROR, "unexpected reply %d from the lock_election manager", (int) reply->status);
	}
}

void
le_check_reply(const LeCommand *cmd, const LeReply *reply)
{
	switch (reply->status)
	{
		/* normal results, which the caller handles */
		case LE_OK:
		case LE_NOT_GRANTED:
		case LE_NOT_HELD:
			return;

		/* the caller lacks the token, lease or right that it needs */
		case LE_LOST:
			raise_lost(cmd, reply);
			return;
		case LE_QUEUED:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("%s " INT64_FORMAT " is still in the queue of \"%.*s\"", le_token_word(cmd->kind),
							cmd->token, (int) cmd->name.len, cmd->name.data),
					 errhint("Each call of %s() renews its place, and returns true once it is granted.",
							 cmd->kind == LE_KIND_ELECTION ? "await_leadership" : "await_lock")));
			return;
		case LE_DENIED:
			if (cmd->type == LE_CMD_ACQUIRE || cmd->type == LE_CMD_LEASE_HOLDS)
				le_raise_other_lease(cmd->lease);
			raise_other_role(cmd);
			return;
		case LE_NO_LEASE:
			raise_no_lease(cmd->lease, le_lost_lease_detail(cmd, reply));
			return;

		case LE_LIMIT_WAITERS:
		case LE_LIMIT_HOLDS:
		case LE_LIMIT_LOCKS:
		case LE_LIMIT_LEASES:
		case LE_LIMIT_BYTES:
		case LE_LIMIT_MEMORY:
		case LE_LIMIT_HISTORY:
			raise_limit(cmd, reply);
			return;
		case LE_HELD_BOUND:
			raise_bound(cmd, reply);
			return;
		default:
			raise_bad_use(cmd, reply);
	}
}

/* --- acquire --- */

void
le_warn_old_snapshot(FunctionCallInfo fcinfo, const LeCommand *cmd, const LeReply *reply)
{
	/* A statement may acquire many locks, but warns only once.  A re-entry is no new grant. */
	if (le_statement_warned || reply->reentrant || !le_snapshot_is_stale(fcinfo, reply->waited))
		return;
	le_statement_warned = true;
	ereport(
		WARNING,
		(errmsg("this %s continues with a snapshot that is older than the grant of %s",
				IsolationUsesXactSnapshot() || le_bound_statement_reads() ? "transaction" : "statement",
				le_named(cmd->kind, cmd->name)),
		 errdetail("It might not see the changes that the previous holder committed."),
		 errhint(
			 "Acquire it in a statement of its own, in READ COMMITTED, or before the transaction begins.")));
}

void
le_notice_shared_owner(const LeCommand *cmd)
{
	ereport(NOTICE,
			(errmsg("%s was acquired by owner \"%.*s\" on another connection, and both calls now hold it",
					le_named(cmd->kind, cmd->name), (int) cmd->owner.len, cmd->owner.data),
			 errhint("An owner is an identity, not a label: use a different one in each worker.")));
}

/*
 * Returns the number of a lease, or 0 if the argument is null.  Raises LE001 if no lease can have this
 * number.
 */
static int64
lease_arg(FunctionCallInfo fcinfo, int number)
{
	if (PG_ARGISNULL(number))
		return 0;

	/* reject 0 as well, because in a command 0 means no lease */
	if (PG_GETARG_INT64(number) <= 0)
		raise_no_lease(PG_GETARG_INT64(number), NULL);
	return PG_GETARG_INT64(number);
}

void
le_arg_names_of(FunctionCallInfo fcinfo, LeAsk ask, LeCommand *cmd)
{
	cmd->kind = ask == LE_ASK_LEADER ? LE_KIND_ELECTION : LE_KIND_LOCK;
	if (ask == LE_ASK_LOCKS)
		le_arg_names(fcinfo, cmd);
	else
		cmd->name = le_arg_name(fcinfo, cmd->kind);
}

void
le_arg_ask(FunctionCallInfo fcinfo, LeAsk ask, LeCommand *cmd)
{
	int n = 1;

	le_arg_names_of(fcinfo, ask, cmd);
	cmd->mode = ask == LE_ASK_PERMIT ? LE_MODE_PERMIT : LE_MODE_EXCLUSIVE;
	if (ask == LE_ASK_PERMIT)
		cmd->permits = le_arg_permits(fcinfo, n++);
	if (ask == LE_ASK_LEADER)
		cmd->value = le_arg_text(fcinfo, n++, "candidate", LE_MAX_VALUE);
	cmd->ttl = le_arg_ttl(fcinfo, n++, LE_TTL_BOUND);
	if (PG_NARGS() == 6)
		cmd->wait = le_arg_wait(fcinfo, n++);
	if ((ask == LE_ASK_LOCK || ask == LE_ASK_LOCKS) &&
		!le_arg_is_first(fcinfo, n++, "mode", "exclusive", "shared"))
		cmd->mode = LE_MODE_SHARED;
	cmd->owner = le_arg_owner(fcinfo, n++);
	cmd->lease = lease_arg(fcinfo, n++);
	Assert(n == PG_NARGS());
}

bool
le_wait_for(FunctionCallInfo fcinfo, LeCommand *cmd, LeReply *reply)
{
	bool gave_up = cmd->wait != 0 && le_snapshot_give_up(fcinfo);

	Assert(cmd->type == LE_CMD_ACQUIRE || cmd->type == LE_CMD_AWAIT);

	le_request(cmd, reply, cmd->wait != 0 && !gave_up);

	/* a place in the queue must be as durable as a grant */
	if (reply->status == LE_OK || reply->status == LE_QUEUED)
		le_wait_durable(reply, le_kind_word(cmd->kind), cmd->name);
	if (gave_up)
		le_snapshot_take();
	if (reply->status != LE_QUEUED)
		le_check_reply(cmd, reply);
	return gave_up;
}

Datum
le_acquire(FunctionCallInfo fcinfo, LeAsk ask)
{
	LeCommand cmd = {.type = LE_CMD_ACQUIRE, .role = GetUserId()};
	LeReply reply;
	bool gave_up;

	le_arg_ask(fcinfo, ask, &cmd);

	/*
	 * 1. If this transaction has a pending release of the lock that this connection holds, this acquire adds
	 * a hold to that entry.  The entry then remains after the release at the commit.  This does not apply to
	 * permits, because each permit is a separate holder.
	 */
	if (cmd.owner.data == NULL && cmd.lease == 0 && cmd.mode != LE_MODE_PERMIT)
		cmd.reenter = le_pending_own(cmd.kind, cmd.name);
	for (uint32 i = 0; i < cmd.nnames && cmd.reenter != 0; i++)
	{
		if (le_pending_own(cmd.kind, cmd.names[i]) != cmd.reenter)
			cmd.reenter = 0;
	}

	/* 2. request the lock, and wait for it */
	gave_up = le_wait_for(fcinfo, &cmd, &reply);
	if (reply.status != LE_OK)
		PG_RETURN_NULL();
	Assert(reply.token > 0);
	if (reply.shared_owner)
		le_notice_shared_owner(&cmd);

	/* 3. on a lease or in an election, a repeated acquire adds no hold: cancel releases that would end it */
	if (cmd.lease != 0 || cmd.kind == LE_KIND_ELECTION)
		le_pending_cancel_all(&cmd, reply.token);

	/* 4. warn about an old snapshot, and record the grant for an asynchronous release */
	if (!gave_up)
		le_warn_old_snapshot(fcinfo, &cmd, &reply);
	le_granted_note(&cmd, &reply);
	PG_RETURN_INT64(reply.token);
}

Datum
le_renew(FunctionCallInfo fcinfo, LeKind kind)
{
	LeCommand cmd = {.type = LE_CMD_RENEW, .kind = kind};
	LeReply reply;

	le_arg_holder(fcinfo, &cmd);
	cmd.ttl = le_arg_ttl(fcinfo, 2, 0);
	cmd.role = GetUserId();
	le_request(&cmd, &reply, false);
	le_check_reply(&cmd, &reply);
	if (reply.status != LE_OK)
		PG_RETURN_NULL();
	le_wait_durable(&reply, le_kind_word(kind), cmd.name);
	return le_interval_datum(reply.valid_for);
}

/* --- release --- */

/*
 * A release may take effect at once if it is the last action of its transaction, and the transaction has
 * written nothing that the lock must protect until the commit.
 */
bool
le_release_is_final(FunctionCallInfo fcinfo)
{
	return !TransactionIdIsValid(GetTopTransactionIdIfAny()) && le_call_is_alone(fcinfo);
}

void
le_wait_durable_fenced(const LeCommand *cmd, LeReply *reply)
{
	reply->valid_for = LE_NEVER;
	le_wait_durable(reply, le_kind_word(cmd->kind), cmd->name);
}

/*
 * Returns the token of a holder or queue place that has a hold without a pending release, or 0 if there is
 * none.  If the command has no token, searches for the newest such holder of this connection.
 */
static int64
find_to_release(LeCommand *cmd)
{
	LeReply reply;

	for (;;)
	{
		le_request(cmd, &reply, false);
		if (reply.status != LE_QUEUED)
			le_check_reply(cmd, &reply);
		if (reply.status != LE_OK && reply.status != LE_QUEUED)
			return 0;
		if (le_pending_count(reply.token, cmd->name) < reply.holds)
			return reply.token;
		if (cmd->token != 0)
			return 0;
		cmd->before = reply.token;
	}
}

/*
 * Releases at the commit.  Finds the holder, takes the fence, and checks that the lock is still held: such a
 * lock keeps its slot until the transaction ends.
 */
static bool
release_at_commit(LeCommand *cmd)
{
	LeReply reply;
	int64 holds = 1;

	cmd->type = LE_CMD_CHECK;
	cmd->token = find_to_release(cmd);
	if (cmd->token == 0)
		return false;
	Assert(cmd->token > 0);
	le_fence_take(cmd->token);
	le_request(cmd, &reply, false);
	if (reply.status != LE_OK && reply.status != LE_QUEUED)
		return false;
	le_wait_durable_fenced(cmd, &reply);

	/* release all current holds, but not holds that are acquired later */
	if (cmd->all_holds)
		holds = Max(1, (int64) reply.holds - le_pending_count(cmd->token, cmd->name));
	le_pending_add(cmd->token, cmd->kind, cmd->name, cmd->hold_for, (uint32) holds, reply.own_session);
	return true;
}

Datum
le_release(FunctionCallInfo fcinfo, LeCommand *cmd)
{
	LeReply reply;

	cmd->role = GetUserId();
	if (!le_release_is_final(fcinfo))
		PG_RETURN_BOOL(release_at_commit(cmd));
	if (le_my_mailbox != NULL && le_pending_is_free() && le_granted_take(cmd))
	{
		le_pending_add_async(cmd->token, cmd->kind, cmd->name, 1, 0);
		PG_RETURN_BOOL(true);
	}
	cmd->type = LE_CMD_RELEASE;
	le_request(cmd, &reply, false);
	le_check_reply(cmd, &reply);
	if (reply.status != LE_OK)
		PG_RETURN_BOOL(false);
	le_wait_durable_fenced(cmd, &reply);
	PG_RETURN_BOOL(true);
}

/*
 * Implements release_lock(name), which releases the lock of this connection, and release_lock(name, token,
 * hold_for, all_holds).
 *
 * The latter releases nothing if the token is NULL: a caller may pass the NULL that try_acquire_lock() has
 * returned, and must not release the lock of another user of a pooled connection.
 */
Datum
le_release_lock(PG_FUNCTION_ARGS)
{
	LeCommand cmd = {.kind = LE_KIND_LOCK};

	cmd.name = le_arg_name(fcinfo, LE_KIND_LOCK);
	if (PG_NARGS() > 1)
	{
		cmd.hold_for = le_arg_hold_for(fcinfo, 2);
		cmd.all_holds = !PG_ARGISNULL(3) && PG_GETARG_BOOL(3);
		if (PG_ARGISNULL(1))
			PG_RETURN_BOOL(false);
		cmd.token = le_arg_token(fcinfo, 1, "token");
	}
	return le_release(fcinfo, &cmd);
}

/* --- checks, and functions for administrators --- */

Datum
le_held(FunctionCallInfo fcinfo, LeKind kind)
{
	LeCommand cmd = {.type = LE_CMD_CHECK, .kind = kind};
	LeReply reply;

	le_arg_holder(fcinfo, &cmd);
	le_request(&cmd, &reply, false);
	if (reply.status == LE_QUEUED)
		PG_RETURN_BOOL(false);
	le_check_reply(&cmd, &reply);
	PG_RETURN_BOOL(reply.status == LE_OK && le_durable_in_time(&reply));
}

#define MAX_FENCED 16 /* maximum number of holders that the notices mention */

typedef struct Holders
{
	bool denied;  /* the caller may not manage some of the holders */
	bool managed; /* the caller may manage some of the holders */
	List *roles;  /* roles of the holders, without duplicates */
	int ntokens;
	int64 tokens[MAX_FENCED];
} Holders;

/* Collects the role of a holder and, if the caller may end the holder, its token. */
static void
collect_holder(void *arg, const LePageItem *item)
{
	Holders *holders = arg;

	if (item->position != 0)
		return;
	holders->roles = list_append_unique_oid(holders->roles, item->role);
	if (item->token != 0 && holders->ntokens < MAX_FENCED &&
		(has_privs_of_role(GetUserId(), item->role) ||
		 has_privs_of_role(GetUserId(), ROLE_PG_SIGNAL_BACKEND)))
		holders->tokens[holders->ntokens++] = item->token;
}

/*
 * Writes the caller's rights on the holders of a name to the command.  For members of pg_signal_backend, sets
 * any_role; otherwise lists the caller's role, and all roles of holders of which the caller is a member.
 */
static void
collect_rights(LeCommand *cmd, Holders *holders)
{
	StringInfoData roles;
	Oid own = GetUserId();
	ListCell *lc;

	cmd->any_role = has_privs_of_role(GetUserId(), ROLE_PG_SIGNAL_BACKEND);
	if (cmd->any_role)
		return;
	le_page_each(cmd->kind, cmd->name, collect_holder, holders);
	initStringInfo(&roles);
	foreach (lc, holders->roles)
	{
		bool may = has_privs_of_role(GetUserId(), lfirst_oid(lc));

		holders->managed |= may;
		holders->denied |= !may;
		if (may)
			appendBinaryStringInfo(&roles, (const char *) &lfirst_oid(lc), sizeof(Oid));
	}
	if (!list_member_oid(holders->roles, own))
		appendBinaryStringInfo(&roles, (const char *) &own, sizeof(Oid));
	if (roles.len > LE_MAX_VALUE)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("\"%.*s\" is held by more than %d roles", (int) cmd->name.len, cmd->name.data,
							   (int) (LE_MAX_VALUE / sizeof(Oid)) - 1)));
	cmd->value = (LeText){roles.data, (uint32_t) roles.len};
}

bool
le_may_manage(LeCommand *cmd)
{
	Holders holders = {0};

	collect_rights(cmd, &holders);
	return !holders.denied;
}

/*
 * Ends or evicts all objects that cmd selects, in steps if there are thousands of holders.  Returns the
 * number of ended or evicted objects.  Sets *reopened if a closed name was opened.
 */
static int64
end_all(LeCommand *cmd, const char *what, LeText name, bool *reopened)
{
	LeReply reply;
	int64 ended = 0;

	Assert(cmd->from == 0);
	do
	{
		le_request(cmd, &reply, false);
		le_check_reply(cmd, &reply);
		le_wait_durable(&reply, what, name);
		ended += reply.ended;
		*reopened |= reply.reopened;
		cmd->from = reply.next;
	} while (reply.next != 0);
	Assert(ended >= 0 && cmd->from == 0);
	return ended;
}

/* Ends the holders of a name that the caller may end.  Returns their number.  *reopened: as in end_all(). */
static int64
force(LeCommand *cmd, bool *reopened)
{
	int64 ended;
	bool opened = false;

	cmd->type = LE_CMD_FORCE;
	ended = end_all(cmd, le_kind_word(cmd->kind), cmd->name, &opened);
	if (ended > 0)
		ereport(LOG, (errmsg("role \"%s\" has ended " INT64_FORMAT " holder(s) of %s in database \"%s\"",
							 GetUserNameFromId(GetUserId(), true), ended, le_named(cmd->kind, cmd->name),
							 get_database_name(MyDatabaseId))));
	if (opened)
	{
		ereport(LOG, (errmsg("role \"%s\" has opened %s again in database \"%s\"",
							 GetUserNameFromId(GetUserId(), true), le_named(cmd->kind, cmd->name),
							 get_database_name(MyDatabaseId))));
		ereport(NOTICE, (errmsg("%s was closed, and is open again", le_named(cmd->kind, cmd->name))));
	}
	*reopened |= opened;
	return ended;
}

/* Reports each transaction whose fence delays the end of a holder, and how to end the transaction. */
static void
report_fenced(const LeCommand *cmd, const Holders *holders)
{
	for (int i = 0; i < holders->ntokens; i++)
	{
		List *pids = le_fence_pids(holders->tokens[i], 0);
		ListCell *lc;

		foreach (lc, pids)
			ereport(NOTICE,
					(errmsg("%s is fenced by the transaction of process %d, and ends with it",
							le_named(cmd->kind, cmd->name), lfirst_int(lc)),
					 errhint("pg_terminate_backend(%d) would end that transaction.", lfirst_int(lc))));
	}
}

Datum
le_force(FunctionCallInfo fcinfo, LeKind kind)
{
	LeCommand cmd = {.kind = kind, .name = le_arg_name(fcinfo, kind), .role = GetUserId()};
	Holders holders = {0};
	int64 ended;
	bool reopened = false;

	/*
	 * Use a single command for all holders.  A second command could end a holder to which the first command
	 * has passed the lock, if both have the same role.  The command includes the caller's role even if that
	 * role holds nothing, because it may have closed the name.
	 */
	collect_rights(&cmd, &holders);
	if (cmd.any_role)
		le_page_each(kind, cmd.name, collect_holder, &holders);
	ended = force(&cmd, &reopened);
	if (ended == 0 && !reopened && holders.denied)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("permission denied to end the holder of %s", le_named(kind, cmd.name)),
						errhint("Only members of the holder's role, or of pg_signal_backend, may do this.")));
	report_fenced(&cmd, &holders);
	PG_RETURN_INT64(ended);
}

/*
 * Implements evict_lock(name) and evict_leader(election), which evict all holders that the caller may evict,
 * or none.
 */
Datum
le_evict(FunctionCallInfo fcinfo, LeKind kind)
{
	LeCommand cmd = {.type = LE_CMD_EVICT, .kind = kind, .name = le_arg_name(fcinfo, kind)};
	Holders holders = {0};
	int64 evicted;
	bool reopened = false;

	collect_rights(&cmd, &holders);
	evicted = end_all(&cmd, le_kind_word(kind), cmd.name, &reopened);
	Assert(!reopened);
	if (evicted == 0 && holders.denied && !holders.managed)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("permission denied to evict the holder of %s", le_named(kind, cmd.name)),
						errhint("Only members of the holder's role, or of pg_signal_backend, may do this.")));
	if (evicted > 0)
		ereport(LOG, (errmsg("role \"%s\" has evicted " INT64_FORMAT " holder(s) of %s in database \"%s\"",
							 GetUserNameFromId(GetUserId(), true), evicted, le_named(kind, cmd.name),
							 get_database_name(MyDatabaseId))));
	PG_RETURN_INT64(evicted);
}

/* Implements force_release_role(role), which also accepts the OID of a dropped role. */
Datum
le_force_release_role(PG_FUNCTION_ARGS)
{
	LeCommand cmd = {.type = LE_CMD_FORCE_ROLE};
	LeText role;
	int64 ended;
	bool reopened = false;

	if (PG_ARGISNULL(0) || !OidIsValid(PG_GETARG_OID(0)))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						PG_ARGISNULL(0) ? errmsg("role must not be null") : errmsg("invalid role: -")));
	cmd.role = PG_GETARG_OID(0);
	if (!has_privs_of_role(GetUserId(), cmd.role) && !has_privs_of_role(GetUserId(), ROLE_PG_SIGNAL_BACKEND))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("permission denied to end the locks and leases of role %s",
							   DatumGetCString(DirectFunctionCall1(regroleout, ObjectIdGetDatum(cmd.role)))),
						errhint("Only members of that role, or of pg_signal_backend, may do this.")));
	role.data = DatumGetCString(DirectFunctionCall1(regroleout, ObjectIdGetDatum(cmd.role)));
	role.len = strlen(role.data);
	ended = end_all(&cmd, "role", role, &reopened);
	if (ended > 0)
		ereport(LOG, (errmsg("role \"%s\" has ended all " INT64_FORMAT
							 " locks, waits, leases and closed names of role %s",
							 GetUserNameFromId(GetUserId(), true), ended, role.data)));
	PG_RETURN_INT64(ended);
}

/* Implements advance_revision(min). */
Datum
le_advance_revision(PG_FUNCTION_ARGS)
{
	LeCommand cmd = {.type = LE_CMD_ADVANCE};
	LeReply reply;

	cmd.revision = le_arg_number(fcinfo, 0, "min", 1, LE_ADVANCE_MAX,
								 psprintf("It is a number from 1 to " INT64_FORMAT ".", LE_ADVANCE_MAX));
	le_request(&cmd, &reply, false);
	(void) le_durable_in_time(&reply);
	PG_RETURN_INT64(reply.revision);
}
