package lockelection;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class ClockTest {
	private static final long MILLISECOND = 1_000_000;

	private final FakeClock clock = new FakeClock();

	@Test
	void aSuspendCounts() {
		Clock.Moment moment = clock.now();
		clock.pass(10);
		assertEquals(10 * MILLISECOND, moment.passed());
		clock.suspend(3000);
		assertEquals(3010 * MILLISECOND, moment.passed());
	}

	@Test
	void aWallClockThatIsSetBackDoesNotTakeTimeBack() {
		Clock.Moment moment = clock.now();
		clock.pass(10);
		clock.suspend(-60_000);
		assertEquals(10 * MILLISECOND, moment.passed());
	}

	@Test
	void theSystemsClockGoesOn() {
		Clock.Moment moment = Clock.SYSTEM.now();
		while (moment.passed() < MILLISECOND)
			Thread.onSpinWait();
		assertTrue(moment.passed() >= MILLISECOND);
	}
}
