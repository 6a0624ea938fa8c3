#!/bin/bash
# Measures the cost of a hand-off between queue places while many sessions listen, each for its own lock. Before version
# 19, PostgreSQL wakes up all listening sessions for each NOTIFY; since then, only those that listen on its channel.
#   WAITERS="0 100 1000"   numbers of sessions that only listen
#   HAND_OFFS=500          hand-offs in each round; ROUNDS=3: number of rounds; the results are medians
#   PG_MAJOR               PostgreSQL's version
. "$(dirname "$0")/../test/common.sh"
le_prepare
le_test_env disk
ulimit -n "$(ulimit -H -n)"
le_run env WAITERS="${WAITERS:-0 100 1000}" HAND_OFFS="${HAND_OFFS:-500}" ROUNDS="${ROUNDS:-3}" perl bench/notify.pl ||
	{ tail -n 20 "$LE_TMP"/work/log/*.log >&2; exit 1; }
