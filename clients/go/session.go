// Package lockelection is a client of lock_election: distributed locks and leader election inside PostgreSQL.
//
// A [Session] has one connection of its own and one lease, which it keeps alive. All that it holds and waits for hangs
// on that lease, so one renewal keeps a thousand locks, and one connection waits for all of them. It connects again by
// itself; a broken connection loses nothing.
//
// # Deadline
//
// What a session holds is safe until the sending of the last renewal that was answered, plus the validity that the server
// has returned, less a margin (a twentieth of the TTL, 1 s at most). The validity is the TTL, or less after restarts of the
// server in quick succession, or of a TTL above 5 minutes. The clock goes on while the machine is suspended. At the deadline the context of
// every hold is canceled, whatever the network does. [context.Cause] says why. [Hold.Valid] and the Err of that
// context look at the clock themselves, so that also a process that was stopped notices before its next step. Writes
// that must not come late need [Hold.Fence].
//
// # Cancel
//
// A context that ends also ends the call it was given to: then nothing is held and nothing waits. A grant that comes at
// the same moment is given back in the background.
package lockelection

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// State of a session.
type State int

const (
	Connected State = 1 + iota // the lease is kept alive
	Suspended                  // no answer now; what is held is still held, until the deadline
	Ended                      // the lease is lost or was given back, and all that hung on it
)

type options struct {
	ttl     time.Duration
	name    string
	shared  bool
	permit  bool
	permits int
	waits   bool // at most for wait
	wait    time.Duration
	err     error
	now     func() time.Duration
}

type (
	sessionOption func(*options)
	lockOption    func(*options)

	// SessionOption is for NewSession and its like, LockOption for Lock and its like. WithTTL is both.
	SessionOption interface{ session(*options) }
	LockOption    interface{ lock(*options) }
	TTLOption     struct {
		sessionOption
		lockOption
	}
)

var errNilOption = invalid("an option is nil")

func (set sessionOption) session(o *options) {
	if set == nil {
		o.err = errNilOption
		return
	}
	set(o)
}

func (set lockOption) lock(o *options) { sessionOption(set).session(o) }

// WithTTL sets how long holds outlive the last renewal, from 100 ms to 24 days; 30 s without it. For a session: of its
// lease. For a lock: of a lease of its own on the same connection, which it shares with all holds of the session that
// have the same TTL.
func WithTTL(ttl time.Duration) TTLOption {
	set := func(o *options) { o.ttl, o.err = ttl.Truncate(time.Millisecond), cmp.Or(o.err, checkTTL(ttl)) }
	return TTLOption{set, set}
}

// WithName sets what the server's views show as the start of the owner: it is cut to 200 bytes.
func WithName(name string) SessionOption {
	return sessionOption(func(o *options) {
		o.name, o.err = name, cmp.Or(o.err, checkEncoding("name of the session", name))
	})
}

// Shared acquires beside other shared holders.
func Shared() LockOption { return lockOption(func(o *options) { o.shared = true }) }

// Permit acquires one of n permits of the name. Not together with Shared, and for one name only.
func Permit(n int) LockOption { return lockOption(func(o *options) { o.permit, o.permits = true, n }) }

// WaitFor bounds how long a call stands in the queue; after that it returns ErrHeld. The first answer of the server does
// not count: a lock that is free is acquired also if d is shorter than a round trip. ErrUnavailable, which is also
// [context.DeadlineExceeded]: that answer has not come, neither in this time nor in a quarter of the TTL. 0 does not wait,
// as TryLock. A deadline of the context is another thing: it ends the call, wherever that is.
func WaitFor(d time.Duration) LockOption {
	return lockOption(func(o *options) { o.waits, o.wait = true, d })
}

// lease is the session's own, or one for holds with another TTL. Times are by the session's clock.
type lease struct {
	ttl      time.Duration
	id       int64        // 0: not granted yet
	end      atomic.Int64 // the local deadline in ns; 0: nothing is certain yet
	bornAt   time.Duration
	renewAt  time.Duration
	lastAt   time.Duration // the time of the last call
	waitedAt time.Duration // when the last wait ended
	over     bool

	call              int64  // the number of the last call
	incarnation, news []byte // that the client has seen
	channel           string
	queue             []*item
	open              map[string]*Hold // requests that were sent and not answered, by owner
	byToken           map[int64]*Hold  // places and holds, also those that are being given back
	waiting           int              // places
	look              bool             // there may be news
	bare              bool             // the next call has no items
	alone             int              // so many items travel alone, to find the one that the server cannot read
	apart             bool             // the last call had releases, and left requests to the next one
}

func newLease(ttl time.Duration) *lease {
	return &lease{ttl: ttl, open: map[string]*Hold{}, byToken: map[int64]*Hold{}}
}

// Session is safe for use by many goroutines. One serves a whole process.
type Session struct {
	set     options
	owner   string // of all requests, before their number
	dial    func(ctx context.Context, limit time.Duration) (*wire, error)
	done    chan struct{} // the session has ended
	stopped chan struct{} // its goroutine has ended
	woken   chan struct{}
	ctx     context.Context // of connecting
	cancel  context.CancelFunc

	mu        sync.Mutex
	err       error         // why it has ended
	trouble   error         // the last of connection or renewal
	failures  int           // of renewals and connections, since the last renewal that succeeded
	retryAt   time.Duration // no connection is made before
	closeAt   time.Duration
	watchdog  *time.Timer
	wire      *wire
	schema    string // of the extension, for fences
	busy      bool   // somebody uses the wire
	idling    bool   // for notifications alone
	turn      *turn  // that is under way
	half      *turn  // whose maker has left
	told      int    // how many callers were woken up
	lease     *lease
	leases    []*lease                 // the session's own first
	observers map[chan struct{}]string // their channels
	free      *sync.Cond               // the wire is free, or the session has ended
	number    int64                    // of requests
	asking    int                      // statements that wait for the wire
	revoked   bool
}

// NewSession connects and grants the lease. It takes the configuration of the pool, not a connection of it; if that
// names several hosts and says nothing else, the primary among them is chosen.
func NewSession(ctx context.Context, pool *pgxpool.Pool, opts ...SessionOption) (*Session, error) {
	if pool == nil {
		return nil, invalid("the pool is nil")
	}
	config := pool.Config()
	return open(ctx, func(ctx context.Context, limit time.Duration) (*wire, error) {
		c := config.ConnConfig.Copy()
		if config.BeforeConnect != nil {
			if err := config.BeforeConnect(ctx, c); err != nil {
				return nil, explain(err)
			}
		}
		return connect(ctx, c, limit)
	}, opts)
}

// Connect is NewSession without a pool, by a connection string: a URL, keywords and values, or "" for what the PG..
// variables say. If the string cannot be parsed, the error does not show it, as that of pgx may: it can have a password.
func Connect(ctx context.Context, connString string, opts ...SessionOption) (*Session, error) {
	config, err := parse(connString)
	if err != nil {
		return nil, err
	}
	return Open(ctx, config, opts...)
}

// Open is NewSession without a pool. The configuration comes from [pgx.ParseConfig].
func Open(ctx context.Context, config *pgx.ConnConfig, opts ...SessionOption) (*Session, error) {
	if config == nil || config.DialFunc == nil {
		return nil, invalid("the configuration is not that of pgx.ParseConfig")
	}
	return open(ctx, func(ctx context.Context, limit time.Duration) (*wire, error) {
		return connect(ctx, config, limit)
	}, opts)
}

// Reopen opens a new session like this one, which has ended.
func (s *Session) Reopen(ctx context.Context) (*Session, error) {
	return open(ctx, s.dial, []SessionOption{sessionOption(func(o *options) { *o = s.set })})
}

func open(ctx context.Context, dial func(context.Context, time.Duration) (*wire, error), opts []SessionOption) (
	*Session, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	s := &Session{
		set: options{ttl: 30 * time.Second, now: bootTime}, dial: dial,
		done: make(chan struct{}), stopped: make(chan struct{}), woken: make(chan struct{}, 1),
		observers: map[chan struct{}]string{},
	}
	s.free = sync.NewCond(&s.mu)
	for _, o := range opts {
		if o == nil {
			o = sessionOption(nil)
		}
		o.session(&s.set)
	}
	if s.set.err != nil {
		return nil, s.set.err
	}
	var random [8]byte
	rand.Read(random[:])
	name := strings.ToValidUTF8(s.set.name[:min(len(s.set.name), 200)], "")
	s.owner, s.lease = fmt.Sprintf("%s#%x-", name, random), newLease(s.set.ttl)
	s.leases = []*lease{s.lease}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if ctx.Err() != nil {
		return nil, ended(ctx, "open a session")
	}
	s.watchdog = time.AfterFunc(time.Second, s.watch)
	opened := make(chan error, 1)
	go s.run(opened)
	var err error
	select {
	case err = <-opened:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		s.cancel() // the session's goroutine revokes a lease that was granted, or is while nobody wants it any more
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closeAt = s.set.now() + s.limit(s.lease)
		s.stop(ErrClosed)
		return nil, ended(ctx, "open a session")
	} else if err != nil {
		<-s.stopped
		return nil, err
	}
	return s, nil
}

// Done is closed when the lease has ended: lost, or given back by Close.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err tells why the session has ended: an error that is ErrLost or ErrClosed; nil if it has not.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	return s.err
}

// State asks nobody, as Lease and TimeLeft.
func (s *Session) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expire(); s.err != nil {
		return Ended
	} else if s.failures > 0 {
		return Suspended
	}
	return Connected
}

// Lease is the number of the lease on the server.
func (s *Session) Lease() int64 { return s.lease.id }

// TimeLeft is the time until the local deadline if no renewal succeeds.
func (s *Session) TimeLeft() time.Duration { return s.left(s.lease) }

func (s *Session) left(l *lease) time.Duration {
	return max(0, time.Duration(l.end.Load())-s.set.now())
}

// Close gives all back: it revokes the lease, which ends all that hangs on it at once, and closes the connection.
// Calls that wait answer ErrClosed. It waits no longer than ctx, unless that has ended before, and than a quarter of the
// TTL. ErrUnknown: the server has not confirmed; the lease then ends by itself. Call it when nothing works under a hold
// of the session any more.
func (s *Session) Close(ctx context.Context) error {
	bad := checkContext(ctx)
	if bad != nil {
		ctx = context.Background()
	} else if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	s.mu.Lock()
	limit := s.limit(s.lease)
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(1, min(limit, time.Until(deadline)))
	}
	if s.closeAt == 0 {
		s.closeAt = s.set.now() + limit
		s.stop(ErrClosed)
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-s.stopped:
	case <-ctx.Done():
		s.cancel()
		s.mu.Lock()
		if s.wire != nil {
			s.wire.cut()
		}
		s.mu.Unlock()
		<-s.stopped
	}
	if errors.Is(s.err, ErrClosed) && !s.revoked {
		return fmt.Errorf("%w: the server has not confirmed the end of the lease", ErrUnknown)
	}
	return bad
}

// watch looks at the deadlines, in no goroutine that network or names could block; at least each second, because timers
// stop in a suspend.
func (s *Session) watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expire(); s.err == nil {
		next := time.Second
		for _, l := range s.leases {
			if l.id != 0 {
				sooner(&next, s.deadline(l)-s.set.now())
			}
		}
		s.watchdog.Reset(next)
	}
}

// --- the end, with s.mu locked as in all that follows ---

// deadline of a lease, which ends at its TTL if nothing was ever certain of it.
func (s *Session) deadline(l *lease) time.Duration {
	if end := l.end.Load(); end != 0 {
		return time.Duration(end)
	}
	return l.bornAt + l.ttl - margin(l.ttl)
}

// expire tells the loss of what is past its deadline.
func (s *Session) expire() {
	for now, n := s.set.now(), len(s.leases)-1; n >= 0 && s.err == nil; n-- {
		if l := s.leases[n]; l.id != 0 && now >= s.deadline(l) {
			err := fmt.Errorf("%w: the lease could not be renewed in time", ErrLost)
			if s.trouble != nil && s.failures > 0 { // and not of a failure before the last renewal
				err = fmt.Errorf("%w: %w", err, s.trouble)
			}
			s.lose(l, err)
		}
	}
}

// lose ends a lease; the session's own takes the session with it.
func (s *Session) lose(l *lease, err error) {
	if l == s.lease {
		s.stop(err)
		return
	}
	s.leases = slices.DeleteFunc(s.leases, func(other *lease) bool { return other == l })
	s.drop(l, err)
}

// drop ends what hangs on a lease. Releases with HoldFor, which Close has still to send, stay.
func (s *Session) drop(l *lease, err error) {
	l.over = l.over || s.closeAt == 0
	queue := l.queue
	l.queue = slices.DeleteFunc(slices.Clone(queue), func(i *item) bool { return l.over || i.value == "" || !i.gives() })
	for _, i := range queue {
		if i.h != nil && !slices.Contains(l.queue, i) {
			s.settle(i.h, err)
		}
	}
	for _, h := range l.open {
		s.settle(h, err)
	}
	for _, h := range l.byToken {
		if s.finish(h, err); h.holdFor == 0 || l.over {
			s.forget(h)
		}
	}
}

func (s *Session) stop(err error) {
	if s.err != nil {
		return
	}
	s.err = err
	for _, l := range s.leases {
		s.drop(l, err)
	}
	close(s.done)
	s.free.Broadcast()
	s.watchdog.Stop()
	s.leave(s.turn)
	s.wake()
}

// wake ends the rest of the session's goroutine.
func (s *Session) wake() {
	if s.idling {
		s.wire.interrupt()
	}
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

func margin(ttl time.Duration) time.Duration { return min(ttl/20, time.Second) }

func callLimit(ttl time.Duration) time.Duration {
	return min(max(ttl/4, 200*time.Millisecond), 10*time.Second)
}

// limit is how long the server may take to answer a statement.
func (s *Session) limit(l *lease) time.Duration {
	limit := callLimit(l.ttl)
	if s.closeAt != 0 {
		limit = min(limit, max(s.closeAt-s.set.now(), time.Millisecond))
	}
	return limit
}

// leaseOf is the lease for holds of a TTL. A new one is granted with the first of them.
func (s *Session) leaseOf(ttl time.Duration) *lease {
	for _, l := range s.leases {
		if l.ttl == ttl {
			return l
		}
	}
	s.leases = append(s.leases, newLease(ttl))
	return s.leases[len(s.leases)-1]
}
