package lockelection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// wire is a connection of the session's. It belongs to the session's goroutine, but for wake and cut.
type wire struct {
	conn                     *pgconn.PgConn
	heard                    []*pgconn.Notification
	schema                   string // of the extension, quoted; empty: it is not there
	pid                      string // of the backend, with the time of its start
	start                    string
	pooled                   bool // the server has another process id than we were told
	announces, tested, hears bool // the server announces grants; LISTEN is being tested; it works
	listens                  map[string]bool

	mu            sync.Mutex
	idling, woken bool
}

// rows are texts; nil is NULL.
type rows [][][]byte

func number(text []byte) int64 {
	n, _ := strconv.ParseInt(string(text), 10, 64)
	return n
}

func itoa(n int64) string                          { return strconv.FormatInt(n, 10) }
func milliseconds(d time.Duration) string          { return itoa(d.Milliseconds()) + " ms" }
func qualify(sql, schema string) string            { return strings.ReplaceAll(sql, "%s", schema) }
func sooner(next *time.Duration, at time.Duration) { *next = min(*next, at) }

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// array is the text of an array.
func array(items []string) string {
	quoted := make([]string, len(items))
	for i, item := range items {
		quoted[i] = `"` + escape.Replace(item) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

// When a backend has started, in microseconds, whatever the style of dates is.
const startSQL = "(pg_catalog.date_part('epoch', a.backend_start) * 1000000)::bigint"

// What has to be known of a server, in one round trip.
const learnSQL = "SELECT pg_catalog.quote_ident(n.nspname), pg_catalog.pg_is_in_recovery()," +
	" pg_catalog.pg_backend_pid(), pg_catalog.current_setting('lock_election.notify', true)," +
	" (SELECT " + startSQL + " FROM pg_catalog.pg_stat_activity a WHERE a.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid())" +
	" FROM (VALUES (0)) AS v(v) LEFT JOIN (pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n" +
	" ON n.oid OPERATOR(pg_catalog.=) e.extnamespace AND e.extname OPERATOR(pg_catalog.=) 'lock_election') ON true"

var errNoCancel = errors.New("no cancel request: the next connection terminates the backend of this one")

// connect makes a connection to the first host that fits, each within a time. Unless the configuration says something
// else (target_session_attrs), that is one which is no standby; its transactions may be read-only.
func connect(ctx context.Context, config *pgx.ConnConfig, limit time.Duration) (*wire, error) {
	w, c := &wire{}, config.Config.Copy()
	if err := checkConfig(c); err != nil {
		return nil, err
	}
	c.RuntimeParams["client_encoding"] = "UTF8" // what is sent, whatever the role is set to
	if c.ConnectTimeout == 0 || c.ConnectTimeout > limit {
		c.ConnectTimeout = limit
	}
	c.OnNotice = nil
	c.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { w.heard = append(w.heard, n) }
	dial, validate, up := c.DialFunc, c.ValidateConnect, atomic.Bool{}
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if up.Load() {
			return nil, errNoCancel // pgconn would try for up to 15 s
		}
		return dial(ctx, network, address)
	}
	c.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		r := conn.ExecParams(ctx, learnSQL, nil, nil, nil, nil).Read()
		if r.Err != nil {
			return r.Err
		}
		row := r.Rows[0]
		w.schema, w.pid, w.start = string(row[0]), string(row[2]), string(row[4])
		w.pooled = w.pid != itoa(int64(conn.PID()))
		w.announces = !w.pooled && (string(row[3]) == "all" || string(row[3]) == "waiters")
		if validate != nil {
			return validate(ctx, conn)
		} else if string(row[1]) == "t" {
			return fmt.Errorf("%w: the server is a standby", ErrUnavailable)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(2+len(c.Fallbacks))*c.ConnectTimeout) // 1 for resolving names
	defer cancel()
	var err error
	w.conn, err = pgconn.ConnectConfig(ctx, c)
	up.Store(true)
	if err == nil && w.schema == "" {
		w.close()
		err = fmt.Errorf("%w in database %q (CREATE EXTENSION lock_election)", ErrNotInstalled, cmp.Or(c.Database, c.User))
	}
	return w, explain(withoutConfig(err))
}

// call runs a statement, in which %s is the schema. If that has another name now (ALTER SCHEMA .. RENAME), or the
// extension is another one, the statement had no effect, and is sent once more.
func (w *wire) call(limit time.Duration, sql string, args []string) (rows, error) {
	r, err := w.exec(limit, qualify(sql, w.schema), args)
	if noSuchFunction(err) {
		learned, failed := w.exec(limit, learnSQL, []string{})
		if failed == nil && learned[0][0] != nil {
			w.schema = string(learned[0][0])
			r, err = w.exec(limit, qualify(sql, w.schema), args)
		}
	}
	return r, err
}

// exec runs one statement; without arguments also several, and gives no rows. After an error that does not come from
// the server, or says that it goes away or is not ready, the connection is closed.
func (w *wire) exec(limit time.Duration, sql string, args []string) (rows, error) {
	w.conn.Conn().SetDeadline(time.Now().Add(limit))
	r := &pgconn.Result{}
	if args == nil {
		_, r.Err = w.conn.Exec(context.Background(), sql).ReadAll()
	} else {
		values := make([][]byte, len(args))
		for i, arg := range args {
			values[i] = []byte(arg)
		}
		r = w.conn.ExecParams(context.Background(), sql, values, nil, nil, nil).Read()
	}
	if r.Err != nil && endsConnection(sqlState(r.Err)) || w.conn.IsClosed() {
		w.close()
	}
	w.conn.Conn().SetDeadline(time.Time{})
	return r.Rows, r.Err
}

// idle waits for a notification, for wake, for the end of the connection or for the time.
func (w *wire) idle(limit time.Duration) error {
	w.mu.Lock()
	if w.idling = !w.woken && limit > 0; w.idling {
		w.conn.Conn().SetReadDeadline(time.Now().Add(limit))
	}
	idling := w.idling
	w.woken = false
	w.mu.Unlock()
	if !idling {
		return nil
	}
	err := w.conn.WaitForNotification(context.Background())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.idling, w.woken = false, false
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() && !w.conn.IsClosed() {
		err = nil
	} else if err != nil {
		w.close()
	}
	w.conn.Conn().SetReadDeadline(time.Time{})
	return err
}

func (w *wire) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.woken = true; w.idling {
		w.conn.Conn().SetReadDeadline(time.Unix(1, 0))
	}
}

func (w *wire) cut() { w.conn.Conn().Close() }

// close leaves no goroutine of pgconn's.
func (w *wire) close() {
	if !w.conn.IsClosed() {
		w.conn.Conn().SetDeadline(time.Now().Add(100 * time.Millisecond))
		w.conn.Close(context.Background())
	}
	w.cut()
	<-w.conn.CleanupDone()
}
