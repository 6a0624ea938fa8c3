/*
 * parts.c
 *		The parts of the library that need no session of their own: time, texts,
 *		structs, pipes, errors, channels and notifications, states to be told.
 */
#include "client.h"

#include <fcntl.h>

#include "fake.h"
#include "internal.h"

/* --- time --- */

static void
numbers(void)
{
	int64_t before, at, low = LE_SEC_NS, high = 0, random[2] = {0};

	is_int(le_ms_up(INT64_MIN), 0, "nothing is left of what is past");
	is_int(le_ms_up(0), 0, "nor of nothing");
	is_int(le_ms_up(1), 1, "milliseconds are rounded up");
	is_int(le_ms_up(LE_MS_NS), 1, "whole ones are not");
	is_int(le_ms_up(7 * LE_MS_NS + 1), 8, "one more is");
	is_int(le_add(2, 3), 5, "a sum");
	is_int(le_add(LE_NEVER - 1, 1), LE_NEVER, "the greatest one");
	is_int(le_add(LE_NEVER, 1), LE_NEVER, "no later than never");

	is_int(le_until(-1), LE_NEVER, "no limit");
	before = le_now_ns();
	at = le_until(0);
	ok(at >= before && at <= le_now_ns(), "now");
	at = le_until(INT32_MAX);
	ok(at >= before + INT32_MAX * LE_MS_NS && at <= le_now_ns() + INT32_MAX * LE_MS_NS, "the longest limit");
	is_int(le_until_point(INT64_MIN), 0, "a point that is past");
	is_int(le_until_point(1), LE_MS_NS, "the first point");
	is_int(le_until_point(LE_NEVER / LE_MS_NS - 1), (LE_NEVER / LE_MS_NS - 1) * LE_MS_NS, "the last one");
	is_int(le_until_point(LE_NEVER), LE_NEVER, "and never");
	at = le_now_ns() / LE_MS_NS;
	ok(le_now() >= at && le_now() <= le_now_ns() / LE_MS_NS, "the application's clock is the same");

	for (int i = 0; i < 2000; i++)
	{
		at = le_jitter(LE_SEC_NS);
		low = at < low ? at : low;
		high = at > high ? at : high;
	}
	ok(low >= LE_SEC_NS * 9 / 10 && low < LE_SEC_NS * 92 / 100, "a jitter down to nine tenths");
	ok(high <= LE_SEC_NS * 11 / 10 && high > LE_SEC_NS * 108 / 100, "up to eleven tenths");
	ok(le_random(&random[0], sizeof(int64_t)) && le_random(&random[1], sizeof(int64_t)) && random[0] != 0 &&
		   random[0] != random[1],
	   "random bits");
}

/* Descriptors do not go to programs that the application starts, and nobody hangs in one. */
static bool
is_ours(int fd)
{
	return (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 && (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
}

static void
pipes(void)
{
	int fds[2];
	struct pollfd fd = {.events = POLLIN};

	ok(le_pipe(fds) && is_ours(fds[0]) && is_ours(fds[1]), "a pipe");
	fd.fd = fds[0];
	for (int i = 0; i < 70000; i++)
		le_wake(fds);
	is_int(poll(&fd, 1, 0), 1, "it wakes, also when it is full");
	le_drain(fds);
	is_int(poll(&fd, 1, 0), 0, "and is emptied");
	le_drain(fds);
	close(fds[0]);
	close(fds[1]);
}

static void
polls(int timer, int wait_ms)
{
	int fds[2];
	struct pollfd both[2] = {{.fd = -1, .events = POLLIN}, {.events = POLLIN, .revents = POLLIN}};
	int64_t until;

	if (!le_pipe(fds))
		die("no pipe");
	both[1].fd = fds[0];
	is_int(le_poll(both, 2, timer, le_now_ns() - 1), 0, "a time that is past");
	is_int(both[1].revents, 0, "nothing is ready");
	until = le_until(wait_ms);
	is_int(le_poll(both, 2, timer, until) < 0, 0, "a time to come");
	ok(le_now_ns() >= until, "not before it");
	is_int(both[1].revents, 0, "nothing is ready");
	le_wake(fds);
	ok(le_poll(both, 2, timer, le_now_ns() - 1) > 0 && both[1].revents == POLLIN && both[0].revents == 0,
	   "what is ready is told, also at the end");
	ok(le_poll(both, 2, timer, LE_NEVER) > 0 && both[1].revents == POLLIN, "or without one");
	close(fds[0]);
	close(fds[1]);
}

static void
waits(void)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t cond;
	int timer = le_timer_new(), early = 0;
	int64_t start;

	ok(is_ours(timer), "a timer");
	polls(timer, 1200);
	polls(-1, 120);
	close(timer);

	is_int(le_cond_init(&cond), 0, "a condition");
	pthread_mutex_lock(&lock);
	le_cond_wait(&cond, &lock, le_now_ns() - 1);
	/* on both sides of a full second */
	for (int i = 0; i < 25; i++)
	{
		int64_t until = le_until(50);

		le_cond_wait(&cond, &lock, until);
		early += le_now_ns() < until - 5 * LE_MS_NS;
	}
	ok(early <= 2, "is waited for until a point of time");
	start = le_now();
	le_cond_wait(&cond, &lock, le_until(20000));
	ok(le_now() >= start + 900 && le_now() < start + 15000, "or a second, to look at the other clock");
	pthread_mutex_unlock(&lock);
	pthread_cond_destroy(&cond);
}

/* --- texts and structs --- */

/* Of each length, so that each end of the room is met. */
static void
texts(void)
{
	char many[1200], quotes[1200], quoted[2 * sizeof(quotes) + 2];
	int wrong = 0;

	memset(many, 'm', sizeof(many));
	memset(quotes, '"', sizeof(quotes));
	for (size_t n = 0; n < sizeof(many); n++)
	{
		le_text one = {0}, two = {0};
		char *copy;

		many[n] = quotes[n] = '\0';
		le_text_add(&one, "%s", many);
		wrong += one.failed || one.len != n || strcmp(one.data, many) != 0;
		le_text_add(&one, "%s-%d", many, 7);
		wrong += one.failed || one.len != 2 * n + 2 || strncmp(one.data + n, many, n) != 0 ||
				 strcmp(one.data + 2 * n, "-7") != 0;
		copy = le_copy(one.data);
		wrong += strcmp(copy, one.data) != 0;
		free(copy);

		le_text_add_element(&two, quotes);
		for (size_t i = 0; i < n; i++)
			memcpy(quoted + 2 * i + 1, "\\\"", 2);
		quoted[0] = quoted[2 * n + 1] = '"';
		quoted[2 * n + 2] = '\0';
		wrong += two.failed || two.len != 2 * n + 2 || strcmp(two.data, quoted) != 0;
		le_text_free(&one);
		le_text_free(&two);
		wrong += one.data != NULL || one.len != 0 || one.size != 0;
		many[n] = 'm';
		quotes[n] = '"';
	}
	is_int(wrong, 0, "texts and elements of all lengths");

	le_text failed = {.failed = true}, element = {0};
	le_text_add(&failed, "x");
	le_text_add_element(&failed, "x");
	ok(failed.failed && failed.len == 0, "a text that has failed stays so");
	le_text_add_element(&element, "a\\b c,{}'é");
	ok(strcmp(element.data, "\"a\\\\b c,{}'é\"") == 0, "an element");
	le_text_free(&element);
}

typedef struct
{
	size_t size;
	char bytes[120000];
} sized;

static void
structs(void)
{
	static sized from, to;
	const size_t ours = 64, most = 65536;

	for (size_t i = 0; i < sizeof(from.bytes); i++)
		from.bytes[i] = 'x';
	from.size = sizeof(size_t) - 1;
	is_status(le_struct_read(&to, ours, &from, "s", &error), LE_INVALID, "not even a size");
	is_status(le_struct_check(&from, sizeof(size_t), "s", &error), LE_INVALID, "nor to be filled");
	from.size = sizeof(size_t);
	memset(&to, 'y', sizeof(to));
	is_status(le_struct_read(&to, ours, &from, "s", &error), LE_OK, "a size alone");
	ok(to.size == ours && to.bytes[0] == 0 && to.bytes[ours - sizeof(size_t) - 1] == 0 &&
		   to.bytes[ours - sizeof(size_t)] == 'y',
	   "the rest is zero, as far as we know it");
	is_status(le_struct_check(&from, sizeof(size_t), "s", &error), LE_OK, "enough to be filled");
	from.size = ours + 1;
	is_status(le_struct_read(&to, ours, &from, "s", &error), LE_INVALID, "one byte that we do not know");
	from.bytes[ours - sizeof(size_t)] = 0;
	is_status(le_struct_read(&to, ours, &from, "s", &error), LE_OK, "which is zero");
	ok(to.size == ours && to.bytes[ours - sizeof(size_t) - 1] == 'x' &&
		   to.bytes[ours - sizeof(size_t)] == 'y',
	   "what we know is read");
	memset(from.bytes, 0, sizeof(from.bytes));
	from.size = most;
	is_status(le_struct_read(&to, ours, &from, "s", &error), LE_OK, "the largest struct");
	is_status(le_struct_check(&from, ours, "s", &error), LE_OK, "to be filled");
	from.size = most + 1;
	is_status(le_struct_read(&to, ours, &from, "s", &error), LE_INVALID, "a size that was never set");
	is_status(le_struct_check(&from, ours, "s", &error), LE_INVALID, "nor to be filled");

	memset(&to, 'y', sizeof(to));
	memset(from.bytes, 'x', sizeof(from.bytes));
	to.size = ours + 2;
	le_struct_write(&to, &from, ours);
	ok(to.size == ours + 2 && to.bytes[0] == 'x' && to.bytes[ours - sizeof(size_t) - 1] == 'x' &&
		   to.bytes[ours - sizeof(size_t)] == 0 && to.bytes[ours + 1 - sizeof(size_t)] == 0 &&
		   to.bytes[ours + 2 - sizeof(size_t)] == 'y',
	   "a larger struct is filled, and nothing behind it");
}

/* --- errors --- */

static const struct
{
	const char *sqlstate;
	le_status status;
	bool passes, ends;
} codes[] = {
	{"LE001", LE_LOST, false, false},        {"40P01", LE_DEADLOCK, false, false},
	{"53200", LE_LIMIT, false, false},       {"53400", LE_LIMIT, false, false},
	{"42501", LE_DENIED, false, false},      {"28P01", LE_DENIED, false, false},
	{"22023", LE_INVALID, false, false},     {"08007", LE_UNKNOWN, true, true},
	{"57014", LE_UNKNOWN, true, false},      {"40003", LE_UNKNOWN, true, false},
	{"55000", LE_UNAVAILABLE, false, false}, {"57P01", LE_UNAVAILABLE, true, true},
	{"57P02", LE_UNAVAILABLE, true, true},   {"57P03", LE_UNAVAILABLE, true, true},
	{"57P05", LE_UNAVAILABLE, true, false},  {"53300", LE_UNAVAILABLE, true, true},
	{"53100", LE_UNAVAILABLE, true, false},  {"08006", LE_UNAVAILABLE, true, true},
	{"25006", LE_UNAVAILABLE, true, true},   {"42883", LE_UNAVAILABLE, false, false},
	{"3F000", LE_UNAVAILABLE, false, false}, {"3D000", LE_UNAVAILABLE, true, false},
	{"55P03", LE_UNAVAILABLE, true, false},  {"58030", LE_UNAVAILABLE, true, false},
	{"40001", LE_FAILED, true, false},       {"XX000", LE_FAILED, true, false},
	{"23505", LE_FAILED, false, false},
};

/* As the server tells them; and what follows from each. */
static void
errors(PGconn *db)
{
	le_error got, copy;

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
	{
		char sql[200];
		PGresult *result;

		snprintf(sql, sizeof(sql), "DO $$BEGIN RAISE 'told' USING ERRCODE = '%s'%s; END$$", codes[i].sqlstate,
				 i == 0 ? ", HINT = 'do this'" : "");
		result = PQexec(db, sql);
		is_status(le_error_result(&got, result), codes[i].status, codes[i].sqlstate);
		ok(got.status == codes[i].status && strcmp(got.sqlstate, codes[i].sqlstate) == 0 &&
			   strcmp(got.message, i == 0 ? "told (do this)" : "told") == 0,
		   "with its code and in its words");
		is_int(le_error_passes(&got), codes[i].passes, "does it pass?");
		is_int(le_error_ends_connection(&got) != NULL, codes[i].ends, "does it end the connection?");
		is_int(le_error_is_unknown(&got), codes[i].status == LE_UNKNOWN, "is the outcome unknown?");
		PQclear(result);
	}
	is_status(le_error_copy(&copy, &got), LE_FAILED, "a copy");
	ok(memcmp(&copy, &got, sizeof(copy)) == 0, "of all of it");
	is_status(le_error_copy(NULL, &got), LE_FAILED, "or for nobody");
	is_status(le_error_clear(&copy), LE_OK, "cleared");
	ok(copy.status == LE_OK && copy.sqlstate[0] == '\0' && copy.message[0] == '\0', "all of it");
	le_error_clear(NULL);
	is_status(le_error_set(&copy, LE_LOST, NULL, "%d", 7), LE_LOST, "set");
	ok(copy.status == LE_LOST && copy.sqlstate[0] == '\0' && strcmp(copy.message, "7") == 0,
	   "without a code");
	is_status(le_connection_error(NULL, &copy), LE_NO_MEMORY, "no connection");
	ok(strcmp(copy.message, "out of memory") == 0, "and why");
}

/* --- what belongs to a session --- */

/* As many as there is room for are told in order; then an end, and what came last. */
static void
states(void)
{
	le_session *s = new_session();
	int wrong = 0;

	atomic_store(&s->state, LE_CONNECTED);
	le_set_state(s, LE_CONNECTED);
	is_int(s->nstates, 0, "what is no change is not told");
	for (int i = 0; i < LE_STATES_MAX; i++)
		le_set_state(s, i % 2 == 0 ? LE_SUSPENDED : LE_CONNECTED);
	for (int i = 0; i < LE_STATES_MAX; i++)
		wrong += s->states[i] != (i % 2 == 0 ? LE_SUSPENDED : LE_CONNECTED);
	is_int(wrong, 0, "changes in order");
	le_set_state(s, LE_SUSPENDED);
	ok(s->nstates == LE_STATES_MAX && s->states[LE_STATES_MAX - 1] == LE_SUSPENDED &&
		   s->states[LE_STATES_MAX - 2] == LE_SUSPENDED && s->states[0] == LE_SUSPENDED,
	   "the last one of too many");
	le_set_state(s, LE_ENDED);
	le_set_state(s, LE_CONNECTED);
	ok(s->nstates == LE_STATES_MAX && s->states[LE_STATES_MAX - 2] == LE_ENDED &&
		   s->states[LE_STATES_MAX - 1] == LE_CONNECTED,
	   "an end, and what came after it");
	le_set_state(s, LE_SUSPENDED);
	ok(s->states[LE_STATES_MAX - 2] == LE_ENDED && s->states[LE_STATES_MAX - 1] == LE_SUSPENDED,
	   "is not forgotten");
	is_int(atomic_load(&s->state), LE_SUSPENDED, "the state itself is the last one");
	free_session(s);
}

static void
channels(void)
{
	le_session *s = new_session();
	le_channel *one, *two;
	le_hold *holds[3];
	le_observer observers[2] = {{.session = s, .due_at = 1}, {.session = s, .due_at = 1}};
	char longest[LE_CHANNEL_SIZE + 1];

	one = le_channel_get(s, "le_one");
	two = le_channel_get(s, "le_two");
	ok(one != NULL && two != NULL && one != two && one->refs == 1, "a channel a name");
	ok(le_channel_get(s, "le_one") == one && one->refs == 2 && two->refs == 1, "one for all who want it");
	le_channel_put(one);
	is_int(one->refs, 1, "until they do not want it");
	memset(longest, 'l', sizeof(longest));
	longest[LE_CHANNEL_SIZE] = '\0';
	ok(le_channel_get(s, longest) == NULL, "no name is as long as that");
	longest[LE_CHANNEL_SIZE - 1] = '\0';
	ok(strcmp(le_channel_get(s, longest)->name, longest) == 0, "the longest name");
	one->listening = two->listening = true;
	s->net.check_at = 1;
	le_queue_lost(s);
	ok(!one->listening && !two->listening && s->net.check_at == 0, "a connection that is lost hears nothing");
	s->net.check_at = 1;
	s->net.listen_tested = s->net.listen_works = true;
	le_queue_connected(s);
	ok(s->net.check_at == 0 && !s->net.listen_tested && !s->net.listen_works, "of the next nothing is known");

	/* notifications */
	for (int i = 0; i < 3; i++)
		holds[i] = new_hold(s, &s->queued, 10 + i, LE_PHASE_QUEUED, LE_HOLD_WAITING);
	for (int i = 0; i < 2; i++)
	{
		le_link_init(&observers[i].link);
		le_link_append(&s->observers, &observers[i].link);
	}
	observers[0].channel = one;
	observers[1].channel = two;
	snprintf(s->net.heard_name, sizeof(s->net.heard_name), "le_self");
	le_notified(s, "le_other", "{\"token\":\"7\"}");
	ok(!holds[0]->hint && !holds[1]->hint && !holds[2]->hint && !s->net.heard && observers[0].due_at == 1 &&
		   observers[1].due_at == 1,
	   "what is another's changes nothing");
	le_notified(s, "le_other", "");
	le_notified(s, "le_other", "{\"name\":\"x\",\"token\":\"11\"}");
	ok(!holds[0]->hint && holds[1]->hint && !holds[2]->hint && s->queued.next == &holds[1]->link,
	   "a token: that hold is looked at first");
	le_notified(s, "le_two", "{\"term\":\"12\"}");
	ok(!holds[0]->hint && holds[2]->hint && s->queued.next == &holds[2]->link, "a term likewise");
	ok(observers[0].due_at == 1 && observers[1].due_at == 0, "observers of that channel read");
	le_notified(s, "le_self", "");
	ok(s->net.heard, "our own notification");
	le_observers_due(s, NULL);
	is_int(observers[0].due_at, 0, "all of them may be due");
	for (int i = 0; i < 3; i++)
		free_hold(holds[i]);
	free_session(s);
}

/* What the server answers about many holds at once. */
static void
looks(void)
{
	le_session *s = new_session();
	le_look look = {0};
	le_hold *holds[12];

	atomic_store(&s->state, LE_CONNECTED);
	atomic_store(&s->deadline, LE_NEVER);
	for (int i = 0; i < 12; i++)
	{
		bool held = i % 2 == 0;

		holds[i] = new_hold(s, held ? &s->granted : &s->queued, i + 1,
							held ? LE_PHASE_GRANTED : LE_PHASE_QUEUED, held ? LE_HOLD_HELD : LE_HOLD_WAITING);
		holds[i]->kind = i == 3 ? LE_KIND_TERM : LE_KIND_LOCK;
		le_look_add(&look, holds[i]);
	}
	ok(!le_look_failed(&look) && holds[0]->refs == 101, "holds to be looked at");
	ok(strncmp(look.names.data, "{\"a \\\"b\\\"\",\"a", 13) == 0 &&
		   strcmp(look.tokens.data, "{1,2,3,4,5,6,7,8,9,10,11,12}") == 0 &&
		   strcmp(look.terms.data, "{f,f,f,t,f,f,f,f,f,f,f,f}") == 0,
	   "as arrays");
	/* of those that were held the first and the last but one are; of those that waited two are now */
	le_look_apply(s, &look, "{1,4,11,12}");
	for (int i = 0; i < 12; i++)
	{
		bool kept = i == 0 || i == 10 || i == 3 || i == 11;

		is_int(atomic_load(&holds[i]->state),
			   kept         ? LE_HOLD_HELD
			   : i % 2 == 0 ? LE_HOLD_OVER
							: LE_HOLD_WAITING,
			   kept ? "held" : "not held");
	}
	ok(atomic_load(&holds[3]->token) == 4 && holds[3]->phase == LE_PHASE_GRANTED, "a grant, with its token");
	ok(holds[2]->phase == LE_PHASE_DONE && holds[2]->error.status == LE_LOST, "one that was lost");
	le_look_apply(s, &look, "{}");
	is_int(atomic_load(&holds[0]->state), LE_HOLD_OVER, "none is held");
	le_look_free(&look);
	ok(holds[0]->refs == 99 && holds[1]->refs == 100, "they are given back");
	for (int i = 0; i < 12; i++)
		free_hold(holds[i]);
	free_session(s);
}

/* --- observers --- */

static struct
{
	int n, leading;
	le_change last;
	char candidate[20];
	le_observer *observer;
	enum
	{
		NOTHING,
		UNOBSERVE,
		GONE,
		CLOSING
	} at_second;
	bool called_wrongly;
} told;

static void
on_change(const le_change *change, void *arg)
{
	le_session *s = told.observer->session;

	told.n++;
	told.leading += change->leads;
	told.last = *change;
	snprintf(told.candidate, sizeof(told.candidate), "%s", change->candidate);
	told.called_wrongly |= arg != &told || !told.observer->calling;
	if (told.n != 2)
		return;
	if (told.at_second == UNOBSERVE)
		le_unobserve(told.observer);
	else if (told.at_second == GONE)
		told.observer->gone = true;
	else if (told.at_second == CLOSING)
		s->closing = true;
}

static le_observer *
new_observer(le_session *s, PGconn *db, const char *rows)
{
	le_observer *o;

	if (le_observe(s, "e", 5, on_change, &told, &o, &error) != LE_OK)
		die("%s", error.message);
	o->due_at = 1;
	o->rows = PQexec(db, rows);
	if (PQresultStatus(o->rows) != PGRES_TUPLES_OK)
		die("%s", PQerrorMessage(db));
	return o;
}

/* One turn of the callback thread. */
static bool
tell(le_session *s, le_observer *o)
{
	bool some;

	memset(&told, 0, offsetof(__typeof__(told), observer));
	told.called_wrongly = false;
	told.observer = o;
	le_drain(s->wake_net);
	le_lock(s);
	some = le_observe_tell(s);
	le_unlock(s);
	return some;
}

static bool
was_woken(int fds[2])
{
	struct pollfd fd = {.fd = fds[0], .events = POLLIN};

	return poll(&fd, 1, 0) == 1;
}

#define ROWS "SELECT change, term, how, candidate, 70, 80 FROM (VALUES "
#define AS   ") AS v(change, term, how, candidate)"

static const char five[] =
	ROWS "(11, 7, 'elected', 'a'), (12, 7, 'proclaimed', 'b'), (13, 7, 'resigned', 'b'),"
		 " (14, 8, 'elected', 'c'), (15, 8, 'lost', 'c')" AS;

static le_session *
observed_session(void)
{
	le_session *s = new_session();

	s->refs = 1;
	s->process = getpid();
	s->dispatch_thread = pthread_self();
	return s;
}

/* What is told of what was read. */
static void
tells(PGconn *db)
{
	le_session *s = observed_session();
	le_observer *o, *next;

	ok(!tell(s, NULL), "nobody observes");

	o = new_observer(s, db, five);
	next = new_observer(s, db, ROWS "(16, 9, 'elected', 'd')" AS);
	next->gone = true;
	ok(tell(s, o) && told.n == 5 && told.leading == 3 && !told.called_wrongly, "all changes are told");
	ok(told.last.change == 15 && told.last.term == 8 && strcmp(told.candidate, "c") == 0 &&
		   told.last.elected_at == 70 && told.last.changed_at == 80 && !told.last.leads,
	   "by what they are");
	ok(o->after == 15 && o->rows == NULL && !o->calling && o->due_at == 1,
	   "the next are read when it is time");
	ok(was_woken(s->wake_net), "by the network thread, which is woken");
	ok(!tell(s, o) && told.n == 0, "who is gone is told nothing");
	next->gone = false;
	ok(tell(s, next) && told.n == 1 && next->after == 16, "who is not is");
	le_unobserve(next);
	is_int(s->refs, 2, "one is left");

	/* of the last change only who leads; and of the present term only what is new */
	o->start_now = true;
	o->rows = PQexec(db, ROWS "(17, 9, 'lost', 'd')" AS);
	ok(tell(s, o) && told.n == 0 && o->after == 17 && !o->start_now, "nobody leads at the beginning");
	o->start_now = true;
	o->start_term = 7;
	o->rows = PQexec(db, ROWS "(0, 7, 'elected', 'a')" AS);
	ok(tell(s, o) && told.n == 1 && o->after == 0 && !o->start_now, "somebody does");
	o->rows = PQexec(db, five);
	ok(tell(s, o) && told.n == 4 && told.leading == 2, "whose election is not told twice");
	le_unobserve(o);
	is_int(s->refs, 1, "and none is");
	free_session(s);
}

/* When the next is read, who comes next, and ends in the middle. */
static void
tells_in_turn(PGconn *db)
{
	le_session *s = observed_session();
	le_observer *o = new_observer(s, db, five), *next;

	/* there is more to be read */
	PQclear(o->rows);
	for (int n = LE_OBSERVE_MAX - 1; n <= LE_OBSERVE_MAX; n++)
	{
		char sql[200];

		snprintf(sql, sizeof(sql), "SELECT n, n, 'elected', 'a', 1, 1 FROM generate_series(1, %d) AS n", n);
		o->rows = PQexec(db, sql);
		o->due_at = 1;
		ok(tell(s, o) && told.n == n && o->after == n, "as many as are read at once");
		is_int(o->due_at, n == LE_OBSERVE_MAX ? 0 : 1,
			   n == LE_OBSERVE_MAX ? "then more at once" : "one less: later");
	}

	/* in turn */
	next = new_observer(s, db, five);
	o->rows = PQexec(db, five);
	ok(tell(s, o) && told.n == 5 && o->rows == NULL && next->rows != NULL, "the first of two");
	o->rows = PQexec(db, five);
	ok(tell(s, next) && next->rows == NULL && o->rows != NULL, "then the other one");
	ok(tell(s, o) && o->rows == NULL, "then the first again");

	/* an end in the middle */
	told.at_second = GONE;
	o->rows = PQexec(db, five);
	ok(tell(s, o) && told.n == 2 && o->after == 12, "no more for one that is gone");
	o->gone = false;
	told.at_second = CLOSING;
	o->rows = PQexec(db, five);
	ok(tell(s, o) && told.n == 2 && o->after == 12, "nor from a session that is closed");
	s->closing = false;
	told.at_second = UNOBSERVE;
	o->rows = PQexec(db, five);
	ok(tell(s, o) && told.n == 2, "nor after its end in the callback");
	ok(s->observers.next == &next->link && s->observers.prev == &next->link && s->refs == 2,
	   "which frees it");
	told.at_second = NOTHING;
	le_unobserve(next);
	ok(le_link_empty(&s->observers) && s->refs == 1, "as the end of one that is told nothing does");
	free_session(s);
}

/* Who ends an observer while it is told waits for that, and no longer. */
static void *
unobserve(void *observer)
{
	le_unobserve(observer);
	return NULL;
}

static void
slow_change(const le_change *change, void *arg)
{
	(void) change;
	(void) arg;
	usleep(20000);
}

static void
ends_while_told(PGconn *db)
{
	int64_t least = INT64_MAX;

	/* a busy machine may be slow, but not each time */
	for (int i = 0; i < 20 && least > 500; i++)
	{
		le_session *s = observed_session();
		pthread_t thread;
		le_observer *o;
		int64_t start;

		if (le_observe(s, "e", 5, slow_change, NULL, &o, &error) != LE_OK)
			die("%s", error.message);
		o->rows = PQexec(db, ROWS "(1, 1, 'elected', 'a')" AS);
		le_lock(s);
		o->calling = true;
		le_unlock(s);
		pthread_create(&thread, NULL, unobserve, o);
		le_lock(s);
		while (!o->gone)
		{
			le_unlock(s);
			usleep(100);
			le_lock(s);
		}
		o->gone = false;
		(void) le_observe_tell(s);
		le_unlock(s);
		start = le_now();
		pthread_join(thread, NULL);
		least = le_now() - start < least ? le_now() - start : least;
		free_session(s);
	}
	ok(least <= 500, "the end of an observer waits for its callback, and no longer");
}

/* --- the deadline, before any thread has noticed it --- */

static void
deadlines(void)
{
	le_session *s = new_session();
	le_hold *holds[3];
	int met = 0, wrong = 0;

	s->refs = 100;
	s->process = getpid();
	atomic_store(&s->state, LE_CONNECTED);
	atomic_store(&s->deadline, LE_NEVER);
	for (int i = 0; i < 2; i++)
		holds[i] = new_hold(s, &s->granted, 1 + i, LE_PHASE_GRANTED, LE_HOLD_HELD);
	atomic_store(&holds[0]->token, 1);

	/* the last moments count */
	for (int i = 0; i < 10000 && met < 100; i++)
	{
		int64_t deadline = le_now_ns() + LE_MS_NS / 2;
		bool valid;

		atomic_store(&s->deadline, deadline);
		valid = le_valid(holds[0]) && le_hold_time_left(holds[0]) == 1;
		if (le_now_ns() >= deadline)
			continue;
		met++;
		wrong += !valid;
	}
	ok(met > 0 && wrong == 0, "a hold is valid up to its deadline");
	atomic_store(&s->deadline, le_now_ns());
	ok(!le_valid(holds[0]) && le_hold_time_left(holds[0]) == 0, "and not from then on");
	is_int(atomic_load(&s->state), LE_CONNECTED, "though nobody has noticed");
	is_status(le_release(holds[0], 0, &error), LE_LOST, "a release does");
	is_int(atomic_load(&s->state), LE_ENDED, "and ends the session");
	is_int(atomic_load(&holds[1]->state), LE_HOLD_OVER, "with all that it holds");
	is_int(holds[0]->refs, 98, "its hold is free");
	is_status(le_await(holds[1], 0, &error), LE_LOST, "what was held is lost");

	atomic_store(&s->state, LE_CONNECTED);
	holds[2] = new_hold(s, &s->granted, 3, LE_PHASE_GRANTED, LE_HOLD_HELD);
	is_status(le_await(holds[2], 0, &error), LE_LOST, "one who asks notices as well");
	is_int(s->refs, 100, "no references are kept");
	for (int i = 0; i < 3; i++)
	{
		pthread_cond_destroy(&holds[i]->changed);
		free(holds[i]);
	}
	free_session(s);
}

static void
tests(void)
{
	PGconn *db = connect_db();

	numbers();
	pipes();
	waits();
	texts();
	structs();
	errors(db);
	states();
	channels();
	looks();
	tells(db);
	tells_in_turn(db);
	ends_while_told(db);
	deadlines();
	PQfinish(db);
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
