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
 * A lock provider for ShedLock on a {@link LockElection}. It needs no table.
 *
 * <p>{@code lockAtMostFor} limits the time for which a task holds the lock. You need not guess it for the case that a
 * process dies: the lock is then free after the session's TTL, or after {@code lockAtLeastFor} if that is longer.
 * {@code lockAtLeastFor} closes the name on the server. If it exceeds the server's setting lock_election.max_hold_for
 * (1 day), the task does not run, and its scheduler gets an exception.
 *
 * <p>A session that has ended, after an outage longer than its TTL, is reopened.
 */
public final class LockElectionProvider implements ExtensibleLockProvider {
	/** Upper limit of the time between the request for a lock and its grant. */
	private static final Duration ROOM = Duration.ofSeconds(15);

	private final LockElection locks;
	private final String prefix;

	/**
	 * Creates a provider whose names begin with "shedlock ".
	 *
	 * @param locks the session, to be closed after the scheduler
	 */
	public LockElectionProvider(LockElection locks) {
		this(locks, "shedlock ");
	}

	/**
	 * Creates a provider with your own prefix.
	 *
	 * @param locks the session, to be closed after the scheduler
	 * @param prefix the prefix of the names, which have at most 255 bytes with it
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

	/** Whether the server accepts a slightly longer hold_for. Throws LockException if it rejects even atLeast. */
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
		/** The time of the request; equal to "since" if the server does not accept more than lockAtLeastFor. */
		private final long asked;
		/** The time from which lockAtMostFor and lockAtLeastFor count. */
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

		/** Unlocks. Closes the name until lockAtLeastFor ends; the server counts from the grant, after "asked". */
		@Override
		protected void doUnlock() {
			Duration atLeast = lockConfiguration.getLockAtLeastFor();
			boolean over = System.nanoTime() - since >= atLeast.toNanos();
			try {
				if (expired.complete(false))
					hold.release(over ? null : atLeast.plusNanos(since - asked));
			} catch (LockException e) {
				if (e.status() != LockException.Status.UNKNOWN) // UNKNOWN: the session keeps retrying
					throw new net.javacrumbs.shedlock.support.LockException("Can not unlock " + hold, e);
			}
		}

		@Override
		protected Optional<SimpleLock> doExtend(LockConfiguration next) {
			boolean late = System.nanoTime() - since >= lockConfiguration.getLockAtMostFor().toNanos(); // even without the timer
			if (!expired.complete(false) || late || !hold.isValid()) {
				hold.close();
				return Optional.empty();
			}
			return Optional.of(new Lock(next, hold, asked, System.nanoTime()));
		}
	}
}
