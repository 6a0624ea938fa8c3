// Package lockotel makes spans of OpenTelemetry from the events of a session of lock_election:
//
//	s, err := lockelection.NewSession(ctx, pool, lockelection.WithOnEvent(lockotel.Spans(nil)))
//
// The spans are
//
//   - acquire lock, from the request to the grant or the end of the wait; an error if the server has refused the request,
//     or the session has ended;
//   - hold lock, from the grant to the release or the loss; an error if the lock was lost;
//   - suspend session, from the first failure to the next renewal.
//
// A span of a lock is a child of the span of the context with which the lock was requested. OpenTelemetry has no
// conventions for locks, so the attributes have this library's prefix: lock_election.names, lock_election.mode,
// lock_election.token, and lock_election.outcome, which is the kind of the event. A failed span has error.type.
package lockotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"lock-election.invalid/lockelection"
)

var names = map[string]string{"acquired": "acquire lock", "not_acquired": "acquire lock", "released": "hold lock",
	"lost": "hold lock", "resumed": "suspend session"}

var kinds = []error{lockelection.ErrLost, lockelection.ErrDeadlock, lockelection.ErrLimit, lockelection.ErrDenied,
	lockelection.ErrInvalid, lockelection.ErrUnavailable, lockelection.ErrNotInstalled}

// Spans returns a function for [lockelection.WithOnEvent]. If provider is nil, it uses the global one.
func Spans(provider trace.TracerProvider) func(context.Context, lockelection.Event) {
	return func(ctx context.Context, e lockelection.Event) {
		if names[e.Kind] == "" {
			return
		}
		from := provider
		if from == nil {
			from = otel.GetTracerProvider()
		}
		_, span := from.Tracer("lock_election").Start(ctx, names[e.Kind], trace.WithTimestamp(e.Time.Add(-e.Duration)))
		span.SetAttributes(attribute.String("lock_election.outcome", e.Kind))
		if e.Names != nil {
			span.SetAttributes(attribute.StringSlice("lock_election.names", e.Names),
				attribute.String("lock_election.mode", e.Mode))
		}
		if e.Token != 0 {
			span.SetAttributes(attribute.Int64("lock_election.token", e.Token))
		}
		if kind := errorType(e.Err); kind != "" {
			span.SetAttributes(attribute.String("error.type", kind))
			span.SetStatus(codes.Error, e.Err.Error())
		}
		span.End(trace.WithTimestamp(e.Time))
	}
}

// errorType returns the text of the error's kind. It is "" if the lock was free for others, or the caller gave up.
func errorType(err error) string {
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	if err == nil || errors.Is(err, lockelection.ErrHeld) || errors.Is(err, lockelection.ErrClosed) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return ""
	}
	return "_OTHER"
}
