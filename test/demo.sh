#!/bin/bash
# Shows several sessions taking, waiting for, handing on and losing a lock, in a throw-away cluster; installs what is
# missing, leaves nothing behind. PG_MAJOR chooses PostgreSQL's version.
. "$(dirname "$0")/common.sh"

le_prepare
le_run test/lib/demo-sessions.sh
