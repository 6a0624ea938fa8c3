/*
 * harness.c
 *		Runs a workload with one thread for each client and prints its figures; see harness.h.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"

#define NS_PER_S       1000000000L
#define MAX_SECONDS    600
#define HELD_TTL_MS    3600000
#define RENEWED_TTL_MS 60000
#define HOT_TTL_MS     30000
/* A leader leads until the next candidate surely waits, and rests before it campaigns again. */
#define LEAD_US    5000
#define REST_US    2000
#define STACK_SIZE (256 * 1024)
#define EACH       100

typedef void (*Operation)(Client *client);

static const System *sys;
static int nargs;
static char **args;

static int nclients;
static Client *clients;
static pthread_barrier_t opened;
static Operation prepare;
static Operation operation;
static int64_t begins; /* begin of the measured time, after the warm-up */
static int64_t ends;
static atomic_long per_second[MAX_SECONDS];
static long names;
static int ttl_ms;

/* The last release of the hot lock or the election: written by its holder immediately before the release. */
static atomic_llong released_at;
static atomic_int released_by = -1;

void
die(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
	_exit(1);
}

const char *
option(const char *key, const char *unset)
{
	size_t length = strlen(key);

	for (int i = 0; i < nargs; i++)
		if (strncmp(args[i], key, length) == 0 && args[i][length] == '=')
			return args[i] + length + 1;
	return unset;
}

static int64_t
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * NS_PER_S + t.tv_nsec;
}

/* Returns a random number by xorshift64*, which is good enough for names and pauses. */
static uint64_t
next_random(Client *client)
{
	uint64_t x = client->random;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	client->random = x;
	return x * UINT64_C(2685821657736338717);
}

static void
add_sample(Samples *samples, int64_t value)
{
	if (samples->count == samples->size)
	{
		samples->size = samples->size == 0 ? 4096 : samples->size * 2;
		samples->values = realloc(samples->values, samples->size * sizeof(int64_t));
		if (samples->values == NULL)
			die("out of memory");
	}
	samples->values[samples->count++] = value;
}

/* Records an operation that has ended at this time, with its latency. */
static void
done(Client *client, int64_t at, int64_t latency)
{
	client->all++;
	if (at < begins || at >= ends)
		return;
	add_sample(&client->samples, latency);
	atomic_fetch_add_explicit(&per_second[(at - begins) / NS_PER_S % MAX_SECONDS], 1, memory_order_relaxed);
}

static void
nap(Client *client, long us_from, long us_to)
{
	usleep((useconds_t) (us_from + (long) (next_random(client) % (uint64_t) (us_to - us_from))));
}

static void
until_granted(bool (*acquire)(Client *, const char *, int, bool), Client *client, const char *name, int ttl)
{
	while (!acquire(client, name, ttl, sys->waits))
	{
		if (sys->waits)
			die("%s: not granted", sys->name);
		nap(client, 500, 1500);
	}
}

static void
open_client(Client *client, int number)
{
	client->number = number;
	client->random = (uint64_t) now() * 2 + 1 + ((uint64_t) number << 40);
	for (int i = 0; i < 8; i++)
		next_random(client);
	snprintf(client->owner, sizeof(client->owner), "%016lx%016lx", (unsigned long) next_random(client),
			 (unsigned long) next_random(client));
	sys->open(client);
}

/* --- workloads that repeat an operation --- */

static void
pair(Client *client)
{
	char name[40];
	int64_t start = now(), end;

	snprintf(name, sizeof(name), "k%ld", (long) (next_random(client) % (uint64_t) names) + 1);
	until_granted(sys->acquire, client, name, HOT_TTL_MS);
	if (!sys->release(client, name))
		die("%s: not released", sys->name);
	end = now();
	done(client, end, end - start);
}

/* Uses one name from each hundredth of all names, so that no name occurs twice. */
static void
each(Client *client)
{
	char some[EACH][40];
	int64_t start, end;
	int n;

	for (int i = 0; i < EACH; i++)
		snprintf(some[i], sizeof(some[i]), "k%ld",
				 i * (names / EACH) + (long) (next_random(client) % (uint64_t) (names / EACH)) + 1);
	start = now();
	n = sys->each(client, some, EACH, HOT_TTL_MS);
	end = now();
	for (int i = 0; i < n; i++)
		done(client, end, end - start);
}

/* Records a grant of the hot lock or of the election. */
static void
granted(Client *client)
{
	int64_t at = now();
	int by = atomic_load(&released_by);

	if (by == client->number)
		client->own++;
	else if (by >= 0)
		done(client, at, at - atomic_load(&released_at));
}

static void
giving(Client *client)
{
	atomic_store(&released_by, client->number);
	atomic_store(&released_at, now());
}

static void
hot(Client *client)
{
	until_granted(sys->acquire, client, "hot", HOT_TTL_MS);
	granted(client);
	giving(client);
	if (!sys->release(client, "hot"))
		die("%s: not released", sys->name);
}

static void
lead(Client *client)
{
	until_granted(sys->campaign, client, "resign", HOT_TTL_MS);
	granted(client);
	usleep(LEAD_US);
	giving(client);
	if (!sys->resign(client, "resign"))
		die("%s: not resigned", sys->name);
	usleep(REST_US);
}

static void
try_once(Client *client)
{
	int64_t start = now(), end;

	if (sys->acquire(client, "held", HOT_TTL_MS, false) && !sys->no_lock)
		die("%s: granted what somebody else holds", sys->name);
	end = now();
	done(client, end, end - start);
}

static void
take_own(Client *client)
{
	char name[40];

	snprintf(name, sizeof(name), "renew %d", client->number);
	until_granted(sys->acquire, client, name, RENEWED_TTL_MS);
}

static void
renew_own(Client *client)
{
	char name[40];
	int64_t start = now(), end;

	snprintf(name, sizeof(name), "renew %d", client->number);
	if (!sys->renew(client, name, RENEWED_TTL_MS))
		die("%s: not renewed", sys->name);
	end = now();
	done(client, end, end - start);
}

static void
drop_own(Client *client)
{
	char name[40];

	snprintf(name, sizeof(name), "renew %d", client->number);
	sys->release(client, name);
}

static void *
client_main(void *arg)
{
	Client *client = arg;

	open_client(client, (int) (client - clients));
	if (prepare != NULL)
		prepare(client);
	pthread_barrier_wait(&opened);
	pthread_barrier_wait(&opened);
	while (now() < ends)
		operation(client);
	if (operation == renew_own)
		drop_own(client);
	return NULL;
}

static pthread_t
start_thread(void *(*run)(void *), void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	if (pthread_create(&thread, &attr, run, arg) != 0)
		die("cannot create a thread");
	return thread;
}

/* --- figures --- */

static int
by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *) a, y = *(const int64_t *) b;

	return (x > y) - (x < y);
}

static double
percentile(const Samples *samples, double p)
{
	size_t n = samples->count;

	return n == 0 ? 0 : (double) samples->values[(size_t) (p * (double) (n - 1) + 0.5)] / 1000;
}

/* Prints the line of figures, without the end of the line. */
static void
print_figures(Samples *samples, int64_t all, double seconds)
{
	qsort(samples->values, samples->count, sizeof(int64_t), by_value);
	printf("ops=%zu all=%ld rate=%.1f p50=%.1f p90=%.1f p99=%.1f max=%.1f", samples->count, (long) all,
		   (double) samples->count / seconds, percentile(samples, 0.5), percentile(samples, 0.9),
		   percentile(samples, 0.99), percentile(samples, 1));
}

static void
print_clients(double seconds)
{
	Samples samples = {0};
	int64_t all = 0, own = 0;

	for (int i = 0; i < nclients; i++)
	{
		for (size_t j = 0; j < clients[i].samples.count; j++)
			add_sample(&samples, clients[i].samples.values[j]);
		all += clients[i].all;
		own += clients[i].own;
	}
	print_figures(&samples, all, seconds);
	if (operation == hot || operation == lead)
		printf(" own=%ld", (long) own);
	if (atoi(option("per_second", "0")) != 0)
	{
		printf(" seconds=");
		for (int i = 0; i < (int) seconds && i < MAX_SECONDS; i++)
			printf("%s%ld", i > 0 ? "," : "", atomic_load(&per_second[i]));
	}
	putchar('\n');
}

/* Runs all clients at the same time: they connect, wait twice at "opened", and then work from "begins" to "ends". */
static void
run_threads(void *(*run)(void *), double warmup, double seconds)
{
	pthread_t *threads = calloc((size_t) nclients, sizeof(pthread_t));

	clients = calloc((size_t) nclients, sizeof(Client));
	pthread_barrier_init(&opened, NULL, (unsigned) nclients + 1);
	for (int i = 0; i < nclients; i++)
		threads[i] = start_thread(run, &clients[i]);
	pthread_barrier_wait(&opened);
	begins = now() + (int64_t) (warmup * NS_PER_S);
	ends = begins + (int64_t) (seconds * NS_PER_S);
	pthread_barrier_wait(&opened);
	for (int i = 0; i < nclients; i++)
		pthread_join(threads[i], NULL);
}

static void
repeat(double seconds)
{
	run_threads(client_main, atof(option("warmup", "1")), seconds);
	print_clients(seconds);
}

static void
try_held(double seconds)
{
	Client holder = {0};

	open_client(&holder, -1);
	until_granted(sys->acquire, &holder, "held", HELD_TTL_MS);
	operation = try_once;
	repeat(seconds);
	sys->release(&holder, "held");
}

/* --- leaders that die --- */

typedef struct Renewal
{
	int number;
	int64_t sent;
	int64_t answered;
} Renewal;

static int news;

static void *
leader_main(void *arg)
{
	Client *client = arg;
	Renewal renewal;
	char name[40];

	open_client(client, (int) (client - clients));
	renewal.number = client->number;
	snprintf(name, sizeof(name), "crash %d", client->number);
	until_granted(sys->campaign, client, name, ttl_ms);
	for (;;)
	{
		renewal.sent = now();
		if (sys->renew_term != NULL && !sys->renew_term(client, name, ttl_ms))
			die("%s: the leader has lost its term", sys->name);
		renewal.answered = now();
		if (write(news, &renewal, sizeof(renewal)) != sizeof(renewal))
			die("write: %s", strerror(errno));
		nap(client, 50000, 150000);
	}
	return NULL;
}

static void *
next_leader_main(void *arg)
{
	Client *client = arg;
	char name[40];

	open_client(client, (int) (client - clients));
	snprintf(name, sizeof(name), "crash %d", client->number);
	pthread_barrier_wait(&opened);
	until_granted(sys->campaign, client, name, HOT_TTL_MS);
	add_sample(&client->samples, now());
	sys->resign(client, name);
	return NULL;
}

static pid_t
start_leaders(int fds[2])
{
	pid_t child;

	if (pipe(fds) != 0)
		die("pipe: %s", strerror(errno));
	child = fork();
	if (child < 0)
		die("fork: %s", strerror(errno));
	if (child == 0)
	{
		news = fds[1];
		for (int i = 0; i < nclients; i++)
			start_thread(leader_main, &clients[i]);
		for (;;)
			pause();
	}
	close(fds[1]);
	return child;
}

/* Reads a renewal that a leader has reported.  Returns false after the last one. */
static bool
read_renewal(int fd, Renewal *last)
{
	Renewal renewal;

	if (read(fd, &renewal, sizeof(renewal)) != sizeof(renewal))
		return false;
	last[renewal.number] = renewal;
	return true;
}

static void
until_all_lead(int fd, Renewal *last)
{
	for (int leading = 0; leading < nclients;)
	{
		if (!read_renewal(fd, last))
			die("%s: a leader did not come up", sys->name);
		leading = 0;
		for (int i = 0; i < nclients; i++)
			leading += last[i].answered != 0;
	}
}

static void
crash(double seconds)
{
	Renewal *last = calloc((size_t) nclients, sizeof(Renewal));
	pthread_t *threads = calloc((size_t) nclients, sizeof(pthread_t));
	Samples over = {0};
	int64_t killed;
	int fds[2], early = 0;
	pid_t child;

	clients = calloc((size_t) nclients, sizeof(Client));
	child = start_leaders(fds);
	until_all_lead(fds[0], last);
	pthread_barrier_init(&opened, NULL, (unsigned) nclients + 1);
	for (int i = 0; i < nclients; i++)
		threads[i] = start_thread(next_leader_main, &clients[i]);
	pthread_barrier_wait(&opened);
	for (int64_t end = now() + (int64_t) (seconds * NS_PER_S); now() < end;)
		read_renewal(fds[0], last);
	killed = now();
	kill(child, SIGKILL);
	while (read_renewal(fds[0], last))
		;
	waitpid(child, NULL, 0);
	for (int i = 0; i < nclients; i++)
	{
		int64_t elected;

		pthread_join(threads[i], NULL);
		elected = clients[i].samples.values[0];
		early += elected < last[i].sent + (sys->ends_at_close ? 0 : ttl_ms * (NS_PER_S / 1000));
		add_sample(&over,
				   elected - (sys->ends_at_close ? killed : last[i].answered + ttl_ms * (NS_PER_S / 1000)));
	}
	print_figures(&over, nclients, seconds);
	printf(" early=%d ttl=%d\n", early, sys->ends_at_close ? 0 : ttl_ms);
}

/* --- a long queue --- */

static char (*tokens)[40];
static int places;
static atomic_int next_place;

static void *
enter_main(void *arg)
{
	Client *client = arg;
	int place;

	open_client(client, (int) (client - clients));
	pthread_barrier_wait(&opened);
	pthread_barrier_wait(&opened);
	while ((place = atomic_fetch_add(&next_place, 1)) < places)
		sys->enqueue(client, "queue", tokens[place]);
	return NULL;
}

static int
by_number(const void *a, const void *b)
{
	long long x = atoll(a), y = atoll(b);

	return (x > y) - (x < y);
}

typedef struct Turn
{
	Client *client;
	const char *token;
	int64_t at;
} Turn;

static void *
await_main(void *arg)
{
	Turn *turn = arg;

	sys->await(turn->client, "queue", turn->token);
	turn->at = now();
	return NULL;
}

/* Hands off the lock for some seconds, each time to a waiting client; each releaser enters the queue again. */
static void
queue(double seconds)
{
	Client *holder, *next;
	Samples samples = {0};
	int64_t filled, end;
	int at = 0;

	places = atoi(option("queued", "10000")) + 1;
	tokens = calloc((size_t) places, sizeof(*tokens));
	run_threads(enter_main, 0, 0);
	filled = now() - begins;
	/* The order of the tokens is the order of the queue. */
	qsort(tokens, (size_t) places, sizeof(*tokens), by_number);
	holder = &clients[0];
	next = &clients[1];
	end = now() + (int64_t) (seconds * NS_PER_S);
	while (now() < end)
	{
		int then = (at + 1) % places;
		Turn turn = {next, tokens[then], 0};
		pthread_t waiting = start_thread(await_main, &turn);
		int64_t sent;

		usleep(2000);
		sent = now();
		sys->leave(holder, "queue", tokens[at]);
		pthread_join(waiting, NULL);
		add_sample(&samples, turn.at - sent);
		sys->enqueue(holder, "queue", tokens[at]);
		at = then;
	}
	print_figures(&samples, (int64_t) samples.count, seconds);
	printf(" queued=%d entered=%.1f\n", places - 1, (double) places * NS_PER_S / (double) filled);
	/* Leave from the end of the queue, so that no other place is granted. */
	for (int i = places - 1; i >= 0; i--)
		sys->leave(holder, "queue", tokens[(at + i) % places]);
}

/* --- very many held locks --- */

#define FILL_STEP 5000

static atomic_long next_name;
static atomic_long held;

static void *
fill_main(void *arg)
{
	Client *client = arg;

	open_client(client, (int) (client - clients));
	pthread_barrier_wait(&opened);
	pthread_barrier_wait(&opened);
	while (now() < ends)
	{
		long first = atomic_fetch_add(&next_name, FILL_STEP) + 1;
		long last = first + FILL_STEP - 1 < names ? first + FILL_STEP - 1 : names;

		if (first > names)
			break;
		sys->fill(client, first, last);
		atomic_fetch_add(&held, last - first + 1);
	}
	return NULL;
}

static void
fill(double seconds)
{
	double rate;

	run_threads(fill_main, 0, seconds);
	rate = (double) held * NS_PER_S / (double) (now() - begins);
	printf("ops=%ld all=%ld rate=%.1f p50=0 p90=0 p99=0 max=0\n", (long) held, (long) held, rate);
}

/* --- */

static bool
run(const char *workload, double seconds)
{
	if (strcmp(workload, "pairs") == 0 && sys->acquire)
		operation = pair;
	else if (strcmp(workload, "each") == 0 && sys->each)
		operation = each;
	else if (strcmp(workload, "hot") == 0 && sys->acquire && !sys->no_lock)
		operation = hot;
	else if (strcmp(workload, "resign") == 0 && sys->campaign)
		operation = lead;
	else if (strcmp(workload, "renew") == 0 && sys->renew)
	{
		prepare = take_own;
		operation = renew_own;
	}

	if (operation != NULL)
		repeat(seconds);
	else if (strcmp(workload, "try") == 0 && sys->acquire)
		try_held(seconds);
	else if (strcmp(workload, "crash") == 0 && sys->campaign)
		crash(seconds);
	else if (strcmp(workload, "queue") == 0 && sys->enqueue)
		queue(seconds);
	else if (strcmp(workload, "fill") == 0 && sys->fill)
		fill(seconds);
	else
		return false;
	return true;
}

int
harness_main(int argc, char **argv, const System *systems, int nsystems)
{
	double seconds = argc > 3 ? atof(argv[3]) : 0;
	const char *name;

	nclients = argc > 2 ? atoi(argv[2]) : 0;
	if (nclients <= 0 || seconds <= 0 || seconds > MAX_SECONDS)
		die("usage: %s WORKLOAD CLIENTS SECONDS [KEY=VALUE ...]", argv[0]);
	nargs = argc - 4;
	args = argv + 4;
	names = atol(option("names", "1000000"));
	ttl_ms = atoi(option("ttl", "2000"));
	name = option("system", systems[0].name);
	for (int i = 0; i < nsystems; i++)
		if (strcmp(systems[i].name, name) == 0)
			sys = &systems[i];
	if (sys == NULL)
		die("unknown system: %s", name);
	if (!run(argv[1], seconds))
		die("%s cannot do this: %s", sys->name, argv[1]);
	return 0;
}
