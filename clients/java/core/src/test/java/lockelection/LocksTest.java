package lockelection;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.Lock;
import lockelection.LockException.Status;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What a session does, against a server. */
@Timeout(120)
class LocksTest {
	private static final Duration NOW = Duration.ZERO;
	private static final Duration SOON = Duration.ofMillis(100);
	private static final Duration LONG = Duration.ofSeconds(20);

	private final String name = Db.name();
	private LockElection locks;
	private LockElection other;

	@BeforeEach
	void open() {
		locks = Db.open(5000);
		other = Db.open(5000);
	}

	@AfterEach
	void close() {
		assertTrue(locks.close(LONG));
		assertTrue(other.close(LONG));
	}

	/** Runs a call in a thread of its own. */
	private interface Call<T> {
		T call() throws Exception;
	}

	private static <T> CompletableFuture<T> async(Call<T> call) {
		CompletableFuture<T> answer = new CompletableFuture<>();
		Thread thread = new Thread(() -> {
			try {
				answer.complete(call.call());
			} catch (Throwable e) {
				answer.completeExceptionally(e);
			}
		});
		thread.setDaemon(true);
		thread.start();
		return answer;
	}

	private static Status statusOf(Call<?> call) {
		return assertThrows(LockException.class, call::call).status();
	}

	@Test
	void oneHasTheLockAndTheOtherWaits() throws Exception {
		Hold hold = locks.acquire(name);
		assertTrue(hold.isValid());
		assertTrue(hold.token() > 0);
		assertEquals(Status.NOT_ACQUIRED, statusOf(() -> other.acquire(name, null, NOW)));
		assertEquals(Status.NOT_ACQUIRED, statusOf(() -> other.acquire(name, null, SOON)));
		Db.until(() -> Db.waiters(name) == 0);

		CompletableFuture<Hold> next = async(() -> other.acquire(name));
		Db.until(() -> Db.waiters(name) == 1);
		assertTrue(hold.release());
		assertFalse(hold.isValid());
		assertEquals(Duration.ZERO, hold.timeLeft());
		Hold second = next.get(20, TimeUnit.SECONDS);
		assertTrue(second.token() > hold.token());
		second.close();
		assertTrue(hold.release(), "once more");
	}

	@Test
	void twoHoldsOfOneSessionExcludeEachOther() throws Exception {
		try (Hold hold = locks.acquire(name)) {
			assertEquals(List.of(name), hold.names());
			assertTrue(locks.tryAcquire(Request.exclusive(name)).isEmpty());
			assertTrue(locks.tryAcquireEach(List.of(name)).isEmpty());
		}
		assertTrue(locks.tryAcquire(Request.exclusive(name)).isPresent());
	}

	@Test
	void grantsAreInTheOrderOfArrival() throws Exception {
		Hold first = locks.acquire(name);
		List<Integer> order = Collections.synchronizedList(new ArrayList<>());
		List<CompletableFuture<Void>> waiting = new ArrayList<>();
		for (int i = 0; i < 6; i++) {
			int number = i;
			LockElection by = i % 2 == 0 ? locks : other;
			waiting.add(async(() -> {
				try (Hold hold = by.acquire(name)) {
					order.add(number);
					return null;
				}
			}));
			Db.until(() -> Db.waiters(name) == number + 1);
		}
		first.close();
		for (CompletableFuture<Void> one : waiting)
			one.get(20, TimeUnit.SECONDS);
		assertEquals(List.of(0, 1, 2, 3, 4, 5), order);
	}

	@Test
	void sharedLocksPermitsAndSeveralAtOnce() throws Exception {
		Hold reader = locks.acquire(Request.shared(name), NOW);
		Hold another = other.acquire(Request.shared(name), NOW);
		assertTrue(other.tryAcquire(Request.exclusive(name)).isEmpty());
		reader.close();
		another.close();

		Hold one = locks.acquire(Request.permit(name, 2), NOW);
		Hold two = locks.acquire(Request.permit(name, 2), null);
		assertTrue(other.tryAcquire(Request.permit(name, 2)).isEmpty());
		assertEquals(Status.INVALID, statusOf(() -> other.acquire(Request.permit(name, 3), NOW)));
		one.close();
		other.acquire(Request.permit(name, 2), null).close();
		two.close();

		String b = Db.name();
		try (Hold both = locks.acquire(Request.exclusive(name, b), null)) {
			assertEquals(List.of(name, b), both.names());
			assertTrue(other.tryAcquire(Request.exclusive(b)).isEmpty());
			CompletableFuture<Hold> next = async(() -> other.acquire(Request.shared(b, name), LONG));
			Db.until(() -> Db.waiters(b) == 1);
			both.close();
			next.get(20, TimeUnit.SECONDS).close();
		}
		assertTrue(other.tryAcquire(Request.exclusive(b)).isPresent());
	}

	@Test
	void manyNamesEachForItself() throws Exception {
		List<String> names = new ArrayList<>();
		for (int i = 0; i < 300; i++)
			names.add(name + i);
		other.acquire(names.get(7));
		Map<String, Hold> held = locks.tryAcquireEach(names);
		assertEquals(299, held.size());
		assertFalse(held.containsKey(names.get(7)));
		assertEquals(names.get(0), held.keySet().iterator().next());
		held.values().forEach(Hold::close);

		assertEquals(Status.INVALID, statusOf(() -> locks.tryAcquireEach(List.of(name, "x".repeat(300)))));
		Db.until(() -> Db.sql("SELECT 1 FROM lock_election.locks WHERE name = '" + name + "'") == null);
		assertEquals(2, locks.tryAcquireEach(List.of(name, name + "x"), true).size());
	}

	@Test
	void anInterruptEndsAWaitAndLeavesNothing() throws Exception {
		try (Hold hold = other.acquire(name)) {
			AtomicReference<Throwable> error = new AtomicReference<>();
			Thread thread = new Thread(() -> {
				try {
					locks.acquire(name);
				} catch (Throwable e) {
					error.set(e);
				}
			});
			thread.start();
			Db.until(() -> Db.waiters(name) == 1);
			thread.interrupt();
			thread.join();
			assertTrue(error.get() instanceof InterruptedException);
			Db.until(() -> Db.waiters(name) == 0);
			assertTrue(hold.isValid());
		}
	}

	@Test
	void closingEndsWaitsAndGivesAllBack() throws Exception {
		Hold hold = other.acquire(name);
		Hold mine = locks.acquire(name + "x");
		CompletableFuture<Hold> waiting = async(() -> locks.acquire(name));
		AtomicInteger lost = new AtomicInteger();
		mine.onLost(lost::incrementAndGet);
		Db.until(() -> Db.waiters(name) == 1);
		assertTrue(locks.close(LONG));
		Throwable error = assertThrows(Exception.class, waiting::get).getCause();
		assertEquals(Status.CANCELED, ((LockException) error).status());
		assertFalse(mine.isValid());
		assertEquals(0, Db.waiters(name));
		assertTrue(other.tryAcquire(Request.exclusive(name + "x")).isPresent());
		assertEquals(Status.CANCELED, statusOf(() -> locks.acquire(name)));
		assertEquals(Status.CANCELED, statusOf(() -> {
			locks.reopen();
			return null;
		}));
		assertEquals(State.ENDED, locks.state());
		assertEquals(0, lost.get());
		assertTrue(hold.isValid());
	}

	@Test
	void aForcedReleaseIsToldAsLost() throws Exception {
		Hold hold = locks.acquire(name);
		CountDownLatch told = new CountDownLatch(1);
		hold.onLost(told::countDown);
		assertEquals(1L, Db.sql("SELECT force_release_lock('" + name + "')"));
		assertTrue(told.await(20, TimeUnit.SECONDS));
		assertFalse(hold.isValid());
		assertFalse(hold.release());
		assertEquals(State.CONNECTED, locks.state());
		CountDownLatch late = new CountDownLatch(1);
		hold.onLost(late::countDown);
		assertTrue(late.await(20, TimeUnit.SECONDS));
		try (Connection connection = Db.connect()) {
			connection.setAutoCommit(false);
			assertEquals(Status.LOST, statusOf(() -> {
				hold.fence(connection);
				return null;
			}));
		}
	}

	@Test
	void aRevokedLeaseEndsTheSession() throws Exception {
		Hold hold = locks.acquire(name);
		long lease = locks.lease();
		CountDownLatch told = new CountDownLatch(1);
		hold.onLost(told::countDown);
		assertEquals(true, Db.sql("SELECT revoke_lease(" + lease + ")"));
		assertTrue(told.await(20, TimeUnit.SECONDS));
		Db.until(() -> locks.state() == State.ENDED);
		assertEquals(Status.LOST, statusOf(() -> locks.acquire(name)));
		locks.reopen();
		assertEquals(State.CONNECTED, locks.state());
		assertTrue(locks.lease() != lease);
		locks.acquire(name).close();
	}

	@Test
	void theSqlOfAFenceHasNoParameters() throws Exception {
		String odd = name + " it's ?, :x, {0}, $1, %s, \\, é";
		List<Hold> holds = List.of(locks.acquire(odd), locks.acquire(Request.exclusive(name, odd + 2), NOW),
				locks.campaign(odd, "me", NOW));
		try (Connection connection = Db.connect(); Statement statement = connection.createStatement()) {
			connection.setAutoCommit(false);
			for (Hold hold : holds) {
				String sql = hold.fenceSql();
				assertFalse(sql.matches("(?s).*[?:{$%\\\\].*"), sql);
				try (ResultSet fenced = statement.executeQuery(sql)) {
					assertTrue(fenced.next());
					assertEquals(hold.names().size(), fenced.getInt(1));
				}
				connection.commit();
				String last = hold.names().get(hold.names().size() - 1).replace("'", "''");
				Db.sql("SELECT force_" + (hold instanceof Term ? "resign" : "release_lock") + "('" + last + "')");
				assertEquals("LE001", assertThrows(SQLException.class, () -> statement.executeQuery(sql)).getSQLState());
				connection.rollback();
				hold.close();
				assertThrows(LockLostException.class, hold::fenceSql);
			}
		}
	}

	@Test
	void aFenceIsOfTheTransaction() throws Exception {
		try (Hold hold = locks.acquire(Request.exclusive(name, name + "x"), NOW); Connection connection = Db.connect()) {
			assertEquals(Status.INVALID, statusOf(() -> {
				hold.fence(connection);
				return null;
			}));
			connection.setAutoCommit(false);
			hold.fence(connection);
			CompletableFuture<Hold> next = async(() -> other.acquire(name));
			assertTrue(hold.release());
			Db.until(() -> Db.waiters(name) == 1);
			assertThrows(Exception.class, () -> next.get(300, TimeUnit.MILLISECONDS));
			connection.commit();
			next.get(20, TimeUnit.SECONDS).close();
		}
	}

	@Test
	void aNameStaysClosed() throws Exception {
		Hold hold = locks.acquire(name, null, NOW);
		assertTrue(hold.release(Duration.ofSeconds(1)));
		assertTrue(other.tryAcquire(Request.exclusive(name)).isEmpty());
		other.acquire(name, null, Duration.ofSeconds(Long.MAX_VALUE)).close();
		Hold again = locks.acquire(name, null, NOW);
		assertEquals(Status.INVALID, statusOf(() -> again.release(Duration.ofDays(400))));
		assertTrue(other.tryAcquire(Request.exclusive(name)).isPresent());
	}

	@Test
	void onceRunsOnce() throws Exception {
		AtomicInteger runs = new AtomicInteger();
		assertTrue(locks.once(name, Duration.ofSeconds(30), runs::incrementAndGet));
		assertFalse(other.once(name, Duration.ofSeconds(30), runs::incrementAndGet));
		assertEquals(1, runs.get());
		assertThrows(IllegalStateException.class, () -> locks.once(name + "x", Duration.ofSeconds(30), () -> {
			throw new IllegalStateException();
		}));
		assertFalse(other.once(name + "x", Duration.ofSeconds(30), runs::incrementAndGet));
	}

	@Test
	void aHoldWithATtlOfItsOwnHasALease() throws Exception {
		Duration ttl = Duration.ofSeconds(60);
		try (Hold hold = locks.acquire(name, ttl, NOW); Hold same = locks.acquire(name + "x", ttl, null)) {
			assertTrue(hold.timeLeft().toMillis() > 50_000);
			assertEquals(2L, Db.sql("SELECT count(*) FROM lock_election.leases WHERE owner LIKE 'test%' AND lease IN ("
					+ "SELECT lease FROM lock_election.locks WHERE name LIKE '" + name + "%' UNION SELECT " + locks.lease()
					+ ")"));
			assertTrue(other.tryAcquire(Request.exclusive(name)).isEmpty());
			assertTrue(same.isValid());
		}
		Duration brief = Duration.ofMillis(600);
		Hold hold = locks.acquire(name, brief, NOW);
		Object lease = Db.sql("SELECT lease FROM lock_election.locks WHERE name = '" + name + "'");
		hold.close();
		Db.until(() -> Db.sql("SELECT lease_time_to_live(" + lease + ")") == null);
		assertEquals(Status.INVALID, statusOf(() -> locks.acquire(name, Duration.ofMillis(1), NOW)));
		locks.acquire(name, brief, NOW).close();
	}

	@Test
	void theServerSaysWhatIsWrong() throws Exception {
		LockException error = assertThrows(LockException.class, () -> locks.acquire("x".repeat(300)));
		assertEquals(Status.INVALID, error.status());
		assertEquals("22023", error.sqlState());
		assertEquals(Status.INVALID, statusOf(() -> LockElection.connect("jdbc:mysql://x")));
		assertEquals(Status.UNAVAILABLE, statusOf(() -> LockElection.connect("jdbc:postgresql://127.0.0.1:1/x")));
		assertEquals(Status.NOT_INSTALLED, statusOf(() -> LockElection.connect(Db.URL.replaceAll("/\\w+\\?", "/template1?"))));
		assertEquals(Status.UNAVAILABLE, statusOf(() -> LockElection.connect(Db.URL.replaceAll("/\\w+\\?", "/none?"))));
		assertEquals("lock_election is not installed in database \"template1\" "
				+ "(CREATE EXTENSION lock_election, or lockctl install for the portable edition)",
				assertThrows(LockException.class, () -> LockElection.connect(Db.URL.replaceAll("/\\w+\\?", "/template1?")))
						.getMessage());
	}

	@Test
	void oneErrorIsNotAnothersError() throws Exception {
		try (Hold busy = other.acquire(name)) {
			CompletableFuture<Hold> good = async(() -> locks.acquire(name + "good"));
			CompletableFuture<Hold> bad = async(() -> locks.acquire("x".repeat(256)));
			good.get(20, TimeUnit.SECONDS).close();
			assertThrows(Exception.class, bad::get);
			assertTrue(busy.isValid());
		}
	}

	@Test
	void aDeadlockIsTold() throws Exception {
		Hold a = locks.acquire(name);
		Hold b = other.acquire(name + "x");
		CompletableFuture<Hold> second = async(() -> locks.acquire(name + "x"));
		Db.until(() -> Db.waiters(name + "x") == 1);
		CompletableFuture<Hold> third = async(() -> other.acquire(name, null, Duration.ofSeconds(2)));
		Db.until(() -> third.isDone() || second.isDone());
		a.close();
		b.close();
	}

	@Test
	void aLockOfTheLanguage() throws Exception {
		NamedLock lock = locks.asLock(name);
		Lock elsewhere = other.asLock(name);
		lock.lock();
		lock.lock();
		assertTrue(lock.tryLock());
		assertTrue(lock.isLocked());
		assertTrue(lock.hold().isValid());
		assertFalse(elsewhere.tryLock());
		assertFalse(elsewhere.tryLock(50, TimeUnit.MILLISECONDS));
		assertFalse(locks.asLock(name).tryLock(Duration.ofMillis(1), null));
		assertFalse(async(() -> lock.tryLock()).get());
		assertNull(async(lock::hold).get());
		assertTrue(async(() -> assertThrows(IllegalMonitorStateException.class, lock::unlock)).get() != null);
		lock.unlock();
		lock.unlock();
		assertTrue(lock.isLocked());
		lock.unlock();
		assertFalse(lock.isLocked());
		assertThrows(UnsupportedOperationException.class, lock::newCondition);

		assertTrue(locks.asLock(name + "x").tryLock(Duration.ofSeconds(Long.MAX_VALUE), null));
		elsewhere.lockInterruptibly();
		Thread thread = new Thread(() -> {
			assertThrows(InterruptedException.class, lock::lockInterruptibly);
			lock.lock();
			lock.unlock();
			if (!Thread.interrupted())
				locks.close(LONG); // told by the end of the test
		});
		thread.start();
		Db.until(() -> Db.waiters(name) == 1);
		thread.interrupt();
		Db.until(() -> Db.waiters(name) == 0 || Db.waiters(name) == 1);
		thread.interrupt();
		elsewhere.unlock();
		thread.join();

		lock.lock(Duration.ofSeconds(9));
		Db.sql("SELECT force_release_lock('" + name + "')");
		assertThrows(LockLostException.class, lock::unlock);
		assertThrows(LockException.class, () -> locks.asLock("x".repeat(300)).lock());
	}

	@Test
	void aThousandThreadsWaitOnOneConnection() throws Exception {
		String connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lock_election'";
		Object before = Db.sql(connections);
		Hold first = other.acquire(name);
		List<CompletableFuture<Long>> waiting = new ArrayList<>();
		for (int i = 0; i < 1000; i++)
			waiting.add(async(() -> {
				try (Hold hold = locks.acquire(name)) {
					return hold.token();
				}
			}));
		Db.until(() -> Db.waiters(name) == 1000);
		assertEquals(before, Db.sql(connections));
		first.close();
		long tokens = 0;
		for (CompletableFuture<Long> one : waiting)
			tokens += one.get(40, TimeUnit.SECONDS) > 0 ? 1 : 0;
		assertEquals(1000, tokens);
	}

	@Test
	void nothingIsLeftAfterClose() throws Exception {
		LockElection brief = LockElection.connect(Db.URL, new Options().name("brief").onState(state -> { }));
		Hold hold = brief.acquire(name);
		hold.onLost(() -> { });
		Observer observer = brief.observe(name, leader -> { });
		Candidacy candidacy = brief.elect(name, "me", (term, stop) -> stop.get());
		Db.until(() -> brief.leader(name).isPresent());
		assertTrue(brief.close(LONG));
		assertTrue(candidacy.ended().isDone());
		observer.close();
		Db.until(() -> Thread.getAllStackTraces().keySet().stream()
				.noneMatch(thread -> thread.getName().matches("lock_election.*(brief|candidate " + name + ")")));
		assertEquals(0L, Db.sql("SELECT count(*) FROM lock_election.leases WHERE owner LIKE 'brief%'"));
	}

	/** A NULL in the text of an array is the text "NULL" then. */
	@Test
	void theSettingArrayNullsChangesNothing() throws Exception {
		for (String mode : List.of("", "&preferQueryMode=simple")) {
			try (LockElection session = LockElection.connect(Db.URL + "&options=-c%20array_nulls=off" + mode)) {
				Hold hold = session.acquire(name);
				assertTrue(other.tryAcquire(Request.exclusive(name)).isEmpty());
				CompletableFuture<Hold> next = async(() -> session.acquire(Request.exclusive(name, "NULL"), LONG));
				Db.until(() -> Db.waiters(name) == 1);
				assertTrue(hold.release());
				assertTrue(next.get(20, TimeUnit.SECONDS).release());
				Hold permit = session.acquire(Request.permit(name + "p", 2), NOW);
				assertTrue(permit.release(Duration.ofMillis(1)));
				Term term = session.campaign(name, "null", NOW);
				term.proclaim("NULL");
				assertEquals("NULL", other.leader(name).orElseThrow().value());
			}
		}
	}

	@Test
	void aConnectionThatIsTerminatedLosesNothing() throws Exception {
		Hold hold = locks.acquire(name);
		Hold others = other.acquire(name + "x");
		CompletableFuture<Hold> waiting = async(() -> locks.acquire(name + "x"));
		Db.until(() -> Db.waiters(name + "x") == 1);
		Object terminated = Db.sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
				+ " WHERE application_name = 'lock_election' AND pid IN (SELECT pid FROM lock_election.waiters)");
		assertTrue((Long) terminated >= 1);
		Db.until(() -> locks.state() == State.CONNECTED);
		assertTrue(hold.isValid());
		others.close();
		waiting.get(20, TimeUnit.SECONDS).close();
		assertTrue(hold.release());
	}

	@Test
	void aDataSourceGivesTheConnection() throws SQLException, InterruptedException {
		try (com.zaxxer.hikari.HikariDataSource pool = new com.zaxxer.hikari.HikariDataSource()) {
			pool.setJdbcUrl(Db.URL);
			pool.setMaximumPoolSize(2);
			try (LockElection pooled = LockElection.connect(pool); Hold hold = pooled.acquire(name)) {
				try (Connection connection = pool.getConnection(); Statement statement = connection.createStatement()) {
					connection.setAutoCommit(false);
					hold.fence(connection);
					statement.execute("SELECT 1");
					connection.commit();
				}
			}
			try (Connection connection = pool.getConnection(); Connection second = pool.getConnection()) {
				assertTrue(connection.isValid(1) && second.isValid(1));
			}
		}
	}
}
