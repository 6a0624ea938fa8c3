#!/bin/bash
# Builds and tests everything on a Debian machine. Installs missing packages; the only other result is build/.
#   TESTS        the tests to run; default: all of test/unit, test/t, test/pgtap
#   SOAK=1       random searches take their full time, several minutes in all; otherwise a fifth of it
#   PROVE_FLAGS  for prove, for example -v
#   PG_MAJOR     PostgreSQL's major version; default: the distribution's
#   COVERAGE=1   counts with gcov how many lines of src/ the tests reach, and lists the others in build/coverage.txt
#   VALGRIND=1   runs the servers of some tests under valgrind; fails if it reports our code
#   SHARE=5      if everything is tested: runs one in this many scenarios of the clients' conformance suite, in the
#                installed languages; 0: none; default: 5, with SOAK 1
#   BUSY=4       number of busy loops next to the tests, which must also pass on a busy machine
. "$(dirname "$0")/common.sh"

# Not above -O1, which leaves most lines where they are; the packaged servers' flags want some optimisation.
[ -z "${COVERAGE:-}" ] || LE_MAKE=(COPT="--coverage -O1" SANITIZE="--coverage -O1")
cd "$LE_ROOT"
shopt -s nullglob
share=0
if [ -z "${TESTS:-}" ]; then
	[ -n "${COVERAGE:-}${VALGRIND:-}" ] || share=${SHARE:-$([ -n "${SOAK:-}" ] && echo 1 || echo 5)}
	# Those that take long begin first, so that none of them is left alone in the end.
	TESTS=$({ grep -v '^#' test/lib/longest-first; ls test/unit/*.c test/t/*.t test/pgtap/*.sql; } | awk '!seen[$0]++')
	[ -z "${VALGRIND:-}" ] || TESTS=$(echo test/t/{042,070}_*.t test/pgtap/*.sql)
fi

# A test says in its head what it needs: what is built beside the extension, and Debian packages, without which it is
# skipped.
needs=$(le_needs $TESTS)
goals=()
packages=()
[[ $TESTS != *test/unit/* ]] || goals+=(core-tests)
for need in $needs; do
	case $need in
		simulator) goals+=(core-tests) ;;
		torture) goals+=(torture-programs) ;;
		client) goals+=(client client-tests client-tests-address client-tests-thread) ;;
		lockctl) goals+=(client lockctl lockctl-address) ;;
		faults | other-minor | older-majors) ;;
		*) packages+=("$need") ;;
	esac
done
le_prepare "${goals[@]}"
[ -z "${COVERAGE:-}" ] || le_extra_packages lcov
[[ $needs != *faults* ]] || le_faults_tree
[[ $needs != *other-minor* ]] || le_other_minor
[[ $needs != *older-majors* ]] || le_older_majors
le_extra_packages "${packages[@]}"
# The drivers of examples/.  Where Node.js is not Debian's, its driver comes from npm.
if [[ $needs = *node-pg* ]]; then
	if ! NODE_PATH=/usr/share/nodejs:/usr/lib/nodejs node -e 'require("pg")' 2>/dev/null &&
		command -v npm >/dev/null; then
		le_wait npm install --silent --no-fund --no-audit --ignore-scripts \
			--cache "$LE_TMP/npm-cache" --prefix "$LE_TMP/npm" pg@8 \
			>"$LE_TMP/npm.log" 2>&1 || le_say "npm cannot install pg"
		LE_ENV+=(NODE_PATH="$LE_TMP/npm/node_modules")
	fi
fi

le_test_env
[ -n "${SOAK:-}${COVERAGE:-}" ] || LE_ENV+=(LE_BUDGET=0.2)

if [ -n "${VALGRIND:-}" ]; then
	le_extra_packages libc6-dbg
	mkdir -m 1777 "$LE_TMP/valgrind"
	le_valgrind --quiet --num-callers=30 --suppressions="$LE_TMP/src/test/lib/valgrind.supp" \
		--log-file="$LE_TMP/valgrind/%p"
	LE_ENV+=(PG_TEST_TIMEOUT_DEFAULT=600)
fi

# Each in a session, which some kernels give a share of the processors to. They end with this script, however it ends.
loops=()
for ((i = 0; i < ${BUSY:-0}; i++)); do
	LE_RUN=$LE_TMP setsid sh -c 'while kill -0 "$0" 2>/dev/null; do :; done' $$ &
	loops+=($!)
done

le_say "testing${BUSY:+, beside $BUSY busy loops}"
rc=0
# What a test says to stderr does not go through prove, which, having read that, waits for this test's next line and
# begins no other one.
exec 9>&2
LE_ENV+=(LE_STDERR=9)
# Most tests wait for most of their time: all together use about a seventh of a processor each.
le_run prove --norc --timer -j"$((5 * LE_JOBS))" --exec "$LE_TMP/src/test/lib/run-one" ${PROVE_FLAGS:-} $TESTS || rc=$?
if [ "$share" != 0 ]; then
	le_say "the clients, by one of $share scenarios"
	SHARE=$share PARTS=conformance OPTIONAL=1 clients/test.sh || rc=$?
fi
[ ${#loops[@]} = 0 ] || kill "${loops[@]}"
rm -rf "$LE_ROOT/build/test-logs"
if [ $rc != 0 ]; then
	cp -r "$LE_TMP/work/log" "$LE_ROOT/build/test-logs"
	le_say "logs: build/test-logs"
fi
if [ -n "${VALGRIND:-}" ]; then
	# A report is a paragraph of lines behind "==pid=="; those without a function of ours are PostgreSQL's.
	reports=$(cat "$LE_TMP"/valgrind/* | sed 's/^==[0-9]*== *$//; s/^==[0-9]*== //' |
		perl -00 -ne 'print if /lock_election\.so|\ble_\w+ \(/')
	le_say "valgrind: $(ls "$LE_TMP/valgrind" | wc -l) processes, $(grep -c . <<<"$reports" || true) lines of reports"
	[ -z "$reports" ] || { echo "$reports" >&2; rc=1; }
fi
[ -z "${COVERAGE:-}" ] || le_run test/lib/coverage "$LE_TMP/work" >"$LE_TMP/coverage" || rc=$?
if [ -s "$LE_TMP/coverage" ]; then
	sed '/^$/q' "$LE_TMP/coverage"
	mkdir -p "$LE_ROOT/build"
	cp "$LE_TMP/coverage" "$LE_ROOT/build/coverage.txt"
fi
exit $rc
