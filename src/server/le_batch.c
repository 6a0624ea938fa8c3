/*
 * le_batch.c
 *		The manager's work: a batch of requests, applied, written, answered.
 *
 * The core decides, the store writes; this file carries between the slots and
 * the two.  A batch that fails leaves no trace: the core is thrown away and
 * loaded anew, waiting requests are put back to their places, and the
 * requests of the batch are applied one by one, so that only the one that
 * cannot be written fails.  Where the tables cannot even be read, requests are
 * answered with that error until they can.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/pg_control.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "le_batch.h"
#include "le_compat.h"
#include "le_hints.h"
#include "le_deadlock.h"
#include "le_fence.h"
#include "le_look.h"
#include "le_xact.h"

/* Items that expire in one batch at most. */
#define EXPIRE_A_BATCH 1000
/* What failed without a request to blame is tried again after this long. */
#define RETRY_AFTER (1 * LE_SECOND)
/* With deadlines about, the manager wakes this often to see that it runs. */
#define HEARTBEAT (1 * LE_SECOND)
/* A pause longer than this moves the deadlines. */
#define STALL (1 * LE_SECOND)

/* 2025-01-01 in TimestampTz: the zero of the incarnations. */
#define INCARNATION_EPOCH (INT64CONST(9132) * USECS_PER_DAY)

/* An answer that goes out after the commit. */
typedef struct Deferred
{
	uint32		proc;
	uint32		number;
	bool		confirm;		/* a renewal: a standby has to see it too */
	LeReply		reply;
} Deferred;

/* A mailbox as it was read. */
typedef struct Mail
{
	uint32		proc;
	uint32		flags;
	uint64		undo;
} Mail;

typedef struct Manager
{
	LeDatabase *db;
	int			index;			/* of db */
	LeCore	   *core;
	MemoryContext core_context;
	MemoryContext batch_context;
	LeMeta		meta;
	uint32	   *taken;			/* by proc number: the request last taken */
	LeTime		shift;			/* of the core's clock behind le_clock() */
	LeTime		awake_at;		/* when it was last seen running */

	bool		core_valid;		/* memory agrees with the tables */
	bool		reenter;		/* waiting requests are not in the core yet */
	LeTime		broken_at;		/* since when not valid */
	LeTime		retry_at;		/* look at all slots again; 0: no need */
	LeTime		expire_after;	/* back-off of expiry */

	/* the batch */
	Deferred   *deferred;
	int			ndeferred;
	Mail	   *mails;
	int			nmails;
	uint32	   *fresh;			/* procs whose request was taken in it */
	int			nfresh;
	bool		flush;			/* somebody asks for it */
	bool		rewritten;		/* the tables are other ones */
	bool		gone;			/* the extension was dropped */
	LeStats		seen;			/* core's counters already published */
} Manager;

static Manager m;

static inline LeTime
core_now(void)
{
	return le_clock() - m.shift;
}

static LeRequestSlot *
slot_of(uint32 proc)
{
	return &le_shared->slots[proc];
}

/* --- answers --- */

static void
answer(uint32 proc, uint32 number, const LeReply *reply)
{
	LeRequestSlot *slot = slot_of(proc);

	if (pg_atomic_read_u32(&slot->posted) != number ||
		pg_atomic_read_u32(&slot->answered) == number)
		return;
	slot->reply = *reply;
	slot->reply_at = le_clock();
	slot->revision = 0;
	pg_write_barrier();
	pg_atomic_write_u32(&slot->answered, number);
	le_wake((int) proc);
}

static void
put_error(LeRequestSlot *slot, int sqlstate, const char *message)
{
	slot->sqlstate = sqlstate;
	strlcpy(slot->message, message, sizeof(slot->message));
}

/* The manager's own lock_timeout says nothing to anybody else. */
static const char *
error_text(const ErrorData *error)
{
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
		return "the tables of extension lock_election are locked by another session";
	return error->message;
}

static void
answer_error(uint32 proc, int sqlstate, const char *message)
{
	LeRequestSlot *slot = slot_of(proc);
	LeReply		reply = {0};

	put_error(slot, sqlstate, message);
	answer(proc, pg_atomic_read_u32(&slot->posted), &reply);
}

/* Somebody else waits for its place from now on. */
static void
answer_displaced(const LeReply *by)
{
	LeReply		reply = {.status = LE_QUEUED};

	if (slot_of(by->displaced_sessno)->session == by->displaced_session)
		answer(by->displaced_sessno, by->displaced_request, &reply);
}

static void
defer(uint32 proc, uint32 number, const LeReply *reply, bool confirm)
{
	Deferred   *d = &m.deferred[m.ndeferred++];

	d->proc = proc;
	d->number = number;
	d->reply = *reply;
	d->confirm = confirm;
}

/* --- taking --- */

static void
take_mail(uint32 proc, LeTime now)
{
	LeRequestSlot *slot = slot_of(proc);

	/* that a fence has ended may be told again before the batch is done */
	uint32		flags = pg_atomic_fetch_and_u32(&slot->mail, ~LE_MAIL_FENCE_ENDED);
	uint64		undo = pg_atomic_read_u64(&slot->undo);
	LeCommand	cmd = {0};
	LeReply		reply;
	Mail	   *mail;

	if (flags == 0 && undo == 0)
		return;

	mail = &m.mails[m.nmails++];
	mail->proc = proc;
	mail->flags = flags;
	mail->undo = undo;

	cmd.session = slot->session;
	cmd.sessno = proc;
	if (mail->undo != 0)
	{
		cmd.kind = LE_CMD_UNDO;
		cmd.xact = (uint32) (mail->undo >> 32);
		cmd.subxact = (uint32) mail->undo;
		le_core_apply(m.core, &cmd, now, &reply);
	}
	if (mail->flags & LE_MAIL_SESSION_END)
	{
		cmd.kind = LE_CMD_SESSION_END;
		le_core_apply(m.core, &cmd, now, &reply);
	}
	if (mail->flags & LE_MAIL_FENCE_ENDED)
	{
		cmd.kind = LE_CMD_FENCE_ENDED;
		le_core_apply(m.core, &cmd, now, &reply);
	}
}

/*
 * The mail was posted after this request: nobody waits for it any more.  The
 * releases of a commit are not waited for without end, and hold all the same.
 */
static bool
overtaken_by_mail(LeRequestSlot *slot)
{
	uint64		undo = pg_atomic_read_u64(&slot->undo);

	if (pg_atomic_read_u32(&slot->mail) & LE_MAIL_SESSION_END)
		return slot->kind != LE_REQUEST_RELEASE_MANY;
	return undo != 0 &&
		(slot->command.kind == LE_CMD_ACQUIRE || slot->command.kind == LE_CMD_AWAIT) &&
		slot->kind == LE_REQUEST_COMMAND &&
		(uint32) (undo >> 32) == slot->command.xact &&
		(uint32) undo <= slot->command.subxact;
}

static void
apply_release_many(LeRequestSlot *slot, LeReply *reply, LeTime now)
{
	uint32		at = 0;

	memset(reply, 0, sizeof(*reply));
	while (at < slot->payload_len)
	{
		LeReleaseItem *item = (LeReleaseItem *) (slot->payload + at);
		LeCommand	cmd = slot->command;
		LeReply		one;

		cmd.ns = (LeKind) item->ns;
		cmd.name = (LeText)
		{
			(char *) item + sizeof(LeReleaseItem), item->name_len
		};
		cmd.token = item->token;
		cmd.role = item->role;
		cmd.hold_for = item->hold_for;
		for (uint32 i = 0; i < item->holds; i++)
		{
			le_core_apply(m.core, &cmd, now, &one);
			if (one.status != LE_OK)
				break;
			reply->wrote |= one.wrote;
		}
		at += MAXALIGN(sizeof(LeReleaseItem) + item->name_len);
	}
}

static void
apply_look(LeRequestSlot *slot, LeReply *reply, LeTime now)
{
	LeLookCursor cursor = {.place = slot->command.token,.last = slot->command.revision};

	slot->payload_len = le_look_fill(m.core, &slot->command, &cursor, slot->payload,
									 sizeof(slot->payload), now);
	reply->token = cursor.place;
	reply->count = cursor.last;
}

static void
apply_command(uint32 proc, LeRequestSlot *slot, LeTime now)
{
	LeCommand	cmd = slot->command;
	LeReply		reply;
	bool		confirm = cmd.kind == LE_CMD_RENEW || cmd.kind == LE_CMD_KEEP_ALIVE ||
		cmd.kind == LE_CMD_AWAIT;

	if (slot->revision != 0)
	{
		/* it has waited before: back to its place, for what is left */
		cmd.revision = slot->revision;
		if (cmd.wait > 0)
			cmd.wait = Max(1, cmd.wait - (le_clock() - slot->posted_at));
	}
	if (!le_core_reserve(m.core, &cmd))
	{
		answer_error(proc, ERRCODE_OUT_OF_MEMORY,
					 "the lock_election manager is out of memory");
		return;
	}
	le_core_apply(m.core, &cmd, now, &reply);
	if (reply.displaced_session != 0)
		answer_displaced(&reply);
	if (reply.status == LE_WAITING)
	{
		slot->revision = reply.token;
		if (reply.own)
		{
			pg_atomic_write_u32(&slot->note, LE_NOTE_OWN);
			le_wake((int) proc);
		}
		return;
	}
	/* SyncRepRequested() would ask for the manager's own level */
	confirm = confirm && reply.status == LE_OK && slot->need_flush &&
		max_wal_senders > 0 && le_sync_standbys_defined();
	if (reply.wrote || confirm)
	{
		if (reply.wrote && reply.valid_for != LE_NEVER && slot->need_flush)
			m.flush = true;
		defer(proc, cmd.request, &reply, confirm);
	}
	else
		answer(proc, cmd.request, &reply);
}

static void
take_request(uint32 proc, LeTime now)
{
	LeRequestSlot *slot = slot_of(proc);
	uint32		number = pg_atomic_read_u32(&slot->posted);
	LeReply		reply = {0};

	if (slot->session == 0 || number == pg_atomic_read_u32(&slot->answered) ||
		number == m.taken[proc])
		return;
	pg_read_barrier();
	m.taken[proc] = number;
	m.fresh[m.nfresh++] = proc;
	if (overtaken_by_mail(slot))
	{
		reply.status = LE_NOT_GRANTED;
		answer(proc, number, &reply);
		return;
	}
	if (slot->revision == 0 && slot->command.kind <= LE_CMD_FENCE_ENDED)
		pg_atomic_fetch_add_u64(&m.db->counters.requests[slot->command.kind], 1);
	switch (slot->kind)
	{
		case LE_REQUEST_COMMAND:
			apply_command(proc, slot, now);
			break;
		case LE_REQUEST_RELEASE_MANY:
			apply_release_many(slot, &reply, now);
			m.flush |= reply.wrote && slot->need_flush;
			defer(proc, number, &reply, false);
			break;
		case LE_REQUEST_LOOK:
			apply_look(slot, &reply, now);
			answer(proc, number, &reply);
			break;
		case LE_REQUEST_LOOK_LEASES:
			reply.token = slot->command.token;
			slot->payload_len = le_look_fill_leases(m.core, &reply.token, slot->payload,
													sizeof(slot->payload), now);
			answer(proc, number, &reply);
			break;
	}
}

static int
compare_revision(const void *a, const void *b)
{
	int64		ra = slot_of(*(const uint32 *) a)->revision,
				rb = slot_of(*(const uint32 *) b)->revision;

	return ra < rb ? -1 : ra > rb ? 1 : 0;
}

/*
 * Requests that waited before the core was loaded, in their old order.  Only
 * when all are back is anybody granted anything.
 */
static void
reenter_waiting(LeTime now)
{
	uint32	   *procs = palloc(le_shared->max_slots * sizeof(uint32));
	int			n = 0,
				all = le_batch_all_slots(procs);

	for (int i = 0; i < all; i++)
	{
		if (slot_of(procs[i])->revision != 0)
			procs[n++] = procs[i];
	}
	qsort(procs, n, sizeof(uint32), compare_revision);
	for (int i = 0; i < n; i++)
	{
		m.taken[procs[i]] = pg_atomic_read_u32(&slot_of(procs[i])->answered);
		take_request(procs[i], now);
	}
	m.nfresh = 0;				/* their revision is kept if this fails */
	le_core_load_done(m.core, now);
	m.reenter = false;
	pfree(procs);
}

/* --- writing --- */

static bool
anything_to_write(void)
{
	return le_core_dirty_slots(m.core) != NULL ||
		le_core_dirty_leases(m.core) != NULL ||
		le_core_dirty_places(m.core) != NULL;
}

/* Answers to waiters need a flush if any of them does. */
static void
flush_for_answers(void)
{
	for (LeEntry *entry = le_core_answers(m.core); entry != NULL;
		 entry = entry->answer_next)
	{
		if (entry->answer == LE_OK && entry->ttl != LE_TTL_BOUND &&
			slot_of(entry->waiter_sessno)->need_flush)
			m.flush = true;
	}
}

static void
begin_transaction(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
}

static XLogRecPtr
commit_transaction(bool flush)
{
	PopActiveSnapshot();

	/* the variable alone: the setting, "local", keeps us from any standby */
	synchronous_commit = flush ? SYNCHRONOUS_COMMIT_LOCAL_FLUSH : SYNCHRONOUS_COMMIT_OFF;
	CommitTransactionCommand();
	synchronous_commit = SYNCHRONOUS_COMMIT_LOCAL_FLUSH;
	MemoryContextSwitchTo(m.batch_context);
	return XactLastCommitEnd;
}

static XLogRecPtr
write_batch(LeTime now)
{
	LeCounters *counters = &m.db->counters;
	LeTime		start = le_clock();
	int64		incarnation;
	XLogRecPtr	lsn;
	int			rows;

	begin_transaction();
	if (!le_store_open())
	{
		m.rewritten = true;
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("the tables of lock_election were replaced")));
	}
	rows = le_store_write(m.core, now);
	incarnation = le_core_next_revision(m.core) >> LE_COUNTER_BITS;
	if (incarnation != m.meta.incarnation)
	{
		/* the counter was full: the next incarnation is on disk before use */
		m.meta.incarnation = incarnation;
		le_store_write_meta(&m.meta);
		m.flush = true;
	}
	le_store_close();
	flush_for_answers();
	lsn = commit_transaction(m.flush);
	pgstat_report_stat(false);

	pg_atomic_fetch_add_u64(&counters->batches, 1);
	pg_atomic_fetch_add_u64(&counters->xids, 1);
	pg_atomic_fetch_add_u64(&counters->rows, rows);
	if (m.flush)
		pg_atomic_fetch_add_u64(&counters->flushes, 1);
	pg_atomic_fetch_add_u64(&counters->write_us, le_clock() - start);
	return lsn;
}

/*
 * Something in the log that a renewal's caller can wait for, so that a primary
 * that is cut off from its synchronous standbys confirms no lease.
 */
static XLogRecPtr
log_renewals(void)
{
	uint32		nothing = 0;

	XLogBeginInsert();
	XLogRegisterData((char *) &nothing, sizeof(nothing));
	return XLogInsert(RM_XLOG_ID, XLOG_NOOP);
}

/* --- after the commit --- */

static void
give_answers(XLogRecPtr lsn)
{
	LeTime		now = core_now();
	XLogRecPtr	confirm_lsn = lsn;

	for (int i = 0; i < m.ndeferred; i++)
	{
		Deferred   *d = &m.deferred[i];

		if (d->reply.wrote)
			d->reply.lsn = lsn;
		if (d->reply.valid_for == LE_NEVER)
			d->reply.lsn = 0;	/* connection-bound: durable for nobody */
		if (d->confirm)
		{
			if (confirm_lsn == 0)
				confirm_lsn = log_renewals();
			d->reply.lsn = Max(d->reply.lsn, confirm_lsn);
		}
		answer(d->proc, d->number, &d->reply);
	}
	for (LeEntry *entry = le_core_answers(m.core); entry != NULL;
		 entry = entry->answer_next)
	{
		LeReply		reply;

		if (slot_of(entry->waiter_sessno)->session != entry->waiter_session)
			continue;
		le_entry_answer(entry, now, &reply);
		if (reply.wrote)
			reply.lsn = reply.valid_for == LE_NEVER ? 0 : lsn;
		reply.waited = true;
		answer(entry->waiter_sessno, entry->request, &reply);
	}
}

/* What was read from the mailboxes is done for good: empty them. */
static void
empty_mailboxes(void)
{
	for (int i = 0; i < m.nmails; i++)
	{
		Mail	   *mail = &m.mails[i];
		LeRequestSlot *slot = slot_of(mail->proc);
		uint64		undo = mail->undo;

		if (undo != 0)
			(void) pg_atomic_compare_exchange_u64(&slot->undo, &undo, 0);
		pg_atomic_fetch_and_u32(&slot->mail, ~(mail->flags & LE_MAIL_SESSION_END));
		if (mail->flags & LE_MAIL_SESSION_END)
			le_slot_clear(slot);
		le_wake((int) mail->proc);
	}
}

/*
 * Those who have waited long: the newest of a cycle gives up.  It is told no
 * more than that; what it waits for is undone as if it had been cancelled.
 */
static void
end_deadlocks(void)
{
	for (int i = 0; i < m.nmails; i++)
	{
		StringInfoData detail;
		int			proc;

		if ((m.mails[i].flags & LE_MAIL_BLOCKED) == 0)
			continue;
		initStringInfo(&detail);
		proc = le_deadlock_find(m.core, m.mails[i].proc, &detail);
		if (proc >= 0)
		{
			LeRequestSlot *slot = slot_of((uint32) proc);

			slot->payload_len = (uint32) Min(detail.len, LE_PAYLOAD_SIZE);
			memcpy(slot->payload, detail.data, slot->payload_len);
			answer_error((uint32) proc, ERRCODE_T_R_DEADLOCK_DETECTED,
						 "deadlock detected");
		}
		pfree(detail.data);
	}
}

#define PUBLISH(counter) \
	pg_atomic_fetch_add_u64(&m.db->counters.counter, now->counter - m.seen.counter)

static void
publish(void)
{
	const LeStats *now = le_core_stats(m.core);

	PUBLISH(grants);
	PUBLISH(waits);
	PUBLISH(handoffs);
	PUBLISH(expiries);
	PUBLISH(timeouts);
	PUBLISH(undone);
	m.seen = *now;
	if ((int64) pg_atomic_read_u64(&le_shared->incarnation) < m.meta.incarnation)
		pg_atomic_write_u64(&le_shared->incarnation, m.meta.incarnation);
	pg_atomic_write_u64(&m.db->revision, le_core_next_revision(m.core));
	pg_atomic_write_u64(&m.db->locks, le_core_lock_count(m.core));
	pg_atomic_write_u64(&m.db->memory,
						MemoryContextMemAllocated(m.core_context, true));
}

/* --- a batch --- */

static void
batch_reset(void)
{
	m.ndeferred = m.nmails = m.nfresh = 0;
	m.flush = m.rewritten = false;
	MemoryContextReset(m.batch_context);
	MemoryContextSwitchTo(m.batch_context);
}

static void
apply_limits(void)
{
	LeLimits	limits = {
		.waiters_per_lock = le_max_waiters_per_lock,
		.expiry_grace = (LeTime) le_expiry_grace * LE_MS
	};

	le_core_set_limits(m.core, &limits);
}

static void
take(const uint32 *procs, int n, LeTime now)
{
	for (int i = 0; i < n; i++)
	{
		take_mail(procs[i], now);
		take_request(procs[i], now);
	}
}

static void
batch(const uint32 *procs, int n, bool expire)
{
	LeTime		now = core_now();
	XLogRecPtr	lsn = 0;

	batch_reset();
	apply_limits();
	if (m.reenter)
		reenter_waiting(now);
	take(procs, n, now);
	if (expire)
		le_core_expire(m.core, now, EXPIRE_A_BATCH);
	if (anything_to_write())
		lsn = write_batch(now);
	give_answers(lsn);
	le_hints_of_batch(m.core);
	empty_mailboxes();
	le_core_batch_done(m.core, lsn);
	publish();
	le_fence_end_overdue(m.core, now);
	end_deadlocks();
}

/* What the failed batch has taken is to be taken again. */
static void
untake(void)
{
	for (int i = 0; i < m.nfresh; i++)
	{
		LeRequestSlot *slot = slot_of(m.fresh[i]);
		uint32		number = pg_atomic_read_u32(&slot->posted);

		if (pg_atomic_read_u32(&slot->answered) != number)
		{
			m.taken[m.fresh[i]] = pg_atomic_read_u32(&slot->answered);
			slot->revision = 0;
		}
	}
	for (int i = 0; i < m.nmails; i++)
		pg_atomic_fetch_or_u32(&slot_of(m.mails[i].proc)->mail,
							   m.mails[i].flags & LE_MAIL_FENCE_ENDED);
}

/* False: it failed, *error says why, and the core is not to be used. */
static bool
try_batch(const uint32 *procs, int n, bool expire, ErrorData **error)
{
	volatile bool ok = false;

	PG_TRY();
	{
		batch(procs, n, expire);
		ok = true;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(m.batch_context);
		*error = CopyErrorData();
		if (!m.rewritten)
			EmitErrorReport();
		FlushErrorState();
		AbortCurrentTransaction();
		untake();
		m.core_valid = false;
		if (m.broken_at == 0)
			m.broken_at = le_clock();
		pg_atomic_fetch_add_u64(&m.db->counters.failed_batches, 1);
	}
	PG_END_TRY();
	return ok;
}

/* --- loading --- */

static LeCore *old_core;

static bool
session_alive(uint64 session)
{
	uint32		proc = le_session_proc(session);

	return m.meta.boot == le_shared->boot && session != 0 &&
		proc < (uint32) le_shared->max_slots &&
		slot_of(proc)->session == session && slot_of(proc)->database == m.index;
}

/* Open still, or rolled back with the mail unread. */
static bool
xact_pending(uint64 session, uint32 xact)
{
	LeRequestSlot *slot;

	if (!session_alive(session))
		return false;
	slot = slot_of(le_session_proc(session));
	return pg_atomic_read_u32(&slot->open_xact) == xact ||
		(uint32) (pg_atomic_read_u64(&slot->undo) >> 32) == xact;
}

static bool
known_time_left(int64 token, LeTime *left)
{
	LeEntry    *entry = old_core ? le_core_find_token(old_core, token) : NULL;

	if (entry == NULL || entry->lease != NULL || entry->ttl == LE_TTL_BOUND)
		return false;
	*left = le_entry_time_left(entry, core_now());
	return true;
}

static bool
known_lease_time_left(int64 id, LeTime *left)
{
	LeLease    *lease = old_core ? le_core_find_lease(old_core, id) : NULL;

	if (lease == NULL)
		return false;
	*left = Max(lease->deadline - core_now(), 0);
	return true;
}

static void *
core_alloc(void *arg, size_t size)
{
	return MemoryContextAllocExtended(m.core_context, size,
									  MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
}

static void
core_free(void *arg, void *p)
{
	pfree(p);
}

static bool
core_fenced(void *arg, int64 token)
{
	return pg_atomic_read_u32(&m.db->fences) != 0 && le_fence_held(token);
}

static void
random_bytes(void *to, size_t len)
{
	if (!pg_strong_random(to, len))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random seed")));
}

/*
 * Build a core from the tables, in the open transaction.  m.core is replaced
 * when that has succeeded.
 */
static void
load_core(int64 next_revision, bool drop_all)
{
	MemoryContext old_context = m.core_context;
	LeEnv		env = {.alloc = core_alloc,.free = core_free,.fenced = core_fenced};
	LeLoadHooks hooks = {
		.drop_all = drop_all,.alive = session_alive,
		.pending = xact_pending,.fenced = le_fence_held,
		.time_left = known_time_left,.lease_time_left = known_lease_time_left
	};
	LeCore	   *volatile core = NULL;

	random_bytes(env.seed, sizeof(env.seed));
	m.core_context = AllocSetContextCreate(TopMemoryContext, "lock_election state",
										   ALLOCSET_DEFAULT_SIZES);
	old_core = m.core;
	PG_TRY();
	{
		int64		highest;

		core = le_core_create(&env, le_shared->max_slots, next_revision);
		if (core == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
		highest = le_store_load(core, &hooks, core_now());
		le_core_raise_revision(core, highest + 1);
	}
	PG_CATCH();
	{
		MemoryContextDelete(m.core_context);
		m.core_context = old_context;
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (old_context != NULL)
		MemoryContextDelete(old_context);
	m.core = core;
	memset(&m.seen, 0, sizeof(m.seen));
	m.core_valid = true;
	m.reenter = true;
}

/* While there is no core to do it: waits that have run out end all the same. */
static void
end_waits(void)
{
	LeTime		now = le_clock();
	LeReply		reply = {.status = LE_NOT_GRANTED};

	for (int i = 0; i < le_shared->max_slots; i++)
	{
		LeRequestSlot *slot = slot_of(i);

		if (slot->session != 0 && slot->database == m.index && slot->revision != 0 &&
			slot->command.kind == LE_CMD_ACQUIRE && slot->command.wait > 0 &&
			now - slot->posted_at >= slot->command.wait)
			answer(i, pg_atomic_read_u32(&slot->posted), &reply);
	}
}

/*
 * Load again after a failed batch.  Deadlines go on where they were; the time
 * in which nothing could be renewed does not count.
 */
static bool
try_reload(ErrorData **error)
{
	volatile bool ok = false;

	PG_TRY();
	{
		MemoryContextSwitchTo(m.batch_context);
		begin_transaction();
		m.gone = !le_store_find();
		if (m.gone)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("extension lock_election was dropped")));
		load_core(le_core_next_revision(m.core), false);
		(void) commit_transaction(false);
		if (m.broken_at != 0 && le_clock() - m.broken_at > STALL)
			m.shift += le_clock() - m.broken_at;
		m.broken_at = 0;
		ok = true;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(m.batch_context);
		*error = CopyErrorData();
		EmitErrorReport();
		FlushErrorState();
		AbortCurrentTransaction();
		m.core_valid = false;
		m.retry_at = le_clock() + RETRY_AFTER;
		end_waits();
	}
	PG_END_TRY();
	return ok;
}

static int64
incarnation_minutes(void)
{
	return (GetCurrentTimestamp() - INCARNATION_EPOCH) / (60 * USECS_PER_SEC);
}

/* The incarnation of this start, by the rules of the design; see the header. */
static void
next_incarnation(LeMeta *meta, uint32 timeline)
{
	int64		stored = meta->incarnation;
	bool		copy = meta->database != MyDatabaseId;
	int64		floor = meta->floor > stored ? meta->floor + 1 : 0;

	if (!copy && meta->clean && meta->timeline == timeline && floor == 0)
		return;
	if (!copy && meta->timeline != timeline)
		meta->incarnation = (stored / 64 + 2) * 64;
	else
		meta->incarnation = stored + 1;
	meta->incarnation = Max(meta->incarnation, incarnation_minutes());
	meta->incarnation = Max(meta->incarnation, floor);

	/* dropped and created again: above what there was, as long as we know it */
	if (!OidIsValid(meta->database))
		meta->incarnation = Max(meta->incarnation,
								(int64) pg_atomic_read_u64(&le_shared->incarnation) + 1);
	meta->next_revision = (meta->incarnation << LE_COUNTER_BITS) + 1;
}

/*
 * What a copy has dropped goes with the meta row that makes the copy ours: the
 * next load would take it for our own.
 */
static void
write_dropped(void)
{
	if (!le_store_open())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("the tables of lock_election were replaced")));
	(void) le_store_write(m.core, core_now());
	le_store_close();
}

bool
le_batch_load(void)
{
	uint32		timeline = GetWALInsertionTimeLine();
	XLogRecPtr	lsn;
	bool		copy;

	begin_transaction();
	if (!le_store_find())
	{
		(void) commit_transaction(false);
		return false;
	}
	le_store_read_meta(&m.meta);
	copy = OidIsValid(m.meta.database) && m.meta.database != MyDatabaseId;
	next_incarnation(&m.meta, timeline);
	if (m.meta.incarnation > LE_INCARNATION_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("incarnation " INT64_FORMAT " of lock_election is out of range",
						m.meta.incarnation)));
	load_core(m.meta.next_revision, copy);
	if (copy)
		write_dropped();

	/* durable before the first grant */
	m.meta.database = MyDatabaseId;
	m.meta.timeline = timeline;
	m.meta.clean = false;
	m.meta.boot = le_shared->boot;
	le_store_write_meta(&m.meta);
	lsn = commit_transaction(true);
	if (copy)
		le_core_batch_done(m.core, lsn);
	publish();
	return true;
}

void
le_batch_finish(void)
{
	ErrorData  *error;

	if (!m.core_valid)
		return;

	/* what was answered is written; nothing is dirty here */
	m.meta.clean = true;
	m.meta.next_revision = le_core_next_revision(m.core);
	PG_TRY();
	{
		begin_transaction();
		if (le_store_find())
			le_store_write_meta(&m.meta);
		(void) commit_transaction(true);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(m.batch_context);
		error = CopyErrorData();
		EmitErrorReport();
		FlushErrorState();
		AbortCurrentTransaction();
		FreeErrorData(error);
	}
	PG_END_TRY();
}

/* --- running --- */

int
le_batch_all_slots(uint32 *procs)
{
	int			n = 0;

	for (int i = 0; i < le_shared->max_slots; i++)
	{
		LeRequestSlot *slot = slot_of(i);

		if (slot->session == 0 || slot->database != m.index)
			continue;
		if (pg_atomic_read_u32(&slot->posted) != pg_atomic_read_u32(&slot->answered) ||
			pg_atomic_read_u32(&slot->mail) != 0 ||
			pg_atomic_read_u64(&slot->undo) != 0)
			procs[n++] = i;
	}
	return n;
}

/*
 * Those that wait go on waiting.  Mail, and what a commit has released, stay
 * where they are and are tried again; a backend that wants to go on before
 * that is told why it cannot.
 */
static void
fail_requests(const uint32 *procs, int n, const ErrorData *error)
{
	for (int i = 0; i < n; i++)
	{
		LeRequestSlot *slot = slot_of(procs[i]);
		bool		unanswered = pg_atomic_read_u32(&slot->posted) !=
			pg_atomic_read_u32(&slot->answered);

		if (slot->session == 0 || slot->revision != 0)
			continue;
		if (unanswered && slot->kind != LE_REQUEST_RELEASE_MANY)
			answer_error(procs[i], error->sqlerrcode, error_text(error));
		else if (unanswered || pg_atomic_read_u64(&slot->undo) != 0)
		{
			put_error(slot, error->sqlerrcode, error_text(error));
			pg_write_barrier();
			pg_atomic_fetch_or_u32(&slot->note, LE_NOTE_UNREAD);
			le_wake((int) procs[i]);
		}
	}
	m.retry_at = le_clock() + RETRY_AFTER;
}

static void
run_one_by_one(uint32 *procs, int n)
{
	ErrorData  *error;

	for (int i = 0; i < n; i++)
	{
		while (!try_batch(&procs[i], 1, false, &error))
		{
			/* rewritten once more: no fault of this request */
			bool		again = m.rewritten;

			if (!again)
				fail_requests(&procs[i], 1, error);
			if (!try_reload(&error))
			{
				fail_requests(&procs[i], n - i, error);
				return;
			}
			if (!again)
				break;
		}
	}
	if (!try_batch(NULL, 0, true, &error))
	{
		m.expire_after = le_clock() + RETRY_AFTER;
		(void) try_reload(&error);
	}
}

void
le_batch_run(uint32 *procs, int n)
{
	ErrorData  *error;

	if (m.retry_at != 0 && m.retry_at <= le_clock())
	{
		m.retry_at = 0;
		n = le_batch_all_slots(procs);
	}
	if (!m.core_valid && !try_reload(&error))
	{
		fail_requests(procs, n, error);
		return;
	}
	if (try_batch(procs, n, le_clock() >= m.expire_after, &error))
		return;
	if (!try_reload(&error))
		fail_requests(procs, n, error);
	else
		run_one_by_one(procs, n);
}

bool
le_batch_is_gone(void)
{
	return m.gone;
}

void
le_batch_gone(void)
{
	for (int i = 0; i < le_shared->max_slots; i++)
	{
		LeRequestSlot *slot = slot_of(i);

		if (slot->session == 0 || slot->database != m.index)
			continue;
		if (pg_atomic_read_u32(&slot->posted) != pg_atomic_read_u32(&slot->answered))
			answer_error(i, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						 "extension lock_election was dropped");
		pg_atomic_write_u64(&slot->undo, 0);
		if (pg_atomic_read_u32(&slot->mail) & LE_MAIL_SESSION_END)
			le_slot_clear(slot);
		pg_atomic_write_u32(&slot->mail, 0);
		le_wake(i);
	}
}

void
le_batch_check_stall(LeTime slept_until, const uint32 *procs, int n)
{
	LeTime		now = le_clock(),
				since = slept_until != 0 ? Min(slept_until, now) : m.awake_at;

	for (int i = 0; i < n; i++)
	{
		LeRequestSlot *slot = slot_of(procs[i]);

		/* it rang then, and nobody looked */
		if (pg_atomic_read_u32(&slot->posted) != pg_atomic_read_u32(&slot->answered) &&
			m.taken[procs[i]] != pg_atomic_read_u32(&slot->posted) &&
			slot->revision == 0 && slot->posted_at > m.awake_at)
			since = Min(since, slot->posted_at);
	}
	if (now - since > STALL)
	{
		m.shift += now - since;
		pg_atomic_fetch_add_u64(&m.db->counters.stalls, 1);
		ereport(LOG,
				(errmsg("the lock_election manager did not run for %ld ms; all leases go on by as much",
						(long) ((now - since) / LE_MS))));
	}
	m.awake_at = now;
}

LeTime
le_batch_next_wakeup(void)
{
	LeTime		deadline,
				wakeup = LE_NEVER;

	if (m.retry_at != 0)
		wakeup = m.retry_at;
	if (!m.core_valid)
		return wakeup;
	if (m.reenter || anything_to_write() || le_core_answers(m.core) != NULL)
		return 0;
	deadline = le_core_next_deadline(m.core);
	if (deadline != LE_NEVER)
	{
		deadline = Max(deadline + m.shift, m.expire_after);
		wakeup = Min(wakeup, Min(deadline, le_clock() + HEARTBEAT));
	}
	return wakeup;
}

void
le_batch_init(LeDatabase *db)
{
	int			n = le_shared->max_slots;

	m.db = db;
	m.index = (int) (db - le_shared->databases);
	m.taken = MemoryContextAllocZero(TopMemoryContext, n * sizeof(uint32));
	m.fresh = MemoryContextAllocZero(TopMemoryContext, n * sizeof(uint32));
	m.mails = MemoryContextAllocZero(TopMemoryContext, n * sizeof(Mail));
	m.deferred = MemoryContextAllocZero(TopMemoryContext, n * sizeof(Deferred));
	for (int i = 0; i < n; i++)
		m.taken[i] = pg_atomic_read_u32(&slot_of(i)->answered);
	m.batch_context = AllocSetContextCreate(TopMemoryContext, "lock_election batch",
											ALLOCSET_DEFAULT_SIZES);
	m.awake_at = le_clock();
}
