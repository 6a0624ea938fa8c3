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
import java.util.stream.Collectors;
import lockelection.LockException.Status;

/**
 * A lock, a permit, several locks that were acquired together, or a term. It may be used by any thread. Closing it
 * releases it.
 */
public class Hold implements AutoCloseable {
	/** The state as the application sees it. */
	enum View {
		WAITING, HELD, OVER
	}

	final Session session;
	final Lease lease;
	final Request request;
	final boolean attempt;
	final long askedAt = System.nanoTime();
	/** Future that is completed with null by the grant, otherwise with the reason why it was not granted. */
	final CompletableFuture<LockException> decided = new CompletableFuture<>();
	/** Future that is completed with null by the release, otherwise with the reason why it was not released. */
	final CompletableFuture<LockException> released = new CompletableFuture<>();
	volatile View view = View.WAITING;
	volatile long token;

	// protected by the session's lock
	private final List<Runnable> onLost = new ArrayList<>();
	/** The listeners for its events; empty if they need none. */
	List<Listener> listeners = List.of();
	/** The time of the request, then of the grant, in ns of the session's clock. */
	private long since;
	/** The item that requests it. */
	Item ask;
	LockException failure;
	/** Whether it has a place, and was not granted yet. */
	boolean queued;
	/** Whether its wait has timed out before the first reply. Only a grant in that reply counts. */
	boolean impatient;
	/** Whether it was evicted and the application has not released it yet. */
	boolean evicted;
	/** The number of names that are being released. */
	int giving;
	Duration holdFor;
	/** The error of the release: it did not release the hold, or has ignored holdFor. */
	LockException releaseError;

	Hold(Session session, Lease lease, Request request, boolean attempt) {
		this.session = session;
		this.lease = lease;
		this.request = request;
		this.attempt = attempt;
		since = session.now();
		ask = new Item((attempt ? "try_" : "enqueue_") + request.kind, request.names, request.permits, request.value, this);
	}

	/**
	 * Whether the hold is still held. Does no I/O and never waits. If true, no other client can get the lock within
	 * {@link #timeLeft()}, unless an operator releases it by force, which the session notices at its next renewal.
	 *
	 * @return false after a release or a loss, or when the deadline has passed
	 */
	public final boolean isValid() {
		return view == View.HELD && lease.left() > 0;
	}

	/**
	 * The time for which the hold stays valid without another renewal. Does no I/O.
	 *
	 * @return zero if the hold is not valid
	 */
	public final Duration timeLeft() {
		return Duration.ofNanos(view == View.HELD ? Math.max(0, lease.left()) : 0);
	}

	/**
	 * The fencing token. An exclusive lock that is granted later has a higher token. It is below 2<sup>53</sup>.
	 *
	 * @return one token for all locks that were acquired together
	 */
	public final long token() {
		return token;
	}

	/**
	 * The names of the locks, or of the election.
	 *
	 * @return at least one name
	 */
	public final List<String> names() {
		return request.names;
	}

	/**
	 * Runs an action once, in the session's executor, when the hold is lost, or immediately if it is lost already. Does
	 * not run the action after a release.
	 *
	 * @param action the action, which should make the work stop
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
	 * Binds the open transaction of the application's connection to this hold: until the transaction ends, the lock is
	 * granted to no other client. So the transaction's later writes are committed only if the hold was still held. Roll
	 * back after any exception.
	 *
	 * @param connection a connection to the same database, not in auto-commit mode
	 * @throws LockLostException if the hold is no longer held
	 * @throws LockException with status INVALID if the connection is in auto-commit mode
	 * @throws SQLException for any other server error
	 */
	public final void fence(Connection connection) throws SQLException {
		Arguments.given(connection, "the connection");
		if (!isValid())
			throw lost();
		if (connection.getAutoCommit())
			throw LockException.of(Status.INVALID, "a fence needs a transaction: setAutoCommit(false)");
		String schema = session.schema();
		try (PreparedStatement fence = connection.prepareStatement("SELECT " + schema + fenceFunction() + "(?, ?)")) {
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

	private String fenceFunction() {
		return request.isTerm() ? ".fence_leader" : ".fence_lock";
	}

	/**
	 * The statement of a fence as a text without parameters, for frameworks that give no access to the {@link
	 * Connection}. Run it in an open transaction, before its writes. If it fails, with SQLSTATE LE001 if the hold is
	 * lost, roll back. Outside of a transaction it succeeds, but protects nothing.
	 *
	 * @return a SELECT of one row
	 * @throws LockLostException if the hold is no longer held
	 */
	public final String fenceSql() {
		if (!isValid())
			throw lost();
		String names = request.names.stream().map(Arguments::literal).collect(Collectors.joining(", "));
		return "SELECT pg_catalog.count(" + session.schema() + fenceFunction() + "(n, " + token + ")) AS fenced"
				+ " FROM pg_catalog.unnest(ARRAY[" + names + "]) AS n";
	}

	/**
	 * Releases the hold, which is invalid from this call on. Waits for the server's reply for at most a quarter of the
	 * TTL.
	 *
	 * @return true, or false if the hold had been lost before
	 * @throws LockException with status UNKNOWN if there is no reply; the session then keeps retrying, and the hold
	 *         ends at the latest with the lease
	 */
	public boolean release() {
		return release(null);
	}

	/**
	 * Releases the hold and keeps the name closed: it is not granted until {@code holdFor} after it was acquired.
	 *
	 * @param holdFor 0 to 24 days, and at most the server's lock_election.max_hold_for; null does not close the name
	 * @return true, or false if the hold had been lost before
	 * @throws LockException with status UNKNOWN as in {@link #release()}; with status INVALID or LIMIT if the lock is
	 *         released but its name is not closed
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
			error = LockException.of(Status.UNKNOWN, "the release of " + request + " is not answered; the session keeps trying");
		}
		if (error != null && error.status() != Status.LOST)
			throw LockException.again(error);
		return error == null;
	}

	/** Releases the hold like {@link #release()}, but throws nothing: a failed release does not fail the work. */
	@Override
	public void close() {
		closeFor(null);
	}

	final void closeFor(Duration holdFor) {
		try {
			release(holdFor);
		} catch (LockException e) {
			// the session keeps retrying
		}
	}

	final boolean isLost() {
		return failure != null && failure.status() == Status.LOST && token != 0;
	}

	final LockLostException lost() {
		return new LockLostException(null, request + " is not held any more", failure);
	}

	/** Reports an event to the listeners. The caller holds the session's lock. */
	final void event(Event.Kind kind, LockException error) {
		if (listeners.isEmpty())
			return;
		long now = session.now();
		session.tell(listeners, new Event(kind, request.kind, request.names, token, now - since, error));
		since = now;
	}

	/** Notifies the listeners. The caller holds the session's lock. */
	final void tellLost() {
		onLost.forEach(session::tell);
		onLost.clear();
	}

	@Override
	public String toString() {
		return request + ", token " + token;
	}
}
