package lockelection;

import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** What a connection listens to, and whether that works. Under the session's lock. */
final class Channels {
	/** Nanoseconds for which LISTEN goes on after the last wait: the next one may come soon. */
	private static final long LINGER = 1_000_000_000L;

	private final Collection<Lease> leases;
	private final List<Observer> observers;
	private final Set<String> listening = new HashSet<>();
	/** The connection has notified itself; and has heard anything. */
	private boolean tested;
	private boolean hears;
	/** LISTEN does not work. */
	boolean deaf;

	Channels(Collection<Lease> leases, List<Observer> observers) {
		this.leases = leases;
		this.observers = observers;
	}

	/** A connection is new, or gone. */
	void reset(boolean pooled) {
		listening.clear();
		tested = hears = false;
		deaf = pooled;
	}

	void refused() {
		listening.clear();
		deaf = true;
	}

	boolean isUsed() {
		return !listening.isEmpty();
	}

	/** May a notification come that anybody waits for? */
	boolean hopes() {
		return isUsed() && (!observers.isEmpty() || leases.stream().anyMatch(l -> l.waiting > 0 && listening.contains(l.channel)));
	}

	/** Are the grants of a lease announced? */
	boolean announces(Lease l) {
		return hears && listening.contains(l.channel);
	}

	/** When listening may change by itself; 0: now. */
	long due(long now) {
		if (!deaf && !wanted(now).equals(listening))
			return 0;
		return leases.stream().filter(l -> l.waiting == 0 && listening.contains(l.channel)).mapToLong(l -> l.waitedAt + LINGER)
				.min().orElse(Long.MAX_VALUE);
	}

	private Set<String> wanted(long now) {
		Set<String> wanted = new HashSet<>();
		for (Lease l : leases) {
			if (l.channel != null && (l.waiting > 0 || now < l.waitedAt + LINGER))
				wanted.add(l.channel);
		}
		for (Observer observer : observers) {
			if (observer.channel != null)
				wanted.add(observer.channel);
		}
		return wanted;
	}

	/** LISTEN and UNLISTEN for all that has changed; the first time the connection notifies itself. What came before is read. */
	String change(long now) {
		Set<String> wanted = wanted(now);
		StringBuilder sql = new StringBuilder();
		String test = "";
		for (String channel : wanted) {
			if (!listening.contains(channel)) {
				sql.append("LISTEN ").append(channel).append(';');
				test = tested ? "" : "SET LOCAL synchronous_commit = off; NOTIFY " + channel;
				mayHaveNews(channel);
			}
		}
		listening.removeAll(wanted);
		listening.forEach(channel -> sql.append("UNLISTEN ").append(channel).append(';'));
		listening.clear();
		listening.addAll(wanted);
		tested |= !test.isEmpty();
		return sql.append(test).toString();
	}

	void heard(String channel) {
		hears = true;
		mayHaveNews(channel);
	}

	private void mayHaveNews(String channel) {
		leases.forEach(l -> l.look |= channel.equals(l.channel));
		observers.forEach(observer -> observer.dueAt = channel.equals(observer.channel) ? 0 : observer.dueAt);
	}
}
