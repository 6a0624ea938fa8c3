package lockelection

import (
	"context"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// The server's limits
const (
	minTTL       = 100 * time.Millisecond
	maxTTL       = 24 * 24 * time.Hour // also the maximum of HoldFor
	maxName      = 255                 // in bytes
	maxCandidate = 4096                // of a candidate's text, in bytes
	maxNames     = 1000                // per hold
)

// checkContext rejects a nil context, which would make the call panic.
func checkContext(ctx context.Context) error {
	if ctx == nil {
		return invalid("the context is nil: pass context.Background() for a call without a limit")
	}
	return nil
}

// checkText rejects texts that are empty, badly encoded, or have more than four times the allowed bytes. The server
// rejects other texts that are too long: in its encoding, a text can be up to four times shorter than in UTF-8.
func checkText(what, text string, most int) error {
	switch {
	case text == "":
		return invalid("the %s is empty: it has 1 to %d bytes", what, most)
	case len(text) > 4*most:
		return invalid("the %s has %d bytes: it has 1 to %d", what, len(text), most)
	}
	return checkEncoding(what, text)
}

// checkEncoding rejects invalid UTF-8 and zero bytes. Texts are not changed or cut, because two different texts must
// not become the same.
func checkEncoding(what, text string) error {
	if !utf8.ValidString(text) {
		return invalid("the %s %.100q is not valid UTF-8", what, text)
	} else if strings.IndexByte(text, 0) >= 0 {
		return invalid("the %s %.100q has a zero byte, which no text in PostgreSQL can have", what, text)
	}
	return nil
}

func checkName(name string) error           { return checkText("name", name, maxName) }
func checkElection(name string) error       { return checkText("name of the election", name, maxName) }
func checkCandidate(candidate string) error { return checkText("candidate", candidate, maxCandidate) }

func checkNames(names []string) error {
	if len(names) == 0 || len(names) > maxNames {
		return invalid("there are %d names: a hold has 1 to %d", len(names), maxNames)
	}
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		if err := checkName(name); err != nil {
			return err
		} else if seen[name] {
			return invalid("the name %.100q appears twice", name)
		}
		seen[name] = true
	}
	return nil
}

func checkTTL(ttl time.Duration) error {
	if ttl >= minTTL && ttl <= maxTTL {
		return nil
	}
	return invalid("the TTL is %v: it is from 100 ms to 24 days%s", ttl, unit(ttl, "WithTTL"))
}

func checkHoldFor(d time.Duration) error {
	if d >= 0 && d <= maxTTL {
		return nil
	}
	return invalid("HoldFor is %v: it is from 0 to 24 days%s", d, unit(d, "HoldFor"))
}

// unit returns a hint for a caller that has passed a plain number, which Go takes as nanoseconds.
func unit(d time.Duration, option string) string {
	if d > 0 && d < time.Millisecond {
		return "; 30 seconds are " + option + "(30*time.Second), for a plain number counts nanoseconds"
	}
	return ""
}

func (o *options) checkLock(kind int, try bool) error {
	switch {
	case kind == kindTerm && (o.shared || o.permit):
		return invalid("Shared and Permit are not for an election")
	case o.permit && o.shared:
		return invalid("a permit is not Shared")
	case o.permit && kind != kindLock:
		return invalid("a Permit has only one name, and these are several")
	case o.permit && (o.permits < 1 || o.permits > math.MaxInt32):
		return invalid("there are %d permits: a name has 1 to %d", o.permits, math.MaxInt32)
	case o.waits && try:
		return invalid("WaitFor is not for a call that does not wait")
	case o.waits && o.wait < 0:
		return invalid("WaitFor is %v: it is 0, which does not wait, or more", o.wait)
	}
	return nil
}
