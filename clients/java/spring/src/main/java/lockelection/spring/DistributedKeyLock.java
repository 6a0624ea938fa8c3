package lockelection.spring;

import lockelection.NamedLock;
import org.springframework.integration.support.locks.DistributedLock;

/** A lock that implements DistributedLock of Spring Integration 7. The class cannot be loaded with version 6. */
final class DistributedKeyLock extends KeyLock implements DistributedLock {
	private DistributedKeyLock(NamedLock lock) {
		super(lock);
	}

	/** Creates a lock. Returns the superclass, so that the JVM can verify the caller without loading this class. */
	static KeyLock of(NamedLock lock) {
		return new DistributedKeyLock(lock);
	}
}
