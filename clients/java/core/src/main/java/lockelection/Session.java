package lockelection;

import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
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
import java.util.concurrent.locks.ReentrantLock;
import lockelection.Clock.Moment;
import lockelection.Hold.View;
import lockelection.LockException.Status;

/**
 * One connection, the leases of what is held, and two threads. A call of lease_sync(), a turn, carries all that is
 * asked for at the time. A caller that finds the connection free makes the turn itself; otherwise the worker does,
 * which also renews, connects again and listens. The watcher looks at the deadlines, whatever the worker hangs in. One
 * lock protects all that is not final or volatile, and is not held during I/O or a callback.
 */
final class Session {
	private static final long MILLISECOND = 1_000_000L;
	private static final long SECOND = 1000 * MILLISECOND;
	private static final long CONNECT_MILLIS = 5000;
	private static final long PAUSE = 50 * MILLISECOND;
	/** A turn that takes longer is not made by a caller the next time: nothing could interrupt it. */
	private static final long SLOW = 100 * MILLISECOND;
	/** After this time the interrupt of a caller ends its turn, with the connection. */
	private static final long INTERRUPTIBLE = 200 * MILLISECOND;
	/**
	 * The driver cannot be woken up while it waits for a notification, and takes a millisecond to see that there is
	 * none. The worker waits so long at a time, where nothing is held and callers have just entered a queue. Otherwise
	 * the next call may come soon, and its reply has all news: it looks only when so long nothing has come.
	 */
	private static final long HEAR = 10 * MILLISECOND;
	/** Between two looks at what waits, or is observed: where LISTEN works, and where it does not. */
	private static final long LOOK = 5 * SECOND;
	private static final long DEAF_LOOK = 250 * MILLISECOND;

	final Lease lease;
	final String owner;
	/** Holds that are held, and threads that were woken up: under the lock. */
	int held;
	long answered;
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
	private final Deque<Operation> operations = new ArrayDeque<>();
	private final List<Observer> observers = new ArrayList<>();
	private final Channels channels = new Channels(leases.values(), observers);
	private final Thread worker;
	private final Thread watcher;
	private volatile State state = State.SUSPENDED;
	private volatile Wire wire;
	private volatile String schema;
	private List<Runnable> told = new ArrayList<>();
	/** There is something to do for the worker, which rests until then if nobody wakes it. */
	private boolean dirty;
	private long restsUntil;
	/** A thread uses the connection. */
	private boolean busy;
	/** The caller that makes a turn, and since when. */
	private Thread maker;
	private long madeSince;
	private boolean slow;
	private boolean others;
	private long requests;
	/** When to wait for notifications, if any may come. */
	private long hearAt;
	private int failures;
	/** Why there is no connection, or no renewal. */
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
		lease = new Lease(this, options.ttl);
		leases.put(lease.ttl, lease);
		worker = new Thread(this::work, "lock_election " + options.name);
		watcher = new Thread(this::watch, "lock_election deadline " + options.name);
		worker.setDaemon(true);
		watcher.setDaemon(true);
	}

	/** Connects, and grants the lease. An error is told at once. */
	void open() {
		try (Locked locked = lock()) {
			connect();
			grant(lease);
			state = State.CONNECTED;
			turn(lease, 0);
		} catch (SQLException e) {
			disconnect();
			throw LockException.of(e);
		}
	}

	void start() {
		worker.start();
		watcher.start();
	}

	// --- the lock, and what is told after it ---

	/** The lock, while a block runs. */
	interface Locked extends AutoCloseable {
		@Override
		void close();
	}

	Locked lock() {
		lock.lock();
		return this::unlock;
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
			} catch (RejectedExecutionException | OutOfMemoryError e) { // the latter where there are no more threads
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
		return state != State.ENDED && lease.life() <= 0 ? State.ENDED : state;
	}

	String schema() {
		return schema;
	}

	/** A fence has not found the functions: asks for one of them, so that the connection learns where they are. */
	boolean learnsAnother(String than) {
		try {
			run("SELECT term FROM %s.current_leader('-')");
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

	long at(Moment moment) {
		return moment.nanos - origin;
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
		return submit(List.of(request), attempt).get(0);
	}

	/** Requests that are submitted at once travel together. */
	List<Hold> submit(List<Request> requests, boolean attempt) {
		try (Locked locked = lock()) {
			checkOpen();
			List<Hold> holds = new ArrayList<>();
			for (Request request : requests) {
				Lease on = leases.computeIfAbsent(request.ttl == null ? lease.ttl : request.ttl, ttl -> new Lease(this, ttl));
				holds.add(request.isTerm() ? new Term(this, on, request, attempt) : new Hold(this, on, request, attempt));
			}
			holds.forEach(this::enqueue);
			if (!holds.isEmpty())
				join(holds.get(0).lease);
			return holds;
		}
	}

	private void enqueue(Hold hold) {
		hold.ask.owner = owner + ++requests;
		hold.lease.queue.addLast(hold.ask);
	}

	/** Waits for an item that grants nothing. */
	void ask(Lease on, Request request, String action, String number, String value) throws InterruptedException {
		Hold asked = new Hold(this, on, request, true);
		asked.ask = new Item(action, request.names, number, value, asked);
		try (Locked locked = lock()) {
			checkOpen();
			if (on.ended)
				throw LockException.of(Status.LOST, "its lease has ended");
			enqueue(asked);
			join(on);
		}
		await(asked, Duration.ofMillis(callMillis()));
	}

	/** Nobody wants it any more, whatever becomes of it. */
	void drop(Hold hold) {
		giveUp(hold, LockException.of(Status.CANCELED, "it is not wanted any more"));
	}

	/**
	 * Waits for a hold until it is granted. When the limit passes, or at an interrupt, its place is given back. The
	 * limit bounds the time in the queue; the first answer has at least the limit of any call, and then no place is
	 * taken any more.
	 */
	Hold await(Hold hold, Duration limit) throws InterruptedException {
		long most = limit == null ? Long.MAX_VALUE : Arguments.nanos(limit);
		long first = MILLISECOND * callMillis();
		try {
			if (!isDecided(hold, most) && (hasPlace(hold) || !isDecided(hold, Math.max(first, most))))
				giveUp(hold, LockException.of(hold.attempt ? Status.UNAVAILABLE : Status.NOT_ACQUIRED, hold.request
						+ (hold.impatient ? ": the server has not answered in time" + why() : " was not granted in time")));
		} catch (InterruptedException e) {
			drop(hold);
			throw e;
		}
		LockException error = hold.decided.getNow(null);
		if (error != null)
			throw LockException.again(error);
		return hold;
	}

	/** Within this time after it was asked for. */
	private static boolean isDecided(Hold hold, long nanos) throws InterruptedException {
		try {
			hold.decided.get(Math.max(0, nanos - (System.nanoTime() - hold.askedAt)), TimeUnit.NANOSECONDS);
			return true;
		} catch (TimeoutException | ExecutionException e) {
			return false;
		}
	}

	/** Where it has none yet, it gets none any more. */
	private boolean hasPlace(Hold hold) {
		try (Locked locked = lock()) {
			hold.impatient = !hold.queued;
			return hold.queued;
		}
	}

	private void giveUp(Hold hold, LockException error) {
		try (Locked locked = lock()) {
			if (hold.view == View.WAITING || error.status() == Status.CANCELED) {
				hold.lease.finish(hold, error);
				wake();
			}
		}
	}

	/** False: it had been lost before. */
	boolean release(Hold hold, Duration holdFor) {
		try (Locked locked = lock()) {
			checkDeadlines();
			if (hold.view == View.HELD) {
				try {
					hold.holdFor = holdFor == null ? null : Arguments.holdFor(holdFor);
				} catch (LockException e) {
					hold.releaseError = e;
				}
				hold.lease.finish(hold, LockException.of(Status.CANCELED, "it was released"));
				join(hold.lease);
			} else if (hold.evicted) {
				hold.lease.giveBack(hold);
				join(hold.lease);
			}
			return !hold.isLost();
		}
	}

	/** Runs a statement that only reads. Waits at most as long as a statement may take. */
	List<Object[]> run(String sql, Object... arguments) throws InterruptedException {
		Operation operation = new Operation(sql, arguments);
		try (Locked locked = lock()) {
			checkOpen();
			operations.add(operation);
			wake();
		}
		try {
			return operation.answer.get(callMillis(), TimeUnit.MILLISECONDS);
		} catch (ExecutionException e) {
			throw LockException.again((LockException) e.getCause());
		} catch (TimeoutException e) {
			throw LockException.of(Status.UNAVAILABLE, "the server has not answered in time" + why());
		} finally {
			operation.answer.cancel(false);
		}
	}

	void observe(Observer observer, boolean add) {
		try (Locked locked = lock()) {
			observers.remove(observer);
			if (add) {
				observer.channel = null;
				observer.dueAt = 0;
				observer.busy = false;
				observers.add(observer);
			}
			wake();
		}
	}

	private String why() {
		return trouble == null ? "" : ": " + trouble;
	}

	/** Gives all back and revokes the leases. True if the server has confirmed that in time. */
	boolean close(Duration limit) {
		try (Locked locked = lock()) {
			if (!closing) {
				closing = true;
				closeUntil = now() + Arguments.nanos(limit);
				LockException canceled = LockException.of(Status.CANCELED, "the session was closed");
				leases.values().forEach(l -> l.finishAll(canceled));
				end = canceled;
				set(State.ENDED);
				wake();
			}
		}
		Thread self = Thread.currentThread();
		if (self == worker || self == watcher)
			return false; // by a listener, in an executor that runs it there: the worker goes on when it returns
		join(worker, Math.max(1, TimeUnit.NANOSECONDS.toMillis(Arguments.nanos(limit))));
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
		try (Locked locked = lock()) {
			if (hold.view == View.HELD) {
				hold.lease.finish(hold, why);
				hold.lease.look = true;
				wake();
			}
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
		try (Locked locked = lock()) {
			checkDeadlines();
		}
	}

	/** Locked. What has passed its deadline is lost. */
	private void checkDeadlines() {
		for (Lease l : List.copyOf(leases.values())) {
			if (l.life() <= 0)
				lose(l, LockException.of(Status.LOST, "the lease could not be renewed in time" + why()), false);
		}
	}

	/** Locked. With the session's lease the session ends. */
	void lose(Lease l, LockException why, boolean gone) {
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
		leases.remove(l.ttl, l);
		if (l.id != 0 && !gone)
			revocations.add(l.id);
		l.end(why);
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
		try (Locked locked = lock()) {
			finished = true;
			lose(lease, LockException.of(Status.LOST, "the session's thread has ended"), false);
			disconnect();
		}
	}

	private void pause(long nanos) {
		try (Locked locked = lock()) {
			restsUntil = now() + nanos;
			if (!dirty)
				work.awaitNanos(nanos);
		} catch (InterruptedException e) {
			// close() ends a connection attempt so, and then looks again
		}
	}

	/** Now and then it looks without a deadline in sight: waiting does not count the time of a suspended machine. */
	private void watch() {
		while (!finished) {
			check(); // tells at once, as waiting would not
			Wire stuck = stuck();
			if (stuck != null)
				stuck.abort();
			try (Locked locked = lock()) {
				long left = SECOND;
				for (Lease l : leases.values())
					left = Math.min(left, Math.min(l.life(), l.ttl.toNanos() / 10));
				if (!finished)
					tick.awaitNanos(Math.max(left, MILLISECOND));
			} catch (InterruptedException e) {
				// nobody interrupts it
			}
		}
	}

	/** The connection on which a caller makes a turn that takes long, and that the caller is to leave. */
	Wire stuck() {
		try (Locked locked = lock()) {
			return maker != null && maker.isInterrupted() && now() - madeSince > INTERRUPTIBLE ? wire : null;
		}
	}

	/** Does the most urgent thing. Returns the nanoseconds until there may be more; -1: never. */
	long step() {
		try (Locked locked = lock()) {
			dirty = false;
			restsUntil = Long.MAX_VALUE;
			checkDeadlines();
			if (busy)
				return 60 * SECOND; // its user wakes the worker up
			if (state == State.ENDED)
				return windUp();
			long now = now();
			if (wire == null) {
				if (now < retryAt)
					return retryAt - now;
				reconnect();
				return 0;
			}
			if (useFor(now))
				return 0;
			long rest = next(now) - now;
			if (!channels.hopes() || now < hearAt)
				return Math.max(MILLISECOND / 10, channels.hopes() ? Math.min(rest, hearAt - now) : rest);
			return hear(held > 0 ? MILLISECOND : Math.max(MILLISECOND, Math.min(rest, HEAR))) ? 0 : 1;
		} catch (SQLException e) {
			return wire == null ? 0 : PAUSE;
		}
	}

	/** Locked. When the worker has something to do but to listen. */
	private long next(long now) {
		if (end != null)
			return 0;
		if (wire == null)
			return retryAt;
		long next = operations.isEmpty() && revocations.isEmpty() ? Long.MAX_VALUE : 0;
		for (Lease l : leases.values())
			next = Math.min(next, due(l));
		for (Observer observer : observers)
			next = observer.busy ? next : Math.min(next, observer.dueAt);
		next = Math.min(next, channels.due(now));
		return next;
	}

	/** Locked. When the next turn of a lease is due; after a failure that is a renewal. */
	private long due(Lease l) {
		if (failures > 0 || l.id == 0)
			return l.renewAt;
		if (l.look)
			return 0;
		long due = Math.min(l.renewAt, l.due());
		if (l.waiting == 0)
			return due;
		return Math.min(due, l.lastAt + (channels.announces(l) ? LOOK : DEAF_LOOK));
	}

	/** Locked at entry and exit. Uses the connection for the most urgent thing. False: there is none. */
	private boolean useFor(long now) throws SQLException {
		Lease first = lease;
		for (Lease l : leases.values()) {
			if (l == first)
				continue;
			// releases go first, whatever lease they are of: others may wait for them
			int order = Long.compare(due(l), due(first));
			if (order == 0)
				order = Boolean.compare(first.releases(), l.releases());
			if (order < 0 || order == 0 && l.lastAt < first.lastAt)
				first = l;
		}
		others = !others;
		if (others && now < first.renewAt && useOtherwise(now))
			return true;
		if (now < due(first))
			return useOtherwise(now);
		if (first != lease && first.isUnused())
			endLease(first, LockException.of(Status.CANCELED, "nothing hung on it"), false);
		else if (first.id != 0)
			turn(first, 0);
		else
			grantLate(first);
		return true;
	}

	private boolean useOtherwise(long now) throws SQLException {
		if (failures > 0)
			return false;
		if (!revocations.isEmpty()) {
			revoke();
			return true;
		}
		return operate() || listen(now) || observe(now);
	}

	// --- turns ---

	/**
	 * Locked, once, at entry and exit. Makes a turn in the calling thread, if nobody uses the connection and nothing
	 * else is to be done first. An interrupt of a virtual thread would close the socket: those leave it to the worker.
	 */
	private void join(Lease l) {
		Thread self = Thread.currentThread();
		long now = now();
		dirty = true;
		if (busy)
			return; // who uses it looks what there is to do
		if (wire == null || end != null || l.id == 0 || slow || self == worker || self.isInterrupted()
				|| "VirtualThreads".equals(self.getThreadGroup().getName()) || !operations.isEmpty() || due(l) > now
				|| leases.values().stream().anyMatch(other -> other != l && due(other) <= now))
			wake();
		else
			turn(l, 1);
	}

	/**
	 * Locked at entry and exit. Sends a call, and tells everybody what came of it. Those that it has woken up get the
	 * time to queue their next requests before the next turn begins.
	 *
	 * @param itself of those that wait for it: 1, the caller, or 0
	 */
	private void turn(Lease l, int itself) {
		long before = answered;
		long waited = waits();
		Wire on = wire;
		maker = itself == 0 ? null : Thread.currentThread();
		madeSince = now();
		Lease.Turn turn = l.begin(clock.now(), callMillis() / 2);
		try {
			boolean certain = l.reply(turn, ask(Lease.SYNC, turn.arguments));
			if (!certain && l.renewAt <= now())
				notRenewed(l, "the lease is not durable yet");
			else if (certain && !turn.silent && end == null) {
				failures = 0;
				trouble = null;
				set(State.CONNECTED);
			}
		} catch (SQLException e) {
			LockException error = LockException.of(e);
			l.failed(turn, error, on == wire);
			if (on == wire)
				notRenewed(l, error.getMessage());
		} catch (RuntimeException e) {
			lose(lease, LockException.of(Status.LOST, "a reply cannot be read: " + e), false);
		} finally {
			maker = null;
		}
		slow = now() - madeSince > SLOW;
		if (answered - before > itself) {
			busy = true;
			unlock();
			Thread.yield();
			lock();
			busy = false;
		}
		hearAt = held == 0 && waits() > waited ? 0 : now() + HEAR;
		if (next(now()) < restsUntil || channels.hopes() && hearAt < restsUntil)
			wake();
	}

	private long waits() {
		return leases.values().stream().mapToLong(l -> l.waiting).sum();
	}

	/** Locked. */
	private void notRenewed(Lease l, String why) {
		trouble = why;
		l.renewAt = failed();
		if (end == null)
			set(State.SUSPENDED);
	}

	/**
	 * Locked. When to try again: at once, then after 50 ms, then after twice as long each time, at most a twentieth of
	 * the TTL. What ends that is a renewal: a connection that is made and breaks again is a failure.
	 */
	private long failed() {
		long pause = failures == 0 ? 0 : jitter(Math.min(PAUSE << Math.min(failures - 1, 6), lease.longestPause()));
		failures++;
		return now() + pause;
	}

	static long jitter(long nanos) {
		return (long) (nanos * ThreadLocalRandom.current().nextDouble(0.9, 1.1));
	}

	/** Locked at entry and exit. Runs a statement. */
	private List<Object[]> ask(String sql, Object... arguments) throws SQLException {
		if (wire == null)
			throw new SQLException("not connected", "08003");
		checkDeadlines();
		if (end != null && !windingUp)
			throw new SQLException(end.getMessage(), "LE001");
		long limit = callMillis();
		if (end != null)
			limit = Math.max(1, Math.min(limit, (closeUntil - now()) / MILLISECOND));
		long most = limit;
		return use(on -> on.query(most, sql, arguments));
	}

	/** What is done with the connection. */
	private interface Use<T> {
		T of(Wire wire) throws SQLException;
	}

	/**
	 * Locked at entry and exit, not in between. Where the connection ends in the middle of a statement, its outcome is
	 * not known.
	 */
	private <T> T use(Use<T> use) throws SQLException {
		Wire on = wire;
		SQLException failure;
		busy = true;
		unlock();
		try {
			return use.of(on);
		} catch (SQLException e) {
			failure = e;
		} catch (RuntimeException e) {
			failure = new SQLException(e.toString(), "08006", e);
		} finally {
			lock();
			busy = false;
			schema = on.schema();
			checkDeadlines();
		}
		if (LockException.breaks(String.valueOf(failure.getSQLState()))) {
			trouble = failure.getMessage();
			disconnect();
		}
		throw failure;
	}

	// --- the connection ---

	/** Locked at entry and exit, not in between. */
	private void connect() throws SQLException {
		long limit = state == State.SUSPENDED && lease.id != 0 ? Math.min(lease.callMillis(), CONNECT_MILLIS) : CONNECT_MILLIS;
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
		schema = made.schema();
		channels.reset(made.pooled());
		leases.values().forEach(l -> l.renewAt = 0);
	}

	/** Locked at entry and exit. */
	private void reconnect() {
		try {
			connect();
		} catch (SQLException e) {
			trouble = e.getMessage();
			retryAt = failed();
		}
	}

	/** Locked. */
	private void disconnect() {
		if (wire != null)
			wire.abort();
		wire = null;
		channels.reset(false);
		retryAt = failed();
		if (state == State.CONNECTED)
			set(State.SUSPENDED);
	}

	// --- notifications, which only say that there may be news ---

	/** Locked at entry and exit. */
	private boolean listen(long now) throws SQLException {
		if (channels.due(now) > now)
			return false;
		try {
			ask(channels.change(now));
		} catch (SQLException e) {
			if (wire == null)
				throw e;
			channels.refused();
		}
		return true;
	}

	/** Locked at entry and exit. False: nothing has come. */
	private boolean hear(long nanos) throws SQLException {
		List<String> heard = use(on -> on.notifications((int) (nanos / MILLISECOND)));
		hearAt = held > 0 ? now() + HEAR : 0;
		heard.forEach(channels::heard);
		return !heard.isEmpty();
	}

	/** Locked at entry and exit. Reads for the first observer that is due. */
	private boolean observe(long now) throws SQLException {
		Observer observer = observers.stream().filter(one -> !one.busy && now >= one.dueAt).findFirst().orElse(null);
		if (observer == null)
			return false;
		observer.dueAt = now + jitter(channels.deaf ? 4 * DEAF_LOOK : LOOK);
		if (observer.channel == null && !channels.deaf)
			observer.channel = (String) ask("SELECT %s.observe_election(?)", observer.election).get(0)[0];
		List<Object[]> rows = ask(observer.sql(), observer.arguments());
		if (rows.isEmpty() || !observers.contains(observer)) {
			observer.began = true;
			return true;
		}
		observer.busy = true;
		tell(() -> {
			observer.tell(rows);
			try (Locked locked = lock()) {
				observer.busy = false;
				if (rows.size() == Observer.MOST)
					observer.dueAt = 0;
				wake();
			}
		});
		return true;
	}

	// --- leases and other statements ---

	/** Locked at entry and exit. */
	private void grant(Lease l) throws SQLException {
		Moment sent = clock.now();
		l.granted((Long) ask("SELECT %s.grant_lease(?::interval, ?, ?::interval)", Arguments.milliseconds(l.ttl),
				owner.substring(0, owner.length() - 1), callMillis() / 2 + " ms").get(0)[0], sent);
		if (l.ended)
			revocations.add(l.id); // nobody waits for it any more
		tick.signal();
	}

	/** Locked at entry and exit. Grants a lease for holds with another TTL than the session's. */
	private void grantLate(Lease l) {
		try {
			grant(l);
		} catch (SQLException e) {
			LockException error = LockException.of(e);
			l.renewAt = now() + 2 * PAUSE;
			if (wire != null && !error.passes())
				endLease(l, error, true);
		}
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

	/** Locked at entry and exit. */
	private boolean operate() throws SQLException {
		Operation operation = operations.peek();
		if (operation == null)
			return false;
		try {
			if (!operation.answer.isDone())
				operation.answer.complete(ask(operation.sql, operation.arguments));
		} catch (SQLException e) {
			LockException error = LockException.of(e);
			if (error.passes())
				throw e; // again, after a pause
			operation.answer.completeExceptionally(error);
		}
		operations.remove(operation);
		return true;
	}

	/** Locked at entry and exit. The session has ended: what has to be closed for a while, then all leases at once. */
	private long windUp() {
		operations.forEach(operation -> operation.answer.completeExceptionally(end));
		operations.clear();
		windingUp = true;
		boolean inTime = now() < closeUntil;
		try {
			if (inTime && wire == null && closing) {
				if (now() < retryAt)
					return Math.min(retryAt, closeUntil) - now();
				reconnect();
				return 0;
			}
			for (Lease l : List.copyOf(leases.values())) {
				if (inTime && wire != null && l.id != 0 && l.closesNames()) {
					if (l.due() > now())
						return PAUSE;
					turn(l, 0);
					return 0;
				}
				endLease(l, end, false);
			}
			while (inTime && wire != null && !revocations.isEmpty())
				revoke();
			if (inTime && wire != null && channels.isUsed())
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
