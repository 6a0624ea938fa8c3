/*
 * backend/granted.c
 *		Remembers this session's latest grants, see backend/granted.h.
 */
#include "postgres.h"

#include "backend/durability.h"
#include "backend/granted.h"
#include "backend/pending.h"
#include "backend/session_mailbox.h"
#include "backend/xactstate.h"
#include "shared/shmem.h"

/* Number of grants that are remembered: most sessions hold one lock at a time, and some hold a few. */
#define GRANTS 8

typedef struct Grant
{
	uint64 session; /* session number, as in the mailbox; DISCARD ALL begins a new session */
	int64 token;    /* 0 = none */
	Oid role;
	LeTime ends_at; /* time by le_clock() until which the grant is valid; not after the manager's deadline */
	uint32 epoch, epoch_is; /* index of the name's epoch, and its value at the grant */
	uint16 name_len;
	char name[LE_MAX_NAME];
} Grant;

static Grant grants[GRANTS];
static int newest = 0;

/*
 * Returns whether this is a grant of a single lock with its own lease and a TTL of at most a few minutes.
 * The release of any other lock may have to be durable, or follows other rules.  Checks the TTL, as
 * le_entry_ends_soon() does, although less than the TTL may be left after a wait.
 */
static bool
is_plain(const LeCommand *cmd, const LeReply *reply)
{
	return cmd->kind == LE_KIND_LOCK && cmd->nnames == 0 && cmd->lease == 0 && !cmd->enqueue &&
		   !reply->reentrant && !reply->bound && reply->epoch_is != 0 && cmd->ttl <= LE_SAVE_INTERVAL;
}

void
le_granted_note(const LeCommand *cmd, const LeReply *reply)
{
	Grant *grant;

	Assert(reply->status == LE_OK && reply->token != 0);
	if (!is_plain(cmd, reply))
		return;
	Assert(reply->epoch < LE_EPOCHS && cmd->name.len <= LE_MAX_NAME);
	newest = (newest + 1) % GRANTS;
	grant = &grants[newest];
	grant->session = le_my_mailbox->session;
	grant->token = reply->token;
	grant->role = cmd->role;
	grant->ends_at =
		(reply->waited ? le_my_mailbox->reply_as_of : le_my_mailbox->posted_at) + reply->valid_for;
	Assert(grant->ends_at <= le_clock() + cmd->ttl);
	grant->epoch = reply->epoch;
	grant->epoch_is = reply->epoch_is;
	grant->name_len = (uint16) cmd->name.len;
	memcpy(grant->name, cmd->name.data, cmd->name.len);
}

/*
 * Returns the remembered grant of the token and name that cmd releases.  Returns NULL if there is none, or if
 * cmd has no token.
 */
static Grant *
find(const LeCommand *cmd)
{
	for (int i = 0; i < GRANTS; i++)
	{
		Grant *grant = &grants[i];

		if (grant->token == cmd->token && grant->session == le_my_mailbox->session &&
			grant->name_len == cmd->name.len && memcmp(grant->name, cmd->name.data, cmd->name.len) == 0)
			return grant;
	}
	return NULL;
}

/*
 * Returns whether the grant was still held after the last command that the manager applied.  Returns false if
 * no manager is running, because only a manager raises epochs.
 */
static bool
is_held(const Grant *grant)
{
	LeDatabase *db = le_my_database();

	return pg_atomic_read_u32(&db->running) != 0 &&
		   *(volatile uint32 *) &db->epochs[grant->epoch] == grant->epoch_is && le_clock() < grant->ends_at;
}

bool
le_granted_take(const LeCommand *cmd)
{
	Grant *grant;

	Assert(le_pending_is_free());
	if (cmd->kind != LE_KIND_LOCK || cmd->hold_for != 0 || cmd->all_holds)
		return false;
	grant = find(cmd);
	Assert(cmd->token != 0 || grant == NULL);
	if (grant == NULL || grant->role != cmd->role || le_release_waits())
		return false;

	if (!le_pending_begin_async())
		return false;
	if (is_held(grant))
		return true;
	le_pending_cancel_async();
	return false;
}
