/*
 * agent_c.c
 *		liblockelection's agent for the conformance suite; README.md has the
 *		protocol.
 *
 * The main thread reads commands, and does what is local: also the beginning
 * of a wait, so that commands take effect in their order.  What waits for the
 * server goes on in a thread of its own.  One thread a session takes its events.
 *
 * The table of what there is has one mutex.  A hold leaves the table before it
 * is given back, so whoever finds it there may use it under the mutex.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "lock_election.h"

#define STACK      (256 * 1024)
#define EXIT_LIMIT 1000
/* ms; as long as the session may wait for any answer */
#define FIRST_ANSWER 10000
#define EACH_MAX     1024

typedef struct Session
{
	struct Session *next;
	char *name;
	le_session *session;
	int stop; /* an eventfd that ends the thread of events */
	pthread_t events;
	atomic_bool closing;
} Session;

typedef struct Hold
{
	struct Hold *next;
	char *name;
	le_hold *hold;
	bool told; /* lost */
} Hold;

typedef struct Observer
{
	struct Observer *next;
	char *name;
	Session *session;
	le_observer *observer;
} Observer;

/* A command that goes on in a thread. */
typedef struct Work
{
	json_t *command;
	double sent;
	le_hold *waits; /* for this to be granted; NULL: for something else */
	Session *session;
	void (*run)(struct Work *work);
} Work;

/* A wait that can be canceled. */
typedef struct Wait
{
	struct Wait *next;
	json_int_t id;
	le_hold *hold;
} Wait;

static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static Session *sessions;
static Hold *holds;
static Observer *observers;
static Wait *waits;
static atomic_int own_threads = 1;

static void *
must(void *p)
{
	if (p == NULL)
		abort();
	return p;
}

/* --- what is written --- */

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec * 1000 + (double) t.tv_nsec / 1e6;
}

/* One line, whole. */
static void
print(json_t *object)
{
	static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;
	char *text = must(json_dumps(object, JSON_COMPACT));
	size_t len = strlen(text), done = 0;

	text[len++] = '\n';
	pthread_mutex_lock(&output);
	while (done < len)
	{
		ssize_t n = write(STDOUT_FILENO, text + done, len - done);

		if (n < 0 && errno != EINTR)
			_exit(1);
		if (n > 0)
			done += (size_t) n;
	}
	pthread_mutex_unlock(&output);
	free(text);
	json_decref(object);
}

static const char *
status_word(le_status status, const le_error *error)
{
	static const char *const absent[] = {"42883", "3F000", "55000"};

	switch (status)
	{
		case LE_OK:
			return "ok";
		case LE_TIMEOUT:
			return "not_acquired";
		case LE_CANCELED:
			return "canceled";
		case LE_LOST:
			return "lost";
		case LE_DEADLOCK:
			return "deadlock";
		case LE_LIMIT:
			return "limit";
		case LE_DENIED:
			return "denied";
		case LE_INVALID:
			return "invalid";
		case LE_UNKNOWN:
			return "unknown";
		case LE_UNAVAILABLE:
			for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
				if (strcmp(error->sqlstate, absent[i]) == 0)
					return "not_installed";
			return strstr(error->message, "not installed") != NULL ? "not_installed" : "unavailable";
		default:
			return "failed";
	}
}

/* The answer to a command; more: its other fields, or NULL. */
static void
answer_word(const json_t *command, double sent, const char *status, const char *sqlstate, const char *message,
			json_t *more)
{
	json_t *answer = more != NULL ? more : json_object();

	json_object_set(answer, "id", json_object_get(command, "id"));
	json_object_set_new(answer, "status", json_string(status));
	json_object_set_new(answer, "sent", json_real(sent));
	json_object_set_new(answer, "at", json_real(now()));
	if (message[0] != '\0')
		json_object_set_new(answer, "message", json_string(message));
	if (sqlstate[0] != '\0')
		json_object_set_new(answer, "sqlstate", json_string(sqlstate));
	print(answer);
}

static void
answer(const json_t *command, double sent, le_status status, const le_error *error, json_t *more)
{
	if (status == LE_OK)
		answer_word(command, sent, "ok", "", "", more);
	else
		answer_word(command, sent, status_word(status, error), error->sqlstate, error->message, more);
}

static void
answer_invalid(const json_t *command, double sent, const char *message)
{
	answer_word(command, sent, "invalid", "", message, NULL);
}

static json_t *
number_text(int64_t number)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long) number);
	return json_string(text);
}

/* --- what is read --- */

static const char *
text_of(const json_t *command, const char *key)
{
	const char *text = json_string_value(json_object_get(command, key));

	return text != NULL ? text : "";
}

/* -1: null or not there. */
static int
ms_of(const json_t *command, const char *key)
{
	const json_t *value = json_object_get(command, key);

	return json_is_number(value) ? (int) json_number_value(value) : -1;
}

static Session *
find_session(const char *name)
{
	for (Session *s = sessions; s != NULL; s = s->next)
		if (strcmp(s->name, name) == 0)
			return s;
	return NULL;
}

static Hold *
find_hold(const char *name)
{
	for (Hold *h = holds; h != NULL; h = h->next)
		if (strcmp(h->name, name) == 0)
			return h;
	return NULL;
}

/* Takes a hold out of the table: it is the caller's to give back. */
static le_hold *
take_hold(const char *name)
{
	le_hold *found = NULL;

	pthread_mutex_lock(&table);
	for (Hold **p = &holds; *p != NULL; p = &(*p)->next)
	{
		Hold *h = *p;

		if (strcmp(h->name, name) != 0)
			continue;
		found = h->hold;
		*p = h->next;
		free(h->name);
		free(h);
		break;
	}
	pthread_mutex_unlock(&table);
	return found;
}

/* --- events --- */

/* Under the mutex. */
static void
tell_if_lost(Hold *h)
{
	if (h->told || le_get_hold_state(h->hold) != LE_HOLD_OVER)
		return;
	h->told = true;
	print(json_pack("{s:s, s:s, s:s, s:f}", "event", "lost", "hold", h->name, "why", "the hold is over", "at",
					now()));
}

static void
add_hold(const char *name, le_hold *hold)
{
	Hold *h = must(calloc(1, sizeof(*h)));

	h->name = must(strdup(name));
	h->hold = hold;
	pthread_mutex_lock(&table);
	h->next = holds;
	holds = h;
	pthread_mutex_unlock(&table);
}

/* After the grant was answered: it may have been lost before it was in the table. */
static void
look_at_hold(const char *name)
{
	Hold *h;

	pthread_mutex_lock(&table);
	h = find_hold(name);
	if (h != NULL)
		tell_if_lost(h);
	pthread_mutex_unlock(&table);
}

static void
take_events(Session *s)
{
	static const char *const states[] = {
		[LE_CONNECTED] = "connected", [LE_SUSPENDED] = "suspended", [LE_ENDED] = "ended"};
	le_event event;

	while (le_next_event(s->session, &event))
	{
		if (event.kind == LE_EVENT_STATE)
			print(json_pack("{s:s, s:s, s:s, s:f}", "event", "state", "session", s->name, "state",
							states[event.state], "at", now()));
		if (event.kind != LE_EVENT_HOLD)
			continue;
		pthread_mutex_lock(&table);
		for (Hold *h = holds; h != NULL; h = h->next)
			if (h->hold == event.hold)
				tell_if_lost(h);
		pthread_mutex_unlock(&table);
	}
}

static void *
events_thread(void *arg)
{
	Session *s = arg;

	for (;;)
	{
		struct pollfd fds[] = {{.fd = le_fd(s->session), .events = POLLIN},
							   {.fd = s->stop, .events = POLLIN}};

		if (poll(fds, 2, -1) < 0)
			continue;
		if (fds[1].revents != 0)
			return NULL;
		take_events(s);
	}
}

static void
on_change(const le_change *change, void *arg)
{
	const char *name = arg;

	if (change->leads)
		print(json_pack("{s:s, s:s, s:s, s:o, s:f}", "event", "leader", "observer", name, "value",
						change->candidate, "term", number_text(change->term), "at", now()));
	else
		print(json_pack("{s:s, s:s, s:n, s:n, s:f}", "event", "leader", "observer", name, "value", "term",
						"at", now()));
}

/* --- commands that wait for the server --- */

static void *
work_thread(void *arg)
{
	Work *work = arg;

	work->run(work);
	json_decref(work->command);
	free(work);
	atomic_fetch_sub(&own_threads, 1);
	return NULL;
}

static void
start_thread(pthread_t *thread, void *(*run)(void *), void *arg)
{
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	atomic_fetch_add(&own_threads, 1);
	if (pthread_create(thread, &attr, run, arg) != 0)
		abort();
	pthread_attr_destroy(&attr);
}

static void
go_on(json_t *command, double sent, void (*run)(Work *work), Session *s, le_hold *waiting)
{
	Work *work = must(calloc(1, sizeof(*work)));
	pthread_t thread;

	work->command = json_incref(command);
	work->sent = sent;
	work->run = run;
	work->session = s;
	work->waits = waiting;
	start_thread(&thread, work_thread, work);
	pthread_detach(thread);
}

static void
run_open(Work *work)
{
	Session *s = must(calloc(1, sizeof(*s)));
	const char *name = text_of(work->command, "name");
	le_options options = {.size = sizeof(options),
						  .conninfo = text_of(work->command, "dsn"),
						  .name = name[0] != '\0' ? name : NULL,
						  .ttl_ms = ms_of(work->command, "ttl")};
	le_error error;
	le_status status = le_open(&options, &s->session, &error);

	if (status != LE_OK)
	{
		free(s);
		answer(work->command, work->sent, status, &error, json_pack("{s:s}", "shown", error.message));
		return;
	}
	s->name = must(strdup(text_of(work->command, "session")));
	s->stop = eventfd(0, EFD_CLOEXEC);
	start_thread(&s->events, events_thread, s);
	pthread_mutex_lock(&table);
	s->next = sessions;
	sessions = s;
	pthread_mutex_unlock(&table);
	answer(work->command, work->sent, LE_OK, NULL,
		   json_pack("{s:o}", "lease", number_text(le_lease(s->session))));
}

static void
forget_wait(le_hold *hold)
{
	pthread_mutex_lock(&table);
	for (Wait **p = &waits; *p != NULL; p = &(*p)->next)
	{
		Wait *w = *p;

		if (w->hold != hold)
			continue;
		*p = w->next;
		free(w);
		break;
	}
	pthread_mutex_unlock(&table);
}

/* A hold, or why there is none; a wait that its session's end has ended was canceled. */
static void
answer_hold(Work *work, le_hold *hold, le_status status, const le_error *error)
{
	const char *name = text_of(work->command, "hold");

	if (status == LE_OK)
	{
		add_hold(name, hold);
		answer(work->command, work->sent, LE_OK, NULL,
			   json_pack("{s:o}", "token", number_text(le_token(hold))));
		look_at_hold(name);
		return;
	}
	if (hold != NULL)
		le_drop(hold);
	if (status == LE_LOST && atomic_load(&work->session->closing))
		status = LE_CANCELED;
	answer(work->command, work->sent, status, error, NULL);
}

static void
run_await(Work *work)
{
	le_error error;
	/* an election's place has no limit of its own: the wait bounds the time in the queue, not the first answer */
	bool campaign = json_object_get(work->command, "election") != NULL;
	le_status status = le_await(work->waits, campaign ? ms_of(work->command, "wait") : -1, &error);

	while (status == LE_WAITING && le_position(work->waits) == 0 && now() < work->sent + FIRST_ANSWER)
		status = le_await(work->waits, 5, &error);
	forget_wait(work->waits);
	if (status == LE_WAITING)
	{
		status = LE_TIMEOUT;
		snprintf(error.message, sizeof(error.message), "not granted in time");
	}
	answer_hold(work, work->waits, status, &error);
}

static int
names_of(const json_t *command, const char *key, const char **names)
{
	const json_t *list = json_object_get(command, key);
	int n = (int) json_array_size(list);

	for (int i = 0; i < n && i < EACH_MAX; i++)
		names[i] = json_string_value(json_array_get(list, (size_t) i));
	return n;
}

static le_how
how_of(const json_t *command)
{
	const char *mode = text_of(command, "mode");
	le_how how = {.size = sizeof(how)};

	how.shared = strcmp(mode, "shared") == 0;
	if (strcmp(mode, "permit") == 0)
		how.permits = ms_of(command, "permits");
	return how;
}

/* Does not wait: acquire with wait 0. */
static void
run_try(Work *work)
{
	const char *names[EACH_MAX];
	int n = names_of(work->command, "names", names);
	le_how how = how_of(work->command);
	le_hold *hold = NULL;
	le_error error;
	le_status status = le_acquire(work->session->session, names, n, &how, 0, &hold, &error);

	answer_hold(work, hold, status, &error);
}

static void
run_campaign_now(Work *work)
{
	le_hold *hold = NULL;
	le_error error;
	le_status status = le_campaign(work->session->session, text_of(work->command, "election"),
								   text_of(work->command, "value"), 0, &hold, &error);

	answer_hold(work, hold, status, &error);
}

/* One of the threads of try_each: what they ask for travels together. */
typedef struct Each
{
	le_session *session;
	const char *name;
	le_how how;
	le_hold *hold;
	le_status status;
	le_error error;
} Each;

static void *
each_thread(void *arg)
{
	Each *each = arg;

	each->status = le_acquire(each->session, &each->name, 1, &each->how, 0, &each->hold, &each->error);
	atomic_fetch_sub(&own_threads, 1);
	return NULL;
}

static void
run_each(Work *work)
{
	const char *names[EACH_MAX], *keys[EACH_MAX];
	int n = names_of(work->command, "names", names);
	Each *each = must(calloc((size_t) n, sizeof(*each)));
	pthread_t *threads = must(calloc((size_t) n, sizeof(*threads)));
	json_t *tokens = json_array();
	const Each *failed = NULL;

	names_of(work->command, "holds", keys);
	for (int i = 0; i < n; i++)
	{
		each[i].session = work->session->session;
		each[i].name = names[i];
		each[i].how = how_of(work->command);
		start_thread(&threads[i], each_thread, &each[i]);
	}
	for (int i = 0; i < n; i++)
	{
		pthread_join(threads[i], NULL);
		if (each[i].status != LE_OK && each[i].status != LE_TIMEOUT)
			failed = &each[i];
		json_array_append_new(tokens,
							  each[i].hold != NULL ? number_text(le_token(each[i].hold)) : json_null());
	}
	for (int i = 0; i < n; i++)
	{
		if (each[i].hold == NULL)
			continue;
		if (failed == NULL)
			add_hold(keys[i], each[i].hold);
		else
			le_drop(each[i].hold);
	}
	if (failed != NULL)
		answer(work->command, work->sent, failed->status, &failed->error, NULL);
	else
		answer(work->command, work->sent, LE_OK, NULL, json_pack("{s:O}", "tokens", tokens));
	for (int i = 0; i < n && failed == NULL; i++)
		look_at_hold(keys[i]);
	json_decref(tokens);
	free(each);
	free(threads);
}

static void
run_release(Work *work)
{
	le_error error;
	int hold_for = ms_of(work->command, "hold_for");
	le_status status = le_release(work->waits, hold_for > 0 ? hold_for : 0, &error);

	answer(work->command, work->sent, status, &error, NULL);
}

static void
run_proclaim(Work *work)
{
	le_error error;
	le_status status = le_proclaim(work->waits, text_of(work->command, "value"), &error);

	answer(work->command, work->sent, status, &error, NULL);
}

/* The statement, or what is wrong with it. */
static le_status
execute(PGconn *conn, const char *sql, le_error *error)
{
	PGresult *result = PQexec(conn, sql);
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	ExecStatusType done = PQresultStatus(result);
	le_status status = done == PGRES_COMMAND_OK || done == PGRES_TUPLES_OK ? LE_OK : LE_FAILED;

	if (status != LE_OK)
	{
		memset(error, 0, sizeof(*error));
		snprintf(error->sqlstate, sizeof(error->sqlstate), "%s", sqlstate != NULL ? sqlstate : "");
		snprintf(error->message, sizeof(error->message), "%s", PQresultErrorMessage(result));
		if (strcmp(error->sqlstate, "40P01") == 0)
			status = LE_DEADLOCK;
	}
	PQclear(result);
	return status;
}

static void
run_fence(Work *work)
{
	PGconn *conn = PQconnectdb(text_of(work->command, "dsn"));
	le_error error = {0};
	le_status status = LE_UNAVAILABLE;

	if (PQstatus(conn) != CONNECTION_OK)
		snprintf(error.message, sizeof(error.message), "%s", PQerrorMessage(conn));
	else
		status = execute(conn, "BEGIN", &error);
	if (status == LE_OK)
		status = le_fence(work->waits, conn, &error);
	if (status == LE_OK)
		status = execute(conn, text_of(work->command, "sql"), &error);
	if (status == LE_OK)
		status = execute(conn, "COMMIT", &error);
	PQfinish(conn);
	answer(work->command, work->sent, status, &error, NULL);
}

static void
run_leader(Work *work)
{
	le_leader_info *leader = must(calloc(1, sizeof(*leader)));
	le_error error;
	le_status status;
	json_t *more = NULL;

	leader->size = sizeof(*leader);
	status = le_leader(work->session->session, text_of(work->command, "election"), leader, &error);
	if (status == LE_OK)
		more = leader->term == 0
				   ? json_pack("{s:n, s:n}", "value", "term")
				   : json_pack("{s:s, s:o}", "value", leader->candidate, "term", number_text(leader->term));
	answer(work->command, work->sent, status, &error, more);
	free(leader);
}

static void
unobserve_all(const Session *s)
{
	Observer *mine = NULL;

	pthread_mutex_lock(&table);
	for (Observer **p = &observers; *p != NULL;)
	{
		Observer *o = *p;

		if (o->session != s)
		{
			p = &o->next;
			continue;
		}
		*p = o->next;
		o->next = mine;
		mine = o;
	}
	pthread_mutex_unlock(&table);
	while (mine != NULL)
	{
		Observer *o = mine;

		mine = o->next;
		le_unobserve(o->observer);
		free(o->name);
		free(o);
	}
}

static le_status
close_session(Session *s, int limit, le_error *error)
{
	uint64_t one = 1;
	le_status status;

	if (write(s->stop, &one, sizeof(one)) != sizeof(one))
		abort();
	pthread_join(s->events, NULL);
	atomic_fetch_sub(&own_threads, 1);
	unobserve_all(s);
	status = le_close(s->session, limit, error);
	close(s->stop);
	return status;
}

static void
run_close(Work *work)
{
	le_error error;
	le_status status = close_session(work->session, ms_of(work->command, "limit"), &error);

	answer(work->command, work->sent, status, &error, NULL);
}

/* --- commands that are done at once --- */

/* Takes a session out of the table; its memory stays for the calls that still answer. */
static Session *
take_session(const char *name)
{
	Session *found = NULL;

	pthread_mutex_lock(&table);
	for (Session **p = &sessions; *p != NULL; p = &(*p)->next)
	{
		if (name != NULL && strcmp((*p)->name, name) != 0)
			continue;
		found = *p;
		*p = found->next;
		atomic_store(&found->closing, true);
		break;
	}
	pthread_mutex_unlock(&table);
	return found;
}

/* The beginning of a wait, or of a call that does not wait. */
static void
do_ask(json_t *command, double sent, Session *s, bool campaign)
{
	const char *names[EACH_MAX];
	int n = names_of(command, "names", names);
	le_how how = how_of(command);
	le_hold *hold;
	le_error error;
	le_status status;
	Wait *w;

	if (ms_of(command, "wait") == 0)
	{
		go_on(command, sent, campaign ? run_campaign_now : run_try, s, NULL);
		return;
	}
	if (ms_of(command, "wait") > 0)
		how.until = le_now() + ms_of(command, "wait");
	status = campaign ? le_enqueue_candidate(s->session, text_of(command, "election"),
											 text_of(command, "value"), &hold, &error)
					  : le_enqueue(s->session, names, n, &how, &hold, &error);
	if (status != LE_OK)
	{
		answer(command, sent, status, &error, NULL);
		return;
	}
	w = must(calloc(1, sizeof(*w)));
	w->id = json_integer_value(json_object_get(command, "id"));
	w->hold = hold;
	pthread_mutex_lock(&table);
	w->next = waits;
	waits = w;
	pthread_mutex_unlock(&table);
	go_on(command, sent, run_await, s, hold);
}

static void
do_cancel(const json_t *command, double sent)
{
	json_int_t of = json_integer_value(json_object_get(command, "of"));

	pthread_mutex_lock(&table);
	for (Wait *w = waits; w != NULL; w = w->next)
		if (w->id == of)
			le_cancel(w->hold);
	pthread_mutex_unlock(&table);
	answer(command, sent, LE_OK, NULL, NULL);
}

static void
do_valid(const json_t *command, double sent)
{
	Hold *h;
	int valid;
	int64_t left;

	pthread_mutex_lock(&table);
	h = find_hold(text_of(command, "hold"));
	if (h != NULL)
	{
		left = le_hold_time_left(h->hold);
		valid = le_valid(h->hold);
	}
	pthread_mutex_unlock(&table);
	if (h == NULL)
		answer_invalid(command, sent, "no such hold");
	else
		answer(command, sent, LE_OK, NULL,
			   json_pack("{s:b, s:I}", "valid", valid, "deadline", (json_int_t) left));
}

static void
do_state(const json_t *command, double sent, const Session *s)
{
	static const char *const states[] = {
		[LE_CONNECTED] = "connected", [LE_SUSPENDED] = "suspended", [LE_ENDED] = "ended"};

	answer(command, sent, LE_OK, NULL, json_pack("{s:s}", "state", states[le_get_state(s->session)]));
}

static void
do_observe(const json_t *command, double sent, Session *s)
{
	Observer *o = must(calloc(1, sizeof(*o)));
	le_error error;
	le_status status;

	o->name = must(strdup(text_of(command, "observer")));
	o->session = s;
	status =
		le_observe(s->session, text_of(command, "election"), -1, on_change, o->name, &o->observer, &error);
	if (status == LE_OK)
	{
		pthread_mutex_lock(&table);
		o->next = observers;
		observers = o;
		pthread_mutex_unlock(&table);
	}
	answer(command, sent, status, &error, NULL);
}

static void
do_unobserve(const json_t *command, double sent)
{
	Observer *found = NULL;

	pthread_mutex_lock(&table);
	for (Observer **p = &observers; *p != NULL && found == NULL;)
	{
		if (strcmp((*p)->name, text_of(command, "observer")) == 0)
		{
			found = *p;
			*p = found->next;
		}
		else
			p = &(*p)->next;
	}
	pthread_mutex_unlock(&table);
	if (found == NULL)
	{
		answer_invalid(command, sent, "no such observer");
		return;
	}
	le_unobserve(found->observer);
	free(found->name);
	free(found);
	answer(command, sent, LE_OK, NULL, NULL);
}

static void
do_fork(const json_t *command, double sent, const Session *s)
{
	const char *name = "fork", *word;
	char text[32] = "";
	int ends[2];
	ssize_t n;
	pid_t pid;
	int status;
	Hold *given;
	le_hold *held;

	/* before the fork: the table may be in use when the child is made */
	pthread_mutex_lock(&table);
	given = find_hold(text_of(command, "hold"));
	held = given != NULL ? given->hold : NULL;
	pthread_mutex_unlock(&table);
	if (pipe(ends) != 0 || (pid = fork()) < 0)
		abort();
	if (pid == 0)
	{
		le_hold *hold;
		le_error error;

		word = status_word(le_acquire(s->session, &name, 1, NULL, 0, &hold, &error), &error);
		if (write(ends[1], word, strlen(word)) < 0 || le_valid(held))
			_exit(1);
		if (le_release(held, 0, &error) != LE_OK || le_close(s->session, -1, &error) != LE_OK)
			_exit(2);
		_exit(0);
	}
	close(ends[1]);
	n = read(ends[0], text, sizeof(text) - 1);
	close(ends[0]);
	waitpid(pid, &status, 0);
	answer(command, sent, LE_OK, NULL,
		   json_pack("{s:s, s:i}", "child", n > 0 ? text : "failed", "exit",
					 WIFEXITED(status) ? WEXITSTATUS(status) : -1));
}

static void
do_block(const json_t *command, double sent)
{
	double end = now() + ms_of(command, "ms");

	while (now() < end)
		;
	answer(command, sent, LE_OK, NULL, NULL);
}

/* Entries of a folder of /proc; sockets only, where they are descriptors. */
static int
count_entries(const char *path, bool sockets)
{
	DIR *dir = must(opendir(path));
	const struct dirent *entry;
	int n = 0;

	while ((entry = readdir(dir)) != NULL)
	{
		char link[300], target[64] = "";

		if (entry->d_name[0] == '.' || (sockets && atoi(entry->d_name) <= STDERR_FILENO))
			continue;
		snprintf(link, sizeof(link), "%s/%s", path, entry->d_name);
		if (sockets && (readlink(link, target, sizeof(target) - 1) < 0 || strncmp(target, "socket:", 7) != 0))
			continue;
		n++;
	}
	closedir(dir);
	return n;
}

static void
do_threads(const json_t *command, double sent)
{
	int left = count_entries("/proc/self/task", false) - atomic_load(&own_threads);

	answer(command, sent, LE_OK, NULL,
		   json_pack("{s:i, s:i}", "threads", left > 0 ? left : 0, "connections",
					 count_entries("/proc/self/fd", true)));
}

/* --- which command is which --- */

static void
do_with_hold(json_t *command, double sent, void (*run)(Work *work), bool gives_back)
{
	const char *name = text_of(command, "hold");
	le_hold *hold = NULL;

	if (gives_back)
		hold = take_hold(name);
	else
	{
		const Hold *h;

		pthread_mutex_lock(&table);
		h = find_hold(name);
		if (h != NULL)
			hold = h->hold;
		pthread_mutex_unlock(&table);
	}
	if (hold == NULL)
		answer_invalid(command, sent, "no such hold");
	else
		go_on(command, sent, run, NULL, hold);
}

static void
do_with_session(json_t *command, double sent, const char *what)
{
	const char *name = text_of(command, "session");
	Session *s;

	pthread_mutex_lock(&table);
	s = find_session(name);
	pthread_mutex_unlock(&table);
	if (s == NULL)
		answer_invalid(command, sent, "no such session");
	else if (strcmp(what, "acquire") == 0 && json_object_get(command, "ttl") != NULL)
		answer_word(command, sent, "unsupported", "", "", NULL);
	else if (strcmp(what, "acquire") == 0)
		do_ask(command, sent, s, false);
	else if (strcmp(what, "campaign") == 0)
		do_ask(command, sent, s, true);
	else if (strcmp(what, "try_each") == 0)
		go_on(command, sent, run_each, s, NULL);
	else if (strcmp(what, "leader") == 0)
		go_on(command, sent, run_leader, s, NULL);
	else if (strcmp(what, "observe") == 0)
		do_observe(command, sent, s);
	else if (strcmp(what, "state") == 0)
		do_state(command, sent, s);
	else if (strcmp(what, "fork") == 0)
		do_fork(command, sent, s);
	else if (strcmp(what, "close") == 0)
		go_on(command, sent, run_close, take_session(name), NULL);
	else
		answer_word(command, sent, "unsupported", "", "", NULL);
}

static void
do_command(json_t *command)
{
	const char *what = text_of(command, "do");
	double sent = now();

	if (strcmp(what, "open") == 0)
		go_on(command, sent, run_open, NULL, NULL);
	else if (strcmp(what, "valid") == 0)
		do_valid(command, sent);
	else if (strcmp(what, "cancel") == 0)
		do_cancel(command, sent);
	else if (strcmp(what, "release") == 0 || strcmp(what, "resign") == 0)
		do_with_hold(command, sent, run_release, true);
	else if (strcmp(what, "fence") == 0)
		do_with_hold(command, sent, run_fence, false);
	else if (strcmp(what, "proclaim") == 0)
		do_with_hold(command, sent, run_proclaim, false);
	else if (strcmp(what, "unobserve") == 0)
		do_unobserve(command, sent);
	else if (strcmp(what, "block") == 0)
		do_block(command, sent);
	else if (strcmp(what, "threads") == 0)
		do_threads(command, sent);
	else
		do_with_session(command, sent, what);
}

int
main(int argc, char **argv)
{
	char *text = NULL;
	size_t room = 0;
	Session *s;

	if (argc > 1 && strcmp(argv[1], "--capabilities") == 0)
	{
		print(json_pack("{s:s, s:s, s:[s], s:[s,s,s,s,s,s,s,s,s,s,s,s]}", "client", "c", "version",
						le_version(), "modes", "threads", "features", "shared", "permits", "several", "each",
						"election", "observe", "fence", "cancel", "fork", "hold_for", "block", "threads"));
		return 0;
	}
	signal(SIGPIPE, SIG_IGN);
	while (getline(&text, &room, stdin) > 0)
	{
		json_t *command = json_loads(text, 0, NULL);

		if (command == NULL)
		{
			fprintf(stderr, "not JSON: %s", text);
			return 2;
		}
		do_command(command);
		json_decref(command);
	}
	while ((s = take_session(NULL)) != NULL)
		close_session(s, EXIT_LIMIT, NULL);
	_exit(0);
}
