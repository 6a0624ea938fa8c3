//go:build unix

package schedulers_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/robfig/cron/v3"

	"lock-election.invalid/lockelection"
	"lock-election.invalid/lockelection/schedulers"
)

const patience = 90 * time.Second

func newSession(t *testing.T, opts ...lockelection.SessionOption) *lockelection.Session {
	t.Helper()
	if os.Getenv("PGHOST") == "" {
		t.Skip("no server: PGHOST is not set")
	}
	s, err := lockelection.Connect(t.Context(), "", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// start starts a scheduler with one job, which is run at once and then every minute.
func start(t *testing.T, job func(), options []gocron.SchedulerOption, more ...gocron.JobOption) {
	t.Helper()
	scheduler, err := gocron.NewScheduler(options...)
	if err != nil {
		t.Fatal(err)
	}
	more = append(more, gocron.WithName(t.Name()), gocron.WithStartAt(gocron.WithStartImmediately()))
	if _, err = scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(job), more...); err != nil {
		t.Fatal(err)
	}
	scheduler.Start()
	t.Cleanup(func() {
		if err := scheduler.Shutdown(); err != nil {
			t.Error(err)
		}
	})
}

// TestGocron: what gocron promises of three schedulers with a locker, of the scheduler or of the job, and with one that a
// job has disabled.
func TestGocron(t *testing.T) {
	for _, c := range []struct {
		name               string
		ofScheduler, ofJob bool
		disabled           bool
		runs               int32
	}{
		{"locker", true, false, false, 1},
		{"locker of the job", false, true, false, 1},
		{"disabled locker", true, false, true, 3},
		{"no locker", false, false, false, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			var runs, skips atomic.Int32
			// The job ends at once: a scheduler that comes later finds the name closed.
			for range 3 {
				jobs := schedulers.New(newSession(t))
				var options []gocron.SchedulerOption
				more := []gocron.JobOption{gocron.WithDisabledDistributedJobLocker(c.disabled),
					gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
						if !errors.Is(err, lockelection.ErrHeld) {
							t.Errorf("the listener gets %v", err)
						}
						skips.Add(1)
					}))}
				if c.ofScheduler {
					options = append(options, gocron.WithDistributedLocker(jobs.Locker(50*time.Second)))
				}
				if c.ofJob {
					more = append(more, gocron.WithDistributedJobLocker(jobs.Locker(50*time.Second)))
				}
				start(t, func() { runs.Add(1) }, options, more...)
			}
			until(t, "three have tried", func() bool { return runs.Load()+skips.Load() == 3 })
			if runs.Load() != c.runs {
				t.Errorf("%d runs, and not %d", runs.Load(), c.runs)
			}
		})
	}
}

// TestGocronElector: three schedulers, of which the leader's runs the job.
func TestGocronElector(t *testing.T) {
	var runs [3]atomic.Int32
	var electors [3]*schedulers.Elector
	var leave [3]context.CancelFunc
	for i := range electors {
		var ctx context.Context
		ctx, leave[i] = context.WithCancel(context.Background())
		electors[i] = schedulers.NewElector(ctx, newSession(t), t.Name(), fmt.Sprint(i))
		t.Cleanup(func() {
			leave[i]()
			<-electors[i].Done()
		})
	}
	leaders := func() (leading []int) {
		for i, e := range electors {
			err := e.IsLeader(t.Context())
			if err == nil && e.Term().Token() > 0 {
				leading = append(leading, i)
			} else if !errors.Is(err, schedulers.ErrNotLeader) && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		return leading
	}
	until(t, "one leads", func() bool { return len(leaders()) == 1 })
	first := leaders()[0]
	for i, e := range electors {
		start(t, func() { runs[i].Add(1) }, []gocron.SchedulerOption{gocron.WithDistributedElector(e)})
	}
	until(t, "the leader runs the job", func() bool { return runs[first].Load() == 1 })
	leave[first]()
	until(t, "the next one leads", func() bool { return len(leaders()) == 1 && leaders()[0] != first })
	second := leaders()[0]
	start(t, func() { runs[second].Add(1) }, []gocron.SchedulerOption{gocron.WithDistributedElector(electors[second])})
	until(t, "it runs the job", func() bool { return runs[second].Load() == 1 })
	for i := range runs {
		if want := int32(1); i != first && i != second && runs[i].Load() != 0 || runs[i].Load() > want {
			t.Errorf("scheduler %d has run the job %d times", i, runs[i].Load())
		}
	}
	// The candidate is not valid: the answer is the server's or the library's error, not that another process leads.
	wrong := schedulers.NewElector(t.Context(), newSession(t), t.Name(), "")
	<-wrong.Done()
	if err := wrong.IsLeader(t.Context()); !errors.Is(err, lockelection.ErrInvalid) {
		t.Error(err)
	}
}

// recorder is the logger of a cron.
type recorder struct {
	mu   sync.Mutex
	errs []error
}

func (*recorder) Info(string, ...any) {}

func (r *recorder) Error(err error, _ string, _ ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

func TestOnce(t *testing.T) {
	s, log := newSession(t), &recorder{}
	jobs := schedulers.New(s)
	runs := 0
	count := cron.FuncJob(func() { runs++ })
	name := fmt.Sprint(t.Name(), time.Now().UnixNano())
	for range 2 {
		cron.NewChain(jobs.Once(name, time.Minute, log)).Then(count).Run()
	}
	if runs != 1 || len(log.errs) != 0 {
		t.Fatalf("%d runs, errors %v", runs, log.errs)
	}
	cron.NewChain(jobs.Once("", time.Minute, log)).Then(count).Run()
	if runs != 1 || len(log.errs) != 1 || !errors.Is(log.errs[0], lockelection.ErrInvalid) {
		t.Fatalf("%d runs, errors %v", runs, log.errs)
	}
}

// TestLostSession: a session whose lease was revoked is followed by another one, which Close closes.
func TestLostSession(t *testing.T) {
	s, other := newSession(t), newSession(t)
	jobs := schedulers.New(s)
	locker := jobs.Locker(0)
	name := fmt.Sprint(t.Name(), time.Now().UnixNano())
	psql(t, fmt.Sprintf("SELECT revoke_lease(%d)", s.Lease()))
	until(t, "the session is lost", func() bool {
		_, err := s.TryLock(t.Context(), name+" probe")
		return errors.Is(err, lockelection.ErrLost)
	})
	first, err := locker.Lock(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.TryLock(t.Context(), name); !errors.Is(err, lockelection.ErrHeld) {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel() // as after the scheduler's shutdown
	if err := first.Unlock(ended); err != nil {
		t.Fatal(err)
	}
	if _, err = locker.Lock(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if err := jobs.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := other.TryLock(t.Context(), name); err != nil {
		t.Fatalf("Close has not released it: %v", err)
	}
}

func psql(t *testing.T, sql string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "psql", "-Xqc", sql).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// --- processes ---

type process struct {
	*exec.Cmd
	mu   sync.Mutex
	runs []float64 // the times of its runs
	ran  []string  // other lines
}

func launch(t *testing.T, binary string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.CommandContext(t.Context(), binary, args...)}
	p.Stderr = os.Stderr
	out, err := p.StdoutPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.read(out)
	}()
	t.Cleanup(func() {
		p.Process.Kill()
		<-read
		p.Wait()
	})
	return p
}

func (p *process) read(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		at, err := strconv.ParseFloat(strings.TrimPrefix(lines.Text(), "run "), 64)
		p.mu.Lock()
		if err == nil {
			p.runs = append(p.runs, at)
		} else {
			p.ran = append(p.ran, lines.Text())
		}
		p.mu.Unlock()
	}
}

func (p *process) times() []float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.runs)
}

func all(processes ...*process) (times []float64) {
	for _, p := range processes {
		times = append(times, p.times()...)
	}
	slices.Sort(times)
	return times
}

// last returns the process that has run last.
func last(processes []*process) *process {
	return slices.MaxFunc(processes, func(a, b *process) int {
		return slices.Compare(a.times()[max(0, len(a.times())-1):], b.times()[max(0, len(b.times())-1):])
	})
}

// TestProcesses: three processes of the example. The one that has run last is killed, the next one is stopped for longer
// than its TTL. With the locker and the wrapper no two runs are closer than the time for which the name is closed; with
// the elector one process runs all until it dies.
func TestProcesses(t *testing.T) {
	newSession(t)
	binary := filepath.Join(t.TempDir(), "example")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./example").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, how := range []string{"locker", "elector", "cron"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			var processes []*process
			for range 3 {
				processes = append(processes, launch(t, binary, how, "1s"))
			}
			more := func(by int, of ...*process) {
				t.Helper()
				before := len(all(of...))
				until(t, "runs", func() bool { return len(all(of...)) >= before+by })
			}
			more(3, processes...)
			first := last(processes)
			first.Process.Kill()
			rest := slices.DeleteFunc(slices.Clone(processes), func(p *process) bool { return p == first })
			more(3, rest...)
			second := last(rest)
			second.Process.Signal(syscall.SIGSTOP)
			third := rest[0]
			if third == second {
				third = rest[1]
			}
			more(3, third)
			before := len(second.times())
			second.Process.Signal(syscall.SIGCONT)
			more(3, rest...)
			if how != "elector" {
				times := all(processes...)
				for i := 1; i < len(times); i++ {
					if times[i]-times[i-1] < 0.4 {
						t.Errorf("two runs within %.3f s", times[i]-times[i-1])
					}
				}
			} else if len(second.times()) > before+1 { // it may have been stopped in the middle of a run
				t.Errorf("it has run %d times after it had lost its term", len(second.times())-before)
			}
			for _, p := range rest {
				p.Process.Signal(syscall.SIGTERM)
			}
			for _, p := range rest {
				if state, err := p.Process.Wait(); err != nil || !state.Success() {
					t.Errorf("%v, %v", state, err)
				}
			}
			for _, p := range processes {
				if len(p.ran) != 0 {
					t.Errorf("it says %q", p.ran)
				}
			}
		})
	}
}
