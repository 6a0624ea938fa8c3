/*
 * keeper.c
 *		A client that only keeps a lease alive, as often as it can.
 *
 * It must never lose the lease, whatever the manager's pauses and failures:
 * time in which nothing can be renewed does not count.  It uses its own clock,
 * not the core's.
 */
#include <string.h>

#include "sim.h"

#define KEEPER_ROLE  999
#define KEEPER_TTL   (3 * LE_SECOND)
#define KEEPER_EVERY (700 * LE_MS)
#define KEEPER_AGAIN (70 * LE_MS) /* after a rejected renewal */

static LeReply
ask(World *w, LeCommandType type)
{
	LeCommand cmd;
	LeReply reply;

	memset(&cmd, 0, sizeof(cmd));
	cmd.type = type;
	cmd.ttl = type == LE_CMD_GRANT_LEASE ? KEEPER_TTL : 0;
	cmd.lease = w->keeper.lease;
	cmd.role = KEEPER_ROLE;
	batch_post(w, &cmd, &reply);
	return reply;
}

/* The client relies on the returned validity. */
static void
count_on(World *w, LeTime until)
{
	if (until > w->keeper.until)
		w->keeper.until = until;
}

/* Grants the lease, which no failure undoes. */
void
keeper_start(World *w)
{
	LeReply reply;

	if (!w->conf.keeper)
		return;
	batch_end(w);
	w->keeper.lease = 0;
	reply = ask(w, LE_CMD_GRANT_LEASE);
	batch_end(w);

	/* the disk of an older server may have restored leases of earlier keepers */
	if (reply.status == LE_LIMIT_LEASES)
		return;
	ENSURE(w, reply.status == LE_OK);
	flush_all(w);
	w->keeper.lease = reply.lease;
	w->keeper.next = w->clock + KEEPER_EVERY;
	w->keeper.until = w->clock + KEEPER_TTL;
}

/* The manager accepts requests: sends the keeper's renewal if it is due. */
void
keeper_tend(World *w)
{
	LeReply reply;

	if (w->keeper.lease == 0 || w->clock < w->keeper.next)
		return;
	w->keeper.next = w->clock + KEEPER_EVERY;

	/* the WAL writer flushes early enough */
	if (w->keeper.raised)
		flush_all(w);
	reply = ask(w, LE_CMD_KEEP_ALIVE);
	if (reply.status != LE_OK)
		sim_fail(w, "a lease that was kept alive as often as possible is lost");
	count_on(w, w->clock + (reply.raised ? reply.valid_least : reply.valid_for));
	w->keeper.raised = reply.raised;
	if (!reply.raised)
		return;

	/* the client waits for the flush, or not */
	batch_end(w);
	if (rng_chance(&w->rng, 500))
		flush_all(w);
}

/* The manager rejects requests. */
void
keeper_refused(World *w)
{
	if (w->clock >= w->keeper.next)
		w->keeper.next = w->clock + KEEPER_AGAIN;
}

/* Returns how long the manager can run before the keeper's next request. */
LeTime
keeper_waits(const World *w)
{
	if (w->keeper.lease == 0)
		return LE_NEVER;
	return w->keeper.next > w->clock ? w->keeper.next - w->clock : 0;
}

/* Another server has started, which may not have the lease. */
void
keeper_restart(World *w, bool lossy)
{
	const LeLease *lease = le_core_find_lease(w->core, w->keeper.lease);

	if (w->keeper.lease == 0)
		return;
	if (lease != NULL && !lossy && lease->deadline - w->now < w->keeper.until - w->clock)
		sim_fail(w, "a lease has %lld left, and its client was told that it is valid for %lld",
				 (long long) (lease->deadline - w->now), (long long) (w->keeper.until - w->clock));
	if (lease != NULL)
		return;
	if (!lossy)
		sim_fail(w, "a lease that was kept alive is lost with a restart");
	keeper_start(w);
}

void
keeper_end(World *w)
{
	w->keeper.lease = 0;
}
