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
 * A session: one connection, its leases, and two threads. A turn is a call of lease_sync() with all items that are
 * queued at the time. A caller that finds the connection free runs the turn itself; otherwise the worker does. The
 * worker also renews, reconnects and listens. The watcher checks the deadlines, even if the worker hangs. One lock
 * protects all fields that are not final or volatile. It is not held during I/O or a callback. In the comments below,
 * "Locked." means that the caller holds this lock.
 */
final class Session {
	private static final long MILLISECOND = 1_000_000L;
	private static final long SECOND = 1000 * MILLISECOND;
	private static final long CONNECT_MILLIS = 5000;
	private static final long PAUSE = 50 * MILLISECOND;
	/**
	 * Nanoseconds. After a turn that took longer, the worker runs the next turn instead of a caller, because a caller
	 * that runs a turn cannot be interrupted immediately.
	 */
	private static final long SLOW = 100 * MILLISECOND;
	/** Nanoseconds after which an interrupt of the caller that runs a turn aborts the turn and the connection. */
	private static final long INTERRUPTIBLE = 200 * MILLISECOND;
	/**
	 * Nanoseconds for which the worker waits for a notification, and for which it pauses before that. The driver cannot
	 * be woken up while it waits for a notification, and needs a millisecond to find that there is none. If nothing is
	 * held, the worker waits immediately after a turn in which callers have entered a queue. Otherwise the worker
	 * pauses first, because another call may follow soon, and its reply contains all news.
	 */
	private static final long HEAR = 10 * MILLISECOND;
	/** Nanoseconds for which a caller that still waits after its turn also runs the turns that have become due. */
	private static final long STAY = 10 * MILLISECOND;
	/** The intervals of turns for waits, and of reads for observers: if LISTEN works, and if it does not. */
	private static final long LOOK = 5 * SECOND;
	private static final long DEAF_LOOK = 250 * MILLISECOND;

	final Lease lease;
	final String owner;
	/** The number of holds that are held. */
	int held;
	/** The number of times that a caller was woken up. */
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
	private long suspendedAt;
	private volatile Wire wire;
	private volatile String schema;
	private List<Runnable> told = new ArrayList<>();
	/** The queued calls of listeners; the first one may be running. */
	private final Deque<Runnable> events = new ArrayDeque<>();
	/** Whether there is new work for the worker, so that it must not sleep. */
	private boolean dirty;
	/** The time until which the worker sleeps unless it is woken up. */
	private long restsUntil;
	/** Whether a thread uses the connection. */
	private boolean busy;
	/** The caller that runs a turn (null if there is none), and the time at which the turn began. */
	private Thread maker;
	private long madeSince;
	private boolean slow;
	private boolean others;
	private long requests;
	/** The earliest time at which the worker waits for notifications. */
	private long hearAt;
	private int failures;
	/** The reason why there is no connection, or why the last renewal has failed. */
	private volatile String trouble;
	private long retryAt;
	private boolean closing;
	private boolean windingUp;
	private long closeUntil = Long.MAX_VALUE;
	private volatile boolean finished;
	private LockException end;

	/** A read-only statement for one caller. */
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

	/** Connects and gets the lease. Throws any error immediately, without a retry. */
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

	// --- the lock, and the callbacks that run after it ---

	/** Holds the lock while a block runs. */
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
			} catch (RejectedExecutionException | OutOfMemoryError e) { // OutOfMemoryError: no thread can be started
				call.run();
			}
		}
	}

	/** Locked. Runs a callback in the executor once the lock is free. Its exceptions do not affect the session. */
	void tell(Runnable call) {
		told.add(() -> callBack(call));
	}

	/** Runs code of the application, and reports its exceptions. Catches all: Kotlin also throws checked exceptions. */
	private static void callBack(Runnable call) {
		try {
			call.run();
		} catch (Throwable e) {
			report(e);
		}
	}

	/** Locked. Reports an event to the listeners. A single callback makes all queued calls, to keep them in order. */
	void tell(List<Listener> listeners, Event event) {
		boolean idle = events.isEmpty();
		listeners.forEach(listener -> events.add(() -> listener.on(event)));
		if (idle && !events.isEmpty())
			tell(this::callListeners);
	}

	private void callListeners() {
		for (Runnable call = nextEvent(false); call != null; call = nextEvent(true))
			callBack(call);
	}

	/** Returns the next call of a listener, or null. The current call stays in the queue until it is done. */
	private Runnable nextEvent(boolean done) {
		try (Locked locked = lock()) {
			if (done)
				events.remove();
			return events.peek();
		}
	}

	/** Returns the listeners for a request of this thread. */
	private List<Listener> listeners() {
		List<Listener> listeners = new ArrayList<>();
		for (Listener listener : options.listeners) {
			try {
				listeners.add(Arguments.given(listener.ofCaller(), "the caller's listener"));
			} catch (Throwable e) {
				report(e);
			}
		}
		return listeners;
	}

	/** Reports an exception of the application's code as uncaught. Ignores exceptions of the handler, as the JVM does. */
	static void report(Throwable error) {
		Thread thread = Thread.currentThread();
		try {
			thread.getUncaughtExceptionHandler().uncaughtException(thread, error);
		} catch (Throwable e) {
			// nothing is left that could report it
		}
	}

	/** Locked. Wakes up the worker. */
	void wake() {
		dirty = true;
		work.signal();
	}

	// --- calls of other threads ---

	State state() {
		return state != State.ENDED && lease.life() <= 0 ? State.ENDED : state;
	}

	String schema() {
		return schema;
	}

	/**
	 * Called by a fence whose function was not found in the given schema. Calls a function on the session's connection,
	 * which then reads the current schema. Returns whether that is a different one.
	 */
	boolean learnsAnother(String than) {
		try {
			run("SELECT term FROM %s.current_leader('-')");
		} catch (InterruptedException e) {
			Thread.currentThread().interrupt();
		} catch (LockException e) {
			// the caller throws its own error
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

	/** Queues requests, which are sent in one call if possible. */
	List<Hold> submit(List<Request> requests, boolean attempt) {
		List<Listener> listeners = listeners();
		try (Locked locked = lock()) {
			checkOpen();
			List<Hold> holds = new ArrayList<>();
			for (Request request : requests) {
				Lease on = leases.computeIfAbsent(request.ttl == null ? lease.ttl : request.ttl, ttl -> new Lease(this, ttl));
				holds.add(request.isTerm() ? new Term(this, on, request, attempt) : new Hold(this, on, request, attempt));
			}
			for (Hold hold : holds)
				hold.listeners = listeners;
			holds.forEach(this::enqueue);
			if (!holds.isEmpty())
				join(holds.get(0).lease, holds.get(0));
			return holds;
		}
	}

	private void enqueue(Hold hold) {
		hold.ask.owner = owner + ++requests;
		hold.lease.queue.addLast(hold.ask);
	}

	/** Queues an item that requests no grant, and waits for its result. */
	void ask(Lease on, Request request, String action, String number, String value) throws InterruptedException {
		Hold asked = new Hold(this, on, request, true);
		asked.ask = new Item(action, request.names, number, value, asked);
		try (Locked locked = lock()) {
			checkOpen();
			if (on.ended)
				throw LockException.of(Status.LOST, "its lease has ended");
			enqueue(asked);
			join(on, asked);
		}
		await(asked, Duration.ofMillis(callMillis()));
	}

	/** Ends a request or a hold that is no longer needed, in any state. */
	void drop(Hold hold) {
		giveUp(hold, LockException.of(Status.CANCELED, "it is not wanted any more"));
	}

	/**
	 * Waits until a hold is granted. Releases its place when the limit passes, or after an interrupt. The limit
	 * applies to the time in the queue. The first reply may take as long as the reply to any call; if it arrives after
	 * the limit, only a grant counts, and a place is released.
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

	/** Waits until the request was granted or has failed. Returns false if this time after the request has passed. */
	private static boolean isDecided(Hold hold, long nanos) throws InterruptedException {
		try {
			hold.decided.get(Math.max(0, nanos - (System.nanoTime() - hold.askedAt)), TimeUnit.NANOSECONDS);
			return true;
		} catch (TimeoutException | ExecutionException e) {
			return false;
		}
	}

	/** Returns whether the hold has a place. If it has none, a place that it gets later will be released. */
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

	/** Releases a hold. Returns false if it had been lost before. */
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
				join(hold.lease, null);
			} else if (hold.evicted) {
				hold.lease.giveBack(hold);
				join(hold.lease, null);
			}
			return !hold.isLost();
		}
	}

	/** Runs a read-only statement. Waits for its rows for at most the limit of a statement. */
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

	/** Releases all holds and revokes the leases. Returns whether the server has confirmed that in time. */
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
			return false; // a listener that runs in this thread has called close(), so the worker ends later
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

	/** Waits for the end of a thread. An interrupt does not end the wait; the calling thread stays interrupted. */
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

	/** Ends a hold after its fence or proclaim has reported its loss. Releases its remaining names. */
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

	/** Locked. Throws if the session has ended. */
	private void checkOpen() {
		checkDeadlines();
		if (end != null)
			throw LockException.again(end);
	}

	/** Ends the leases whose deadline has passed. */
	void check() {
		try (Locked locked = lock()) {
			checkDeadlines();
		}
	}

	/** Locked. Ends the leases whose deadline has passed. */
	private void checkDeadlines() {
		for (Lease l : List.copyOf(leases.values())) {
			if (l.life() <= 0)
				lose(l, LockException.of(Status.LOST, "the lease could not be renewed in time" + why()), false);
		}
	}

	/** Locked. Ends a lease. The session's own lease ends the session. */
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

	/** Locked. Ends a lease with all its holds, and schedules its revocation unless the server has ended it already. */
	private void endLease(Lease l, LockException why, boolean gone) {
		leases.remove(l.ttl, l);
		if (l.id != 0 && !gone)
			revocations.add(l.id);
		l.end(why);
	}

	/** Locked. Changes the state, and notifies the listener. */
	private void set(State next) {
		if (state == next)
			return;
		if (state != State.ENDED && !closing)
			tell(options.listeners, event(next));
		state = next;
		tell(() -> options.onState.accept(next));
		tick.signal();
	}

	/** Locked. Returns the event for the change to this state. */
	private Event event(State next) {
		long since = state == State.SUSPENDED ? suspendedAt : now();
		suspendedAt = now();
		Event.Kind kind = next == State.CONNECTED ? Event.Kind.RESUMED
				: next == State.SUSPENDED ? Event.Kind.SUSPENDED : Event.Kind.ENDED;
		LockException error = next == State.ENDED ? end
				: next == State.SUSPENDED ? LockException.of(Status.UNAVAILABLE, String.valueOf(trouble)) : null;
		return new Event(kind, "session", List.of(), 0, suspendedAt - since, error);
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
			if (!finished) // an unexpected error, such as OutOfMemoryError: the lease is no longer renewed
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
			// close() has interrupted this thread: check again
		}
	}

	/** Checks the deadlines, at least once a second, because a wait does not count the time of a suspended machine. */
	private void watch() {
		while (!finished) {
			check(); // runs the callbacks of a loss immediately, because they run when the lock is released
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
				// this thread is never interrupted
			}
		}
	}

	/** Returns the connection of a long turn that must be aborted because its caller was interrupted, or null. */
	Wire stuck() {
		try (Locked locked = lock()) {
			return maker != null && maker.isInterrupted() && now() - madeSince > INTERRUPTIBLE ? wire : null;
		}
	}

	/** Does the most urgent work. Returns the nanoseconds until the next step; -1 = the session has finished. */
	long step() {
		try (Locked locked = lock()) {
			dirty = false;
			restsUntil = Long.MAX_VALUE;
			checkDeadlines();
			if (busy)
				return 60 * SECOND; // the thread that uses the connection wakes up the worker
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

	/** Locked. Returns the time at which the worker has work other than waiting for notifications. */
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

	/** Locked. Returns the time at which the next turn of a lease is due; after a failure, the time of the renewal. */
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

	/** Locked at entry and exit. Uses the connection for the most urgent work. Returns false if there is none. */
	private boolean useFor(long now) throws SQLException {
		Lease first = lease;
		for (Lease l : leases.values()) {
			if (l == first)
				continue;
			// Leases with releases go first, because others may be waiting for these locks.
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
	 * Locked, once, at entry and exit. Runs a turn in the calling thread if the connection is free and no other work
	 * is due first; otherwise wakes up the worker. A caller that still waits after its turn also runs the turns that
	 * have become due meanwhile, so that callers can hand over a lock to each other without the worker.
	 *
	 * @param own the hold that the caller waits for, or null if it does not wait
	 */
	private void join(Lease l, Hold own) {
		dirty = true;
		if (busy)
			return; // the thread that uses the connection checks for more work afterwards
		if (!isForCaller(l)) {
			wake();
			return;
		}
		long until = now() + STAY;
		do
			turn(l, 1);
		while (own != null && !own.decided.isDone() && now() < until && isForCaller(l));
		rest();
	}

	/**
	 * Locked. Returns whether a turn of the lease is the next work, and the calling thread may run it. A virtual thread
	 * must not, because an interrupt of a virtual thread would close the socket.
	 */
	private boolean isForCaller(Lease l) {
		Thread self = Thread.currentThread();
		long now = now();
		return wire != null && end == null && l.id != 0 && !slow && self != worker && !self.isInterrupted()
				&& !"VirtualThreads".equals(self.getThreadGroup().getName()) && operations.isEmpty() && due(l) <= now
				&& leases.values().stream().noneMatch(other -> other != l && due(other) <= now);
	}

	/**
	 * Locked at entry and exit, not in between. Sends a call and handles its results. If the results have woken up
	 * other callers, lets them queue their next requests before the next turn begins.
	 *
	 * @param itself 1 if a waiting caller runs this turn, 0 if the worker does
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
	}

	/** Locked. Wakes up the worker if it has work before the time until which it sleeps. */
	private void rest() {
		if (next(now()) < restsUntil || channels.hopes() && hearAt < restsUntil)
			wake();
	}

	private long waits() {
		return leases.values().stream().mapToLong(l -> l.waiting).sum();
	}

	/** Locked. Counts a failed renewal. */
	private void notRenewed(Lease l, String why) {
		trouble = why;
		l.renewAt = failed();
		if (end == null)
			set(State.SUSPENDED);
	}

	/**
	 * Locked. Counts a failure. Returns the time of the retry: now after the first failure, then after 50 ms, doubled
	 * each time up to a twentieth of the TTL. Only a successful renewal resets the count, so a new connection that
	 * breaks before a renewal counts, too.
	 */
	private long failed() {
		long pause = failures == 0 ? 0 : jitter(Math.min(PAUSE << Math.min(failures - 1, 6), lease.longestPause()));
		failures++;
		return now() + pause;
	}

	static long jitter(long nanos) {
		return (long) (nanos * ThreadLocalRandom.current().nextDouble(0.9, 1.1));
	}

	/** Locked at entry and exit, not in between. Runs a statement. */
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

	/** A use of the connection. */
	private interface Use<T> {
		T of(Wire wire) throws SQLException;
	}

	/**
	 * Locked at entry and exit, not in between. Uses the connection, and closes it if it breaks. If it breaks in the
	 * middle of a statement, the outcome of the statement is unknown.
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

	/** Locked at entry and exit, not in between. Makes a connection. */
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

	/** Locked at entry and exit. Makes a connection, or sets the time of the next attempt. */
	private void reconnect() {
		try {
			connect();
		} catch (SQLException e) {
			trouble = e.getMessage();
			retryAt = failed();
		}
	}

	/** Locked. Closes the connection. */
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

	/** Locked at entry and exit. Changes the channels of the connection. Returns false if no change is needed. */
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

	/** Locked at entry and exit. Waits for notifications. Returns false if none has arrived. */
	private boolean hear(long nanos) throws SQLException {
		List<String> heard = use(on -> on.notifications((int) (nanos / MILLISECOND)));
		hearAt = held > 0 ? now() + HEAR : 0;
		heard.forEach(channels::heard);
		return !heard.isEmpty();
	}

	/** Locked at entry and exit. Reads the changes for the first observer that is due. Returns false if none is due. */
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

	/** Locked at entry and exit. Gets a lease from the server. */
	private void grant(Lease l) throws SQLException {
		Moment sent = clock.now();
		l.granted((Long) ask("SELECT %s.grant_lease(?::interval, ?, ?::interval)", Arguments.milliseconds(l.ttl),
				owner.substring(0, owner.length() - 1), callMillis() / 2 + " ms").get(0)[0], sent);
		if (l.ended)
			revocations.add(l.id); // the lease is no longer needed
		tick.signal();
	}

	/** Locked at entry and exit. Gets a lease for a TTL that differs from the session's, or ends it on an error. */
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

	/** Locked at entry and exit. Revokes the first lease of the list. */
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

	/** Locked at entry and exit. Runs the first statement of the callers. Returns false if there is none. */
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
				throw e; // it is repeated after a pause
			operation.answer.completeExceptionally(error);
		}
		operations.remove(operation);
		return true;
	}

	/**
	 * Locked at entry and exit. Winds up a session that has ended: sends the releases that close names, then revokes
	 * all leases. Returns the nanoseconds until the next step; -1 = the session has finished.
	 */
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
