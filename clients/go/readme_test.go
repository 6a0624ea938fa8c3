package lockelection_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// TestReadme runs each program of the README, and each other example, also of the quick starts, as the body of a function.
func TestReadme(t *testing.T) {
	pool := newPool(t)
	query[string](t, pool, "SELECT current_user")
	if _, err := pool.Exec(t.Context(), "DROP TABLE IF EXISTS account;"+
		" CREATE TABLE account (id int, balance int); INSERT INTO account VALUES (7, 20)"); err != nil {
		t.Fatal(err)
	}
	text := string(must(os.ReadFile("README.md"))) + string(must(os.ReadFile("../../docs/quick-start.md")))
	var body strings.Builder
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text, -1)
	programs := 0
	for i, block := range blocks {
		code := strings.TrimRight(block[1], "\n")
		if strings.Contains(code, "signal.NotifyContext") {
			programs++
			endOfProcess(t, pool, code+"\n")
			code = "return nil"
		}
		if strings.HasPrefix(code, "package main\n") {
			programs++
			out := inModule(t, map[string]string{"main.go": code + "\n"}, nil, "run", ".")
			if out != "held, with a token: true\n" {
				t.Errorf("program %d: %s", i, out)
			}
			code = "return nil"
		}
		if !strings.Contains(code[strings.LastIndexByte(code, '\n')+1:], "return ") {
			code += "\nreturn nil"
		}
		opened := ""
		if !strings.Contains(code, "pgxpool.New") {
			opened = "pool := must(pgxpool.New(ctx, \"\"))\n_ = pool\n"
		}
		if !strings.Contains(code, "NewSession") {
			opened += "s := must(lockelection.NewSession(ctx, pool))\ndefer s.Close(ctx)\n"
		}
		fmt.Fprintf(&body, "func example%d(ctx context.Context) error {\n%s%s\n}\n\n", i, opened, code)
	}
	if programs != 2 {
		t.Errorf("there are %d whole programs", programs)
	}
	main := "package main\n\nimport (\n\"context\"\n\"errors\"\n\"fmt\"\n\"log\"\n\"log/slog\"\n\"time\"\n" +
		"\"github.com/jackc/pgx/v5\"\n\"github.com/jackc/pgx/v5/pgxpool\"\n\"lock-election.invalid/lockelection\"\n)\n" +
		"var _, _ = errors.Join, pgx.BeginFunc\nvar _ = time.Second\nfunc work(context.Context) {}\n" +
		"func must[T any](answer T, err error) T {\nif err != nil {\nlog.Fatal(err)\n}\nreturn answer\n}\n\n" + body.String()
	main += "func main() {\n"
	for i := range blocks {
		main += fmt.Sprintf("if err := example%d(context.Background()); err != nil {\nlog.Fatal(%d, err)\n}\n", i, i)
	}
	out := inModule(t, map[string]string{"main.go": main + "}\n"}, nil, "run", ".")
	for _, line := range []string{"fenced: <nil>", "true true true 2", "leads, valid: true",
		"context canceled", "node-1 <nil>", "observed node-1"} {
		if !strings.Contains(out, line+"\n") {
			t.Errorf("%q is not in\n%s", line, out)
		}
	}
	if got := query[int](t, pool, "SELECT balance FROM account"); got != 10 {
		t.Errorf("the balance is %d", got)
	}
}

// endOfProcess runs the program that holds "importer" until SIGTERM: it stops its work, and only then gives the lock back,
// at once and not after the TTL.
func endOfProcess(t *testing.T, pool *pgxpool.Pool, code string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "program")
	inModule(t, map[string]string{"main.go": code}, nil, "build", "-o", binary, ".")
	program := exec.CommandContext(t.Context(), binary)
	var out bytes.Buffer
	program.Stdout, program.Stderr = &out, &out
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	s := newSession(t, pool)
	until(t, "it holds the lock", func() bool {
		return query[int](t, pool, "SELECT count(*) FROM lock_election.locks WHERE name = 'importer'") == 1
	})
	if err := program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	asked := time.Now()
	h := must(s.Lock(within(t), "importer"))
	if waited := time.Since(asked); waited > 25*time.Second {
		t.Errorf("the lock was free after %v: at the end of its TTL", waited)
	}
	if err := errors.Join(program.Wait(), h.Unlock(t.Context())); err != nil {
		t.Errorf("%v: %s", err, out.String())
	}
	if !strings.HasPrefix(out.String(), "works\n") || !strings.HasSuffix(out.String(), "works\nthe work has stopped\n") {
		t.Errorf("it has written %q", out.String())
	}
}

// inModule runs go in a new module that requires this one by a replace, or, with an environment, by its version alone.
func inModule(t *testing.T, files map[string]string, env []string, args ...string) string {
	t.Helper()
	dir, here := t.TempDir(), must(os.Getwd())
	text := string(must(os.ReadFile("go.mod")))
	text = strings.Replace(text, "module lock-election.invalid/lockelection\n", "module example.invalid/program\n", 1) +
		"\nrequire lock-election.invalid/lockelection v1.0.0\n"
	if env == nil {
		text += "\nreplace lock-election.invalid/lockelection => " + here + "\n"
	}
	files["go.mod"], files["go.sum"] = text, string(must(os.ReadFile("go.sum")))
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Dir, command.Env = dir, append(os.Environ(), env...)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("go %v: %v\n%s\n%s", args, err, out, files["main.go"])
	}
	return string(out)
}

// TestModule uses the module in a clean one, as it comes from what make clients writes.
func TestModule(t *testing.T) {
	newPool(t)
	out := t.TempDir()
	pack := exec.CommandContext(t.Context(), "go", "run", ".", out, "v1.0.0", must(os.Getwd()))
	pack.Dir = "modzip"
	if text, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	settings := strings.Fields(string(must(exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOPROXY").Output())))
	env := []string{"GOMODCACHE=" + t.TempDir(), "GOFLAGS=-mod=mod -modcacherw -trimpath", "GOSUMDB=off",
		"GOPROXY=file://" + out + ",file://" + settings[0] + "/cache/download," + settings[1]}
	got := inModule(t, map[string]string{"main.go": `package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"lock-election.invalid/lockelection"
)

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "")
	if err != nil {
		panic(err)
	}
	s, err := lockelection.NewSession(ctx, pool)
	if err != nil {
		panic(err)
	}
	h, err := s.TryLock(ctx, fmt.Sprint("module ", s.Lease()))
	fmt.Println(h.Valid(), err, s.Close(ctx))
}
`}, env, "run", ".")
	if !strings.HasSuffix(got, "true <nil> <nil>\n") {
		t.Fatal(got)
	}
}
