package lockelection;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.sql.Connection;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Elections, against a server. */
@Timeout(120)
class ElectionsTest {
	private final String name = Db.name();
	private LockElection locks;
	private LockElection other;

	@BeforeEach
	void open() {
		locks = Db.open(5000);
		other = Db.open(5000);
	}

	@AfterEach
	void close() {
		assertTrue(locks.close(Duration.ofSeconds(20)));
		assertTrue(other.close(Duration.ofSeconds(20)));
	}

	@Test
	void oneLeads() throws Exception {
		assertTrue(locks.leader(name).isEmpty());
		Term term = locks.campaign(name, "one", null);
		assertThrows(NotAcquiredException.class, () -> other.campaign(name, "two", Duration.ZERO));
		assertThrows(NotAcquiredException.class, () -> other.campaign(name, "two", Duration.ofMillis(50)));
		assertEquals("one", other.leader(name).orElseThrow().value());
		term.proclaim("uno");
		assertEquals("uno", other.leader(name).orElseThrow().value());
		assertEquals(term.token(), other.leader(name).orElseThrow().term());
		try (Connection connection = Db.connect()) {
			connection.setAutoCommit(false);
			term.fence(connection);
			connection.commit();
		}
		assertTrue(term.resign());
		assertThrows(LockLostException.class, () -> term.proclaim("late"));
		assertTrue(other.campaign(name, "two", Duration.ofSeconds(20)).token() > term.token());
	}

	@Test
	void leadersFollowEachOtherAndNeverMeet() throws Exception {
		AtomicInteger leading = new AtomicInteger();
		AtomicInteger most = new AtomicInteger();
		AtomicInteger terms = new AtomicInteger();
		CountDownLatch enough = new CountDownLatch(10);
		Lead lead = (term, stop) -> {
			most.accumulateAndGet(leading.incrementAndGet(), Math::max);
			assertTrue(term.isValid());
			assertFalse(stop.isDone());
			terms.incrementAndGet();
			enough.countDown();
			leading.decrementAndGet();
		};
		Candidacy one = locks.elect(name, "one", lead);
		Candidacy two = other.elect(name, "two", lead);
		assertTrue(enough.await(20, TimeUnit.SECONDS));
		one.close();
		two.close();
		assertEquals(1, most.get());
		assertTrue(terms.get() >= 10);
		assertTrue(one.ended().isDone() && two.ended().isDone());
		assertTrue(locks.leader(name).isEmpty());
	}

	@Test
	void aLeaderIsToldToStopAndResignsWhenItHasReturned() throws Exception {
		CountDownLatch elected = new CountDownLatch(1);
		CountDownLatch stopped = new CountDownLatch(1);
		CountDownLatch mayReturn = new CountDownLatch(1);
		Candidacy candidacy = locks.elect(name, "one", (term, stop) -> {
			elected.countDown();
			stop.get();
			stopped.countDown();
			mayReturn.await();
		});
		assertTrue(elected.await(20, TimeUnit.SECONDS));
		Thread closing = new Thread(candidacy::close);
		closing.start();
		assertTrue(stopped.await(20, TimeUnit.SECONDS));
		assertEquals("one", other.leader(name).orElseThrow().value());
		mayReturn.countDown();
		closing.join();
		assertTrue(other.leader(name).isEmpty());
	}

	@Test
	void aTermThatIsForcedStopsTheLeaderWhoStandsAgain() throws Exception {
		CountDownLatch terms = new CountDownLatch(2);
		Candidacy candidacy = locks.elect(name, "one", (term, stop) -> {
			terms.countDown();
			stop.get();
		});
		Db.until(() -> other.leader(name).isPresent());
		Db.sql("SELECT force_resign('" + name + "')");
		assertTrue(terms.await(20, TimeUnit.SECONDS));
		candidacy.close();
	}

	@Test
	void aLeaderSurvivesTheEndOfItsSession() throws Exception {
		CountDownLatch terms = new CountDownLatch(2);
		try (Candidacy candidacy = locks.elect(name, "one", (term, stop) -> {
			terms.countDown();
			stop.get();
		})) {
			Db.until(() -> other.leader(name).isPresent());
			Db.sql("SELECT revoke_lease(" + locks.lease() + ")");
			assertTrue(terms.await(20, TimeUnit.SECONDS));
			assertFalse(candidacy.ended().isDone());
		}
	}

	@Test
	void anErrorThatStaysEndsTheCandidacy() throws Exception {
		Candidacy candidacy = locks.elect("x".repeat(300), "one", (term, stop) -> { });
		assertThrows(Exception.class, () -> candidacy.ended().get(20, TimeUnit.SECONDS));
		candidacy.close();
	}

	@Test
	void eachChangeIsToldOnceInOrder() throws Exception {
		List<String> told = Collections.synchronizedList(new ArrayList<>());
		Term first = locks.campaign(name, "a", null);
		first.proclaim("b");
		Observer observer = other.observe(name, leader -> told.add(leader.map(Leader::value).orElse("-")));
		Db.until(() -> told.size() == 1);
		for (int i = 0; i < 100; i++)
			first.proclaim("b" + i);
		first.resign();
		Term second = locks.campaign(name, "c", null);
		Db.until(() -> told.contains("c"));
		List<String> expected = new ArrayList<>(List.of("b"));
		for (int i = 0; i < 100; i++)
			expected.add("b" + i);
		expected.addAll(List.of("-", "c"));
		assertEquals(expected, told);
		observer.close();
		second.resign();
		Db.until(() -> locks.leader(name).isEmpty());
		assertEquals(expected, told);
	}

	@Test
	void anObserverGoesOnInASessionThatIsOpenedAgain() throws Exception {
		List<String> told = Collections.synchronizedList(new ArrayList<>());
		Term term = other.campaign(name, "a", null);
		try (Observer observer = locks.observe(name, leader -> told.add(leader.map(Leader::value).orElse("-")))) {
			Db.until(() -> told.equals(List.of("a")));
			term.resign();
			Db.until(() -> told.equals(List.of("a", "-")));
			Db.sql("SELECT revoke_lease(" + locks.lease() + ")");
			Db.until(() -> locks.state() == State.ENDED);
			other.campaign(name, "b", null).resign();
			locks.reopen();
			Db.until(() -> told.size() >= 4);
			assertEquals(List.of("a", "-", "b", "-"), told);
			observer.close();
		}
	}
}
