/*
 * turns.c
 *		What turns send, and what they make of replies.  The session has no threads
 *		and no server: the library is linked so that its calls come here
 *		(Makefile).
 */
#include "client.h"

#include <arpa/inet.h>

#include "due.h"
#include "error.h"
#include "fake.h"
#include "objects.h"
#include "state.h"
#include "turn.h"

/* --- the server --- */

#define ROWS_MAX  20
#define ITEMS_MAX 2000

typedef struct
{
	char item[16], action[32], name[300], number[32], owner[300], value[100];
} item;

static item items[ITEMS_MAX];
static int n_items;
static char call[32], seen[2][32], wait_text[32];
static const char *rows[ROWS_MAX]; /* what it answers: "column=value column=value" */
static int n_rows;
static enum { ANSWERS, BREAKS, FAILS } way;
static const char *failure;
static const char *notified; /* the channel of a notification that comes with the answer */

static const char *const columns[] = {
	"item",     "event",   "kind", "name",     "token",       "queue_position", "owner",    "reason",
	"sqlstate", "message", "hint", "validity", "incarnation", "news",           "complete", "channel"};
#define COLUMNS (int) (sizeof(columns) / sizeof(columns[0]))

/* One text of the array; NULL is empty. */
static const char *
read_text(const char *from, char *to, size_t size)
{
	uint32_t len;

	memcpy(&len, from, sizeof(len));
	len = ntohl(len);
	to[0] = '\0';
	if (len != UINT32_MAX)
		snprintf(to, size, "%.*s", (int) len, from + sizeof(len));
	return from + sizeof(len) + (len != UINT32_MAX ? len : 0);
}

static void
read_items(const char *array)
{
	uint32_t n = 0;

	n_items = 0;
	if (array == NULL)
		return;
	memcpy(&n, array + 12, sizeof(n));
	array += 20;
	for (uint32_t i = 0; i < ntohl(n) / 6; i++)
	{
		item *it = &items[n_items++];

		array = read_text(array, it->item, sizeof(it->item));
		array = read_text(array, it->action, sizeof(it->action));
		array = read_text(array, it->name, sizeof(it->name));
		array = read_text(array, it->number, sizeof(it->number));
		array = read_text(array, it->owner, sizeof(it->owner));
		array = read_text(array, it->value, sizeof(it->value));
	}
}

static void
set_row(PGresult *result, int row, const char *text)
{
	char copy[500], *rest = NULL;

	snprintf(copy, sizeof(copy), "%s", text);
	for (int c = 0; c < COLUMNS; c++)
		PQsetvalue(result, row, c, NULL, -1);
	for (char *pair = strtok_r(copy, " ", &rest); pair != NULL; pair = strtok_r(NULL, " ", &rest))
	{
		char *value = strchr(pair, '=');

		*value++ = '\0';
		for (int c = 0; c < COLUMNS; c++)
		{
			if (strcmp(columns[c], pair) == 0)
				PQsetvalue(result, row, c, value, (int) strlen(value));
		}
	}
}

extern PGresult *__wrap_le_sync(le_session *s, const char *const *values, int items_length);

PGresult *
__wrap_le_sync(le_session *s, const char *const *values, int items_length)
{
	PGresAttDesc attributes[COLUMNS];
	PGresult *result;

	(void) items_length;
	snprintf(call, sizeof(call), "%s", values[1]);
	snprintf(seen[0], sizeof(seen[0]), "%s", values[2] != NULL ? values[2] : "");
	snprintf(seen[1], sizeof(seen[1]), "%s", values[3] != NULL ? values[3] : "");
	snprintf(wait_text, sizeof(wait_text), "%s", values[5] != NULL ? values[5] : "");
	read_items(values[4]);
	if (notified != NULL)
	{
		le_lock(s);
		le_hear(s, notified);
		le_unlock(s);
		notified = NULL;
	}
	if (way != ANSWERS)
	{
		if (way == BREAKS)
			s->net.conn = NULL;
		le_error_server(&s->net.error, way == BREAKS ? "08006" : failure, "it fails", NULL);
		return NULL;
	}
	memset(attributes, 0, sizeof(attributes));
	for (int c = 0; c < COLUMNS; c++)
		attributes[c].name = (char *) columns[c];
	result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	PQsetResultAttrs(result, COLUMNS, attributes);
	for (int i = 0; i < n_rows; i++)
		set_row(result, i, rows[i]);
	return result;
}

#define HEAD "event=lease validity=600000000 incarnation=1 news=5 complete=f channel=le_c"
#define ALL  "event=lease validity=600000000 incarnation=2 news=9 complete=t channel=le_c"

static void
answer(const char *head, const char *a, const char *b, const char *c)
{
	way = ANSWERS;
	n_rows = 0;
	for (int i = 0; i < 4; i++)
	{
		const char *row = (const char *const[]){head, a, b, c}[i];

		if (row != NULL)
			rows[n_rows++] = row;
	}
}

/* --- the session --- */

static le_session *s;

static void
begin(void)
{
	s = new_session();
	s->connected = true;
	s->net.conn = (PGconn *) &way; /* nobody looks */
	atomic_store(&s->state, LE_CONNECTED);
	atomic_store(&s->lease, 7);
	s->renew_at = le_now_ns() + 100 * LE_SEC_NS;
}

static void
turn(const char *head, const char *a, const char *b)
{
	s->net.conn = (PGconn *) &way;
	answer(head, a, b, NULL);
	le_lock(s);
	le_turn(s);
	le_unlock(s);
}

static void
broken(void)
{
	way = BREAKS;
	le_lock(s);
	le_turn(s);
	le_unlock(s);
	s->connected = true;
}

static void
end(void)
{
	le_lock(s);
	le_end(s, "", "the end");
	le_unlock(s);
	is_int(s->refs, 100, "no references are kept");
	free_session(s);
}

static bool
is_item(int i, const char *action, const char *name, const char *number)
{
	return i < n_items && strcmp(items[i].action, action) == 0 && strcmp(items[i].name, name) == 0 &&
		   (number == NULL || strcmp(items[i].number, number) == 0);
}

/* --- requests --- */

static void
results(void)
{
	static const char *const pair[] = {"p", "q"};
	le_how permit = {.size = sizeof(permit), .permits = 3}, shared = {.size = sizeof(shared), .shared = 1};
	le_hold *a, *b, *c, *d, *e;

	begin();
	a = enqueue(s, "a");
	if (le_enqueue(s, pair, 1, &permit, &b, &error) != LE_OK ||
		le_enqueue(s, pair, 2, &shared, &c, &error) != LE_OK ||
		le_enqueue_candidate(s, "e", "text", &d, &error) != LE_OK)
		die("%s", error.message);
	turn(HEAD, "item=0 event=granted token=11", "item=1 event=queued token=12 queue_position=3");
	ok(n_items == 5 && is_item(0, "enqueue_lock", "a", "0") && is_item(1, "enqueue_permit", "p", "3") &&
		   is_item(2, "enqueue_shared", "p", "0") && is_item(3, "enqueue_shared", "q", "0") &&
		   is_item(4, "enqueue_candidate", "e", "0"),
	   "all travel in one call, in their order");
	ok(strcmp(items[2].item, items[3].item) == 0 && strcmp(items[0].item, items[1].item) != 0,
	   "several names of one are one item");
	ok(strcmp(items[0].owner, "me#0-1") == 0 && strcmp(items[4].owner, "me#0-4") == 0 &&
		   strcmp(items[4].value, "text") == 0 && items[0].value[0] == '\0',
	   "each with an owner of its own");
	ok(strcmp(call, "1") == 0 && seen[0][0] == '\0' && strcmp(wait_text, "500 ms") == 0,
	   "the first call, of one that has seen nothing");
	ok(le_valid(a) && le_token(a) == 11, "one is granted");
	ok(le_get_hold_state(b) == LE_HOLD_WAITING && le_position(b) == 3 && le_token(b) == 0, "one waits");
	ok(le_due(s) == 0 || s->lists[LE_ASKS].next == &c->link, "what has no row is asked for again");
	turn(HEAD, "item=0 event=error sqlstate=40001 message=later",
		 "item=1 event=error sqlstate=42501 message=never");
	ok(n_items == 3 && strcmp(call, "2") == 0 && strcmp(seen[0], "1") == 0 && strcmp(seen[1], "5") == 0,
	   "in the next call, which names what was seen");
	is_status(le_await(d, 0, &error), LE_DENIED, "an error is that of its item");
	ok(strcmp(error.sqlstate, "42501") == 0 && strcmp(error.message, "never") == 0, "in its words");
	is_status(le_await(c, 0, &error), LE_WAITING, "what passes is tried again");
	ok(s->ask_at > le_now_ns(), "after a while");
	s->ask_at = 0;
	le_cancel(c);
	turn(HEAD, "event=granted token=12 kind=lock name=p owner=me#0-2", NULL);
	is_int(n_items, 0, "unless nobody wants it any more");
	ok(le_valid(b) && le_token(b) == 12, "news: a place was granted");
	le_drop(d);
	le_drop(c);

	answer(HEAD, "item=0 event=not_granted", NULL, NULL);
	is_status(lock(s, "t", 0, &e), LE_TIMEOUT, "a try makes its own turn");
	ok(is_item(0, "try_lock", "t", "0"), "takes no place");
	answer(HEAD, "item=0 event=released", NULL, NULL);
	is_status(le_release(a, 0, &error), LE_OK, "so does a release");
	ok(n_items == 1 && is_item(0, "release", "a", "11") && items[0].owner[0] == '\0', "by its token");
	ok(wait_text[0] == '\0', "which waits for nothing");
	answer(HEAD, "item=0 event=not_held", NULL, NULL);
	is_status(le_release(b, 0, &error), LE_LOST, "one that had been lost");
	end();
}

static void
terms(void)
{
	le_hold *term;

	begin();
	answer(HEAD, "item=0 event=granted token=11", NULL, NULL);
	is_status(le_campaign(s, "e", "me", -1, &term, &error), LE_OK, "elected");
	answer(HEAD, "item=0 event=proclaimed", NULL, NULL);
	is_status(le_proclaim(term, "you", &error), LE_OK, "proclaimed");
	ok(is_item(0, "proclaim", "e", "11") && strcmp(items[0].value, "you") == 0 && wait_text[0] != '\0',
	   "by an item");
	answer(HEAD, "item=0 event=not_held", NULL, NULL);
	is_status(le_proclaim(term, "you", &error), LE_LOST, "no term any more");
	answer(HEAD, "item=0 event=released", NULL, NULL);
	is_status(le_resign(term, &error), LE_OK, "resigned");
	ok(is_item(0, "resign", "e", "11"), "by an item");
	end();
}

/* What is not durable yet. */
static void
pending(void)
{
	le_hold *a, *b;

	begin();
	a = enqueue(s, "a");
	b = enqueue(s, "b");
	turn("event=lease incarnation=1 news=0 channel=le_c", "item=0 event=pending", "item=1 event=pending");
	ok(le_due(s) == 0 && le_link_empty(&s->lists[LE_ASKS]), "what is pending is looked for at once");
	turn(HEAD, "event=granted token=11 kind=lock name=a owner=me#0-1", NULL);
	ok(n_items == 0 && le_valid(a) && le_token(a) == 11, "news tell of it");
	is_status(le_await(b, 0, &error), LE_WAITING, "or not yet");
	turn(ALL, "event=granted token=11 kind=lock name=a owner=me#0-1", NULL);
	ok(le_valid(a), "what a complete reply has is held");
	turn(HEAD, "item=0 event=queued token=12 queue_position=1", NULL);
	ok(n_items == 1 && is_item(0, "enqueue_lock", "b", "0"), "what it does not have is asked for again");
	turn("event=lease incarnation=2 news=9 channel=le_c", NULL, NULL);
	ok(le_valid(a) && le_due(s) == 0, "a reply without news says nothing of what is lost");
	turn(ALL, NULL, NULL);
	is_status(le_await(a, 0, &error), LE_LOST, "what is in no complete reply is lost");
	is_status(le_await(b, 0, &error), LE_LOST, "also a place");
	ok(strcmp(error.sqlstate, "LE001") == 0 && s->waiting == 0, "by its code");
	le_drop(a);
	le_drop(b);
	end();
}

/* --- answers that are lost --- */

static void
lost_answers(void)
{
	le_hold *a, *b, *c;

	begin();
	a = enqueue(s, "a");
	b = enqueue(s, "b");
	c = enqueue(s, "c");
	broken();
	is_int(le_get_state(s), LE_SUSPENDED, "the connection is gone");
	le_drop(c);
	turn(HEAD, "event=queued token=11 kind=lock name=a owner=me#0-1",
		 "event=granted token=13 kind=lock name=c owner=me#0-3");
	is_int(n_items, 0, "the next call only reads the news");
	is_int(le_get_state(s), LE_CONNECTED, "and renews");
	is_int(s->waiting, 1, "one has its place");
	turn(HEAD, "item=0 event=released", NULL);
	ok(n_items == 1 && is_item(0, "release", "c", "13"),
	   "what nobody wants any more is given back, by itself");
	turn(HEAD, "item=0 event=granted token=12", NULL);
	ok(n_items == 1 && is_item(0, "enqueue_lock", "b", "0") && strcmp(items[0].owner, "me#0-2") == 0,
	   "what was not done is asked for again, by the same owner");
	ok(le_valid(b), "and granted");

	/* a release whose answer is lost was done */
	le_drop(b);
	broken();
	turn(HEAD, NULL, NULL);
	turn(HEAD, "item=0 event=not_held", NULL);
	ok(is_item(0, "release", "b", "12"), "a release is sent once more");
	le_drop(a);
	turn("event=lease", "item=0 event=released", NULL);
	end();
}

/* A grant may be announced before the answer is read that says that it is waited for. */
static void
notifications(void)
{
	le_hold *a;

	begin();
	turn(HEAD, NULL, NULL);
	notified = "le_c";
	turn(HEAD, NULL, NULL);
	ok(le_due(s) > le_now_ns() && s->heard, "a notification while nobody waits is heard, and no more");
	a = enqueue(s, "a");
	s->listens = true;
	notified = "le_c";
	turn(HEAD, "item=0 event=queued token=11 queue_position=1", NULL);
	is_int(le_due(s), 0, "one that comes with a place is looked after");
	turn(HEAD, "event=granted token=11 kind=lock name=a owner=me#0-1", NULL);
	ok(le_valid(a) && le_due(s) > le_now_ns(), "and the grant is found");
	notified = "le_other";
	turn(HEAD, NULL, NULL);
	ok(le_due(s) > le_now_ns(), "what is announced to others is not");
	le_drop(a);
	end();
}

extern le_hold *__real_le_hold_alloc(le_session *session, le_kind kind, const char *const *names, int n,
									 const char *candidate);
extern le_hold *__wrap_le_hold_alloc(le_session *session, le_kind kind, const char *const *names, int n,
									 const char *candidate);
static bool no_memory;

/* For holds that turns make. */
le_hold *
__wrap_le_hold_alloc(le_session *session, le_kind kind, const char *const *names, int n,
					 const char *candidate)
{
	return no_memory ? NULL : __real_le_hold_alloc(session, kind, names, n, candidate);
}

static void
ghosts(void)
{
	begin();
	turn(HEAD, "event=granted token=11 kind=lock name=a owner=me#0-9",
		 "event=granted token=12 kind=lock name=b owner=me#00-9");
	turn(HEAD, "item=0 event=released", NULL);
	ok(n_items == 1 && is_item(0, "release", "a", "11"),
	   "what has our owner, and nobody asked for, is released");
	turn(HEAD, "event=queued token=13 kind=election name=e owner=me#0-9",
		 "event=granted token=14 kind=lock name=x");
	turn(HEAD, "item=0 event=released", NULL);
	ok(n_items == 1 && is_item(0, "resign", "e", "13"), "also a candidacy");
	no_memory = true;
	turn(HEAD, "event=granted token=15 kind=lock name=a owner=me#0-9", NULL);
	no_memory = false;
	ok(le_due(s) > le_now_ns() && le_due(s) < le_until(10000), "without memory for it the next turn is soon");
	turn(ALL, "event=granted token=15 kind=lock name=a owner=me#0-9", NULL);
	ok(n_items == 0 && seen[0][0] == '\0', "and asks for all news");
	turn(HEAD, "item=0 event=released", NULL);
	ok(n_items == 1 && is_item(0, "release", "a", "15"), "then it is released");
	s->orphan = true;
	turn(HEAD, "event=granted token=11 kind=lock name=a owner=me#0-9", NULL);
	ok(le_due(s) > 0, "not of a session that leaves all behind");
	end();
}

/* --- ends --- */

static le_hold *
granted(const char *name, const char *row)
{
	le_hold *hold = enqueue(s, name);

	turn(HEAD, row, NULL);
	if (!le_valid(hold))
		die("not granted");
	return hold;
}

static void
ends(void)
{
	le_hold *a, *b;

	begin();
	a = granted("a", "item=0 event=granted token=11");
	b = granted("b", "item=0 event=granted token=12");
	turn(HEAD, "event=lost token=11 reason=forced", NULL);
	is_status(le_await(a, 0, &error), LE_LOST, "a hold is lost");
	ok(strstr(error.message, "forced") != NULL && le_valid(b), "with the reason, and no other");
	is_status(le_release(a, 0, &error), LE_LOST, "which its release tells");
	is_int(n_items, 0, "nothing is sent for it");

	turn(HEAD, "event=evicted token=12 kind=lock name=b owner=me#0-2", NULL);
	is_status(le_await(b, 0, &error), LE_LOST, "one is evicted");
	ok(strstr(error.message, "evicted") != NULL && !le_valid(b), "which is told at once");
	ok(le_due(s) > le_now_ns(), "the library does not give it back");
	turn(ALL, "event=granted token=12 kind=lock name=b owner=me#0-2", NULL);
	ok(le_due(s) > le_now_ns(), "whatever is told of it");
	answer(HEAD, "item=0 event=released", NULL, NULL);
	is_status(le_release(b, 0, &error), LE_LOST, "until the application does");
	ok(n_items == 1 && is_item(0, "release", "b", "12"), "by its token");

	a = granted("a", "item=0 event=granted token=13");
	turn("event=gone reason=expired", NULL, NULL);
	ok(le_get_state(s) == LE_ENDED && !le_valid(a) && s->lease_gone, "the lease is gone");
	is_status(le_release(a, 0, &error), LE_LOST, "with all that it held");
	ok(strstr(error.message, "expired") != NULL, "and why");
	end();
}

/* --- releases --- */

static void
closed_names(void)
{
	le_hold *a, *b;

	begin();
	a = granted("a", "item=0 event=granted token=11");
	b = granted("b", "item=0 event=granted token=12");
	answer(HEAD, "item=0 event=pending", NULL, NULL);
	s->call = 0; /* nobody makes the next turn */
	is_status(le_release(a, 1000, &error), LE_UNKNOWN, "a name that is closed, and not durable yet");
	ok(strcmp(items[0].value, "1000 ms") == 0 && wait_text[0] != '\0', "is waited for");
	s->call = LE_SEC_NS;
	turn(HEAD, "item=0 event=not_held", NULL);
	ok(is_item(0, "release", "a", "11") && strcmp(items[0].value, "1000 ms") == 0, "it is sent again");
	ok(le_link_empty(&s->lists[LE_GIVES]) && le_link_empty(&s->lists[LE_HELD]) == false, "and done");

	s->call = 0;
	answer(HEAD, "item=0 event=error sqlstate=53400 message=too_long", NULL, NULL);
	is_status(le_release(b, 1000, &error), LE_UNKNOWN, "one that is closed for too long");
	turn("event=lease", "item=0 event=released", NULL);
	ok(is_item(0, "release", "b", "12") && items[0].value[0] == '\0', "is released without");
	end();
}

/* As many as a call has room for, name by name. */
static void
many(void)
{
	static char texts[300][8];
	static const char *names[300];
	le_hold *all, *more;

	for (int i = 0; i < 300; i++)
	{
		snprintf(texts[i], sizeof(texts[i]), "n%d", i);
		names[i] = texts[i];
	}
	begin();
	if (le_enqueue(s, names, 300, NULL, &all, &error) != LE_OK)
		die("%s", error.message);
	turn(HEAD, "item=0 event=granted token=11", NULL);
	ok(n_items == 300 && le_valid(all), "many names");
	for (int i = 0; i < 4; i++)
	{
		if (le_enqueue(s, names, 300, NULL, &more, &error) != LE_OK)
			die("%s", error.message);
		le_drop(i > 0 ? more : all);
		all = i == 0 ? more : all;
	}
	turn(HEAD, NULL, NULL);
	ok(n_items == LE_ITEMS_MAX && is_item(127, "release", "n127", "11"),
	   "a call has room for so many releases");
	turn(HEAD, NULL, NULL);
	ok(n_items == LE_ITEMS_MAX && is_item(0, "release", "n0", "11"), "those without a row are sent again");
	le_drop(all);
	end();
}

/* --- calls that fail --- */

/* The call of a single item fails, perhaps after it had its effect; and it would have read what was announced. */
static void
refused_call(void)
{
	le_hold *a, *b;

	begin();
	a = enqueue(s, "a");
	turn(HEAD, "item=0 event=queued token=11 queue_position=1", NULL);
	s->listens = true;
	le_lock(s);
	le_hear(s, "le_c");
	le_unlock(s);
	b = enqueue(s, "b");
	way = FAILS;
	failure = "53200";
	le_lock(s);
	le_turn(s);
	le_unlock(s);
	ok(n_items == 1 && is_item(0, "enqueue_lock", "b", "0"), "a call with one item fails");
	is_status(le_await(b, 0, &error), LE_LIMIT, "which is told");
	is_int(le_due(s), 0, "the next call reads the news at once");
	turn(HEAD, "event=granted token=11 kind=lock name=a owner=me#0-1",
		 "event=queued token=12 kind=lock name=b owner=me#0-2");
	ok(n_items == 0 && le_valid(a), "a grant that had been announced is found");
	turn(HEAD, "item=0 event=released", NULL);
	ok(n_items == 1 && is_item(0, "release", "b", "12"),
	   "what the server has of the one that failed is given back");
	le_drop(a);
	le_drop(b);
	end();
}

static void
refused_calls(void)
{
	le_hold *a, *b;

	begin();
	a = enqueue(s, "a");
	b = enqueue(s, "b");
	way = FAILS;
	failure = "22P05";
	le_lock(s);
	le_turn(s);
	le_unlock(s);
	is_status(le_await(a, 0, &error), LE_WAITING, "a call with several items fails");
	turn(HEAD, NULL, NULL);
	s->ask_at = 0;
	way = FAILS;
	le_lock(s);
	le_turn(s);
	le_unlock(s);
	ok(n_items == 1 && is_item(0, "enqueue_lock", "a", "0"), "each is sent alone");
	is_status(le_await(a, 0, &error), LE_INVALID, "the one that cannot be read is told so");
	turn(HEAD, "item=0 event=granted token=12", NULL);
	ok(is_item(0, "enqueue_lock", "b", "0") && le_valid(b), "the other one is granted");
	le_drop(a);

	failure = "58030";
	way = FAILS;
	le_lock(s);
	le_turn(s);
	le_unlock(s);
	ok(le_get_state(s) == LE_SUSPENDED && le_valid(b), "what passes loses nothing");
	ok(le_due(s) > le_now_ns(), "and is tried after a while");
	turn("event=lease incarnation=1 news=5 complete=f", NULL, NULL);
	ok(le_get_state(s) == LE_SUSPENDED, "a reply without a validity renews nothing");
	le_drop(b);
	end();
}

/* --- runners --- */

/* What has become of a candidacy by the time that the runner looks at it: the replies to two turns. */
static const char *const candidacies[][2] = {
	{"item=0 event=error sqlstate=53200 message=full", NULL},
	{"item=0 event=granted token=11", "event=lost token=11 reason=forced"},
	{"item=0 event=granted token=12", NULL},
};
static _Atomic int n_candidacies = -1; /* so many have been asked for by a runner; -1: there is none */
static _Atomic int elected, lost;
static _Atomic int64_t term; /* that was held when on_elected was called */

extern le_status __real_le_enqueue_candidate(le_session *session, const char *election, const char *candidate,
											 le_hold **hold, le_error *own_error);
extern le_status __wrap_le_enqueue_candidate(le_session *session, const char *election, const char *candidate,
											 le_hold **hold, le_error *own_error);

/* Another thread makes the turns before the runner goes on. */
le_status
__wrap_le_enqueue_candidate(le_session *session, const char *election, const char *candidate, le_hold **hold,
							le_error *own_error)
{
	le_status status = __real_le_enqueue_candidate(session, election, candidate, hold, own_error);

	if (status != LE_OK || n_candidacies < 0)
		return status;
	for (int i = 0; i < 2 && candidacies[n_candidacies][i] != NULL; i++)
		turn(HEAD, candidacies[n_candidacies][i], NULL);
	n_candidacies++;
	return status;
}

static int
on_elected(le_hold *hold, void *arg)
{
	(void) arg;
	elected++;
	term = le_valid(hold) ? le_token(hold) : 0;
	answer(HEAD, "item=0 event=released", NULL, NULL);
	return 1;
}

static void
on_lost(le_hold *hold, void *arg)
{
	(void) hold;
	(void) arg;
	lost++;
}

/* A candidacy that has ended before the runner first looks at it. */
static void
runners(void)
{
	le_callbacks callbacks = {.size = sizeof(callbacks), .on_elected = on_elected, .on_lost = on_lost};
	le_runner *runner;

	begin();
	n_candidacies = 0;
	if (le_run(s, "e", "me", &callbacks, &runner, &error) != LE_OK)
		die("%s", error.message);
	eventually_quietly(elected > 0);
	is_status(le_stop(runner, &error), LE_OK, "a runner whose first candidacies are refused, and lost");
	is_int(n_candidacies, 3, "stands again after each of them");
	ok(elected == 1 && term == 12, "on_elected is called for the one that is elected");
	is_int(lost, 0, "and no term is lost that on_elected was not called for");
	ok(n_items == 1 && is_item(0, "resign", "e", "12"), "which resigns");
	end();
}

static void
tests(void)
{
	results();
	terms();
	pending();
	lost_answers();
	notifications();
	ghosts();
	ends();
	closed_names();
	many();
	refused_call();
	refused_calls();
	runners();
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
