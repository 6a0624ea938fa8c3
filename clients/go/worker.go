package lockelection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"
)

const (
	firstRetry = 50 * time.Millisecond
	lingersFor = time.Second // time for which a session keeps listening after its last wait for a place
)

// jitter returns the duration, changed at random by up to 10 %.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.2*float64(d))
}

func longestPause(ttl time.Duration) time.Duration { return min(max(ttl/20, firstRetry), time.Second) }

// failed records a failure and returns the time of the next attempt: now after the first failure, then after 50 ms,
// doubled each time up to a twentieth of the TTL, at most 1 s.
func (s *Session) failed(err error) (retryAt time.Duration) {
	s.trouble = err
	if retryAt = s.set.now(); s.failures > 0 {
		retryAt += jitter(min(firstRetry<<min(s.failures-1, 10), longestPause(s.set.ttl)))
	}
	if s.failures++; s.suspendedAt == 0 && s.err == nil {
		s.sessionEvent("suspended", err)
	}
	return retryAt
}

// renewed moves the deadline to the time at which the call was sent, plus the validity that the server has returned
// (the time for which the lease lasts even if the server crashes), minus the margin. A shorter validity never moves
// the deadline back.
func (s *Session) renewed(l *lease, sent, validity time.Duration) {
	l.end.Store(max(l.end.Load(), int64(sent+min(validity, l.ttl)-margin(l.ttl))))
	l.renewAt = sent + jitter(min(l.ttl/3, max(validity/3, longestPause(l.ttl))))
	if s.failures = 0; s.suspendedAt != 0 {
		s.sessionEvent("resumed", nil)
	}
}

// run is the session's goroutine. It renews the lease if no caller has done so, reconnects, and listens for
// notifications while a hold waits.
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
		s.stop(err)
	} else if s.err == nil && s.wire != nil {
		s.make(s.begin(s.lease), (*wire).sync, 0)
	}
	opened <- err
	for s.err == nil {
		s.step()
		s.expire()
	}
	s.shutDown()
}

// step does the most urgent work, or sleeps if there is none.
func (s *Session) step() {
	now := s.set.now()
	next := now + time.Minute
	switch {
	case s.half != nil:
		s.resume()
	case s.busy:
		s.free.Wait()
	case s.wire == nil && now < s.retryAt:
		s.rest(s.retryAt - now)
	case s.wire == nil:
		if err := s.connect(); err != nil {
			s.retryAt = s.failed(err)
		}
	case !s.renew(now, &next) && !s.listen(now, &next):
		s.rest(next - now)
	}
}

// renew runs the turn that is due first, and returns false if none is due. It requests a lease before the lease's
// first turn, and revokes a lease that is no longer used.
func (s *Session) renew(now time.Duration, next *time.Duration) bool {
	first := slices.MinFunc(s.leases, func(a, b *lease) int {
		return cmp.Or(cmp.Compare(s.due(a), s.due(b)), cmp.Compare(b.releases(), a.releases()), cmp.Compare(a.lastAt, b.lastAt))
	})
	sooner(next, s.due(first))
	unused := first != s.lease && len(first.queue)+len(first.open)+len(first.byToken) == 0
	switch {
	case now < *next:
		return false
	case first.id == 0 && unused:
		s.lose(first, ErrReleased)
	case first.id == 0:
		if err := s.grant(first); err != nil && passes(err) {
			first.renewAt = s.failed(err)
		} else if err != nil {
			s.lose(first, err)
		}
	case unused:
		s.lose(first, ErrReleased)
		s.exec(first, "SELECT %s.revoke_lease($1)", itoa(first.id))
	default:
		if now < first.renewAt { // let a caller run this turn, if one has requested something
			s.mu.Unlock()
			runtime.Gosched()
			s.mu.Lock()
		}
		if !s.busy && s.wire != nil && !first.over && s.due(first) <= now {
			s.make(s.begin(first), (*wire).sync, 0)
		}
	}
	return true
}

// releases returns the number of queued releases. Leases with releases have priority, because others may be waiting
// for their locks.
func (l *lease) releases() (n int) {
	for _, i := range l.queue {
		if i.gives() {
			n++
		}
	}
	return n
}

// resume reads the rest of a reply after the caller that ran the turn has stopped reading it.
func (s *Session) resume() {
	s.wire.conn.Conn().SetReadDeadline(s.half.limit)
	s.make(s.half, (*wire).read, 0)
}

// rest sleeps until another goroutine wakes it up, or for the time limit. While a hold waits, a notification also
// wakes it up.
func (s *Session) rest(limit time.Duration) {
	wire := s.wire
	if wire == nil || s.asking > 0 || !s.hopes() {
		s.mu.Unlock()
		select {
		case <-s.woken:
		case <-time.After(limit):
		}
		s.mu.Lock()
		return
	}
	select {
	case <-s.woken:
		return
	default:
	}
	s.busy, s.idling = true, true
	wire.conn.Conn().SetReadDeadline(time.Now().Add(limit))
	s.mu.Unlock()
	err := wire.conn.WaitForNotification(context.Background())
	if !isTimeout(err) {
		wire.check(err)
	}
	s.mu.Lock()
	s.idling = false
	s.release()
	s.hear(wire, err)
}

// hopes reports whether a hold or an observer waits for a notification.
func (s *Session) hopes() bool {
	waits := func(l *lease) bool { return l.waiting > 0 }
	return len(s.wire.listens) > 0 && (len(s.observers) > 0 || slices.ContainsFunc(s.leases, waits))
}

// release lets other goroutines use the wire.
func (s *Session) release() {
	s.busy = false
	s.free.Broadcast()
}

// exec runs a statement on the wire; %s in it stands for the schema.
func (s *Session) exec(l *lease, sql string, args ...string) (rows, error) {
	wire, limit := s.wire, s.limit(l)
	s.busy = true
	s.mu.Unlock()
	r, err := wire.call(limit, sql, args)
	s.mu.Lock()
	s.release()
	s.schema = wire.schema
	s.expire()
	if s.hear(wire, err); s.wire == nil {
		return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return r, explain(err)
}

// hear handles notifications, which make turns and reads of observers due. It removes a closed connection from the
// session.
func (s *Session) hear(wire *wire, err error) {
	for _, channel := range wire.heard {
		for _, l := range s.leases {
			if l.channel == channel {
				l.look, wire.hears = true, true
			}
		}
		for hint, observed := range s.observers {
			if observed == channel {
				tell(hint)
			}
		}
	}
	if wire.heard = nil; wire.conn.IsClosed() && s.wire == wire {
		s.wire, s.retryAt = nil, s.failed(explain(err))
	}
}

// tell sends a hint without blocking, because an observer that has not received the last hint yet needs no other.
func tell(hint chan struct{}) {
	select {
	case hint <- struct{}{}:
	default:
	}
}

// connect connects to the server. While the session has a lease, the time limit for each host is shorter, so that
// other hosts can be tried.
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
	s.wire, s.schema = wire, wire.schema
	s.free.Broadcast()
	for _, l := range s.leases {
		l.renewAt = 0
	}
	return nil
}

// troubled adds to the error "no answer in time" the error that is the reason.
func (s *Session) troubled(err error) error {
	if errors.Is(err, ErrUnavailable) && s.failures > 0 {
		err = fmt.Errorf("%w (%w)", err, s.trouble)
	}
	return err
}

// grant requests a lease. The lease is durable when a call of lease_sync has returned its validity.
func (s *Session) grant(l *lease) error {
	sent, wait := s.set.now(), milliseconds(s.limit(l)/2)
	r, err := s.exec(l, "SELECT %s.grant_lease($1, $2, $3)", milliseconds(l.ttl), s.owner, wait)
	if err == nil {
		l.id, l.bornAt = number(r[0][0]), sent
		s.watchdog.Reset(0)
	}
	return err
}

// listen sends LISTEN for the channels of the observers, and of the leases with waiting holds until lingersFor after
// the last wait. The first time it also sends the session a test notification. If LISTEN is rejected or that does not
// arrive, the session polls.
func (s *Session) listen(now time.Duration, next *time.Duration) bool {
	var sql strings.Builder
	test, wanted := "", map[string]bool{}
	for _, channel := range s.observers {
		wanted[channel] = true
	}
	for _, l := range s.leases {
		lingers := l.waitedAt > 0 && now < l.waitedAt+lingersFor
		if l.channel == "" || l.waiting == 0 && !lingers {
			continue
		} else if l.waiting == 0 {
			sooner(next, l.waitedAt+lingersFor)
		}
		if wanted[l.channel] = true; !s.wire.tested {
			test = "SET LOCAL synchronous_commit = off; NOTIFY " + l.channel
		}
	}
	if s.wire.deaf {
		return false
	}
	for channel := range wanted {
		if !s.wire.listens[channel] {
			sql.WriteString("LISTEN " + channel + ";")
		}
	}
	for channel := range s.wire.listens {
		if !wanted[channel] {
			sql.WriteString("UNLISTEN " + channel + ";")
		}
	}
	if sql.Len() == 0 {
		return false
	}
	s.wire.listens, s.wire.tested = wanted, s.wire.tested || test != ""
	if _, err := s.exec(s.lease, sql.String()+test); err != nil && s.wire != nil {
		s.wire.deaf, s.wire.listens = true, nil
	}
	for _, l := range s.leases {
		l.look = l.look || l.waiting > 0 // read grants whose notification was sent before this LISTEN
	}
	for hint := range s.observers {
		tell(hint)
	}
	return true
}

// shutDown sends the remaining releases with HoldFor, revokes the leases and closes the connection.
func (s *Session) shutDown() {
	for s.busy && s.half == nil {
		s.free.Wait()
	}
	if s.half != nil && s.closeAt == 0 {
		s.wire.cut()
	}
	if s.half != nil {
		s.resume()
	}
	s.failures, s.revoked = 0, true
	for _, l := range s.leases {
		s.revoked = (l.id == 0 || s.windUp(l)) && s.revoked
		l.over = true
		s.drop(l, s.err)
	}
	if wire := s.wire; wire != nil {
		s.wire = nil
		s.mu.Unlock()
		wire.close()
		s.mu.Lock()
	}
	s.cancel()
}

// windUp sends a lease's last releases and revokes the lease. It retries, also on new connections, until the time
// limit of Close. If the session was lost, it does not reconnect, and the lease expires.
func (s *Session) windUp(l *lease) (revoked bool) {
	for s.wire != nil || s.closeAt != 0 {
		gives, failures := s.closeAt != 0 && len(l.queue) > 0, s.failures
		var err error
		if s.wire == nil {
			err = s.connect()
		} else if gives {
			for _, i := range l.queue {
				i.at = 0
			}
			s.make(s.begin(l), (*wire).sync, 0)
		} else if _, err = s.exec(l, "SELECT %s.revoke_lease($1)", itoa(l.id)); err == nil || !passes(err) {
			return err == nil
		}
		if s.set.now() >= s.closeAt || s.ctx.Err() != nil {
			return false
		} else if err != nil || s.failures > failures || gives && len(l.queue) > 0 {
			s.mu.Unlock()
			time.Sleep(firstRetry)
			s.mu.Lock()
		}
	}
	return false
}

// --- calls that wait for one reply ---

var errNoAnswer = fmt.Errorf("%w: no answer in time", ErrUnavailable)

// limited adds a time limit to the context of a call that waits only for the server's reply.
func limited(ctx context.Context, ttl time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, callLimit(ttl), errNoAnswer)
}

// ask runs a statement, in which %s stands for the schema. A separate goroutine repeats it after temporary errors.
func (s *Session) ask(ctx context.Context, sql string, args ...string) (r rows, err error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := limited(ctx, s.set.ttl)
	defer cancel()
	done := make(chan func(), 1)
	go func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for again := true; again && ctx.Err() == nil; {
			s.asking++
			for s.expire(); s.err == nil && (s.busy || s.wire == nil); s.expire() {
				s.wake()
				s.free.Wait()
			}
			s.asking--
			answer, failed := rows(nil), s.err
			if failed == nil {
				answer, failed = s.exec(s.lease, sql, args...)
			}
			s.wake()
			if again = s.err == nil && passes(failed); !again {
				done <- func() { r, err = answer, failed }
				return
			}
			s.mu.Unlock()
			time.Sleep(firstRetry)
			s.mu.Lock()
		}
	}()
	select {
	case take := <-done:
		take()
		return r, err
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		return nil, s.troubled(ended(ctx, "ask the server"))
	}
}
