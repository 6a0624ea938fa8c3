#!/bin/bash
# Seeds faults that a machine chooses (LeMutate.pm has the operators), one at a time, into a copy of the sources, and
# runs the tests that could catch it: for the core its unit tests and the simulator; for the rest the test files that
# have reached the line (recorded by coverage.sh), the quickest first, until one fails; for the client then the clients'
# conformance suite; for the portable edition (LeMutateSql.pm has its operators) the contract of the C edition in SQL,
# then its own tests.
#   WHERE        core, server, client, lockctl or portable
#   N, SEED      number of mutants that count, and the seed: the same seed chooses the same mutants of the same sources
#   JOBS         number of mutants at a time
#   AGAIN=1      tries the survivors once more, on tests that are new, have changed, or were beyond MOST
#   REPORT=1     tries none, and prints the report of earlier runs
#   MOST         maximum seconds of tests, as recorded, for one mutant; default: 900
#   FIRST        test files to run first, however long they take
#   PG_MAJOR     as for test/run.sh
#   TMPDIR       should be on a file system in memory: the tests create and remove very many small files
# For each WHERE and seed, build/mutants-random contains the state (.state), so that a stopped run continues, and
# the report (.report).
set -eu
cd "$(dirname "$0")/../.."
export WHERE=${WHERE:-core} SEED=${SEED:-1} N=${N:-100} LE_JOBS=${JOBS:-2}
case $WHERE in
	core | server | client | lockctl | portable) ;;
	*) echo "WHERE is core, server, client, lockctl or portable" >&2; exit 1 ;;
esac
out=$PWD/build/mutants-random
mkdir -p "$out"
exec 8>"$out/$WHERE.lock"
flock -n 8 || { echo "$out: mutants of $WHERE are being tried" >&2; exit 1; }
exec 7>>"$out/$WHERE-$SEED.state" 6>"$out/$WHERE-$SEED.report"

export LE_STATE=$out/$WHERE-$SEED.state LE_STATE_FD=7 LE_OUT=build/cache/mutants-core
report()
{
	REPORT=1 perl -Itest/lib test/mutants/random.pl | tee /dev/fd/6
	exit "${PIPESTATUS[0]}"
}
[ -z "${REPORT:-}" ] || report
if [ "$WHERE" = core ]; then
	perl -Itest/lib test/mutants/random.pl
	report
fi

[ "$WHERE" = portable ] || [ -e build/mutants-coverage/src ] || test/mutants/coverage.sh
jobs=$LE_JOBS
. test/common.sh
. test/mutants/trees.sh
if [ "$WHERE" = portable ]; then
	le_prepare
	le_test_env
	mutants_trees "$jobs"
	# the account may not be able to read the checkout
	cp "$LE_STATE" "$LE_TMP/state"
	LE_ENV+=(LE_BUDGET=0.2 LE_JOBS="$jobs" LE_STATE="$LE_TMP/state")
	le_run perl test/mutants/random.pl
	report
fi
# The library's own tests run under sanitizers: only these detect leaks and invalid reads of a mutant.
kind=plain
goals=(core-tests torture-programs lockctl lockctl-address client-tests)
# Assertions detect invalid states of the server.
[ "$WHERE" != server ] || export LE_ASSERTS=1
if [ "$WHERE" = client ]; then
	kind=address
	goals+=(client-tests-address client-tests-thread)
fi
le_prepare "${goals[@]}"
le_test_env
le_faults_tree
if [ "$WHERE" = client ]; then
	. clients/python-packages.sh
	le_extra_packages libjansson-dev pgbouncer
	le_python_packages clients/conformance/requirements.txt
	# When a scenario sets the clock, its library is loaded before the sanitizer.
	LE_ENV+=(LE_AGENT_KIND=$kind ASAN_OPTIONS=verify_asan_link_order=0)
fi
# One more tree, without mutants, for tests that seem to time out.
mutants_trees $((jobs + 1))
# the account may not be able to read the checkout
cp "$LE_STATE" "$LE_TMP/state"
LE_ENV+=(LE_BUDGET=0.2 LE_CLIENT_KINDS=$kind LE_BUILD_PG_CONFIG="/usr/lib/postgresql/$PG_MAJOR/bin/pg_config"
	LE_JOBS="$jobs" LE_STATE="$LE_TMP/state" FIRST="${FIRST:-}")
le_run perl test/mutants/random.pl
report
