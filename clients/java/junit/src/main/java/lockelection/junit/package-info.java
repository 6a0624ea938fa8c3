/** A throw-away server with lock_election, for JUnit 5: {@link lockelection.junit.LockElectionExtension}. */
package lockelection.junit;
