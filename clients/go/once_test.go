package lockelection_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"lock-election.invalid/lockelection"
)

func TestOnce(t *testing.T) {
	pool, ctx := newPool(t), within(t)
	a, b, n := newSession(t, pool), newSession(t, pool), name(t, "job")
	failure := errors.New("the job has failed")

	ran, err := a.Once(ctx, n, time.Minute, func(job context.Context) error {
		left := query[bool](t, pool, "SELECT lease_time_to_live(lease) > '31 s' FROM lock_election.locks WHERE name = $1", n)
		if !left || job.Err() != nil {
			t.Errorf("more than the session's TTL: %v; the job's context: %v", left, job.Err())
		}
		return failure
	})
	if !ran || !errors.Is(err, failure) {
		t.Errorf("the first: %v, %v", ran, err)
	}
	for _, s := range []*lockelection.Session{a, b} {
		if ran, err := s.Once(ctx, n, 0, func(context.Context) error { return failure }); ran || err != nil {
			t.Errorf("within a minute: %v, %v", ran, err)
		}
	}

	work, cancel := context.WithCancel(ctx)
	ran, err = a.Once(work, n+" canceled", 0, func(job context.Context) error {
		cancel()
		<-job.Done()
		return context.Cause(job)
	})
	if !ran || !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v, %v", ran, err)
	}

	short := newSession(t, pool, lockelection.WithTTL(2*time.Second)) // notices within a third of that
	ran, err = short.Once(ctx, n+" lost", 0, func(job context.Context) error {
		query[int](t, pool, "SELECT force_release_lock($1)::int", n+" lost")
		<-job.Done()
		return nil
	})
	if wants(t, err, lockelection.ErrLost); !ran {
		t.Error("lost, and did not run")
	}

	never := func(context.Context) error { t.Error("it ran"); return nil }
	for _, c := range []struct {
		ctx     context.Context
		name    string
		holdFor time.Duration
		job     func(context.Context) error
		want    error
	}{
		{nil, n, 0, never, lockelection.ErrInvalid},
		{ctx, "", 0, never, lockelection.ErrInvalid},
		{ctx, n, -1, never, lockelection.ErrInvalid},
		{ctx, n, 0, nil, lockelection.ErrInvalid},
		{ctx, n + " long", 48 * time.Hour, never, lockelection.ErrLimit},
	} {
		ran, err := a.Once(c.ctx, c.name, c.holdFor, c.job)
		if wants(t, err, c.want); ran {
			t.Errorf("%q for %v ran", c.name, c.holdFor)
		}
	}
	func() {
		defer func() { recover() }()
		a.Once(ctx, n+" panics", time.Minute, func(context.Context) error { panic("the job") })
	}()
	if ran, err := b.Once(ctx, n+" panics", 0, never); ran || err != nil {
		t.Errorf("after a panic: %v, %v", ran, err)
	}
	query[int](t, pool, "SELECT force_release_lock($1)::int", n)
	query[int](t, pool, "SELECT force_release_lock($1)::int", n+" panics")
}
