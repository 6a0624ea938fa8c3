/*
 * manager/take.c
 *		Takes mail and requests from the mailboxes of a batch, in the order of service, and applies them to
 *		the core.
 *
 * The order of a batch:
 *
 *	1.	After the core was loaded: requests that waited before the load, in the order of their revisions.
 *	2.	Requests that keep a lease alive.  They come first, because other requests can end places and holders
 *		on a lease whose deadline has passed: for example, a release ends a waiter on such a lease instead of
 *		granting it the lock.  All other deadlines are handled in step 6, so other renewals need not come
 *		first.
 *	3.	Asynchronous releases of all mailboxes.  Their calls have returned already, so every request that was
 *		posted later must find them applied.
 *	4.	Ends of calls that wait for many names.  Otherwise other releases would first grant entries that are
 *		about to end, which is much more work.
 *	5.	All other mailboxes: first those that an earlier batch has deferred, in the order of their turns, then
 *		the others, in the order in which they rang.  If that order is unknown (after a failure, and when the
 *		manager exits), mailboxes with mail come before the others.
 *	6.	Expiry.
 *
 * Within one mailbox, except in step 2, mail comes before the request, in this order: a rollback, the
 * releases of a commit, the end of the session, the end of a fence.  This order does not decide which waiter
 * is granted a lock: the core grants in the order of revisions.
 *
 * Steps 1 to 5 are the functions of this file; batch.c calls them, and the core for step 6.  A failed batch
 * is replayed mailbox by mailbox, each in this order, see replay.c.
 *
 * Heavy work takes turns.  It is deferred once the batch is full.  If only a part of a mailbox's mail was
 * applied, its next turn is after those of the mailboxes that have not been started.  After a batch with
 * heavy work, the manager backs off from heavy work for a while, so that light requests are served in
 * between.
 */
#include "postgres.h"

#include "access/xact.h"

#include "manager/answer.h"
#include "manager/apply.h"
#include "manager/fillpage.h"
#include "manager/memory.h"
#include "manager/outage.h"
#include "manager/state.h"
#include "manager/sync.h"
#include "manager/take.h"
#include "manager/txn.h"
#include "shared/compat.h"
#include "shared/names.h"
#include "shared/releases.h"
#include "shared/settings.h"
#include "shared/sleep.h"

/* Work of filling a page, in the unit of LeLimits.work: a page costs as much as ending this many entries. */
#define WORK_OF_PAGE 50

/* Number of names whose lookup costs as much as ending one entry. */
#define NAMES_OF_WORK 20

/* --- taking --- */

/*
 * Makes sure that the batch may write for this mailbox, which may have rung after le_take_may_write() was
 * called.  Returns false if another session has locked the tables; the mailbox then waits for the next batch.
 */
static bool
may_take(Batch *batch, LeMailbox *box)
{
	if (batch->locked || batch->looks_only || le_txn_lock_tables(batch))
		return true;
	le_ring(box);
	return false;
}

static Mail *
new_mail(Batch *batch, const Mail *mail)
{
	Assert(batch->nmails < 2 * le_shared->max_sessions);
	batch->mails[batch->nmails] = *mail;
	return &batch->mails[batch->nmails++];
}

/*
 * Applies the releases of a mailbox, except those that earlier batches have applied.  Records in the Mail how
 * far they are applied, and whether COMMIT must wait for an LSN.
 */
static void
apply_releases(Mail *mail, LeTime now)
{
	LeMailbox *box = mailbox_of(mail->proc);
	const LeReleases *releases = &box->releases;
	LeCommand cmd = {.type = LE_CMD_RELEASE, .session = box->session, .sessno = mail->proc};
	uint32 at = releases->done;
	dsm_segment *segment;
	const char *items;

	pg_read_barrier();
	cmd.xact = releases->xact;

	/*
	 * if a COMMIT waits for the releases, do not postpone their writes, because COMMIT must get an error if
	 * the writes fail
	 */
	cmd.later = mail->async && !releases->durable_release && !le_waits_for_standby(releases->need_standby);
	items = le_releases_open(releases, &segment);
	if (items == NULL)
	{
		/* the segment is pinned; if it is gone nevertheless, a retry would not help */
		elog(LOG, "the releases of a commit are gone");
		at = releases->len;
	}

	/*
	 * Nothing here may raise an error, because the segment must be detached.  Releases without a segment are
	 * all applied in one batch, even if the batch is full.
	 */
	while (at < releases->len && (segment == NULL || !le_core_is_full(le_mgr.core)))
	{
		const LeReleaseItem *item = (const LeReleaseItem *) (items + at);
		LeReply reply;

		Assert(item->token > 0 && item->name_len <= LE_MAX_NAME && item->holds > 0);
		cmd.kind = (LeKind) item->kind;
		cmd.name = (LeText){(const char *) (item + 1), item->name_len};
		cmd.token = item->token;
		cmd.lease = item->lease;
		cmd.role = item->role;
		cmd.hold_for = item->hold_for_us;
		cmd.holds = item->holds;
		le_core_apply(le_mgr.core, &cmd, now, &reply);
		mail->released |= reply.status == LE_OK && reply.wrote && !reply.bound &&
						  !le_answer_may_return(&reply, releases->durable_release, releases->need_standby);
		at += le_release_size(item->name_len);
	}
	if (segment != NULL)
		dsm_detach(segment);
	mail->released_to = at;
	Assert(at >= releases->done && at <= releases->len);
	Assert(at == releases->len || le_core_is_full(le_mgr.core));
	if (releases->done == 0)
		pg_atomic_fetch_add_u64(&le_mgr.db->counters.requests[LE_CMD_RELEASE], 1);
}

/* Whether the mail of a mailbox was applied completely. */
typedef enum MailEnd
{
	MAIL_DONE,
	MAIL_CUT /* the rest must wait, because the batch is full */
} MailEnd;

/*
 * Applies a mailbox's mail in the order in which it was posted.  If the batch becomes full, the rest stays in
 * the mailbox for a later batch, and is removed from this Mail.
 */
static MailEnd
apply_mail(Mail *mail, LeMailbox *box, LeTime now)
{
	LeCommand cmd = {.session = box->session, .sessno = mail->proc};
	LeReply reply = {0};

	Assert(mail->undo != 0 || mail->flags != 0);

	/* apply a rollback */
	if (mail->undo != 0)
	{
		cmd.type = LE_CMD_UNDO;
		cmd.xact = (uint32) (mail->undo >> 32);
		cmd.subxact = (uint32) mail->undo;
		le_core_apply(le_mgr.core, &cmd, now, &reply);
		if (reply.next != 0)
		{
			mail->undo = 0;
			mail->flags &= ~(LE_MAIL_RELEASED | LE_MAIL_SESSION_END);
			return MAIL_CUT;
		}
	}

	/* apply the releases of a commit */
	if (mail->flags & LE_MAIL_RELEASED)
	{
		apply_releases(mail, now);
		if (mail->released_to < box->releases.len)
		{
			mail->flags &= ~LE_MAIL_SESSION_END;
			return MAIL_CUT;
		}
	}

	/* apply the end of the session */
	if (mail->flags & LE_MAIL_SESSION_END)
	{
		cmd.type = LE_CMD_SESSION_END;
		le_core_apply(le_mgr.core, &cmd, now, &reply);
		if (reply.next != 0)
		{
			mail->flags &= ~LE_MAIL_SESSION_END;
			return MAIL_CUT;
		}
	}
	return MAIL_DONE;
}

/* Applies the asynchronous release of a mailbox.  Returns whether there was one. */
static bool
take_async_release(Batch *batch, uint32 proc)
{
	if (!le_mailbox_has_async(proc) || !may_take(batch, mailbox_of(proc)))
		return false;
	apply_releases(new_mail(batch, &(Mail){.proc = proc, .flags = LE_MAIL_RELEASED, .async = true}),
				   batch->now);
	return true;
}

/* Takes and applies a mailbox's mail, except the flags in "ignored". */
static MailEnd
take_mail(Batch *batch, uint32 proc, uint32 ignored)
{
	LeMailbox *box = mailbox_of(proc);
	uint32 flags;
	uint64 undo = pg_atomic_read_u64(&box->undo);
	LeCommand fence_ended = {.type = LE_CMD_FENCE_ENDED, .session = box->session, .sessno = proc};
	LeReply reply;
	MailEnd end;

	if (((pg_atomic_read_u32(&box->mail) & ~ignored) == 0 && undo == 0) || !may_take(batch, box))
		return MAIL_DONE;

	/* clear this flag before the batch is done, because another fence may end meanwhile */
	flags = pg_atomic_fetch_and_u32(&box->mail, ~LE_MAIL_FENCE_ENDED) & ~ignored;
	end = apply_mail(new_mail(batch, &(Mail){.proc = proc, .flags = flags, .undo = undo}), box, batch->now);
	Assert(end == MAIL_DONE || le_core_is_full(le_mgr.core));
	Assert(end == MAIL_DONE || (batch->mails[batch->nmails - 1].flags & LE_MAIL_SESSION_END) == 0);
	if (flags & LE_MAIL_FENCE_ENDED)
		le_core_apply(le_mgr.core, &fence_ended, batch->now, &reply);
	return end;
}

/*
 * Reads the command of a mailbox, and points its texts at the payload.  A request that waited before the core
 * was loaded gets its old revision and the rest of its wait.  Returns false if the names no longer exist,
 * because the caller has stopped waiting.
 */
static bool
read_command(LeMailbox *box, LeTime now, LeCommand *cmd)
{
	*cmd = box->command;

	/* pointers of another process would be invalid here */
	Assert(cmd->name.data == NULL && cmd->owner.data == NULL && cmd->value.data == NULL &&
		   cmd->acquirer.data == NULL && cmd->names == NULL && cmd->tokens == NULL);
	cmd->later = !box->durable_release && !le_waits_for_standby(box->need_standby);
	cmd->name = le_mailbox_text(box, box->name);
	cmd->owner = le_mailbox_text(box, box->owner);
	cmd->value = le_mailbox_text(box, box->value);
	cmd->acquirer = le_mailbox_text(box, box->acquirer);
	if (box->revision != 0)
	{
		LeTime waited = le_clock() - box->posted_at;

		cmd->revision = box->revision;
		cmd->since = now - waited;
		if (cmd->wait > 0)
			cmd->wait = Max(1, cmd->wait - waited);
	}
	return cmd->nnames == 0 || le_names_get(box, cmd);
}

/*
 * Begins a new transaction and locks the tables again, after the batch's transaction was aborted before its
 * first write.  If the tables cannot be locked, fails the batch.
 */
static void
relock(Batch *batch)
{
	bool locked = batch->locked;

	batch->begun = batch->locked = false;
	if (locked && !le_txn_lock_tables(batch))
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						errmsg("the tables of extension lock_election are locked by another session")));
}

/*
 * Reads the command of a mailbox.  If that fails, replies to the request and returns false.  An error affects
 * only this request: nothing of it is applied yet, so the batch continues.  This matters after a load, when
 * the batch of one mailbox also reads the waiting requests of others.
 */
static bool
take_command(Batch *batch, uint32 proc, LeCommand *cmd)
{
	volatile bool taken = false;

	Assert(IsTransactionState() == batch->begun);
	PG_TRY();
	{
		taken = read_command(mailbox_of(proc), batch->now, cmd);
		if (!taken)
			le_answer_withdrawn(proc);
	}
	PG_CATCH();
	{
		ErrorData *error = le_txn_failed(true);

		le_answer_error(proc, error->sqlerrcode, error->message);
		relock(batch);
	}
	PG_END_TRY();
	return taken;
}

/*
 * Applies a command to each of several names.  The results are stored before the batch commits, because
 * nothing may fail after that.  An error here fails the batch.
 */
static void
apply_each(LeMailbox *box, const LeCommand *cmd, LeTime now, LeReply *all)
{
	LeReply *replies = palloc_array(LeReply, cmd->nnames);
	LeEachAnswer *answers = palloc0_array(LeEachAnswer, cmd->nnames);

	le_core_apply_each(le_mgr.core, cmd, now, replies, all);
	if (all->status != LE_OK)
		return;
	for (uint32 i = 0; i < cmd->nnames; i++)
		answers[i] = (LeEachAnswer){.token = replies[i].token,
									.position = replies[i].position,
									.holds = replies[i].holds,
									.status = (uint8) replies[i].status,
									.own_session = replies[i].own_session,
									.reentrant = replies[i].reentrant,
									.shared_owner = replies[i].shared_owner};
	le_body_answer(box, answers, cmd->nnames * sizeof(LeEachAnswer));
}

/*
 * Applies the command of a mailbox.  If nothing has to be written for it, replies immediately; otherwise the
 * reply is given with the batch or, if the request waits, with a later batch.  Once memory is reserved, the
 * core cannot fail, and never applies half of a command.  apply_each() may fail; then the batch fails.
 */
static void
apply_command(Batch *batch, uint32 proc, LeMailbox *box)
{
	LeCommand cmd;
	LeReply reply;
	bool confirm;

	Assert(batch->nfresh > 0 && batch->fresh[batch->nfresh - 1] == proc);

	/* read and reserve: these steps may fail */
	if (!take_command(batch, proc, &cmd))
		return;
	reply = (LeReply){.status = le_memory_reserve(&cmd)};
	if (reply.status != LE_OK)
	{
		le_answer_request(proc, cmd.request, &reply, batch->began_at);
		return;
	}

	/* apply */
	if (box->type == LE_REQUEST_LEADER)
		le_page_find_leader(le_mgr.core, &cmd);
	if (cmd.each)
		apply_each(box, &cmd, batch->now, &reply);
	else
		le_apply_one(batch, &cmd, &reply);
	le_core_worked(le_mgr.core, cmd.nnames / NAMES_OF_WORK); /* counts even if nothing is granted or ended */
	if (box->type == LE_REQUEST_LEADER && reply.status == LE_OK)
		le_page_put_leader(le_mgr.core, &cmd, box, batch->now);
	else if (box->type == LE_REQUEST_LEADER)
	{
		/* a reply that there is no leader depends on the newest change, which this batch may have made */
		reply.lsn = le_mgr.changes_lsn;
		reply.wrote = le_next_change(le_mgr.core, NULL) != NULL;
	}
	if (cmd.type == LE_CMD_LEASE_HOLDS && reply.status == LE_OK)
	{
		le_page_put_holds(le_mgr.core, &cmd, box, batch->now, &reply);
		le_core_worked(le_mgr.core, WORK_OF_PAGE);
	}
	if (reply.displaced_session != 0)
		le_answer_displaced(batch, &reply);

	/* in an outage, the row on which the reply depends cannot be written, so leave the request for later */
	if (batch->looks_only && reply.wrote)
	{
		le_mgr.taken[proc] = pg_atomic_read_u32(&box->answered);
		return;
	}

	/*
	 * WAITING: the mailbox keeps the revision.  If the session waits for a lock that it holds itself, it is
	 * notified.  It is not notified if it waits for a permit, because another holder may return a permit
	 * first.
	 */
	if (reply.status == LE_WAITING)
	{
		Assert(cmd.wait != 0 && cmd.request == le_mgr.taken[proc]);
		Assert(reply.token != 0 && (box->revision == 0 || box->revision == reply.token));
		box->revision = reply.token;
		if (reply.own_session && cmd.mode != LE_MODE_PERMIT)
		{
			box->reply.which = reply.which;
			pg_write_barrier();
			pg_atomic_write_u32(&box->note, LE_NOTE_OWN_SESSION);
			le_wake((int) proc);
		}
		return;
	}

	/* Reply.  A bound entry does not survive a restart of the server, so its reply waits for no flush. */
	confirm = le_answer_needs_standby(box, &reply);
	reply.may_return = le_answer_may_return(&reply, box->durable_release, box->need_standby);
	if (reply.bound || reply.may_return)
		reply.lsn = 0;
	if (reply.wrote || confirm)
		le_answer_at_commit(batch, proc, cmd.request, &reply, confirm);
	else
		le_answer_request(proc, cmd.request, &reply, batch->began_at);
}

/*
 * Counts a request by its command.  A request that is taken again after a load is not counted again.  Pages
 * are not counted.
 */
static void
count_request(const LeMailbox *box)
{
	if (box->revision != 0 || box->type == LE_REQUEST_PAGE || box->type == LE_REQUEST_CHANGES)
		return;
	Assert(box->command.type > 0 && box->command.type <= LE_CMD_FENCE_ENDED);
	pg_atomic_fetch_add_u64(&le_mgr.db->counters.requests[box->command.type], 1);
}

void
le_take_request(Batch *batch, uint32 proc)
{
	LeMailbox *box = mailbox_of(proc);
	uint32 number = pg_atomic_read_u32(&box->posted);
	LeReply reply = {0};

	if (number == pg_atomic_read_u32(&box->answered) || number == le_mgr.taken[proc])
		return;
	pg_read_barrier();

	/*
	 * A request that was posted after the stack was taken must wait for the next batch: an asynchronous
	 * release that returned before the request was posted may be on the next stack.
	 */
	if (box->posted_at > batch->rung_until)
	{
		le_ring(box);
		return;
	}
	Assert(core_is_loaded());
	if (!le_request_looks(box) && !may_take(batch, box))
		return;
	le_mgr.taken[proc] = number;
	Assert(batch->nfresh < le_shared->max_sessions);
	batch->fresh[batch->nfresh++] = proc;
	if (mail_ends_wait(box))
	{
		le_answer_withdrawn(proc);
		return;
	}
	count_request(box);
	switch (box->type)
	{
		case LE_REQUEST_COMMAND:
		case LE_REQUEST_LEADER:
			apply_command(batch, proc, box);
			break;
		case LE_REQUEST_CHANGES:
			reply.lsn = le_mgr.changes_lsn;
			le_answer_request(proc, number, &reply, batch->began_at);
			break;
		case LE_REQUEST_PAGE:
			le_page_fill(le_mgr.core, box, batch->now);
			le_core_worked(le_mgr.core, WORK_OF_PAGE);
			le_answer_request(proc, number, &reply, batch->began_at);
			break;
		case LE_REQUEST_SYNC:
			le_sync_take(batch, proc);
			break;
	}
}

/* --- taking, in the order described at the top --- */

static int
compare_revision(const void *a, const void *b)
{
	int64 ra = mailbox_of(*(const uint32 *) a)->revision, rb = mailbox_of(*(const uint32 *) b)->revision;

	return (ra > rb) - (ra < rb);
}

void
le_take_waiting(Batch *batch)
{
	uint32 *procs = palloc_array(uint32, le_shared->max_sessions);
	int n = 0, all = le_mailboxes_with_work(procs);
	int64 before PG_USED_FOR_ASSERTS_ONLY = 0;

	Assert(le_mgr.core_state == CORE_LOADED && batch->nmails == 0 && batch->nfresh == 0);
	for (int i = 0; i < all; i++)
	{
		if (mailbox_of(procs[i])->revision != 0)
			procs[n++] = procs[i];
	}
	qsort(procs, n, sizeof(uint32), compare_revision);
	for (int i = 0; i < n; i++)
	{
		int64 revision PG_USED_FOR_ASSERTS_ONLY = mailbox_of(procs[i])->revision;

		/* the requests are taken in the order of revisions, in which the core enqueues them */
		Assert(before < revision && revision < le_core_next_revision(le_mgr.core));
		before = revision;
		le_mgr.taken[procs[i]] = pg_atomic_read_u32(&mailbox_of(procs[i])->answered);
		le_take_request(batch, procs[i]);

		/*
		 * remove the request from "fresh", so that it keeps its revision if a later request fails the batch
		 */
		Assert(batch->nfresh == 1 && batch->nmails == 0);
		batch->nfresh = 0;
	}
	le_core_load_done(le_mgr.core, batch->now);
	set_core_state(CORE_SERVING);
}

static bool
keeps_lease_alive(LeMailbox *box)
{
	if (!is_unanswered(box))
		return false;
	pg_read_barrier();
	return (box->type == LE_REQUEST_COMMAND || box->type == LE_REQUEST_SYNC) &&
		   box->command.type == LE_CMD_KEEP_ALIVE;
}

/* Appends the mailboxes of a list to those of the batch, unless they are in the batch already. */
static void
append(Batch *batch, const uint32 *procs, int n)
{
	bool *listed = palloc0_array(bool, le_shared->max_sessions);

	for (int i = 0; i < batch->n; i++)
		listed[batch->procs[i]] = true;
	for (int i = 0; i < n; i++)
	{
		if (!listed[procs[i]])
			batch->procs[batch->n++] = procs[i];
	}
	Assert(batch->n <= le_shared->max_sessions);
}

void
le_take_rung(Batch *batch)
{
	uint32 *rung = palloc_array(uint32, le_shared->max_sessions);
	int nrung;

	Assert(batch->horizon != 0);
	batch->rung_until = le_clock();
	nrung = le_take_stack(le_mgr.db, rung);
	append(batch, rung, nrung);
}

void
le_take_deferred(Batch *batch)
{
	uint32 *others;
	int nothers = batch->n;

	if (le_mgr.ndeferred == 0 || le_take_is_backing_off())
		return;
	others = palloc_array(uint32, nothers);
	memcpy(others, batch->procs, nothers * sizeof(uint32));
	memcpy(batch->procs, le_mgr.deferred, le_mgr.ndeferred * sizeof(uint32));
	batch->n = le_mgr.ndeferred;
	le_mgr.ndeferred = 0;
	append(batch, others, nothers);
	Assert(batch->n >= nothers);
}

/* --- light and heavy work --- */

/* Amount of work in the mail and the request of a mailbox. */
typedef enum Work
{
	WORK_LIGHT,
	WORK_HEAVY, /* deferred while the batch is full or the manager backs off */
	WORK_STEP,  /* a small step of a heavy request, whose session posts the next step; served during a
				 * back-off, too */
	WORK_CANCEL /* the end of a call that waits for many names: heavy, but served first */
} Work;

/* Classifies mail that ends a session or a transaction. */
static Work
work_of_end(const LeMailbox *box, uint32 proc)
{
	const LeEntry *waiting;

	if (!le_core_end_is_heavy(le_mgr.core, box->session, proc))
		return WORK_LIGHT;
	waiting = le_core_waiting_on(le_mgr.core, box->session, proc);
	return waiting != NULL && waiting->grouped ? WORK_CANCEL : WORK_HEAVY;
}

/*
 * Classifies a step of a heavy request; its session posts the next step after the reply.  If the mailbox also
 * has mail, the work is heavy.
 */
static Work
work_of_step(uint32 mail)
{
	return mail == 0 ? WORK_STEP : WORK_HEAVY;
}

/* Classifies a command. mail: the mail flags of its mailbox. */
static Work
work_of_command(const LeCommand *cmd, uint32 mail)
{
	switch (cmd->type)
	{
		/* each step ends or evicts some of the holders that an administrator has selected */
		case LE_CMD_FORCE:
		case LE_CMD_EVICT:
		case LE_CMD_FORCE_ROLE:
			return work_of_step(mail);

		/* one page of a lease */
		case LE_CMD_LEASE_HOLDS:
			return cmd->from != 0 ? work_of_step(mail) : WORK_LIGHT;
		case LE_CMD_REVOKE_LEASE:
		case LE_CMD_SET_PERMITS:
			return WORK_HEAVY;

		/*
		 * an AWAIT is light with any number of names: if it were deferred, the place that it keeps alive
		 * could expire
		 */
		case LE_CMD_AWAIT:
			return WORK_LIGHT;
		default:
			return cmd->nnames > LE_FEW ? WORK_HEAVY : WORK_LIGHT;
	}
}

/* Classifies the mail and the request of a mailbox before any of it is applied. */
static Work
work_of(uint32 proc)
{
	LeMailbox *box = mailbox_of(proc);
	uint32 mail = pg_atomic_read_u32(&box->mail);
	bool ends = mail_ends_wait(box);

	if (ends)
	{
		Work work = work_of_end(box, proc);

		if (work != WORK_LIGHT)
			return work;
	}
	if ((mail & LE_MAIL_RELEASED) != 0 && box->releases.segment != DSM_HANDLE_INVALID)
		return WORK_HEAVY;
	if (ends || !is_unanswered(box))
		return WORK_LIGHT;
	pg_read_barrier();

	if (box->type == LE_REQUEST_PAGE)
		return work_of_step(mail);
	if (box->type == LE_REQUEST_SYNC)
		return box->sync_items > LE_FEW ? WORK_HEAVY : WORK_LIGHT;
	return box->type == LE_REQUEST_COMMAND ? work_of_command(&box->command, mail) : WORK_LIGHT;
}

/* --- heavy work takes turns, and the manager backs off after it --- */

bool
le_take_is_backing_off(void)
{
	return le_clock() < le_mgr.backoff_until;
}

/*
 * Backs off after a batch with heavy work, but only if there was light work since the last such batch began.
 * Otherwise no session would benefit.
 */
void
le_take_back_off(const Batch *batch)
{
	LeTime now = le_clock();

	if (!batch->heavy || batch->backing_off)
		return;
	Assert(batch->began_at <= now && le_mgr.heavy_began_at <= batch->began_at);
	if (le_mgr.light_seen_at >= le_mgr.heavy_began_at)
		le_mgr.backoff_until = now + Min(BACKOFF_TIMES * (now - batch->began_at), BACKOFF_AT_MOST);
	le_mgr.heavy_began_at = batch->began_at;
}

/* Appends a mailbox to the deferred ones.  health() then shows its request as deferred, not as overlooked. */
static void
defer(uint32 proc)
{
	pg_atomic_write_u32(&mailbox_of(proc)->deferred, pg_atomic_read_u32(&mailbox_of(proc)->posted));
	for (int i = 0; i < le_mgr.ndeferred; i++)
	{
		if (le_mgr.deferred[i] == proc)
			return;
	}
	Assert(le_mgr.ndeferred < le_shared->max_sessions);
	le_mgr.deferred[le_mgr.ndeferred++] = proc;
}

/* A mailbox in a batch: the kind of its work, and how much of it is done. */
typedef struct Turn
{
	uint32 proc;
	Work work;
	bool async; /* the mailbox had an asynchronous release, which is applied already */
	bool cut;   /* only part of its mail is applied, because the batch is full */
} Turn;

/* Serves a mailbox, or defers it if its work is heavy and the batch has no room for it. */
static void
take_turn(Batch *batch, Turn *turn)
{
	bool heavy = turn->work != WORK_LIGHT;

	Assert(!batch->async_only && !turn->cut);
	if (heavy && (le_core_is_full(le_mgr.core) || (batch->backing_off && turn->work != WORK_STEP)))
	{
		if (turn->work == WORK_STEP)
			le_ring(mailbox_of(turn->proc)); /* not deferred, but served by the next batch */
		else
			defer(turn->proc);
		return;
	}
	if (heavy)
		batch->heavy = true;
	else
		le_mgr.light_seen_at = batch->began_at;
	turn->cut = take_mail(batch, turn->proc, turn->async ? LE_MAIL_RELEASED : 0) == MAIL_CUT;
	if (!turn->cut)
		le_take_request(batch, turn->proc);
}

void
le_take(Batch *batch)
{
	Turn *turns = palloc0_array(Turn, batch->n);
	int n = batch->async_only ? 0 : batch->n;

	Assert(le_mgr.core_state == CORE_SERVING);

	/* step 2: take the requests that keep a lease alive */
	for (int i = 0; i < n; i++)
	{
		LeMailbox *box = mailbox_of(batch->procs[i]);

		if (!keeps_lease_alive(box))
			continue;
		if (box->type == LE_REQUEST_SYNC)
			le_sync_renew(batch, batch->procs[i]);
		else
			le_take_request(batch, batch->procs[i]);
	}

	/* step 3: apply asynchronous releases, which may change the amount of the remaining work */
	for (int i = 0; i < batch->n; i++)
	{
		turns[i].proc = batch->procs[i];
		turns[i].async = take_async_release(batch, batch->procs[i]);
	}
	for (int i = 0; i < n; i++)
		turns[i].work = work_of(turns[i].proc);

	/* step 4: end calls that wait for many names; step 5: serve everything else */
	for (int i = 0; i < n; i++)
	{
		if (turns[i].work == WORK_CANCEL)
			take_turn(batch, &turns[i]);
	}
	for (int i = 0; i < n; i++)
	{
		if (turns[i].work != WORK_CANCEL)
			take_turn(batch, &turns[i]);
	}

	/* defer mailboxes whose mail is only partly applied, behind those that have not been started */
	for (int i = 0; i < n; i++)
	{
		if (turns[i].cut)
			defer(turns[i].proc);
	}
}
