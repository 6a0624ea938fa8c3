/*
 * lock_arguments.c
 *		The arguments of the commands lock and elect.
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

enum
{
	OPT_TTL = LC_OPT_HELP + 1,
	OPT_AND,
	OPT_PERMITS,
	OPT_HOLD_FOR,
	OPT_GRACE,
	OPT_AT_MOST,
	OPT_NOTIFY,
	OPT_HTTP
};

static const struct option lock_options[] = {{"and", required_argument, NULL, OPT_AND},
											 {"ttl", required_argument, NULL, OPT_TTL},
											 {"wait", required_argument, NULL, 'w'},
											 {"try", no_argument, NULL, 'n'},
											 {"shared", no_argument, NULL, 's'},
											 {"permits", required_argument, NULL, OPT_PERMITS},
											 {"hold-for", required_argument, NULL, OPT_HOLD_FOR},
											 {"grace", required_argument, NULL, OPT_GRACE},
											 {"at-most", required_argument, NULL, OPT_AT_MOST},
											 {"notify", no_argument, NULL, OPT_NOTIFY},
											 {"conflict-exit-code", required_argument, NULL, 'E'},
											 LC_HELP_OPTION,
											 {NULL, 0, NULL, 0}};

static const struct option elect_options[] = {{"ttl", required_argument, NULL, OPT_TTL},
											  {"wait", required_argument, NULL, 'w'},
											  {"try", no_argument, NULL, 'n'},
											  {"grace", required_argument, NULL, OPT_GRACE},
											  {"at-most", required_argument, NULL, OPT_AT_MOST},
											  {"notify", no_argument, NULL, OPT_NOTIFY},
											  {"http", required_argument, NULL, OPT_HTTP},
											  {"listen", no_argument, NULL, 'l'},
											  {"conflict-exit-code", required_argument, NULL, 'E'},
											  LC_HELP_OPTION,
											  {NULL, 0, NULL, 0}};

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
		{"-e", "a lock without -s is exclusive"}, {"--nb", "it is -n or --try"},
		{"--nonblock", "it is -n or --try"},      {"--timeout", "it is -w or --wait"},
	};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
	{
		if (strcmp(word, options[i].word) == 0)
			lc_usage("unknown option \"%s\": %s", word, options[i].instead);
	}
}

/* Handles one option; index_of_bad is its index in argv. */
static void
take_option(run *r, int option, int index_of_bad, char **argv)
{
	if (lc_take_global(option, optarg))
		return; /* a global option */
	switch (option)
	{
		case OPT_TTL:
			r->ttl = lc_duration("--ttl", optarg, LC_TTL_MIN, LC_TTL_MAX);
			break;
		case 'w':
			r->wait = lc_duration("--wait", optarg, 0, INT_MAX);
			break;
		case 'n':
			r->wait = 0;
			break;
		case 's':
			r->how.shared = 1;
			break;
		case OPT_AND:
			r->names[r->n++] = optarg;
			break;
		case OPT_PERMITS:
			r->how.permits = (int) lc_number("--permits", optarg, 1, INT_MAX);
			break;
		case OPT_HOLD_FOR:
			r->hold_for = lc_duration("--hold-for", optarg, 1, INT_MAX);
			break;
		case OPT_GRACE:
			r->grace = lc_duration("--grace", optarg, 0, INT_MAX);
			break;
		case OPT_AT_MOST:
			r->at_most = lc_duration("--at-most", optarg, 1, INT_MAX);
			break;
		case OPT_NOTIFY:
			r->notify = true;
			break;
		case OPT_HTTP:
			r->http_address = optarg;
			break;
		case 'l':
			r->listen = true;
			break;
		case 'E':
			lc_exit_codes(optarg, &r->not_acquired, &r->lost);
			break;
		case '?': /* unknown option */
			if (!r->elect)
				refuse_option_of_flock(argv[index_of_bad]);
			/* fallthrough */
		default:
			lc_bad_option(option, argv[index_of_bad]);
	}
}

/* Stores NAME, or the CANDIDATE of an election.  Returns false if no further such word is expected. */
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

/* Stores CMD, which is all words from here on. */
static void
take_command(run *r, char **words)
{
	if (words[0] == NULL)
		lc_usage("no command follows --");
	if (words[0][0] == '\0')
		lc_usage("the name of the command is empty");
	r->command = words;
}

/* Stores the words after "--": CMD, or NAME and CMD (perhaps with "--" between) if there is no NAME yet. */
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
			/* the shell variable that should contain NAME may have been empty */
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
 * Parses the arguments as flock and etcdctl do.  NAME (and CANDIDATE) may have options before and after
 * it.  The next word begins CMD, perhaps after "--".  All further words, including options and "--",
 * belong to CMD.
 */
static void
parse(run *r, int argc, char **argv)
{
	r->names = lc_alloc(sizeof(*r->names) * (size_t) (argc + 1));
	r->n = 1;
	optind = 0;
	opterr = 0;
	for (;;)
	{
		int at = optind != 0 ? optind : 1;
		int option =
			getopt_long(argc, argv, r->elect ? "-:E:nw:l" LC_GLOBAL_OPTIONS : "-:E:nw:s" LC_GLOBAL_OPTIONS,
						r->elect ? elect_options : lock_options, NULL);

		if (option == -1)
		{
			/* there was a "--", or no word is left */
			if (optind > at)
				take_rest(r, argv + optind);
			return;
		}
		if (option != 1)
			take_option(r, option, at, argv);
		else if (!take_word(r, optarg))
		{
			take_command(r, argv + optind - 1);
			return;
		}
	}
}

/* Limits the grace.  A renewal is sent after a third of the TTL, and a second one must still fit in. */
static void
check_times(run *r)
{
	int most;

	if (r->ttl == 0)
		r->ttl = r->elect ? TTL_ELECT : TTL_LOCK;
	if (r->command != NULL && r->ttl < TTL_MIN)
		lc_usage("--ttl is %d ms: to end a command in time takes at least %d ms", r->ttl, TTL_MIN);
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
		lc_usage("--permits is for one name, and not with --shared");
	if (r->hold_for > 0 && (r->how.shared || r->how.permits > 0 || r->n > 1))
		lc_usage("--hold-for is for one exclusive lock");
	if (r->at_most > 0 && r->command == NULL)
		lc_usage("--at-most is for a command");
	check_times(r);
	if (r->wait > 0)
		r->how.until = le_now() + r->wait;
	lc_choose_shard(r->names, r->n);
}

static void
init(run *r, bool elect)
{
	*r = (run){
		.elect = elect, .wait = -1, .grace = -1, .not_acquired = LC_EXIT_NOT_ACQUIRED, .lost = LC_EXIT_LOST};
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
