/*
 * manager/fence.c
 *		The manager ends fences that last too long.
 */
#include "postgres.h"

#include <signal.h>

#include "manager/fence.h"
#include "shared/fence.h"
#include "shared/settings.h"
#include "shared/words.h"

/*
 * The connection, not its statement: a cancel would leave what was fenced
 * before a savepoint, and says nothing to a client that is idle.
 */
void
le_fence_end_overdue(LeCore *core, LeTime now)
{
	LeTime timeout = (LeTime) le_fence_timeout_ms * LE_MS;
	LeEntry *entry;

	while (timeout > 0 && (entry = le_core_overdue(core, timeout, now)) != NULL)
	{
		List *pids = NIL;
		ListCell *lc;

		list_free(le_fence_procs(entry->token, &pids, SIGTERM));
		foreach (lc, pids)
			ereport(
				LOG,
				(errmsg("terminating connection of process %d due to lock_election.fence_timeout",
						lfirst_int(lc)),
				 errdetail("Its transaction has fenced %s \"%.*s\", whose lease ended more than %d ms ago.",
						   le_kind_word((LeKind) entry->lock->kind), (int) entry->lock->name_len,
						   entry->lock->name, le_fence_timeout_ms)));
		list_free(pids);
	}
}
