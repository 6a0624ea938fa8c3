/*
 * sql/sql_calls.c
 *		Defines the SQL functions that do the same for a lock, for several locks, for a permit, or for an
 *		election.
 *
 * The SQL name of a function is its C name without the prefix.  The comments in the extension script describe
 * the functions.
 */
#include "postgres.h"

#include "shared/compat.h"
#include "sql/sql.h"

/* acquire; LeAsk lists the arguments */
LE_SQL_CALL(le_acquire_lock, le_acquire(fcinfo, LE_ASK_LOCK))
LE_SQL_CALL(le_try_acquire_lock, le_acquire(fcinfo, LE_ASK_LOCK))
LE_SQL_CALL(le_acquire_locks, le_acquire(fcinfo, LE_ASK_LOCKS))
LE_SQL_CALL(le_acquire_permit, le_acquire(fcinfo, LE_ASK_PERMIT))
LE_SQL_CALL(le_campaign, le_acquire(fcinfo, LE_ASK_LEADER))

/* enqueue; the same arguments without wait */
LE_SQL_CALL(le_enqueue_lock, le_enqueue(fcinfo, LE_ASK_LOCK))
LE_SQL_CALL(le_enqueue_locks, le_enqueue(fcinfo, LE_ASK_LOCKS))
LE_SQL_CALL(le_enqueue_permit, le_enqueue(fcinfo, LE_ASK_PERMIT))
LE_SQL_CALL(le_enqueue_candidate, le_enqueue(fcinfo, LE_ASK_LEADER))

/* await; arguments: name, token, wait */
LE_SQL_CALL(le_await_lock, le_await(fcinfo, LE_ASK_LOCK))
LE_SQL_CALL(le_await_locks, le_await(fcinfo, LE_ASK_LOCKS))
LE_SQL_CALL(le_await_leadership, le_await(fcinfo, LE_ASK_LEADER))

/* renew; arguments: name, token, ttl */
LE_SQL_CALL(le_renew_lock, le_renew(fcinfo, LE_KIND_LOCK))
LE_SQL_CALL(le_renew_leadership, le_renew(fcinfo, LE_KIND_ELECTION))

/* check or fence; arguments: name, token */
LE_SQL_CALL(le_is_held, le_held(fcinfo, LE_KIND_LOCK))
LE_SQL_CALL(le_is_leader, le_held(fcinfo, LE_KIND_ELECTION))
LE_SQL_CALL(le_fence_lock, le_fence(fcinfo, LE_KIND_LOCK))
LE_SQL_CALL(le_fence_leader, le_fence(fcinfo, LE_KIND_ELECTION))

/* evict or force; argument: name */
LE_SQL_CALL(le_evict_lock, le_evict(fcinfo, LE_KIND_LOCK))
LE_SQL_CALL(le_evict_leader, le_evict(fcinfo, LE_KIND_ELECTION))
LE_SQL_CALL(le_force_release_lock, le_force(fcinfo, LE_KIND_LOCK))
LE_SQL_CALL(le_force_resign, le_force(fcinfo, LE_KIND_ELECTION))
