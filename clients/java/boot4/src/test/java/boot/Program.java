package boot;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import lockelection.Db;

/** A process of an application; {@code lines} is what it has printed. */
public final class Program implements AutoCloseable {
	public final List<String> lines = new CopyOnWriteArrayList<>();
	public final Process process;

	public Program(String main, String... arguments) throws IOException {
		ProcessBuilder builder = new ProcessBuilder(System.getProperty("java.home") + "/bin/java", "-XX:+UseSerialGC",
				"-XX:TieredStopAtLevel=1", "-Xmx128m", "-cp", System.getProperty("java.class.path"), main,
				"--spring.main.banner-mode=off");
		builder.command().addAll(List.of(arguments));
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
	public void awaitLine(String line) throws Exception {
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
