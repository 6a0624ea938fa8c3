#!/bin/bash
# The server of test/play.sh, which finds it by the file "settings".
set -eu
. test/lib/server.sh

server_start play ''
printf 'PGHOST=%s PGPORT=%s\n' "$PGHOST" "$PGPORT" >"$PGHOST/settings"
