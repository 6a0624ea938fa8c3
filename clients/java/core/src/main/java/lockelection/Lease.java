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
 * A lease, and what hangs on it: what calls of lease_sync() ask for, and what their replies tell. It does no I/O. All but
 * the deadline is read and written under the session's lock.
 */
final class Lease {
	/** NULL elements come as the owner text of the session: "NULL" in the text of an array depends on array_nulls. */
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
	/** Before an item that the server cannot carry out at present is sent again. */
	private static final long PAUSE = 100 * MILLISECOND;

	final Duration ttl;
	private final long ttlNanos;
	private final Session session;
	/** The latest end of all renewals; null: the server has told nothing certain yet. Then it ends a TTL after the grant. */
	private volatile Moment deadline;
	private volatile Moment born;
	volatile boolean ended;
	/** 0: not granted yet. */
	volatile long id;
	/** Times in nanoseconds on the session's clock: of the next renewal, the last call, and the end of the last wait. */
	long renewAt;
	long lastAt;
	long waitedAt = Long.MIN_VALUE / 2;
	/** Places. */
	int waiting;
	/** The server may have news. */
	boolean look;
	/** Where the server notifies; null: it does not. */
	String channel;
	final Deque<Item> queue = new ArrayDeque<>();
	/** Requests that were sent and are not answered, by their owner text. */
	private final Map<String, Hold> open = new HashMap<>();
	/** Places and holds, also those that are being given back. */
	private final Map<Long, Hold> byToken = new HashMap<>();
	private long call;
	/** What the newest reply has told. */
	private Object incarnation;
	private Object news;
	/** The next call has no items: what earlier ones have done is read first. */
	private boolean bare;
	/** So many items travel alone, to find the one that the server cannot read. */
	private int alone;
	/** The last call had releases, and left requests to the next one. */
	private boolean apart;

	Lease(Session session, Duration ttl) {
		this.session = session;
		this.ttl = ttl;
		ttlNanos = Arguments.nanos(ttl);
	}

	/** What one call asks for. */
	static final class Turn {
		final List<Item> items = new ArrayList<>();
		/** Nothing but releases: the reply tells nothing of the lease. */
		boolean silent;
		Moment sent;
		Object[] arguments;
	}

	// --- the deadline ---

	/** When a renewal ends: the validity after its sending, less the margin. */
	private Moment end(Moment sent, long validityNanos) {
		return sent.plus(Math.min(validityNanos, ttlNanos) - Math.min(ttlNanos / 20, SECOND));
	}

	void granted(long number, Moment sent) {
		born = end(sent, ttlNanos);
		id = number;
	}

	/** What the lease would have left if the server crashed now counts from the sending. Less takes nothing back. */
	private void renewed(Moment sent, long validityNanos) {
		Moment next = end(sent, validityNanos);
		if (deadline == null || next.passed() < deadline.passed())
			deadline = next;
		renewAt = session.at(sent) + Session.jitter(Math.min(ttlNanos / 3, Math.max(validityNanos / 3, longestPause())));
	}

	/** Between two attempts to renew. */
	long longestPause() {
		return Math.max(SECOND / 20, Math.min(ttlNanos / 20, SECOND));
	}

	/** Nanoseconds to the deadline; at most 0 if it has passed, or nothing is certain yet. */
	long left() {
		Moment latest = deadline;
		return ended || latest == null ? 0 : -latest.passed();
	}

	/** Nanoseconds until it is lost. A lease of which nothing was ever certain ends at its TTL. */
	long life() {
		Moment latest = deadline == null ? born : deadline;
		return latest == null ? Long.MAX_VALUE : -latest.passed();
	}

	/** How long a statement may take. */
	long callMillis() {
		return Math.max(200, Math.min(10_000, ttlNanos / 4_000_000));
	}

	// --- a call ---

	boolean isUnused() {
		return queue.isEmpty() && open.isEmpty() && byToken.isEmpty();
	}

	/** Is a release queued? */
	boolean releases() {
		return queue.stream().anyMatch(item -> !item.asks());
	}

	/** When the first item may be sent; none passes a request that has to wait. */
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

	/** Takes what is queued. What nobody wants any more is dropped, unless a call whose reply was lost has asked for it. */
	Turn begin(Moment sent, long waitMillis) {
		Turn turn = new Turn();
		turn.sent = sent;
		lastAt = session.at(sent);
		int most = bare ? 0 : alone > 0 ? 1 : MOST_ITEMS;
		int names = 0;
		boolean blocked = false;
		// requests wait for the disk, and so would releases in the same call; those who release are in time for the next one
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

	/** Puts items before all others. */
	private void requeue(List<Item> items) {
		for (int i = items.size() - 1; i >= 0; i--) {
			if (!ended)
				queue.addFirst(items.get(i));
			else if (items.get(i).hold != null)
				forget(items.get(i).hold);
		}
	}

	/** The call has no reply, but an error. Without a connection it may have taken effect. */
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

	/** Takes a reply: the lease, the results of the items, the news. False: nothing of the lease is certain. */
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
			boolean held = head[COMPLETE] == null; // news are, until they are durable
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
		again.addAll(turn.items); // those of an old call have no rows
		requeue(again);
		if (Boolean.TRUE.equals(head[COMPLETE]))
			compare(there);
		if (head[COMPLETE] != null)
			askAgain();
		return turn.silent || head[VALIDITY] != null;
	}

	// --- what a reply tells ---

	/** Takes what has become of an item. False: it has to be sent again. */
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

	/** Takes an error of one item. */
	private void refused(Item item, LockException error) {
		Hold hold = item.hold;
		boolean tooLong = item.value != null && "53400".equals(error.sqlState()); // lock_election.max_hold_for
		item.notBefore = session.now() + PAUSE;
		if (error.passes() || !item.asks() && error.status() == Status.LIMIT && !tooLong)
			requeue(List.of(item));
		else if (item.asks())
			settle(hold, error);
		else if (item.value != null) { // it is released all the same
			hold.releaseError = error;
			item.value = null;
			item.again = false;
			item.notBefore = 0;
			requeue(List.of(item));
		} else { // a right was taken away, and may come back
			Item later = new Item(item.action, item.names, item.number, null, null);
			later.notBefore = session.now() + ttlNanos / 3;
			queue.addLast(later);
			if (hold != null) {
				hold.releaseError = LockException.of(Status.UNKNOWN, error.getMessage() + "; the session goes on trying");
				gaveBack(item, true);
			}
		}
	}

	/** Takes the end of a release. One that is sent again, and finds nothing, was done before, as far as anybody knows. */
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
	 * Takes a row that answers no item: a request whose reply was lost or pending, a place that was granted, the end of a
	 * hold, or a ghost, which nobody wants.
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
				if (hold != null) { // the application gives it back, when its work has stopped
					hold.evicted |= hold.view == View.HELD;
					finish(hold, LockException.of(Status.LOST, "it was evicted"));
					return;
				}
				if (asked != null) // before its grant was known: it is given back at once
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

	/** Takes a reply that has everything: what it does not have is lost. */
	private void compare(Map<Long, Integer> there) {
		for (Hold hold : List.copyOf(byToken.values())) {
			if (there.getOrDefault(hold.token, 0) < hold.request.names.size() && (hold.view != View.OVER || hold.evicted))
				lost(hold, "the server has ended it");
		}
	}

	/** Takes a reply that has all news: a pending request that is not among them was not carried out, or has ended. */
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

	/** Takes what the server has for a request. Nobody may want it any more. */
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

	/** A grant is told when it is durable, and so is its lease. */
	private void held(Hold hold) {
		leaveQueue(hold);
		if (deadline == null)
			deadline = born;
		hold.view = View.HELD;
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

	/** Ends a wait or a hold for the application. What the server has of it is given back, or when its reply is here. */
	void finish(Hold hold, LockException failure) {
		boolean held = hold.view == View.HELD;
		if (hold.view == View.OVER)
			return;
		hold.failure = failure;
		hold.view = View.OVER;
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

	/** What is left of several names is given back, of an evicted hold when the application has left it. */
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

	/** Ends a request of which the server has nothing. */
	private void settle(Hold hold, LockException failure) {
		finish(hold, failure);
		forget(hold);
	}

	/** The server has nothing of it any more. */
	private void forget(Hold hold) {
		byToken.remove(hold.token, hold);
		open.remove(hold.ask.owner, hold);
		if (hold.released.complete(hold.releaseError))
			session.answered++;
	}

	/** Nobody asks for anything but what a revocation does not do: to keep names closed. */
	boolean closesNames() {
		queue.removeIf(item -> item.asks() || item.value == null);
		return !queue.isEmpty();
	}

	/** All that hangs on it is over. */
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
