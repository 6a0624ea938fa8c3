package lockelection.shedlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import lockelection.Db;
import lockelection.LockElection;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;
import net.javacrumbs.shedlock.test.support.FuzzTester;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** ShedLock's fuzz test, in the middle of which the server is restarted again and again. */
@Timeout(300)
class RestartTest {
	private static final int ITERATIONS = 100;
	/** Of the four threads of the one job, and of the other one, one of whose threads is short. */
	private static final int RUNS = 4 * ITERATIONS + 3 * ITERATIONS + FuzzTester.SHORT_ITERATION;
	private static final int RESTARTS = 4;

	/** At each fifth of the runs the threads wait until a restart has begun. */
	private static final class Restarting implements LockProvider {
		private final LockProvider provider;
		final AtomicInteger granted = new AtomicInteger();
		final CountDownLatch[] begun = new CountDownLatch[RESTARTS];

		Restarting(LockProvider provider) {
			this.provider = provider;
			for (int i = 0; i < RESTARTS; i++)
				begun[i] = new CountDownLatch(1);
		}

		static int after(int restart) {
			return RUNS * (restart + 1) / (RESTARTS + 1);
		}

		@Override
		public Optional<SimpleLock> lock(LockConfiguration configuration) {
			try {
				for (int i = 0; i < RESTARTS; i++) {
					if (granted.get() >= after(i))
						begun[i].await();
				}
				Optional<SimpleLock> lock = provider.lock(configuration);
				lock.ifPresent(held -> granted.incrementAndGet());
				return lock;
			} catch (InterruptedException e) {
				throw new IllegalStateException(e);
			} catch (LockException e) {
				if (((lockelection.LockException) e.getCause()).status() == lockelection.LockException.Status.UNAVAILABLE)
					return Optional.empty(); // on a busy machine, a restart may take longer than the limit of a call
				throw e;
			}
		}
	}

	@Test
	void restartsDuringTheFuzzTestLetNoTwoIn() throws Exception {
		try (LockElection locks = Db.open(120_000)) {
			Restarting provider = new Restarting(new LockElectionProvider(locks));
			FuzzTester fuzz = new FuzzTester(provider, Duration.ofMillis(1), Duration.ofMinutes(5), ITERATIONS);
			CompletableFuture<Void> run = CompletableFuture.runAsync(() -> {
				try {
					fuzz.doFuzzTest();
				} catch (Exception e) {
					throw new IllegalStateException(e);
				}
			});
			Object started = Db.sql("SELECT pg_postmaster_start_time()");
			for (int i = 0; i < RESTARTS; i++) {
				int after = Restarting.after(i);
				Db.until(() -> provider.granted.get() >= after || run.isDone());
				if (run.isDone())
					run.get(); // it has failed: says why
				provider.begun[i].countDown();
				Db.restart();
				Object next = Db.sql("SELECT pg_postmaster_start_time()");
				assertTrue(!next.equals(started));
				started = next;
			}
			run.get(200, TimeUnit.SECONDS);
			assertEquals(RUNS, provider.granted.get());
			System.out.println("ShedLock's fuzz test: " + provider.granted + " runs, " + RESTARTS + " restarts");
		}
	}
}
