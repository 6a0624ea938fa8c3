package lockelection.shedlock;

import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import lockelection.Hold;
import lockelection.LockElection;
import lockelection.LockException;
import lockelection.Request;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;

/**
 * ShedLock's locks as those of a {@link LockElection}. They need no table.
 *
 * <p>{@code lockAtMostFor} bounds how long a task has the lock; it does not have to be guessed for the case that a
 * process dies. Then the lock is free after the session's TTL, or after {@code lockAtLeastFor} if that is longer.
 * {@code lockAtLeastFor} closes the name at the server, at most for its setting lock_election.max_hold_for (1 day): a task
 * with a longer one does not run, and its scheduler is told so.
 *
 * <p>A session that has ended, after an outage that was longer than its TTL, is opened again.
 */
public final class LockElectionProvider implements ExtensibleLockProvider {
	/** More than there is between asking for a lock and having it. */
	private static final Duration ROOM = Duration.ofSeconds(15);

	private final LockElection locks;
	private final String prefix;

	/**
	 * With names that begin with "shedlock ".
	 *
	 * @param locks to be closed after the scheduler
	 */
	public LockElectionProvider(LockElection locks) {
		this(locks, "shedlock ");
	}

	/**
	 * With a prefix of your own.
	 *
	 * @param locks to be closed after the scheduler
	 * @param prefix of the names; with it they have at most 255 bytes
	 */
	public LockElectionProvider(LockElection locks, String prefix) {
		this.locks = Objects.requireNonNull(locks, "the session is null");
		this.prefix = Objects.requireNonNull(prefix, "the prefix is null");
	}

	@Override
	public Optional<SimpleLock> lock(LockConfiguration configuration) {
		Objects.requireNonNull(configuration, "the configuration is null");
		Duration atLeast = configuration.getLockAtLeastFor();
		try {
			Request request = Request.exclusive(prefix + configuration.getName())
					.ttl(atLeast.compareTo(locks.ttl()) > 0 ? atLeast : null);
			locks.reopen();
			boolean hasRoom = atLeast.isZero() || hasRoom(prefix + configuration.getName(), atLeast);
			long asked = System.nanoTime();
			return locks.tryAcquire(request).map(hold -> {
				long since = System.nanoTime();
				return new Lock(configuration, hold, hasRoom ? asked : since, since);
			});
		} catch (InterruptedException e) {
			Thread.currentThread().interrupt();
			return Optional.empty();
		} catch (LockException e) {
			throw new net.javacrumbs.shedlock.support.LockException("Can not acquire " + configuration.getName(), e);
		}
	}

	/** Will the server close the name for a little longer than that? LockException: not even for that. */
	private boolean hasRoom(String name, Duration atLeast) throws InterruptedException {
		try {
			locks.checkHoldFor(name, atLeast.plus(ROOM));
			return true;
		} catch (LockException e) {
			if (e.status() != LockException.Status.LIMIT && e.status() != LockException.Status.INVALID)
				throw e;
			locks.checkHoldFor(name, atLeast);
			return false;
		}
	}

	private static final class Lock extends AbstractSimpleLock {
		private final Hold hold;
		/** Before the server was asked for the hold; as "since" if lockAtLeastFor is the longest that it closes a name for. */
		private final long asked;
		/** From when lockAtMostFor and lockAtLeastFor count. */
		private final long since;
		private final CompletableFuture<Boolean> expired = new CompletableFuture<>();

		Lock(LockConfiguration configuration, Hold hold, long asked, long since) {
			super(configuration);
			this.hold = hold;
			this.asked = asked;
			this.since = since;
			expired.thenAcceptAsync(over -> {
				if (over)
					hold.close();
			});
			expired.completeOnTimeout(true, configuration.getLockAtMostFor().toNanos(), TimeUnit.NANOSECONDS);
		}

		/** The name stays closed until lockAtLeastFor is over; the server counts from the grant, which came after "asked". */
		@Override
		protected void doUnlock() {
			Duration atLeast = lockConfiguration.getLockAtLeastFor();
			boolean over = System.nanoTime() - since >= atLeast.toNanos();
			try {
				if (expired.complete(false))
					hold.release(over ? null : atLeast.plusNanos(since - asked));
			} catch (LockException e) {
				if (e.status() != LockException.Status.UNKNOWN) // otherwise the session goes on trying
					throw new net.javacrumbs.shedlock.support.LockException("Can not unlock " + hold, e);
			}
		}

		@Override
		protected Optional<SimpleLock> doExtend(LockConfiguration next) {
			boolean late = System.nanoTime() - since >= lockConfiguration.getLockAtMostFor().toNanos(); // also if no timer has come
			if (!expired.complete(false) || late || !hold.isValid()) {
				hold.close();
				return Optional.empty();
			}
			return Optional.of(new Lock(next, hold, asked, System.nanoTime()));
		}
	}
}
