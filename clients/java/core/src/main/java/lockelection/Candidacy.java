package lockelection;

import java.time.Duration;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import lockelection.LockException.Status;

/** A candidate that campaigns repeatedly, until it is closed. */
public final class Candidacy implements AutoCloseable {
	private static final long PAUSE_SECONDS = 1;
	private static final Set<Status> LASTING = Set.of(Status.DENIED, Status.INVALID, Status.NOT_INSTALLED, Status.CANCELED);

	private final LockElection locks;
	private final String election;
	private final String value;
	private final Lead lead;
	private final Thread thread;
	private final CompletableFuture<Void> closed = new CompletableFuture<>();
	private final CompletableFuture<Void> ended = new CompletableFuture<>();

	Candidacy(LockElection locks, String election, String value, Lead lead) {
		this.locks = locks;
		this.election = election;
		this.value = value;
		this.lead = lead;
		thread = new Thread(this::run, "lock_election candidate " + election);
		thread.setDaemon(true);
		thread.start();
	}

	/**
	 * The end of the candidacy.
	 *
	 * @return a future that is completed after a close, or completed exceptionally by a permanent error: a {@link
	 *         LockException} with status DENIED, INVALID or NOT_INSTALLED, or CANCELED if the session was closed first
	 */
	public CompletableFuture<Void> ended() {
		return ended.copy();
	}

	/** Ends the candidacy: tells a leader to stop, and waits until its work has returned and the term is resigned. */
	@Override
	public void close() {
		stop();
		if (Thread.currentThread() != thread)
			await(Duration.ofDays(1));
	}

	void stop() {
		closed.complete(null);
	}

	private boolean await(Duration limit) {
		try {
			ended.handle((nothing, error) -> null).get(limit.toMillis(), TimeUnit.MILLISECONDS);
			return true;
		} catch (InterruptedException e) {
			Thread.currentThread().interrupt();
			return false;
		} catch (ExecutionException | TimeoutException e) {
			return false;
		}
	}

	/** Waits for the end of the candidacy. As in LockElection.close(), an interrupt does not end the wait. */
	void join(Duration limit) {
		CompletableFuture<Void> over = ended.<Void>handle((nothing, error) -> null);
		over.completeOnTimeout(null, limit.toNanos(), TimeUnit.NANOSECONDS).join();
	}

	private void run() {
		try {
			while (!closed.isDone()) {
				try {
					stand();
				} catch (LockException e) {
					if (LASTING.contains(e.status()))
						throw e;
					pause();
				} catch (Exception e) {
					Session.report(e);
					pause();
				}
			}
			ended.complete(null);
		} catch (Throwable e) {
			ended.completeExceptionally(e);
		} finally {
			locks.forget(this);
		}
	}

	private void pause() {
		try {
			closed.get(PAUSE_SECONDS, TimeUnit.SECONDS);
		} catch (InterruptedException | ExecutionException | TimeoutException e) {
			// campaign again
		}
	}

	private void stand() throws Exception {
		Term term = locks.awaitTerm(election, value, closed);
		if (term == null)
			return;
		try (term) {
			CompletableFuture<Void> stop = new CompletableFuture<>();
			term.onLost(() -> stop.complete(null));
			closed.thenRun(() -> stop.complete(null));
			lead.lead(term, stop);
		} finally {
			Thread.interrupted(); // clears an interrupt of this thread that the leader's work did not handle
		}
	}
}
