package lockelection;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A lock as a {@link Lock}: the thread that locks it owns it, may lock it again, and has to unlock it. Waits are in the
 * order of arrival. A session that has ended is opened again. It has no conditions.
 *
 * <p>If it was lost, locking it once more throws {@link LockLostException}, and so does unlocking it.
 */
public final class NamedLock implements Lock {
	private final LockElection locks;
	private final Request request;
	/** Within this process; the other processes' are excluded by the hold of its owner. */
	private final ReentrantLock local = new ReentrantLock(true);
	private volatile Hold hold;

	NamedLock(LockElection locks, Request request) {
		this.locks = locks;
		this.request = request;
	}

	/**
	 * What the owner holds, for {@link Hold#fence}, {@link Hold#isValid} and {@link Hold#onLost}.
	 *
	 * @return null if the calling thread does not own it
	 */
	public Hold hold() {
		return local.isHeldByCurrentThread() ? hold : null;
	}

	/**
	 * Whether any thread of this process owns it.
	 *
	 * @return no I/O
	 */
	public boolean isLocked() {
		return local.isLocked();
	}

	/** {@inheritDoc} An interrupt does not end the wait, but gives the place in the queue back for a new one. */
	@Override
	public void lock() {
		lock(null);
	}

	/**
	 * As {@link #lock()}, with another TTL than the session's.
	 *
	 * @param ttl 100 ms to 24 days; null: the session's. Has no effect where the thread owns the lock already
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
	 * As {@link #tryLock(long, TimeUnit)}, with another TTL than the session's.
	 *
	 * @param wait the limit; zero or, as for every {@link Lock}, less: does not wait for others
	 * @param ttl 100 ms to 24 days; null: the session's
	 * @return false if it was not granted in time
	 * @throws InterruptedException the thread was interrupted; it does not own the lock
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

	/** The thread has the local lock, and loses it again if this does not succeed. */
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
	 * Unlocks it.
	 *
	 * @throws IllegalMonitorStateException the calling thread does not own it
	 * @throws LockLostException it was lost before; the thread does not own it any more
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
			// the session goes on trying
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
