package lockelection

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The validity that a call returns may be shorter than the TTL: the deadline and the next renewal follow it, and what an
// earlier reply has promised stands.
func TestUnitValidity(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		silent := make(chan struct{})
		f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
			f.mu.Lock()
			now := f.validity
			f.mu.Unlock()
			if call != nil && now == "silent" {
				<-silent
				return [][]string{}
			}
			return nil
		})
		becomes := func(milliseconds string) { f.when(func() { f.validity = milliseconds }) }
		s := f.open()
		h := f.lock(s, "x")
		becomes("3000")
		f.next("sync")
		if left := s.TimeLeft(); left < fakeSafe-fakeTTL*4/10 {
			t.Fatalf("%v left: a shorter validity has taken back what an earlier one had promised", left)
		}
		for sent := time.Now(); f.renewals() < 8; {
			f.next("sync")
			if took := time.Since(sent); took < 890*time.Millisecond || took > 1110*time.Millisecond {
				t.Fatalf("the next renewal came after %v, and the validity is 3 s", took)
			}
			sent = time.Now()
		}
		expect(t, "left", s.TimeLeft().Round(5*time.Millisecond), 3*time.Second-fakeMargin)
		expect(t, "valid", h.Valid(), true)

		// With no validity at all it does not renew without a pause, and loses nothing before the deadline.
		becomes("")
		deadline := time.Now().Add(s.TimeLeft())
		before := f.renewals()
		time.Sleep(2 * time.Second)
		if n := f.renewals() - before; n < 2 || n > 10 {
			t.Fatalf("%d renewals in 2 s", n)
		}
		expect(t, "left", s.TimeLeft(), time.Until(deadline))
		expect(t, "valid", h.Valid(), true)
		becomes("99999999") // more than was asked for
		f.next("sync")
		expect(t, "left", s.TimeLeft().Round(5*time.Millisecond), fakeSafe)
		expect(t, "state", s.State(), Connected)
		sent := time.Now()
		becomes("silent")
		<-h.Context().Done()
		expect(t, "lost after", time.Since(sent).Round(5*time.Millisecond), fakeSafe)
		close(silent)
	})
}

// A wait bounds the time in the queue, and the first answer has the limit of any call.
func TestUnitShortWaits(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		took, free, silent := time.Second, true, false
		f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
			if call == nil || !call.has("enqueue") {
				return nil
			}
			var answer [][]string
			var after time.Duration
			f.when(func() {
				if after = took; silent {
					answer = [][]string{}
				}
			})
			if time.Sleep(after); answer == nil && !free {
				answer = f.queued(call)
			}
			return answer
		})
		s := f.open()
		short, limit := WaitFor(time.Millisecond), callLimit(fakeTTL)
		h, err := s.Lock(t.Context(), "free", short)
		expect(t, "a free lock", err, nil)
		expect(t, "is held", h.Valid(), true)
		expect(t, "an election", s.Election("free").Campaign(t.Context(), "me", short), nil)

		free = false
		start := time.Now()
		_, err = s.Lock(t.Context(), "held", short)
		expect(t, "a lock that is held", err, ErrHeld)
		expect(t, "is told after", time.Since(start), took)
		synctest.Wait()
		expect(t, "the place is given back", len(f.sent("release held 23")), 1)

		other := make(chan error, 1)
		go func() {
			_, err := s.Lock(t.Context(), "other", short)
			other <- err
		}()
		synctest.Wait()
		start = time.Now()
		_, err = s.Lock(t.Context(), "held", short)
		expect(t, "a lock that is held, behind a call of others", err, ErrHeld)
		expect(t, "is told after", time.Since(start), 2*took)
		expect(t, "the other one", <-other, ErrHeld)

		start = time.Now()
		_, err = s.Lock(t.Context(), "held", WaitFor(4*time.Second))
		expect(t, "a longer wait", err, ErrHeld)
		expect(t, "counts from the call", time.Since(start), 4*time.Second)

		f.when(func() { silent, took = true, limit-10*time.Millisecond }) // and then the connection ends
		for _, wait := range []time.Duration{time.Millisecond, limit, limit + time.Second} {
			start = time.Now()
			_, err = s.Lock(t.Context(), "silent", WaitFor(wait))
			expect(t, "no answer", errors.Is(err, ErrUnavailable) && errors.Is(err, context.DeadlineExceeded), true)
			expect(t, "is told after", time.Since(start), max(limit, wait))
			time.Sleep(limit) // of a call that is under way
		}
		f.when(func() { silent = false })

		_, err = s.Lock(t.Context(), "try", WaitFor(0))
		expect(t, "no wait at all", err, nil)
		expect(t, "takes no place", len(f.sent("try_lock try")), 1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		start = time.Now()
		_, err = s.Lock(ctx, "canceled", WaitFor(time.Minute))
		expect(t, "a context", errors.Is(err, context.DeadlineExceeded), true)
		expect(t, "ends the call at once", time.Since(start), 10*time.Millisecond)
	})
}

// The schema has another name, or is gone and comes back: nothing is lost, and only what asks meanwhile is told.
func TestUnitSchema(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		s := f.open()
		h := f.lock(s, "x")
		rename := func(schema string) { f.when(func() { f.schema = schema }) }
		rename(`"le2"`)
		f.lock(s, "y")
		expect(t, "refused", len(f.sent("refused")), 1)
		expect(t, "the schema of fences", s.schema, `"le2"`)
		rename(`"le3"`)
		expect(t, "unlock", h.Unlock(t.Context()), nil)
		rename(`"le4"`)
		calls := len(f.sent("sync"))
		f.next("sync")
		expect(t, "renewals", len(f.sent("sync")), calls+1)
		expect(t, "state", s.State(), Connected)
		if s.TimeLeft() < fakeSafe-10*time.Millisecond {
			t.Errorf("%v left after a renewal", s.TimeLeft())
		}

		rename("")
		_, err := s.TryLock(t.Context(), "z")
		expect(t, "no extension", errors.Is(err, ErrNotInstalled), true)
		time.Sleep(fakeTTL / 2)
		expect(t, "suspended", s.State(), Suspended)
		rename(`"le5"`)
		time.Sleep(2 * time.Second)
		expect(t, "connected", s.State(), Connected)
		f.lock(s, "z")
		expect(t, "connections", len(f.conns), 1)
	})
}
