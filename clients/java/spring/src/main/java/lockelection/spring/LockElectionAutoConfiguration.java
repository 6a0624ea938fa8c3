package lockelection.spring;

import javax.sql.DataSource;
import lockelection.Listener;
import lockelection.LockElection;
import lockelection.Options;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.integration.support.locks.ExpirableLockRegistry;
import org.springframework.integration.support.locks.LockRegistry;

/**
 * Configures a {@link LockElection} for Spring Boot 3 and 4 and, if Spring Integration is present, a registry on it,
 * unless the application defines its own.
 */
@AutoConfiguration(afterName = {
		"org.springframework.boot.autoconfigure.jdbc.DataSourceAutoConfiguration", // Boot 3
		"org.springframework.boot.jdbc.autoconfigure.DataSourceAutoConfiguration"}) // Boot 4
@ConditionalOnClass(LockElection.class)
@EnableConfigurationProperties(LockElectionProperties.class)
public class LockElectionAutoConfiguration {
	/**
	 * Connects when the application starts, by lock-election.url or by the application's data source.
	 *
	 * @param properties lock-election.*
	 * @param source the data source, if there is no URL
	 * @param listeners the listeners for the events of the session
	 * @return the session, which is closed with the application
	 */
	@Bean(destroyMethod = "close")
	@ConditionalOnMissingBean
	public LockElection lockElection(LockElectionProperties properties, ObjectProvider<DataSource> source,
			ObjectProvider<Listener> listeners) {
		Options options = new Options().ttl(properties.getTtl());
		if (properties.getName() != null)
			options = options.name(properties.getName());
		for (Listener listener : listeners)
			options = options.listener(listener);
		return properties.getUrl() != null ? LockElection.connect(properties.getUrl(), options)
				: LockElection.connect(source.getObject(), options);
	}

	/** Configures the registry. It is a separate class, because it cannot be loaded without Spring Integration. */
	@Configuration(proxyBeanMethods = false)
	@ConditionalOnClass(ExpirableLockRegistry.class)
	static class Registry {
		/**
		 * Creates the registry of the locks.
		 *
		 * @param locks the session
		 * @param properties lock-election.*
		 * @return a registry
		 */
		@Bean
		@ConditionalOnMissingBean(LockRegistry.class)
		LockElectionRegistry lockElectionRegistry(LockElection locks, LockElectionProperties properties) {
			return new LockElectionRegistry(locks, properties.getPrefix());
		}
	}
}
