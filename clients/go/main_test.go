package lockelection_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"lock-election.invalid/lockelection"
)

const patience = 20 * time.Second

// The tests with a server have one in PGHOST, PGPORT, PGUSER and PGDATABASE.
func newPool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	if os.Getenv("PGHOST") == "" {
		t.Skip("no server: PGHOST is not set")
	}
	pool, err := pgxpool.New(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func newSession(t testing.TB, pool *pgxpool.Pool, opts ...lockelection.SessionOption) *lockelection.Session {
	t.Helper()
	s, err := lockelection.NewSession(t.Context(), pool, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// name makes one that no other test uses, nor this one the next time.
func name(t testing.TB, what string) string {
	return fmt.Sprintf("%s %s %d", t.Name(), what, time.Now().UnixNano())
}

// within is a context with the tests' patience.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func query[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (answer T) {
	t.Helper()
	if err := pool.QueryRow(within(t), sql, args...).Scan(&answer); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

func wants(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, expected %v", err, want)
	}
}

func must[T any](answer T, err error) T {
	if err != nil {
		panic(err)
	}
	return answer
}

// ours are the stacks of the library's goroutines, and of pgconn's.
func ours() (stacks []string) {
	all := make([]byte, 1<<22)
	for _, stack := range strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n") {
		if strings.Contains(stack, "created by lock-election.invalid/lockelection.") ||
			strings.Contains(stack, "created by github.com/jackc/pgx/v5/pgconn") {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

func TestMain(m *testing.M) {
	code := m.Run()
	for end := time.Now().Add(patience); len(ours()) > 0 && code == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			fmt.Println("left behind:\n" + strings.Join(ours(), "\n\n"))
			code = 1
		}
	}
	os.Exit(code)
}
