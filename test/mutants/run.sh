#!/bin/bash
# Seeds one fault at a time into a copy of the sources (test/mutants/list) and runs the tests that ought to catch it.
#   ONLY         names of mutants; default: all
#   PG_MAJOR     as for test/run.sh
. "$(dirname "$0")/../common.sh"

le_prepare core-tests
le_extra_packages libfaketime
le_test_env

# What has been built is the beginning of each mutant's build, and the account is to install over it.
tar -C "$LE_ROOT" -cf - build src | tar -C "$LE_TMP/src" -xf -
if [ "$(id -u)" = 0 ]; then
	chown -R nobody:nogroup "$LE_TMP/src"
	chown nobody:nogroup "$("$LE_BIN/pg_config" --pkglibdir)" "$("$LE_BIN/pg_config" --sharedir)/extension"
fi
LE_ENV+=(LE_BUILD_PG_CONFIG="/usr/lib/postgresql/$PG_MAJOR/bin/pg_config" ONLY="${ONLY:-}")
le_run perl test/mutants/run.pl
