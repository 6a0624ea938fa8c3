#!/bin/bash
# Measures the time of lockctl from its start to its exit, compared with etcdctl and flock in alternating rounds, and
# the time of a hand-off between two lockctl processes. fsync is on for both servers.
#
#   PEERS=install          installs etcd from Debian's packages if it is missing; otherwise etcd is skipped
#   ROUNDS=200             number of rounds; the results are medians
#   TMPDIR                 directory of the data; a file system in memory would measure no flushes
#   PG_MAJOR               PostgreSQL's version
set -eu
if [ -z "${LE_RUN:-}" ]; then
	. "$(dirname "$0")/../test/common.sh"
	le_prepare lockctl
	[ "${PEERS:-}" != install ] || le_extra_packages etcd-server etcd-client
	le_run bench/lockctl.sh
	exit
fi

. test/lib/server.sh
dir=$LE_RUN/work/bench
mkdir -p "$dir"
server_start pg ''
if command -v etcd >/dev/null && command -v etcdctl >/dev/null; then
	free_port() { perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1")->sockport'; }
	client=http://127.0.0.1:$(free_port)
	peer=http://127.0.0.1:$(free_port)
	etcd --name bench --data-dir "$dir/etcd" --log-level error --listen-client-urls "$client" \
		--advertise-client-urls "$client" --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" \
		--initial-cluster "bench=$peer" >"$dir/etcd.log" 2>&1 &
	export ETCDCTL_API=3 ETCDCTL_ENDPOINTS=$client
	for i in $(seq 100); do
		etcdctl endpoint health >/dev/null 2>&1 && break
		sleep 0.1
	done
fi
perl bench/lockctl.pl "$dir"
