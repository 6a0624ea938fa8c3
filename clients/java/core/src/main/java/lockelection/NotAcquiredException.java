package lockelection;

/** The lock is held by others, and the caller's wait has timed out. Nothing is held, nothing is left in the queue. */
public class NotAcquiredException extends LockException {
	private static final long serialVersionUID = 1L;

	NotAcquiredException(String message, Throwable cause) {
		super(Status.NOT_ACQUIRED, null, message, cause);
	}
}
