/*
 * help.c
 *		The --help texts of lockctl and of each command.
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
	"Run something alone:\n"
	"  lock [OPTION]... NAME [--] CMD ARG...           while this process has the lock\n"
	"  elect [OPTION]... NAME CANDIDATE [--] CMD ARG...    while this process leads\n"
	"  elect -l NAME                                   print who leads, and each change\n"
	"Single steps, for scripts:\n"
	"  acquire NAME                                    print a token\n"
	"  renew NAME TOKEN, release NAME TOKEN, held NAME TOKEN\n"
	"  lease grant | keep-alive | revoke | ttl | list\n"
	"Look:\n"
	"  locks [NAME], waiters [NAME], elections [NAME], status, watch [NAME], top, doctor\n"
	"  shard [NAME]...                                 print the server of each name, or all servers\n"
	"Mend:\n"
	"  release --force NAME                            take the lock from its holders\n"
	"Install:\n"
	"  install                                         the portable edition, or a newer version of it\n"
	"\n"
	"Options:\n"
	"  -h, --host=HOST          server, or several with commas; else PGHOST, ...\n"
	"  -p, --port=PORT\n"
	"  -U, --username=NAME\n"
	"  -d, --dbname=DATABASE    or a connection string, or a URI\n"
	"  -S, --shards=FILE        several servers; the name of the lock says which is meant\n"
	"  -N, --shard=NAME         that one of them, where a command has no name of a lock\n"
	"  -o, --output=FORMAT      table, json or csv\n"
	"  -q, --quiet              say nothing but errors\n"
	"  -v, --verbose            say what is done\n"
	"      --version, --help\n"
	"\n"
	"\"lockctl COMMAND --help\" tells more. Durations are 30, 500ms, 10s, 2min, 1h, 1d.\n"
	"\n"
	"Exit: the code of CMD, 128+N if signal N ended it; 3 not acquired, 4 lost, 64 usage,\n"
	"69 no server, or it refuses, 124 ended by --at-most, 126 CMD cannot run, 127 CMD not found.\n";

static const struct
{
	const char *command, *text;
} texts[] = {
	{"lock",
	 "Usage: lockctl lock [OPTION]... NAME [OPTION]... [[--] CMD ARG...]\n"
	 "\n"
	 "Waits for the lock, runs CMD, and releases the lock when CMD has ended. From CMD on all words\n"
	 "are its own. Without CMD the token is printed, and the lock is held until a signal comes.\n"
	 "\n"
	 "      --and=NAME      and this lock, and so on: CMD has all of them, or does not run\n"
	 "      --ttl=D         the lock ends this long after its holder has died (30s)\n"
	 "  -w, --wait=D        wait no longer than that\n"
	 "  -n, --try           do not wait\n"
	 "  -s, --shared        beside other shared holders\n"
	 "      --permits=N     up to N holders\n"
	 "      --hold-for=D    keep it closed until that long after it was acquired\n"
	 "      --grace=D       from SIGTERM to SIGKILL when the lock cannot be kept (5s, at most a third of the "
	 "TTL)\n"
	 "      --at-most=D     end CMD after that time, though the lock is renewed; the exit code is 124\n"
	 "  -E, --conflict-exit-code=CODE[,CODE]    the exit codes when it is not acquired (3), and lost (4)\n"
	 "      --notify        tell systemd when it is acquired\n"
	 "\n"
	 "CMD has LOCK_NAME (with --and: LOCK_NAMES, a JSON array) and LOCK_TOKEN in its environment.\n"
	 "INT TERM HUP QUIT USR1 USR2 are passed on to it. If the lock cannot be kept, CMD and all that\n"
	 "it has started are dead before anybody else can have the lock.\n"},
	{"elect",
	 "Usage: lockctl elect [OPTION]... NAME CANDIDATE [OPTION]... [[--] CMD ARG...]\n"
	 "       lockctl elect -l NAME\n"
	 "\n"
	 "Waits to be elected, runs CMD, and resigns when CMD has ended. Without CMD the term is printed,\n"
	 "and this process leads until a signal comes; where it loses its term it stands again.\n"
	 "\n"
	 "      --ttl=D         the term ends this long after the leader has died (15s)\n"
	 "  -w, --wait=D        wait no longer than that\n"
	 "  -n, --try           do not wait\n"
	 "      --grace=D       from SIGTERM to SIGKILL when the term cannot be kept\n"
	 "      --at-most=D     end CMD after that time, though the term is renewed; the exit code is 124\n"
	 "  -E, --conflict-exit-code=CODE[,CODE]    the exit codes when it is not elected (3), and lost (4)\n"
	 "      --http=ADDR:PORT    answer any HTTP request: 200 if this process leads, else 503\n"
	 "      --notify        tell systemd when it is elected\n"
	 "  -l, --listen        print who leads, if there is one, and each change from now on\n"},
	{"acquire",
	 "Usage: lockctl acquire NAME [OPTION]...\n"
	 "\n"
	 "Acquires a lock and prints its token. Nobody renews it: it ends after its TTL, unless it is\n"
	 "renewed or released with its token before.\n"
	 "\n"
	 "      --ttl=D         (30s)\n"
	 "  -w, --wait=D        wait no longer than that\n"
	 "  -n, --try           do not wait\n"
	 "  -s, --shared        beside other shared holders\n"
	 "      --permits=N     up to N holders\n"
	 "      --owner=TEXT    the same owner may acquire it again, and gets the same token\n"
	 "      --lease=LEASE   let it end with this lease\n"
	 "  -E, --conflict-exit-code=CODE    the exit code when it is not acquired (3)\n"},
	{"renew", "Usage: lockctl renew NAME TOKEN [--ttl=D]\n"
			  "\n"
			  "Starts the TTL again and prints how long the lock is valid. Exit 4: it is lost.\n"},
	{"release",
	 "Usage: lockctl release NAME TOKEN [--hold-for=D]\n"
	 "       lockctl release --force NAME [--now] [--election]\n"
	 "\n"
	 "Releases a lock. Exit 4: the token did not hold it.\n"
	 "\n"
	 "      --hold-for=D    keep it closed until that long after it was acquired\n"
	 "      --force         let nobody renew the lock, and print how many holders that concerns: each\n"
	 "                      holds it until it gives it back, or its time is over\n"
	 "      --now           end them at once: they may work on beside the next holder for a while;\n"
	 "                      open a name that --hold-for keeps closed\n"
	 "      --election      NAME is an election\n"},
	{"held", "Usage: lockctl held NAME TOKEN\n"
			 "\n"
			 "Exit 0: the token holds the lock now. Exit 4: it does not.\n"},
	{"lease",
	 "Usage: lockctl lease grant [--ttl=D] [--owner=TEXT]     print the number of a new lease (60s)\n"
	 "       lockctl lease keep-alive LEASE [--once]          renew it until a signal comes\n"
	 "       lockctl lease revoke LEASE                       end it, and all that hangs on it\n"
	 "       lockctl lease ttl LEASE                          print what is left of it\n"
	 "       lockctl lease list\n"
	 "\n"
	 "Exit 4: the lease has ended.\n"},
	{"locks", "Usage: lockctl locks [NAME]\n\nPrints who holds which locks, and which holders are evicted "
			  "(release --force).\nExit 1: nothing of that name.\n"},
	{"waiters", "Usage: lockctl waiters [NAME]\n\nPrints who waits, in the order of the grants. Exit 1: "
				"nobody for that name.\n"},
	{"elections", "Usage: lockctl elections [NAME]\n\nPrints who leads. Exit 1: nobody in that election.\n"},
	{"status",
	 "Usage: lockctl status\n\nPrints the manager of the database, what it holds, and its counters.\n"},
	{"watch", "Usage: lockctl watch [NAME] [--interval=D] [--count=N]\n"
			  "\n"
			  "Prints a line when a holder or the number of waiters has changed. It looks once an interval\n"
			  "(1s): a lock that is held for less may be missing. See also lockctl elect -l.\n"},
	{"top",
	 "Usage: lockctl top [--interval=D] [--count=N]\n"
	 "\n"
	 "Shows locks, queues and rates, full screen. Without a terminal it prints a line for each\n"
	 "interval (2s).\n"
	 "\n"
	 "Keys: q quit; l locks, w waiters, e elections; s next sort order, or n name, a age, t time left,\n"
	 "c waiters; r reverse; arrows and page keys scroll; space looks again.\n"},
	{"doctor", "Usage: lockctl doctor\n"
			   "\n"
			   "Looks for what is wrong with the installation, and for a wait that has lasted for long, and "
			   "tells what to\n"
			   "type. Exit 1: something is wrong.\n"},
	{"install",
	 "Usage: lockctl install [--schema=NAME] [--grant=ROLE]\n"
	 "       lockctl install --print\n"
	 "\n"
	 "Installs the portable edition of lock_election, which needs no superuser and no extension, or\n"
	 "upgrades an older version, in one transaction. The role needs CREATE on the database; it owns\n"
	 "all locks, and should not be the application's.\n"
	 "\n"
	 "      --schema=NAME   for the functions; made if it is missing. Else the first of search_path\n"
	 "      --grant=ROLE    lets this role use the schema, instead of everybody\n"
	 "      --print         print the SQL, for psql -1 -f or a migration tool\n"},
	{"shard", "Usage: lockctl --shards=FILE shard [NAME]...\n"
			  "\n"
			  "Prints for each name of a lock or election the shard that it belongs to; without names all\n"
			  "shards of the file. No server is asked.\n"}};

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
