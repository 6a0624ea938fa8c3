// Replaces the locks of client-go's own tests: changes that those tests make through their fake of Kubernetes are written
// to the lock on PostgreSQL, which then gives the elector its results. TestClientGo adds this file to those tests.
package leaderelection

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"k8s.io/apimachinery/pkg/api/errors"
	rl "k8s.io/client-go/tools/leaderelection/resourcelock"

	le "lock-election.invalid/lockelection/leaderelection"
)

type mirror struct {
	rl.Interface // of the fake
	t            *testing.T
	pool         *pgxpool.Pool
	ours         *le.Lock
	rival        *le.Lock
}

func mirrored(t *testing.T, fake rl.Interface) rl.Interface {
	pool, err := pgxpool.New(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	key := fmt.Sprint(t.Name(), " ", time.Now().UnixNano())
	return &mirror{fake, t, pool, le.New(pool, key, rl.ResourceLockConfig{Identity: fake.Identity()}),
		le.New(pool, key, rl.ResourceLockConfig{})}
}

func mirroredNew(t *testing.T) func(rl.Interface, error) (rl.Interface, error) {
	return func(fake rl.Interface, err error) (rl.Interface, error) { return mirrored(t, fake), err }
}

// write makes a change by another candidate.
func (m *mirror) write(record *rl.LeaderElectionRecord) {
	_, _, err := m.rival.Get(context.Background())
	if errors.IsNotFound(err) {
		err = m.rival.Create(context.Background(), *record)
	} else if err == nil {
		err = m.rival.Update(context.Background(), *record)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *mirror) Get(ctx context.Context) (*rl.LeaderElectionRecord, []byte, error) {
	told, raw, err := m.Interface.Get(ctx)
	if err == nil {
		there, _, _ := m.ours.Get(context.WithoutCancel(ctx))
		if now, _ := json.Marshal(there); !bytes.Equal(raw, now) {
			m.write(told)
		}
	}
	record, raw, ourErr := m.ours.Get(context.WithoutCancel(ctx))
	if errors.IsNotFound(err) != errors.IsNotFound(ourErr) {
		m.t.Errorf("get: %v, and of the fake: %v", ourErr, err)
	}
	if i := bytes.LastIndexByte(raw, '#'); i >= 0 {
		raw = raw[:i] // the tests compare it with a record
	}
	if err != nil && ourErr == nil {
		return nil, nil, err
	}
	return record, raw, ourErr
}

func (m *mirror) Create(ctx context.Context, record rl.LeaderElectionRecord) error {
	if err := m.Interface.Create(ctx, record); err != nil {
		return err
	}
	return m.ours.Create(context.WithoutCancel(ctx), record)
}

func (m *mirror) Update(ctx context.Context, record rl.LeaderElectionRecord) error {
	err := m.Interface.Update(ctx, record)
	if errors.IsConflict(err) {
		m.write(&rl.LeaderElectionRecord{HolderIdentity: "rival"})
	} else if err != nil {
		return err
	}
	ourErr := m.ours.Update(context.WithoutCancel(ctx), record)
	if errors.IsConflict(err) != errors.IsConflict(ourErr) {
		m.t.Errorf("update: %v, and of the fake: %v", ourErr, err)
	}
	return ourErr
}
