package lockelection

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestUnitDeadlineFromSending(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		const slow = time.Second
		f.reacts(func(string, []string, *fakeCall) [][]string {
			time.Sleep(slow)
			return nil
		})
		s := f.open()
		expect(t, "left after a second on the way", s.TimeLeft(), fakeSafe-slow)
		for len(f.sent("sync")) < 2 {
			time.Sleep(time.Millisecond) // of the bubble
		}
		before := s.TimeLeft()
		time.Sleep(slow / 2)
		if s.TimeLeft() >= before {
			t.Fatal("a renewal counts before it was answered")
		}
		time.Sleep(slow / 2)
		synctest.Wait()
		if left := s.TimeLeft(); left > fakeSafe-slow || left < fakeSafe-slow-2*time.Millisecond {
			t.Fatalf("%v left after a renewal of a second", left)
		}
		before = s.TimeLeft()
		f.lock(s, "x")
		if left := s.TimeLeft(); left > fakeSafe-slow || left < before {
			t.Fatalf("%v left after a request of a second", left)
		}
	})
}

func TestUnitLostAtDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		hang := make(chan struct{})
		s := f.open()
		locked := time.Now()
		h := f.lock(s, "x")
		f.reacts(func(string, []string, *fakeCall) [][]string {
			<-hang
			return [][]string{}
		})
		<-h.Context().Done()
		expect(t, "lost after", time.Since(locked), fakeSafe)
		if !errors.Is(context.Cause(h.Context()), ErrLost) || !errors.Is(s.Err(), ErrLost) || h.Valid() {
			t.Fatalf("cause %v", context.Cause(h.Context()))
		}
		<-s.Done()
		_, err := s.TryLock(t.Context(), "y")
		expect(t, "a lock afterwards is lost", errors.Is(err, ErrLost), true)
		close(hang)
		expect(t, "close", s.Close(t.Context()), nil)
	})
}

// What fails when a session is closed is tried again: a release that closes a name for a while, and the revocation.
func TestUnitCloseTriesAgain(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		s, tries := f.open(), 0
		h := f.lock(s, "x")
		f.reacts(func(function string, _ []string, call *fakeCall) [][]string {
			if call != nil && !call.has("release") {
				return nil
			} else if tries++; tries == 3 || tries == 6 {
				return nil
			}
			return [][]string{} // hangs up
		})
		go h.Unlock(t.Context(), HoldFor(time.Minute))
		synctest.Wait()
		expect(t, "close", s.Close(t.Context()), nil)
		expect(t, "tries", tries, 6)
		expect(t, "releases", len(f.sent("release x")), 3)
	})
}

// A caller that makes the call itself is told the loss at the deadline, although no reply comes.
func TestUnitLostInACall(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		hang := make(chan struct{})
		defer close(hang)
		s := f.open()
		opened := time.Now()
		f.reacts(func(string, []string, *fakeCall) [][]string {
			<-hang
			return [][]string{}
		})
		time.Sleep(time.Second)
		_, err := s.Lock(t.Context(), "x")
		expect(t, "lost", errors.Is(err, ErrLost), true)
		expect(t, "lost after", time.Since(opened), fakeSafe)
	})
}

// A renewal that was sent before the deadline and is answered after it: the answer would count until later, but what it
// would keep may have been told lost.
func TestUnitLateRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		s := f.open()
		h := f.lock(s, "x")
		calls := len(f.sent("sync"))
		f.reacts(func(string, []string, *fakeCall) [][]string {
			f.when(func() { f.skew = fakeSafe - fakeTTL/4 }) // the machine sleeps with the answer on its way
			return nil
		})
		time.Sleep(fakeTTL / 2) // a renewal
		synctest.Wait()
		expect(t, "lost", errors.Is(context.Cause(h.Context()), ErrLost), true)
		expect(t, "the session is lost", errors.Is(s.Err(), ErrLost), true)
		expect(t, "renewals", len(f.sent("sync"))-calls, 1)
	})
}

// Requests that did not reach the server are sent again in their order.
func TestUnitOrderOfLostRequests(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		asked := 0
		f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
			if call == nil || !call.has("enqueue") {
				return nil
			}
			time.Sleep(100 * time.Millisecond) // more come meanwhile
			if asked++; asked == 2 {
				return [][]string{}
			}
			return nil
		})
		s := f.open()
		var group sync.WaitGroup
		for _, name := range []string{"first", "d", "b", "e", "a", "c"} {
			group.Go(func() {
				if _, err := s.Lock(t.Context(), name); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		group.Wait()
		all := "sync | enqueue_lock d | enqueue_lock b | enqueue_lock e | enqueue_lock a | enqueue_lock c"
		expect(t, "asked for", strings.Join(f.sent("sync")[1:], "\n"),
			strings.Join([]string{"sync | enqueue_lock first", all, "sync", all}, "\n"))
	})
}

// The caller may use its slice again.
func TestUnitNamesAreCopied(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		s := f.open()
		names := []string{"x", "y"}
		h, err := s.TryLockAll(t.Context(), names)
		if err != nil {
			t.Fatal(err)
		}
		names[0], h.Names()[1] = "other", "other"
		expect(t, "names", strings.Join(h.Names(), " "), "x y")
		f.held["22"] = f.held["21"]
		h.Unlock(t.Context())
		expect(t, "given back", strings.Join(f.sent("release"), ""), "sync | release x 21 | release y 21")
	})
}

func TestUnitFenceOfNothing(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		h := f.lock(f.open(), "x")
		for _, tx := range []any{nil, (*sql.Tx)(nil), (*struct{ *sql.Tx })(nil), (*pgxpool.Tx)(nil), pgx.Tx(nil), 1} {
			expect(t, fmt.Sprintf("%T is invalid", tx), errors.Is(h.Fence(t.Context(), tx), ErrInvalid), true)
		}
	})
}

// The context of Open ends while the lease is being granted, or just when it was: it is revoked.
func TestUnitOpenIsCanceled(t *testing.T) {
	for _, took := range []time.Duration{0, time.Second} {
		bubble(t, func(t *testing.T, f *fake) {
			ctx, cancel := context.WithCancel(t.Context())
			f.reacts(func(function string, _ []string, _ *fakeCall) [][]string {
				if function == "grant_lease" {
					cancel()
					time.Sleep(took)
				}
				return nil
			})
			start := time.Now()
			s, err := f.tryOpen(ctx)
			expect(t, "canceled", s == nil && errors.Is(err, context.Canceled), true)
			expect(t, "after", time.Since(start), 0)
			time.Sleep(took + time.Second)
			expect(t, "revoked", strings.Join(f.sent("revoke_lease"), ", "), "revoke_lease 7")
			_, err = f.conns[0].Write([]byte{0})
			expect(t, "the connection is closed", err != nil, true)
			connections := len(f.conns)
			_, err = f.tryOpen(ctx)
			expect(t, "canceled before", errors.Is(err, context.Canceled) && len(f.conns) == connections, true)
		})
	}
}

func TestUnitErrors(t *testing.T) {
	for code, kind := range map[string]error{
		"LE001": ErrLost, "40P01": ErrDeadlock, "53400": ErrLimit, "53200": ErrLimit, "42501": ErrDenied, "28P01": ErrDenied,
		"22023": ErrInvalid, "57014": ErrUnknown, "08007": ErrUnknown, "42883": ErrNotInstalled, "3D000": ErrUnavailable,
		"55000": ErrNotInstalled, "57P01": ErrUnavailable, "53300": ErrUnavailable, "25006": ErrUnavailable,
		"55P03": ErrUnavailable, "08006": ErrUnavailable,
	} {
		expect(t, code, errors.Is(explain(&pgconn.PgError{Code: code}), kind), true)
	}
	expect(t, "what to type", strings.Contains(explain(&pgconn.PgError{Code: "42883"}).Error(), "CREATE EXTENSION"), true)
	expect(t, "what to set", strings.Contains(explain(&pgconn.PgError{Code: "55000"}).Error(), "preload"), true)
}

// The hold is over when Unlock is called, however late the answer is.
func TestUnitValidUntilUnlock(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
			if call != nil && call.has("release") {
				time.Sleep(time.Second)
			}
			return nil
		})
		s := f.open()
		h := f.lock(s, "x")
		go h.Unlock(t.Context())
		synctest.Wait()
		expect(t, "valid", h.Valid(), false)
		expect(t, "the context's error", h.Context().Err(), context.Canceled)
		expect(t, "its cause", context.Cause(h.Context()), ErrReleased)
		time.Sleep(2 * time.Second)
	})
}

func TestUnitSuspend(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		s := f.open()
		h := f.lock(s, "x")
		child, cancel := context.WithCancel(h.Context())
		defer cancel()
		f.when(func() { f.skew = fakeTTL })
		expect(t, "the context's error", h.Context().Err(), context.Canceled) // no timer has come
		expect(t, "its child's", child.Err(), context.Canceled)
		expect(t, "valid", h.Valid(), false)
		expect(t, "time left", h.TimeLeft(), 0)
	})
}

// waiter locks a name, and tells when it has it.
func waiter(t *testing.T, s *Session, name string) <-chan time.Time {
	granted := make(chan time.Time, 1)
	go func() {
		if _, err := s.Lock(t.Context(), name); err != nil {
			t.Error(err)
		}
		granted <- time.Now()
	}()
	return granted
}

// A notification decides nothing: the call after it does. LISTEN comes before a call, and ends a while after the waits.
func TestUnitNotification(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
			if call != nil && call.has("enqueue") {
				return f.queued(call)
			}
			return nil
		})
		s := f.open()
		granted := waiter(t, s, "x")
		synctest.Wait()
		expect(t, "the statements", strings.Join(f.sent("")[2:], "\n"),
			"sync | enqueue_lock x\nLISTEN le_x;SET LOCAL synchronous_commit = off; NOTIFY le_x\nsync")
		calls := len(f.sent("sync"))
		f.notify("le_other")
		synctest.Wait()
		expect(t, "calls for another channel", len(f.sent("sync")), calls)
		f.notify("le_x")
		synctest.Wait()
		expect(t, "calls for its own", len(f.sent("sync")), calls+1)
		select {
		case <-granted:
			t.Fatal("granted by a notification")
		default:
		}
		f.tell("granted", "x", "21", "")
		f.notify("le_x")
		start := time.Now()
		expect(t, "granted after", (<-granted).Sub(start), 0)
		time.Sleep(lingersFor + 100*time.Millisecond)
		expect(t, "listens no more", strings.Join(f.sent("UNLISTEN"), ""), "UNLISTEN le_x;")
		granted = waiter(t, s, "y")
		synctest.Wait()
		expect(t, "listens again", strings.Join(f.sent("LISTEN")[1:], ""), "LISTEN le_x;")
		f.tell("granted", "y", "22", "")
		f.notify("le_x")
		<-granted
	})
}

// A notification that was dropped: the next renewal finds the grant. Behind a pooler it is asked for all the time.
func TestUnitDroppedNotification(t *testing.T) {
	for _, pooled := range []bool{false, true} {
		bubble(t, func(t *testing.T, f *fake) {
			f.pooled = pooled
			f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
				if call != nil && call.has("enqueue") {
					return f.queued(call)
				}
				return nil
			})
			s := f.open()
			granted := waiter(t, s, "x")
			time.Sleep(time.Second)
			f.tell("granted", "x", "21", "")
			start, most, parsed := time.Now(), fakeTTL*4/10, 0
			f.when(func() { parsed = f.parsed })
			if pooled {
				most = lookEvery
				expect(t, "LISTEN behind a pooler", len(f.sent("LISTEN")), 0)
				expect(t, "unprepared", parsed >= len(f.sent("")), true)
			} else {
				expect(t, "prepared once, beside two statements", parsed, 3)
			}
			if took := (<-granted).Sub(start); took > most {
				t.Fatalf("pooled %v: found after %v", pooled, took)
			}
		})
	}
}

// Where LISTEN is refused, the first time or later, or where there is no channel, the session asks four times a second on
// the same connection.
func TestUnitListenRefused(t *testing.T) {
	for _, deaf := range []string{"LISTEN", "LISTEN le_y", ""} {
		bubble(t, func(t *testing.T, f *fake) {
			if f.deaf = deaf; deaf == "" {
				f.channel = ""
			}
			f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
				if call != nil && call.has("enqueue") {
					return f.queued(call)
				}
				return nil
			})
			s := f.open()
			waits := []<-chan time.Time{waiter(t, s, "x")}
			time.Sleep(time.Second)
			if deaf == "LISTEN le_y" {
				f.when(func() { f.channel = "le_y" })
			}
			waits = append(waits, waiter(t, s, "y"))
			time.Sleep(time.Second)
			calls, listens := len(f.sent("sync")), len(f.sent("LISTEN"))
			time.Sleep(time.Second)
			if calls = len(f.sent("sync")) - calls; calls < 3 || calls > 5 {
				t.Fatalf("%d calls in a second", calls)
			}
			expect(t, "LISTEN again", len(f.sent("LISTEN")), listens)
			f.tell("granted", "x", "21", "")
			f.tell("granted", "y", "22", "")
			start := time.Now()
			for _, granted := range waits {
				if took := (<-granted).Sub(start); took > lookEvery {
					t.Fatalf("found after %v", took)
				}
			}
			expect(t, "connections", len(f.conns), 1)
		})
	}
}

func TestUnitLongName(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.open(WithName(strings.Repeat("x", 199) + "é and more"))
		owner, _, _ := strings.Cut(strings.TrimPrefix(f.sent("grant_lease")[0], "grant_lease 10000 ms "), "#")
		expect(t, "owner", owner, strings.Repeat("x", 199))
	})
}

// What the server has of a request of this session that nobody knows is given back.
func TestUnitGhost(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		s := f.open()
		h := f.lock(s, "x")
		f.tell("granted", "y", "41", s.owner+"999")
		f.tell("queued", "e", "42", s.owner+"998")
		f.news[1][colKind] = "election"
		f.tell("granted", "z", "43", "of the application")
		f.tell("granted", "u", "44", "")
		f.tell("granted", "x", "21", "whoever")
		f.next("sync")
		expect(t, "given back", f.sent("sync")[len(f.sent("sync"))-1], "sync | release y 41 | resign e 42")
		expect(t, "valid", h.Valid(), true)
	})
}

// The reply to a request is lost with its connection: the news of the next call tell what came of it.
func TestUnitLostAnswer(t *testing.T) {
	for _, took := range []bool{true, false} {
		bubble(t, func(t *testing.T, f *fake) {
			lost := false
			f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
				if call == nil || !call.has("try_lock") || lost {
					return nil
				}
				if lost = true; took {
					f.tell("granted", "x", "50", call.items[0].owner)
				}
				return [][]string{}
			})
			s := f.open()
			h := f.lock(s, "x")
			want, asked := int64(50), 1
			if !took {
				want, asked = 21, 2
			}
			expect(t, "token", h.Token(), want)
			expect(t, "asked", len(f.sent("try_lock")), asked)
			expect(t, "the call after it", f.sent("sync")[2], "sync")
		})
	}
}

// The caller leaves while its request is on the way: the grant is given back, by the connection that there was.
func TestUnitCanceledAtTheGrant(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
			if call != nil && call.has("enqueue") {
				time.Sleep(time.Second)
			}
			return nil
		})
		s := f.open()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		start := time.Now()
		h, err := s.Lock(ctx, "x")
		if h != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v, %v", h, err)
		}
		expect(t, "canceled after", time.Since(start), time.Second/2)
		time.Sleep(time.Second)
		synctest.Wait()
		expect(t, "given back", strings.Join(f.sent("release"), ", "), "sync | release x 21")
		expect(t, "connections", len(f.conns), 1)
		expect(t, "state", s.State(), Connected)
	})
}

// What waits together travels together. An error of an item is told to its caller; one of a call to the item that it is of.
func TestUnitTogether(t *testing.T) {
	for _, whole := range []bool{false, true} {
		bubble(t, func(t *testing.T, f *fake) {
			f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
				if call == nil || len(call.items) == 0 {
					return nil
				}
				time.Sleep(100 * time.Millisecond)
				if call.has("try_lock bad") && whole {
					return [][]string{{"!53400"}}
				}
				rows := f.sync(call)
				for _, row := range rows {
					if row[colName] == "bad" {
						row[colEvent], row[colState] = "error", "53400"
					}
				}
				return rows
			})
			s := f.open()
			errs := make([]error, 4)
			var group sync.WaitGroup
			for i, name := range []string{"first", "a", "bad", "b"} {
				group.Go(func() { _, errs[i] = s.TryLock(t.Context(), name, WithTTL(fakeTTL)) })
				synctest.Wait()
			}
			group.Wait()
			calls := 2 // together, and alone
			if whole {
				calls = 5
			}
			expect(t, "calls", len(f.sent("try_lock")), calls)
			for i, err := range errs {
				expect(t, fmt.Sprint("limit of number ", i), errors.Is(err, ErrLimit), i == 2)
			}
		})
	}
}

func TestUnitStandby(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.reacts(func(_ string, _ []string, call *fakeCall) [][]string {
			if call != nil && call.has("try_lock") && len(f.conns) == 1 {
				return [][]string{{"!25006"}}
			}
			return nil
		})
		s := f.open()
		expect(t, "acquired", f.lock(s, "x").Valid(), true)
		expect(t, "connections", len(f.conns), 2)
	})
}
