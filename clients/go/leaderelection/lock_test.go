package leaderelection_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	elector "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"lock-election.invalid/lockelection/leaderelection"
)

func newPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	if os.Getenv("PGHOST") == "" {
		t.Skip("no server: PGHOST is not set")
	}
	pool, err := pgxpool.New(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func lock(pool *pgxpool.Pool, key, identity string) *leaderelection.Lock {
	return leaderelection.New(pool, key, resourcelock.ResourceLockConfig{Identity: identity})
}

func TestNotInstalled(t *testing.T) {
	config := newPool(t).Config().Copy()
	config.ConnConfig.Database = "template1"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	absent := `lock_election is not installed in database "template1" (CREATE EXTENSION lock_election, or lockctl install for the portable edition)`
	if _, _, err := lock(pool, "x", "a").Get(t.Context()); err == nil || err.Error() != absent {
		t.Fatal(err)
	}
}

// Invalid arguments are reported before any query, so this test needs no server.
func TestArguments(t *testing.T) {
	config := must(pgxpool.ParseConfig("host=127.0.0.1 port=1"))
	pool := must(pgxpool.NewWithConfig(t.Context(), config))
	defer pool.Close()
	for says, l := range map[string]*leaderelection.Lock{
		"the key has 0 bytes: it has 1 to 255":   lock(pool, "", "a"),
		"the key has 256 bytes: it has 1 to 255": lock(pool, strings.Repeat("x", 256), "a"),
		`the key "x\xff" is not valid UTF-8`:     lock(pool, "x\xff", "a"),
		`the identity "a\x00" is not valid`:      lock(pool, "x", "a\x00"),
		"the database is nil":                    lock(nil, "x", "a"),
	} {
		_, _, err := l.Get(t.Context())
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("get: %v, expected %q", err, says)
		}
		err = l.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "a"})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("create: %v, expected %q", err, says)
		}
	}
	var none context.Context
	if _, _, err := lock(pool, "x", "a").Get(none); err == nil || !strings.Contains(err.Error(), "context is nil") {
		t.Errorf("no context: %v", err)
	}
	// JSON would contain U+FFFD instead, and two candidates would become one
	record := resourcelock.LeaderElectionRecord{HolderIdentity: "a\xff"}
	if err := lock(pool, "x", "a").Create(t.Context(), record); err == nil || !strings.Contains(err.Error(), `"a\xff"`) {
		t.Errorf("an identity: %v", err)
	}
}

func must[T any](answer T, err error) T {
	if err != nil {
		panic(err)
	}
	return answer
}

// The extension's schema is renamed between two calls, in a separate database, because other tests use this one.
func TestSchema(t *testing.T) {
	pool, ctx := newPool(t), t.Context()
	database := fmt.Sprintf("renamed_%d", time.Now().UnixNano())
	exec := func(pool *pgxpool.Pool, sql string) {
		t.Helper()
		if _, err := pool.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec(pool, "CREATE DATABASE "+database)
	config := pool.Config().Copy()
	config.ConnConfig.Database = database
	other := must(pgxpool.NewWithConfig(ctx, config))
	exec(other, "CREATE SCHEMA one; CREATE EXTENSION lock_election SCHEMA one")
	l := lock(other, "x", "a")
	record := resourcelock.LeaderElectionRecord{HolderIdentity: "a"}
	if err := l.Create(ctx, record); err != nil {
		t.Fatal(err)
	}
	exec(other, "ALTER SCHEMA one RENAME TO two")
	if err := l.Update(ctx, record); err != nil {
		t.Fatal(err)
	}
	exec(other, "ALTER SCHEMA two RENAME TO three")
	if _, _, err := l.Get(ctx); err != nil {
		t.Fatal(err)
	}
	exec(other, "DROP EXTENSION lock_election")
	if _, _, err := l.Get(ctx); err == nil || !strings.Contains(err.Error(), "CREATE EXTENSION") {
		t.Fatal(err)
	}
	other.Close()
	exec(pool, "DROP DATABASE "+database+" WITH (FORCE)")
}

func TestLock(t *testing.T) {
	pool, ctx := newPool(t), t.Context()
	key := fmt.Sprint(t.Name(), " ", time.Now().UnixNano())
	a, b := lock(pool, key, "a"), lock(pool, key, "b")
	record := resourcelock.LeaderElectionRecord{HolderIdentity: "a", LeaseDurationSeconds: 15}
	for _, l := range []*leaderelection.Lock{a, b} {
		if _, _, err := l.Get(ctx); !apierrors.IsNotFound(err) {
			t.Fatalf("get: %v", err)
		}
		if err := l.Update(ctx, record); err == nil {
			t.Fatal("an update of nothing")
		}
	}
	if err := a.Create(ctx, record); err != nil {
		t.Fatal(err)
	}
	if err := b.Create(ctx, record); !apierrors.IsAlreadyExists(err) {
		t.Fatalf("create: %v", err)
	}
	got, raw, err := b.Get(ctx)
	if err != nil || *got != record {
		t.Fatalf("%v, %v", got, err)
	}
	if err := a.Update(ctx, record); err != nil { // a renewal within the same second is seen
		t.Fatal(err)
	}
	if err := b.Update(ctx, record); !apierrors.IsConflict(err) {
		t.Fatalf("update: %v", err)
	}
	if _, again, err := b.Get(ctx); err != nil || bytes.Equal(raw, again) {
		t.Fatalf("%s, as before: %v", again, err)
	}
	if a.Identity() != "a" || a.Describe() != key {
		t.Fatal(a.Identity(), a.Describe())
	}
}

// TestElectors runs three of client-go's electors. The leader resigns; a leader that dies is replaced after its lease.
func TestElectors(t *testing.T) {
	pool := newPool(t)
	key := fmt.Sprint(t.Name(), " ", time.Now().UnixNano())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var leads, terms atomic.Int32
	var group sync.WaitGroup
	for i := range 3 {
		own, leave := context.WithCancel(ctx)
		defer leave()
		group.Go(func() {
			elector.RunOrDie(own, elector.LeaderElectionConfig{
				Lock: lock(pool, key, fmt.Sprint(i)), ReleaseOnCancel: i != 1,
				LeaseDuration: 1500 * time.Millisecond, RenewDeadline: time.Second, RetryPeriod: 200 * time.Millisecond,
				Callbacks: elector.LeaderCallbacks{
					OnStartedLeading: func(context.Context) {
						if leads.Add(1) != 1 {
							t.Error("two lead")
						}
						terms.Add(1)
						leads.Add(-1)
						leave()
					},
					OnStoppedLeading: func() {},
				},
			})
		})
	}
	group.Wait()
	if terms.Load() != 3 {
		t.Fatalf("%d terms", terms.Load())
	}
}

// TestClientGo runs client-go's own tests, as they are in the module cache, with our lock in place of theirs.
func TestClientGo(t *testing.T) {
	newPool(t)
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}",
		"k8s.io/client-go/tools/leaderelection").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	theirs, temp := strings.TrimSpace(string(out)), t.TempDir()
	files, err := filepath.Glob(filepath.Join(theirs, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s: %v", theirs, err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	// A package of this module that exists only in the overlay.
	const overlaid = "clientgo"
	replaced, count := map[string]string{}, 0
	replaced[filepath.Join(here, overlaid, "mirror_test.go")] = filepath.Join(here, "testdata", "mirror_test.go")
	for _, file := range files {
		from := file
		if strings.HasSuffix(file, "_test.go") {
			from = filepath.Join(temp, filepath.Base(file))
			count += patch(t, file, from)
		}
		replaced[filepath.Join(here, overlaid, filepath.Base(file))] = from
	}
	if count < 5 {
		t.Fatalf("only %d locks were replaced", count)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	overlayFile := filepath.Join(temp, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", overlayFile,
		"-o", filepath.Join(temp, "test"))
	command.Args = append(command.Args, "./"+overlaid)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	report, err := exec.CommandContext(t.Context(), filepath.Join(temp, "test"), "-test.v").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, report)
	}
	passed := strings.Count(string(report), "--- PASS")
	t.Logf("%d of client-go's tests, with %d locks on PostgreSQL", passed, count)
	if passed < 20 {
		t.Fatalf("only %d tests\n%s", passed, report)
	}
}

// patch wraps every lock that is made: lock = &rl.LeaseLock{...} and lock, err := rl.New(...).
func patch(t *testing.T, from, to string) (count int) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, from, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		assign, ok := n.(*ast.AssignStmt)
		if !ok || len(assign.Rhs) != 1 {
			return true
		}
		if name, ok := assign.Lhs[0].(*ast.Ident); !ok || name.Name != "lock" {
			return true
		}
		test := ast.NewIdent("t")
		switch made := assign.Rhs[0].(type) {
		case *ast.UnaryExpr:
			if fields := made.X.(*ast.CompositeLit).Elts; len(fields) < 3 {
				return true // has no client, so it is not used
			}
			assign.Rhs[0] = &ast.CallExpr{Fun: ast.NewIdent("mirrored"), Args: []ast.Expr{test, made}}
			count++
		case *ast.CallExpr:
			wrapper := &ast.CallExpr{Fun: ast.NewIdent("mirroredNew"), Args: []ast.Expr{test}}
			assign.Rhs[0] = &ast.CallExpr{Fun: wrapper, Args: []ast.Expr{made}}
			count++
		}
		return true
	})
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := printer.Fprint(out, set, file); err != nil {
		t.Fatal(err)
	}
	return count
}
