#!/bin/bash
# Measures how the rates of one server change with more clients, names, holders and databases, and the rates of several
# servers. Writes plots and tables for docs/operation/scaling.md to bench/results. Each section replaces only its own
# figures, so that sections can be run one at a time.
#
#   SECTIONS="clients names holders shared databases clusters"      the sections; see section_* below
#   ROUNDS=3 DURATION=5    number of rounds, whose medians are the results, and seconds of each measurement
#   CLIENTS="1 2 4 ...", NAMES, HOLDERS, SHARED, DATABASES, CLUSTERS="..."      the points of each curve
#   FLUSH_US=1000          (clusters) microseconds by which each flush is made longer in the second half
#   TMPDIR                 directory of the clusters; a file system in memory would measure no flushes
#   PG_MAJOR               PostgreSQL's version
set -eu
if [ -z "${LE_RUN:-}" ]; then
	. "$(dirname "$0")/../test/common.sh"
	le_prepare
	le_extra_packages python3-matplotlib
	rc=0
	le_run bench/scaling.sh || rc=$?
	if [ $rc = 0 ]; then
		cp "$LE_TMP"/work/scaling/results/scaling* "$LE_ROOT/bench/results/"
		chmod 644 "$LE_ROOT"/bench/results/scaling*
		le_say "written: bench/results/scaling*, whose curves docs/operation/scaling.md shows"
	fi
	exit $rc
fi

SECTIONS=${SECTIONS:-clients names holders shared databases clusters}
ROUNDS=${ROUNDS:-3}
DURATION=${DURATION:-5}
CLIENTS=${CLIENTS:-1 2 4 8 16 32 64 128 256}
NAMES=${NAMES:-1 10 100 1000 100000 10000000}
HOLDERS=${HOLDERS:-1000 10000 100000 1000000}
SHARED=${SHARED:-1 10 100 1000 10000}
DATABASES=${DATABASES:-1 2 4 8}
CLUSTERS=${CLUSTERS:-1 2 4}
FLUSH_US=${FLUSH_US:-1000}
FILL_CLIENTS=8
dir=$LE_RUN/work/scaling
results=$dir/results
mkdir -p "$results"
[ ! -f bench/results/scaling.tsv ] || cp bench/results/scaling.tsv "$results/all"
touch "$results/all"
: >"$results/new"
read -r load _ </proc/loadavg
. test/lib/server.sh

# No limits, because one role holds up to a million locks.
server_conf="shared_buffers = 256MB
	max_connections = 320
	max_worker_processes = 40
	lock_election.max_databases = 16
	lock_election.max_locks_per_role = 0
	lock_election.max_memory_per_role = 0
	lock_election.max_memory = 8GB"

sql()
{
	psql -XAtq -v ON_ERROR_STOP=1 -c "$@"
}

section()
{
	section=$1
	echo "-- $*" >&2
}

# note SERIES X Y: records one point of a curve
note()
{
	printf '%s\t%s\t%s\t%s\n' "$section" "$1" "$2" "$3" >>"$results/new"
	printf '   %-44s %12s %14.1f\n' "$1" "$2" "$3" >&2
}

# bench CLIENTS SCRIPT [pgbench options]: prints the transactions per second
bench()
{
	local clients=$1 script=$2 log
	shift 2
	log=$dir/pgbench.$BASHPID
	pgbench -n -M prepared -c "$clients" -j 2 -T "$DURATION" -f "$script" "$@" >"$log" 2>&1 ||
		{ tail -n 20 "$log" "$SERVER_LOG" >&2; return 1; }
	sed -n 's/^tps = \([0-9.]*\).*/\1/p' "$log"
	rm "$log"
}

# together COUNT COMMAND...: runs COMMAND 1, COMMAND 2, ... at the same time, and prints the sum of their rates
together()
{
	local n=$1 i pids=()
	shift
	rm -f "$dir"/rate.*
	for ((i = 1; i <= n; i++)); do
		"$@" $i >"$dir/rate.$i" &
		pids+=($!)
	done
	for i in "${pids[@]}"; do
		wait "$i"
	done
	cat "$dir"/rate.* | awk '{ sum += $1 } END { print sum }'
}

# --- one server -----------------------------------------------------------------------------------------------------

section_clients()
{
	local c i
	section clients
	for ((i = 1; i <= ROUNDS; i++)); do
		for c in $CLIENTS; do
			sql CHECKPOINT
			note "acquire and release, random names" "$c" "$(bench "$c" bench/random.sql)"
			note "hand-offs of one name" "$c" "$(bench "$c" bench/hot.sql)"
			note "renewals" "$c" "$(bench "$c" bench/renew.sql -D t=0 -D round="$c-$i")"
		done
	done
}

section_names()
{
	local n i
	section names
	for ((i = 1; i <= ROUNDS; i++)); do
		for n in $NAMES; do
			sed "s/1000000/$n/" bench/random.sql >"$dir/names.sql"
			sql CHECKPOINT
			note "acquire and release, 8 clients" "$n" "$(bench 8 "$dir/names.sql")"
		done
	done
}

# fill COUNT: acquires COUNT locks, without flushes, because their durability is not measured
fill()
{
	local per_client=$(($1 / FILL_CLIENTS)) batch=2500
	[ $per_client -ge $batch ] || batch=$per_client
	PGOPTIONS='-c synchronous_commit=off' pgbench -n -M prepared -c $FILL_CLIENTS -j 2 -t $((per_client / batch)) \
		-D k=0 -D per_client=$per_client -D batch=$batch -f bench/fill.sql >"$dir/pgbench.out" 2>&1 ||
		{ tail -n 20 "$dir/pgbench.out" "$SERVER_LOG" >&2; return 1; }
}

# Terminates the manager, and prints the milliseconds until a lock is granted again.
restart()
{
	local old start
	old=$(sql 'SELECT pid FROM lock_election.manager')
	sql CHECKPOINT
	start=${EPOCHREALTIME/./}
	sql "SELECT pg_terminate_backend($old, 60000)" >/dev/null
	until sql "SELECT release_lock('after', acquire_lock('after'))" >/dev/null 2>"$dir/restart.err"; do
		sleep 0.01
	done
	echo $(((${EPOCHREALTIME/./} - start) / 1000))
}

# Uses a new database for each point, because releasing all held locks takes longer than dropping the database.
section_holders()
{
	local n i
	section holders
	for n in $HOLDERS; do
		sql "CREATE DATABASE holders"
		PGDATABASE=holders sql 'CREATE EXTENSION lock_election'
		PGDATABASE=holders fill "$n"
		[ "$(PGDATABASE=holders sql 'SELECT count(*) FROM lock_election.locks')" -ge $((n * 9 / 10)) ] ||
			{ echo "fewer than $n locks are held" >&2; return 1; }
		note "memory of the manager, MB" "$n" "$(PGDATABASE=holders sql 'SELECT memory / 1e6 FROM lock_election.manager')"
		for ((i = 1; i <= ROUNDS; i++)); do
			sql CHECKPOINT
			note "acquire and release, 8 clients" "$n" "$(PGDATABASE=holders bench 8 bench/random.sql)"
			note "restart of the manager, ms" "$n" "$(PGDATABASE=holders restart)"
		done
		sql 'DROP DATABASE holders WITH (FORCE)'
	done
}

# Measures one name that already has many shared holders.
section_shared()
{
	local n i held=0
	section shared
	echo "SELECT acquire_lock('shared', mode => 'shared') AS t \\gset
		SELECT release_lock('shared', :t);" >"$dir/shared.sql"
	for n in $SHARED; do
		sql "SELECT count(acquire_lock('shared', '1 h', mode => 'shared', owner => 'o' || g)) FROM generate_series($held + 1, $n) g" >/dev/null
		held=$n
		for ((i = 1; i <= ROUNDS; i++)); do
			sql CHECKPOINT
			note "shared acquire and release, 8 clients" "$n" "$(bench 8 "$dir/shared.sql")"
		done
	done
	sql "SELECT force_release_lock('shared')" >/dev/null
}

in_database()
{
	PGDATABASE=d$2 bench "$1" bench/random.sql
}

# Measures the same number of clients, spread over more and more databases.
section_databases()
{
	local n i c
	section databases
	for n in $DATABASES; do
		# Keep the databases of earlier points, so that the cost of their idle managers is measured, too.
		for ((i = 1; i <= n; i++)); do
			[ -z "$(sql "SELECT 1 FROM pg_database WHERE datname = 'd$i'")" ] || continue
			sql "CREATE DATABASE d$i"
			PGDATABASE=d$i sql 'CREATE EXTENSION lock_election'
			PGDATABASE=d$i sql "SELECT release_lock('x', acquire_lock('x'))" >/dev/null
		done
		for ((i = 1; i <= ROUNDS; i++)); do
			for c in 8 32; do
				sql CHECKPOINT
				note "$c clients in all" "$n" "$(together "$n" in_database $((c / n)))"
			done
		done
	done
}

# --- several servers ------------------------------------------------------------------------------------------------

in_cluster()
{
	PGHOST=$LE_RUN/work/cluster$2 PGPORT=${ports[$2]} bench "$1" bench/random.sql
}

# clusters DELAY TITLE: measures several clusters on this machine. They share its processors, but flush independently.
clusters()
(
	local most n i delay=$1 title=$2
	declare -A ports
	for n in $CLUSTERS; do
		most=$n
	done
	if [ "$delay" != 0 ]; then
		cc -O2 -fPIC -shared -o "$dir/slow-flush.so" bench/slow-flush.c
		export FLUSH_US=$delay
	fi
	for ((i = 1; i <= most; i++)); do
		rm -rf "$LE_RUN/work/cluster$i"
		LD_PRELOAD=$([ "$delay" = 0 ] || echo "$dir/slow-flush.so") server_start cluster$i "$server_conf"
		ports[$i]=$PGPORT
	done
	for n in $CLUSTERS; do
		for ((i = 1; i <= ROUNDS; i++)); do
			note "$title, 8 clients in all" "$n" "$(together "$n" in_cluster $((8 / n)))"
			note "$title, 8 clients each" "$n" "$(together "$n" in_cluster 8)"
		done
	done
	for ((i = 1; i <= most; i++)); do
		pg_ctl -D "$LE_RUN/work/cluster$i/data" -m fast -w -s stop
	done
)

section_clusters()
{
	section clusters
	clusters 0 "this disk"
	clusters "$FLUSH_US" "flushes of $FLUSH_US us more"
}

# --- tables and plots -----------------------------------------------------------------------------------------------

# Prints the medians of the rounds, as lines of section, series, x, median, minimum, maximum.
medians()
{
	sort -t"$(printf '\t')" -k1,1 -k2,2 -k3,3g -k4,4g "$results/scaling.tsv" | awk -F'\t' '
		function out() { if (n) printf "%s\t%s\t%s\t%s\t%s\t%s\n", p[1], p[2], p[3], (v[int((n + 1) / 2)] + v[int(n / 2) + 1]) / 2, v[1], v[n] }
		{ key = $1 FS $2 FS $3; if (key != last) { out(); n = 0; split(key, p, FS); last = key }; v[++n] = $4 }
		END { out() }'
}

# Prints a table for each section, with a line for each x and a column for each series.
tables()
{
	awk -F'\t' '
		function flush_table(i, j, line) {
			if (!ns) return
			print "## " current "\n"
			line = "| " current " |"; for (j = 1; j <= ns; j++) line = line " " series[j] " |"; print line
			line = "|---:|"; for (j = 1; j <= ns; j++) line = line "---:|"; print line
			for (i = 1; i <= nx; i++) { line = "| " xs[i] " |"; for (j = 1; j <= ns; j++) line = line sprintf(" %s |", val[xs[i], series[j]]); print line }
			print ""
			delete val; delete seen_x; delete seen_s; nx = ns = 0
		}
		$1 != current { flush_table(); current = $1 }
		!($3 in seen_x) { seen_x[$3]; xs[++nx] = $3 }
		!($2 in seen_s) { seen_s[$2]; series[++ns] = $2 }
		{ val[$3, $2] = sprintf($4 < 100 ? "%.1f" : "%.0f", $4) }
		END { flush_table() }' "$results/medians"
}

case " $SECTIONS " in
	*" clients "* | *" names "* | *" holders "* | *" shared "* | *" databases "*) server_start scaling "$server_conf" ;;
esac
for s in $SECTIONS; do
	section_$s
done
awk -F'\t' 'NR == FNR { new[$1]; next } !($1 in new)' "$results/new" "$results/all" | cat - "$results/new" >"$results/scaling.tsv"
rm "$results/all" "$results/new"
medians >"$results/medians"
{
	echo "$(postgres -V), $(nproc) processors, data on $(stat -f -c %T "$dir"), medians of $ROUNDS rounds of $DURATION s."
	echo "Load average of the machine before it began: $load."
	echo
	tables
} >"$results/scaling.md"
/usr/bin/python3 bench/plot.py scaling "$results/scaling.tsv" "$results"
rm "$results/medians"
cat "$results/scaling.md"
