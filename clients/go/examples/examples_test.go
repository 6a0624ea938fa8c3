//go:build unix

// Package examples runs the five programs, kills some with SIGKILL, and stops others for longer than their TTL.
package examples

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const patience = 90 * time.Second

type program struct {
	*exec.Cmd
	in  io.Closer
	out bytes.Buffer
}

func setUp(t *testing.T, name, sql string) (pool *pgxpool.Pool, start func(args ...string) *program) {
	t.Helper()
	if os.Getenv("PGHOST") == "" {
		t.Skip("no server: PGHOST is not set")
	}
	pool, err := pgxpool.New(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), name)
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./"+name).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return pool, func(args ...string) *program {
		p := &program{Cmd: exec.CommandContext(t.Context(), binary, args...)}
		p.Stdout, p.Stderr = &p.out, &p.out
		in, err := p.StdinPipe()
		if err := errors.Join(err, p.Start()); err != nil {
			t.Fatal(err)
		}
		p.in = in
		t.Cleanup(func() {
			p.Process.Kill()
			p.Wait()
		})
		return p
	}
}

func count(t *testing.T, pool *pgxpool.Pool, sql string) (n int) {
	t.Helper()
	if err := pool.QueryRow(context.Background(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// grows waits until a number has grown.
func grows(t *testing.T, pool *pgxpool.Pool, sql string, by int) {
	t.Helper()
	first := count(t, pool, sql)
	for end := time.Now().Add(patience); count(t, pool, sql) < first+by; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %q", sql)
		}
	}
}

// trouble kills the one that holds a name, then stops the next holder until somebody else holds it.
func trouble(t *testing.T, pool *pgxpool.Pool, sql string, programs []*program) {
	t.Helper()
	holder := func() (token int64, p *program) {
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			var application string
			err := pool.QueryRow(context.Background(), sql).Scan(&token, &application)
			for _, p := range programs {
				if err == nil && application == fmt.Sprint("example ", p.Args[len(p.Args)-1]) {
					return token, p
				}
			}
		}
		t.Fatal("nobody holds it")
		return 0, nil
	}
	_, first := holder()
	first.Process.Kill()
	token, second := holder()
	for second == first {
		token, second = holder()
	}
	second.Process.Signal(syscall.SIGSTOP)
	for next := token; next == token; next, _ = holder() {
	}
	second.Process.Signal(syscall.SIGCONT)
	if _, err := pool.Exec(context.Background(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"+
		" WHERE backend_type = 'client backend' AND application_name LIKE 'example %'"); err != nil {
		t.Fatal(err)
	}
}

// several starts programs whose connections have names.
func several(t *testing.T, n int, start func(args ...string) *program, args ...string) (programs []*program) {
	for i := range n {
		t.Setenv("PGAPPNAME", fmt.Sprint("example ", i))
		programs = append(programs, start(append(args, fmt.Sprint(i))...))
	}
	os.Unsetenv("PGAPPNAME")
	return programs
}

func TestMinutely(t *testing.T) {
	pool, start := setUp(t, "minutely", "DROP TABLE IF EXISTS minutely; CREATE TABLE minutely (at timestamptz)")
	programs := several(t, 4, start, "1500ms")
	rows := "SELECT count(*) FROM minutely"
	grows(t, pool, rows, 3)
	trouble(t, pool, "SELECT token, application_name FROM lock_election.locks WHERE name = 'minutely'", programs)
	grows(t, pool, rows, 3)
	// The name is closed from the grant on; a busy machine may do the job later.
	if early := count(t, pool, `SELECT count(*) FROM (SELECT at - lag(at) OVER (ORDER BY at) AS pause FROM minutely) AS p
		WHERE pause < '300 ms'`); early != 0 {
		t.Fatalf("%d times too early", early)
	}
}

func TestLeader(t *testing.T) {
	pool, start := setUp(t, "leader",
		"DROP TABLE IF EXISTS steps; CREATE TABLE steps (term bigint, step serial)")
	programs := several(t, 3, start)
	grows(t, pool, "SELECT count(*) FROM steps", 3)
	trouble(t, pool, "SELECT term, application_name FROM lock_election.elections WHERE election = 'scheduler'", programs)
	grows(t, pool, "SELECT count(*) FROM steps", 10)
	if late := count(t, pool, `SELECT count(*) FROM (SELECT term - lag(term) OVER (ORDER BY step) AS more FROM steps) AS s
		WHERE more < 0`); late != 0 {
		t.Fatalf("%d steps of a past leader", late)
	}
	if terms := count(t, pool, "SELECT count(DISTINCT term) FROM steps"); terms < 2 {
		t.Fatalf("%d terms", terms)
	}
	for _, p := range programs {
		p.Process.Signal(syscall.SIGTERM)
		p.Process.Signal(syscall.SIGCONT)
		p.Wait()
	}
	// A busy server may have confirmed no goodbye within a quarter of the TTL; then the TTL counts.
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		n := count(t, pool, "SELECT count(*) FROM lock_election.elections WHERE election = 'scheduler' AND connected")
		if n == 0 {
			break
		} else if time.Now().After(end) {
			t.Fatal("one that has left is still there")
		}
	}
}

func TestFenced(t *testing.T) {
	pool, start := setUp(t, "fenced",
		"DROP TABLE IF EXISTS wallet; CREATE TABLE wallet (id int, balance int); INSERT INTO wallet VALUES (7, 0)")
	var programs []*program
	for i := range 12 {
		p := start()
		programs = append(programs, p)
		switch i % 4 {
		case 1:
			time.AfterFunc(100*time.Millisecond, func() { p.Process.Kill() })
		case 2:
			time.AfterFunc(120*time.Millisecond, func() { p.Process.Signal(syscall.SIGSTOP) })
			time.AfterFunc(3*time.Second, func() { p.Process.Signal(syscall.SIGCONT) })
		}
	}
	added := 0
	for _, p := range programs {
		p.Wait()
		added += strings.Count(p.out.String(), "added")
	}
	// One that was killed may have added, and not told.
	if balance := count(t, pool, "SELECT balance FROM wallet"); balance < added || balance > added+3 || added == 0 {
		t.Fatalf("the balance is %d after %d additions", balance, added)
	}
}

func TestWorker(t *testing.T) {
	pool, start := setUp(t, "worker", `DROP TABLE IF EXISTS job; CREATE TABLE job (id int, done int DEFAULT 0, at timestamptz);
		INSERT INTO job SELECT i FROM generate_series(1, 150) i`)
	var group sync.WaitGroup
	for i := range 4 {
		p := start()
		group.Go(func() {
			p.Wait()
			if text := p.out.String(); strings.Contains(text, "lost") { // it was stopped past its TTL: started again
				p = start()
				p.Wait()
			}
		})
		switch i {
		case 1:
			time.AfterFunc(200*time.Millisecond, func() { p.Process.Kill() })
		case 2:
			time.AfterFunc(200*time.Millisecond, func() { p.Process.Signal(syscall.SIGSTOP) })
			time.AfterFunc(4*time.Second, func() { p.Process.Signal(syscall.SIGCONT) })
		}
	}
	group.Wait()
	if n := count(t, pool, "SELECT count(*) FROM job WHERE done <> 1"); n != 0 {
		t.Fatalf("%d jobs were lost or done twice", n)
	}
}

func TestBarrier(t *testing.T) {
	pool, start := setUp(t, "barrier", "")
	run := fmt.Sprint("build ", time.Now().UnixNano())
	until := func(expected string) {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			var now string
			if err := pool.QueryRow(t.Context(), `SELECT concat_ws(' ', (SELECT count(slot) FROM lock_election.locks WHERE name = $1),
				(SELECT count(*) FROM lock_election.waiters WHERE name = $1), (SELECT version FROM read_versioned($1)))`,
				run).Scan(&now); err != nil {
				t.Fatal(err)
			} else if now == expected {
				return
			} else if time.Now().After(end) {
				t.Fatalf("%s members, waiters and versions instead of %s", now, expected)
			}
		}
	}
	programs := several(t, 3, start, run, "4")
	until("3 0 0")
	if _, err := pool.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"+
		" WHERE backend_type = 'client backend' AND application_name LIKE 'example %'"); err != nil {
		t.Fatal(err)
	}
	programs = append(programs, start(run, "4", "3"))
	until("4 0 1")
	programs[1].Process.Kill()
	programs[2].Process.Signal(syscall.SIGSTOP)
	programs[0].in.Close()
	until("1 1 1") // the first one waits for the last one alone
	programs[3].in.Close()
	for _, p := range []*program{programs[0], programs[3]} {
		if err := p.Wait(); err != nil || !strings.HasSuffix(p.out.String(), "begins\nleft\n") {
			t.Fatalf("%v: %s", err, &p.out)
		}
	}
	programs[2].Process.Signal(syscall.SIGCONT)
	programs[2].in.Close()
	if err := programs[2].Wait(); err == nil || !strings.Contains(programs[2].out.String(), "lost") {
		t.Fatalf("%v: %s", err, &programs[2].out)
	}
}
