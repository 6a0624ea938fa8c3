package lockelection

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	firstRetry = 50 * time.Millisecond
	deafSweep  = 250 * time.Millisecond // while something waits, and no notification comes
	waitSweep  = 5 * time.Second        // while something waits
)

// jitter takes up to a tenth more or less.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.2*float64(d))
}

func longestPause(ttl time.Duration) time.Duration { return min(max(ttl/20, firstRetry), time.Second) }

// failed: nothing the first time; then 50 ms, doubled up to a twentieth of the TTL, or 1 s.
func (s *Session) failed(err error) (retryAt time.Duration) {
	s.trouble = err
	if retryAt = s.set.now(); s.failures > 0 {
		retryAt += jitter(min(firstRetry<<min(s.failures-1, 10), longestPause(s.set.ttl)))
	}
	s.failures++
	return retryAt
}

// run is the session's goroutine. One statement is under way at a time.
func (s *Session) run(opened chan<- error) {
	defer close(s.stopped)
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.connect()
	if err == nil && s.err == nil {
		err = s.grant(s.lease)
	}
	if errors.Is(err, ErrUnknown) && s.trouble != nil {
		err = s.trouble
	}
	if err != nil {
		s.end(err)
	}
	opened <- err
	for s.err == nil {
		s.turn()
		s.expire()
	}
	s.shutDown()
}

// turn does one thing, or rests. A renewal that is due goes first, then answers that were lost; the others take turns.
func (s *Session) turn() {
	now := s.set.now()
	next := now + time.Minute
	if s.wire == nil {
		if sooner(&next, s.retryAt); now < next {
			s.rest(next - now)
		} else if err := s.connect(); err != nil {
			s.retryAt = s.failed(err)
		}
		return
	}
	for _, l := range s.leases {
		if l.id != 0 && now >= l.renewAt {
			s.renew(l)
			return
		} else if l.id != 0 {
			sooner(&next, l.renewAt)
		}
	}
	if now < s.askAt {
		sooner(&next, s.askAt)
	} else if s.unanswered {
		s.resolve()
		return
	} else {
		jobs := [...]func(now time.Duration, next *time.Duration) bool{
			s.answerQuery, s.request, s.listen, s.sweepDue,
		}
		for range jobs {
			s.job = (s.job + 1) % len(jobs)
			if jobs[s.job](now, &next) {
				return
			}
		}
	}
	s.rest(next - now)
}

// rest waits for the server, for another goroutine or for the time.
func (s *Session) rest(limit time.Duration) {
	wire := s.wire
	s.mu.Unlock()
	if wire != nil {
		err := wire.idle(limit)
		s.mu.Lock()
		s.hear(wire, err)
		return
	}
	select {
	case <-s.woken:
	case <-time.After(limit):
	}
	s.mu.Lock()
}

// exec runs one statement, in which %s is the schema.
func (s *Session) exec(l *lease, sql string, args ...string) (rows, error) {
	wire, limit := s.wire, s.limit(l)
	s.busy = true
	s.mu.Unlock()
	r, err := wire.call(limit, sql, args)
	s.mu.Lock()
	s.learned(wire)
	s.expire()
	s.hear(wire, err)
	if s.busy = false; s.wire == nil {
		return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if err = explain(err); errors.Is(err, ErrUnknown) {
		s.unanswered = true // the server has ended it in the middle
	}
	return r, err
}

// hear takes the notifications. A connection that has ended is given up; in the middle of a statement nobody knows what
// that did.
func (s *Session) hear(wire *wire, err error) {
	s.heard(wire)
	if !wire.conn.IsClosed() {
		return
	}
	if s.busy {
		s.unanswered = true
		s.old = append(s.old, wire)
	}
	s.wire, s.retryAt, s.relisten = nil, s.failed(explain(err)), true
}

// connect makes a connection. While there is a lease to save, each host has less time.
func (s *Session) connect() error {
	limit := 5 * time.Second
	if s.lease.id != 0 {
		limit = min(limit, max(s.set.ttl/4, 200*time.Millisecond))
	}
	s.mu.Unlock()
	wire, err := s.dial(s.ctx, limit)
	s.mu.Lock()
	if err != nil {
		return err
	}
	s.wire, s.askAt = wire, 0
	s.learned(wire)
	for _, l := range s.leases {
		l.renewAt = 0
	}
	return nil
}

// learned tells the schema of the extension to fences.
func (s *Session) learned(wire *wire) {
	if known := s.schema.Load(); known == nil || *known != wire.schema {
		schema := wire.schema
		s.schema.Store(&schema)
	}
}

// tooLate is the error of a call whose context is over; if no answer came in time, with what kept it from coming.
func (s *Session) tooLate(ctx context.Context, what string) error {
	return s.troubled(ended(ctx, what))
}

func (s *Session) unavailable(h *Hold) error {
	return s.troubled(fmt.Errorf("%s: %w: %w", h, errNoAnswer, context.DeadlineExceeded))
}

func (s *Session) troubled(err error) error {
	if errors.Is(err, ErrUnavailable) && s.failures > 0 {
		err = fmt.Errorf("%w (%w)", err, s.trouble)
	}
	return err
}

// --- the lease ---

func (s *Session) grant(l *lease) error {
	sent := s.set.now()
	r, err := s.exec(l, "SELECT %s.grant_lease($1, $2)", milliseconds(l.ttl), s.owner)
	if err == nil {
		l.id = number(r[0][0])
		s.renewed(l, sent, l.ttl)
		s.watchdog.Reset(0)
	}
	return err
}

// renewed counts the deadline from the sending, by the validity that the server has returned: what the lease has if the
// server crashes now. A shorter one takes nothing back. For an answer that comes after the old deadline see expire.
func (s *Session) renewed(l *lease, sent, validity time.Duration) {
	deadline := sent + min(validity, l.ttl) - min(l.ttl/20, time.Second)
	l.deadline.Store(max(l.deadline.Load(), int64(deadline)))
	l.renewAt = sent + jitter(min(l.ttl/3, max(validity/3, longestPause(l.ttl))))
	l.swept, s.failures = false, 0
}

// The validity in milliseconds, whatever the style of intervals is.
const renewSQL = "SELECT pg_catalog.floor(pg_catalog.date_part('epoch', %s.keep_alive($1)) * 1000)::bigint"

func (s *Session) renew(l *lease) {
	if l != s.lease && l.holds == 0 {
		s.lose(l, ErrReleased)
		s.exec(l, "SELECT %s.revoke_lease($1)", itoa(l.id))
		return
	}
	sent := s.set.now()
	r, err := s.exec(l, renewSQL, itoa(l.id))
	switch {
	case l.over:
	case err != nil:
		l.renewAt = s.failed(err)
	case r[0][0] == nil:
		s.lose(l, fmt.Errorf("%w: the server has ended the lease", ErrLost))
	default:
		s.renewed(l, sent, time.Duration(number(r[0][0]))*time.Millisecond)
	}
}

// shutDown gives back what has to be closed for a while, and revokes the leases. After a loss no connection is made for
// that: what is left ends by itself.
func (s *Session) shutDown() {
	if s.closeAt != 0 && s.wire == nil && s.ctx.Err() == nil {
		s.connect()
	}
	for now := s.set.now(); s.wire != nil && now < s.closeAt && now >= s.askAt; now = s.set.now() {
		if !s.giveBack() {
			break
		}
	}
	s.revoked = true
	for _, l := range s.leases {
		err := error(ErrUnavailable)
		if s.wire != nil && l.id != 0 {
			_, err = s.exec(l, "SELECT %s.revoke_lease($1)", itoa(l.id))
		}
		s.revoked = s.revoked && (err == nil || l.id == 0)
	}
	for h := range s.holds {
		s.forget(h)
	}
	if wire := s.wire; wire != nil {
		s.wire = nil
		s.mu.Unlock()
		wire.close()
		s.mu.Lock()
	}
	s.cancel()
}

// --- calls that wait for one answer ---

// query is a statement of a call, which the session's goroutine repeats over reconnects.
type query struct {
	ctx  context.Context
	sql  string
	args []string
	rows rows
	err  error
	done chan struct{}
}

var errNoAnswer = fmt.Errorf("%w: no answer in time", ErrUnavailable)

// limited ends a call that does not wait for others, but for the server.
func limited(ctx context.Context, ttl time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, callLimit(ttl), errNoAnswer)
}

// ask runs one statement, in which %s is the schema.
func (s *Session) ask(ctx context.Context, sql string, args ...string) (rows, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := limited(ctx, s.set.ttl)
	defer cancel()
	q := &query{ctx: ctx, sql: sql, args: args, done: make(chan struct{})}
	s.mu.Lock()
	if s.expire(); s.err != nil {
		defer s.mu.Unlock()
		return nil, s.err
	}
	s.queries = append(s.queries, q)
	s.wake()
	s.mu.Unlock()
	select {
	case <-q.done:
		return q.rows, q.err
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		return nil, s.tooLate(ctx, "ask the server")
	}
}

func (s *Session) answerQuery(time.Duration, *time.Duration) bool {
	s.queries = slices.DeleteFunc(s.queries, func(q *query) bool { return q.ctx.Err() != nil })
	if len(s.queries) == 0 {
		return false
	}
	q := s.queries[0]
	r, err := s.exec(s.lease, q.sql, q.args...)
	if s.err != nil {
		return true
	}
	if passes(err) {
		s.askAt = s.set.now() + firstRetry
		return true
	}
	q.rows, q.err, s.queries = r, err, s.queries[1:]
	close(q.done)
	return true
}
