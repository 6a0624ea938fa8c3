/*
 * exhaust.c
 *		Every interleaving of tiny worlds.
 *
 * Three clients, two locks, four operations each: a program is a word of four
 * letters from the table below, a triple gives each client one of the
 * programs, and an order determines the turns.  A triple has 12! / (4!)^3 =
 * 34,650 orders, each of which is run from an empty world to an empty world,
 * once in each of the ways below.  After every turn the core is compared with
 * the model, and the invariants are checked; if several runs begin in the same
 * way, only in the first of them.
 *
 *	patient		A client that waits at its turn lets time pass, from deadline to
 *				deadline, until it has its reply.  Every turn is a batch.
 *	cancel		The wait is cancelled instead.
 *	crash		As patient, and the manager restarts before each turn.
 *	fail		As patient, but a batch is stored only when the client waits at its
 *				turn; every batch fails at first, and its requests are repeated one
 *				by one.
 *
 * Between two turns a millisecond passes; an own lease lasts ten seconds.  Runs
 * that differ only in names are left out: another order of the programs in a
 * triple, the two locks exchanged, and, if two clients have the same program,
 * the orders in which the later one begins first.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim.h"

#define CLIENTS 3
#define OPS     4
#define TURNS   (CLIENTS * OPS)
#define TTL     (10 * LE_SECOND)

/* The programs; those with the two locks exchanged are added to them. */
static const char *const base_programs[] = {
	"AaAa", /* the same lock twice */
	"ABba", /* one inside the other */
	"SANa", /* shared, and exclusive behind it: ends only by a deadline */
	"PpaX", /* a place, and a try */
	"GgAa", /* both at once, then one */
	"VNaG", /* a wait with a limit, a renewal, and both at once */
	"EaDe", /* a try of each, places for each, and a release of each */
};

#define NBASE     ((int) (sizeof(base_programs) / sizeof(base_programs[0])))
#define NPROGRAMS (2 * NBASE)

typedef enum Way
{
	WAY_PATIENT,
	WAY_CANCEL,
	WAY_CRASH,
	WAY_FAIL,
	WAYS
} Way;

static const char *const way_names[] = {"patient", "cancel", "crash", "fail"};

/* The letters of an operation on the first and on the second lock. */
typedef struct Letter
{
	char of[3]; /* with the terminating NUL */
	LeCommandType type;
	LeMode mode;
	LeTime wait;
	bool enqueue, both;
	const char *text;
	bool each; /* both, each independently */
} Letter;

static const Letter letters[] = {
	{"AB", LE_CMD_ACQUIRE, LE_MODE_EXCLUSIVE, LE_WAIT_FOREVER, false, false, "acquire", false},
	{"ST", LE_CMD_ACQUIRE, LE_MODE_SHARED, LE_WAIT_FOREVER, false, false, "acquire shared", false},
	{"XY", LE_CMD_ACQUIRE, LE_MODE_EXCLUSIVE, 0, false, false, "try", false},
	{"VW", LE_CMD_ACQUIRE, LE_MODE_EXCLUSIVE, 3 * LE_SECOND, false, false, "wait three seconds for", false},
	{"PQ", LE_CMD_ACQUIRE, LE_MODE_EXCLUSIVE, 0, true, false, "enqueue for", false},
	{"GG", LE_CMD_ACQUIRE, LE_MODE_EXCLUSIVE, LE_WAIT_FOREVER, false, true, "acquire both", false},
	{"pq", LE_CMD_AWAIT, LE_MODE_EXCLUSIVE, LE_WAIT_FOREVER, false, false, "await", false},
	{"NM", LE_CMD_RENEW, LE_MODE_EXCLUSIVE, 0, false, false, "renew", false},
	{"ab", LE_CMD_RELEASE, LE_MODE_EXCLUSIVE, 0, false, false, "release", false},
	{"gg", LE_CMD_RELEASE, LE_MODE_EXCLUSIVE, 0, false, true, "release both", true},
	{"EE", LE_CMD_ACQUIRE, LE_MODE_EXCLUSIVE, 0, false, true, "try each", true},
	{"DD", LE_CMD_ACQUIRE, LE_MODE_EXCLUSIVE, 0, true, true, "enqueue for each", true},
	{"ee", LE_CMD_RELEASE, LE_MODE_EXCLUSIVE, 0, false, true, "release each", true},
};

#define NLETTERS ((int) (sizeof(letters) / sizeof(letters[0])))

/* One run. */
typedef struct Course
{
	char programs[CLIENTS][OPS + 1]; /* a dot: no operation */
	char order[TURNS + 1];
	Way way;
} Course;

typedef struct Tally
{
	uint64_t triples, orders, turns;
} Tally;

static const Letter *
find_letter(char c, int *lock)
{
	for (int i = 0; i < NLETTERS; i++)
	{
		for (*lock = 0; *lock < 2; ++*lock)
		{
			if (letters[i].of[*lock] == c)
				return &letters[i];
		}
	}
	return NULL;
}

/* --- one turn --- */

/* Returns the newest token that this client got for the lock. */
static int64_t
token_of(World *w, uint32_t sessno, int lock)
{
	for (uint32_t i = w->nknown; i > 0; i--)
	{
		const Known *known = &w->known[(i - 1) % KNOWN];

		for (uint32_t k = 0; k < known->n && known->role == 10 + sessno; k++)
		{
			if (known->names[k] == lock)
				return known->token;
		}
	}
	return 0;
}

static void
operate(World *w, uint32_t sessno, char c)
{
	Client *client = &w->clients[sessno];
	LeText names[2] = {sim_name(0), sim_name(1)};
	int64_t tokens[2] = {0};
	LeCommand cmd;
	LeReply reply;
	int lock;
	const Letter *letter = find_letter(c, &lock);

	if (letter == NULL)
		return;
	memset(&cmd, 0, sizeof(cmd));
	cmd.type = letter->type;
	cmd.kind = LE_KIND_LOCK;
	cmd.mode = letter->mode;
	cmd.wait = letter->wait;
	cmd.enqueue = letter->enqueue;
	if (letter->both)
	{
		cmd.names = names;
		cmd.nnames = 2;
	}
	else
		cmd.name = names[lock];
	if (letter->each)
	{
		cmd.each = true;
		cmd.tokens = tokens;
		for (int i = 0; i < 2 && letter->type == LE_CMD_RELEASE; i++)
			tokens[i] = token_of(w, sessno, i);
	}
	if (letter->type == LE_CMD_ACQUIRE)
		cmd.ttl = TTL;
	else if (!letter->each)
		cmd.token = token_of(w, sessno, lock);
	cmd.later = w->conf.later_mille > 0;
	cmd.role = client->role;
	cmd.session = client->id;
	cmd.sessno = sessno;
	cmd.xact = ++client->xact;
	cmd.subxact = 1;
	cmd.request = ++client->request;
	client->busy = true;
	if (letter->each)
		batch_post_each(w, &cmd);
	else
		batch_post(w, &cmd, &reply);
}

static void
end_batch(World *w, Way way)
{
	if (way == WAY_FAIL && w->nbatch > 0)
		batch_fail(w);
	else
		batch_end(w);
}

/* Lets time pass, or cancels, until this client no longer waits. */
static void
let_go_on(World *w, uint32_t sessno, Way way)
{
	Client *client = &w->clients[sessno];

	if (client->busy && way == WAY_FAIL)
		end_batch(w, way);
	if (client->busy && way == WAY_CANCEL)
	{
		client_undo(w, sessno, 1);
		end_batch(w, way);
	}
	while (client->busy)
	{
		LeTime next = le_core_next_deadline(w->core);

		ENSURE(w, next != LE_NEVER);
		world_tick_to(w, next);
		end_batch(w, way);
	}
}

static void
run_turn(World *w, const Course *course, uint32_t sessno, char c)
{
	world_tick_to(w, w->now + LE_MS);
	if (course->way == WAY_CRASH)
		batch_reload(w);
	let_go_on(w, sessno, course->way);
	operate(w, sessno, c);
	if (course->way != WAY_FAIL)
		end_batch(w, course->way);
	else if (w->conf.check_every == 1)
		model_compare(w->model);
}

static void
start(World *w, bool verbose)
{
	Config conf = {
		.model = true, .sessions = CLIENTS, .names = 2, .owners = 1, .fail_mille = 1, .later_mille = 1000};

	conf.verbose = verbose;
	conf.mute = !verbose;
	world_start(w, &conf);
	for (uint32_t i = 0; i < CLIENTS; i++)
	{
		w->clients[i].id = world_session(w, i);
		w->clients[i].role = 10 + i;
	}
}

/* Runs an order. The first turns were already checked in another run with the same beginning. */
static void
run_course(const Course *course, int known, bool verbose)
{
	static World world;
	World *w = &world;
	int at[CLIENTS] = {0};

	start(w, verbose);
	for (int turn = 0; course->order[turn] != '\0'; turn++)
	{
		uint32_t sessno = (uint32_t) (course->order[turn] - '0');

		w->step = (uint64_t) turn + 1;
		w->conf.check_every = turn < known ? UINT32_MAX : 1;
		run_turn(w, course, sessno, course->programs[sessno][at[sessno]++]);
	}
	/* the rest is the same for all runs, and is checked at the end */
	w->conf.check_every = UINT32_MAX;
	world_end(w);
}

/* --- all orders, all triples --- */

/* Computes the next order in alphabetical sequence; returns false after the last one. */
static bool
next_order(char *order)
{
	int i = TURNS - 2, k = TURNS - 1;
	char c;

	while (i >= 0 && order[i] >= order[i + 1])
		i--;
	if (i < 0)
		return false;
	while (order[k] <= order[i])
		k--;
	c = order[i], order[i] = order[k], order[k] = c;
	for (int from = i + 1, to = TURNS - 1; from < to; from++, to--)
		c = order[from], order[from] = order[to], order[to] = c;
	return true;
}

/* Returns whether the order counts: of clients with the same program, the first one begins first. */
static bool
order_counts(const Course *course)
{
	for (int i = 1; i < CLIENTS; i++)
	{
		if (strcmp(course->programs[i - 1], course->programs[i]) == 0 &&
			strchr(course->order, '0' + i - 1) > strchr(course->order, '0' + i))
			return false;
	}
	return true;
}

static void
exchange_locks(char *program)
{
	for (; *program != '\0'; program++)
	{
		int lock;
		const Letter *letter = find_letter(*program, &lock);

		*program = letter->of[1 - lock];
	}
}

static void
get_program(int i, char *program)
{
	strcpy(program, base_programs[i / 2]);
	if (i % 2)
		exchange_locks(program);
}

/*
 * Returns whether the triple counts. Programs are stored in pairs that differ by the exchange of the locks.
 */
static bool
triple_counts(const int *t)
{
	int other[CLIENTS] = {t[0] ^ 1, t[1] ^ 1, t[2] ^ 1}, swap;

	for (int pass = 0; pass < 2; pass++)
	{
		for (int i = 0; i < CLIENTS - 1; i++)
		{
			if (other[i] > other[i + 1])
				swap = other[i], other[i] = other[i + 1], other[i + 1] = swap;
		}
	}
	return memcmp(t, other, sizeof(other)) <= 0;
}

/* Fills the array, and returns the number of triples. */
static int
list_triples(int triples[][CLIENTS])
{
	int n = 0;

	for (int i = 0; i < NPROGRAMS; i++)
	{
		for (int j = i; j < NPROGRAMS; j++)
		{
			for (int k = j; k < NPROGRAMS; k++)
			{
				int t[CLIENTS] = {i, j, k};

				if (triple_counts(t))
					memcpy(triples[n++], t, sizeof(t));
			}
		}
	}
	return n;
}

/* --- a separate process for the orders of one triple, in one way --- */

typedef struct Job
{
	Course course; /* under way */
	uint64_t orders, turns;
	uint32_t every, first; /* only every n-th order, beginning with this one */
	double end;            /* no order is started after that; 0: no limit */
	bool done, verbose;
} Job;

static void
run_orders(void *arg)
{
	Job *job = arg;
	char last[TURNS + 1] = "";
	uint32_t n = 0;

	strcpy(job->course.order, "000011112222");
	do
	{
		int known = 0;

		if (!order_counts(&job->course) || n++ % job->every != job->first)
			continue;
		while (last[known] != '\0' && last[known] == job->course.order[known])
			known++;
		run_course(&job->course, known, false);
		strcpy(last, job->course.order);
		job->orders++;
		job->turns += TURNS;
		if (job->end > 0 && job->orders % 64 == 0 && wall_seconds() > job->end)
			return;
	} while (next_order(job->course.order));
	job->done = true;
}

static void
run_one(void *arg)
{
	Job *job = arg;

	run_course(&job->course, 0, job->verbose);
}

static void
print_course(FILE *to, const Course *c)
{
	fprintf(to, "%s,%s,%s:%s:%s", c->programs[0], c->programs[1], c->programs[2], c->order,
			way_names[c->way]);
}

/* Leaves out turns without which it still fails, together with their operations. */
static void
shorten(Job *job)
{
	for (int turn = (int) strlen(job->course.order) - 1; turn >= 0; turn--)
	{
		Course all = job->course, *c = &job->course;
		int sessno = c->order[turn] - '0', op = 0;

		for (int i = 0; i < turn; i++)
			op += c->order[i] == c->order[turn];
		memmove(&c->programs[sessno][op], &c->programs[sessno][op + 1], strlen(&c->programs[sessno][op]));
		memmove(&c->order[turn], &c->order[turn + 1], strlen(&c->order[turn]));
		if (apart_run(run_one, job, 10))
			job->course = all;
	}
}

/* Shows how a failed order fails. */
static void
explain(Job *job)
{
	job->verbose = false;
	shorten(job);
	job->verbose = true;
	apart_run(run_one, job, 0);
	printf("to see it again: build/sim --course ");
	print_course(stdout, &job->course);
	printf("\n");
}

static bool
parse_course(const char *text, Course *c)
{
	char way[16] = "";

	memset(c, 0, sizeof(*c));
	for (int i = 0; i < CLIENTS; i++)
	{
		size_t len = strcspn(text, i < CLIENTS - 1 ? "," : ":");

		if (len > OPS || text[len] == '\0')
			return false;
		memcpy(c->programs[i], text, len);
		text += len + 1;
	}
	if (sscanf(text, "%12[012]:%15s", c->order, way) != 2)
		return false;
	for (c->way = WAY_PATIENT; c->way < WAYS; c->way++)
	{
		if (strcmp(way, way_names[c->way]) == 0)
			return true;
	}
	return false;
}

/* Returns false if it fails, or if there is no such course. */
bool
exhaust_replay(const char *text)
{
	Job job = {.verbose = true};

	return parse_course(text, &job.course) && apart_run(run_one, &job, 0);
}

static bool
run_triple(const int *triple, const Job *like, Tally *tally, Job *job)
{
	bool all = true;

	for (Way way = WAY_PATIENT; way < WAYS; way++)
	{
		*job = *like;
		for (int i = 0; i < CLIENTS; i++)
			get_program(triple[i], job->course.programs[i]);
		job->course.way = way;
		if (!apart_run(run_orders, job, 0))
		{
			explain(job);
			return false;
		}
		tally->orders += job->orders;
		tally->turns += job->turns;
		all = all && job->done;
	}
	tally->triples += all;
	return true;
}

/* Runs every n-th order of each triple; the seed determines which ones. */
bool
exhaust(uint32_t every, uint64_t seed, double seconds)
{
	static int triples[NPROGRAMS * NPROGRAMS * NPROGRAMS][CLIENTS];
	int n = list_triples(triples);
	Job like = {.every = every, .first = (uint32_t) (seed % every)};
	Job *job = apart_alloc(sizeof(Job));
	Tally tally = {0};

	if (seconds > 0)
		like.end = wall_seconds() + seconds;
	printf("3 clients with 4 operations on 2 locks: %d programs, %d triples of them, 34,650 orders of each, "
		   "in 4 "
		   "ways; every %u. of them, from number %u on\n",
		   NPROGRAMS, n, every, like.first);
	for (int i = 0; i < n && (like.end == 0 || wall_seconds() < like.end); i++)
	{
		if (!run_triple(triples[i], &like, &tally, job))
			return false;
	}
	printf("%llu of %d triples, %llu runs, %llu turns: all as the model\n",
		   (unsigned long long) tally.triples, n, (unsigned long long) tally.orders,
		   (unsigned long long) tally.turns);
	return true;
}
