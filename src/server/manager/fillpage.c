/*
 * manager/fillpage.c
 *		Fills pages of the live state, for views and current_leader().
 *		backend/session_page.c has the backend's side.
 */
#include "postgres.h"

#include "manager/fillpage.h"
#include "manager/reload.h"
#include "manager/state.h"
#include "shared/page_format.h"

/*
 * Maximum number of lock indexes visited per page, including unused ones; for a lease, the number of entries
 * visited in its list and in queues.
 */
#define INDEXES_A_PAGE 1024

typedef struct LivePage
{
	char *data;
	uint32 size;
	uint32 len;
	LeTime now;
	bool of_lease;
} LivePage;

static TimestampTz
wall_time(LeTime t, LeTime now)
{
	return t == LE_NEVER ? DT_NOEND : le_wall(now) + t - now;
}

static TimestampTz
expires_at(const LeEntry *entry, LeTime now)
{
	if (entry->state == LE_STATE_LAPSED)
		return wall_time(entry->lapsed_at, now);
	return wall_time(le_entry_deadline(entry), now);
}

/* Returns the wall-clock time until which a name is closed; 0 = the name is open. */
static TimestampTz
closed_until(LeTime until, LeTime now)
{
	return until > now ? wall_time(until, now) : 0;
}

/* Copies a text, which may be empty.  Returns the end of the copy. */
static char *
put_text(char *to, LeText text)
{
	if (text.len > 0)
		memcpy(to, text.data, text.len);
	return to + text.len;
}

/*
 * Adds an item with this name to the page, with room for "texts" more bytes.  Returns NULL if the page is
 * full.
 */
static LePageItem *
new_item(LivePage *page, LeText name, uint32 texts)
{
	LePageItem *item = (LePageItem *) (page->data + page->len);
	uint32 size = MAXALIGN(sizeof(LePageItem) + name.len + texts);

	Assert(page->len <= page->size && page->len == MAXALIGN(page->len));
	if (page->len + size > page->size)
		return NULL;
	memset(item, 0, sizeof(*item));
	item->slot = -1;
	item->name_len = (uint16) name.len;
	(void) put_text((char *) (item + 1), name);
	page->len += size;
	return item;
}

/* Adds an item like new_item(), and sets the members that describe the lock. */
static LePageItem *
new_item_of(LivePage *page, const LeLock *lock, uint32 texts)
{
	LePageItem *item = new_item(page, (LeText){lock->name, lock->name_len}, texts);

	if (item == NULL)
		return NULL;
	item->waiters = lock->waiting;
	item->kind = lock->kind;
	item->closed_until = closed_until(lock->closed_until, page->now);
	return item;
}

/*
 * Returns the name on whose channel the grant of the entry's group is announced; NULL = the entry is not in a
 * group.
 */
static LeText
announced_name(const LeEntry *entry)
{
	const LeLock *lock;

	if (entry->state != LE_STATE_QUEUED || !entry->grouped)
		return (LeText){NULL, 0};
	lock = entry->waiter->group->members->lock;
	return (LeText){lock->name, lock->name_len};
}

/* Adds a holder (position 0) or a waiter to the page.  Returns NULL if the page is full. */
static LePageItem *
put_item(LivePage *page, const LeLock *lock, const LeEntry *entry, uint32 position)
{
	LeText owner = {entry->owner, entry->owner_len}, value, acquirer = {NULL, 0};
	LePageItem *item;
	char *text;

	value = page->of_lease ? announced_name(entry) : (LeText){entry->value, entry->value_len};
	if (entry->acquirer != NULL && !page->of_lease)
		acquirer = (LeText){entry->acquirer->text, entry->acquirer->len};
	item = new_item_of(page, lock, owner.len + value.len + acquirer.len);

	Assert(position == 0 ? le_entry_has_slot(entry) : entry->state == LE_STATE_QUEUED);
	if (item == NULL)
		return NULL;
	item->token = entry->token;
	item->lease = le_entry_named_lease(entry) ? entry->lease->id : 0;
	item->since = wall_time(position ? entry->waiter->since : entry->acquired_at, page->now);
	item->expires_at = expires_at(entry, page->now);
	item->time_left_us = entry->state == LE_STATE_LAPSED ? 0 : le_entry_time_left(entry, page->now);
	item->session = entry->session;
	item->role = entry->role;
	if (position == 0)
		item->slot = entry->slot->number;
	item->holds = (int32) le_entry_holds(entry);
	item->position = position;
	item->value_len = (uint16) value.len;
	item->owner_len = (uint8) owner.len;
	item->acquirer_len = (uint8) acquirer.len;
	item->named = owner.data != NULL;
	item->mode = entry->mode;
	item->lapsed = entry->state == LE_STATE_LAPSED;
	item->evicted = entry->evicted;
	if (item->lapsed && item->closed_until == 0)
		item->closed_until = closed_until(entry->closed_until, page->now);

	/* append the texts, after the name */
	text = put_text((char *) (item + 1) + lock->name_len, owner);
	text = put_text(text, value);
	(void) put_text(text, acquirer);
	return item;
}

/*
 * Returns the first slot that earlier pages have not listed; NULL = none.  No slot is ever removed from the
 * list of a lock, and new slots are inserted at its front.
 */
static const LeSlot *
next_slot(const LeLock *lock, const LePageCursor *from, const LeEntry *last)
{
	int32 number = (int32) (-from->last - 1);
	const LeSlot *slot = lock->slots;

	if (from->last == 0)
		return slot;
	if (from->last > 0)
		return NULL;
	if (last != NULL && le_entry_has_slot(last) && last->slot->number == number)
		return last->slot->next;
	while (slot != NULL && slot->number != number)
		slot = slot->next;
	return slot != NULL ? slot->next : NULL;
}

/* Value of LePageCursor.last if the last item was a closed name.  No slot has this value. */
#define LAST_CLOSED (-(int64) PG_INT32_MAX - 1)

/*
 * Returns the queue link of the first waiter that earlier pages have not listed; the head of the queue =
 * none.  Sets *position to that of the waiter before it.
 */
static const LeLink *
next_waiter(const LeLock *lock, const LePageCursor *from, const LeEntry *last, uint32 *position)
{
	const LeLink *link = lock->queue.next;

	*position = 0;
	if (from->last <= 0)
		return link;
	if (last != NULL && last->state == LE_STATE_QUEUED)
	{
		*position = from->position;
		return last->waiter->queue_link.next;
	}
	for (; link != &lock->queue && le_queued(link)->token <= from->last; link = link->next)
		(*position)++;
	return link;
}

/*
 * Adds the items of a lock from the cursor on.  Returns false if the page is full.
 *
 * The last entry of the previous page is found by its token, because counting thousands of holders or waiters
 * again for each page would take too long.  They are counted only if that entry has ended since then.
 */
static bool
put_lock(LivePage *page, const LeCore *core, const LeLock *lock, LePageCursor *from)
{
	LeText name = {lock->name, lock->name_len};
	const LeEntry *last =
		from->last == 0 ? NULL : le_core_find_entry(core, (LeKind) lock->kind, name, from->token);
	const LeSlot *slot = next_slot(lock, from, last);
	uint32 position;
	const LeLink *link = next_waiter(lock, from, last, &position);
	int32 held PG_USED_FOR_ASSERTS_ONLY = 0;
	bool whole PG_USED_FOR_ASSERTS_ONLY = from->last == 0;

	/* add the name itself, if it is closed and has no holder */
	if (from->last == 0 && lock->held == 0 && lock->closed_until > page->now)
	{
		LePageItem *item = new_item_of(page, lock, 0);

		if (item == NULL)
			return false;
		item->role = lock->closed_by;
		from->last = LAST_CLOSED;
	}

	/* holders */
	for (; slot != NULL; slot = slot->next)
	{
		if (le_slot_holder(slot) == NULL)
			continue;
		if (put_item(page, lock, le_slot_holder(slot), 0) == NULL)
			return false;
		*from = (LePageCursor){
			.index = from->index, .last = -(int64) slot->number - 1, .token = le_slot_holder(slot)->token};
		held++;
	}
	Assert(!whole || held == lock->held);

	/* waiters */
	for (; link != &lock->queue; link = link->next)
	{
		const LeEntry *entry = le_queued(link);

		if (put_item(page, lock, entry, ++position) == NULL)
			return false;
		*from = (LePageCursor){from->index, entry->token, entry->token, position};
	}
	Assert(!whole || position == lock->waiting);
	return true;
}

/* Adds locks from the cursor on, until the page is full. */
static void
put_locks(LivePage *page, const LeCore *core, LePageCursor *next)
{
	int64 end = Min((int64) le_core_lock_indexes(core), next->index + INDEXES_A_PAGE);

	for (; next->index < end; next->index++, next->last = 0)
	{
		LeLock *lock = le_core_lock_at(core, (uint32) next->index);

		if (lock != NULL && !put_lock(page, core, lock, next))
			return;
	}
	if (next->index >= le_core_lock_indexes(core))
		next->index = -1;
}

/* Adds named leases from the cursor on, until the page is full. */
static void
put_leases(LivePage *page, const LeCore *core, LePageCursor *next)
{
	int64 end = Min((int64) le_core_lease_indexes(core), next->index + INDEXES_A_PAGE);

	for (; next->index < end; next->index++)
	{
		const LeLease *lease = le_core_lease_at(core, (uint32) next->index);
		LePageItem *item = lease != NULL ? new_item(page, (LeText){NULL, 0}, lease->owner_len) : NULL;

		if (lease == NULL)
			continue;
		if (item == NULL)
			return;
		item->lease = lease->id;
		item->ttl_us = lease->ttl;
		item->expires_at = wall_time(lease->deadline, page->now);
		item->time_left_us = Max(lease->deadline - page->now, 0);
		item->role = lease->role;
		item->owner_len = lease->owner_len;
		item->named = lease->owner != NULL;
		(void) put_text((char *) (item + 1), (LeText){lease->owner, lease->owner_len});
	}
	if (next->index >= le_core_lease_indexes(core))
		next->index = -1;
}

#ifdef USE_ASSERT_CHECKING
/*
 * Asserts that a page consists of whole items.  For each lock, the holders come first, then the waiters in
 * order.  Unless the page is the last one, the cursor must have advanced to the last item of the page or to
 * the start of another lock.
 */
static void
assert_page(const LivePage *page, const LePageCursor *from, const LePageCursor *next)
{
	const LePageItem *item = NULL, *last = NULL;

	for (uint32 at = 0; at < page->len; at += le_page_size(item), last = item)
	{
		item = (const LePageItem *) (page->data + at);
		Assert(at + le_page_size(item) <= page->len);
		Assert((item->slot >= 0) ==
			   (item->kind != LE_PAGE_LEASES && item->token != 0 && item->position == 0));
		Assert(item->kind != LE_PAGE_LEASES || (item->token == 0 && item->lease != 0));
		Assert(item->position <= 1 || last == NULL || item->position == last->position + 1);
		Assert(item->position <= item->waiters || from->last > 0); /* if earlier pages listed waiters, some of
																    * those may have left */
	}
	if (next->index < 0)
		return;
	Assert(next->index > from->index || (next->index == from->index && page->len > 0));
	if (next->last > 0)
		Assert(last != NULL && last->token == next->last && last->position == next->position);
	else if (next->last < 0 && next->last != LAST_CLOSED)
		Assert(last != NULL && last->slot == -1 - next->last && last->token == next->token);
	else if (next->last == LAST_CLOSED)
		Assert(last != NULL && last->token == 0 && last->closed_until != 0);
}
#else
#define assert_page(page, from, next) ((void) 0)
#endif

/* Overwrites the request with the page.  The reply is given immediately, so the request is not read again. */
void
le_page_fill(const LeCore *core, LeMailbox *box, LeTime now)
{
	LivePage page = {.data = box->payload, .size = sizeof(box->payload), .now = now};
	const LeLock *lock;

	box->next_page = box->page.from;
	box->answer_at = 0;
	if (box->page.kind == LE_PAGE_LEASES)
		put_leases(&page, core, &box->next_page);
	else if (!box->name.given)
		put_locks(&page, core, &box->next_page);
	else
	{
		lock = le_core_find_lock(core, box->page.kind, le_mailbox_text(box, box->name));
		if (lock == NULL || put_lock(&page, core, lock, &box->next_page))
			box->next_page.index = -1;
	}
	Assert(page.len <= page.size);
	assert_page(&page, &box->page.from, &box->next_page);
	box->answer_len = page.len;
}

/* --- leaders --- */

void
le_page_find_leader(const LeCore *core, LeCommand *cmd)
{
	const LeLock *lock = le_core_find_lock(core, cmd->kind, cmd->name);

	cmd->token = -1;
	for (const LeSlot *slot = lock != NULL ? lock->slots : NULL; slot != NULL; slot = slot->next)
	{
		if (le_slot_holder(slot) != NULL)
			cmd->token = le_slot_holder(slot)->token;
	}
}

void
le_page_put_leader(const LeCore *core, const LeCommand *cmd, LeMailbox *box, LeTime now)
{
	const LeEntry *leader = le_core_find_entry(core, cmd->kind, cmd->name, cmd->token);

	Assert(leader != NULL && le_entry_has_slot(leader));
	box->answer_at = box->name.at + box->name.len;
	box->answer_len = leader->value_len;
	Assert(box->answer_at + box->answer_len <= sizeof(box->payload));
	memcpy(box->payload + box->answer_at, leader->value, leader->value_len);
	box->leader_since = wall_time(leader->acquired_at, now);
}

/* --- holders and places of a lease --- */

/*
 * Returns the position of a waiter in its queue.  Walks to the front of the queue, or to the waiter "known"
 * with position "known_at", because thousands of places of one lease may be in one queue.  Adds the steps to
 * *walked.
 */
static uint32
position_of(const LeEntry *entry, const LeLink *known, uint32 known_at, uint32 *walked)
{
	const LeLink *link = &entry->waiter->queue_link;
	uint32 steps = 0;

	for (; link != &entry->lock->queue && link != known; link = link->prev)
		steps++;
	*walked += steps;
	return link == known ? known_at + steps : steps;
}

/*
 * Returns whether this session may see the entry.  These are not shown: blocked calls and lapsed holders, to
 * which no token refers; evicted holders, because the lease does not keep them alive; entries whose holds may
 * all still be rolled back by other sessions.  Adds the number of holds examined to *walked, because there
 * may be thousands.
 */
static bool
is_shown(const LeEntry *entry, uint64 session, uint32 *walked)
{
	uint32 open = 0;

	if (entry->state == LE_STATE_LAPSED || entry->evicted ||
		(entry->state == LE_STATE_QUEUED && !entry->place))
		return false;
	for (const LeUncommitted *hold = entry->uncommitted; hold != NULL; hold = hold->next)
	{
		if (hold->session == session || !le_load_uncommitted(NULL, hold->session, hold->xact))
			return true;
		open++;
		++*walked;
	}
	Assert(open <= entry->hold_count);
	return open < entry->hold_count;
}

/*
 * The cursor in the command identifies the last entry of the previous page by its kind, name and token;
 * "from" identifies the load that built the core.  New entries are added at the end of the lease's list, and
 * no entry moves.  Replies LE_NOT_HELD if that entry has ended, or another load has changed the order of the
 * list; the caller then starts with the first page again.
 *
 * The reply depends on the newest row of all entries on the page.
 */
void
le_page_put_holds(const LeCore *core, const LeCommand *cmd, LeMailbox *box, LeTime now, LeReply *reply)
{
	const LeLease *lease = le_core_find_lease(core, cmd->lease);
	const LeEntry *last = le_core_find_entry(core, cmd->kind, cmd->name, cmd->token);
	const LeLink *link, *queued = NULL;
	uint32 at = MAXALIGN(box->name.at + box->name.len), walked = 0, position = 0;
	LivePage page = {
		.data = box->payload + at, .size = sizeof(box->payload) - at, .now = now, .of_lease = true};

	/* check the cursor */
	if (cmd->from != 0 && (cmd->from != (int64) le_mgr.loaded_lsn || last == NULL || last->lease != lease))
	{
		reply->status = LE_NOT_HELD;
		return;
	}
	/* add entries until the page is full */
	link = cmd->from != 0 ? last->lease_link.next : lease->entries.next;
	for (; link != &lease->entries && walked < INDEXES_A_PAGE; link = link->next)
	{
		const LeEntry *entry = le_container(link, LeEntry, lease_link);
		bool waits = entry->state == LE_STATE_QUEUED;
		LePageItem *item;

		if (waits)
		{
			position = position_of(entry, queued, position, &walked);
			queued = &entry->waiter->queue_link;
			Assert(position > 0 && position <= entry->lock->waiting);
		}
		item = put_item(&page, entry->lock, entry, waits ? position : 0);
		if (item == NULL)
			break;
		item->shown = is_shown(entry, cmd->session, &walked);
		reply->lsn = Max(reply->lsn, entry->lsn);
		reply->wrote |= le_entry_row(entry)->dirty;
	}
	/* set where to continue */
	reply->next = link != &lease->entries ? (int64) le_mgr.loaded_lsn : 0;
	Assert(page.len <= page.size && (reply->next == 0 || page.len > 0));
	box->answer_at = at;
	box->answer_len = page.len;
}
