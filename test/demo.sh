#!/bin/bash
# Shows several sessions that acquire, wait for, hand over and lose a lock, in a throw-away cluster. Installs missing
# packages, and leaves nothing else behind. PG_MAJOR selects PostgreSQL's version.
. "$(dirname "$0")/common.sh"

le_prepare
le_run test/lib/demo-sessions.sh
