// Package schedulers lets several processes with the same schedule run each job in one of them: a Locker and an Elector
// for gocron v2, and a JobWrapper for robfig/cron v3.
//
// The jobs are not told that their lock or term was lost. What must not be written late is written behind a fence.
package schedulers

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"lock-election.invalid/lockelection"
)

// Jobs makes lockers and wrappers on one session. If the session is lost, Jobs opens another one in its place.
type Jobs struct {
	mu   sync.Mutex
	s    *lockelection.Session
	lost bool // whether s is a session of its own, in place of the caller's
}

// New returns the maker of lockers and wrappers for this session, which remains the caller's to close.
func New(s *lockelection.Session) *Jobs { return &Jobs{s: s} }

// Close closes the session that was opened in place of the caller's, if there is one.
func (j *Jobs) Close(ctx context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.lost {
		return nil
	}
	return j.s.Close(ctx)
}

func (j *Jobs) session(ctx context.Context) (*lockelection.Session, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if errors.Is(j.s.Err(), lockelection.ErrLost) {
		s, err := j.s.Reopen(ctx)
		if err != nil {
			return nil, err
		}
		j.s, j.lost = s, true
	}
	return j.s, nil
}

// Locker returns a locker for [gocron.WithDistributedLocker] and [gocron.WithDistributedJobLocker]. It locks the name of
// the job, so give each job a name ([gocron.WithName]) that all processes share. The name stays closed until holdFor
// after the start of a run, also if the process dies: make holdFor somewhat less than the period of the job, and more
// than the clocks of the machines differ. A job that another process runs, or has run within holdFor, is skipped; an
// event listener [gocron.AfterLockError] gets [lockelection.ErrHeld].
func (j *Jobs) Locker(holdFor time.Duration) gocron.Locker { return locker{j, holdFor} }

type locker struct {
	jobs    *Jobs
	holdFor time.Duration
}

type lock struct {
	hold    *lockelection.Hold
	holdFor time.Duration
}

func (l locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	s, err := l.jobs.session(ctx)
	if err != nil {
		return nil, err
	}
	h, err := s.TryLock(ctx, key, lockelection.WithTTL(max(l.holdFor, shortestTTL)))
	if err != nil {
		return nil, err
	}
	return lock{h, l.holdFor}, nil
}

// shortestTTL is that of a lock with a shorter holdFor: a broken connection must not lose it at once.
const shortestTTL = 10 * time.Second

// Unlock also waits for the server when the scheduler is being shut down, and its context has ended.
func (l lock) Unlock(ctx context.Context) error {
	return l.hold.Unlock(context.WithoutCancel(ctx), lockelection.HoldFor(l.holdFor))
}

// Once returns a wrapper for one job of a [cron.Cron], in [cron.NewChain] or [cron.WithChain]. name and holdFor are those
// of [lockelection.Session.Once]: a process in which the job is started too late or too often skips it. Errors are given
// to the logger.
func (j *Jobs) Once(name string, holdFor time.Duration, logger cron.Logger) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			ctx := context.Background()
			s, err := j.session(ctx)
			if err == nil {
				_, err = s.Once(ctx, name, holdFor, func(context.Context) error {
					job.Run()
					return nil
				})
			}
			if err != nil {
				logger.Error(err, "lock_election", "job", name)
			}
		})
	}
}
