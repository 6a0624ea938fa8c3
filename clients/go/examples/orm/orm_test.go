//go:build unix

// Package orm runs the programs: what they write in time is written, what they write late is refused.
package orm

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

func setUp(t *testing.T, name, lock string) *pgxpool.Pool {
	t.Helper()
	if os.Getenv("PGHOST") == "" {
		t.Skip("no server: PGHOST is not set")
	}
	pool, err := pgxpool.New(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	// The trigger refuses an update whose transaction has no fence, such as one on another connection than the fence.
	for _, sql := range []string{
		"DROP TABLE IF EXISTS balance",
		"CREATE TABLE balance (id int PRIMARY KEY, amount int)",
		"INSERT INTO balance VALUES (1, 0)",
		"CREATE TRIGGER guard BEFORE UPDATE ON balance" +
			" EXECUTE FUNCTION fence_guard('" + strings.ReplaceAll(lock, "'", "''") + "')",
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return pool
}

// start runs a program, and returns functions that write a line to it, and wait for a line of it.
func start(t *testing.T, binary, lock string) (say func(line string), hear func(part string)) {
	t.Helper()
	p := exec.Command(binary, lock) // t.Context() ends before the cleanup
	in, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stderr = p.Stdout
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(90*time.Second, func() { p.Process.Kill() })
	t.Cleanup(func() {
		in.Close()
		io.Copy(io.Discard, out)
		if timer.Stop(); p.Wait() != nil {
			t.Errorf("%s has failed", binary)
		}
	})
	lines := bufio.NewScanner(out)
	say = func(line string) { io.WriteString(in, line+"\n") }
	hear = func(part string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), part) {
				return
			} else if text := lines.Text(); strings.HasPrefix(text, "added") {
				t.Fatalf("%q, expected %q", text, part)
			}
		}
		t.Fatalf("the program has ended without %q", part)
	}
	return say, hear
}

func TestLateWrites(t *testing.T) {
	for _, name := range []string{"gorm", "sqlx", "ent"} {
		t.Run(name, func(t *testing.T) {
			// All that an ORM could take for a parameter.
			lock := fmt.Sprintf(`it's :late? $1 @p %%s \ é %d`, time.Now().UnixNano())
			pool, binary := setUp(t, name, lock), filepath.Join(t.TempDir(), name)
			command(t, "go", "generate", "-tags", "generated", "./"+name)
			command(t, "go", "build", "-tags", "generated", "-o", binary, "./"+name)
			say, hear := start(t, binary, lock)
			amount := func(want int) {
				t.Helper()
				var got int
				if err := pool.QueryRow(t.Context(), "SELECT amount FROM balance").Scan(&got); err != nil || got != want {
					t.Errorf("the balance is %d, expected %d: %v", got, want, err)
				}
			}
			hear("ready")
			say("5")
			hear("added: <nil>")
			amount(5)
			if _, err := pool.Exec(t.Context(), "SELECT force_release_lock($1)", lock); err != nil {
				t.Fatal(err)
			}
			say("7")
			hear("is not held by token") // the server's message
			say("9")
			hear("lost")
			amount(5)
		})
	}
}
