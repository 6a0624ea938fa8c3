package lockelection;

import java.util.concurrent.CompletableFuture;

/** What a leader does. */
@FunctionalInterface
public interface Lead {
	/**
	 * Runs in a thread of its own while this candidate leads. The term is resigned only after it has returned.
	 *
	 * @param term valid as long as {@link Term#isValid()} says; fence what must not be written late
	 * @param stop is completed when the term is lost, or the candidacy is closed: return soon
	 * @throws Exception ends the term; the candidate stands again after a second
	 */
	void lead(Term term, CompletableFuture<Void> stop) throws Exception;
}
