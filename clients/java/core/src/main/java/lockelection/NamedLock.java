package lockelection;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A lock as a {@link Lock}. The thread that locks it owns it, may lock it again, and has to unlock it. Threads acquire
 * it in order of arrival. Locking reopens a session that has ended. Conditions are not supported.
 *
 * <p>If the lock was lost, locking it again and unlocking it throw a {@link LockLostException} in the owner's thread.
 */
public final class NamedLock implements Lock {
	private final LockElection locks;
	private final Request request;
	/** Lock among the threads of this process. The owner's hold excludes the other processes. */
	private final ReentrantLock local = new ReentrantLock(true);
	private volatile Hold hold;

	NamedLock(LockElection locks, Request request) {
		this.locks = locks;
		this.request = request;
	}

	/**
	 * The owner's hold, for {@link Hold#fence}, {@link Hold#isValid} and {@link Hold#onLost}.
	 *
	 * @return null if the calling thread does not own the lock
	 */
	public Hold hold() {
		return local.isHeldByCurrentThread() ? hold : null;
	}

	/**
	 * Whether a thread of this process owns the lock. Does no I/O.
	 *
	 * @return true if this process owns it
	 */
	public boolean isLocked() {
		return local.isLocked();
	}

	/**
	 * {@inheritDoc} An interrupt does not end the wait, but the call then starts again at the end of the queue.
	 */
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
		check(ttl);
		boolean interrupted = false;
		try {
			while (true) {
				local.lock();
				try {
					acquire(ttl, null);
					return;
				} catch (InterruptedException e) {
					interrupted = true;
				}
			}
		} finally {
			if (interrupted)
				Thread.currentThread().interrupt();
		}
	}

	private static void check(Duration ttl) {
		if (ttl != null)
			Arguments.ttl(ttl);
	}

	@Override
	public void lockInterruptibly() throws InterruptedException {
		local.lockInterruptibly();
		acquire(null, null);
	}

	@Override
	public boolean tryLock() {
		try {
			return tryLock(Duration.ZERO, null);
		} catch (InterruptedException e) {
			Thread.currentThread().interrupt();
			return false;
		}
	}

	@Override
	public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
		return tryLock(Duration.ofNanos(Math.max(0, Arguments.given(unit, "the unit").toNanos(time))), null);
	}

	/**
	 * Like {@link #tryLock(long, TimeUnit)}, with a TTL that differs from the session's.
	 *
	 * @param wait the time limit; with zero or less, the call does not wait for other holders, as in every {@link
	 *        Lock}
	 * @param ttl 100 ms to 24 days; null for the session's TTL
	 * @return false if the lock was not granted in time
	 * @throws InterruptedException if the thread was interrupted; it does not own the lock
	 */
	public boolean tryLock(Duration wait, Duration ttl) throws InterruptedException {
		check(ttl);
		long until = System.nanoTime() + Arguments.nanos(Arguments.given(wait, "the wait"));
		if (!local.tryLock(Arguments.nanos(wait), TimeUnit.NANOSECONDS))
			return false;
		try {
			acquire(ttl, wait.isZero() || wait.isNegative() ? Duration.ZERO : Duration.ofNanos(Math.max(1, until - System.nanoTime())));
			return true;
		} catch (NotAcquiredException e) {
			return false;
		}
	}

	/** Acquires the hold. The caller has the local lock, which this method unlocks if it fails. */
	private void acquire(Duration ttl, Duration wait) throws InterruptedException {
		boolean done = false;
		try {
			if (local.getHoldCount() == 1) {
				locks.reopen();
				hold = locks.acquire(request.ttl(ttl == null ? request.ttl : ttl), wait);
			} else if (!hold.isValid())
				throw hold.lost();
			done = true;
		} finally {
			if (!done)
				local.unlock();
		}
	}

	/**
	 * Unlocks the lock.
	 *
	 * @throws IllegalMonitorStateException if the calling thread does not own it
	 * @throws LockLostException if it had been lost before; the thread no longer owns it
	 */
	@Override
	public void unlock() {
		if (!local.isHeldByCurrentThread())
			throw new IllegalMonitorStateException("this thread does not own " + request);
		if (local.getHoldCount() > 1) {
			local.unlock();
			return;
		}
		Hold last = hold;
		hold = null;
		boolean held = true;
		try {
			held = last.release();
		} catch (LockException e) {
			// the session keeps retrying
		} finally {
			local.unlock();
		}
		if (!held)
			throw last.lost();
	}

	/** Not supported. */
	@Override
	public Condition newCondition() {
		throw new UnsupportedOperationException("a distributed lock has no conditions");
	}

	@Override
	public String toString() {
		return request.toString();
	}
}
