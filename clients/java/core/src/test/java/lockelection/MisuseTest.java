package lockelection;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.lang.reflect.Method;
import java.sql.Connection;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;
import lockelection.LockException.Status;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What applications get wrong, and what interrupts them. */
@Timeout(120)
class MisuseTest {
	private static final Duration NOW = Duration.ZERO;
	private static final Duration LONG = Duration.ofSeconds(20);
	private static final Duration ENDLESS = Duration.ofSeconds(Long.MAX_VALUE);
	private static final Duration BEFORE = Duration.ofSeconds(Long.MIN_VALUE);

	private final String name = Db.name();
	private final List<LockElection> opened = new ArrayList<>();
	private LockElection locks;

	@BeforeEach
	void open() {
		locks = open(new Options());
	}

	private LockElection open(Options options) {
		LockElection session = LockElection.connect(Db.URL, options.ttl(Duration.ofSeconds(5)));
		opened.add(session);
		return session;
	}

	@AfterEach
	void close() {
		opened.forEach(LockElection::close);
	}

	private interface Call {
		Object call() throws Exception;
	}

	private static Status statusOf(Call call) {
		return assertThrows(LockException.class, call::call).status();
	}

	private boolean isFree(String of) throws InterruptedException {
		return locks.tryAcquire(Request.exclusive(of)).map(Hold::release).orElse(false);
	}

	@Test
	void argumentsOfNoSenseAreRefusedAndChangeNothing() throws Exception {
		Hold neighbour = locks.acquire(name + " neighbour");
		long limit = locks.session().callMillis();
		assertThrows(NullPointerException.class, () -> locks.acquire((String) null));
		assertThrows(NullPointerException.class, () -> locks.acquire((Request) null, NOW));
		assertThrows(NullPointerException.class, () -> Request.exclusive(name, null));
		assertThrows(NullPointerException.class, () -> locks.elect(name, null, (term, stop) -> { }));
		assertThrows(NullPointerException.class, () -> locks.elect(name, "me", null));
		assertThrows(NullPointerException.class, () -> locks.observe(name, null));
		assertThrows(NullPointerException.class, () -> new Options().ttl(null));
		assertEquals(Status.INVALID, statusOf(() -> locks.acquire(Request.exclusive(), NOW)));
		assertEquals(Status.INVALID, statusOf(() -> locks.acquire(Request.exclusive(name, name), NOW)));
		for (int permits : new int[] {0, -1, Integer.MIN_VALUE})
			assertEquals(Status.INVALID, statusOf(() -> locks.acquire(Request.permit(name, permits), null)));
		for (Duration ttl : List.of(NOW, Duration.ofMillis(-1), ENDLESS, BEFORE)) {
			assertEquals(Status.INVALID, statusOf(() -> locks.acquire(name, ttl, null)));
			assertEquals(Status.INVALID, statusOf(() -> LockElection.connect(Db.URL, new Options().ttl(ttl))));
		}
		assertEquals(limit, locks.session().callMillis());
		assertEquals(Status.INVALID, statusOf(() -> locks.acquire(name, null, BEFORE)));
		assertTrue(locks.asLock(name).tryLock(BEFORE, null));
		locks.acquire(name + "x", null, ENDLESS).close();
		assertTrue(neighbour.isValid());
	}

	@Test
	void aHoldForOfNoSenseReleasesAllTheSame() throws Exception {
		for (Duration holdFor : List.of(ENDLESS, BEFORE, Duration.ofMillis(-1))) {
			Hold hold = locks.acquire(name);
			assertEquals(Status.INVALID, statusOf(() -> hold.release(holdFor)));
			Hold several = locks.acquire(Request.exclusive(name, name + "x"), null);
			assertEquals(Status.INVALID, statusOf(() -> several.release(holdFor)));
		}
		assertTrue(isFree(name));
		assertEquals(State.CONNECTED, locks.state());
	}

	@Test
	void aHoldForThatTheServerWillRefuseRunsNothing() throws Exception {
		Duration most = Duration.ofDays(1);
		AtomicInteger runs = new AtomicInteger();
		LockException error = assertThrows(LockException.class, () -> locks.once(name, most.plusMillis(1), runs::incrementAndGet));
		assertEquals(Status.LIMIT, error.status());
		assertTrue(error.getMessage().contains("hold_for is too long"), error.getMessage());
		for (Duration holdFor : List.of(Duration.ofDays(25), ENDLESS, BEFORE, Duration.ofMillis(-1)))
			assertEquals(Status.INVALID, statusOf(() -> locks.once(name, holdFor, runs::incrementAndGet)));
		assertEquals(0, runs.get());
		assertTrue(locks.once(name, most, runs::incrementAndGet));
		assertFalse(locks.once(name, most, runs::incrementAndGet));
		assertEquals(1, runs.get());
		Db.sql("SELECT force_release_lock('" + name + "')");
	}

	@Test
	void hostileNamesHitNobodyElse() throws Exception {
		Hold neighbour = locks.acquire(name);
		long lease = locks.lease();
		try (Connection connection = Db.connect()) {
			connection.setAutoCommit(false);
			for (String hostile : List.of("'; DROP TABLE x; --\\", "\uD83D\uDD12".repeat(60), "%s ? $1 {\"a\"}", " ", "a\nb")) {
				Hold hold = locks.acquire(hostile);
				Hold several = locks.acquire(Request.exclusive(hostile + "1", hostile + "2"), null);
				hold.fence(connection);
				several.fence(connection);
				connection.commit();
				assertTrue(hold.release() && several.release(), hostile);
				Term term = locks.campaign(hostile, hostile, null);
				term.proclaim(hostile + "!");
				assertTrue(term.resign());
				assertEquals(1, locks.tryAcquireEach(List.of(hostile)).size());
				assertFalse(locks.tryAcquire(Request.exclusive(hostile)).isPresent());
			}
		}
		for (String hostile : List.of("a\0b", "x\uD800", "x".repeat(65_536), "\u00E9".repeat(128))) {
			assertEquals(Status.INVALID, statusOf(() -> locks.acquire(hostile)));
			assertEquals(Status.INVALID, statusOf(() -> locks.acquire(Request.exclusive(hostile, "x"), NOW)));
			assertEquals(Status.INVALID, statusOf(() -> locks.acquire(Request.permit(hostile, 2), NOW)));
			assertEquals(Status.INVALID, statusOf(() -> locks.campaign(hostile, "me", NOW)));
			assertEquals(Status.INVALID, statusOf(() -> locks.campaign("x", "x".repeat(5000) + hostile, NOW)));
			assertEquals(Status.INVALID, statusOf(() -> locks.asLock(hostile).tryLock()));
			assertEquals(Status.INVALID, statusOf(() -> locks.leader(hostile)));
			assertEquals(Status.INVALID, statusOf(() -> locks.tryAcquireEach(List.of(hostile, "x"))));
		}
		assertTrue(neighbour.isValid());
		assertEquals(lease, locks.lease());
	}

	@Test
	void aListenerThatThrowsStopsNothing() throws Exception {
		Thread.UncaughtExceptionHandler before = Thread.getDefaultUncaughtExceptionHandler();
		List<String> thrown = Collections.synchronizedList(new ArrayList<>());
		Thread.setDefaultUncaughtExceptionHandler((thread, error) -> thrown.add(error.getMessage()));
		try {
			for (Executor executor : new Executor[] {null, Runnable::run}) {
				thrown.clear();
				LockElection session = open(new Options().executor(executor).onState(state -> {
					throw new IllegalStateException("state " + state);
				}));
				Hold hold = session.acquire(name);
				hold.onLost(() -> {
					throw new AssertionError("lost");
				});
				AtomicInteger changes = new AtomicInteger();
				Observer observer = session.observe(name, leader -> {
					changes.incrementAndGet();
					throw new IllegalStateException("observed " + leader.map(Leader::value).orElse("nobody"));
				});
				Term term = locks.campaign(name, "a", null);
				Db.until(() -> changes.get() == 1);
				term.proclaim("b");
				Db.until(() -> changes.get() == 2);
				term.resign();
				Db.until(() -> changes.get() == 3);
				observer.close();
				Db.sql("SELECT force_release_lock('" + name + "')");
				Db.until(() -> thrown.contains("lost"));
				assertEquals(State.CONNECTED, session.state());
				Db.sql("SELECT revoke_lease(" + session.lease() + ")");
				Db.until(() -> thrown.contains("state ENDED"));
				session.reopen();
				session.acquire(name).close();
				session.close();
				assertTrue(thrown.containsAll(List.of("observed a", "observed b", "observed nobody")), thrown.toString());
			}
		} finally {
			Thread.setDefaultUncaughtExceptionHandler(before);
		}
	}

	@Test
	void aListenerMayCloseTheSession() throws Exception {
		for (Executor executor : new Executor[] {null, Runnable::run}) {
			LockElection session = open(new Options().executor(executor));
			Hold hold = session.acquire(name);
			CompletableFuture<Boolean> closed = new CompletableFuture<>();
			hold.onLost(() -> closed.complete(session.close(LONG)));
			Db.sql("SELECT force_release_lock('" + name + "')");
			closed.get(20, TimeUnit.SECONDS);
			session.close();
			assertEquals(State.ENDED, session.state());
			long lease = session.lease();
			Db.until(() -> Db.sql("SELECT lease_time_to_live(" + lease + ")") == null);
		}
	}

	@Test
	void whatComesAfterCloseIsToldSo() throws Exception {
		Hold hold = locks.acquire(name);
		NamedLock lock = locks.asLock(name + "x");
		lock.lock();
		assertThrows(NullPointerException.class, () -> locks.close(null));
		assertTrue(locks.close(LONG));
		assertTrue(locks.close(LONG));
		assertTrue(hold.release(), "it was given back");
		hold.close();
		Candidacy candidacy = locks.elect(name, "me", (term, stop) -> { });
		ExecutionException error = assertThrows(ExecutionException.class, () -> candidacy.ended().get(20, TimeUnit.SECONDS));
		assertEquals(Status.CANCELED, ((LockException) error.getCause()).status());
		candidacy.close();
		assertEquals(Status.CANCELED, statusOf(() -> locks.observe(name, leader -> { })));
		assertEquals(Status.CANCELED, statusOf(() -> locks.leader(name)));
		assertEquals(Status.CANCELED, statusOf(() -> locks.once(name, NOW, () -> { })));
		lock.unlock();
		assertEquals(Status.CANCELED, statusOf(() -> lock.tryLock()));
	}

	@Test
	void anInterruptAtAnyMomentLeavesNothing() throws Exception {
		Random random = new Random(7);
		Lock lock = locks.asLock(name);
		for (int i = 0; i < 60; i++) {
			int way = i % 4;
			CompletableFuture<Void> ended = new CompletableFuture<>();
			Thread thread = new Thread(() -> {
				try {
					if (way == 0)
						locks.acquire(name).close();
					else if (way == 1)
						locks.tryAcquireEach(List.of(name, name + "x")).values().forEach(Hold::close);
					else if (way == 2)
						locks.once(name, null, () -> { });
					else {
						lock.lockInterruptibly();
						lock.unlock();
					}
					ended.complete(null);
				} catch (InterruptedException e) {
					ended.complete(null);
				} catch (Throwable e) {
					ended.completeExceptionally(e);
				}
			});
			thread.start();
			TimeUnit.MICROSECONDS.sleep(random.nextInt(4000));
			thread.interrupt();
			ended.get(20, TimeUnit.SECONDS);
		}
		Db.until(() -> Db.sql("SELECT 1 FROM lock_election.locks WHERE lease = " + locks.lease()) == null);
		assertTrue(isFree(name) && isFree(name + "x"));
	}

	@Test
	void anInterruptBeforeACallIsKept() throws Exception {
		Hold hold = locks.acquire(name);
		Lock lock = locks.asLock(name + "x");
		Thread.currentThread().interrupt();
		lock.lock();
		lock.unlock();
		assertFalse(lock.tryLock());
		assertTrue(hold.release());
		assertTrue(Thread.currentThread().isInterrupted());
		assertThrows(InterruptedException.class, () -> locks.acquire(name));
		assertFalse(Thread.currentThread().isInterrupted());
		assertTrue(isFree(name));

		LockElection other = open(new Options());
		long lease = other.lease();
		Thread.currentThread().interrupt();
		assertTrue(other.close(LONG), "it has waited for the server");
		assertTrue(Thread.interrupted());
		assertNull(Db.sql("SELECT lease_time_to_live(" + lease + ")"), "close() has returned, and the lease lives");
	}

	@Test
	void whatThrowsInATryGivesTheLockBack() throws Exception {
		assertThrows(IllegalStateException.class, () -> {
			try (Hold hold = locks.acquire(name); Hold other = locks.acquire(name + "x")) {
				throw new IllegalStateException(hold + " " + other);
			}
		});
		assertTrue(isFree(name) && isFree(name + "x"));
	}

	@Test
	void whatAFenceFindsLostIsLostAtOnce() throws Exception {
		Hold hold = locks.acquire(name);
		CompletableFuture<Void> told = new CompletableFuture<>();
		hold.onLost(() -> told.complete(null));
		Term term = locks.campaign(name, "me", null);
		try (Connection connection = Db.connect()) {
			connection.setAutoCommit(false);
			Db.sql("SELECT force_release_lock('" + name + "'), force_resign('" + name + "')");
			if (hold.isValid())
				assertEquals(Status.LOST, statusOf(() -> {
					hold.fence(connection);
					return null;
				}));
			assertFalse(hold.isValid());
			told.get(20, TimeUnit.SECONDS);
		}
		assertEquals(Status.LOST, statusOf(() -> {
			term.proclaim("late");
			return null;
		}));
		assertFalse(term.isValid());
		assertEquals(State.CONNECTED, locks.state());
	}

	@Test
	void errorsOfConnectingAreToldAtOnce() {
		assertEquals(Status.DENIED, statusOf(() -> LockElection.connect(Db.URL.replaceAll("user=\\w+", "user=nobody_at_all"))));
		assertEquals(Status.INVALID, statusOf(() -> LockElection.connect("jdbc:postgresql://x:port/y")));
		assertEquals(Status.INVALID, statusOf(() -> LockElection.connect("")));
	}

	/** Acquires what its argument names, and returns from main() without closing anything. */
	static final class Leaver {
		public static void main(String[] names) throws InterruptedException {
			LockElection session = LockElection.connect(Db.URL, new Options().ttl(Duration.ofMillis(1000)));
			session.acquire(names[0]);
			session.observe(names[0], leader -> { });
			session.elect(names[0], "me", (term, stop) -> stop.get());
		}
	}

	@Test
	void aProcessThatEndsWithAHoldEndsAndItsLockIsFreeAfterTheTtl() throws Exception {
		Process process = new ProcessBuilder(System.getProperty("java.home") + "/bin/java", "-cp",
				System.getProperty("java.class.path"), Leaver.class.getName(), name).inheritIO().start();
		assertTrue(process.waitFor(60, TimeUnit.SECONDS));
		assertEquals(0, process.exitValue());
		locks.acquire(name, null, LONG).close();
		locks.campaign(name, "next", LONG).close();
	}

	@Test
	void virtualThreadsWaitAndAreInterrupted() throws Exception {
		Method start = null;
		for (Method method : Thread.class.getMethods())
			start = method.getName().equals("startVirtualThread") ? method : start;
		assumeTrue(start != null, "this Java has no virtual threads");
		Hold hold = locks.acquire(name);
		AtomicInteger granted = new AtomicInteger();
		AtomicInteger interrupted = new AtomicInteger();
		List<Thread> threads = new ArrayList<>();
		for (int i = 0; i < 300; i++)
			threads.add((Thread) start.invoke(null, (Runnable) () -> {
				try (Hold mine = locks.acquire(name)) {
					granted.incrementAndGet();
				} catch (InterruptedException e) {
					interrupted.incrementAndGet();
				}
			}));
		Db.until(() -> Db.waiters(name) == 300);
		for (int i = 0; i < 100; i++)
			threads.get(i * 3).interrupt();
		Db.until(() -> Db.waiters(name) == 200);
		assertNull(locks.asLock(name).hold());
		hold.close();
		for (Thread thread : threads)
			thread.join();
		assertEquals(List.of(200, 100), List.of(granted.get(), interrupted.get()));
	}
}
