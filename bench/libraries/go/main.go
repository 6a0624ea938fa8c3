// Measures one system in the benchmark of libraries: a number of workers acquire and release for some seconds.
//
//	libraries SYSTEM WORKERS own|hot SECONDS SERVER-PID
//
// Prints pairs/s, the median and the 99th percentile of the latency of an acquire, and the processor time for a pair of
// the client, and of the server with all its processes; all times in microseconds. Libpq's variables name PostgreSQL,
// REDIS_URL names Redis, and ETCD_ENDPOINT names etcd.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	lockelection "lock-election.invalid/lockelection"
)

const (
	ttl    = 10 * time.Second
	warmup = 500 * time.Millisecond
)

// acquire acquires a lock, and returns a function that releases it, even after the end of ctx, because the next system
// uses the same name.
type acquire func(ctx context.Context, name string) (func() error, error)

// atEnd is called after all workers have ended.
var atEnd = func() {}

// systems has a function for each system, which returns the acquire function of each worker. Workers share the same
// objects as in a typical program, such as a session or a pool.
var systems = map[string]func(ctx context.Context, workers int) func(worker int) acquire{
	"lock_election": func(ctx context.Context, _ int) func(int) acquire {
		config, err := pgx.ParseConfig("")
		check(err)
		s, err := lockelection.Open(ctx, config, lockelection.WithTTL(ttl))
		check(err)
		atEnd = func() { check(s.Close(context.Background())) } // also releases the places of waiting workers
		return func(int) acquire {
			return func(ctx context.Context, name string) (func() error, error) {
				h, err := s.Lock(ctx, name)
				if err != nil {
					return nil, err
				}
				return func() error { return h.Unlock(context.Background()) }, nil
			}
		}
	},
	"direct": func(ctx context.Context, workers int) func(int) acquire {
		pool := postgres(ctx, workers)
		return func(int) acquire {
			return func(ctx context.Context, name string) (func() error, error) {
				var token int64
				err := pool.QueryRow(ctx, "SELECT acquire_lock($1)", name).Scan(&token)
				return func() error {
					_, err := pool.Exec(context.Background(), "SELECT release_lock($1, $2)", name, token)
					return err
				}, err
			}
		}
	},
	"table": func(ctx context.Context, workers int) func(int) acquire {
		pool := postgres(ctx, workers)
		return func(worker int) acquire {
			owner := fmt.Sprintf("%d %d", os.Getpid(), worker)
			return func(ctx context.Context, name string) (func() error, error) {
				for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
					done, err := pool.Exec(ctx, "INSERT INTO table_lock AS l VALUES ($1, $2, now() + '10 s') ON CONFLICT (name) DO UPDATE"+
						" SET owner = excluded.owner, expires_at = excluded.expires_at WHERE l.expires_at < now()", name, owner)
					if err != nil {
						return nil, err
					} else if done.RowsAffected() == 1 {
						break
					}
					time.Sleep(pause)
				}
				return func() error {
					_, err := pool.Exec(context.Background(), "DELETE FROM table_lock WHERE name = $1 AND owner = $2", name, owner)
					return err
				}, nil
			}
		}
	},
	"redsync": func(_ context.Context, workers int) func(int) acquire {
		rs := redsync.New(goredis.NewPool(redisClient(workers)))
		return func(int) acquire {
			return func(ctx context.Context, name string) (func() error, error) {
				// the library's default pauses, 50 to 250 ms
				m := rs.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(1000000))
				return func() error { _, err := m.UnlockContext(context.Background()); return err }, m.LockContext(ctx)
			}
		}
	},
	"redislock": func(_ context.Context, workers int) func(int) acquire {
		client := redislock.New(redisClient(workers))
		return func(int) acquire {
			return func(ctx context.Context, name string) (func() error, error) {
				// as in the library's README, but without an end
				l, err := client.Obtain(ctx, name, ttl, &redislock.Options{RetryStrategy: redislock.ExponentialBackoff(time.Millisecond, 50*time.Millisecond)})
				if err != nil {
					return nil, err
				}
				return func() error { return l.Release(context.Background()) }, nil
			}
		}
	},
	// Each worker has its own session, because the holders of one session would share a lock.
	"etcd": func(context.Context, int) func(int) acquire {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Getenv("ETCD_ENDPOINT")}, Logger: zap.NewNop()})
		check(err)
		return func(int) acquire {
			session, err := concurrency.NewSession(client, concurrency.WithTTL(int(ttl/time.Second)))
			check(err)
			return func(ctx context.Context, name string) (func() error, error) {
				m := concurrency.NewMutex(session, "/"+name)
				return func() error { return m.Unlock(context.Background()) }, m.Lock(ctx)
			}
		}
	},
}

// postgres returns a pool with a connection for each worker.
func postgres(ctx context.Context, workers int) *pgxpool.Pool {
	config, err := pgxpool.ParseConfig("")
	check(err)
	config.MaxConns, config.MinConns = int32(workers), int32(workers)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	check(err)
	return pool
}

func redisClient(workers int) *redis.Client {
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	check(err)
	options.PoolSize, options.MinIdleConns = workers, workers
	return redis.NewClient(options)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// processorTime returns the processor time of a process and its children, in microseconds.
func processorTime(pid string) (total int64) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0 // it has ended
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, field := range fields[11:13] { // utime, stime: in hundredths of a second
		ticks, err := strconv.ParseInt(field, 10, 64)
		check(err)
		total += ticks * 10000
	}
	children, _ := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
	for _, child := range strings.Fields(string(children)) {
		total += processorTime(child)
	}
	return total
}

func ownTime() int64 {
	var u syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return (u.Utime.Nano() + u.Stime.Nano()) / 1000
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 6 || systems[os.Args[1]] == nil {
		log.Fatal("usage: libraries SYSTEM WORKERS own|hot SECONDS SERVER-PID")
	}
	workers, err := strconv.Atoi(os.Args[2])
	check(err)
	seconds, err := strconv.ParseFloat(os.Args[4], 64)
	check(err)
	ctx, cancel := context.WithCancel(context.Background())
	var counts, over atomic.Bool
	var all sync.WaitGroup
	times := make([][]int64, workers)
	worker := systems[os.Args[1]](ctx, workers)
	for w := range workers {
		name, call := "hot", worker(w)
		if os.Args[3] == "own" {
			name = fmt.Sprintf("own %d %d", os.Getpid(), w)
		}
		all.Go(func() {
			for !over.Load() {
				begin := time.Now()
				release, err := call(ctx, name)
				if err != nil && ctx.Err() != nil {
					return
				}
				check(err)
				took := time.Since(begin).Microseconds()
				check(release())
				if counts.Load() && !over.Load() {
					times[w] = append(times[w], took)
				}
			}
		})
	}
	time.Sleep(warmup)
	server, own, begin := processorTime(os.Args[5]), ownTime(), time.Now()
	counts.Store(true)
	time.Sleep(time.Duration(seconds * float64(time.Second)))
	over.Store(true)
	took := time.Since(begin)
	server, own = processorTime(os.Args[5])-server, ownTime()-own
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select { // wait for the workers, so that no lock stays held for the next system
	case <-done:
	case <-time.After(5 * time.Second):
	}
	cancel()
	atEnd()
	together := slices.Concat(times...)
	slices.Sort(together)
	n := len(together)
	if n == 0 { // other processes have held the lock all the time
		fmt.Println("0 0 0 0 0")
		return
	}
	fmt.Println(int(float64(n)/took.Seconds()), together[n/2], together[n*99/100], own/int64(n), server/int64(n))
}
