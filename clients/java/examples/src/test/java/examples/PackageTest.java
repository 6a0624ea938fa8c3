package examples;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import lockelection.Db;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The packaged jar and the driver are all that a program with modules needs. */
class PackageTest {
	@TempDir
	private Path directory;

	private static Path find(Path folder, String pattern) throws IOException {
		try (Stream<Path> files = Files.walk(folder)) {
			List<Path> found = files.filter(file -> file.getFileName().toString().matches(pattern)).collect(Collectors.toList());
			assertEquals(1, found.size(), pattern + " in " + folder);
			return found.get(0).toAbsolutePath();
		}
	}

	private void run(String program, String... arguments) throws Exception {
		List<String> command = new ArrayList<>(List.of(System.getProperty("java.home") + "/bin/" + program));
		command.addAll(List.of(arguments));
		Path log = directory.resolve("log");
		Process process = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(log.toFile()).start();
		assertEquals(0, process.waitFor(), () -> {
			try {
				return Files.readString(log);
			} catch (IOException e) {
				return e.toString();
			}
		});
	}

	@Test
	void aProgramWithModulesRuns() throws Exception {
		Path driver = null;
		for (String entry : System.getProperty("java.class.path").split(":")) {
			if (entry.matches(".*/postgresql-[0-9.]*\\.jar"))
				driver = Path.of(entry);
		}
		String modules = find(Path.of("../core/target"), "lock-election-[0-9.]*\\.jar") + ":" + driver;
		Files.writeString(directory.resolve("module-info.java"), "module program { requires lockelection; }");
		Files.createDirectory(directory.resolve("program"));
		Files.writeString(directory.resolve("program/Main.java"),
				"package program; import lockelection.*; public class Main { public static void main(String[] args) throws"
						+ " Exception { try (LockElection locks = LockElection.connect(args[0]); Hold hold = locks.acquire(\"package\"))"
						+ " { if (!hold.isValid()) System.exit(1); } } }");
		run("javac", "--release", "11", "--module-path", modules, "-d", directory + "/out", directory + "/module-info.java",
				directory + "/program/Main.java");
		run("java", "--module-path", modules + ":" + directory + "/out", "--module", "program/program.Main", Db.URL);
	}
}
