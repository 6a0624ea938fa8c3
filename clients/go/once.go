package lockelection

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// Once runs a job that all replicas call and only one should run, and reports whether this call has run it. Once does
// not wait: it does not run the job if another replica is running it, or started it less than holdFor ago. The name
// stays closed until holdFor after the start of the job, even if the job fails or its process dies, because the TTL of
// the lock is at least holdFor.
//
// The job's context ends with ctx, and when the lock is lost. Once returns the error of the job, and ErrLost if the
// lock was lost before the job ended, so that another replica may have run the job, too. If the job was not run, the
// error is nil or an error of [Session.TryLock]; it is ErrLimit if holdFor exceeds the server's setting
// lock_election.max_hold_for or lock_election.max_ttl.
func (s *Session) Once(ctx context.Context, name string, holdFor time.Duration, job func(context.Context) error) (
	ran bool, err error) {
	err = cmp.Or(checkContext(ctx), checkName(name), checkHoldFor(holdFor))
	if err == nil && job == nil {
		err = invalid("the job is nil")
	}
	if err != nil {
		return false, err
	}
	// Let the server check holdFor before the job runs. A release without a token releases nothing.
	if _, err = s.ask(ctx, "SELECT %s.release_lock($1, NULL, $2)", name, milliseconds(holdFor)); err != nil {
		return false, err
	}
	h, err := s.TryLock(ctx, name, WithTTL(max(s.set.ttl, holdFor)))
	if errors.Is(err, ErrHeld) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	work, cancel := context.WithCancelCause(h.Context())
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer func() { // also after a panic
		stop()
		cancel(nil)
		err = errors.Join(err, h.Unlock(ctx, HoldFor(holdFor)))
	}()
	return true, job(work)
}
