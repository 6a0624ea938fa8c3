// Command minutely runs on every machine. Once per period, one of them does the job: minutely PERIOD.
package main

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"lock-election.invalid/lockelection"
)

func main() {
	ctx, every, pool := context.Background(), must(time.ParseDuration(os.Args[1])), must(pgxpool.New(context.Background(), ""))
	for ; ; time.Sleep(time.Second) { // after a lost session, opens a new one
		s, err := lockelection.NewSession(ctx, pool, lockelection.WithTTL(3*time.Second))
		for err == nil {
			var h *lockelection.Hold
			// The TTL is at least as long as the period, so that the name stays closed even if this process dies.
			if h, err = s.Lock(ctx, "minutely", lockelection.WithTTL(max(every, 3*time.Second))); err == nil {
				err = pgx.BeginFunc(h.Context(), pool, func(tx pgx.Tx) error { return job(ctx, h, tx) })
				h.Unlock(ctx, lockelection.HoldFor(every)) // the period counts from the grant
			}
		}
		if log.Print(err); s != nil {
			s.Close(ctx)
		}
	}
}

func job(ctx context.Context, h *lockelection.Hold, tx pgx.Tx) error {
	if err := h.Fence(ctx, tx); err != nil { // the lock is lost, because this process was stopped
		return err
	}
	_, err := tx.Exec(ctx, "INSERT INTO minutely VALUES (clock_timestamp())")
	return err
}

func must[T any](answer T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return answer
}
