package lockelection.spring;

import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import lockelection.Hold;
import lockelection.LockElection;
import lockelection.LockException;
import lockelection.LockLostException;
import lockelection.NamedLock;
import org.springframework.dao.CannotAcquireLockException;
import org.springframework.integration.support.locks.DistributedLock;
import org.springframework.integration.support.locks.ExpirableLockRegistry;
import org.springframework.integration.support.locks.RenewableLockRegistry;

/**
 * Spring Integration's locks as those of a {@link LockElection}. A thread that waits stands in a queue, and is told of
 * its turn; nothing is polled.
 *
 * <p>A lock is kept alive by its session until it is unlocked, so nothing has to be renewed, and a TTL says how long it
 * lasts after its process has died. A lock that is lost is told at once to {@link #hold}, and by the next call:
 * {@code unlock()} throws {@link ConcurrentModificationException}, and locking once more {@link LockLostException}.
 */
public final class LockElectionRegistry
		implements ExpirableLockRegistry<DistributedLock>, RenewableLockRegistry<DistributedLock> {
	private final LockElection locks;
	private final String prefix;
	private final Map<String, KeyLock> keys = new ConcurrentHashMap<>();

	/**
	 * With names that are the keys.
	 *
	 * @param locks to be closed after this
	 */
	public LockElectionRegistry(LockElection locks) {
		this(locks, "");
	}

	/**
	 * With a prefix.
	 *
	 * @param locks to be closed after this
	 * @param prefix of the names; with it they have at most 255 bytes
	 */
	public LockElectionRegistry(LockElection locks, String prefix) {
		this.locks = Objects.requireNonNull(locks, "the session is null");
		this.prefix = Objects.requireNonNull(prefix, "the prefix is null");
	}

	/** {@inheritDoc} The same one for a key, which has to be a String. */
	@Override
	public DistributedLock obtain(Object lockKey) {
		return key(lockKey);
	}

	private KeyLock key(Object lockKey) {
		if (!(lockKey instanceof String key))
			throw new IllegalArgumentException("the key of a lock is a String, and this is "
					+ (lockKey == null ? "null" : "of " + lockKey.getClass()));
		KeyLock lock = keys.computeIfAbsent(key, name -> new KeyLock(locks.asLock(prefix + name)));
		lock.obtained = System.nanoTime();
		return lock;
	}

	/**
	 * What the calling thread holds of a key, for {@link Hold#fence}, {@link Hold#isValid} and {@link Hold#onLost}.
	 *
	 * @param lockKey the key
	 * @return null if this thread does not hold it
	 */
	public Hold hold(String lockKey) {
		return key(lockKey).lock.hold();
	}

	/** {@inheritDoc} The session has renewed it all the time: this tells whether it is still held. */
	@Override
	public void renewLock(Object lockKey) {
		Hold hold = key(lockKey).lock.hold();
		if (hold == null || !hold.isValid())
			throw new IllegalStateException("Could not renew lock for: " + lockKey);
	}

	/** As {@link #renewLock(Object)}: the lock goes on until it is unlocked, whatever the TTL. */
	@Override
	public void renewLock(Object lockKey, Duration ttl) {
		renewLock(lockKey);
	}

	@Override
	public void expireUnusedOlderThan(long age) {
		if (age < 0)
			throw new IllegalArgumentException("the age is " + age + ": it is zero milliseconds or more");
		long now = System.nanoTime();
		keys.values().removeIf(lock -> !lock.lock.isLocked() && now - lock.obtained >= TimeUnit.MILLISECONDS.toNanos(age));
	}

	/** How Spring's own registries tell what goes wrong. */
	private static final class KeyLock implements DistributedLock {
		private final NamedLock lock;
		private volatile long obtained;

		KeyLock(NamedLock lock) {
			this.lock = lock;
		}

		private interface Call<T> {
			T call() throws InterruptedException;
		}

		private <T> T translate(Call<T> call) throws InterruptedException {
			try {
				return call.call();
			} catch (LockLostException e) {
				throw e;
			} catch (LockException e) {
				throw new CannotAcquireLockException("Failed to lock for: " + lock, e);
			}
		}

		@Override
		public void lock() {
			lock(null);
		}

		@Override
		public void lock(Duration ttl) {
			try {
				translate(() -> {
					lock.lock(ttl);
					return null;
				});
			} catch (InterruptedException e) {
				throw new IllegalStateException(e); // it is not interruptible
			}
		}

		@Override
		public void lockInterruptibly() throws InterruptedException {
			translate(() -> {
				lock.lockInterruptibly();
				return null;
			});
		}

		@Override
		public boolean tryLock() {
			try {
				return translate(lock::tryLock);
			} catch (InterruptedException e) {
				throw new IllegalStateException(e); // it keeps the interrupt for later
			}
		}

		@Override
		public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
			return translate(() -> lock.tryLock(time, unit));
		}

		@Override
		public boolean tryLock(Duration waitTime, Duration ttl) throws InterruptedException {
			return translate(() -> lock.tryLock(waitTime, ttl));
		}

		@Override
		public void unlock() {
			try {
				lock.unlock();
			} catch (LockLostException e) {
				throw (ConcurrentModificationException) new ConcurrentModificationException(
						"The lock was lost before it was unlocked: " + lock).initCause(e);
			}
		}

		@Override
		public Condition newCondition() {
			return lock.newCondition();
		}

		@Override
		public String toString() {
			return lock.toString();
		}
	}
}
