package lockelection.spring;

import javax.sql.DataSource;
import lockelection.LockElection;
import lockelection.Options;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.integration.support.locks.LockRegistry;

/** Configures, for Spring Boot, a {@link LockElection} and a registry on it, unless the application has its own. */
@AutoConfiguration(afterName = "org.springframework.boot.jdbc.autoconfigure.DataSourceAutoConfiguration")
@EnableConfigurationProperties(LockElectionProperties.class)
public class LockElectionAutoConfiguration {
	/**
	 * Connects when the application starts, by lock-election.url or by the application's data source.
	 *
	 * @param properties lock-election.*
	 * @param source the data source, if there is no URL
	 * @return the session, which is closed with the application
	 */
	@Bean(destroyMethod = "close")
	@ConditionalOnMissingBean
	public LockElection lockElection(LockElectionProperties properties, ObjectProvider<DataSource> source) {
		Options options = new Options().ttl(properties.getTtl());
		if (properties.getName() != null)
			options = options.name(properties.getName());
		return properties.getUrl() != null ? LockElection.connect(properties.getUrl(), options)
				: LockElection.connect(source.getObject(), options);
	}

	/**
	 * Makes the registry of the locks.
	 *
	 * @param locks the session
	 * @param properties lock-election.*
	 * @return a registry
	 */
	@Bean
	@ConditionalOnMissingBean(LockRegistry.class)
	public LockElectionRegistry lockElectionRegistry(LockElection locks, LockElectionProperties properties) {
		return new LockElectionRegistry(locks, properties.getPrefix());
	}
}
