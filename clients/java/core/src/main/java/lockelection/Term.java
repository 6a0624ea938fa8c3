package lockelection;

import lockelection.LockException.Status;

/** A term as the leader of an election. {@link #token()} is the number of the term. */
public final class Term extends Hold {
	Term(Session session, Lease lease, Request request, boolean attempt) {
		super(session, lease, request, attempt);
	}

	/**
	 * Changes the leader's public text without a new election.
	 *
	 * @param value 1 to 4096 bytes
	 * @throws LockLostException if the term has ended
	 * @throws LockException with status UNKNOWN if there is no reply, so that the value may have been changed; with
	 *         another status if the server has rejected the value
	 * @throws InterruptedException if the thread was interrupted; the value may have been changed
	 */
	public void proclaim(String value) throws InterruptedException {
		Arguments.value(value);
		if (!isValid())
			throw lost();
		try {
			session.ask(lease, request, "proclaim", Long.toString(token), value);
		} catch (LockLostException e) {
			session.lost(this, e);
			throw lost();
		} catch (LockException e) {
			throw e.status() == Status.UNAVAILABLE ? LockException.of(Status.UNKNOWN, e.getMessage()) : e;
		}
		if (!isValid())
			throw lost();
	}

	/**
	 * Ends the term, like {@link #release()}, so that the next candidate is elected.
	 *
	 * @return false if the term had been lost before
	 */
	public boolean resign() {
		return release();
	}
}
