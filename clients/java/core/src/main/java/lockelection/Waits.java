package lockelection;

import java.sql.SQLException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import lockelection.Hold.Phase;
import lockelection.Hold.View;
import lockelection.LockException.Status;
import lockelection.Request.Kind;

/**
 * How a session learns of its grants, of losses, and of elections. A notification is a hint; what decides is
 * lease_holds(), or is_held() for what was announced. All of it is called with the session's lock held.
 */
final class Waits {
	private static final long MILLISECOND = 1_000_000L;
	private static final long LOOK = 5000 * MILLISECOND;
	private static final long DEAF_LOOK = 250 * MILLISECOND;
	private static final long TEST_PATIENCE = 300 * MILLISECOND;
	/** The driver cannot be woken while it waits for a notification, so it is asked: at most this late. */
	private static final long HEAR = 10 * MILLISECOND;
	private static final int ANNOUNCED_AT_ONCE = 256;
	private static final Pattern TOKEN = Pattern.compile("\"(?:token|term)\":\"(\\d+)\"");

	private final Session session;
	private final Requests requests;
	/** Places that wait. */
	private final Set<Hold> waiting = new LinkedHashSet<>();
	private final Set<Hold> announced = new LinkedHashSet<>();
	/** Who wants to hear a channel: how many. */
	private final Map<String, Integer> channels = new HashMap<>();
	private final Set<String> listening = new HashSet<>();
	private final List<Observer> observers = new ArrayList<>();
	private Wire wire;
	private boolean tested;
	private boolean works;
	private boolean heard;
	private long lookAt;

	Waits(Session session, Requests requests) {
		this.session = session;
		this.requests = requests;
		requests.set(this);
	}

	void connected(Wire made) {
		wire = made;
		tested = works = false;
	}

	void disconnected() {
		wire = null;
		listening.clear();
	}

	boolean listens() {
		return !listening.isEmpty();
	}

	// --- places ---

	void enter(Hold hold, String channel) {
		if (waiting.isEmpty())
			lookAt = session.now() + (works ? LOOK : DEAF_LOOK);
		waiting.add(hold);
		hold.channel = channel;
		channels.merge(channel, 1, Integer::sum);
		if (listening.contains(channel))
			announced.add(hold);
	}

	void leave(Hold hold) {
		waiting.remove(hold);
		announced.remove(hold);
		release(hold.channel);
		hold.channel = null;
	}

	private void release(String channel) {
		if (channel != null)
			channels.computeIfPresent(channel, (name, n) -> n == 1 ? null : n - 1);
	}

	/** Locked at entry and exit. Reads what hangs on a lease, and compares. */
	void look(Lease lease) throws SQLException {
		List<Object[]> rows;
		try {
			rows = session.ask("SELECT kind, name, token, granted, channel, owner FROM %s.lease_holds(?)", lease.id);
		} catch (SQLException e) {
			if ("LE001".equals(e.getSQLState()) && !lease.ended)
				session.gone(lease);
			throw e;
		}
		Map<Hold, Integer> names = new HashMap<>();
		for (Object[] row : rows) {
			long token = (Long) row[2];
			boolean granted = (Boolean) row[3];
			if (requests.byToken(token) == null)
				requests.found(lease, (String) row[1], "election".equals(row[0]), token, granted, (String) row[4],
						String.valueOf(row[5]));
			Hold hold = requests.byToken(token);
			if (hold == null)
				continue;
			names.merge(hold, 1, Integer::sum);
			if (hold.isWanted() && granted)
				requests.held(hold);
		}
		lease.look = false;
		requests.askAgain(lease);
		for (Hold hold : requests.all(on -> on == lease)) {
			boolean known = hold.phase == Phase.GRANTED || hold.phase == Phase.QUEUED;
			if (known && hold.view != View.OVER && names.getOrDefault(hold, 0) < hold.request.names.size())
				lost(hold);
		}
	}

	/** The other names of several are given back. */
	private void lost(Hold hold) {
		requests.over(hold, LockException.of(Status.LOST, "the server has ended it: released by force"));
		if (hold.request.names.size() == 1)
			requests.done(hold, null);
	}

	// --- work ---

	/** Nothing is heard later than an eighth of the time for which nothing has happened. */
	long next(long now, long next) {
		if (!waiting.isEmpty())
			next = Math.min(next, lookAt);
		for (Observer observer : observers)
			next = observer.busy ? next : Math.min(next, observer.dueAt);
		if (!listening.isEmpty())
			next = Math.min(next, now + Math.max(MILLISECOND, Math.min(HEAR, (now - session.lastEvent) / 8)));
		return next;
	}

	/** The most urgent thing; false: there is none. */
	boolean work(long now) throws SQLException {
		if (!listening.isEmpty())
			receive(0);
		if (wire == null)
			return true;
		if (waiting.isEmpty() && observers.isEmpty() && channels.isEmpty() && listening.isEmpty())
			return false;
		try {
			if (!tested) {
				test();
				return true;
			}
			if (works && listen())
				return true;
		} catch (SQLException e) {
			if (wire == null)
				throw e;
			works = false; // it is refused: this connection looks often
			listening.clear();
			lookAt = 0;
			return true;
		}
		if (!announced.isEmpty()) {
			lookAtAnnounced();
			return true;
		}
		if (!waiting.isEmpty() && now >= lookAt) {
			waiting.forEach(hold -> hold.lease.look = true);
			lookAt = now + Session.jitter(works ? LOOK : DEAF_LOOK);
			return true;
		}
		for (Observer observer : observers) {
			if (!observer.busy && now >= observer.dueAt) {
				read(observer, now);
				return true;
			}
		}
		return false;
	}

	/** Locked at entry and exit. Does this connection hear what is sent to it? */
	private void test() throws SQLException {
		tested = true;
		works = heard = false;
		lookAt = 0;
		if (wire.pooled() || !wire.notifies().matches("all|waiters|elections"))
			return;
		String self = "le_self_" + session.owner.replaceAll(".*#|-", "");
		listening.add(self);
		session.ask("LISTEN " + self);
		session.ask("NOTIFY " + self);
		long until = session.now() + TEST_PATIENCE;
		while (wire != null && !heard && session.now() < until)
			receive(MILLISECOND);
		works = heard;
		listening.remove(self);
		session.ask("UNLISTEN " + self);
	}

	/** LISTEN and UNLISTEN for all that has changed. Afterwards all of it is looked at. */
	private boolean listen() throws SQLException {
		StringBuilder sql = new StringBuilder();
		Set<String> fresh = new HashSet<>(channels.keySet());
		fresh.removeAll(listening);
		fresh.forEach(channel -> sql.append("LISTEN ").append(channel).append(';'));
		Set<String> stale = new HashSet<>(listening);
		stale.removeAll(channels.keySet());
		stale.forEach(channel -> sql.append("UNLISTEN ").append(channel).append(';'));
		if (sql.length() == 0)
			return false;
		session.ask(sql.toString());
		listening.addAll(fresh);
		listening.removeAll(stale);
		for (Hold hold : waiting) {
			if (fresh.contains(hold.channel))
				announced.add(hold);
		}
		hint(fresh);
		return true;
	}

	private void hint(Set<String> names) {
		for (Observer observer : observers) {
			if (observer.channel != null && names.contains(observer.channel))
				observer.dueAt = 0;
		}
	}

	private void receive(long pauseNanos) {
		for (String[] notification : session.receive(pauseNanos)) {
			Matcher token = TOKEN.matcher(notification[1]);
			heard |= notification[0].startsWith("le_self_");
			Hold hold = token.find() ? requests.byToken(Long.parseLong(token.group(1))) : null;
			if (hold != null && waiting.contains(hold))
				announced.add(hold);
			hint(Set.of(notification[0]));
		}
	}

	/** Locked at entry and exit. */
	private void lookAtAnnounced() throws SQLException {
		List<Hold> some = new ArrayList<>();
		for (Hold hold : announced) {
			if (some.size() < ANNOUNCED_AT_ONCE)
				some.add(hold);
		}
		announced.removeAll(some);
		List<Object[]> rows;
		try {
			rows = session.ask(
					"SELECT CASE WHEN u.e THEN %s.is_leader(u.n, u.t) ELSE %s.is_held(u.n, u.t) END"
							+ " FROM ROWS FROM (pg_catalog.unnest(?), pg_catalog.unnest(?), pg_catalog.unnest(?))"
							+ " WITH ORDINALITY AS u(n, t, e, o) ORDER BY u.o",
					some.stream().map(hold -> hold.request.names.get(0)).toArray(String[]::new),
					some.stream().map(hold -> hold.token).toArray(Long[]::new),
					some.stream().map(hold -> hold.request.kind == Kind.TERM).toArray(Boolean[]::new));
		} catch (SQLException e) {
			lookAt = 0;
			throw e;
		}
		for (int i = 0; i < some.size(); i++) {
			if (waiting.contains(some.get(i)) && (Boolean) rows.get(i)[0])
				requests.held(some.get(i));
		}
	}

	// --- observers ---

	void observe(Observer observer, boolean add) {
		if (add) {
			observer.channel = null;
			observer.dueAt = 0;
			observer.busy = false;
			observers.add(observer);
		} else if (observers.remove(observer))
			release(observer.channel);
	}

	/** Locked at entry and exit. */
	private void read(Observer observer, long now) throws SQLException {
		observer.dueAt = now + Session.jitter(works ? LOOK : 4 * DEAF_LOOK);
		if (observer.channel == null && works) {
			String channel = (String) session.ask("SELECT %s.observe_election(?)", observer.election).get(0)[0];
			if (!observers.contains(observer))
				return;
			observer.channel = channel;
			channels.merge(channel, 1, Integer::sum);
		}
		List<Object[]> rows = session.ask(observer.sql(), observer.arguments());
		observer.busy = observers.contains(observer) && !rows.isEmpty();
		if (observer.busy)
			session.tell(() -> {
				observer.tell(rows);
				session.lock();
				observer.busy = false;
				session.wake();
				session.unlock();
			});
		else
			observer.began = true;
	}
}
