package lockelection;

/**
 * The lock was not acquired, because others hold it or the wait timed out. The caller holds nothing and has no place.
 */
public class NotAcquiredException extends LockException {
	private static final long serialVersionUID = 1L;

	NotAcquiredException(String message, Throwable cause) {
		super(Status.NOT_ACQUIRED, null, message, cause);
	}
}
