package lockelection

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	kindLock = iota
	kindLocks
	kindTerm
)

// What the application has been told.
const (
	stateWaiting int32 = iota
	stateHeld
	stateOver
)

// Hold is a lock, a permit, several locks that were acquired together, or a term. Its methods are for any goroutine.
type Hold struct {
	s     *Session
	lease *lease
	kind  int
	names []string
	wait  time.Duration // 0: no limit

	state    atomic.Int32
	token    atomic.Int64
	ready    chan struct{} // it does not wait any more
	released chan struct{} // the server has nothing of it any more
	ctx      context.Context
	cancel   context.CancelCauseFunc

	// Under s.mu.
	ask        *item // the request
	queued     bool  // it has a place, and no grant
	impatient  bool  // the limit of its wait has passed: it enters no queue
	done       bool  // released is closed
	err        error // why it ended
	holdFor    time.Duration
	evicted    bool // lost for the application, which has not released it yet
	giving     int  // names that are being given back
	releaseErr error
}

// Lock waits until it has the lock, in the order of arrival, or until ctx ends; see also [WaitFor]. Two holds of one
// session exclude each other as those of two processes do. A broken connection does not end the wait, and costs no place.
// A name has 1 to 255 bytes of UTF-8. Errors: those of ctx; ErrLost the session has ended, ErrClosed, ErrInvalid, ErrLimit,
// ErrDenied; with WaitFor also ErrHeld, ErrUnavailable.
func (s *Session) Lock(ctx context.Context, name string, opts ...LockOption) (*Hold, error) {
	return s.acquire(ctx, kindLock, []string{name}, "", false, opts)
}

// TryLock does not wait: ErrHeld if somebody else holds the lock or is queued for it. ErrUnavailable: the server did
// not answer within a quarter of the TTL.
func (s *Session) TryLock(ctx context.Context, name string, opts ...LockOption) (*Hold, error) {
	return s.acquire(ctx, kindLock, []string{name}, "", true, opts)
}

// LockAll acquires 1 to 1,000 locks at once, all or none, under one token. Whatever the order of the names, two such
// calls do not wait for each other.
func (s *Session) LockAll(ctx context.Context, names []string, opts ...LockOption) (*Hold, error) {
	return s.acquire(ctx, kindLocks, names, "", false, opts)
}

// TryLockAll is TryLock for several locks: all or none.
func (s *Session) TryLockAll(ctx context.Context, names []string, opts ...LockOption) (*Hold, error) {
	return s.acquire(ctx, kindLocks, names, "", true, opts)
}

// TryLockEach tries each of these locks for itself, at the price of one call for up to 128. The answer is in the order
// of the names; nil is one that somebody else holds. After an error none is held.
func (s *Session) TryLockEach(ctx context.Context, names []string, opts ...LockOption) ([]*Hold, error) {
	holds, seen := make([]*Hold, len(names)), map[string]bool{}
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	for i, name := range names {
		h, err := s.newHold(ctx, kindLock, names[i:i+1], "", true, opts)
		if err == nil && seen[name] {
			err = invalid("the name %q is there twice", name)
		}
		if err != nil {
			return nil, err
		}
		holds[i], seen[name] = h, true
	}
	if len(holds) > 0 {
		if err := s.await(ctx, holds); err != nil {
			return nil, err
		}
	}
	return holds, nil
}

func (s *Session) acquire(ctx context.Context, kind int, names []string, last string, try bool, opts []LockOption) (
	*Hold, error) {
	h, err := s.newHold(ctx, kind, names, last, try, opts)
	if err != nil {
		return nil, err
	} else if ctx.Err() != nil {
		return nil, ended(ctx, h.String())
	}
	holds := []*Hold{h}
	if err = s.await(ctx, holds); err != nil {
		return nil, err
	} else if holds[0] == nil {
		return nil, ErrHeld
	}
	return h, nil
}

func (s *Session) newHold(ctx context.Context, kind int, names []string, last string, try bool, opts []LockOption) (
	*Hold, error) {
	set := options{ttl: s.set.ttl, err: checkContext(ctx)}
	for _, o := range opts {
		if o == nil {
			o = lockOption(nil)
		}
		o.lock(&set)
	}
	if kind == kindTerm {
		set.err = cmp.Or(set.err, checkElection(names[0]), checkCandidate(last))
	} else {
		set.err = cmp.Or(set.err, checkNames(names))
	}
	if err := cmp.Or(set.err, set.checkLock(kind, try)); err != nil {
		return nil, err
	}
	ask := &item{action: "enqueue_", names: slices.Clone(names), value: last}
	if try || set.waits && set.wait == 0 {
		ask.action = "try_"
	}
	switch {
	case set.permit:
		ask.action, ask.number = ask.action+"permit", itoa(int64(set.permits))
	case set.shared:
		ask.action += "shared"
	case kind == kindTerm:
		ask.action += "candidate"
	default:
		ask.action += "lock"
	}
	return s.request(ctx, kind, ask, set.ttl, set.wait), nil
}

// request is a hold that an item asks for.
func (s *Session) request(ctx context.Context, kind int, ask *item, ttl, wait time.Duration) *Hold {
	h := &Hold{s: s, kind: kind, names: ask.names, wait: wait, lease: &lease{ttl: ttl}, ask: ask,
		ready: make(chan struct{}), released: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	ask.h = h
	return h
}

// await asks for holds, and waits for all of them. nil is one that somebody else holds; after another error all are given
// back.
func (s *Session) await(ctx context.Context, holds []*Hold) (failed error) {
	start := time.Now()
	if !strings.HasPrefix(holds[0].ask.action, "enqueue") {
		var cancel context.CancelFunc
		ctx, cancel = limited(ctx, holds[0].lease.ttl)
		defer cancel()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	for _, h := range holds {
		s.number++
		h.lease, h.ask.owner = s.leaseOf(h.lease.ttl), s.owner+itoa(s.number)
		if h.lease.queue = append(h.lease.queue, h.ask); s.err != nil {
			s.settle(h, s.err)
		}
	}
	s.join(ctx, holds[0].lease)
	for i, h := range holds {
		if s.attend(ctx, h, start); errors.Is(h.err, ErrHeld) {
			holds[i] = nil
		} else {
			failed = cmp.Or(failed, h.err)
		}
	}
	for _, h := range holds {
		if failed != nil && h != nil {
			s.finish(h, failed)
		}
	}
	if failed != nil {
		s.wake()
	}
	return failed
}

// attend waits until a hold does not wait any more, and ends its wait with ctx, or at its limit. Where the first answer is
// not there at the limit, that has the limit of any call, and no place is taken any more.
func (s *Session) attend(ctx context.Context, h *Hold, start time.Time) {
	limit := h.wait
	for h.state.Load() == stateWaiting {
		var timer <-chan time.Time
		if h.wait > 0 {
			timer = time.After(time.Until(start.Add(limit)))
		}
		s.mu.Unlock()
		select {
		case <-h.ready:
		case <-ctx.Done():
		case <-timer:
		}
		s.mu.Lock()
		late := h.wait > 0 && time.Since(start) >= limit
		switch {
		case h.state.Load() != stateWaiting:
		case ctx.Err() != nil:
			s.finish(h, s.troubled(ended(ctx, h.String())))
		case late && h.queued:
			s.finish(h, ErrHeld)
		case late && limit >= callLimit(h.lease.ttl):
			s.finish(h, s.troubled(fmt.Errorf("%s: %w: %w", h, errNoAnswer, context.DeadlineExceeded)))
		case late:
			h.impatient, limit = true, callLimit(h.lease.ttl)
		}
		if h.over() {
			s.wake() // its place is to be given back
		}
	}
}

// --- the life of a hold, with s.mu locked ---

func (h *Hold) over() bool { return h.state.Load() == stateOver }

func (s *Session) granted(h *Hold) {
	if s.expire(); h.over() {
		return
	}
	s.leaveQueue(h)
	if l := h.lease; l.end.Load() == 0 { // a grant is told when it is durable, and so is its lease
		l.end.Store(int64(s.deadline(l)))
	}
	h.state.Store(stateHeld)
	close(h.ready)
	s.told++
}

func (s *Session) leaveQueue(h *Hold) {
	if h.queued {
		h.queued, h.lease.waitedAt = false, s.set.now()
		h.lease.waiting--
	}
}

// finish ends a hold, granted or not. What the server has of it is given back, of an evicted one by Unlock; if the reply is
// still on its way, when that is here.
func (s *Session) finish(h *Hold, err error) {
	if h.over() {
		return
	}
	h.err = err
	if h.state.Swap(stateOver) == stateWaiting {
		close(h.ready)
		s.told++
	}
	h.cancel(err)
	s.leaveQueue(h)
	if h.lease.byToken[h.token.Load()] == h && !h.evicted {
		s.giveBack(h)
	}
}

func (s *Session) forget(h *Hold) {
	if h.done {
		return
	}
	h.done = true
	delete(h.lease.byToken, h.token.Load())
	delete(h.lease.open, h.ask.owner)
	close(h.released)
	s.told++
}

// --- what is held ---

// Context is canceled when the hold is lost or released, at the latest at the local deadline. It carries the values of
// the context that the hold was acquired with. [context.Cause] tells an error that is ErrLost, ErrClosed or ErrReleased.
func (h *Hold) Context() context.Context { return holdContext{h.ctx, h} }

type holdContext struct {
	context.Context
	h *Hold
}

// Err looks at the clock: after a suspend or a stop no timer has come yet.
func (c holdContext) Err() error {
	c.h.Valid()
	return c.Context.Err()
}

// Valid: it is held, and the local deadline is to come. It asks nobody, as TimeLeft, Token and Names.
func (h *Hold) Valid() bool { return h.TimeLeft() > 0 }

// TimeLeft is how long Valid will be true if no renewal succeeds.
func (h *Hold) TimeLeft() time.Duration {
	left := h.s.left(h.lease)
	if left == 0 {
		h.s.Err()
	}
	if h.state.Load() != stateHeld {
		return 0
	}
	return left
}

// Token is, for an exclusive lock and a term, the fencing token: higher than that of every holder before.
func (h *Hold) Token() int64    { return h.token.Load() }
func (h *Hold) Names() []string { return slices.Clone(h.names) }
func (h *Hold) String() string  { return fmt.Sprintf("%.100q", strings.Join(h.names, ", ")) }

// UnlockOption is for Unlock.
type UnlockOption func(*Hold)

// HoldFor keeps the name closed until that long after it was acquired: nobody is granted it before. From 0, which does
// nothing, to 24 days, and at most the server's setting lock_election.max_hold_for. Not for a term.
func HoldFor(d time.Duration) UnlockOption { return func(h *Hold) { h.holdFor = d } }

// Unlock gives the hold back, whatever it answers and whether or not ctx has ended. It waits for the server for at most
// a quarter of the TTL, or until ctx ends. nil: it is given back, or was before. ErrLost: it had been lost before.
// ErrUnknown: not confirmed; the session goes on trying, and it ends with the lease at the latest.
func (h *Hold) Unlock(ctx context.Context, opts ...UnlockOption) error {
	s, bad := h.s, checkContext(ctx)
	if bad != nil {
		ctx = context.Background()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expire(); h.over() {
		if h.evicted && !h.done {
			h.evicted = false
			s.giveBack(h)
			s.join(ctx, h.lease)
		}
		if errors.Is(h.err, ErrLost) || errors.Is(h.err, ErrClosed) {
			return h.err
		}
		return nil
	}
	for _, o := range opts {
		if o == nil {
			bad = errNilOption
			continue
		}
		o(h)
	}
	if bad = cmp.Or(bad, checkHoldFor(h.holdFor)); bad == nil && h.holdFor > 0 && h.kind == kindTerm {
		bad = invalid("HoldFor is not for a term")
	}
	if bad != nil {
		h.releaseErr, h.holdFor = fmt.Errorf("%s is released, and not closed: %w", h, bad), 0
	}
	s.finish(h, ErrReleased)
	if s.join(ctx, h.lease); h.done {
		return h.releaseErr
	}
	ctx, cancel := context.WithTimeout(ctx, s.limit(h.lease))
	defer cancel()
	s.mu.Unlock()
	var err error
	select {
	case <-h.released:
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w", ErrUnknown, ended(ctx, h.String()))
	}
	s.mu.Lock()
	return cmp.Or(err, h.releaseErr)
}

// Fence makes "I still hold it" a part of a transaction of the application's, in the same database: from here to its
// end nobody else gets the lock, or leads. What it writes after this is written by the holder, or not at all. tx is a
// [pgx.Tx], or a [*sql.Tx] or what embeds it, with any driver. ErrLost: roll back. ErrInvalid: it is no open transaction.
func (h *Hold) Fence(ctx context.Context, tx any) error {
	if err := checkContext(ctx); err != nil {
		return err
	} else if !h.Valid() {
		return fmt.Errorf("%w: %s is not held any more", ErrLost, h)
	}
	if v := reflect.ValueOf(tx); v.Kind() == reflect.Pointer && v.IsNil() {
		return invalid("%T is nil", tx)
	}
	query := "SELECT %s.fence_lock(u.n, $2) FROM pg_catalog.unnest($1::pg_catalog.text::pg_catalog.text[]) AS u(n)"
	names := array(h.names)
	if h.kind == kindTerm {
		query, names = "SELECT %s.fence_leader($1, $2)", h.names[0]
	}
	h.s.mu.Lock()
	schema := h.s.schema
	h.s.mu.Unlock()
	query = qualify(query, schema)
	var err error
	switch t := tx.(type) {
	case interface {
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
		Conn() *pgx.Conn
		Commit(ctx context.Context) error
	}:
		if conn := t.Conn(); conn != nil && conn.PgConn().TxStatus() != 'T' {
			return invalid("the transaction is not open")
		}
		_, err = t.Exec(ctx, query, names, h.Token())
	case interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		Commit() error
	}:
		_, err = t.ExecContext(ctx, query, names, h.Token())
	default:
		return invalid("%T is no transaction", tx)
	}
	if errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, sql.ErrTxDone) {
		return invalid("the transaction is not open")
	} else if noSuchFunction(err) {
		h.s.ask(ctx, "SELECT %s.is_held($1, $2)", h.names[0], itoa(h.Token())) // the session learns the schema so
		h.s.mu.Lock()
		defer h.s.mu.Unlock()
		if h.s.schema != schema {
			return fmt.Errorf("%w: the extension's schema has another name: roll back, and repeat the transaction: %w",
				ErrUnavailable, err)
		}
	}
	return explain(err)
}
