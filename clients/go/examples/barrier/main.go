// Command barrier is a member of a run that begins when all members have entered, and ends when all have left: barrier
// RUN MEMBERS MEMBER. Each line of its input is a step of the work. A member that dies leaves when its TTL expires.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"lock-election.invalid/lockelection"
)

// DoubleBarrier is the barrier of one run. The name of the run must never have been used before. A killed member can
// enter again.
type DoubleBarrier struct {
	Session          *lockelection.Session
	Pool             *pgxpool.Pool // for the session's database
	Run              string
	Members          int // number of members that must have entered before the run begins
	identity, member *lockelection.Hold
}

// Enter waits until enough members have entered. The returned context ends when the others may no longer wait for this
// member. After an error, close the session, because this member may have entered.
func (b *DoubleBarrier) Enter(ctx context.Context, name string) (member context.Context, err error) {
	b.identity, err = b.Session.Lock(ctx, b.Run+", member "+name) // waits for the TTL of a killed process
	if err != nil {
		return nil, err
	}
	b.member, err = b.Session.Lock(ctx, b.Run, lockelection.Shared())
	if err != nil {
		return nil, err
	}
	for member = b.member.Context(); !b.isOpen(ctx); {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-member.Done():
			return nil, context.Cause(member)
		case <-time.After(500 * time.Millisecond):
		}
	}
	return member, nil
}

// Leave leaves, and waits until all members have left.
func (b *DoubleBarrier) Leave(ctx context.Context) error {
	if err := errors.Join(b.member.Unlock(ctx), b.identity.Unlock(ctx)); err != nil {
		return err
	}
	last, err := b.Session.Lock(ctx, b.Run) // granted when nobody holds it
	if err != nil {
		return err
	}
	return last.Unlock(ctx)
}

func (b *DoubleBarrier) isOpen(ctx context.Context) (open bool) {
	_, err := b.Pool.Exec(ctx, `SELECT compare_and_set($1, 0, 'open') FROM lock_election.locks
		WHERE kind = 'lock' AND name = $1 HAVING count(slot) >= $2`, b.Run, b.Members)
	if err == nil {
		err = b.Pool.QueryRow(ctx, "SELECT version > 0 FROM read_versioned($1)", b.Run).Scan(&open)
	}
	if err != nil {
		log.Print(err) // the server may be unavailable: Enter tries again
	}
	return open && err == nil
}

func main() {
	ctx := context.Background()
	pool := must(pgxpool.New(ctx, ""))
	s := must(lockelection.NewSession(ctx, pool, lockelection.WithTTL(5*time.Second)))
	defer s.Close(ctx)
	b := DoubleBarrier{Session: s, Pool: pool, Run: os.Args[1], Members: must(strconv.Atoi(os.Args[2]))}
	member := must(b.Enter(ctx, os.Args[3]))
	fmt.Println("begins")
	for steps := bufio.NewScanner(os.Stdin); steps.Scan() && member.Err() == nil; {
		fmt.Println("did", steps.Text())
	}
	must(0, context.Cause(member))
	must(0, b.Leave(ctx))
	fmt.Println("left")
}

func must[T any](answer T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return answer
}
