/*
 * backend/session_page.c
 *		Reads the live state, page by page.  The manager's part is in manager/fillpage.c.
 */
#include "postgres.h"

#include "backend/session_mailbox.h"
#include "backend/session_page.h"
#include "backend/session_request.h"
#include "shared/page_format.h"
#include "shared/shmem.h"

/*
 * Calls the callback for each item of a page.  Copies the page first, so that the callback may make requests.
 * Returns the last item, or NULL.
 */
static const LePageItem *
each_item(LeText page, char *copy, LePageCallback callback, void *arg)
{
	const LePageItem *last = NULL;

	Assert(page.len <= LE_PAYLOAD_SIZE);
	memcpy(copy, page.data, page.len);
	for (uint32 at = 0; at < page.len; at += le_page_size(last))
	{
		last = (const LePageItem *) (copy + at);
		Assert(at + le_page_size(last) <= page.len);
		callback(arg, last);
	}
	return last;
}

void
le_page_each(LeKind kind, LeText name, LePageCallback callback, void *arg)
{
	char *copy = palloc(LE_PAYLOAD_SIZE);
	LePageRequest request = {.kind = kind, .name = name};

	while (request.from.index >= 0)
		(void) each_item(le_request_page(&request), copy, callback, arg);
}

void
le_page_holds(LeCommand *cmd, LeReply *reply, char *copy, LePageCallback callback, void *arg)
{
	const LePageItem *last;
	LeText page;

	le_request(cmd, reply, false);
	cmd->from = reply->next;
	if (reply->status != LE_OK)
		return;
	page = (LeText){le_my_mailbox->payload + le_my_mailbox->answer_at, le_my_mailbox->answer_len};
	last = each_item(page, copy, callback, arg);
	if (last == NULL)
		return;
	cmd->kind = (LeKind) last->kind;
	cmd->name = le_page_texts(last).name;
	cmd->token = last->token;
}
