#!/bin/bash
# Compares this extension with its peers. Every round measures all systems, so that other load on the machine affects
# all of them alike. Writes results.md, results.csv and plots (SVG) to bench/results, or with FLUSH_US to a folder in
# it; with QUICK, SYSTEMS or WORKLOADS, writes to build/bench.
#
#   PEERS=install          installs missing packages of the peers, see packages.sh; otherwise these peers are skipped
#   SYSTEMS="..."          lock_election lock_election-async portable table advisory select1 etcd zookeeper redis valkey
#                          redis-everysec redis-memory
#   WORKLOADS="..."        pairs each hot try renew crash resign queue snapshot databases busy held
#   FLUSH_US=1000          microseconds by which each server's flushes are made longer, as on a disk in a cloud
#   ROUNDS=5 DURATION=3    number of rounds, whose medians are the results, and seconds of each measurement
#   WARMUP=0.5             seconds before each measurement that do not count; JAVA_WARMUP=1 for ZooKeeper's client
#   NAMES=1000000          number of random names
#   QUEUED=10000           candidates in the long queue; fewer if entering them takes longer than QUEUE_SECONDS=10
#   HELD=1000000           number of held locks
#   FILL_SECONDS=60        seconds after which no more locks are acquired
#   SNAPSHOT_SECONDS=10    seconds for which an unrelated transaction is open
#   QUICK=1                1 round of 1 s with smaller numbers, to test the scripts
#   TMPDIR                 directory of the data; a file system in memory would measure no flushes
#   PG_MAJOR               PostgreSQL's version
set -eu
if [ -z "${LE_RUN:-}" ]; then
	. "$(dirname "$0")/../test/common.sh"
	. "$(dirname "$0")/packages.sh"
	le_prepare
	bench_packages
	rc=0
	le_run bench/run.sh || rc=$?
	# A partial run must not replace the published results.
	out=bench/results${FLUSH_US:+/flush-$FLUSH_US}
	[ -z "${QUICK:-}${WORKLOADS:-}${SYSTEMS:-}" ] || out=build/bench
	if [ -e "$LE_TMP/work/bench/results/results.csv" ]; then
		mkdir -p "$LE_ROOT/$out"
		# Keep the files of "make bench-scaling".
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
