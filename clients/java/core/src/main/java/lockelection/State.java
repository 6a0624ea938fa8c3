package lockelection;

/** The state of a session. */
public enum State {
	/** The last renewal has succeeded. */
	CONNECTED,
	/** The connection is broken, or a renewal has failed. All holds stay held until the deadline. */
	SUSPENDED,
	/** The lease has ended, or the session was closed: nothing is held. See {@link LockElection#reopen()}. */
	ENDED
}
