package lockelection

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

// fake is a server without a database: it answers what a test says, by the clock of the test's bubble.
type fake struct {
	t        *testing.T
	mu       sync.Mutex
	log      []string // statements that came: their function with its arguments; of lease_sync its items
	waits    []string // the last argument of each call of lease_sync
	parsed   int      // how many statements were prepared, or sent unprepared
	pooled   bool
	schema   string        // what calls another one is refused; "": there is none
	deaf     string        // what has this in it is refused, such as LISTEN
	skew     time.Duration // by which the session's clock is ahead of the timers, as after a suspend
	start    time.Time
	conns    []net.Conn
	validity string // milliseconds that a call gives
	channel  string
	held     map[string]fakeItem // by token: what hangs on the lease
	news     [][]string          // for the next reply
	tokens   int
	// answer to a statement, or nil for the usual one. A string for each column; "" is NULL. "!CODE" in a single one: an
	// error. No rows: hangs up. A call of lease_sync has a fakeCall.
	answer func(function string, args []string, call *fakeCall) [][]string
}

// fakeItem is an item of a call, and later what hangs on the lease.
type fakeItem struct{ number, action, name, token, owner, value string }

type fakeCall struct {
	number, incarnation, news string
	items                     []fakeItem
}

// has tells whether an item begins so.
func (c *fakeCall) has(action string) bool {
	for _, i := range c.items {
		if strings.HasPrefix(i.action+" "+i.name, action) {
			return true
		}
	}
	return false
}

const (
	fakeTTL    = 10 * time.Second
	fakeMargin = fakeTTL / 20
	fakeSafe   = fakeTTL - fakeMargin
)

func newFake(t *testing.T) *fake {
	return &fake{t: t, start: time.Now(), schema: `"le"`, validity: "10000", channel: "le_x", held: map[string]fakeItem{},
		tokens: 20, answer: func(string, []string, *fakeCall) [][]string { return nil }}
}

func bubble(t *testing.T, test func(t *testing.T, f *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newFake(t)) })
}

// when changes what the server says.
func (f *fake) when(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// reacts sets what it answers, from now on.
func (f *fake) reacts(answer func(function string, args []string, call *fakeCall) [][]string) {
	f.when(func() { f.answer = answer })
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
	statements, sql, args := map[string]string{}, "", []string{}
	for {
		message, err := b.Receive()
		if err != nil {
			return
		}
		switch m := message.(type) {
		case *pgproto3.Parse:
			statements[m.Name] = m.Query
			f.when(func() { f.parsed++ })
			b.Send(&pgproto3.ParseComplete{})
		case *pgproto3.Bind:
			sql, args = statements[m.PreparedStatement], nil
			for _, p := range m.Parameters {
				args = append(args, string(p))
			}
			b.Send(&pgproto3.BindComplete{})
		case *pgproto3.Query:
			f.note(m.String)
			if f.deaf != "" && strings.Contains(m.String, f.deaf) {
				b.Send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: "0A000", Message: "fake"})
			} else {
				if _, channel, ok := strings.Cut(m.String, "NOTIFY "); ok {
					b.Send(&pgproto3.NotificationResponse{Channel: channel})
				}
				b.Send(&pgproto3.CommandComplete{CommandTag: []byte("LISTEN")})
			}
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			b.Flush()
		case *pgproto3.Sync:
			if !f.reply(b, sql, args, pid) {
				return
			}
		}
	}
}

func (f *fake) note(what string) { f.when(func() { f.log = append(f.log, what) }) }

var ourFunction = regexp.MustCompile(`("le\d*")\.(\w+)\(`)

func (f *fake) reply(b *pgproto3.Backend, sql string, args []string, pid int) bool {
	var table [][]string
	f.mu.Lock()
	schema := f.schema
	f.mu.Unlock()
	if found := ourFunction.FindStringSubmatch(sql); found == nil {
		table = [][]string{{schema, "f", fmt.Sprint(pid)}}
	} else if found[1] != schema {
		f.note("refused " + found[2])
		table = [][]string{{"!3F000"}}
	} else if table = f.table(found[2], args); len(table) == 0 {
		return false
	}
	if len(table) == 1 && strings.HasPrefix(table[0][0], "!") {
		b.Send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: table[0][0][1:], Message: "fake"})
	} else {
		b.Send(&pgproto3.RowDescription{Fields: make([]pgproto3.FieldDescription, len(table[0]))})
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

// elements of a binary array of texts.
func elements(array string) (texts []string) {
	for at := 20; at < len(array); {
		n := int(int32(binary.BigEndian.Uint32([]byte(array[at : at+4]))))
		at += 4
		texts = append(texts, array[at:at+max(n, 0)])
		at += max(n, 0)
	}
	return texts
}

// table answers a statement.
func (f *fake) table(function string, args []string) [][]string {
	var call *fakeCall
	what := function + " " + strings.Join(args, " ")
	if function == "lease_sync" {
		call = &fakeCall{number: args[1], incarnation: args[2], news: args[3]}
		texts := elements(args[4])
		what = "sync"
		for ; len(texts) > 0; texts = texts[6:] {
			i := fakeItem{texts[0], texts[1], texts[2], texts[3], texts[4], texts[5]}
			call.items = append(call.items, i)
			what += strings.TrimRight(" | "+strings.Join([]string{i.action, i.name, i.token, i.value}, " "), " ")
		}
		f.when(func() { f.waits = append(f.waits, args[5]) })
	}
	f.note(what)
	f.mu.Lock()
	react := f.answer
	f.mu.Unlock()
	if answer := react(function, args, call); answer != nil {
		return answer
	}
	switch function {
	case "lease_sync":
		return f.sync(call)
	case "grant_lease":
		return [][]string{{"7"}}
	}
	return [][]string{{"t"}}
}

// sync is the usual reply to a call: everything is free.
func (f *fake) sync(call *fakeCall) [][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	complete := "f"
	if call.incarnation == "" {
		complete = "t"
	}
	rows := [][]string{f.lease(complete)}
	for n, i := range call.items {
		event, token := "granted", ""
		switch i.action {
		case "release", "resign":
			event = "not_held"
			if h := f.held[i.token]; h.name == i.name {
				event = "released"
				delete(f.held, i.token)
			}
		case "proclaim":
			event = "proclaimed"
		default:
			if n > 0 && call.items[n-1].number == i.number {
				continue
			}
			f.tokens++
			token = fmt.Sprint(f.tokens)
			f.held[token] = i
		}
		rows = append(rows, f.row(i.number, event, i.name, token, i.owner))
	}
	if complete == "t" {
		for token, h := range f.held {
			rows = append(rows, f.row("", "granted", h.name, token, h.owner))
		}
	}
	rows = append(rows, f.news...)
	f.news = nil
	return rows
}

func (f *fake) lease(complete string) []string {
	row := make([]string, 16)
	row[colEvent], row[colValidity], row[colIncarnation], row[colNews] = "lease", f.validity, "1", "1"
	row[colComplete], row[colChannel] = complete, f.channel
	return row
}

// row is one of an item, or of news; of a loss the owner is the reason, of an error the SQLSTATE.
func (f *fake) row(item, event, name, token, owner string) []string {
	row := make([]string, 16)
	row[colItem], row[colEvent], row[colKind], row[colName], row[colToken] = item, event, "lock", name, token
	switch event {
	case "error":
		row[colState] = owner
	case "lost":
		row[colReason] = owner
	default:
		row[colOwner] = owner
	}
	return row
}

// tell puts news into the next reply.
func (f *fake) tell(event, name, token, owner string) {
	f.when(func() { f.news = append(f.news, f.row("", event, name, token, owner)) })
}

func (f *fake) notify(channel string) {
	message, err := (&pgproto3.NotificationResponse{PID: 7, Channel: channel}).Encode(nil)
	if err == nil {
		_, err = f.conns[len(f.conns)-1].Write(message)
	}
	if err != nil {
		f.t.Error(err)
	}
}

// sent are the statements so far that begin so; of calls of lease_sync those that have such an item.
func (f *fake) sent(prefix string) (found []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, entry := range f.log {
		if strings.HasPrefix(entry, prefix) {
			found = append(found, entry)
		} else if at := strings.Index(entry, " | "+prefix); at >= 0 && strings.HasPrefix(entry, "sync") {
			found = append(found, entry)
		}
	}
	return found
}

// renewals are the calls without items.
func (f *fake) renewals() (n int) {
	for _, entry := range f.sent("sync") {
		if entry == "sync" {
			n++
		}
	}
	return n
}

// next waits for the next statement that begins so.
func (f *fake) next(prefix string) {
	for n := len(f.sent(prefix)); len(f.sent(prefix)) == n; {
		time.Sleep(time.Millisecond) // of the bubble
	}
	synctest.Wait()
}

func (f *fake) lock(s *Session, name string) *Hold {
	f.t.Helper()
	h, err := s.TryLock(f.t.Context(), name)
	if err != nil {
		f.t.Fatal(err)
	}
	return h
}

// queued answers that all who enqueue wait, and returns their places.
func (f *fake) queued(call *fakeCall) [][]string {
	rows := f.sync(call)
	for _, row := range rows {
		if row[colItem] != "" && row[colEvent] == "granted" {
			row[colEvent] = "queued"
		}
	}
	return rows
}

func expect[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %v, expected %v", what, got, want)
	}
}
