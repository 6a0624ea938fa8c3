#!/bin/bash
# What a hand-off between queue places costs while many sessions listen, each for a lock of its own: PostgreSQL wakes
# all of them for each NOTIFY before version 19, and from then on those that listen to its channel.
#   WAITERS="0 100 1000"   how many sessions listen and do nothing else
#   HAND_OFFS=500          in each round; ROUNDS=3, of which the medians count
#   PG_MAJOR               PostgreSQL's version
. "$(dirname "$0")/../test/common.sh"
le_prepare
le_test_env
ulimit -n "$(ulimit -H -n)"
le_run env WAITERS="${WAITERS:-0 100 1000}" HAND_OFFS="${HAND_OFFS:-500}" ROUNDS="${ROUNDS:-3}" perl bench/notify.pl ||
	{ tail -n 20 "$LE_TMP"/work/tmp_check/log/*.log >&2; exit 1; }
