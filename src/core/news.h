/*
 * core/news.h
 *		Keeps the news of leases: the events of their entries.
 */
#ifndef LE_NEWS_H
#define LE_NEWS_H

#include "objects.h"

/*
 * Records a numbered call of the client that keeps a lease alive.  Returns false if a call with this
 * number or a higher one was recorded before: this call is then old or a duplicate, and must not be
 * carried out.  A load after a failed batch forgets only the calls of that batch.
 */
extern bool le_core_take_call(LeCore *core, LeLease *lease, int64_t number);

/*
 * News of a lease: what has happened to its entries, in that order. "seen" is the number of the
 * newest news item that the client knows.  The numbers start again with each manager.
 *
 *	le_news_after	returns the entry that follows this one, or with NULL the first entry with news
 *					since "seen"; NULL = no more.  The news is that the entry was created, granted or
 *					evicted.  Adds the number of entries examined to *walked.
 *	le_news_loss	returns the i-th loss since "seen"; NULL = no more
 *	le_news_kept	returns whether all losses since "seen" are still known
 */
extern LeEntry *le_news_after(const LeLease *lease, uint64_t seen, const LeEntry *after, uint32_t *walked);
extern const LeLoss *le_news_loss(const LeLease *lease, uint64_t seen, uint32_t i);
extern bool le_news_kept(const LeLease *lease, uint64_t seen);

/* --- for the core alone --- */

/* Adds a news item if the entry is on a lease: the entry was created, granted or evicted.  Must not fail. */
extern void le_news_add(LeCore *core, LeEntry *entry);
/*
 * Copy the calls of a lease, and the number of the newest news item, from the failed core.  Called by a
 * load after a failed batch.
 */
extern void le_news_load_lease(LeCore *core, LeLease *lease, const LeLease *failed);
extern void le_news_load_begin(LeCore *core);
/*
 * Removes an entry that ends or lapses from its lease's news.  Adds a loss, unless the client requested
 * that end.  Must not fail.
 */
extern void le_news_end(LeCore *core, LeEntry *entry, LeEnd how);

#endif /* LE_NEWS_H */
