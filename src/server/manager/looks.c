/*
 * manager/looks.c
 *		Serves requests that need not write, even while nothing can be written.
 *
 * A batch in an outage (manager/outage.c) takes only these requests.  Their replies must not depend on
 * anything unwritten, and must not show a lock as held after an asynchronous release has returned, although
 * that release is still unwritten.
 */
#include "postgres.h"

#include "manager/answer.h"
#include "manager/looks.h"
#include "manager/outage.h"
#include "manager/state.h"
#include "manager/take.h"
#include "shared/names.h"
#include "shared/releases.h"
#include "shared/sleep.h"

bool
le_take_may_write(const Batch *batch)
{
	for (int i = 0; i < batch->n; i++)
	{
		LeMailbox *box = mailbox_of(batch->procs[i]);

		if (pg_atomic_read_u32(&box->mail) != 0 || pg_atomic_read_u64(&box->undo) != 0)
			return true;
		if (!is_unanswered(box))
			continue;
		pg_read_barrier();
		if (!le_request_looks(box))
			return true;
	}
	return false;
}

/* Returns whether this mailbox contains an unwritten release of the command's token and name. */
static bool
is_released(const LeMailbox *box, const LeCommand *cmd)
{
	const LeReleases *releases = &box->releases;
	uint32 at = releases->done;
	dsm_segment *segment;
	const char *items = le_releases_open(releases, &segment);
	bool found = false;

	while (items != NULL && at < releases->len && !found)
	{
		const LeReleaseItem *item = (const LeReleaseItem *) (items + at);

		found = item->token == cmd->token && (LeKind) item->kind == cmd->kind &&
				item->name_len == cmd->name.len && memcmp(item + 1, cmd->name.data, cmd->name.len) == 0;
		at += le_release_size(item->name_len);
	}
	if (segment != NULL)
		dsm_detach(segment);
	return found;
}

/*
 * Returns whether any session has asynchronously released the token of the request in this mailbox.  If so,
 * the request must not find the lock held, although the core still has the holder.
 */
static bool
is_released_by_any(const LeMailbox *box)
{
	LeCommand cmd = box->command;

	if (box->type != LE_REQUEST_COMMAND || cmd.token == 0 || cmd.nnames > 0)
		return false;
	cmd.name = le_mailbox_text((LeMailbox *) box, box->name);
	for (int i = 0; i < le_shared->max_sessions; i++)
	{
		if (le_mailbox_has_async((uint32) i) && is_released(mailbox_of(i), &cmd))
			return true;
	}
	return false;
}

/*
 * Returns whether a RENEW or an AWAIT can be served in an outage, because it need not write.  If the request
 * cannot be served, renews the lease of its entry; the request itself waits for the end of the outage, or
 * gets an error.
 */
static bool
only_keeps(LeMailbox *box, LeTime now)
{
	LeCommand cmd = box->command;
	const LeEntry *entry;
	LeReply reply;

	if (box->type != LE_REQUEST_COMMAND || box->revision != 0 || cmd.nnames > 0 ||
		(cmd.type != LE_CMD_RENEW && cmd.type != LE_CMD_AWAIT))
		return false;
	cmd.name = le_mailbox_text(box, box->name);
	entry = le_core_find_entry(le_mgr.core, cmd.kind, cmd.name, cmd.token);
	if (entry == NULL || (cmd.type == LE_CMD_AWAIT && cmd.wait == 0))
		return true;
	if (cmd.type == LE_CMD_RENEW && cmd.ttl == (entry->lease != NULL ? entry->lease->ttl : entry->ttl))
		return true;
	cmd.ttl = 0;
	cmd.wait = 0;
	le_core_apply(le_mgr.core, &cmd, now, &reply);
	(void) le_core_wanted_to_write(le_mgr.core);
	return false;
}

/*
 * Removes the mail of a rollback that has no hold or place to undo, because the undone request got an error
 * or has only waited.  As long as this mail exists, the session can post no request, not even a renewal.
 */
static void
clear_empty_undo(uint32 proc)
{
	LeMailbox *box = mailbox_of(proc);
	uint64 undo = pg_atomic_read_u64(&box->undo);
	LeCommand cmd = {.type = LE_CMD_UNDO,
					 .session = box->session,
					 .sessno = proc,
					 .xact = (uint32) (undo >> 32),
					 .subxact = (uint32) undo};

	if (undo == 0 || le_core_has_to_undo(le_mgr.core, &cmd))
		return;

	/* the rollback also withdraws a request that was not taken or that waits */
	if (is_unanswered(box))
		le_outage_withdraw(proc);

	/* keep an undo that was posted meanwhile */
	if (pg_atomic_compare_exchange_u64(&box->undo, &undo, 0))
		le_wake((int) proc);
}

/*
 * Applies the end of a session if it ends no entries, and if the mailbox has no other mail.  Otherwise no new
 * session could use the mailbox until the outage ends.
 */
static void
take_quiet_end(uint32 proc, LeTime now)
{
	LeMailbox *box = mailbox_of(proc);
	uint32 mail = pg_atomic_read_u32(&box->mail);
	LeCommand cmd = {.type = LE_CMD_SESSION_END, .session = box->session, .sessno = proc};
	LeReply reply;

	if ((mail & ~LE_MAIL_WAITS_LONG) != LE_MAIL_SESSION_END || pg_atomic_read_u64(&box->undo) != 0 ||
		!le_core_end_is_quiet(le_mgr.core, box->session, proc))
		return;
	le_core_apply(le_mgr.core, &cmd, now, &reply);
	if (reply.next != 0)
		return;
	pg_atomic_fetch_and_u32(&box->mail, ~mail);
	le_mailbox_clear(box);
	le_wake((int) proc);
}

void
le_take_looks(Batch *batch)
{
	/* mail */
	for (int i = 0; i < batch->n; i++)
	{
		clear_empty_undo(batch->procs[i]);
		take_quiet_end(batch->procs[i], batch->now);
	}

	/* requests */
	for (int i = 0; i < batch->n; i++)
	{
		uint32 proc = batch->procs[i];
		LeMailbox *box = mailbox_of(proc);
		LeReply gone = {.status = LE_NOT_HELD};
		bool looks;

		le_mgr.looked[proc] = pg_atomic_read_u32(&box->posted);
		pg_read_barrier();
		if (!is_unanswered(box) || mail_ends_wait(box))
			continue;
		pg_read_barrier();
		looks = le_request_looks(box) || only_keeps(box, batch->now);
		if (!looks)
			continue;
		if (box->type == LE_REQUEST_COMMAND && box->command.type == LE_CMD_AWAIT)
			gone.status = LE_LOST;
		if (is_released_by_any(box))
			le_answer_request(proc, pg_atomic_read_u32(&box->posted), &gone, batch->began_at);
		else
			le_take_request(batch, proc);
	}
}
