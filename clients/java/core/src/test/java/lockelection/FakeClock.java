package lockelection;

/** A clock that is set. */
final class FakeClock implements Clock {
	private volatile long nanos = 5_000_000_000L;
	private volatile long wallMillis = 1_000_000;

	@Override
	public long nanos() {
		return nanos;
	}

	@Override
	public long wallMillis() {
		return wallMillis;
	}

	void pass(long millis) {
		nanos += millis * 1_000_000;
		wallMillis += millis;
	}

	/** System.nanoTime() stands still. */
	void suspend(long millis) {
		wallMillis += millis;
	}
}
