# The workloads. In each round, a workload measures all systems that take part, and adds lines to results.csv.

PAIRS_CLIENTS=${PAIRS_CLIENTS:-1 8 32 128}
EACH_CLIENTS=${EACH_CLIENTS:-1 4 8}
EXTRA_CLIENTS=${EXTRA_CLIENTS:-8 32}
HOT_CLIENTS=${HOT_CLIENTS:-2 8 64}
DATABASES="1 2 3 4"
CLIENTS=8
QUEUE_CLIENTS=64 # clients that enter the queue at the same time; then two of them hand off the lock
LIMIT_SECONDS=90 # seconds beyond its duration after which a program is killed, because it hangs

# among SYSTEM...: prints the systems that are in SYSTEMS, beginning with a different one in each round
among()
{
	local s all=() n
	for s in "$@"; do
		case " $SYSTEMS " in *" $s "*) all+=("$s") ;; esac
	done
	n=${#all[@]}
	for ((s = 0; s < n; s++)); do
		echo "${all[(s + round) % n]}"
	done
}

# value KEY LINE: prints the value of KEY in a line of KEY=VALUE
value()
{
	sed -n "s/.*\b$1=\([^ ]*\).*/\1/p" <<<"$2"
}

# record WORKLOAD SYSTEM CLIENTS LINE: adds a line of figures to results.csv; keys without a column go into the last
# column
record()
{
	local extra
	extra=$(sed -E 's/\b(ops|all|rate|p50|p90|p99|max)=[^ ]* ?//g; s/ $//; s/,/:/g' <<<"$4")
	printf '%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s\n' "$1" "$2" "$3" "$round" "$(value ops "$4")" "$(value all "$4")" \
		"$(value rate "$4")" "$(value p50 "$4")" "$(value p90 "$4")" "$(value p99 "$4")" "$(value max "$4")" "$extra" \
		>>"$results/results.csv"
	printf '   %-10s %-20s %4s  %10s /s   p50 %9s   p99 %9s us   %s\n' "$1" "$2" "$3" "$(value rate "$4")" "$(value p50 "$4")" \
		"$(value p99 "$4")" "$extra" >&2
}

# is_skipped WORKLOAD SYSTEM CLIENTS: succeeds if SYSTEM cannot take part, and then notes that in results.csv
is_skipped()
{
	case " $skipped " in *" $2 "*) ;; *) return 1 ;; esac
	[ $round -gt 1 ] || echo "$1,$2,$3,1,,,,,,,,skipped" >>"$results/results.csv"
}

failed()
{
	echo "$1, $2, $3 clients, round $round: $(grep -m 1 . "$dir/client.err" || true)" | tee -a "$results/failures" >&2
}

# program SYSTEM WORKLOAD CLIENTS SECONDS ...: sets $line to the output of the client program; fails if the program
# fails
program()
{
	local start=$SECONDS pid
	rm -f "$dir/client.out" "$dir/client.err"
	client "$@" >"$dir/client.out" 2>"$dir/client.err" </dev/null &
	pid=$!
	while kill -0 $pid 2>/dev/null; do
		[ $((SECONDS - start)) -lt $((${4%.*} + LIMIT_SECONDS)) ] || { kill -KILL $pid; echo "has hung" >>"$dir/client.err"; }
		sleep 0.05
	done
	wait $pid || return 1
	line=$(head -n 1 "$dir/client.out")
	[ -n "$line" ]
}

# measure WORKLOAD SYSTEM CLIENTS [NAME-OF-THE-PROGRAM'S-WORKLOAD OPTIONS...]
measure()
{
	local workload=$1 system=$2 clients=$3 line before after longer WARMUP=$WARMUP
	! is_skipped "$@" || return 0
	shift 3
	# Java compiles its code while it runs.
	[ "$system" != zookeeper ] || WARMUP=$JAVA_WARMUP
	before=$(wal_position "$system")
	[ -z "$FLUSH_US" ] || longer=$(longer_flushes "$system")
	if program "$system" "${1:-$workload}" "$clients" "$DURATION" warmup="$WARMUP" names="$NAMES" "${@:2}"; then
		after=$(wal_position "$system")
		[ -z "$before" ] || line+=" wal=$((after - before))"
		if is_flushed "$workload" "$system" && [ "$(longer_flushes "$system")" = "$longer" ]; then
			echo "its flushes are not longer" >"$dir/client.err"
			failed "$workload" "$system" "$clients"
		fi
		record "$workload" "$system" "$clients" "$line"
	else
		failed "$workload" "$system" "$clients"
	fi
}

# is_flushed WORKLOAD SYSTEM: succeeds if FLUSH_US is set, and this system must flush in this workload
is_flushed()
{
	[ -n "$FLUSH_US" ] || return 1
	case $2 in lock_election-async | advisory | select1 | redis-everysec | redis-memory) return 1 ;; esac
	case $1 in pairs | each | hot) ;; *) return 1 ;; esac
}

sql()
{
	psql -XAtq -v ON_ERROR_STOP=1 -c "$@"
}

# wal_position SYSTEM: prints the WAL position in bytes, or nothing if the system writes no WAL worth measuring
wal_position()
{
	case $1 in
		lock_election* | portable | table) sql "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')" ;;
	esac
}

section()
{
	echo "-- $*, after $((SECONDS / 60)) min" >&2
}

# extra_systems CLIENTS: prints the systems that are not durable, which are measured only for some numbers of clients
extra_systems()
{
	case " $EXTRA_CLIENTS " in *" $1 "*) echo lock_election-async advisory select1 redis-everysec redis-memory ;; esac
}

workload_pairs()
{
	local c s
	section "acquire and release one of $NAMES random names"
	for ((round = 1; round <= ROUNDS; round++)); do
		for c in $PAIRS_CLIENTS; do
			for s in $(among lock_election portable table etcd zookeeper redis valkey $(extra_systems "$c")); do
				measure pairs "$s" "$c"
			done
		done
	done
}

# Also measures the same clients with one call per name, for comparison.
workload_each()
{
	local c s
	section "100 random names in one call"
	for ((round = 1; round <= ROUNDS; round++)); do
		for c in $EACH_CLIENTS; do
			for s in $(among lock_election portable table etcd redis valkey); do
				measure each "$s" "$c"
			done
			for s in $(among lock_election); do
				measure "each single" "$s" "$c" pairs
			done
		done
	done
}

workload_hot()
{
	local c s
	section "one hot lock"
	for ((round = 1; round <= ROUNDS; round++)); do
		for c in $HOT_CLIENTS; do
			for s in $(among lock_election portable table advisory etcd zookeeper redis valkey); do
				measure hot "$s" "$c"
			done
		done
	done
}

# measure_rounds WORKLOAD CLIENTS "SYSTEM ..." [more arguments of measure]: measures the systems in all rounds
measure_rounds()
{
	local s
	for ((round = 1; round <= ROUNDS; round++)); do
		for s in $(among $3); do
			measure "$1" "$s" "$2" "${@:4}"
		done
	done
}

workload_try()
{
	section "attempts at a lock that somebody else holds"
	measure_rounds try $CLIENTS "lock_election portable table advisory select1 etcd zookeeper redis valkey"
}

workload_renew()
{
	section "renewals"
	measure_rounds renew $CLIENTS "lock_election portable table select1 etcd zookeeper redis valkey"
}

workload_crash()
{
	section "leaders that die"
	DURATION=1 measure_rounds crash $CLIENTS "lock_election portable table advisory etcd zookeeper redis valkey" crash ttl=$CRASH_TTL_MS
}

workload_resign()
{
	section "leaders that resign"
	measure_rounds resign 2 "lock_election portable table advisory etcd zookeeper redis valkey"
}

workload_queue()
{
	local n s
	section "a queue of $QUEUED candidates"
	for ((round = 1; round <= ROUNDS; round++)); do
		for n in $FEW_QUEUED "$QUEUED"; do
			for s in $(among lock_election portable etcd zookeeper); do
				measure "queue $n" "$s" $QUEUE_CLIENTS queue queued="$n" limit="$QUEUE_SECONDS"
			done
		done
	done
}

# The unrelated transaction begins after $BEFORE_SECONDS of the measured time, and lasts until its end.
workload_snapshot()
{
	local s w snapshot DURATION=$((BEFORE_SECONDS + SNAPSHOT_SECONDS))
	section "beside a transaction that holds a snapshot for $SNAPSHOT_SECONDS s"
	for ((round = 1; round <= ROUNDS; round++)); do
		for w in pairs hot; do
			for s in $(among lock_election portable table); do
				sql 'TRUNCATE table_lock'
				PGDATABASE=$(database_of "$s") sql VACUUM
				PGDATABASE=$(database_of "$s") psql -XAtq -c "SELECT pg_sleep($WARMUP + $BEFORE_SECONDS)" -c 'BEGIN ISOLATION LEVEL REPEATABLE READ' \
					-c 'SELECT count(*) FROM pg_class' -c "SELECT pg_sleep($SNAPSHOT_SECONDS + 1)" >/dev/null &
				snapshot=$!
				measure "snapshot $w" "$s" $CLIENTS $w per_second=1
				wait $snapshot
			done
		done
	done
}

# Measures the same number of clients, spread over more and more databases, each with its own manager.
workload_databases()
{
	local n s
	[[ " $servers " = *" postgres "* ]] || return 0
	section "several databases"
	for n in $DATABASES; do
		sql "CREATE DATABASE many$n"
		PGDATABASE=many$n sql "CREATE EXTENSION lock_election"
		PGDATABASE=many$n sql "$TABLE_LOCK"
		PGDATABASE=many$n sql "SELECT release_lock('first', acquire_lock('first'))" >/dev/null
	done
	for ((round = 1; round <= ROUNDS; round++)); do
		for n in $DATABASES; do
			for s in $(among lock_election table); do
				measure "databases $n" "$s" $CLIENTS pairs databases="$n"
			done
		done
	done
}

# Measures while readers keep all processors busy.
workload_busy()
{
	local w s readers
	[[ " $servers " = *" postgres "* ]] || return 0
	section "beside $READERS clients that read"
	pgbench -i -q -s 1 2>"$dir/readers.err"
	for ((round = 1; round <= ROUNDS; round++)); do
		for w in pairs hot; do
			for s in $(among lock_election table); do
				pgbench -n -S -M prepared -c "$READERS" -j 2 -T "$(awk "BEGIN { print int($DURATION + $WARMUP + 2) }")" \
					>"$dir/readers.out" 2>"$dir/readers.err" &
				readers=$!
				sleep 0.5
				measure "busy $w" "$s" $CLIENTS $w
				wait $readers
			done
		done
	done
}

# holder_pid SYSTEM: prints the id of the process whose memory contains the locks: the manager, or the server
holder_pid()
{
	case $1 in
		lock_election) sql 'SELECT pid FROM lock_election.manager' ;;
		portable | table) echo "${server_pid[postgres]}" ;;
		*) echo "${server_pid[$1]}" ;;
	esac
}

disk_usage()
{
	case $1 in
		lock_election | portable | table) PGDATABASE=$(database_of "$1") sql 'SELECT pg_database_size(current_database())' ;;
		*) du -sB1 "$dir/$1" | cut -f 1 ;;
	esac
}

# memory_of SYSTEM: prints the bytes of memory that the locks use: by the manager's own count, by the kernel for other
# servers, and 0 for a table
memory_of()
{
	case $1 in
		lock_election) sql 'SELECT memory FROM lock_election.manager' ;;
		portable | table) echo 0 ;;
		*) anonymous_memory "$(holder_pid "$1")" ;;
	esac
}

# hold SYSTEM: acquires HELD locks, and records their memory. If locks end with a session, the program keeps it open
# until the end of its standard input, which is file descriptor 9.
hold()
{
	local system=$1 line='' pid memory disk anonymous
	! is_skipped held "$system" $CLIENTS || return 0
	rm -f "$dir/client.out"
	memory=$(memory_of "$system")
	anonymous=$(anonymous_memory "$(holder_pid "$system")")
	disk=$(disk_usage "$system")
	PGOPTIONS='-c synchronous_commit=off' client "$system" fill $CLIENTS "$FILL_SECONDS" names="$HELD" \
		<"$dir/holding" >"$dir/client.out" 2>"$dir/client.err" &
	pid=$!
	until [ -s "$dir/client.out" ] || ! kill -0 $pid 2>/dev/null; do
		sleep 0.1
	done
	line=$(head -n 1 "$dir/client.out")
	if [ -n "$line" ]; then
		line+=" memory=$(($(memory_of "$system") - memory)) anonymous=$(($(anonymous_memory "$(holder_pid "$system")") - anonymous))"
		record held "$system" $CLIENTS "$line disk=$(($(disk_usage "$system") - disk))"
	else
		failed held "$system" $CLIENTS
	fi
}

# Uses a separate database, because the other workloads have changed the size of their database.
workload_held()
{
	local s round=1 PGDATABASE=held
	section "$HELD held locks"
	case " $servers " in *" postgres "*)
		PGDATABASE=postgres sql 'CREATE DATABASE held'
		sql 'CREATE EXTENSION lock_election'
		sql "$TABLE_LOCK"
		sql "SELECT release_lock('first', acquire_lock('first'))" >/dev/null
		install_portable "$(database_of portable)"
		;;
	esac
	mkfifo "$dir/holding"
	exec 9<>"$dir/holding"
	for s in $(among lock_election portable table etcd zookeeper redis valkey); do
		hold "$s"
	done
	for ((round = 1; round <= ROUNDS; round++)); do
		for s in $(among lock_election portable table etcd zookeeper redis valkey); do
			measure "held pairs" "$s" $CLIENTS pairs
		done
	done
}
