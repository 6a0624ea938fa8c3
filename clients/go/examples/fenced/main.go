// Command fenced adds 1 to a balance that it has read before. Even if it is delayed, it never overwrites a newer value.
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
	s := must(lockelection.NewSession(ctx, pool, lockelection.WithTTL(time.Second)))
	defer s.Close(ctx)
	h := must(s.Lock(ctx, "wallet 7"))
	balance := 0
	must(0, pool.QueryRow(ctx, "SELECT balance FROM wallet WHERE id = 7").Scan(&balance))
	time.Sleep(50 * time.Millisecond) // long work, or a stopped process
	must(0, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := h.Fence(ctx, tx); err != nil { // the lock is lost: nothing is written
			return err
		}
		return tx.QueryRow(ctx, "UPDATE wallet SET balance = $1 WHERE id = 7 RETURNING 0", balance+1).Scan(new(int))
	}))
	fmt.Println("added")
}

func must[T any](answer T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return answer
}
