package lockelection.shedlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import lockelection.Db;
import lockelection.Hold;
import lockelection.LockElection;
import lockelection.Request;
import lockelection.State;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;
import net.javacrumbs.shedlock.test.support.AbstractExtensibleLockProviderIntegrationTest;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** ShedLock's own tests, and more. */
@Timeout(120)
class LockElectionProviderTest extends AbstractExtensibleLockProviderIntegrationTest {
	private LockElection locks;
	private LockElection watching;

	@BeforeAll
	static void tellTheVersion() throws URISyntaxException {
		URI jar = SimpleLock.class.getProtectionDomain().getCodeSource().getLocation().toURI();
		System.out.println("the tests of ShedLock's providers, with " + Path.of(jar).getFileName());
	}

	@BeforeEach
	void open() {
		locks = Db.open(30_000);
		watching = Db.open(30_000);
	}

	@AfterEach
	void close() {
		locks.close();
		watching.close();
	}

	@Override
	protected ExtensibleLockProvider getLockProvider() {
		return new LockElectionProvider(locks);
	}

	/** As what the server refuses: the scheduler knows ShedLock's exception alone. */
	@Test
	void whatIsWrongWithAnArgumentIsSaid() {
		assertEquals("the session is null", assertThrows(NullPointerException.class, () -> new LockElectionProvider(null)).getMessage());
		assertEquals("the prefix is null",
				assertThrows(NullPointerException.class, () -> new LockElectionProvider(locks, null)).getMessage());
		for (LockConfiguration wrong : List.of(
				new LockConfiguration(Instant.now(), "x\uD800", Duration.ofSeconds(1), Duration.ZERO),
				new LockConfiguration(Instant.now(), "x", Duration.ofDays(30), Duration.ofDays(25)))) {
			LockException error = assertThrows(LockException.class, () -> getLockProvider().lock(wrong));
			assertTrue(error.getCause().getMessage().matches("the name \"shedlock x.*|the TTL is PT600H.*"),
					error.getCause().getMessage());
		}
	}

	@Test
	void aLockThatIsOverIsNotExtendedAlsoIfItsTimerIsLate() throws Exception {
		CountDownLatch timers = new CountDownLatch(1);
		CompletableFuture<Void> busy = new CompletableFuture<>();
		CompletableFuture<Void> begun = new CompletableFuture<>();
		busy.thenRun(() -> { // in the one thread that has all timers
			begun.complete(null);
			try {
				timers.await();
			} catch (InterruptedException e) {
				Thread.currentThread().interrupt();
			}
		});
		busy.completeOnTimeout(null, 1, TimeUnit.MILLISECONDS);
		begun.get(20, TimeUnit.SECONDS);
		try {
			Duration most = Duration.ofMillis(50);
			SimpleLock lock = getLockProvider().lock(new LockConfiguration(Instant.now(), LOCK_NAME1, most, Duration.ZERO)).orElseThrow();
			long granted = System.nanoTime();
			Db.until(() -> System.nanoTime() - granted >= most.toNanos());
			assertTrue(lock.extend(Duration.ofMinutes(1), Duration.ZERO).isEmpty());
		} finally {
			timers.countDown();
		}
	}

	private boolean isLocked(String name) {
		try {
			Optional<Hold> hold = watching.tryAcquire(Request.exclusive("shedlock " + name));
			hold.ifPresent(Hold::close);
			return hold.isEmpty();
		} catch (InterruptedException e) {
			throw new AssertionError(e);
		}
	}

	/** A lock that is past lockAtMostFor is given back at that moment, and the server may be busy. */
	@Override
	protected void assertUnlocked(String name) {
		try {
			Db.until(() -> !isLocked(name));
		} catch (Exception e) {
			throw new AssertionError(name, e);
		}
	}

	@Override
	protected void assertLocked(String name) {
		assertTrue(isLocked(name));
	}

	private SimpleLock locked() {
		return getLockProvider().lock(lockConfig(LOCK_NAME1)).orElseThrow();
	}

	@Test
	void aRestartOfTheServerKeepsTheLock() throws Exception {
		SimpleLock lock = locked();
		Db.restart();
		assertLocked(LOCK_NAME1);
		lock.unlock();
		assertUnlocked(LOCK_NAME1);
	}

	@Test
	void aSessionThatHasEndedIsOpenedAgain() throws Exception {
		Db.sql("SELECT revoke_lease(" + locks.lease() + ")");
		Db.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lock_election'");
		Db.until(() -> locks.state() == State.ENDED);
		locked().unlock();
	}

	@Test
	void aLockIsKeptForTheLeastTimeIfItsProcessDies() throws Exception {
		LockElection dying = Db.open(500);
		LockConfiguration configuration =
				new LockConfiguration(Instant.now(), LOCK_NAME1, Duration.ofMinutes(5), Duration.ofSeconds(60));
		new LockElectionProvider(dying).lock(configuration).orElseThrow();
		Object left = Db.sql("SELECT extract(epoch FROM lease_time_to_live(lease))::float8 > 55 FROM lock_election.locks"
				+ " WHERE name = 'shedlock " + LOCK_NAME1 + "'");
		assertEquals(true, left);
		dying.close();
	}

	@Test
	void aTaskIsNotRunIfItsNameCannotBeClosedForSoLong() {
		Duration most = Duration.ofDays(1);
		LockConfiguration tooLong = new LockConfiguration(Instant.now(), LOCK_NAME1, most.plusMillis(1), most.plusMillis(1));
		assertThrows(LockException.class, () -> getLockProvider().lock(tooLong));
		assertUnlocked(LOCK_NAME1);
		getLockProvider().lock(new LockConfiguration(Instant.now(), LOCK_NAME1, most, most)).orElseThrow().unlock();
		assertLocked(LOCK_NAME1);
	}

	@Test
	void aBadNameIsToldInTheWayOfShedLock() {
		LockConfiguration configuration =
				new LockConfiguration(Instant.now(), "x".repeat(300), Duration.ofMinutes(5), Duration.ZERO);
		assertThrows(LockException.class, () -> getLockProvider().lock(configuration));
	}
}
