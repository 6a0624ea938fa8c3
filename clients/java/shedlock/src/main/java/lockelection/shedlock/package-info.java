/** Locks for ShedLock: {@link lockelection.shedlock.LockElectionProvider}. */
package lockelection.shedlock;
