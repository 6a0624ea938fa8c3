/*
 * check.c
 *		Checks a history of clients (see record.c) against the promises of the
 *		extension.
 *
 *		check [--unfenced] [--slack MS] [--p99 MS] FILE...
 *
 * The claims of a client are derived from its own clock, never from the server's
 * columns; see claims.c. The order of two events is known only if one had ended
 * before the other began, and never from tokens. A call whose outcome is unknown
 * may have been carried out or not.
 *
 *	M	At most N hold N permits, and nobody holds beside an exclusive holder:
 *		claims do not overlap. Nobody else is reported as leader while a leader
 *		may claim its term. If set_permits changes N, N was large enough at the
 *		last grant.
 *	C	A name that a release has closed (hold_for) is granted to nobody before
 *		its time, unless it was forced open.
 *	E	A holder that was forced out holds nothing afterwards, and a force that
 *		finds no holder has missed none.
 *	T	Of two exclusive grants of a lock, the later one has the higher token.
 *	Q	Grants follow the order of the queue, also between shared and exclusive
 *		requests: nobody behind a place that still waits has held the lock.
 *	R	Of two calls that take a place or a lock, whatever its name, and do not
 *		overlap in time, the earlier one has the lower revision.
 *	W	Nobody waits for longer than 20 ms and --slack after all requests ahead
 *		have certainly ended, by their replies or by their TTL.  Releases within
 *		the last second before a crash of the server may be undone.
 *	L	Such hand-offs take less than 20 ms (--p99), except one in a hundred.
 *	D	An acknowledged lock that is neither released nor expired by its client's
 *		clock is held: no reply says otherwise. The same applies to places.
 *	F	No fenced update is lost: no two committed updates have counted from the
 *		same number. With --unfenced, lost updates are only counted.
 *	H	All readers of the changes of an election see the same, in order.
 *	G	Nothing is left at the end, as counted by the nemesis.
 *
 * An asynchronous promotion may lose what was acknowledged shortly before it: M,
 * D and F end there for earlier claims, and H starts again. T and R are checked
 * across it.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define MAX_SHOWN 20 /* violations */

/* The lists are kept until the end of the process, so the leak check is switched off. */
const char *__asan_default_options(void);

const char *
__asan_default_options(void)
{
	return "detect_leaks=0";
}

Figures figures;
bool unfenced;
Time slack = 1000 * MS;
Time percentile_limit = 20 * MS;
static long violations;

static void
show_call(const Call *call)
{
	if (call == NULL || call->client == NULL)
		return;
	printf("    %s: %s\n", call->client->name, call->asked_line ? call->asked_line : "(end of its history)");
	if (call->answer_line)
		printf("    %s: %s\n", call->client->name, call->answer_line);
}

/* Shows the faults at the time of these calls. */
static void
show_windows(const Call *a, const Call *b)
{
	Time from = a->sent < b->sent ? a->sent : b->sent;
	Time to = a->received > b->received ? a->received : b->received;

	for (size_t i = 0; i < windows.n; i++)
		if (windows.at[i].to >= from && windows.at[i].from <= to)
			printf("    nemesis: %s\n", windows.at[i].line);
}

void
violation(char rule, const char *text, const Call *a, const Call *b, const char *line)
{
	if (++violations > MAX_SHOWN)
		return;
	printf("VIOLATION %c: %s\n", rule, text);
	show_call(a);
	show_call(b);
	if (a && b)
		show_windows(a, b);
	if (line)
		printf("    %s\n", line);
}

static int
by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *) a, *(const char *const *) b);
}

/* Prints "kind number, kind number, ..". */
static void
print_counts(const char *title, const char **texts, size_t n)
{
	printf("%s:", title);
	if (n > 0)
		qsort(texts, n, sizeof(*texts), by_text);
	for (size_t i = 0, j; i < n; i = j)
	{
		for (j = i; j < n && strcmp(texts[i], texts[j]) == 0; j++)
			;
		printf("%s %s %zu", i > 0 ? "," : "", texts[i], j - i);
	}
	printf("\n");
}

static void
print_operations(void)
{
	LIST(const char *) texts = {0};
	size_t n[4] = {0};

	for (size_t i = 0; i < clients.n; i++)
		for (size_t j = 0; j < clients.at[i].calls.n; j++)
			if (clients.at[i].calls.at[j].number >= 0)
			{
				*APPEND(texts) = clients.at[i].calls.at[j].op;
				n[clients.at[i].calls.at[j].status]++;
			}
	printf("operations: %zu by %zu clients (%zu granted or done, %zu not within their wait, %zu refused, "
		   "%zu of unknown outcome)\n",
		   texts.n, clients.n, n[STATUS_OK], n[STATUS_NULL], n[STATUS_ERROR], n[STATUS_UNKNOWN]);
	print_counts("operations by kind", texts.at, texts.n);
	free(texts.at);
}

static void
print_figures(void)
{
	static const char letters[] = "MCETQRWLDFHG";
	LIST(const char *) kinds = {0};

	print_operations();
	for (size_t i = 0; i < windows.n; i++)
		*APPEND(kinds) = windows.at[i].kind;
	print_counts("faults", kinds.at, kinds.n);
	free(kinds.at);
	printf("checked:");
	for (const char *p = letters; *p; p++)
		printf(" %c %ld", *p, figures.checked[(int) *p]);
	printf("\nhand-offs: %ld, p50 %.3f ms, p99 %.3f ms, longest %.3f ms\n", figures.handoffs,
		   (double) figures.p50 / MS, (double) figures.p99 / MS, (double) figures.longest / MS);
	printf("updates: %ld, lost: %ld\n", figures.updates, figures.lost);
	printf("violations: %ld\n", violations);
}

int
main(int argc, char **argv)
{
	int i = 1;

	for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++)
		if (strcmp(argv[i], "--unfenced") == 0)
			unfenced = true;
		else if (i + 1 < argc && strcmp(argv[i], "--slack") == 0)
			slack = atol(argv[++i]) * MS;
		else if (i + 1 < argc && strcmp(argv[i], "--p99") == 0)
			percentile_limit = atol(argv[++i]) * MS;
		else
			i = argc;
	if (i >= argc)
	{
		fprintf(stderr, "usage: check [--unfenced] [--slack MS] [--p99 MS] FILE...\n");
		return 2;
	}
	for (; i < argc; i++)
		read_history(argv[i]);
	finish_reading();
	find_holds();
	check_exclusion();
	check_closed();
	check_forces();
	check_order();
	check_revisions();
	check_leaders();
	check_handoffs();
	check_histories();
	check_updates();
	check_left();
	print_figures();
	return violations > 0;
}
