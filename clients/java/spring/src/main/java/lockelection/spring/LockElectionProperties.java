package lockelection.spring;

import java.time.Duration;
import org.springframework.boot.context.properties.ConfigurationProperties;

/** The properties {@code lock-election.*}. */
@ConfigurationProperties("lock-election")
public class LockElectionProperties {
	private String url;
	private String name;
	private Duration ttl = Duration.ofSeconds(30);
	private String prefix = "";

	/**
	 * The URL of PostgreSQL's driver by which the session connects.
	 *
	 * @return null to take and keep one connection of the application's data source
	 */
	public String getUrl() {
		return url;
	}

	public void setUrl(String url) {
		this.url = url;
	}

	/**
	 * The text with which the column "owner" of the server's views begins.
	 *
	 * @return null for "java" and the process id
	 */
	public String getName() {
		return name;
	}

	public void setName(String name) {
		this.name = name;
	}

	/**
	 * The TTL, which is the time for which locks outlive the program if it dies.
	 *
	 * @return 100 ms to 24 days
	 */
	public Duration getTtl() {
		return ttl;
	}

	public void setTtl(Duration ttl) {
		this.ttl = ttl;
	}

	/**
	 * The prefix of the names of the registry's locks.
	 *
	 * @return an empty text by default
	 */
	public String getPrefix() {
		return prefix;
	}

	public void setPrefix(String prefix) {
		this.prefix = prefix;
	}
}
