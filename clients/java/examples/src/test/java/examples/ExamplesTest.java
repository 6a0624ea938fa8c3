package examples;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import lockelection.Db;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The programs are killed, stopped for longer than their TTL, and lose their server for a while. */
@Timeout(240)
class ExamplesTest {
	/** An operator ends the leases: as if the TTL were over. */
	private static void expire() throws Exception {
		Db.sql("SELECT force_release_role('postgres')");
	}

	@Test
	void theyHaveAtMost20Lines() throws IOException {
		for (String name : List.of("Minutely", "Leader", "FencedWrite", "QueueWorker"))
			assertTrue(Files.readAllLines(Path.of(name + ".java")).size() <= 20, name);
		try (Stream<Path> files = Files.list(Path.of("."))) {
			assertEquals(5, files.filter(path -> path.toString().endsWith(".java")).count());
		}
	}

	@Test
	void fourWorkersDoAJobOnceInEachPeriod() throws Exception {
		List<Program> workers = new ArrayList<>();
		for (int i = 0; i < 4; i++)
			workers.add(new Program("Minutely", Db.URL, "2"));
		long begin = System.currentTimeMillis();
		Db.until(() -> jobs(workers) >= 2);
		workers.get(0).close();
		Db.until(() -> jobs(workers) >= 3);
		Db.restart();
		workers.get(1).signal("STOP");
		Db.until(() -> jobs(workers) >= 5);
		workers.get(1).signal("CONT");
		Db.until(() -> jobs(workers) >= 7);
		long done = jobs(workers);
		long most = (System.currentTimeMillis() - begin) / (2000 * 5 / 6) + 1; // it stays closed so long, whoever is late
		assertTrue(done <= most, done + " jobs, at most " + most);
		workers.forEach(Program::close);
	}

	private static long jobs(List<Program> workers) {
		return workers.stream().mapToLong(worker -> worker.count("job")).sum();
	}

	@Test
	void oneOfThreeLeads() throws Exception {
		List<Program> three = new ArrayList<>();
		for (int i = 0; i < 3; i++)
			three.add(new Program("Leader", Db.URL, "node-" + i));
		Db.until(() -> leader() != null && three.stream().anyMatch(one -> one.says("works")));
		Db.until(() -> Db.waiters("scheduler") == 2);
		assertEquals(1, three.stream().filter(one -> one.says("leads")).count());

		Program first = three.get(leader().charAt(5) - '0');
		Object term = term();
		first.close(); // kill -9
		Db.sql("SELECT force_resign('scheduler')"); // so that nobody has to wait for its TTL
		Db.until(() -> term() != null && !term().equals(term));
		Program second = three.get(leader().charAt(5) - '0');
		assertNotEquals(first, second);

		Db.restart();
		long worked = second.count("works");
		Db.until(() -> second.count("works") > worked);

		Object last = term();
		second.signal("STOP");
		Db.sql("SELECT force_resign('scheduler')");
		Db.until(() -> term() != null && !term().equals(last));
		Program third = three.get(leader().charAt(5) - '0');
		assertNotEquals(second, third);
		second.signal("CONT");
		Db.until(() -> third.says("works"));
		third.close();
		Db.sql("SELECT force_resign('scheduler')");
		Db.until(() -> second.count("leads") == 2);
		three.forEach(Program::close);
		expire();
	}

	private static String leader() throws Exception {
		return (String) Db.sql("SELECT candidate FROM current_leader('scheduler')");
	}

	private static Object term() throws Exception {
		return Db.sql("SELECT term FROM current_leader('scheduler')");
	}

	@Test
	void aWriteIsTheHoldersOrNone() throws Exception {
		Db.sql("DROP TABLE IF EXISTS ledger; CREATE TABLE ledger (entry text)");
		try (Program program = new Program("FencedWrite", Db.URL, "in time")) {
			Db.until(() -> program.says("holds"));
			program.enter();
			assertEquals(0, program.await());
		}
		assertEquals("in time", Db.sql("SELECT entry FROM ledger"));
		try (Program program = new Program("FencedWrite", Db.URL, "late")) {
			Db.until(() -> program.says("holds"));
			program.signal("STOP");
			expire();
			program.enter();
			program.signal("CONT");
			assertNotEquals(0, program.await());
			assertTrue(program.says("LockLostException"), program.lines.toString());
		}
		assertEquals(1L, Db.sql("SELECT count(*) FROM ledger"));
	}

	@Test
	void workersDoEachJobOnce() throws Exception {
		Db.sql("DROP TABLE IF EXISTS job; DROP TABLE IF EXISTS job_done; CREATE TABLE job (name text, done boolean);"
				+ "CREATE TABLE job_done (name text);"
				+ "CREATE OR REPLACE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
				+ " PERFORM pg_sleep(0.02); INSERT INTO job_done VALUES (NEW.name); RETURN NEW; END $$;"
				+ "CREATE TRIGGER note BEFORE UPDATE ON job FOR EACH ROW EXECUTE FUNCTION note();"
				+ "INSERT INTO job SELECT 'job ' || i, false FROM generate_series(1, 200) i");
		List<Program> workers = new ArrayList<>();
		for (int i = 0; i < 3; i++)
			workers.add(new Program("QueueWorker", Db.URL));
		Db.until(() -> (Long) Db.sql("SELECT count(*) FROM job WHERE done") > 20);
		workers.get(0).close(); // kill -9
		workers.get(1).signal("STOP");
		expire(); // of both
		Db.until(() -> (Long) Db.sql("SELECT count(*) FROM job WHERE done") > 60);
		workers.get(1).signal("CONT");
		Db.restart();
		assertEquals(0, workers.get(1).await());
		assertEquals(0, workers.get(2).await());
		assertEquals(0L, Db.sql("SELECT count(*) FROM job WHERE NOT done"));
		assertEquals(200L, Db.sql("SELECT count(*) FROM job_done"));
		assertEquals(200L, Db.sql("SELECT count(DISTINCT name) FROM job_done"));
		assertFalse(workers.get(2).says("Exception"), workers.get(2).lines.toString());
	}

	@Test
	void aBarrierWaitsForLivingMembersAlone() throws Exception {
		String run = "build " + System.nanoTime();
		List<Program> members = new ArrayList<>();
		for (int i = 0; i < 3; i++)
			members.add(new Program("Barrier", Db.URL, run, "4", "m" + i));
		Db.until(() -> holders(run) == 3);
		Db.restart();
		assertFalse(members.stream().anyMatch(member -> member.says("begins")));
		members.add(new Program("Barrier", Db.URL, run, "4", "m3"));
		Db.until(() -> members.stream().allMatch(member -> member.says("begins")));

		members.get(1).close(); // kill -9
		members.get(2).signal("STOP");
		for (int i = 1; i <= 2; i++) // as if their TTLs were over
			Db.sql("SELECT revoke_lease(lease) FROM lock_election.locks WHERE name = '" + run + ", member m" + i + "'");
		members.get(0).endInput();
		Db.until(() -> holders(run) == 1 && Db.waiters(run) == 1);
		assertFalse(members.get(0).says("left"));
		members.get(3).endInput();
		for (int i = 0; i <= 3; i += 3) {
			assertEquals(0, members.get(i).await());
			assertTrue(members.get(i).says("left"));
		}
		members.get(2).signal("CONT");
		members.get(2).endInput();
		assertNotEquals(0, members.get(2).await());
		assertFalse(members.get(2).lines.contains("left"), members.get(2).lines.toString());
	}

	private static long holders(String name) throws Exception {
		return (Long) Db.sql("SELECT count(slot) FROM lock_election.locks WHERE name = '" + name + "'");
	}
}
