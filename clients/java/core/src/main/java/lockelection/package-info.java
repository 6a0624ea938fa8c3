/**
 * Distributed locks and leader election inside PostgreSQL, with its extension lock_election.
 *
 * <p>Start with {@link lockelection.LockElection}. All durations are {@link java.time.Duration}s, with a precision of
 * one millisecond. Errors are {@link lockelection.LockException}s, which are unchecked. Waiting threads are parked and
 * hold no monitor, so virtual threads do not pin their carriers.
 */
package lockelection;
