package lockelection;

import java.util.concurrent.TimeUnit;

/**
 * The time. {@code System.nanoTime()} stands still while a machine is suspended, the wall clock can be set: the larger
 * of what the two have advanced is safe, for a wall clock set forward loses a lock early.
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

	/** A point in time, by both clocks. */
	final class Moment {
		private final Clock clock;
		final long nanos;
		private final long wallMillis;

		private Moment(Clock clock, long nanos, long wallMillis) {
			this.clock = clock;
			this.nanos = nanos;
			this.wallMillis = wallMillis;
		}

		/** So much later. */
		Moment plus(long later) {
			return new Moment(clock, nanos + later, wallMillis + TimeUnit.NANOSECONDS.toMillis(later));
		}

		/** Nanoseconds that have passed since; negative: it is to come. */
		long passed() {
			long wall = TimeUnit.MILLISECONDS.toNanos(clock.wallMillis() - wallMillis);
			return Math.max(clock.nanos() - nanos, wall);
		}
	}
}
