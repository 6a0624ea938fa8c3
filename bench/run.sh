#!/bin/bash
# This extension and its peers side by side: every round goes through all systems, so that what the machine does
# meanwhile meets all of them alike. Writes results.md, results.csv and plots (SVG) to bench/results, with FLUSH_US to a folder
# beneath; with QUICK, SYSTEMS or WORKLOADS to build/bench.
#
#   PEERS=install          installs what is missing for the peers, see packages.sh; without it they are skipped
#   SYSTEMS="..."          lock_election lock_election-async portable table advisory select1 etcd zookeeper redis valkey
#                          redis-everysec redis-memory
#   WORKLOADS="..."        pairs each hot try renew crash resign queue snapshot databases busy held
#   FLUSH_US=1000          each server's flushes take so many microseconds longer, as on a disk in a cloud
#   ROUNDS=5 DURATION=3    rounds, of which the medians count, and the seconds of each measurement
#   WARMUP=0.5             seconds before each that do not count; JAVA_WARMUP=1 for ZooKeeper's client
#   NAMES=1000000          random names
#   QUEUED=10000           candidates in the long queue; what can be slow is cut short after QUEUE_SECONDS=10
#   HELD=1000000           locks that are held
#   FILL_SECONDS=60        after which no more are taken
#   SNAPSHOT_SECONDS=10    how long an unrelated transaction is open
#   QUICK=1                1 round of 1 s, and less of everything, to see that it works
#   TMPDIR                 where the data lie; a file system in memory would measure no flushes
#   PG_MAJOR               PostgreSQL's version
set -eu
if [ -z "${LE_RUN:-}" ]; then
	. "$(dirname "$0")/../test/common.sh"
	. "$(dirname "$0")/packages.sh"
	le_prepare
	bench_packages
	rc=0
	le_run bench/run.sh || rc=$?
	# what is not the whole does not take the place of what is published
	out=bench/results${FLUSH_US:+/flush-$FLUSH_US}
	[ -z "${QUICK:-}${WORKLOADS:-}${SYSTEMS:-}" ] || out=build/bench
	if [ -e "$LE_TMP/work/bench/results/results.csv" ]; then
		mkdir -p "$LE_ROOT/$out"
		# what make bench-scaling has written stays
		rm -f "$LE_ROOT/$out"/{results.*,failover-*,hand-off-*,pairs.svg,snapshot.svg}
		cp "$LE_TMP"/work/bench/results/*.* "$LE_ROOT/$out/"
		le_say "written: $out"
	fi
	exit $rc
fi

[ -z "${QUICK:-}" ] || : "${ROUNDS:=1}" "${DURATION:=1}" "${QUEUED:=200}" "${HELD:=20000}" "${SNAPSHOT_SECONDS:=5}"
ROUNDS=${ROUNDS:-5}
DURATION=${DURATION:-3}
WARMUP=${WARMUP:-0.5}
JAVA_WARMUP=${JAVA_WARMUP:-1}
NAMES=${NAMES:-1000000}
QUEUED=${QUEUED:-10000}
QUEUE_SECONDS=${QUEUE_SECONDS:-10}
FEW_QUEUED=10
HELD=${HELD:-1000000}
FILL_SECONDS=${FILL_SECONDS:-60}
SNAPSHOT_SECONDS=${SNAPSHOT_SECONDS:-10}
BEFORE_SECONDS=3
CRASH_TTL_MS=2000
WORKLOADS=${WORKLOADS:-pairs each hot try renew crash resign queue snapshot databases busy held}
FLUSH_US=${FLUSH_US:-}
READERS=32
SYSTEMS=${SYSTEMS:-lock_election lock_election-async portable table advisory select1 etcd zookeeper redis valkey redis-everysec redis-memory}
dir=$LE_RUN/work/bench
results=$dir/results
mkdir -p "$results" "$dir/bin"
password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
. bench/servers.sh
. bench/programs.sh
. bench/workloads.sh

SECONDS=0
[ -z "$FLUSH_US" ] || build_slow_flush
choose_systems
for s in $servers; do
	start_$s
done
: >"$results/failures"
echo workload,system,clients,round,ops,all,rate,p50,p90,p99,max,extra >"$results/results.csv"
for w in $WORKLOADS; do
	workload_$w
done
round=1
describe >"$dir/about"
stop_servers
perl bench/report.pl "$results" "$dir/about"
if /usr/bin/python3 -c 'import matplotlib' 2>/dev/null; then
	/usr/bin/python3 bench/plot.py bench "$results/plots" "$results" "$BEFORE_SECONDS"
else
	echo "-- no plots: python3-matplotlib is not installed here" >&2
fi
rm -r "$results/plots"
[ ! -s "$results/failures" ] || { echo "failures:" >&2; cat "$results/failures" >&2; exit 1; }
