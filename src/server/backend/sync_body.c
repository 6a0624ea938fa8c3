/*
 * backend/sync_body.c
 *		Writes the body of a lease_sync() call to the session's mailbox and reads the reply, see
 *		shared/sync_format.h.
 */
#include "postgres.h"

#include "backend/sync_body.h"
#include "shared/names.h"

/* --- the request --- */

/* Returns the part of an item that precedes its texts in the body. */
static LeSyncItem
item_of(const LeSyncSpec *spec)
{
	return (LeSyncItem){.number = spec->number,
						.hold_for = spec->hold_for,
						.name_len = (uint16) spec->name.len,
						.owner_len = (uint16) spec->owner.len,
						.value_len = (uint16) spec->value.len,
						.action = (uint8) spec->action,
						.has_owner = spec->owner.data != NULL,
						.has_value = spec->value.data != NULL,
						.more = spec->more};
}

static char *
put_text(char *to, LeText text)
{
	if (text.len > 0)
		memcpy(to, text.data, text.len);
	return to + text.len;
}

void
le_sync_put(LeMailbox *box, const LeSync *sync, uint32 at)
{
	LeSyncHead head = {
		.call = sync->call, .incarnation = sync->incarnation, .seen = sync->seen, .begun = sync->begun};
	Size size = sync->nitems * sizeof(LeReply) + sizeof(head);
	char *to;

	for (uint32 i = 0; i < sync->nitems; i++)
	{
		LeSyncItem item = item_of(&sync->items[i]);

		size += le_sync_item_size(&item);
	}
	to = le_body_new(box, at, size, LE_SYNC_BODY);
	to += sync->nitems * sizeof(LeReply);
	memcpy(to, &head, sizeof(head));
	to += sizeof(head);
	for (uint32 i = 0; i < sync->nitems; i++)
	{
		const LeSyncSpec *spec = &sync->items[i];
		LeSyncItem item = item_of(spec);

		memcpy(to, &item, sizeof(item));
		(void) put_text(put_text(put_text(to + sizeof(item), spec->name), spec->owner), spec->value);
		to += le_sync_item_size(&item);
	}
	box->sync_items = sync->nitems;
}

/* --- the reply --- */

void
le_sync_read(const LeMailbox *box, LeSync *sync)
{
	sync->answered = box->sqlstate == 0;
	if (!sync->answered)
	{
		sync->sqlstate = box->sqlstate;
		sync->message = pstrdup(box->message);
		return;
	}
	sync->renewal = box->reply;
	if (box->reply.status != LE_OK)
		return;
	sync->told = box->sync;
	if (sync->nitems > 0 && box->sync.applied)
		memcpy(sync->results, le_body_mine(box), sync->nitems * sizeof(LeReply));
	if (box->sync.from_start)
		resetStringInfo(&sync->news);
	appendBinaryStringInfo(&sync->news, box->payload + box->answer_at, (int) box->answer_len);
}
