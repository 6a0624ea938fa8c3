package lockelection;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.logging.SimpleFormatter;
import javax.sql.DataSource;
import lockelection.LockException.Status;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Neither an error, with its causes, nor a line of the driver's log shows the password of a URL. It needs no server. */
class UrlTest {
	private static final String SECRET = "S3cr3t";

	private final List<String> log = Collections.synchronizedList(new ArrayList<>());
	private final Logger logger = Logger.getLogger("org.postgresql");
	private final Handler handler = new Handler() {
		@Override
		public void publish(LogRecord line) {
			log.add(new SimpleFormatter().format(line));
		}

		@Override
		public void flush() {
			// it is a list
		}

		@Override
		public void close() {
			// it is a list
		}
	};

	@BeforeEach
	void listen() {
		handler.setLevel(Level.ALL);
		logger.addHandler(handler);
	}

	@AfterEach
	void leave() {
		logger.removeHandler(handler);
	}

	private void showsNothing(LockException error, String of) {
		StringWriter text = new StringWriter();
		error.printStackTrace(new PrintWriter(text));
		assertFalse(text.toString().contains(SECRET), of + ": " + text);
		assertFalse(log.toString().contains(SECRET), of + ": " + log);
	}

	@Test
	void noErrorAndNoLogShowsThePassword() {
		for (String url : List.of("jdbc:postgresql://127.0.0.1:1/db?user=u&password=S3cr3t%ZZ",
				"jdbc:postgresql://127.0.0.1:1/db?user=u&password=%S3cr3t", "jdbc:postgresql//127.0.0.1:1/db?password=S3cr3t",
				"jdbc:postgres://127.0.0.1:1/db?user=u&password=S3cr3t", "postgres://u:S3cr3t@127.0.0.1:1/db",
				"jdbc:postgresql://127.0.0.1:port/db?user=u&password=S3cr3t", "jdbc:postgresql://u:S3cr3t@127.0.0.1:1/db",
				"jdbc:postgresql://u:S3cr3t/a@127.0.0.1:1/db", "jdbc:postgresql://u:1/S3cr3t@127.0.0.1:1/db",
				"jdbc:postgresql://u:a?S3cr3t@127.0.0.1:1/db", "jdbc:postgresql://127.0.0.1:1?password=S3cr3t",
				"jdbc:postgresql://127.0.0.1:1/db&user=u&password=S3cr3t", "jdbc:postgresql://127.0.0.1:70000/db?password=S3cr3t",
				"jdbc:postgresql://127.0.0.1:1/db?user=u;password=S3cr3t", "jdbc:postgresql://[::1/db?password=S3cr3t",
				"jdbc:postgresql://127.0.0.1:1/db?a b=c&password=S3cr3t", "jdbc:postgresql:db&password=S3cr3t"))
			assertInvalid(url);
		for (String url : List.of("jdbc:postgresql://127.0.0.1:1/db?user=u&password=S3cr3t",
				"jdbc:postgresql://127.0.0.1:1/db?user=u&password=S3cr3t&sslmode=nonsense",
				"jdbc:postgresql://127.0.0.1:1/db?user=u&password=S3cr3t&connectTimeout=nonsense",
				"jdbc:postgresql://127.0.0.1:1/db?user=u&password=S3&S3cr3t"))
			showsNothing(assertThrows(LockException.class, () -> LockElection.connect(url)), url);
	}

	private void assertInvalid(String url) {
		LockException error = assertThrows(LockException.class, () -> LockElection.connect(url));
		assertEquals(Status.INVALID, error.status(), url);
		assertTrue(error.getMessage().startsWith("cannot parse the URL: "), error.getMessage());
		assertNull(error.getCause());
		showsNothing(error, url);
	}

	@Test
	void aUrlThatIsRightIsAccepted() {
		for (String url : List.of("jdbc:postgresql:", "jdbc:postgresql:db", "jdbc:postgresql://", "jdbc:postgresql:///",
				"jdbc:postgresql:/", "jdbc:postgresql://db1,db2:5433/app?user=a%40b&password=p%26a%25", "jdbc:postgresql://[::1]:5432/",
				"jdbc:postgresql://db1:,[::1]/app", "jdbc:postgresql://h/a@b?options=-c%20x.y=1&ssl&&password=pass=word="))
			Url.check(url);
	}

	/** A data source throws what it likes, or gives nothing. */
	@Test
	void aDataSourcesErrorIsHiddenIfItMayHaveAPassword() {
		String message = "Failed to get driver instance for jdbcUrl=jdbc:postgresql://h/d?password=S3cr3t";
		for (Exception thrown : List.of(new SQLException(message), new IllegalStateException(message),
				new SQLException("cannot connect", "08001", new RuntimeException(message)))) {
			LockException error = assertThrows(LockException.class, () -> LockElection.connect(source(thrown)));
			assertEquals(Status.UNAVAILABLE, error.status());
			assertTrue(error.getMessage().contains(thrown.getClass().getName()), error.getMessage());
			showsNothing(error, thrown.toString());
		}
		LockException error = assertThrows(LockException.class, () -> LockElection.connect(source(new SQLException("none left"))));
		assertEquals("none left", error.getMessage());
		error = assertThrows(LockException.class, () -> LockElection.connect(source(null)));
		assertEquals("the data source has given no connection", error.getMessage());
	}

	private static DataSource source(Exception thrown) {
		return (DataSource) Proxy.newProxyInstance(UrlTest.class.getClassLoader(), new Class<?>[] {DataSource.class},
				(proxy, method, arguments) -> {
					if (thrown != null)
						throw thrown;
					return (Connection) null;
				});
	}
}
