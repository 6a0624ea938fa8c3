#!/bin/bash
# Seeds one fault at a time into a copy of the sources (test/mutants/list) and runs the tests that ought to catch it.
#   ONLY         names of mutants; default: all
#   PG_MAJOR     as for test/run.sh
. "$(dirname "$0")/../common.sh"

le_prepare core-tests
le_extra_packages libfaketime
le_test_env

# A tree for each of the runner's workers: the sources, with what has been built as the beginning of each mutant's
# build, and a PostgreSQL for the account to install into.
tar -C "$LE_ROOT" --exclude=build/faults -cf - build src | tar -C "$LE_TMP/src" -xf -
for ((i = 1; i <= LE_JOBS; i++)); do
	mkdir "$LE_TMP/w$i" "$LE_TMP/w$i/work"
	cp -a "$LE_TMP/usr" "$LE_TMP/src" "$LE_TMP/w$i"
	pg_config=$LE_TMP/w$i${LE_BIN#"$LE_TMP"}/pg_config
	[ "$(id -u)" != 0 ] || chown -R -P nobody:nogroup "$LE_TMP/w$i/src" "$LE_TMP/w$i/work" \
		"$("$pg_config" --pkglibdir)" "$("$pg_config" --sharedir)/extension"
done
LE_ENV+=(LE_JOBS="$LE_JOBS" LE_BUILD_PG_CONFIG="/usr/lib/postgresql/$PG_MAJOR/bin/pg_config" ONLY="${ONLY:-}")
le_run perl test/mutants/run.pl
