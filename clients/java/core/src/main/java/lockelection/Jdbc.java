package lockelection;

import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Types;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import javax.sql.DataSource;
import org.postgresql.Driver;
import org.postgresql.PGConnection;
import org.postgresql.PGNotification;

/** A connection over JDBC. */
final class Jdbc implements Wire {
	/**
	 * Reads the properties of the server in one round trip; @pid is the process id from BackendKeyData. The portable
	 * edition works only in READ COMMITTED, so the statement makes that the default if the backend is the session's
	 * own, and not one of a pooler.
	 */
	private static final String INFO = "SELECT pg_catalog.quote_ident(n.nspname), pg_catalog.pg_is_in_recovery(),"
			+ " pg_catalog.pg_backend_pid() FROM (VALUES (0)) AS v(v) LEFT JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) COALESCE("
			+ "(SELECT e.extnamespace FROM pg_catalog.pg_extension e WHERE e.extname OPERATOR(pg_catalog.=) 'lock_election'),"
			+ " (SELECT CASE WHEN pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) @pid"
			+ " AND pg_catalog.set_config('default_transaction_isolation', 'read committed', false) IS NOT NULL"
			+ " AND pg_catalog.set_config('default_transaction_read_only', 'off', false) IS NULL THEN NULL ELSE p.pronamespace END"
			+ " FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace i ON i.nspname OPERATOR(pg_catalog.=) '_lock_election'"
			+ " AND i.nspowner OPERATOR(pg_catalog.=) p.proowner WHERE p.proname OPERATOR(pg_catalog.=) 'lease_holds' LIMIT 1))";
	/** SQLSTATEs of a prepared statement that failed because of a pooler, or because the function has changed. */
	private static final Set<String> NOT_PREPARED = Set.of("26000", "42P05", "0A000");

	private final Connection connection;
	/** PostgreSQL's view of the connection; null if another driver made it, or if a wrapper cannot be unwrapped. */
	private final PGConnection postgres;
	private String schema;
	private final boolean pooled;
	/** The settings of the connection when it was taken, which close() restores. */
	private final boolean autoCommit;
	private final int networkTimeout;
	private final int prepareThreshold;
	private long limit = -1;
	/** The latest statement, which is kept open because most calls repeat it, and its text; null after an error. */
	private PreparedStatement latest;
	private String latestText;

	private Jdbc(Connection connection, long limitMillis) throws SQLException {
		this.connection = connection;
		autoCommit = connection.getAutoCommit();
		networkTimeout = connection.getNetworkTimeout();
		connection.setAutoCommit(true);
		postgres = connection.isWrapperFor(PGConnection.class) ? connection.unwrap(PGConnection.class) : null;
		Object[] info = query(limitMillis, info()).get(0);
		if (info[0] == null)
			throw new SQLException("lock_election is not installed in database \"" + connection.getCatalog() + "\"", "3F000");
		if ((Boolean) info[1])
			throw new SQLException("the server is a standby", "25006");
		schema = (String) info[0];
		pooled = postgres == null || postgres.getBackendPID() != (Integer) info[2];
		prepareThreshold = postgres == null ? 0 : postgres.getPrepareThreshold();
		// A pooler may send each statement to a different backend, which does not have the prepared statement.
		if (pooled && postgres != null)
			postgres.setPrepareThreshold(0);
	}

	private String info() {
		return INFO.replace("@pid", String.valueOf(postgres == null ? 0 : postgres.getBackendPID()));
	}

	private static Jdbc open(Connection connection, long limitMillis) throws SQLException {
		try {
			return new Jdbc(connection, limitMillis);
		} catch (SQLException | RuntimeException e) {
			abandon(connection);
			throw e;
		}
	}

	static Connector connector(DataSource source) {
		Arguments.given(source, "the data source");
		return limitMillis -> open(take(source), limitMillis);
	}

	/** Takes a connection from the data source. An exhausted pool throws an exception without an SQLSTATE. */
	private static Connection take(DataSource source) throws SQLException {
		Connection connection;
		try {
			connection = source.getConnection();
		} catch (SQLException e) {
			throw Url.hidden(e, e.getSQLState() == null ? "08001" : e.getSQLState());
		} catch (RuntimeException e) {
			throw Url.hidden(e, "08001");
		}
		if (connection == null)
			throw new SQLException("the data source has given no connection", "08001");
		return connection;
	}

	static Connector connector(String url) {
		Url.check(url);
		Properties parsed = Driver.parseURL(url, new Properties());
		if (parsed == null)
			throw LockException.of(LockException.Status.INVALID, "cannot parse the URL");
		return new Hosts(parsed);
	}

	/** The hosts of a URL. A host that does not reply goes to the end of the list. */
	private static final class Hosts implements Connector {
		private final Properties properties = new Properties();
		private final String database;
		private final List<String> hosts = new ArrayList<>();

		Hosts(Properties parsed) {
			parsed.stringPropertyNames().forEach(name -> properties.setProperty(name, parsed.getProperty(name)));
			String[] names = properties.getProperty("PGHOST", "localhost").split(",");
			String[] ports = properties.getProperty("PGPORT", "5432").split(",");
			for (int i = 0; i < names.length; i++)
				hosts.add(names[i] + ":" + ports[Math.min(i, ports.length - 1)]);
			String name = properties.getProperty("PGDBNAME", properties.getProperty("user", ""));
			database = "/" + URLEncoder.encode(name, StandardCharsets.UTF_8);
			for (String own : new String[] {"PGHOST", "PGPORT", "PGDBNAME", "targetServerType"})
				properties.remove(own);
			properties.putIfAbsent("ApplicationName", "lock_election");
			properties.putIfAbsent("tcpKeepAlive", "true");
		}

		@Override
		public Jdbc connect(long limitMillis) throws SQLException {
			Properties limited = new Properties();
			String seconds = Long.toString((limitMillis + 999) / 1000);
			limited.setProperty("loginTimeout", Double.toString(limitMillis / 1000.0));
			limited.setProperty("connectTimeout", seconds);
			limited.setProperty("socketTimeout", seconds);
			limited.putAll(properties);
			SQLException failure = null;
			for (String host : List.copyOf(hosts)) {
				try {
					return open(new Driver().connect("jdbc:postgresql://" + host + database, limited), limitMillis);
				} catch (SQLException e) {
					hosts.remove(host);
					hosts.add(host);
					if (failure == null || !LockException.breaks(String.valueOf(e.getSQLState())))
						failure = e;
				}
			}
			throw failure;
		}
	}

	/**
	 * Runs a statement. Sends it once more if it had no effect, because the schema was renamed (ALTER SCHEMA .. RENAME)
	 * or the extension was created again. If the server does not have the prepared statement, sends it once more
	 * unprepared.
	 */
	@Override
	public List<Object[]> query(long limitMillis, String sql, Object... arguments) throws SQLException {
		try {
			return run(limitMillis, sql, arguments);
		} catch (SQLException e) {
			if (postgres != null && NOT_PREPARED.contains(String.valueOf(e.getSQLState())) && postgres.getPrepareThreshold() > 0)
				postgres.setPrepareThreshold(0);
			else {
				Object now = schema != null && LockException.noSuchFunction(e) ? run(limitMillis, info()).get(0)[0] : null;
				if (now == null)
					throw e;
				schema = (String) now;
			}
			return run(limitMillis, sql, arguments);
		}
	}

	private List<Object[]> run(long limitMillis, String sql, Object... arguments) throws SQLException {
		if (limit != limitMillis)
			connection.setNetworkTimeout(Runnable::run, (int) limitMillis);
		limit = limitMillis;
		String text = sql.replace("%s", String.valueOf(schema));
		try {
			if (!text.equals(latestText)) {
				forget();
				latest = connection.prepareStatement(text);
				latestText = text;
			}
			for (int i = 0; i < arguments.length; i++)
				bind(latest, i + 1, arguments[i]);
			return latest.execute() ? rows(latest) : List.of();
		} catch (SQLException | RuntimeException e) {
			forget();
			throw e;
		}
	}

	/** Closes the statement that is kept open, so that the next call prepares a new one with the current settings. */
	private void forget() {
		PreparedStatement unused = latest;
		latest = null;
		latestText = null;
		try {
			if (unused != null)
				unused.close();
		} catch (SQLException | RuntimeException e) {
			// the connection is broken, which the caller already knows from its own error
		}
	}

	private static List<Object[]> rows(PreparedStatement statement) throws SQLException {
		List<Object[]> rows = new ArrayList<>();
		try (ResultSet result = statement.getResultSet()) {
			int columns = result.getMetaData().getColumnCount();
			while (result.next()) {
				Object[] row = new Object[columns];
				for (int i = 0; i < columns; i++)
					row[i] = result.getObject(i + 1);
				rows.add(row);
			}
		}
		return rows;
	}

	private void bind(PreparedStatement statement, int at, Object value) throws SQLException {
		if (value == null)
			statement.setNull(at, Types.VARCHAR);
		else if (value instanceof String[])
			statement.setArray(at, connection.createArrayOf("text", (String[]) value));
		else
			statement.setObject(at, value);
	}

	@Override
	public List<String> notifications(int waitMillis) throws SQLException {
		PGNotification[] heard = postgres.getNotifications(waitMillis);
		List<String> channels = new ArrayList<>();
		for (int i = 0; heard != null && i < heard.length; i++)
			channels.add(heard[i].getName());
		return channels;
	}

	@Override
	public String schema() {
		return schema;
	}

	@Override
	public boolean pooled() {
		return pooled;
	}

	@Override
	public void close() {
		forget();
		try {
			connection.setAutoCommit(autoCommit);
			connection.setNetworkTimeout(Runnable::run, networkTimeout);
			if (postgres != null)
				postgres.setPrepareThreshold(prepareThreshold);
			connection.close();
		} catch (SQLException e) {
			abort();
		}
	}

	@Override
	public void abort() {
		abandon(connection);
	}

	/** Ends and closes a connection. A pool counts a broken connection as used until it is closed. */
	private static void abandon(Connection connection) {
		try {
			connection.abort(Runnable::run);
		} catch (SQLException | RuntimeException e) {
			// the connection is not used any more
		}
		try {
			connection.close();
		} catch (SQLException | RuntimeException e) {
			// the pool has noticed that the connection is broken
		}
	}
}
