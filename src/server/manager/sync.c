/*
 * manager/sync.c
 *		lease_sync(): a lease is renewed, then what its client asks for is carried out,
 *		then it is told the news of the lease.
 *
 * In this order:
 *
 *	1.	The lease is renewed; nothing of the rest can keep that from happening.  It was
 *		renewed at the begin of the batch as well, like all leases that are kept alive.
 *	2.	Is the call new?  One with a number that is no higher than that of an earlier one
 *		is old: its sender has given it up.  One that has seen news of another manager may be
 *		old as well, for the numbers of calls are not stored.  Nothing that an old call asks
 *		for is carried out.
 *	3.	Releases, then all other items, each for itself, in their order.  A refusal is the
 *		result of that item alone.
 *	4.	News since those that the client has seen; what the results tell is left out.
 *
 * The reply has one LSN for all that it tells.  Whether the client waits for that is its
 * session's business (backend/session_sync.h).
 */
#include "postgres.h"

#include "manager/manager.h"
#include "shared/compat.h"
#include "shared/names.h"
#include "shared/sync_format.h"

/* To look at so much of a lease's news takes as long as one entry's end. */
#define WORK_LOOKS 20

/* A call, as it was read from its mailbox. */
typedef struct Call
{
	const LeSyncHead *head;
	const LeSyncItem **items;
	uint32 nitems;
	LeReply *results; /* of each item; of several names of a request the first */
	LeLease *lease;
} Call;

/* --- reading --- */

/* False: the call was withdrawn. */
static bool
read_call(LeMailbox *box, Call *call)
{
	uint32 n = box->sync_items;
	const char *body = le_body_get(box);
	const char *at;

	if (body == NULL)
		return false;
	call->nitems = n;
	call->results = palloc0_array(LeReply, n);
	call->items = palloc_array(const LeSyncItem *, n);
	call->head = (const LeSyncHead *) (body + n * sizeof(LeReply));
	Assert(n <= LE_SYNC_ITEMS + LE_SYNC_NAMES);
	at = (const char *) (call->head + 1);
	for (uint32 i = 0; i < n; i++)
	{
		call->items[i] = (const LeSyncItem *) at;
		Assert(call->items[i]->action < LE_SYNC_ACTIONS && call->items[i]->name_len <= LE_MAX_NAME);
		at += le_sync_item_size(call->items[i]);
	}
	Assert(n == 0 || !call->items[n - 1]->more);
	return true;
}

static LeText
name_of(const LeSyncItem *item)
{
	return (LeText){(const char *) (item + 1), item->name_len};
}

static LeMode
mode_of(LeSyncAction action)
{
	switch (action)
	{
		case LE_SYNC_TRY_SHARED:
		case LE_SYNC_ENQUEUE_SHARED:
			return LE_MODE_SHARED;
		case LE_SYNC_TRY_PERMIT:
		case LE_SYNC_ENQUEUE_PERMIT:
			return LE_MODE_PERMIT;
		default:
			return LE_MODE_EXCLUSIVE;
	}
}

/* The command of the item at i, with all its names; *next is the item behind it. */
static LeCommand
read_item(const LeMailbox *box, const Call *call, uint32 i, uint32 *next)
{
	const LeSyncItem *item = call->items[i];
	LeSyncAction action = (LeSyncAction) item->action;
	LeCommand cmd = {.kind = le_sync_elects(action) ? LE_KIND_ELECTION : LE_KIND_LOCK,
					 .name = name_of(item),
					 .lease = call->lease->id,
					 .role = box->command.role,
					 .session = box->session,
					 .sessno = le_mailbox_proc(box),
					 .xact = box->command.xact,
					 .request = box->command.request};

	*next = i + 1;
	if (le_sync_releases(action))
	{
		cmd.type = LE_CMD_RELEASE;
		cmd.token = item->number;
		cmd.hold_for = item->hold_for;
		cmd.all_holds = true;
		cmd.later = !box->durable_release && !le_waits_for_standby(box->need_standby);
		return cmd;
	}
	if (item->has_value)
		cmd.value = (LeText){cmd.name.data + item->name_len + item->owner_len, item->value_len};
	if (action == LE_SYNC_PROCLAIM)
	{
		cmd.type = LE_CMD_PROCLAIM;
		cmd.token = item->number;
		cmd.lease = 0;
		return cmd;
	}
	cmd.type = LE_CMD_ACQUIRE;
	cmd.mode = mode_of(action);
	cmd.permits = cmd.mode == LE_MODE_PERMIT ? (int32) item->number : 0;
	cmd.ttl = call->lease->ttl;
	cmd.enqueue = cmd.tells_lease = action >= LE_SYNC_ENQUEUE_LOCK;
	cmd.acquirer = le_mailbox_text((LeMailbox *) box, box->acquirer);
	if (item->has_owner)
		cmd.owner = (LeText){cmd.name.data + item->name_len, item->owner_len};

	/* several names */
	while (call->items[*next - 1]->more)
		++*next;
	if (*next > i + 1)
	{
		LeText *names = palloc_array(LeText, *next - i);

		for (uint32 n = i; n < *next; n++)
			names[n - i] = name_of(call->items[n]);
		cmd.names = names;
		cmd.nnames = *next - i;
	}
	return cmd;
}

/* --- 2. old calls --- */

static bool
is_new(const Call *call)
{
	if (call->head->incarnation != le_mgr.incarnation &&
		!(call->head->incarnation == 0 && call->lease->granted_here))
		return false;
	return le_core_take_call(le_mgr.core, call->lease, call->head->call);
}

/* --- 3. items --- */

/*
 * What an item rests on is what the reply rests on.  A release that may return after a crash rests
 * on nothing, but is told when it is committed.
 */
static void
merge(const LeMailbox *box, const LeReply *result, LeReply *reply, bool *commits)
{
	if (le_answer_may_return(result, box->durable_release, box->need_standby))
		*commits |= result->wrote;
	else
	{
		reply->wrote |= result->wrote;
		reply->lsn = Max(reply->lsn, result->lsn);
	}
}

/* Releases, or all others. */
static void
apply_items(Batch *batch, const LeMailbox *box, Call *call, bool releases, LeReply *reply, bool *commits)
{
	for (uint32 i = 0, next; i < call->nitems; i = next)
	{
		LeCommand cmd = read_item(box, call, i, &next);
		LeReply *result = &call->results[i];

		if (le_sync_releases((LeSyncAction) call->items[i]->action) != releases)
			continue;
		*result = (LeReply){.status = le_memory_reserve(&cmd)};
		if (result->status == LE_OK)
			le_core_apply(le_mgr.core, &cmd, batch->now, result);
		Assert(result->status != LE_WAITING && result->displaced_session == 0);
		merge(box, result, reply, commits);
		pg_atomic_fetch_add_u64(&le_mgr.db->counters.requests[cmd.type], 1);
	}
}

/* --- 4. news --- */

/* Is it told by the result of an item of this call?  That of a proclaim tells nothing of its term. */
static bool
is_result(const Call *call, int64 token)
{
	for (uint32 i = 0; i < call->nitems; i++)
	{
		if (call->results[i].token == token && le_sync_acquires((LeSyncAction) call->items[i]->action))
			return true;
	}
	return false;
}

/* The page of news that is being filled: the rest of the payload. */
typedef struct NewsPage
{
	char *data;
	Size len, size;
} NewsPage;

/* NULL: there is no room. */
static LeNewsItem *
put_news(NewsPage *page, LeNewsItem item, const char *name, const char *owner)
{
	LeNewsItem *to = (LeNewsItem *) (page->data + page->len);

	if (page->len + le_news_size(&item) > page->size)
		return NULL;
	*to = item;
	if (item.name_len > 0)
		memcpy(to + 1, name, item.name_len);
	if (item.owner_len > 0)
		memcpy((char *) (to + 1) + item.name_len, owner, item.owner_len);
	page->len += le_news_size(&item);
	return to;
}

static bool
put_entry(NewsPage *page, const LeEntry *entry)
{
	const LeLock *lock = entry->lock;

	return put_news(page,
					(LeNewsItem){.token = entry->token,
								 .name_len = lock->name_len,
								 .owner_len = (uint8) entry->owner_len,
								 .kind = lock->kind,
								 .ending = entry->evicted ? LE_END_EVICTED : LE_END_NONE,
								 .granted = entry->state == LE_STATE_HELD,
								 .has_owner = entry->owner != NULL},
					lock->name, entry->owner) != NULL;
}

/* Is it for the client: not a call that waits, nor told already? */
static bool
is_news(const Call *call, const LeEntry *entry)
{
	return (entry->state == LE_STATE_HELD || entry->place) && !is_result(call, entry->token);
}

/*
 * A grant of this batch needs no notification where a new call tells it: if that reply is lost, or what it tells is
 * not durable in time, its client asks again by itself.
 */
static void
announce_no_more(LeEntry *entry)
{
	if (entry->state == LE_STATE_HELD && entry->waiter != NULL && entry->waiter->tells == LE_TELLS_LEASE)
		entry->waiter->tells = LE_TELLS_NOBODY;
}

/*
 * Put the news since then into the page, entries and losses in the order of their numbers, as far as
 * there is room.  told->seen is the number of the last one.
 */
static void
list_news(const Call *call, uint64 since, NewsPage *page, LeSyncTold *told, LeReply *reply, uint32 *walked)
{
	LeEntry *entry = le_news_after(call->lease, since, NULL, walked);
	const LeLoss *loss = le_news_loss(call->lease, since, 0);
	uint32 nlosses = 0;

	told->seen = since;
	while (entry != NULL || loss != NULL)
	{
		bool fits = true;

		if (loss != NULL && (entry == NULL || loss->number < entry->news))
		{
			fits =
				put_news(page, (LeNewsItem){.token = loss->token, .ending = loss->how}, NULL, NULL) != NULL;
			if (fits)
			{
				told->seen = loss->number;
				loss = le_news_loss(call->lease, since, ++nlosses);
			}
		}
		else
		{
			if (is_news(call, entry))
			{
				fits = put_entry(page, entry);
				if (fits)
				{
					reply->lsn = Max(reply->lsn, entry->lsn);
					reply->wrote |= le_entry_is_dirty(entry);
					if (told->applied)
						announce_no_more(entry);
				}
			}
			if (fits)
			{
				told->seen = entry->news;
				entry = le_news_after(call->lease, since, entry, walked);
			}
		}
		if (!fits)
		{
			told->more = true;
			return;
		}
	}
	told->seen = Max(told->seen, call->lease->newest);
}

/*
 * One that is told everything needs no losses of before: what is not there is lost.  It goes on where its last
 * page has ended, unless losses were forgotten since its first one.
 */
static void
tell_news(LeMailbox *box, const Call *call, LeReply *reply)
{
	LeSyncTold *told = &box->sync;
	uint64 seen = call->head->seen, begun = call->head->begun;
	bool known = call->head->incarnation == le_mgr.incarnation && le_news_kept(call->lease, Max(seen, begun));
	uint32 at = box->body_handle == DSM_HANDLE_INVALID ? LE_SYNC_BODY : box->body_at;
	NewsPage page = {.data = box->payload + at, .size = sizeof(box->payload) - at};
	uint32 walked = 0;

	told->incarnation = le_mgr.incarnation;
	told->from_start = !known || seen == 0;
	told->begun = told->from_start ? call->lease->newest : begun;
	told->more = false;
	told->losses = le_mgr.db->epochs[LE_EPOCH_LOSSES];
	list_news(call, known ? seen : 0, &page, told, reply, &walked);
	box->answer_at = at;
	box->answer_len = (uint32) page.len;
	le_core_worked(le_mgr.core, call->nitems / LE_FEW + walked / WORK_LOOKS);
}

/* --- a call --- */

void
le_sync_renew(Batch *batch, uint32 proc)
{
	LeCommand renewal = mailbox_of(proc)->command;
	LeReply reply;

	renewal.name = renewal.owner = renewal.value = renewal.acquirer = (LeText){NULL, 0};
	le_apply_one(batch, &renewal, &reply);
}

void
le_sync_take(Batch *batch, uint32 proc)
{
	LeMailbox *box = mailbox_of(proc);
	LeCommand renewal = box->command;
	Call call = {0};
	LeReply reply, rest = {0};
	bool commits = false, confirm;

	/* what may fail; then 1. */
	if (!read_call(box, &call))
	{
		le_answer_withdrawn(proc);
		return;
	}
	renewal.name = renewal.owner = renewal.value = renewal.acquirer = (LeText){NULL, 0};
	le_apply_one(batch, &renewal, &reply);
	if (reply.status != LE_OK)
	{
		le_answer_request(proc, renewal.request, &reply, batch->began_at);
		return;
	}
	Assert(!batch->looks_only || call.nitems == 0);
	call.lease = le_core_find_lease(le_mgr.core, renewal.lease);

	/* a row that raises the lease is told of by the reply; before it there is another one */
	box->sync.lease_lsn = reply.raised ? 0 : reply.wrote ? LE_LSN_OF_BATCH : reply.lsn;

	/* 2. and 3. */
	box->sync.applied = is_new(&call);
	if (box->sync.applied)
	{
		apply_items(batch, box, &call, true, &rest, &commits);
		apply_items(batch, box, &call, false, &rest, &commits);
		if (call.nitems > 0)
			le_body_answer(box, call.results, call.nitems * sizeof(LeReply));
	}

	/* 4. */
	tell_news(box, &call, &rest);

	/* without the rest, nobody flushes for a renewal; with it, the flush is asked for */
	confirm = le_answer_needs_standby(box, &reply);
	if (rest.wrote || rest.lsn != 0)
		reply.raised = false;
	reply.lsn = Max(reply.lsn, rest.lsn);
	reply.may_return = commits && !reply.wrote && !rest.wrote;
	reply.wrote |= rest.wrote || commits;
	if (batch->looks_only && reply.wrote)
		le_mgr.taken[proc] =
			pg_atomic_read_u32(&box->answered); /* in an outage: it rests on what cannot be written */
	else if (reply.wrote || confirm)
		le_answer_at_commit(batch, proc, renewal.request, &reply, confirm);
	else
		le_answer_request(proc, renewal.request, &reply, batch->began_at);
}
