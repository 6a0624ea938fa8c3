#!/bin/bash
# Measures the figures that the design promises, in a throw-away cluster with fsync on. Both values of a ratio come from
# the same run. "make bench" also measures most of (a), (b), (c), (d) and (i), together with the peers; the other
# sections are only here.
#
#   SECTIONS="a b c d e f g h i j k l m" the sections: (a) random names, compared with a lock table; (b) one hot lock;
#                          (c) the hot lock while a snapshot is held; (d) renewals, compared with SELECT 1; (e) very
#                          many held locks; (f) a long queue; (g) very many leases; (h) many locks acquired together;
#                          (i) leaders that die or resign; (j) advisory locks, compared with PostgreSQL's own functions;
#                          (k) an election with very many observers, in a separate cluster; (l) many independent locks
#                          in one call, compared with single calls, and with statements for as many rows of a table; (m)
#                          the portable edition, compared with a lock table
#   ROUNDS=5 DURATION=5    number of alternating rounds, whose medians are the results, and seconds of each measurement
#   SNAPSHOT_SECONDS=60    (c) seconds for which the snapshot is held
#   RESTART_DEAD=1         (c) also measures a restart of the manager with DEAD_ROWS=10000000 dead row versions
#   HELD=1000000           (e) number of held locks
#   QUEUED=10000           (f) number of waiters of one lock
#   LEASES=100000          (g) number of leases
#   NAMES=100              (h) (l) number of locks in one call
#   LEADERS=100            (i) number of leaders that die; each takes 1.5 s
#   OBSERVERS=1000         (k) number of observers
#   PORTABLE_HELD=100000   (m) number of held locks
#   TMPDIR                 directory of the cluster; a file system in memory would measure no flushes
#   PG_MAJOR               PostgreSQL's version
set -eu
if [ -z "${LE_RUN:-}" ]; then
	. "$(dirname "$0")/../test/common.sh"
	le_prepare
	le_run bench/quick.sh
	exit
fi

SECTIONS=${SECTIONS:-a b c d e f g h i j k l m}
ROUNDS=${ROUNDS:-5}
DURATION=${DURATION:-5}
SNAPSHOT_SECONDS=${SNAPSHOT_SECONDS:-60}
BEFORE_SECONDS=20
TAIL_SECONDS=10
RESTART_DEAD=${RESTART_DEAD:-}
DEAD_ROWS=${DEAD_ROWS:-10000000}
HELD=${HELD:-1000000}
FEW_HELD=1000
QUEUED=${QUEUED:-10000}
FEW_QUEUED=10
LEASES=${LEASES:-100000}
NAMES=${NAMES:-100}
LEADERS=${LEADERS:-100}
OBSERVERS=${OBSERVERS:-1000}
PORTABLE_HELD=${PORTABLE_HELD:-100000}
RESIGNATIONS=500
HAND_OFFS=2000
FILL_CLIENTS=8
dir=$LE_RUN/work/bench
declare -A rates

sql()
{
	psql -XAtq -v ON_ERROR_STOP=1 -c "$@"
}

# bench CLIENTS SCRIPT [pgbench options]: prints the transactions per second
bench()
{
	local clients=$1 script=$2
	shift 2
	[ -f "$script.sql" ] || script=bench/$script
	sql CHECKPOINT
	pgbench -n -M prepared -c "$clients" -j 2 -T "$DURATION" -f "$script.sql" "$@" >"$dir/pgbench.out" 2>&1 ||
		{ tail -n 20 "$dir/pgbench.out" "$SERVER_LOG" >&2; return 1; }
	sed -n 's/^tps = \([0-9.]*\).*/\1/p' "$dir/pgbench.out"
}

# measure KEY CLIENTS SCRIPT ...: runs bench, and adds its result to the rates of KEY
measure()
{
	local key=$1 rate
	shift
	rate=$(bench "$@")
	rates[$key]+=" $rate"
	printf '   %-28s %10.0f /s\n' "$key" "$rate" >&2
}

median()
{
	printf '%s\n' ${rates[$1]} | sort -g | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

# figure TEXT VALUE BASE-TEXT BASE RATIO WANTED: adds a line to the table that is printed at the end
figure()
{
	awk -v t="$1" -v v="$2" -v bt="$3" -v b="$4" -v r="$5" -v op="${6%% *}" -v w="${6##* }" 'BEGIN {
		ok = op == ">=" ? r >= w : r <= w
		printf "%-34s %10.0f   %-26s %10.0f   %9.2f   %s %-6s %s\n", t, v, bt, b, r, op, w, ok ? "reached" : "MISSED"
	}' >>"$dir/figures"
}

ratio()
{
	awk -v a="$1" -v b="$2" 'BEGIN { print (b > 0 ? a / b : 0) }'
}

section()
{
	echo "-- $*" >&2
}

# --- (a) random names, compared with a lock table -------------------------------------------------------------------

section_a()
{
	local i c
	section "(a) acquire and release of random names"
	sql 'CREATE TABLE table_lock (name text PRIMARY KEY, owner text NOT NULL, expires_at timestamptz NOT NULL)'
	for ((i = 1; i <= ROUNDS; i++)); do
		for c in 8 32; do
			measure "random, $c clients" $c random
			measure "table lock, $c clients" $c random-table
		done
	done
	for c in 8 32; do
		figure "random names, $c clients, pairs/s" "$(median "random, $c clients")" "table lock" \
			"$(median "table lock, $c clients")" \
			"$(ratio "$(median "random, $c clients")" "$(median "table lock, $c clients")")" ">= 1.8"
	done
}

# --- (b) one hot lock -----------------------------------------------------------------------------------------------

section_b()
{
	local i
	section "(b) one hot lock, 8 clients"
	for ((i = 1; i <= ROUNDS; i++)); do
		measure "hot lock" 8 hot
		measure "random beside hot" 8 random
	done
	figure "hot lock, hand-offs/s" "$(median "hot lock")" "random, pairs/s" "$(median "random beside hot")" \
		"$(ratio "$(median "hot lock")" "$(median "random beside hot")")" ">= 0.4"
}

# --- (c) the hot lock while a snapshot is held ----------------------------------------------------------------------

hold_snapshot()
{
	psql -XAtq -c 'BEGIN ISOLATION LEVEL REPEATABLE READ' -c 'SELECT count(*) FROM pg_class' -c "SELECT pg_sleep(1e6)" \
		>/dev/null 2>&1 &
	snapshot=$!
	until [ "$(sql "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(1e6)%' AND backend_xmin IS NOT NULL")" = 1 ]; do
		sleep 0.05
	done
}

release_snapshot()
{
	sql "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(1e6)%'" >/dev/null
	wait "$snapshot" || true
}

# mean_rate FROM TO: prints the mean rate after second FROM up to second TO of a pgbench that reports every second
mean_rate()
{
	awk -v from="$1" -v to="$2" '$1 == "progress:" && $2 > from + 0.5 && $2 < to + 0.5 { s += $4; n++ }
		END { print (n ? s / n : 0) }' "$dir/progress"
}

dead_rows()
{
	sql "SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_all_tables WHERE schemaname = '_lock_election'"
}

section_c()
{
	local total=$((BEFORE_SECONDS + SNAPSHOT_SECONDS)) before after pgbench snapshot
	section "(c) the hot lock, a snapshot held from second $BEFORE_SECONDS on for $SNAPSHOT_SECONDS s"
	sql CHECKPOINT
	pgbench -n -M prepared -c 8 -j 2 -T $((total + 1)) -P 1 -f bench/hot.sql >"$dir/progress" 2>&1 &
	pgbench=$!
	until grep -q "^progress: $BEFORE_SECONDS\." "$dir/progress"; do
		kill -0 $pgbench || { tail -n 5 "$dir/progress" >&2; return 1; }
		sleep 0.05
	done
	hold_snapshot
	wait $pgbench
	before=$(mean_rate $((BEFORE_SECONDS - TAIL_SECONDS)) $BEFORE_SECONDS)
	after=$(mean_rate $((total - TAIL_SECONDS)) $total)
	figure "hot lock, last $TAIL_SECONDS s of the snapshot" "$after" "before it" "$before" "$(ratio "$after" "$before")" ">= 0.85"
	[ -z "$RESTART_DEAD" ] || section_restart
	release_snapshot
}

section_restart()
{
	local dead start end old
	section "(c) dead row versions up to $DEAD_ROWS, then a restart of the manager"
	dead=$(dead_rows)
	while [ "$dead" -lt "$DEAD_ROWS" ]; do
		DURATION=30 bench 8 hot >/dev/null
		dead=$(dead_rows)
		printf '   %s dead rows\n' "$dead" >&2
	done
	old=$(sql 'SELECT pid FROM lock_election.manager')
	start=$EPOCHREALTIME
	sql "SELECT pg_terminate_backend($old, 60000)" >/dev/null
	until sql "SELECT release_lock('after', acquire_lock('after'))" >/dev/null 2>"$dir/restart.err"; do
		sleep 0.02
	done
	end=$EPOCHREALTIME
	[ "$(sql 'SELECT pid FROM lock_election.manager')" != "$old" ] || { echo "the manager did not restart" >&2; return 1; }
	figure "manager restart, s" "$(awk "BEGIN { print $end - $start }")" "dead rows" "$dead" \
		"$(awk "BEGIN { print $end - $start }")" "<= 10"
}

# --- (d) renewals ---------------------------------------------------------------------------------------------------

section_d()
{
	local i
	section "(d) renew_lock, 8 clients"
	for ((i = 1; i <= ROUNDS; i++)); do
		measure "renew_lock" 8 renew -D t=0 -D round=$i
		measure "SELECT 1" 8 select1
	done
	figure "renew_lock, /s" "$(median renew_lock)" "SELECT 1, /s" "$(median "SELECT 1")" \
		"$(ratio "$(median renew_lock)" "$(median "SELECT 1")")" ">= 0.45"
}

# --- (e) very many held locks ---------------------------------------------------------------------------------------

# fill DATABASE COUNT: acquires COUNT locks, without flushes, because their durability is not measured
fill()
{
	local batch=5000 per_client=$(($2 / FILL_CLIENTS))
	[ $per_client -ge $batch ] || batch=$per_client
	PGOPTIONS='-c synchronous_commit=off' PGDATABASE=$1 pgbench -n -M prepared -c $FILL_CLIENTS -j 2 -t $((per_client / batch)) \
		-D k=0 -D per_client=$per_client -D batch=$batch -f bench/fill.sql >"$dir/pgbench.out" 2>&1 ||
		{ tail -n 20 "$dir/pgbench.out" "$SERVER_LOG" >&2; return 1; }
}

section_e()
{
	local i memory few_memory held
	section "(e) $HELD held locks"
	for i in few many; do
		sql "CREATE DATABASE $i"
		PGDATABASE=$i sql 'CREATE EXTENSION lock_election'
	done
	fill few $FEW_HELD
	fill many "$HELD"
	held=$(PGDATABASE=many sql 'SELECT count(*) FROM lock_election.locks')
	memory=$(PGDATABASE=many sql 'SELECT memory FROM lock_election.manager')
	# The rates and the size per lock are meaningless if the locks are not held.
	[ "$held" -ge $((HELD * 9 / 10)) ] || { echo "only $held of $HELD locks are held" >&2; return 1; }
	few_memory=$(PGDATABASE=few sql 'SELECT memory FROM lock_election.manager')
	awk '/VmRSS|RssAnon/ { print "   manager " $1, $2, $3 }' "/proc/$(PGDATABASE=many sql 'SELECT pid FROM lock_election.manager')/status" >&2
	printf '   memory with %s held: %s, with %s held: %s\n' $FEW_HELD "$few_memory" "$held" "$memory" >&2
	for ((i = 1; i <= ROUNDS; i++)); do
		PGDATABASE=few measure "pairs/s, $FEW_HELD held" 8 random
		PGDATABASE=many measure "pairs/s, $HELD held" 8 random
	done
	figure "manager's memory, bytes" "$memory" "locks held" "$held" "$(ratio "$memory" "$held")" "<= 500"
	figure "pairs/s with $HELD held" "$(median "pairs/s, $HELD held")" "with $FEW_HELD held" \
		"$(median "pairs/s, $FEW_HELD held")" \
		"$(ratio "$(median "pairs/s, $HELD held")" "$(median "pairs/s, $FEW_HELD held")")" ">= 0.8"
}

# --- (f) a long queue -----------------------------------------------------------------------------------------------

# queue COUNT: prints the microseconds of a hand-off with COUNT entries in the queue
queue()
{
	psql -XAtq -v ON_ERROR_STOP=1 -v queued="$1" -v hand_offs=$HAND_OFFS -f bench/queue.sql
}

section_f()
{
	local i us n sent hand_offs
	section "(f) hand-offs of a lock with $QUEUED entries in its queue"
	sql 'SELECT lock_election.stat_reset()' >/dev/null
	for ((i = 1; i <= ROUNDS; i++)); do
		for n in $FEW_QUEUED "$QUEUED"; do
			sql CHECKPOINT
			us=$(queue "$n")
			rates["hand-off, $n queued"]+=" $us"
			printf '   %-28s %10.0f us\n' "hand-off, $n queued" "$us" >&2
		done
	done
	hand_offs=$(sql 'SELECT handoffs FROM lock_election.stat')
	for ((i = 0; i < 100; i++)); do
		sent=$(sql 'SELECT hints_sent FROM lock_election.stat')
		[ "$sent" -lt "$hand_offs" ] || break
		sleep 0.1
	done
	figure "notifications" "$sent" "hand-offs" "$hand_offs" "$(ratio "$sent" "$hand_offs")" ">= 1"
	figure "hand-off, $QUEUED queued, us" "$(median "hand-off, $QUEUED queued")" "$FEW_QUEUED queued" \
		"$(median "hand-off, $FEW_QUEUED queued")" \
		"$(ratio "$(median "hand-off, $QUEUED queued")" "$(median "hand-off, $FEW_QUEUED queued")")" "<= 1.2"
}

# --- (g) very many leases -------------------------------------------------------------------------------------------

section_g()
{
	local i first held leases=$((LEASES / FILL_CLIENTS * FILL_CLIENTS))
	section "(g) $leases leases kept alive, 8 clients"
	PGOPTIONS='-c synchronous_commit=off' pgbench -n -M prepared -c $FILL_CLIENTS -j 2 -t 1 \
		-D per_client=$((leases / FILL_CLIENTS)) -f bench/leases.sql >"$dir/pgbench.out" 2>&1 ||
		{ tail -n 20 "$dir/pgbench.out" "$SERVER_LOG" >&2; return 1; }
	first=$(sql 'SELECT min(lease) FROM lock_election.leases')
	for ((i = 1; i <= ROUNDS; i++)); do
		measure "keep_alive" 8 keep-alive -D first="$first" -D leases=$leases
		measure "SELECT 1 beside leases" 8 select1
	done
	# Without a living lease, keep_alive would measure something else.
	held=$(sql "SELECT count(*) FROM lock_election.leases WHERE lease BETWEEN $first AND $first + $leases - 1")
	[ "$held" = $leases ] || { echo "only $held of $leases leases are alive" >&2; return 1; }
	figure "keep_alive of $leases leases, /s" "$(median keep_alive)" "SELECT 1, /s" "$(median "SELECT 1 beside leases")" \
		"$(ratio "$(median keep_alive)" "$(median "SELECT 1 beside leases")")" ">= 0.45"
}

# --- (h) many locks acquired together -------------------------------------------------------------------------------

# In both scripts, the revocation of a lease releases all locks.
section_h()
{
	local i
	section "(h) $NAMES locks by one client, in one call against one each"
	{
		echo 'SELECT grant_lease() AS lease \gset'
		for ((i = 1; i <= NAMES; i++)); do
			echo "SELECT acquire_lock('name $i', lease => :lease);"
		done
		echo 'SELECT revoke_lease(:lease);'
	} >"$dir/one-each.sql"
	cat >"$dir/at-once.sql" <<-SQL
		SELECT grant_lease() AS lease \gset
		SELECT acquire_locks(ARRAY(SELECT 'name ' || n FROM generate_series(1, $NAMES) AS n), lease => :lease);
		SELECT revoke_lease(:lease);
	SQL
	for ((i = 1; i <= ROUNDS; i++)); do
		measure "at once" 1 "$dir/at-once"
		measure "one each" 1 "$dir/one-each"
	done
	figure "$NAMES locks at once, times/s" "$(median "at once")" "one by one" "$(median "one each")" \
		"$(ratio "$(median "at once")" "$(median "one each")")" ">= 10"
}

# --- (i) leaders that die or resign ---------------------------------------------------------------------------------

# column FILE COLUMN P: prints the P-th percentile of the column
column()
{
	awk -v c="$2" '{ print $c }' "$1" | sort -n | awk -v p="$3" '{ v[NR] = $1 } END { n = int((NR * p + 99) / 100); if (n < 1) n = 1; print v[n] }'
}

build_election()
{
	cc -O2 -Wall -I"$(pg_config --includedir)" -o "$dir/election" bench/election.c -L"$(pg_config --libdir)" -lpq
}

section_i()
{
	local us
	section "(i) $LEADERS leaders with a TTL of 1 s die, then $RESIGNATIONS resign"
	build_election
	sql CHECKPOINT
	"$dir/election" crash "$LEADERS" >"$dir/crash"
	"$dir/election" hand-off $RESIGNATIONS >"$dir/hand-off"
	us=$(column "$dir/crash" 2 99)
	figure "next leader, p99, us after" "$us" "last renewal's answer + TTL" 1000000 "$(ratio "$us" 1000000)" "<= 1.02"
	us=$(column "$dir/crash" 1 0)
	figure "next leader, soonest, us after" "$us" "last renewal's sending + TTL" 1000000 "$(ratio "$us" 1000000)" ">= 1"
	figure "resign to next leader, p50, us" "$(column "$dir/hand-off" 2 50)" "release to next holder, p50" "$(column "$dir/hand-off" 1 50)" \
		"$(ratio "$(column "$dir/hand-off" 2 50)" "$(column "$dir/hand-off" 1 50)")" "<= 2"
}

# --- (j) advisory locks ---------------------------------------------------------------------------------------------

section_j()
{
	local i
	section "(j) advisory_acquire and advisory_release of random names, 8 clients"
	for ((i = 1; i <= ROUNDS; i++)); do
		measure "advisory" 8 advisory
		measure "pg_try_advisory_lock" 8 advisory-bare
	done
	figure "advisory, pairs/s" "$(median advisory)" "pg_try_advisory_lock" "$(median pg_try_advisory_lock)" \
		"$(ratio "$(median advisory)" "$(median pg_try_advisory_lock)")" ">= 0.9"
}

# --- (k) an election with observers ---------------------------------------------------------------------------------

# Runs in a subshell, so that the other sections continue to use their cluster.
section_k()
(
	section "(k) $RESIGNATIONS hand-offs of an election without and with $OBSERVERS observers, by turns"
	build_election
	server_start observed "$server_conf
		max_connections = $((OBSERVERS + 100))"
	"$dir/election" observed $RESIGNATIONS "$OBSERVERS" >"$dir/observed"
	pg_ctl -D "$PGHOST/data" -m fast -w -s stop
	figure "resign to next leader, p50, us" "$(column "$dir/observed" 2 50)" "without observers" "$(column "$dir/observed" 1 50)" \
		"$(ratio "$(column "$dir/observed" 2 50)" "$(column "$dir/observed" 1 50)")" "<= 1.1"
	printf '   the last of %s observers has been told after %s us (p50), %s us (p99); none has missed a change\n' \
		"$OBSERVERS" "$(column "$dir/observed" 3 50)" "$(column "$dir/observed" 3 99)" >&2
)

# --- (l) many independent locks in one call -------------------------------------------------------------------------

section_l()
{
	local i c
	section "(l) $NAMES random names a call, each for itself, against single calls and a table"
	sql 'CREATE TABLE IF NOT EXISTS table_lock (name text PRIMARY KEY, owner text NOT NULL, expires_at timestamptz NOT NULL)'
	cat >"$dir/each.sql" <<-SQL
		SELECT array_agg(name) AS names, array_agg(token) AS tokens FROM try_acquire_each(ARRAY(SELECT DISTINCT 'k' || (random() * 1000000)::int FROM generate_series(1, $NAMES))) \\gset
		SELECT * FROM release_each(:names, :tokens);
	SQL
	cat >"$dir/each-table.sql" <<-SQL
		WITH n AS (INSERT INTO table_lock AS l SELECT DISTINCT 'k' || (random() * 1000000)::int, (:client_id)::text, now() + interval '30 s' FROM generate_series(1, $NAMES) ORDER BY 1 ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at WHERE l.expires_at < now() RETURNING name) SELECT array_agg(name) AS names FROM n \\gset
		DELETE FROM table_lock WHERE name = ANY (:names) AND owner = (:client_id)::text;
	SQL
	for ((i = 1; i <= ROUNDS; i++)); do
		measure "single calls, 8 clients" 8 random
		for c in 1 4 8; do
			measure "each, $c clients" "$c" "$dir/each"
			measure "table, $c clients" "$c" "$dir/each-table"
		done
	done
	for c in 1 4 8; do
		rates["each, pairs, $c"]=$(median "each, $c clients" | awk "{ print \$1 * $NAMES }")
		rates["table, pairs, $c"]=$(median "table, $c clients" | awk "{ print \$1 * $NAMES }")
		figure "pairs/s, $NAMES a call, $c clients" "${rates["each, pairs, $c"]}" "a table, the same" "${rates["table, pairs, $c"]}" \
			"$(ratio "${rates["each, pairs, $c"]}" "${rates["table, pairs, $c"]}")" ">= 1"
		figure "pairs/s, $NAMES a call, $c clients" "${rates["each, pairs, $c"]}" "single calls, 8 clients" "$(median "single calls, 8 clients")" \
			"$(ratio "${rates["each, pairs, $c"]}" "$(median "single calls, 8 clients")")" ">= 4"
	done
}

# --- (m) the portable edition ---------------------------------------------------------------------------------------

# Both systems flush each acquire and each release: the portable edition's SQL functions never lower synchronous_commit.
section_m()
{
	local i c held PGDATABASE=portable
	local -A wanted=([1]=0.77 [8]=0.8 [32]=0.67)
	section "(m) the portable edition: random names, and a hot lock, against a table lock, and beside $PORTABLE_HELD held locks"
	PGDATABASE=postgres sql 'CREATE DATABASE portable'
	psql -Xq -v ON_ERROR_STOP=1 -1 -f sql/portable/lock_election.sql
	sql 'CREATE TABLE table_lock (name text PRIMARY KEY, owner text NOT NULL, expires_at timestamptz NOT NULL)'
	for ((i = 1; i <= ROUNDS; i++)); do
		for c in 1 8 32; do
			measure "portable, $c clients" $c random
			measure "table lock beside, $c" $c random-table
		done
		measure "portable, hot lock" 8 hot
	done
	for c in 1 8 32; do
		figure "portable edition, $c clients, pairs/s" "$(median "portable, $c clients")" "table lock" "$(median "table lock beside, $c")" \
			"$(ratio "$(median "portable, $c clients")" "$(median "table lock beside, $c")")" ">= ${wanted[$c]}"
	done
	figure "portable edition, hot lock, /s" "$(median "portable, hot lock")" "table lock, random, 8 clients" "$(median "table lock beside, 8")" \
		"$(ratio "$(median "portable, hot lock")" "$(median "table lock beside, 8")")" ">= 0"
	PGOPTIONS='-c synchronous_commit=off' sql "DO \$\$ BEGIN FOR i IN 1 .. $PORTABLE_HELD / 1000 LOOP
		PERFORM acquire_lock('held' || i || ' ' || j, '1 h') FROM generate_series(1, 1000) j; COMMIT; END LOOP; END \$\$"
	held=$(sql 'SELECT count(*) FROM lock_election.locks')
	for ((i = 1; i <= ROUNDS; i++)); do
		measure "portable, many held" 8 random
	done
	figure "portable edition with $held held" "$(median "portable, many held")" "with none" "$(median "portable, 8 clients")" \
		"$(ratio "$(median "portable, many held")" "$(median "portable, 8 clients")")" ">= 0.8"
}

# No limits, because one role holds up to a million locks.
server_conf="shared_buffers = 256MB
	lock_election.max_locks_per_role = 0
	lock_election.max_leases_per_role = 0
	lock_election.max_waiters_per_lock = 0
	lock_election.max_memory_per_role = 0
	lock_election.max_history_per_role = 0
	lock_election.max_memory = 8GB"
. test/lib/server.sh
server_start bench "$server_conf"
: >"$dir/figures"
for s in $SECTIONS; do
	section_$s
done
echo
echo "$(postgres -V), $(nproc) processors, data on $(stat -f -c %T "$dir"), medians of $ROUNDS rounds of $DURATION s (c: one run)"
printf '%-34s %10s   %-26s %10s   %9s   %s\n' figure value "compared with" value ratio wanted
cat "$dir/figures"
