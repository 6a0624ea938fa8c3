package lockelection;

import java.util.concurrent.CompletableFuture;

/** The work of a leader. */
@FunctionalInterface
public interface Lead {
	/**
	 * Runs in the candidacy's own thread while this candidate leads. The candidacy resigns the term only after this
	 * method has returned.
	 *
	 * @param term the term, which is valid as long as {@link Term#isValid()} returns true; fence all writes that must
	 *        not be committed after the end of the term
	 * @param stop a future that is completed when the term is lost or the candidacy is closed; return soon after that
	 * @throws Exception if the work has failed; this ends the term, and the candidate campaigns again after a second
	 */
	void lead(Term term, CompletableFuture<Void> stop) throws Exception;
}
