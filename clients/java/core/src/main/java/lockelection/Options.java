package lockelection;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.Executor;
import java.util.function.Consumer;

/** Of a session. Immutable; each method returns another one. The defaults serve. */
public final class Options {
	private static final int NAME_BYTES = 200;

	final Duration ttl;
	final String name;
	final Executor executor;
	final Consumer<State> onState;

	/** The defaults. */
	public Options() {
		this(Duration.ofSeconds(30), "java " + ProcessHandle.current().pid(), null, state -> { });
	}

	private Options(Duration ttl, String name, Executor executor, Consumer<State> onState) {
		this.ttl = ttl;
		this.name = name;
		this.executor = executor;
		this.onState = onState;
	}

	/**
	 * How long what the session holds lasts after the program died.
	 *
	 * @param ttl 100 ms to 24 days; default: 30 s
	 * @return other options
	 * @throws LockException INVALID
	 */
	public Options ttl(Duration ttl) {
		return new Options(Arguments.ttl(ttl), name, executor, onState);
	}

	/**
	 * What the column "owner" of the server's views begins with.
	 *
	 * @param name is cut to 200 bytes; default: "java" and the number of the process
	 * @return other options
	 * @throws LockException INVALID: it has a NUL, or half of a surrogate pair
	 */
	public Options name(String name) {
		return new Options(ttl, Arguments.encodable(name, "the name of the session"), executor, onState);
	}

	/**
	 * What runs the listeners. One that runs them in the calling thread delays the session.
	 *
	 * @param executor null, the default: a thread of the session, which ends when there is nothing to tell
	 * @return other options
	 */
	public Options executor(Executor executor) {
		return new Options(ttl, name, executor, onState);
	}

	/**
	 * Is told each new state of the session.
	 *
	 * @param onState runs in the executor
	 * @return other options
	 */
	public Options onState(Consumer<State> onState) {
		return new Options(ttl, name, executor, Arguments.given(onState, "the listener"));
	}

	String ownerName() {
		String cut = name;
		while (cut.getBytes(StandardCharsets.UTF_8).length > NAME_BYTES)
			cut = cut.substring(0, cut.offsetByCodePoints(cut.length(), -1));
		return cut;
	}
}
