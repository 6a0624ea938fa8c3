/*
 * lock.c
 *		Implements the commands lock and elect: they wait, run CMD, and release.
 */
#include "lock.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commands.h"
#include "globals.h"
#include "memory.h"
#include "message.h"
#include "names.h"
#include "notify.h"
#include "server.h"
#include "signals.h"
#include "sql.h"
#include "text.h"

/* Interval in ms at which lockctl asks systemd for more time to start, and the time that it asks for, in ms */
#define EXTEND_EVERY_MS 10000
#define EXTEND_MS       40000
/* Result of a run that lost its lock; not an exit code, because CMD may exit with any code */
#define LOST (-1)
/* Interval in ms at which lockctl checks whether the user has run fg, to give the terminal to a stopped CMD */
#define TERMINAL_MS 200

/* --- messages --- */

/* Returns whether to print progress messages: with -v, or on a terminal.  Elsewhere, cron would mail them. */
static bool
is_watched(void)
{
	return lc_globals.verbosity >= LC_VERBOSE || (lc_globals.verbosity == LC_NORMAL && isatty(STDERR_FILENO));
}

/* Returns the lock's name for messages, on one line, because systemd parses each line as a variable. */
static const char *
what(const run *r)
{
	return lc_format("%s \"%s\"%s",
					 r->elect             ? "election"
					 : r->how.permits > 0 ? "permit"
										  : "lock",
					 lc_escaped(r->names[0]), r->n > 1 ? " and others" : "");
}

/* --- one step of a wait --- */

static bool
leads(const run *r)
{
	return r->hold != NULL && le_valid(r->hold) && !r->guardian.late && !r->guardian.exited && !r->killed;
}

static void
extend(run *r)
{
	if (!r->notify || le_now() < r->extend_at)
		return;
	lc_notify("EXTEND_TIMEOUT_USEC=%d\nSTATUS=waiting for %s", EXTEND_MS * 1000, what(r));
	r->extend_at = le_now() + EXTEND_EVERY_MS;
}

/* Returns the time at which CMD is killed if its deadline does not move. */
static int64_t
kill_time(const run *r)
{
	return r->deadline - lc_reserve(r->ttl);
}

/*
 * Returns the time by which the guardian has killed CMD after --at-most; only a stopped guardian misses it.
 */
static int64_t
overdue_at(const run *r)
{
	return r->end_at + r->grace + lc_reserve(r->ttl);
}

static bool
overdue(const run *r)
{
	return r->ended && le_now() >= overdue_at(r);
}

static void
sooner(int64_t *first, int64_t at)
{
	if (at < *first)
		*first = at;
}

/*
 * Returns the time at which a wait for an election times out.  Before the first reply, this is answer_by at
 * the earliest.  A wait for a lock times out in the library.
 */
static int64_t
wait_ends_at(const run *r)
{
	if (!r->elect || r->how.until == 0)
		return INT64_MAX;
	return r->hold != NULL && le_position(r->hold) == 0 && r->answer_by > r->how.until ? r->answer_by
																					   : r->how.until;
}

/* Returns the time in ms until the next action that no descriptor announces; -1 = none. */
static int
step_timeout(const run *r, bool waiting)
{
	int64_t now = le_now(), first = lc_http_until(&r->http);

	if (r->guardian.wants_terminal)
		sooner(&first, now + TERMINAL_MS);
	if (r->killed)
		sooner(&first, now + LC_KILL_AGAIN_MS);
	else if (r->deadline != 0)
		sooner(&first, kill_time(r));
	if (waiting && r->notify)
		sooner(&first, r->extend_at);
	if (waiting)
		sooner(&first, wait_ends_at(r));
	if (!waiting && r->end_at != 0 && !r->guardian.exited)
		sooner(&first, !r->ended ? r->end_at : overdue(r) ? now + LC_KILL_AGAIN_MS : overdue_at(r));
	if (first == INT64_MAX)
		return -1;
	return first <= now ? 0 : first - now < INT_MAX ? (int) (first - now) : INT_MAX;
}

/* Waits for the next event, and handles signals, the guardian's messages, and HTTP requests. */
static void
step(run *r, bool waiting)
{
	struct pollfd fds[4 + LC_HTTP_CLIENTS];
	lc_http_state state = {.election = r->names[0], .candidate = r->candidate};
	le_event event;
	int n = 0, signo;
	size_t mark = lc_mark();

	if (waiting)
		extend(r); /* asks systemd for more time */
	fds[n++] = (struct pollfd){.fd = le_fd(r->session), .events = POLLIN};
	fds[n++] = (struct pollfd){.fd = r->signal_fd, .events = POLLIN};
	fds[n++] = (struct pollfd){.fd = r->guardian.fd, .events = POLLIN};
	n += lc_http_poll(&r->http, fds + n);
	poll(fds, (nfds_t) n, step_timeout(r, waiting));
	while (le_next_event(r->session, &event))
		; /* events only end the poll */
	while ((signo = lc_signals_next(r->signal_fd)) != 0)
	{
		if (signo == SIGCONT)
			lc_guardian_continue(&r->guardian);
		else
		{
			if (signo != SIGTSTP)
				r->signo = signo;
			lc_guardian_send(&r->guardian, LC_SIGNAL, signo, 0, 0); /* forwards the signal to CMD */
		}
	}
	lc_guardian_read(&r->guardian);
	state.leads = leads(r);
	state.term = state.leads ? le_token(r->hold) : 0;
	lc_http_work(&r->http, &state);
	lc_free_since(mark);
}

/* --- the wait --- */

/*
 * Checks that the server accepts --hold-for.  Without this check, an error after CMD would release the lock
 * without --hold-for, and another machine would run CMD again.  The check passes a NULL token, which releases
 * nothing.
 */
static void
check_hold_for(const run *r)
{
	PGconn *db;

	if (r->hold_for == 0)
		return;
	db = lc_connect(true);
	lc_query(db, "SELECT %s.release_lock(%s, NULL::bigint, '%d ms')", lc_schema(db),
			 lc_literal(db, r->names[0]), r->hold_for);
	PQfinish(db);
}

/* Opens the session, or ends the program.  From now on signals are read from a descriptor. */
static void
open_session(run *r)
{
	char host[64] = "";
	le_options options = {.size = sizeof(options), .conninfo = lc_conninfo(), .ttl_ms = r->ttl};
	le_error error;

	gethostname(host, sizeof(host) - 1);
	options.name = lc_format("lockctl %s %d ", host, (int) getpid());
	if (le_open(&options, &r->session, &error) != LE_OK)
		lc_die(lc_exit_code(error.status), "%s", lc_line(error.message));
	r->signal_fd = lc_signals_fd();
	lc_detail("connected, lease %lld", (long long) le_lease(r->session));
}

/* Requests the lock, or enters the election, without waiting for the grant. */
static le_status
ask(run *r, le_error *error)
{
	const char *const *names = (const char *const *) r->names;

	if (r->elect && r->wait == 0)
		return le_campaign(r->session, names[0], r->candidate, 0, &r->hold, error);
	r->answer_by = le_now() + (r->ttl / 4 < 200 ? 200 : r->ttl / 4 > 10000 ? 10000 : r->ttl / 4);
	if (r->elect)
		return le_enqueue_candidate(r->session, names[0], r->candidate, &r->hold, error);
	if (r->wait == 0)
		return le_acquire(r->session, names, r->n, &r->how, 0, &r->hold, error);
	return le_enqueue(r->session, names, r->n, &r->how, &r->hold, error);
}

/* Requests the lock again, at the end of the queue, because the lease was lost during the wait. */
static le_status
ask_again(run *r, le_error *error)
{
	le_status status = le_reopen(r->session, error);

	if (status == LE_OK)
	{
		lc_notice("the queue place was lost; waiting again for %s", what(r));
		le_drop(r->hold);
		r->hold = NULL;
		status = ask(r, error);
	}
	return status;
}

static void
tell_place(run *r)
{
	if (r->told_place || !is_watched() || le_position(r->hold) == 0)
		return;
	lc_notice("waits for %s, position %lld", what(r), (long long) le_position(r->hold));
	r->told_place = true;
}

/* Waits until the lock is granted.  Returns LE_CANCELED after a signal. */
static le_status
wait_for_grant(run *r, le_error *error)
{
	le_status status = ask(r, error);

	while (r->signo == 0)
	{
		if (status == LE_LOST)
			status = ask_again(r, error);
		if (status != LE_OK)
			return status;
		status = le_await(r->hold, 0, error);
		if (status == LE_WAITING && le_now() >= wait_ends_at(r))
			return LE_TIMEOUT;
		if (status == LE_WAITING)
		{
			tell_place(r);
			step(r, true);
			status = LE_OK;
		}
		else if (status != LE_LOST)
			return status;
	}
	return LE_CANCELED;
}

/* --- while the lock is held --- */

/* Makes go() end the program with this signal.  Returns the exit code that a shell uses for the signal. */
static int
signaled(run *r, int signo)
{
	r->died = signo;
	return LC_EXIT_SIGNAL + signo;
}

static void
send_deadline(run *r)
{
	int64_t deadline = le_deadline(r->session);

	if (deadline > r->deadline && le_valid(r->hold))
	{
		r->deadline = deadline;
		lc_guardian_send(&r->guardian, LC_DEADLINE, 0, 0, deadline);
	}
}

/* Ends CMD after --at-most, so that a command that hangs does not hold its lock forever. */
static void
end_in_time(run *r)
{
	if (r->end_at == 0 || r->ended || r->guardian.exited || le_now() < r->end_at)
		return;
	lc_error("%s: ending the command, which has run for as long as --at-most allows", what(r));
	r->ended = true;
	lc_guardian_send(&r->guardian, LC_END, 0, 0, 0);
}

/*
 * Runs CMD until CMD and all its descendants have ended.  The guardian only knows the deadline.  lockctl also
 * kills CMD if the lock is lost before the deadline, or if the guardian is stopped.
 */
static int
run_command(run *r)
{
	bool lost;

	lc_signals_add(r->signal_fd, SIGTSTP);
	r->deadline = le_deadline(r->session);
	lc_guardian_start(&r->guardian, le_token(r->hold), r->deadline);
	r->end_at = r->at_most > 0 ? le_now() + r->at_most : 0;
	while (!r->guardian.gone)
	{
		send_deadline(r);
		if (!le_valid(r->hold) || le_now() >= kill_time(r))
			r->killed = true;
		if (r->killed || overdue(r))
			lc_guardian_kill(&r->guardian);
		end_in_time(r);
		step(r, false);
	}
	lost = r->guardian.late || r->killed;
	lc_guardian_finish(&r->guardian);
	lc_signals_allow(SIGTSTP);
	if (lost)
		return LOST;
	if (r->ended)
		return LC_EXIT_AT_MOST;
	if (WIFSIGNALED(r->guardian.status))
		return signaled(r, WTERMSIG(r->guardian.status));
	return WEXITSTATUS(r->guardian.status);
}

/* Prints the token, and holds the lock until a signal arrives.  Used if there is no CMD. */
static int
just_hold(run *r)
{
	if (is_watched() && r->signo == 0)
		lc_notice("%s is held until a signal, such as Ctrl-C; \"-- CMD\" would run a command under it",
				  what(r));
	/* if the token cannot be printed, return, so that the lock is released */
	if (printf("%lld\n", (long long) le_token(r->hold)) < 0 || fflush(stdout) != 0)
	{
		lc_error("cannot write the output: %s", strerror(errno));
		return LC_EXIT_FAILED;
	}
	while (r->signo == 0 && le_valid(r->hold))
		step(r, false);
	return r->signo != 0 ? signaled(r, r->signo) : LOST;
}

/* --- the end --- */

static void
tell_lost(run *r)
{
	le_error error = {0};

	le_await(r->hold, 0, &error);
	if (r->guardian.late && error.message[0] == '\0')
		lc_error("%s could not be renewed in time: the command was ended", what(r));
	else
		lc_error("%s is lost%s%s%s", what(r), error.message[0] != '\0' ? ": " : "", error.message,
				 r->killed ? ": the command was killed" : "");
}

/* Releases the lock.  code is CMD's exit code or LOST; returns the exit code of the run or LOST. */
static int
give_back(run *r, int code)
{
	le_error error;
	le_status status;

	if (r->notify)
		lc_notify("STOPPING=1");
	if (code == LOST)
		tell_lost(r); /* reads the hold, which le_release() frees */
	status = le_release(r->hold, r->hold_for, &error);
	r->hold = NULL;
	if (status == LE_LOST && code != LOST)
	{
		lc_error("%s had been lost before it was released: the command may have run next to another holder",
				 what(r));
		code = LOST;
	}
	else if (status == LE_INVALID) /* the server has rejected --hold-for */
		lc_error("%s was released without --hold-for: %s", what(r), error.message);
	else if (status == LE_UNKNOWN)
	{
		/* Remove the library's note about retries, because this process ends. */
		char *retries = strstr(error.message, "; the session keeps trying");

		if (retries != NULL)
			*retries = '\0';
		lc_error("%s was not released: %s; it expires after its TTL at the latest", what(r), error.message);
	}
	else if (status != LE_OK && status != LE_LOST)
		lc_error("%s was not released: %s", what(r), error.message);
	return code;
}

/* Reports why the lock was not granted, and returns the exit code or LOST. */
static int
not_granted(run *r, le_status status, const le_error *error)
{
	if (r->signo != 0)
		return signaled(r, r->signo);
	if (status == LE_TIMEOUT)
	{
		if (is_watched())
			lc_notice("%s: not acquired%s", what(r), r->wait == 0 ? "" : " in time");
		return r->codes[0];
	}
	lc_error("%s", lc_line(error->message));
	return status == LE_LOST ? LOST : lc_exit_code(status);
}

static int
granted(run *r)
{
	int code;

	lc_detail("%s is acquired, token %lld", what(r), (long long) le_token(r->hold));
	if (r->notify)
		lc_notify("READY=1\nSTATUS=%s, token %lld", what(r), (long long) le_token(r->hold));
	code = r->command != NULL ? run_command(r) : just_hold(r);
	return give_back(r, code);
}

/* Runs lockctl lock or elect after its arguments were parsed, and returns the exit code. */
static int
go(run *r)
{
	le_error error = {0};
	le_status status;
	int code;

	check_hold_for(r);
	if (r->command != NULL)
	{
		lc_set_environment(r->names, r->n, r->command);
		r->guarded = (lc_command){.argv = r->command, .ttl = r->ttl, .grace = r->grace, .notify = r->notify};
		lc_guardian_fork(&r->guardian, &r->guarded);
	}
	/* listen after the fork, so that the guardian does not keep the port open */
	if (r->http_address != NULL)
		lc_http_open(&r->http, r->http_address);
	open_session(r);
	do
	{
		status = wait_for_grant(r, &error);
		code = status == LE_OK ? granted(r) : not_granted(r, status, &error);
		/* A candidate without a command campaigns again after it has lost its term. */
	} while (r->elect && r->command == NULL && code == LOST && r->signo == 0 &&
			 le_reopen(r->session, &error) == LE_OK);
	/* Let a second Ctrl-C end the program, even if the server does not reply. */
	if (r->signo == SIGINT || r->died == SIGINT)
		lc_signals_allow(SIGINT);
	if (r->hold != NULL)
		le_release(r->hold, 0, NULL);
	if (le_close(r->session, -1, &error) != LE_OK)
		lc_detail("%s", error.message);
	lc_guardian_finish(&r->guardian);
	if (code == LOST)
		return r->codes[1];
	if (r->died == 0 || code != LC_EXIT_SIGNAL + r->died)
		return code;
	/*
	 * Only CMD's group has received the signal of a key such as Ctrl-C.  lockctl's group may contain a script
	 * that needs the signal, too.
	 */
	if (r->guardian.interrupted && r->signo != r->died)
		kill(0, r->died);
	lc_signals_die(r->died);
}

int
lc_lock(int argc, char **argv)
{
	/* static, so that the names live until the program ends */
	static run r;

	lc_lock_arguments(&r, false, argc, argv);
	return go(&r);
}

int
lc_elect(int argc, char **argv)
{
	static run r;

	lc_lock_arguments(&r, true, argc, argv);
	return r.listen ? lc_elect_listen(r.names[0]) : go(&r);
}
