package lockelection;

import java.time.Duration;
import lockelection.Clock.Moment;

/** What holds hang on. All but the deadline is read and written under the session's lock. */
final class Lease {
	private static final long SECOND = 1_000_000_000L;

	final Duration ttl;
	final long ttlNanos;
	/** How long the lease is counted on, from the sending of a renewal. */
	private final long length;
	/** When the last renewal that was answered was sent; null: not granted yet. */
	private volatile Moment renewed;
	volatile boolean ended;
	/** 0: not granted yet. */
	volatile long id;
	/** On the session's clock. */
	long renewAt;
	/** lease_holds() is to be read. */
	boolean look;

	Lease(Duration ttl) {
		this.ttl = ttl;
		ttlNanos = Session.nanos(ttl);
		length = ttlNanos - Math.min(ttlNanos / 20, SECOND);
	}

	void renewed(Moment sent) {
		renewed = sent;
	}

	/** Nanoseconds to the deadline; at most 0 if it has passed. */
	long left() {
		Moment from = renewed;
		return ended || from == null ? 0 : length - from.passed();
	}

	/** How long a statement may take. */
	long callMillis() {
		return Math.max(200, Math.min(10_000, ttlNanos / 4_000_000));
	}
}
