#!/bin/bash
# Fails if a fresh Debian has a PostgreSQL other than test/postgresql-versions states: for versions.sh, in that system.
# In experimental, which adds to sid, the newest of all packages counts, so that a new major version is noticed.
#   test/postgresql-offered.sh SUITE
set -eu
suite=$1
versions=$(dirname "$0")/postgresql-versions
says=$(sed -n "s/^\([0-9]*\) $suite\$/\1/p" "$versions")
apt-get update -qq
if [ "$suite" = experimental ]; then
	offers=$(apt-cache search --names-only '^postgresql-server-dev-[0-9]+$' | grep -o 'dev-[0-9]*' | sort -V |
		tail -n 1)
	offers=${offers#dev-}
else
	offers=$(apt-cache policy postgresql | sed -n 's/^ *Candidate: \([0-9]*\).*/\1/p')
fi
if [ "$offers" != "$says" ]; then
	echo "error: $suite has PostgreSQL ${offers:-of no version}, and $versions says ${says:-nothing}" >&2
	exit 1
fi
