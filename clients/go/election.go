package lockelection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Election is an election in which a session campaigns, or which it observes.
type Election struct {
	s    *Session
	name string
	mu   sync.Mutex
	term *Hold
}

// Leader is the leader of an election. If there is no leader, Candidate is empty and Term is 0.
type Leader struct {
	Candidate string
	Term      int64
}

// Election returns the election with this name, without a request to the server. The name has 1 to 255 bytes of UTF-8.
// If the name is not valid, the methods of the election return ErrInvalid.
func (s *Session) Election(name string) *Election { return &Election{s: s, name: name} }

// Campaign waits to be elected, in order of arrival, until ctx ends. candidate is the public text of the candidate, 1
// to 4096 bytes of UTF-8. If this candidate already leads, Campaign acts like Proclaim. The options are WaitFor and
// WithTTL. The errors are the same as those of [Session.Lock].
func (e *Election) Campaign(ctx context.Context, candidate string, opts ...LockOption) error {
	if e.Term() != nil {
		return e.Proclaim(ctx, candidate)
	}
	return e.stand(ctx, candidate, false, opts)
}

// TryCampaign is like Campaign, but does not wait. It returns ErrHeld if another candidate leads or is queued.
func (e *Election) TryCampaign(ctx context.Context, candidate string, opts ...LockOption) error {
	return e.stand(ctx, candidate, true, opts)
}

// stand campaigns, and stores the term if it is elected.
func (e *Election) stand(ctx context.Context, candidate string, try bool, opts []LockOption) error {
	e.mu.Lock()
	before := e.term
	e.mu.Unlock()
	if before != nil && !before.Valid() {
		_ = before.Unlock(ctx) // release an evicted term: a caller that campaigns again no longer leads
	}
	h, err := e.s.acquire(ctx, kindTerm, []string{e.name}, candidate, try, opts)
	if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.term = h
	}
	return err
}

// Term returns the hold of the current term, with its Context, Token and Fence, or nil if this candidate does not
// lead.
func (e *Election) Term() *Hold {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term == nil || !e.term.Valid() {
		return nil
	}
	return e.term
}

// Proclaim changes the leader's public text. It returns ErrLost if this candidate no longer leads, and ErrUnknown if
// the server does not reply in time.
func (e *Election) Proclaim(ctx context.Context, candidate string) error {
	if err := cmp.Or(checkContext(ctx), checkElection(e.name), checkCandidate(candidate)); err != nil {
		return err
	}
	h := e.Term()
	if h == nil {
		return fmt.Errorf("%w: %q does not lead", ErrLost, e.name)
	}
	i := &item{action: "proclaim", names: h.names, number: itoa(h.Token()), value: candidate}
	err := e.s.await(ctx, []*Hold{e.s.request(ctx, kindTerm, i, h.lease.ttl, 0)})
	if errors.Is(err, ErrUnavailable) {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}

// Resign ends the term. It returns nil if there is no term, otherwise the result of [Hold.Unlock].
func (e *Election) Resign(ctx context.Context) error {
	e.mu.Lock()
	h := e.term
	e.term = nil
	e.mu.Unlock()
	if h == nil {
		return nil
	}
	return h.Unlock(ctx)
}

// Leader returns the current leader, or ErrNoLeader if there is none.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	if err := checkElection(e.name); err != nil {
		return Leader{}, err
	}
	r, err := e.s.ask(ctx, "SELECT candidate, term FROM %s.current_leader($1)", e.name)
	if err == nil && len(r) == 0 {
		err = ErrNoLeader
	}
	if err != nil {
		return Leader{}, err
	}
	return Leader{r[0][0], number(r[0][1])}, nil
}

// Observe returns a channel that receives the current leader, and then all changes in order, without gaps. A zero
// Leader means that there is no leader. The channel is closed when ctx or the session ends. It is closed at once if
// the name or ctx is not valid; to get the error, call Leader.
func (e *Election) Observe(ctx context.Context) <-chan Leader {
	changes := make(chan Leader)
	if cmp.Or(checkContext(ctx), checkElection(e.name)) != nil {
		close(changes)
		return changes
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(changes)
		defer context.AfterFunc(e.s.ctx, cancel)()
		defer cancel()
		e.observe(ctx, changes)
	}()
	return changes
}

const (
	historySQL = "SELECT change, term, how, candidate FROM %s.election_history($1, $2) ORDER BY change"
	// presentSQL returns the last change, or the current leader if the history has no change.
	presentSQL = "SELECT change, term, how, candidate FROM %s.election_history($1, $2)" +
		" UNION ALL SELECT 0, term, 'elected', candidate FROM (VALUES (0)) AS v(v)" +
		" LEFT JOIN %s.current_leader($1) ON true ORDER BY 1 DESC LIMIT 1"
)

// observe sends the current leader, and then repeatedly reads and sends the changes after the last one that it has
// sent. A notification only makes it read earlier.
func (e *Election) observe(ctx context.Context, changes chan<- Leader) {
	s, hint, interval := e.s, make(chan struct{}, 1), 4*lookEvery
	if r, err := s.ask(ctx, "SELECT %s.observe_election($1)", e.name); err == nil {
		s.mu.Lock()
		s.observers[hint] = r[0][0]
		s.wake()
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.observers, hint)
		}()
	}
	for sql, after := presentSQL, int64(0); ; {
		r, _ := s.ask(ctx, sql, e.name, itoa(after))
		for _, row := range r {
			leader := Leader{row[3], number(row[1])}
			if how := row[2]; how != "elected" && how != "proclaimed" {
				leader = Leader{}
			}
			select {
			case changes <- leader:
				sql, after = historySQL, number(row[0])
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-hint:
		case <-time.After(interval):
		case <-ctx.Done():
			return
		}
	}
}

// Run campaigns repeatedly until ctx ends or a permanent error occurs, and returns the cause of ctx or the error. Each
// time it is elected, it calls lead with a context that is canceled when the term is lost or ctx ends. It resigns only
// after lead has returned, so lead never runs twice at the same time. If the session is lost, Run continues with a new
// session.
func (e *Election) Run(ctx context.Context, candidate string, lead func(ctx context.Context, term *Hold)) error {
	err := cmp.Or(checkContext(ctx), checkElection(e.name), checkCandidate(candidate))
	if err == nil && lead == nil {
		err = invalid("the function that leads is nil")
	}
	if err != nil {
		return err
	}
	own := &Election{s: e.s, name: e.name}
	defer func() {
		if own.s != e.s {
			own.s.Close(context.WithoutCancel(ctx))
		}
	}()
	for failures := 0; ; {
		err := own.stand(ctx, candidate, false, nil)
		if err == nil {
			failures = 0
			own.lead(ctx, lead)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if ended := own.s.Err(); errors.Is(ended, ErrClosed) {
			return ended
		} else if ended != nil {
			var s *Session
			if s, err = own.s.Reopen(ctx); err == nil {
				own.s = s
			}
		}
		if errors.Is(err, ErrInvalid) || errors.Is(err, ErrDenied) || errors.Is(err, ErrNotInstalled) {
			return err
		} else if err != nil {
			select {
			case <-time.After(jitter(min(2*firstRetry<<min(failures, 10), 5*time.Second))):
			case <-ctx.Done():
			}
			failures++
		}
	}
}

func (e *Election) lead(ctx context.Context, lead func(ctx context.Context, term *Hold)) {
	defer e.Resign(context.WithoutCancel(ctx))
	both, cancel := context.WithCancelCause(e.term.Context())
	defer cancel(ErrReleased)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	lead(both, e.term)
}
