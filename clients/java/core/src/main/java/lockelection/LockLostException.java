package lockelection;

/** The lock, permit or term is no longer held, or the session has ended with all its holds. */
public class LockLostException extends LockException {
	private static final long serialVersionUID = 1L;

	LockLostException(String sqlState, String message, Throwable cause) {
		super(Status.LOST, sqlState, message, cause);
	}
}
