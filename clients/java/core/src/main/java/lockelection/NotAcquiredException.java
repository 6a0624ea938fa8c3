package lockelection;

/** Others hold it, and the caller's limit of time is over. Nothing is held, and nothing waits. */
public class NotAcquiredException extends LockException {
	private static final long serialVersionUID = 1L;

	NotAcquiredException(String message, Throwable cause) {
		super(Status.NOT_ACQUIRED, null, message, cause);
	}
}
