/*
 * main.c
 *		The main program of lockctl: locks and leader election in PostgreSQL, for the shell.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "globals.h"
#include "help.h"
#include "lock.h"
#include "message.h"
#include "options.h"
#include "signals.h"
#include "text.h"

static const struct
{
	const char *name;
	int (*run)(int argc, char **argv);
} commands[] = {{"lock", lc_lock},
				{"elect", lc_elect},
				{"acquire", lc_acquire},
				{"renew", lc_renew},
				{"release", lc_release},
				{"held", lc_held},
				{"lease", lc_lease},
				{"locks", lc_locks},
				{"waiters", lc_waiters},
				{"elections", lc_elections},
				{"status", lc_show_status},
				{"watch", lc_watch},
				{"top", lc_top},
				{"doctor", lc_doctor},
				{"shard", lc_shard},
				{"install", lc_install}};

/*
 * Opens descriptors 0, 1 and 2 if they are closed, so that no connection gets one of these numbers.  Opens
 * them read-only, so that printing a token fails if stdout was closed, and the lock is released.
 */
static void
open_standard_files(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
	{
		/* fd is the lowest free descriptor, so open() returns it */
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd)
			lc_die(LC_EXIT_CANNOT_RUN, "cannot open /dev/null: %s", strerror(errno));
	}
}

int
main(int argc, char **argv)
{
	lc_parser p;

	/* prepare the environment */
	open_standard_files();
	setlocale(LC_ALL, "");
	setlocale(LC_NUMERIC, "C");
	lc_signals_start();
	/* parse the options before the command */
	p = lc_parse(argc, argv, lc_global_options);
	lc_next_word(&p);
	if (optind >= argc)
		lc_usage("the command is missing");
	/* run the command */
	if (strcmp(argv[optind], "help") == 0)
		lc_help(argv[optind + 1]);
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
	{
		if (strcmp(argv[optind], commands[i].name) != 0)
			continue;
		lc_globals.command = commands[i].name;
		exit(commands[i].run(argc - optind, argv + optind));
	}
	lc_usage("unknown command \"%s\"", lc_shown(argv[optind]));
}
