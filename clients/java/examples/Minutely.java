import java.time.Duration;
import lockelection.LockElection;
import lockelection.LockException;

/** Arguments: URL and period in seconds. Runs on every machine. In each period, one of them does the job. */
public class Minutely {
	public static void main(String[] args) throws InterruptedException {
		long period = Long.parseLong(args[1]) * 1000;
		try (LockElection locks = LockElection.connect(args[0])) {
			while (true) {
				Thread.sleep(period - System.currentTimeMillis() % period);
				try {
					locks.once("minutely", Duration.ofMillis(period * 5 / 6), () -> System.out.println("job"));
				} catch (LockException e) {
					System.err.println(e.getMessage());
				}
			}
		}
	}
}
