package lockelection_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"lock-election.invalid/lockelection"
)

// proxy passes bytes on, or drops them and leaves the connections open, or cuts the connections.
type proxy struct {
	listener net.Listener
	silent   atomic.Bool
	mu       sync.Mutex
	conns    []net.Conn
}

func newProxy(t testing.TB) *proxy {
	p := &proxy{listener: must(net.Listen("tcp", "127.0.0.1:0"))}
	go func() {
		for {
			client, err := p.listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", net.JoinHostPort(os.Getenv("PGHOST"), os.Getenv("PGPORT")))
			if err != nil {
				client.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, client, server)
			p.mu.Unlock()
			go p.pass(client, server)
			go p.pass(server, client)
		}
	}()
	t.Cleanup(func() {
		p.listener.Close()
		p.cut()
	})
	return p
}

func (p *proxy) pass(from, to net.Conn) {
	defer to.Close()
	buffer := make([]byte, 65536)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if !p.silent.Load() {
			to.Write(buffer[:n])
		}
	}
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// through opens a session through the proxy.
func through(t testing.TB, p *proxy, ttl time.Duration) *lockelection.Session {
	t.Helper()
	config := must(pgx.ParseConfig(fmt.Sprintf("host=127.0.0.1 port=%d sslmode=disable",
		p.listener.Addr().(*net.TCPAddr).Port)))
	s, err := lockelection.Open(t.Context(), config, lockelection.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

func nothingLeft(t testing.TB, pool *pgxpool.Pool, lease int64) {
	t.Helper()
	until(t, "nothing hangs on the lease", func() bool {
		return query[bool](t, pool, `SELECT NOT EXISTS (SELECT FROM lock_election.locks WHERE lease = $1)
			AND NOT EXISTS (SELECT FROM lock_election.waiters WHERE lease = $1)`, lease)
	})
}

// TestSilentNetwork: a network that hangs delays nothing: at the deadline the contexts end, by the clock of this machine.
func TestSilentNetwork(t *testing.T) {
	pool, ctx := newPool(t), within(t)
	p := newProxy(t)
	const ttl = 2 * time.Second
	s, n := through(t, p, ttl), name(t, "x")
	h := must(s.Lock(ctx, n))
	waits := make(chan error)
	go func() {
		_, err := s.Lock(ctx, n)
		waits <- err
	}()
	p.silent.Store(true)
	start := time.Now()
	until(t, "it is suspended", func() bool { return s.State() == lockelection.Suspended })
	if !h.Valid() {
		t.Fatal("lost by a silence that is shorter than the TTL")
	}
	<-h.Context().Done()
	if took := time.Since(start); took > ttl {
		t.Fatalf("lost after %v", took)
	}
	wants(t, context.Cause(h.Context()), lockelection.ErrLost)
	wants(t, <-waits, lockelection.ErrLost)
	wants(t, h.Fence(ctx, nil), lockelection.ErrLost)
	if got := query[bool](t, pool, "SELECT is_held($1, $2)", n, h.Token()); !got {
		t.Fatal("the server ended it before its holder did")
	}
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestShortSilence: what is over before the deadline costs nothing, also no place in the queue.
func TestShortSilence(t *testing.T) {
	pool, ctx := newPool(t), within(t)
	p := newProxy(t)
	s, other, n := through(t, p, 4*time.Second), newSession(t, pool), name(t, "x")
	h, first := must(s.Lock(ctx, n)), must(other.Lock(ctx, n+"2"))
	waits := make(chan *lockelection.Hold)
	go func() { waits <- must(s.Lock(ctx, n+"2")) }()
	place := "SELECT count(*) = 1 FROM lock_election.waiters WHERE name = $1"
	until(t, "it waits", func() bool { return query[bool](t, pool, place, n+"2") })
	token := query[int64](t, pool, "SELECT token FROM lock_election.waiters WHERE name = $1", n+"2")
	p.silent.Store(true)
	until(t, "it is suspended", func() bool { return s.State() == lockelection.Suspended })
	if err := first.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	p.cut()
	p.silent.Store(false)
	if got := <-waits; got.Token() != token {
		t.Fatalf("granted another place: %d, not %d", got.Token(), token)
	}
	until(t, "it is connected", func() bool { return s.State() == lockelection.Connected })
	if !h.Valid() {
		t.Fatal("lost")
	}
}

// TestCloseWhileSilent: the limit holds, and no goroutine stays (see TestMain).
func TestCloseWhileSilent(t *testing.T) {
	newPool(t)
	p := newProxy(t)
	s := through(t, p, 30*time.Second)
	p.silent.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := s.TryLockEach(ctx, []string{"a", "b", "c"})
	wants(t, err, context.DeadlineExceeded)
	ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	wants(t, s.Close(ctx), lockelection.ErrUnknown)
	if took := time.Since(start); took > 2*time.Second {
		t.Fatalf("closed after %v", took)
	}
}

// TestCloseAfterCancel: a program that was told to leave gives back what it holds.
func TestCloseAfterCancel(t *testing.T) {
	pool, ctx := newPool(t), within(t)
	s, n := newSession(t, pool), name(t, "x")
	h := must(s.Lock(ctx, n))
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Close(over); err != nil {
		t.Fatal(err)
	}
	if query[bool](t, pool, "SELECT is_held($1, $2)", n, h.Token()) {
		t.Fatal("it is held")
	}
}

// TestCancel: whenever the context ends, nothing is left behind; a grant of that moment is given back.
func TestCancel(t *testing.T) {
	pool, ctx := newPool(t), within(t)
	s, other, n := newSession(t, pool), newSession(t, pool), name(t, "x")
	var group sync.WaitGroup
	var granted, canceled atomic.Int32
	stop := make(chan struct{})
	group.Go(func() { // somebody to wait for
		for {
			select {
			case <-stop:
				return
			default:
				h := must(other.Lock(ctx, n))
				h.Unlock(ctx)
			}
		}
	})
	var waiters sync.WaitGroup
	for range 8 {
		waiters.Go(func() {
			for round := range 1000 {
				if granted.Load() > 20 && canceled.Load() > 100 {
					return
				}
				wait, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(500*(1+round%40)))*time.Microsecond)
				h, err := s.Lock(wait, n)
				if err == nil {
					granted.Add(1)
					if err = h.Unlock(ctx); err != nil {
						t.Errorf("unlock: %v", err)
					}
				} else if canceled.Add(1); !errors.Is(err, context.DeadlineExceeded) || h != nil {
					t.Errorf("lock: %v", err)
				}
				cancel()
			}
		})
	}
	waiters.Wait()
	close(stop)
	group.Wait()
	if granted.Load() == 0 || canceled.Load() == 0 {
		t.Fatalf("%d granted, %d canceled", granted.Load(), canceled.Load())
	}
	nothingLeft(t, pool, s.Lease())
}

// TestLostAnswers: connections break at any time, also between a statement and its answer. Nobody is let in beside a
// holder, every call comes to its end, nothing is left behind.
func TestLostAnswers(t *testing.T) {
	pool, ctx := newPool(t), within(t)
	p, n := newProxy(t), name(t, "x")
	var inside [3]atomic.Int32
	var group sync.WaitGroup
	var leases []int64
	var done, unclear, cuts atomic.Int32
	for range 2 {
		s := through(t, p, 20*time.Second)
		leases = append(leases, s.Lease())
		for w := range 6 {
			group.Go(func() {
				for cuts.Load() < 15 {
					which := w % 3
					opts, most := []lockelection.LockOption{}, int32(1)
					if which == 2 {
						opts, most = append(opts, lockelection.Permit(2)), 2
					}
					h, err := s.Lock(ctx, fmt.Sprint(n, which), opts...)
					if err != nil {
						t.Errorf("lock: %v", err)
						return
					}
					if inside[which].Add(1) > most {
						t.Error("too many are inside")
					}
					if !h.Valid() {
						t.Error("lost")
					}
					inside[which].Add(-1)
					if err := h.Unlock(ctx); err != nil {
						unclear.Add(1)
						t.Logf("unlock: %v", err)
					}
					done.Add(1)
				}
			})
		}
	}
	finished := make(chan struct{})
	go func() {
		group.Wait()
		close(finished)
	}()
	for running := true; running; {
		select {
		case <-finished:
			running = false
		case <-time.After(time.Duration(20+rand.IntN(150)) * time.Millisecond):
			p.cut()
			cuts.Add(1)
		}
	}
	t.Logf("%d pairs over %d cuts, %d unclear", done.Load(), cuts.Load(), unclear.Load())
	for _, lease := range leases {
		nothingLeft(t, pool, lease)
	}
}

// TestNoServer: the errors of opening.
func TestNoServer(t *testing.T) {
	pool, ctx := newPool(t), within(t)
	for _, c := range []struct {
		dsn  string
		want error
	}{
		{"host=127.0.0.1 port=1", lockelection.ErrUnavailable},
		{"dbname=no_such_database", lockelection.ErrUnavailable},
		{"dbname=template1", lockelection.ErrNotInstalled},
		{"user=nobody_at_all", lockelection.ErrDenied},
		{fmt.Sprintf("host=127.0.0.1,%s port=1,%s", os.Getenv("PGHOST"), os.Getenv("PGPORT")), nil},
	} {
		s, err := lockelection.Open(ctx, must(pgx.ParseConfig(c.dsn)))
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.dsn, err)
		}
		if err == nil {
			s.Close(ctx)
		}
		absent := `lock_election is not installed in database "template1" (CREATE EXTENSION lock_election, or lockctl install for the portable edition)`
		if c.want == lockelection.ErrNotInstalled && err.Error() != absent {
			t.Error(err)
		}
	}
	_, err := lockelection.NewSession(ctx, pool, lockelection.WithTTL(time.Millisecond))
	wants(t, err, lockelection.ErrInvalid)
	p := newProxy(t)
	p.silent.Store(true)
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	config := must(pgx.ParseConfig(fmt.Sprintf("host=127.0.0.1 port=%d sslmode=disable",
		p.listener.Addr().(*net.TCPAddr).Port)))
	_, err = lockelection.Open(short, config)
	wants(t, err, context.DeadlineExceeded)
}
