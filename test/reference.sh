#!/bin/bash
# Writes the pages of docs/reference that are generated from the catalog of a throw-away server. Installs missing
# packages.
. "$(dirname "$0")/common.sh"

if [ -z "${LE_RUN:-}" ]; then
	le_prepare
	le_run test/reference.sh
	for page in functions views settings; do
		cp "$LE_TMP/work/$page.md" "$LE_ROOT/docs/reference/$page.md"
	done
	exit
fi

. test/lib/server.sh
server_start reference ''
for page in functions views settings; do
	test/lib/reference $page >"$LE_RUN/work/$page.md"
done
