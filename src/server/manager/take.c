/*
 * manager/take.c
 *		The first half of a batch: what the slots have for the manager is taken,
 *		mail before requests, and applied to the core.
 */
#include "postgres.h"


#include "manager/batch.h"
#include "manager/internal.h"
#include "manager/look.h"
#include "shared/compat.h"
#include "shared/look.h"
#include "shared/names.h"
#include "shared/releases.h"
#include "shared/shmem.h"
#include "shared/wake.h"

/* --- answers --- */

/* Nobody waits for it any more. */
static void
answer_withdrawn(uint32 proc)
{
	LeReply reply = {.status = LE_NOT_GRANTED};

	le_batch_answer(proc, pg_atomic_read_u32(&slot_of(proc)->posted), &reply);
}

/* Somebody else waits for its place from now on. */
static void
answer_displaced(const LeReply *by)
{
	LeReply reply = {.status = LE_QUEUED};

	if (slot_of(by->displaced_sessno)->session == by->displaced_session)
		le_batch_answer(by->displaced_sessno, by->displaced_request, &reply);
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
	bool lasts;            /* COMMIT has something to wait for */
} Releasing;

static void
apply_release(void *arg, const LeReleaseItem *item, LeText name)
{
	Releasing *r = arg;
	LeReply reply;

	r->cmd.kind = (LeKind) item->kind;
	r->cmd.name = name;
	r->cmd.token = item->token;
	r->cmd.role = item->role;
	r->cmd.hold_for = item->hold_for;
	for (uint32 i = 0; i < item->holds; i++)
	{
		le_core_apply(le_mgr.core, &r->cmd, r->now, &reply);
		if (reply.status != LE_OK)
			break;
		r->lasts |= reply.wrote && !reply.bound && !le_batch_may_return(&reply, r->durable, r->standby);
	}
}

/* Returns whether COMMIT has something to wait for. */
static bool
apply_releases(uint32 proc, LeTime now)
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
	le_releases_each(&slot->releases, apply_release, &r);
	pg_atomic_fetch_add_u64(&le_mgr.db->counters.requests[LE_CMD_RELEASE], 1);
	return r.lasts;
}

static void
take_mail(uint32 proc, LeTime now)
{
	LeRequestSlot *slot = slot_of(proc);

	/* that a fence has ended may be told again before the batch is done */
	uint32 flags = pg_atomic_fetch_and_u32(&slot->mail, ~LE_MAIL_FENCE_ENDED);
	uint64 undo = pg_atomic_read_u64(&slot->undo);
	LeCommand cmd = {0};
	LeReply reply;
	Mail *mail;

	if (flags == 0 && undo == 0)
		return;

	mail = &le_mgr.mails[le_mgr.nmails++];
	mail->proc = proc;
	mail->flags = flags;
	mail->undo = undo;
	mail->released = false;

	cmd.session = slot->session;
	cmd.sessno = proc;
	if (mail->flags & LE_MAIL_UNCONFIRMED)
		take_back(proc, now);
	if (mail->undo != 0)
	{
		cmd.type = LE_CMD_UNDO;
		cmd.xact = (uint32) (mail->undo >> 32);
		cmd.subxact = (uint32) mail->undo;
		le_core_apply(le_mgr.core, &cmd, now, &reply);
	}
	if (mail->flags & LE_MAIL_RELEASED)
		mail->released = apply_releases(proc, now);
	if (mail->flags & LE_MAIL_SESSION_END)
	{
		cmd.type = LE_CMD_SESSION_END;
		le_core_apply(le_mgr.core, &cmd, now, &reply);
	}
	if (mail->flags & LE_MAIL_FENCE_ENDED)
	{
		cmd.type = LE_CMD_FENCE_ENDED;
		le_core_apply(le_mgr.core, &cmd, now, &reply);
	}
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
apply_command(uint32 proc, LeRequestSlot *slot, LeTime now)
{
	LeCommand cmd = command_of(slot);
	LeReply reply;
	bool confirm;

	if (slot->revision != 0)
	{
		/* it has waited before: back to its place, for what is left */
		cmd.revision = slot->revision;
		if (cmd.wait > 0)
			cmd.wait = Max(1, cmd.wait - (le_clock() - slot->posted_at));
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
	if (!le_core_reserve(le_mgr.core, &cmd))
	{
		le_batch_answer_error(proc, ERRCODE_OUT_OF_MEMORY, "the lock_election manager is out of memory");
		return;
	}
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

	/* posted while this batch is applied: it has rung again */
	if (slot->posted_at > le_mgr.taken_at)
		return;
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
			le_batch_answer(proc, number, &reply);
			break;
		case LE_REQUEST_LOOK_LEASES:
			le_look_fill_leases(le_mgr.core, slot, now);
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
	int nrung = le_take_stack(le_mgr.db, rung);

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

void
le_take(const uint32 *procs, int n, LeTime now)
{
	for (int i = 0; i < n; i++)
	{
		take_mail(procs[i], now);
		take_request(procs[i], now);
	}
}
