#!/bin/bash
# The demo itself: psql sessions A, B and C side by side. Each line begins with the seconds since the start; "<-" marks
# statements sent to a session, "->" its replies.
set -eu
. test/lib/server.sh

server_start demo ''
dir=$LE_RUN/work/demo
start=${EPOCHREALTIME/[.,]/}
declare -A input pid

# line WHO TEXT
line()
{
	local us=$((${EPOCHREALTIME/[.,]/} - start))
	printf '%7d.%03d s  %-3s %s\n' $((us / 1000000)) $((us / 1000 % 1000)) "$1" "$2"
}

say()
{
	echo
	echo "--- $*"
}

# Starts a psql that reads from a pipe, and prints its replies with the time.
session()
{
	local fd
	mkfifo "$dir/$1.in" "$dir/$1.out"
	: >"$dir/$1.answers"
	psql -XAtq -P null=NULL -v VERBOSITY=terse -f - <"$dir/$1.in" >"$dir/$1.out" 2>&1 &
	pid[$1]=$!
	while IFS= read -r text; do
		[ -n "$text" ] || continue # a function that returns nothing
		line "$1" "-> ${text#psql:<stdin>:*: }"
		case $text in
			*NOTICE:* | *WARNING:* | *DETAIL:* | *HINT:*) ;;
			*) echo "$text" >>"$dir/$1.answers" ;;
		esac
	done <"$dir/$1.out" &
	exec {fd}>"$dir/$1.in"
	input[$1]=$fd
}

send()
{
	line "$1" "<- $2"
	: >"$dir/$1.answers"
	echo "$2" >&"${input[$1]}"
}

# Waits for the session's reply to the last statement, and stores it in $answer.
await()
{
	local i
	for ((i = 0; i < 1500; i++)); do
		answer=$(tail -n 1 "$dir/$1.answers")
		[ -z "$answer" ] || return 0
		sleep 0.01
	done
	echo "session $1 got no answer; the server's log:" >&2
	tail -n 20 "$SERVER_LOG" >&2
	exit 1
}

ask()
{
	send "$1" "$2"
	await "$1"
}

# Waits until this many sessions wait, according to the view.
until_waiting()
{
	local i
	for ((i = 0; i < 500; i++)); do
		[ "$(psql -XAtqc 'SELECT count(*) FROM lock_election.waiters')" != "$1" ] || return 0
		sleep 0.02
	done
	echo "expected $1 waiters, found: $(psql -XAtqc 'SELECT * FROM lock_election.waiters')" >&2
	exit 1
}

show()
{
	line '' "$1"
	psql -Xq -P footer=off -c "$1" | sed '/^$/d; s/^/                /'
}

echo "A throw-away PostgreSQL $(postgres -V | sed 's/[^0-9]*//') with shared_preload_libraries = 'lock_election'."
session A
session B
session C

say "A takes the lock; B and C wait, in order of arrival."
ask A "SELECT acquire_lock('invoices', ttl => '30 s');"
token=$answer
send B "SELECT acquire_lock('invoices', ttl => '30 s');"
until_waiting 1
send C "SELECT acquire_lock('invoices', ttl => '30 s');"
until_waiting 2
show "SELECT name, mode, token, time_left, waiters FROM lock_election.locks;"
show "SELECT name, queue_position, waiting_since FROM lock_election.waiters ORDER BY queue_position;"

say "Each release hands the lock to the next; tokens only grow."
ask A "SELECT release_lock('invoices', $token);"
await B
ask B "SELECT release_lock('invoices', $answer);"
await C
ask C "SELECT release_lock('invoices', $answer);"

say "A holder that stops renewing loses the lock to the next when its time to live is over, not earlier."
ask A "SELECT acquire_lock('invoices', ttl => '2 s');"
token=$answer
send B "SELECT acquire_lock('invoices', ttl => '30 s');"
until_waiting 1
sleep 1
ask A "SELECT renew_lock('invoices', $token);"
line A "   ... is silent from now on"
await B
next=$answer
ask A "SELECT renew_lock('invoices', $token);"
ask A "SELECT release_lock('invoices', $token);"
ask B "SELECT release_lock('invoices', $next);"

say "With ttl => NULL the lock lives as long as the connection: the holder's client is killed."
ask C "SELECT acquire_lock('invoices', ttl => NULL);"
send A "SELECT acquire_lock('invoices', ttl => '30 s');"
until_waiting 1
show "SELECT name, mode, token, time_left, waiters FROM lock_election.locks;"
line C "   ... kill -9"
{ kill -9 "${pid[C]}"; wait "${pid[C]}" || true; } 2>/dev/null # bash reports who was killed
await A
ask A "SELECT release_lock('invoices', $answer);"

say "Two replicas campaign; the leader falls silent, the other leads after its TTL, and a late write is refused."
psql -XAtqc 'CREATE TABLE work (term bigint, done text);' \
	-c "CREATE TRIGGER leader_only BEFORE INSERT ON work FOR EACH ROW
		EXECUTE FUNCTION fence_guard('scheduler', 'election')"
ask A "SELECT campaign('scheduler', 'replica A', ttl => '2 s');"
term=$answer
send B "SELECT campaign('scheduler', 'replica B', ttl => '30 s');"
until_waiting 1
fence="BEGIN; SELECT fence_leader('scheduler', $term);"
ask A "$fence INSERT INTO work VALUES ($term, 'in time') RETURNING *; COMMIT;"
await B
next=$answer
ask A "$fence INSERT INTO work VALUES ($term, 'late'); COMMIT;"
show "SELECT candidate, term FROM current_leader('scheduler');"
show "SELECT how, candidate, term, changed_at FROM election_history('scheduler');"
ask B "SELECT resign('scheduler', $next);"

say "A job that must not run twice in a minute: its name stays closed when it has ended."
ask A "SELECT acquire_lock('nightly report', ttl => '1 min');"
ask A "SELECT release_lock('nightly report', $answer, hold_for => '1 min');"
ask B "SELECT acquire_lock('nightly report', wait => '0');"
show "SELECT name, mode, waiters, date_trunc('second', closed_until - now()) AS closed_for FROM lock_election.locks;"

say "What the manager has done for all this, each batch with one transaction and at most one flush."
show "SELECT acquires, grants, waits, handoffs, renewals, releases, expiries FROM lock_election.stat;"
show "SELECT batches, transaction_ids, rows_written, flushes, stalls FROM lock_election.stat;"
echo
echo "To try it by hand: make play"

# The sessions end before the server.
for who in A B; do
	echo '\q' >&"${input[$who]}"
	wait "${pid[$who]}" || true
done
