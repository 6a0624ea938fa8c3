#!/bin/bash
# Starts psql on a throw-away PostgreSQL with the extension, for experiments. Installs missing packages, and leaves
# nothing else behind. PG_MAJOR selects PostgreSQL's version.
. "$(dirname "$0")/common.sh"

le_prepare
le_run test/lib/play-server.sh
. "$LE_TMP/work/play/settings"

cat <<EOT

A throw-away PostgreSQL $PG_MAJOR with lock_election; this psql ends it with \\q. Open a second window beside it:

    $LE_BIN/psql -X -P pager=off -v PROMPT1='other=> ' -h $PGHOST -p $PGPORT -U postgres

Then, in this one:                                      in the other one:

    SELECT acquire_lock('invoices', ttl => '5 min');        SELECT acquire_lock('invoices', ttl => '1 min');
    SELECT * FROM lock_election.waiters \\gx                 -- it waits
    SELECT release_lock('invoices');                        -- it has the lock
    SELECT * FROM lock_election.locks \\gx

For scripts, lockctl and other programs:

    export PGHOST=$PGHOST PGPORT=$PGPORT PGUSER=postgres PGDATABASE=postgres

Java: jdbc:postgresql://127.0.0.1:$PGPORT/postgres?user=postgres&password=$password

EOT

# In the foreground: it wants the terminal, and Ctrl-C is for psql.
trap ':' INT
"${LE_ENV[@]}" PGHOST="$PGHOST" PGPORT="$PGPORT" PGUSER=postgres PGDATABASE=postgres "${LE_AS[@]}" \
	psql -X -P pager=off -v PROMPT1='=> ' -v PROMPT2='-> '
