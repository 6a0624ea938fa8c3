package lockelection;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import javax.sql.DataSource;
import lockelection.LockException.Status;

/**
 * Locks and leader election for a process, with one connection to the server, and one lease whose renewals keep all
 * holds of the process. It may be used by any number of threads. Waiting threads share the connection.
 *
 * <pre>{@code
 * try (LockElection locks = LockElection.connect("jdbc:postgresql://db1,db2/app");
 *      Hold hold = locks.acquire("invoices")) {
 *     while (hold.isValid() && moreWork())
 *         work();
 * }
 * }</pre>
 *
 * <p>Holds are valid until the deadline. The deadline is the time at which the last confirmed renewal was sent, plus
 * the validity that the server returned, minus a twentieth of the TTL (at most 1 s). The validity is the TTL, or less
 * if the server has restarted repeatedly, or if the TTL is above 5 minutes. Before the deadline a broken connection
 * loses nothing. At the deadline the session ends; {@link #reopen()} gives it a new lease.
 *
 * <p>Calls throw {@link LockException}. A time limit counts from the call. An interrupt ends a waiting call, which
 * then holds nothing and waits for nothing. While the server does not reply, this takes up to a second.
 */
public final class LockElection implements AutoCloseable {
	private final Wire.Connector connector;
	private final Options options;
	private final Clock clock;
	private final ThreadPoolExecutor ownExecutor;
	private final ReentrantLock opening = new ReentrantLock();
	private final Set<Candidacy> candidacies = ConcurrentHashMap.newKeySet();
	private final Set<Observer> observers = ConcurrentHashMap.newKeySet();
	private volatile Session session;
	private volatile boolean closed;

	LockElection(Wire.Connector connector, Options options, Clock clock) {
		this.connector = connector;
		this.options = Arguments.given(options, "the options");
		this.clock = clock;
		ownExecutor = new ThreadPoolExecutor(1, 1, 1, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), task -> {
			Thread thread = new Thread(task, listenersName());
			thread.setDaemon(true);
			return thread;
		});
		ownExecutor.allowCoreThreadTimeOut(true);
		open();
	}

	/**
	 * Connects to the URL of PostgreSQL's driver. If the URL has several hosts, the session uses the host that is not
	 * a standby.
	 *
	 * @param url such as {@code jdbc:postgresql://db1,db2/app?user=app}
	 * @return an open session, with the default {@link Options}
	 * @throws LockException with status UNAVAILABLE, DENIED, NOT_INSTALLED or INVALID
	 */
	public static LockElection connect(String url) {
		return connect(url, new Options());
	}

	/**
	 * Connects to the URL of PostgreSQL's driver.
	 *
	 * @param url same as in {@link #connect(String)}
	 * @param options the options of the session
	 * @return an open session
	 * @throws LockException with status UNAVAILABLE, DENIED, NOT_INSTALLED or INVALID
	 */
	public static LockElection connect(String url, Options options) {
		return new LockElection(Jdbc.connector(url), options, Clock.SYSTEM);
	}

	/**
	 * Takes one connection from a pool, or from PostgreSQL's own data source, and keeps it. The data source must know
	 * all hosts, and its time limit for connecting (connectTimeout) must be well below the TTL.
	 *
	 * @param source a source of connections to PostgreSQL; the session takes a new one when its connection breaks
	 * @return an open session, with the default {@link Options}
	 * @throws LockException with status UNAVAILABLE, DENIED, NOT_INSTALLED or INVALID
	 */
	public static LockElection connect(DataSource source) {
		return connect(source, new Options());
	}

	/**
	 * Takes one connection from a data source, and keeps it.
	 *
	 * @param source same as in {@link #connect(DataSource)}
	 * @param options the options of the session
	 * @return an open session
	 * @throws LockException with status UNAVAILABLE, DENIED, NOT_INSTALLED or INVALID
	 */
	public static LockElection connect(DataSource source, Options options) {
		return new LockElection(Jdbc.connector(source), options, Clock.SYSTEM);
	}

	private void open() {
		Executor executor = options.executor == null ? ownExecutor : options.executor;
		Session made = new Session(connector, options, executor, clock);
		made.open();
		made.start();
		session = made;
		observers.forEach(observer -> made.observe(observer, true));
	}

	Session session() {
		return session;
	}

	/**
	 * Reopens a session that has ended, with a new lease. Its old holds remain lost. Does nothing if the session has
	 * not ended.
	 *
	 * @throws LockException with status CANCELED if the session was closed; with a status such as UNAVAILABLE if it
	 *         cannot be reopened
	 */
	public void reopen() {
		if (!closed && session.state() != State.ENDED)
			return;
		opening.lock();
		try {
			if (closed)
				throw LockException.of(Status.CANCELED, "the session was closed");
			session.check();
			if (session.state() == State.ENDED)
				open();
		} finally {
			opening.unlock();
		}
	}

	/**
	 * The state of the session. Does no I/O.
	 *
	 * @return never null
	 */
	public State state() {
		return session.state();
	}

	/**
	 * The number of the session's lease, as in the server's view "leases".
	 *
	 * @return a number that changes with {@link #reopen()}
	 */
	public long lease() {
		return session.lease.id;
	}

	/**
	 * The TTL of the session.
	 *
	 * @return the TTL in its options
	 */
	public Duration ttl() {
		return options.ttl;
	}

	// --- locks ---

	/**
	 * Acquires a lock. Waits for it without a time limit, in order of arrival.
	 *
	 * @param name 1 to 255 bytes
	 * @return the hold, which the caller must close
	 * @throws LockLostException if the session has ended
	 * @throws LockException with status DEADLOCK, LIMIT, DENIED, INVALID, CANCELED, ...
	 * @throws InterruptedException if the thread was interrupted; nothing is held
	 */
	public Hold acquire(String name) throws InterruptedException {
		return acquire(Request.exclusive(name), null);
	}

	/**
	 * Acquires a lock.
	 *
	 * @param name 1 to 255 bytes
	 * @param ttl the time for which the hold outlives the program if the program dies, 100 ms to 24 days; null for the
	 *        session's TTL. With a different TTL, the hold gets its own lease, which ends at the latest with the
	 *        session
	 * @param wait the limit of the time in the queue; null for no limit; zero does not wait. The time for the server's
	 *        first reply does not count, so a free lock is acquired even if the limit is shorter than a round trip
	 * @return the hold, which the caller must close
	 * @throws NotAcquiredException if the lock was not granted within the limit, or if no reply arrived within the
	 *         longer of the limit and a quarter of the TTL
	 * @throws LockLostException if the session has ended
	 * @throws LockException with status DEADLOCK, LIMIT, DENIED, INVALID or CANCELED; with status UNAVAILABLE if wait
	 *         is zero and there is no reply
	 * @throws InterruptedException if the thread was interrupted; nothing is held
	 */
	public Hold acquire(String name, Duration ttl, Duration wait) throws InterruptedException {
		return acquire(Request.exclusive(name).ttl(ttl), wait);
	}

	/**
	 * Acquires a lock, a shared lock, a permit, or several locks together.
	 *
	 * @param request the locks or the permit to acquire
	 * @param wait the limit of the time in the queue; null for no limit; zero does not wait
	 * @return the hold, which the caller must close
	 * @throws NotAcquiredException if it was not granted within the limit
	 * @throws LockLostException if the session has ended
	 * @throws LockException as in {@link #acquire(String, Duration, Duration)}
	 * @throws InterruptedException if the thread was interrupted; nothing is held
	 */
	public Hold acquire(Request request, Duration wait) throws InterruptedException {
		return session.acquire(request, wait);
	}

	/**
	 * Acquires a lock without waiting, only if there is no other holder or waiter.
	 *
	 * @param request the locks or the permit to acquire
	 * @return the hold, or empty if others hold the lock or wait for it
	 * @throws LockException as in {@link #acquire(Request, Duration)}
	 * @throws InterruptedException if the thread was interrupted; nothing is held
	 */
	public Optional<Hold> tryAcquire(Request request) throws InterruptedException {
		try {
			return Optional.of(acquire(request, Duration.ZERO));
		} catch (NotAcquiredException e) {
			return Optional.empty();
		}
	}

	/**
	 * Tries to acquire each of many locks independently, like {@link #tryAcquire}, with one statement per 128 locks.
	 *
	 * @param names any number of different names
	 * @return the acquired holds by name, in the order of the names
	 * @throws LockException if one of them failed; nothing is held
	 * @throws InterruptedException if the thread was interrupted; nothing is held
	 */
	public Map<String, Hold> tryAcquireEach(Collection<String> names) throws InterruptedException {
		return tryAcquireEach(names, false);
	}

	/**
	 * Tries to acquire each of many locks independently, like {@link #tryAcquireEach(Collection)}, as exclusive or
	 * shared locks.
	 *
	 * @param names any number of different names
	 * @param shared whether other shared holders may hold them at the same time
	 * @return the acquired holds by name, in the order of the names
	 * @throws LockException if one of them failed; nothing is held
	 * @throws InterruptedException if the thread was interrupted; nothing is held
	 */
	public Map<String, Hold> tryAcquireEach(Collection<String> names, boolean shared) throws InterruptedException {
		Session on = session;
		Arguments.given(names, "the collection of names");
		if (new HashSet<>(names).size() != names.size())
			throw LockException.of(Status.INVALID, "a name appears twice among " + names.size() + " names");
		List<Hold> asked = on.submit(names.stream().map(name -> shared ? Request.shared(name) : Request.exclusive(name))
				.collect(Collectors.toList()), true);
		Map<String, Hold> held = new LinkedHashMap<>();
		try {
			for (Hold hold : asked) {
				try {
					held.put(hold.names().get(0), on.await(hold, Duration.ofMillis(on.callMillis())));
				} catch (NotAcquiredException e) {
					// this lock has another holder or waiter
				}
			}
			return held;
		} catch (LockException | InterruptedException e) {
			asked.forEach(on::drop);
			throw e;
		}
	}

	/**
	 * Returns a lock as a {@link java.util.concurrent.locks.Lock}.
	 *
	 * @param name 1 to 255 bytes
	 * @return a new object; two objects with the same name exclude each other
	 */
	public NamedLock asLock(String name) {
		return new NamedLock(this, Request.exclusive(name));
	}

	/**
	 * Runs a job that all processes start and only one should run. Does not run it if another process is running it or
	 * has run it within its {@code holdFor}. Reopens a session that has ended.
	 *
	 * @param name the name of the job
	 * @param holdFor the time, counted from the start of the job, for which the name stays closed, even if the job
	 *        fails or the process dies, because the TTL is at least as long; null does not close it
	 * @param job runs in this thread
	 * @return whether the job was run here
	 * @throws LockException same as in {@link #acquire(Request, Duration)} and {@link #checkHoldFor}; the job was not
	 *         run
	 * @throws InterruptedException if the thread was interrupted; the job was not run
	 */
	public boolean once(String name, Duration holdFor, Runnable job) throws InterruptedException {
		Request request = Request.exclusive(name);
		Arguments.given(job, "the job");
		reopen();
		if (holdFor != null)
			checkHoldFor(name, holdFor);
		Optional<Hold> hold = tryAcquire(request.ttl(holdFor != null && holdFor.compareTo(ttl()) > 0 ? holdFor : null));
		if (hold.isEmpty())
			return false;
		try {
			job.run();
		} finally {
			hold.get().closeFor(holdFor);
		}
		return true;
	}

	/**
	 * Checks that the server allows {@link Hold#release(Duration)} with this duration. Call it before work that must
	 * not be repeated; {@link #once} calls it itself.
	 *
	 * @param name 1 to 255 bytes
	 * @param holdFor the duration that the release will have
	 * @throws LockException with status LIMIT if the duration exceeds the server's lock_election.max_hold_for, INVALID
	 *         if it is not from 0 to 24 days, UNAVAILABLE, ...
	 * @throws InterruptedException if the thread was interrupted
	 */
	public void checkHoldFor(String name, Duration holdFor) throws InterruptedException {
		Session on = session;
		// Token 0 releases nothing.
		on.ask(on.lease, Request.exclusive(name), "release", "0", Arguments.milliseconds(Arguments.holdFor(holdFor)));
	}

	// --- elections ---

	/**
	 * Campaigns repeatedly, and leads when elected, in a separate thread. Reopens a session that has ended.
	 *
	 * @param election 1 to 255 bytes
	 * @param value the candidate's public text, such as its address; 1 to 4096 bytes
	 * @param lead the work of the leader
	 * @return the candidacy, which the caller must close
	 */
	public Candidacy elect(String election, String value, Lead lead) {
		Candidacy candidacy = new Candidacy(this, Arguments.election(election), Arguments.value(value),
				Arguments.given(lead, "the callback that leads"));
		candidacies.add(candidacy);
		if (candidacy.ended().isDone())
			candidacies.remove(candidacy);
		return candidacy;
	}

	void forget(Candidacy candidacy) {
		candidacies.remove(candidacy);
	}

	/** Campaigns until elected. Returns null if {@code unwanted} is completed first. */
	Term awaitTerm(String election, String value, CompletableFuture<Void> unwanted) throws InterruptedException {
		reopen();
		Session on = session;
		Hold hold = on.submit(Request.term(election, value), false);
		CompletableFuture.anyOf(hold.decided, unwanted).handle((first, error) -> first).join();
		if (!unwanted.isDone())
			return (Term) on.await(hold, null);
		on.drop(hold);
		hold.released.copy().completeOnTimeout(null, on.callMillis(), TimeUnit.MILLISECONDS).join();
		return null;
	}

	/**
	 * Campaigns once.
	 *
	 * @param election 1 to 255 bytes
	 * @param value the candidate's public text, 1 to 4096 bytes
	 * @param wait the limit of the time in the queue; null for no limit; zero does not wait
	 * @return the term, which the caller must close
	 * @throws NotAcquiredException if the candidate was not elected within the limit
	 * @throws LockLostException if the session has ended
	 * @throws LockException as in {@link #acquire(Request, Duration)}
	 * @throws InterruptedException if the thread was interrupted; the candidacy has ended
	 */
	public Term campaign(String election, String value, Duration wait) throws InterruptedException {
		return (Term) session.acquire(Request.term(election, value), wait);
	}

	/**
	 * Reads the current leader from the server.
	 *
	 * @param election 1 to 255 bytes
	 * @return the leader, or empty if there is none
	 * @throws LockException with status UNAVAILABLE, INVALID, ...
	 * @throws InterruptedException if the thread was interrupted
	 */
	public Optional<Leader> leader(String election) throws InterruptedException {
		List<Object[]> rows = session.run("SELECT candidate, term FROM %s.current_leader(?)",
				Arguments.election(election));
		return rows.stream().findFirst().map(row -> new Leader((String) row[0], (Long) row[1]));
	}

	/**
	 * Reports the current leader to a listener, and then each change, once and in order.
	 *
	 * @param election 1 to 255 bytes
	 * @param listener runs in the executor; receives an empty Optional when there is no leader
	 * @return the observer, which the caller must close
	 * @throws LockException with status CANCELED if the session was closed
	 */
	public Observer observe(String election, Consumer<Optional<Leader>> listener) {
		Arguments.given(listener, "the listener");
		Arguments.election(election);
		if (closed)
			throw LockException.of(Status.CANCELED, "the session was closed");
		Observer observer = new Observer(election, listener, this::observe);
		observe(observer, true);
		return observer;
	}

	private void observe(Observer observer, boolean add) {
		opening.lock();
		try {
			if (add)
				observers.add(observer);
			else
				observers.remove(observer);
			session.observe(observer, add);
		} finally {
			opening.unlock();
		}
	}

	// --- end ---

	/** Closes like {@link #close(Duration)}, with a limit of a quarter of the TTL. */
	@Override
	public void close() {
		close(Duration.ofMillis(session.callMillis()));
	}

	/**
	 * Ends the candidacies and all waits, releases all holds, revokes the lease, and disconnects. Call it only after
	 * all work under the session's holds has stopped. An interrupt does not end the call; the calling thread stays
	 * interrupted.
	 *
	 * @param limit the time to wait for the server, zero or more; without a reply, the lease expires on the server
	 * @return true if the server has confirmed in time that the lease has ended
	 * @throws LockException with status INVALID if the limit is negative
	 */
	public boolean close(Duration limit) {
		Arguments.limit(Arguments.given(limit, "the limit"), "the limit");
		long until = System.nanoTime() + Arguments.nanos(limit);
		closed = true;
		List<Candidacy> standing = new ArrayList<>(candidacies);
		standing.forEach(Candidacy::stop);
		standing.forEach(candidacy -> candidacy.join(left(until)));
		opening.lock();
		try {
			return session.close(left(until));
		} finally {
			opening.unlock();
			ownExecutor.shutdown();
			joinListeners();
		}
	}

	/** Waits up to 1 s for the listeners, so that they run before close() returns, unless a listener calls close(). */
	private void joinListeners() {
		try {
			if (!Thread.currentThread().getName().equals(listenersName()))
				ownExecutor.awaitTermination(1, TimeUnit.SECONDS);
		} catch (InterruptedException e) {
			Thread.currentThread().interrupt();
		}
	}

	private String listenersName() {
		return "lock_election listeners " + options.name;
	}

	private static Duration left(long until) {
		return Duration.ofNanos(Math.max(1, until - System.nanoTime()));
	}
}
