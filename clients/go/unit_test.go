package lockelection

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
)

// fake is a server without a database: it answers what a test says, by the clock of the test's bubble.
type fake struct {
	t      *testing.T
	mu     sync.Mutex
	scene  sync.Mutex // of what the answers depend on
	log    []string   // statements that came, by the name of their function, with their arguments
	pooled bool
	schema string        // what calls another one is refused; "": there is none
	deaf   string        // what has this in it is refused, such as LISTEN
	skew   time.Duration // by which the session's clock is ahead of the timers, as after a suspend
	start  time.Time
	conns  []net.Conn
	held   [][]string // rows of lease_holds
	// answer to a statement; nil: hangs up. A string for each column; "" is NULL. "!CODE" in a single one: an error.
	answer func(function string, args []string) [][]string
}

const fakeTTL = 10 * time.Second

func newFake(t *testing.T) *fake {
	return &fake{t: t, start: time.Now(), schema: `"le"`, answer: func(string, []string) [][]string { return [][]string{{"t"}} }}
}

func (f *fake) open(opts ...SessionOption) *Session {
	f.t.Helper()
	s, err := f.tryOpen(f.t.Context(), opts...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

func (f *fake) tryOpen(ctx context.Context, opts ...SessionOption) (*Session, error) {
	f.t.Helper()
	config, err := pgx.ParseConfig("host=fake user=fake dbname=fake sslmode=disable")
	if err != nil {
		f.t.Fatal(err)
	}
	config.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"192.0.2.1"}, nil }
	config.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.conns) == 100 {
			return nil, errors.New("one connection after another")
		}
		f.conns = append(f.conns, theirs)
		go f.serve(theirs, 100+len(f.conns))
		return ours, nil
	}
	clock := sessionOption(func(o *options) {
		o.now = func() time.Duration {
			f.mu.Lock()
			defer f.mu.Unlock()
			return time.Since(f.start) + f.skew + time.Hour
		}
	})
	return Open(ctx, config, append([]SessionOption{WithTTL(fakeTTL), WithName("me"), clock}, opts...)...)
}

func (f *fake) serve(conn net.Conn, pid int) {
	defer conn.Close()
	b := pgproto3.NewBackend(conn, conn)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	told := uint32(pid)
	if f.pooled {
		told = 99
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.BackendKeyData{ProcessID: told, SecretKey: []byte{0, 0, 0, 1}})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	b.Flush()
	var sql string
	var args []string
	for {
		message, err := b.Receive()
		if err != nil {
			return
		}
		switch m := message.(type) {
		case *pgproto3.Parse:
			sql = m.Query
		case *pgproto3.Bind:
			args = nil
			for _, p := range m.Parameters {
				args = append(args, string(p))
			}
		case *pgproto3.Query:
			f.note(m.String)
			if f.deaf != "" && strings.Contains(m.String, f.deaf) {
				b.Send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: "0A000", Message: "fake"})
				b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
				b.Flush()
				continue
			}
			if _, channel, ok := strings.Cut(m.String, "NOTIFY "); ok {
				b.Send(&pgproto3.NotificationResponse{Channel: channel})
			}
			b.Send(&pgproto3.CommandComplete{CommandTag: []byte("LISTEN")})
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			b.Flush()
		case *pgproto3.Sync:
			if !f.reply(b, sql, args, pid) {
				return
			}
		}
	}
}

func (f *fake) note(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, what)
}

var ourFunction = regexp.MustCompile(`("le\d*")\.(\w+)\(`)

// functionOf a statement: the first behind the schema.
func functionOf(sql string) string {
	if found := ourFunction.FindStringSubmatch(sql); found != nil {
		return found[2]
	}
	if strings.Contains(sql, "pg_terminate_backend") {
		return "terminate"
	}
	return "learn"
}

func (f *fake) reply(b *pgproto3.Backend, sql string, args []string, pid int) bool {
	function := functionOf(sql)
	var table [][]string
	f.mu.Lock()
	schema := f.schema
	f.mu.Unlock()
	if function == "learn" {
		table = [][]string{{schema, "f", fmt.Sprint(pid), "all", fmt.Sprint("start ", pid)}}
	} else if found := ourFunction.FindStringSubmatch(sql); found != nil && found[1] != schema {
		f.note("refused " + function)
		table = [][]string{{"!3F000"}}
	} else {
		f.note(function + " " + strings.Join(args, " "))
		if table = f.answer(function, args); table == nil {
			return false
		}
	}
	b.Send(&pgproto3.ParseComplete{})
	b.Send(&pgproto3.BindComplete{})
	if len(table) == 1 && len(table[0]) == 1 && strings.HasPrefix(table[0][0], "!") {
		b.Send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: table[0][0][1:], Message: "fake"})
	} else {
		b.Send(&pgproto3.RowDescription{Fields: make([]pgproto3.FieldDescription, 6)[:width(table)]})
		for _, row := range table {
			values := make([][]byte, len(row))
			for i, text := range row {
				if text != "" {
					values[i] = []byte(text)
				}
			}
			b.Send(&pgproto3.DataRow{Values: values})
		}
		b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT")})
	}
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	return b.Flush() == nil
}

func (f *fake) change(scene func()) {
	f.scene.Lock()
	defer f.scene.Unlock()
	scene()
}

func width(table [][]string) int {
	if len(table) == 0 {
		return 0
	}
	return len(table[0])
}

func (f *fake) notify(channel, payload string) {
	message, err := (&pgproto3.NotificationResponse{PID: 7, Channel: channel, Payload: payload}).Encode(nil)
	if err == nil {
		_, err = f.conns[len(f.conns)-1].Write(message)
	}
	if err != nil {
		f.t.Error(err)
	}
}

// sent are the statements so far whose text begins so.
func (f *fake) sent(prefix string) (found []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, entry := range f.log {
		if strings.HasPrefix(entry, prefix) {
			found = append(found, entry)
		}
	}
	return found
}

// table is what most tests answer: a lease 7 without holds, and what they say of the rest.
func (f *fake) table(rest func(function string, args []string) [][]string) {
	f.answer = func(function string, args []string) [][]string {
		switch function {
		case "grant_lease":
			return [][]string{{"7"}}
		case "keep_alive":
			return [][]string{{"10000"}}
		}
		f.scene.Lock()
		answer := rest(function, args)
		f.scene.Unlock()
		if answer != nil {
			return answer
		}
		switch function {
		case "try_acquire_each": // one name
			f.held = append(f.held, []string{"lock", strings.Trim(args[0], `{"}`), fmt.Sprint(20 + len(f.held)), "t", "c", args[1]})
			return [][]string{{f.held[len(f.held)-1][2]}}
		case "lease_holds":
			return append([][]string{}, f.held...)
		case "is_leader", "terminate":
			return [][]string{}
		}
		return [][]string{{"t"}}
	}
}

func bubble(t *testing.T, test func(t *testing.T, f *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newFake(t)) })
}

func (f *fake) lock(s *Session, name string) *Hold {
	f.t.Helper()
	h, err := s.TryLock(f.t.Context(), name)
	if err != nil {
		f.t.Fatal(err)
	}
	return h
}

func expect[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %v, expected %v", what, got, want)
	}
}

const (
	fakeMargin = fakeTTL / 20
	fakeSafe   = fakeTTL - fakeMargin
)

func TestUnitDeadlineFromSending(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		slow := time.Duration(0)
		f.table(func(function string, _ []string) [][]string { return nil })
		plain := f.answer
		f.answer = func(function string, args []string) [][]string {
			time.Sleep(slow)
			return plain(function, args)
		}
		slow = time.Second
		s := f.open()
		expect(t, "left after a second on the way", s.TimeLeft(), fakeSafe-slow)
		for len(f.sent("keep_alive")) == 0 {
			time.Sleep(time.Millisecond) // of the bubble
		}
		before := s.TimeLeft()
		time.Sleep(slow / 2)
		if s.TimeLeft() >= before {
			t.Fatal("a renewal counts before it was answered")
		}
		time.Sleep(slow / 2)
		synctest.Wait()
		if left := s.TimeLeft(); left > fakeSafe-slow || left < fakeSafe-slow-2*time.Millisecond {
			t.Fatalf("%v left after a renewal of a second", left)
		}
	})
}

func TestUnitLostAtDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.table(func(function string, _ []string) [][]string { return nil })
		plain, hang := f.answer, make(chan struct{})
		f.answer = func(function string, args []string) [][]string {
			if function == "keep_alive" {
				<-hang
				return nil
			}
			return plain(function, args)
		}
		opened := time.Now()
		s := f.open()
		h := f.lock(s, "x")
		<-h.Context().Done()
		expect(t, "lost after", time.Since(opened), fakeSafe)
		if !errors.Is(context.Cause(h.Context()), ErrLost) || !errors.Is(s.Err(), ErrLost) || h.Valid() {
			t.Fatalf("cause %v", context.Cause(h.Context()))
		}
		<-s.Done()
		_, err := s.TryLock(t.Context(), "y")
		expect(t, "a lock afterwards is lost", errors.Is(err, ErrLost), true)
		close(hang)
		expect(t, "close", s.Close(t.Context()), nil)
	})
}

// A renewal that was sent before the deadline and is answered after it: the answer would count until later, but what it
// would keep may have been told lost.
func TestUnitLateRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.table(func(function string, _ []string) [][]string { return nil })
		plain := f.answer
		f.answer = func(function string, args []string) [][]string {
			if function == "keep_alive" {
				f.mu.Lock()
				f.skew = fakeSafe - fakeTTL/4 // the machine sleeps with the answer on its way
				f.mu.Unlock()
			}
			return plain(function, args)
		}
		s := f.open()
		h := f.lock(s, "x")
		time.Sleep(fakeTTL / 2) // a renewal
		synctest.Wait()
		expect(t, "lost", errors.Is(context.Cause(h.Context()), ErrLost), true)
		expect(t, "the session is lost", errors.Is(s.Err(), ErrLost), true)
		expect(t, "renewals", len(f.sent("keep_alive")), 1)
	})
}

// Requests that did not reach the server are sent again in their order.
func TestUnitOrderOfLostRequests(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var asked []string
		f.table(func(function string, _ []string) [][]string { return nil })
		plain := f.answer
		f.answer = func(function string, args []string) [][]string {
			if function != "enqueue_each" {
				return plain(function, args)
			}
			time.Sleep(100 * time.Millisecond) // more come meanwhile
			if asked = append(asked, args[0]); len(asked) == 2 {
				return nil
			}
			var answer [][]string
			for name := range strings.SplitSeq(strings.Trim(args[0], "{}"), ",") {
				token := fmt.Sprint(80 + 10*len(asked) + len(answer))
				f.held = append(f.held, []string{"lock", strings.Trim(name, `"`), token, "t", "le_x", args[1]})
				answer = append(answer, []string{token, "t", "le_x"})
			}
			return answer
		}
		s := f.open()
		var group sync.WaitGroup
		for _, name := range []string{"first", "d", "b", "e", "a", "c"} {
			group.Go(func() {
				if _, err := s.Lock(t.Context(), name); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		group.Wait()
		expect(t, "asked for", strings.Join(asked, " "), `{"first"} {"d","b","e","a","c"} {"d","b","e","a","c"}`)
	})
}

// The caller may use its slice again.
func TestUnitNamesAreCopied(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.table(func(function string, _ []string) [][]string {
			if function == "acquire_locks" {
				for _, name := range []string{"x", "y"} {
					f.held = append(f.held, []string{"lock", name, "55", "t", "c", "whoever"})
				}
				return [][]string{{"55"}}
			}
			return nil
		})
		s := f.open()
		names := []string{"x", "y"}
		h, err := s.TryLockAll(t.Context(), names)
		if err != nil {
			t.Fatal(err)
		}
		names[0], h.Names()[1] = "other", "other"
		expect(t, "names", strings.Join(h.Names(), " "), "x y")
		expect(t, "unlock", h.Unlock(t.Context()), nil)
		expect(t, "given back", strings.Join(f.sent("release"), ""), `release_locks {"x","y"} 55`)
	})
}

func TestUnitFenceOfNothing(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.table(func(string, []string) [][]string { return nil })
		h := f.lock(f.open(), "x")
		for _, tx := range []any{nil, (*sql.Tx)(nil), (*struct{ *sql.Tx })(nil), (*pgxpool.Tx)(nil), pgx.Tx(nil), 1} {
			expect(t, fmt.Sprintf("%T is invalid", tx), errors.Is(h.Fence(t.Context(), tx), ErrInvalid), true)
		}
	})
}

// The context of Open ends while the lease is being granted, or just when it was: it is revoked.
func TestUnitOpenIsCanceled(t *testing.T) {
	for _, took := range []time.Duration{0, time.Second} {
		bubble(t, func(t *testing.T, f *fake) {
			f.table(func(string, []string) [][]string { return nil })
			ctx, cancel := context.WithCancel(t.Context())
			plain := f.answer
			f.answer = func(function string, args []string) [][]string {
				if function == "grant_lease" {
					cancel()
					time.Sleep(took)
				}
				return plain(function, args)
			}
			start := time.Now()
			s, err := f.tryOpen(ctx)
			expect(t, "canceled", s == nil && errors.Is(err, context.Canceled), true)
			expect(t, "after", time.Since(start), 0)
			time.Sleep(took + time.Second)
			expect(t, "revoked", strings.Join(f.sent("revoke_lease"), ", "), "revoke_lease 7")
			_, err = f.conns[0].Write([]byte{0})
			expect(t, "the connection is closed", err != nil, true)
			connections := len(f.conns)
			_, err = f.tryOpen(ctx)
			expect(t, "canceled before", errors.Is(err, context.Canceled) && len(f.conns) == connections, true)
		})
	}
}

func TestUnitErrors(t *testing.T) {
	for code, kind := range map[string]error{
		"LE001": ErrLost, "40P01": ErrDeadlock, "53400": ErrLimit, "53200": ErrLimit, "42501": ErrDenied, "28P01": ErrDenied,
		"22023": ErrInvalid, "57014": ErrUnknown, "08007": ErrUnknown, "42883": ErrNotInstalled, "3D000": ErrUnavailable,
		"55000": ErrNotInstalled, "57P01": ErrUnavailable, "53300": ErrUnavailable, "25006": ErrUnavailable,
		"55P03": ErrUnavailable, "08006": ErrUnavailable,
	} {
		expect(t, code, errors.Is(explain(&pgconn.PgError{Code: code}), kind), true)
	}
	expect(t, "what to type", strings.Contains(explain(&pgconn.PgError{Code: "42883"}).Error(), "CREATE EXTENSION"), true)
	expect(t, "what to set", strings.Contains(explain(&pgconn.PgError{Code: "55000"}).Error(), "preload"), true)
}

// The hold is over when Unlock is called, however late the answer is.
func TestUnitValidUntilUnlock(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.table(func(function string, _ []string) [][]string {
			if function == "release_each" {
				time.Sleep(time.Second)
			}
			return nil
		})
		s := f.open()
		h := f.lock(s, "x")
		go h.Unlock(t.Context())
		synctest.Wait()
		expect(t, "valid", h.Valid(), false)
		expect(t, "the context's error", h.Context().Err(), context.Canceled)
		expect(t, "its cause", context.Cause(h.Context()), ErrReleased)
		time.Sleep(2 * time.Second)
	})
}

func TestUnitSuspend(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.table(func(function string, _ []string) [][]string { return nil })
		s := f.open()
		h := f.lock(s, "x")
		child, cancel := context.WithCancel(h.Context())
		defer cancel()
		f.mu.Lock()
		f.skew = fakeTTL
		f.mu.Unlock()
		expect(t, "the context's error", h.Context().Err(), context.Canceled) // no timer has come
		expect(t, "its child's", child.Err(), context.Canceled)
		expect(t, "valid", h.Valid(), false)
		expect(t, "time left", h.TimeLeft(), 0)
	})
}

func TestUnitAnnouncementIsLookedAt(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		held := ""
		f.table(func(function string, args []string) [][]string {
			switch {
			case function == "enqueue_each":
				return [][]string{{"42", "f", "le_x"}}
			case function == "is_leader" && held != "": // or is_held
				return [][]string{{held}}
			case function == "lease_holds":
				return [][]string{{"lock", "x", "42", "f", "le_x", "other"}}
			}
			return nil
		})
		s := f.open()
		granted := make(chan *Hold)
		go func() {
			h, err := s.Lock(t.Context(), "x")
			if err != nil {
				t.Error(err)
			}
			granted <- h
		}()
		synctest.Wait()
		expect(t, "listens", strings.HasPrefix(strings.Join(f.sent("LISTEN"), ""), "LISTEN le_x;LISTEN le_self_"), true)
		f.mu.Lock()
		log := f.log
		f.mu.Unlock()
		_, after, _ := strings.Cut(strings.Join(log, "\n"), "LISTEN le_x")
		expect(t, "looks once it listens", strings.Contains(after, "lease_holds") || strings.Contains(after, "is_leader"), true)
		looks := len(f.sent("is_leader"))
		f.notify("le_x", `{"event":"granted","token":"41","sequence":1}`)
		synctest.Wait()
		expect(t, "looks for another's token", len(f.sent("is_leader")), looks)
		f.notify("le_x", `{"event":"granted","token":"42","sequence":2}`)
		synctest.Wait()
		expect(t, "looks for its own", len(f.sent("is_leader")), looks+1)
		select {
		case <-granted:
			t.Fatal("granted by an announcement")
		default:
		}
		f.change(func() { held = "42" })
		f.notify("le_x", `{"event":"granted","token":"42","sequence":3}`)
		h := <-granted
		expect(t, "token", h.Token(), 42)
		time.Sleep(fakeTTL / 2) // a renewal, and its sweep
		synctest.Wait()
		expect(t, "listens no more", strings.Contains(strings.Join(f.sent("UNLISTEN"), ""), "UNLISTEN le_x;"), true)
	})
}

// A grant that came between the place and LISTEN was announced to nobody: it is found by looking.
func TestUnitGrantBeforeListen(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		waits := false
		f.table(func(function string, args []string) [][]string {
			switch {
			case function == "enqueue_each":
				waits = true
				f.held = append(f.held, []string{"lock", "y", "42", "f", "le_y", args[1]})
				return [][]string{{"42", "f", "le_y"}}
			case function == "is_leader" && waits:
				return [][]string{{"42"}}
			}
			return nil
		})
		s := f.open()
		f.lock(s, "x")
		time.Sleep(fakeTTL / 2) // a renewal, and its sweep
		start := time.Now()
		h, err := s.Lock(t.Context(), "y")
		if err != nil || h.Token() != 42 {
			t.Fatal(err)
		}
		expect(t, "found after", time.Since(start), 0)
	})
}

// A notification that was dropped: the sweep finds the grant.
func TestUnitDroppedAnnouncement(t *testing.T) {
	for _, pooled := range []bool{false, true} {
		bubble(t, func(t *testing.T, f *fake) {
			f.pooled = pooled
			held := "f"
			f.table(func(function string, args []string) [][]string {
				switch function {
				case "enqueue_each":
					return [][]string{{"42", "f", "le_x"}}
				case "lease_holds":
					return [][]string{{"lock", "x", "42", held, "le_x", "whoever"}}
				}
				return nil
			})
			s := f.open()
			granted := make(chan time.Time)
			go func() {
				if _, err := s.Lock(t.Context(), "x"); err != nil {
					t.Error(err)
				}
				granted <- time.Now()
			}()
			time.Sleep(time.Second)
			f.change(func() { held = "t" })
			took := time.Until(<-granted).Abs() + time.Since(f.start) - time.Second
			most := 5 * time.Second
			if pooled {
				most = time.Second / 4
				expect(t, "LISTEN behind a pooler", len(f.sent("LISTEN")), 0)
			}
			if took > most {
				t.Fatalf("pooled %v: found after %v", pooled, took)
			}
		})
	}
}

// Where LISTEN is refused, the first time or later, the session looks four times a second on the same connection.
func TestUnitListenRefused(t *testing.T) {
	for _, deaf := range []string{"LISTEN le_self_", "LISTEN le_y"} {
		bubble(t, func(t *testing.T, f *fake) {
			f.deaf = deaf
			held, places := "f", [][]string{}
			f.table(func(function string, args []string) [][]string {
				switch function {
				case "enqueue_each":
					name := strings.Trim(args[0], `{"}`)
					places = append(places, []string{"lock", name, fmt.Sprint(40 + len(places)), "f", "le_" + name, args[1]})
					return [][]string{{places[len(places)-1][2], "f", "le_" + name}}
				case "lease_holds":
					rows := [][]string{}
					for _, place := range places {
						row := slices.Clone(place)
						row[3] = held
						rows = append(rows, row)
					}
					return rows
				}
				return nil
			})
			s := f.open()
			granted := make(chan time.Time, 2)
			for _, name := range []string{"x", "y"} {
				go func() {
					s.Lock(t.Context(), name)
					granted <- time.Now()
				}()
				time.Sleep(time.Second)
			}
			expect(t, "refused", len(f.sent("LISTEN")) > 0 && strings.Contains(strings.Join(f.sent("LISTEN"), ""), deaf), true)
			looks, listens := len(f.sent("lease_holds")), len(f.sent("LISTEN"))
			time.Sleep(time.Second)
			if looks = len(f.sent("lease_holds")) - looks; looks < 3 || looks > 5 {
				t.Fatalf("%d looks in a second", looks)
			}
			expect(t, "LISTEN again", len(f.sent("LISTEN")), listens)
			f.change(func() { held = "t" })
			start := time.Now()
			for range 2 {
				if took := (<-granted).Sub(start); took > time.Second/4 {
					t.Fatalf("found after %v", took)
				}
			}
			expect(t, "connections", len(f.conns), 1)
		})
	}
}

func TestUnitLongName(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.table(func(string, []string) [][]string { return nil })
		f.open(WithName(strings.Repeat("x", 199) + "é and more"))
		owner, _, _ := strings.Cut(strings.TrimPrefix(f.sent("grant_lease")[0], "grant_lease 10000 ms "), "#")
		expect(t, "owner", owner, strings.Repeat("x", 199))
	})
}

func TestUnitGhost(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var owner string
		var ghosts [][]string
		f.table(func(function string, args []string) [][]string {
			switch function {
			case "try_acquire_each":
				owner = args[1]
				return [][]string{{"40"}}
			case "lease_holds":
				return append([][]string{{"lock", "x", "40", "t", "le_x", owner}}, ghosts...)
			}
			return nil
		})
		s := f.open()
		h := f.lock(s, "x")
		f.change(func() {
			session, _, _ := strings.Cut(owner, "-")
			ghosts = [][]string{
				{"lock", "y", "41", "t", "le_y", session + "-999"}, {"election", "e", "42", "f", "le_e", session + "-998"},
				{"lock", "z", "43", "t", "le_z", "of the application"}, {"lock", "u", "44", "t", "le_u", ""},
			}
		})
		time.Sleep(fakeTTL / 2) // a renewal, and its sweep
		synctest.Wait()
		f.mu.Lock()
		given := slices.DeleteFunc(slices.Clone(f.log), func(entry string) bool {
			return !strings.HasPrefix(entry, "release") && !strings.HasPrefix(entry, "resign")
		})
		f.mu.Unlock()
		slices.Sort(given)
		given = slices.Compact(given)
		expect(t, "given back", strings.Join(given, ", "), `release_each {"y"} {"41"}, resign e 42`)
		expect(t, "valid", h.Valid(), true)
	})
}

// The answer to a request is lost with its connection. The old backend is ended first; then it is seen what came of it.
func TestUnitLostAnswer(t *testing.T) {
	for _, took := range []bool{true, false} {
		bubble(t, func(t *testing.T, f *fake) {
			var owner string
			terminated := 0
			f.table(func(function string, args []string) [][]string {
				switch {
				case function == "terminate":
					terminated++
					if terminated == 1 {
						return [][]string{{"f"}} // not in time
					}
				case function == "lease_holds" && owner != "" && took:
					return [][]string{{"lock", "x", "50", "t", "le_x", owner}}
				}
				return nil
			})
			plain := f.answer
			f.answer = func(function string, args []string) [][]string {
				if function == "try_acquire_each" && owner == "" {
					owner = args[1]
					return nil
				}
				if function == "try_acquire_each" {
					return [][]string{{"51"}}
				}
				return plain(function, args)
			}
			s := f.open()
			h := f.lock(s, "x")
			want, asked := int64(50), 1
			if !took {
				want, asked = 51, 2
			}
			expect(t, "token", h.Token(), want)
			expect(t, "asked", len(f.sent("try_acquire_each")), asked)
			expect(t, "terminated", strings.Join(f.sent("terminate"), ", "),
				"terminate 101 start 101 1250, terminate 101 start 101 1250")
		})
	}
}

// The caller leaves while its request is on the way: the grant is given back.
func TestUnitCanceledAtTheGrant(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.table(func(function string, args []string) [][]string {
			if function == "enqueue_each" {
				time.Sleep(time.Second)
				return [][]string{{"60", "t", "le_x"}}
			}
			return nil
		})
		s := f.open()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		h, err := s.Lock(ctx, "x")
		if h != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v, %v", h, err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		expect(t, "given back", strings.Join(f.sent("release"), ", "), `release_each {"x"} {"60"}`)
	})
}

// What waits together travels together; an error of one statement for many is told to the one that it is of.
func TestUnitTogether(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.table(func(function string, args []string) [][]string {
			if function != "try_acquire_each" {
				return nil
			}
			time.Sleep(100 * time.Millisecond)
			if strings.Contains(args[0], "bad") {
				return [][]string{{"!53400"}}
			}
			var answer [][]string
			for range strings.Split(args[0], ",") {
				answer = append(answer, []string{fmt.Sprint(100 + len(f.sent("try")))})
			}
			return answer
		})
		s := f.open()
		errs := make([]error, 4)
		var group sync.WaitGroup
		for i, name := range []string{"first", "a", "bad", "b"} {
			group.Go(func() { _, errs[i] = s.TryLock(t.Context(), name, WithTTL(fakeTTL)) })
			synctest.Wait()
		}
		group.Wait()
		expect(t, "statements", len(f.sent("try_acquire_each")), 5)
		for i, err := range errs {
			expect(t, fmt.Sprint("limit of number ", i), errors.Is(err, ErrLimit), i == 2)
		}
	})
}

func TestUnitStandby(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.table(func(function string, args []string) [][]string {
			if function == "try_acquire_each" && len(f.conns) == 1 {
				return [][]string{{"!25006"}}
			} else if function == "try_acquire_each" {
				return [][]string{{"70"}}
			}
			return nil
		})
		s := f.open()
		expect(t, "token", f.lock(s, "x").Token(), 70)
		expect(t, "connections", len(f.conns), 2)
	})
}
