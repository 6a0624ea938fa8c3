/*
 * restart.c
 *		The whole server ends: it is stopped, crashes, or continues from another
 *		disk, that of a standby or an older copy.
 *
 * All connections end, with everything that is bound to them; waiters get no
 * reply.  Everything stored on the disk that is used remains.  Tokens grow beyond
 * all lost ones, because clients have seen them.  The world remembers the highest
 * token of any history; the core's rule for the first one after a start is
 * le_next_incarnation().  It requires
 *
 *	-	that a standby has missed at most LOST_STARTS starts, and that its clock
 *		and its primary's differ by at most a quarter of an hour;
 *	-	that the clock is right if a copy is restored; and, if the discarded
 *		history has had more than one start, that the clock has caught up with
 *		the counted incarnations;
 *	-	that a recovery of a copy to a new timeline knows all other timelines.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define LOST_STARTS 30

/* Copies the current state to a disk. */
void
disk_copy(World *w, int disk)
{
	Disk *to = &w->disks[disk];

	store_copy(to->tables, w->tables);
	memcpy(to->stories, w->stories, MAX_NAMES * sizeof(Story));
	to->last_change = w->last_change;
	to->meta = w->meta;
	to->lost_starts = 0;
	if (w->conf.model)
		model_copy_disk(w->model, disk);
}

/* Nothing is replicated before it is flushed. */
static void
disk_hears(World *w, int disk)
{
	flush_all(w);
	disk_copy(w, disk);
}

/* A batch is stored: the standby gets it now or later. */
void
disks_hear(World *w)
{
	if (w->conf.restart_mille == 0)
		return;
	if (rng_chance(&w->rng, w->conf.standby_mille))
		disk_hears(w, DISK_STANDBY);
	if (w->conf.right_clock && rng_chance(&w->rng, 5))
		disk_hears(w, DISK_COPY);
}

/* Continues with the state of another disk. */
void
disk_use(World *w, int disk)
{
	const Disk *from = &w->disks[disk];

	store_copy(w->tables, from->tables);
	memcpy(w->stories, from->stories, MAX_NAMES * sizeof(Story));
	w->last_change = from->last_change;
	w->meta = from->meta;
	if (w->conf.model)
		model_put_back(w->model, disk);
}

/* Returns the clock of the world: right, or up to fifteen minutes fast or slow. */
LeTime
world_time(World *w)
{
	int64_t wrong =
		w->conf.right_clock || rng_chance(&w->rng, 500) ? 0 : (int64_t) rng_below(&w->rng, 31) - 15;

	return w->clock + (FIRST_INCARNATION + wrong) * MINUTE;
}

static void
disconnect_all(World *w)
{
	memset(w->clients, 0, w->conf.sessions * sizeof(Client));
	memset(w->mails, 0, w->conf.sessions * sizeof(Mail));
	for (uint32_t i = 0; i < w->conf.sessions; i++)
		durable_reset(&w->durable[i]);
	w->nfences = 0;
	w->nbatch = 0;
}

/* Waits, if necessary, until the clock has caught up with all counted incarnations. */
static LeTime
wait_for_clock(const World *w)
{
	const Disk *copy = &w->disks[DISK_COPY];
	int64_t newest = w->newest_revision >> LE_COUNTER_BITS;
	LeTime caught_up = (newest + 1 - FIRST_INCARNATION) * MINUTE;

	if (copy->lost_starts <= 1 && newest == w->meta.incarnation && newest <= copy->meta.incarnation + 1 &&
		caught_up - w->clock < 150 * MINUTE)
		return LE_SECOND;

	return caught_up > w->clock ? caught_up - w->clock : 0;
}

typedef enum How
{
	STOPPED,
	CRASHED,
	PROMOTED,
	PUT_BACK, /* a copy, on the same timeline */
	RECOVERED /* a copy, to a new one */
} How;

static const char *const how_names[] = {"stopped", "crashed", "promoted", "put back", "recovered"};

/* Returns the first revision of the new server, which must be higher than all revisions of all histories. */
static int64_t
first_revision(World *w, bool new_timeline)
{
	LeStart start = {.stored = w->meta.incarnation, .stored_at = w->meta.taken_at, .time = world_time(w)};
	int64_t first;

	if (new_timeline)
	{
		start.timelines = ++w->newest_timeline - w->meta.timeline;
		w->meta.timeline = w->newest_timeline;
	}
	w->meta.incarnation = le_next_incarnation(&start);
	w->meta.taken_at = start.time;
	first = le_first_revision(w->meta.incarnation, start.time);
	if (first <= w->newest_revision)
		sim_fail(w, "a server that was %s begins with %lld, and %lld has been handed out",
				 new_timeline ? "given a new timeline" : "restarted", (long long) first,
				 (long long) w->newest_revision - 1);
	return first;
}

static void
restart(World *w, How how)
{
	LeTime away = rng_below(&w->rng, rng_chance(&w->rng, 900) ? 4000000 : 200000000);

	if (how == STOPPED)
		batch_end(w);
	NOTE(w, "%s, %u requests lost", how_names[how], w->nbatch);
	if (how == CRASHED)
		flush_lose(w);
	if (how == PROMOTED)
		disk_use(w, DISK_STANDBY);
	if (how == PUT_BACK)
		away += wait_for_clock(w);
	if (how == PUT_BACK || how == RECOVERED)
		disk_use(w, DISK_COPY);
	world_new_manager(w, away);
	disconnect_all(w);
	flush_all(w);
	batch_rebuild(w, first_revision(w, how >= PROMOTED && how != PUT_BACK), LOST_SERVER);
	w->restarts++;
	keeper_restart(w, how >= PROMOTED);
	if (how >= PROMOTED)
		dead_start(w);
	for (int disk = 0; disk <= DISK_COPY; disk++)
	{
		if (++w->disks[disk].lost_starts >= LOST_STARTS)
			disk_hears(w, disk);
	}
	if (how >= PROMOTED)
		disk_hears(w, DISK_STANDBY);
}

void
world_restart(World *w)
{
	restart(w, (How) rng_below(&w->rng, w->conf.right_clock ? 5 : 3));
}

void
world_crash(World *w)
{
	restart(w, CRASHED);
}
