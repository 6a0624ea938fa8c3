#!/bin/bash
# Seeds one fault at a time into a copy of the sources (test/mutants/list), and runs the tests that should catch it.
#   ONLY         names of mutants; default: all
#   PG_MAJOR     as for test/run.sh
. "$(dirname "$0")/../common.sh"
. "$(dirname "$0")/trees.sh"

le_prepare core-tests torture-programs lockctl lockctl-address client-tests
le_test_env

# Some tests need the build with fault points.
if perl -Itest/lib -MLeMutants -e '
	my %only = map { $_ => 1 } split " ", shift;
	my @mutants = grep { !%only || $only{ $_->{name} } } read_mutants("test/mutants/list");
	exit !grep { $_ eq "faults" } map { needs($_) } map { @{ $_->{tests} } } @mutants' "${ONLY:-}"; then
	le_faults_tree
fi

mutants_trees "$LE_JOBS"
# The sanitizers of the library detect none of these faults.
LE_ENV+=(LE_CLIENT_KINDS=plain)
LE_ENV+=(LE_JOBS="$LE_JOBS" LE_BUILD_PG_CONFIG="/usr/lib/postgresql/$PG_MAJOR/bin/pg_config" ONLY="${ONLY:-}")
le_run perl test/mutants/run.pl
