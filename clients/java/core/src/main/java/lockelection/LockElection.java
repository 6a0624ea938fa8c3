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
 * holds of the process. Any number of threads may use it. Waiting threads share the connection.
 *
 * <pre>{@code
 * try (LockElection locks = LockElection.connect("jdbc:postgresql://db1,db2/app");
 *      Hold hold = locks.acquire("invoices")) {
 *     while (hold.isValid() && moreWork())
 *         work();
 * }
 * }</pre>
 *
 * <p>Holds are valid until the deadline: the time at which the last confirmed renewal was sent, plus the validity that
 * the server has returned, less a twentieth of the TTL (at most 1 s). The validity is the TTL, or less after restarts
 * of the server in quick succession, or if the TTL is above 5 minutes. Before the deadline a broken connection loses
 * nothing. At the deadline the session ends, and stays so until {@link #reopen()}.
 *
 * <p>Calls throw {@link LockException}. A limit of time counts from the call. An interrupt ends a call that waits; then
 * nothing is held, and nothing waits. If the server does not reply at that time, this takes up to a second.
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
	 * Connects by a URL of PostgreSQL's driver. If the URL has several hosts, the session uses the one that is not a
	 * standby.
	 *
	 * @param url such as {@code jdbc:postgresql://db1,db2/app?user=app}
	 * @return an open session, with the default {@link Options}
	 * @throws LockException with status UNAVAILABLE, DENIED, NOT_INSTALLED or INVALID
	 */
	public static LockElection connect(String url) {
		return connect(url, new Options());
	}

	/**
	 * Connects by a URL of PostgreSQL's driver.
	 *
	 * @param url as in {@link #connect(String)}
	 * @param options the options of the session
	 * @return an open session
	 * @throws LockException with status UNAVAILABLE, DENIED, NOT_INSTALLED or INVALID
	 */
	public static LockElection connect(String url, Options options) {
		return new LockElection(Jdbc.connector(url), options, Clock.SYSTEM);
	}

	/**
	 * Takes one connection of a pool, or of PostgreSQL's own data source, and keeps it. The data source must know all
	 * hosts, and must limit the time for a connection (connectTimeout) to well below the TTL.
	 *
	 * @param source a source of connections to PostgreSQL, which is asked for a new one when the connection breaks
	 * @return an open session, with the default {@link Options}
	 * @throws LockException with status UNAVAILABLE, DENIED, NOT_INSTALLED or INVALID
	 */
	public static LockElection connect(DataSource source) {
		return connect(source, new Options());
	}

	/**
	 * Takes one connection of a data source, and keeps it.
	 *
	 * @param source as in {@link #connect(DataSource)}
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
	 * Reopens a session that has ended, with a new lease. Its old holds stay lost. Does nothing if the session has not
	 * ended.
	 *
	 * @throws LockException with status CANCELED if it was closed; with a status such as UNAVAILABLE if it stays ended
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
	 * Acquires a lock. Waits for it without limit, in the order of arrival.
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
	 * @param ttl how long the hold outlives the program if that dies, 100 ms to 24 days; null for the session's TTL. If
	 *        it differs from that, the hold gets a lease of its own, which ends with the session at the latest
	 * @param wait the limit of the time in the queue; null for none; zero does not wait. The server's first reply does
	 *        not count, so a free lock is acquired even if the limit is shorter than a round trip
	 * @return the hold, which the caller must close
	 * @throws NotAcquiredException if it was not granted within the limit, or if there was no reply, neither within the
	 *         limit nor within a quarter of the TTL
	 * @throws LockLostException if the session has ended
	 * @throws LockException with status DEADLOCK, LIMIT, DENIED, INVALID or CANCELED; with status UNAVAILABLE if it
	 *         does not wait and there is no reply
	 * @throws InterruptedException if the thread was interrupted; nothing is held
	 */
	public Hold acquire(String name, Duration ttl, Duration wait) throws InterruptedException {
		return acquire(Request.exclusive(name).ttl(ttl), wait);
	}

	/**
	 * Acquires a lock, a shared lock, a permit, or several locks at once.
	 *
	 * @param request the locks or the permit to acquire
	 * @param wait the limit of the time in the queue; null for none; zero does not wait
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
	 * Acquires without waiting: only if nobody else holds the lock or waits for it.
	 *
	 * @param request the locks or the permit to acquire
	 * @return empty if others hold it or wait for it
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
	 * Tries each of many locks on its own, like {@link #tryAcquire}, with one statement for up to 128 of them.
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
	 * Tries each of many locks on its own, like {@link #tryAcquireEach(Collection)}, also shared ones.
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
			throw LockException.of(Status.INVALID, "a name is there twice among " + names.size() + " names");
		List<Hold> asked = on.submit(names.stream().map(name -> shared ? Request.shared(name) : Request.exclusive(name))
				.collect(Collectors.toList()), true);
		Map<String, Hold> held = new LinkedHashMap<>();
		try {
			for (Hold hold : asked) {
				try {
					held.put(hold.names().get(0), on.await(hold, Duration.ofMillis(on.callMillis())));
				} catch (NotAcquiredException e) {
					// somebody else has this one
				}
			}
			return held;
		} catch (LockException | InterruptedException e) {
			asked.forEach(on::drop);
			throw e;
		}
	}

	/**
	 * Makes a {@link java.util.concurrent.locks.Lock} of a lock.
	 *
	 * @param name 1 to 255 bytes
	 * @return a new object; two objects with the same name exclude each other
	 */
	public NamedLock asLock(String name) {
		return new NamedLock(this, Request.exclusive(name));
	}

	/**
	 * Runs a job unless another process runs it or has run it lately: all processes start the job, and one runs it.
	 * Reopens a session that has ended.
	 *
	 * @param name the name of the job
	 * @param holdFor keeps the name closed until this long after the start of the job, even if it fails; null does not
	 * @param job runs in this thread
	 * @return whether the job was run here
	 * @throws LockException as in {@link #acquire(Request, Duration)} and {@link #checkHoldFor}; the job was not run
	 * @throws InterruptedException if the thread was interrupted; the job was not run
	 */
	public boolean once(String name, Duration holdFor, Runnable job) throws InterruptedException {
		Request request = Request.exclusive(name);
		Arguments.given(job, "the job");
		reopen();
		if (holdFor != null)
			checkHoldFor(name, holdFor);
		Optional<Hold> hold = tryAcquire(request);
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
	 * Asks the server whether {@link Hold#release(Duration)} may close this name for so long. Call it before work that
	 * must not be repeated; {@link #once} does so itself.
	 *
	 * @param name 1 to 255 bytes
	 * @param holdFor the duration that the release will have
	 * @throws LockException with status LIMIT if it is longer than the server's lock_election.max_hold_for, INVALID if
	 *         it is not from 0 to 24 days, UNAVAILABLE, ...
	 * @throws InterruptedException if the thread was interrupted
	 */
	public void checkHoldFor(String name, Duration holdFor) throws InterruptedException {
		Session on = session;
		// Token 0 releases nothing.
		on.ask(on.lease, Request.exclusive(name), "release", "0", Arguments.milliseconds(Arguments.holdFor(holdFor)));
	}

	// --- elections ---

	/**
	 * Campaigns again and again, and leads when elected, in a thread of its own. Reopens a session that has ended.
	 *
	 * @param election 1 to 255 bytes
	 * @param value the text that everybody sees of the leader, such as its address: 1 to 4096 bytes
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

	/** Campaigns until elected. Returns null when the term is no longer wanted. */
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
	 * @param value the text that everybody sees of the leader: 1 to 4096 bytes
	 * @param wait the limit of the time in the queue; null for none; zero does not wait
	 * @return the term, which the caller must close
	 * @throws NotAcquiredException if it was not elected within the limit
	 * @throws LockLostException if the session has ended
	 * @throws LockException as in {@link #acquire(Request, Duration)}
	 * @throws InterruptedException if the thread was interrupted; it is no longer a candidate
	 */
	public Term campaign(String election, String value, Duration wait) throws InterruptedException {
		return (Term) session.acquire(Request.term(election, value), wait);
	}

	/**
	 * Asks the server for the present leader.
	 *
	 * @param election 1 to 255 bytes
	 * @return empty if nobody leads
	 * @throws LockException with status UNAVAILABLE, INVALID, ...
	 * @throws InterruptedException if the thread was interrupted
	 */
	public Optional<Leader> leader(String election) throws InterruptedException {
		List<Object[]> rows = session.run("SELECT candidate, term FROM %s.current_leader(?)",
				Arguments.election(election));
		return rows.stream().findFirst().map(row -> new Leader((String) row[0], (Long) row[1]));
	}

	/**
	 * Tells a listener the present leader, and then each change, once and in order.
	 *
	 * @param election 1 to 255 bytes
	 * @param listener runs in the executor; gets an empty Optional when nobody leads any more
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
	 * all work under its holds has stopped. An interrupt does not end the call, and is kept.
	 *
	 * @param limit how long it waits for the server, zero or more; after that the lease expires on the server
	 * @return whether the server has confirmed the end in time
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
