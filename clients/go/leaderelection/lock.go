// Package leaderelection lets controllers elect their leader on PostgreSQL. It is a lock for client-go's
// leaderelection that uses compare_and_set of lock_election. Controllers in several Kubernetes clusters, or in none, can
// share one election.
//
// client-go uses the clocks of the candidates, and a leader that was stopped may write late. To exclude that, use
// [lock-election.invalid/lockelection.Election], whose terms can be fenced.
package leaderelection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// DB is a *pgxpool.Pool that is connected to a primary.
type DB interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Lock is a resourcelock.Interface. It stores the election record as the value of a key; each change of the record gets a
// new version.
type Lock struct {
	db     DB
	key    string
	config resourcelock.ResourceLockConfig

	mu      sync.Mutex
	read    string // the statements, with the extension's schema
	set     string
	version int64 // last version seen; 0 if the key does not exist
	exists  bool
}

var _ resourcelock.Interface = (*Lock)(nil)

// New does not connect. The key has 1 to 255 bytes of UTF-8, and belongs to the role that uses it first. Invalid arguments
// are reported by the calls.
func New(db DB, key string, config resourcelock.ResourceLockConfig) *Lock {
	return &Lock{db: db, key: key, config: config}
}

var resource = schema.GroupResource{Group: "lock_election", Resource: "keys"}

// check rejects texts in which invalid characters would be replaced, because two identities must not become the same.
func (l *Lock) check(ctx context.Context) error {
	for what, text := range map[string]string{"key": l.key, "identity": l.config.Identity} {
		if !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0 {
			return fmt.Errorf("the %s %.100q is not valid UTF-8 without a zero byte", what, text)
		}
	}
	switch db := reflect.ValueOf(l.db); {
	case ctx == nil:
		return errors.New("the context is nil: pass context.Background() for a call without a limit")
	case l.key == "" || len(l.key) > 255:
		return fmt.Errorf("the key has %d bytes: it has 1 to 255", len(l.key))
	case !db.IsValid() || db.Kind() == reflect.Pointer && db.IsNil():
		return errors.New("the database is nil: it is a *pgxpool.Pool")
	}
	return nil
}

// query returns one row. It finds the extension's schema again if that was renamed.
func (l *Lock) query(ctx context.Context, sql *string, args []any, into ...any) error {
	err := l.check(ctx)
	for attempt := range 2 {
		if err == nil {
			err = l.prepare(ctx)
		}
		if err == nil {
			err = l.db.QueryRow(ctx, *sql, args...).Scan(into...)
		}
		var server *pgconn.PgError
		if attempt > 0 || !errors.As(err, &server) || server.Code != "3F000" && server.Code != "42883" {
			break
		}
		l.read, err = "", nil
	}
	return err
}

// prepare finds the extension, independently of the search_path.
func (l *Lock) prepare(ctx context.Context) error {
	if l.read != "" {
		return nil
	}
	var database string
	var in *string
	err := l.db.QueryRow(ctx, "SELECT pg_catalog.current_database(), (SELECT pg_catalog.quote_ident(n.nspname)"+
		" FROM pg_catalog.pg_namespace n WHERE n.oid = COALESCE((SELECT e.extnamespace FROM pg_catalog.pg_extension e"+
		" WHERE e.extname = 'lock_election'), (SELECT p.pronamespace FROM pg_catalog.pg_proc p"+
		" JOIN pg_catalog.pg_namespace i ON i.nspname = '_lock_election' AND i.nspowner = p.proowner"+
		" WHERE p.proname = 'lease_holds' LIMIT 1)))").Scan(&database, &in)
	if err == nil && in == nil {
		err = fmt.Errorf("lock_election is not installed in database %q"+
			" (CREATE EXTENSION lock_election, or lockctl install for the portable edition)", database)
	}
	if err == nil {
		l.read = fmt.Sprintf("SELECT value, version FROM %s.read_versioned($1)", *in)
		l.set = fmt.Sprintf("SELECT %s.compare_and_set($1, $2, $3)", *in)
	}
	return err
}

// Get returns a NotFound error while there is no record. The raw record differs after every change, even if two changes
// happen within the same second: the times in a record have a resolution of one second.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var value *string
	var version int64
	if err := l.query(ctx, &l.read, []any{l.key}, &value, &version); err != nil {
		return nil, nil, err
	}
	l.version, l.exists = version, value != nil
	if !l.exists {
		return nil, nil, apierrors.NewNotFound(resource, l.key)
	}
	record := &resourcelock.LeaderElectionRecord{}
	if err := json.Unmarshal([]byte(*value), record); err != nil {
		return nil, nil, fmt.Errorf("the value of key %q is no record of an election: %w", l.key, err)
	}
	return record, fmt.Appendf(nil, "%s#%d", *value, version), nil
}

// Create returns AlreadyExists if another candidate has created the record.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.exists {
		return apierrors.NewAlreadyExists(resource, l.key)
	}
	return l.write(ctx, record, apierrors.NewAlreadyExists(resource, l.key))
}

// Update returns Conflict if the record has changed since it was read.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.exists {
		return errors.New("there is no record: call Get or Create first")
	}
	return l.write(ctx, record, apierrors.NewConflict(resource, l.key, errors.New("the record was changed")))
}

func (l *Lock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, conflict error) error {
	if !utf8.ValidString(record.HolderIdentity) {
		return fmt.Errorf("the identity %.100q is not valid UTF-8", record.HolderIdentity)
	}
	value, err := json.Marshal(record)
	if err != nil {
		return err
	}
	var version *int64
	if err := l.query(ctx, &l.set, []any{l.key, l.version, string(value)}, &version); err != nil {
		return err
	}
	if version == nil {
		return conflict
	}
	l.version, l.exists = *version, true
	return nil
}

// RecordEvent passes the event to the configured recorder, if there is one.
func (l *Lock) RecordEvent(event string) {
	if l.config.EventRecorder != nil {
		subject := &corev1.ObjectReference{Kind: "Key", APIVersion: "lock_election/v1", Name: l.key}
		l.config.EventRecorder.Eventf(subject, corev1.EventTypeNormal, "LeaderElection", "%s %s", l.config.Identity, event)
	}
}

// Identity returns the configured identity.
func (l *Lock) Identity() string { return l.config.Identity }

// Describe returns the key.
func (l *Lock) Describe() string { return l.key }
