package lockelection;

import java.sql.SQLException;
import java.util.List;

/** A connection to a primary with the extension. One thread at a time uses it, but for {@link #abort()}. */
interface Wire {
	/** Makes connections. */
	interface Connector {
		/** Tries each host once; limitMillis is for a host. */
		Wire connect(long limitMillis) throws SQLException;
	}

	/** Runs one statement; %s is the extension's schema. An answer that does not come in time ends the connection. */
	List<Object[]> query(long limitMillis, String sql, Object... arguments) throws SQLException;

	/** The channels of notifications that have come since the last call. Waits for the first, at most so long, and at least 1 ms. */
	List<String> notifications(int waitMillis) throws SQLException;

	/** The extension's schema, quoted. */
	String schema();

	/** Somebody is between us and the server: nobody knows which backend runs the next statement. */
	boolean pooled();

	void close();

	/** Ends the connection at once, from any thread. */
	void abort();
}
