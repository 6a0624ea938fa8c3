package lockelection.spring;

import java.time.Duration;
import org.springframework.boot.context.properties.ConfigurationProperties;

/** {@code lock-election.*}. */
@ConfigurationProperties("lock-election")
public class LockElectionProperties {
	private String url;
	private String name;
	private Duration ttl = Duration.ofSeconds(30);
	private String prefix = "";

	/**
	 * A URL of PostgreSQL's driver.
	 *
	 * @return null: one connection of the application's data source is taken and kept
	 */
	public String getUrl() {
		return url;
	}

	public void setUrl(String url) {
		this.url = url;
	}

	/**
	 * What the column "owner" of the server's views begins with.
	 *
	 * @return null: "java" and the number of the process
	 */
	public String getName() {
		return name;
	}

	public void setName(String name) {
		this.name = name;
	}

	/**
	 * How long locks last after the program has died.
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
	 * What the names of the registry's locks begin with.
	 *
	 * @return nothing unless set
	 */
	public String getPrefix() {
		return prefix;
	}

	public void setPrefix(String prefix) {
		this.prefix = prefix;
	}
}
