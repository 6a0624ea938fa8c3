package lockelection.spring;

import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import lockelection.Hold;
import lockelection.LockElection;
import lockelection.LockLostException;
import lockelection.NamedLock;
import org.springframework.integration.support.locks.ExpirableLockRegistry;
import org.springframework.integration.support.locks.RenewableLockRegistry;
import org.springframework.util.ClassUtils;

/**
 * A lock registry for Spring Integration on a {@link LockElection}. Waiting threads are in a queue, and are notified of
 * their grant, without polling.
 *
 * <p>The session keeps a lock alive until it is unlocked, so the application need not renew it. The TTL is the time for
 * which the lock outlives its process if that dies. If a lock is lost, its {@link #hold} is invalid immediately, and
 * the next call throws an exception: {@code unlock()} a {@link ConcurrentModificationException}, and another {@code
 * lock()} a {@link LockLostException}.
 *
 * <p>The same class works with Spring Integration 6 and 7. The interfaces have a type parameter only in version 7, so
 * this class implements the raw types. Inject it as {@code LockRegistry} with version 6, and as {@code LockRegistry<?>}
 * or {@code LockRegistry<DistributedLock>} with version 7, where its locks implement DistributedLock.
 */
@SuppressWarnings("rawtypes")
public final class LockElectionRegistry implements ExpirableLockRegistry, RenewableLockRegistry {
	/** False with Spring Integration 6, which has no DistributedLock. */
	private static final boolean DISTRIBUTED = ClassUtils.isPresent(
			"org.springframework.integration.support.locks.DistributedLock", LockElectionRegistry.class.getClassLoader());

	private final LockElection locks;
	private final String prefix;
	private final Map<String, KeyLock> keys = new ConcurrentHashMap<>();

	/**
	 * Creates a registry whose keys are the names of the locks.
	 *
	 * @param locks the session, to be closed after this registry
	 */
	public LockElectionRegistry(LockElection locks) {
		this(locks, "");
	}

	/**
	 * Creates a registry in which the name of a lock is a prefix and the key.
	 *
	 * @param locks the session, to be closed after this registry
	 * @param prefix the prefix of the names, which have at most 255 bytes with it
	 */
	public LockElectionRegistry(LockElection locks, String prefix) {
		this.locks = Objects.requireNonNull(locks, "the session is null");
		this.prefix = Objects.requireNonNull(prefix, "the prefix is null");
	}

	/** {@inheritDoc} Returns the same lock for the same key, which must be a String. */
	@Override
	public KeyLock obtain(Object lockKey) {
		return key(lockKey);
	}

	private KeyLock key(Object lockKey) {
		if (!(lockKey instanceof String key))
			throw new IllegalArgumentException("the key of a lock is a String, and this is "
					+ (lockKey == null ? "null" : "of " + lockKey.getClass()));
		KeyLock lock = keys.computeIfAbsent(key, name -> keyLock(locks.asLock(prefix + name)));
		lock.obtained = System.nanoTime();
		return lock;
	}

	private static KeyLock keyLock(NamedLock lock) {
		return DISTRIBUTED ? DistributedKeyLock.of(lock) : new KeyLock(lock);
	}

	/**
	 * The calling thread's hold of a key, for {@link Hold#fence}, {@link Hold#isValid} and {@link Hold#onLost}.
	 *
	 * @param lockKey the key
	 * @return null if this thread does not hold the lock
	 */
	public Hold hold(String lockKey) {
		return key(lockKey).lock.hold();
	}

	/** {@inheritDoc} Because the session renews the lock, this only throws an exception if it is no longer held. */
	@Override
	public void renewLock(Object lockKey) {
		Hold hold = key(lockKey).lock.hold();
		if (hold == null || !hold.isValid())
			throw new IllegalStateException("Could not renew lock for: " + lockKey);
	}

	/**
	 * Like {@link #renewLock(Object)}. Ignores the TTL, because the session keeps the lock alive until it is unlocked.
	 * A method of the interface since Spring Integration 7.
	 *
	 * @param lockKey the key
	 * @param ttl has no effect
	 */
	public void renewLock(Object lockKey, Duration ttl) {
		renewLock(lockKey);
	}

	@Override
	public void expireUnusedOlderThan(long age) {
		if (age < 0)
			throw new IllegalArgumentException("the age is " + age + ": it is zero milliseconds or more");
		long now = System.nanoTime();
		keys.values().removeIf(lock -> !lock.lock.isLocked() && now - lock.obtained >= TimeUnit.MILLISECONDS.toNanos(age));
	}
}
