package lockelection;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import lockelection.Hold.View;
import lockelection.LockException.Status;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The rules of a session, step by step, with a clock and a server that are set. The TTL is 10 s: the margin 0.5 s. */
class SessionTest {
	private static final long TTL = 10_000;
	private static final long DEADLINE = 9_500;

	private final FakeClock clock = new FakeClock();
	private final FakeServer server = new FakeServer(clock);
	private Session session;

	@BeforeEach
	void open() {
		session = new Session(server, new Options().ttl(Duration.ofMillis(TTL)).name("test"), Runnable::run, clock);
		session.open();
	}

	/** Lets the worker do all that it can do now. */
	private long settle() {
		for (int i = 0; i < 1000; i++) {
			long wait = session.step();
			if (wait != 0)
				return wait;
		}
		throw new AssertionError("it goes on and on");
	}

	private void pass(long millis) {
		for (long passed = 0; passed < millis; passed += 50) {
			clock.pass(50);
			settle();
		}
	}

	/** In the calling thread, if the connection is free. */
	private Hold submit(String name) {
		return session.submit(Request.exclusive(name), false);
	}

	private Hold held(String name) {
		Hold hold = submit(name);
		settle();
		assertTrue(hold.isValid());
		return hold;
	}

	private Hold waiting(String name) {
		Hold hold = submit(name);
		settle();
		assertEquals(View.WAITING, hold.view);
		assertEquals(1, server.rows.values().stream().filter(row -> row.name.equals(name) && !row.granted).count());
		return hold;
	}

	private static AtomicInteger losses(Hold hold) {
		AtomicInteger losses = new AtomicInteger();
		hold.onLost(losses::incrementAndGet);
		return losses;
	}

	@Test
	void theDeadlineCountsFromTheSendingOfTheLease() {
		FakeServer slow = new FakeServer(clock);
		slow.takesMillis = 700;
		Session other = new Session(slow, new Options().ttl(Duration.ofMillis(TTL)), Runnable::run, clock);
		other.open();
		assertEquals(DEADLINE - 700, TimeUnit.NANOSECONDS.toMillis(other.lease.left()));
	}

	@Test
	void theDeadlineCountsFromTheSendingOfTheRenewal() {
		Hold hold = held("a");
		clock.pass(4000);
		server.takesMillis = 1000;
		long before = server.renewals();
		session.step();
		assertEquals(before + 1, server.renewals());
		assertEquals(DEADLINE - 1000, hold.timeLeft().toMillis());
	}

	@Test
	void aRenewalIsSentAtAThirdOfTheTtl() {
		held("a");
		long wait = TimeUnit.NANOSECONDS.toMillis(settle());
		assertTrue(wait >= 2990 && wait <= 3670, "waits " + wait);
		long before = server.renewals();
		clock.pass(2900);
		settle();
		assertEquals(before, server.renewals());
		clock.pass(800);
		settle();
		assertEquals(before + 1, server.renewals());
	}

	@Test
	void aRenewalThatIsAnsweredAfterTheDeadlineIsTooLate() {
		Hold hold = held("a");
		AtomicInteger losses = losses(hold);
		clock.pass(4000);
		server.takesMillis = DEADLINE - 4000;
		session.step();
		assertEquals(State.ENDED, session.state());
		assertFalse(hold.isValid());
		assertEquals(1, losses.get());
	}

	@Test
	void aRenewalCountsForTheValidityThatTheServerReturned() {
		Hold hold = held("a");
		server.validityMillis = 3000L;
		long before = server.renewals();
		pass(3700);
		assertEquals(before + 1, server.renewals());
		assertTrue(hold.timeLeft().toMillis() >= DEADLINE - 3700, "it takes nothing back: " + hold.timeLeft());
		pass(5600);
		long renewals = server.renewals() - before;
		assertTrue(renewals >= 5 && renewals <= 8, renewals + " renewals, one in a second");
		assertTrue(hold.timeLeft().toMillis() <= 2500, "left " + hold.timeLeft());
		server.validityMillis = 0L;
		renewals = server.renewals();
		pass(700);
		assertTrue(server.renewals() <= renewals + 3, "it renews without a pause");
		assertTrue(hold.isValid());
		server.validityMillis = Long.MAX_VALUE / 1_000_000;
		pass(600);
		assertTrue(hold.timeLeft().toMillis() <= DEADLINE && hold.timeLeft().toMillis() >= DEADLINE - 650, "left " + hold.timeLeft());
		server.validityMillis = 0L;
		pass(DEADLINE);
		assertEquals(State.ENDED, session.state());
	}

	@Test
	void aSuspendEndsTheSessionBeforeAnythingElse() {
		Hold hold = held("a");
		AtomicInteger losses = losses(hold);
		clock.suspend(DEADLINE);
		assertFalse(hold.isValid());
		assertEquals(Duration.ZERO, hold.timeLeft());
		assertEquals(State.ENDED, session.state());
		int statements = server.statements.size();
		session.step();
		assertEquals(1, losses.get());
		assertTrue(server.statements.subList(statements, server.statements.size()).stream().noneMatch(sql -> sql.contains("sync")));
	}

	@Test
	void theWatcherTellsTheLossWhateverTheWorkerHangsIn() {
		Hold hold = held("a");
		AtomicInteger losses = losses(hold);
		clock.pass(DEADLINE - 1);
		session.check();
		assertEquals(0, losses.get());
		clock.pass(1);
		session.check();
		session.check();
		assertEquals(1, losses.get());
	}

	@Test
	void whatIsReleasedIsNotTold() {
		Hold hold = held("a");
		AtomicInteger losses = losses(hold);
		session.release(hold, null);
		settle();
		assertFalse(server.isHeld("a"));
		clock.pass(DEADLINE);
		session.check();
		assertEquals(0, losses.get());
	}

	@Test
	void aLeaseThatTheServerHasEndedEndsTheSession() {
		Hold hold = held("a");
		AtomicInteger losses = losses(hold);
		server.alive = false;
		pass(4000);
		assertEquals(State.ENDED, session.state());
		assertEquals(1, losses.get());
		assertEquals(0, server.count("revoke_lease"));
	}

	@Test
	void anAnnouncementDecidesNothing() {
		long holder = server.occupy("a");
		Hold hold = waiting("a");
		long looked = server.renewals();
		server.notifications.add(FakeServer.CHANNEL);
		server.notifications.add(FakeServer.CHANNEL);
		pass(50);
		assertEquals(looked + 1, server.renewals());
		assertEquals(View.WAITING, hold.view);
		server.release(holder);
		server.notifications.add(FakeServer.CHANNEL);
		pass(50);
		assertTrue(hold.isValid());
	}

	@Test
	void aGrantThatIsNotAnnouncedIsFound() {
		session = new Session(server, new Options().ttl(Duration.ofSeconds(60)).name("test"), Runnable::run, clock);
		session.open(); // renewals, which look too, come later
		long holder = server.occupy("a");
		Hold hold = waiting("a");
		server.release(holder);
		pass(6000);
		assertTrue(hold.isValid());
	}

	@Test
	void whereNothingIsHeardItLooksFourTimesASecond() {
		server.listens = false;
		long holder = server.occupy("a");
		Hold hold = waiting("a");
		long before = server.renewals();
		pass(1000);
		long looks = server.renewals() - before;
		assertTrue(looks >= 3 && looks <= 5, looks + " looks");
		server.release(holder);
		pass(300);
		assertTrue(hold.isValid());
	}

	@Test
	void whereListenIsRefusedItLooksFourTimesASecond() {
		server.refuse = sql -> sql.startsWith("LISTEN");
		long holder = server.occupy("a");
		Hold hold = waiting("a");
		pass(1000);
		assertEquals(1, server.count("LISTEN"));
		server.release(holder);
		pass(350);
		assertTrue(hold.isValid());
		assertEquals(1, server.connections);
	}

	@Test
	void behindAPoolerNobodyListens() {
		server.pooled = true;
		server.loseRequest = sql -> server.connections == 1;
		long holder = server.occupy("a");
		Hold hold = submit("a");
		pass(1000);
		assertEquals(0, server.count("LISTEN"));
		server.release(holder);
		pass(300);
		assertTrue(hold.isValid());
	}

	@Test
	void nobodyListensWhenNobodyWaits() {
		server.occupy("a");
		Hold hold = waiting("a");
		assertEquals(1, server.count("LISTEN " + FakeServer.CHANNEL));
		assertEquals(1, server.count("NOTIFY"));
		session.drop(hold);
		settle();
		assertEquals(1, server.rows.size());
		waitingAgain();
		pass(1500);
		assertEquals(1, server.count("UNLISTEN " + FakeServer.CHANNEL));
		assertEquals(2, server.count("LISTEN " + FakeServer.CHANNEL)); // with that of UNLISTEN
	}

	/** Within the time for which LISTEN goes on. */
	private void waitingAgain() {
		session.drop(waiting("a"));
		settle();
		assertEquals(0, server.count("UNLISTEN"));
	}

	@Test
	void theReasonOfALossIsTold() {
		Hold hold = held("a");
		Hold other = held("b");
		AtomicInteger losses = losses(hold);
		server.force(hold.token);
		pass(4000);
		assertEquals(1, losses.get());
		assertTrue(hold.lost().getCause().getMessage().contains("forced"));
		assertTrue(other.isValid());
		assertEquals(State.CONNECTED, session.state());
		assertEquals(0, server.count("release"));
	}

	@Test
	void whatACompleteReplyDoesNotHaveIsLost() {
		Hold hold = held("a");
		Hold other = held("b");
		server.occupy("c");
		Hold place = waiting("c");
		AtomicInteger losses = losses(hold);
		server.rows.remove(hold.token);
		server.rows.remove(place.token);
		pass(4000);
		assertTrue(hold.isValid(), "the server has told nothing");
		server.restart();
		pass(4000);
		assertEquals(1, losses.get());
		assertEquals(Status.LOST, place.decided.getNow(null).status());
		assertTrue(other.isValid());
	}

	@Test
	void whatIsLeftOfSeveralIsGivenBack() {
		Hold several = session.submit(Request.exclusive("a", "b"), false);
		assertTrue(several.isValid());
		server.force(several.token);
		pass(4000);
		assertFalse(several.isValid());
		assertEquals(1, server.count("release a " + several.token));
		assertEquals(1, server.count("release b " + several.token));
	}

	@Test
	void whatIsEvictedIsLostAtOnceAndGivenBackByTheApplication() {
		Hold hold = held("a");
		Hold other = held("b");
		AtomicInteger losses = losses(hold);
		server.evict(hold.token);
		pass(4000);
		assertEquals(1, losses.get());
		assertTrue(hold.lost().getCause().getMessage().contains("evicted"));
		assertFalse(hold.isValid());
		assertTrue(other.isValid());
		server.restart(); // it is told again
		pass(4000);
		assertEquals(1, losses.get());
		assertEquals(0, server.count("release"));
		assertFalse(session.release(hold, null));
		assertEquals(1, server.count("release a"));
		assertFalse(server.isHeld("a"));
		assertFalse(session.release(hold, null));
		assertEquals(1, server.count("release a"));
	}

	@Test
	void whatIsEvictedEndsAtTheServerAndThereIsNothingToGiveBack() {
		Hold hold = held("a");
		server.evict(hold.token);
		pass(4000);
		server.force(hold.token);
		pass(4000);
		assertFalse(session.release(hold, null));
		assertEquals(0, server.count("release"));
	}

	@Test
	void whatIsEvictedBeforeItWasKnownIsGivenBack() {
		long holder = server.occupy("a");
		Hold hold = waiting("a");
		server.release(holder);
		server.evict(hold.token);
		pass(6000);
		assertEquals(Status.LOST, hold.decided.getNow(null).status());
		assertFalse(server.isHeld("a"));
	}

	@Test
	void aLostAnswerIsAdopted() {
		server.loseAnswer = sql -> sql.contains("enqueue_lock");
		Hold hold = submit("a");
		server.loseAnswer = sql -> false;
		settle();
		assertEquals(2, server.connections);
		assertTrue(hold.isValid());
		assertEquals(1, server.count("enqueue_lock"));
		assertTrue(server.rows.containsKey(hold.token));
	}

	@Test
	void aLostRequestIsSentAgainBehindTheNews() {
		server.loseRequest = sql -> sql.contains("enqueue_lock") && server.connections == 1;
		long before = server.renewals();
		Hold hold = submit("a");
		settle();
		assertTrue(hold.isValid());
		assertEquals(2, server.count("enqueue_lock"));
		assertEquals(before + 1, server.renewals());
		assertEquals(1, server.rows.size());
	}

	@Test
	void aLostAnswerIsLookedForUntilNewsAreTold() {
		long before = server.renewals();
		server.loseAnswer = sql -> sql.contains("enqueue_lock") && server.connections == 1;
		server.pending = sql -> server.renewals() <= before + 2; // their replies hold the news back
		Hold hold = submit("a");
		settle();
		assertTrue(hold.isValid());
		assertEquals(1, server.count("enqueue_lock"));
		assertEquals(before + 3, server.renewals());
		assertTrue(server.rows.size() == 1 && server.rows.containsKey(hold.token));
	}

	@Test
	void whatAnOldCallAsksForIsAskedForAgain() {
		Hold kept = held("kept");
		server.restart();
		Hold hold = submit("a");
		settle();
		assertTrue(hold.isValid() && kept.isValid());
		assertEquals(2, server.count("enqueue_lock a"));
		assertEquals(2, server.rows.size());
	}

	@Test
	void aGhostIsGivenBack() {
		server.loseAnswer = sql -> sql.contains("enqueue_lock");
		Hold hold = submit("a");
		server.reachable = false;
		settle();
		session.drop(hold);
		assertTrue(server.isHeld("a"));
		server.reachable = true;
		server.loseAnswer = sql -> false;
		pass(200);
		assertTrue(server.rows.isEmpty());
		assertEquals(Status.CANCELED, hold.decided.getNow(null).status());
	}

	@Test
	void whatNobodyAskedForIsGivenBack() {
		server.rows.put(7L, new FakeServer.Row(session.lease.id, "late", 7, session.owner + "99", true));
		held("a");
		server.restart();
		pass(4000);
		assertFalse(server.rows.containsKey(7L));
		assertTrue(server.isHeld("a"));
	}

	@Test
	void anotherOnesRowsAreLeftAlone() {
		server.rows.put(7L, new FakeServer.Row(session.lease.id, "mine", 7, "of the application", true));
		held("a");
		server.restart();
		pass(4000);
		assertTrue(server.rows.containsKey(7L));
	}

	@Test
	void aLostReleaseIsSentAgainAndWasDone() {
		Hold hold = held("a");
		server.loseAnswer = sql -> sql.contains("release") && server.connections == 1;
		session.release(hold, null);
		pass(300);
		assertEquals(2, server.count("release a"));
		assertTrue(hold.released.isDone());
		assertNull(hold.released.join());
	}

	@Test
	void whetherANameIsClosedByALostReleaseIsNotKnown() {
		Hold hold = held("a");
		server.loseAnswer = sql -> sql.contains("release") && server.connections == 1;
		session.release(hold, Duration.ofSeconds(1));
		pass(300);
		assertEquals(Status.UNKNOWN, hold.released.getNow(null).status());
	}

	@Test
	void whatIsNotDurableYetIsToldByALaterCall() {
		server.pending = sql -> sql.contains("enqueue_lock a");
		assertTrue(submit("a").isValid()); // the caller itself asks again
		assertEquals(1, server.count("enqueue_lock a"));
		server.pending = sql -> sql.contains("enqueue_lock b");
		server.during = () -> {
			if (server.rows.values().removeIf(row -> row.name.equals("b"))) { // it was not durable
				server.during = () -> { };
				server.restart();
			}
		};
		assertTrue(submit("b").isValid());
		assertEquals(2, server.count("enqueue_lock b"));
	}

	/** Releases a hold while the next call is under way, so that the release cannot travel in that call. */
	private void releaseDuringTheNextCall(Hold hold) {
		server.during = () -> {
			server.during = () -> { };
			session.release(hold, null);
		};
	}

	@Test
	void aCallerThatWaitsRunsTheNextTurnToo() {
		releaseDuringTheNextCall(held("a"));
		assertTrue(submit("a").isValid());
	}

	@Test
	void aCallerThatWaitsLeavesTurnsToTheWorkerAfterATime() {
		releaseDuringTheNextCall(held("a"));
		server.takesMillis = 10;
		Hold next = submit("a");
		assertEquals(View.WAITING, next.view);
		settle();
		assertTrue(next.isValid());
	}

	@Test
	void anInterruptedCallerLeavesTheNextTurnToTheWorker() {
		Hold hold = held("a");
		server.during = () -> {
			server.during = () -> { };
			session.release(hold, null);
			Thread.currentThread().interrupt();
		};
		Hold next = submit("a");
		assertTrue(Thread.interrupted());
		assertEquals(View.WAITING, next.view);
		settle();
		assertTrue(next.isValid());
	}

	@Test
	void nothingIsPromisedWhereNothingIsCertain() {
		server.validityMillis = null;
		Session other = new Session(server, new Options().ttl(Duration.ofMillis(TTL)).name("other"), Runnable::run, clock);
		other.open();
		assertEquals(0, other.lease.left());
		assertEquals(State.SUSPENDED, other.state());
		clock.pass(DEADLINE - 1);
		other.check();
		assertEquals(State.SUSPENDED, other.state());
		server.validityMillis = 10_000L;
		other.step();
		clock.pass(1);
		other.check();
		assertEquals(State.CONNECTED, other.state());
		assertTrue(other.lease.left() > 0);
	}

	@Test
	void whatALeaseIsWorthBeforeAnythingIsCertainCountsFromItsSending() {
		FakeServer slow = new FakeServer(clock);
		slow.takesMillis = 700;
		slow.validityMillis = null;
		Session other = new Session(slow, new Options().ttl(Duration.ofMillis(TTL)), Runnable::run, clock);
		other.open(); // two statements
		assertEquals(DEADLINE - 1400, TimeUnit.NANOSECONDS.toMillis(other.lease.life()));
	}

	@Test
	void aTtlThatIsRefusedBoundsNoOtherCall() {
		long limit = session.callMillis();
		server.refuse = sql -> sql.contains("grant_lease");
		server.refusal = "53400";
		Hold hold = session.submit(Request.exclusive("a").ttl(Duration.ofMillis(1000)), false);
		settle();
		assertEquals(Status.LIMIT, hold.decided.getNow(null).status());
		assertEquals(limit, session.callMillis());
	}

	@Test
	void releasesAloneWaitForNothingAndTellNothing() {
		Hold hold = held("a");
		Hold closed = held("b");
		Hold late = held("c");
		long left = hold.timeLeft().toMillis();
		clock.pass(100);
		session.release(hold, null);
		assertNull(server.waits.get(server.waits.size() - 1));
		assertEquals(left - 100, late.timeLeft().toMillis());
		session.release(closed, Duration.ofSeconds(1));
		assertEquals("1250 ms", server.waits.get(server.waits.size() - 1));
		clock.pass(5000);
		server.reachable = true;
		session.release(late, null);
		settle();
		assertNotNull(server.waits.get(server.waits.size() - 1), "a renewal is due");
		assertFalse(server.isHeld("c"));
	}

	@Test
	void aLockIsHandedOnWithinOneSessionByOneCall() {
		Hold hold = held("a");
		Hold next = waiting("a");
		int calls = server.statements.size();
		session.release(hold, null);
		assertTrue(next.isValid());
		assertEquals(List.of("sync | release a " + hold.token), server.statements.subList(calls, server.statements.size()));
	}

	@Test
	void aGrantWhoseNewsAreHeldBackIsLookedFor() {
		Hold hold = held("a");
		Hold next = waiting("a");
		long before = server.renewals();
		server.pending = sql -> sql.contains("release a");
		session.release(hold, null);
		settle();
		assertTrue(next.isValid());
		assertEquals(before + 1, server.renewals());
	}

	@Test
	void aCallerThatIsAloneNeedsOneCall() {
		int calls = server.statements.size();
		Hold hold = submit("a");
		assertTrue(hold.isValid());
		session.release(hold, null);
		assertTrue(hold.released.isDone());
		assertEquals(2, server.statements.size() - calls);
	}

	@Test
	void anInterruptEndsATurnThatHangs() throws Exception {
		Hold other = held("b");
		CountDownLatch begun = new CountDownLatch(1);
		CountDownLatch ends = new CountDownLatch(1);
		server.during = () -> {
			begun.countDown();
			while (ends.getCount() > 0) // an interrupt does not end a read from a socket
				Thread.onSpinWait();
		};
		CompletableFuture<Throwable> result = new CompletableFuture<>();
		Thread caller = new Thread(() -> {
			try {
				session.acquire(Request.exclusive("a"), null);
			} catch (Throwable e) {
				result.complete(e);
			}
		});
		caller.start();
		begun.await();
		server.during = () -> { };
		caller.interrupt();
		clock.pass(200);
		assertEquals(null, session.stuck());
		clock.pass(100);
		session.stuck().abort();
		ends.countDown();
		assertTrue(result.get(20, TimeUnit.SECONDS) instanceof InterruptedException);
		settle();
		assertEquals(2, server.connections);
		assertTrue(other.isValid());
		assertFalse(server.isHeld("a"));
	}

	@Test
	void aBrokenConnectionLosesNothingBeforeTheDeadline() {
		Hold hold = held("a");
		AtomicInteger losses = losses(hold);
		server.loseRequest = sql -> true;
		server.reachable = false;
		pass(9000);
		assertEquals(State.SUSPENDED, session.state());
		assertTrue(hold.isValid());
		server.loseRequest = sql -> false;
		server.reachable = true;
		clock.pass(600);
		session.check();
		assertEquals(1, losses.get());
		assertEquals(State.ENDED, session.state());
	}

	@Test
	void aServerThatBreaksEachConnectionIsNotOverrun() {
		Hold hold = held("a");
		server.loseRequest = sql -> sql.equals("sync");
		pass(6000);
		assertTrue(server.connections >= 4 && server.connections <= 20, server.connections + " connections");
		server.loseRequest = sql -> false;
		pass(1000);
		assertTrue(hold.timeLeft().toMillis() > 8000);
	}

	@Test
	void aSessionThatIsSuspendedGoesOn() {
		Hold hold = held("a");
		server.loseRequest = sql -> true;
		server.reachable = false;
		pass(6000);
		server.loseRequest = sql -> false;
		server.reachable = true;
		pass(1000);
		assertEquals(State.CONNECTED, session.state());
		assertTrue(hold.timeLeft().toMillis() > 8000);
	}

	/** Queues requests while the connection is away. */
	private void together(Runnable ask) {
		server.loseRequest = sql -> true;
		clock.pass(4000);
		session.step();
		server.loseRequest = sql -> false;
		ask.run();
		settle();
	}

	@Test
	void requestsThatWaitTravelTogetherInTheirOrder() {
		List<Hold> holds = new ArrayList<>();
		together(() -> List.of("a", "a", "b").forEach(name -> holds.add(submit(name))));
		assertTrue(holds.get(0).isValid() && holds.get(2).isValid());
		assertEquals(View.WAITING, holds.get(1).view);
		assertEquals(1, server.count("| enqueue_lock a | enqueue_lock a | enqueue_lock b"));
	}

	@Test
	void aCallHasAtMost128ItemsAndThousandNames() {
		String[] names = new String[600];
		Arrays.setAll(names, i -> "n" + i);
		List<Hold> holds = new ArrayList<>();
		together(() -> {
			for (int i = 0; i < 150; i++)
				holds.add(submit("x" + i));
			for (String prefix : List.of("a", "b"))
				holds.add(session.submit(Request.exclusive(Stream.of(names).map(prefix::concat).toArray(String[]::new)), false));
		});
		assertTrue(holds.stream().allMatch(Hold::isValid));
		for (String call : server.statements)
			assertTrue(call.split(" [|] ").length <= 1001, call);
		assertEquals(0, server.statements.stream().filter(call -> call.contains("lock x0 ") && call.contains("lock x128")).count());
	}

	@Test
	void releasesGoBeforeRequests() {
		List<Hold> holds = new ArrayList<>();
		together(() -> List.of("a", "b").forEach(name -> holds.add(submit(name))));
		int before = server.statements.size();
		together(() -> {
			holds.add(submit("c"));
			session.drop(holds.get(0));
			session.drop(holds.get(1));
		});
		assertTrue(holds.get(2).isValid());
		List<String> calls = new ArrayList<>(server.statements.subList(before, server.statements.size()));
		calls.removeIf(call -> !call.contains("|"));
		assertTrue(calls.get(0).contains("release a") && calls.get(0).contains("release b"), calls.toString());
		assertEquals("sync | enqueue_lock c", calls.get(1));
	}

	@Test
	void whatIsRefusedIsOneRequestsAlone() {
		List<Hold> holds = new ArrayList<>();
		together(() -> List.of("a", "refused", "b").forEach(name -> holds.add(submit(name))));
		assertTrue(holds.get(0).isValid() && holds.get(2).isValid());
		assertEquals(Status.INVALID, holds.get(1).decided.getNow(null).status());
		assertEquals(1, server.count("enqueue_lock refused"));
	}

	@Test
	void whatTheServerCannotReadIsFoundAlone() {
		server.refuse = sql -> sql.contains("unreadable");
		server.refusal = "22021";
		List<Hold> holds = new ArrayList<>();
		together(() -> List.of("a", "unreadable", "b").forEach(name -> holds.add(submit(name))));
		pass(500);
		assertTrue(holds.get(0).isValid() && holds.get(2).isValid());
		assertEquals(Status.INVALID, holds.get(1).decided.getNow(null).status());
		assertEquals(State.CONNECTED, session.state());
	}

	@Test
	void whatPassesIsTriedAgain() {
		server.refuse = sql -> sql.contains("enqueue_lock");
		server.refusal = "55P03";
		Hold hold = submit("a");
		pass(300);
		assertEquals(View.WAITING, hold.view);
		assertTrue(server.count("enqueue_lock") >= 2 && server.count("enqueue_lock") <= 4);
		server.refuse = sql -> false;
		pass(300);
		assertTrue(hold.isValid());
	}

	@Test
	void aTtlOfItsOwnHasALeaseThatIsRevokedWhenNothingHangsOnIt() {
		Hold hold = session.submit(Request.exclusive("a").ttl(Duration.ofMillis(2000)), false);
		settle();
		assertTrue(hold.isValid());
		assertEquals(2, server.count("grant_lease"));
		assertEquals(1900, hold.timeLeft().toMillis());
		session.release(hold, null);
		settle();
		assertEquals(0, server.count("revoke_lease"));
		pass(1000);
		assertEquals(1, server.count("revoke_lease"));
		assertEquals(State.CONNECTED, session.state());
	}

	@Test
	void aShortLeaseIsLostAloneAndALongOneWithTheSession() {
		Hold brief = session.submit(Request.exclusive("a").ttl(Duration.ofMillis(2000)), false);
		Hold usual = submit("b");
		Hold lasting = session.submit(Request.exclusive("c").ttl(Duration.ofMillis(60_000)), false);
		settle();
		assertTrue(brief.isValid() && usual.isValid() && lasting.isValid());
		clock.pass(2000);
		session.check();
		assertFalse(brief.isValid());
		assertTrue(usual.isValid() && lasting.isValid());
		clock.pass(DEADLINE);
		session.check();
		assertFalse(usual.isValid() || lasting.isValid());
	}

	/** Waits for it as a caller does, with a limit that passes before anything is sent. */
	private CompletableFuture<Hold> awaited(Hold hold) throws Exception {
		CompletableFuture<Hold> result = new CompletableFuture<>();
		new Thread(() -> {
			try {
				result.complete(session.await(hold, Duration.ofMillis(1)));
			} catch (Throwable e) {
				result.completeExceptionally(e);
			}
		}).start();
		Db.until(() -> hold.impatient || result.isDone());
		return result;
	}

	@Test
	void whatTheExecutorCannotRunIsToldAllTheSame() {
		List<Error> ways = new ArrayList<>(List.of(new OutOfMemoryError("unable to create native thread")));
		session = new Session(server, new Options().ttl(Duration.ofMillis(TTL)).name("test"), task -> {
			if (ways.isEmpty())
				throw new RejectedExecutionException();
			throw ways.remove(0);
		}, clock);
		session.open();
		AtomicInteger losses = new AtomicInteger();
		for (String name : List.of("a", "b")) {
			Hold hold = held(name);
			hold.onLost(losses::incrementAndGet);
			server.force(hold.token);
		}
		pass(TTL / 2);
		assertEquals(2, losses.get());
		assertEquals(State.CONNECTED, session.state());
	}

	@Test
	void aWaitShorterThanARoundTripAcquiresWhatIsFreeAndTakesNoPlace() throws Exception {
		server.occupy("b");
		List<Hold> holds = new ArrayList<>();
		List<CompletableFuture<Hold>> results = new ArrayList<>();
		server.loseRequest = sql -> true;
		submit("x");
		for (String name : List.of("a", "b", "c")) {
			holds.add(submit(name));
			results.add(awaited(holds.get(holds.size() - 1)));
		}
		ExecutionException error = assertThrows(ExecutionException.class, () -> results.get(2).get(20, TimeUnit.SECONDS));
		assertEquals(Status.NOT_ACQUIRED, ((LockException) error.getCause()).status());
		assertTrue(error.getCause().getMessage().contains("has not answered in time"));
		assertEquals(View.OVER, holds.get(0).view);

		server.loseRequest = sql -> false;
		settle();
		holds.clear();
		together(() -> {
			for (String name : List.of("a", "b"))
				holds.add(submit(name));
			holds.forEach(hold -> hold.impatient = true);
		});
		assertTrue(holds.get(0).isValid());
		assertEquals(Status.NOT_ACQUIRED, holds.get(1).decided.getNow(null).status());
		assertEquals(1, server.rows.values().stream().filter(row -> row.name.equals("b")).count());
	}
}
