/*
 * manager/outage.h
 *		Handles outages: times in which nothing can be written.
 */
#ifndef LE_MANAGER_OUTAGE_H
#define LE_MANAGER_OUTAGE_H

#include "manager/state.h"

/*
 * Begin or continue an outage. le_outage_locked(): the tables are locked, or, if error is not NULL, could not
 * be locked because of that error. le_outage_failed(): a batch has failed with this error.
 */
extern void le_outage_locked(const ErrorData *error);
extern void le_outage_failed(const ErrorData *error);
/*
 * Ends the outage, if there is one.  Called when a write has succeeded or, if locked tables were the only
 * reason for the outage, when a batch has locked the tables.
 */
extern void le_outage_over(void);

/*
 * Returns whether a batch that writes may be run.  To find out during an outage, it may write the row of
 * table meta.
 */
extern bool le_outage_allows_batch(void);

/*
 * Returns whether this error means that nothing at all can be written.  has_xid: whether the failed
 * transaction has a transaction id.
 */
extern bool le_outage_explains(const ErrorData *error, bool has_xid);

/*
 * Records the error of a failed batch for health() if its cause affects the whole server or a table, even if
 * other batches may succeed.
 */
extern void le_outage_note(const ErrorData *error);

/* Returns whether this request only reads the state or renews a lease. */
extern bool le_request_looks(const LeMailbox *box);

/*
 * Called in an outage, after a batch with looks_only: replies with the error to the requests that the batch
 * did not serve and that have waited long enough.
 */
extern void le_outage_refuse(const Batch *batch);

/*
 * Called in an outage: le_outage_end_calls() replies to the calls whose own wait has timed out,
 * le_outage_withdraw() to one call that was withdrawn.
 */
extern void le_outage_end_calls(void);
extern void le_outage_withdraw(uint32 proc);
/*
 * Ends in the core the waits of calls that got their reply during the outage.  Called in a batch that may
 * write.
 */
extern void le_outage_end_waits(LeTime now);

#endif /* LE_MANAGER_OUTAGE_H */
