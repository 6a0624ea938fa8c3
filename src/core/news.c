/*
 * core/news.c
 *		Keeps the news of each lease, for the client that keeps the lease alive: the
 *		events of its entries.
 *
 * A client asks for all news after the newest item that it has seen, so a lost reply loses no
 * news.  The lease keeps two kinds of news:
 *
 *	entries		each entry is in lease->news once, with the number of its last event: it was
 *				created, granted, or evicted
 *	losses		holds and places that ended without a request from the client; only the newest
 *				LE_LOSSES are kept
 *
 * If a client has missed more losses than are kept, or if the core was loaded since its last
 * request, the reply lists all entries of the lease.  Any entry that is not in the list is lost.
 *
 * News is not stored.  A load gives new numbers to all entries.  After a failed batch, the new
 * numbers are higher than the old ones.
 */
#include "epoch.h"
#include "news.h"
#include "state.h"

void
le_news_add(LeCore *core, LeEntry *entry)
{
	LeLease *lease = entry->lease;

	if (lease == NULL)
		return;
	le_unlink(&entry->news_link);
	entry->news = lease->newest = ++core->news;
	le_link_before(&lease->news, &entry->news_link);
}

/*
 * Returns whether this end is a loss.  The end of a blocked call is not a loss, because the call gets
 * its own reply.  The ends of several names with one token are one loss.
 */
static bool
is_loss(const LeCore *core, const LeEntry *entry, LeEnd how)
{
	const LeLease *lease = entry->lease;

	if (how == LE_END_REPLACED || (how == LE_END_RELEASED && lease->id == core->releaser))
		return false;
	if (entry->state == LE_STATE_QUEUED && !entry->place)
		return false;
	return lease->nlosses == 0 || lease->losses[(lease->nlosses - 1) % LE_LOSSES].token != entry->token;
}

void
le_news_end(LeCore *core, LeEntry *entry, LeEnd how)
{
	LeLease *lease = entry->lease;
	LeLoss *loss;

	if (!le_linked(&entry->news_link))
		return;
	le_unlink(&entry->news_link);
	if (!is_loss(core, entry, how))
		return;
	le_epoch_raise_losses(core);
	loss = &lease->losses[lease->nlosses++ % LE_LOSSES];
	lease->forgotten = loss->number;
	lease->newest = ++core->news;
	*loss = (LeLoss){.number = lease->newest, .token = entry->token, .how = (uint8_t) how};
}

LeEntry *
le_news_after(const LeLease *lease, uint64_t seen, const LeEntry *after, uint32_t *walked)
{
	const LeLink *link = &lease->news;

	if (after != NULL)
		link = after->news_link.next;
	else if (seen == 0)
		link = lease->news.next;
	else
	{
		/* walk backwards from the newest entry */
		for (; link->prev != &lease->news; link = link->prev, ++*walked)
		{
			if (le_container(link->prev, LeEntry, news_link)->news <= seen)
				break;
		}
	}
	++*walked;
	return link != &lease->news ? le_container(link, LeEntry, news_link) : NULL;
}

/* Returns the number of losses that are still in the ring. */
static uint32_t
kept(const LeLease *lease)
{
	return lease->nlosses < LE_LOSSES ? lease->nlosses : LE_LOSSES;
}

const LeLoss *
le_news_loss(const LeLease *lease, uint64_t seen, uint32_t i)
{
	for (uint32_t at = lease->nlosses - kept(lease); at < lease->nlosses; at++)
	{
		const LeLoss *loss = &lease->losses[at % LE_LOSSES];

		if (loss->number > seen && i-- == 0)
			return loss;
	}
	return NULL;
}

bool
le_news_kept(const LeLease *lease, uint64_t seen)
{
	return seen >= lease->forgotten;
}

bool
le_core_take_call(LeCore *core, LeLease *lease, int64_t number)
{
	if (number <= lease->last_call)
		return false;
	if (lease->call_batch != core->batches)
		lease->call_before = lease->last_call;
	lease->call_batch = core->batches;
	lease->last_call = number;
	return true;
}

void
le_news_load_begin(LeCore *core)
{
	if (core->load.failed != NULL)
		core->news = core->load.failed->news + 1;
}

/*
 * Copies the number of the lease's last call from the failed core, without the calls of the failed
 * batch, because clients repeat these calls.  A client that has seen the failed core's news gets
 * all entries with its next request, because entries that the load has ended are in no list of
 * losses.
 */
void
le_news_load_lease(LeCore *core, LeLease *lease, const LeLease *failed)
{
	if (failed == NULL)
		return;
	lease->last_call =
		failed->call_batch == core->load.failed->batches ? failed->call_before : failed->last_call;
	lease->granted_here = failed->granted_here;
	lease->forgotten = lease->newest = core->load.failed->news + 1;
}
