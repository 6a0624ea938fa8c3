package lockelection;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.UUID;
import lockelection.LockException.Status;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The schema of the extension gets another name under a session. In a database of its own. */
@Timeout(120)
class SchemaTest {
	private final String database = "renamed_" + UUID.randomUUID().toString().replace('-', '_');
	private final String url = Db.URL.replaceAll("/\\w+\\?", "/" + database + "?");
	private LockElection locks;

	@BeforeEach
	void create() throws SQLException {
		Db.sql("CREATE DATABASE " + database);
		sql("CREATE SCHEMA one; CREATE EXTENSION lock_election SCHEMA one");
		locks = LockElection.connect(url, new Options().ttl(Duration.ofSeconds(3)));
	}

	@AfterEach
	void drop() throws SQLException {
		locks.close();
		Db.sql("DROP DATABASE " + database + " WITH (FORCE)");
	}

	private void sql(String sql) throws SQLException {
		try (Connection connection = DriverManager.getConnection(url); Statement statement = connection.createStatement()) {
			statement.execute(sql);
		}
	}

	@Test
	void aRenamedSchemaLosesNothing() throws Exception {
		Hold hold = locks.acquire("a");
		sql("ALTER SCHEMA one RENAME TO two");
		try (Connection connection = DriverManager.getConnection(url)) {
			connection.setAutoCommit(false);
			SQLException error = assertThrows(SQLException.class, () -> hold.fence(connection));
			assertEquals("3F000", error.getSQLState());
			assertTrue(error.getMessage().contains("repeat the transaction"), error.getMessage());
			connection.rollback();
			hold.fence(connection); // the session has learned it
			connection.commit();
		}
		sql("ALTER SCHEMA two RENAME TO three");
		locks.acquire("b").close();
		sql("ALTER SCHEMA three RENAME TO four");
		Db.until(() -> locks.session().schema().equals("four")); // by a renewal
		assertTrue(hold.release());
	}

	@Test
	void anotherExtensionDoesNotKnowTheLease() throws Exception {
		Hold hold = locks.acquire("a");
		sql("DROP EXTENSION lock_election");
		assertEquals(Status.NOT_INSTALLED, assertThrows(LockException.class, () -> locks.acquire("b")).status());
		assertEquals(State.ENDED == locks.state(), !hold.isValid());
		sql("CREATE SCHEMA other; CREATE EXTENSION lock_election SCHEMA other");
		Db.until(() -> locks.state() == State.ENDED);
		assertFalse(hold.isValid());
		locks.reopen();
		assertTrue(locks.acquire("a").isValid());
	}
}
