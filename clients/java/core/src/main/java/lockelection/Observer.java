package lockelection;

import java.util.List;
import java.util.Optional;
import java.util.function.BiConsumer;
import java.util.function.Consumer;

/** Tells each change of an election, once, in order. Closing it ends that. */
public final class Observer implements AutoCloseable {
	private static final String COLUMNS = "SELECT change, how, candidate, term FROM ";

	/** Changes that are read at once. */
	static final int MOST = 64;

	final String election;
	private final Consumer<Optional<Leader>> listener;
	private final BiConsumer<Observer, Boolean> registry;
	private volatile boolean closed;
	/** The last change that was told. */
	private volatile long after;
	private long told;

	// under the session's lock
	String channel;
	long dueAt;
	/** What was read is being told. */
	boolean busy;
	/** The present leader has been read. */
	volatile boolean began;

	Observer(String election, Consumer<Optional<Leader>> listener, BiConsumer<Observer, Boolean> registry) {
		this.election = election;
		this.listener = listener;
		this.registry = registry;
	}

	/**
	 * First the last change of the present term, whose changes have higher numbers than the term; or the leader as it is,
	 * where the history has lost them. Then what follows.
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

	/** A listener that throws is told the next change all the same. */
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
