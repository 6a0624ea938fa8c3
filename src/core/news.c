/*
 * core/news.c
 *		News of a lease: what has happened to its entries, for the client that keeps it
 *		alive.
 *
 * A client has seen the news of its lease up to some number.  It asks for those since
 * then, in as many calls as it likes, and so misses nothing, even if replies are lost:
 *
 *	entries		each is in lease->news once, under the number of its last event:
 *				it was created, granted, or evicted
 *	losses		ends that the client did not ask for; the newest LE_LOSSES are kept
 *
 * A client that has missed more losses than that, or has seen news from before a load of the
 * core, is told all entries; any entry that is not among them is lost.
 *
 * None of this is stored.  A load numbers the entries again; after a failed batch it
 * continues with higher numbers.
 */
#include "core_internal.h"

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

/* Is this end a loss?  Blocked calls get their own reply; several names that end together have one token. */
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
		/* backwards from the newest */
		for (; link->prev != &lease->news; link = link->prev, ++*walked)
		{
			if (le_container(link->prev, LeEntry, news_link)->news <= seen)
				break;
		}
	}
	++*walked;
	return link != &lease->news ? le_container(link, LeEntry, news_link) : NULL;
}

/* Returns the number of losses that are kept. */
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
 * Copies what the failed core knows of the lease's calls, except those of the failed batch, which
 * are made again.  Clients that have seen that core's news are told everything: entries that the
 * load has ended are in no list.
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
