package lockelection.observability;

import io.opentelemetry.api.GlobalOpenTelemetry;
import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.context.Context;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import lockelection.Event;
import lockelection.Listener;
import lockelection.LockException;
import lockelection.LockException.Status;

/**
 * Creates spans of OpenTelemetry: {@code new Options().listener(new Spans())}. They are
 * <ul>
 * <li>{@code acquire lock}, from the request to the grant or the end of the wait; an error if the server has refused
 * the request, or the session has ended;
 * <li>{@code hold lock}, from the grant to the release or the loss; an error if the lock was lost;
 * <li>{@code suspend session}, from the first failure to the next renewal.
 * </ul>
 *
 * <p>A span of a lock is a child of the span in which the lock was requested. OpenTelemetry has no conventions for
 * locks, so the attributes have this library's prefix: {@code lock_election.names}, {@code lock_election.mode},
 * {@code lock_election.token}, and {@code lock_election.outcome}, which is the kind of the event. A failed span has
 * {@code error.type}, the status of the exception.
 */
public final class Spans implements Listener {
	private static final AttributeKey<List<String>> NAMES = AttributeKey.stringArrayKey("lock_election.names");
	private static final Set<Status> NO_ERRORS = EnumSet.of(Status.NOT_ACQUIRED, Status.CANCELED);

	private final Tracer tracer;
	private final Context caller;

	/** Creates the spans with the global OpenTelemetry. */
	public Spans() {
		this(GlobalOpenTelemetry.get());
	}

	/**
	 * Creates the spans with the given OpenTelemetry.
	 *
	 * @param telemetry an object such as an OpenTelemetrySdk
	 */
	public Spans(OpenTelemetry telemetry) {
		this(telemetry.getTracer("lock_election"), Context.root());
	}

	private Spans(Tracer tracer, Context caller) {
		this.tracer = tracer;
		this.caller = caller;
	}

	@Override
	public Listener ofCaller() {
		return new Spans(tracer, Context.current());
	}

	@Override
	public void on(Event event) {
		String name = name(event.kind());
		if (name == null)
			return;
		Span span = tracer.spanBuilder(name).setParent(caller).setStartTimestamp(event.time().minus(event.duration()))
				.setAttribute("lock_election.outcome", event.kind().toString()).startSpan();
		if (!event.names().isEmpty())
			span.setAttribute(NAMES, event.names()).setAttribute("lock_election.mode", event.mode());
		if (event.token() != 0)
			span.setAttribute("lock_election.token", event.token());
		LockException error = event.error().orElse(null);
		if (error != null && !NO_ERRORS.contains(error.status()))
			span.setAttribute("error.type", error.status().name()).setStatus(StatusCode.ERROR, error.getMessage());
		span.end(event.time());
	}

	private static String name(Event.Kind kind) {
		switch (kind) {
			case ACQUIRED:
			case NOT_ACQUIRED:
				return "acquire lock";
			case RELEASED:
			case LOST:
				return "hold lock";
			case RESUMED:
				return "suspend session";
			default:
				return null;
		}
	}
}
