package boot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import lockelection.Db;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.boot.SpringBootVersion;
import org.springframework.integration.support.locks.LockRegistry;

/** Two processes of the application share a lock; one of them is killed. Both Boot 3 and Boot 4 run this test. */
@Timeout(180)
class BootApplicationTest {
	private final String key = Db.name();

	private final class Application implements AutoCloseable {
		final List<String> lines = new CopyOnWriteArrayList<>();
		final Process process;

		Application(String... properties) throws IOException {
			ProcessBuilder builder = new ProcessBuilder(System.getProperty("java.home") + "/bin/java", "-XX:+UseSerialGC",
					"-XX:TieredStopAtLevel=1", "-Xmx128m", "-cp", System.getProperty("java.class.path"), "boot.Application", key,
					"--spring.main.banner-mode=off", "--spring.datasource.url=" + Db.URL, "--lock-election.ttl=3s",
					"--lock-election.name=" + key);
			builder.command().addAll(List.of(properties));
			process = builder.redirectErrorStream(true).start();
			Thread reader = new Thread(() -> {
				try (BufferedReader in = new BufferedReader(new InputStreamReader(process.getInputStream()))) {
					in.lines().forEach(lines::add);
				} catch (IOException | UncheckedIOException e) {
					lines.add(e.toString());
				}
			});
			reader.setDaemon(true);
			reader.start();
		}

		/** Waits for a line. Fails at once if the process has ended without it. */
		void awaitLine(String line) throws Exception {
			Db.until(() -> {
				if (!process.isAlive() && !lines.contains(line))
					throw new AssertionError(String.join("\n", lines));
				return lines.contains(line);
			});
		}

		@Override
		public void close() {
			process.destroyForcibly();
		}
	}

	private long leases() throws Exception {
		return (Long) Db.sql("SELECT count(*) FROM lock_election.leases WHERE owner LIKE '" + key + "#%'");
	}

	@Test
	void theLockOfAKilledApplicationPassesToTheOther() throws Exception {
		String locked = "locked by LockElectionRegistry";
		try (Application first = new Application("--lock-election.url=" + Db.URL)) {
			first.awaitLine(locked);
			try (Application second = new Application()) { // by the data source
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
