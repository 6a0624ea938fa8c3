package lockelection;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.sql.Connection;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import javax.sql.DataSource;
import lockelection.LockException.Status;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** What is wrong with an argument is said before the server is asked: the argument, what came, what is allowed. */
class ArgumentsTest {
	private static final Duration NOW = Duration.ZERO;
	private static final Duration NEGATIVE = Duration.ofMillis(-5);
	private static final Duration ENDLESS = Duration.ofSeconds(Long.MAX_VALUE);

	private final FakeServer server = new FakeServer(new FakeClock());
	private final LockElection locks = new LockElection(server, new Options(), Clock.SYSTEM);

	@AfterEach
	void close() {
		locks.close();
	}

	/** @param says parts of the message */
	private void refuses(Executable call, String... says) {
		long sent = server.statements.size();
		LockException error = assertThrows(LockException.class, call);
		assertEquals(Status.INVALID, error.status());
		for (String part : says)
			assertTrue(error.getMessage().contains(part), error.getMessage() + " does not say " + part);
		assertEquals(sent, server.statements.size(), "it was sent");
	}

	private void needs(String what, Executable call) {
		long sent = server.statements.size();
		assertEquals(what + " is null", assertThrows(NullPointerException.class, call).getMessage());
		assertEquals(sent, server.statements.size(), "it was sent");
	}

	@Test
	void nullIsNamed() throws Exception {
		needs("the URL", () -> LockElection.connect((String) null));
		needs("the data source", () -> LockElection.connect((DataSource) null));
		needs("the options", () -> new LockElection(server, null, Clock.SYSTEM));
		needs("the TTL", () -> new Options().ttl(null));
		needs("the name of the session", () -> new Options().name(null));
		needs("the listener", () -> new Options().onState(null));
		needs("the array of names", () -> Request.exclusive((String[]) null));
		needs("the array of names", () -> Request.shared((String[]) null));
		needs("the name", () -> Request.shared("a", null));
		needs("the name", () -> Request.permit(null, 1));
		needs("the name", () -> locks.acquire((String) null));
		needs("the name", () -> locks.acquire(null, null, null));
		needs("the request", () -> locks.acquire((Request) null, NOW));
		needs("the request", () -> locks.tryAcquire(null));
		needs("the collection of names", () -> locks.tryAcquireEach(null));
		needs("the name", () -> locks.tryAcquireEach(Collections.singletonList(null)));
		needs("the name", () -> locks.asLock(null));
		needs("the unit", () -> locks.asLock("a").tryLock(1, null));
		needs("the wait", () -> locks.asLock("a").tryLock((Duration) null, null));
		needs("the name", () -> locks.once(null, null, () -> { }));
		needs("the job", () -> locks.once("a", null, null));
		needs("the name", () -> locks.checkHoldFor(null, NOW));
		needs("holdFor", () -> locks.checkHoldFor("a", null));
		needs("the name of the election", () -> locks.elect(null, "me", (term, stop) -> { }));
		needs("the value", () -> locks.elect("e", null, (term, stop) -> { }));
		needs("the callback that leads", () -> locks.elect("e", "me", null));
		needs("the name of the election", () -> locks.campaign(null, "me", NOW));
		needs("the value", () -> locks.campaign("e", null, NOW));
		needs("the name of the election", () -> locks.leader(null));
		needs("the name of the election", () -> locks.observe(null, leader -> { }));
		needs("the listener", () -> locks.observe("e", null));
		needs("the limit", () -> locks.close(null));
		Hold hold = locks.acquire("a");
		needs("the action", () -> hold.onLost(null));
		needs("the connection", () -> hold.fence((Connection) null));
		assertTrue(hold.isValid());
	}

	@Test
	void textsAreCheckedWhereverTheyAreGiven() {
		for (String text : List.of("a\0b", "x\uD800", "\uDC00x", "\uD800\uD800\uDC00")) {
			String shown = Arguments.show(text);
			assertFalse(shown.contains("\0"));
			refuses(() -> new Options().name(text), "the name of the session", shown);
			refuses(() -> Request.exclusive("a", text), "the name " + shown);
			refuses(() -> Request.permit(text, 1), "the name " + shown);
			refuses(() -> locks.acquire(text), "the name " + shown);
			refuses(() -> locks.tryAcquireEach(List.of("a", text)), "the name " + shown);
			refuses(() -> locks.asLock(text), "the name " + shown);
			refuses(() -> locks.once(text, null, () -> { }), "the name " + shown);
			refuses(() -> locks.checkHoldFor(text, NOW), "the name " + shown);
			refuses(() -> locks.elect(text, "me", (term, stop) -> { }), "the name of the election " + shown);
			refuses(() -> locks.campaign("e", text, NOW), "the value " + shown);
			refuses(() -> locks.leader(text), "the name of the election " + shown);
			refuses(() -> locks.observe(text, leader -> { }), "the name of the election " + shown);
		}
		assertEquals("\"x\\uD800\\u0000\"", Arguments.show("x\uD800\0"));
		refuses(() -> locks.acquire(""), "the name is empty", "1 to 255 bytes");
		refuses(() -> locks.campaign("e", "", NOW), "the value is empty", "1 to 4096 bytes");
		refuses(() -> locks.acquire("x".repeat(65_536)), "65536 bytes", "1 to 255");
		refuses(() -> locks.campaign("e", "\u00E9".repeat(10_000), NOW), "20000 bytes", "1 to 4096");
		Arguments.name("\uD83D\uDD12 is a pair");
	}

	@Test
	void numbersOfNamesAndPermits() {
		String[] many = new String[1001];
		Arrays.setAll(many, i -> "name " + i);
		refuses(() -> Request.exclusive(), "0 names", "1 to 1000");
		refuses(() -> Request.shared(many), "1001 names", "1 to 1000");
		refuses(() -> Request.exclusive("a", "b", "a"), "\"a\" appears twice");
		refuses(() -> locks.tryAcquireEach(List.of("a", "a")), "appears twice");
		for (int permits : new int[] {0, -1, Integer.MIN_VALUE})
			refuses(() -> Request.permit("a", permits), "permits is " + permits, "1 or more");
	}

	@Test
	void durations() throws Exception {
		for (Duration ttl : List.of(NOW, NEGATIVE, Duration.ofMillis(99), Duration.ofDays(24).plusNanos(1), ENDLESS)) {
			refuses(() -> new Options().ttl(ttl), "the TTL is " + ttl, "100 ms to 24 days");
			refuses(() -> Request.exclusive("a").ttl(ttl), "the TTL is " + ttl);
			refuses(() -> locks.acquire("a", ttl, null), "the TTL is " + ttl);
			refuses(() -> locks.asLock("a").lock(ttl), "the TTL is " + ttl);
			refuses(() -> locks.asLock("a").tryLock(NOW, ttl), "the TTL is " + ttl);
		}
		refuses(() -> locks.acquire("a", null, NEGATIVE), "the wait is PT-0.005S", "zero or more");
		refuses(() -> locks.campaign("e", "me", NEGATIVE), "the wait is PT-0.005S", "zero or more");
		refuses(() -> locks.close(NEGATIVE), "the limit is PT-0.005S", "zero or more");
		assertEquals(State.CONNECTED, locks.state());
		for (Duration holdFor : List.of(NEGATIVE, Duration.ofDays(25), ENDLESS)) {
			refuses(() -> locks.once("a", holdFor, () -> { }), "holdFor is " + holdFor, "0 to 24 days");
			refuses(() -> locks.checkHoldFor("a", holdFor), "holdFor is " + holdFor);
			Hold hold = locks.acquire("a");
			LockException error = assertThrows(LockException.class, () -> hold.release(holdFor));
			assertTrue(error.getMessage().contains("holdFor is " + holdFor), error.getMessage());
			assertFalse(server.isHeld("a"), "it is released all the same");
		}
		locks.acquire("a", null, ENDLESS).close();
	}
}
