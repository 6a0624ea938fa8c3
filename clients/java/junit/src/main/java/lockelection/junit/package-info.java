/** A throw-away server with locks in it, for JUnit 5: {@link lockelection.junit.LockElectionExtension}. */
package lockelection.junit;
