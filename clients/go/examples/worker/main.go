// Command worker does the jobs of a table until none is open. Each job is done once, even if a worker dies or hangs.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"lock-election.invalid/lockelection"
)

func main() {
	ctx, pool := context.Background(), must(pgxpool.New(context.Background(), ""))
	s := must(lockelection.NewSession(ctx, pool, lockelection.WithTTL(2*time.Second)))
	defer s.Close(ctx)
	for open := 1; open > 0; must(0, pool.QueryRow(ctx, "SELECT count(*) FROM job WHERE done = 0").Scan(&open)) {
		rows := must(pool.Query(ctx, "SELECT 'job ' || id FROM job WHERE done = 0 ORDER BY random() LIMIT 10"))
		for _, h := range must(s.TryLockEach(ctx, must(pgx.CollectRows(rows, pgx.RowTo[string])))) {
			if h != nil { // nil: another worker holds it
				must(0, work(ctx, pool, h))
				h.Unlock(ctx)
			}
		}
	}
}

// work does a job, unless another worker did it before the lock was acquired.
func work(ctx context.Context, pool *pgxpool.Pool, h *lockelection.Hold) error {
	var id int
	fmt.Sscanf(h.Names()[0], "job %d", &id)
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := h.Fence(ctx, tx); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
		_, err := tx.Exec(ctx, "UPDATE job SET done = done + 1, at = now() WHERE id = $1 AND done = 0", id)
		return err
	})
}

func must[T any](answer T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return answer
}
