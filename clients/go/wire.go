package lockelection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// wire is a connection to the server. Only the goroutine that has set Session.busy uses it.
type wire struct {
	conn     *pgconn.PgConn
	schema   string // the extension's schema, quoted; empty = not installed
	plain    bool   // whether lease_sync is sent without a prepared statement
	prepared bool
	pooled   bool     // whether the session is behind a pooler: the backend's pid differs from that in BackendKeyData
	deaf     bool     // whether LISTEN does not work
	hears    bool     // whether LISTEN works: a notification has arrived
	heard    []string // channels of notifications that were not handled yet
	listens  map[string]bool
	tested   bool // whether the connection has sent a test notification to itself
}

// rows are the rows of a result, as texts; NULL is an empty text.
type rows [][]string

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func itoa(n int64) string                          { return strconv.FormatInt(n, 10) }
func milliseconds(d time.Duration) string          { return itoa(d.Milliseconds()) + " ms" }
func qualify(sql, schema string) string            { return strings.ReplaceAll(sql, "%s", schema) }
func sooner(next *time.Duration, at time.Duration) { *next = min(*next, at) }

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// array returns the items as an SQL array in text format.
func array(items []string) string {
	quoted := make([]string, len(items))
	for i, item := range items {
		quoted[i] = `"` + escape.Replace(item) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

func isTimeout(err error) bool {
	var failed net.Error
	return errors.As(err, &failed) && failed.Timeout()
}

// learnSQL is the first statement of a connection. %d is the process id from BackendKeyData. The portable edition
// works only in READ COMMITTED, so the statement makes that the default, unless a pooler shares the backend with other
// clients.
const learnSQL = "SELECT pg_catalog.quote_ident(n.nspname), pg_catalog.pg_is_in_recovery(), pg_catalog.pg_backend_pid()" +
	" FROM (VALUES (0)) AS v(v) LEFT JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) COALESCE(" +
	"(SELECT e.extnamespace FROM pg_catalog.pg_extension e WHERE e.extname OPERATOR(pg_catalog.=) 'lock_election')," +
	" (SELECT CASE WHEN pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) %d" +
	" AND pg_catalog.set_config('default_transaction_isolation', 'read committed', false) IS NOT NULL" +
	" AND pg_catalog.set_config('default_transaction_read_only', 'off', false) IS NULL THEN NULL ELSE p.pronamespace END" +
	" FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace i ON i.nspname OPERATOR(pg_catalog.=) '_lock_election'" +
	" AND i.nspowner OPERATOR(pg_catalog.=) p.proowner WHERE p.proname OPERATOR(pg_catalog.=) 'lease_holds' LIMIT 1))"

var errNoCancel = errors.New("no cancel request")

// connect connects to the first suitable host, with a time limit for each host. Without target_session_attrs in the
// configuration, every host that is not a standby is suitable, even if its transactions are read-only by default.
func connect(ctx context.Context, config *pgx.ConnConfig, limit time.Duration) (*wire, error) {
	w, c := &wire{}, config.Config.Copy()
	if err := checkConfig(c); err != nil {
		return nil, err
	}
	c.RuntimeParams["client_encoding"] = "UTF8" // overrides the role's setting
	if c.ConnectTimeout == 0 || c.ConnectTimeout > limit {
		c.ConnectTimeout = limit
	}
	c.OnNotice = nil
	c.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { w.heard = append(w.heard, n.Channel) }
	dial, validate, up := c.DialFunc, c.ValidateConnect, atomic.Bool{}
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if up.Load() {
			return nil, errNoCancel // otherwise pgconn would try to send a cancel request for up to 15 s
		}
		return dial(ctx, network, address)
	}
	c.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		r := conn.ExecParams(ctx, fmt.Sprintf(learnSQL, conn.PID()), nil, nil, nil, nil).Read()
		if r.Err != nil {
			return r.Err
		}
		w.schema = string(r.Rows[0][0])
		w.pooled = string(r.Rows[0][2]) != itoa(int64(conn.PID()))
		w.plain, w.deaf = w.pooled, w.pooled
		if validate != nil {
			return validate(ctx, conn)
		} else if string(r.Rows[0][1]) == "t" {
			return fmt.Errorf("%w: the server is a standby", ErrUnavailable)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(2+len(c.Fallbacks))*c.ConnectTimeout) // 1 for name resolution
	defer cancel()
	var err error
	w.conn, err = pgconn.ConnectConfig(ctx, c)
	up.Store(true)
	if err == nil && w.schema == "" {
		w.close()
		err = fmt.Errorf("%w in database %q (%s)", ErrNotInstalled, cmp.Or(c.Database, c.User), toInstall)
	}
	return w, explain(withoutConfig(err))
}

// --- lease_sync ---

const syncSQL = "SELECT item, event, kind, name, token, owner, reason, sqlstate, message, detail, hint," +
	" pg_catalog.floor(pg_catalog.date_part('epoch', validity) * 1000)::bigint, incarnation, news, complete, channel" +
	" FROM %s.lease_sync($1, $2, $3, $4, $5, $6)"

// Columns of syncSQL; colValidity is in milliseconds
const colItem, colEvent, colKind, colName, colToken, colOwner, colReason, colState = 0, 1, 2, 3, 4, 5, 6, 7
const colMessage, colDetail, colHint, colValidity, colIncarnation, colNews, colComplete, colChannel = 8, 9, 10, 11, 12, 13, 14, 15

var formats = []int16{0, 0, 0, 0, 1, 0} // formats of the parameters: 1 = binary, for the items

// sync sends the call of a turn and reads its reply.
func (w *wire) sync(t *turn) error {
	w.conn.Conn().SetDeadline(t.limit)
	f, name := w.conn.Frontend(), "lease_sync"
	if w.plain {
		name = ""
	}
	if w.plain || !w.prepared {
		f.SendParse(&pgproto3.Parse{Name: name, Query: qualify(syncSQL, w.schema)})
	}
	f.SendBind(&pgproto3.Bind{PreparedStatement: name, Parameters: t.args, ParameterFormatCodes: formats})
	f.SendExecute(&pgproto3.Execute{})
	f.SendSync(&pgproto3.Sync{})
	if err := f.Flush(); err != nil {
		return err
	}
	return w.read(t)
}

// read reads the reply to a turn's call, or the rest of it after a timeout.
func (w *wire) read(t *turn) error {
	for {
		message, err := w.conn.ReceiveMessage(context.Background())
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case *pgproto3.ParseComplete:
			w.prepared = true
		case *pgproto3.DataRow:
			t.rows = append(t.rows, texts(m.Values))
		case *pgproto3.ErrorResponse:
			t.err = pgconn.ErrorResponseToPgError(m)
		case *pgproto3.ReadyForQuery:
			if t.err == nil && len(t.rows) == 0 {
				t.err = errors.New("lease_sync has returned nothing")
			}
			return t.err
		}
	}
}

func texts(values [][]byte) []string {
	row := make([]string, len(values))
	for i, value := range values {
		row[i] = string(value)
	}
	return row
}

// --- other statements ---

// learn reads the extension's schema again, and reports whether the extension is installed.
func (w *wire) learn(limit time.Duration) bool {
	r, err := w.exec(limit, fmt.Sprintf(learnSQL, w.conn.PID()), []string{})
	if err == nil && r[0][0] != "" {
		w.schema, w.plain = r[0][0], true
	}
	return err == nil && r[0][0] != ""
}

// call runs a statement, in which %s stands for the schema. If the schema was renamed (ALTER SCHEMA .. RENAME) or the
// extension was created again, the statement had no effect and is sent once more.
func (w *wire) call(limit time.Duration, sql string, args []string) (rows, error) {
	r, err := w.exec(limit, qualify(sql, w.schema), args)
	if noSuchFunction(err) && w.learn(limit) {
		r, err = w.exec(limit, qualify(sql, w.schema), args)
	}
	return r, err
}

// exec runs a statement. If args is nil, sql may have several statements, and exec returns no rows. It closes the
// connection after an error that makes it useless, see check.
func (w *wire) exec(limit time.Duration, sql string, args []string) (r rows, err error) {
	w.conn.Conn().SetDeadline(time.Now().Add(limit))
	if args == nil {
		_, err = w.conn.Exec(context.Background(), sql).ReadAll()
	} else {
		values := make([][]byte, len(args))
		for i, arg := range args {
			values[i] = []byte(arg)
		}
		result := w.conn.ExecParams(context.Background(), sql, values, nil, nil, nil).Read()
		for _, row := range result.Rows {
			r = append(r, texts(row))
		}
		err = result.Err
	}
	w.check(err)
	return r, err
}

// check closes the connection if the error makes it useless, see endsConnection.
func (w *wire) check(err error) {
	if err != nil && endsConnection(sqlState(err)) || w.conn.IsClosed() {
		w.close()
	}
}

// interrupt makes the current or the next read return a timeout.
func (w *wire) interrupt() { w.conn.Conn().SetReadDeadline(time.Unix(1, 0)) }

func (w *wire) cut() { w.conn.Conn().Close() }

// close closes the connection, and waits until all goroutines of pgconn have ended.
func (w *wire) close() {
	if !w.conn.IsClosed() {
		w.conn.Conn().SetDeadline(time.Now().Add(100 * time.Millisecond))
		w.conn.Close(context.Background())
	}
	w.cut()
	<-w.conn.CleanupDone()
}
