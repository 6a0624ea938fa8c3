package lockelection;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Installed by a role with CREATE on an empty database alone, and then used. */
class PortableEditionTest {
	private final String database = "portable_" + Db.name().replace("-", "");
	private final String role = "installer_" + Db.name().replace("-", "");

	@BeforeEach
	void make() throws SQLException {
		Db.sql("CREATE DATABASE " + database);
		Db.sql("CREATE ROLE " + role + " LOGIN");
		Db.sql("GRANT CREATE ON DATABASE " + database + " TO " + role);
	}

	@AfterEach
	void drop() throws SQLException {
		Db.sql("DROP DATABASE " + database + " WITH (FORCE)");
		Db.sql("DROP ROLE " + role);
	}

	private String url(String user) {
		return Db.URL.replaceFirst("/[^/]*\\?user=.*", "/" + database + "?user=" + user);
	}

	private Connection connect() throws SQLException {
		return DriverManager.getConnection(url(role));
	}

	private void install(String schema) {
		try (Connection connection = connect()) {
			PortableEdition.install(connection, schema);
			assertTrue(connection.getAutoCommit());
		} catch (SQLException e) {
			throw new AssertionError(e);
		}
	}

	private void works(String user) throws InterruptedException {
		try (LockElection locks = LockElection.connect(url(user));
				Hold hold = locks.acquire("x", Duration.ofSeconds(30), Duration.ofSeconds(20))) {
			assertTrue(hold.isValid());
		}
	}

	@Test
	void anOrdinaryRoleInstalls() throws Exception {
		List<CompletableFuture<Void>> both = Stream.of(1, 2)
				.map(i -> CompletableFuture.runAsync(() -> install("My \"locks\""))).collect(Collectors.toList());
		both.forEach(CompletableFuture::join);
		works(role);
		String application = "app_" + Db.name().replace("-", "");
		Db.sql("CREATE ROLE " + application + " LOGIN");
		try (Connection connection = DriverManager.getConnection(url(application))) {
			works(application);
			PortableEdition.install(connection); // a program may call it whenever it starts
		} finally {
			Db.sql("DROP ROLE " + application);
		}
	}

	@Test
	void forOneRole() throws Exception {
		try (Connection connection = connect(); Statement statement = connection.createStatement()) {
			PortableEdition.install(connection, "locks", role);
			var rows = statement.executeQuery("SELECT has_schema_privilege('public', 'locks', 'USAGE')");
			assertTrue(rows.next() && !rows.getBoolean(1));
		}
		works(role);
	}

	private static void refused(LockException.Status status, String text, Connection connection) {
		LockException e = assertThrows(LockException.class, () -> PortableEdition.install(connection));
		assertEquals(status, e.status(), e.getMessage());
		assertTrue(e.getMessage().contains(text), e.getMessage());
	}

	@Test
	void refusals() throws SQLException {
		try (Connection extension = Db.connect()) {
			if (Db.sql("SELECT 1 FROM pg_extension WHERE extname = 'lock_election'") != null)
				refused(LockException.Status.FAILED, "extension lock_election is installed", extension);
		}
		try (Connection connection = connect(); Statement statement = connection.createStatement()) {
			refused(LockException.Status.DENIED, "lockctl install --schema locks", connection);
			connection.setAutoCommit(false);
			refused(LockException.Status.INVALID, "setAutoCommit(true)", connection);
			connection.setAutoCommit(true);
			statement.execute("SET default_transaction_read_only = on");
			refused(LockException.Status.UNAVAILABLE, "read-only", connection);
			statement.execute("RESET default_transaction_read_only");
			assertDoesNotThrow(() -> PortableEdition.install(connection, "locks"));
			statement.execute("UPDATE _lock_election.edition SET version = 99");
			statement.execute("COMMENT ON SCHEMA _lock_election IS NULL");
			refused(LockException.Status.FAILED, "newer release", connection);
			statement.execute("SELECT");
		}
	}
}
