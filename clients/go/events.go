package lockelection

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// Event reports a change of a hold, a wait or the session to the function of [WithOnEvent].
type Event struct {
	// Kind is acquired, not_acquired, released or lost; of the session, suspended, resumed, or ended if its lease is lost.
	Kind  string
	Mode  string   // lock, shared, permit, election or session
	Names []string // of the locks or the election; nil for the session
	Token int64    // of the hold; 0 = none
	Time  time.Time
	// Duration is the time for which the caller waited, the lock was held, or the session was suspended.
	Duration time.Duration
	Err      error // reason why the lock was not acquired or was lost, or the session is suspended or has ended
}

// LogValue returns the event as a group of attributes.
func (e Event) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("kind", e.Kind), slog.String("mode", e.Mode), slog.Duration("duration", e.Duration)}
	if e.Names != nil {
		attrs = append(attrs, slog.Any("names", e.Names), slog.Int64("token", e.Token))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	return slog.GroupValue(attrs...)
}

// WithOnEvent sets a function that is called for each event, one event at a time, in a separate goroutine. A panic in
// the function is only logged. Its context has the values of the context with which the lock was requested, and never
// ends. The function must not call Close, because Close waits for it.
func WithOnEvent(f func(context.Context, Event)) SessionOption {
	return sessionOption(func(o *options) { o.onEvent = f })
}

// --- with s.mu locked ---

// holdEvent reports a change of a hold or a wait.
func (s *Session) holdEvent(h *Hold, kind string, err error) {
	_, mode, asks := strings.Cut(h.ask.action, "_")
	if s.set.onEvent == nil || !asks {
		return // there is no function, or the request is a proclaim
	} else if mode == "candidate" {
		mode = "election"
	}
	if kind == "released" {
		err = nil
	}
	now := s.set.now()
	s.event(context.WithoutCancel(h.ctx), Event{Kind: kind, Mode: mode, Names: h.names, Token: h.token.Load(),
		Duration: now - h.since, Err: err})
	h.since = now
}

// sessionEvent reports a change of the session, if it was opened.
func (s *Session) sessionEvent(kind string, err error) {
	if s.set.onEvent == nil || s.lease.id == 0 {
		return
	}
	e := Event{Kind: kind, Mode: "session", Err: err}
	if s.suspendedAt != 0 {
		e.Duration = s.set.now() - s.suspendedAt
	}
	if s.suspendedAt = 0; kind == "suspended" {
		s.suspendedAt = s.set.now()
	}
	s.event(context.Background(), e)
}

// event queues an event. If the queue was empty, it starts a goroutine that reports the event.
func (s *Session) event(ctx context.Context, e Event) {
	e.Time = time.Now()
	if s.events = append(s.events, func() { s.set.onEvent(ctx, e) }); len(s.events) == 1 {
		s.reported = make(chan struct{})
		go s.report(s.events[0])
	}
}

// report calls the function with the first event, and starts another goroutine for the next event, because the
// function may end this goroutine with runtime.Goexit.
func (s *Session) report(call func()) {
	defer func() {
		if p := recover(); p != nil {
			slog.Error("lockelection: the function for events has panicked", "panic", p)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.events = s.events[1:]; len(s.events) > 0 {
			go s.report(s.events[0])
		} else {
			close(s.reported)
		}
	}()
	call()
}
