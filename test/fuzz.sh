#!/bin/bash
# Runs the simulator of the core under libFuzzer, for some seconds: test/fuzz.sh [SECONDS]. Shows the shortest failure
# that it finds, and keeps it in build/fuzz.d; the corpus for the next run is build/fuzz.d/corpus.
. "$(dirname "$0")/common.sh"

LE_TMP=$(mktemp -d)
cd "$LE_ROOT"
le_extra_packages clang-14 libclang-rt-14-dev
make -s build/fuzz build/sim
mkdir -p build/fuzz.d/corpus
rc=0
le_wait build/fuzz -max_total_time="${1:-60}" -max_len=8192 -len_control=20 -timeout=20 -rss_limit_mb=2048 \
	-print_final_stats=1 \
	-verbosity=1 -artifact_prefix=build/fuzz.d/ build/fuzz.d/corpus >"$LE_TMP/fuzz.log" 2>&1 || rc=$?
tail -n 20 "$LE_TMP/fuzz.log"
if [ $rc != 0 ]; then
	found=$(sed -n 's/.*Test unit written to //p' "$LE_TMP/fuzz.log" | tail -n 1)
	[ -z "$found" ] || build/sim --replay "$found"
fi
exit $rc
