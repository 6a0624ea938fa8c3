package examples;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.ToolProvider;
import lockelection.Db;
import lockelection.Hold;
import lockelection.LockElection;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Each block of Java in the README, and in the quick starts, compiles, and runs. */
class ReadmeTest {
	private static final String PROGRAM = "import java.sql.*; import java.time.*; import java.util.Optional; import lockelection.*;"
			+ " import lockelection.Leader;\n"
			+ "public class Block%d {\n"
			+ "static int left = 3;\n"
			+ "static boolean moreWork() { return left-- > 0; }\n"
			+ "static void work() throws Exception { Thread.sleep(10); }\n"
			+ "static void report() { }\n"
			+ "static void show(Optional<lockelection.Leader> leader) { }\n"
			+ "public static void main(String[] args) throws Exception {\n"
			+ "String url = args[0];\n"
			+ "%s\n"
			+ "}}\n";
	private static final String AROUND = "try (LockElection locks = LockElection.connect(url);\n"
			+ "Connection connection = DriverManager.getConnection(url);\n"
			+ "Statement statement = connection.createStatement()) {\n%s}\n";

	@TempDir
	private Path directory;
	private boolean ended;

	/** SIGTERM: the work stops, and its lock is given back at once, and not after the TTL. */
	private void endOfProcess(String name) throws Exception {
		try (Program program = new Program(directory, name, Db.URL);
				LockElection locks = LockElection.connect(Db.URL)) {
			Db.until(() -> (Long) Db.sql("SELECT count(*) FROM lock_election.locks WHERE name = 'importer'") == 1);
			long asked = System.nanoTime();
			program.signal("TERM");
			try (Hold hold = locks.acquire("importer")) {
				long waited = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - asked);
				assertTrue(waited < 25, "free after " + waited + " s, and the TTL is 30 s");
			}
			assertEquals(128 + 15, program.await());
			assertEquals(List.of(), program.lines);
		}
		ended = true;
	}

	@Test
	void itsBlocksRun() throws Exception {
		Db.sql("DROP TABLE IF EXISTS ledger; CREATE TABLE ledger (entry text)");
		Matcher block = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL)
				.matcher(Files.readString(Path.of("../README.md")) + Files.readString(Path.of("../../../docs/quick-start.md")));
		int n = 0;
		try (URLClassLoader loader = new URLClassLoader(new URL[] {directory.toUri().toURL()})) {
			while (block.find()) {
				String code = block.group(1).contains("LockElection.connect") ? block.group(1) : String.format(AROUND, block.group(1));
				Path file = Files.writeString(directory.resolve("Block" + n + ".java"), String.format(PROGRAM, n, code));
				assertEquals(0, ToolProvider.getSystemJavaCompiler().run(null, null, null, "-cp",
						System.getProperty("java.class.path"), file.toString()), code);
				if (code.contains("addShutdownHook"))
					endOfProcess("Block" + n);
				else
					loader.loadClass("Block" + n).getMethod("main", String[].class).invoke(null, (Object) new String[] {Db.URL});
				n++;
			}
		}
		assertTrue(n >= 6 && ended, n + " blocks");
		assertEquals("entry", Db.sql("SELECT entry FROM ledger"));
	}
}
