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
	/** What hangs on a lease. */
	static final class Row {
		final long lease;
		final String name;
		final long token;
		final String owner;
		boolean granted;
		boolean evicted;

		Row(long lease, String name, long token, String owner, boolean granted) {
			this.lease = lease;
			this.name = name;
			this.token = token;
			this.owner = owner;
			this.granted = granted;
		}
	}

	private static final int COLUMNS = 16;
	static final String CHANNEL = "le_channel";

	final Map<Long, Row> rows = new LinkedHashMap<>();
	/** A call of lease_sync() is "sync", and " | " with action, name, number and value for each item. */
	final List<String> statements = new ArrayList<>();
	/** The argument "wait" of the calls of lease_sync(). */
	final List<String> waits = new ArrayList<>();
	final List<String> notifications = new ArrayList<>();
	final FakeClock clock;
	/** The answers of these statements are lost, after they have had their effect; or before. */
	Predicate<String> loseAnswer = sql -> false;
	Predicate<String> loseRequest = sql -> false;
	/** An error is the answer to these, and the connection stays. */
	Predicate<String> refuse = sql -> false;
	String refusal = "0A000";
	/** The items of these calls are carried out, and not told yet. */
	Predicate<String> pending = sql -> false;
	/** Runs in the middle of a call, without a lock. */
	Runnable during = () -> { };
	/** How long statements take. */
	long takesMillis;
	boolean alive = true;
	/** Null: nothing is certain. */
	Long validityMillis = 10_000L;
	boolean pooled;
	boolean reachable = true;
	boolean listens = true;
	/** It forgets everything of calls, as after a restart. */
	long incarnation = 1;
	int connections;
	/** Number, event, token, reason. */
	private final List<Object[]> events = new ArrayList<>();
	private final Map<Long, Long> calls = new LinkedHashMap<>();
	private long newest;
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

	private void event(String event, long token, String reason) {
		events.removeIf(earlier -> earlier[2].equals(token));
		events.add(new Object[] {++newest, event, token, reason});
	}

	void release(long token) {
		Row gone = rows.remove(token);
		if (gone != null && gone.granted)
			rows.values().stream().filter(row -> row.name.equals(gone.name)).findFirst().ifPresent(row -> {
				row.granted = true;
				event("granted", row.token, null);
			});
	}

	/** As an operator does. */
	void force(long token) {
		event("lost", token, "forced");
		release(token);
	}

	void evict(long token) {
		rows.get(token).evicted = true;
		event("evicted", token, null);
	}

	/** Ends what hangs on a lease, and nobody knows why. */
	void restart() {
		incarnation++;
		events.clear();
		calls.clear();
	}

	long count(String part) {
		return statements.stream().filter(sql -> sql.contains(part)).count();
	}

	/** Calls without items. */
	long renewals() {
		return statements.stream().filter(sql -> sql.equals("sync")).count();
	}

	@Override
	public Wire connect(long limitMillis) throws SQLException {
		if (!reachable)
			throw new SQLException("refused", "08001");
		connections++;
		return new FakeWire();
	}

	private final class FakeWire implements Wire {
		private volatile boolean open = true;

		private SQLException broken() {
			open = false;
			return new SQLException("the connection broke", "08006");
		}

		@Override
		public List<Object[]> query(long limitMillis, String sql, Object... arguments) throws SQLException {
			if (!open)
				throw new SQLException("closed", "08003");
			boolean syncs = sql.contains("lease_sync");
			String text = syncs ? describe((String[]) arguments[4], (String) arguments[5]) : sql + " " + Arrays.toString(arguments);
			statements.add(text);
			if (syncs)
				waits.add((String) arguments[6]);
			if (loseRequest.test(text))
				throw broken();
			clock.pass(takesMillis);
			during.run();
			if (!open)
				throw broken();
			if (refuse.test(text))
				throw new SQLException("refused", refusal);
			List<Object[]> answer = new ArrayList<>();
			if (syncs)
				answer = new Call(arguments, pending.test(text)).answer();
			else if (sql.contains("grant_lease"))
				answer.add(new Object[] {++leases});
			else if (sql.contains("NOTIFY ") && listens)
				notifications.add(sql.substring(sql.indexOf("NOTIFY ") + 7));
			if (loseAnswer.test(text))
				throw broken();
			return answer;
		}

		@Override
		public List<String> notifications(int waitMillis) throws SQLException {
			if (!open)
				throw broken();
			List<String> heard = new ArrayList<>(notifications);
			notifications.clear();
			if (heard.isEmpty())
				clock.pass(Math.max(1, waitMillis));
			return heard;
		}

		@Override
		public String schema() {
			return "public";
		}

		@Override
		public boolean pooled() {
			return pooled;
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

	private static String describe(String[] items, String isNull) {
		StringBuilder text = new StringBuilder("sync");
		for (int i = 0; i < items.length; i += 6) {
			text.append(" | ").append(items[i + 1]);
			for (int n : new int[] {2, 3, 5})
				text.append(items[i + n].equals(isNull) ? "" : " " + items[i + n]);
		}
		return text.toString();
	}

	/** One call of lease_sync(). */
	private final class Call {
		private final long lease;
		private final boolean isNew;
		private final boolean known;
		private final boolean silent;
		private final boolean withheld;
		private final long seen;
		private final String[] items;
		private final List<Object[]> answer = new ArrayList<>();
		private final List<Long> results = new ArrayList<>();

		Call(Object[] arguments, boolean withheld) {
			lease = (Long) arguments[0];
			known = String.valueOf(incarnation).equals(arguments[2]);
			isNew = (Long) arguments[1] > calls.getOrDefault(lease, 0L) && (known || arguments[2] == null);
			seen = known ? Long.parseLong((String) arguments[3]) : 0;
			items = (String[]) arguments[4];
			silent = arguments[6] == null;
			this.withheld = withheld;
			if (isNew)
				calls.put(lease, (Long) arguments[1]);
		}

		private Object[] row(Integer item, String event, Row row) {
			Object[] columns = new Object[COLUMNS];
			columns[0] = item;
			columns[1] = event;
			columns[2] = "lock";
			if (row != null) {
				columns[3] = row.name;
				columns[4] = row.token;
				columns[5] = row.owner;
			}
			return columns;
		}

		List<Object[]> answer() {
			Object[] head = row(null, alive ? "lease" : "gone", null);
			answer.add(head);
			if (!alive)
				return answer;
			for (int i = 0; isNew && i < items.length; i += 6)
				give(i);
			for (int i = 0; isNew && i < items.length; i += 6)
				take(i);
			if (silent)
				return answer;
			head[11] = validityMillis;
			head[12] = incarnation;
			head[13] = withheld ? seen : newest;
			head[14] = withheld ? null : (Object) !known;
			head[15] = CHANNEL;
			for (Row row : List.copyOf(known || withheld ? List.<Row>of() : rows.values())) {
				if (row.lease == lease && !results.contains(row.token))
					answer.add(row(null, row.evicted ? "evicted" : row.granted ? "granted" : "queued", row));
			}
			for (Object[] event : withheld ? List.<Object[]>of() : events)
				news(event);
			return answer;
		}

		private void news(Object[] event) {
			Row row = rows.get((Long) event[2]);
			if ((Long) event[0] <= seen || results.contains((Long) event[2]) || row != null && row.lease != lease)
				return;
			Object[] columns = row(null, (String) event[1], row);
			columns[4] = event[2];
			columns[6] = event[3];
			answer.add(columns);
		}

		private void give(int at) {
			if (!items[at + 1].equals("release"))
				return;
			Row there = rows.get(Long.parseLong(items[at + 3]));
			boolean released = there != null && there.name.equals(items[at + 2]);
			if (released)
				release(there.token);
			answer.add(row(Integer.valueOf(items[at]), released ? "released" : "not_held", null));
		}

		private void take(int at) {
			if (items[at + 1].equals("release"))
				return;
			Integer number = Integer.valueOf(items[at]);
			String name = items[at + 2];
			boolean free = rows.values().stream().noneMatch(row -> row.name.equals(name));
			if (name.equals("refused")) {
				Object[] error = row(number, "error", null);
				error[7] = "22023";
				error[8] = "the name is refused";
				answer.add(error);
			} else if (items[at + 1].startsWith("try_") && !free)
				answer.add(row(number, "not_granted", null));
			else {
				Row made = new Row(lease, name, ++tokens, items[at + 4], free);
				rows.put(made.token, made);
				event(free ? "granted" : "queued", made.token, null);
				results.add(made.token);
				answer.add(withheld ? row(number, "pending", null) : row(number, free ? "granted" : "queued", made));
			}
		}
	}
}
