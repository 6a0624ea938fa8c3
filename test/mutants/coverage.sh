#!/bin/bash
# Records which lines of src/ each test file reaches, for test/mutants/random.sh. build/mutants-coverage contains a
# record for each test file (LeCoverage.pm reads them), and in src the sources that the records refer to.
#   TESTS        default: all without a current record; all if the sources have changed
#   ALL=1        all
#   PG_MAJOR     as for test/run.sh
. "$(dirname "$0")/../common.sh"

# A function, so that bash reads the whole file before it runs: the file may change in the meantime.
main()
{
	cd "$LE_ROOT"
	out=$LE_ROOT/build/mutants-coverage
	mkdir -p "$out"
	[ -e "$out/src" ] || { ALL=1 && rm -f "$out"/*.lines; }
	if [ -z "${TESTS:-}" ]; then
		# Excludes random searches, and tests that build packages or whole systems: a mutant would take minutes.
		for test in test/unit/*.c test/pgtap/*.sql test/t/*.t; do
			case $test in
				*/00[02-57]_* | */08[02]_* | */09[0-2]_* | */127_*) continue ;;
				*/130_* | */14?_* | */15?_* | */16?_*) continue ;;
			esac
			record=$out/$(tr / - <<<"$test").lines
			digest=$(sha256sum <"$test" | cut -d' ' -f1)
			if [ -z "${ALL:-}" ] && [ -f "$record" ] && grep -q "digest $digest" "$record"; then continue; fi
			TESTS+=" $test"
		done
	fi
	[ -n "${TESTS:-}" ] || return 0

	# Like COVERAGE=1 make test, but in a copy, and including the library, the command and the build with fault points.
	flags="--coverage -O1 -DLE_COVERAGE"
	LE_MAKE=(COPT="$flags" SANITIZE="$flags")
	le_prepare CFLAGS="$flags" LDFLAGS=--coverage SANITIZE_plain="$flags" core-tests torture-programs client lockctl \
		client-tests
	needs=$(le_needs $TESTS)
	le_extra_packages $(grep -vxE 'simulator|torture|client|lockctl|faults|other-minor' <<<"$needs")
	if [[ $needs = *faults* ]]; then
		LE_FAULTS_COPY=$LE_TMP/faults-src LE_FAULTS_MAKE=(COPT="$flags")
		le_faults_tree
	fi
	le_test_env
	mkdir -m 1777 "$LE_TMP/covered"
	LE_ENV+=(LE_BUDGET=0.2 LE_CLIENT_KINDS=plain LE_LOCKCTL=build/lockctl/lockctl)
	# A test that exceeds this timeout fails here, and is not used for mutants.
	LE_ENV+=(LE_COVERED="$LE_TMP/covered" COVERAGE=1 PG_TEST_TIMEOUT_DEFAULT=30)
	le_say "recording $(wc -w <<<"$TESTS") test files"
	rc=0
	le_run prove --norc --timer -j"$((3 * LE_JOBS))" --exec "perl $LE_TMP/src/test/mutants/cover-one" $TESTS || rc=$?
	cp "$LE_TMP"/covered/*.lines "$out" || rc=1
	if [ -n "${ALL:-}" ]; then
		rm -rf "$out/src"
		cp -r "$LE_TMP/src/src" "$out/src"
		find "$out/src" -type f ! -name '*.c' -delete
	fi
	return $rc
}

main
