package boot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import lockelection.Db;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.boot.SpringBootVersion;
import org.springframework.integration.support.locks.LockRegistry;

/** Two processes of the application share a lock; one of them is killed. Both Boot 3 and Boot 4 run this test. */
@Timeout(180)
class BootApplicationTest {
	private final String key = Db.name();

	private Program application(String... properties) throws IOException {
		return new Program("boot.Application", Stream.concat(
				Stream.of(key, "--spring.datasource.url=" + Db.URL, "--lock-election.ttl=3s", "--lock-election.name=" + key),
				Stream.of(properties)).toArray(String[]::new));
	}

	private long leases() throws Exception {
		return (Long) Db.sql("SELECT count(*) FROM lock_election.leases WHERE owner LIKE '" + key + "#%'");
	}

	@Test
	void theLockOfAKilledApplicationPassesToTheOther() throws Exception {
		String locked = "locked by LockElectionRegistry";
		try (Program first = application("--lock-election.url=" + Db.URL)) {
			first.awaitLine(locked);
			try (Program second = application()) { // by the data source
				Db.until(() -> Db.waiters(key) == 1);
				assertFalse(second.lines.contains(locked));
				first.process.destroyForcibly().waitFor(); // kill -9
				second.awaitLine(locked);
				second.process.getOutputStream().close();
				second.awaitLine("unlocked");
				assertTrue(second.process.waitFor(40, TimeUnit.SECONDS));
				assertEquals(0, second.process.exitValue(), String.join("\n", second.lines));
				assertEquals(0, leases());
			}
		}
		System.out.println("Spring Boot " + SpringBootVersion.getVersion() + ", Spring Integration "
				+ LockRegistry.class.getPackage().getImplementationVersion()
				+ ": two applications shared a lock, and one was killed");
	}
}
