package lockelection;

import java.time.Duration;
import java.util.List;

/** What to acquire. Immutable; each method that changes something returns another one. */
public final class Request {
	/** lock, shared, permit or candidate: the end of an item's action. */
	final String kind;
	final List<String> names;
	/** How many permits the name has; null: it is no permit. */
	final String permits;
	/** A candidate's text. */
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
	 * A lock that nobody else holds at the time; of several names all at once, or none.
	 *
	 * @param names 1 to 1000, each once, and of 1 to 255 bytes of UTF-8
	 * @return the request
	 * @throws LockException INVALID
	 */
	public static Request exclusive(String... names) {
		return new Request("lock", Arguments.names(names), null, null, null);
	}

	/**
	 * A lock that others can hold at the time, if they share it as well.
	 *
	 * @param names as for {@link #exclusive}
	 * @return the request
	 * @throws LockException INVALID
	 */
	public static Request shared(String... names) {
		return new Request("shared", Arguments.names(names), null, null, null);
	}

	/**
	 * One of several permits of a name.
	 *
	 * @param name of 1 to 255 bytes
	 * @param permits how many there are, 1 or more; all that use the name at a time say the same number
	 * @return the request
	 * @throws LockException INVALID
	 */
	public static Request permit(String name, int permits) {
		return new Request("permit", Arguments.names(name), "" + Arguments.permits(permits), null, null);
	}

	static Request term(String election, String value) {
		return new Request("candidate", List.of(Arguments.election(election)), null, Arguments.value(value), null);
	}

	/**
	 * With another TTL than the session's.
	 *
	 * @param ttl 100 ms to 24 days; null: the session's
	 * @return the request
	 * @throws LockException INVALID
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
