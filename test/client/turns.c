/*
 * turns.c
 *		The requests that turns send, and how replies are processed.  The session
 *		has no threads and no server: the library is linked so that its calls come
 *		here (Makefile).
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
static const char *rows[ROWS_MAX]; /* the reply: "column=value column=value" */
static int n_rows;
static enum { ANSWERS, BREAKS, FAILS } way;
static const char *failure;
static const char *notified; /* the channel of a notification that arrives with the reply */

static const char *const columns[] = {
	"item",     "event",   "kind", "name",     "token",       "queue_position", "owner",    "reason",
	"sqlstate", "message", "hint", "validity", "incarnation", "news",           "complete", "channel"};
#define COLUMNS (int) (sizeof(columns) / sizeof(columns[0]))

/* Reads one element of a text array; NULL is returned as an empty text. */
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
	s->net.conn = (PGconn *) &way; /* never used */
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
	is_int(s->refs, 100, "no references to the session are kept");
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
	   "all requests are sent in one call, in order");
	ok(strcmp(items[2].item, items[3].item) == 0 && strcmp(items[0].item, items[1].item) != 0,
	   "several names of one request are one item");
	ok(strcmp(items[0].owner, "me#0-1") == 0 && strcmp(items[4].owner, "me#0-4") == 0 &&
		   strcmp(items[4].value, "text") == 0 && items[0].value[0] == '\0',
	   "each request has its own owner");
	ok(strcmp(call, "1") == 0 && seen[0][0] == '\0' && strcmp(wait_text, "500 ms") == 0,
	   "the first call has number 1 and has seen no news");
	ok(le_valid(a) && le_token(a) == 11, "the first request is granted");
	ok(le_get_hold_state(b) == LE_HOLD_WAITING && le_position(b) == 3 && le_token(b) == 0,
	   "the second request waits");
	ok(le_due(s) == 0 || s->lists[LE_ASKS].next == &c->link, "requests without a row are sent again");
	turn(HEAD, "item=0 event=error sqlstate=40001 message=later",
		 "item=1 event=error sqlstate=42501 message=never");
	ok(n_items == 3 && strcmp(call, "2") == 0 && strcmp(seen[0], "1") == 0 && strcmp(seen[1], "5") == 0,
	   "the next call names the news that it has seen");
	is_status(le_await(d, 0, &error), LE_DENIED, "an error ends the request of its item");
	ok(strcmp(error.sqlstate, "42501") == 0 && strcmp(error.message, "never") == 0,
	   "the error has the code and the message of its row");
	is_status(le_await(c, 0, &error), LE_WAITING, "a request with a temporary error is repeated");
	ok(s->ask_at > le_now_ns(), "the request with a temporary error is repeated after a pause");
	s->ask_at = 0;
	le_cancel(c);
	turn(HEAD, "event=granted token=12 kind=lock name=p owner=me#0-2", NULL);
	is_int(n_items, 0, "a canceled request is not repeated");
	ok(le_valid(b) && le_token(b) == 12, "news grant a place");
	le_drop(d);
	le_drop(c);

	answer(HEAD, "item=0 event=not_granted", NULL, NULL);
	is_status(lock(s, "t", 0, &e), LE_TIMEOUT, "a try that is not granted returns LE_TIMEOUT");
	ok(is_item(0, "try_lock", "t", "0"), "a try creates no place");
	answer(HEAD, "item=0 event=released", NULL, NULL);
	is_status(le_release(a, 0, &error), LE_OK, "a release returns LE_OK in its own turn");
	ok(n_items == 1 && is_item(0, "release", "a", "11") && items[0].owner[0] == '\0',
	   "the release names the token");
	ok(wait_text[0] == '\0', "the call of a release does not wait");
	answer(HEAD, "item=0 event=not_held", NULL, NULL);
	is_status(le_release(b, 0, &error), LE_LOST, "a release of a lost lock returns LE_LOST");
	end();
}

static void
terms(void)
{
	le_hold *term;

	begin();
	answer(HEAD, "item=0 event=granted token=11", NULL, NULL);
	is_status(le_campaign(s, "e", "me", -1, &term, &error), LE_OK, "a campaign is granted");
	answer(HEAD, "item=0 event=proclaimed", NULL, NULL);
	is_status(le_proclaim(term, "you", &error), LE_OK, "a proclamation succeeds");
	ok(is_item(0, "proclaim", "e", "11") && strcmp(items[0].value, "you") == 0 && wait_text[0] != '\0',
	   "the proclamation is an item");
	answer(HEAD, "item=0 event=not_held", NULL, NULL);
	is_status(le_proclaim(term, "you", &error), LE_LOST, "a proclamation without the term returns LE_LOST");
	answer(HEAD, "item=0 event=released", NULL, NULL);
	is_status(le_resign(term, &error), LE_OK, "a resignation succeeds");
	ok(is_item(0, "resign", "e", "11"), "the resignation is an item");
	end();
}

/* Replies about grants that are not durable yet. */
static void
pending(void)
{
	le_hold *a, *b;

	begin();
	a = enqueue(s, "a");
	b = enqueue(s, "b");
	turn("event=lease incarnation=1 news=0 channel=le_c", "item=0 event=pending", "item=1 event=pending");
	ok(le_due(s) == 0 && le_link_empty(&s->lists[LE_ASKS]),
	   "the next call after a pending reply is due immediately");
	turn(HEAD, "event=granted token=11 kind=lock name=a owner=me#0-1", NULL);
	ok(n_items == 0 && le_valid(a) && le_token(a) == 11, "news report the pending grant");
	is_status(le_await(b, 0, &error), LE_WAITING, "a pending request without news still waits");
	turn(ALL, "event=granted token=11 kind=lock name=a owner=me#0-1", NULL);
	ok(le_valid(a), "a hold in a complete reply is valid");
	turn(HEAD, "item=0 event=queued token=12 queue_position=1", NULL);
	ok(n_items == 1 && is_item(0, "enqueue_lock", "b", "0"),
	   "a pending request that is missing in a complete reply is sent again");
	turn("event=lease incarnation=2 news=9 channel=le_c", NULL, NULL);
	ok(le_valid(a) && le_due(s) == 0, "a reply without news loses nothing");
	turn(ALL, NULL, NULL);
	is_status(le_await(a, 0, &error), LE_LOST, "a hold that is missing in a complete reply is lost");
	is_status(le_await(b, 0, &error), LE_LOST, "a place that is missing in a complete reply is lost");
	ok(strcmp(error.sqlstate, "LE001") == 0 && s->waiting == 0, "the lost place has its code");
	le_drop(a);
	le_drop(b);
	end();
}

/* --- lost replies --- */

static void
lost_answers(void)
{
	le_hold *a, *b, *c;

	begin();
	a = enqueue(s, "a");
	b = enqueue(s, "b");
	c = enqueue(s, "c");
	broken();
	is_int(le_get_state(s), LE_SUSPENDED, "the session is suspended when the connection breaks");
	le_drop(c);
	turn(HEAD, "event=queued token=11 kind=lock name=a owner=me#0-1",
		 "event=granted token=13 kind=lock name=c owner=me#0-3");
	is_int(n_items, 0, "the call after a lost reply has no items");
	is_int(le_get_state(s), LE_CONNECTED, "the call after a lost reply renews");
	is_int(s->waiting, 1, "one request still waits");
	turn(HEAD, "item=0 event=released", NULL);
	ok(n_items == 1 && is_item(0, "release", "c", "13"),
	   "a dropped request that was granted is released in a call of its own");
	turn(HEAD, "item=0 event=granted token=12", NULL);
	ok(n_items == 1 && is_item(0, "enqueue_lock", "b", "0") && strcmp(items[0].owner, "me#0-2") == 0,
	   "a request that was not applied is sent again with the same owner");
	ok(le_valid(b), "the repeated request is granted");

	/* A release whose reply is lost was applied. */
	le_drop(b);
	broken();
	turn(HEAD, NULL, NULL);
	turn(HEAD, "item=0 event=not_held", NULL);
	ok(is_item(0, "release", "b", "12"), "a release whose reply was lost is sent again");
	le_drop(a);
	turn("event=lease", "item=0 event=released", NULL);
	end();
}

/* A grant can be announced before the reply is read that says that the request waits. */
static void
notifications(void)
{
	le_hold *a;

	begin();
	turn(HEAD, NULL, NULL);
	notified = "le_c";
	turn(HEAD, NULL, NULL);
	ok(le_due(s) > le_now_ns() && s->heard, "a notification without waiting requests has no effect");
	a = enqueue(s, "a");
	s->listens = true;
	notified = "le_c";
	turn(HEAD, "item=0 event=queued token=11 queue_position=1", NULL);
	is_int(le_due(s), 0, "a notification that arrives with a place makes a call due immediately");
	turn(HEAD, "event=granted token=11 kind=lock name=a owner=me#0-1", NULL);
	ok(le_valid(a) && le_due(s) > le_now_ns(), "the call finds the announced grant");
	notified = "le_other";
	turn(HEAD, NULL, NULL);
	ok(le_due(s) > le_now_ns(), "a notification on another channel has no effect");
	le_drop(a);
	end();
}

extern le_hold *__real_le_hold_alloc(le_session *session, le_kind kind, const char *const *names, int n,
									 const char *candidate);
extern le_hold *__wrap_le_hold_alloc(le_session *session, le_kind kind, const char *const *names, int n,
									 const char *candidate);
static bool no_memory;

/* Used for holds that turns create. */
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
	   "an unknown entry with an owner of this session is released");
	turn(HEAD, "event=queued token=13 kind=election name=e owner=me#0-9",
		 "event=granted token=14 kind=lock name=x");
	turn(HEAD, "item=0 event=released", NULL);
	ok(n_items == 1 && is_item(0, "resign", "e", "13"),
	   "an unknown candidacy with an owner of this session is resigned");
	no_memory = true;
	turn(HEAD, "event=granted token=15 kind=lock name=a owner=me#0-9", NULL);
	no_memory = false;
	ok(le_due(s) > le_now_ns() && le_due(s) < le_until(10000),
	   "without memory for an unknown entry, the next turn is soon");
	turn(ALL, "event=granted token=15 kind=lock name=a owner=me#0-9", NULL);
	ok(n_items == 0 && seen[0][0] == '\0', "the next turn requests all news");
	turn(HEAD, "item=0 event=released", NULL);
	ok(n_items == 1 && is_item(0, "release", "a", "15"), "the unknown entry is released with memory");
	s->orphan = true;
	turn(HEAD, "event=granted token=11 kind=lock name=a owner=me#0-9", NULL);
	ok(le_due(s) > 0, "an orphaned session releases no unknown entry");
	end();
}

/* --- ends of holds --- */

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
	is_status(le_await(a, 0, &error), LE_LOST, "news end a lost hold");
	ok(strstr(error.message, "forced") != NULL && le_valid(b),
	   "the lost hold has its reason, and no other hold is lost");
	is_status(le_release(a, 0, &error), LE_LOST, "the release of the lost hold returns LE_LOST");
	is_int(n_items, 0, "nothing is sent for the lost hold");

	turn(HEAD, "event=evicted token=12 kind=lock name=b owner=me#0-2", NULL);
	is_status(le_await(b, 0, &error), LE_LOST, "news end an evicted hold");
	ok(strstr(error.message, "evicted") != NULL && !le_valid(b), "the evicted hold is invalid immediately");
	ok(le_due(s) > le_now_ns(), "the library does not release an evicted hold by itself");
	turn(ALL, "event=granted token=12 kind=lock name=b owner=me#0-2", NULL);
	ok(le_due(s) > le_now_ns(), "the library does not release an evicted hold after complete news");
	answer(HEAD, "item=0 event=released", NULL, NULL);
	is_status(le_release(b, 0, &error), LE_LOST,
			  "the application's release of an evicted hold returns LE_LOST");
	ok(n_items == 1 && is_item(0, "release", "b", "12"),
	   "the release of the evicted hold is sent with its token");

	a = granted("a", "item=0 event=granted token=13");
	turn("event=gone reason=expired", NULL, NULL);
	ok(le_get_state(s) == LE_ENDED && !le_valid(a) && s->lease_gone, "the session ends with its lease");
	is_status(le_release(a, 0, &error), LE_LOST, "a hold of the ended lease is lost");
	ok(strstr(error.message, "expired") != NULL, "the lost hold has the reason of the lease's end");
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
	s->call = 0; /* no call makes the next turn */
	is_status(le_release(a, 1000, &error), LE_UNKNOWN,
			  "a release with hold_for that is not durable yet returns LE_UNKNOWN");
	ok(strcmp(items[0].value, "1000 ms") == 0 && wait_text[0] != '\0',
	   "the release with hold_for waits for durability");
	s->call = LE_SEC_NS;
	turn(HEAD, "item=0 event=not_held", NULL);
	ok(is_item(0, "release", "a", "11") && strcmp(items[0].value, "1000 ms") == 0,
	   "the pending release is sent again");
	ok(le_link_empty(&s->lists[LE_GIVES]) && le_link_empty(&s->lists[LE_HELD]) == false,
	   "the repeated release is done");

	s->call = 0;
	answer(HEAD, "item=0 event=error sqlstate=53400 message=too_long", NULL, NULL);
	is_status(le_release(b, 1000, &error), LE_UNKNOWN,
			  "a release with a rejected hold_for returns LE_UNKNOWN");
	turn("event=lease", "item=0 event=released", NULL);
	ok(is_item(0, "release", "b", "12") && items[0].value[0] == '\0',
	   "the release is repeated without hold_for");
	end();
}

/* A call contains as many items as it has room for, name by name. */
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
	ok(n_items == 300 && le_valid(all), "a group of 300 names is granted");
	for (int i = 0; i < 4; i++)
	{
		if (le_enqueue(s, names, 300, NULL, &more, &error) != LE_OK)
			die("%s", error.message);
		le_drop(i > 0 ? more : all);
		all = i == 0 ? more : all;
	}
	turn(HEAD, NULL, NULL);
	ok(n_items == LE_ITEMS_MAX && is_item(127, "release", "n127", "11"),
	   "a call contains at most LE_ITEMS_MAX releases");
	turn(HEAD, NULL, NULL);
	ok(n_items == LE_ITEMS_MAX && is_item(0, "release", "n0", "11"), "releases without a row are sent again");
	le_drop(all);
	end();
}

/* --- calls that fail --- */

/*
 * The call of a single item fails, possibly after it was applied; it would also have read an announced grant.
 */
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
	is_status(le_await(b, 0, &error), LE_LIMIT, "the request of the failed call gets the error");
	is_int(le_due(s), 0, "the next call is due immediately");
	turn(HEAD, "event=granted token=11 kind=lock name=a owner=me#0-1",
		 "event=queued token=12 kind=lock name=b owner=me#0-2");
	ok(n_items == 0 && le_valid(a), "the next call finds the announced grant");
	turn(HEAD, "item=0 event=released", NULL);
	ok(n_items == 1 && is_item(0, "release", "b", "12"), "the entry of the failed request is released");
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
	is_status(le_await(a, 0, &error), LE_WAITING, "requests of a failed call with several items still wait");
	turn(HEAD, NULL, NULL);
	s->ask_at = 0;
	way = FAILS;
	le_lock(s);
	le_turn(s);
	le_unlock(s);
	ok(n_items == 1 && is_item(0, "enqueue_lock", "a", "0"),
	   "each request of the failed call is sent in its own call");
	is_status(le_await(a, 0, &error), LE_INVALID, "the invalid request gets the error");
	turn(HEAD, "item=0 event=granted token=12", NULL);
	ok(is_item(0, "enqueue_lock", "b", "0") && le_valid(b), "the other request is granted");
	le_drop(a);

	failure = "58030";
	way = FAILS;
	le_lock(s);
	le_turn(s);
	le_unlock(s);
	ok(le_get_state(s) == LE_SUSPENDED && le_valid(b), "a temporary error of a call loses nothing");
	ok(le_due(s) > le_now_ns(), "the call with a temporary error is repeated after a pause");
	turn("event=lease incarnation=1 news=5 complete=f", NULL, NULL);
	ok(le_get_state(s) == LE_SUSPENDED, "a reply without a validity renews nothing");
	le_drop(b);
	end();
}

/* --- runners --- */

/* The replies to two turns, which decide about a candidacy before the runner first looks at it. */
static const char *const candidacies[][2] = {
	{"item=0 event=error sqlstate=53200 message=full", NULL},
	{"item=0 event=granted token=11", "event=lost token=11 reason=forced"},
	{"item=0 event=granted token=12", NULL},
};
static _Atomic int n_candidacies =
	-1; /* number of candidacies that the runner has requested; -1: no runner */
static _Atomic int elected, lost;
static _Atomic int64_t term; /* the term in the call of on_elected */

extern le_status __real_le_enqueue_candidate(le_session *session, const char *election, const char *candidate,
											 le_hold **hold, le_error *own_error);
extern le_status __wrap_le_enqueue_candidate(le_session *session, const char *election, const char *candidate,
											 le_hold **hold, le_error *own_error);

/* Makes the turns, as another thread would, before the runner continues. */
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

/* A candidacy ends before the runner first looks at it. */
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
	is_status(le_stop(runner, &error), LE_OK, "a runner with a rejected and a lost candidacy is stopped");
	is_int(n_candidacies, 3, "the runner campaigns again after a rejected and a lost candidacy");
	ok(elected == 1 && term == 12, "on_elected is called for the elected candidacy");
	is_int(lost, 0, "on_lost is not called for a term without on_elected");
	ok(n_items == 1 && is_item(0, "resign", "e", "12"), "the stopped runner resigns");
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
