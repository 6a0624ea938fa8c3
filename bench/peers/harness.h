/*
 * harness.h
 *		The part that all client programs of the benchmark in C share: threads, clock, latencies, workloads.
 *
 * A program is called as
 *
 *		program WORKLOAD CLIENTS SECONDS [KEY=VALUE ...]
 *
 * and prints one line of KEY=VALUE: ops, all, rate, p50, p90, p99, max, and further keys of the workload.  Latencies
 * are in microseconds.  The programs in Go and Java have the same protocol and the same workloads:
 *
 *	pairs		acquires and releases a random one of names=1000000; latency of a pair
 *	each		acquires 100 random names independently in one call, and releases them in a second call; each name is a
 *				pair, with the latency of both calls
 *	hot			all clients acquire one lock; ops are hand-offs between two clients, with the latency from the request
 *				of the release to the reply to the acquire
 *	try			attempts to acquire a lock that another client holds
 *	renew		each client renews its own lock
 *	crash		one leader for each client is killed with its process after SECONDS; latency from the reply to its last
 *				renewal + ttl=2000 ms to the reply to the next leader
 *	resign		a leader resigns when the next one waits; latency from the request to the reply to the next leader
 *	queue		hand-offs of a lock with queued=10000 candidates, one after the other; adds the rate of entering
 *	fill		acquires up to names=1000000 locks in at most SECONDS, and leaves them held; ops are the locks.  If
 *				locks end with the connection, the program keeps it open until the end of its standard input
 *
 * Differences between the systems:
 *
 *	pairs		Curator leaves a container node for each name, which ZooKeeper removes after about a minute, so that a
 *				new name needs one more write
 *	each		the table uses a statement with many rows, Redis and Valkey a pipeline, and etcd a transaction that
 *				contains small transactions; ZooKeeper's recipes have no such call
 *	hot			in systems without a queue, the client that has just released gets most grants: "own" counts these, and
 *				they are not hand-offs
 *	try			etcd's client reads the first key, because its package's TryLock would write and delete a key, and be
 *				slower.  ZooKeeper's acquire(0) creates and deletes a node
 *	renew		ZooKeeper's client reads its own node, because every request keeps the session alive
 *	crash		leaders renew every 50 to 150 ms.  ZooKeeper's TTL is 4 s, its minimum with the default tick.  An
 *				advisory lock ends with the connection, so its time counts from the kill; for a host that no longer
 *				replies, it would be TCP's timeout.  An election before the end of the TTL counts as "early"
 *	queue		places are entered over 64 connections; in etcd with a session for each candidate, 64 at a time; in
 *				ZooKeeper by latches over 8 sessions.  In etcd and ZooKeeper each candidate reads the whole queue, so
 *				entering stops after 10 s
 *	fill		acquires many locks at a time, by acquire_lock in a transaction with synchronous_commit = off; etcd and
 *				ZooKeeper by transactions with the writes of their recipes.  Not for advisory locks, whose number is
 *				limited by shared memory.  Memory is the server's private memory, by the kernel; a server with a garbage
 *				collector uses more than it needs
 *
 * The first warmup=1 seconds are not measured.  "all" includes the operations of the warm-up.  per_second=1 adds the
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
	void *conn; /* connection, of the system's own type */
	uint64_t random;
	char owner[40];
	char token[40]; /* token of its lock or term */
	Samples samples;
	int64_t all;
	int64_t own; /* grants of the hot lock to the client that had released it */
} Client;

/* The functions of a system.  NULL if it does not support one; workloads that need that function are then refused. */
typedef struct System
{
	const char *name;
	void (*open)(Client *client);
	/* returns whether the lock was granted; "wait" only if "waits" is set, otherwise the harness retries each ms */
	bool (*acquire)(Client *client, const char *name, int ttl_ms, bool wait);
	bool (*release)(Client *client, const char *name);
	bool (*renew)(Client *client, const char *name, int ttl_ms);
	/* the same as acquire and release if the system has no elections */
	bool (*campaign)(Client *client, const char *name, int ttl_ms, bool wait);
	bool (*resign)(Client *client, const char *name);
	bool (*renew_term)(Client *client, const char *name, int ttl_ms);
	/* enters the queue, and returns the token of the place; waits for its grant; ends the place or the hold */
	void (*enqueue)(Client *client, const char *name, char token[40]);
	void (*await)(Client *client, const char *name, const char *token);
	void (*leave)(Client *client, const char *name, const char *token);
	/* acquires each of these names that is free, and then releases them; returns the number of acquired names */
	int (*each)(Client *client, char names[][40], int n, int ttl_ms);
	/* acquires the locks whose names are "held" and a number from first to last, and leaves them held */
	void (*fill)(Client *client, int64_t first, int64_t last);
	bool waits;         /* whether acquire and campaign can wait */
	bool ends_at_close; /* whether locks end with the connection, instead of a TTL */
	bool no_lock;       /* whether acquire excludes no other client */
} System;

extern void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
extern const char *option(const char *key, const char *unset);
extern int harness_main(int argc, char **argv, const System *systems, int nsystems);

#endif
