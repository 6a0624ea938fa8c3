package lockelection

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"regexp"
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

// States of a hold, as the application sees them
const (
	stateWaiting int32 = iota
	stateHeld
	stateOver
)

// Hold is a lock, a permit, several locks that were acquired together, or a term. It is safe for concurrent use.
type Hold struct {
	s     *Session
	lease *lease
	kind  int
	names []string
	wait  time.Duration // time limit of the wait; 0 = none

	state    atomic.Int32
	token    atomic.Int64
	ready    chan struct{} // closed when the hold no longer waits
	released chan struct{} // closed when the hold has neither a grant nor a place on the server
	ctx      context.Context
	cancel   context.CancelCauseFunc

	// The fields below are protected by s.mu.
	ask        *item // the request
	queued     bool  // whether the hold has a place, but no grant
	impatient  bool  // whether the time limit has passed, so that a place must be released
	done       bool  // whether released is closed
	err        error // the reason why the hold has ended
	holdFor    time.Duration
	since      time.Duration // time of the request; after the grant, time of the grant
	evicted    bool          // whether the hold was evicted, and not released by the application yet
	giving     int           // number of names that are being released
	releaseErr error
}

// Lock acquires a lock, waiting in order of arrival until ctx ends; see also [WaitFor]. Two holds of one session
// exclude each other, like the holds of two processes. A broken connection ends neither the wait nor the place in the
// queue. A name has 1 to 255 bytes of UTF-8.
//
// Lock returns the cause of ctx if ctx ends, ErrLost if the session has ended, ErrClosed, ErrInvalid, ErrLimit or
// ErrDenied. With WaitFor, it can also return ErrHeld or ErrUnavailable.
func (s *Session) Lock(ctx context.Context, name string, opts ...LockOption) (*Hold, error) {
	return s.acquire(ctx, kindLock, []string{name}, "", false, opts)
}

// TryLock is like Lock, but does not wait. It returns ErrHeld if others hold the lock or are queued for it, and
// ErrUnavailable if the server does not reply within a quarter of the TTL.
func (s *Session) TryLock(ctx context.Context, name string, opts ...LockOption) (*Hold, error) {
	return s.acquire(ctx, kindLock, []string{name}, "", true, opts)
}

// LockAll acquires 1 to 1,000 locks together or not at all, with one token. Two such calls never deadlock, even if
// their names are in different orders.
func (s *Session) LockAll(ctx context.Context, names []string, opts ...LockOption) (*Hold, error) {
	return s.acquire(ctx, kindLocks, names, "", false, opts)
}

// TryLockAll is like TryLock, for several locks that are acquired together or not at all.
func (s *Session) TryLockAll(ctx context.Context, names []string, opts ...LockOption) (*Hold, error) {
	return s.acquire(ctx, kindLocks, names, "", true, opts)
}

// TryLockEach tries to acquire each of these locks independently, with one request to the server per 128 locks. It
// returns a hold for each name in order, or nil if others hold that lock. If it returns an error, none of the locks is
// held.
func (s *Session) TryLockEach(ctx context.Context, names []string, opts ...LockOption) ([]*Hold, error) {
	holds, seen := make([]*Hold, len(names)), map[string]bool{}
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	for i, name := range names {
		h, err := s.newHold(ctx, kindLock, names[i:i+1], "", true, opts)
		if err == nil && seen[name] {
			err = invalid("the name %q appears twice", name)
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

// acquire requests one hold and waits for it.
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

// newHold checks the arguments and options of a request, and returns its hold, which is not queued yet.
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

// request returns a new hold that waits for the result of item ask.
func (s *Session) request(ctx context.Context, kind int, ask *item, ttl, wait time.Duration) *Hold {
	h := &Hold{s: s, kind: kind, names: ask.names, wait: wait, lease: &lease{ttl: ttl}, ask: ask,
		ready: make(chan struct{}), released: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	ask.h = h
	return h
}

// await requests the holds and waits for all of them. It sets a hold in holds to nil if others hold its lock. After
// any other error it releases all holds.
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
		h.since = s.set.now()
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

// attend waits until a hold is granted or has ended, and ends its wait when ctx ends or at its time limit. If the
// first reply has not arrived by that limit, attend waits for it up to the time limit of a call, but only for a grant,
// not for a place.
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
			s.wake() // release its place
		}
	}
}

// --- the life of a hold, with s.mu locked ---

func (h *Hold) over() bool { return h.state.Load() == stateOver }

// granted handles the grant of a hold, unless the hold has ended.
func (s *Session) granted(h *Hold) {
	if s.expire(); h.over() {
		return
	}
	s.leaveQueue(h)
	if l := h.lease; l.end.Load() == 0 { // the grant was reported, so it is durable, and so is its lease
		l.end.Store(int64(s.deadline(l)))
	}
	h.state.Store(stateHeld)
	s.holdEvent(h, "acquired", nil)
	close(h.ready)
	s.told++
}

func (s *Session) leaveQueue(h *Hold) {
	if h.queued {
		h.queued, h.lease.waitedAt = false, s.set.now()
		h.lease.waiting--
	}
}

// finish ends a hold, granted or not, and queues the release of its grant or place on the server. For an evicted hold,
// Unlock queues it; if the request has no reply yet, adopt queues it when the reply arrives.
func (s *Session) finish(h *Hold, err error) {
	if h.over() {
		return
	}
	h.err = err
	kind := "released"
	if errors.Is(err, ErrLost) {
		kind = "lost"
	}
	if h.state.Swap(stateOver) == stateWaiting {
		kind = "not_acquired"
		close(h.ready)
		s.told++
	}
	s.holdEvent(h, kind, err)
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

// --- functions of a hold ---

// Context returns a context that is canceled when the hold is lost or released, at the latest at the local deadline. It
// carries the values of the context with which the hold was acquired. [context.Cause] returns an error that is ErrLost,
// ErrClosed or ErrReleased.
func (h *Hold) Context() context.Context { return holdContext{h.ctx, h} }

type holdContext struct {
	context.Context
	h *Hold
}

// Err checks the deadline first, because after a suspend or a pause of the process, timers may not have fired yet.
func (c holdContext) Err() error {
	c.h.Valid()
	return c.Context.Err()
}

// Valid reports whether the hold is held and its local deadline has not passed. It checks the clock and does no I/O.
func (h *Hold) Valid() bool { return h.TimeLeft() > 0 }

// TimeLeft returns the time for which Valid stays true without another renewal; 0 if the hold is no longer held.
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

// Token returns the token, which proves ownership. For an exclusive lock or a term it is also the fencing token, which
// is higher than the token of every earlier holder.
func (h *Hold) Token() int64    { return h.token.Load() }
func (h *Hold) Names() []string { return slices.Clone(h.names) }
func (h *Hold) String() string  { return fmt.Sprintf("%.100q", strings.Join(h.names, ", ")) }

// UnlockOption is an option of [Hold.Unlock].
type UnlockOption func(*Hold)

// HoldFor keeps the name closed until d after it was acquired: until then it is not granted again. d is from 0 (no
// effect) to 24 days, and at most the server's setting lock_election.max_hold_for. HoldFor is not allowed for a term.
func HoldFor(d time.Duration) UnlockOption { return func(h *Hold) { h.holdFor = d } }

// Unlock releases the hold in any case, even if it returns an error or ctx has ended. It waits for the server for at
// most a quarter of the TTL, or until ctx ends. It returns nil if the hold is released, also by an earlier call;
// ErrLost if the hold was lost before; and ErrUnknown if the server has not confirmed the release. In that case the
// session keeps retrying, and the hold ends with the lease at the latest.
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

// FenceSQL returns the SQL statement of a fence without parameters, for any ORM. Run it in an open transaction, before
// the transaction's writes. If it fails, roll back; the SQLSTATE is LE001 if the hold is lost. Outside of a
// transaction the statement protects nothing, but does not fail. FenceSQL returns ErrLost if the hold is no longer
// held.
func (h *Hold) FenceSQL() (string, error) {
	if !h.Valid() {
		return "", fmt.Errorf("%w: %s is not held any more", ErrLost, h)
	}
	names := make([]string, len(h.names))
	for i, name := range h.names {
		names[i] = literal(name)
	}
	return h.fenceSQL(h.schema(), "ARRAY["+strings.Join(names, ", ")+"]", itoa(h.Token())), nil
}

func (h *Hold) schema() string {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return h.s.schema
}

// fenceSQL returns the statement of a fence. schema, names and token are SQL expressions.
func (h *Hold) fenceSQL(schema, names, token string) string {
	function := ".fence_lock("
	if h.kind == kindTerm {
		function = ".fence_leader("
	}
	return "SELECT pg_catalog.count(" + schema + function + "n, " + token + ")) AS fenced" +
		" FROM pg_catalog.unnest(" + names + ") AS n"
}

// literal returns a text as an SQL expression without characters that an ORM could take for a parameter.
func literal(text string) string {
	if plain.MatchString(text) {
		return "'" + text + "'"
	}
	return fmt.Sprintf("pg_catalog.convert_from(pg_catalog.decode('%x', 'hex'), 'UTF8')", text)
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_ .,/-]*$`)

// Fence binds the application's transaction, in the same database, to the hold: until the transaction ends, the lock
// is granted to no other client, and no other candidate is elected. So everything that the transaction writes after
// Fence is written while the hold is held, or not at all. tx is a [pgx.Tx], or a [*sql.Tx] of any driver, or a type
// that embeds one of them, such as *sqlx.Tx; for a transaction of gorm, pass its Statement.ConnPool. Fence returns
// ErrLost if the hold is lost; then roll back. It returns ErrInvalid if tx is not an open transaction.
func (h *Hold) Fence(ctx context.Context, tx any) error {
	if err := checkContext(ctx); err != nil {
		return err
	} else if !h.Valid() {
		return fmt.Errorf("%w: %s is not held any more", ErrLost, h)
	}
	if v := reflect.ValueOf(tx); v.Kind() == reflect.Pointer && v.IsNil() {
		return invalid("%T is nil", tx)
	}
	schema := h.schema()
	query := h.fenceSQL(schema, "$1::pg_catalog.text::pg_catalog.text[]", "$2")
	names, err := array(h.names), error(nil)
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
		h.s.ask(ctx, "SELECT %s.is_held($1, $2)", h.names[0], itoa(h.Token())) // this makes the session read the new schema
		h.s.mu.Lock()
		defer h.s.mu.Unlock()
		if h.s.schema != schema {
			return fmt.Errorf("%w: the extension's schema has another name: roll back, and repeat the transaction: %w",
				ErrUnavailable, err)
		}
	}
	return explain(err)
}
