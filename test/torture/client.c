/*
 * client.c
 *		A client of the torture test: acquires, renews, loses and hands over
 *		locks of all kinds at random until SIGTERM, and writes a history.
 *
 *		client MODE NAME DIRECTORY SEED CONNINFO
 *
 * MODE: mixed; lasting, which is the same without locks that are bound to their
 * connection; or administered, which has more of what administrators do; or
 * one of counter and unfenced, which only count: they read a counter under a
 * lock, pause, and write it back, with and without fence_lock.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chance.h"
#include "record.h"

#define MAX_PERMITS 4
#define ELECTIONS   2
#define COUNTERS    2
#define MAX_EACH    4

typedef struct Held
{
	const char *name;
	char token[24];
	int ttl; /* ms; 0: bound to the connection */
} Held;

static const char *client;
static char unique[64];
static int uniques;
static Answer answer;
static bool may_stop_in_the_middle;
static bool lasting;

static void
stop(int signo)
{
	(void) signo;
	stopping = 1;
}

/* Returns a name that has never been used. */
static const char *
new_name(void)
{
	snprintf(unique, sizeof(unique), "%s-%d", client, ++uniques);
	return unique;
}

/* Calls a function on a held lock; operation and function differ only in their names. */
static bool
ask(const char *operation, const char *function, const Held *h, const char *more)
{
	char what[256];

	snprintf(what, sizeof(what), "%s %s token=%s", operation, h->name, h->token);
	return callf(&answer, what, "SELECT %s('%s', %s%s)", function, h->name, h->token, more);
}

static bool
is_true(void)
{
	return answer.status == ANSWER_OK && answer.value[0] == 't';
}

static bool
renew(const Held *h)
{
	return ask("renew", h->name[0] == 'e' ? "renew_leadership" : "renew_lock", h, "");
}

static bool
is_held(const Held *h)
{
	return ask("is_held", h->name[0] == 'e' ? "is_leader" : "is_held", h, "") && is_true();
}

/* Releases. If the outcome is unknown, the release is repeated, which does no harm. */
static void
release(const Held *h)
{
	for (int i = 0; i < 3; i++)
	{
		ask("release", h->name[0] == 'e' ? "resign" : "release_lock", h, "");
		if (answer.status != ANSWER_UNKNOWN || in_transaction() || h->ttl == 0)
			break;
	}
}

/* Works under the lock for a while. Returns false if the lock was lost. */
static bool
work(Held *h)
{
	/* sometimes for longer than its TTL */
	for (int n = one_in(12) ? up_to(10) : 0; n > 0 && !stopping; n--)
	{
		pause_ms(up_to(h->ttl > 0 && h->ttl < 400 ? h->ttl / 4 : 100));
		if (h->ttl > 0 && !one_in(3))
			renew(h);
		else
			is_held(h);
		if ((answer.status == ANSWER_OK && answer.value[0] == 'f') || answer.status == ANSWER_NULL)
			return false;
	}
	if (one_in(40) && h->ttl > 0)
	{
		char what[256], buffer[32];
		int ttl = any_ttl();

		snprintf(what, sizeof(what), "renew %s token=%s ttl=%d", h->name, h->token, ttl);
		if (!callf(&answer, what, "SELECT %s('%s', %s, %s)",
				   h->name[0] == 'e' ? "renew_leadership" : "renew_lock", h->name, h->token,
				   interval(buffer, ttl)))
			return answer.status != ANSWER_NULL;
		h->ttl = ttl;
	}
	if (one_in(3))
		pause_ms(up_to(8));
	return true;
}

static void
work_and_release(Held *h)
{
	if (!work(h))
		return;
	if (h->ttl > 0 && h->ttl <= 500 && one_in(8))
		return; /* left to its TTL */
	release(h);
}

/* --- locks --- */

static bool
acquire(Held *h, const char *name, bool shared, int ttl, int wait, const char *owner)
{
	char what[256], b1[32], b2[32];

	h->name = name;
	h->ttl = ttl;
	snprintf(what, sizeof(what), "acquire %s mode=%s ttl=%d wait=%d owner=%s", name, shared ? "s" : "x", ttl,
			 wait, owner ? owner : "-");
	if (!callf(&answer, what, "SELECT acquire_lock('%s', %s, %s, '%s', %s%s%s)", name, interval(b1, ttl),
			   wait_argument(b2, wait), shared ? "shared" : "exclusive", owner ? "'" : "",
			   owner ? owner : "NULL", owner ? "'" : ""))
		return false;
	snprintf(h->token, sizeof(h->token), "%.23s", answer.value);
	return true;
}

static void
one_lock(void)
{
	Held h;
	bool bound = !lasting && one_in(8);
	const char *owner = !bound && one_in(4) ? new_name() : NULL;
	int ttl = bound ? 0 : any_ttl();
	bool shared = one_in(4);

	if (!acquire(&h, any_lock(), shared, ttl, any_wait(), owner))
		return;
	if (owner != NULL && one_in(2))
	{
		/* a second hold, and an additional release */
		Held again;

		if (acquire(&again, h.name, shared, ttl, 0, owner) && !stopping)
			release(&again);
		else if (answer.status == ANSWER_UNKNOWN)
			return;
	}
	if (bound && one_in(10))
		disconnect();
	else
		work_and_release(&h);
}

/* The assumed number of permits. An error of the server contains the real one. */
static int permits = MAX_PERMITS - 1;

static void
learn_permits(void)
{
	if (answer.status == ANSWER_ERROR && strcmp(answer.value, "22023") == 0)
		sscanf(answer.message, "%*s is in use with %d permits", &permits);
}

static bool
acquire_permit(Held *h, const char *name, int n, int ttl, int wait)
{
	char what[256], b1[32], b2[32];

	h->name = name;
	h->ttl = ttl;
	snprintf(what, sizeof(what), "acquire %s mode=p%d ttl=%d wait=%d owner=-", name, n, ttl, wait);
	if (!callf(&answer, what, "SELECT acquire_permit('%s', %d, %s, %s)", name, n, interval(b1, ttl),
			   wait_argument(b2, wait)))
		return false;
	snprintf(h->token, sizeof(h->token), "%.23s", answer.value);
	return true;
}

static bool
set_permits(const char *name, int n)
{
	char what[64];

	snprintf(what, sizeof(what), "set_permits %s value=%d", name, n);
	return callf(&answer, what, "SELECT set_permits('%s', %d)", name, n);
}

static void
permit(void)
{
	Held h;
	int n = 1 + up_to(MAX_PERMITS);

	if (!acquire_permit(&h, "p0", permits, any_ttl(), any_wait()))
	{
		learn_permits();
		return;
	}
	if (one_in(4) && set_permits("p0", n))
		permits = n;
	work_and_release(&h);
}

/* Holds the only permit for long, and raises the number meanwhile. */
static void
one_more_permit(void)
{
	Held h;

	if (!acquire_permit(&h, "p1", 1, 4000, one_in(2) ? 0 : 3000))
		return;
	if (one_in(2))
	{
		pause_ms(up_to(50));
		set_permits("p1", 2);
	}
	pause_ms(1000 + up_to(1000));
	release(&h);
	set_permits("p1", 1);
}

/* Enters the queue of a lock, of permits or of an election. */
static bool
enter_queue(Held *h)
{
	char what[256];
	const char *bar;

	if (h->name[0] == 'p')
	{
		snprintf(what, sizeof(what), "enqueue p0 mode=p%d ttl=%d owner=-", permits, h->ttl);
		callf(&answer, what, "SELECT token, granted FROM enqueue_permit('p0', %d, '%d ms')", permits, h->ttl);
		learn_permits();
	}
	else if (h->name[0] == 'e')
	{
		snprintf(what, sizeof(what), "enqueue %s mode=x ttl=%d owner=- candidate=%s", h->name, h->ttl,
				 client);
		callf(&answer, what, "SELECT term, elected FROM enqueue_candidate('%s', '%s', '%d ms')", h->name,
			  client, h->ttl);
	}
	else
	{
		bool shared = one_in(4);

		snprintf(what, sizeof(what), "enqueue %s mode=%s ttl=%d owner=-", h->name, shared ? "s" : "x",
				 h->ttl);
		callf(&answer, what, "SELECT token, granted FROM enqueue_lock('%s', '%d ms', '%s')", h->name, h->ttl,
			  shared ? "shared" : "exclusive");
	}
	if (answer.status != ANSWER_OK)
		return false;
	bar = strchr(answer.value, '|');
	snprintf(h->token, sizeof(h->token), "%.*s", (int) (bar - answer.value), answer.value);
	return true;
}

/* --- many in one call --- */

/* Chooses some of the locks, each once, in any order; also returns their names as an array. */
static int
some_locks(Held *h, char *array, int ttl)
{
	static const char *const names[LOCKS] = {"l0", "l1", "l2", "l3", "l4", "l5"};
	int first = up_to(LOCKS), step = one_in(2) ? 1 : LOCKS - 1, n = 2 + up_to(3), len = 0;

	for (int i = 0; i < n; i++)
	{
		h[i] = (Held){.name = names[(first + i * step) % LOCKS], .ttl = ttl};
		len += sprintf(array + len, "%s%s", i == 0 ? "{" : ",", h[i].name);
	}
	strcpy(array + len, "}");
	return n;
}

/* Acquires or enqueues each of the locks; returns those that have a token. */
static int
ask_each(Held *h, bool granted[], bool queue)
{
	Answer answers[MAX_EACH];
	const char *what[MAX_EACH], *mode = one_in(4) ? "shared" : "exclusive";
	char texts[MAX_EACH][128], array[64], sql[256];
	int ttl = any_ttl(), n = some_locks(h, array, ttl), kept = 0;

	for (int i = 0; i < n; i++)
	{
		snprintf(texts[i], sizeof(texts[i]), "%s %s mode=%c ttl=%d %sowner=-", queue ? "enqueue" : "acquire",
				 h[i].name, mode[0] == 's' ? 's' : 'x', ttl, queue ? "" : "wait=0 ");
		what[i] = texts[i];
	}
	snprintf(sql, sizeof(sql), "SELECT name, token%s FROM %s('%s', '%d ms', '%s')", queue ? ", granted" : "",
			 queue ? "enqueue_each" : "try_acquire_each", array, ttl, mode);
	if (!call_each(answers, n, what, sql))
		return 0;
	for (int i = 0; i < n; i++)
	{
		if (answers[i].status != ANSWER_OK)
			continue;
		h[kept] = h[i];
		snprintf(h[kept].token, sizeof(h[kept].token), "%.*s", (int) strcspn(answers[i].value, "|"),
				 answers[i].value);
		granted[kept++] = !queue || strstr(answers[i].value, "|t") != NULL;
	}
	return kept;
}

static void
release_each(const Held *h, int n)
{
	Answer answers[MAX_EACH];
	const char *what[MAX_EACH];
	char texts[MAX_EACH][128], sql[512];
	int len = 0;

	for (int i = 0; i < n; i++)
	{
		snprintf(texts[i], sizeof(texts[i]), "release %s token=%s", h[i].name, h[i].token);
		what[i] = texts[i];
	}
	len += sprintf(sql + len, "SELECT * FROM release_each('{");
	for (int i = 0; i < n; i++)
		len += sprintf(sql + len, "%s%s", i == 0 ? "" : ",", h[i].name);
	len += sprintf(sql + len, "}', '{");
	for (int i = 0; i < n; i++)
		len += sprintf(sql + len, "%s%s", i == 0 ? "" : ",", h[i].token);
	sprintf(sql + len, "}')");
	if (!call_each(answers, n, what, sql))
	{
		for (int i = 0; i < n; i++)
			release(&h[i]);
	}
}

/* Requests some locks separately in one call: holds granted locks for a while, and waits for places. */
static void
each(void)
{
	Held h[MAX_EACH];
	bool granted[MAX_EACH];
	int n = ask_each(h, granted, one_in(3));

	for (int round = 0; round < 4 && !stopping; round++)
	{
		for (int i = 0; i < n; i++)
		{
			if (granted[i])
				is_held(&h[i]);
			else
				granted[i] = ask("await", "await_lock", &h[i], "") && is_true();
		}
		pause_ms(up_to(n > 0 && h[0].ttl < 400 ? h[0].ttl / 5 : 30));
		if (one_in(2))
			break;
	}
	if (n > 0 && !(h[0].ttl <= 500 && one_in(8)))
		release_each(h, n);
}

/* --- queues --- */

/* Waits in a queue, and holds a granted lock for a random time of up to this many ms. */
static void
queue_place(const char *name, int hold)
{
	Held h = {.name = name, .ttl = any_ttl()};
	const char *await = name[0] == 'e' ? "await_leadership" : "await_lock";
	bool granted;

	if (!enter_queue(&h))
		return;
	granted = strchr(answer.value, '|')[1] == 't';
	for (int i = 0; !granted && i < 30 && !stopping; i++)
	{
		pause_ms(up_to(h.ttl < 400 ? h.ttl / 5 : 80));
		ask("await", await, &h, one_in(2) ? ", '50 ms'" : "");
		if (answer.status == ANSWER_ERROR)
			return;
		granted = is_true();
	}
	if (granted)
	{
		pause_ms(up_to(hold));
		work_and_release(&h);
	}
	else
		release(&h);
}

/* A job that must not run twice within a while: its release closes the name. */
static void
closed_for_a_while(void)
{
	Held h;
	char what[256];
	int hold_for = 100 + up_to(900);

	if (!acquire(&h, one_in(2) ? "h0" : "h1", false, any_ttl(), any_wait(), NULL))
		return;
	pause_ms(up_to(20));
	snprintf(what, sizeof(what), "release %s token=%s hold_for=%d", h.name, h.token, hold_for);
	callf(&answer, what, "SELECT release_lock('%s', %s, '%d ms')", h.name, h.token, hold_for);
}

/* Ends holders by force, as an administrator would. */
static void
force(const char *name)
{
	char what[64];

	snprintf(what, sizeof(what), "force %s", name);
	callf(&answer, what, "SELECT %s('%s')", name[0] == 'e' ? "force_resign" : "force_release_lock", name);
}

static void
several_locks(void)
{
	Held h = {.ttl = any_ttl()};
	char names[32], array[64], what[256], b1[32], b2[32];
	int first = up_to(LOCKS), second = (first + 1 + up_to(LOCKS - 1)) % LOCKS;
	int wait = any_wait();

	snprintf(names, sizeof(names), "l%d,l%d", first, second);
	snprintf(array, sizeof(array), "{l%d,l%d}", first, second);
	snprintf(what, sizeof(what), "acquire %s mode=x ttl=%d wait=%d owner=-", names, h.ttl, wait);
	if (!callf(&answer, what, "SELECT acquire_locks('%s', %s, %s)", array, interval(b1, h.ttl),
			   wait_argument(b2, wait)))
		return;
	snprintf(h.token, sizeof(h.token), "%.23s", answer.value);
	pause_ms(up_to(10));
	snprintf(what, sizeof(what), "release %s token=%s", names, h.token);
	callf(&answer, what, "SELECT release_locks('%s', %s)", array, h.token);
}

/* --- leases --- */

static bool
on_lease(const char *name, const char *lease, int wait)
{
	char what[256], b[32];

	snprintf(what, sizeof(what), "acquire %s mode=x lease=%s wait=%d owner=-", name, lease, wait);
	return callf(&answer, what, "SELECT acquire_lock('%s', wait => %s, lease => %s)", name,
				 wait == 0 ? "'0'" : interval(b, wait), lease);
}

static void
lease_call(const char *operation, const char *function, const char *lease)
{
	char what[128];

	snprintf(what, sizeof(what), "%s - lease=%s", operation, lease);
	callf(&answer, what, "SELECT %s(%s)", function, lease);
}

static void
lease(void)
{
	char number[24], what[64];
	int ttl = any_ttl();
	bool alive = true;

	snprintf(what, sizeof(what), "grant_lease - ttl=%d", ttl);
	if (!callf(&answer, what, "SELECT grant_lease('%d ms')", ttl))
		return;
	snprintf(number, sizeof(number), "%.23s", answer.value);
	on_lease(any_lock(), number, 0);
	on_lease(any_lock(), number, ttl / 3 + 1);
	for (int n = up_to(5); n > 0 && alive && !stopping; n--)
	{
		pause_ms(up_to(ttl < 400 ? ttl / 3 : 130));
		lease_call("keep_alive", "keep_alive", number);
		alive = answer.status != ANSWER_NULL;
	}
	if (alive && (ttl > 500 || !one_in(6)))
		lease_call("revoke_lease", "revoke_lease", number);
}

/* --- elections --- */

/*
 * A standby shows what it has replayed, which may be old; an old primary that
 * has become a standby may show changes that no client was told. So if the
 * server may change, only a primary is read: on others, the query divides by zero.
 */
static const char *
of_primary(char buffer[64], const char *name)
{
	snprintf(buffer, 64, lasting ? "substr('%s', 1 / (NOT pg_is_in_recovery())::int)" : "'%s'", name);
	return buffer;
}

static void
leader_of(const char *name)
{
	char what[64], buffer[64];

	snprintf(what, sizeof(what), "current_leader %s", name);
	callf(&answer, what, "SELECT term, candidate FROM current_leader(%s)", of_primary(buffer, name));
}

/* Reads the changes since the last read; every observer must see the same. */
static void
history_of(const char *name)
{
	static char after[ELECTIONS][24];
	char *seen = after[name[1] - '0'];
	char what[128], buffer[64];
	const char *last;

	if (seen[0] == '\0')
		strcpy(seen, "0");
	snprintf(what, sizeof(what), "history %s after=%s", name, seen);
	if (!callf(&answer, what,
			   "SELECT change, term, how FROM election_history(%s, %s) ORDER BY change LIMIT 50",
			   of_primary(buffer, name), seen))
		return;
	last = strrchr(answer.value, ';');
	last = last ? last + 1 : answer.value;
	snprintf(seen, 24, "%.*s", (int) strcspn(last, "|"), last);
}

static void
election(void)
{
	const char *const name = one_in(2) ? "e0" : "e1";
	Held h = {.name = name, .ttl = any_ttl()};
	char what[256], b1[32], b2[32];
	int wait = any_wait();

	if (one_in(3))
		leader_of(name);
	if (one_in(3))
		history_of(name);
	snprintf(what, sizeof(what), "acquire %s mode=x ttl=%d wait=%d owner=- candidate=%s", name, h.ttl, wait,
			 client);
	if (!callf(&answer, what, "SELECT campaign('%s', '%s', %s, %s)", name, client, interval(b1, h.ttl),
			   wait_argument(b2, wait)))
		return;
	snprintf(h.token, sizeof(h.token), "%.23s", answer.value);
	if (one_in(2))
		leader_of(name);
	if (one_in(3))
	{
		snprintf(what, sizeof(what), "proclaim %s token=%s", name, h.token);
		callf(&answer, what, "SELECT proclaim('%s', %s, '%s')", name, h.token, new_name());
	}
	work_and_release(&h);
}

/* --- transactions --- */

static void
end_transaction(bool commit)
{
	commit = commit && answer.status != ANSWER_ERROR;
	if (in_transaction())
		call(&answer, commit ? "commit -" : "rollback -", commit ? "COMMIT" : "ROLLBACK");
}

/* Acquires or releases, or both, in a transaction that may be rolled back. */
static void
transaction(void)
{
	Held h;
	int ttl = !lasting && one_in(6) ? 0 : any_ttl();
	bool before = one_in(2);
	bool inside = !before || one_in(2);

	if (before && !acquire(&h, any_lock(), false, ttl, 1000, NULL))
		return;
	if (!call(&answer, "begin -", "BEGIN"))
		return;
	if (!before && !acquire(&h, any_lock(), false, ttl, one_in(2) ? 0 : 1000, NULL))
	{
		end_transaction(one_in(2));
		return;
	}
	pause_ms(up_to(10));
	if (inside && one_in(2) && in_transaction())
		release(&h);
	end_transaction(!one_in(4));
	if (answer.status != ANSWER_UNKNOWN)
		work_and_release(&h);
}

/*
 * Reads a counter, and writes it back later.  A client that is stopped in between
 * writes an outdated number, unless the fence rejects it.
 */
static void
count(bool fenced)
{
	const char *const name = !fenced ? "u0" : one_in(COUNTERS) ? "c0" : "c1";
	Held h;
	char what[256];
	long long n;

	if (!acquire(&h, name, false, 300, 2000, NULL))
		return;
	snprintf(what, sizeof(what), "read %s", name);
	if (!callf(&answer, what, "SELECT n FROM counter WHERE name = '%s'", name))
		return;
	n = strtoll(answer.value, NULL, 10) + 1;
	/* the nemesis of the control run stops clients that sleep here */
	pause_ms(may_stop_in_the_middle ? up_to(60) : up_to(10));
	if (!call(&answer, "begin -", "BEGIN"))
		return;
	if (fenced && !ask("fence", "fence_lock", &h, ""))
	{
		end_transaction(false);
		return;
	}
	if (one_in(10))
		pause_ms(up_to(50));
	snprintf(what, sizeof(what), "write %s token=%s value=%lld", name, h.token, n);
	callf(&answer, what, "UPDATE counter SET n = %lld, token = %s WHERE name = '%s'", n, h.token, name);
	end_transaction(answer.status == ANSWER_OK);
	if (answer.status != ANSWER_UNKNOWN)
		release(&h);
}

/* Actions of administrators on locks that are held for a while and waited for. */
static void
administered(void)
{
	static const char *const forced[] = {"l0", "p0", "e0", "h0", "f0", "f0"};
	const char *name = forced[up_to(6)];
	Held h;

	switch (up_to(10))
	{
		case 0:
			one_more_permit();
			break;
		case 1:
		case 2:
			permit();
			break;
		case 3:
			queue_place(one_in(2) ? "e0" : "p0", 200);
			break;
		case 4:
			closed_for_a_while();
			break;
		case 5:
			if (acquire(&h, "l0", one_in(2), 2000, 3000, NULL))
			{
				pause_ms(up_to(300));
				release(&h);
			}
			break;
		case 6:
			/* Holds until it is forced out; nothing else ends its holders while others wait. */
			if (acquire(&h, "f0", !one_in(3), 5000, 5000, NULL))
			{
				for (int n = up_to(40); n > 0 && is_held(&h); n--)
					pause_ms(50);
				release(&h);
			}
			break;
		case 7:
			queue_place("e0", 200);
			break;
		case 8:
			one_lock();
			break;
		default:
			force(name);
	}
}

static void
mixed(void)
{
	static const char *const forced[] = {"l0", "l1", "l2", "p0", "h0", "h1", "c0", "c1", "e0", "e1"};

	switch (up_to(15))
	{
		case 0:
		case 1:
		case 2:
		case 3:
			one_lock();
			break;
		case 14:
			each();
			break;
		case 4:
			if (one_in(4))
				queue_place("p0", 1);
			else
				permit();
			break;
		case 5:
		case 6:
			queue_place(any_lock(), 1);
			break;
		case 7:
			several_locks();
			break;
		case 8:
			lease();
			break;
		case 9:
			if (one_in(4))
				queue_place(one_in(2) ? "e0" : "e1", 1);
			else
				election();
			break;
		case 10:
			transaction();
			break;
		case 11:
			closed_for_a_while();
			break;
		case 12:
			if (one_in(4))
				force(forced[up_to(10)]);
			break;
		default:
			count(true);
	}
}

int
main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
	char path[1024];

	if (argc != 6)
	{
		fprintf(stderr,
				"usage: client mixed|lasting|administered|counter|unfenced NAME DIRECTORY SEED CONNINFO\n");
		return 2;
	}
	client = argv[2];
	lasting = strcmp(argv[1], "lasting") == 0;
	may_stop_in_the_middle = strcmp(argv[1], "counter") == 0 || strcmp(argv[1], "unfenced") == 0;
	snprintf(path, sizeof(path), "%s/%s.history", argv[3], client);
	srandom((unsigned) strtoul(argv[4], NULL, 10));
	sigaction(SIGTERM, &action, NULL);
	record_open(path, client, argv[5]);
	while (!stopping)
	{
		if (lasting || strcmp(argv[1], "mixed") == 0)
			mixed();
		else if (strcmp(argv[1], "administered") == 0)
			administered();
		else
			count(strcmp(argv[1], "unfenced") != 0);
		if (in_transaction())
			call(&answer, "rollback -", "ROLLBACK");
		pause_ms(up_to(6));
	}
	disconnect();
	return 0;
}
