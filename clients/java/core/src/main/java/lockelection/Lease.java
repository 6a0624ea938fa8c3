package lockelection;

import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import lockelection.Clock.Moment;
import lockelection.Hold.View;
import lockelection.LockException.Status;

/**
 * A lease with its requests and holds, which makes the arguments of lease_sync() calls and handles their replies. It
 * does no I/O. The session's lock protects all fields except the deadline.
 */
final class Lease {
	/** Sends NULL elements as the owner text: in an array literal, NULL depends on the setting array_nulls. */
	static final String SYNC = "SELECT item, event, kind, name, token, owner, reason, sqlstate, message, detail, hint,"
			+ " pg_catalog.floor(pg_catalog.date_part('epoch', validity) OPERATOR(pg_catalog.*) 1000)::bigint,"
			+ " incarnation, news, complete, channel"
			+ " FROM %s.lease_sync(?, ?, ?::bigint, ?::bigint, pg_catalog.array_replace(?::text[], ?::text, NULL::text),"
			+ " ?::interval)";
	private static final int ITEM = 0, EVENT = 1, KIND = 2, NAME = 3, TOKEN = 4, OWNER = 5, REASON = 6, SQLSTATE = 7,
			MESSAGE = 8, DETAIL = 9, HINT = 10, VALIDITY = 11, INCARNATION = 12, NEWS = 13, COMPLETE = 14, CHANNEL = 15;
	private static final int MOST_ITEMS = 128;
	private static final int MOST_NAMES = 1000;
	private static final long MILLISECOND = 1_000_000L;
	private static final long SECOND = 1000 * MILLISECOND;
	/** Delay before an item that the server cannot carry out now is sent again. */
	private static final long PAUSE = 100 * MILLISECOND;

	final Duration ttl;
	private final long ttlNanos;
	private final Session session;
	/**
	 * The latest deadline of all renewals; null if no reply had a validity yet, in which case the lease ends one TTL
	 * after its grant, at {@code born}.
	 */
	private volatile Moment deadline;
	private volatile Moment born;
	volatile boolean ended;
	/** The number of the lease; 0 = not granted yet. */
	volatile long id;
	/** Times of the next renewal, the last call and the end of the last wait, in ns of the session's clock. */
	long renewAt;
	long lastAt;
	long waitedAt = Long.MIN_VALUE / 2;
	/** The number of places. */
	int waiting;
	/** Whether the server may have news, so that a call is due now. */
	boolean look;
	/** The channel of the server's notifications; null if it sends none. */
	String channel;
	final Deque<Item> queue = new ArrayDeque<>();
	/** The requests that were sent and have no result yet, by their owner text. */
	private final Map<String, Hold> open = new HashMap<>();
	/** The places and holds, including those that are being released. */
	private final Map<Long, Hold> byToken = new HashMap<>();
	private long call;
	/** The values of the newest reply, which the next call sends back. */
	private Object incarnation;
	private Object news;
	/** Whether the next call has no items, so that its news reports the results of earlier calls. */
	private boolean bare;
	/** The number of items to send one by one, to find out which one the server rejects. */
	private int alone;
	/** Whether the last call had releases and left the requests to the next call. */
	private boolean apart;

	Lease(Session session, Duration ttl) {
		this.session = session;
		this.ttl = ttl;
		ttlNanos = Arguments.nanos(ttl);
	}

	/** One call with its items. */
	static final class Turn {
		final List<Item> items = new ArrayList<>();
		/** Whether it has only releases, so that the reply does not renew the lease. */
		boolean silent;
		Moment sent;
		Object[] arguments;
	}

	// --- the deadline ---

	/** Returns the deadline of a renewal: the time at which it was sent, plus the validity, minus the margin. */
	private Moment end(Moment sent, long validityNanos) {
		return sent.plus(Math.min(validityNanos, ttlNanos) - Math.min(ttlNanos / 20, SECOND));
	}

	void granted(long number, Moment sent) {
		born = end(sent, ttlNanos);
		id = number;
	}

	/**
	 * Sets the deadline after a renewal. The validity is the time for which the lease stays valid even if the server
	 * crashes. It counts from the time at which the call was sent. A renewal never shortens the deadline.
	 */
	private void renewed(Moment sent, long validityNanos) {
		Moment next = end(sent, validityNanos);
		if (deadline == null || next.passed() < deadline.passed())
			deadline = next;
		renewAt = session.at(sent) + Session.jitter(Math.min(ttlNanos / 3, Math.max(validityNanos / 3, longestPause())));
	}

	/** Returns the longest pause between two attempts to renew, in nanoseconds. */
	long longestPause() {
		return Math.max(SECOND / 20, Math.min(ttlNanos / 20, SECOND));
	}

	/** Returns the nanoseconds to the deadline; 0 or less if it has passed, or if no reply had a validity yet. */
	long left() {
		Moment latest = deadline;
		return ended || latest == null ? 0 : -latest.passed();
	}

	/**
	 * Returns the nanoseconds until the lease is lost. If no reply had a validity yet, it is lost one TTL after its
	 * grant.
	 */
	long life() {
		Moment latest = deadline == null ? born : deadline;
		return latest == null ? Long.MAX_VALUE : -latest.passed();
	}

	/** Returns the limit of a statement, in milliseconds. */
	long callMillis() {
		return Math.max(200, Math.min(10_000, ttlNanos / 4_000_000));
	}

	// --- a call ---

	boolean isUnused() {
		return queue.isEmpty() && open.isEmpty() && byToken.isEmpty();
	}

	/** Whether a release is queued. */
	boolean releases() {
		return queue.stream().anyMatch(item -> !item.asks());
	}

	/**
	 * Returns the time at which the first item may be sent. Requests stay in order: a delayed request delays the later
	 * ones, but no releases.
	 */
	long due() {
		long due = Long.MAX_VALUE;
		boolean blocked = false;
		for (Item item : queue) {
			if (!blocked || !item.asks())
				due = Math.min(due, item.notBefore);
			blocked |= item.asks() && item.notBefore > 0;
			if (due == 0)
				break;
		}
		return due;
	}

	/**
	 * Makes a turn from the queued items. Drops requests that the application no longer waits for. After a call without
	 * a reply, which may have carried them out, sends no items and drops none.
	 */
	Turn begin(Moment sent, long waitMillis) {
		Turn turn = new Turn();
		turn.sent = sent;
		lastAt = session.at(sent);
		int most = bare ? 0 : alone > 0 ? 1 : MOST_ITEMS;
		int names = 0;
		boolean blocked = false;
		// The reply to a call with requests waits for a flush to disk, which would delay releases in the same call. So
		// send releases in a call of their own: their callers can add their next requests to the following call.
		apart = !apart && !bare && queue.stream().anyMatch(item -> !item.asks() && item.notBefore <= lastAt);
		for (Iterator<Item> i = queue.iterator(); i.hasNext() && turn.items.size() < most;) {
			Item item = i.next();
			boolean unwanted = item.asks() && item.hold.view == View.OVER;
			names += unwanted || apart && item.asks() ? 0 : item.names.size();
			if (!unwanted && (item.notBefore > lastAt || (blocked || apart) && item.asks() || names > MOST_NAMES)) {
				blocked |= item.asks();
				continue;
			}
			i.remove();
			if (unwanted)
				forget(item.hold);
			else {
				turn.items.add(item);
				if (item.asks())
					open.put(item.owner, item.hold);
			}
		}
		alone = Math.max(0, alone - turn.items.size());
		turn.silent = !turn.items.isEmpty() && lastAt < renewAt && waiting == 0 && !look && open.isEmpty()
				&& turn.items.stream().allMatch(item -> !item.asks() && item.value == null);
		look = false;
		turn.arguments = new Object[] {id, ++call, text(incarnation), text(news), texts(turn.items), session.owner,
				turn.silent ? null : waitMillis + " ms"};
		return turn;
	}

	private static String text(Object value) {
		return value == null ? null : value.toString();
	}

	private String[] texts(List<Item> items) {
		List<String> texts = new ArrayList<>();
		int number = 0;
		for (Item item : items) {
			number++;
			for (String name : item.names) {
				for (String text : new String[] {"" + number, item.action, name, item.number, item.owner, item.value})
					texts.add(text == null ? session.owner : text);
			}
		}
		return texts.toArray(String[]::new);
	}

	/** Puts items in front of all others. Forgets them if the lease has ended. */
	private void requeue(List<Item> items) {
		for (int i = items.size() - 1; i >= 0; i--) {
			if (!ended)
				queue.addFirst(items.get(i));
			else if (items.get(i).hold != null)
				forget(items.get(i).hold);
		}
	}

	/** Handles the error of a call. If the connection has broken, the call may have taken effect. */
	void failed(Turn turn, LockException error, boolean connected) {
		bare = true;
		boolean done = !connected || error.status() == Status.UNKNOWN;
		for (Item item : turn.items) {
			item.again |= done;
			item.lost |= done;
			if (connected && error.passes())
				item.notBefore = lastAt + PAUSE;
		}
		if (connected && !error.passes() && turn.items.size() == 1) {
			bare = false;
			refused(turn.items.get(0), error);
			return;
		}
		if (connected && !error.passes())
			alone = turn.items.size();
		requeue(turn.items);
	}

	/**
	 * Handles a reply: the row of the lease, the results of the items, and the news. Returns false if the call should
	 * have renewed the lease but has not.
	 */
	boolean reply(Turn turn, List<Object[]> rows) {
		Object[] head = rows.get(0);
		if (!ended && head[EVENT].equals("gone"))
			session.lose(this, LockException.of(Status.LOST, "the server has ended the lease: " + head[REASON]), true);
		if (ended) {
			requeue(turn.items);
			return true;
		}
		if (head[INCARNATION] != null) {
			incarnation = head[INCARNATION];
			news = head[NEWS];
			channel = (String) head[CHANNEL];
			boolean held = head[COMPLETE] == null; // the server withholds the news until they are durable
			bare = bare && held;
			look = look || held;
		}
		if (head[VALIDITY] != null)
			renewed(turn.sent, (Long) head[VALIDITY] * MILLISECOND);
		Map<Long, Integer> there = new HashMap<>();
		List<Item> again = new ArrayList<>();
		for (Object[] row : rows.subList(1, rows.size())) {
			Item item = row[ITEM] == null ? null : turn.items.set((Integer) row[ITEM] - 1, null);
			if (row[TOKEN] != null)
				there.merge((Long) row[TOKEN], item == null ? 1 : item.names.size(), Integer::sum);
			if (row[ITEM] == null)
				news(row);
			else if (item != null && !result(item, row))
				again.add(item);
		}
		turn.items.removeIf(item -> item == null);
		again.addAll(turn.items); // items without rows were not carried out: the server took this call for an old one
		requeue(again);
		if (Boolean.TRUE.equals(head[COMPLETE]))
			compare(there);
		if (head[COMPLETE] != null)
			askAgain();
		return turn.silent || head[VALIDITY] != null;
	}

	// --- the rows of a reply ---

	/** Handles the result of an item. Returns false if the item must be sent again. */
	private boolean result(Item item, Object[] row) {
		String event = (String) row[EVENT];
		switch (event) {
			case "error":
				refused(item, LockException.of("ERROR: " + row[MESSAGE] + detail("\n  Detail: ", row[DETAIL]) + detail("\n  Hint: ", row[HINT]),
						(String) row[SQLSTATE], null));
				return true;
			case "pending":
				look = true;
				item.pending = item.grants();
				item.again |= !item.pending;
				return item.pending;
			case "granted":
			case "queued":
				adopt(item.hold, (Long) row[TOKEN], event.equals("granted"));
				return true;
			default:
				if (!item.asks())
					gaveBack(item, event.equals("released"));
				else
					settle(item.hold, event.equals("not_granted")
							? LockException.of(Status.NOT_ACQUIRED, "somebody else holds " + item.hold.request + ", or waits for it")
							: event.equals("not_held") && item.action.equals("proclaim")
									? LockException.of(Status.LOST, "the server has ended the term")
									: null);
				return true;
		}
	}

	private static String detail(String label, Object text) {
		return text == null ? "" : label + text;
	}

	/** Handles the error of one item. */
	private void refused(Item item, LockException error) {
		Hold hold = item.hold;
		boolean tooLong = item.value != null && "53400".equals(error.sqlState()); // exceeds lock_election.max_hold_for
		item.notBefore = session.now() + PAUSE;
		if (error.passes() || !item.asks() && error.status() == Status.LIMIT && !tooLong)
			requeue(List.of(item));
		else if (item.asks())
			settle(hold, error);
		else if (item.value != null) { // release it without holdFor
			hold.releaseError = error;
			item.value = null;
			item.again = false;
			item.notBefore = 0;
			requeue(List.of(item));
		} else { // keep retrying: the error may be a revoked privilege, which may be granted again
			Item later = new Item(item.action, item.names, item.number, null, null);
			later.notBefore = session.now() + ttlNanos / 3;
			queue.addLast(later);
			if (hold != null) {
				hold.releaseError = LockException.of(Status.UNKNOWN, error.getMessage() + "; the session keeps trying");
				gaveBack(item, true);
			}
		}
	}

	/** Handles the result of a release. If a repeated one finds nothing held, an earlier copy has released the hold. */
	private void gaveBack(Item item, boolean done) {
		Hold hold = item.hold;
		if (hold == null)
			return;
		if (!done && !item.again)
			hold.releaseError = LockException.of(Status.LOST, hold.request + " had been lost before it was released");
		else if (!done && item.value != null && item.lost)
			hold.releaseError = LockException.of(Status.UNKNOWN, hold.request + " is released; whether it is closed is not known");
		if (--hold.giving == 0)
			forget(hold);
	}

	/**
	 * Handles a row that is not the result of an item: a request whose reply was lost or pending, a place that was
	 * granted, the end of a hold, or a ghost, which is a grant or place without a hold.
	 */
	private void news(Object[] row) {
		Long token = (Long) row[TOKEN];
		String owner = String.valueOf(row[OWNER]);
		Hold hold = byToken.get(token);
		Hold asked = open.get(owner);
		switch ((String) row[EVENT]) {
			case "lost":
				if (hold != null)
					lost(hold, "the server has ended it: " + row[REASON]);
				return;
			case "evicted":
				if (hold != null) { // it stays held on the server until the application releases it
					hold.evicted |= hold.view == View.HELD;
					finish(hold, LockException.of(Status.LOST, "it was evicted"));
					return;
				}
				if (asked != null) // evicted before its grant was known: it is released immediately
					finish(asked, LockException.of(Status.LOST, "it was evicted"));
				break;
			default:
				break;
		}
		boolean granted = row[EVENT].equals("granted");
		if (hold != null && granted && hold.queued)
			held(hold);
		else if (hold == null && asked != null) {
			queue.remove(asked.ask);
			adopt(asked, token, granted);
		} else if (hold == null && owner.startsWith(session.owner))
			queue.addFirst(new Item(row[KIND].equals("election") ? "resign" : "release", List.of((String) row[NAME]),
					token.toString(), null, null));
	}

	/** Handles a complete reply: ends the holds and places that do not appear in it. */
	private void compare(Map<Long, Integer> there) {
		for (Hold hold : List.copyOf(byToken.values())) {
			if (there.getOrDefault(hold.token, 0) < hold.request.names.size() && (hold.view != View.OVER || hold.evicted))
				lost(hold, "the server has ended it");
		}
	}

	/**
	 * Called after a reply with all news: sends the pending requests again that did not appear in it, because they were
	 * not carried out, or have ended.
	 */
	private void askAgain() {
		List<Item> again = new ArrayList<>();
		for (Hold hold : open.values()) {
			if (hold.ask.pending)
				again.add(hold.ask);
		}
		again.forEach(item -> item.pending = false);
		again.sort(Comparator.comparing((Item item) -> item.owner.length()).thenComparing(item -> item.owner));
		requeue(again);
	}

	// --- holds ---

	/** Handles the grant or the place of a request. Releases it if the application no longer waits for it. */
	private void adopt(Hold hold, long token, boolean granted) {
		hold.token = token;
		open.remove(hold.ask.owner);
		byToken.put(token, hold);
		if (hold.view == View.OVER)
			giveBack(hold);
		else if (granted)
			held(hold);
		else {
			hold.queued = true;
			waiting++;
			if (hold.impatient)
				finish(hold, LockException.of(Status.NOT_ACQUIRED, hold.request + " was not granted in time"));
		}
	}

	/** Handles a grant. The server reports a grant only when it is durable, and then its lease is durable, too. */
	private void held(Hold hold) {
		leaveQueue(hold);
		if (deadline == null)
			deadline = born;
		hold.view = View.HELD;
		hold.event(Event.Kind.ACQUIRED, null);
		session.held++;
		session.answered++;
		hold.decided.complete(null);
	}

	private void leaveQueue(Hold hold) {
		if (hold.queued) {
			waiting--;
			waitedAt = session.now();
		}
		hold.queued = false;
	}

	/**
	 * Ends a wait or a hold for the application, and releases its grant or place on the server. An evicted hold is not
	 * released before the application releases it. If no reply has arrived yet, the release follows after the reply.
	 */
	void finish(Hold hold, LockException failure) {
		boolean held = hold.view == View.HELD;
		if (hold.view == View.OVER)
			return;
		hold.failure = failure;
		hold.view = View.OVER;
		if (held && !hold.isLost())
			hold.event(Event.Kind.RELEASED, null);
		else
			hold.event(held ? Event.Kind.LOST : Event.Kind.NOT_ACQUIRED, failure);
		leaveQueue(hold);
		if (held)
			session.held--;
		else
			session.answered++;
		hold.decided.complete(failure);
		if (held && hold.isLost())
			hold.tellLost();
		if (byToken.get(hold.token) == hold && !hold.evicted)
			giveBack(hold);
	}

	/**
	 * Handles the loss of a hold. If it has several names, releases the remaining names, but those of an evicted hold
	 * only when the application releases it.
	 */
	private void lost(Hold hold, String why) {
		if (hold.evicted && hold.request.names.size() > 1)
			return;
		hold.evicted = false;
		if (hold.request.names.size() == 1)
			byToken.remove(hold.token);
		finish(hold, LockException.of(Status.LOST, why));
		if (hold.request.names.size() == 1)
			forget(hold);
		else
			giveBack(hold);
	}

	/** Queues the release of a hold or a place, name by name. */
	void giveBack(Hold hold) {
		if (ended || hold.giving > 0)
			return;
		hold.evicted = false;
		hold.giving = hold.request.names.size();
		for (String name : hold.request.names)
			queue.addFirst(new Item(hold.request.isTerm() ? "resign" : "release", List.of(name), Long.toString(hold.token),
					hold.holdFor == null ? null : Arguments.milliseconds(hold.holdFor), hold));
	}

	/** Ends a request of which the server has neither a grant nor a place. */
	private void settle(Hold hold, LockException failure) {
		finish(hold, failure);
		forget(hold);
	}

	/** Forgets a request of which the server has neither a grant nor a place. */
	private void forget(Hold hold) {
		byToken.remove(hold.token, hold);
		open.remove(hold.ask.owner, hold);
		if (hold.released.complete(hold.releaseError))
			session.answered++;
	}

	/**
	 * Drops all items except releases that close names, because a revocation does not close names. Returns whether any
	 * such release is left.
	 */
	boolean closesNames() {
		queue.removeIf(item -> item.asks() || item.value == null);
		return !queue.isEmpty();
	}

	/** Ends the lease with all its requests and holds. */
	void end(LockException why) {
		ended = true;
		List<Hold> all = new ArrayList<>(open.values());
		all.addAll(byToken.values());
		for (Item item : queue) {
			if (item.hold != null)
				all.add(item.hold);
		}
		queue.clear();
		all.forEach(hold -> settle(hold, why));
	}

	/** Ends all waits and holds for the application. */
	void finishAll(LockException why) {
		List<Hold> all = new ArrayList<>(open.values());
		all.addAll(byToken.values());
		for (Item item : queue) {
			if (item.asks())
				all.add(item.hold);
		}
		all.forEach(hold -> finish(hold, why));
	}
}
