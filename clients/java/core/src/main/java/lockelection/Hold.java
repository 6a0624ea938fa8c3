package lockelection;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import lockelection.LockException.Status;

/**
 * A lock, a permit, or several locks at once, that were acquired. Any thread may use it. Closing it releases it.
 */
public class Hold implements AutoCloseable {
	/** What the application sees. */
	enum View {
		WAITING, HELD, OVER
	}

	final Session session;
	final Lease lease;
	final Request request;
	final boolean attempt;
	final long askedAt = System.nanoTime();
	/** Null when granted, else why it was not. */
	final CompletableFuture<LockException> decided = new CompletableFuture<>();
	/** Null: released; else why not. */
	final CompletableFuture<LockException> released = new CompletableFuture<>();
	volatile View view = View.WAITING;
	volatile long token;

	// under the session's lock
	private final List<Runnable> onLost = new ArrayList<>();
	/** What asks for it. */
	Item ask;
	LockException failure;
	/** It has a place, and no grant. */
	boolean queued;
	/** The limit of its wait has passed: it enters no queue. */
	boolean impatient;
	/** It is renewed no more, and the application has still to give it back. */
	boolean evicted;
	/** Names that are being given back. */
	int giving;
	Duration holdFor;
	/** Why the release has not done what was asked for. */
	LockException releaseError;

	Hold(Session session, Lease lease, Request request, boolean attempt) {
		this.session = session;
		this.lease = lease;
		this.request = request;
		this.attempt = attempt;
		ask = new Item((attempt ? "try_" : "enqueue_") + request.kind, request.names, request.permits, request.value, this);
	}

	/**
	 * Is it still held? No I/O, and waits for nothing. True: until {@link #timeLeft()} is over nobody else can have it,
	 * unless it is released by force, which is noticed at the next renewal.
	 *
	 * @return false after a release, a loss, or the deadline
	 */
	public final boolean isValid() {
		return view == View.HELD && lease.left() > 0;
	}

	/**
	 * How long it is valid if no renewal succeeds any more. No I/O.
	 *
	 * @return zero if it is not valid
	 */
	public final Duration timeLeft() {
		return Duration.ofNanos(view == View.HELD ? Math.max(0, lease.left()) : 0);
	}

	/**
	 * The fencing token: an exclusive lock that is granted later has a higher one. Below 2<sup>53</sup>.
	 *
	 * @return the same for all locks that were acquired at once
	 */
	public final long token() {
		return token;
	}

	/**
	 * What it is held of.
	 *
	 * @return the names
	 */
	public final List<String> names() {
		return request.names;
	}

	/**
	 * Runs something once when it is lost, in the session's executor; at once if it is lost already. Not after a
	 * release.
	 *
	 * @param action should tell the work to stop
	 */
	public final void onLost(Runnable action) {
		Arguments.given(action, "the action");
		try (Session.Locked locked = session.lock()) {
			if (view != View.OVER)
				onLost.add(action);
			else if (isLost())
				session.tell(action);
		}
	}

	/**
	 * Binds the open transaction of a connection of yours to this hold: from here to its end nobody else gets it. What
	 * the transaction writes afterwards is written while it is held, or not at all. Roll back after any exception.
	 *
	 * @param connection to the same database; not in auto-commit mode
	 * @throws LockLostException it is not held any more
	 * @throws LockException INVALID if the connection is in auto-commit mode
	 * @throws SQLException any other error of the server
	 */
	public final void fence(Connection connection) throws SQLException {
		Arguments.given(connection, "the connection");
		if (!isValid())
			throw lost();
		if (connection.getAutoCommit())
			throw LockException.of(Status.INVALID, "a fence needs a transaction: setAutoCommit(false)");
		String function = request.isTerm() ? ".fence_leader(?, ?)" : ".fence_lock(?, ?)";
		String schema = session.schema();
		try (PreparedStatement fence = connection.prepareStatement("SELECT " + schema + function)) {
			for (String name : request.names) {
				fence.setString(1, name);
				fence.setLong(2, token);
				fence.execute();
			}
		} catch (SQLException e) {
			if (LockException.noSuchFunction(e) && session.learnsAnother(schema))
				throw new SQLException("the extension's schema has another name: roll back, and repeat the transaction",
						e.getSQLState(), e);
			if (!"LE001".equals(e.getSQLState()))
				throw e;
			LockException lost = LockException.of(e);
			session.lost(this, lost);
			throw lost;
		}
	}

	/**
	 * Releases it. It is over at once; this waits for the server's answer, at most a quarter of the TTL.
	 *
	 * @return false: it had been lost before
	 * @throws LockException UNKNOWN: no answer. The session goes on trying; it ends with the lease at the latest
	 */
	public boolean release() {
		return release(null);
	}

	/**
	 * Releases it, and keeps the name closed: nobody gets it until that long after it was acquired.
	 *
	 * @param holdFor 0 to 24 days, and at most the server's lock_election.max_hold_for; null: not closed
	 * @return false: it had been lost before
	 * @throws LockException UNKNOWN as {@link #release()}; INVALID, LIMIT: it is released, but not closed
	 */
	public boolean release(Duration holdFor) {
		long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(session.callMillis());
		if (!session.release(this, holdFor))
			return false;
		LockException error;
		try {
			error = released.get(until - System.nanoTime(), TimeUnit.NANOSECONDS);
		} catch (InterruptedException e) {
			Thread.currentThread().interrupt();
			return true;
		} catch (TimeoutException | ExecutionException e) {
			error = LockException.of(Status.UNKNOWN, "the release of " + request + " is not answered; the session goes on trying");
		}
		if (error != null && error.status() != Status.LOST)
			throw LockException.again(error);
		return error == null;
	}

	/** {@link #release()}, without its answer and its exceptions: releasing does not fail the work. */
	@Override
	public void close() {
		closeFor(null);
	}

	final void closeFor(Duration holdFor) {
		try {
			release(holdFor);
		} catch (LockException e) {
			// the session goes on trying
		}
	}

	final boolean isLost() {
		return failure != null && failure.status() == Status.LOST && token != 0;
	}

	final LockLostException lost() {
		return new LockLostException(null, request + " is not held any more", failure);
	}

	/** Locked. */
	final void tellLost() {
		onLost.forEach(session::tell);
		onLost.clear();
	}

	@Override
	public String toString() {
		return request + ", token " + token;
	}
}
