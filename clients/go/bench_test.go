//go:build unix

package lockelection_test

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// cpu reports the processor time of this process for each pair, which a busy machine changes less than the time.
func cpu(b *testing.B) func() {
	used := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N)/1000, "cpu-µs/op") }
}

// BenchmarkPair is acquire and release: through a session, and with pgx alone. TTLs are the defaults.
func BenchmarkPair(b *testing.B) {
	pool := newPool(b)
	var number atomic.Int64
	next := func() string { return fmt.Sprint("bench ", number.Add(1)%10000) }
	b.Run("pgx", func(b *testing.B) {
		conn := must(pgx.Connect(b.Context(), ""))
		defer conn.Close(b.Context())
		defer cpu(b)()
		for b.Loop() {
			var token int64
			var released bool
			n := next()
			must(0, conn.QueryRow(b.Context(), "SELECT acquire_lock($1)", n).Scan(&token))
			must(0, conn.QueryRow(b.Context(), "SELECT release_lock($1, $2)", n, token).Scan(&released))
		}
	})
	b.Run("session", func(b *testing.B) {
		s := newSession(b, pool)
		defer cpu(b)()
		for b.Loop() {
			must(0, must(s.Lock(b.Context(), next())).Unlock(b.Context()))
		}
	})
	b.Run("session with 32 goroutines", func(b *testing.B) {
		s := newSession(b, pool)
		b.SetParallelism(16)
		defer cpu(b)()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				must(0, must(s.Lock(b.Context(), next())).Unlock(b.Context()))
			}
		})
	})
}
