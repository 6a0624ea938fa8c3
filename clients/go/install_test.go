package lockelection_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"lock-election.invalid/lockelection"
)

// emptyDatabase makes a database without the extension, and a role that may create in it.
func emptyDatabase(t *testing.T) (name, role string) {
	pool := newPool(t)
	name, role = fmt.Sprintf("portable_go_%d", time.Now().UnixNano()), fmt.Sprintf("installer_%d", time.Now().UnixNano())
	for _, sql := range []string{"CREATE DATABASE %[1]s", "CREATE ROLE %[2]s LOGIN", "GRANT CREATE ON DATABASE %[1]s TO %[2]s"} {
		if _, err := pool.Exec(within(t), fmt.Sprintf(sql, name, role)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, sql := range []string{"DROP DATABASE %[1]s WITH (FORCE)", "DROP ROLE %[2]s"} {
			if _, err := pool.Exec(context.Background(), fmt.Sprintf(sql, name, role)); err != nil {
				t.Error(err)
			}
		}
	})
	return name, role
}

func connected(t *testing.T, name, role string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(within(t), fmt.Sprintf("dbname=%s user=%s", name, role))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func TestInstall(t *testing.T) {
	name, role := emptyDatabase(t)
	var both sync.WaitGroup
	for range 2 {
		conn := connected(t, name, role)
		both.Go(func() {
			if err := lockelection.Install(within(t), conn, lockelection.InstallOptions{Schema: `My "locks"`}); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	pool, err := pgxpool.New(within(t), fmt.Sprintf("dbname=%s user=%s", name, os.Getenv("PGUSER")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	h, err := newSession(t, pool).Lock(within(t), "x")
	if err != nil || !h.Valid() {
		t.Fatal(err)
	}
	// a program may call it whenever it starts
	if err := pool.AcquireFunc(within(t), func(c *pgxpool.Conn) error {
		return lockelection.Install(within(t), c.Conn(), lockelection.InstallOptions{})
	}); err != nil || !h.Valid() {
		t.Fatal(err)
	}
	if err := h.Unlock(within(t)); err != nil {
		t.Error(err)
	}
}

func TestInstallForOneRole(t *testing.T) {
	name, role := emptyDatabase(t)
	conn := connected(t, name, role)
	if err := lockelection.Install(within(t), conn, lockelection.InstallOptions{Schema: "locks", Grant: role}); err != nil {
		t.Fatal(err)
	}
	var open bool
	if err := conn.QueryRow(within(t), "SELECT has_schema_privilege('public', 'locks', 'USAGE')").Scan(&open); err != nil || open {
		t.Error(open, err)
	}
}

func TestInstallIsRefused(t *testing.T) {
	name, role := emptyDatabase(t)
	conn := connected(t, name, role)
	refused := func(want error, text string) {
		t.Helper()
		err := lockelection.Install(within(t), conn, lockelection.InstallOptions{})
		if want != nil {
			wants(t, err, want)
		}
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v has no %q", err, text)
		}
	}
	execute := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(within(t), sql); err != nil {
			t.Fatal(err)
		}
	}
	refused(lockelection.ErrDenied, "lockctl install --schema locks")
	execute("BEGIN")
	refused(lockelection.ErrInvalid, "open transaction")
	execute("ROLLBACK; SET default_transaction_read_only = on")
	refused(lockelection.ErrUnavailable, "read-only")
	execute("RESET default_transaction_read_only")
	if err := lockelection.Install(within(t), conn, lockelection.InstallOptions{Schema: "locks"}); err != nil {
		t.Fatal(err)
	}
	execute("UPDATE _lock_election.edition SET version = 99; COMMENT ON SCHEMA _lock_election IS NULL")
	refused(nil, "newer release")
	if err := conn.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	refused(lockelection.ErrUnavailable, "closed")
	if conn, err := pgx.Connect(within(t), ""); err != nil {
		t.Fatal(err)
	} else if err := lockelection.Install(within(t), conn, lockelection.InstallOptions{}); err == nil || !strings.Contains(err.Error(), "extension lock_election is installed") {
		t.Error(err)
	} else if err := conn.Close(within(t)); err != nil {
		t.Error(err)
	}
}
