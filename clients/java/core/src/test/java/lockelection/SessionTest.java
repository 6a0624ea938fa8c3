package lockelection;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
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
		session.step();
		assertEquals(1, server.count("keep_alive"));
		assertEquals(DEADLINE - 1000, hold.timeLeft().toMillis());
	}

	@Test
	void aRenewalIsSentAtAThirdOfTheTtl() {
		held("a");
		long wait = TimeUnit.NANOSECONDS.toMillis(settle());
		assertTrue(wait >= 2990 && wait <= 3670, "waits " + wait);
		clock.pass(2900);
		settle();
		assertEquals(0, server.count("keep_alive"));
		clock.pass(800);
		settle();
		assertEquals(1, server.count("keep_alive"));
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
		server.validityMillis = 3000;
		pass(3700);
		assertEquals(1, server.count("keep_alive"));
		assertTrue(hold.timeLeft().toMillis() >= DEADLINE - 3700, "it takes nothing back: " + hold.timeLeft());
		pass(5600);
		long renewals = server.count("keep_alive");
		assertTrue(renewals >= 5 && renewals <= 8, renewals + " renewals, one in a second");
		assertTrue(hold.timeLeft().toMillis() <= 2500, "left " + hold.timeLeft());
		server.validityMillis = 0;
		renewals = server.count("keep_alive");
		pass(700);
		assertTrue(server.count("keep_alive") <= renewals + 3, "it renews without a pause");
		assertTrue(hold.isValid());
		server.validityMillis = Long.MAX_VALUE / 1_000_000;
		pass(600);
		assertTrue(hold.timeLeft().toMillis() <= DEADLINE && hold.timeLeft().toMillis() >= DEADLINE - 650, "left " + hold.timeLeft());
		server.validityMillis = 0;
		pass(DEADLINE);
		assertEquals(State.ENDED, session.state());
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
	void aWaitShorterThanARoundTripAcquiresWhatIsFreeAndTakesNoPlace() throws Exception {
		CompletableFuture<Hold> free = awaited(submit("a"));
		settle();
		assertTrue(free.get(20, TimeUnit.SECONDS).isValid());

		server.occupy("b");
		Hold late = submit("b");
		CompletableFuture<Hold> held = awaited(late);
		settle();
		assertEquals(View.OVER, late.view);
		ExecutionException error = assertThrows(ExecutionException.class, () -> held.get(20, TimeUnit.SECONDS));
		assertEquals(Status.NOT_ACQUIRED, ((LockException) error.getCause()).status());
		settle();
		assertEquals(1, server.rows.values().stream().filter(row -> row.name.equals("b")).count());

		CompletableFuture<Hold> silent = awaited(submit("c")); // nobody asks the server
		error = assertThrows(ExecutionException.class, () -> silent.get(20, TimeUnit.SECONDS));
		assertEquals(Status.NOT_ACQUIRED, ((LockException) error.getCause()).status());
		assertTrue(error.getCause().getMessage().contains("has not answered in time"));
	}

	@Test
	void whoMayNotEndTheOldBackendLooksForWhatItMayStillDo() {
		held("a");
		server.loseRequest = sql -> sql.contains("enqueue_lock(");
		server.mayNotEnd = true;
		Hold hold = submit("b");
		session.step();
		server.loseRequest = sql -> false;
		pass(500);
		assertTrue(hold.isValid());
		long late = server.late(session.owner + hold.asked, session.lease.id, "b"); // the old request after all
		pass(8000);
		assertFalse(server.rows.containsKey(late));
		assertTrue(hold.isValid());
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
		assertEquals(0, server.statements.subList(statements, server.statements.size()).stream()
				.filter(sql -> sql.contains("keep_alive")).count());
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
		server.notifications.add(new String[] {"le_a", "{\"event\":\"granted\",\"token\":\"" + hold.token + "\"}"});
		long looked = server.count("is_held");
		pass(50);
		assertEquals(looked + 1, server.count("is_held"));
		assertEquals(View.WAITING, hold.view);
		server.release(holder);
		server.notifications.add(new String[] {"le_a", "{\"event\":\"granted\",\"token\":\"" + hold.token + "\"}"});
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
		long before = server.count("lease_holds");
		pass(1000);
		long looks = server.count("lease_holds") - before;
		assertTrue(looks >= 3 && looks <= 5, looks + " looks");
		server.release(holder);
		pass(300);
		assertTrue(hold.isValid());
	}

	private void refuse(String listen) {
		server.refuse = sql -> sql.startsWith(listen);
		long holder = server.occupy("a");
		Hold hold = waiting("a");
		pass(1000);
		assertEquals(1, server.count(listen));
		server.release(holder);
		pass(350);
		assertTrue(hold.isValid());
		assertEquals(1, server.connections);
	}

	@Test
	void whereItsTestOfListenIsRefusedItLooksFourTimesASecond() {
		refuse("LISTEN le_self_");
	}

	@Test
	void whereListenIsRefusedItLooksFourTimesASecond() {
		refuse("LISTEN le_a");
	}

	@Test
	void nobodyListensWhenNobodyWaits() {
		server.occupy("a");
		Hold hold = waiting("a");
		assertEquals(1, server.count("LISTEN le_a") - server.count("UNLISTEN le_a"));
		session.drop(hold);
		settle();
		assertEquals(1, server.count("UNLISTEN le_a"));
		assertEquals(1, server.rows.size());
	}

	@Test
	void whatIsMissingIsLost() {
		Hold hold = held("a");
		Hold other = held("b");
		AtomicInteger losses = losses(hold);
		server.release(hold.token);
		pass(4000);
		assertEquals(1, losses.get());
		assertTrue(other.isValid());
		assertEquals(State.CONNECTED, session.state());
	}

	@Test
	void aPlaceThatIsMissingIsLost() {
		server.occupy("a");
		Hold hold = waiting("a");
		server.release(hold.token);
		pass(6000);
		assertEquals(Status.LOST, hold.decided.join().status());
	}

	@Test
	void aLostAnswerIsAdopted() {
		server.loseAnswer = sql -> sql.contains("enqueue_lock");
		Hold hold = submit("a");
		settle();
		server.loseAnswer = sql -> false;
		settle();
		assertEquals(2, server.connections);
		assertTrue(hold.isValid());
		assertEquals(1, server.count("enqueue_lock"));
		assertTrue(server.rows.containsKey(hold.token));
	}

	@Test
	void theOldBackendEndsBeforeItLooks() {
		server.loseAnswer = sql -> sql.contains("enqueue_lock");
		submit("a");
		settle();
		int from = 0;
		while (!server.statements.get(from).contains("enqueue_lock"))
			from++;
		List<String> after = server.statements.subList(from, server.statements.size());
		int ended = -1;
		int looked = -1;
		for (int i = after.size() - 1; i >= 0; i--) {
			ended = after.get(i).contains("pg_terminate_backend") ? i : ended;
			looked = after.get(i).contains("lease_holds") ? i : looked;
		}
		assertTrue(ended > 0 && ended < looked, ended + " " + looked);
		assertTrue(after.get(ended).contains("1, then"), after.get(ended));
	}

	@Test
	void aLostRequestIsSentAgain() {
		server.loseRequest = sql -> sql.contains("enqueue_lock") && server.connections == 1;
		Hold hold = submit("a");
		settle();
		assertTrue(hold.isValid());
		assertEquals(2, server.count("enqueue_lock"));
		assertEquals(1, server.rows.size());
	}

	@Test
	void aGhostIsGivenBack() {
		server.loseAnswer = sql -> sql.contains("enqueue_lock");
		server.reachable = true;
		Hold hold = submit("a");
		session.step();
		server.reachable = false;
		settle();
		session.drop(hold);
		assertTrue(server.isHeld("a"));
		server.reachable = true;
		server.loseAnswer = sql -> false;
		pass(200);
		assertFalse(server.isHeld("a"));
		assertTrue(server.rows.isEmpty());
		assertEquals(Status.CANCELED, hold.decided.join().status());
	}

	@Test
	void whatNobodyAskedForIsGivenBack() {
		server.rows.put(7L, new FakeServer.Row(session.lease.id, "late", 7, session.owner + "99", true));
		held("a");
		pass(4000);
		assertFalse(server.rows.containsKey(7L));
		assertTrue(server.isHeld("a"));
	}

	@Test
	void anotherOnesRowsAreLeftAlone() {
		server.rows.put(7L, new FakeServer.Row(session.lease.id, "mine", 7, "of the application", true));
		held("a");
		pass(4000);
		assertTrue(server.rows.containsKey(7L));
	}

	@Test
	void aLostReleaseIsSentAgainAndWasDone() {
		Hold hold = held("a");
		server.loseAnswer = sql -> sql.contains("release_lock") && server.connections == 1;
		session.release(hold, null);
		settle();
		pass(300);
		assertEquals(2, server.count("release_lock"));
		assertTrue(hold.released.isDone());
		assertEquals(null, hold.released.join());
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
		server.loseRequest = sql -> sql.contains("keep_alive");
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

	@Test
	void requestsThatWaitTravelTogetherAndNonePassesAnotherOfItsName() {
		Hold first = submit("a");
		Hold second = submit("a");
		Hold third = submit("b");
		settle();
		assertTrue(first.isValid() && third.isValid());
		assertEquals(View.WAITING, second.view);
		assertTrue(server.statements.stream().anyMatch(sql -> sql.contains("enqueue_each") && sql.contains("[a, b]")));
		session.release(first, null);
		session.release(third, null);
		settle();
		assertEquals(1, server.count("release_each"));
	}

	@Test
	void whatIsRefusedTogetherIsTriedAlone() {
		Hold good = submit("a");
		Hold bad = submit("refused");
		Hold also = submit("b");
		settle();
		assertTrue(good.isValid() && also.isValid());
		assertEquals(Status.INVALID, bad.decided.join().status());
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
}
