package lockelection;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The events of a session, on a server. */
@Timeout(120)
class ListenerTest {
	private final String name = Db.name();

	/** Collects the events, and the threads that have made the requests. */
	private static final class Collector implements Listener {
		private final List<Event> events = Collections.synchronizedList(new ArrayList<>());
		private final List<String> callers = Collections.synchronizedList(new ArrayList<>());

		@Override
		public void on(Event event) {
			on(event, "");
		}

		private void on(Event event, String caller) {
			events.add(event);
			callers.add(caller);
		}

		@Override
		public Listener ofCaller() {
			String caller = Thread.currentThread().getName();
			return event -> on(event, caller);
		}

		List<String> kinds() {
			synchronized (events) {
				return events.stream().map(event -> event.mode() + " " + event.kind()).collect(Collectors.toList());
			}
		}
	}

	private final Collector seen = new Collector();

	private LockElection open(String application) {
		return LockElection.connect(Db.URL + "&ApplicationName=" + application,
				new Options().ttl(Duration.ofSeconds(10)).listener(seen));
	}

	@Test
	void waitsAndHolds() throws Exception {
		long token;
		try (LockElection locks = open("events")) {
			Hold hold = locks.acquire(name);
			token = hold.token();
			Thread waiter = new Thread(() -> {
				try {
					locks.acquire(Request.shared(name), null).close();
				} catch (InterruptedException e) {
					throw new AssertionError(e);
				}
			}, "the waiter");
			waiter.start();
			Db.until(() -> Db.waiters(name) == 1);
			assertEquals(Optional.empty(), locks.tryAcquire(Request.exclusive(name, name + "'")));
			Thread.sleep(500);
			hold.release();
			waiter.join();
			Term term = locks.campaign(name, "me", null);
			term.proclaim("I");
		}
		assertEquals(List.of("lock acquired", "lock not_acquired", "lock released", "shared acquired", "shared released",
				"election acquired", "election released"), seen.kinds());
		Event acquired = seen.events.get(0), refused = seen.events.get(1), released = seen.events.get(2);
		Event waited = seen.events.get(3), left = seen.events.get(4);
		assertEquals(List.of(name), acquired.names());
		assertEquals(token, acquired.token());
		assertTrue(acquired.error().isEmpty() && acquired.duration().toSeconds() < 60);
		assertTrue(Duration.between(acquired.time(), Instant.now()).abs().toSeconds() < 60);
		assertEquals(2, refused.names().size());
		assertInstanceOf(NotAcquiredException.class, LockException.again(refused.error().orElseThrow()));
		assertTrue(released.error().isEmpty());
		for (Event event : List.of(released, waited))
			assertTrue(event.duration().toMillis() >= 500 && event.duration().toSeconds() < 60, event.toString());
		long held = Duration.between(waited.time(), left.time()).toMillis();
		assertTrue(Math.abs(held - left.duration().toMillis()) < 400, left + ", without the wait " + held + " ms");
		String self = Thread.currentThread().getName();
		assertEquals(List.of(self, self, self, "the waiter"), seen.callers.subList(0, 4));
	}

	@Test
	void losses() throws Exception {
		try (LockElection locks = open("events")) {
			locks.acquire(name);
			Db.sql("SELECT force_release_lock('" + name + "')");
			Db.until(() -> seen.events.size() == 2);
			Hold hold = locks.acquire(name);
			Db.sql("SELECT revoke_lease(lease) FROM lock_election.locks WHERE name = '" + name + "'");
			Db.until(() -> seen.events.size() == 5);
			assertEquals(hold.token(), seen.events.get(3).token());
			locks.reopen();
			locks.acquire(name).close();
		}
		assertEquals(List.of("lock acquired", "lock lost", "lock acquired", "lock lost", "session ended", "lock acquired",
				"lock released"), seen.kinds());
		for (int i : new int[] {1, 3, 4})
			assertEquals(LockException.Status.LOST, seen.events.get(i).error().orElseThrow().status());
	}

	@Test
	void suspensions() throws Exception {
		try (LockElection locks = open("cut")) {
			locks.acquire(name);
			Db.sql("SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE application_name = 'cut'");
			Db.until(() -> seen.kinds().contains("session resumed"));
		}
		assertEquals(List.of("lock acquired", "session suspended", "session resumed", "lock released"), seen.kinds());
		Event suspended = seen.events.get(1), resumed = seen.events.get(2);
		assertEquals(LockException.Status.UNAVAILABLE, suspended.error().orElseThrow().status());
		assertTrue(resumed.error().isEmpty());
		Duration off = Duration.between(suspended.time(), resumed.time()).minus(resumed.duration());
		assertTrue(off.abs().toMillis() < 1000 && !resumed.duration().isZero(), resumed.toString());
	}

	@Test
	void badListenersDisturbNothing() throws Exception {
		List<String> reported = Collections.synchronizedList(new ArrayList<>());
		Thread.UncaughtExceptionHandler before = Thread.getDefaultUncaughtExceptionHandler();
		Thread.setDefaultUncaughtExceptionHandler((thread, error) -> reported.add(error.getMessage()));
		CountDownLatch entered = new CountDownLatch(1), leave = new CountDownLatch(1);
		Listener hangs = event -> {
			entered.countDown();
			try {
				leave.await();
			} catch (InterruptedException e) {
				throw new AssertionError(e);
			}
			throw new IllegalStateException("on " + event.kind());
		};
		Listener fails = new Listener() {
			@Override
			public void on(Event event) {
				throw new IllegalStateException("never called");
			}

			@Override
			public Listener ofCaller() {
				throw new IllegalStateException("of the caller");
			}
		};
		try (LockElection locks = LockElection.connect(Db.URL, new Options().listener(hangs).listener(fails).listener(seen));
				Hold hold = locks.acquire(name)) {
			entered.await();
			try (Hold other = locks.acquire(name + "'")) {
				assertTrue(hold.isValid() && other.isValid());
				assertEquals(State.CONNECTED, locks.state());
			}
			leave.countDown();
		} finally {
			Thread.setDefaultUncaughtExceptionHandler(before);
		}
		assertEquals(List.of("of the caller", "of the caller", "on acquired", "on acquired", "on released", "on released"),
				reported);
		assertEquals(4, seen.events.size());
		assertThrows(NullPointerException.class, () -> new Options().listener(null));
	}

	@SuppressWarnings("unchecked")
	private static <E extends Throwable> void sneak(Throwable error) throws E {
		throw (E) error;
	}

	/** A listener in Kotlin, for example, throws checked exceptions; and the handler of uncaught ones may throw, too. */
	@Test
	void checkedExceptionsEndNoEvents() throws Exception {
		List<String> reported = Collections.synchronizedList(new ArrayList<>());
		Thread.UncaughtExceptionHandler before = Thread.getDefaultUncaughtExceptionHandler();
		Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
			reported.add(error.getMessage());
			throw new IllegalStateException("in the handler");
		});
		Listener sneaks = new Listener() {
			@Override
			public void on(Event event) {
				ListenerTest.<RuntimeException>sneak(new IOException("on " + event.kind()));
			}

			@Override
			public Listener ofCaller() {
				if (reported.isEmpty())
					ListenerTest.<RuntimeException>sneak(new IOException("of the caller"));
				return this;
			}
		};
		try (LockElection locks = LockElection.connect(Db.URL, new Options().listener(sneaks).listener(seen))) {
			locks.acquire(name).close();
			locks.acquire(name).close();
			Db.until(() -> seen.events.size() == 4 && reported.size() == 3);
		} finally {
			Thread.setDefaultUncaughtExceptionHandler(before);
		}
		assertEquals(List.of("of the caller", "on acquired", "on released"), reported);
	}
}
