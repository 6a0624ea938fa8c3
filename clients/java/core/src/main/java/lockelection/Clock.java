package lockelection;

import java.util.concurrent.TimeUnit;

/**
 * The time. {@code System.nanoTime()} stops while a machine is suspended, and the wall clock can be set. So the time
 * that has passed is the larger of the times by which the two clocks have advanced. This is safe: if the wall clock is
 * set forward, locks are only lost early.
 */
interface Clock {
	Clock SYSTEM = new Clock() {
		@Override
		public long nanos() {
			return System.nanoTime();
		}

		@Override
		public long wallMillis() {
			return System.currentTimeMillis();
		}
	};

	long nanos();

	long wallMillis();

	default Moment now() {
		return new Moment(this, nanos(), wallMillis());
	}

	/** A point in time on both clocks. */
	final class Moment {
		private final Clock clock;
		final long nanos;
		private final long wallMillis;

		private Moment(Clock clock, long nanos, long wallMillis) {
			this.clock = clock;
			this.nanos = nanos;
			this.wallMillis = wallMillis;
		}

		/** Returns the moment that is later by this many nanoseconds. */
		Moment plus(long later) {
			return new Moment(clock, nanos + later, wallMillis + TimeUnit.NANOSECONDS.toMillis(later));
		}

		/** Returns the nanoseconds since this moment; negative if it is in the future. */
		long passed() {
			long wall = TimeUnit.MILLISECONDS.toNanos(clock.wallMillis() - wallMillis);
			return Math.max(clock.nanos() - nanos, wall);
		}
	}
}
