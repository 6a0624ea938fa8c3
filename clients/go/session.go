// Package lockelection is a client of lock_election: distributed locks and leader election inside PostgreSQL.
//
// A [Session] has its own connection and one lease, which it keeps alive. All its holds and waits belong to that
// lease, so one renewal keeps a thousand locks alive, and one connection waits for all of them. The session reconnects
// automatically, and a broken connection does not end the lease.
//
// # Deadline
//
// The holds of a session are safe until a local deadline: the time at which the last confirmed renewal was sent, plus
// the validity that the server returned, minus a margin (a twentieth of the TTL, at most 1 s). The validity is the
// TTL, or less if the server has restarted repeatedly, or if the TTL is above 5 minutes. The clock keeps running while
// the machine is suspended. At the deadline the context of every hold is canceled, even if the network fails, and
// [context.Cause] returns the reason. [Hold.Valid] and the Err method of that context check the clock, so that even a
// process that was stopped notices the loss before its next step. Only [Hold.Fence] prevents a write after the
// deadline.
//
// # Cancel
//
// When the context of a call ends, the call ends, too. It then neither holds nor waits for anything; a grant that
// arrives at the same moment is released in the background.
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

// State is the state of a session.
type State int

const (
	Connected State = 1 + iota // the lease is kept alive
	Suspended                  // the server does not reply; all holds stay valid until the deadline
	Ended                      // the lease and all its holds are lost or were released
)

type options struct {
	ttl     time.Duration
	name    string
	shared  bool
	permit  bool
	permits int
	waits   bool // whether WaitFor was passed, with time limit wait
	wait    time.Duration
	err     error
	now     func() time.Duration
	onEvent func(context.Context, Event)
}

type (
	sessionOption func(*options)
	lockOption    func(*options)

	// SessionOption is an option of [NewSession], [Connect] and [Open]. LockOption is an option of [Session.Lock] and
	// its variants. [WithTTL] is both.
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

// WithTTL sets the time for which holds last without a renewal, from 100 ms to 24 days; the default is 30 s. As an
// option of a session, it sets the TTL of its lease. For locks with another TTL, the session has another lease on the
// same connection, which all holds with that TTL share.
func WithTTL(ttl time.Duration) TTLOption {
	set := func(o *options) { o.ttl, o.err = ttl.Truncate(time.Millisecond), cmp.Or(o.err, checkTTL(ttl)) }
	return TTLOption{set, set}
}

// WithName sets the beginning of "owner" in the server's views, cut to 200 bytes.
func WithName(name string) SessionOption {
	return sessionOption(func(o *options) {
		o.name, o.err = name, cmp.Or(o.err, checkEncoding("name of the session", name))
	})
}

// Shared requests a shared lock, which several shared holders may hold at the same time.
func Shared() LockOption { return lockOption(func(o *options) { o.shared = true }) }

// Permit requests one of the n permits of a name. It is allowed only for one name, and not with Shared.
func Permit(n int) LockOption { return lockOption(func(o *options) { o.permit, o.permits = true, n }) }

// WaitFor limits the time that a call waits in the queue. At the limit the call returns ErrHeld. The limit does not
// apply to the server's first reply, so a free lock is acquired even if d is shorter than a round trip. If that reply
// arrives neither within d nor within a quarter of the TTL, the call returns ErrUnavailable, which is also
// [context.DeadlineExceeded]. With d = 0 the call does not wait, like TryLock. A deadline of the context, in contrast,
// ends the call at any stage.
func WaitFor(d time.Duration) LockOption {
	return lockOption(func(o *options) { o.waits, o.wait = true, d })
}

// lease is the session's own lease, or a lease for holds with another TTL. Its times are those of the session's clock.
type lease struct {
	ttl      time.Duration
	id       int64        // 0 = not granted yet
	end      atomic.Int64 // the local deadline in ns; 0 = not known, because no reply had a validity yet
	bornAt   time.Duration
	renewAt  time.Duration
	lastAt   time.Duration // time of the last call
	waitedAt time.Duration // time at which the last wait for a place ended
	over     bool

	call              int64  // number of the last call
	incarnation, news []byte // incarnation, and number of the newest news item that the client has seen
	channel           string
	queue             []*item
	open              map[string]*Hold // requests that were sent and have no result yet, by owner
	byToken           map[int64]*Hold  // places and holds by token, including those that are being released
	waiting           int              // number of holds that wait with a place
	look              bool             // whether the server may have news
	bare              bool             // whether the next call has no items
	alone             int              // number of items to send one by one, to find the item that makes the call fail
	apart             bool             // whether the last call sent only releases, and left the requests to the next call
}

func newLease(ttl time.Duration) *lease {
	return &lease{ttl: ttl, open: map[string]*Hold{}, byToken: map[int64]*Hold{}}
}

// Session is a connection and a lease, with all their holds and waits. It is safe for concurrent use. A process needs
// only one session.
type Session struct {
	set     options
	owner   string // start of the owner text of each request, before the request's number
	dial    func(ctx context.Context, limit time.Duration) (*wire, error)
	done    chan struct{} // closed when the session has ended
	stopped chan struct{} // closed when the session's goroutine has ended
	woken   chan struct{}
	ctx     context.Context // context for connecting
	cancel  context.CancelFunc

	mu        sync.Mutex
	err       error         // the reason why the session has ended
	trouble   error         // the last error of connecting or renewing
	failures  int           // number of failures to connect or renew since the last successful renewal
	retryAt   time.Duration // earliest time of the next attempt to connect
	closeAt   time.Duration
	watchdog  *time.Timer
	wire      *wire
	schema    string // the extension's schema, for fences
	busy      bool   // whether a goroutine uses the wire
	idling    bool   // whether the wire only waits for notifications
	turn      *turn  // the current turn
	half      *turn  // a turn whose caller stopped reading its reply, which the session's goroutine must read
	told      int    // counter of callers that were woken up
	lease     *lease
	leases    []*lease                 // all leases; the session's own lease is the first
	observers map[chan struct{}]string // channel of each observer's election, by the observer's hint
	free      *sync.Cond               // signaled when the wire becomes free or the session ends
	number    int64                    // number of the last request
	asking    int                      // number of goroutines that wait to run a statement on the wire
	revoked   bool

	suspendedAt time.Duration // 0 = not suspended
	events      []func()      // queued calls of onEvent; the first one is running
	reported    chan struct{} // closed when events is empty; nil if there was no event yet
}

// NewSession connects and obtains a lease. It uses the pool's configuration, but none of its connections. If the
// configuration has several hosts and no target_session_attrs, the session uses the host that is the primary.
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

// Connect is like NewSession, with a connection string instead of a pool. The string is a URL, keywords and values, or
// "" for the PG.. environment variables. An error never contains a string that cannot be parsed, because it may
// contain a password.
func Connect(ctx context.Context, connString string, opts ...SessionOption) (*Session, error) {
	config, err := parse(connString)
	if err != nil {
		return nil, err
	}
	return Open(ctx, config, opts...)
}

// Open is like NewSession, but with a configuration from [pgx.ParseConfig] instead of a pool.
func Open(ctx context.Context, config *pgx.ConnConfig, opts ...SessionOption) (*Session, error) {
	if config == nil || config.DialFunc == nil {
		return nil, invalid("the configuration is not that of pgx.ParseConfig")
	}
	return open(ctx, func(ctx context.Context, limit time.Duration) (*wire, error) {
		return connect(ctx, config, limit)
	}, opts)
}

// Reopen opens a new session with the options of this session, which has ended.
func (s *Session) Reopen(ctx context.Context) (*Session, error) {
	return open(ctx, s.dial, []SessionOption{sessionOption(func(o *options) { *o = s.set })})
}

// open returns a session after its goroutine has connected and obtained a lease.
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
		s.cancel() // the session's goroutine revokes the lease, even if it is granted later
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

// Done returns a channel that is closed when the lease is lost, or revoked by Close.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns the reason why the session has ended (ErrLost or ErrClosed), or nil if it has not ended.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	return s.err
}

// State returns the session's state. It does no I/O.
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

// Lease returns the lease's number on the server. It does no I/O.
func (s *Session) Lease() int64 { return s.lease.id }

// TimeLeft returns the time until the local deadline, which each renewal moves. It does no I/O.
func (s *Session) TimeLeft() time.Duration { return s.left(s.lease) }

func (s *Session) left(l *lease) time.Duration {
	return max(0, time.Duration(l.end.Load())-s.set.now())
}

// Close revokes the lease, which ends all holds and waits of the session at once, and closes the connection. Waiting
// calls return ErrClosed. Close waits for the server for at most a quarter of the TTL, or until ctx ends; it ignores a
// ctx that has already ended. It returns ErrUnknown if the server has not confirmed the end of the lease, which then
// expires. Call Close only after all work under the session's holds has stopped.
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
	s.mu.Lock()
	reported := s.reported
	s.mu.Unlock()
	if reported != nil {
		select {
		case <-reported:
		case <-ctx.Done():
		}
	}
	if errors.Is(s.err, ErrClosed) && !s.revoked {
		return fmt.Errorf("%w: the server has not confirmed the end of the lease", ErrUnknown)
	}
	return bad
}

// watch checks the deadlines in a separate goroutine, which the network cannot block. It runs at least once a second,
// because timers stop while the machine is suspended.
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

// --- the end, with s.mu locked, as in all functions below ---

// deadline returns a lease's local deadline. If no reply had a validity yet, that is one TTL, minus the margin, after
// the request of the lease.
func (s *Session) deadline(l *lease) time.Duration {
	if end := l.end.Load(); end != 0 {
		return time.Duration(end)
	}
	return l.bornAt + l.ttl - margin(l.ttl)
}

// expire ends the leases whose deadline has passed.
func (s *Session) expire() {
	for now, n := s.set.now(), len(s.leases)-1; n >= 0 && s.err == nil; n-- {
		if l := s.leases[n]; l.id != 0 && now >= s.deadline(l) {
			err := fmt.Errorf("%w: the lease could not be renewed in time", ErrLost)
			if s.trouble != nil && s.failures > 0 { // there was a failure since the last renewal
				err = fmt.Errorf("%w: %w", err, s.trouble)
			}
			s.lose(l, err)
		}
	}
}

// lose ends a lease. The session's own lease ends the session.
func (s *Session) lose(l *lease, err error) {
	if l == s.lease {
		s.stop(err)
		return
	}
	s.leases = slices.DeleteFunc(s.leases, func(other *lease) bool { return other == l })
	s.drop(l, err)
}

// drop ends all holds and waits of a lease. While the session is being closed, it keeps queued releases with HoldFor,
// to send them.
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

// stop ends the session and all its holds.
func (s *Session) stop(err error) {
	if s.err != nil {
		return
	}
	s.err = err
	for _, l := range s.leases {
		s.drop(l, err)
	}
	if errors.Is(err, ErrLost) {
		s.sessionEvent("ended", err)
	}
	close(s.done)
	s.free.Broadcast()
	s.watchdog.Stop()
	s.leave(s.turn)
	s.wake()
}

// wake wakes up the session's goroutine.
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

// limit returns the time limit for the server's reply to a statement; Close may shorten it.
func (s *Session) limit(l *lease) time.Duration {
	limit := callLimit(l.ttl)
	if s.closeAt != 0 {
		limit = min(limit, max(s.closeAt-s.set.now(), time.Millisecond))
	}
	return limit
}

// leaseOf returns the lease for holds with this TTL. For the first such hold, it adds a lease, which is requested
// later.
func (s *Session) leaseOf(ttl time.Duration) *lease {
	for _, l := range s.leases {
		if l.ttl == ttl {
			return l
		}
	}
	s.leases = append(s.leases, newLease(ttl))
	return s.leases[len(s.leases)-1]
}
