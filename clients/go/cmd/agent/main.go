//go:build linux

// Command agent is the client's side of the conformance suite: see clients/conformance/README.md for its protocol.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lock-election.invalid/lockelection"
)

const features = `["shared", "permits", "several", "each", "election", "observe", "fence", "cancel", "hold_for",` +
	` "own_ttl", "once", "block", "threads"]`

// command has the arguments of all commands.
type command struct {
	ID       json.RawMessage `json:"id"`
	Do       string          `json:"do"`
	Session  string          `json:"session"`
	Hold     string          `json:"hold"`
	Observer string          `json:"observer"`
	Holds    []string        `json:"holds"`
	Names    []string        `json:"names"`
	Mode     string          `json:"mode"`
	Wait     *float64        `json:"wait"`
	TTL      float64         `json:"ttl"`
	Permits  int             `json:"permits"`
	Election string          `json:"election"`
	Value    string          `json:"value"`
	Name     string          `json:"name"`
	DSN      string          `json:"dsn"`
	SQL      string          `json:"sql"`
	HoldFor  float64         `json:"hold_for"`
	Limit    *float64        `json:"limit"`
	Ms       float64         `json:"ms"`
	Of       json.RawMessage `json:"of"`
}

// fields of a reply.
type fields map[string]any

// held is a hold with the suite's name for it, and for a term its election.
type held struct {
	*lockelection.Hold
	election *lockelection.Election
	once     sync.Once
}

var (
	mu        sync.Mutex
	sessions  = map[string]*lockelection.Session{}
	holds     = map[string]*held{}
	observers = map[string]context.CancelFunc{}
	calls     = map[string]context.CancelFunc{}

	out sync.Mutex
)

// stamp is milliseconds of CLOCK_MONOTONIC.
func stamp() float64 { return float64(clock().Nanoseconds()) / 1e6 }

func write(line fields) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	out.Lock()
	defer out.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

func ms(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

func token(h *lockelection.Hold) string { return strconv.FormatInt(h.Token(), 10) }

// status of an error: the first kind that fits.
func status(err error) string {
	for _, k := range []struct {
		kind error
		name string
	}{
		{lockelection.ErrHeld, "not_acquired"}, {context.DeadlineExceeded, "not_acquired"},
		{context.Canceled, "canceled"}, {lockelection.ErrClosed, "canceled"}, {lockelection.ErrLost, "lost"},
		{lockelection.ErrDeadlock, "deadlock"}, {lockelection.ErrLimit, "limit"}, {lockelection.ErrDenied, "denied"},
		{lockelection.ErrInvalid, "invalid"}, {lockelection.ErrUnknown, "unknown"},
		{lockelection.ErrNotInstalled, "not_installed"}, {lockelection.ErrUnavailable, "unavailable"},
	} {
		if errors.Is(err, k.kind) {
			return k.name
		}
	}
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == "40P01" { // of the application's own statement
		return "deadlock"
	}
	return "failed"
}

// tellLost reports each lost hold once, before any other event.
func tellLost() {
	mu.Lock()
	defer mu.Unlock()
	for name, h := range holds {
		if !h.Valid() {
			tell(name, h)
		}
	}
}

func tell(name string, h *held) {
	if cause := context.Cause(h.Context()); cause != nil && !errors.Is(cause, lockelection.ErrReleased) &&
		!errors.Is(cause, lockelection.ErrClosed) {
		h.once.Do(func() {
			write(fields{"event": "lost", "hold": name, "why": cause.Error(), "at": stamp()})
		})
	}
}

func keep(name string, h *held) {
	mu.Lock()
	holds[name] = h
	mu.Unlock()
	context.AfterFunc(h.Context(), func() {
		mu.Lock()
		defer mu.Unlock()
		if holds[name] == h {
			tell(name, h)
		}
	})
}

// drop forgets a hold; nil if the suite never had it.
func drop(name string) *held {
	tellLost()
	mu.Lock()
	defer mu.Unlock()
	h := holds[name]
	delete(holds, name)
	return h
}

func lookUp(c *command) (*lockelection.Session, *held) {
	mu.Lock()
	defer mu.Unlock()
	return sessions[c.Session], holds[c.Hold]
}

// limit returns the limit of a wait; null means no limit.
func (c *command) limit(opts []lockelection.LockOption) []lockelection.LockOption {
	if c.Wait == nil || *c.Wait == 0 {
		return opts
	}
	return append(opts, lockelection.WaitFor(ms(*c.Wait)))
}

func (c *command) options() (opts []lockelection.LockOption) {
	if c.Mode == "shared" {
		opts = append(opts, lockelection.Shared())
	}
	if c.Mode == "permit" {
		opts = append(opts, lockelection.Permit(c.Permits))
	}
	if c.TTL != 0 {
		opts = append(opts, lockelection.WithTTL(ms(c.TTL)))
	}
	return opts
}

func open(ctx context.Context, c *command) (fields, error) {
	opts := []lockelection.SessionOption{lockelection.WithName(c.Name)}
	if c.TTL != 0 {
		opts = append(opts, lockelection.WithTTL(ms(c.TTL)))
	}
	s, err := lockelection.Connect(ctx, c.DSN, opts...)
	if err != nil {
		return fields{"shown": shown(err)}, err
	}
	mu.Lock()
	defer mu.Unlock()
	sessions[c.Session] = s
	return fields{"lease": strconv.FormatInt(s.Lease(), 10)}, nil
}

// shown returns everything that a log could contain of an error: its text, and the texts, fields and JSON of the errors
// that it wraps.
func shown(err error) (text string) {
	if err == nil {
		return ""
	}
	json, _ := json.Marshal(err)
	text = fmt.Sprintf("%v\n%+v\n%#v\n%s\n", err, err, err, json)
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		text += shown(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			text += shown(one)
		}
	}
	return text
}

func acquire(ctx context.Context, c *command) (fields, error) {
	s, _ := lookUp(c)
	try := c.Wait != nil && *c.Wait == 0
	var h *lockelection.Hold
	var err error
	switch {
	case len(c.Names) != 1 && try:
		h, err = s.TryLockAll(ctx, c.Names, c.options()...)
	case len(c.Names) != 1:
		h, err = s.LockAll(ctx, c.Names, c.limit(c.options())...)
	case try:
		h, err = s.TryLock(ctx, c.Names[0], c.options()...)
	default:
		h, err = s.Lock(ctx, c.Names[0], c.limit(c.options())...)
	}
	if err != nil {
		return nil, err
	}
	keep(c.Hold, &held{Hold: h})
	return fields{"token": token(h)}, nil
}

func tryEach(ctx context.Context, c *command) (fields, error) {
	s, _ := lookUp(c)
	got, err := s.TryLockEach(ctx, c.Names, c.options()...)
	if err != nil {
		return nil, err
	}
	tokens := make([]any, len(got))
	for i, h := range got {
		if h != nil {
			tokens[i] = token(h)
			keep(c.Holds[i], &held{Hold: h})
		}
	}
	return fields{"tokens": tokens}, nil
}

func campaign(ctx context.Context, c *command) (fields, error) {
	s, _ := lookUp(c)
	e := s.Election(c.Election)
	stand := e.Campaign
	if c.Wait != nil && *c.Wait == 0 {
		stand = e.TryCampaign
	}
	if err := stand(ctx, c.Value, c.limit(nil)...); err != nil {
		return nil, err
	}
	term := e.Term()
	if term == nil {
		return nil, lockelection.ErrLost
	}
	keep(c.Hold, &held{Hold: term, election: e})
	return fields{"token": token(term)}, nil
}

// fence does what an application does, on its own connection.
func fence(ctx context.Context, c *command) (fields, error) {
	_, h := lookUp(c)
	conn, err := pgx.Connect(ctx, c.DSN)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", lockelection.ErrUnavailable, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return nil, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		err := h.Fence(ctx, tx)
		if err == nil && c.SQL != "" {
			_, err = tx.Exec(ctx, c.SQL)
		}
		return err
	})
}

func once(ctx context.Context, c *command) (fields, error) {
	s, _ := lookUp(c)
	ran, err := s.Once(ctx, c.Names[0], ms(c.HoldFor), func(ctx context.Context) error {
		select {
		case <-time.After(ms(c.Ms)):
		case <-ctx.Done():
		}
		return nil
	})
	return fields{"ran": ran}, err
}

func leaderFields(l lockelection.Leader) fields {
	if l.Term == 0 {
		return fields{"value": nil, "term": nil}
	}
	return fields{"value": l.Candidate, "term": strconv.FormatInt(l.Term, 10)}
}

func leader(ctx context.Context, c *command) (fields, error) {
	s, _ := lookUp(c)
	l, err := s.Election(c.Election).Leader(ctx)
	if err != nil && !errors.Is(err, lockelection.ErrNoLeader) {
		return nil, err
	}
	return leaderFields(l), nil
}

func observe(_ context.Context, c *command) (fields, error) {
	s, _ := lookUp(c)
	ctx, cancel := context.WithCancel(context.Background())
	mu.Lock()
	observers[c.Observer] = cancel
	mu.Unlock()
	go func() {
		for l := range s.Election(c.Election).Observe(ctx) {
			line := leaderFields(l)
			line["event"], line["observer"], line["at"] = "leader", c.Observer, stamp()
			write(line)
		}
	}()
	return nil, nil
}

func closeSession(ctx context.Context, c *command) (fields, error) {
	s, _ := lookUp(c)
	if c.Limit != nil && *c.Limit != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ms(*c.Limit))
		defer cancel()
	}
	tellLost()
	return nil, s.Close(ctx)
}

func block(c *command) {
	for end := time.Now().Add(ms(c.Ms)); time.Now().Before(end); {
	}
}

// count finds the library's goroutines, and the sockets of this process.
func count() fields {
	all := make([]byte, 1<<22)
	threads, connections := 0, 0
	for _, stack := range strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n") {
		if strings.Contains(stack, "created by lock-election.invalid/lockelection.") ||
			strings.Contains(stack, "created by github.com/jackc/pgx") {
			threads++
		}
	}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, entry := range entries {
		if target, _ := os.Readlink("/proc/self/fd/" + entry.Name()); strings.HasPrefix(target, "socket:") {
			connections++
		}
	}
	return fields{"threads": threads, "connections": connections}
}

func run(ctx context.Context, c *command) (fields, error) {
	s, h := lookUp(c)
	if h == nil && slices.Contains([]string{"valid", "fence", "proclaim", "resign", "release"}, c.Do) {
		return nil, fmt.Errorf("%w: there is no hold %q", lockelection.ErrInvalid, c.Hold)
	}
	switch c.Do {
	case "open":
		return open(ctx, c)
	case "acquire":
		return acquire(ctx, c)
	case "try_each":
		return tryEach(ctx, c)
	case "campaign":
		return campaign(ctx, c)
	case "once":
		return once(ctx, c)
	case "cancel":
		mu.Lock()
		defer mu.Unlock()
		if cancel := calls[string(c.Of)]; cancel != nil {
			cancel()
		}
		return nil, nil
	case "valid":
		return fields{"valid": h.Valid(), "deadline": float64(h.TimeLeft().Nanoseconds()) / 1e6}, nil
	case "fence":
		return fence(ctx, c)
	case "proclaim":
		return nil, h.election.Proclaim(ctx, c.Value)
	case "resign":
		return nil, drop(c.Hold).Unlock(ctx)
	case "release":
		h = drop(c.Hold)
		if c.HoldFor != 0 {
			return nil, h.Unlock(ctx, lockelection.HoldFor(ms(c.HoldFor)))
		}
		return nil, h.Unlock(ctx)
	case "leader":
		return leader(ctx, c)
	case "observe":
		return observe(ctx, c)
	case "unobserve":
		mu.Lock()
		defer mu.Unlock()
		observers[c.Observer]()
		return nil, nil
	case "state":
		return fields{"state": [...]string{"", "connected", "suspended", "ended"}[s.State()]}, nil
	case "close":
		return closeSession(ctx, c)
	case "block":
		block(c)
		return nil, nil
	case "threads":
		return count(), nil
	}
	return nil, errUnsupported
}

var errUnsupported = errors.New("unsupported")

func serve(ctx context.Context, c *command) {
	sent := stamp()
	answer, err := run(ctx, c)
	at := stamp()
	if answer == nil {
		answer = fields{}
	}
	answer["id"], answer["status"], answer["sent"], answer["at"] = c.ID, "ok", sent, at
	if err != nil {
		answer["status"], answer["message"] = status(err), err.Error()
		if errors.Is(err, errUnsupported) {
			answer["status"] = "unsupported"
		}
		var server *pgconn.PgError
		if errors.As(err, &server) {
			answer["sqlstate"] = server.Code
		}
	}
	tellLost()
	write(answer)
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--capabilities" {
		fmt.Printf(`{"client": "go", "version": "1.0.0", "modes": ["go"], "features": %s}`+"\n", features)
		return
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<26)
	for in.Scan() {
		c := &command{}
		if err := json.Unmarshal(in.Bytes(), c); err != nil {
			fmt.Fprintf(os.Stderr, "%v: %s\n", err, in.Text())
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		mu.Lock()
		calls[string(c.ID)] = cancel
		mu.Unlock()
		if c.Do == "block" {
			serve(ctx, c)
			continue
		}
		go func() {
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				delete(calls, string(c.ID))
				cancel()
			}()
			serve(ctx, c)
		}()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var group sync.WaitGroup
	mu.Lock()
	for _, s := range sessions {
		group.Go(func() { s.Close(ctx) })
	}
	mu.Unlock()
	group.Wait()
}
