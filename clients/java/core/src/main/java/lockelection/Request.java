package lockelection;

import java.time.Duration;
import java.util.List;

/** A request for locks or a permit. Immutable: methods that change something return a changed copy. */
public final class Request {
	/** The kind, with which an item's action ends: lock, shared, permit or candidate. */
	final String kind;
	final List<String> names;
	/** The number of permits that the name has; null if this is not a request for a permit. */
	final String permits;
	/** The candidate's text; null if this is not a request for a term. */
	final String value;
	final Duration ttl;

	private Request(String kind, List<String> names, String permits, String value, Duration ttl) {
		this.kind = kind;
		this.names = names;
		this.permits = permits;
		this.value = value;
		this.ttl = ttl;
	}

	/**
	 * Requests an exclusive lock, which has only one holder at a time. Several locks are acquired together or not at
	 * all.
	 *
	 * @param names 1 to 1000 different names, each of 1 to 255 bytes of UTF-8
	 * @return the request
	 * @throws LockException with status INVALID
	 */
	public static Request exclusive(String... names) {
		return new Request("lock", Arguments.names(names), null, null, null);
	}

	/**
	 * Requests a shared lock, which other shared holders may hold at the same time.
	 *
	 * @param names as in {@link #exclusive}
	 * @return the request
	 * @throws LockException with status INVALID
	 */
	public static Request shared(String... names) {
		return new Request("shared", Arguments.names(names), null, null, null);
	}

	/**
	 * Requests one of several permits of a name.
	 *
	 * @param name 1 to 255 bytes
	 * @param permits the number of permits, at least 1; all users of a name must pass the same number
	 * @return the request
	 * @throws LockException with status INVALID
	 */
	public static Request permit(String name, int permits) {
		return new Request("permit", Arguments.names(name), "" + Arguments.permits(permits), null, null);
	}

	static Request term(String election, String value) {
		return new Request("candidate", List.of(Arguments.election(election)), null, Arguments.value(value), null);
	}

	/**
	 * Sets a TTL that differs from the session's.
	 *
	 * @param ttl 100 ms to 24 days; null for the session's TTL
	 * @return the changed request
	 * @throws LockException with status INVALID
	 */
	public Request ttl(Duration ttl) {
		return new Request(kind, names, permits, value, ttl == null ? null : Arguments.ttl(ttl));
	}

	boolean isTerm() {
		return value != null;
	}

	@Override
	public String toString() {
		return (isTerm() ? "election " : permits != null ? "permit " : "lock ") + String.join(", ", names);
	}
}
