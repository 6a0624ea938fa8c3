/*
 * harness.h
 *		What the client programs of the benchmark share: threads, clock, latencies, workloads.
 *
 * A program is called as
 *
 *		program WORKLOAD CLIENTS SECONDS [KEY=VALUE ...]
 *
 * and prints one line of KEY=VALUE: ops, all, rate, p50, p90, p99, max and what the workload adds.  Latencies are in
 * microseconds.  The programs in Go and Java keep to the same protocol and the same workloads:
 *
 *	pairs		acquire and release a random one of names=1000000; the latency of a pair
 *	each		acquire 100 random names in one call, each for itself, and release them in another one: a pair a name,
 *				whose latency is that of both calls
 *	hot			all clients want one lock; ops are hand-offs between two clients, their latency runs from the
 *				sending of the release to the answer of the acquire
 *	try			attempts at a lock that somebody else holds
 *	renew		each client renews a lock of its own
 *	crash		one leader for each client is killed with its process after SECONDS; the latency runs from the answer
 *				of its last renewal + ttl=2000 ms to the next leader's answer
 *	resign		a leader resigns when the next one waits; the latency runs from the sending of resign to the answer
 *	queue		hand-offs of a lock with queued=10000 candidates, one after the other; adds the rate of entering
 *	fill		takes up to names=1000000 locks in at most SECONDS, and leaves them held; ops are the locks.  Where they
 *				end with the connection it keeps that until the end of its standard input
 *
 * What a system does otherwise:
 *
 *	pairs		Curator leaves a container node for each name, which ZooKeeper removes a minute later or so: a new name
 *				costs a write more
 *	each		the table by a statement with many rows, Redis and Valkey by a pipeline, etcd by a transaction of small
 *				transactions; ZooKeeper's recipes have nothing like it
 *	hot			where nobody queues, most grants go back to the client that has just released: "own" counts these, and
 *				they are no hand-offs
 *	try			etcd reads the first key: TryLock of its package would write and delete one, and be slower.  ZooKeeper's
 *				acquire(0) creates and deletes a node
 *	renew		ZooKeeper looks at the client's own node: every request keeps the session alive
 *	crash		leaders renew every 50 to 150 ms.  ZooKeeper's TTL is 4 s, its least with the default tick.  An advisory
 *				lock ends with the connection: the time is from the kill, and would be that of TCP for a host that falls
 *				silent.  An election before the TTL was over is granted early
 *	queue		places are entered over 64 connections; in etcd with a session for each candidate, 64 at a time; in
 *				ZooKeeper by latches over 8 sessions.  In both each candidate reads the whole queue, so entering is cut
 *				short after 10 s
 *	fill		many at a time, by acquire_lock in a transaction with synchronous_commit = off; etcd and ZooKeeper by
 *				transactions that write what their recipes would.  No advisory locks: shared memory bounds them.  Memory
 *				is what the kernel says of the server's own; an engine with a garbage collector takes more than it needs
 *
 * warmup=1 (seconds) is not measured.  "all" counts the operations of the warm-up too.  per_second=1 adds the
 * operations of each second.
 */
#ifndef BENCH_HARNESS_H
#define BENCH_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Samples
{
	int64_t *values; /* nanoseconds */
	size_t count;
	size_t size;
} Samples;

typedef struct Client
{
	int number;
	void *conn; /* the system's own */
	uint64_t random;
	char owner[40];
	char token[40]; /* of what it holds */
	Samples samples;
	int64_t all;
	int64_t own; /* grants of the hot lock to the client that had released it */
} Client;

/* What a system can do.  A missing function: it cannot, and the workload is refused. */
typedef struct System
{
	const char *name;
	void (*open)(Client *client);
	/* true: granted.  With wait only if the system can wait; the harness asks again each millisecond otherwise */
	bool (*acquire)(Client *client, const char *name, int ttl_ms, bool wait);
	bool (*release)(Client *client, const char *name);
	bool (*renew)(Client *client, const char *name, int ttl_ms);
	/* as acquire and release where elections are nothing of their own */
	bool (*campaign)(Client *client, const char *name, int ttl_ms, bool wait);
	bool (*resign)(Client *client, const char *name);
	bool (*renew_term)(Client *client, const char *name, int ttl_ms);
	/* takes a place in the queue and returns its token at once; waits until that token is granted; ends it */
	void (*enqueue)(Client *client, const char *name, char token[40]);
	void (*await)(Client *client, const char *name, const char *token);
	void (*leave)(Client *client, const char *name, const char *token);
	/* acquires each of these names that is free, and then releases them; returns how many there were */
	int (*each)(Client *client, char names[][40], int n, int ttl_ms);
	/* takes the locks "held" and a number from first to last, and leaves them held */
	void (*fill)(Client *client, int64_t first, int64_t last);
	bool waits;         /* acquire and campaign can wait */
	bool ends_at_close; /* what a client held is free when its connection is gone: no TTL */
	bool no_lock;       /* acquire does not exclude anybody */
} System;

extern void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
extern const char *option(const char *key, const char *unset);
extern int harness_main(int argc, char **argv, const System *systems, int nsystems);

#endif
