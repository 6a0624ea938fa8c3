package lockelection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Election is one election, seen by one session.
type Election struct {
	s    *Session
	name string
	mu   sync.Mutex
	term *Hold
}

// Leader is who leads. While nobody does, Candidate is empty and Term 0.
type Leader struct {
	Candidate string
	Term      int64
}

// Election asks nobody. The name has 1 to 255 bytes of UTF-8; the calls say what is wrong with it.
func (s *Session) Election(name string) *Election { return &Election{s: s, name: name} }

// Campaign waits to be elected, in the order of arrival, or until ctx ends. The candidate is the text that everybody
// sees, of 1 to 4096 bytes of UTF-8. While it leads already it is a Proclaim. Options: WaitFor and WithTTL. Errors as for
// Lock.
func (e *Election) Campaign(ctx context.Context, candidate string, opts ...LockOption) error {
	if e.Term() != nil {
		return e.Proclaim(ctx, candidate)
	}
	return e.stand(ctx, candidate, false, opts)
}

// TryCampaign does not wait: ErrHeld if somebody else leads, or is a candidate before us.
func (e *Election) TryCampaign(ctx context.Context, candidate string, opts ...LockOption) error {
	return e.stand(ctx, candidate, true, opts)
}

func (e *Election) stand(ctx context.Context, candidate string, try bool, opts []LockOption) error {
	e.mu.Lock()
	before := e.term
	e.mu.Unlock()
	if before != nil && !before.Valid() {
		_ = before.Unlock(ctx) // an evicted term: who stands again has left it
	}
	h, err := e.s.acquire(ctx, kindTerm, []string{e.name}, candidate, try, opts)
	if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.term = h
	}
	return err
}

// Term is the hold of the term that leads, for its Context, Token and Fence; nil if this election does not lead.
func (e *Election) Term() *Hold {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term == nil || !e.term.Valid() {
		return nil
	}
	return e.term
}

// Proclaim changes the candidate's text while it leads. ErrLost: it does not lead any more. ErrUnknown: no answer.
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

// Resign ends the term. nil if it does not lead.
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

// Leader asks who leads. ErrNoLeader: nobody.
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

// Observe tells the present leader, and then each change in order, none missing. A zero Leader: nobody leads. The
// channel is closed when ctx or the session ends; at once if the name or ctx is not valid, which a call of Leader explains.
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
	// The last change of all; where the history has lost it, or there was none, who leads.
	presentSQL = "SELECT change, term, how, candidate FROM %s.election_history($1, $2)" +
		" UNION ALL SELECT 0, term, 'elected', candidate FROM (VALUES (0)) AS v(v)" +
		" LEFT JOIN %s.current_leader($1) ON true ORDER BY 1 DESC LIMIT 1"
)

// observe reads the history behind the last change that was told, at first the present leader. A notification only says
// when to look.
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

// Run stands for election again and again, until ctx ends or an error comes that another try does not mend; it returns
// that error. Each time it is elected it calls lead, with a context that is canceled when the term is lost or ctx ends.
// The term is resigned only after lead has returned; so lead never runs twice at once. If the session is lost, Run goes
// on with one of its own.
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
