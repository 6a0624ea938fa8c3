//go:generate go tool ent generate --feature sql/execquery ./ent/schema
//go:build generated

// Command ent adds each number that it reads to a balance. It cannot commit a write after its lock is lost.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"lock-election.invalid/lockelection"
	"lock-election.invalid/lockelection/examples/orm/ent/ent"
)

func main() {
	ctx := context.Background()
	pool := must(pgxpool.New(ctx, "")) // uses PGHOST, ...
	s := must(lockelection.NewSession(ctx, pool, lockelection.WithTTL(time.Minute)))
	defer s.Close(ctx)
	h := must(s.Lock(ctx, os.Args[1]))
	client := ent.NewClient(ent.Driver(sql.OpenDB(dialect.Postgres, stdlib.OpenDBFromPool(pool))))
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println("added:", add(ctx, client, h, must(strconv.Atoi(lines.Text()))))
	}
}

func add(ctx context.Context, client *ent.Client, h *lockelection.Hold, amount int) error {
	tx, err := client.Tx(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := h.Fence(ctx, tx); err != nil { // ErrLost if the lock is lost
		return err
	}
	if err := tx.Balance.UpdateOneID(1).AddAmount(amount).Exec(ctx); err != nil {
		return err
	}
	return tx.Commit()
}

func must[T any](answer T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return answer
}
