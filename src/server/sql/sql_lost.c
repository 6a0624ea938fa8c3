/*
 * sql/sql_lost.c
 *		Composes the detail of an error LE001: how a token ended and, if the caller may see it, which holder
 *		the lock has now.
 */
#include "postgres.h"

#include "lib/stringinfo.h"

#include "backend/session_acquirer.h"
#include "backend/session_page.h"
#include "shared/words.h"
#include "sql/sql_args.h"
#include "sql/sql.h"

/* The current holders of the lock: their number, and the holder that the detail names. */
typedef struct Holder
{
	int64 asked;     /* the command's token */
	bool still_held; /* the command's token was evicted, but still holds the lock */
	int holders;
	int64 token; /* token of the named holder; 0 = there is none, or the caller may not see it */
	LeAcquirerParts acquirer;
} Holder;

/* Counts the holders, and stores the first holder that the caller may see. */
static void
note_holder(void *arg, const LePageItem *item)
{
	Holder *holder = arg;

	if (item->position != 0 || item->token == 0 || item->lapsed)
		return;
	holder->holders++;
	if (item->token == holder->asked)
		holder->still_held = true;
	if (holder->token != 0 || !le_may_see_details(item->role))
		return;
	holder->token = item->token;
	le_acquirer_parse(le_page_texts(item).acquirer, &holder->acquirer);
}

/* Appends the first sentence: how and when the token ended. */
static void
put_ending(StringInfo detail, const LeCommand *cmd, const LeReply *reply)
{
	double ago = (double) reply->ending_ago / LE_SECOND;

	Assert(reply->status != LE_OK && reply->ending_ago >= 0);

	switch ((LeEnd) reply->ending)
	{
		/* the token's client caused the end */
		case LE_END_RELEASED:
			appendStringInfo(detail, _("It was released %.1f s ago."), ago);
			break;
		case LE_END_EXPIRED:
			appendStringInfo(detail, _("It expired %.1f s ago: it was not renewed in time."), ago);
			break;

		/* others caused the end, or the cause is unknown */
		case LE_END_REVOKED:
			appendStringInfo(detail,
							 reply->status == LE_NO_LEASE ? _("It was revoked %.1f s ago.")
														  : _("Its lease was revoked %.1f s ago."),
							 ago);
			break;
		case LE_END_FORCED:
			appendStringInfo(detail, _("%s ended it %.1f s ago."),
							 cmd->kind == LE_KIND_ELECTION ? "force_resign()" : "force_release_lock()", ago);
			break;
		case LE_END_EVICTED:
			appendStringInfo(detail, _("%s evicted it, so it can no longer be renewed."),
							 cmd->kind == LE_KIND_ELECTION ? "evict_leader()" : "evict_lock()");
			break;
		case LE_END_UNDONE:
			appendStringInfo(detail, _("The transaction that acquired it was rolled back %.1f s ago."), ago);
			break;
		case LE_END_SESSION:
			appendStringInfo(detail, _("The connection that it was bound to ended %.1f s ago."), ago);
			break;
		default:
			appendStringInfoString(detail,
								   _("Nothing is known about it: it ended long ago, or was never granted."));
			break;
	}
}

/* Appends the second sentence: which holder the lock has now. */
static void
put_holder(StringInfo detail, LeKind kind, const Holder *holder)
{
	if (holder->holders == 0)
		appendStringInfoString(detail, _(" Nobody holds it now."));
	else if (holder->still_held)
		appendStringInfoString(detail, _(" It remains held until it is released or expires."));
	else if (holder->token == 0)
		appendStringInfoString(detail, _(" It is held by another role now."));
	else
	{
		appendStringInfo(detail, _(" It is held by %s " INT64_FORMAT " now"), le_token_word(kind),
						 holder->token);
		if (holder->acquirer.pid != 0)
			appendStringInfo(detail, _(", acquired by process %d"), holder->acquirer.pid);
		if (holder->acquirer.application_name != NULL)
			appendStringInfo(detail, _(" (application \"%s\")"), holder->acquirer.application_name);
		if (holder->acquirer.client_addr != NULL)
			appendStringInfo(detail, _(" from %s"), holder->acquirer.client_addr);
		appendStringInfoChar(detail, '.');
	}
}

/*
 * Reads the holders of the lock.  Returns false if that raised an error.  Discards that error, because the
 * caller is going to raise a more important one, which also ends the transaction.
 */
static bool
find_holder(const LeCommand *cmd, Holder *holder)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool found = false;

	PG_TRY();
	{
		le_page_each(cmd->kind, cmd->name, note_holder, holder);
		found = true;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
	}
	PG_END_TRY();
	return found;
}

char *
le_lost_detail(const LeCommand *cmd, const LeReply *reply)
{
	Holder holder = {.asked = cmd->token};
	StringInfoData detail;

	initStringInfo(&detail);
	put_ending(&detail, cmd, reply);
	if (find_holder(cmd, &holder))
		put_holder(&detail, cmd->kind, &holder);
	return detail.data;
}

void
le_raise_lost_token(const LeCommand *cmd, const LeReply *reply)
{
	/* composed before ereport(), because composing may catch and flush an error */
	const char *detail = le_lost_detail(cmd, reply);
	const char *word = le_token_word(cmd->kind), *named = le_named(cmd->kind, cmd->name);

	if (reply->ending == LE_END_EVICTED) /* the client may still hold the lock */
		ereport(ERROR, (errcode(ERRCODE_LE_LOST),
						errmsg("%s " INT64_FORMAT " of %s was evicted", word, cmd->token, named),
						errdetail_internal("%s", detail)));
	ereport(ERROR, (errcode(ERRCODE_LE_LOST),
					errmsg("%s " INT64_FORMAT " neither holds %s nor waits for it any more", word, cmd->token,
						   named),
					errdetail_internal("%s", detail)));
}

const char *
le_lost_wait_detail(const LeReply *reply)
{
	switch ((LeEnd) reply->ending)
	{
		case LE_END_REVOKED:
			return _("Its lease was revoked.");
		case LE_END_FORCED:
			return _("force_release_role() ended it.");
		default:
			return _("Its lease has expired.");
	}
}

char *
le_lost_lease_detail(const LeCommand *cmd, const LeReply *reply)
{
	StringInfoData detail;

	initStringInfo(&detail);
	if (reply->ending == LE_END_NONE)
		return NULL;
	put_ending(&detail, cmd, reply);
	return detail.data;
}
