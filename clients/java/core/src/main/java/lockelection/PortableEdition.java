package lockelection;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;

/**
 * Installs the portable edition of lock_election, the one without C, which this library carries.
 */
public final class PortableEdition {
	/** Each version has a comment of its own, which stands in the script as well. */
	private static final String COMMENT = "SELECT pg_catalog.obj_description(n.oid, 'pg_namespace')"
			+ " FROM pg_catalog.pg_namespace n WHERE n.nspname OPERATOR(pg_catalog.=) '_lock_election'";
	private static final String SETTINGS = "SELECT pg_catalog.set_config('_lock_election.schema', ?, true),"
			+ " pg_catalog.set_config('_lock_election.grant', ?, true)";

	private PortableEdition() {
	}

	/**
	 * Installs it, or upgrades an older version, with its functions in the first schema of search_path.
	 *
	 * @param connection see {@link #install(Connection, String, String)}
	 * @throws LockException see there
	 */
	public static void install(Connection connection) {
		install(connection, null, null);
	}

	/**
	 * Installs it, or upgrades an older version.
	 *
	 * @param connection see {@link #install(Connection, String, String)}
	 * @param schema     see there; everybody may use one that is made
	 * @throws LockException see there
	 */
	public static void install(Connection connection, String schema) {
		install(connection, schema, null);
	}

	/**
	 * Installs it, or upgrades an older version, in one transaction. Does nothing where this version is there already,
	 * whoever calls. The role needs CREATE on the database, and owns all locks afterwards: it should not be the
	 * application's.
	 *
	 * @param connection of PostgreSQL's driver or a pool of it, in auto-commit mode
	 * @param schema     for the functions, made if it is missing; null: the first one of search_path. An edition that is
	 *                   installed stays in its schema
	 * @param grantee    the role that may use the schema; null: everybody may use one that is made
	 * @throws LockException DENIED: no CREATE, or another role has installed; INVALID: not in auto-commit mode, or there is
	 *                       no schema; UNAVAILABLE: a standby, or a read-only session; UNKNOWN: it may be installed, call
	 *                       again; FAILED: a newer version is there, or the extension, or the server cannot run it
	 */
	public static void install(Connection connection, String schema, String grantee) {
		Arguments.given(connection, "the connection");
		try (Statement statement = connection.createStatement()) {
			if (!connection.getAutoCommit())
				throw LockException.of(LockException.Status.INVALID,
						"the installation is a transaction of its own: setAutoCommit(true)");
			String script = script();
			if (isInstalled(statement, script))
				return;
			statement.setEscapeProcessing(false);
			statement.execute("BEGIN ISOLATION LEVEL READ COMMITTED");
			try {
				set(connection, schema, grantee);
				statement.execute(script);
				statement.execute("COMMIT");
			} catch (SQLException e) {
				rollBack(statement, e);
				throw e;
			}
		} catch (SQLException e) {
			throw LockException.of(e);
		}
	}

	/**
	 * The SQL that install() runs, for tools that run it themselves, such as migrations: in one transaction.
	 *
	 * @return lock_election.sql
	 */
	public static String script() {
		try (InputStream in = PortableEdition.class.getResourceAsStream("lock_election.sql")) {
			return new String(in.readAllBytes(), StandardCharsets.UTF_8);
		} catch (IOException e) {
			throw new UncheckedIOException(e);
		}
	}

	private static boolean isInstalled(Statement statement, String script) throws SQLException {
		try (ResultSet comment = statement.executeQuery(COMMENT)) {
			return comment.next() && comment.getString(1) != null && script.contains(comment.getString(1));
		}
	}

	private static void set(Connection connection, String schema, String grantee) throws SQLException {
		try (PreparedStatement settings = connection.prepareStatement(SETTINGS)) {
			settings.setString(1, schema == null ? "" : schema);
			settings.setString(2, grantee == null ? "" : grantee);
			settings.execute();
		}
	}

	private static void rollBack(Statement statement, SQLException cause) {
		try {
			statement.execute("ROLLBACK");
		} catch (SQLException e) {
			cause.addSuppressed(e);
		}
	}
}
