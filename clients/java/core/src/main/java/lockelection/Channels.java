package lockelection;

import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** The channels that a connection listens on, and whether LISTEN works. Protected by the session's lock. */
final class Channels {
	/** Nanoseconds for which a session keeps listening after its last wait, because the next wait may come soon. */
	private static final long LINGER = 1_000_000_000L;

	private final Collection<Lease> leases;
	private final List<Observer> observers;
	private final Set<String> listening = new HashSet<>();
	/** Whether the connection has sent itself a notification, as a test. */
	private boolean tested;
	/** Whether the connection has ever received a notification. */
	private boolean hears;
	/** Whether LISTEN does not work. */
	boolean deaf;

	Channels(Collection<Lease> leases, List<Observer> observers) {
		this.leases = leases;
		this.observers = observers;
	}

	/** Forgets all channels, because the connection is new or has broken. */
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

	/** Whether a hold or an observer waits for a notification of a channel. */
	boolean hopes() {
		return isUsed() && (!observers.isEmpty() || leases.stream().anyMatch(l -> l.waiting > 0 && listening.contains(l.channel)));
	}

	/** Whether notifications announce the grants of a lease. */
	boolean announces(Lease l) {
		return hears && listening.contains(l.channel);
	}

	/** Returns the time at which the channels must be checked again if nothing else happens; 0 = now. */
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

	/**
	 * Returns LISTEN and UNLISTEN statements for all changes. On a new connection, they also notify the connection
	 * itself, as a test. Leases and observers with new channels read the news, because this connection did not receive
	 * earlier notifications.
	 */
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
