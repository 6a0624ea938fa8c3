/*
 * manager/take.c
 *		The first half of a batch: what the mailboxes have for the manager is taken,
 *		mail before requests, and applied to the core.
 */
#include "postgres.h"

#include "manager/manager.h"
#include "shared/compat.h"
#include "shared/names.h"
#include "shared/releases.h"

/* To fill a page takes as long as so many entries' ends. */
#define WORK_OF_PAGE 50

/* --- answers --- */

/* Nobody waits for it any more. */
static void
answer_withdrawn(uint32 proc)
{
	LeReply reply = {.status = LE_NOT_GRANTED};

	le_batch_answer(proc, pg_atomic_read_u32(&mailbox_of(proc)->posted), &reply);
}

static void
answer_at_commit(uint32 proc, uint32 number, const LeReply *reply, bool confirm)
{
	CommitAnswer *d = &le_mgr.answers[le_mgr.nanswers++];

	d->proc = proc;
	d->number = number;
	d->reply = *reply;
	d->confirm = confirm;
}

/* A newer AWAIT has taken this wait over.  Answer the older one QUEUED: both rest on the place's row. */
static void
answer_displaced(const LeReply *by)
{
	LeReply reply = {
		.status = LE_QUEUED, .lsn = by->bound ? 0 : by->lsn, .wrote = by->wrote, .bound = by->bound};

	if (mailbox_of(by->displaced_sessno)->session != by->displaced_session)
		return;
	if (reply.wrote)
		answer_at_commit(by->displaced_sessno, by->displaced_request, &reply, false);
	else
		le_batch_answer(by->displaced_sessno, by->displaced_request, &reply);
}

/* --- taking --- */

typedef struct Releasing
{
	LeCommand cmd;
	LeTime now;
	bool durable, standby; /* what its session asks for */
	bool few;
	bool lasts; /* COMMIT has something to wait for */
} Releasing;

/* False: this batch has done enough, and this one is for the next. */
static bool
apply_release(void *arg, const LeReleaseItem *item, LeText name)
{
	Releasing *r = arg;
	LeReply reply;

	r->cmd.kind = (LeKind) item->kind;
	r->cmd.name = name;
	r->cmd.token = item->token;
	r->cmd.role = item->role;
	r->cmd.hold_for = item->hold_for;
	r->cmd.holds = item->holds;
	if (!r->few && le_core_is_full(le_mgr.core))
		return false;
	le_core_apply(le_mgr.core, &r->cmd, r->now, &reply);
	r->lasts |= reply.status == LE_OK && reply.wrote && !reply.bound &&
				!le_batch_may_return(&reply, r->durable, r->standby);
	return true;
}

/*
 * Whether COMMIT has something to wait for is noted in the mail, and how far they
 * are done.
 */
static void
apply_releases(uint32 proc, LeTime now, Mail *mail)
{
	LeMailbox *box = mailbox_of(proc);
	Releasing r = {.now = now};

	pg_read_barrier();
	r.cmd.type = LE_CMD_RELEASE;
	r.cmd.session = box->session;
	r.cmd.sessno = proc;
	r.cmd.xact = box->releases.xact;
	r.durable = box->releases.durable_release;
	r.standby = box->releases.need_standby;
	r.few = box->releases.segment == DSM_HANDLE_INVALID;
	mail->released_to = le_releases_each(&box->releases, apply_release, &r);
	mail->released = r.lasts;
	if (box->releases.done == 0)
		pg_atomic_fetch_add_u64(&le_mgr.db->counters.requests[LE_CMD_RELEASE], 1);
}

/* False: there is more to do than one batch does; the rest stays in the mailbox. */
static bool
apply_mail(Mail *mail, LeMailbox *box, LeTime now)
{
	LeCommand cmd = {.session = box->session, .sessno = mail->proc};
	LeReply reply = {0};

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
			return false;
		}
	}
	if (mail->flags & LE_MAIL_RELEASED)
	{
		apply_releases(mail->proc, now, mail);
		if (mail->released_to < box->releases.len)
		{
			mail->flags &= ~LE_MAIL_SESSION_END;
			return false;
		}
	}
	if (mail->flags & LE_MAIL_SESSION_END)
	{
		cmd.type = LE_CMD_SESSION_END;
		le_core_apply(le_mgr.core, &cmd, now, &reply);
		if (reply.next != 0)
		{
			mail->flags &= ~LE_MAIL_SESSION_END;
			return false;
		}
	}
	return true;
}

/* Returns whether there was one. */
static bool
take_async_release(uint32 proc, LeTime now)
{
	Mail *mail;

	if (!le_take_has_async(proc))
		return false;
	mail = &le_mgr.mails[le_mgr.nmails++];
	*mail = (Mail){.proc = proc, .flags = LE_MAIL_RELEASED, .async = true};
	apply_releases(proc, now, mail);
	return true;
}

/* async: its releases were taken already.  False: as apply_mail(), and the request is for the next batch as well. */
static bool
take_mail(uint32 proc, bool async, LeTime now)
{
	LeMailbox *box = mailbox_of(proc);

	/* that a fence has ended may be told again before the batch is done */
	uint32 flags =
		pg_atomic_fetch_and_u32(&box->mail, ~LE_MAIL_FENCE_ENDED) & (async ? ~LE_MAIL_RELEASED : ~0);
	uint64 undo = pg_atomic_read_u64(&box->undo);
	LeCommand fence_ended = {.type = LE_CMD_FENCE_ENDED, .session = box->session, .sessno = proc};
	LeReply reply;
	Mail *mail;
	bool done;

	if (flags == 0 && undo == 0)
		return true;

	mail = &le_mgr.mails[le_mgr.nmails++];
	*mail = (Mail){.proc = proc, .flags = flags, .undo = undo};
	done = apply_mail(mail, box, now);
	if (flags & LE_MAIL_FENCE_ENDED)
		le_core_apply(le_mgr.core, &fence_ended, now, &reply);
	return done;
}

/* The mail was posted after this request: nobody waits for it any more. */
static bool
overtaken_by_mail(LeMailbox *box)
{
	uint64 undo = pg_atomic_read_u64(&box->undo);

	if (pg_atomic_read_u32(&box->mail) & LE_MAIL_SESSION_END)
		return true;
	return undo != 0 && box->type == LE_REQUEST_COMMAND &&
		   (box->command.type == LE_CMD_ACQUIRE || box->command.type == LE_CMD_AWAIT) &&
		   (uint32) (undo >> 32) == box->command.xact && (uint32) undo <= box->command.subxact;
}

/* With the texts where the manager finds them; names come later. */
static LeCommand
command_of(const LeMailbox *box)
{
	LeCommand cmd = box->command;

	cmd.name = le_mailbox_text(box, box->name);
	cmd.owner = le_mailbox_text(box, box->owner);
	cmd.value = le_mailbox_text(box, box->value);
	cmd.acquirer = le_mailbox_text(box, box->acquirer);
	return cmd;
}

static void
answer_limit(uint32 proc, const char *message, int limit)
{
	char text[LE_MESSAGE_SIZE];

	snprintf(text, sizeof(text), message, limit);
	le_batch_answer_error(proc, ERRCODE_CONFIGURATION_LIMIT_EXCEEDED, text);
}

/* False: there is no room for what this command may add; it is answered. */
static bool
reserve(uint32 proc, const LeCommand *cmd)
{
	bool adds =
		cmd->type == LE_CMD_ACQUIRE || cmd->type == LE_CMD_GRANT_LEASE || cmd->type == LE_CMD_PROCLAIM;
	bool reserved;

	if (!le_history_admits(cmd))
	{
		answer_limit(proc,
					 "the history of the elections of this role is too long in this database: see "
					 "lock_election.max_history_per_role (%d MB)",
					 le_max_history_per_role_mb);
		return false;
	}
	le_mgr.limited = adds;
	reserved = !(adds && le_memory_is_exceeded()) && le_core_reserve(le_mgr.core, cmd);
	le_mgr.limited = false;
	if (!reserved)
		answer_limit(proc,
					 "the locks of this database take too much memory: see lock_election.max_memory (%d MB)",
					 le_max_memory_mb);
	return reserved;
}

static void
apply_command(uint32 proc, LeMailbox *box, LeTime now)
{
	LeCommand cmd = command_of(box);
	LeReply reply;
	bool confirm;

	if (box->revision != 0)
	{
		LeTime waited = le_clock() - box->posted_at;

		/* it has waited before: back to its place, for what is left */
		cmd.revision = box->revision;
		cmd.since = now - waited;
		if (cmd.wait > 0)
			cmd.wait = Max(1, cmd.wait - waited);
	}
	if (cmd.nnames > 0)
	{
		cmd.names = le_names_get(box);
		if (cmd.names == NULL)
		{
			answer_withdrawn(proc);
			return;
		}
	}
	if (!reserve(proc, &cmd))
		return;
	if (box->type == LE_REQUEST_LEADER)
		le_page_find_leader(le_mgr.core, &cmd);
	le_core_apply(le_mgr.core, &cmd, now, &reply);
	if (box->type == LE_REQUEST_LEADER && reply.status == LE_OK)
		le_page_put_leader(le_mgr.core, &cmd, box, now);
	else if (box->type == LE_REQUEST_LEADER)
	{
		/* that nobody leads is the newest change's doing, which may be of this batch */
		reply.lsn = le_mgr.changes_lsn;
		reply.wrote = le_next_change(le_mgr.core, NULL) != NULL;
	}
	if (reply.displaced_session != 0)
		answer_displaced(&reply);
	if (reply.status == LE_WAITING)
	{
		box->revision = reply.token;
		/* any permit may come back first */
		if (reply.own_session && cmd.mode != LE_MODE_PERMIT)
		{
			box->reply.which = reply.which;
			pg_write_barrier();
			pg_atomic_write_u32(&box->note, LE_NOTE_OWN_SESSION);
			le_wake((int) proc);
		}
		return;
	}

	/* durable for nobody, so that nothing is waited for */
	if (reply.bound)
		reply.lsn = 0;
	confirm = le_batch_confirms(box, &reply);
	reply.may_return = le_batch_may_return(&reply, box->durable_release, box->need_standby);
	if (reply.may_return)
		reply.lsn = 0;
	if (reply.wrote || confirm)
		answer_at_commit(proc, cmd.request, &reply, confirm);
	else
		le_batch_answer(proc, cmd.request, &reply);
}

/* Requests are counted once, by what they ask the core for; pages are not counted. */
static void
count_request(const LeMailbox *box)
{
	if (box->revision != 0 || box->type == LE_REQUEST_PAGE || box->type == LE_REQUEST_LEASE_PAGE ||
		box->type == LE_REQUEST_CHANGES)
		return;
	if (box->command.type <= LE_CMD_FENCE_ENDED)
		pg_atomic_fetch_add_u64(&le_mgr.db->counters.requests[box->command.type], 1);
}

static void
take_request(uint32 proc, LeTime now)
{
	LeMailbox *box = mailbox_of(proc);
	uint32 number = pg_atomic_read_u32(&box->posted);
	LeReply reply = {0};

	if (box->session == 0 || number == pg_atomic_read_u32(&box->answered) || number == le_mgr.taken[proc])
		return;
	pg_read_barrier();

	/* a release that was answered before this was posted may be on the next stack, and comes first */
	if (box->posted_at > le_mgr.rung_until)
	{
		le_ring(box);
		return;
	}
	le_mgr.taken[proc] = number;
	le_mgr.fresh[le_mgr.nfresh++] = proc;
	if (overtaken_by_mail(box))
	{
		answer_withdrawn(proc);
		return;
	}
	count_request(box);
	switch (box->type)
	{
		case LE_REQUEST_COMMAND:
		case LE_REQUEST_LEADER:
			apply_command(proc, box, now);
			break;
		case LE_REQUEST_CHANGES:
			reply.lsn = le_mgr.changes_lsn;
			le_batch_answer(proc, number, &reply);
			break;
		case LE_REQUEST_PAGE:
			le_page_fill(le_mgr.core, box, now);
			le_core_worked(le_mgr.core, WORK_OF_PAGE);
			le_batch_answer(proc, number, &reply);
			break;
		case LE_REQUEST_LEASE_PAGE:
			le_page_fill_leases(le_mgr.core, box, now);
			le_core_worked(le_mgr.core, WORK_OF_PAGE);
			le_batch_answer(proc, number, &reply);
			break;
	}
}

static int
compare_revision(const void *a, const void *b)
{
	int64 ra = mailbox_of(*(const uint32 *) a)->revision, rb = mailbox_of(*(const uint32 *) b)->revision;

	return ra < rb ? -1 : ra > rb ? 1 : 0;
}

/*
 * Requests that waited before the core was loaded, in their old order.  Only
 * when all are back is anybody granted anything.
 */
void
le_take_waiting(LeTime now)
{
	uint32 *procs = palloc(le_shared->max_sessions * sizeof(uint32));
	int n = 0, all = le_batch_all_mailboxes(procs);

	for (int i = 0; i < all; i++)
	{
		if (mailbox_of(procs[i])->revision != 0)
			procs[n++] = procs[i];
	}
	qsort(procs, n, sizeof(uint32), compare_revision);
	for (int i = 0; i < n; i++)
	{
		le_mgr.taken[procs[i]] = pg_atomic_read_u32(&mailbox_of(procs[i])->answered);
		take_request(procs[i], now);
	}
	le_mgr.nfresh = 0; /* their revision is kept if this fails */
	le_core_load_done(le_mgr.core, now);
	le_mgr.reenter = false;
	pfree(procs);
}

static bool
is_renewal(LeMailbox *box)
{
	if (box->session == 0 || pg_atomic_read_u32(&box->posted) == pg_atomic_read_u32(&box->answered))
		return false;
	pg_read_barrier();
	return box->type == LE_REQUEST_COMMAND &&
		   (box->command.type == LE_CMD_RENEW || box->command.type == LE_CMD_KEEP_ALIVE ||
			box->command.type == LE_CMD_AWAIT);
}

static void
renewals_first(uint32 *procs, int n)
{
	uint32 *others = palloc(n * sizeof(uint32));
	int nrenewals = 0, nothers = 0;

	for (int i = 0; i < n; i++)
	{
		if (is_renewal(mailbox_of(procs[i])))
			procs[nrenewals++] = procs[i];
		else
			others[nothers++] = procs[i];
	}
	memcpy(procs + nrenewals, others, nothers * sizeof(uint32));
	pfree(others);
}

int
le_take_rung(uint32 *procs, int n)
{
	uint32 *rung = palloc(le_shared->max_sessions * sizeof(uint32));
	int nrung;

	le_mgr.rung_until = le_clock();
	nrung = le_take_stack(le_mgr.db, rung);
	le_mgr.list_number++;
	for (int i = 0; i < n; i++)
		le_mgr.listed[procs[i]] = le_mgr.list_number;
	for (int i = 0; i < nrung; i++)
	{
		if (le_mgr.listed[rung[i]] != le_mgr.list_number)
			procs[n++] = rung[i];
	}
	pfree(rung);
	renewals_first(procs, n);
	return n;
}

/* --- who is served in a batch, and in which order --- */

/* How much work the mail and the request of a mailbox are. */
typedef enum Work
{
	WORK_LIGHT,
	WORK_HEAVY, /* deferred while the batch is full, or the manager backs off */
	WORK_STEP,  /* one small step of a heavy request, for which its session comes again:
				  * served also while the manager backs off */
	WORK_CANCEL /* the end of a call that waits for many names: heavy, and served first */
} Work;

/* The request may step on: a page of a view, some of those whom an administrator ends. */
static bool
is_step(const LeMailbox *box)
{
	return box->type == LE_REQUEST_PAGE || box->type == LE_REQUEST_LEASE_PAGE ||
		   (box->type == LE_REQUEST_COMMAND &&
			(box->command.type == LE_CMD_FORCE || box->command.type == LE_CMD_FORCE_ROLE));
}

/* The mail ends a session or a transaction. */
static Work
work_of_end(const LeMailbox *box, uint32 proc)
{
	const LeEntry *waiting;

	if (!le_core_end_is_heavy(le_mgr.core, box->session, proc))
		return WORK_LIGHT;
	waiting = le_core_waiting_on(le_mgr.core, box->session, proc);
	return waiting != NULL && waiting->grouped ? WORK_CANCEL : WORK_HEAVY;
}

static Work
work_of(uint32 proc)
{
	LeMailbox *box = mailbox_of(proc);
	uint32 mail = pg_atomic_read_u32(&box->mail);

	if ((mail & LE_MAIL_SESSION_END) != 0 || pg_atomic_read_u64(&box->undo) != 0)
	{
		Work work = work_of_end(box, proc);

		if (work != WORK_LIGHT)
			return work;
	}
	if ((mail & LE_MAIL_RELEASED) != 0 && box->releases.segment != DSM_HANDLE_INVALID)
		return WORK_HEAVY;
	if ((mail & LE_MAIL_SESSION_END) != 0 || pg_atomic_read_u64(&box->undo) != 0 ||
		pg_atomic_read_u32(&box->posted) == pg_atomic_read_u32(&box->answered))
		return WORK_LIGHT;
	pg_read_barrier();
	if (is_step(box))
		return mail == 0 ? WORK_STEP : WORK_HEAVY;

	/* a renewal is light however many names it has: what it keeps alive could end meanwhile */
	if (box->type != LE_REQUEST_COMMAND || is_renewal(box))
		return WORK_LIGHT;
	return box->command.nnames > LE_FEW || box->command.type == LE_CMD_REVOKE_LEASE ||
				   box->command.type == LE_CMD_SET_PERMITS
			   ? WORK_HEAVY
			   : WORK_LIGHT;
}

/* --- heavy work takes turns, and the manager backs off after it --- */

bool
le_take_is_backing_off(void)
{
	return le_clock() < le_mgr.backoff_until;
}

/*
 * Back off after a batch with heavy work, but only if light work has come since the
 * last such batch began: otherwise nobody would gain.
 */
void
le_take_back_off(void)
{
	LeTime began = le_mgr.taken_at, now = le_clock();

	if (!le_mgr.heavy || le_mgr.backing_off)
		return;
	if (le_mgr.light_seen_at >= le_mgr.heavy_began_at)
		le_mgr.backoff_until = now + Min(BACKOFF_TIMES * (now - began), BACKOFF_AT_MOST);
	le_mgr.heavy_began_at = began;
}

int
le_take_deferred(uint32 *procs, int n)
{
	uint32 *all;
	int nall = le_mgr.ndeferred;

	if (nall == 0 || le_take_is_backing_off())
		return n;
	all = palloc(le_shared->max_sessions * sizeof(uint32));
	memcpy(all, le_mgr.deferred, nall * sizeof(uint32));
	le_mgr.ndeferred = 0;
	le_mgr.list_number++;
	for (int i = 0; i < nall; i++)
		le_mgr.listed[all[i]] = le_mgr.list_number;
	for (int i = 0; i < n; i++)
	{
		if (le_mgr.listed[procs[i]] != le_mgr.list_number)
			all[nall++] = procs[i];
	}
	memcpy(procs, all, nall * sizeof(uint32));
	pfree(all);
	return nall;
}

/* To the end of the turns.  health() sees that the request is not just left lying. */
static void
defer(uint32 proc)
{
	pg_atomic_write_u32(&mailbox_of(proc)->deferred, pg_atomic_read_u32(&mailbox_of(proc)->posted));
	for (int i = 0; i < le_mgr.ndeferred; i++)
	{
		if (le_mgr.deferred[i] == proc)
			return;
	}
	le_mgr.deferred[le_mgr.ndeferred++] = proc;
}

typedef enum Taken
{
	TAKEN,
	TAKEN_IN_PART, /* its mail has begun, and is more than this batch does */
	NOT_TAKEN      /* it is heavy, and comes with a later batch */
} Taken;

/* async: the mailbox's releases were taken already. */
static Taken
take_one(uint32 proc, Work work, bool async, LeTime now)
{
	if (work != WORK_LIGHT && (le_core_is_full(le_mgr.core) || (le_mgr.backing_off && work != WORK_STEP)))
	{
		if (work == WORK_STEP)
			le_ring(mailbox_of(proc)); /* in the next batch, without a turn */
		else
			defer(proc);
		return NOT_TAKEN;
	}
	if (work != WORK_LIGHT)
		le_mgr.heavy = true;
	else
		le_mgr.light_seen_at = le_mgr.taken_at;
	if (!take_mail(proc, async, now))
		return TAKEN_IN_PART;
	take_request(proc, now);
	return TAKEN;
}

/*
 * The order of a batch:
 *
 *	1.	Asynchronous releases of all mailboxes: their sessions have answered them, so
 *		whoever has asked since then has to find them made.
 *	2.	Ends of calls that wait for many names: whoever makes room for one that is
 *		about to end would have it granted, which is much more work.
 *	3.	All others in the order of procs: renewals first, see le_take_rung(), then as
 *		they rang.  Heavy work is deferred once the batch is full.
 *
 * Heavy work takes turns: what this batch has done in part goes behind what it has
 * not begun.
 */
void
le_take(const uint32 *procs, int n, LeTime now)
{
	Work *works = palloc(n * sizeof(Work));
	Taken *taken = palloc(n * sizeof(Taken));
	bool *async = palloc(n * sizeof(bool));

	/* 1. asynchronous releases */
	for (int i = 0; i < n; i++)
		async[i] = take_async_release(procs[i], now);
	n = le_mgr.async_only ? 0 : n;

	/* 2. ends of calls that wait for many names, 3. all others */
	for (int i = 0; i < n; i++)
	{
		works[i] = work_of(procs[i]);
		if (works[i] == WORK_CANCEL)
			taken[i] = take_one(procs[i], works[i], async[i], now);
	}
	for (int i = 0; i < n; i++)
	{
		if (works[i] != WORK_CANCEL)
			taken[i] = take_one(procs[i], works[i], async[i], now);
	}

	for (int i = 0; i < n; i++)
	{
		if (taken[i] == TAKEN_IN_PART)
			defer(procs[i]);
	}
	pfree(works);
	pfree(taken);
	pfree(async);
}
