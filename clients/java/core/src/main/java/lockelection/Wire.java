package lockelection;

import java.sql.SQLException;
import java.util.List;

/** A connection to a primary with the extension. Only one thread uses it at a time, except for {@link #abort()}. */
interface Wire {
	/** Makes connections. */
	interface Connector {
		/** Connects to a host. Tries the hosts in turn, each once and for at most limitMillis. */
		Wire connect(long limitMillis) throws SQLException;
	}

	/** Runs one statement, in which %s is the extension's schema. If there is no reply in time, the connection ends. */
	List<Object[]> query(long limitMillis, String sql, Object... arguments) throws SQLException;

	/**
	 * Returns the channels of the notifications that have arrived since the last call. Waits for the first one for at
	 * most waitMillis, and at least 1 ms.
	 */
	List<String> notifications(int waitMillis) throws SQLException;

	/** The extension's schema, quoted. */
	String schema();

	/** Whether there is a pooler in front of the server, so that any backend may run the next statement. */
	boolean pooled();

	void close();

	/** Closes the connection immediately, from any thread. */
	void abort();
}
