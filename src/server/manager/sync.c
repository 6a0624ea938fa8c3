/*
 * manager/sync.c
 *		Carries out lease_sync(): renews a lease, processes the items of the call, and returns the news of the
 *		lease.
 *
 * The steps of a call:
 *
 *	1.	The lease is renewed.  No other step can prevent the renewal.  The lease was also renewed at the start
 *		of the batch, like all leases that are kept alive.
 *	2.	Old calls are detected; no item of an old call is carried out.  A call is old if its number is not
 *		higher than that of an earlier call: its sender has given up waiting for it.  A call whose sender has
 *		seen news of another manager may also be old, because the numbers of calls are not stored.
 *	3.	First the releases are carried out, then all other items, each on its own and in order.  If an item
 *		fails, only the result of that item reports it.
 *	4.	The news that the client has not seen yet is added, except news that is already in the results.
 *
 * The reply has one LSN for all its contents.  The session decides whether the client waits for it
 * (backend/session_sync.h).
 */
#include "postgres.h"

#include "manager/answer.h"
#include "manager/apply.h"
#include "manager/memory.h"
#include "manager/state.h"
#include "manager/sync.h"
#include "shared/compat.h"
#include "shared/names.h"
#include "shared/settings.h"
#include "shared/sync_format.h"

/* Number of news items of a lease that cost as much to examine as ending one entry. */
#define WORK_LOOKS 20

/* A call, as read from its mailbox. */
typedef struct Call
{
	const LeSyncHead *head;
	const LeSyncItem **items;
	uint32 nitems;
	LeReply *results; /* result of each item; if several items are the names of one request, only the first
					   * result is used */
	LeLease *lease;
} Call;

/* --- reading --- */

/* Reads a call from its mailbox.  Returns false if the call was withdrawn. */
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

/* Returns the mode of the lock that an item requests. */
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

/* Returns the command of item i, with all its names.  *next is the index of the next item. */
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

	/* collect the names of a request for several names */
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
 * Merges a result into the reply, which then depends on the same row.  A release that a crash may undo
 * depends on no row: it only sets *commits, so that the reply is given after the commit.
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

/* Applies either the releases among the items or all other items. */
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

/*
 * Returns whether the result of an item of this call reports this token.  The result of a proclaim is
 * ignored, because it does not describe the term.
 */
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

/* The page of news, which uses the rest of the mailbox's payload. */
typedef struct NewsPage
{
	char *data;
	Size len, size;
} NewsPage;

/* Adds a news item to the page.  Returns NULL if there is no room. */
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

/* Adds news about an entry to the page.  Returns false if there is no room. */
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

/* Returns whether the entry is news for the client: it is not a blocked call, and no result reports it. */
static bool
is_news(const Call *call, const LeEntry *entry)
{
	return (entry->state == LE_STATE_HELD || entry->place) && !is_result(call, entry->token);
}

/*
 * Suppresses the notification of a grant in this batch, because the reply to a new call reports it.  If that
 * reply is lost, or not durable in time, the client asks again.
 */
static void
announce_no_more(LeEntry *entry)
{
	if (entry->state == LE_STATE_HELD && entry->waiter != NULL && entry->waiter->tells == LE_TELLS_LEASE)
		entry->waiter->tells = LE_TELLS_NOBODY;
}

/*
 * Copies the news items with sequence numbers above "since" into the page, entries and losses merged by
 * number, until the page is full.  Sets told->seen to the number of the last item copied, or of the newest
 * item if all fit.
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

		/* a loss is next */
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
			/* an entry is next */
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
 * Fills in the news for a client.  If the client gets a list of all its entries, it needs no earlier losses,
 * because everything that is not in the list is lost.  The list continues where the last page ended, unless
 * losses were forgotten since the first page.
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

	/* read the call, which may fail; then step 1 */
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

	/* a raised renewal needs no LSN: until the flush, the shorter validity in the reply applies */
	box->sync.lease_lsn = reply.raised ? 0 : reply.wrote ? LE_LSN_OF_BATCH : reply.lsn;

	/* steps 2 and 3 */
	box->sync.applied = is_new(&call);
	if (box->sync.applied)
	{
		apply_items(batch, box, &call, true, &rest, &commits);
		apply_items(batch, box, &call, false, &rest, &commits);
		if (call.nitems > 0)
			le_body_answer(box, call.results, call.nitems * sizeof(LeReply));
	}

	/* step 4 */
	tell_news(box, &call, &rest);

	/* a renewal alone needs no flush, but a reply with items or news does */
	confirm = le_answer_needs_standby(box, &reply);
	if (rest.wrote || rest.lsn != 0)
		reply.raised = false;
	reply.lsn = Max(reply.lsn, rest.lsn);
	reply.may_return = commits && !reply.wrote && !rest.wrote;
	reply.wrote |= rest.wrote || commits;
	if (batch->looks_only && reply.wrote)
		le_mgr.taken[proc] =
			pg_atomic_read_u32(&box->answered); /* in an outage, the rows cannot be written, so leave the call
												 * for later */
	else if (reply.wrote || confirm)
		le_answer_at_commit(batch, proc, renewal.request, &reply, confirm);
	else
		le_answer_request(proc, renewal.request, &reply, batch->began_at);
}
