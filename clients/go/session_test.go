package lockelection_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"

	"lock-election.invalid/lockelection"
)

func TestLock(t *testing.T) {
	pool, ctx := newPool(t), within(t)
	a, b, n := newSession(t, pool), newSession(t, pool), name(t, "x")
	h := must(a.Lock(ctx, n))
	if !h.Valid() || h.Token() == 0 || h.TimeLeft() < 25*time.Second || h.Context().Err() != nil {
		t.Fatalf("held, but valid %v, token %d, %v left", h.Valid(), h.Token(), h.TimeLeft())
	}
	_, err := b.TryLock(ctx, n)
	wants(t, err, lockelection.ErrHeld)
	_, err = a.TryLock(ctx, n)
	wants(t, err, lockelection.ErrHeld)

	granted := make(chan *lockelection.Hold)
	go func() { granted <- must(b.Lock(ctx, n)) }()
	until(t, "b waits", func() bool {
		return query[bool](t, pool, "SELECT count(*) = 1 FROM lock_election.waiters WHERE name = $1", n)
	})
	if err := h.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	next := <-granted
	if next.Token() <= h.Token() {
		t.Fatalf("token %d after %d", next.Token(), h.Token())
	}
	if h.Valid() || !errors.Is(context.Cause(h.Context()), lockelection.ErrReleased) {
		t.Fatalf("released, but valid %v, cause %v", h.Valid(), context.Cause(h.Context()))
	}
	if err := h.Unlock(ctx); err != nil {
		t.Fatalf("a second unlock: %v", err)
	}
	if err := next.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	until(t, "nothing is left", func() bool {
		return query[bool](t, pool, "SELECT count(*) = 0 FROM lock_election.locks WHERE name = $1", n)
	})
}

func TestSharedAndPermit(t *testing.T) {
	pool, ctx := newPool(t), within(t)
	a, b, n, p := newSession(t, pool), newSession(t, pool), name(t, "x"), name(t, "p")
	must(a.Lock(ctx, n, lockelection.Shared()))
	must(b.TryLock(ctx, n, lockelection.Shared()))
	_, err := b.TryLock(ctx, n)
	wants(t, err, lockelection.ErrHeld)
	first := must(a.Lock(ctx, p, lockelection.Permit(2)))
	must(b.TryLock(ctx, p, lockelection.Permit(2)))
	_, err = b.TryLock(ctx, p, lockelection.Permit(2))
	wants(t, err, lockelection.ErrHeld)
	if err := first.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	must(a.TryLock(ctx, p, lockelection.Permit(2)))
	for _, bad := range [][]lockelection.LockOption{
		{lockelection.Permit(0)}, {lockelection.Permit(1), lockelection.Shared()}, {lockelection.WithTTL(time.Millisecond)},
	} {
		_, err = a.Lock(ctx, p, bad...)
		wants(t, err, lockelection.ErrInvalid)
	}
	_, err = a.TryLock(ctx, n, lockelection.Permit(2))
	wants(t, err, lockelection.ErrInvalid)
}

func TestSeveral(t *testing.T) {
	pool, ctx := newPool(t), within(t)
	a, b := newSession(t, pool), newSession(t, pool)
	x, y, z := name(t, "x"), name(t, `y "quoted\"`), name(t, "z, {z}")
	h := must(a.LockAll(ctx, []string{x, y}))
	_, err := b.TryLockAll(ctx, []string{z, y})
	wants(t, err, lockelection.ErrHeld)
	holds := must(b.TryLockEach(ctx, []string{x, z, y}))
	if holds[0] != nil || holds[1] == nil || holds[2] != nil {
		t.Fatalf("each: %v", holds)
	}
	_, err = b.TryLockEach(ctx, []string{x, x})
	wants(t, err, lockelection.ErrInvalid)
	if err := h.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	h = must(b.LockAll(ctx, []string{y, x}))
	if err := h.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if err := holds[1].Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	many := make([]string, 300)
	for i := range many {
		many[i] = fmt.Sprint(z, i)
	}
	for i, h := range must(a.TryLockEach(ctx, many)) {
		if h == nil {
			t.Fatalf("number %d is not held", i)
		}
	}
	// One of several is an error: then none is held, and the others' calls are not told.
	good, bad := name(t, "good"), string([]byte{'b', 0, 'd'})
	_, err = b.TryLockEach(ctx, []string{good, bad})
	wants(t, err, lockelection.ErrInvalid)
	until(t, "none is held", func() bool {
		h, err := a.TryLock(ctx, good)
		return err == nil && h.Unlock(ctx) == nil
	})
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			what := bad
			if i != 7 {
				what = fmt.Sprint(good, i)
			}
			if _, err := a.Lock(ctx, what); (err == nil) == (i == 7) {
				t.Errorf("lock %d of 20: %v", i, err)
			}
		})
	}
	group.Wait()
}

// The server checks them, whatever else waits.
func TestArguments(t *testing.T) {
	pool, ctx := newPool(t), within(t)
	s, election := newSession(t, pool), name(t, "election")
	e := s.Election(election)
	if err := e.Campaign(ctx, "me"); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 5000)
	for what, call := range map[string]func() error{
		"no name":            func() error { _, err := s.LockAll(ctx, nil); return err },
		"an empty name":      func() error { _, err := s.Lock(ctx, ""); return err },
		"a long name":        func() error { _, err := s.TryLock(ctx, long); return err },
		"many names":         func() error { _, err := s.LockAll(ctx, make([]string, 1001)); return err },
		"no permit":          func() error { _, err := s.TryLock(ctx, election, lockelection.Permit(-1)); return err },
		"an empty candidate": func() error { return s.Election(election).Campaign(ctx, "") },
		"a long candidate":   func() error { return s.Election(election).TryCampaign(ctx, long) },
		"an empty text":      func() error { return e.Proclaim(ctx, "") },
		"a long text":        func() error { return e.Proclaim(ctx, long) },
	} {
		if err := call(); !errors.Is(err, lockelection.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if holds, err := s.TryLockEach(ctx, nil); len(holds) != 0 || err != nil {
		t.Errorf("each of none: %v, %v", holds, err)
	}
	if e.Term() == nil {
		t.Error("it does not lead any more")
	}
}

func TestHoldForAndOwnTTL(t *testing.T) {
	pool, ctx := newPool(t), within(t)
	a, n := newSession(t, pool), name(t, "x")
	start := time.Now()
	h := must(a.Lock(ctx, n))
	if err := h.Unlock(ctx, lockelection.HoldFor(500*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	h = must(a.Lock(ctx, n))
	if time.Since(start) < 500*time.Millisecond {
		t.Fatalf("open again after %v", time.Since(start))
	}
	wants(t, h.Unlock(ctx, lockelection.HoldFor(-1)), lockelection.ErrInvalid)
	h = must(a.TryLock(ctx, n))
	wants(t, h.Unlock(ctx, lockelection.HoldFor(9999*time.Hour)), lockelection.ErrInvalid)
	h = must(a.TryLock(ctx, n))
	wants(t, h.Unlock(ctx, lockelection.HoldFor(48*time.Hour)), lockelection.ErrLimit)

	must(a.TryLock(ctx, n, lockelection.WithTTL(2*time.Second)))
	other := must(a.TryLock(ctx, n+"2", lockelection.WithTTL(2*time.Second)))
	if other.TimeLeft() > 2*time.Second || a.TimeLeft() < 20*time.Second {
		t.Fatalf("%v left of 2 s, %v of 30 s", other.TimeLeft(), a.TimeLeft())
	}
	leases := "SELECT count(*) FROM lock_election.leases WHERE owner = (SELECT owner FROM lock_election.leases WHERE lease = $1)"
	if got := query[int](t, pool, leases, a.Lease()); got != 2 {
		t.Fatalf("%d leases", got)
	}
	// It ends alone.
	own := query[int64](t, pool, "SELECT lease FROM lock_election.locks WHERE token = $1", other.Token())
	query[bool](t, pool, "SELECT revoke_lease($1)", own)
	<-other.Context().Done()
	wants(t, context.Cause(other.Context()), lockelection.ErrLost)
	wants(t, other.Unlock(ctx), lockelection.ErrLost)
	if a.Err() != nil {
		t.Fatalf("the session has ended: %v", a.Err())
	}
	h = must(a.TryLock(ctx, n, lockelection.WithTTL(time.Second)))
	if err := h.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	until(t, "a lease that nothing hangs on is revoked", func() bool {
		return query[int](t, pool, leases, a.Lease()) == 1
	})
}

func TestFence(t *testing.T) {
	pool, ctx := newPool(t), within(t)
	a, n := newSession(t, pool), name(t, "x")
	db := must(sql.Open("pgx", ""))
	defer db.Close()
	for _, h := range []*lockelection.Hold{must(a.Lock(ctx, n)), must(a.LockAll(ctx, []string{n + "2", n + "3"}))} {
		tx := must(pool.Begin(ctx))
		if err := h.Fence(ctx, tx); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		wants(t, h.Fence(ctx, tx), lockelection.ErrInvalid)
		wants(t, h.Fence(ctx, pool), lockelection.ErrInvalid)
		wants(t, h.Fence(ctx, db), lockelection.ErrInvalid)
		stx := must(db.BeginTx(ctx, nil))
		if err := h.Fence(ctx, stx); err != nil {
			t.Fatal(err)
		}
		query[int](t, pool, "SELECT force_release_lock($1)::int", h.Names()[0])
		if err := stx.Rollback(); err != nil {
			t.Fatal(err)
		}
		wants(t, h.Fence(ctx, stx), lockelection.ErrInvalid)
		tx = must(pool.Begin(ctx))
		defer tx.Rollback(ctx)
		wants(t, h.Fence(ctx, tx), lockelection.ErrLost)
	}
}

// FenceSQL is for names that an ORM could misread, several of them, and terms.
func TestFenceSQL(t *testing.T) {
	pool, ctx := newPool(t), within(t)
	a, n := newSession(t, pool), name(t, `it's ?, :x, @x, $1, %s, \, é`)
	e := a.Election(n)
	if err := e.Campaign(ctx, "me"); err != nil {
		t.Fatal(err)
	}
	several := []string{"plain " + n[len(n)-9:], n + "2"}
	for _, h := range []*lockelection.Hold{must(a.Lock(ctx, n)), must(a.LockAll(ctx, several)), e.Term()} {
		text := must(h.FenceSQL())
		if strings.ContainsAny(text, `?:@$%\`) {
			t.Error(text)
		}
		tx := must(pool.Begin(ctx))
		var fenced int
		if err := tx.QueryRow(ctx, text).Scan(&fenced); err != nil || fenced != len(h.Names()) {
			t.Error(fenced, err)
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		forced := "SELECT force_release_lock($1)::int"
		if h == e.Term() {
			forced = "SELECT force_resign($1)::int"
		}
		query[int](t, pool, forced, h.Names()[len(h.Names())-1])
		tx = must(pool.Begin(ctx))
		_, err := tx.Exec(ctx, text)
		if failed := (*pgconn.PgError)(nil); !errors.As(err, &failed) || failed.Code != "LE001" {
			t.Error(err)
		}
		tx.Rollback(ctx)
		h.Unlock(ctx)
		_, err = h.FenceSQL()
		wants(t, err, lockelection.ErrLost)
	}
}

func TestForcedAndRevoked(t *testing.T) {
	pool, ctx := newPool(t), within(t)
	a, n := newSession(t, pool, lockelection.WithTTL(time.Second)), name(t, "x")
	h, other := must(a.Lock(ctx, n)), must(a.Lock(ctx, n+"2"))
	both := must(a.LockAll(ctx, []string{n + "3", n + "4"}))
	query[int](t, pool, "SELECT force_release_lock($1)::int", n)
	query[int](t, pool, "SELECT force_release_lock($1)::int", n+"4")
	for _, lost := range []*lockelection.Hold{h, both} {
		<-lost.Context().Done()
		wants(t, context.Cause(lost.Context()), lockelection.ErrLost)
		wants(t, lost.Unlock(ctx), lockelection.ErrLost)
	}
	if !other.Valid() {
		t.Fatal("the other is lost as well")
	}
	until(t, "what was left of two is given back", func() bool {
		h, err := a.TryLock(ctx, n+"3")
		return err == nil && h.Unlock(ctx) == nil
	})
	waits := make(chan error)
	go func() {
		_, err := a.Lock(ctx, n+"2")
		waits <- err
	}()
	query[bool](t, pool, "SELECT revoke_lease($1)", a.Lease())
	wants(t, <-waits, lockelection.ErrLost)
	<-a.Done()
	wants(t, a.Err(), lockelection.ErrLost)
	wants(t, context.Cause(other.Context()), lockelection.ErrLost)
	if a.State() != lockelection.Ended {
		t.Fatal("the session has not ended")
	}
	b := must(a.Reopen(ctx))
	must(b.TryLock(ctx, n+"2"))
	if err := b.Close(ctx); err != nil {
		t.Fatal(err)
	}
	wants(t, b.Err(), lockelection.ErrClosed)
	_, err := b.Lock(ctx, n)
	wants(t, err, lockelection.ErrClosed)
}

func TestElection(t *testing.T) {
	pool, ctx := newPool(t), within(t)
	a, b, n := newSession(t, pool), newSession(t, pool), name(t, "e")
	ea, eb := a.Election(n), b.Election(n)
	_, err := ea.Leader(ctx)
	wants(t, err, lockelection.ErrNoLeader)
	watch, stop := context.WithCancel(ctx)
	seen := b.Election(n).Observe(watch)
	if leader := <-seen; leader != (lockelection.Leader{}) {
		t.Fatalf("%v leads", leader)
	}
	if err := ea.Campaign(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	wants(t, eb.TryCampaign(ctx, "b"), lockelection.ErrHeld)
	if err := ea.Proclaim(ctx, "a2"); err != nil {
		t.Fatal(err)
	}
	term := ea.Term().Token()
	if leader := must(eb.Leader(ctx)); leader != (lockelection.Leader{Candidate: "a2", Term: term}) {
		t.Fatalf("%v leads", leader)
	}
	tx := must(pool.Begin(ctx))
	defer tx.Rollback(ctx)
	if err := ea.Term().Fence(ctx, tx); err != nil {
		t.Fatal(err)
	}
	tx.Rollback(ctx)
	elected := make(chan error)
	go func() { elected <- eb.Campaign(ctx, "b") }()
	until(t, "b waits", func() bool {
		return query[bool](t, pool, "SELECT waiting = 1 FROM lock_election.elections WHERE election = $1", n)
	})
	if err := ea.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	wants(t, ea.Proclaim(ctx, "a3"), lockelection.ErrLost)
	if err := <-elected; err != nil {
		t.Fatal(err)
	}
	want := []lockelection.Leader{{"a", term}, {"a2", term}, {}, {"b", eb.Term().Token()}}
	var got []lockelection.Leader
	for range want {
		got = append(got, <-seen)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("observed %v, expected %v", got, want)
	}
	stop()
	for range seen {
	}
}

func TestRun(t *testing.T) {
	pool, ctx := newPool(t), within(t)
	n := name(t, "e")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var leads, terms, noticed atomic.Int32
	var group sync.WaitGroup
	for i := range 3 {
		s := newSession(t, pool, lockelection.WithTTL(time.Second))
		group.Go(func() {
			err := s.Election(n).Run(ctx, fmt.Sprint(i), func(ctx context.Context, term *lockelection.Hold) {
				number := terms.Add(1)
				if number == 1 { // its session is lost: another one leads at once, and this one goes on with a new session
					query[bool](t, pool, "SELECT revoke_lease($1)", s.Lease())
					<-ctx.Done()
					if err := context.Cause(ctx); !errors.Is(err, lockelection.ErrLost) {
						t.Errorf("the cause is %v", err)
					}
					noticed.Add(1)
					return
				}
				if leads.Add(1) != 1 {
					t.Error("two lead")
				}
				defer leads.Add(-1)
				if number >= 6 && noticed.Load() > 0 {
					cancel()
					<-ctx.Done()
				}
			})
			wants(t, err, context.Canceled)
		})
	}
	group.Wait()
	if terms.Load() < 6 {
		t.Fatalf("%d terms", terms.Load())
	}
}

// TestManyWaiters: 1,000 wait on one connection.
func TestManyWaiters(t *testing.T) {
	pool, ctx := newPool(t), within(t)
	s, n := newSession(t, pool), name(t, "x")
	first := must(s.Lock(ctx, n))
	var group sync.WaitGroup
	var inside, done atomic.Int32
	for i := range 1000 {
		group.Go(func() {
			what := n
			if i >= 500 {
				what = fmt.Sprint(n, i%50)
			}
			h, err := s.Lock(ctx, what)
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			if i < 500 && inside.Add(1) != 1 {
				t.Error("two are inside")
			}
			if i < 500 {
				inside.Add(-1)
			}
			if err := h.Unlock(ctx); err != nil {
				t.Errorf("waiter %d: %v", i, err)
			}
			done.Add(1)
		})
	}
	until(t, "500 wait for one lock, and the others are done", func() bool {
		return done.Load() == 500 &&
			query[int](t, pool, "SELECT count(*)::int FROM lock_election.waiters WHERE name = $1", n) == 500
	})
	connections := "SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
	if got := query[int](t, pool, connections); got > 8 {
		t.Fatalf("%d connections", got)
	}
	start := time.Now()
	if err := first.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	t.Logf("500 hand-offs in %v", time.Since(start))
}
