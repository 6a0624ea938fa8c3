/*
 * world.c
 *		A world from its creation to its end: the choices of a seed, one step, and
 *		the state that must remain when all clients have left.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

/* --- the core's environment --- */

static void *
count_alloc(void *arg, size_t size)
{
	World *w = arg;

	w->allocated++;
	return malloc(size);
}

static void
count_free(void *arg, void *p)
{
	World *w = arg;

	w->allocated--;
	free(p);
}

/* Returns a session id that was never used before. */
uint64_t
world_session(World *w, uint32_t sessno)
{
	return w->next_session++ * SESSION_CLIENTS + sessno;
}

static uint32_t
between(Rng *rng, uint32_t low, uint32_t high)
{
	return low + rng_below(rng, high - low + 1);
}

/* Returns 0, or a random number. */
static uint32_t
maybe(Rng *rng, uint32_t high)
{
	return rng_chance(rng, 300) ? 0 : rng_below(rng, high + 1);
}

static void
choose(Config *c, Rng *rng)
{
	bool large = rng_chance(rng, 150) && !c->small, huge = large && rng_chance(rng, 150);

	c->sessions = huge ? between(rng, 2000, 6000) : large ? between(rng, 200, 1000) : between(rng, 2, 12);
	c->names = (int) (large ? between(rng, 20, MAX_NAMES - 1) : between(rng, 4, 8));
	c->owners = (int) between(rng, 1, large ? MAX_OWNERS : 4);
	c->check_every = !c->model ? 4096 : huge ? 512 : large ? 64 : 1;
	if (c->every)
		c->check_every = 1;
	c->owner_mille = maybe(rng, 900);
	c->shared_mille = maybe(rng, 800);
	c->permit_mille = maybe(rng, 1000);
	c->lease_mille = maybe(rng, 500);
	c->bound_mille = maybe(rng, 600);
	c->enqueue_mille = maybe(rng, 500);
	c->group_mille = maybe(rng, 900);
	c->xact_mille = maybe(rng, 500);
	c->fence_mille = maybe(rng, 200);
	c->fail_mille = maybe(rng, huge ? 2 : large ? 5 : 40);
	c->restart_mille = maybe(rng, huge ? 1 : large ? 2 : 20);
	c->standby_mille = large ? 5 : rng_chance(rng, 300) ? 1000 : between(rng, 5, 300);
	c->first_counter = rng_chance(rng, 200) ? LE_COUNTER_MAX - rng_below(rng, 2000) : 0;
	c->short_lives_mille = c->restart_mille > 0 && rng_chance(rng, 300) ? between(rng, 1, 100) : 0;
	c->late_mille = maybe(rng, 200);
	c->batch_mille = between(rng, 50, 700);
	c->tick_mille = between(rng, 20, 400);
	c->keeper = rng_chance(rng, 500);
	c->outages = rng_chance(rng, 700);
	c->right_clock = rng_chance(rng, 500);
	c->limits.waiters_per_lock = rng_chance(rng, 200) ? between(rng, 1, 5) : 0;
	c->limits.expiry_grace = rng_chance(rng, 300) ? between(rng, 1, 2000000) : 0;
	c->limits.locks_per_role = rng_chance(rng, 200) ? between(rng, 1, c->sessions) : 0;
	c->limits.leases_per_role = rng_chance(rng, 200) ? between(rng, 1, 5) : 0;
	c->later_mille = c->restart_mille > 0 ? 0 : between(rng, 0, 1000);
	c->async_mille = c->restart_mille == 0 || rng_chance(rng, 500) ? 0 : between(rng, 300, 980);

	/* the model has no partial commands: only worlds without it do work in steps */
	if (!c->model && rng_chance(rng, 700))
	{
		c->limits.work = between(rng, 1, 8);
		c->check_every = large ? 64 : 1;
	}
}

/* Chooses the properties of the world from the seed. */
void
world_choose(Config *conf)
{
	Rng rng;

	rng_seed(&rng, ~conf->seed);
	choose(conf, &rng);
}

void
world_start(World *w, const Config *conf)
{
	memset(w, 0, sizeof(*w));
	sim_watch(w);
	w->conf = *conf;
	rng_seed(&w->rng, ~conf->seed - 1);
	w->now = w->clock = LE_SECOND;
	le_pause_init(&w->pause, w->clock);
	w->env.arg = w;
	w->env.alloc = count_alloc;
	w->env.free = count_free;
	w->env.fenced = world_fenced;
	w->env.epochs = w->epochs;
	w->env.seed[0] = rng_next(&w->rng);
	w->env.seed[1] = rng_next(&w->rng);
	w->next_session = 1;
	w->clients = calloc(w->conf.sessions, sizeof(Client));
	w->durable = calloc(w->conf.sessions, sizeof(Durable));
	w->mails = calloc(w->conf.sessions, sizeof(Mail));
	w->last_exclusive = calloc(MAX_NAMES * 2, sizeof(int64_t));
	w->stories = calloc(MAX_NAMES, sizeof(Story));
	for (int i = 0; i < DISKS; i++)
		w->disks[i].stories = calloc(MAX_NAMES, sizeof(Story));
	w->meta.incarnation = FIRST_INCARNATION;
	w->meta.taken_at = w->clock + FIRST_INCARNATION * MINUTE;
	w->meta.timeline = w->newest_timeline = 1;
	lives_begin(w);
	w->env.flushed = world_flushed;
	w->core = le_core_create(&w->env, w->conf.sessions,
							 (w->meta.incarnation << LE_COUNTER_BITS) + w->conf.first_counter);
	ENSURE(w, w->core != NULL && w->clients != NULL && w->durable != NULL && w->mails != NULL);
	le_core_set_limits(w->core, &w->conf.limits);
	store_init(w);
	if (w->conf.model)
		w->model = model_create(w);
	if (w->conf.model)
		model_stored(w->model);
	for (int i = 0; i < DISKS; i++)
		disk_copy(w, i);
	keeper_start(w);
	dead_start(w);
}

/* --- time --- */

/* The manager sleeps until then, and wakes up in time. */
static void
sleep_until(World *w, LeTime now)
{
	w->clock += now - w->now;
	(void) le_pause_seen(&w->pause, le_pause_since(&w->pause, w->clock, LE_NEVER, w->clock), w->clock);
	w->now = now;
	ENSURE(w, le_pause_time(&w->pause, w->clock) == now);
}

/* Advances the time, and stops exactly at every deadline. */
void
world_tick_to(World *w, LeTime to)
{
	if (to < w->now)
		to = w->now;
	for (;;)
	{
		LeTime next = le_core_next_deadline(w->core), keeper = keeper_waits(w);

		if (keeper < to - w->now && w->now + keeper < next)
			next = w->now + keeper;
		if (next > to)
			break;
		if (next > w->now)
			sleep_until(w, next);
		keeper_tend(w);
		batch_expire(w);
	}
	sleep_until(w, to);
}

/* Starts a manager that knows nothing of the previous one. */
void
world_new_manager(World *w, LeTime after)
{
	LeTime lost = w->pause.lost;

	/* no manager starts faster */
	after += LE_LIFE_TICK;
	w->clock += after;
	w->away += after;
	le_pause_init(&w->pause, w->clock);
	w->pause.lost = lost;
	w->now = le_pause_time(&w->pause, w->clock);
}

/*
 * The manager is stopped for a while.  Requests that arrived meanwhile are applied
 * first; or all clients were stopped, too, and send them later.
 */
static void
stop_manager(World *w)
{
	LeTime slept_until = rng_chance(&w->rng, 300) ? 0 : w->clock + rng_below(&w->rng, LE_SECOND);
	bool all = rng_chance(&w->rng, 300);
	LeTime rang_at = all || rng_chance(&w->rng, 500) ? LE_NEVER : w->clock + 1 + rng_below(&w->rng, 100000);

	w->clock += rng_below(&w->rng, 8000000);
	(void) le_pause_seen(&w->pause, le_pause_since(&w->pause, slept_until, rang_at, w->clock), w->clock);
	w->now = le_pause_time(&w->pause, w->clock);
	NOTE(w, "late");
	for (int n = (int) rng_below(&w->rng, 6); n > 0 && !all; n--)
		client_step(w);
	if (!all)
		keeper_tend(w);
	batch_expire(w);
	keeper_tend(w);
}

/* --- steps --- */

static void
tick(World *w)
{
	LeTime next = le_core_next_deadline(w->core);

	if (rng_chance(&w->rng, w->conf.late_mille))
		stop_manager(w);
	else if (next != LE_NEVER && rng_chance(&w->rng, 500))
	{
		if (next > w->now + 1)
		{
			/* the smallest unit too early */
			world_tick_to(w, next - 1);
			ENSURE(w, le_core_expire(w->core, w->now, 1) == 0);
		}
		world_tick_to(w, next);
	}
	else
		world_tick_to(w, w->now + (LeTime) rng_below(&w->rng, 400000));
}

/* Restarts the manager or the server several times. */
static void
end_again(World *w)
{
	if (rng_chance(&w->rng, 500))
		batch_crash(w);
	else
		world_crash(w);
}

/*
 * All random choices of a step come from its word alone, so that a step means the
 * same whichever other steps are left out.
 */
void
world_step(World *w, uint64_t number, uint64_t word)
{
	w->step = number;
	rng_seed(&w->rng, word);
	if (w->nbatch == 0)
		(void) batch_mail(w);
	if (rng_chance(&w->rng, w->conf.tick_mille))
		tick(w);
	else
		client_step(w);
	if (w->nbatch > 0 && (w->nbatch >= MAX_BATCH || rng_chance(&w->rng, w->conf.batch_mille)))
	{
		if (rng_chance(&w->rng, w->conf.fail_mille))
			batch_fail(w);
		else if (rng_chance(&w->rng, w->conf.fail_mille / 2))
			batch_lose_answers(w);
		else
		{
			batch_end(w);
			if (rng_chance(&w->rng, w->conf.fail_mille / 2))
				batch_crash(w);
		}
	}
	if (rng_chance(&w->rng, w->conf.restart_mille) && rng_chance(&w->rng, 200))
		world_restart(w);
	if (w->trusting && rng_chance(&w->rng, 10))
		world_crash(w);
	if (w->nbatch == 0 && rng_chance(&w->rng, w->conf.short_lives_mille))
		end_again(w);
	if (w->dead.lease == 0 && w->nbatch == 0 && rng_chance(&w->rng, 100))
		dead_start(w);
	if (w->conf.model && w->conf.check_every == 1)
	{
		model_compare(w->model);
		le_core_check(w->core);
	}
}

/* All clients leave and time passes: nothing may be left. */
void
world_end(World *w)
{
	w->ending = true;
	batch_end(w);
	while (w->nfences > 0)
		client_unfence(w, 0, false);
	while (batch_mail(w))
		batch_end(w);
	for (uint32_t i = 0; i < w->conf.sessions; i++)
	{
		if (w->clients[i].id != 0)
			client_end(w, i);
	}
	keeper_end(w);
	w->dead.lease = 0;
	batch_end(w);
	while (batch_mail(w))
		batch_end(w);
	for (LeTime next; (next = le_core_next_deadline(w->core)) != LE_NEVER;)
	{
		world_tick_to(w, next);
		batch_end(w);
	}
	le_core_check(w->core);
	ENSURE(w, le_core_lock_count(w->core) == 0);
	ENSURE(w, w->tables[TABLE_SLOTS].used == 0 && w->tables[TABLE_LEASES].used == 0 &&
				  w->tables[TABLE_PLACES].used == 0);
	ENSURE(w, le_next_dirty_slot(w->core, NULL) == NULL && le_next_dirty_place(w->core, NULL) == NULL &&
				  le_next_dirty_lease(w->core, NULL) == NULL && le_next_answer(w->core, NULL) == NULL);
	le_core_destroy(w->core);
	ENSURE(w, w->allocated == 0);
	if (w->model != NULL)
		model_free(w->model);
	store_free(w);
	free(w->clients);
	free(w->durable);
	free(w->mails);
	free(w->last_exclusive);
	free(w->stories);
	for (int i = 0; i < DISKS; i++)
		free(w->disks[i].stories);
	free(w->batch);
}
