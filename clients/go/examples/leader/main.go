// Command leader runs on every machine. One of them leads; if it dies, hangs or stops, another one takes over.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"lock-election.invalid/lockelection"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool := must(pgxpool.New(ctx, ""))
	s := must(lockelection.NewSession(ctx, pool, lockelection.WithTTL(3*time.Second)))
	defer s.Close(context.Background())
	log.Print(s.Election("scheduler").Run(ctx, os.Args[1], func(ctx context.Context, term *lockelection.Hold) {
		for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) { // a step of the leader's work
			pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO steps VALUES ($1)", term.Token())
				return firstOf(term.Fence(ctx, tx), err)
			})
		}
	}))
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func must[T any](answer T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return answer
}
