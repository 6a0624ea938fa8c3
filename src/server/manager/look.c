/*
 * manager/look.c
 *		Pages of the live state, for views and current_leader().  The backend's
 *		half is backend/look.c.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "manager/look.h"
#include "shared/look.h"
#include "shared/shmem.h"

/* Locks that one page looks at, empty places included. */
#define PLACES_A_PAGE 1024

typedef struct Page
{
	char *data;
	uint32 size;
	uint32 len;
	LeTime now;
} Page;

static TimestampTz
wall_time(LeTime t, LeTime now)
{
	return t == LE_NEVER ? DT_NOEND : le_wall(now) + t - now;
}

static TimestampTz
expires_at(const LeEntry *entry, LeTime now)
{
	if (entry->lapsed)
		return wall_time(entry->lapsed_at, now);
	return wall_time(entry->lease != NULL ? entry->lease->deadline : entry->deadline, now);
}

static bool
put_item(Page *page, const LeLock *lock, const LeEntry *entry, uint32 position)
{
	LeLookItem *item = (LeLookItem *) (page->data + page->len);
	uint32 size = MAXALIGN(sizeof(LeLookItem) + lock->name_len + entry->owner_len + entry->value_len);
	char *text = (char *) item + sizeof(LeLookItem);

	if (page->len + size > page->size)
		return false;
	memset(item, 0, sizeof(*item));
	item->token = entry->token;
	item->lease = le_entry_named_lease(entry) ? entry->lease->id : 0;
	item->since = wall_time(position ? entry->since : entry->acquired_at, page->now);
	item->expires_at = expires_at(entry, page->now);
	item->time_left = entry->lapsed ? 0 : le_entry_time_left(entry, page->now);
	item->session = entry->session;
	item->role = entry->role;
	item->slot = position ? -1 : entry->slot->number;
	item->holds = (int32) le_entry_holds(entry);
	item->waiters = lock->waiting;
	item->position = position;
	item->name_len = lock->name_len;
	item->value_len = entry->value_len;
	item->owner_len = entry->owner_len;
	item->named = entry->owner != NULL;
	item->kind = lock->kind;
	item->mode = entry->mode;
	item->lapsed = entry->lapsed;
	memcpy(text, lock->name, lock->name_len);
	text += lock->name_len;
	if (entry->owner_len > 0)
		memcpy(text, entry->owner, entry->owner_len);
	text += entry->owner_len;
	if (entry->value_len > 0)
		memcpy(text, entry->value, entry->value_len);
	page->len += size;
	return true;
}

/* Slots stay in their list as long as the lock lives; new ones come first. */
static const LeSlot *
slot_after(const LeLock *lock, int32 number)
{
	const LeSlot *slot = lock->slots;

	while (slot != NULL && slot->number != number)
		slot = slot->next;
	return slot != NULL ? slot->next : NULL;
}

/* A lock's items behind *last; false: the page is full. */
static bool
put_lock(Page *page, const LeLock *lock, int64 *last)
{
	const LeSlot *slot = *last == 0 ? lock->slots : *last < 0 ? slot_after(lock, (int32) (-*last - 1)) : NULL;
	uint32 position = 0;

	for (; slot != NULL; slot = slot->next)
	{
		if (slot->holder == NULL)
			continue;
		if (!put_item(page, lock, slot->holder, 0))
			return false;
		*last = -(int64) slot->number - 1;
	}
	for (const LeLink *link = lock->queue.next; link != &lock->queue; link = link->next)
	{
		const LeEntry *entry = le_container(link, LeEntry, queue_link);

		position++;
		if (*last > 0 && entry->token <= *last)
			continue;
		if (!put_item(page, lock, entry, position))
			return false;
		*last = entry->token;
	}
	return true;
}

uint32
le_look_fill(const LeCore *core, const LeCommand *cmd, LeLookCursor *cursor, char *data, uint32 size,
			 LeTime now)
{
	Page page = {.data = data, .size = size, .len = 0, .now = now};
	int64 end;

	if (cmd->name.data != NULL)
	{
		LeLock *lock = le_core_find_lock(core, cmd->kind, cmd->name);

		if (lock == NULL || put_lock(&page, lock, &cursor->last))
			cursor->place = -1;
		return page.len;
	}
	end = Min((int64) le_core_lock_indexes(core), cursor->place + PLACES_A_PAGE);
	for (; cursor->place < end; cursor->place++, cursor->last = 0)
	{
		LeLock *lock = le_core_lock_at(core, (uint32) cursor->place);

		if (lock != NULL && !put_lock(&page, lock, &cursor->last))
			return page.len;
	}
	if (cursor->place >= le_core_lock_indexes(core))
		cursor->place = -1;
	return page.len;
}

/* --- leaders --- */

void
le_look_find_leader(const LeCore *core, LeCommand *cmd)
{
	const LeLock *lock = le_core_find_lock(core, cmd->kind, cmd->name);

	cmd->token = -1;
	for (const LeSlot *slot = lock != NULL ? lock->slots : NULL; slot != NULL; slot = slot->next)
	{
		if (slot->holder != NULL)
			cmd->token = slot->holder->token;
	}
}

void
le_look_put_leader(const LeCore *core, const LeCommand *cmd, LeRequestSlot *slot, LeReply *reply, LeTime now)
{
	const LeEntry *leader = le_core_find_entry(core, cmd->kind, cmd->name, cmd->token);

	if (reply->status != LE_OK)
		return;
	Assert(cmd->name.len + leader->value_len <= sizeof(slot->payload));
	memcpy(slot->payload + cmd->name.len, leader->value, leader->value_len);
	slot->payload_len = leader->value_len;
	reply->count = wall_time(leader->acquired_at, now);
}

/* --- leases --- */

uint32
le_look_fill_leases(const LeCore *core, int64 *cursor, char *data, uint32 size, LeTime now)
{
	uint32 place = (uint32) *cursor, end = Min(le_core_lease_indexes(core), place + PLACES_A_PAGE), len = 0;

	for (; place < end; place++)
	{
		LeLease *lease = le_core_lease_at(core, place);
		LeLookLease *item = (LeLookLease *) (data + len);
		uint32 item_size;

		if (lease == NULL)
			continue;
		item_size = MAXALIGN(sizeof(LeLookLease) + lease->owner_len);
		if (len + item_size > size)
			break;
		memset(item, 0, sizeof(*item));
		item->id = lease->id;
		item->ttl = lease->ttl;
		item->expires_at = wall_time(lease->deadline, now);
		item->time_left = Max(lease->deadline - now, 0);
		item->role = lease->role;
		item->owner_len = lease->owner_len;
		item->named = lease->owner != NULL;
		if (lease->owner_len > 0)
			memcpy((char *) item + sizeof(LeLookLease), lease->owner, lease->owner_len);
		len += item_size;
	}
	*cursor = place < le_core_lease_indexes(core) ? (int64) place : -1;
	return len;
}
