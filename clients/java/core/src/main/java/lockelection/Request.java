package lockelection;

import java.time.Duration;
import java.util.List;

/** What to acquire. Immutable; each method that changes something returns another one. */
public final class Request {
	enum Kind {
		LOCK, LOCKS, PERMIT, TERM
	}

	final Kind kind;
	final List<String> names;
	final boolean shared;
	final int permits;
	final String value;
	final Duration ttl;

	private Request(Kind kind, List<String> names, boolean shared, int permits, String value, Duration ttl) {
		this.kind = kind;
		this.names = names;
		this.shared = shared;
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
		return new Request(kindOf(names), Arguments.names(names), false, 0, null, null);
	}

	/**
	 * A lock that others can hold at the time, if they share it as well.
	 *
	 * @param names as for {@link #exclusive}
	 * @return the request
	 * @throws LockException INVALID
	 */
	public static Request shared(String... names) {
		return new Request(kindOf(names), Arguments.names(names), true, 0, null, null);
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
		return new Request(Kind.PERMIT, Arguments.names(name), false, Arguments.permits(permits), null, null);
	}

	static Request term(String election, String value) {
		return new Request(Kind.TERM, List.of(Arguments.election(election)), false, 0, Arguments.value(value), null);
	}

	private static Kind kindOf(String[] names) {
		return names != null && names.length == 1 ? Kind.LOCK : Kind.LOCKS;
	}

	/**
	 * With another TTL than the session's.
	 *
	 * @param ttl 100 ms to 24 days; null: the session's
	 * @return the request
	 * @throws LockException INVALID
	 */
	public Request ttl(Duration ttl) {
		return new Request(kind, names, shared, permits, value, ttl == null ? null : Arguments.ttl(ttl));
	}

	String mode() {
		return shared ? "shared" : "exclusive";
	}

	@Override
	public String toString() {
		return (kind == Kind.TERM ? "election " : kind == Kind.PERMIT ? "permit " : "lock ") + String.join(", ", names);
	}
}
