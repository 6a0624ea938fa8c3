#!/bin/bash
# The work of the leader. lockctl starts it, and ends it before another pod can lead: no renewal here, and no clock.
stopping=
trap 'stopping=1' TERM INT

while [ ! "$stopping" ]; do
	touch /run/pool/step # for the liveness probe
	# The fence comes first: all later writes of the transaction are the leader's, or fail.
	psql -Xq -v ON_ERROR_STOP=1 -v worker="$POD_NAME" <<-'SQL'
		\getenv term LOCK_TOKEN
		BEGIN;
		SET LOCAL idle_in_transaction_session_timeout = '5 s';
		SELECT fence_leader('pool', :term) \g /dev/null
		UPDATE work SET done = done + 1, term = :term, worker = :'worker' WHERE id = 1;
		COMMIT;
	SQL
	sleep 0.2
done
