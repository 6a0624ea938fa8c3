package lockelection;

import java.util.List;
import java.util.Optional;
import java.util.function.BiConsumer;
import java.util.function.Consumer;

/** Tells a listener each change of an election, once and in order, until it is closed. */
public final class Observer implements AutoCloseable {
	private static final String COLUMNS = "SELECT change, how, candidate, term FROM ";

	/** The maximum of changes that are read at once. */
	static final int MOST = 64;

	final String election;
	private final Consumer<Optional<Leader>> listener;
	private final BiConsumer<Observer, Boolean> registry;
	private volatile boolean closed;
	/** The last change that was told. */
	private volatile long after;
	private long told;

	// protected by the session's lock
	String channel;
	long dueAt;
	/** Whether the listener is being told the changes that were read last. */
	boolean busy;
	/** Whether the present leader has been read. */
	volatile boolean began;

	Observer(String election, Consumer<Optional<Leader>> listener, BiConsumer<Observer, Boolean> registry) {
		this.election = election;
		this.listener = listener;
		this.registry = registry;
	}

	/**
	 * Returns the next statement. The first one reads the last change of the present term, or the present leader if the
	 * history no longer has it. A term's changes have higher numbers than the term. The next ones read the later
	 * changes.
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

	/** Tells the listener a leader. If it throws, it is nevertheless told the next change. */
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
