#!/bin/bash
# The server of test/play.sh, which finds it by the file "settings". Java cannot use Unix sockets, so the server also
# listens on 127.0.0.1, with a password, because any account of this machine can connect there.
set -eu
. test/lib/server.sh

hba=$LE_RUN/work/play-hba.conf
cat >"$hba" <<EOT
local all all trust
host all all 127.0.0.1/32 scram-sha-256
EOT
password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')

server_start play "listen_addresses = '127.0.0.1'
hba_file = '$hba'
password_encryption = 'scram-sha-256'"
psql -Xq <<<"ALTER ROLE postgres PASSWORD '$password'"
printf 'PGHOST=%s PGPORT=%s password=%s\n' "$PGHOST" "$PGPORT" "$password" >"$PGHOST/settings"
