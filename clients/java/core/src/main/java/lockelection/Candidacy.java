package lockelection;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.ExecutionException;

/** A candidate that stands again and again, until it is closed. */
public final class Candidacy implements AutoCloseable {
	private static final long PAUSE_SECONDS = 1;

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
	 * @return completed after a close; exceptionally by an error that trying again does not mend: {@link LockException}
	 *         with status DENIED, INVALID or NOT_INSTALLED
	 */
	public CompletableFuture<Void> ended() {
		return ended.copy();
	}

	/** Asks the leader to stop, and waits until it has returned and the term is resigned. */
	@Override
	public void close() {
		stop();
		if (Thread.currentThread() != thread)
			await(Duration.ofDays(1));
	}

	void stop() {
		closed.complete(null);
	}

	boolean await(Duration limit) {
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

	private void run() {
		try {
			while (!closed.isDone()) {
				try {
					stand();
				} catch (LockException e) {
					if (e.status() == LockException.Status.DENIED || e.status() == LockException.Status.INVALID
							|| e.status() == LockException.Status.NOT_INSTALLED)
						throw e;
					pause();
				} catch (Exception e) {
					Thread.UncaughtExceptionHandler handler = thread.getUncaughtExceptionHandler();
					handler.uncaughtException(thread, e);
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
			// stands again
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
			Thread.interrupted(); // what the leader has left behind
		}
	}
}
