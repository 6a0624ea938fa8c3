/*
 * backend/durability.c
 *		A session waits until an answer is as durable as synchronous_commit
 *		asks for.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"

#include "backend/durability.h"
#include "backend/session.h"
#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/settings.h"
#include "shared/shmem.h"

bool
le_needs_flush(void)
{
	return synchronous_commit > SYNCHRONOUS_COMMIT_OFF || le_min_durability > 0;
}

static int
sync_rep_mode(void)
{
	switch (synchronous_commit)
	{
		case SYNCHRONOUS_COMMIT_REMOTE_WRITE:
			return SYNC_REP_WAIT_WRITE;
		case SYNCHRONOUS_COMMIT_REMOTE_FLUSH:
			return SYNC_REP_WAIT_FLUSH;
		case SYNCHRONOUS_COMMIT_REMOTE_APPLY:
			return SYNC_REP_WAIT_APPLY;
		default:
			return SYNC_REP_NO_WAIT;
	}
}

/*
 * Wait for the synchronous standbys.  PostgreSQL's own wait ends with a
 * warning when it is cancelled, because a commit cannot be taken back; a
 * grant can.
 */
static void
wait_for_standbys(XLogRecPtr lsn)
{
	int mode = sync_rep_mode();
	bool confirmed;

	if (mode == SYNC_REP_NO_WAIT || !SyncRepRequested() || !le_sync_standbys_defined())
		return;
	HOLD_INTERRUPTS();
	SyncRepWaitForLSN(lsn, true);
	RESUME_INTERRUPTS();
	CHECK_FOR_INTERRUPTS();

	LWLockAcquire(SyncRepLock, LW_SHARED);
	confirmed = lsn <= WalSndCtl->lsn[mode] || !le_sync_standbys_defined();
	LWLockRelease(SyncRepLock);
	if (!confirmed)
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("canceling wait for the replication of %s",
						le_my_slot->command.kind == LE_KIND_ELECTION ? "an election" : "a lock"),
				 le_my_slot->command.type == LE_CMD_ACQUIRE
					 ? errdetail("It was granted locally, and may not be replicated; it is given back.")
					 : errdetail("The request has taken effect locally, and may not be replicated.")));
}

bool
le_durable_in_time(const LeReply *reply)
{
	LeTime answered_at = le_my_slot->reply_at;

	if (reply->lsn == 0 || !le_needs_flush())
		return true;
	LE_FAULT("durable-before");
	XLogFlush((XLogRecPtr) reply->lsn);
	wait_for_standbys((XLogRecPtr) reply->lsn);
	LE_FAULT("durable-after");
	return reply->valid_for == LE_NEVER || reply->valid_for <= 0 ||
		   le_clock() - answered_at < reply->valid_for;
}

void
le_wait_durable(const LeReply *reply, const char *what, LeText name)
{
	if (!le_durable_in_time(reply))
		ereport(ERROR, (errcode(MAKE_SQLSTATE('L', 'E', '0', '0', '1')),
						errmsg("%s \"%.*s\" was lost while its durability was waited for", what,
							   (int) name.len, name.data)));
}
