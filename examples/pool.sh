#!/bin/bash
# A worker of the pool, with lockctl and psql: pool.sh NAME [CONNECTION-STRING]
set -u
name=$1 connection=${2:-}

# The fence comes first: all later writes of the transaction are the leader's, or fail.
work()
{
	psql -XqAt -v ON_ERROR_STOP=1 -v VERBOSITY=verbose -v name="$name" ${connection:+-d "$connection"} <<-'SQL'
		\getenv term LOCK_TOKEN
		BEGIN;
		SET LOCAL idle_in_transaction_session_timeout = '5 s';
		SELECT fence_leader('pool', :term) \g /dev/null
		UPDATE work SET done = done + 1, term = :term, worker = :'name' WHERE id = 1;
		COMMIT;
	SQL
}

# lockctl has started this script as the leader, and ends it when the term ends, so it needs no renewal and no clock.
if [ "${LOCK_NAME-}" = pool ]; then
	echo "$name: leads, term $LOCK_TOKEN"
	while :; do
		work
		sleep 0.2
	done
fi

stopping= child=
trap 'stopping=1; [ ! "$child" ] || kill "$child"' TERM INT

# In the background, because bash does not handle a signal while a foreground command runs.
while [ ! "$stopping" ]; do
	lockctl ${connection:+-d "$connection"} elect pool "$name" --ttl 3s -- "$0" "$@" &
	child=$!
	[ ! "$stopping" ] || kill "$child"
	wait "$child"
	case $? in
		4) echo "$name: lost, stands again" ;;
		69) sleep 1 ;; # no server: perhaps there is one soon
	esac
done
wait "$child" # the first wait has ended with the signal
echo "$name: resigned"
