#!/bin/bash
# Compares libraries in Go, Python, JavaScript and Java: those of lock_election, direct calls of its functions, a lock
# table written by hand, and other libraries with Redis (appendfsync always) and etcd. Systems alternate in each round,
# and the results are medians: first on this machine's disk, then with flushes that take 1 ms longer. Prints tables, and
# writes them with all figures to build/bench/libraries.
#
#   PEERS=install          installs missing servers and languages; otherwise they are skipped. Libraries are always
#                          downloaded, to build/cache
#   LANGUAGES="go python node java"
#   SYSTEMS="..."          lock_election direct; table redsync redislock etcd; redis-py, and names with -asyncio;
#                          redis-semaphore; redisson
#   WORKLOADS="..."        own/WORKERS: each worker has its own name; hot/WORKERS: all workers use the same name;
#                          processes/N: N processes with one worker each, all with the same name
#   ENGINE=portable        measures the portable edition instead of the C extension
#   FLUSHES="0 1000"       microseconds by which flushes are made longer
#   ROUNDS=3 DURATION=2    number of rounds, and seconds of each measurement
#   TMPDIR                 directory of the data; a file system in memory would measure no flushes
#   PG_MAJOR               PostgreSQL's version
set -eu
LANGUAGES=${LANGUAGES:-go python node java}
SYSTEMS=${SYSTEMS:-lock_election direct table redsync redislock redis-py etcd redis-semaphore redisson
	lock_election-asyncio direct-asyncio}

missing_packages()
{
	local language
	for language in $LANGUAGES; do
		case $language in
			go) command -v go >/dev/null || echo golang-go ;;
			node) command -v npm >/dev/null || echo nodejs npm ;;
			java)
				command -v javac >/dev/null || echo default-jdk-headless
				command -v mvn >/dev/null || echo maven
				;;
		esac
	done
}

# --- the programs, in $LE_TMP/libraries -----------------------------------------------------------------------------

build_go()
{
	le_wait env -C bench/libraries/go GOFLAGS="-modcacherw -trimpath" go build -o "$LE_TMP/libraries/go" .
}

build_python()
{
	le_python_packages bench/libraries/python/requirements.txt &&
		cp bench/libraries/python/bench.py "$LE_TMP/libraries/python"
}

get_node()
{
	cp bench/libraries/node/package.json "$1" &&
		le_wait npm install --loglevel=error --no-package-lock --no-fund --no-audit --ignore-scripts \
			--cache "$LE_ROOT/build/cache/npm" --prefix "$1"
}

# Compiles the Node library, and links it into the packages that the program uses.
build_node()
{
	local dir=$LE_TMP/peers/node
	PEERS=install peer node bench/libraries/node/package.json &&
		cp -r clients/node "$dir/lock-election" &&
		ln -s "$PWD/sql" "$LE_TMP/peers/sql" && # at the same relative path as in the source tree
		node "$dir/lock-election/scripts/script.mjs" &&
		"$dir/node_modules/.bin/tsc" -p "$dir/lock-election" &&
		ln -s ../lock-election "$dir/node_modules" &&
		cp bench/libraries/node/bench.mjs "$dir" &&
		ln -s "$dir/bench.mjs" "$LE_TMP/libraries/node"
}

get_java()
{
	le_wait mvn -B -q -T1 -Dstyle.color=never -Dmaven.repo.local="$LE_TMP/maven" -f bench/libraries/java/pom.xml \
		dependency:copy-dependencies -DoutputDirectory="$1"
}

build_java()
{
	PEERS=install peer java bench/libraries/java/pom.xml &&
		le_wait javac -proc:none -nowarn -cp "$LE_TMP/peers/java/*" -d "$LE_TMP/libraries/java" \
			clients/java/core/src/main/java/lockelection/*.java bench/libraries/java/Bench.java
}

if [ -z "${LE_RUN:-}" ]; then
	. "$(dirname "$0")/../test/common.sh"
	. "$(dirname "$0")/packages.sh"
	. "$(dirname "$0")/../clients/python-packages.sh"
	le_prepare
	[ "${PEERS:-}" != install ] || le_extra_packages redis-server strace $(missing_packages)
	mkdir "$LE_TMP/peers" "$LE_TMP/libraries"
	[[ $LANGUAGES != *go* || $SYSTEMS != *etcd* ]] || peer etcd bench/peers/etcd/*
	for language in $LANGUAGES; do
		le_say "building: $language"
		build_$language >"$LE_TMP/$language.log" 2>&1 || le_say "$language is skipped: $(tail -n 1 "$LE_TMP/$language.log")"
	done
	chmod -R a+rX "$LE_TMP/peers" "$LE_TMP/libraries"
	LE_ENV+=(PEERS_DIR="$LE_TMP/peers" LIBRARIES="$LE_TMP/libraries" PYTHONPATH="clients/python/src")
	rc=0
	le_run bench/libraries.sh || rc=$?
	if [ -e "$LE_TMP/work/bench/libraries/figures.tsv" ]; then
		mkdir -p build/bench
		rm -rf build/bench/libraries
		cp -r "$LE_TMP/work/bench/libraries" build/bench/
	fi
	exit $rc
fi

ROUNDS=${ROUNDS:-3}
DURATION=${DURATION:-2}
WORKLOADS=${WORKLOADS:-own/1 own/8 own/32 own/128 hot/8 hot/32 processes/8}
FLUSHES=${FLUSHES:-0 1000}
dir=$LE_RUN/work/bench
results=$dir/libraries
mkdir -p "$results" "$dir/bin"
password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
. bench/servers.sh

server_of()
{
	case $1 in
		redsync | redislock | redis-* | redisson) echo redis ;;
		etcd) echo etcd ;;
		*) echo postgres ;;
	esac
}

# Succeeds if the language has this system, and its program and its server are installed.
takes_part()
{
	case $1/$2 in
		*/lock_election | */direct | go/table | go/redsync | go/redislock | go/etcd | python/table | python/redis-py) ;;
		python/*-asyncio | node/redis-semaphore | java/redisson) ;;
		*) return 1 ;;
	esac
	[ -e "$LIBRARIES/$1" ] || return 1
	case $(server_of "$2") in
		redis) command -v redis-server >/dev/null ;;
		etcd) [ -x "$PEERS_DIR/etcd/etcd" ] ;;
	esac
}

program()
{
	local language=$1 system=$2 server
	shift
	server=$(server_of "$system")
	case $language in
		go) "$LIBRARIES/go" "$@" "${server_pid[$server]}" ;;
		python) python "$LIBRARIES/python" "$@" "${server_pid[$server]}" ;;
		node) node "$LIBRARIES/node" "$@" "${server_pid[$server]}" ;;
		java) java -Xmx512m -cp "$LIBRARIES/java:$PEERS_DIR/java/*" Bench "$@" "${server_pid[$server]}" ;;
	esac
}

# Prints one line: pairs/s, p50, p99, and the processor time of client and server for a pair. For several processes,
# adds up the pairs, and prints the median of p50, the maximum of p99, and the times for a pair of all processes.
measure()
{
	local language=$1 system=$2 workload=$3 n=${3#*/} i
	case $workload in
		processes/*)
			for ((i = 0; i < n; i++)); do
				program "$language" "$system" 1 hot "$DURATION" >"$dir/process.$i" 2>>"$dir/errors" &
				processes[i]=$!
			done
			wait "${processes[@]}" || return 1
			sort -n -k2,2 "$dir"/process.* | awk '$1 == 0 { starved++; next } { n += $1; p50[NR] = $2; if ($3 > p99) p99 = $3; own += $1 * $4; server[NR] = $5 * $1 }
				END { for (i in server) if (server[i] > most) most = server[i]; if (n) print n, p50[starved + int((NR - starved + 1) / 2)], p99, int(own / n), int(most / n); else print "0 0 0 0 0" }'
			rm "$dir"/process.*
			;;
		*) program "$language" "$system" "$n" "${workload%/*}" "$DURATION" 2>>"$dir/errors" ;;
	esac
}

printf '%s\t' flush language workload system round pairs p50_us p99_us client_us >"$results/figures.tsv"
echo server_us >>"$results/figures.tsv"
: >"$dir/errors"
for FLUSH_US in $FLUSHES; do
	servers=()
	[ "$FLUSH_US" != 0 ] || FLUSH_US=
	[ -z "$FLUSH_US" ] || build_slow_flush
	for language in $LANGUAGES; do
		for system in $SYSTEMS; do
			! takes_part "$language" "$system" || servers+=("$(server_of "$system")")
		done
	done
	for server in $(printf '%s\n' "${servers[@]}" | sort -u); do
		"start_$server"
	done
	[ "${ENGINE:-}" != portable ] || export PGDATABASE=portable
	[ -z "${redis_port[redis]:-}" ] || export REDIS_URL="redis://:$password@127.0.0.1:${redis_port[redis]}"
	for workload in $WORKLOADS; do
		for ((round = 1; round <= ROUNDS; round++)); do
			for language in $LANGUAGES; do
				for system in $SYSTEMS; do
					takes_part "$language" "$system" || continue
					if ! figures=$(measure "$language" "$system" "$workload"); then
						echo "-- failed: $language $system $workload: $(tail -n 1 "$dir/errors")" >&2
						continue
					fi
					printf '%s\t' "${FLUSH_US:-0}" "$language" "$workload" "$system" "$round" $figures | sed 's/\t$/\n/' >>"$results/figures.tsv"
				done
			done
		done
	done
	stop_servers
	rm -rf "$dir/redis" "$dir/etcd" "$LE_RUN/work/postgres"
done
perl bench/libraries.pl "$results/figures.tsv" | tee "$results/libraries.md"
[ ! -s "$dir/errors" ] || { tail -n 20 "$dir/errors" >&2; exit 1; }
