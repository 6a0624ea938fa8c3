package lockelection

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

var errEvicted = fmt.Errorf("%w: it was evicted", ErrLost)

// Errors that calls return; test them with errors.Is. They also wrap a server error, which errors.As finds as a
// *pgconn.PgError.
var (
	// ErrHeld means that others hold the lock or are queued for it. The caller neither holds it nor waits for it.
	ErrHeld = errors.New("held by somebody else")
	// ErrLost means that the lease or the hold has ended. The server reports this (LE001), or the local deadline has
	// passed.
	ErrLost = errors.New("lost")
	// ErrReleased is the cause of a hold's context that Unlock or Resign has canceled.
	ErrReleased = errors.New("released")
	// ErrClosed means that the session was closed.
	ErrClosed = errors.New("the session was closed")
	// ErrNoLeader means that the election has no leader.
	ErrNoLeader = errors.New("nobody leads")
	// ErrDeadlock means that PostgreSQL has detected a deadlock (40P01). Roll the transaction back and repeat it.
	ErrDeadlock = errors.New("deadlock")
	// ErrLimit means that a server limit was reached (53200, 53400). The message names its setting.
	ErrLimit = errors.New("limit of the server")
	// ErrDenied means that a privilege is missing or the password is wrong (42501, 28xxx).
	ErrDenied = errors.New("denied")
	// ErrInvalid means that an argument is invalid (also 22xxx).
	ErrInvalid = errors.New("invalid")
	// ErrUnavailable means that there is no server, no such database, or no reply in time. The call has no lasting
	// effect: if a lock was granted, the session releases it.
	ErrUnavailable = errors.New("unavailable")
	// ErrUnknown means that there was no reply, so the statement may have taken effect. Its effect ends with the lease
	// at the latest.
	ErrUnknown = errors.New("outcome unknown")
	// ErrNotInstalled means that the extension is not in this database, or not in shared_preload_libraries. The message
	// names the command to run.
	ErrNotInstalled = errors.New("lock_election is not installed")
)

// kinds maps SQLSTATEs or their prefixes to errors; the first match is used. 55P03 and 58xxx mean that the server
// cannot write now.
var kinds = []struct {
	kind  error
	codes string
}{
	{ErrLost, "LE001"}, {ErrDeadlock, "40P01"}, {ErrLimit, "53200 53400"}, {ErrDenied, "42501 28"}, {ErrInvalid, "22"},
	{ErrUnknown, "08007 57014 40003"}, {ErrNotInstalled, "55000 42883 3F000"},
	{ErrUnavailable, "57 53 08 25006 55P03 58 3D000"},
}

const toInstall = "CREATE EXTENSION lock_election, or lockctl install for the portable edition"

// advice maps SQLSTATEs to the commands that solve the problem.
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

// noSuchFunction reports whether the extension's schema or function was not found.
func noSuchFunction(err error) bool {
	code := sqlState(err)
	return code == "3F000" || code == "42883"
}

// endsConnection reports whether the session must reconnect after an error with this SQLSTATE. "" means that the error
// does not come from the server.
func endsConnection(state string) bool {
	switch state {
	case "", "57P01", "57P02", "57P03", "57P04", "57P05", "53300", "25006":
		return true
	}
	return strings.HasPrefix(state, "08")
}

// explain wraps an error of the server or the connection in the matching error of this package.
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

// details returns the server's detail and hint, which describe the allowed values. pgconn's error text lacks them.
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

// passes reports whether the error is temporary, so that a retry of the same statement may succeed.
func passes(err error) bool {
	code := sqlState(err)
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknown) || strings.HasPrefix(code, "XX") ||
		strings.HasPrefix(code, "40") && code != "40P01"
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// ended returns the error of a call whose context has ended; what is the call's purpose.
func ended(ctx context.Context, what string) error {
	return fmt.Errorf("%s: %w", what, context.Cause(ctx))
}
