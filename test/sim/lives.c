/*
 * lives.c
 *		The recorded run times of managers (core/life.h), and the lease of a dead
 *		client.
 *
 * That lease is not renewed: it must end after at most twice its TTL of time in which a
 * manager ran, however often managers and servers end.
 */
#include <string.h>

#include "sim.h"

#define DEAD_ROLE 998
/* An end takes several batches if each of them does little work. */
#define DEAD_SLACK (1 * LE_SECOND)

static LeTime
uptime(const World *w)
{
	return w->now - w->life_began;
}

/* Returns the time in which a manager has run so far. */
static LeTime
ran(const World *w)
{
	return w->now - w->away;
}

/* A manager starts.  It flushes its incarnation, and thus everything before it. */
void
lives_begin(World *w)
{
	flush_all(w);
	le_life_begin(&w->meta.life);
	w->life = w->meta.life;
	w->life_began = w->now;
	w->lives++;
}

/*
 * Called before each use of the core: sets its time, and records the run time as often as the manager
 * does.  The record is flushed soon, whether or not a session waits for a flush.
 */
void
lives_run(World *w)
{
	LeTime last = w->meta.life.uptime * LE_LIFE_TICK;

	le_core_set_uptime(w->core, uptime(w));
	if (le_core_unmarked(w->core) == 0 || uptime(w) - last < LE_LIFE_RECORD)
		return;
	w->meta.life.uptime = (uint32_t) ((uptime(w) - uptime(w) % LE_LIFE_RECORD) / LE_LIFE_TICK);
	w->disks[DISK_FLUSHED].meta.life = w->meta.life;
}

/* Another client is granted a lease, and dies. */
void
dead_start(World *w)
{
	static const LeTime ttls[] = {2 * LE_SECOND, 7 * LE_SECOND, 40 * LE_SECOND, 400 * LE_SECOND};
	LeCommand cmd;
	LeReply reply;

	w->dead.lease = 0;
	if (!w->conf.keeper)
		return;
	memset(&cmd, 0, sizeof(cmd));
	cmd.type = LE_CMD_GRANT_LEASE;
	cmd.ttl = w->dead.ttl = ttls[w->lives % 4];
	cmd.role = DEAD_ROLE;
	batch_end(w);
	batch_post(w, &cmd, &reply);
	batch_end(w);

	/* an older disk may have restored leases of earlier dead clients */
	if (reply.status == LE_LIMIT_LEASES)
		return;
	ENSURE(w, reply.status == LE_OK);
	flush_all(w);
	w->dead.lease = reply.lease;
	w->dead.ran = ran(w);
	w->dead.lives = w->lives;
}

/* Checks that the dead client's lease has ended in time. */
void
dead_check(World *w)
{
	LeTime most = 2 * w->dead.ttl + (LeTime) (w->lives - w->dead.lives) * LE_LIFE_LEAST + DEAD_SLACK;

	if (w->dead.lease == 0)
		return;
	if (le_core_find_lease(w->core, w->dead.lease) == NULL)
		w->dead.lease = 0;
	else if (ran(w) - w->dead.ran > most)
		sim_fail(w, "a lease with a ttl of %lld that nobody renews has not ended in %lld of %llu lives",
				 (long long) w->dead.ttl, (long long) (ran(w) - w->dead.ran),
				 (unsigned long long) (w->lives - w->dead.lives));
}
