#!/bin/bash
# How many instructions the manager and a backend spend on a transaction of a fixed script, counted by callgrind with one
# client: the same for the same build, whatever else the machine does. What the kernel does is not in it.
#
#   SCRIPTS="pair try renew select1"   which
#   FEW=200 MANY=1200                  transactions of two runs, of which the difference counts
#   FUNCTIONS=10                       so many of the most expensive functions are listed, of the longer run
#   PG_MAJOR                           PostgreSQL's version
set -eu
if [ -z "${LE_RUN:-}" ]; then
	. "$(dirname "$0")/../test/common.sh"
	le_prepare
	le_extra_packages valgrind
	mv "$LE_BIN/postgres" "$LE_BIN/postgres.real"
	cat >"$LE_BIN/postgres" <<-EOF
		#!/bin/sh
		[ "\$1" = -D ] && exec valgrind --tool=callgrind --trace-children=yes --callgrind-out-file=$LE_TMP/work/callgrind.%p \
			--log-file=/dev/null $LE_BIN/postgres.real "\$@"
		exec $LE_BIN/postgres.real "\$@"
	EOF
	chmod 755 "$LE_BIN/postgres"
	le_run bench/instructions.sh
	exit
fi

SCRIPTS=${SCRIPTS:-pair try renew select1}
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
echo "SELECT try_acquire_lock('busy', '10 s')" >"$dir/try.sql"
echo "SELECT renew_lock('busy', :token)" >"$dir/renew.sql"
echo "SELECT 1" >"$dir/select1.sql"

# run SCRIPT TRANSACTIONS: afterwards $dir/callgrind.manager and $dir/callgrind.backend
run()
{
	local token manager backend
	pg_ctl -D "$PGHOST/data" -l "$SERVER_LOG" -w -s restart
	token=$(psql -XAtqc "SELECT force_release_lock('busy'); SELECT acquire_lock('busy', '1 h')" | tail -n 1)
	manager=$(psql -XAtqc 'SELECT pid FROM lock_election.manager')
	: >"$SERVER_LOG"
	pgbench -n -M prepared --random-seed=1 -D token="$token" -c 1 -t "$2" -f "$dir/$1.sql" >"$dir/pgbench.out" 2>&1 ||
		{ tail -n 20 "$dir/pgbench.out" >&2; return 1; }
	backend=$(sed -n 's/.*\[\([0-9]*\)\].*application_name=pgbench.*/\1/p' "$SERVER_LOG" | tail -n 1)
	pg_ctl -D "$PGHOST/data" -w -s stop
	mv "$dir/callgrind.$manager" "$dir/callgrind.manager"
	mv "$dir/callgrind.$backend" "$dir/callgrind.backend"
	rm "$dir"/callgrind.[0-9]*
	pg_ctl -D "$PGHOST/data" -l "$SERVER_LOG" -w -s start
}

# total PROCESS: its instructions in the last run
total()
{
	sed -n 's/^summary: //p' "$dir/callgrind.$1"
}

echo "-- instructions of one transaction, $((MANY - FEW)) of them" >&2
server_start instructions 'log_connections = on
	autovacuum = off'
for script in $SCRIPTS; do
	run "$script" "$FEW"
	manager=$(total manager) backend=$(total backend)
	run "$script" "$MANY"
	printf '%-10s manager %7d   backend %7d\n' "$script" $((($(total manager) - manager) / (MANY - FEW))) \
		$((($(total backend) - backend) / (MANY - FEW)))
	for process in manager backend; do
		echo "   $process:"
		callgrind_annotate --auto=no "$dir/callgrind.$process" | sed -n 's/^ *\([0-9,]*\) ( *\([0-9.]*%\)) *[^:]*:\([^ ]*\).*/\2 \3/p' |
			sed 's/^/      /' | head -n "$FUNCTIONS" || true
	done
done
