#!/bin/bash
# Seeds one fault at a time into a copy of the sources (test/mutants/list) and runs the tests that ought to catch it.
#   ONLY         names of mutants; default: all
#   PG_MAJOR     as for test/run.sh
. "$(dirname "$0")/../common.sh"

le_prepare core-tests torture-programs lockctl client-tests
le_test_env

# Some tests need the build with fault points.
faults=
if perl -Itest/lib -MLeMutants -e '
	my %only = map { $_ => 1 } split " ", shift;
	my @mutants = grep { !%only || $only{ $_->{name} } } read_mutants("test/mutants/list");
	exit !grep { $_ eq "faults" } map { needs($_) } map { @{ $_->{tests} } } @mutants' "${ONLY:-}"; then
	faults=1
	le_faults_tree
fi

# A tree for each of the runner's workers: the sources, with what has been built as the beginning of each mutant's
# build, and a PostgreSQL, or two, for the account to install into.  The tests build in the first tree as well.
tar -C "$LE_ROOT" --exclude=build/cache -cf - build src | tar -C "$LE_TMP/src" -xf -
[ "$(id -u)" != 0 ] || chown -R -P nobody:nogroup "$LE_TMP/src"
for ((i = 1; i <= LE_JOBS; i++)); do
	mkdir "$LE_TMP/w$i" "$LE_TMP/w$i/work"
	cp -a "$LE_TMP/usr" "$LE_TMP/src" ${faults:+"$LE_TMP/faults"} "$LE_TMP/w$i"
	[ "$(id -u)" = 0 ] || continue
	chown -R -P nobody:nogroup "$LE_TMP/w$i/src" "$LE_TMP/w$i/work"
	for bin in "$LE_TMP/w$i${LE_BIN#"$LE_TMP"}" ${faults:+"$LE_TMP/w$i${LE_FAULTS_TREE#"$LE_TMP"}/bin"}; do
		chown -R -P nobody:nogroup "$("$bin/pg_config" --pkglibdir)" "$("$bin/pg_config" --sharedir)/extension"
	done
done
# the library's sanitizers notice none of these faults
LE_ENV+=(LE_CLIENT_KINDS=plain)
LE_ENV+=(LE_JOBS="$LE_JOBS" LE_BUILD_PG_CONFIG="/usr/lib/postgresql/$PG_MAJOR/bin/pg_config" ONLY="${ONLY:-}")
le_run perl test/mutants/run.pl
