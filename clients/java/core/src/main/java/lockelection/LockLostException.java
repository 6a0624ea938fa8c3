package lockelection;

/** The lock, permit or term is not held any more, or the session with all it held has ended. */
public class LockLostException extends LockException {
	private static final long serialVersionUID = 1L;

	LockLostException(String sqlState, String message, Throwable cause) {
		super(Status.LOST, sqlState, message, cause);
	}
}
