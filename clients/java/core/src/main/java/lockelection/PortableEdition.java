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
 * Installs the portable edition of lock_election, which has no C code, and which this library contains.
 */
public final class PortableEdition {
	/** The schema's comment names the installed version, which is current if the script contains the same comment. */
	private static final String COMMENT = "SELECT pg_catalog.obj_description(n.oid, 'pg_namespace')"
			+ " FROM pg_catalog.pg_namespace n WHERE n.nspname OPERATOR(pg_catalog.=) '_lock_election'";
	private static final String SETTINGS = "SELECT pg_catalog.set_config('_lock_election.schema', ?, true),"
			+ " pg_catalog.set_config('_lock_election.grant', ?, true)";

	private PortableEdition() {
	}

	/**
	 * Installs the edition, or upgrades an older version, with its functions in the first schema of search_path.
	 *
	 * @param connection as in {@link #install(Connection, String, String)}
	 * @throws LockException as in {@link #install(Connection, String, String)}
	 */
	public static void install(Connection connection) {
		install(connection, null, null);
	}

	/**
	 * Installs the edition, or upgrades an older version. All roles may use a schema that this call creates.
	 *
	 * @param connection as in {@link #install(Connection, String, String)}
	 * @param schema     as in {@link #install(Connection, String, String)}
	 * @throws LockException as in {@link #install(Connection, String, String)}
	 */
	public static void install(Connection connection, String schema) {
		install(connection, schema, null);
	}

	/**
	 * Installs the edition, or upgrades an older version, in one transaction. If this version is already installed,
	 * does nothing and needs no privilege. Otherwise the role needs CREATE on the database. It becomes the owner of
	 * all locks, so it should not be the application's role.
	 *
	 * @param connection a connection of PostgreSQL's driver, or of a pool of such connections, in auto-commit mode
	 * @param schema the schema for the functions, created if missing; null for the first schema of search_path. An
	 *                   edition that is already installed stays in its schema
	 * @param grantee the role that may use the schema; null if all roles may use a schema that this call creates
	 * @throws LockException with status DENIED if the role lacks CREATE or another role has installed the edition;
	 *                       INVALID if the connection is not in auto-commit mode or there is no schema; UNAVAILABLE on
	 *                       a standby or in a read-only session; UNKNOWN if the outcome is not known, in which case
	 *                       the call can be repeated; FAILED if a newer version or the extension is installed, or the
	 *                       server cannot run it
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
	 * The SQL that install() runs, for tools such as migrations, which must run it in one transaction.
	 *
	 * @return the script lock_election.sql
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
