package lockelection;

/** What a session is in. */
public enum State {
	/** The last renewal was answered. */
	CONNECTED,
	/** The connection is broken, or a renewal has failed. All that is held is still held, until the deadline. */
	SUSPENDED,
	/** The lease has ended, or the session was closed: nothing is held. See {@link LockElection#reopen()}. */
	ENDED
}
