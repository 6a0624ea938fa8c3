package lockelection;

import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Predicate;
import lockelection.Hold.Phase;
import lockelection.Hold.View;
import lockelection.LockException.Status;
import lockelection.Request.Kind;

/**
 * What a session asks of the server for holds: to be granted or queued, and to be given back. Requests of one kind that
 * wait at the same time travel in one statement. All of it is called with the session's lock held.
 */
final class Requests {
	private static final int TOGETHER = 128;
	/** So many are looked at to find those that can travel together. */
	private static final int LOOKED_AT = 4 * TOGETHER;
	private static final long PAUSE = 100_000_000L;

	private final Session session;
	/** To be asked for, or given back, in order. */
	private final LinkedList<Hold> todo = new LinkedList<>();
	/** Asked for, and not answered. */
	private final Set<Hold> sent = new LinkedHashSet<>();
	/** What the server has of ours, as far as is known. */
	private final Map<Long, Hold> byToken = new HashMap<>();
	/** Releases that the server refuses: tried again with each renewal. */
	private final List<Hold> refused = new ArrayList<>();
	private Waits waits;
	private long statements;
	private long notBefore;

	Requests(Session session) {
		this.session = session;
	}

	void set(Waits waits) {
		this.waits = waits;
	}

	// --- holds ---

	void add(Hold hold) {
		todo.add(hold);
		session.wake();
	}

	Hold byToken(long token) {
		return byToken.get(token);
	}

	/** All that the server may have something of, or that waits to be asked for. */
	List<Hold> all(Predicate<Lease> on) {
		Set<Hold> all = new LinkedHashSet<>();
		for (Collection<Hold> some : List.of(todo, sent, byToken.values())) {
			for (Hold hold : some) {
				if (on.test(hold.lease))
					all.add(hold);
			}
		}
		return new ArrayList<>(all);
	}

	/** It is over for the application. What the server has of it is given back before anything else is asked for. */
	void over(Hold hold, LockException failure) {
		boolean held = hold.view == View.HELD;
		hold.failure = failure;
		hold.view = View.OVER;
		waits.leave(hold);
		hold.decided.complete(failure);
		if (held && failure.status() == Status.LOST)
			hold.tellLost();
		if (hold.phase == Phase.NEW)
			done(hold, null);
		else if (hold.phase != Phase.SENT) {
			todo.addFirst(hold);
			session.wake();
		}
	}

	/** The server has nothing of it any more. */
	void done(Hold hold, LockException error) {
		if (hold.phase == Phase.DONE)
			return;
		hold.phase = Phase.DONE;
		todo.remove(hold);
		sent.remove(hold);
		refused.remove(hold);
		byToken.remove(hold.token, hold);
		waits.leave(hold);
		hold.released.complete(error);
		session.forget(hold.lease);
	}

	void held(Hold hold) {
		hold.phase = Phase.GRANTED;
		hold.view = View.HELD;
		waits.leave(hold);
		hold.decided.complete(null);
	}

	// --- after a lost answer ---

	/** The hold that was asked for by this name under this owner. */
	private Hold wanted(String name, String owner) {
		for (Hold hold : sent) {
			if (owner.equals(session.owner + hold.asked) && hold.request.names.contains(name))
				return hold;
		}
		return null;
	}

	/** A row of lease_holds() whose token is not known: adopted, or a ghost, which is given back. */
	void found(Lease lease, String name, boolean election, long token, boolean granted, String channel, String owner)
			throws SQLException {
		if (!owner.startsWith(session.owner))
			return; // the application has hung it on the lease by itself
		Hold hold = wanted(name, owner);
		if (hold != null)
			answered(hold, token, granted, channel);
		else {
			try {
				session.ask(election ? "SELECT %s.resign(?, ?)" : "SELECT %s.release_lock(?, ?)", name, token);
			} catch (SQLException e) {
				if (session.wire() == null)
					throw e; // otherwise the next look finds it again
			}
		}
	}

	/** What was not found was not done: it is asked for again, in its order. */
	void askAgain(Lease lease) {
		List<Hold> again = new ArrayList<>(sent);
		for (int i = again.size() - 1; i >= 0; i--) {
			if (again.get(i).lease == lease)
				askOnceMore(again.get(i));
		}
	}

	private void askOnceMore(Hold hold) {
		sent.remove(hold);
		if (hold.isWanted()) {
			hold.phase = Phase.NEW;
			todo.addFirst(hold);
		} else
			done(hold, null);
	}

	void retryRefused() {
		todo.addAll(refused);
		refused.clear();
	}

	// --- work ---

	void pause() {
		notBefore = session.now() + Session.jitter(PAUSE);
	}

	long next(long now) {
		return todo.isEmpty() ? Long.MAX_VALUE : Math.max(now, notBefore);
	}

	/** What is not wanted any more goes before all that is asked for. */
	boolean giveBack(long now) {
		return !todo.isEmpty() && !todo.getFirst().isWanted() && work(now);
	}

	/** One statement, if there is something to ask for. */
	boolean work(long now) {
		if (todo.isEmpty() || now < notBefore)
			return false;
		Hold first = todo.getFirst();
		if (first.isWanted() && first.lease.id == 0)
			grant(first);
		else {
			List<Hold> together = choose(first);
			if (first.isWanted())
				ask(together);
			else
				release(together);
		}
		return true;
	}

	/** The session is being closed: those that close their names go first. False: there are none. */
	boolean releaseClosed() {
		for (Hold hold : todo) {
			if (hold.token != 0 && hold.holdFor != null) {
				todo.remove(hold);
				release(List.of(hold));
				return true;
			}
		}
		return false;
	}

	private void grant(Hold first) {
		try {
			session.grant(first.lease);
		} catch (SQLException e) {
			if (session.wire() == null || first.phase == Phase.DONE)
				return;
			LockException error = LockException.of(e);
			if (error.passes() && !first.attempt)
				pause();
			else if (first.isWanted())
				over(first, error);
		}
	}

	/** Can a statement for several carry it? */
	private static boolean isSimple(Hold hold) {
		if (hold.alone)
			return false;
		if (hold.isWanted())
			return hold.request.kind == Kind.LOCK;
		return hold.holdFor == null && (hold.request.kind == Kind.LOCK || hold.request.kind == Kind.PERMIT);
	}

	private static boolean areAlike(Hold a, Hold b) {
		return a.isWanted() == b.isWanted() && (!a.isWanted()
				|| a.attempt == b.attempt && a.request.shared == b.request.shared && a.lease == b.lease);
	}

	/** Takes the first, and those behind it that can go with it: none passes another one of its name. */
	private List<Hold> choose(Hold first) {
		List<Hold> chosen = new ArrayList<>();
		Set<String> seen = new HashSet<>();
		int left = LOOKED_AT;
		for (Iterator<Hold> i = todo.iterator(); i.hasNext() && left > 0 && chosen.size() < TOGETHER; left--) {
			Hold hold = i.next();
			boolean passes = false;
			if (hold.request.kind != Kind.TERM) {
				for (String name : hold.request.names)
					passes |= !seen.add(name);
			}
			if (hold != first && (passes || !isSimple(hold) || !areAlike(first, hold)))
				continue;
			i.remove();
			chosen.add(hold);
			if (!isSimple(first))
				break;
		}
		return chosen;
	}

	private static Object names(List<Hold> together) {
		Hold first = together.get(0);
		if (together.size() > 1)
			return together.stream().map(hold -> hold.request.names.get(0)).toArray(String[]::new);
		return first.request.kind == Kind.LOCKS ? first.request.names.toArray(String[]::new)
				: first.request.names.get(0);
	}

	/** What failed together had no effect: each is tried alone, and told its own error. */
	private static boolean failsAlone(List<Hold> together, LockException error) {
		return together.size() > 1 && !error.passes() && error.status() != Status.LOST;
	}

	private static String askSql(Hold first, boolean each) {
		if (first.attempt) {
			String arguments = "(?, owner => ?, lease => ?, ";
			if (each)
				return "SELECT token FROM %s.try_acquire_each" + arguments + "mode => ?)";
			switch (first.request.kind) {
				case LOCK:
					return "SELECT %s.acquire_lock" + arguments + "mode => ?, wait => '0')";
				case LOCKS:
					return "SELECT %s.acquire_locks" + arguments + "mode => ?, wait => '0')";
				case PERMIT:
					return "SELECT %s.acquire_permit" + arguments + "permits => ?, wait => '0')";
				default:
					return "SELECT %s.campaign" + arguments + "candidate => ?, wait => '0')";
			}
		}
		String place = "(?, owner => ?, lease => ?, ";
		if (each)
			return "SELECT token, granted, channel FROM %s.enqueue_each" + place + "mode => ?)";
		switch (first.request.kind) {
			case LOCK:
				return "SELECT token, granted, channel FROM %s.enqueue_lock" + place + "mode => ?)";
			case LOCKS:
				return "SELECT token, granted, channel FROM %s.enqueue_locks" + place + "mode => ?)";
			case PERMIT:
				return "SELECT token, granted, channel FROM %s.enqueue_permit" + place + "permits => ?)";
			default:
				return "SELECT term, elected, channel FROM %s.enqueue_candidate" + place + "candidate => ?)";
		}
	}

	private void ask(List<Hold> together) {
		Hold first = together.get(0);
		statements++;
		for (Hold hold : together) {
			hold.asked = statements;
			hold.phase = Phase.SENT;
			sent.add(hold);
		}
		Object last = first.request.kind == Kind.PERMIT ? (Object) first.request.permits
				: first.request.kind == Kind.TERM ? first.request.value : first.request.mode();
		try {
			List<Object[]> rows = session.ask(askSql(first, together.size() > 1), names(together),
					session.owner + statements, first.lease.id, last);
			for (int i = 0; i < together.size(); i++) {
				Object[] row = rows.get(i);
				if (together.get(i).phase == Phase.SENT)
					answered(together.get(i), (Long) row[0], first.attempt || (Boolean) row[1],
							first.attempt ? null : (String) row[2]);
			}
		} catch (SQLException e) {
			askFailed(together, LockException.of(e));
		}
	}

	/** It was granted, or has a place; but the application may not want it any more. */
	private void answered(Hold hold, Long token, boolean granted, String channel) {
		sent.remove(hold);
		if (token == null) {
			if (hold.isWanted())
				over(hold, LockException.of(Status.NOT_ACQUIRED, "somebody else holds " + hold.request + ", or waits for it"));
			done(hold, null);
			return;
		}
		hold.token = token;
		hold.phase = granted ? Phase.GRANTED : Phase.QUEUED;
		byToken.put(token, hold);
		if (!hold.isWanted())
			todo.addFirst(hold);
		else if (granted)
			held(hold);
		else if (hold.impatient)
			over(hold, LockException.of(Status.NOT_ACQUIRED, hold.request + " was not granted in time"));
		else
			waits.enter(hold, channel);
	}

	/** What has no answer stays SENT until the session has looked. */
	private void askFailed(List<Hold> together, LockException error) {
		if (session.wire() == null || error.status() == Status.UNKNOWN)
			return;
		boolean eachAlone = failsAlone(together, error);
		if (!eachAlone && error.passes())
			pause();
		if (error.status() == Status.LOST)
			together.get(0).lease.renewAt = 0;
		for (int i = together.size() - 1; i >= 0; i--) {
			Hold hold = together.get(i);
			if (hold.phase != Phase.SENT)
				continue;
			hold.alone |= eachAlone;
			if (eachAlone || error.passes() && !hold.attempt)
				askOnceMore(hold);
			else {
				if (hold.isWanted())
					over(hold, error);
				done(hold, null);
			}
		}
	}

	private void release(List<Hold> together) {
		Hold first = together.get(0);
		String holdFor = first.holdFor == null ? null : Session.milliseconds(first.holdFor);
		together.forEach(hold -> hold.releases++);
		try {
			List<Object[]> rows;
			if (together.size() > 1)
				rows = session.ask("SELECT released FROM %s.release_each(?, ?)", names(together),
						together.stream().map(hold -> hold.token).toArray(Long[]::new));
			else if (first.request.kind == Kind.TERM)
				rows = session.ask("SELECT %s.resign(?, ?)", names(together), first.token);
			else if (first.request.kind != Kind.LOCKS)
				rows = session.ask("SELECT %s.release_lock(?, ?, ?::interval, true)", names(together), first.token, holdFor);
			else if (holdFor == null)
				rows = session.ask("SELECT %s.release_locks(?, ?)", names(together), first.token);
			else
				rows = session.ask("SELECT pg_catalog.bool_and(%s.release_lock(u.n, ?, ?::interval, true))"
						+ " FROM pg_catalog.unnest(?) AS u(n)", first.token, holdFor, names(together));
			for (int i = 0; i < together.size(); i++)
				releaseAnswered(together.get(i), (Boolean) rows.get(i)[0]);
		} catch (SQLException e) {
			releaseFailed(together, LockException.of(e));
		}
	}

	/** One that is sent again, and finds nothing, was done before; whether the name was closed then is not known. */
	private void releaseAnswered(Hold hold, boolean released) {
		LockException error = null;
		if (!released && hold.releases <= 1)
			error = LockException.of(Status.LOST, hold.request + " had been lost before it was released");
		else if (!released && hold.holdFor != null)
			error = LockException.of(Status.UNKNOWN, hold.request + " is released; whether it is closed is not known");
		done(hold, error == null ? hold.notClosed : error);
	}

	private void releaseFailed(List<Hold> together, LockException error) {
		boolean eachAlone = failsAlone(together, error);
		// longer than lock_election.max_hold_for, which does not pass
		boolean tooLong = together.get(0).holdFor != null && "53400".equals(error.sqlState());
		boolean again = eachAlone || session.wire() == null || error.passes()
				|| (error.status() == Status.LIMIT && !tooLong);
		if (again && !eachAlone)
			pause();
		for (int i = together.size() - 1; i >= 0; i--) {
			Hold hold = together.get(i);
			hold.alone |= eachAlone;
			if (hold.phase == Phase.DONE)
				continue;
			if (!again && hold.holdFor != null && (error.status() == Status.INVALID || tooLong)) {
				hold.holdFor = null;
				hold.releases = 0;
				hold.notClosed = error;
				todo.addFirst(hold);
			} else if (again)
				todo.addFirst(hold);
			else {
				hold.released.complete(LockException.of(Status.UNKNOWN, error.getMessage() + "; the session goes on trying"));
				refused.add(hold);
			}
		}
	}
}
