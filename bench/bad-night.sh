#!/bin/bash
# Records three incidents, each in a throw-away cluster: a holder that hangs, a herd of waiters, and a failover. Runs
# the queries of docs/monitoring once a second, and plots their results for docs/operation/watching.md. Takes 4 minutes.
# The recorded data are in bench/results/bad-night.
#
#   ONLY="hung-holder herd failover"    the incidents to record
#   PG_MAJOR                            PostgreSQL's version
set -eu
if [ -z "${LE_RUN:-}" ]; then
	. "$(dirname "$0")/../test/common.sh"
	le_prepare
	le_extra_packages python3-matplotlib
	/usr/bin/python3 -c 'import matplotlib' || le_die "python3-matplotlib is needed for the plots"
	le_run bench/bad-night.sh
	cp "$LE_TMP"/work/*.svg "$LE_ROOT/docs/monitoring/"
	cp "$LE_TMP"/work/*.tsv "$LE_ROOT/bench/results/bad-night/"
	chmod 644 "$LE_ROOT"/docs/monitoring/*.svg "$LE_ROOT"/bench/results/bad-night/*
	exit
fi

ONLY=${ONLY:-hung-holder herd failover}
SECONDS_EACH=60
dir=$LE_RUN/work
. test/lib/server.sh

# A worker that runs one job after the other; each job holds the lock for 5 ms.
cat >"$dir/jobs.sql" <<'SQL'
SELECT acquire_lock('jobs', '5 s') AS t \gset
\sleep 5 ms
SELECT release_lock('jobs', :t);
SQL
# A worker of the herd.
cat >"$dir/herd.sql" <<'SQL'
SELECT acquire_lock('report') AS t \gset
\sleep 50 ms
SELECT release_lock('report', :t);
SQL
# A candidate: the leader confirms its term each second, and the others wait.
cat >"$dir/leader.sql" <<'SQL'
SELECT campaign('scheduler', 'worker :client_id', ttl => '5 s', owner => 'worker :client_id');
\sleep 1 s
SQL

# clients FILE ARGUMENT...: runs pgbench in the background, and restarts it whenever it ends, like clients that
# reconnect
clients()
{
	local file=$1
	shift
	while [ ! -e "$dir/over" ]; do
		pgbench -n -f "$file" -T $SECONDS_EACH "$@" >>"$dir/clients.log" 2>&1 || true
		sleep 0.3
	done &
}

at()
{
	perl -MTime::HiRes=time,sleep -e 'my $left = $ARGV[0] + $ARGV[1] - time; sleep $left if $left > 0' "$begin" "$1"
}

# begin NAME: starts the recording of this incident
begin()
{
	name=$1
	rm -f "$dir/over"
	echo "-- $name" >&2
	begin=$(perl -MTime::HiRes=time -e 'print time')
	perl bench/bad-night.pl "$begin" "$SECONDS_EACH" docs/monitoring/queries.yaml >"$dir/$name.tsv" &
	recorder=$!
}

end()
{
	wait "$recorder"
	touch "$dir/over"
	pg_ctl -D "$1" -m immediate -s stop
	wait
	[ -s "$dir/$name.tsv" ]
	/usr/bin/python3 bench/plot.py night "$dir/$name.tsv" "$dir/$name.svg" "$name"
}

# From second 15 on, a worker holds the lock and does nothing; at second 45, an operator releases the lock by force.
hung_holder()
{
	server_start hung-holder ''
	begin hung-holder
	clients "$dir/jobs.sql" -c 8
	at 15
	psql -Xqc "SELECT acquire_lock('jobs', '1 h')" >/dev/null
	at 45
	psql -Xqc "SELECT force_release_lock('jobs')" >/dev/null
	end "$PGHOST/data"
}

# At second 15, 300 workers start at the same time.
herd()
{
	server_start herd 'max_connections = 400'
	begin herd
	clients "$dir/jobs.sql" -c 4
	at 15
	pgbench -n -f "$dir/herd.sql" -c 300 -j 2 -t 1 >>"$dir/clients.log" 2>&1 || true
	end "$PGHOST/data"
}

# At second 20 the primary dies; at second 28 its standby is promoted.
failover()
{
	local primary standby
	server_start failover ''
	primary=$PGHOST
	standby=$dir/standby
	mkdir -m 700 "$standby"
	pg_basebackup -D "$standby/data" -R -c fast
	cat >>"$standby/data/postgresql.conf" <<-CONF
		unix_socket_directories = '$standby'
	CONF
	pg_ctl -D "$standby/data" -l "$standby/log" -w -s start
	psql -Xqc "ALTER SYSTEM SET synchronous_standby_names = '*'" -c 'SELECT pg_reload_conf()' >/dev/null
	export PGHOST=$primary,$standby PGPORT=$PGPORT,$PGPORT PGTARGETSESSIONATTRS=primary
	begin failover
	clients "$dir/jobs.sql" -c 8
	clients "$dir/leader.sql" -c 3
	at 20
	pg_ctl -D "$primary/data" -m immediate -s stop
	at 28
	pg_ctl -D "$standby/data" -w -s promote
	end "$standby/data"
	unset PGTARGETSESSIONATTRS
}

for scenario in $ONLY; do
	"${scenario//-/_}"
done
