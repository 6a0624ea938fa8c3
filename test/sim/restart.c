/*
 * restart.c
 *		The whole server goes: it is stopped, crashes, or a standby takes over
 *		that has not heard of the last batches.
 *
 * All connections end with it, and with them what is bound to one; whoever
 * waits gets no answer.  What has been stored is there (of a standby: what it
 * had), and tokens go on upward, past those that were lost: clients have seen
 * them.  The rule is the core's, le_next_incarnation(); what it needs to be
 * right is that clocks agree to a quarter of an hour, and that a standby has
 * missed no more than LOST_STARTS starts.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define LOST_STARTS 30
#define MINUTE      (60 * LE_SECOND)

/* The standby has it all, as of this moment. */
void
standby_follow(World *w)
{
	store_copy(w->standby.tables, w->tables);
	memcpy(w->standby.stories, w->stories, MAX_NAMES * sizeof(Story));
	w->standby.last_change = w->last_change;
	w->standby.meta = w->meta;
	w->lost_starts = 0;
	if (w->conf.model)
		model_replicate(w->model);
}

/* A batch is stored: it gets to the standby, or will later. */
void
standby_hear(World *w)
{
	if (w->conf.restart_mille > 0 && rng_chance(&w->rng, w->conf.standby_mille))
		standby_follow(w);
}

static void
promote(World *w)
{
	store_copy(w->tables, w->standby.tables);
	memcpy(w->stories, w->standby.stories, MAX_NAMES * sizeof(Story));
	w->last_change = w->standby.last_change;
	w->meta = w->standby.meta;
	if (w->conf.model)
		model_promote(w->model);
}

/* Fifteen minutes fast or slow, or right. */
static int64_t
clock_minutes(World *w)
{
	int64_t wrong = rng_chance(&w->rng, 500) ? 0 : (int64_t) rng_below(&w->rng, 31) - 15;

	return FIRST_INCARNATION + w->now / MINUTE + wrong;
}

static void
disconnect_all(World *w)
{
	memset(w->clients, 0, w->conf.sessions * sizeof(Client));
	for (uint32_t i = 0; i < w->conf.sessions; i++)
		durable_reset(&w->durable[i]);
	w->nfences = 0;
	w->nbatch = 0;
}

void
world_restart(World *w)
{
	uint32_t how = rng_below(&w->rng, 3);
	LeStart start = {.clean = how == 0, .promoted = how == 1};
	int64_t next;

	if (start.clean)
	{
		batch_end(w);
		w->meta.next_revision = le_core_next_revision(w->core);
	}
	NOTE(w, "%s, %u requests lost",
		 start.clean      ? "stopped"
		 : start.promoted ? "promoted"
						  : "crashed",
		 w->nbatch);
	if (start.promoted)
		promote(w);
	w->now += rng_below(&w->rng, rng_chance(&w->rng, 900) ? 4000000 : 200000000);
	disconnect_all(w);
	start.stored = w->meta.incarnation;
	start.minutes = clock_minutes(w);
	w->meta.incarnation = le_next_incarnation(&start);
	next = start.clean ? w->meta.next_revision : (w->meta.incarnation << LE_COUNTER_BITS) + 1;
	batch_rebuild(w, next, LOST_SERVER);
	w->restarts++;
	if (start.promoted || ++w->lost_starts >= LOST_STARTS)
		standby_follow(w);
}
