package lockelection;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.function.Consumer;

/** The options of a session. Immutable: each method returns a changed copy. The defaults work for most programs. */
public final class Options {
	private static final int NAME_BYTES = 200;

	final Duration ttl;
	final String name;
	final Executor executor;
	final Consumer<State> onState;
	final List<Listener> listeners;

	/** The defaults. */
	public Options() {
		this(Duration.ofSeconds(30), "java " + ProcessHandle.current().pid(), null, state -> { }, List.of());
	}

	private Options(Duration ttl, String name, Executor executor, Consumer<State> onState,
			List<Listener> listeners) {
		this.ttl = ttl;
		this.name = name;
		this.executor = executor;
		this.onState = onState;
		this.listeners = listeners;
	}

	/**
	 * Sets the TTL of the lease, which is the time for which the session's holds outlive the program if it dies.
	 *
	 * @param ttl 100 ms to 24 days; the default is 30 s
	 * @return the changed options
	 * @throws LockException with status INVALID
	 */
	public Options ttl(Duration ttl) {
		return new Options(Arguments.ttl(ttl), name, executor, onState, listeners);
	}

	/**
	 * Sets the name of the session, with which the column "owner" of the server's views begins.
	 *
	 * @param name the text, which is cut to 200 bytes; the default is "java" and the process id
	 * @return the changed options
	 * @throws LockException with status INVALID if the name has a NUL or half of a surrogate pair
	 */
	public Options name(String name) {
		return new Options(ttl, Arguments.encodable(name, "the name of the session"), executor, onState, listeners);
	}

	/**
	 * Sets the executor that runs the listeners. An executor that runs them in the calling thread delays the session.
	 *
	 * @param executor the executor; null (the default) for a thread of the session, which ends while there is nothing
	 *        to run
	 * @return the changed options
	 */
	public Options executor(Executor executor) {
		return new Options(ttl, name, executor, onState, listeners);
	}

	/**
	 * Sets the listener for changes of the session's state.
	 *
	 * @param onState the listener, which runs in the executor
	 * @return the changed options
	 */
	public Options onState(Consumer<State> onState) {
		return new Options(ttl, name, executor, Arguments.given(onState, "the listener"), listeners);
	}

	/**
	 * Adds a listener for the events of holds, waits and the session.
	 *
	 * @param listener runs in the executor
	 * @return the changed options
	 */
	public Options listener(Listener listener) {
		List<Listener> more = new ArrayList<>(listeners);
		more.add(Arguments.given(listener, "the listener"));
		return new Options(ttl, name, executor, onState, more);
	}

	String ownerName() {
		String cut = name;
		while (cut.getBytes(StandardCharsets.UTF_8).length > NAME_BYTES)
			cut = cut.substring(0, cut.offsetByCodePoints(cut.length(), -1));
		return cut;
	}
}
