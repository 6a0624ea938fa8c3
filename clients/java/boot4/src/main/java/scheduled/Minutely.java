package scheduled;

import java.time.Duration;
import lockelection.LockElection;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.scheduling.annotation.EnableScheduling;
import org.springframework.scheduling.annotation.Scheduled;

/** A {@code @Scheduled} method in all replicas, which one of them runs each minute, or each --period=MILLISECONDS. */
@EnableScheduling
@SpringBootApplication(proxyBeanMethods = false)
public class Minutely {
	private final LockElection locks;
	private final Duration closed;

	Minutely(LockElection locks, @Value("${period:60000}") long period) {
		this.locks = locks;
		this.closed = Duration.ofMillis(period * 4 / 5); // shorter than the period, longer than the clocks differ
	}

	public static void main(String[] args) {
		SpringApplication.run(Minutely.class, args);
	}

	@Scheduled(fixedRateString = "${period:60000}")
	void report() throws InterruptedException {
		locks.once("report", closed, () -> System.out.println("run " + System.currentTimeMillis()));
	}
}
