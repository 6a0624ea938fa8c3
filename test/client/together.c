/*
 * together.c
 *		Many threads of one session: their simultaneous requests are sent
 *		together, in order of arrival, with the same results as separate ones.
 */
#include "client.h"

#define THREADS 1000
#define NAMES   300
#define ROUNDS  3
#define ROW     200

static le_session *session;
static PGconn *db;
static pthread_barrier_t start;
static _Atomic int writers[NAMES], readers[NAMES], violations, done, refused, failed, disturbing;
static _Atomic int64_t tokens[NAMES];

static int
statements(void)
{
	return atoi(ask("statements"));
}

/* Checks what a thread that holds name n may observe. */
static void
inside(int n, bool shared, int64_t token)
{
	if (shared)
	{
		atomic_fetch_add(&readers[n], 1);
		violations += writers[n] > 0;
		usleep(50);
		atomic_fetch_sub(&readers[n], 1);
		return;
	}
	violations += atomic_fetch_add(&writers[n], 1) != 0 || readers[n] > 0;
	violations += atomic_exchange(&tokens[n], token) >= token;
	usleep(50);
	atomic_fetch_sub(&writers[n], 1);
}

static void *
thread(void *arg)
{
	unsigned seed = (unsigned) (intptr_t) arg;
	le_error why;

	for (int i = 0; i < ROUNDS; i++)
	{
		int n = rand_r(&seed) % NAMES, kind = rand_r(&seed) % 10;
		le_how how = {.size = sizeof(how), .shared = kind == 0};
		char text[32];
		const char *name = text;
		le_hold *hold;
		le_status status;

		snprintf(text, sizeof(text), "n%d", n);
		pthread_barrier_wait(&start);
		status = le_acquire(session, &name, 1, &how, kind == 1 ? 0 : PATIENCE, &hold, &why);
		if (status == LE_OK)
		{
			inside(n, how.shared, le_token(hold));
			le_release(hold, 0, NULL);
			done++;
		}
		else if (kind == 1 && (status == LE_TIMEOUT || (disturbing && status == LE_UNAVAILABLE)))
			refused++;
		else
		{
			printf("#   %s: %s\n", le_status_name(status), why.message);
			failed++;
		}
	}
	return NULL;
}

static void
run_threads(void)
{
	static pthread_t threads[THREADS];

	done = refused = failed = 0;
	pthread_barrier_init(&start, NULL, THREADS);
	memset(tokens, 0, sizeof(tokens));
	for (intptr_t i = 0; i < THREADS; i++)
	{
		if (pthread_create(&threads[i], NULL, thread, (void *) (i + 1)) != 0)
			die("no thread");
	}
	for (int i = 0; i < 20 && disturbing; i++)
	{
		usleep(50000);
		query(db, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
				  " WHERE application_name = 'liblockelection'");
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&start);
	is_int(done + refused, THREADS * ROUNDS, "all requests have been processed");
	is_int(failed, 0, "no request has failed");
	is_int(violations, 0, "locks have one holder at a time, and tokens grow");
}

static void
threads(void)
{
	int before = statements(), asked, sent;

	run_threads();
	sent = statements() - before;
	asked = 2 * done + refused;
	printf("# %d locks asked for and given back in %d statements\n", asked, sent);
	ok(sent < asked / 4, "many requests are sent in one statement");
	disturbing = true;
	run_threads();
	disturbing = false;
}

/* A queue for each of three names, requested at the same time. */
static void
order_of_arrival(void)
{
	static le_hold *gates[3], *row[ROW];
	static const char *const names[] = {"a", "b", "c"};
	int64_t last[3] = {0};
	int in_order = 0, granted = 0;

	for (int i = 0; i < 3; i++)
		gates[i] = must_lock(session, names[i]);
	for (int i = 0; i < ROW; i++)
		row[i] = enqueue(session, names[i % 3]);
	for (int i = 0; i < ROW; i++)
		eventually_quietly(le_position(row[i]) > 0);
	for (int i = 0; i < ROW; i++)
		in_order += le_position(row[i]) == i / 3 + 1;
	is_int(in_order, ROW, "each name has its queue in the order of the requests");
	for (int i = 0; i < 3; i++)
		le_drop(gates[i]);
	for (int i = 0; i < ROW; i++)
	{
		granted += le_await(row[i], PATIENCE, &error) == LE_OK && le_token(row[i]) > last[i % 3];
		last[i % 3] = le_token(row[i]);
		le_drop(row[i]);
	}
	is_int(granted, ROW, "each queue is granted in order");
}

/*
 * Requests more locks than the role may have: up to the limit they are granted, the others get an error with
 * the reason.
 */
static void
limit(void)
{
	static le_hold *row[ROW];
	int granted = 0, told = 0;

	ask("limit");
	for (int i = 0; i < ROW; i++)
	{
		char text[32];
		const char *name = text;

		snprintf(text, sizeof(text), "limit %d", i);
		if (le_enqueue(session, &name, 1, NULL, &row[i], &error) != LE_OK)
			die("%s", error.message);
	}
	for (int i = 0; i < ROW; i++)
	{
		le_status status = le_await(row[i], PATIENCE, &error);

		granted += status == LE_OK;
		told += status == LE_LIMIT && strcmp(error.sqlstate, "53400") == 0;
	}
	for (int i = 0; i < ROW; i++)
		le_drop(row[i]);
	is_int(granted, 50, "requests up to the limit are granted");
	is_int(told, ROW - 50, "requests above the limit get an error");
	ask("no_limit");
}

static void
tests(void)
{
	db = connect_db();
	session = open_session(30000);
	threads();
	order_of_arrival();
	limit();
	is_status(le_close(session, -1, &error), LE_OK, "closed");
	PQfinish(db);
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
