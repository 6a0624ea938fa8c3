// Command sqlx adds each number that it reads to a balance. It cannot commit a write after its lock is lost.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"

	"lock-election.invalid/lockelection"
)

func main() {
	ctx := context.Background()
	pool := must(pgxpool.New(ctx, "")) // uses PGHOST, ...
	s := must(lockelection.NewSession(ctx, pool, lockelection.WithTTL(time.Minute)))
	defer s.Close(ctx)
	h := must(s.Lock(ctx, os.Args[1]))
	db := must(sqlx.Connect("pgx", ""))
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println("added:", add(ctx, db, h, lines.Text()))
	}
}

func add(ctx context.Context, db *sqlx.DB, h *lockelection.Hold, amount string) error {
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := h.Fence(ctx, tx); err != nil { // ErrLost if the lock is lost
		return err
	}
	args := map[string]any{"amount": amount}
	if _, err := tx.NamedExecContext(ctx, "UPDATE balance SET amount = amount + CAST(:amount AS int)", args); err != nil {
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
