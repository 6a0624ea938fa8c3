package lockelection

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The validity that a renewal returns may be shorter than the TTL: the deadline and the next renewal follow it, and what
// an earlier answer has promised stands.
func TestUnitValidity(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.table(func(string, []string) [][]string { return nil })
		plain, validity, silent := f.answer, "3000", make(chan struct{})
		f.answer = func(function string, args []string) [][]string {
			if function != "keep_alive" {
				return plain(function, args)
			}
			f.scene.Lock()
			now := validity
			f.scene.Unlock()
			if now == "" {
				<-silent
				return nil
			}
			return [][]string{{now}}
		}
		becomes := func(milliseconds string) { f.change(func() { validity = milliseconds }) }
		s := f.open()
		h := f.lock(s, "x")
		renewals := func() int { return len(f.sent("keep_alive")) }
		next := func() { // renewal
			for n := renewals(); renewals() == n; {
				time.Sleep(time.Millisecond) // of the bubble
			}
			synctest.Wait()
		}
		next()
		if left := s.TimeLeft(); left < fakeSafe-fakeTTL*4/10 {
			t.Fatalf("%v left: a shorter validity has taken back what the grant had promised", left)
		}
		for sent := time.Now(); renewals() < 8; {
			next()
			if took := time.Since(sent); took < 890*time.Millisecond || took > 1110*time.Millisecond {
				t.Fatalf("the next renewal came after %v, and the validity is 3 s", took)
			}
			sent = time.Now()
		}
		expect(t, "left", s.TimeLeft().Round(5*time.Millisecond), 3*time.Second-fakeMargin)
		expect(t, "valid", h.Valid(), true)

		// With no validity at all it does not renew without a pause, and loses nothing before the deadline.
		becomes("0")
		next()
		sent := time.Now()
		next()
		if took := time.Since(sent); took < fakeTTL/20*8/10 {
			t.Fatalf("the next renewal came after %v", took)
		}
		expect(t, "valid", h.Valid(), true)
		becomes("99999999") // more than was asked for
		next()
		expect(t, "left", s.TimeLeft().Round(5*time.Millisecond), fakeSafe)
		sent = time.Now()
		becomes("")
		<-h.Context().Done()
		expect(t, "lost after", time.Since(sent).Round(5*time.Millisecond), fakeSafe)
		close(silent)
	})
}

// A wait bounds the time in the queue, and the first answer has the limit of any call.
func TestUnitShortWaits(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var answer [][]string
		took := time.Duration(0)
		f.table(func(string, []string) [][]string { return nil })
		plain := f.answer
		f.answer = func(function string, args []string) [][]string {
			if strings.HasPrefix(function, "enqueue") {
				f.scene.Lock()
				after, then := took, answer
				f.scene.Unlock()
				time.Sleep(after)
				return then
			}
			return plain(function, args)
		}
		s := f.open()
		short, limit := WaitFor(time.Millisecond), callLimit(fakeTTL)

		f.change(func() { answer, took = [][]string{{"70", "t", "c"}}, time.Second })
		h, err := s.Lock(t.Context(), "free", short)
		expect(t, "a free lock", err, nil)
		expect(t, "is held", h.Valid(), true)
		e := s.Election("free")
		expect(t, "an election", e.Campaign(t.Context(), "me", short), nil)

		f.change(func() { answer = [][]string{{"71", "f", "c"}} })
		start := time.Now()
		_, err = s.Lock(t.Context(), "held", short)
		expect(t, "a lock that is held", err, ErrHeld)
		expect(t, "is told after", time.Since(start), took)
		synctest.Wait()
		expect(t, "the place is given back", len(f.sent(`release_each {"held"} {"71"}`)), 1)

		f.change(func() { f.held = append(f.held, []string{"lock", "held", "71", "f", "c", s.owner}) })
		start = time.Now()
		_, err = s.Lock(t.Context(), "held", WaitFor(4*time.Second))
		expect(t, "a longer wait", err, ErrHeld)
		expect(t, "counts from the call", time.Since(start), 4*time.Second)

		f.change(func() { answer, took = nil, limit-10*time.Millisecond }) // and then the connection ends
		for _, wait := range []time.Duration{time.Millisecond, limit, limit + time.Second} {
			start = time.Now()
			_, err = s.Lock(t.Context(), "silent", WaitFor(wait))
			expect(t, "no answer", errors.Is(err, ErrUnavailable) && errors.Is(err, context.DeadlineExceeded), true)
			expect(t, "is told after", time.Since(start), max(limit, wait))
		}

		f.change(func() { answer, took = [][]string{{"72", "t", "c"}}, time.Second })
		_, err = s.Lock(t.Context(), "try", WaitFor(0))
		expect(t, "no wait at all", err, nil)
		if len(f.sent(`try_acquire_each {"try"}`)) != 1 {
			t.Error("a wait of 0 takes a place")
		}
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
		f.table(func(string, []string) [][]string { return nil })
		s := f.open()
		h := f.lock(s, "x")
		rename := func(schema string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.schema = schema
		}
		rename(`"le2"`)
		f.lock(s, "y")
		expect(t, "refused", len(f.sent("refused")), 1)
		expect(t, "the schema of fences", *s.schema.Load(), `"le2"`)
		rename(`"le3"`)
		expect(t, "unlock", h.Unlock(t.Context()), nil)
		rename(`"le4"`)
		expect(t, "renewals", len(f.sent("keep_alive")), 0)
		for len(f.sent("keep_alive")) == 0 {
			time.Sleep(time.Millisecond) // of the bubble
		}
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

// Who may not end the old backend looks for what it may still do.
func TestUnitOldBackendOfAnotherRole(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		lost := false
		f.table(func(function string, args []string) [][]string {
			switch {
			case function == "terminate":
				return [][]string{{"!42501"}}
			case function == "try_acquire_each" && !lost:
				lost = true
				f.conns[len(f.conns)-1].Close()
				return [][]string{{"1"}}
			}
			return nil
		})
		s := f.open()
		expect(t, "acquired", f.lock(s, "x").Valid(), true)
		f.change(func() { // what was on its way comes late
			f.held = append(f.held, []string{"lock", "x", "77", "t", "c", s.owner + "1"})
		})
		for len(f.sent("release")) == 0 {
			time.Sleep(time.Millisecond) // of the bubble
		}
		expect(t, "given back", strings.Join(f.sent("release"), ""), `release_each {"x"} {"77"}`)
	})
}
