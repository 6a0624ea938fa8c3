package lockelection;

import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Function;
import java.util.stream.Collectors;
import lockelection.Clock.Moment;
import lockelection.LockException.Status;

/**
 * One connection, the leases of what is held, and two threads. The worker alone uses the connection: {@link #step()}
 * does the most urgent thing, one statement at a time. The watcher looks at the deadlines, whatever the worker hangs
 * in. One lock protects all that is not final or volatile, and is not held during I/O or a callback.
 */
final class Session {
	private static final long MILLISECOND = 1_000_000L;
	private static final long SECOND = 1000 * MILLISECOND;
	private static final Duration LONGEST = Duration.ofDays(100 * 365);
	private static final long CONNECT_MILLIS = 5000;
	private static final long PAUSE = 50 * MILLISECOND;
	/** The validity in milliseconds, whatever the style of intervals is. */
	private static final String RENEW = "SELECT pg_catalog.floor(pg_catalog.date_part('epoch', %s.keep_alive(?)) * 1000)::bigint";
	/** Times that are looked behind a pooler, for a statement that may still be running. */
	private static final int LATE_LOOKS = 3;

	final Lease lease;
	final String owner;
	volatile long lastEvent;
	private final Options options;
	private final Wire.Connector connector;
	private final Clock clock;
	private final long origin;
	private final Executor executor;
	private final ReentrantLock lock = new ReentrantLock();
	private final Condition work = lock.newCondition();
	private final Condition tick = lock.newCondition();
	private final Map<Duration, Lease> leases = new LinkedHashMap<>();
	private final List<Long> revocations = new ArrayList<>();
	private final Requests requests = new Requests(this);
	private final Waits waits = new Waits(this, requests);
	private final Deque<Operation> operations = new ArrayDeque<>();
	private final Thread worker;
	private final Thread watcher;
	private volatile State state = State.SUSPENDED;
	private volatile Wire wire;
	private volatile String schema;
	private List<Runnable> told = new ArrayList<>();
	private boolean dirty;
	private boolean requestsFirst;
	private boolean lostAnswer;
	private int lateLooks;
	private long lateLookAt;
	private int oldPid;
	private String oldStarted;
	private int failures;
	/** Why there is no connection. */
	private volatile String trouble;
	private long retryAt;
	private boolean closing;
	private boolean windingUp;
	private long closeUntil = Long.MAX_VALUE;
	private volatile boolean finished;
	private LockException end;

	/** What a call wants from the server. */
	private static final class Operation {
		final String sql;
		final Object[] arguments;
		final CompletableFuture<List<Object[]>> answer = new CompletableFuture<>();
		volatile boolean sent;

		Operation(String sql, Object[] arguments) {
			this.sql = sql;
			this.arguments = arguments;
		}
	}

	Session(Wire.Connector connector, Options options, Executor executor, Clock clock) {
		this.connector = connector;
		this.options = options;
		this.executor = executor;
		this.clock = clock;
		origin = clock.nanos();
		owner = String.format("%s#%016x-", options.ownerName(), ThreadLocalRandom.current().nextLong());
		lease = new Lease(options.ttl);
		leases.put(lease.ttl, lease);
		worker = new Thread(this::work, "lock_election " + options.name);
		watcher = new Thread(this::watch, "lock_election deadline " + options.name);
		worker.setDaemon(true);
		watcher.setDaemon(true);
	}

	/** Connects, and grants the lease. An error is told at once. */
	void open() {
		lock();
		try {
			connect();
			grant(lease);
			state = State.CONNECTED;
		} catch (SQLException e) {
			disconnect();
			throw LockException.of(e);
		} finally {
			unlock();
		}
	}

	void start() {
		worker.start();
		watcher.start();
	}

	// --- the lock, and what is told after it ---

	void lock() {
		lock.lock();
	}

	void unlock() {
		List<Runnable> now = List.of();
		if (lock.getHoldCount() == 1 && !told.isEmpty()) {
			now = told;
			told = new ArrayList<>();
		}
		lock.unlock();
		for (Runnable call : now) {
			try {
				executor.execute(call);
			} catch (RejectedExecutionException e) {
				call.run();
			}
		}
	}

	/** Locked. Runs it in the executor when the lock is free. What it throws is not the session's. */
	void tell(Runnable call) {
		told.add(() -> {
			try {
				call.run();
			} catch (Throwable e) {
				report(e);
			}
		});
	}

	/** What the application's own code throws, where nobody catches it. */
	static void report(Throwable error) {
		Thread thread = Thread.currentThread();
		thread.getUncaughtExceptionHandler().uncaughtException(thread, error);
	}

	/** Locked. */
	void wake() {
		dirty = true;
		work.signal();
	}

	// --- what other threads ask ---

	State state() {
		return state != State.ENDED && lease.left() <= 0 ? State.ENDED : state;
	}

	String schema() {
		return schema;
	}

	/** A fence has not found the functions: asks for one of them, so that the connection learns where they are. */
	boolean learnsAnother(String than) {
		try {
			run(Status.UNAVAILABLE, "SELECT %s.is_held('-', 0)");
		} catch (InterruptedException e) {
			Thread.currentThread().interrupt();
		} catch (LockException e) {
			// the caller has an error to tell
		}
		return !than.equals(schema);
	}

	long now() {
		return clock.nanos() - origin;
	}

	long callMillis() {
		lock.lock();
		try {
			long limit = lease.callMillis();
			for (Lease l : leases.values())
				limit = Math.min(limit, l.callMillis());
			return limit;
		} finally {
			lock.unlock();
		}
	}

	Hold acquire(Request request, Duration wait) throws InterruptedException {
		Arguments.given(request, "the request");
		boolean attempt = Arguments.limit(wait, "the wait") != null && wait.isZero();
		Hold hold = submit(request, attempt);
		return await(hold, attempt ? Duration.ofMillis(callMillis()) : wait);
	}

	Hold submit(Request request, boolean attempt) {
		lock();
		try {
			checkOpen();
			Duration ttl = request.ttl == null ? lease.ttl : request.ttl;
			Lease on = leases.computeIfAbsent(ttl, Lease::new);
			Hold hold = request.kind == Request.Kind.TERM ? new Term(this, on, request, attempt)
					: new Hold(this, on, request, attempt);
			requests.add(hold);
			return hold;
		} finally {
			unlock();
		}
	}

	/** Requests that are submitted at once travel together. */
	List<Hold> submit(Collection<String> names, Function<String, Request> request) {
		List<Request> all = names.stream().map(request).collect(Collectors.toList()); // none is submitted if one is invalid
		lock();
		try {
			return all.stream().map(one -> submit(one, true)).collect(Collectors.toList());
		} finally {
			unlock();
		}
	}

	/** Nobody wants it any more, whatever becomes of it. */
	void drop(Hold hold) {
		giveUp(hold, LockException.of(Status.CANCELED, "it is not wanted any more"));
		release(hold, null);
	}

	/**
	 * Waits for a hold until it is granted. When the limit passes, or at an interrupt, its place is given back. The
	 * limit bounds the time in the queue; the first answer has at least the limit of any call, and then no place is
	 * taken any more.
	 */
	Hold await(Hold hold, Duration limit) throws InterruptedException {
		LockException error;
		try {
			long call = MILLISECOND * callMillis();
			if (limit == null || isDecided(hold, nanos(limit)))
				error = hold.decided.get();
			else if (hasPlace(hold))
				error = giveUp(hold, LockException.of(Status.NOT_ACQUIRED, hold.request + " was not granted in time"));
			else if (isDecided(hold, call - nanos(limit)))
				error = hold.decided.get();
			else
				error = giveUp(hold, LockException.of(hold.attempt ? Status.UNAVAILABLE : Status.NOT_ACQUIRED,
						hold.request + ": the server has not answered in time" + (trouble == null ? "" : ": " + trouble)));
		} catch (InterruptedException e) {
			drop(hold);
			throw e;
		} catch (ExecutionException e) {
			throw new IllegalStateException(e);
		}
		if (error != null)
			throw LockException.again(error);
		return hold;
	}

	private static boolean isDecided(Hold hold, long nanos) throws InterruptedException, ExecutionException {
		try {
			hold.decided.get(nanos, TimeUnit.NANOSECONDS);
			return true;
		} catch (TimeoutException e) {
			return false;
		}
	}

	/** Where it has none yet, it gets none any more. */
	private boolean hasPlace(Hold hold) {
		lock();
		try {
			hold.impatient = hold.phase != Hold.Phase.QUEUED;
			return !hold.impatient;
		} finally {
			unlock();
		}
	}

	private LockException giveUp(Hold hold, LockException error) {
		lock();
		try {
			if (hold.isWanted())
				requests.over(hold, error);
			return hold.failure;
		} finally {
			unlock();
		}
	}

	/** False: it had been lost before. */
	boolean release(Hold hold, Duration holdFor) {
		lock();
		try {
			checkDeadlines();
			if (hold.view == Hold.View.HELD) {
				try {
					hold.holdFor = holdFor == null ? null : Arguments.holdFor(holdFor);
				} catch (LockException e) {
					hold.notClosed = e;
				}
				requests.over(hold, LockException.of(Status.CANCELED, "it was released"));
			}
			return !hold.isLost();
		} finally {
			unlock();
		}
	}

	/**
	 * Runs a statement that can be sent again. Waits at most as long as a statement may take.
	 *
	 * @param ifSent what no answer means once it was sent
	 */
	List<Object[]> run(Status ifSent, String sql, Object... arguments) throws InterruptedException {
		Operation operation = new Operation(sql, arguments);
		lock();
		try {
			checkOpen();
			operations.add(operation);
			wake();
		} finally {
			unlock();
		}
		try {
			return operation.answer.get(callMillis(), TimeUnit.MILLISECONDS);
		} catch (ExecutionException e) {
			throw LockException.again((LockException) e.getCause());
		} catch (TimeoutException e) {
			throw LockException.of(operation.sent ? ifSent : Status.UNAVAILABLE, "the server has not answered in time");
		} finally {
			operation.answer.cancel(false);
		}
	}

	void observe(Observer observer, boolean add) {
		lock();
		try {
			waits.observe(observer, add);
			wake();
		} finally {
			unlock();
		}
	}

	/** Gives all back and revokes the leases. True if the server has confirmed that in time. */
	boolean close(Duration limit) {
		lock();
		try {
			if (!closing) {
				closing = true;
				closeUntil = now() + nanos(limit);
				LockException canceled = LockException.of(Status.CANCELED, "the session was closed");
				requests.all(l -> true).forEach(hold -> {
					if (hold.view != Hold.View.OVER)
						requests.over(hold, canceled);
				});
				end = canceled;
				set(State.ENDED);
				wake();
			}
		} finally {
			unlock();
		}
		Thread self = Thread.currentThread();
		if (self == worker || self == watcher)
			return false; // by a listener, in an executor that runs it there: the worker goes on when it returns
		join(worker, Math.max(1, TimeUnit.NANOSECONDS.toMillis(nanos(limit))));
		if (worker.isAlive()) {
			Wire hanging = wire;
			if (hanging != null)
				hanging.abort();
			worker.interrupt();
			join(worker, 1000);
		}
		join(watcher, 1000);
		return finished && revocations.isEmpty();
	}

	/** An interrupt does not end the wait, and is kept: it ends the work, and this gives back what the work had. */
	private static void join(Thread thread, long millis) {
		long until = System.nanoTime() + millis * MILLISECOND;
		boolean interrupted = false;
		for (long left = millis; thread.isAlive() && left > 0; left = (until - System.nanoTime()) / MILLISECOND) {
			try {
				thread.join(left);
			} catch (InterruptedException e) {
				interrupted = true;
			}
		}
		if (interrupted)
			Thread.currentThread().interrupt();
	}

	/** The server has said that it is not held. What is left of several is given back. */
	void lost(Hold hold, LockException why) {
		lock();
		try {
			if (hold.view == Hold.View.HELD) {
				requests.over(hold, why);
				hold.lease.renewAt = 0;
				wake();
			}
		} finally {
			unlock();
		}
	}

	// --- ends ---

	/** Locked. */
	private void checkOpen() {
		checkDeadlines();
		if (end != null)
			throw LockException.again(end);
	}

	/** What has passed its deadline is told lost. */
	void check() {
		lock();
		try {
			checkDeadlines();
		} finally {
			unlock();
		}
	}

	/** Locked. What has passed its deadline is lost. */
	private void checkDeadlines() {
		for (Lease l : List.copyOf(leases.values())) {
			if (l.id != 0 && !l.ended && l.left() <= 0)
				lose(l, LockException.of(Status.LOST, "no renewal has succeeded before the deadline"
						+ (state == State.SUSPENDED && trouble != null ? ": " + trouble : "")), false);
		}
	}

	/** Locked. With the session's lease the session ends. */
	private void lose(Lease l, LockException why, boolean gone) {
		if (l != lease) {
			endLease(l, why, gone);
			return;
		}
		for (Lease each : List.copyOf(leases.values()))
			endLease(each, why, gone && each == l);
		if (end == null) {
			end = LockException.of(Status.LOST, "the session has ended: " + why.getMessage());
			closeUntil = now() + TimeUnit.MILLISECONDS.toNanos(lease.callMillis());
		}
		set(State.ENDED);
		wake();
	}

	/** Locked. All that hangs on it is lost, and what the server still has of it is to be revoked. */
	private void endLease(Lease l, LockException why, boolean gone) {
		l.ended = true;
		leases.remove(l.ttl);
		if (l.id != 0 && !gone)
			revocations.add(l.id);
		for (Hold hold : requests.all(on -> on == l)) {
			if (hold.view != Hold.View.OVER)
				requests.over(hold, why);
			requests.done(hold, null);
		}
	}

	/** Locked. */
	private void set(State next) {
		if (state == next)
			return;
		state = next;
		tell(() -> options.onState.accept(next));
		tick.signal();
	}

	// --- threads ---

	private void work() {
		try {
			long wait = 0;
			while (wait >= 0) {
				if (wait > 0)
					pause(wait);
				wait = step();
			}
		} finally {
			if (!finished) // by a fault of ours, or for lack of memory: nobody renews any more
				abandon();
		}
	}

	private void abandon() {
		lock();
		try {
			finished = true;
			lose(lease, LockException.of(Status.LOST, "the session's thread has ended"), false);
			disconnect();
		} finally {
			unlock();
		}
	}

	private void pause(long nanos) {
		lock();
		try {
			if (!dirty)
				work.awaitNanos(nanos);
		} catch (InterruptedException e) {
			// close() ends a connection attempt so, and then looks again
		} finally {
			unlock();
		}
	}

	/** Now and then it looks without a deadline in sight: waiting does not count the time of a suspended machine. */
	private void watch() {
		while (!finished) {
			check(); // tells at once, as waiting would not
			lock();
			try {
				long left = SECOND;
				for (Lease l : leases.values()) {
					if (l.id != 0)
						left = Math.min(left, Math.min(l.left(), l.ttlNanos / 10));
				}
				if (!finished)
					tick.awaitNanos(Math.max(left, MILLISECOND));
			} catch (InterruptedException e) {
				// nobody interrupts it
			} finally {
				unlock();
			}
		}
	}

	/** Does the most urgent thing. Returns the nanoseconds until there may be more; -1: never. */
	long step() {
		lock();
		try {
			dirty = false;
			checkDeadlines();
			if (state == State.ENDED)
				return windUp();
			long now = now();
			if (wire == null) {
				if (now < retryAt)
					return retryAt - now;
				reconnect();
				return 0;
			}
			if (work(now))
				return 0;
			long next = waits.next(now, requests.next(now));
			for (Lease l : leases.values()) {
				if (l.id != 0)
					next = Math.min(next, l.renewAt);
			}
			if (lateLooks > 0)
				next = Math.min(next, lateLookAt);
			return Math.max(next - now(), MILLISECOND / 10);
		} catch (SQLException e) {
			return wire == null ? 0 : PAUSE;
		} finally {
			unlock();
		}
	}

	/** Locked at entry and exit. True: something was done. */
	private boolean work(long now) throws SQLException {
		for (Lease l : leases.values()) {
			if (l.id != 0 && now >= l.renewAt) {
				renew(l);
				return true;
			}
		}
		if (lostAnswer) {
			findOut();
			return true;
		}
		if (lateLooks > 0 && now >= lateLookAt)
			lookLater(lateLooks - 1);
		for (Lease l : leases.values()) {
			if (l.look) {
				waits.look(l);
				return true;
			}
		}
		if (!revocations.isEmpty()) {
			revoke();
			return true;
		}
		requestsFirst = !requestsFirst;
		return requestsFirst && requests.work(now) || waits.work(now) || requests.giveBack(now) || operate()
				|| requests.work(now);
	}

	// --- the connection ---

	/** Locked at entry and exit, not in between. */
	private void connect() throws SQLException {
		long limit = state == State.SUSPENDED && lease.id != 0 ? Math.max(200, lease.ttlNanos / 4_000_000)
				: CONNECT_MILLIS;
		limit = Math.min(limit, CONNECT_MILLIS);
		if (closing)
			limit = Math.min(limit, Math.max(1, (closeUntil - now()) / MILLISECOND));
		Wire made;
		long most = limit;
		unlock();
		try {
			made = connector.connect(most);
		} catch (RuntimeException e) {
			throw Url.hidden(e, "08001");
		} finally {
			lock();
		}
		wire = made;
		trouble = null;
		schema = made.schema();
		waits.connected(made);
	}

	/** Locked at entry and exit. */
	private void reconnect() {
		try {
			connect();
			for (Lease l : leases.values()) {
				l.renewAt = 0;
				l.look = true;
			}
		} catch (SQLException e) {
			trouble = e.getMessage();
			retryAt = now() + delay();
		}
	}

	/**
	 * After a failure: 50 ms, and twice as long each time, at most a twentieth of the TTL. What counts is that a renewal
	 * fails or succeeds: a connection that is made and breaks again is a failure.
	 */
	private long delay() {
		long most = lease.longestPause();
		failures++;
		return jitter(Math.min(PAUSE << Math.max(0, Math.min(failures - 2, 6)), most));
	}

	static long jitter(long nanos) {
		return (long) (nanos * ThreadLocalRandom.current().nextDouble(0.9, 1.1));
	}

	/** Locked. */
	private void disconnect() {
		if (wire != null)
			wire.abort();
		wire = null;
		retryAt = failures == 0 ? 0 : now() + delay();
		failures = Math.max(failures, 1);
		waits.disconnected();
		if (state == State.CONNECTED)
			set(State.SUSPENDED);
	}

	Wire wire() {
		return wire;
	}

	/** Locked at entry and exit. What was announced, after a pause. */
	List<String[]> receive(long pauseNanos) {
		Wire on = wire;
		if (on == null)
			return List.of();
		List<String[]> heard = List.of();
		boolean broken = false;
		unlock();
		try {
			if (pauseNanos > 0)
				LockSupport.parkNanos(pauseNanos);
			heard = on.notifications();
		} catch (SQLException | RuntimeException e) {
			broken = true;
		} finally {
			lock();
		}
		if (broken)
			disconnect();
		if (!heard.isEmpty())
			lastEvent = now();
		return heard;
	}

	/**
	 * Locked at entry and exit, not in between. Where the connection ends in the middle of a statement, its outcome is
	 * not known, and its backend may still be at it.
	 */
	List<Object[]> ask(String sql, Object... arguments) throws SQLException {
		Wire on = wire;
		if (on == null)
			throw new SQLException("not connected", "08003");
		checkDeadlines();
		if (end != null && !windingUp)
			throw new SQLException(end.getMessage(), "LE001");
		long limit = callMillis();
		if (end != null)
			limit = Math.max(1, Math.min(limit, (closeUntil - now()) / MILLISECOND));
		SQLException failure;
		long most = limit;
		unlock();
		try {
			return on.query(most, sql, arguments);
		} catch (SQLException e) {
			failure = e;
		} catch (RuntimeException e) {
			failure = new SQLException(e.toString(), "08006", e);
		} finally {
			lock();
			lastEvent = now();
			schema = on.schema();
			checkDeadlines();
		}
		String sqlState = String.valueOf(failure.getSQLState());
		if (LockException.breaks(sqlState)) {
			lostAnswer = true;
			boolean known = !on.pooled() && on.started() != null;
			lateLooks = known ? 0 : LATE_LOOKS + 1;
			oldPid = known ? on.pid() : 0;
			oldStarted = on.started();
			disconnect();
		} else if (LockException.of(failure).status() == Status.UNKNOWN)
			lostAnswer = true;
		throw failure;
	}

	/**
	 * Locked at entry and exit. The old connection's backend must have ended before what it has done is looked at. A role
	 * that was set at once (ALTER ROLE .. SET role) may not end it: then more looks follow.
	 */
	private void findOut() throws SQLException {
		try {
			if (isOldBackendThere())
				return;
		} catch (SQLException e) {
			if (!"42501".equals(e.getSQLState()))
				throw e;
			lateLooks = LATE_LOOKS + 1;
		}
		oldPid = 0;
		lostAnswer = false;
		lookLater(lateLooks - 1);
	}

	private boolean isOldBackendThere() throws SQLException {
		return oldPid != 0 && !ask("SELECT pg_catalog.pg_terminate_backend(pid, ?) FROM pg_catalog.pg_stat_activity"
				+ " WHERE pid = ? AND backend_start = ?::timestamptz", Math.min(1000, callMillis() / 2), oldPid, oldStarted)
				.isEmpty();
	}

	/** Locked. */
	private void lookLater(int left) {
		leases.values().forEach(l -> l.look = true);
		lateLooks = Math.max(left, 0);
		lateLookAt = now() + TimeUnit.MILLISECONDS.toNanos(callMillis());
	}

	// --- leases ---

	/** Locked at entry and exit. */
	void grant(Lease l) throws SQLException {
		Moment sent = clock.now();
		long id = (Long) ask("SELECT %s.grant_lease(?::interval, ?)", milliseconds(l.ttl),
				owner.substring(0, owner.length() - 1)).get(0)[0];
		l.renewed(sent, l.ttlNanos);
		l.id = id;
		l.renewAt = sent.nanos - origin + jitter(l.pause(l.ttlNanos));
		if (leases.get(l.ttl) != l)
			revocations.add(l.id); // nobody waits for it any more
		tick.signal();
	}

	/** Locked. A lease that was not granted, and that nobody asks for any more, bounds no call. */
	void forget(Lease l) {
		if (l.id == 0 && l != lease && requests.all(on -> on == l).isEmpty())
			leases.remove(l.ttl, l);
	}

	/** Of a limit of time; one that is very long is as good as none. */
	static long nanos(Duration limit) {
		return bounded(limit).toNanos();
	}

	static String milliseconds(Duration duration) {
		return bounded(duration).toMillis() + " ms";
	}

	private static Duration bounded(Duration duration) {
		if (duration.compareTo(LONGEST) > 0)
			return LONGEST;
		return duration.compareTo(LONGEST.negated()) < 0 ? LONGEST.negated() : duration;
	}

	/** Locked at entry and exit. An answer after the deadline is too late: then the lease has ended meanwhile. */
	private void renew(Lease l) {
		if (l != lease && requests.all(on -> on == l).isEmpty()) {
			endLease(l, LockException.of(Status.CANCELED, "nothing hung on it"), false);
			return;
		}
		Moment sent = clock.now();
		try {
			Long validity = (Long) ask(RENEW, l.id).get(0)[0];
			if (l.ended)
				return;
			if (validity == null) {
				lose(l, LockException.of(Status.LOST, "the server has ended the lease"), true);
				return;
			}
			l.renewed(sent, validity * MILLISECOND);
			l.renewAt = sent.nanos - origin + jitter(l.pause(validity * MILLISECOND));
			l.look = !requests.all(on -> on == l).isEmpty();
			failures = 0;
			requests.retryRefused();
			if (l == lease && end == null)
				set(State.CONNECTED);
		} catch (SQLException e) {
			if (wire != null)
				l.renewAt = now() + delay();
			if (end == null)
				set(State.SUSPENDED);
		}
	}

	/** Locked. The server says that it has ended. */
	void gone(Lease l) {
		lose(l, LockException.of(Status.LOST, "the server has ended the lease"), true);
	}

	/** Locked at entry and exit. */
	private void revoke() throws SQLException {
		try {
			ask("SELECT %s.revoke_lease(?)", revocations.get(0));
			revocations.remove(0);
		} catch (SQLException e) {
			if (wire != null && !LockException.of(e).passes())
				revocations.remove(0);
			throw e;
		}
	}

	// --- the rest ---

	/** Locked at entry and exit. */
	private boolean operate() {
		Operation operation = operations.poll();
		if (operation == null)
			return false;
		if (operation.answer.isDone())
			return true;
		operation.sent = true;
		try {
			operation.answer.complete(ask(operation.sql, operation.arguments));
		} catch (SQLException e) {
			LockException error = LockException.of(e);
			if (!error.passes())
				operation.answer.completeExceptionally(error);
			else {
				operations.addFirst(operation);
				requests.pause();
			}
		}
		return true;
	}

	/** Locked at entry and exit. The session has ended: what has to be closed for a while, then all leases at once. */
	private long windUp() {
		operations.forEach(operation -> operation.answer.completeExceptionally(end));
		operations.clear();
		windingUp = true;
		try {
			boolean late = now() >= closeUntil;
			if (!late && wire == null && closing) {
				if (now() < retryAt)
					return Math.min(retryAt, closeUntil) - now();
				reconnect();
				return 0;
			}
			if (!late && wire != null && requests.releaseClosed())
				return 0;
			for (Lease l : List.copyOf(leases.values()))
				endLease(l, end, false);
			while (!late && wire != null && !revocations.isEmpty())
				revoke();
			if (!late && wire != null && waits.listens())
				ask("UNLISTEN *");
		} catch (SQLException e) {
			if (closing && now() < closeUntil)
				return wire == null ? 0 : PAUSE;
		}
		Wire last = wire;
		wire = null;
		finished = true;
		tick.signal();
		if (last != null) {
			unlock();
			try {
				if (revocations.isEmpty())
					last.close();
				else
					last.abort();
			} finally {
				lock();
			}
		}
		return -1;
	}
}
