package lockelection.spring;

import lockelection.NamedLock;
import org.springframework.integration.support.locks.DistributedLock;

/** A lock that is also Spring Integration's DistributedLock. It cannot be loaded with Spring Integration 6. */
final class DistributedKeyLock extends KeyLock implements DistributedLock {
	private DistributedKeyLock(NamedLock lock) {
		super(lock);
	}

	/** Returns the superclass, so that the caller can be verified without this class. */
	static KeyLock of(NamedLock lock) {
		return new DistributedKeyLock(lock);
	}
}
