/*
 * lock_arguments.c
 *		Parses the arguments of the commands lock and elect.
 */
#include <getopt.h>
#include <limits.h>
#include <string.h>

#include "globals.h"
#include "lock.h"
#include "memory.h"
#include "message.h"
#include "names.h"
#include "options.h"
#include "server.h"
#include "text.h"

#define TTL_LOCK  30000
#define TTL_ELECT 15000
/* Lowest TTL in ms that leaves time to renew the lock and to end a command */
#define TTL_MIN 1000

/* Rejects an option of flock(1) that has a different name in lockctl. */
static void
refuse_option_of_flock(const char *word)
{
	static const struct
	{
		const char *word, *instead;
	} options[] = {
		{"-c", "write -- sh -c 'CMD'"},           {"--command", "write -- sh -c 'CMD'"},
		{"-x", "a lock without -s is exclusive"}, {"--exclusive", "a lock without -s is exclusive"},
		{"-e", "a lock without -s is exclusive"}, {"--nb", "use -n or --try"},
		{"--nonblock", "use -n or --try"},        {"--timeout", "use -w or --wait"},
	};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
	{
		if (strcmp(word, options[i].word) == 0)
			lc_usage("unknown option \"%s\": %s", word, options[i].instead);
	}
}

/* Stores NAME or, for an election, CANDIDATE.  Returns false if these are already stored. */
static bool
take_word(run *r, const char *word)
{
	if (r->names[0] == NULL)
		r->names[0] = word;
	else if (r->elect && r->candidate == NULL)
		r->candidate = word;
	else
		return false;
	return true;
}

/* Stores CMD, which consists of all remaining words. */
static void
take_command(run *r, char **words)
{
	if (words[0] == NULL)
		lc_usage("no command follows --");
	if (words[0][0] == '\0')
		lc_usage("the name of the command is empty");
	r->command = words;
}

/*
 * Stores the words after "--": CMD, or if NAME is still missing, NAME and CMD, with or without another "--"
 * between them.
 */
static void
take_rest(run *r, char **words)
{
	bool named = r->names[0] != NULL;

	if (!named)
	{
		while (*words != NULL && strcmp(*words, "--") != 0 && take_word(r, *words))
			words++;
		if (*words == NULL)
		{
			/* NAME may be missing because a shell variable was empty */
			if (!r->elect && r->names[0] != NULL && r->names[0][0] != '-')
				lc_usage("\"%s\" is the name or the command: the other one is missing",
						 lc_shown(r->names[0]));
			return;
		}
		words += strcmp(*words, "--") == 0;
	}
	if (r->elect && r->candidate == NULL)
		lc_usage("the candidate is missing");
	take_command(r, words);
}

/*
 * Parses the arguments as flock and etcdctl do.  Options may precede and follow NAME (and CANDIDATE).  The
 * next word begins CMD, with or without "--" before it.  All further words, including options and "--",
 * belong to CMD.
 */
static void
parse(run *r, int argc, char **argv)
{
	const char **next = r->names = lc_alloc(sizeof(*r->names) * (size_t) (argc + 1));
	bool lock = !r->elect;
	const lc_option options[] = {
		{lock ? "and" : NULL, 0, LC_APPEND, &next, 0, 0},
		{"ttl", 0, LC_DURATION, &r->ttl, LC_TTL_MIN, LC_TTL_MAX},
		{"wait", 'w', LC_DURATION, &r->wait, 0, INT_MAX},
		{"try", 'n', LC_SET, &r->wait, 0, 0},
		{lock ? "shared" : NULL, 's', LC_SET, &r->how.shared, 1, 0},
		{lock ? "permits" : NULL, 0, LC_INT, &r->how.permits, 1, INT_MAX},
		{lock ? "hold-for" : NULL, 0, LC_DURATION, &r->hold_for, 1, INT_MAX},
		{"grace", 0, LC_DURATION, &r->grace, 0, INT_MAX},
		{"at-most", 0, LC_DURATION, &r->at_most, 1, INT_MAX},
		{"notify", 0, LC_FLAG, &r->notify, 0, 0},
		{lock ? NULL : "http", 0, LC_TEXT, &r->http_address, 0, 0},
		{lock ? NULL : "listen", 'l', LC_FLAG, &r->listen, 0, 0},
		{"conflict-exit-code", 'E', LC_CODES, r->codes, 0, 2},
		{0},
	};
	lc_parser p = lc_parse(argc, argv, options);
	const char *word;

	next++; /* the first element is for NAME */
	p.unknown = lock ? refuse_option_of_flock : NULL;
	while ((word = lc_next_word(&p)) != NULL && take_word(r, word))
		;
	if (word != NULL)
		take_command(r, argv + optind - 1);
	else if (p.dashes)
		take_rest(r, argv + optind);
	r->n = (int) (next - r->names);
}

/*
 * Sets the default TTL and grace, and limits the grace.  A renewal is sent after a third of the TTL, and
 * there must be time for a second one.
 */
static void
check_times(run *r)
{
	int most;

	if (r->ttl == 0)
		r->ttl = r->elect ? TTL_ELECT : TTL_LOCK;
	if (r->ttl < r->hold_for) /* the TTL keeps the name closed if this process is killed */
		r->ttl = r->hold_for < LC_TTL_MAX ? r->hold_for : LC_TTL_MAX;
	if (r->command != NULL && r->ttl < TTL_MIN)
		lc_usage("--ttl is %d ms: to end a command in time, it must be at least %d ms", r->ttl, TTL_MIN);
	most = r->ttl / 2 - lc_reserve(r->ttl);
	if (r->grace < 0)
		r->grace = r->ttl / 3 < 5000 ? r->ttl / 3 : 5000;
	else if (r->grace > most)
		lc_usage("--grace is more than %d ms, with --ttl %d ms", most < 0 ? 0 : most, r->ttl);
}

/* Checks that the arguments fit together, and chooses the shard. */
static void
check(run *r)
{
	if (r->names[0] == NULL)
		lc_usage("the name of the %s is missing", r->elect ? "election" : "lock");
	lc_check_names(r->names, r->n, r->elect ? "election" : "lock");
	if (r->elect && r->candidate == NULL)
		lc_usage("the candidate is missing");
	if (r->how.permits > 0 && (r->how.shared || r->n > 1))
		lc_usage("--permits requires a single name, and cannot be used with --shared");
	if (r->hold_for > 0 && (r->how.shared || r->how.permits > 0 || r->n > 1))
		lc_usage("--hold-for requires a single exclusive lock");
	if (r->at_most > 0 && r->command == NULL)
		lc_usage("--at-most requires a command");
	check_times(r);
	if (r->wait > 0)
		r->how.until = le_now() + r->wait;
	lc_choose_shard(r->names, r->n);
}

static void
init(run *r, bool elect)
{
	*r = (run){.elect = elect, .wait = -1, .grace = -1, .codes = {LC_EXIT_NOT_ACQUIRED, LC_EXIT_LOST}};
	r->how.size = sizeof(r->how);
	r->http.fd = r->guardian.fd = r->signal_fd = -1;
}

/* Checks the arguments of elect --listen. */
static void
check_listen(const run *r)
{
	if (r->names[0] == NULL)
		lc_usage("--listen needs the name of the election");
	if (r->candidate != NULL || r->command != NULL)
		lc_usage("--listen takes the name of the election, and nothing else");
}

void
lc_lock_arguments(run *r, bool elect, int argc, char **argv)
{
	init(r, elect);
	parse(r, argc, argv);
	if (r->listen)
		check_listen(r);
	else
		check(r);
}
