package lockelection.observability;

import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tag;
import io.micrometer.core.instrument.Tags;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import lockelection.Event;
import lockelection.Listener;

/**
 * Reports the events of sessions to Micrometer: {@code new Options().listener(new Meters(registry))}. The meters are
 * <ul>
 * <li>{@code lock_election.acquire}, a timer of the waits, with the tags {@code mode} and {@code outcome} (acquired or
 * not_acquired);
 * <li>{@code lock_election.hold}, a timer of the holds, with the tags {@code mode} and {@code outcome} (released or
 * lost);
 * <li>{@code lock_election.held}, a gauge of the current number of holds;
 * <li>{@code lock_election.suspension}, a timer of the session's suspensions;
 * <li>{@code lock_election.ended}, a counter of the losses of a session's lease.
 * </ul>
 *
 * <p>Use one object for all sessions, because a registry has only one gauge of a name.
 */
public final class Meters implements Listener {
	private final MeterRegistry registry;
	private final Function<Event, ? extends Iterable<Tag>> tags;
	private final AtomicInteger held;

	/**
	 * Creates meters without tags for the names of locks, because too many names are bad for a registry.
	 *
	 * @param registry the registry of the meters
	 */
	public Meters(MeterRegistry registry) {
		this(registry, event -> Tags.empty());
	}

	/**
	 * Creates meters with additional tags.
	 *
	 * @param registry the registry of the meters
	 * @param tags a function that returns the additional tags of a timer, with the same keys for all events
	 */
	public Meters(MeterRegistry registry, Function<Event, ? extends Iterable<Tag>> tags) {
		this.registry = registry;
		this.tags = tags;
		held = registry.gauge("lock_election.held", new AtomicInteger());
	}

	@Override
	public void on(Event event) {
		switch (event.kind()) {
			case ACQUIRED:
				held.incrementAndGet();
				time("lock_election.acquire", event);
				break;
			case NOT_ACQUIRED:
				time("lock_election.acquire", event);
				break;
			case RELEASED:
			case LOST:
				held.decrementAndGet();
				time("lock_election.hold", event);
				break;
			case RESUMED:
				registry.timer("lock_election.suspension").record(event.duration());
				break;
			case ENDED:
				registry.counter("lock_election.ended").increment();
				break;
			default:
				break;
		}
	}

	private void time(String name, Event event) {
		Tags all = Tags.of("mode", event.mode(), "outcome", event.kind().toString()).and(tags.apply(event));
		registry.timer(name, all).record(event.duration());
	}
}
