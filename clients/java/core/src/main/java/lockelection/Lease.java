package lockelection;

import java.time.Duration;
import lockelection.Clock.Moment;

/** What holds hang on. All but the deadline is read and written under the session's lock. */
final class Lease {
	private static final long SECOND = 1_000_000_000L;

	final Duration ttl;
	final long ttlNanos;
	/** The renewal whose validity ends last; null: not granted yet. */
	private volatile Promise promise;
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
	}

	private static final class Promise {
		private final Moment sent;
		private final long nanos;

		Promise(Moment sent, long nanos) {
			this.sent = sent;
			this.nanos = nanos;
		}

		long left() {
			return nanos - sent.passed();
		}
	}

	/** What the lease would have left if the server crashed now counts from the sending. Less takes nothing back. */
	void renewed(Moment sent, long validityNanos) {
		Promise next = new Promise(sent, Math.min(validityNanos, ttlNanos) - Math.min(ttlNanos / 20, SECOND));
		if (promise == null || next.left() > promise.left())
			promise = next;
	}

	/** Nanoseconds from the sending of a renewal to that of the next one: short validities make no haste without an end. */
	long pause(long validityNanos) {
		return Math.min(ttlNanos / 3, Math.max(validityNanos / 3, longestPause()));
	}

	/** Between two attempts to renew. */
	long longestPause() {
		return Math.max(SECOND / 20, Math.min(ttlNanos / 20, SECOND));
	}

	/** Nanoseconds to the deadline; at most 0 if it has passed. */
	long left() {
		Promise latest = promise;
		return ended || latest == null ? 0 : latest.left();
	}

	/** How long a statement may take. */
	long callMillis() {
		return Math.max(200, Math.min(10_000, ttlNanos / 4_000_000));
	}
}
