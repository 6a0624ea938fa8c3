package lockelection

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A hold that is handed from one caller of a session to another one costs one call.
func TestUnitHandedOn(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
			if call != nil && call.has("enqueue") {
				return f.queued(call)
			} else if call != nil && call.has("release x") {
				f.tell("granted", "x", "22", "")
			}
			return nil
		})
		s := f.open()
		h := f.lock(s, "x")
		granted := waiter(t, s, "x")
		synctest.Wait()
		calls := len(f.sent("sync"))
		expect(t, "unlock", h.Unlock(t.Context()), nil)
		<-granted
		expect(t, "calls", strings.Join(f.sent("sync")[calls:], ""), "sync | release x 21")
		expect(t, "with news", f.waits[calls] != "", true)
	})
}

// Releases alone wait for nothing, unless something waits, has to be durable, or is due.
func TestUnitSilentRelease(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
			if call == nil || f.waits[len(f.waits)-1] != "" {
				return nil
			}
			rows := f.sync(call)
			rows[0] = make([]string, 16)
			rows[0][colEvent] = "lease"
			return rows
		})
		s := f.open()
		waited := func(release func() error) bool {
			t.Helper()
			expect(t, "released", release(), nil)
			return f.waits[len(f.waits)-1] != ""
		}
		h := f.lock(s, "x")
		left := s.TimeLeft()
		time.Sleep(time.Second)
		expect(t, "waited", waited(func() error { return h.Unlock(t.Context()) }), false)
		expect(t, "left", s.TimeLeft(), left-time.Second)
		h = f.lock(s, "y")
		expect(t, "waited with HoldFor", waited(func() error { return h.Unlock(t.Context(), HoldFor(time.Second)) }), true)
		h = f.lock(s, "z")
		f.when(func() { f.skew += fakeTTL / 2 })
		expect(t, "waited with a renewal", waited(func() error { return h.Unlock(t.Context()) }), true)
	})
}

// What is not durable yet is told by a later call. A proclamation and a release with HoldFor are sent again.
func TestUnitPending(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		owner, scene, pending := "", sync.Mutex{}, true
		f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
			if call == nil {
				return nil
			}
			rows := f.sync(call)
			scene.Lock()
			if call.has("try") {
				owner = call.items[0].owner
			}
			now := pending && len(rows) > 1
			pending = pending && !now
			scene.Unlock()
			if now {
				time.Sleep(time.Second)
				rows[0][colComplete], rows[1][colEvent], rows[1][colToken] = "", "pending", ""
			}
			return rows
		})
		s := f.open()
		e := s.Election("e")
		start := time.Now()
		go func() {
			time.Sleep(time.Second - time.Millisecond) // the next call tells it
			scene.Lock()
			defer scene.Unlock()
			f.tell("granted", "e", "21", owner)
		}()
		expect(t, "elected", e.TryCampaign(t.Context(), "me"), nil)
		expect(t, "after", time.Since(start) >= time.Second && time.Since(start) < 2*time.Second, true)
		expect(t, "asked", len(f.sent("try_candidate")), 1)
		expect(t, "token", e.Term().Token(), 21)
		again := func() {
			scene.Lock()
			defer scene.Unlock()
			pending = true
		}
		again()
		expect(t, "proclaim", e.Proclaim(t.Context(), "again"), nil)
		expect(t, "proclaimed", len(f.sent("proclaim e 21 again")), 2)
		h := f.lock(s, "x")
		again()
		expect(t, "unlock", h.Unlock(t.Context(), HoldFor(time.Second)), nil)
		expect(t, "released", len(f.sent("release x")), 2)
	})
}

// The server has started anew: an old call was not carried out, and its items are asked for again behind the news. What a
// complete reply does not have is lost.
func TestUnitOldCall(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		s := f.open()
		kept, gone := f.lock(s, "kept"), f.lock(s, "gone")
		both, err := s.TryLockAll(t.Context(), []string{"both", "other"})
		if err != nil {
			t.Fatal(err)
		}
		old := true
		f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
			if call == nil || !old {
				return nil
			}
			old = false
			return [][]string{f.lease("t"), f.row("", "granted", "kept", "21", ""), f.row("", "granted", "both", "23", "")}
		})
		h := f.lock(s, "x")
		expect(t, "asked", len(f.sent("try_lock x")), 2)
		expect(t, "valid", h.Valid() && kept.Valid(), true)
		expect(t, "lost", errors.Is(context.Cause(gone.Context()), ErrLost), true)
		expect(t, "one of two is lost", errors.Is(context.Cause(both.Context()), ErrLost), true)
		synctest.Wait()
		expect(t, "the other is given back", len(f.sent("release both 23 | release other 23")), 1)
	})
}

// A pending request that a reply with all news does not have was not done, or has ended.
func TestUnitPendingAndLost(t *testing.T) {
	for _, complete := range []string{"t", "f"} {
		t.Run(complete, func(t *testing.T) { pendingAndLost(t, complete) })
	}
}

func pendingAndLost(t *testing.T, complete string) {
	bubble(t, func(t *testing.T, f *fake) {
		calls := 0
		f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
			if call == nil {
				return nil
			}
			switch calls++; {
			case calls == 2:
				return [][]string{f.lease(""), f.row("1", "pending", "x", "", "")}
			case calls == 3:
				return [][]string{f.lease(complete)}
			}
			return nil
		})
		expect(t, "valid", f.lock(f.open(), "x").Valid(), true)
		expect(t, "asked", len(f.sent("try_lock x")), 2)
	})
}

// A place that is given up, on a lease of its own, is released before anything else is asked for.
func TestUnitReleasesFirstOfAllLeases(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
			if call != nil && call.has("enqueue") {
				return [][]string{f.lease("f"), f.row("1", "queued", "x", "21", call.items[0].owner)}
			} else if call != nil && call.has("try_lock slow") {
				time.Sleep(time.Second)
			}
			return nil
		})
		s, other := f.open(), WithTTL(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		go s.Lock(ctx, "x", other)
		synctest.Wait()
		go s.TryLock(t.Context(), "slow", other)
		synctest.Wait()
		cancel()
		synctest.Wait()
		f.lock(s, "x")
		released, asked := -1, -1
		for i, entry := range f.sent("sync") {
			if strings.Contains(entry, "release x") {
				released = i
			} else if strings.Contains(entry, "try_lock x") {
				asked = i
			}
		}
		expect(t, "in order", released >= 0 && released < asked, true)
	})
}

// Requests wait for the disk, so releases go before them; but a request is left behind by one call only.
func TestUnitReleasesFirst(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
			if call != nil && (call.has("try_lock slow") || call.has("release a")) {
				time.Sleep(time.Second)
			}
			return nil
		})
		s := f.open()
		a, b := f.lock(s, "a"), f.lock(s, "b")
		before := len(f.sent("sync"))
		go s.TryLock(t.Context(), "slow")
		synctest.Wait()
		go a.Unlock(t.Context())
		go s.TryLock(t.Context(), "c")
		synctest.Wait()
		time.Sleep(1500 * time.Millisecond) // the release of a is under way
		go b.Unlock(t.Context())
		synctest.Wait()
		time.Sleep(5 * time.Second)
		expect(t, "calls", strings.Join(f.sent("sync")[before:before+3], "\n"),
			"sync | try_lock slow\nsync | release a 21\nsync | try_lock c | release b 22")
	})
}

// A reply holds back the news of a grant that is not durable yet. The server may send no notification of it: the next call
// follows at once.
func TestUnitNewsHeldBack(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
			if call != nil && call.has("enqueue") {
				return f.queued(call)
			} else if call != nil && call.has("release x") {
				f.tell("granted", "x", "22", "")
				return [][]string{f.lease(""), f.row("1", "released", "x", "", "")}
			}
			return nil
		})
		s := f.open()
		h := f.lock(s, "x")
		granted := waiter(t, s, "x")
		synctest.Wait()
		start := time.Now()
		expect(t, "unlock", h.Unlock(t.Context()), nil)
		expect(t, "granted after", (<-granted).Sub(start), 0)
	})
}

// A lost answer is looked for until news are told: a reply that holds them back, as its NULL says, has not told of it.
func TestUnitLostAnswerOnASlowDisk(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		s := f.open()
		owner, calls := "", 0
		f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
			switch {
			case call == nil:
				return nil
			case call.has("try_permit"):
				owner = call.items[0].owner
				return [][]string{} // no answer
			case owner != "" && calls < 2:
				calls++
				return [][]string{f.lease("")}
			case owner != "" && calls == 2:
				calls++
				return [][]string{f.lease("f"), f.row("", "granted", "p", "77", owner)}
			}
			return nil
		})
		h, err := s.TryLock(t.Context(), "p", Permit(3))
		expect(t, "acquired", err, nil)
		expect(t, "token", h.Token(), 77)
		expect(t, "asked", len(f.sent("try_permit")), 1)
	})
}

// An evicted hold is lost for the application, and given back when that has left it.
func TestUnitEvicted(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		s := f.open()
		h, other := f.lock(s, "x"), f.lock(s, "y")
		f.tell("evicted", "x", "21", "")
		f.next("sync")
		expect(t, "lost", errors.Is(context.Cause(h.Context()), ErrLost), true)
		expect(t, "valid", h.Valid(), false)
		expect(t, "the other is valid", other.Valid(), true)
		f.tell("evicted", "x", "21", "") // again
		f.next("sync")
		expect(t, "given back by itself", len(f.sent("release x")), 0)
		expect(t, "unlocked", errors.Is(h.Unlock(context.Background()), ErrLost), true)
		f.next("sync")
		expect(t, "given back", len(f.sent("release x")), 1)
		expect(t, "unlocked again", errors.Is(h.Unlock(context.Background()), ErrLost), true)
	})
}

// A grant that was evicted before anybody knew of it is given back at once.
func TestUnitEvictedUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		s := f.open()
		first := true
		f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
			if call == nil || !call.has("try_lock x") || !first {
				return nil
			}
			first = false
			f.tell("evicted", "x", "31", call.items[0].owner)
			return [][]string{f.lease(""), f.row("1", "pending", "x", "", "")}
		})
		_, err := s.TryLock(t.Context(), "x")
		expect(t, "lost", errors.Is(err, ErrLost), true)
		synctest.Wait()
		expect(t, "given back", len(f.sent("release x 31")), 1)
	})
}

// The reasons of losses are told.
func TestUnitReasons(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		s := f.open()
		h, other := f.lock(s, "x"), f.lock(s, "y")
		f.tell("lost", "", "21", "forced")
		f.tell("lost", "", "99", "forced")
		f.next("sync")
		cause := context.Cause(h.Context())
		expect(t, "lost", errors.Is(cause, ErrLost) && strings.Contains(cause.Error(), "forced"), true)
		expect(t, "the other is valid", other.Valid(), true)
		f.reacts(func(string, []string, *fakeCall) [][]string {
			row := make([]string, 16)
			row[colEvent], row[colReason] = "gone", "revoked"
			return [][]string{row}
		})
		f.next("sync")
		for _, err := range []error{context.Cause(other.Context()), s.Err()} {
			expect(t, "gone", errors.Is(err, ErrLost) && strings.Contains(err.Error(), "revoked"), true)
		}
	})
}

// Errors of prepared statements: the statement is sent again, unprepared.
func TestUnitNotPrepared(t *testing.T) {
	for _, code := range []string{"!26000", "!42P05", "!0A000"} {
		bubble(t, func(t *testing.T, f *fake) {
			s := f.open()
			refused := false
			f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
				if refused {
					return nil
				}
				refused = true
				return [][]string{{code}}
			})
			start := time.Now()
			expect(t, "valid", f.lock(s, "x").Valid(), true)
			expect(t, "after", time.Since(start), 0)
			expect(t, "connections", len(f.conns), 1)
			expect(t, "failures", s.failures, 0)
		})
	}
}

// A disk that stops: the lease is not durable yet. It is used all the same, and nothing is promised.
func TestUnitNoValidityYet(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.validity = ""
		opened := time.Now()
		s := f.open()
		expect(t, "left", s.TimeLeft(), 0)
		expect(t, "an error", s.Err(), nil)
		time.Sleep(fakeTTL / 4)
		f.when(func() { f.validity = "10000" })
		f.next("sync")
		if s.TimeLeft() < fakeSafe-time.Second {
			t.Errorf("%v left", s.TimeLeft())
		}
		f.when(func() { f.validity = "" })
		s = f.open()
		opened = time.Now()
		<-s.Done()
		expect(t, "ends with its TTL", time.Since(opened), fakeSafe)
	})
}

// A statement beside lease_sync gets the connection while the session listens.
func TestUnitAskWhileListening(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.reacts(func(function string, _ []string, call *fakeCall) [][]string {
			if function == "current_leader" {
				return [][]string{{"me", "7"}}
			} else if call != nil && call.has("enqueue") {
				return f.queued(call)
			}
			return nil
		})
		s := f.open()
		granted := waiter(t, s, "x")
		time.Sleep(time.Second)
		for range 3 {
			start := time.Now()
			leader, err := s.Election("e").Leader(t.Context())
			expect(t, "the leader", leader, Leader{"me", 7})
			expect(t, "an error", err, nil)
			expect(t, "after", time.Since(start), 0)
		}
		f.tell("granted", "x", "21", "")
		f.notify("le_x")
		<-granted
	})
}

// Releases go first, whatever many names the requests before them ask for.
func TestUnitReleasesBeforeManyNames(t *testing.T) {
	s := &Session{set: options{now: func() time.Duration { return time.Second }}}
	l := newLease(time.Minute)
	l.queue = []*item{
		{action: "enqueue_lock", names: make([]string, maxNames), h: &Hold{}},
		{action: "enqueue_lock", names: []string{"x"}, h: &Hold{}},
		{action: "release", names: []string{"y"}},
	}
	actions := func() (actions string) {
		for _, i := range s.begin(l).items {
			actions += i.action + " "
		}
		return
	}
	expect(t, "first call", actions(), "release ")
	expect(t, "second call", actions(), "enqueue_lock ")
	l.queue = append(l.queue, &item{action: "release", names: []string{"z"}})
	expect(t, "third call", actions(), "release ")
	expect(t, "fourth call", actions(), "enqueue_lock ")
}
