/*
 * keeper.c
 *		A client that does nothing but keep a lease alive, as often as it can.
 *
 * It must never lose it, whatever the manager's pauses and failures are: while
 * nothing can be renewed, no time counts.  It lives by the clock on its own
 * wall, not by the core's.
 */
#include <string.h>

#include "sim.h"

#define KEEPER_ROLE  999
#define KEEPER_TTL   (3 * LE_SECOND)
#define KEEPER_EVERY (700 * LE_MS)
#define KEEPER_AGAIN (70 * LE_MS) /* after one that was refused */

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

/* It takes a lease, which no failure undoes. */
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

	/* an older server's disk may have brought back those of earlier lives */
	if (reply.status == LE_LIMIT_LEASES)
		return;
	ENSURE(w, reply.status == LE_OK);
	flush_all(w);
	w->keeper.lease = reply.lease;
	w->keeper.next = w->clock + KEEPER_EVERY;
}

/* The manager takes requests: is its one among them? */
void
keeper_tend(World *w)
{
	if (w->keeper.lease == 0 || w->clock < w->keeper.next)
		return;
	w->keeper.next = w->clock + KEEPER_EVERY;
	if (ask(w, LE_CMD_KEEP_ALIVE).status != LE_OK)
		sim_fail(w, "a lease that was kept alive as often as possible is lost");
}

/* The manager refuses requests. */
void
keeper_refused(World *w)
{
	if (w->clock >= w->keeper.next)
		w->keeper.next = w->clock + KEEPER_AGAIN;
}

/* How long the manager may run before the next one of its requests comes. */
LeTime
keeper_waits(const World *w)
{
	if (w->keeper.lease == 0)
		return LE_NEVER;
	return w->keeper.next > w->clock ? w->keeper.next - w->clock : 0;
}

/* Another server has taken over, which may not know of it. */
void
keeper_restart(World *w, bool lossy)
{
	if (w->keeper.lease == 0)
		return;
	if (le_core_find_lease(w->core, w->keeper.lease) != NULL)
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
