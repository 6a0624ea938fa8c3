package lockelection

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

var errEvicted = fmt.Errorf("%w: it was evicted", ErrLost)

// What calls answer, for errors.Is. An error of the server is there as well, as a *pgconn.PgError for errors.As.
var (
	// ErrHeld: somebody else holds it, or is queued for it. Nothing is held, and nothing waits.
	ErrHeld = errors.New("held by somebody else")
	// ErrLost: the lease, or this hold, has ended: the server says so (LE001), or the local deadline has passed.
	ErrLost = errors.New("lost")
	// ErrReleased is the cause of the end of a hold's context after Unlock or Resign.
	ErrReleased = errors.New("released")
	// ErrClosed: the session was closed.
	ErrClosed = errors.New("the session was closed")
	// ErrNoLeader: nobody leads.
	ErrNoLeader = errors.New("nobody leads")
	// ErrDeadlock: 40P01. Roll the transaction back and repeat it.
	ErrDeadlock = errors.New("deadlock")
	// ErrLimit: 53200 or 53400, a limit of the server. The message names its setting.
	ErrLimit = errors.New("limit of the server")
	// ErrDenied: 42501 or 28xxx, not allowed or a wrong password.
	ErrDenied = errors.New("denied")
	// ErrInvalid: 22xxx or a bad argument.
	ErrInvalid = errors.New("invalid")
	// ErrUnavailable: no server, no such database, or no answer in time. Nothing lasts: what may have been granted is
	// given back.
	ErrUnavailable = errors.New("unavailable")
	// ErrUnknown: no answer, and the statement may have taken effect. It ends with the lease at the latest.
	ErrUnknown = errors.New("outcome unknown")
	// ErrNotInstalled: the extension is not in this database, or not in shared_preload_libraries.
	// The message says what to type.
	ErrNotInstalled = errors.New("lock_election is not installed")
)

// SQLSTATEs and their prefixes; the first that fits counts. 55P03 and 58 say that the server cannot write now.
var kinds = []struct {
	kind  error
	codes string
}{
	{ErrLost, "LE001"}, {ErrDeadlock, "40P01"}, {ErrLimit, "53200 53400"}, {ErrDenied, "42501 28"}, {ErrInvalid, "22"},
	{ErrUnknown, "08007 57014 40003"}, {ErrNotInstalled, "55000 42883 3F000"},
	{ErrUnavailable, "57 53 08 25006 55P03 58 3D000"},
}

const toInstall = "CREATE EXTENSION lock_election, or lockctl install for the portable edition"

// What to type about an SQLSTATE.
var advice = map[string]string{
	"42883": " (" + toInstall + ")",
	"3F000": " (" + toInstall + ")",
	"55000": " (add it to shared_preload_libraries, and restart the server)",
}

// sqlState of an error of any driver's.
func sqlState(err error) string {
	var server interface{ SQLState() string }
	if errors.As(err, &server) {
		return server.SQLState()
	}
	return ""
}

// noSuchFunction: the extension is in another schema than we knew, or is not there.
func noSuchFunction(err error) bool {
	code := sqlState(err)
	return code == "3F000" || code == "42883"
}

// endsConnection says whether this connection is of no more use: the error is not the server's, or another server is
// wanted.
func endsConnection(state string) bool {
	switch state {
	case "", "57P01", "57P02", "57P03", "57P04", "57P05", "53300", "25006":
		return true
	}
	return strings.HasPrefix(state, "08")
}

// explain adds to an error of the server, or of the connection, what it means.
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

// details of the server's, which pgconn leaves out of an error's text: they say what is allowed.
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

// passes: the same statement may succeed a little later.
func passes(err error) bool {
	code := sqlState(err)
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknown) || strings.HasPrefix(code, "XX") ||
		strings.HasPrefix(code, "40") && code != "40P01"
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// ended is the error of a call whose context is over.
func ended(ctx context.Context, what string) error {
	return fmt.Errorf("%s: %w", what, context.Cause(ctx))
}
