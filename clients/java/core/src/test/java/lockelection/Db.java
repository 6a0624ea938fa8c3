package lockelection;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.UUID;
import java.util.concurrent.Callable;

/** The server that PGHOST, PGPORT, PGUSER and PGDATABASE name. */
public final class Db {
	public static final String URL = String.format("jdbc:postgresql://%s:%s/%s?user=%s", env("PGHOST", "127.0.0.1"),
			env("PGPORT", "5432"), env("PGDATABASE", "postgres"), env("PGUSER", "postgres"));

	private Db() {
	}

	private static String env(String name, String otherwise) {
		String value = System.getenv(name);
		return value == null ? otherwise : value;
	}

	public static Connection connect() throws SQLException {
		return DriverManager.getConnection(URL);
	}

	public static Object sql(String sql) throws SQLException {
		try (Connection connection = connect(); Statement statement = connection.createStatement()) {
			if (!statement.execute(sql))
				return null;
			ResultSet result = statement.getResultSet();
			return result.next() ? result.getObject(1) : null;
		}
	}

	public static String name() {
		return UUID.randomUUID().toString();
	}

	public static LockElection open(long ttlMillis) {
		return LockElection.connect(URL, new Options().ttl(Duration.ofMillis(ttlMillis)).name("test"));
	}

	/** Waits until a condition is true, at most a minute. */
	public static void until(Callable<Boolean> condition) throws Exception {
		long end = System.nanoTime() + Duration.ofSeconds(60).toNanos();
		while (!condition.call()) {
			if (System.nanoTime() > end)
				throw new AssertionError("not within a minute");
			Thread.sleep(5);
		}
	}

	/** Restarts the server, if the tests run as its account and have pg_ctl. */
	public static void restart() throws Exception {
		Process process = new ProcessBuilder("pg_ctl", "-D", (String) sql("SHOW data_directory"), "-l", "/dev/null", "-m", "fast",
				"-w", "-s", "restart").redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
		if (process.waitFor() != 0)
			throw new AssertionError("pg_ctl: " + process.exitValue());
	}

	/** How many wait for a name, as the server sees it. */
	public static long waiters(String name) throws SQLException {
		return (Long) sql("SELECT count(*) FROM lock_election.waiters WHERE name = '" + name + "'");
	}
}
