package lockelection;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.zaxxer.hikari.HikariDataSource;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.time.Duration;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import javax.sql.DataSource;
import lockelection.LockException.Status;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.postgresql.PGConnection;
import org.postgresql.PGStatement;

/** Connections of pools, and of data sources that are no good. */
@Timeout(120)
class PoolTest {
	private static final Options OPTIONS = new Options().ttl(Duration.ofSeconds(8));

	private final String name = Db.name();

	private static HikariDataSource pool(int size, String application) {
		HikariDataSource pool = new HikariDataSource();
		pool.setJdbcUrl(Db.URL + "&ApplicationName=" + application);
		pool.setMaximumPoolSize(size);
		pool.setConnectionTimeout(1000);
		return pool;
	}

	private static DataSource source(Callable<Connection> connections) {
		return (DataSource) Proxy.newProxyInstance(PoolTest.class.getClassLoader(), new Class<?>[] {DataSource.class},
				(proxy, method, arguments) -> connections.call());
	}

	private static Status statusOf(DataSource source) {
		return assertThrows(LockException.class, () -> LockElection.connect(source, OPTIONS)).status();
	}

	/** Both while it listens, where no statement meets the error, and while it does not. */
	@Test
	void aPoolOfOneGivesAnotherConnectionForABrokenOne() throws Exception {
		String application = "pool" + name;
		try (HikariDataSource pool = pool(1, application); LockElection locks = LockElection.connect(pool, OPTIONS);
				LockElection other = Db.open(5000)) {
			Hold held = locks.acquire(name);
			for (int i = 0; i < 3; i++) {
				Hold theirs = other.acquire(name + "x");
				CompletableFuture<Hold> waiting = new CompletableFuture<>();
				new Thread(() -> {
					try {
						waiting.complete(locks.acquire(name + "x"));
					} catch (Throwable e) {
						waiting.completeExceptionally(e);
					}
				}).start();
				Db.until(() -> Db.waiters(name + "x") == 1);
				Thread.sleep(i * 200); // Hikari does not test a connection that was used just now
				Db.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '" + application + "'");
				theirs.close();
				waiting.get(20, TimeUnit.SECONDS).close();
				assertTrue(held.isValid());
			}
			assertTrue(locks.close(Duration.ofSeconds(20)));
			try (Connection connection = pool.getConnection()) {
				assertTrue(connection.isValid(5));
			}
		}
	}

	@Test
	void aPoolThatIsExhaustedIsUnavailable() throws Exception {
		try (HikariDataSource pool = pool(1, "exhausted"); Connection taken = pool.getConnection()) {
			assertEquals(Status.UNAVAILABLE, statusOf(pool));
			assertTrue(taken.isValid(5));
			taken.close();
			LockElection.connect(pool, OPTIONS).close();
		}
	}

	/** A connection whose close() does nothing, as of a pool that does not tidy up. */
	private static Connection unclosable(Connection connection) {
		return through(Connection.class, connection, (method, call) -> method.getName().equals("close") ? null : call.call());
	}

	@Test
	void aConnectionGoesBackAsItWas() throws Exception {
		try (Connection connection = Db.connect()) {
			connection.setAutoCommit(false);
			connection.setNetworkTimeout(Runnable::run, 77_000);
			connection.unwrap(PGConnection.class).setPrepareThreshold(3);
			try (LockElection locks = LockElection.connect(source(() -> unclosable(connection)), OPTIONS)) {
				locks.acquire(name).close();
				assertTrue(connection.getAutoCommit());
			}
			assertFalse(connection.getAutoCommit());
			assertEquals(77_000, connection.getNetworkTimeout());
			assertEquals(3, connection.unwrap(PGConnection.class).getPrepareThreshold());
			assertTrue(connection.isValid(5));
		}
	}

	@Test
	void aDataSourceThatIsNoGoodIsUnavailable() throws Exception {
		Connection closed = Db.connect();
		closed.close();
		assertEquals(Status.UNAVAILABLE, statusOf(source(() -> closed)));
		assertEquals(Status.UNAVAILABLE, statusOf(source(() -> null)));
		assertEquals(Status.UNAVAILABLE, statusOf(source(() -> {
			throw new IllegalStateException("closed");
		})));
		assertEquals(Status.DENIED, statusOf(source(() -> {
			throw new SQLException("no", "28P01");
		})));

		AtomicInteger asked = new AtomicInteger();
		try (LockElection locks = LockElection.connect(source(() -> switchOn(asked.getAndIncrement(), closed)), OPTIONS)) {
			Hold hold = locks.acquire(name);
			Db.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'good'");
			Db.until(() -> asked.get() > 3 && locks.state() == State.CONNECTED);
			assertTrue(hold.release());
		}
	}

	/** A good one, then two that are no good, then good ones. */
	private static Connection switchOn(int number, Connection closed) throws SQLException {
		if (number == 2)
			throw new IllegalStateException("the pool is being restarted");
		return number == 1 ? closed : java.sql.DriverManager.getConnection(Db.URL + "&ApplicationName=good");
	}

	/** A pooler without prepared statements, which begins to work between two calls of the session. */
	@Test
	void aStatementThatTheServerHasForgottenIsSentUnprepared() throws Exception {
		AtomicBoolean forgets = new AtomicBoolean();
		AtomicInteger refused = new AtomicInteger();
		try (Connection own = Db.connect()) {
			Around perhapsForgotten = (method, call) -> {
				Object result = call.call();
				return !method.getName().equals("prepareStatement") ? result
						: through(PreparedStatement.class, (PreparedStatement) result, (inner, run) -> {
							if (inner.getName().equals("execute") && forgets.get()
									&& ((PreparedStatement) result).unwrap(PGStatement.class).getPrepareThreshold() > 0) {
								refused.incrementAndGet();
								throw new SQLException("prepared statement does not exist", "26000");
							}
							return run.call();
						});
			};
			Connection forgetful = through(Connection.class, own, perhapsForgotten);
			try (LockElection locks = LockElection.connect(source(() -> forgetful), OPTIONS)) {
				Hold held = locks.acquire(name);
				forgets.set(true);
				locks.acquire(name + "x").close();
				assertTrue(held.isValid());
				assertEquals(1, refused.get());
			}
		}
	}

	/** What happens instead of a call of a method. */
	private interface Around {
		Object of(Method method, Callable<Object> call) throws Exception;
	}

	private static <T> T through(Class<T> type, T object, Around around) {
		return type.cast(Proxy.newProxyInstance(PoolTest.class.getClassLoader(), new Class<?>[] {type},
				(proxy, method, arguments) -> around.of(method, () -> {
					try {
						return method.invoke(object, arguments);
					} catch (InvocationTargetException e) {
						throw (Exception) e.getCause();
					}
				})));
	}
}
