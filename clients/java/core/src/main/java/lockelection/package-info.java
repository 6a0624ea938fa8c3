/**
 * Distributed locks and leader election inside PostgreSQL, by its extension lock_election.
 *
 * <p>{@link lockelection.LockElection} is the place to begin.  All durations are {@link java.time.Duration}s, to the
 * millisecond.  Errors are {@link lockelection.LockException}s, which are unchecked.  Threads that wait are parked, and
 * hold no monitor: virtual threads do not pin their carriers.
 */
package lockelection;
