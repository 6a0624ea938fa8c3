// etcd, by the package concurrency: one client and one session for each client of the benchmark. Workloads and protocol
// are those of harness.h. ETCD_ENDPOINT names the server.
package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"golang.org/x/sys/unix"
)

const (
	sessionTTL  = 60 // seconds
	heldTTL     = 3600
	leadTime    = 5 * time.Millisecond
	restTime    = 2 * time.Millisecond
	eachSize    = 100
	txnLimit    = 128 // operations in a transaction, etcd's default
	parallel    = 64  // goroutines that enter a queue, or acquire locks in fill, at the same time
	nanoseconds = int64(time.Second)
)

var (
	background   = context.Background()
	options      = map[string]string{}
	names        int64
	begins, ends int64
	releasedAt   int64
	releasedBy   int64 = -1
)

type client struct {
	number  int
	db      *v3.Client
	session *concurrency.Session
	random  *rand.Rand
	samples []int64
	all     int64
	own     int64
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}

// now returns the system's monotonic time in nanoseconds, so that its values can be compared between processes.
func now() int64 {
	var t unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_MONOTONIC, &t))
	return t.Nano()
}

func option(key string, unset float64) float64 {
	if text, ok := options[key]; ok {
		n, err := strconv.ParseFloat(text, 64)
		check(err)
		return n
	}
	return unset
}

func number(key string, unset int64) int64 {
	return int64(option(key, float64(unset)))
}

func connect() *v3.Client {
	db, err := v3.New(v3.Config{Endpoints: []string{os.Getenv("ETCD_ENDPOINT")}, DialTimeout: 10 * time.Second})
	check(err)
	return db
}

func newSession(db *v3.Client, ttl int64) *concurrency.Session {
	session, err := concurrency.NewSession(db, concurrency.WithTTL(int(ttl)))
	check(err)
	return session
}

func open(n int, ttl int64) *client {
	db := connect()
	return &client{number: n, db: db, session: newSession(db, ttl), random: rand.New(rand.NewSource(now() + int64(n)))}
}

func (c *client) done(at, latency int64) {
	c.all++
	if at >= begins && at < ends {
		c.samples = append(c.samples, latency)
	}
}

func (c *client) granted() {
	at := now()
	if by := atomic.LoadInt64(&releasedBy); by == int64(c.number) {
		c.own++
	} else if by >= 0 {
		c.done(at, at-atomic.LoadInt64(&releasedAt))
	}
}

func (c *client) giving() {
	atomic.StoreInt64(&releasedBy, int64(c.number))
	atomic.StoreInt64(&releasedAt, now())
}

// --- workloads that repeat an operation ---

func pair(c *client) {
	start := now()
	mutex := concurrency.NewMutex(c.session, fmt.Sprintf("k%d", c.random.Int63n(names)+1))
	check(mutex.Lock(background))
	check(mutex.Unlock(background))
	end := now()
	c.done(end, end-start)
}

// each acquires all names in one transaction, by a nested transaction for each name that puts the key if it does not
// exist, and deletes the acquired keys in a second transaction.
func each(c *client) {
	var tries, deletions []v3.Op
	var keys []string
	step := names / eachSize
	for i := int64(0); i < eachSize; i++ {
		key := fmt.Sprintf("k%d", i*step+c.random.Int63n(step)+1)
		keys = append(keys, key)
		tries = append(tries, v3.OpTxn([]v3.Cmp{v3.Compare(v3.CreateRevision(key), "=", 0)},
			[]v3.Op{v3.OpPut(key, "", v3.WithLease(c.session.Lease()))}, nil))
	}
	start := now()
	answer, err := c.db.Txn(background).Then(tries...).Commit()
	check(err)
	for i, key := range keys {
		if answer.Responses[i].GetResponseTxn().Succeeded {
			deletions = append(deletions, v3.OpDelete(key))
		}
	}
	_, err = c.db.Txn(background).Then(deletions...).Commit()
	check(err)
	end := now()
	for range deletions {
		c.done(end, end-start)
	}
}

func hot(c *client) {
	mutex := concurrency.NewMutex(c.session, "hot")
	check(mutex.Lock(background))
	c.granted()
	c.giving()
	check(mutex.Unlock(background))
}

func lead(c *client) {
	election := concurrency.NewElection(c.session, "resign")
	check(election.Campaign(background, "bench"))
	c.granted()
	time.Sleep(leadTime)
	c.giving()
	check(election.Resign(background))
	time.Sleep(restTime)
}

// tryOnce reads the first key, which is the cheapest correct attempt: the package's TryLock writes and deletes a key.
func tryOnce(c *client) {
	start := now()
	owner, err := c.db.Get(background, "held/", v3.WithFirstCreate()...)
	check(err)
	if len(owner.Kvs) == 0 {
		check(fmt.Errorf("nobody holds what somebody holds"))
	}
	end := now()
	c.done(end, end-start)
}

func renew(c *client) {
	start := now()
	_, err := c.db.KeepAliveOnce(background, c.session.Lease())
	check(err)
	end := now()
	c.done(end, end-start)
}

func percentile(samples []int64, p float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	return float64(samples[int(p*float64(len(samples)-1)+0.5)]) / 1000
}

func printFigures(samples []int64, all int64, seconds float64, extra string) {
	sort.Slice(samples, func(i, j int) bool { return samples[i] < samples[j] })
	fmt.Printf("ops=%d all=%d rate=%.1f p50=%.1f p90=%.1f p99=%.1f max=%.1f%s\n", len(samples), all,
		float64(len(samples))/seconds, percentile(samples, 0.5), percentile(samples, 0.9), percentile(samples, 0.99),
		percentile(samples, 1), extra)
}

func repeat(n int, seconds float64, prepare, operation func(*client)) {
	var opened, finished sync.WaitGroup
	clients := make([]*client, n)
	start := make(chan bool)
	opened.Add(n)
	finished.Add(n)
	for i := range clients {
		go func(i int) {
			c := open(i, sessionTTL)
			clients[i] = c
			if prepare != nil {
				prepare(c)
			}
			opened.Done()
			<-start
			for now() < ends {
				operation(c)
			}
			finished.Done()
		}(i)
	}
	opened.Wait()
	begins = now() + int64(option("warmup", 1)*float64(nanoseconds))
	ends = begins + int64(seconds*float64(nanoseconds))
	close(start)
	finished.Wait()
	var samples []int64
	var all, own int64
	for _, c := range clients {
		samples = append(samples, c.samples...)
		all += c.all
		own += c.own
		check(c.session.Close())
	}
	extra := ""
	if own > 0 {
		extra = fmt.Sprintf(" own=%d", own)
	}
	printFigures(samples, all, seconds, extra)
}

func try(n int, seconds float64) {
	holder := open(-1, sessionTTL)
	check(concurrency.NewMutex(holder.session, "held").Lock(background))
	repeat(n, seconds, nil, tryOnce)
	check(holder.session.Close())
}

func takeOwn(c *client) {
	check(concurrency.NewMutex(c.session, fmt.Sprintf("renew %d", c.number)).Lock(background))
}

// --- leaders that die ---

func crashName(i int) string {
	return fmt.Sprintf("crash %d", i)
}

func ttlSeconds() int64 {
	return (number("ttl", 2000) + 999) / 1000
}

// leaders runs in the process that will be killed. The session's own renewals are switched off, so that the last
// renewal is known.
func leaders(n int) {
	var output sync.Mutex
	for i := 0; i < n; i++ {
		go func(i int) {
			c := open(i, ttlSeconds())
			c.session.Orphan()
			check(concurrency.NewElection(c.session, crashName(i)).Campaign(background, "bench"))
			for {
				sent := now()
				_, err := c.db.KeepAliveOnce(background, c.session.Lease())
				check(err)
				answered := now()
				output.Lock()
				fmt.Println(i, sent, answered)
				output.Unlock()
				time.Sleep(50*time.Millisecond + time.Duration(c.random.Int63n(int64(100*time.Millisecond))))
			}
		}(i)
	}
	select {}
}

type renewal struct{ sent, answered int64 }

type news struct {
	lock sync.Mutex
	last map[int]renewal
	all  chan bool // closed when each has renewed
	end  chan bool
}

func (n *news) read(lines *bufio.Scanner, leaders int) {
	for lines.Scan() {
		var i int
		var r renewal
		if _, err := fmt.Sscan(lines.Text(), &i, &r.sent, &r.answered); err != nil {
			break // killed in the middle of a line
		}
		n.lock.Lock()
		complete := len(n.last) == leaders
		n.last[i] = r
		if !complete && len(n.last) == leaders {
			close(n.all)
		}
		n.lock.Unlock()
	}
	close(n.end)
}

func crash(n int, seconds float64) {
	child := exec.Command(os.Args[0], "leaders", strconv.Itoa(n), "1", "ttl="+strconv.FormatInt(number("ttl", 2000), 10))
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	check(err)
	check(child.Start())
	told := &news{last: map[int]renewal{}, all: make(chan bool), end: make(chan bool)}
	go told.read(bufio.NewScanner(output), n)
	select {
	case <-told.all:
	case <-told.end:
		check(fmt.Errorf("the leaders did not come up"))
	}
	elected := make([]int64, n)
	var finished sync.WaitGroup
	finished.Add(n)
	for i := 0; i < n; i++ {
		go func(i int) {
			c := open(i, sessionTTL)
			election := concurrency.NewElection(c.session, crashName(i))
			check(election.Campaign(background, "next"))
			elected[i] = now()
			check(election.Resign(background))
			check(c.session.Close())
			finished.Done()
		}(i)
	}
	time.Sleep(time.Duration(seconds * float64(time.Second)))
	check(child.Process.Kill())
	<-told.end
	child.Wait()
	finished.Wait()
	var over []int64
	early := 0
	ttl := ttlSeconds() * nanoseconds
	for i, at := range elected {
		if at < told.last[i].sent+ttl {
			early++
		}
		over = append(over, at-told.last[i].answered-ttl)
	}
	printFigures(over, int64(n), seconds, fmt.Sprintf(" early=%d ttl=%d", early, ttl/1000000))
}

// --- a long queue: a session for each candidate, over a few connections ---

type candidate struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
	at      int64
}

func enter(c *candidate, granted chan<- *candidate) {
	c.mutex = concurrency.NewMutex(c.session, "queue")
	if c.mutex.Lock(background) == nil {
		c.at = now()
		granted <- c
	}
}

func untilQueued(db *v3.Client, n int64) {
	for {
		resp, err := db.Get(background, "queue/", v3.WithPrefix(), v3.WithCountOnly())
		check(err)
		if resp.Count >= n {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// untilQuiet waits until the server replies quickly again, because the last candidates still read the queue after
// entering.
func untilQuiet(db *v3.Client) {
	for fast := 0; fast < 20; {
		start := now()
		untilQueued(db, 0)
		if now()-start < 2*int64(time.Millisecond) {
			fast++
		} else {
			fast = 0
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// queue measures hand-offs. Entering the queue takes at most the limit of seconds, because each candidate makes the
// server read the whole queue.
func queue(seconds float64) {
	n := int(number("queued", 10000)) + 1
	candidates := make([]*candidate, n)
	granted := make(chan *candidate, n)
	places := make(chan int)
	dbs := make([]*v3.Client, parallel)
	var joined sync.WaitGroup
	joined.Add(parallel)
	start := now()
	for i := range dbs {
		dbs[i] = connect()
		go func(db *v3.Client) {
			for place := range places {
				c := &candidate{session: newSession(db, heldTTL)}
				candidates[place] = c
				go enter(c, granted)
			}
			joined.Done()
		}(dbs[i])
	}
	limit := start + number("limit", 20)*nanoseconds
	entered := 0
	for ; entered < n && now() < limit; entered++ {
		places <- entered
		if entered%parallel == 0 {
			untilQueued(dbs[0], int64(entered-parallel))
		}
	}
	n = entered
	candidates = candidates[:n]
	close(places)
	joined.Wait()
	untilQueued(dbs[0], int64(n))
	filled := now() - start
	var samples []int64
	holder := <-granted
	untilQuiet(dbs[0])
	for end := now() + int64(seconds*float64(nanoseconds)); now() < end; {
		time.Sleep(restTime)
		sent := now()
		check(holder.mutex.Unlock(background))
		next := <-granted
		samples = append(samples, next.at-sent)
		go enter(holder, granted)
		untilQueued(dbs[0], int64(n))
		holder = next
	}
	printFigures(samples, int64(len(samples)), seconds,
		fmt.Sprintf(" queued=%d entered=%.1f", n-1, float64(n)*float64(nanoseconds)/float64(filled)))
	os.Stdout.Close()
	disperse(candidates)
}

// disperse revokes the leases of all candidates, which would otherwise expire during the next measurement.
func disperse(candidates []*candidate) {
	var gone sync.WaitGroup
	leases := make(chan *candidate)
	gone.Add(parallel)
	for i := 0; i < parallel; i++ {
		go func() {
			for c := range leases {
				c.session.Client().Revoke(background, c.session.Lease())
			}
			gone.Done()
		}()
	}
	for i := len(candidates) - 1; i >= 0; i-- {
		leases <- candidates[i]
	}
	close(leases)
	gone.Wait()
}

// --- very many held locks: the keys that Mutex would write, many in a transaction ---

func fill(seconds float64) {
	var held int64
	var finished sync.WaitGroup
	steps := make(chan int64)
	start := now()
	finished.Add(parallel)
	db := connect()
	lease, err := db.Grant(background, heldTTL)
	check(err)
	for i := 0; i < parallel; i++ {
		go func() {
			for first := range steps {
				var puts []v3.Op
				for k := first; k < first+txnLimit && k <= names; k++ {
					puts = append(puts, v3.OpPut(fmt.Sprintf("held%d/%x", k, lease.ID), "", v3.WithLease(lease.ID)))
				}
				_, err := db.Txn(background).Then(puts...).Commit()
				check(err)
				atomic.AddInt64(&held, int64(len(puts)))
			}
			finished.Done()
		}()
	}
	for first := int64(1); first <= names && now() < start+int64(seconds*float64(nanoseconds)); first += txnLimit {
		steps <- first
	}
	close(steps)
	finished.Wait()
	fmt.Printf("ops=%d all=%d rate=%.1f p50=0 p90=0 p99=0 max=0\n", held, held,
		float64(held)*float64(nanoseconds)/float64(now()-start))
}

func main() {
	if len(os.Args) < 4 {
		check(fmt.Errorf("usage: bench WORKLOAD CLIENTS SECONDS [KEY=VALUE ...]"))
	}
	for _, arg := range os.Args[4:] {
		if at := strings.IndexByte(arg, '='); at > 0 {
			options[arg[:at]] = arg[at+1:]
		}
	}
	n, err := strconv.Atoi(os.Args[2])
	check(err)
	seconds, err := strconv.ParseFloat(os.Args[3], 64)
	check(err)
	names = number("names", 1000000)
	switch os.Args[1] {
	case "pairs":
		repeat(n, seconds, nil, pair)
	case "each":
		repeat(n, seconds, nil, each)
	case "hot":
		repeat(n, seconds, nil, hot)
	case "try":
		try(n, seconds)
	case "renew":
		repeat(n, seconds, takeOwn, renew)
	case "crash":
		crash(n, seconds)
	case "leaders":
		leaders(n)
	case "resign":
		repeat(n, seconds, nil, lead)
	case "queue":
		queue(seconds)
	case "fill":
		fill(seconds)
	default:
		check(fmt.Errorf("cannot do this: %s", os.Args[1]))
	}
}
