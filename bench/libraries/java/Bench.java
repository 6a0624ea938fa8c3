import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import lockelection.Hold;
import lockelection.LockElection;
import lockelection.Options;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Measures one system in the benchmark of libraries: a number of threads acquire and release for some seconds.
 *
 * <p>{@code java Bench SYSTEM WORKERS own|hot SECONDS SERVER-PID} prints the same figures as bench/libraries/go.
 * Libpq's variables name PostgreSQL, and REDIS_URL names Redis.
 */
public final class Bench {
	private static final int TTL_MS = 10_000;
	/** Time in which the JVM compiles the code that runs often. */
	private static final int WARMUP_MS = 3000;

	private static volatile boolean counts, over;

	private interface Release {
		void run() throws Exception;
	}

	/** Acquires a lock, and returns a function that releases it. */
	private interface Acquire {
		Release run(String name) throws Exception;
	}

	/** Returns the acquire function of the next worker. Workers share the same objects as in a typical program. */
	private interface Workers {
		Acquire next() throws Exception;
	}

	private interface Starter {
		Workers start(int workers) throws Exception;
	}

	private static final Map<String, Starter> SYSTEMS = Map.of(
			"lock_election", Bench::library, "direct", Bench::direct, "redisson", Bench::redisson);

	private static String url() {
		Map<String, String> env = System.getenv();
		return "jdbc:postgresql://" + env.get("PGHOST") + ":" + env.get("PGPORT") + "/" + env.get("PGDATABASE")
				+ "?user=" + env.get("PGUSER") + "&password=" + env.get("PGPASSWORD");
	}

	private static Workers library(int workers) {
		LockElection session = LockElection.connect(url(), new Options().ttl(Duration.ofMillis(TTL_MS)));
		return () -> name -> {
			Hold hold = session.acquire(name);
			return hold::release;
		};
	}

	/** Gives each worker its own connection. */
	private static Workers direct(int workers) {
		return () -> {
			Connection connection = DriverManager.getConnection(url());
			PreparedStatement acquire = connection.prepareStatement("SELECT acquire_lock(?)");
			PreparedStatement release = connection.prepareStatement("SELECT release_lock(?, ?)");
			return name -> {
				acquire.setString(1, name);
				try (ResultSet row = acquire.executeQuery()) {
					row.next();
					release.setString(1, name);
					release.setLong(2, row.getLong(1));
				}
				return () -> release.executeQuery().close();
			};
		};
	}

	/** Redisson's locks belong to threads; a message wakes up the waiters. */
	private static Workers redisson(int workers) {
		Config config = new Config();
		config.setLockWatchdogTimeout(TTL_MS);
		config.useSingleServer().setAddress(System.getenv("REDIS_URL")).setConnectionPoolSize(workers + 1)
				.setConnectionMinimumIdleSize(workers);
		RedissonClient client = Redisson.create(config);
		return () -> name -> {
			RLock lock = client.getLock(name);
			lock.lock();
			return lock::unlock;
		};
	}

	/** Returns the processor time of a process and its children, in microseconds. */
	private static long processorTime(String pid) {
		try {
			String stat = Files.readString(Path.of("/proc", pid, "stat"));
			String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
			long total = (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) * 10_000;
			for (String child : Files.readString(Path.of("/proc", pid, "task", pid, "children")).split(" "))
				total += child.isBlank() ? 0 : processorTime(child);
			return total;
		} catch (IOException e) {
			return 0; // it has ended
		}
	}

	private static long ownTime() {
		return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1000;
	}

	private static void work(Acquire acquire, String name, List<Long> times) {
		try {
			while (!over) {
				long begin = System.nanoTime();
				Release release = acquire.run(name);
				long took = System.nanoTime() - begin;
				release.run();
				if (counts)
					times.add(took / 1000);
			}
		} catch (Exception e) {
			if (over)
				return;
			e.printStackTrace();
			Runtime.getRuntime().halt(1);
		}
	}

	public static void main(String[] args) throws Exception {
		int workers = Integer.parseInt(args[1]);
		Workers each = SYSTEMS.get(args[0]).start(workers);
		List<List<Long>> times = new ArrayList<>();
		List<Thread> all = new ArrayList<>();
		for (int i = 0; i < workers; i++) {
			String name = args[2].equals("hot") ? "hot" : "own " + ProcessHandle.current().pid() + " " + i;
			Acquire acquire = each.next();
			List<Long> own = new ArrayList<>();
			times.add(own);
			all.add(new Thread(() -> work(acquire, name, own)));
		}
		all.forEach(Thread::start);
		Thread.sleep(WARMUP_MS);
		long server = processorTime(args[4]);
		long own = ownTime();
		long begin = System.nanoTime();
		counts = true;
		Thread.sleep((long) (Double.parseDouble(args[3]) * 1000));
		counts = false;
		over = true;
		double seconds = (System.nanoTime() - begin) / 1e9;
		server = processorTime(args[4]) - server;
		own = ownTime() - own;
		long until = System.nanoTime() + 5_000_000_000L;
		for (Thread thread : all) // so that no lock stays held for the next system
			thread.join(Math.max(1, (until - System.nanoTime()) / 1_000_000));
		long[] sorted = times.stream().flatMap(List::stream).mapToLong(Long::longValue).sorted().toArray();
		int n = sorted.length;
		System.out.println(n == 0 ? "0 0 0 0 0" // other processes have held the lock all the time
				: (int) (n / seconds) + " " + sorted[n / 2] + " " + sorted[(int) (n * 0.99)] + " " + own / n + " " + server / n);
		System.out.flush();
		Runtime.getRuntime().halt(0);
	}
}
