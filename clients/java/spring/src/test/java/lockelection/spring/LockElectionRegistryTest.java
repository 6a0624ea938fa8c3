package lockelection.spring;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.ConcurrentModificationException;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.Lock;
import java.util.stream.Stream;
import lockelection.Db;
import lockelection.LockElection;
import lockelection.LockException;
import lockelection.LockLostException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.dao.CannotAcquireLockException;
import org.springframework.integration.leader.Context;
import org.springframework.integration.leader.DefaultCandidate;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;
import org.springframework.integration.support.locks.LockRegistry;

/** Two registries, as in two processes. */
@Timeout(120)
class LockElectionRegistryTest {
	private final String key = Db.name();
	private LockElection locks;
	private LockElection otherLocks;
	private LockElectionRegistry registry;
	private LockElectionRegistry other;

	@BeforeEach
	void open() {
		locks = Db.open(5000);
		otherLocks = Db.open(5000);
		registry = new LockElectionRegistry(locks);
		other = new LockElectionRegistry(otherLocks);
	}

	@AfterEach
	void close() {
		locks.close();
		otherLocks.close();
	}

	private interface Call<T> {
		T call() throws Exception;
	}

	private static <T> CompletableFuture<T> async(Call<T> call) {
		return CompletableFuture.supplyAsync(() -> {
			try {
				return call.call();
			} catch (Exception e) {
				throw new IllegalStateException(e);
			}
		}, task -> new Thread(task).start());
	}

	private static <T> T get(CompletableFuture<T> future) throws Exception {
		return future.get(20, TimeUnit.SECONDS);
	}

	@Test
	void whatIsWrongWithAnArgumentIsSaid() {
		assertThatThrownBy(() -> new LockElectionRegistry(null)).hasMessage("the session is null");
		assertThatThrownBy(() -> new LockElectionRegistry(locks, null)).hasMessage("the prefix is null");
		assertThatThrownBy(() -> registry.obtain(null)).isInstanceOf(IllegalArgumentException.class)
				.hasMessage("the key of a lock is a String, and this is null");
		assertThatThrownBy(() -> registry.obtain(7)).hasMessageEndingWith("this is of class java.lang.Integer");
		assertThatThrownBy(() -> registry.obtain("x\uD800")).isInstanceOf(LockException.class)
				.hasMessageContaining("the name \"x\\uD800\"");
		assertThatThrownBy(() -> registry.obtain(key).lock(Duration.ofMillis(1))).hasRootCauseMessage(
				"the TTL is PT0.001S: it is from 100 ms to 24 days");
		assertThatThrownBy(() -> registry.expireUnusedOlderThan(-1)).hasMessage("the age is -1: it is zero milliseconds or more");
		registry.expireUnusedOlderThan(0);
	}

	/** Of Spring Integration 7; version 6 has no such interface. */
	@Test
	void aLockIsADistributedLockWhereThereAreSome() {
		boolean integration7 = LockRegistry.class.getTypeParameters().length == 1;
		assertThat(Stream.of(registry.obtain(key).getClass().getInterfaces()).map(Class::getSimpleName))
				.containsExactly(integration7 ? "DistributedLock" : "Lock");
	}

	@Test
	void oneProcessAtATime() throws Exception {
		KeyLock lock = registry.obtain(key);
		assertThat(registry.obtain(key)).isSameAs(lock);
		lock.lock();
		assertThat(other.obtain(key).tryLock()).isFalse();
		assertThat(other.obtain(key).tryLock(50, TimeUnit.MILLISECONDS)).isFalse();
		assertThat(other.obtain(key).tryLock(Duration.ofMillis(50), Duration.ofSeconds(9))).isFalse();
		lock.unlock();
		assertThat(other.obtain(key).tryLock()).isTrue();
		other.obtain(key).unlock();
	}

	@Test
	void oneThreadOfAProcessAtATime() throws Exception {
		registry.obtain(key).lockInterruptibly();
		assertThat(get(async(() -> registry.obtain(key).tryLock()))).isFalse();
		assertThatThrownBy(() -> get(async(() -> {
			registry.obtain(key).unlock();
			return null;
		}))).hasRootCauseInstanceOf(IllegalMonitorStateException.class);
		registry.obtain(key).unlock();
		assertThat(get(async(() -> registry.obtain(key).tryLock()))).isTrue();
	}

	@Test
	void aThreadMayLockItAgain() {
		Lock lock = registry.obtain(key);
		lock.lock();
		lock.lock();
		lock.unlock();
		assertThat(other.obtain(key).tryLock()).isFalse();
		lock.unlock();
		assertThat(other.obtain(key).tryLock()).isTrue();
		assertThatThrownBy(lock::unlock).isInstanceOf(IllegalMonitorStateException.class);
		assertThatThrownBy(lock::newCondition).isInstanceOf(UnsupportedOperationException.class);
	}

	@Test
	void thoseThatWaitGetItInOrder() throws Exception {
		registry.obtain(key).lock();
		List<Integer> order = Collections.synchronizedList(new ArrayList<>());
		List<CompletableFuture<Void>> waiting = new ArrayList<>();
		List<LockElection> sessions = new ArrayList<>();
		for (int i = 0; i < 4; i++) {
			int number = i;
			LockElection session = Db.open(5000);
			sessions.add(session);
			waiting.add(async(() -> {
				Lock lock = new LockElectionRegistry(session).obtain(key);
				lock.lock();
				order.add(number);
				lock.unlock();
				return null;
			}));
			Db.until(() -> Db.waiters(key) == number + 1);
		}
		registry.obtain(key).unlock();
		for (CompletableFuture<Void> one : waiting)
			get(one);
		assertThat(order).containsExactly(0, 1, 2, 3);
		sessions.forEach(LockElection::close);
	}

	@Test
	void aLockThatWasLostIsTold() throws Exception {
		KeyLock lock = registry.obtain(key);
		lock.lock(Duration.ofSeconds(20));
		registry.renewLock(key);
		registry.renewLock(key, Duration.ofSeconds(20));
		CompletableFuture<Void> lost = new CompletableFuture<>();
		registry.hold(key).onLost(() -> lost.complete(null));
		Db.sql("SELECT force_release_lock('" + key + "')");
		// it has a lease of its own, of 20 s, which is renewed after 7 s
		get(lost);
		assertThatThrownBy(() -> registry.renewLock(key)).isInstanceOf(IllegalStateException.class);
		assertThatThrownBy(lock::tryLock).isInstanceOf(LockLostException.class);
		assertThatThrownBy(lock::lock).isInstanceOf(LockLostException.class);
		assertThatThrownBy(lock::unlock).isInstanceOf(ConcurrentModificationException.class);
		assertThat(lock.tryLock()).isTrue();
		lock.unlock();
		assertThatThrownBy(() -> registry.renewLock(key)).isInstanceOf(IllegalStateException.class);
	}

	@Test
	void whatCannotBeLockedIsToldInTheWayOfSpring() {
		assertThatThrownBy(() -> registry.obtain("x".repeat(300)).lock()).isInstanceOf(CannotAcquireLockException.class);
		assertThatThrownBy(() -> registry.obtain(7)).isInstanceOf(IllegalArgumentException.class);
	}

	@Test
	void locksThatAreNotUsedAreForgotten() {
		KeyLock used = registry.obtain(key);
		used.lock();
		KeyLock unused = registry.obtain(key + "x");
		registry.expireUnusedOlderThan(60_000);
		assertThat(registry.obtain(key + "x")).isSameAs(unused);
		registry.expireUnusedOlderThan(0);
		assertThat(registry.obtain(key)).isSameAs(used);
		assertThat(registry.obtain(key + "x")).isNotSameAs(unused);
		used.unlock();
	}

	@Test
	void somethingIsRunWhileItIsLocked() throws Exception {
		LockRegistry<?> first = registry;
		LockRegistry<?> second = other;
		assertThat(first.<Boolean, Exception>executeLocked(key, () -> get(async(() -> other.obtain(key).tryLock()))))
				.isFalse();
		registry.obtain(key).lock();
		assertThatThrownBy(() -> second.executeLocked(key, Duration.ofMillis(50), () -> { }))
				.isInstanceOf(TimeoutException.class);
		registry.obtain(key).unlock();
	}

	@Test
	void anInterruptEndsTheWait() throws Exception {
		other.obtain(key).lock();
		CompletableFuture<Boolean> interrupted = new CompletableFuture<>();
		Thread thread = new Thread(() -> {
			try {
				registry.obtain(key).lockInterruptibly();
				interrupted.complete(false);
			} catch (InterruptedException e) {
				interrupted.complete(true);
			}
		});
		thread.start();
		Db.until(() -> Db.waiters(key) == 1);
		thread.interrupt();
		assertThat(get(interrupted)).isTrue();
		Db.until(() -> Db.waiters(key) == 0);
		other.obtain(key).unlock();
		assertThat(registry.obtain(key).tryLock()).isTrue();
	}

	// --- leaders ---

	private LockRegistryLeaderInitiator initiator(LockElectionRegistry of, String id) {
		LockRegistryLeaderInitiator initiator = new LockRegistryLeaderInitiator(of, new DefaultCandidate(id, key));
		initiator.setHeartBeatMillis(100);
		initiator.setBusyWaitMillis(10);
		initiator.start();
		return initiator;
	}

	private static boolean leads(LockRegistryLeaderInitiator initiator) {
		Context context = initiator.getContext();
		return context != null && context.isLeader();
	}

	@Test
	void leadershipIsHandedOn() throws Exception {
		LockRegistryLeaderInitiator one = initiator(registry, "one");
		Db.until(() -> leads(one));
		LockRegistryLeaderInitiator two = initiator(other, "two");
		assertThat(leads(two)).isFalse();
		one.stop();
		Db.until(() -> leads(two));
		assertThat(leads(one)).isFalse();
		one.start();
		two.getContext().yield();
		Db.until(() -> leads(one) != leads(two));
		two.destroy();
		Db.until(() -> leads(one));
		one.destroy();
	}

	@Test
	void aLeaderWhoseLockIsLostIsRevokedAndLeadsAgain() throws Exception {
		List<String> told = Collections.synchronizedList(new ArrayList<>());
		LockRegistryLeaderInitiator one = new LockRegistryLeaderInitiator(registry, new DefaultCandidate("one", key) {
			@Override
			public void onGranted(Context context) {
				told.add("granted");
			}

			@Override
			public void onRevoked(Context context) {
				told.add("revoked");
			}
		});
		one.setHeartBeatMillis(100);
		one.start();
		Db.until(() -> told.size() == 1);
		Db.sql("SELECT force_release_lock('" + key + "')");
		Db.until(() -> told.size() == 3);
		assertThat(told).containsExactly("granted", "revoked", "granted");
		one.destroy();
	}
}
