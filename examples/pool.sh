#!/bin/bash
# A worker of the pool, with nothing but psql: pool.sh NAME [CONNECTION-STRING]
set -u
name=$1 connection=${2:-}
owner=$(cat /proc/sys/kernel/random/uuid) # new for each process: a worker that is started again is another one
term= stopping=
trap 'stopping=1' TERM INT

say() { echo "$name: $*"; }

# Each call is a connection of its own: the term belongs to the owner, not to the connection. In the background, because
# bash does not hear Ctrl-C while a command in the foreground handles it.
sql()
{
	psql -XqAt -v ON_ERROR_STOP=1 -v VERBOSITY=verbose -v name="$name" -v owner="$owner" -v term="$term" \
		${connection:+-d "$connection"} <&0 &
	wait $!
}

# The fence first: what follows it in the transaction is written by the leader, or not at all.
work()
{
	sql <<-'SQL'
		BEGIN;
		SET LOCAL idle_in_transaction_session_timeout = '5 s';
		SELECT fence_leader('pool', :term) \g /dev/null
		UPDATE work SET done = done + 1, term = :term, worker = :'name' WHERE id = 1;
		COMMIT;
	SQL
}

# Works until told to stop; fails when anything went wrong.
lead()
{
	local renewed=$SECONDS
	while [ ! "$stopping" ]; do
		work || return
		if ((SECONDS - renewed >= 1)); then # a third of the TTL
			renewed=$SECONDS
			[ "$(sql <<<"SELECT renew_leadership('pool', :term)")" ] || return
		fi
		sleep 0.2
	done
}

# Waits a few seconds at a time, so that it can be stopped. Who still leads gets the same term again.
while [ ! "$stopping" ]; do
	if ! term=$(sql <<<"SELECT campaign('pool', :'name', ttl => '3 s', wait => '3 s', owner => :'owner')"); then
		sleep 1 # no server: perhaps there is one soon
	elif [ "$term" ]; then
		say "leads, term $term"
		lead || [ "$stopping" ] || say "no longer sure to lead: campaigns again"
	fi
done

# Then the next leads at once, not when the TTL ends.
if [ "$term" ] && [ "$(sql <<<"SELECT resign('pool', :term)")" = t ]; then
	say "resigned"
fi
