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
 * Locks and leader election for a process: one connection to the server, and one lease that its renewals keep alive for
 * all that the process holds. Any number of threads use it; those that wait share the connection.
 *
 * <pre>{@code
 * try (LockElection locks = LockElection.connect("jdbc:postgresql://db1,db2/app");
 *      Hold hold = locks.acquire("invoices")) {
 *     while (hold.isValid() && moreWork())
 *         work();
 * }
 * }</pre>
 *
 * <p>What is held is valid until the deadline: the sending of the last renewal that was answered, plus the validity that
 * the server has returned, less a twentieth of the TTL (1 s at most). The validity is the TTL, or less after restarts of the
 * server in quick succession, or of a TTL above 5 minutes. A connection that breaks loses nothing before. After the deadline the session has
 * ended, and stays so until {@link #reopen()}.
 *
 * <p>Calls throw {@link LockException}; a limit of time counts from the call. A call that waits ends by an interrupt,
 * and then nothing is held, and nothing waits. If the server does not answer at the time, that takes up to a second.
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
	 * Connects by a URL of PostgreSQL's driver, which may have several hosts: the one that is not a standby is used.
	 *
	 * @param url such as {@code jdbc:postgresql://db1,db2/app?user=app}
	 * @return an open session, with the default {@link Options}
	 * @throws LockException UNAVAILABLE, DENIED, NOT_INSTALLED, INVALID
	 */
	public static LockElection connect(String url) {
		return connect(url, new Options());
	}

	/**
	 * Connects by a URL of PostgreSQL's driver.
	 *
	 * @param url as {@link #connect(String)}
	 * @param options of the session
	 * @return an open session
	 * @throws LockException UNAVAILABLE, DENIED, NOT_INSTALLED, INVALID
	 */
	public static LockElection connect(String url, Options options) {
		return new LockElection(Jdbc.connector(url), options, Clock.SYSTEM);
	}

	/**
	 * Takes one connection of a pool, or of PostgreSQL's own data source, and keeps it. The data source has to limit how
	 * long it takes (connectTimeout), well below the TTL, and to know all hosts.
	 *
	 * @param source of connections to PostgreSQL; one that is closed or broken is asked for another one
	 * @return an open session, with the default {@link Options}
	 * @throws LockException UNAVAILABLE, DENIED, NOT_INSTALLED, INVALID
	 */
	public static LockElection connect(DataSource source) {
		return connect(source, new Options());
	}

	/**
	 * Takes one connection of a data source, and keeps it.
	 *
	 * @param source as {@link #connect(DataSource)}
	 * @param options of the session
	 * @return an open session
	 * @throws LockException UNAVAILABLE, DENIED, NOT_INSTALLED, INVALID
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
	 * Opens a session that has ended again, with a new lease. What it held is lost, and was told so. Otherwise does
	 * nothing.
	 *
	 * @throws LockException UNAVAILABLE, ...: it stays ended; CANCELED: it was closed
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
	 * What the session is in. No I/O.
	 *
	 * @return never null
	 */
	public State state() {
		return session.state();
	}

	/**
	 * The number of the session's lease, as the server's view "leases" shows it.
	 *
	 * @return another one after {@link #reopen()}
	 */
	public long lease() {
		return session.lease.id;
	}

	/**
	 * The TTL of the session.
	 *
	 * @return as the options have it
	 */
	public Duration ttl() {
		return options.ttl;
	}

	// --- locks ---

	/**
	 * Acquires a lock. Waits for it without limit, in the order of arrival.
	 *
	 * @param name 1 to 255 bytes
	 * @return what is held, to be closed
	 * @throws LockLostException the session has ended
	 * @throws LockException DEADLOCK, LIMIT, DENIED, INVALID, CANCELED, ...
	 * @throws InterruptedException nothing is held
	 */
	public Hold acquire(String name) throws InterruptedException {
		return acquire(Request.exclusive(name), null);
	}

	/**
	 * Acquires a lock.
	 *
	 * @param name 1 to 255 bytes
	 * @param ttl how long it lasts after the program has died, 100 ms to 24 days; null: as the session. One that differs
	 *        from the session's gets a lease of its own. The session's end is its end as well
	 * @param wait how long it stands in the queue; null: without limit; zero: does not wait. The first answer of the server
	 *        does not count: a lock that is free is acquired also if the wait is shorter than a round trip
	 * @return what is held, to be closed
	 * @throws NotAcquiredException not granted within the limit; or there was no answer, neither within it nor within a
	 *         quarter of the TTL
	 * @throws LockLostException the session has ended
	 * @throws LockException DEADLOCK, LIMIT, DENIED, INVALID, CANCELED; UNAVAILABLE without a wait, if no answer came
	 * @throws InterruptedException nothing is held
	 */
	public Hold acquire(String name, Duration ttl, Duration wait) throws InterruptedException {
		return acquire(Request.exclusive(name).ttl(ttl), wait);
	}

	/**
	 * Acquires a lock, a shared lock, a permit, or several locks at once.
	 *
	 * @param request what
	 * @param wait the limit of the wait; null: none; zero: does not wait
	 * @return what is held, to be closed
	 * @throws NotAcquiredException not granted within the limit
	 * @throws LockLostException the session has ended
	 * @throws LockException as {@link #acquire(String, Duration, Duration)}
	 * @throws InterruptedException nothing is held
	 */
	public Hold acquire(Request request, Duration wait) throws InterruptedException {
		return session.acquire(request, wait);
	}

	/**
	 * Acquires it if nobody holds it, or waits for it.
	 *
	 * @param request what
	 * @return empty if somebody does
	 * @throws LockException as {@link #acquire(Request, Duration)}
	 * @throws InterruptedException nothing is held
	 */
	public Optional<Hold> tryAcquire(Request request) throws InterruptedException {
		try {
			return Optional.of(acquire(request, Duration.ZERO));
		} catch (NotAcquiredException e) {
			return Optional.empty();
		}
	}

	/**
	 * {@link #tryAcquire} for each of many locks, at the price of one: 128 travel in a statement.
	 *
	 * @param names any number, each once
	 * @return those that were acquired, in the order of the names
	 * @throws LockException one of them failed; nothing is held
	 * @throws InterruptedException nothing is held
	 */
	public Map<String, Hold> tryAcquireEach(Collection<String> names) throws InterruptedException {
		return tryAcquireEach(names, false);
	}

	/**
	 * {@link #tryAcquireEach(Collection)}, also for shared locks.
	 *
	 * @param names any number, each once
	 * @param shared whether others may share them
	 * @return those that were acquired, in the order of the names
	 * @throws LockException one of them failed; nothing is held
	 * @throws InterruptedException nothing is held
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
	 * A lock as a {@link java.util.concurrent.locks.Lock}.
	 *
	 * @param name 1 to 255 bytes
	 * @return a new one; two of one name exclude each other
	 */
	public NamedLock asLock(String name) {
		return new NamedLock(this, Request.exclusive(name));
	}

	/**
	 * Runs something if nobody else runs it, or has run it lately: a job that is started everywhere and runs once.
	 * Opens a session that has ended again.
	 *
	 * @param name of the job
	 * @param holdFor nobody runs it until that long after its start, also if it fails; null: not closed
	 * @param job runs in this thread
	 * @return whether it was run here
	 * @throws LockException as {@link #acquire(Request, Duration)}; as {@link #checkHoldFor}, and then it was not run
	 * @throws InterruptedException it was not run
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
	 * Asks the server whether a {@link Hold#release(Duration)} may close this name for so long, before the work that must
	 * not be done again starts. {@link #once} asks by itself.
	 *
	 * @param name 1 to 255 bytes
	 * @param holdFor as it will be given to the release
	 * @throws LockException LIMIT: longer than the server's lock_election.max_hold_for; INVALID: not from 0 to 24 days;
	 *         UNAVAILABLE, ...
	 * @throws InterruptedException the thread was interrupted
	 */
	public void checkHoldFor(String name, Duration holdFor) throws InterruptedException {
		Session on = session;
		on.ask(on.lease, Request.exclusive(name), "release", "0", Arguments.milliseconds(Arguments.holdFor(holdFor))); // of nothing
	}

	// --- elections ---

	/**
	 * Stands as a candidate, again and again, and leads when elected, in a thread of its own. Opens a session that has
	 * ended again.
	 *
	 * @param election 1 to 255 bytes
	 * @param value what everybody sees of the leader, such as its address: 1 to 4096 bytes
	 * @param lead what the leader does
	 * @return to be closed
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

	/** Null: no longer wanted. */
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
	 * Stands as a candidate once.
	 *
	 * @param election 1 to 255 bytes
	 * @param value what everybody sees of the leader: 1 to 4096 bytes
	 * @param wait the limit of the wait; null: none; zero: does not wait
	 * @return the term, to be closed
	 * @throws NotAcquiredException not elected within the limit
	 * @throws LockLostException the session has ended
	 * @throws LockException as {@link #acquire(Request, Duration)}
	 * @throws InterruptedException not a candidate any more
	 */
	public Term campaign(String election, String value, Duration wait) throws InterruptedException {
		return (Term) session.acquire(Request.term(election, value), wait);
	}

	/**
	 * Who leads.
	 *
	 * @param election 1 to 255 bytes
	 * @return empty if nobody does
	 * @throws LockException UNAVAILABLE, INVALID, ...
	 * @throws InterruptedException the thread was interrupted
	 */
	public Optional<Leader> leader(String election) throws InterruptedException {
		List<Object[]> rows = session.run("SELECT candidate, term FROM %s.current_leader(?)",
				Arguments.election(election));
		return rows.stream().findFirst().map(row -> new Leader((String) row[0], (Long) row[1]));
	}

	/**
	 * Tells the present leader, and then each change, once and in order.
	 *
	 * @param election 1 to 255 bytes
	 * @param listener runs in the executor; is told empty when nobody leads any more
	 * @return to be closed
	 * @throws LockException CANCELED: the session was closed
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

	/** {@link #close(Duration)} with a limit of a quarter of the TTL. */
	@Override
	public void close() {
		close(Duration.ofMillis(session.callMillis()));
	}

	/**
	 * Ends the candidacies and all waits, gives back what is held, revokes the lease, and disconnects. Call it when nothing
	 * works under a hold any more. An interrupt does not end it, and is kept.
	 *
	 * @param limit zero or more, after which the session is left to the server, where the lease ends at its TTL
	 * @return whether the server has confirmed it in time
	 * @throws LockException INVALID: the limit is negative
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

	/** What is told is told before close() returns, unless a listener closes. */
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
