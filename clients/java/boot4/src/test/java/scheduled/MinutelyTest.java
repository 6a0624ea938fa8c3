package scheduled;

import static org.junit.jupiter.api.Assertions.assertTrue;

import boot.Program;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import lockelection.Db;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.boot.SpringBootVersion;

/** Three processes with the same scheduled method; one is killed, one stopped. Both Boot 3 and Boot 4 run this test. */
@Timeout(300)
class MinutelyTest {
	/** How long the name is closed, less what a busy machine takes to print. */
	private static final long CLOSED = 2000 * 4 / 5 - 500;

	private final List<Program> replicas = new ArrayList<>();

	/** When the job was run, by any of these, in order. */
	private static List<Long> runs(Stream<Program> of) {
		return of.flatMap(replica -> replica.lines.stream()).filter(line -> line.startsWith("run "))
				.map(line -> Long.valueOf(line.substring(4))).sorted().collect(Collectors.toList());
	}

	private void awaitMore(int by) throws Exception {
		int goal = runs(replicas.stream()).size() + by;
		Db.until(() -> {
			replicas.stream().filter(replica -> replica != replicas.get(0) && !replica.process.isAlive()).forEach(replica -> {
				throw new AssertionError(String.join("\n", replica.lines));
			});
			return runs(replicas.stream()).size() >= goal;
		});
	}

	private static void signal(String name, Program replica) throws Exception {
		new ProcessBuilder("kill", "-" + name, Long.toString(replica.process.pid())).inheritIO().start().waitFor();
	}

	@Test
	void aScheduledMethodRunsInOneReplica() throws Exception {
		try {
			for (int i = 0; i < 3; i++)
				replicas.add(new Program("scheduled.Minutely", "--period=2000", "--spring.datasource.url=" + Db.URL,
						"--lock-election.ttl=3s"));
			for (Program replica : replicas)
				Db.until(() -> replica.lines.stream().anyMatch(line -> line.contains("Started Minutely")));
			awaitMore(2);
			signal("KILL", replicas.get(0));
			signal("STOP", replicas.get(1));
			awaitMore(3);
			signal("CONT", replicas.get(1));
			awaitMore(2);
			List<Long> runs = runs(replicas.stream());
			for (int i = 1; i < runs.size(); i++)
				assertTrue(runs.get(i) - runs.get(i - 1) > CLOSED, runs.toString());
			System.out.println("Spring Boot " + SpringBootVersion.getVersion() + ": " + runs.size()
					+ " runs of a scheduled method by three applications, of which one was killed");
		} finally {
			replicas.forEach(Program::close);
		}
	}
}
