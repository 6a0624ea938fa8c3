/*
 * manager/take.c
 *		The first half of a batch: what the slots have for the manager is taken,
 *		mail before requests, and applied to the core.
 */
#include "postgres.h"

#include "manager/batch.h"
#include "manager/history.h"
#include "manager/internal.h"
#include "manager/look.h"
#include "shared/compat.h"
#include "shared/look.h"
#include "shared/names.h"
#include "shared/releases.h"
#include "shared/settings.h"
#include "shared/shmem.h"
#include "shared/wake.h"

/* To fill a page takes as long as so many entries' ends. */
#define WORK_OF_PAGE 50

/* --- answers --- */

/* Nobody waits for it any more. */
static void
answer_withdrawn(uint32 proc)
{
	LeReply reply = {.status = LE_NOT_GRANTED};

	le_batch_answer(proc, pg_atomic_read_u32(&slot_of(proc)->posted), &reply);
}

static void
defer(uint32 proc, uint32 number, const LeReply *reply, bool confirm)
{
	Deferred *d = &le_mgr.deferred[le_mgr.ndeferred++];

	d->proc = proc;
	d->number = number;
	d->reply = *reply;
	d->confirm = confirm;
}

/* Somebody else waits for its place from now on; that it has one rests on the same row. */
static void
answer_displaced(const LeReply *by)
{
	LeReply reply = {
		.status = LE_QUEUED, .lsn = by->bound ? 0 : by->lsn, .wrote = by->wrote, .bound = by->bound};

	if (slot_of(by->displaced_sessno)->session != by->displaced_session)
		return;
	if (reply.wrote)
		defer(by->displaced_sessno, by->displaced_request, &reply, false);
	else
		le_batch_answer(by->displaced_sessno, by->displaced_request, &reply);
}

/* --- extensions --- */

/*
 * What this request has extended.  One that is applied again, after a batch that
 * failed, finds its extension in force already: it keeps what was before.
 */
static void
note_extension(uint32 proc, uint32 number, const LeReply *reply)
{
	Extended *extended = &le_mgr.extended[proc];
	LeExtension extension;

	if (reply->status == LE_WAITING || !le_core_extended(le_mgr.core, &extension))
	{
		extended->extension.id = 0;
		return;
	}
	if (extended->number == number && extended->extension.id == extension.id)
	{
		extension.from = extended->extension.from;
		extension.ttl_from = extended->extension.ttl_from;
	}
	extended->number = number;
	extended->extension = extension;
}

/*
 * The answer was not confirmed: what it has extended ends when it did before.
 * Others that wait with their own extensions of the same go back to that as
 * well, if they have to.
 */
static void
take_back(uint32 proc, LeTime now)
{
	LeExtension gone = le_mgr.extended[proc].extension;

	if (gone.id == 0)
		return;
	le_core_take_back(le_mgr.core, &gone, now);
	for (int i = 0; i < le_shared->max_slots; i++)
	{
		LeExtension *other = &le_mgr.extended[i].extension;

		if (other->id != gone.id)
			continue;
		if (other->from == gone.to)
			other->from = gone.from;
		if (other->ttl_from == gone.ttl_to)
			other->ttl_from = gone.ttl_from;
	}
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
	LeRequestSlot *slot = slot_of(proc);
	Releasing r = {.now = now};

	pg_read_barrier();
	r.cmd.type = LE_CMD_RELEASE;
	r.cmd.session = slot->session;
	r.cmd.sessno = proc;
	r.cmd.xact = slot->releases.xact;
	r.durable = slot->releases.durable_release;
	r.standby = slot->releases.need_standby;
	r.few = slot->releases.segment == DSM_HANDLE_INVALID;
	mail->released_to = le_releases_each(&slot->releases, apply_release, &r);
	mail->released = r.lasts;
	if (slot->releases.done == 0)
		pg_atomic_fetch_add_u64(&le_mgr.db->counters.requests[LE_CMD_RELEASE], 1);
}

/* False: there is more to do than one batch does; the rest stays in the mailbox. */
static bool
apply_mail(Mail *mail, LeRequestSlot *slot, LeTime now)
{
	LeCommand cmd = {.session = slot->session, .sessno = mail->proc};
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
		if (mail->released_to < slot->releases.len)
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

bool
le_take_is_told(uint32 proc)
{
	LeRequestSlot *slot = slot_of(proc);

	if ((pg_atomic_read_u32(&slot->mail) & LE_MAIL_RELEASED) == 0)
		return false;
	pg_read_barrier();
	return !slot->releases.awaited;
}

/*
 * A release that was told to be made: whatever others have asked since then has to
 * find it so.  Returns whether there was one.
 */
static bool
take_told_release(uint32 proc, LeTime now)
{
	Mail *mail;

	if (!le_take_is_told(proc))
		return false;
	mail = &le_mgr.mails[le_mgr.nmails++];
	*mail = (Mail){.proc = proc, .flags = LE_MAIL_RELEASED, .told = true};
	apply_releases(proc, now, mail);
	return true;
}

/* False: as apply_mail(), and the request is for the next batch as well. */
static bool
take_mail(uint32 proc, bool told, LeTime now)
{
	LeRequestSlot *slot = slot_of(proc);

	/* that a fence has ended may be told again before the batch is done */
	uint32 flags =
		pg_atomic_fetch_and_u32(&slot->mail, ~LE_MAIL_FENCE_ENDED) & (told ? ~LE_MAIL_RELEASED : ~0);
	uint64 undo = pg_atomic_read_u64(&slot->undo);
	LeCommand fence_ended = {.type = LE_CMD_FENCE_ENDED, .session = slot->session, .sessno = proc};
	LeReply reply;
	Mail *mail;
	bool done;

	if (flags == 0 && undo == 0)
		return true;

	mail = &le_mgr.mails[le_mgr.nmails++];
	*mail = (Mail){.proc = proc, .flags = flags, .undo = undo};
	if (mail->flags & LE_MAIL_UNCONFIRMED)
		take_back(proc, now);
	done = apply_mail(mail, slot, now);
	if (flags & LE_MAIL_FENCE_ENDED)
		le_core_apply(le_mgr.core, &fence_ended, now, &reply);
	return done;
}

/* The mail was posted after this request: nobody waits for it any more. */
static bool
overtaken_by_mail(LeRequestSlot *slot)
{
	uint64 undo = pg_atomic_read_u64(&slot->undo);

	if (pg_atomic_read_u32(&slot->mail) & LE_MAIL_SESSION_END)
		return true;
	return undo != 0 && slot->type == LE_REQUEST_COMMAND &&
		   (slot->command.type == LE_CMD_ACQUIRE || slot->command.type == LE_CMD_AWAIT) &&
		   (uint32) (undo >> 32) == slot->command.xact && (uint32) undo <= slot->command.subxact;
}

/* With the texts where the manager finds them; names come later. */
static LeCommand
command_of(const LeRequestSlot *slot)
{
	LeCommand cmd = slot->command;

	cmd.name = le_slot_text(slot, slot->name);
	cmd.owner = le_slot_text(slot, slot->owner);
	cmd.value = le_slot_text(slot, slot->value);
	cmd.acquirer = le_slot_text(slot, slot->acquirer);
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
	bool reserved;

	if (!le_history_admits(cmd))
	{
		answer_limit(proc,
					 "the history of the elections of this role is too long in this database: see "
					 "lock_election.max_history_per_role (%d MB)",
					 le_max_history_per_role);
		return false;
	}
	le_mgr.limited =
		cmd->type == LE_CMD_ACQUIRE || cmd->type == LE_CMD_GRANT_LEASE || cmd->type == LE_CMD_PROCLAIM;
	reserved = le_core_reserve(le_mgr.core, cmd);
	le_mgr.limited = false;
	if (!reserved)
		answer_limit(proc,
					 "the locks of this database take too much memory: see lock_election.max_memory (%d MB)",
					 le_max_memory);
	return reserved;
}

static void
apply_command(uint32 proc, LeRequestSlot *slot, LeTime now)
{
	LeCommand cmd = command_of(slot);
	LeReply reply;
	bool confirm;

	if (slot->revision != 0)
	{
		LeTime waited = le_clock() - slot->posted_at;

		/* it has waited before: back to its place, for what is left */
		cmd.revision = slot->revision;
		cmd.since = now - waited;
		if (cmd.wait > 0)
			cmd.wait = Max(1, cmd.wait - waited);
	}
	if (cmd.nnames > 0)
	{
		cmd.names = le_names_get(slot);
		if (cmd.names == NULL)
		{
			answer_withdrawn(proc);
			return;
		}
	}
	if (!reserve(proc, &cmd))
		return;
	if (slot->type == LE_REQUEST_LEADER)
		le_look_find_leader(le_mgr.core, &cmd);
	le_core_apply(le_mgr.core, &cmd, now, &reply);
	note_extension(proc, cmd.request, &reply);
	if (slot->type == LE_REQUEST_LEADER && reply.status == LE_OK)
		le_look_put_leader(le_mgr.core, &cmd, slot, now);
	else if (slot->type == LE_REQUEST_LEADER)
	{
		/* that nobody leads is the newest change's doing, which may be of this batch */
		reply.lsn = le_mgr.changes_lsn;
		reply.wrote = le_core_changes(le_mgr.core) != NULL;
	}
	if (reply.displaced_session != 0)
		answer_displaced(&reply);
	if (reply.status == LE_WAITING)
	{
		slot->revision = reply.token;
		/* any permit may come back first */
		if (reply.own_session && cmd.mode != LE_MODE_PERMIT)
		{
			slot->reply.which = reply.which;
			pg_write_barrier();
			pg_atomic_write_u32(&slot->note, LE_NOTE_OWN_SESSION);
			le_wake((int) proc);
		}
		return;
	}

	/* durable for nobody, so that nothing is waited for */
	if (reply.bound)
		reply.lsn = 0;
	confirm = le_batch_confirms(slot, &reply);
	reply.may_return = le_batch_may_return(&reply, slot->durable_release, slot->need_standby);
	if (reply.may_return)
		reply.lsn = 0;
	if (reply.wrote || confirm)
		defer(proc, cmd.request, &reply, confirm);
	else
		le_batch_answer(proc, cmd.request, &reply);
}

/* Requests are counted once, by what they ask the core for; pages are not counted. */
static void
count_request(const LeRequestSlot *slot)
{
	if (slot->revision != 0 || slot->type == LE_REQUEST_LOOK || slot->type == LE_REQUEST_LOOK_LEASES ||
		slot->type == LE_REQUEST_CHANGES)
		return;
	if (slot->command.type <= LE_CMD_FENCE_ENDED)
		pg_atomic_fetch_add_u64(&le_mgr.db->counters.requests[slot->command.type], 1);
}

static void
take_request(uint32 proc, LeTime now)
{
	LeRequestSlot *slot = slot_of(proc);
	uint32 number = pg_atomic_read_u32(&slot->posted);
	LeReply reply = {0};

	if (slot->session == 0 || number == pg_atomic_read_u32(&slot->answered) || number == le_mgr.taken[proc])
		return;
	pg_read_barrier();

	/* what others were told before it was posted may be on the next stack */
	if (slot->posted_at > le_mgr.rung_until)
	{
		le_ring(slot);
		return;
	}
	le_mgr.taken[proc] = number;
	le_mgr.fresh[le_mgr.nfresh++] = proc;
	if (le_mgr.extended[proc].number != number)
		le_mgr.extended[proc].extension.id = 0;
	if (overtaken_by_mail(slot))
	{
		answer_withdrawn(proc);
		return;
	}
	count_request(slot);
	switch (slot->type)
	{
		case LE_REQUEST_COMMAND:
		case LE_REQUEST_LEADER:
			apply_command(proc, slot, now);
			break;
		case LE_REQUEST_CHANGES:
			reply.lsn = le_mgr.changes_lsn;
			le_batch_answer(proc, number, &reply);
			break;
		case LE_REQUEST_LOOK:
			le_look_fill(le_mgr.core, slot, now);
			le_core_worked(le_mgr.core, WORK_OF_PAGE);
			le_batch_answer(proc, number, &reply);
			break;
		case LE_REQUEST_LOOK_LEASES:
			le_look_fill_leases(le_mgr.core, slot, now);
			le_core_worked(le_mgr.core, WORK_OF_PAGE);
			le_batch_answer(proc, number, &reply);
			break;
	}
}

static int
compare_revision(const void *a, const void *b)
{
	int64 ra = slot_of(*(const uint32 *) a)->revision, rb = slot_of(*(const uint32 *) b)->revision;

	return ra < rb ? -1 : ra > rb ? 1 : 0;
}

/*
 * Requests that waited before the core was loaded, in their old order.  Only
 * when all are back is anybody granted anything.
 */
void
le_take_waiting(LeTime now)
{
	uint32 *procs = palloc(le_shared->max_slots * sizeof(uint32));
	int n = 0, all = le_batch_all_slots(procs);

	for (int i = 0; i < all; i++)
	{
		if (slot_of(procs[i])->revision != 0)
			procs[n++] = procs[i];
	}
	qsort(procs, n, sizeof(uint32), compare_revision);
	for (int i = 0; i < n; i++)
	{
		le_mgr.taken[procs[i]] = pg_atomic_read_u32(&slot_of(procs[i])->answered);
		take_request(procs[i], now);
	}
	le_mgr.nfresh = 0; /* their revision is kept if this fails */
	le_core_load_done(le_mgr.core, now);
	le_mgr.reenter = false;
	pfree(procs);
}

static bool
is_renewal(LeRequestSlot *slot)
{
	if (slot->session == 0 || pg_atomic_read_u32(&slot->posted) == pg_atomic_read_u32(&slot->answered))
		return false;
	pg_read_barrier();
	return slot->type == LE_REQUEST_COMMAND &&
		   (slot->command.type == LE_CMD_RENEW || slot->command.type == LE_CMD_KEEP_ALIVE ||
			slot->command.type == LE_CMD_AWAIT);
}

static void
renewals_first(uint32 *procs, int n)
{
	uint32 *others = palloc(n * sizeof(uint32));
	int nrenewals = 0, nothers = 0;

	for (int i = 0; i < n; i++)
	{
		if (is_renewal(slot_of(procs[i])))
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
	uint32 *rung = palloc(le_shared->max_slots * sizeof(uint32));
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

/*
 * Is it more than a little work?  Once a batch has done its share, that is for the
 * next ones, in turns.  The others do not wait behind it.
 */
static bool
is_much(uint32 proc)
{
	LeRequestSlot *slot = slot_of(proc);
	uint32 mail = pg_atomic_read_u32(&slot->mail);

	if ((mail & LE_MAIL_RELEASED) != 0 && slot->releases.segment != DSM_HANDLE_INVALID)
		return true;
	if ((mail & LE_MAIL_SESSION_END) != 0 || pg_atomic_read_u64(&slot->undo) != 0)
		return le_core_has_much(le_mgr.core, slot->session, proc);
	if (pg_atomic_read_u32(&slot->posted) == pg_atomic_read_u32(&slot->answered))
		return false;
	pg_read_barrier();
	if (slot->type == LE_REQUEST_LOOK || slot->type == LE_REQUEST_LOOK_LEASES)
		return true;
	if (slot->type != LE_REQUEST_COMMAND || is_renewal(slot))
		return false; /* also one of many names: what it keeps alive could end meanwhile */
	return slot->command.nnames > LE_FEW || slot->command.type == LE_CMD_REVOKE_LEASE ||
		   slot->command.type == LE_CMD_FORCE || slot->command.type == LE_CMD_FORCE_ROLE ||
		   slot->command.type == LE_CMD_SET_PERMITS;
}

/* A call that waits for many names ends. */
static bool
ends_long_wait(uint32 proc)
{
	LeRequestSlot *slot = slot_of(proc);
	const LeEntry *entry;

	if ((pg_atomic_read_u32(&slot->mail) & LE_MAIL_SESSION_END) == 0 && pg_atomic_read_u64(&slot->undo) == 0)
		return false;
	entry = le_core_waiting_on(le_mgr.core, slot->session, proc);
	return entry != NULL && entry->grouped && le_core_has_much(le_mgr.core, slot->session, proc);
}

bool
le_take_rests(void)
{
	return le_clock() < le_mgr.rest_until;
}

/* Not where nobody else was there since the last time. */
void
le_take_rest(void)
{
	LeTime began = le_mgr.taken_at, now = le_clock();

	if (!le_mgr.much || le_mgr.resting)
		return;
	if (le_mgr.little_at >= le_mgr.much_at)
		le_mgr.rest_until = now + Min(REST_TIMES * (now - began), REST_AT_MOST);
	le_mgr.much_at = began;
}

int
le_take_aside(uint32 *procs, int n)
{
	uint32 *all;
	int nall = le_mgr.naside;

	if (nall == 0 || le_take_rests())
		return n;
	all = palloc(le_shared->max_slots * sizeof(uint32));
	memcpy(all, le_mgr.aside, nall * sizeof(uint32));
	le_mgr.naside = 0;
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

/* health() sees that its request is not just left lying. */
static void
put_aside(uint32 proc)
{
	pg_atomic_write_u32(&slot_of(proc)->aside, pg_atomic_read_u32(&slot_of(proc)->posted));
	for (int i = 0; i < le_mgr.naside; i++)
	{
		if (le_mgr.aside[i] == proc)
			return;
	}
	le_mgr.aside[le_mgr.naside++] = proc;
}

/*
 * One small step of something longer, for which its session comes again: a page of a view,
 * some of those whom an administrator ends.  It goes on while the manager rests.
 */
static bool
is_step(uint32 proc)
{
	LeRequestSlot *slot = slot_of(proc);

	if (pg_atomic_read_u32(&slot->mail) != 0 || pg_atomic_read_u64(&slot->undo) != 0)
		return false;
	return slot->type == LE_REQUEST_LOOK || slot->type == LE_REQUEST_LOOK_LEASES ||
		   (slot->type == LE_REQUEST_COMMAND &&
			(slot->command.type == LE_CMD_FORCE || slot->command.type == LE_CMD_FORCE_ROLE));
}

/* False: it has begun, and there is more to do than this batch does. */
static bool
take_one(uint32 proc, bool much, bool told, LeTime now)
{
	bool step = much && is_step(proc);

	if (much && (le_core_is_full(le_mgr.core) || (le_mgr.resting && !step)))
	{
		if (step)
			le_ring(slot_of(proc));
		else
			put_aside(proc);
		return true;
	}
	if (much)
		le_mgr.much = true;
	else
		le_mgr.little_at = le_mgr.taken_at;
	if (!take_mail(proc, told, now))
		return false;
	take_request(proc, now);
	return true;
}

/*
 * Releases that were told come before all, so that it does not matter in which
 * order the others are taken.  Waits for many names end first: whoever makes room
 * for one that is about to end would have it granted, which is much more work.  The
 * others that have much to do take turns: one that has begun goes on behind those
 * that have not.
 */
void
le_take(const uint32 *procs, int n, LeTime now)
{
	bool *told = palloc(n * sizeof(bool)), *taken = palloc0(n * sizeof(bool)),
		 *begun = palloc0(n * sizeof(bool));

	for (int i = 0; i < n; i++)
		told[i] = take_told_release(procs[i], now);
	n = le_mgr.told_only ? 0 : n;
	for (int i = 0; i < n; i++)
	{
		taken[i] = ends_long_wait(procs[i]);
		if (taken[i])
			begun[i] = !take_one(procs[i], true, told[i], now);
	}
	for (int i = 0; i < n; i++)
	{
		if (!taken[i])
			begun[i] = !take_one(procs[i], is_much(procs[i]), told[i], now);
	}
	for (int i = 0; i < n; i++)
	{
		if (begun[i])
			put_aside(procs[i]);
	}
	pfree(told);
	pfree(taken);
	pfree(begun);
}
