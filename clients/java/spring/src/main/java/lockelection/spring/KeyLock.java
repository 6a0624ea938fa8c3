package lockelection.spring;

import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import lockelection.LockException;
import lockelection.LockLostException;
import lockelection.NamedLock;
import org.springframework.dao.CannotAcquireLockException;

/** A lock of a {@link LockElectionRegistry}. It throws the same exceptions as those of Spring's own registries. */
public class KeyLock implements Lock {
	final NamedLock lock;
	/** System.nanoTime() of the last obtain(). */
	volatile long obtained;

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

	/**
	 * Like {@link #lock()}, with a TTL that differs from the session's.
	 *
	 * @param ttl 100 ms to 24 days; null for the session's TTL. Has no effect if the thread owns the lock already
	 */
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

	/**
	 * Like {@link #tryLock(long, TimeUnit)}, with a TTL that differs from the session's.
	 *
	 * @param waitTime the limit of the time in the queue; zero does not wait
	 * @param ttl 100 ms to 24 days; null for the session's TTL. Has no effect if the thread owns the lock already
	 * @return false if the lock was not acquired in time
	 * @throws InterruptedException if the thread was interrupted; nothing is acquired
	 */
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
