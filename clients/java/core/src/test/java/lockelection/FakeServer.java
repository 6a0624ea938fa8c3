package lockelection;

import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;

/** What a session sees of a server: exclusive locks, their queues, and leases. Its answers can be lost or late. */
final class FakeServer implements Wire.Connector {
	/** A row of lease_holds(). */
	static final class Row {
		final long lease;
		final String name;
		final long token;
		final String owner;
		boolean granted;

		Row(long lease, String name, long token, String owner, boolean granted) {
			this.lease = lease;
			this.name = name;
			this.token = token;
			this.owner = owner;
			this.granted = granted;
		}
	}

	final Map<Long, Row> rows = new LinkedHashMap<>();
	final List<String> statements = new ArrayList<>();
	final List<String[]> notifications = new ArrayList<>();
	final FakeClock clock;
	/** The answers of these statements are lost, after they have had their effect; or before. */
	Predicate<String> loseAnswer = sql -> false;
	Predicate<String> loseRequest = sql -> false;
	/** An error is the answer to these, and the connection stays. */
	Predicate<String> refuse = sql -> false;
	/** How long statements take. */
	long takesMillis;
	boolean alive = true;
	long validityMillis = 10_000;
	/** pg_terminate_backend() is not allowed. */
	boolean mayNotEnd;
	boolean reachable = true;
	boolean listens = true;
	int connections;
	private long tokens = 100;
	private long leases;

	FakeServer(FakeClock clock) {
		this.clock = clock;
	}

	boolean isHeld(String name) {
		return rows.values().stream().anyMatch(row -> row.name.equals(name) && row.granted);
	}

	/** Held by somebody else. */
	long occupy(String name) {
		rows.put(++tokens, new Row(-1, name, tokens, "somebody", true));
		return tokens;
	}

	/** A request that comes late. */
	long late(String owner, long lease, String name) {
		rows.put(++tokens, new Row(lease, name, tokens, owner, false));
		return tokens;
	}

	void release(long token) {
		Row gone = rows.remove(token);
		if (gone != null && gone.granted)
			rows.values().stream().filter(row -> row.name.equals(gone.name)).findFirst().ifPresent(row -> row.granted = true);
	}

	long count(String part) {
		return statements.stream().filter(sql -> sql.contains(part)).count();
	}

	@Override
	public Wire connect(long limitMillis) throws SQLException {
		if (!reachable)
			throw new SQLException("refused", "08001");
		connections++;
		return new FakeWire(connections);
	}

	private Object[] ask(String name, String owner, long lease, boolean attempt) throws SQLException {
		if (name.equals("refused"))
			throw new SQLException("the name is refused", "22023");
		boolean free = !isHeld(name);
		if (attempt && !free)
			return new Object[] {null};
		rows.put(++tokens, new Row(lease, name, tokens, owner, free));
		return new Object[] {tokens, free, "le_" + name};
	}

	private final class FakeWire implements Wire {
		private final int number;
		private boolean open = true;

		FakeWire(int number) {
			this.number = number;
		}

		@Override
		public List<Object[]> query(long limitMillis, String sql, Object... arguments) throws SQLException {
			if (!open)
				throw new SQLException("closed", "08003");
			statements.add(sql + " " + Arrays.deepToString(arguments));
			if (loseRequest.test(sql))
				throw broken();
			clock.pass(takesMillis);
			if (refuse.test(sql))
				throw new SQLException("refused", "0A000");
			List<Object[]> answer = answer(sql, arguments);
			if (loseAnswer.test(sql))
				throw broken();
			return answer;
		}

		private SQLException broken() {
			open = false;
			return new SQLException("the connection broke", "08006");
		}

		private List<Object[]> answer(String sql, Object[] arguments) throws SQLException {
			List<Object[]> answer = new ArrayList<>();
			if (sql.contains("grant_lease"))
				answer.add(new Object[] {++leases});
			else if (sql.contains("keep_alive"))
				answer.add(new Object[] {alive ? (Object) validityMillis : null});
			else if (sql.contains("pg_terminate_backend") && mayNotEnd)
				throw new SQLException("must be a member of the role", "42501");
			else if (sql.contains("_each(") && !sql.contains("release")) {
				if (Arrays.asList((String[]) arguments[0]).contains("refused"))
					throw new SQLException("a name is refused", "22023");
				for (String name : (String[]) arguments[0])
					answer.add(ask(name, (String) arguments[1], (Long) arguments[2], sql.contains("try_")));
			} else if (sql.contains("enqueue_lock(") || sql.contains("acquire_lock("))
				answer.add(ask((String) arguments[0], (String) arguments[1], (Long) arguments[2], sql.contains("acquire_lock")));
			else if (sql.contains("release_each")) {
				for (Long token : (Long[]) arguments[1])
					answer.add(giveBack(token));
			} else if (sql.contains("release_lock"))
				answer.add(giveBack((Long) arguments[1]));
			else if (sql.contains("lease_holds")) {
				for (Row row : rows.values()) {
					if (row.lease == (Long) arguments[0])
						answer.add(new Object[] {"lock", row.name, row.token, row.granted, "le_" + row.name, row.owner});
				}
			} else if (sql.contains("is_held")) {
				for (Long token : (Long[]) arguments[1])
					answer.add(new Object[] {rows.containsKey(token) && rows.get(token).granted});
			} else if (sql.startsWith("NOTIFY") && listens)
				notifications.add(new String[] {sql.substring(7), ""});
			return answer;
		}

		private Object[] giveBack(long token) {
			boolean there = rows.containsKey(token);
			release(token);
			return new Object[] {there};
		}

		@Override
		public List<String[]> notifications() {
			List<String[]> heard = new ArrayList<>(notifications);
			notifications.clear();
			if (heard.isEmpty())
				clock.pass(1);
			return heard;
		}

		@Override
		public String schema() {
			return "public";
		}

		@Override
		public int pid() {
			return number;
		}

		@Override
		public String started() {
			return "then";
		}

		@Override
		public boolean pooled() {
			return false;
		}

		@Override
		public String notifies() {
			return "all";
		}

		@Override
		public void close() {
			open = false;
		}

		@Override
		public void abort() {
			open = false;
		}
	}
}
