#!/bin/bash
# Counts, with callgrind, the instructions that the manager and a backend spend on one transaction of a fixed script
# with one client. The count is nearly the same in each run, and independent of the load of the machine. It does not
# include the kernel.
#
#   ONLY="pair each try renew select1"   the scripts; each: 100 pairs in two calls
#   FEW=200 MANY=1200               transactions of two runs, whose difference is reported; a tenth of them for "each"
#   FUNCTIONS=10                    how many of the most expensive functions are listed
#   PG_MAJOR                        PostgreSQL's version
set -eu
if [ -z "${LE_RUN:-}" ]; then
	. "$(dirname "$0")/../test/common.sh"
	le_prepare
	le_valgrind --tool=callgrind --trace-children=yes --callgrind-out-file="$LE_TMP/work/callgrind.%p" --log-file=/dev/null
	le_run bench/instructions.sh
	exit
fi

ONLY=${ONLY:-pair each try renew select1}
FEW=${FEW:-200}
MANY=${MANY:-1200}
FUNCTIONS=${FUNCTIONS:-10}
dir=$LE_RUN/work
export PGCTLTIMEOUT=300
. test/lib/server.sh

cat >"$dir/pair.sql" <<'SQL'
\set n random(1, 1000000)
SELECT acquire_lock('lock' || :n, '10 s') AS token \gset
SELECT release_lock('lock' || :n, :token)
SQL
cat >"$dir/each.sql" <<'SQL'
SELECT array_agg(name) AS names, array_agg(token) AS tokens FROM try_acquire_each(
  ARRAY(SELECT DISTINCT 'lock' || (1 + random() * 999999)::int FROM generate_series(1, 100)), '10 s') \gset
SELECT count(*) FROM release_each(:names, :tokens)
SQL
echo "SELECT try_acquire_lock('busy', '10 s')" >"$dir/try.sql"
echo "SELECT renew_lock('busy', :token)" >"$dir/renew.sql"
echo "SELECT 1" >"$dir/select1.sql"

start()
{
	pg_ctl -D "$PGHOST/data" -l "$SERVER_LOG" -w -s start
}

# Stops the server. The scripts do not use "pg_ctl restart", which would start the server without callgrind.
stop()
{
	pg_ctl -D "$PGHOST/data" -w -s stop
}

# run SCRIPT TRANSACTIONS: writes lines "instructions function" to $dir/TRANSACTIONS.manager and
# $dir/TRANSACTIONS.backend
run()
{
	local token process
	local -A pid
	start
	token=$(psql -XAtqc "SELECT force_release_lock('busy'); SELECT acquire_lock('busy', '1 h')" | tail -n 1)
	pid[manager]=$(psql -XAtqc 'SELECT pid FROM lock_election.manager')
	: >"$SERVER_LOG"
	pgbench -n -M prepared --random-seed=1 -D token="$token" -c 1 -t "$2" -f "$dir/$1.sql" >"$dir/pgbench.out" 2>&1 ||
		{ tail -n 20 "$dir/pgbench.out" >&2; return 1; }
	pid[backend]=$(sed -n 's/.*\[\([0-9]*\)\].*application_name=pgbench.*/\1/p' "$SERVER_LOG" | tail -n 1)
	stop
	for process in manager backend; do
		callgrind_annotate --auto=no --threshold=100 "$dir/callgrind.${pid[$process]}" |
			perl -ne 's/,//g; /^ *(\d+) \( *[\d.]+%\) +(?:.*?:)?(\S+)/ and $n{$2} += $1; END { print "$n{$_} $_\n" for keys %n }' >"$dir/$2.$process"
	done
	rm "$dir"/callgrind.[0-9]*
}

# report PROCESS: prints the instructions of one transaction, in total and by function, from the difference of both runs
report()
{
	perl -e '
		my ($few, $many, $count, $top, $title) = @ARGV;
		my (%n, $all);
		foreach my $file ([$few, -1], [$many, 1])
		{
			open my $f, "<", $file->[0] or die $!;
			while (<$f>) { my ($n, $name) = split; $n{$name} += $n * $file->[1] / $count; }
		}
		delete $n{PROGRAM};
		$all += $_ foreach values %n;
		printf "   %s: %.0f\n", $title, $all;
		printf "   %10.0f %s\n", $n{$_}, $_ foreach (sort { $n{$b} <=> $n{$a} } keys %n)[0 .. $top - 1];
	' "$dir/$few.$1" "$dir/$many.$1" $((many - few)) "$FUNCTIONS" "$1"
}

echo "-- instructions of one transaction, $((MANY - FEW)) of them" >&2
server_start instructions 'log_connections = on
	autovacuum = off'
stop
rm -f "$dir"/callgrind.[0-9]*
for script in $ONLY; do
	few=$FEW many=$MANY
	[ "$script" != each ] || few=$((FEW / 10)) many=$((MANY / 10))
	run "$script" "$few"
	run "$script" "$many"
	echo "$script"
	report manager
	report backend
done
