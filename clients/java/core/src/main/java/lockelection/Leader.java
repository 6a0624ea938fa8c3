package lockelection;

/** The leader of an election. */
public final class Leader {
	private final String value;
	private final long term;

	Leader(String value, long term) {
		this.value = value;
		this.term = term;
	}

	/**
	 * The leader's public text.
	 *
	 * @return 1 to 4096 bytes
	 */
	public String value() {
		return value;
	}

	/**
	 * The number of the term. A later term has a higher number.
	 *
	 * @return the fencing token of the term
	 */
	public long term() {
		return term;
	}

	@Override
	public String toString() {
		return value + " (term " + term + ")";
	}
}
