package lockelection_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lock-election.invalid/lockelection"
)

type caller struct{}

// events collects events, with the caller that their contexts name.
type events struct {
	mu  sync.Mutex
	all []lockelection.Event
	of  []any
}

func (e *events) add(ctx context.Context, event lockelection.Event) {
	time.Sleep(20 * time.Millisecond) // Close waits for it
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all, e.of = append(e.all, event), append(e.of, ctx.Value(caller{}))
}

func (e *events) got() ([]lockelection.Event, []any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all), slices.Clone(e.of)
}

func (e *events) kinds() string {
	all, _ := e.got()
	var kinds []string
	for _, event := range all {
		kinds = append(kinds, event.Mode+" "+event.Kind)
	}
	return strings.Join(kinds, ", ")
}

func TestEvents(t *testing.T) {
	pool, ctx, n := newPool(t), within(t), name(t, "x")
	var seen events
	s := newSession(t, pool, lockelection.WithTTL(10*time.Second), lockelection.WithOnEvent(seen.add))
	h := must(s.Lock(context.WithValue(ctx, caller{}, 1), n))
	var later sync.WaitGroup
	later.Go(func() {
		shared := must(s.Lock(context.WithValue(ctx, caller{}, 2), n, lockelection.Shared()))
		if err := shared.Unlock(ctx); err != nil {
			t.Error(err)
		}
	})
	until(t, "it waits", func() bool {
		return query[bool](t, pool, "SELECT count(*) = 1 FROM lock_election.waiters WHERE name = $1", n)
	})
	_, err := s.TryLockAll(ctx, []string{n, n + "'"})
	wants(t, err, lockelection.ErrHeld)
	time.Sleep(500 * time.Millisecond)
	if err := h.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	later.Wait()
	e := s.Election(n)
	if err := errors.Join(e.Campaign(ctx, "me"), e.Proclaim(ctx, "I"), e.Resign(ctx), s.Close(ctx)); err != nil {
		t.Fatal(err)
	}
	if got := seen.kinds(); got != "lock acquired, lock not_acquired, lock released, shared acquired, shared released,"+
		" election acquired, election released" {
		t.Fatal(got)
	}
	all, of := seen.got()
	acquired, refused, released, waited, left := all[0], all[1], all[2], all[3], all[4]
	if !slices.Equal(acquired.Names, []string{n}) || acquired.Token != h.Token() || acquired.Err != nil ||
		acquired.Duration > patience || time.Since(acquired.Time).Abs() > 2*patience {
		t.Errorf("acquired: %+v", acquired)
	}
	if len(refused.Names) != 2 || refused.Token != 0 || !errors.Is(refused.Err, lockelection.ErrHeld) {
		t.Errorf("refused: %+v", refused)
	}
	if released.Duration < 500*time.Millisecond || released.Duration > patience || released.Err != nil {
		t.Errorf("released: %+v", released)
	}
	held := left.Time.Sub(waited.Time) // without the wait
	if waited.Duration < 500*time.Millisecond || waited.Duration > patience ||
		(held-left.Duration).Abs() > 400*time.Millisecond {
		t.Errorf("waited: %+v, %+v", waited, left)
	}
	if fmt.Sprint(of[:4]) != "[1 <nil> 1 2]" {
		t.Errorf("callers: %v", of)
	}
}

func TestEventsOfLosses(t *testing.T) {
	pool, ctx, n := newPool(t), within(t), name(t, "x")
	var seen events
	s := newSession(t, pool, lockelection.WithTTL(10*time.Second), lockelection.WithOnEvent(seen.add))
	h := must(s.Lock(ctx, n))
	query[any](t, pool, "SELECT force_release_lock($1)", n)
	<-h.Context().Done()
	h = must(s.Lock(ctx, n))
	query[any](t, pool, "SELECT revoke_lease($1)", s.Lease())
	<-s.Done()
	until(t, "the end is reported", func() bool { return strings.HasSuffix(seen.kinds(), "session ended") })
	if got := seen.kinds(); got != "lock acquired, lock lost, lock acquired, lock lost, session ended" {
		t.Fatal(got)
	}
	all, _ := seen.got()
	for _, event := range []lockelection.Event{all[1], all[3], all[4]} {
		if !errors.Is(event.Err, lockelection.ErrLost) {
			t.Errorf("%+v", event)
		}
	}
	if all[3].Token != h.Token() {
		t.Errorf("%+v", all[3])
	}
}

func TestEventsOfSuspension(t *testing.T) {
	pool, ctx, n := newPool(t), within(t), name(t, "x")
	var seen events
	config := pool.Config().ConnConfig.Copy()
	config.RuntimeParams["application_name"] = "events"
	s := must(lockelection.Open(ctx, config, lockelection.WithTTL(10*time.Second), lockelection.WithOnEvent(seen.add)))
	must(s.Lock(ctx, n))
	query[any](t, pool, "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"+
		" WHERE application_name = 'events'")
	until(t, "the session is connected again", func() bool { return strings.HasSuffix(seen.kinds(), "session resumed") })
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if got := seen.kinds(); got != "lock acquired, session suspended, session resumed, lock released" {
		t.Fatal(got)
	}
	all, _ := seen.got()
	suspended, resumed := all[1], all[2]
	if suspended.Err == nil || resumed.Err != nil {
		t.Errorf("%+v, %+v", suspended, resumed)
	}
	if off := resumed.Time.Sub(suspended.Time) - resumed.Duration; off.Abs() > time.Second || resumed.Duration <= 0 {
		t.Errorf("suspended for %v, off by %v", resumed.Duration, off)
	}
}

// A function that hangs or panics delays and disturbs nothing.
func TestEventsOfBadFunctions(t *testing.T) {
	pool, ctx, n := newPool(t), within(t), name(t, "x")
	var logged bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	defer slog.SetDefault(old)
	entered, leave := make(chan string, 10), make(chan struct{})
	s := newSession(t, pool, lockelection.WithOnEvent(func(_ context.Context, e lockelection.Event) {
		entered <- e.Kind
		<-leave
		panic(e.Kind)
	}))
	h := must(s.Lock(ctx, n))
	if kind := <-entered; kind != "acquired" {
		t.Fatal(kind)
	}
	other := must(s.Lock(ctx, n+"'"))
	if !h.Valid() || !other.Valid() || s.State() != lockelection.Connected {
		t.Fatal("not held")
	}
	if err := h.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	close(leave)
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"panic=acquired", "panic=released"} {
		if strings.Count(logged.String(), kind+"\n") != 2 {
			t.Errorf("logged: %s", logged.String())
		}
	}
}

// A function that ends its goroutine gets the next events.
func TestEventsAfterGoexit(t *testing.T) {
	pool, ctx, n := newPool(t), within(t), name(t, "x")
	kinds := make(chan string, 10)
	s := newSession(t, pool, lockelection.WithOnEvent(func(_ context.Context, e lockelection.Event) {
		kinds <- e.Kind
		runtime.Goexit()
	}))
	if err := must(s.Lock(ctx, n)).Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(ctx); err != nil || len(kinds) != 2 {
		t.Fatalf("%d events, %v", len(kinds), err)
	}
}

func TestEventsInLogs(t *testing.T) {
	pool, ctx, n := newPool(t), within(t), name(t, "x")
	var logged bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&logged, nil))
	s := newSession(t, pool, lockelection.WithOnEvent(func(ctx context.Context, e lockelection.Event) {
		logger.InfoContext(ctx, e.Kind, "lock_election", e)
	}))
	h := must(s.Lock(ctx, n))
	_, err := s.TryLock(ctx, n)
	wants(t, err, lockelection.ErrHeld)
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"msg":"acquired","lock_election":{"kind":"acquired","mode":"lock","duration":`,
		fmt.Sprintf(`"names":[%q],"token":%d}}`, n, h.Token()), `"error":"held by somebody else"`} {
		if !strings.Contains(logged.String(), part) {
			t.Errorf("%s is not in %s", part, logged.String())
		}
	}
}
