package lockelection;

import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Locale;
import java.util.Optional;

/** A change of a hold, of a wait or of the session. */
public final class Event {
	/** The kind of a change. */
	public enum Kind {
		/** The request was granted. */
		ACQUIRED,
		/** The wait has ended without a grant. */
		NOT_ACQUIRED,
		/** The hold was released. */
		RELEASED,
		/** The hold was lost. */
		LOST,
		/** The session's connection is broken, or a renewal has failed. */
		SUSPENDED,
		/** The session was suspended, and has renewed its lease. */
		RESUMED,
		/** The session has lost its lease. */
		ENDED;

		@Override
		public String toString() {
			return name().toLowerCase(Locale.ROOT);
		}
	}

	private final Kind kind;
	private final String mode;
	private final List<String> names;
	private final long token;
	private final Instant time = Instant.now();
	private final Duration duration;
	private final LockException error;

	Event(Kind kind, String mode, List<String> names, long token, long nanos, LockException error) {
		this.kind = kind;
		this.mode = mode.equals("candidate") ? "election" : mode;
		this.names = names;
		this.token = token;
		this.duration = Duration.ofNanos(nanos);
		this.error = error;
	}

	/**
	 * The kind of the change.
	 *
	 * @return never null
	 */
	public Kind kind() {
		return kind;
	}

	/**
	 * The kind of the request, or "session" for a change of the session.
	 *
	 * @return lock, shared, permit, election or session
	 */
	public String mode() {
		return mode;
	}

	/**
	 * The names of the locks, or of the election.
	 *
	 * @return empty for a session
	 */
	public List<String> names() {
		return names;
	}

	/**
	 * The token of the hold.
	 *
	 * @return 0 if there is none
	 */
	public long token() {
		return token;
	}

	/**
	 * The time of the change.
	 *
	 * @return by the system's clock
	 */
	public Instant time() {
		return time;
	}

	/**
	 * The time for which the caller has waited, the lock was held, or the session was suspended.
	 *
	 * @return zero for SUSPENDED
	 */
	public Duration duration() {
		return duration;
	}

	/**
	 * The reason of NOT_ACQUIRED, LOST, SUSPENDED or ENDED.
	 *
	 * @return empty for the other kinds
	 */
	public Optional<LockException> error() {
		return Optional.ofNullable(error);
	}

	@Override
	public String toString() {
		return mode + " " + String.join(", ", names) + " " + kind + " " + duration + (error == null ? "" : ": " + error.getMessage());
	}
}
