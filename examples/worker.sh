#!/bin/bash
# A worker of the pool in bash and SQL; psql and nothing else. It keeps no connection: its owner is its identity, so each
# call may come through another one.
#
#   examples/worker.sh NAME          the database: PGHOST, PGDATABASE, ... as for psql
set -u
name=$1
owner=$(cat /proc/sys/kernel/random/uuid)
term=

# One statement or transaction from standard input; fails with psql.
sql()
{
	psql -XAtq -v ON_ERROR_STOP=1 -v VERBOSITY=sqlstate -v name="$name" -v owner="$owner" -v term="$term" 2>&1
}

# The next in order leads at once, and need not wait for our TTL.
leave()
{
	[ -z "$term" ] || sql <<<"SELECT resign('pool', :term);" >/dev/null
	echo "$name leaves"
	exit 0
}
trap leave TERM INT

while true; do
	# Waits for a second at most, so that a signal is served. The same owner gets the term that it has already.
	if ! term=$(sql <<<"SELECT campaign('pool', :'name', ttl => '3 s', wait => '1 s', owner => :'owner');"); then
		echo "$name: $term"
		term=
		sleep 1
		continue
	fi
	[ -n "$term" ] || continue
	echo "$name leads, term $term"
	renewed=$SECONDS
	while true; do
		# From the fence to the commit nobody else can be elected. LE001: somebody else is.
		error=$(sql <<-'SQL'
			BEGIN;
			SELECT FROM fence_leader('pool', :term);
			INSERT INTO work SELECT coalesce(max(number), 0) + 1, :term, :'name' FROM work;
			COMMIT;
		SQL
		) || break
		if ((SECONDS > renewed)); then
			valid=$(sql <<<"SELECT renew_leadership('pool', :term);") && [ -n "$valid" ] || break
			renewed=$SECONDS
		fi
		sleep 0.1
	done
	echo "$name leads no more: ${error:-lost}"
	term=
done
