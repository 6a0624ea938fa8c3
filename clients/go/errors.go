package lockelection

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

var errEvicted = fmt.Errorf("%w: it was evicted", ErrLost)

// The errors that calls return, for errors.Is. An error of the server is wrapped as well, as a *pgconn.PgError for
// errors.As.
var (
	// ErrHeld means that others hold the lock or are queued for it. Nothing is held, and nothing is left in the queue.
	ErrHeld = errors.New("held by somebody else")
	// ErrLost means that the lease or the hold has ended: the server says so (LE001), or the local deadline has passed.
	ErrLost = errors.New("lost")
	// ErrReleased is the cause with which a hold's context is canceled by Unlock or Resign.
	ErrReleased = errors.New("released")
	// ErrClosed means that the session was closed.
	ErrClosed = errors.New("the session was closed")
	// ErrNoLeader means that the election has no leader.
	ErrNoLeader = errors.New("nobody leads")
	// ErrDeadlock means a deadlock (40P01): roll the transaction back and repeat it.
	ErrDeadlock = errors.New("deadlock")
	// ErrLimit means that a limit of the server was reached (53200, 53400). The message names its setting.
	ErrLimit = errors.New("limit of the server")
	// ErrDenied means that a right is missing or the password is wrong (42501, 28xxx).
	ErrDenied = errors.New("denied")
	// ErrInvalid means that an argument is invalid (also 22xxx).
	ErrInvalid = errors.New("invalid")
	// ErrUnavailable means that there is no server, no such database, or no reply in time. The call has no lasting
	// effect: if something was granted, it is released.
	ErrUnavailable = errors.New("unavailable")
	// ErrUnknown means that there was no reply, and the statement may have taken effect. The effect ends with the lease
	// at the latest.
	ErrUnknown = errors.New("outcome unknown")
	// ErrNotInstalled means that the extension is not in this database, or not in shared_preload_libraries.
	// The message says what to type.
	ErrNotInstalled = errors.New("lock_election is not installed")
)

// kinds maps SQLSTATEs or their prefixes to errors. The first match counts. 55P03 and 58 mean that the server cannot
// write at present.
var kinds = []struct {
	kind  error
	codes string
}{
	{ErrLost, "LE001"}, {ErrDeadlock, "40P01"}, {ErrLimit, "53200 53400"}, {ErrDenied, "42501 28"}, {ErrInvalid, "22"},
	{ErrUnknown, "08007 57014 40003"}, {ErrNotInstalled, "55000 42883 3F000"},
	{ErrUnavailable, "57 53 08 25006 55P03 58 3D000"},
}

const toInstall = "CREATE EXTENSION lock_election, or lockctl install for the portable edition"

// advice says what to type to remedy an SQLSTATE.
var advice = map[string]string{
	"42883": " (" + toInstall + ")",
	"3F000": " (" + toInstall + ")",
	"55000": " (add it to shared_preload_libraries, and restart the server)",
}

// sqlState returns the SQLSTATE of an error of any driver, or "".
func sqlState(err error) string {
	var server interface{ SQLState() string }
	if errors.As(err, &server) {
		return server.SQLState()
	}
	return ""
}

// noSuchFunction reports whether the extension is not in the schema in which the client has looked for it.
func noSuchFunction(err error) bool {
	code := sqlState(err)
	return code == "3F000" || code == "42883"
}

// endsConnection reports whether the connection must be given up after an error with this SQLSTATE: the error does not
// come from the server, or another server is needed.
func endsConnection(state string) bool {
	switch state {
	case "", "57P01", "57P02", "57P03", "57P04", "57P05", "53300", "25006":
		return true
	}
	return strings.HasPrefix(state, "08")
}

// explain wraps an error of the server or of the connection in the error of this package that says what it means.
func explain(err error) error {
	code := sqlState(err)
	for _, k := range kinds {
		if errors.Is(err, k.kind) {
			return err
		}
		for _, prefix := range strings.Fields(k.codes) {
			if strings.HasPrefix(code, prefix) {
				return fmt.Errorf("%w%s: %w%s", k.kind, advice[code], err, details(err))
			}
		}
	}
	if err != nil && code == "" {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// details returns the server's detail and hint, which say what is allowed. The error's text in pgconn lacks them.
func details(err error) (text string) {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		for _, more := range []string{server.Detail, server.Hint} {
			if more != "" {
				text += " " + more
			}
		}
	}
	return text
}

// passes reports whether the same statement may succeed a little later.
func passes(err error) bool {
	code := sqlState(err)
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknown) || strings.HasPrefix(code, "XX") ||
		strings.HasPrefix(code, "40") && code != "40P01"
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// ended returns the error of a call whose context has ended.
func ended(ctx context.Context, what string) error {
	return fmt.Errorf("%s: %w", what, context.Cause(ctx))
}
