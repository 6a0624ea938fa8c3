// Command gorm adds each number that it reads to a balance. It cannot commit a write after its lock is lost.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"lock-election.invalid/lockelection"
)

// Balance is a row of table balance.
type Balance struct {
	ID     int
	Amount int
}

// TableName is singular.
func (Balance) TableName() string { return "balance" }

func main() {
	ctx := context.Background()
	pool := must(pgxpool.New(ctx, "")) // uses PGHOST, ...
	s := must(lockelection.NewSession(ctx, pool, lockelection.WithTTL(time.Minute)))
	defer s.Close(ctx)
	h := must(s.Lock(ctx, os.Args[1]))
	db := must(gorm.Open(postgres.Open(""), &gorm.Config{}))
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		err := db.Transaction(func(tx *gorm.DB) error {
			if err := h.Fence(ctx, tx.Statement.ConnPool); err != nil { // ErrLost if the lock is lost
				return err
			}
			return tx.Model(&Balance{ID: 1}).Update("amount", gorm.Expr("amount + ?::int", lines.Text())).Error
		})
		fmt.Println("added:", err)
	}
}

func must[T any](answer T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return answer
}
