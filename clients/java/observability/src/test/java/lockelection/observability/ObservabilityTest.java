package lockelection.observability;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.context.Scope;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.testing.exporter.InMemorySpanExporter;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.data.SpanData;
import io.opentelemetry.sdk.trace.export.SimpleSpanProcessor;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import lockelection.Db;
import lockelection.Hold;
import lockelection.LockElection;
import lockelection.LockException;
import lockelection.Options;
import lockelection.Request;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Spans and meters of a session on a server: a hold that is lost, a refusal, an error, a suspension, a release. */
@Timeout(120)
class ObservabilityTest {
	private static final AttributeKey<String> OUTCOME = AttributeKey.stringKey("lock_election.outcome");
	private static final AttributeKey<String> ERROR = AttributeKey.stringKey("error.type");

	private final InMemorySpanExporter exporter = InMemorySpanExporter.create();
	private final OpenTelemetrySdk sdk = OpenTelemetrySdk.builder().setTracerProvider(
			SdkTracerProvider.builder().addSpanProcessor(SimpleSpanProcessor.create(exporter)).build()).build();
	private final SimpleMeterRegistry registry = new SimpleMeterRegistry();
	private final String name = Db.name();

	private List<SpanData> named(String span) {
		return exporter.getFinishedSpanItems().stream().filter(one -> one.getName().equals(span)).collect(Collectors.toList());
	}

	@Test
	void spansAndMeters() throws Exception {
		Options options = new Options().ttl(Duration.ofSeconds(10)).listener(new Spans(sdk))
				.listener(new Meters(registry, event -> Tags.of("app", "billing")));
		Span work = sdk.getTracer("work").spanBuilder("work").startSpan();
		Hold hold;
		try (LockElection locks = LockElection.connect(Db.URL + "&ApplicationName=observed", options)) {
			try (Scope scope = work.makeCurrent()) {
				hold = locks.acquire(name);
				assertTrue(locks.tryAcquire(Request.exclusive(name)).isEmpty());
			}
			work.end();
			Thread.sleep(100);
			Db.sql("SELECT force_release_lock('" + name + "')");
			Db.until(() -> named("hold lock").size() == 1);
			try (Hold permit = locks.acquire(Request.permit(name, 2), null)) {
				assertTrue(permit.isValid());
				assertThrows(LockException.class, () -> locks.acquire(Request.permit(name, 3), null));
				assertEquals(1, registry.get("lock_election.held").gauge().value());
				Db.sql("SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
						+ " WHERE application_name = 'observed'");
				Db.until(() -> named("suspend session").size() == 1);
			}
		}
		spans(hold, work);
		meters();
	}

	private void spans(Hold hold, Span work) {
		List<SpanData> acquires = named("acquire lock"), holds = named("hold lock");
		SpanData acquired = acquires.get(0), refused = acquires.get(1), wrong = acquires.get(3);
		SpanData lost = holds.get(0), released = holds.get(1);
		assertEquals(Attributes.of(AttributeKey.stringArrayKey("lock_election.names"), List.of(name),
				AttributeKey.stringKey("lock_election.mode"), "lock", AttributeKey.longKey("lock_election.token"), hold.token(),
				OUTCOME, "acquired").asMap(), acquired.getAttributes().asMap());
		assertEquals("lock_election", acquired.getInstrumentationScopeInfo().getName());
		for (SpanData span : List.of(acquired, refused, lost))
			assertEquals(work.getSpanContext().getSpanId(), span.getParentSpanId());
		long held = TimeUnit.NANOSECONDS.toMillis(lost.getEndEpochNanos() - lost.getStartEpochNanos());
		assertTrue(held >= 100 && held < 60_000, held + " ms");
		assertTrue(Math.abs(lost.getStartEpochNanos() - acquired.getEndEpochNanos()) < 1e9);
		assertEquals(StatusCode.ERROR, lost.getStatus().getStatusCode());
		assertEquals("LOST", lost.getAttributes().get(ERROR));
		assertEquals(StatusCode.ERROR, wrong.getStatus().getStatusCode());
		assertEquals("INVALID", wrong.getAttributes().get(ERROR));
		for (SpanData span : List.of(acquired, refused, released)) {
			assertEquals(StatusCode.UNSET, span.getStatus().getStatusCode());
			assertNull(span.getAttributes().get(ERROR));
		}
		assertEquals("not_acquired", refused.getAttributes().get(OUTCOME));
		assertFalse(named("suspend session").get(0).getParentSpanContext().isValid());
	}

	private long count(String meter, String mode, String outcome) {
		return registry.get(meter).tags("mode", mode, "outcome", outcome, "app", "billing").timer().count();
	}

	private void meters() {
		assertEquals(1, count("lock_election.acquire", "lock", "acquired"));
		assertEquals(1, count("lock_election.acquire", "lock", "not_acquired"));
		assertEquals(1, count("lock_election.acquire", "permit", "acquired"));
		assertEquals(1, count("lock_election.hold", "lock", "lost"));
		assertEquals(1, count("lock_election.hold", "permit", "released"));
		double held = registry.get("lock_election.hold").tag("outcome", "lost").timer().totalTime(TimeUnit.MILLISECONDS);
		assertTrue(held >= 100 && held < 60_000, held + " ms");
		assertEquals(1, registry.get("lock_election.suspension").timer().count());
		assertEquals(0, registry.get("lock_election.held").gauge().value());
	}

	@Test
	void theEndOfASession() throws Exception {
		try (LockElection locks = LockElection.connect(Db.URL, new Options().listener(new Meters(registry)))) {
			locks.acquire(name);
			Db.sql("SELECT revoke_lease(lease) FROM lock_election.locks WHERE name = '" + name + "'");
			Db.until(() -> registry.find("lock_election.ended").counter() != null);
		}
		assertEquals(1, registry.get("lock_election.ended").counter().count());
		assertEquals(1, registry.get("lock_election.hold").tags("mode", "lock", "outcome", "lost").timer().count());
	}
}
