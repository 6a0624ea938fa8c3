"""Spans of OpenTelemetry, from the events of a session. Needs the extra [opentelemetry].

    session = lock_election.connect(on_event=spans())

| span | from, to | is an error if |
|---|---|---|
| acquire lock | the request, the grant or the end of the wait | the server refused, or the session ended |
| hold lock | the grant, the release or the loss | the lock was lost |
| suspend session | the first failure, the next renewal | |

A span of a lock is a child of the span in which the lock was requested. OpenTelemetry has no conventions for locks, so
the attributes have this library's prefix: lock_election.names, lock_election.mode, lock_election.token, and
lock_election.outcome, which is the kind of the event. A failed span has error.type, the name of the exception.
"""

from __future__ import annotations

from typing import Callable, Optional

from opentelemetry.trace import Status, StatusCode, TracerProvider, get_tracer

from ._errors import Canceled, NotAcquired
from ._protocol import Event

SPANS = {
    "acquired": "acquire lock",
    "not_acquired": "acquire lock",
    "released": "hold lock",
    "lost": "hold lock",
    "resumed": "suspend session",
}


def spans(provider: Optional[TracerProvider] = None) -> Callable[[Event], None]:
    """Returns a function for on_event that makes spans.

    provider: None = the global one.
    """
    tracer = get_tracer("lock_election", tracer_provider=provider)

    def on_event(event: Event) -> None:
        if event.kind not in SPANS:
            return
        end = int(event.time * 1e9)
        span = tracer.start_span(SPANS[event.kind], start_time=end - int(event.seconds * 1e9))
        span.set_attribute("lock_election.outcome", event.kind)
        if event.names:
            span.set_attribute("lock_election.names", event.names)
            span.set_attribute("lock_election.mode", event.mode)
        if event.token:
            span.set_attribute("lock_election.token", event.token)
        if event.error is not None and not isinstance(event.error, (NotAcquired, Canceled)):
            span.set_attribute("error.type", type(event.error).__qualname__)
            span.set_status(Status(StatusCode.ERROR, str(event.error)))
        span.end(end)

    return on_event
