package boot;

import org.springframework.boot.ApplicationRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.integration.support.locks.DistributedLock;
import org.springframework.integration.support.locks.LockRegistry;

/** Spring Boot 4: locks the key of its first argument, prints that, and unlocks it after a line of standard input. */
@SpringBootApplication
public class Application {
	public static void main(String[] args) {
		SpringApplication.run(Application.class, args).close();
	}

	@Bean
	ApplicationRunner work(LockRegistry<DistributedLock> registry) {
		return arguments -> {
			DistributedLock lock = registry.obtain(arguments.getNonOptionArgs().get(0));
			lock.lock();
			try {
				System.out.println("locked by " + registry.getClass().getSimpleName());
				System.in.read();
			} finally {
				lock.unlock();
			}
			System.out.println("unlocked");
		};
	}
}
