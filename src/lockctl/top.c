/*
 * top.c
 *		Shows locks, queues and rates, on a full screen, or in one line per interval.
 *
 * The server sorts the rows, and sends only those that the screen shows, so
 * that a million locks need not cross the network every two seconds.
 */
#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <ncurses.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"
#include "globals.h"
#include "memory.h"
#include "message.h"
#include "options.h"
#include "signals.h"
#include "sql.h"
#include "text.h"

#define INTERVAL_MS 2000
/* Time in ms without a reply after which top reconnects */
#define ANSWER_MS   5000
#define HEADER_ROWS 4
#define ROWS_MAX    1000

enum
{
	RATE_GRANTS,
	RATE_RELEASES,
	RATE_RENEWALS,
	RATE_WAITS,
	RATE_HANDOFFS,
	RATE_EXPIRIES,
	RATE_BATCHES,
	RATE_XIDS,
	NRATES
};

static const struct
{
	const char *column, *title;
} rates[NRATES] = {{"grants", "grants"},   {"releases", "releases"},   {"renewals", "renewals"},
				   {"waits", "waits"},     {"handoffs", "handoffs"},   {"expiries", "expiries"},
				   {"batches", "batches"}, {"transaction_ids", "xids"}};

typedef struct view
{
	const char *title, *query, *heads[6];
	const char *order[4]; /* columns to sort by: name, age, time left, count */
} view;

static const view views[] = {
	{"locks",
	 "SELECT name, coalesce(mode, 'closed') AS mode, owner, extract(epoch FROM clock_timestamp() - "
	 "acquired_at) AS "
	 "age, extract(epoch FROM coalesce(time_left, closed_until - clock_timestamp())) AS left, waiters FROM "
	 "lock_election.locks WHERE kind = 'lock'",
	 {"LOCK", "MODE", "OWNER", "AGE", "LEFT", "WAITERS"},
	 {"name", "age", "\"left\"", "waiters"}},
	{"waiters",
	 "SELECT name, mode, owner, extract(epoch FROM clock_timestamp() - waiting_since) AS age, NULL::numeric "
	 "AS left, "
	 "queue_position FROM lock_election.waiters",
	 {"LOCK", "MODE", "OWNER", "WAITS", "", "PLACE"},
	 {"name", "age", "\"left\"", "queue_position"}},
	{"elections",
	 "SELECT election AS name, candidate, owner, extract(epoch FROM clock_timestamp() - elected_at) AS age, "
	 "extract(epoch FROM valid_for) AS left, waiting FROM lock_election.elections",
	 {"ELECTION", "LEADER", "OWNER", "LEADS", "LEFT", "WAITING"},
	 {"name", "age", "\"left\"", "waiting"}}};

static const char *const sort_names[] = {"name", "age", "time left", "count"};

typedef struct top
{
	PGconn *db;
	int signal_fd;
	int interval;
	int64_t count;
	bool screen, stopped, reverse;
	int signo;
	int view, sort, scroll;
	int64_t rows; /* number of rows of the view when it was last read */
	double last[NRATES], rate[NRATES], at;
	bool has_rates, portable;
	bool counted[NRATES]; /* the server counts this rate; the portable edition counts only some */
	int64_t locks, waiting, memory;
	double oldest; /* age of the oldest wait for a lock, in seconds */
	int manager;
	char message[200];
	PGresult *list;
} top;

/* --- the server --- */

static void key(top *t, int c);

/*
 * Waits for fd, a key or a signal, and handles keys and signals.  Returns false at the time limit, or if
 * top must stop.
 */
static bool
wait_for(top *t, int fd, int64_t until)
{
	struct pollfd fds[] = {{.fd = fd, .events = POLLIN},
						   {.fd = t->signal_fd, .events = POLLIN},
						   {.fd = t->screen ? STDIN_FILENO : -1, .events = POLLIN}};
	int64_t left = until - le_now();
	int signo, c;

	if (left <= 0 || t->stopped)
		return false;
	poll(fds, 3, left < INT_MAX ? (int) left : INT_MAX);
	while ((signo = lc_signals_next(t->signal_fd)) != 0)
	{
		if (signo != SIGCONT)
		{
			t->stopped = true;
			t->signo = signo;
		}
	}
	while (t->screen && (c = getch()) != ERR)
		key(t, c);
	/* Stop if the terminal has disappeared. */
	if (fds[2].revents & (POLLHUP | POLLERR))
		t->stopped = true;
	return !t->stopped;
}

/* Sets the message that the screen shows. */
static void
say(top *t, const char *message)
{
	snprintf(t->message, sizeof(t->message), "%s", lc_line(message));
}

/* Runs a query.  Returns NULL and sets the message after an error, or if there is no reply in time. */
static PGresult *
query(top *t, const char *text)
{
	int64_t until = le_now() + ANSWER_MS;
	PGresult *result;

	if (!PQsendQuery(t->db, text))
	{
		say(t, PQerrorMessage(t->db));
		return NULL;
	}
	while (PQisBusy(t->db))
	{
		if (!wait_for(t, PQsocket(t->db), until) || !PQconsumeInput(t->db))
		{
			say(t, "no answer from the server");
			PQfinish(t->db);
			t->db = NULL;
			return NULL;
		}
	}
	result = lc_result(t->db);
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		return result;
	say(t, PQresultErrorMessage(result));
	return NULL;
}

/* Connects if there is no connection.  Returns false and sets the message if that fails. */
static bool
connected(top *t)
{
	le_status status;

	if (t->db != NULL && PQstatus(t->db) == CONNECTION_OK)
		return true;
	if (t->db == NULL)
		t->db = lc_connect_any("lockctl top", "3");
	else
		PQreset(t->db);
	if (PQstatus(t->db) == CONNECTION_OK)
		return true;
	say(t, lc_why_not(t->db, &status));
	return false;
}

/* Returns a column of a row as a number; 0 if it is NULL or does not exist. */
static double
number(const PGresult *result, int row, const char *column)
{
	int c = PQfnumber(result, column);

	/* a NULL value is an empty text */
	return c >= 0 ? strtod(PQgetvalue(result, row, c), NULL) : 0;
}

/* Computes rates from the differences of counters, which start at zero when the manager restarts. */
static void
take_rates(top *t, const PGresult *result)
{
	double at = number(result, 0, "at"), passed = at - t->at;
	bool first = t->at == 0;

	t->has_rates = !first && passed > 0;
	for (int i = 0; i < NRATES; i++)
	{
		double now = number(result, 0, rates[i].column);

		t->counted[i] = PQfnumber(result, rates[i].column) >= 0;
		if (t->has_rates)
			t->rate[i] = now >= t->last[i] ? (now - t->last[i]) / passed : 0;
		t->last[i] = now;
	}
	t->at = at;
	t->locks = (int64_t) number(result, 0, "held");
	t->oldest = number(result, 0, "oldest");
	t->waiting = (int64_t) number(result, 0, "waiting");
	t->memory = (int64_t) number(result, 0, "manager_memory");
	t->manager = (int) number(result, 0, "manager_pid");
}

/* Reads the counters, and "height" rows of the view.  Returns false and sets the message if a query fails. */
static bool
look(top *t, int height)
{
	static const char stat[] =
		"SELECT s.*, m.pid AS manager_pid, m.memory AS manager_memory, m.held, m.waiting, "
		"extract(epoch FROM clock_timestamp() - m.oldest_wait) AS oldest, "
		"extract(epoch FROM clock_timestamp()) AS at "
		"FROM lock_election.stat s, lock_election.manager m";
	static const char portable[] =
		"SELECT s.*, s.tables AS manager_memory, extract(epoch FROM clock_timestamp() - "
		"s.oldest_wait) AS oldest, extract(epoch FROM clock_timestamp()) AS at "
		"FROM (" LC_PORTABLE_STAT ") s";
	const view *v = &views[t->view];
	char text[1024];
	PGresult *result;

	/* read the counters */
	t->message[0] = '\0';
	if (!connected(t) || (result = query(t, t->portable ? portable : stat)) == NULL)
		return false;
	if (PQntuples(result) == 1)
		take_rates(t, result);
	else
		say(t, "no manager runs for this database; see lockctl doctor");
	if (height <= 0)
		return t->message[0] == '\0';
	/* read the rows */
	snprintf(text, sizeof(text),
			 "SELECT *, count(*) OVER () FROM (%s) q ORDER BY %s %s NULLS LAST, name LIMIT %d OFFSET %d",
			 v->query, v->order[t->sort], t->reverse != (t->sort == 0) ? "ASC" : "DESC",
			 height < ROWS_MAX ? height : ROWS_MAX, t->scroll);
	result = query(t, text);
	if (result == NULL)
		return false;
	PQclear(t->list);
	t->list = lc_own();
	t->rows = PQntuples(result) > 0 ? atoll(PQgetvalue(result, 0, 6)) : 0;
	return true;
}

/* --- the screen --- */

/* Writes a text, cut to width columns.  Replaces characters that a terminal would act upon. */
static void
put(int y, int x, int width, bool right, const char *anything)
{
	char line[600];
	const char *text = lc_printable(anything);
	int n = 0, used = 0;

	if (width <= 0)
		return;
	/* copy whole characters, while they fit */
	while (*text != '\0' && n < (int) sizeof(line) - 8)
	{
		char one[8] = {0};
		int length = 1, columns;

		while (length < 6 && ((unsigned char) text[length] & 0xc0) == 0x80)
			length++;
		memcpy(one, text, (size_t) length);
		columns = lc_width(one);
		if (used + columns > width)
			break;
		if (length == 1 && (!isprint((unsigned char) one[0])))
			one[0] = '?';
		memcpy(line + n, one, (size_t) length);
		n += length;
		used += columns;
		text += length;
	}
	/* write the copy */
	line[n] = '\0';
	mvaddstr(y, right ? x + width - used : x, line);
}

/* Formats a time in seconds, with a suitable unit. */
static const char *
span_of(char text[32], double s)
{
	if (s < 100)
		snprintf(text, 32, "%.1fs", s);
	else if (s < 6000)
		snprintf(text, 32, "%.0fm%02.0fs", floor(s / 60), floor(fmod(s, 60)));
	else if (s < 360000)
		snprintf(text, 32, "%.0fh%02.0fm", floor(s / 3600), floor(fmod(s, 3600) / 60));
	else
		snprintf(text, 32, "%.0fd", floor(s / 86400));
	return text;
}

static const char *
span(char text[32], const PGresult *result, int row, int column)
{
	if (PQgetisnull(result, row, column))
		return "";
	return span_of(text, strtod(PQgetvalue(result, row, column), NULL));
}

/* Draws a row.  Name, mode and owner share the width that is left by the fixed columns. */
static void
draw_row(int y, const char *const *field)
{
	int rest = COLS - 3 * 9, name = rest * 4 / 10, mode = rest < 80 ? 10 : rest * 2 / 10;

	put(y, 0, name - 1, false, field[0]);
	put(y, name, mode - 1, false, field[1]);
	put(y, name + mode, rest - name - mode, false, field[2]);
	for (int i = 0; i < 3; i++)
		put(y, rest + i * 9, 9, true, field[3 + i]);
}

/* Draws as many rates as fit on their line. */
static void
draw_rates(const top *t)
{
	char text[300] = "";
	size_t n = 0;

	for (int i = 0; i < NRATES && t->has_rates; i++)
	{
		char one[60];

		if (!t->counted[i])
			continue;
		snprintf(one, sizeof(one), "%s%s %.*f", n > 0 ? "  " : "per second: ", rates[i].title,
				 t->rate[i] < 100 ? 1 : 0, t->rate[i]);
		if ((int) (n + strlen(one)) > COLS || n + strlen(one) >= sizeof(text))
			break;
		n += (size_t) snprintf(text + n, sizeof(text) - n, "%s", one);
	}
	put(1, 0, COLS, false, text);
}

/* Draws the whole screen. */
static void
draw(const top *t)
{
	const view *v = &views[t->view];
	char text[600], clock[16], oldest[32], manager[32] = "portable edition";
	time_t now = time(NULL);
	struct tm tm;

	erase();
	/* first line: totals and the server */
	strftime(clock, sizeof(clock), "%H:%M:%S", localtime_r(&now, &tm));
	if (!t->portable)
		snprintf(manager, sizeof(manager), "manager %d", t->manager);
	snprintf(text, sizeof(text), "%s  locks %lld  waiters %lld  oldest %s  %s, %lld kB  %s@%s", clock,
			 (long long) t->locks, (long long) t->waiting, span_of(oldest, t->oldest), manager,
			 (long long) t->memory / 1024, t->db != NULL ? PQdb(t->db) : "",
			 t->db != NULL && PQhost(t->db) != NULL ? PQhost(t->db) : "");
	put(0, 0, COLS, false, text);
	draw_rates(t);
	/* third line: the view, or a message */
	snprintf(text, sizeof(text), "%s by %s%s, %lld in all   q quit  l w e views  s sort  r reverse", v->title,
			 sort_names[t->sort], t->reverse ? " (reversed)" : "", (long long) t->rows);
	put(2, 0, COLS, false, t->message[0] != '\0' ? t->message : text);
	/* draw the table */
	attron(A_REVERSE);
	mvhline(HEADER_ROWS - 1, 0, ' ', COLS);
	draw_row(HEADER_ROWS - 1, v->heads);
	attroff(A_REVERSE);
	for (int r = 0; r < PQntuples(t->list) && r < LINES - HEADER_ROWS; r++)
	{
		char age[32], left[32];
		const char *field[] = {PQgetvalue(t->list, r, 0), PQgetvalue(t->list, r, 1),
							   PQgetvalue(t->list, r, 2), span(age, t->list, r, 3),
							   span(left, t->list, r, 4), PQgetvalue(t->list, r, 5)};

		draw_row(HEADER_ROWS + r, field);
	}
	refresh();
}

static bool dirty; /* a key was pressed, so the server must be read again */

static void
show_view(top *t, int number)
{
	t->view = number;
	t->scroll = 0;
	PQclear(t->list);
	t->list = NULL;
}

static void
sort_by(top *t, int sort)
{
	t->sort = sort;
	t->scroll = 0;
}

static void
scroll_to(top *t, int64_t row)
{
	if (row > t->rows - 1)
		row = t->rows - 1;
	t->scroll = row < 0 ? 0 : (int) row;
}

/* Handles a key. */
static void
key(top *t, int c)
{
	int page = LINES - HEADER_ROWS;

	dirty = true;
	if (c == 'q' || c == 'Q')
		t->stopped = true;
	/* views */
	else if (c == 'l' || c == 'w' || c == 'e')
		show_view(t, c == 'l' ? 0 : c == 'w' ? 1 : 2);
	else if (c == '\t')
		show_view(t, (t->view + 1) % 3);
	/* sort order */
	else if (c == 's')
		sort_by(t, (t->sort + 1) % 4);
	else if (c == 'n' || c == 'a' || c == 't' || c == 'c')
		sort_by(t, c == 'n' ? 0 : c == 'a' ? 1 : c == 't' ? 2 : 3);
	else if (c == 'r')
		t->reverse = !t->reverse;
	/* scrolling */
	else if (c == KEY_DOWN)
		scroll_to(t, t->scroll + 1);
	else if (c == KEY_UP)
		scroll_to(t, t->scroll - 1);
	else if (c == KEY_NPAGE)
		scroll_to(t, t->scroll + page);
	else if (c == KEY_PPAGE)
		scroll_to(t, t->scroll - page);
	else if (c == KEY_HOME)
		scroll_to(t, 0);
	else if (c == KEY_END)
		scroll_to(t, t->rows - page);
}

/* Shows the full screen until top must stop. */
static void
run_screen(top *t)
{
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	curs_set(0);
	for (int64_t i = 0; !t->stopped && (t->count == 0 || i < t->count); i++)
	{
		int64_t until = le_now() + t->interval;
		size_t mark = lc_mark();

		dirty = false;
		look(t, LINES - HEADER_ROWS);
		draw(t);
		lc_free_since(mark);
		while (!dirty && wait_for(t, -1, until))
			;
	}
	endwin();
}

/* --- lines --- */

/* Prints one line of figures, in the format that -o selects. */
static void
print_line(const top *t, int64_t line)
{
	if (lc_globals.output == LC_JSON)
	{
		printf("{\"locks\":%lld,\"waiters\":%lld,\"oldest\":%.1f", (long long) t->locks,
			   (long long) t->waiting, t->oldest);
		for (int i = 0; i < NRATES; i++)
		{
			if (t->counted[i])
				printf(",\"%s\":%.1f", rates[i].title, t->rate[i]);
		}
		puts("}");
		return;
	}
	/* print the heading: once for CSV, every 20 lines for the table */
	if (lc_globals.output == LC_CSV ? line == 0 : line % 20 == 0)
	{
		printf(lc_globals.output == LC_CSV ? "locks,waiters,oldest" : "%9s %9s %9s", "locks", "waiters",
			   "oldest");
		for (int i = 0; i < NRATES; i++)
		{
			if (t->counted[i])
				printf(lc_globals.output == LC_CSV ? ",%s" : " %9s", rates[i].title);
		}
		putchar('\n');
	}
	/* print the figures */
	printf(lc_globals.output == LC_CSV ? "%lld,%lld,%.1f" : "%9lld %9lld %9.1f", (long long) t->locks,
		   (long long) t->waiting, t->oldest);
	for (int i = 0; i < NRATES; i++)
	{
		if (t->counted[i])
			printf(lc_globals.output == LC_CSV ? ",%.1f" : " %9.1f", t->rate[i]);
	}
	putchar('\n');
}

/* Prints a line after each interval.  The first read only provides counters for the first comparison. */
static void
run_lines(top *t)
{
	int64_t line = 0;

	if (!look(t, 0))
		lc_die(LC_EXIT_SERVER, "%s", t->message);
	while (!t->stopped && (t->count == 0 || line < t->count))
	{
		int64_t until = le_now() + t->interval;
		size_t mark = lc_mark();

		while (wait_for(t, -1, until))
			;
		if (t->stopped)
			break;
		if (look(t, 0))
		{
			print_line(t, line++);
			lc_flush();
		}
		else
			lc_error("%s", t->message);
		lc_free_since(mark);
	}
}

int
lc_top(int argc, char **argv)
{
	top t = {.interval = INTERVAL_MS, .sort = 3};
	const lc_option options[] = {
		{"interval", 0, LC_DURATION, &t.interval, 100, INT_MAX},
		{"count", 0, LC_INT64, &t.count, 1, INT64_MAX},
		{0},
	};

	lc_words(argc, argv, options, 0);
	/* connect to the server */
	t.db = lc_connect(false);
	lc_schema(t.db);
	t.portable = lc_is_portable(t.db);
	t.signal_fd = lc_signals_fd();
	/* show the screen, or print lines */
	t.screen = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && lc_globals.output == LC_TABLE &&
			   newterm(NULL, stdout, stdin) != NULL;
	if (t.screen)
		run_screen(&t);
	else
		run_lines(&t);
	PQclear(t.list);
	PQfinish(t.db);
	if (t.signo != 0)
		lc_signals_die(t.signo);
	return 0;
}
