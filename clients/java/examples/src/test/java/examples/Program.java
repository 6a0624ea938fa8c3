package examples;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;

/** An example as a process. */
final class Program implements AutoCloseable {
	/** The lines of its output. */
	final List<String> lines = new CopyOnWriteArrayList<>();
	private final Process process;

	Program(String name, String... arguments) throws IOException {
		this(Path.of("."), name, arguments);
	}

	/** Runs a class from a directory. */
	Program(Path directory, String name, String... arguments) throws IOException {
		List<String> command = new ArrayList<>(List.of(System.getProperty("java.home") + "/bin/java", "-XX:+UseSerialGC",
				"-XX:TieredStopAtLevel=1", "-Xmx64m", "-cp",
				directory + File.pathSeparator + System.getProperty("java.class.path"), name));
		command.addAll(List.of(arguments));
		process = new ProcessBuilder(command).redirectErrorStream(true).start();
		Thread reader = new Thread(() -> {
			try (BufferedReader in = new BufferedReader(new InputStreamReader(process.getInputStream()))) {
				for (String line = in.readLine(); line != null; line = in.readLine())
					lines.add(line);
			} catch (IOException e) {
				lines.add(e.toString());
			}
		});
		reader.setDaemon(true);
		reader.start();
	}

	boolean says(String part) {
		return lines.stream().anyMatch(line -> line.contains(part));
	}

	long count(String part) {
		return lines.stream().filter(line -> line.contains(part)).count();
	}

	void signal(String name) throws Exception {
		if (new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start().waitFor() != 0)
			throw new AssertionError("kill -" + name);
	}

	void enter() throws IOException {
		process.getOutputStream().write('\n');
		process.getOutputStream().flush();
	}

	void endInput() throws IOException {
		process.getOutputStream().close();
	}

	/** Its exit code. */
	int await() throws InterruptedException {
		if (!process.waitFor(40, TimeUnit.SECONDS))
			throw new AssertionError("has not ended: " + lines);
		return process.exitValue();
	}

	/** As kill -9. */
	@Override
	public void close() {
		process.destroyForcibly();
	}
}
