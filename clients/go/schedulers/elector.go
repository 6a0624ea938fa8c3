package schedulers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"lock-election.invalid/lockelection"
)

// ErrNotLeader is the answer of IsLeader in all processes but one.
var ErrNotLeader = errors.New("another process leads")

// Elector is a [gocron.Elector], for [gocron.WithDistributedElector]: the scheduler of the leader runs jobs, the others
// skip theirs.
type Elector struct {
	mu   sync.Mutex
	term *lockelection.Hold
	err  error
	done chan struct{}
}

// NewElector campaigns in the background until ctx ends: again after each lost term, and with a session of its own if s is
// lost. Shut the scheduler down before ctx ends, because then another process leads at once; and wait for Done before
// closing s.
func NewElector(ctx context.Context, s *lockelection.Session, election, candidate string) *Elector {
	e := &Elector{err: ErrNotLeader, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		err := s.Election(election).Run(ctx, candidate, func(ctx context.Context, term *lockelection.Hold) {
			e.set(term, nil)
			<-ctx.Done()
			e.set(nil, ErrNotLeader)
		})
		e.set(nil, fmt.Errorf("the campaign has ended: %w", err))
	}()
	return e
}

func (e *Elector) set(term *lockelection.Hold, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term, e.err = term, err
}

// Done returns a channel that is closed when the campaign has ended, because ctx has, or by a permanent error of the
// server, which IsLeader returns from then on.
func (e *Elector) Done() <-chan struct{} { return e.done }

// IsLeader returns nil if this process leads, by the clock and without a request, and otherwise ErrNotLeader.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil && !e.term.Valid() {
		return ErrNotLeader
	}
	return e.err
}

// Term returns the term, for [lockelection.Hold.Fence], or nil in a process that does not lead.
func (e *Elector) Term() *lockelection.Hold {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.term
}
