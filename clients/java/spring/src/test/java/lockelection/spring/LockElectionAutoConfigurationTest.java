package lockelection.spring;

import static org.assertj.core.api.Assertions.assertThat;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import javax.sql.DataSource;
import lockelection.Db;
import lockelection.Listener;
import lockelection.LockElection;
import org.junit.jupiter.api.Test;
import org.postgresql.ds.PGSimpleDataSource;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.FilteredClassLoader;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.integration.support.locks.DefaultLockRegistry;
import org.springframework.integration.support.locks.LockRegistry;

class LockElectionAutoConfigurationTest {
	private final ApplicationContextRunner runner = new ApplicationContextRunner()
			.withConfiguration(AutoConfigurations.of(LockElectionAutoConfiguration.class));

	@Test
	void byAUrl() {
		runner.withPropertyValues("lock-election.url=" + Db.URL, "lock-election.name=boot", "lock-election.ttl=9s",
				"lock-election.prefix=app-").run(context -> {
					LockElection locks = context.getBean(LockElection.class);
					assertThat(locks.ttl()).isEqualTo(Duration.ofSeconds(9));
					String key = Db.name();
					LockRegistry<?> registry = context.getBean(LockRegistry.class);
					registry.obtain(key).lock();
					assertThat(Db.sql("SELECT owner FROM lock_election.locks WHERE name = 'app-" + key + "'").toString())
							.startsWith("boot#");
					registry.obtain(key).unlock();
				});
		assertThat(leases("boot")).isZero();
	}

	private static long leases(String owner) {
		try {
			return (Long) Db.sql("SELECT count(*) FROM lock_election.leases WHERE owner LIKE '" + owner + "#%'");
		} catch (java.sql.SQLException e) {
			throw new AssertionError(e);
		}
	}

	@Test
	void byTheDataSource() {
		PGSimpleDataSource source = new PGSimpleDataSource();
		source.setUrl(Db.URL);
		runner.withBean(DataSource.class, () -> source)
				.run(context -> assertThat(context.getBean(LockElectionRegistry.class).obtain(Db.name()).tryLock()).isTrue());
	}

	@Test
	void withTheApplicationsListeners() {
		List<String> kinds = new CopyOnWriteArrayList<>();
		runner.withPropertyValues("lock-election.url=" + Db.URL)
				.withBean(Listener.class, () -> event -> kinds.add(event.kind().toString()))
				.run(context -> context.getBean(LockElection.class).acquire(Db.name()).close());
		assertThat(kinds).containsExactly("acquired", "released");
	}

	@Test
	void withoutSpringIntegrationThereIsASessionAlone() {
		runner.withPropertyValues("lock-election.url=" + Db.URL)
				.withClassLoader(new FilteredClassLoader("org.springframework.integration"))
				.run(context -> assertThat(context).hasSingleBean(LockElection.class).doesNotHaveBean("lockElectionRegistry"));
	}

	@Test
	void theApplicationsOwnRegistryIsLeftAlone() {
		runner.withPropertyValues("lock-election.url=" + Db.URL).withBean(DefaultLockRegistry.class)
				.run(context -> assertThat(context).doesNotHaveBean(LockElectionRegistry.class));
	}

	@Test
	void bootFindsIt() {
		assertThat(getClass().getResource(
				"/META-INF/spring/org.springframework.boot.autoconfigure.AutoConfiguration.imports")).isNotNull();
	}
}
