package lockelection;

import java.util.List;
import java.util.Optional;
import java.util.function.BiConsumer;
import java.util.function.Consumer;

/** Reports each change of an election to a listener, once and in order, until it is closed. */
public final class Observer implements AutoCloseable {
	private static final String COLUMNS = "SELECT change, how, candidate, term FROM ";

	/** The maximum number of changes that are read in one statement. */
	static final int MOST = 64;

	final String election;
	private final Consumer<Optional<Leader>> listener;
	private final BiConsumer<Observer, Boolean> registry;
	private volatile boolean closed;
	/** The number of the last change that was reported. */
	private volatile long after;
	private long told;

	// protected by the session's lock
	String channel;
	long dueAt;
	/** Whether the changes that were read last are being reported to the listener. */
	boolean busy;
	/** Whether the current leader has been read. */
	volatile boolean began;

	Observer(String election, Consumer<Optional<Leader>> listener, BiConsumer<Observer, Boolean> registry) {
		this.election = election;
		this.listener = listener;
		this.registry = registry;
	}

	/**
	 * Returns the next statement. The first statement reads the last change of the current term, or the current leader
	 * if the history no longer has that change. A term's changes have higher numbers than the term. The next
	 * statements read the later changes.
	 */
	String sql() {
		if (began)
			return COLUMNS + "%s.election_history(?, ?) ORDER BY change LIMIT " + MOST;
		return COLUMNS + "(" + COLUMNS + "%s.election_history(?, COALESCE((SELECT l.term FROM %s.current_leader(?) AS l), 0))"
				+ " UNION ALL SELECT 0, 'elected', candidate, term FROM %s.current_leader(?)) AS c"
				+ " ORDER BY change DESC LIMIT 1";
	}

	Object[] arguments() {
		return began ? new Object[] {election, after} : new Object[] {election, election, election};
	}

	void tell(List<Object[]> rows) {
		for (Object[] row : rows) {
			long change = (Long) row[0], term = (Long) row[3];
			boolean elected = row[1].equals("elected");
			boolean leads = elected || row[1].equals("proclaimed");
			boolean isNew = leads ? !elected || term != told : began;
			told = term;
			after = change != 0 ? change : term;
			began = true;
			if (isNew && !closed)
				tell(leads ? Optional.of(new Leader((String) row[2], term)) : Optional.empty());
		}
	}

	/** Reports a leader to the listener. If the listener throws an exception, it still receives the next change. */
	private void tell(Optional<Leader> leader) {
		try {
			listener.accept(leader);
		} catch (Throwable e) {
			Session.report(e);
		}
	}

	@Override
	public void close() {
		closed = true;
		registry.accept(this, false);
	}
}
