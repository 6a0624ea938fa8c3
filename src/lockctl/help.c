/*
 * help.c
 *		Prints the --help texts of lockctl and of each command.
 */
#include "help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lock_election.h"
#include "message.h"
#include "text.h"

static const char general[] =
	"lockctl runs a command under a lock, or as the leader of an election, and shows and changes\n"
	"the locks of a PostgreSQL database that has lock_election: the extension, or the portable\n"
	"edition, which \"lockctl install\" installs.\n"
	"\n"
	"Usage: lockctl [OPTION]... COMMAND ...\n"
	"\n"
	"Run a command:\n"
	"  lock [OPTION]... NAME [--] CMD ARG...           while this process holds the lock\n"
	"  elect [OPTION]... NAME CANDIDATE [--] CMD ARG...    while this process leads\n"
	"  elect -l NAME                                   print the leader, and each change\n"
	"Single steps, for scripts:\n"
	"  acquire NAME                                    print a token\n"
	"  renew NAME TOKEN, release NAME TOKEN, held NAME TOKEN\n"
	"  lease grant | keep-alive | revoke | ttl | list\n"
	"Show:\n"
	"  locks [NAME], waiters [NAME], elections [NAME], status, watch [NAME], top, doctor\n"
	"  shard [NAME]...                                 print the server of each name, or all servers\n"
	"Repair:\n"
	"  release --force NAME                            evict the holders\n"
	"Install:\n"
	"  install                                         the portable edition, or a newer version of it\n"
	"\n"
	"Options:\n"
	"  -h, --host=HOST          server, or several, with commas; default: PGHOST, ...\n"
	"  -p, --port=PORT\n"
	"  -U, --username=NAME\n"
	"  -d, --dbname=DATABASE    or a connection string, or a URI\n"
	"  -S, --shards=FILE        several servers; the name of the lock selects one\n"
	"  -N, --shard=NAME         this one of them, for commands without the name of a lock\n"
	"  -o, --output=FORMAT      table, json or csv\n"
	"  -q, --quiet              print only errors\n"
	"  -v, --verbose            print each step\n"
	"      --version, --help\n"
	"\n"
	"\"lockctl COMMAND --help\" describes a command. Durations are 30, 500ms, 10s, 2min, 1h, 1d.\n"
	"\n"
	"Exit: the code of CMD, 128+N if signal N ended it; 3 not acquired, 4 lost, 64 usage,\n"
	"69 no server, or rejected by it, 124 ended by --at-most, 126 CMD cannot run, 127 not found.\n";

static const struct
{
	const char *command, *text;
} texts[] = {
	{"lock",
	 "Usage: lockctl lock [OPTION]... NAME [OPTION]... [[--] CMD ARG...]\n"
	 "\n"
	 "Waits for the lock, runs CMD, and releases the lock when CMD has ended. All words from CMD on\n"
	 "belong to it. Without CMD, prints the token, and holds the lock until a signal arrives.\n"
	 "\n"
	 "      --and=NAME      acquire this lock, too; may be repeated\n"
	 "      --ttl=D         the lock expires this long after its holder has died (30s)\n"
	 "  -w, --wait=D        maximum wait\n"
	 "  -n, --try           do not wait\n"
	 "  -s, --shared        together with other shared holders\n"
	 "      --permits=N     up to N holders\n"
	 "      --hold-for=D    keep it closed until this long after it was acquired\n"
	 "      --grace=D       from SIGTERM to SIGKILL when the lock cannot be kept (5s, at most a third of the "
	 "TTL)\n"
	 "      --at-most=D     end CMD after this time, with exit code 124\n"
	 "  -E, --conflict-exit-code=CODE[,CODE]    exit codes for not acquired (3) and lost (4)\n"
	 "      --notify        tell systemd when it is acquired\n"
	 "\n"
	 "CMD has LOCK_NAME (with --and: LOCK_NAMES, a JSON array) and LOCK_TOKEN in its environment.\n"
	 "INT TERM HUP QUIT USR1 USR2 are passed on to it. If the lock cannot be kept, CMD and all its\n"
	 "descendants are killed before another process can acquire the lock.\n"},
	{"elect", "Usage: lockctl elect [OPTION]... NAME CANDIDATE [OPTION]... [[--] CMD ARG...]\n"
			  "       lockctl elect -l NAME\n"
			  "\n"
			  "Waits to be elected, runs CMD, and resigns when CMD has ended. Without CMD, prints the\n"
			  "term and leads until a signal arrives; if it loses its term, it campaigns again.\n"
			  "\n"
			  "      --ttl=D         the term expires this long after the leader has died (15s)\n"
			  "  -w, --wait=D        maximum wait\n"
			  "  -n, --try           do not wait\n"
			  "      --grace=D       from SIGTERM to SIGKILL when the term cannot be kept\n"
			  "      --at-most=D     end CMD after this time, with exit code 124\n"
			  "  -E, --conflict-exit-code=CODE[,CODE]    exit codes for not elected (3) and lost (4)\n"
			  "      --http=ADDR:PORT    reply to every HTTP request: 200 if this process leads, else 503\n"
			  "      --notify        tell systemd when it is elected\n"
			  "  -l, --listen        print the leader, if there is one, and each later change\n"},
	{"acquire",
	 "Usage: lockctl acquire NAME [OPTION]...\n"
	 "\n"
	 "Acquires a lock and prints its token. The lock expires after its TTL, unless it is renewed or\n"
	 "released with its token before.\n"
	 "\n"
	 "      --ttl=D         (30s)\n"
	 "  -w, --wait=D        maximum wait\n"
	 "  -n, --try           do not wait\n"
	 "  -s, --shared        together with other shared holders\n"
	 "      --permits=N     up to N holders\n"
	 "      --owner=TEXT    the same owner can acquire it again, with the same token\n"
	 "      --lease=LEASE   the lock ends with this lease\n"
	 "  -E, --conflict-exit-code=CODE    exit code for not acquired (3)\n"},
	{"renew", "Usage: lockctl renew NAME TOKEN [--ttl=D]\n"
			  "\n"
			  "Restarts the TTL and prints how long the lock is valid. Exit 4: the lock is lost.\n"},
	{"release",
	 "Usage: lockctl release NAME TOKEN [--hold-for=D]\n"
	 "       lockctl release --force NAME [--now] [--election]\n"
	 "\n"
	 "Releases a lock. Exit 4: the token did not hold it.\n"
	 "\n"
	 "      --hold-for=D    keep it closed until this long after it was acquired\n"
	 "      --force         evict the holders, and print their number: they can no longer renew, but\n"
	 "                      hold the lock until they release it or their time ends\n"
	 "      --now           end them immediately: they may continue next to the next holder for a\n"
	 "                      while; also opens a name that --hold-for keeps closed\n"
	 "      --election      NAME is an election\n"},
	{"held", "Usage: lockctl held NAME TOKEN\n"
			 "\n"
			 "Exit 0: the token holds the lock now. Exit 4: it does not.\n"},
	{"lease",
	 "Usage: lockctl lease grant [--ttl=D] [--owner=TEXT]     print the number of a new lease (60s)\n"
	 "       lockctl lease keep-alive LEASE [--once]          renew it until a signal arrives\n"
	 "       lockctl lease revoke LEASE                       end it, with all its locks\n"
	 "       lockctl lease ttl LEASE                          print its remaining time\n"
	 "       lockctl lease list\n"
	 "\n"
	 "Exit 4: the lease has ended.\n"},
	{"locks", "Usage: lockctl locks [NAME]\n\nPrints locks and holders, and which holders are evicted "
			  "(release --force).\nExit 1: nothing holds that name.\n"},
	{"waiters", "Usage: lockctl waiters [NAME]\n\nPrints the waiters, in the order of the grants. Exit "
				"1: none for that name.\n"},
	{"elections", "Usage: lockctl elections [NAME]\n\nPrints the leaders. Exit 1: that election has none.\n"},
	{"status", "Usage: lockctl status\n\nPrints the manager of the database, its locks, and its counters.\n"},
	{"watch", "Usage: lockctl watch [NAME] [--interval=D] [--count=N]\n"
			  "\n"
			  "Prints a line when a holder or the number of waiters has changed. Checks once per interval\n"
			  "(1s), so it may miss a lock that is held for less. See also lockctl elect -l.\n"},
	{"top",
	 "Usage: lockctl top [--interval=D] [--count=N]\n"
	 "\n"
	 "Shows locks, queues and rates on the full screen. Without a terminal, prints a line for each\n"
	 "interval (2s).\n"
	 "\n"
	 "Keys: q quit; l locks, w waiters, e elections; s next sort order, or n name, a age, t time left,\n"
	 "c waiters; r reverse; arrows and page keys scroll; space refreshes.\n"},
	{"doctor", "Usage: lockctl doctor\n"
			   "\n"
			   "Checks the installation, looks for long waits, and prints a command for each problem.\n"
			   "Exit 1: it found a problem.\n"},
	{"install",
	 "Usage: lockctl install [--schema=NAME] [--grant=ROLE]\n"
	 "       lockctl install --print\n"
	 "\n"
	 "Installs the portable edition of lock_election, which needs no superuser and no extension, or\n"
	 "upgrades an older version, in one transaction. The role needs CREATE on the database; it owns\n"
	 "all locks, so do not use the application's role.\n"
	 "\n"
	 "      --schema=NAME   for the functions; created if missing. Default: the first of search_path\n"
	 "      --grant=ROLE    only this role may use the schema, instead of everybody\n"
	 "      --print         print the SQL, for psql -1 -f or a migration tool\n"},
	{"shard", "Usage: lockctl --shards=FILE shard [NAME]...\n"
			  "\n"
			  "Prints the shard of each name of a lock or election; without names, all shards of the file.\n"
			  "Does not contact a server.\n"}};

void
lc_help(const char *command)
{
	const char *text = command == NULL ? general : NULL;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]) && text == NULL; i++)
	{
		if (strcmp(texts[i].command, command) == 0)
			text = texts[i].text;
	}
	if (text == NULL)
		lc_usage("unknown command \"%s\"", lc_shown(command));
	fputs(text, stdout);
	lc_flush();
	exit(0);
}

void
lc_version(void)
{
	printf("lockctl (lock_election) %s\n", le_version());
	lc_flush();
	exit(0);
}
