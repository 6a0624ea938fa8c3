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
 * A lock registry for Spring Integration on a {@link LockElection}. Waiting threads are in a queue, and are notified of
 * their turn; nothing is polled.
 *
 * <p>The session keeps a lock alive until it is unlocked, so the application need not renew it. The TTL is how long the
 * lock outlives its process if that dies. If a lock is lost, its {@link #hold} is invalid at once, and the next call
 * throws: {@code unlock()} a {@link ConcurrentModificationException}, another {@code lock()} a
 * {@link LockLostException}.
 */
public final class LockElectionRegistry
		implements ExpirableLockRegistry<DistributedLock>, RenewableLockRegistry<DistributedLock> {
	private final LockElection locks;
	private final String prefix;
	private final Map<String, KeyLock> keys = new ConcurrentHashMap<>();

	/**
	 * Makes a registry whose keys are the names of the locks.
	 *
	 * @param locks the session, to be closed after this registry
	 */
	public LockElectionRegistry(LockElection locks) {
		this(locks, "");
	}

	/**
	 * Makes a registry whose keys with a prefix are the names of the locks.
	 *
	 * @param locks the session, to be closed after this registry
	 * @param prefix the prefix of the names, which have at most 255 bytes with it
	 */
	public LockElectionRegistry(LockElection locks, String prefix) {
		this.locks = Objects.requireNonNull(locks, "the session is null");
		this.prefix = Objects.requireNonNull(prefix, "the prefix is null");
	}

	/** {@inheritDoc} Returns the same lock for the same key, which must be a String. */
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
	 * The calling thread's hold of a key, for {@link Hold#fence}, {@link Hold#isValid} and {@link Hold#onLost}.
	 *
	 * @param lockKey the key
	 * @return null if this thread does not hold the lock
	 */
	public Hold hold(String lockKey) {
		return key(lockKey).lock.hold();
	}

	/** {@inheritDoc} The session renews the lock anyway: this only throws if it is no longer held. */
	@Override
	public void renewLock(Object lockKey) {
		Hold hold = key(lockKey).lock.hold();
		if (hold == null || !hold.isValid())
			throw new IllegalStateException("Could not renew lock for: " + lockKey);
	}

	/** Like {@link #renewLock(Object)}: the lock lasts until it is unlocked, whatever the TTL. */
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

	/** A lock that throws the same exceptions as those of Spring's own registries. */
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
				throw new IllegalStateException(e); // cannot happen: lock() is not interruptible
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
				throw new IllegalStateException(e); // cannot happen: tryLock() keeps the interrupt for later
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
