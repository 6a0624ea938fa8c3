package lockelection.agent;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.UUID;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import lockelection.LockElection;
import lockelection.Request;

/**
 * Measures the cost of the client by pairs of acquire and release, alternately with the client and with plain JDBC, so
 * that other load on the machine affects both. Arguments: URL, rounds, seconds of each measurement.
 */
public final class Pairs {
	private Pairs() {
	}

	/** One pair of acquire and release. */
	private interface Pair {
		void run() throws Exception;
	}

	/**
	 * Prints the median of the rounds.
	 *
	 * @param arguments URL, rounds, seconds
	 * @throws Exception if there is no server
	 */
	public static void main(String[] arguments) throws Exception {
		String url = arguments[0];
		int rounds = Integer.parseInt(arguments[1]);
		Duration length = Duration.ofSeconds(Integer.parseInt(arguments[2]));
		double[][] rates = new double[4][rounds];
		try (LockElection locks = LockElection.connect(url); Connection connection = DriverManager.getConnection(url)) {
			for (int round = -1; round < rounds; round++) {
				double[] now = {measure(1, length, () -> plain(connection)), measure(1, length, () -> ours(locks, Duration.ZERO)),
						measure(1, length, () -> ours(locks, null)), measure(32, length, () -> ours(locks, Duration.ZERO))};
				for (int i = 0; i < now.length && round >= 0; i++)
					rates[i][round] = now[i];
			}
		}
		String[] names = {"plain JDBC, one thread", "client, one thread, no wait", "client, one thread, wait",
				"client, 32 threads, no wait"};
		for (int i = 0; i < names.length; i++) {
			Arrays.sort(rates[i]);
			System.out.printf(Locale.ROOT, "%-30s %8.0f pairs/s  %7.1f us a pair and thread%n", names[i], rates[i][rounds / 2],
					(i == 3 ? 32 : 1) * 1e6 / rates[i][rounds / 2]);
		}
	}

	private static void plain(Connection connection) throws Exception {
		String name = UUID.randomUUID().toString();
		long token;
		try (PreparedStatement acquire = connection.prepareStatement("SELECT acquire_lock(?, wait => '0')")) {
			acquire.setString(1, name);
			ResultSet result = acquire.executeQuery();
			result.next();
			token = result.getLong(1);
		}
		try (PreparedStatement release = connection.prepareStatement("SELECT release_lock(?, ?)")) {
			release.setString(1, name);
			release.setLong(2, token);
			release.executeQuery();
		}
	}

	private static void ours(LockElection locks, Duration wait) throws Exception {
		locks.acquire(Request.exclusive(UUID.randomUUID().toString()), wait).release();
	}

	/** Returns the pairs per second. */
	private static double measure(int threads, Duration length, Pair pair) throws Exception {
		ExecutorService pool = Executors.newFixedThreadPool(threads);
		long begin = System.nanoTime();
		List<Future<Long>> counts = new ArrayList<>();
		for (int i = 0; i < threads; i++)
			counts.add(pool.submit(() -> {
				long pairs = 0;
				for (; System.nanoTime() - begin < length.toNanos(); pairs++)
					pair.run();
				return pairs;
			}));
		long pairs = 0;
		for (Future<Long> count : counts)
			pairs += count.get();
		double seconds = (System.nanoTime() - begin) / 1e9;
		pool.shutdown();
		return pairs / seconds;
	}
}
