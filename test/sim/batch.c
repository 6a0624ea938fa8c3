/*
 * batch.c
 *		The manager's part: stores batches and replies; fails to store, crashes,
 *		and rebuilds its state.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

bool
world_fenced(void *arg, int64_t token)
{
	const World *w = arg;

	for (int i = 0; i < w->nfences; i++)
	{
		if (w->fences[i] == token)
			return true;
	}
	return false;
}

bool
world_flushed(void *arg, uint64_t lsn)
{
	const World *w = arg;

	return w->conf.async_mille == 0 || lsn <= w->flushed;
}

static void
check_core(World *w)
{
	if (w->conf.check_every == 1 || w->step % w->conf.check_every == 0)
	{
		le_core_check(w->core);
		check_invariants(w);
	}
}

/* Copies the names of a command into an array that lives as long as the copy of the command. */
void
keep_names(LeCommand *cmd, LeText *names)
{
	for (uint32_t i = 0; i < cmd->nnames; i++)
		names[i] = cmd->names[i];
	cmd->names = names;
}

/*
 * A batch has begun: continues with the mail that the previous batch has deferred.  Returns false if there is
 * none.
 */
bool
batch_mail(World *w)
{
	bool any = false;

	for (uint32_t i = 0; w->conf.limits.work > 0 && i < w->conf.sessions; i++)
	{
		LeReply reply;

		if (!w->mails[i].waiting)
			continue;
		any = true;
		batch_post(w, &w->mails[i].cmd, &reply);
	}
	return any;
}

/* Expires batch by batch, each with its limit of work; clients send requests in between. */
static void
expire_in_steps(World *w)
{
	for (;;)
	{
		(void) le_core_expire(w->core, w->now, 16);
		if (le_core_next_deadline(w->core) > w->now)
			return;
		batch_end(w);
		(void) batch_mail(w);
		if (!w->ending && rng_chance(&w->rng, 300))
			client_step(w);
	}
}

void
batch_expire(World *w)
{
	lives_run(w);
	if (w->conf.limits.work > 0)
		expire_in_steps(w);
	else
	{
		while (le_core_expire(w->core, w->now, 16) == 16)
			;
	}
	w->expired = w->now;
	ENSURE(w, le_core_next_deadline(w->core) > w->now);
	dead_check(w);
	if (w->conf.model)
		model_expire(w->model, w->now);
}

/* --- what survives a crash of the manager after a batch is stored --- */

void
durable_reset(Durable *d)
{
	d->id = 0;
	d->xact = 0;
	d->waiting = false;
}

static void
durable_touch(Durable *d, const LeCommand *cmd)
{
	if (d->id != cmd->session)
		durable_reset(d);
	d->id = cmd->session;
	d->xact = cmd->xact;
}

static void
durable_undo(Durable *d, const LeCommand *cmd)
{
	if (d->id != cmd->session || d->xact != cmd->xact)
		return;
	if (d->waiting && d->cmd.xact == cmd->xact && d->cmd.subxact >= cmd->subxact)
		d->waiting = false;
}

static void
durable_wait(Durable *d, const Posted *p)
{
	d->waiting = p->reply.status == LE_WAITING;
	if (!d->waiting)
		return;
	d->cmd = p->cmd;
	keep_names(&d->cmd, d->names);
	if (p->cmd.type == LE_CMD_ACQUIRE)
		d->cmd.revision = p->reply.token;
	d->wait_until = p->cmd.wait == LE_WAIT_FOREVER ? LE_NEVER : p->at + p->cmd.wait;
}

static void
learn(World *w, const LeCommand *cmd, const LeReply *reply)
{
	Known *known = &w->known[w->nknown++ % KNOWN];

	known->token = reply->token;
	known->epoch = reply->epoch;
	known->epoch_is = reply->epoch_is;
	known->kind = (uint8_t) cmd->kind;
	known->owner = sim_text_id(cmd->owner.data);
	known->lease = cmd->lease;
	known->role = cmd->role;
	known->n = command_names(cmd);
	for (uint32_t i = 0; i < known->n; i++)
		known->names[i] = (uint16_t) sim_text_id(command_name(cmd, i).data);
}

/* A client receives its reply. */
static void
answered(World *w, const LeCommand *cmd, const LeReply *reply)
{
	Client *c = &w->clients[cmd->sessno];

	w->answers++;
	flush_told(w, cmd, reply);
	if (reply->status == LE_OK || reply->status == LE_QUEUED)
	{
		if (cmd->type == LE_CMD_ACQUIRE)
			learn(w, cmd, reply);
		if (cmd->type == LE_CMD_GRANT_LEASE)
		{
			w->leases[w->nleases % 64] = reply->lease;
			w->lease_roles[w->nleases++ % 64] = cmd->role;
		}
	}
	if (c->id != cmd->session || c->request != cmd->request)
		return;
	c->busy = false;
	c->has_more = reply->next != 0;
	c->more = *cmd;
	c->more.from = reply->next;
}

/* Another request has displaced the wait for a place. */
static void
durable_displace(World *w, const LeReply *by)
{
	Durable *d = &w->durable[by->displaced_sessno];
	LeReply reply = {.status = LE_QUEUED, .lsn = by->lsn, .wrote = by->wrote, .bound = by->bound};

	if (by->displaced_session == 0)
		return;
	ENSURE(w, d->id == by->displaced_session && d->waiting && d->cmd.request == by->displaced_request &&
				  d->cmd.type == LE_CMD_AWAIT);
	d->waiting = false;
	answered(w, &d->cmd, &reply);
}

static void
durable_apply(World *w, const Posted *p)
{
	const LeCommand *cmd = &p->cmd;
	Durable *d = &w->durable[cmd->sessno];

	switch (cmd->type)
	{
		case LE_CMD_ACQUIRE:
			durable_touch(d, cmd);
			durable_wait(d, p);
			break;
		case LE_CMD_AWAIT:
			durable_touch(d, cmd);
			durable_displace(w, &p->reply);
			durable_wait(d, p);
			break;
		case LE_CMD_RELEASE:
			durable_touch(d, cmd);
			break;
		case LE_CMD_UNDO:
			durable_undo(d, cmd);
			break;
		case LE_CMD_SESSION_END:
			if (d->id != cmd->session)
				break;
			d->waiting = false;
			if (p->reply.next == 0)
				durable_reset(d);
			break;
		default:
			break;
	}
}

/*
 * The newest token of an exclusive grant of this lock. Exclusive grants have higher tokens than those of all
 * earlier batches.
 */
static int64_t *
last_exclusive(World *w, const LeCommand *cmd, uint32_t i)
{
	return &w->last_exclusive[sim_text_id(command_name(cmd, i).data) * 2 + (cmd->kind == LE_KIND_LOCK)];
}

static void
check_token(World *w, const LeCommand *cmd, int64_t token)
{
	for (uint32_t i = 0; i < command_names(cmd); i++)
		ENSURE(w, token > *last_exclusive(w, cmd, i));
}

static void
check_tokens(World *w)
{
	for (uint32_t i = 0; i < w->nbatch; i++)
	{
		Posted *p = &w->batch[i];

		if (p->cmd.type == LE_CMD_ACQUIRE && p->cmd.mode == LE_MODE_EXCLUSIVE && p->reply.status == LE_OK &&
			!p->reply.reentrant)
			check_token(w, &p->cmd, p->reply.token);
	}
	for (LeEntry *e = NULL; (e = le_next_answer(w->core, e)) != NULL;)
	{
		const LeCommand *cmd = &w->durable[e->waiter->sessno].cmd;

		if (e->waiter->answer == LE_OK && e->mode == LE_MODE_EXCLUSIVE && e->end != LE_END_REPLACED &&
			e->waiter->session == w->durable[e->waiter->sessno].id && cmd->type == LE_CMD_ACQUIRE &&
			cmd->request == e->waiter->request)
			check_token(w, cmd, e->waiter->answer_token);
	}
}

static void
remember_token(World *w, const LeCommand *cmd, int64_t token)
{
	for (uint32_t i = 0; i < command_names(cmd); i++)
	{
		int64_t *last = last_exclusive(w, cmd, i);

		if (token > *last)
			*last = token;
	}
}

static void
remember_tokens(World *w)
{
	for (uint32_t i = 0; i < w->nbatch; i++)
	{
		const Posted *p = &w->batch[i];

		if (p->cmd.type == LE_CMD_ACQUIRE && p->cmd.mode == LE_MODE_EXCLUSIVE && p->reply.status == LE_OK &&
			!p->reply.reentrant)
			remember_token(w, &p->cmd, p->reply.token);
	}
}

static void
give_answers(World *w)
{
	for (LeEntry *e = NULL; (e = le_next_answer(w->core, e)) != NULL;)
	{
		Durable *d = &w->durable[e->waiter->sessno];
		LeReply reply;

		if (d->id != e->waiter->session || !d->waiting || d->cmd.request != e->waiter->request ||
			(w->conf.broken == BROKEN_WAKE_UP && rng_chance(&w->rng, 20)))
			continue;
		le_entry_answer(w->core, e, w->now, &reply);
		le_core_check_answer(w->core, e, w->now, &reply);
		NOTE(w, "answer to s%u#%d: %s %lld", e->waiter->sessno, (int) d->id, sim_status_name(reply.status),
			 (long long) reply.token);
		ENSURE(w, reply.status != LE_WAITING);
		d->waiting = false;
		if (reply.status == LE_OK && d->cmd.type == LE_CMD_ACQUIRE && e->mode == LE_MODE_EXCLUSIVE &&
			e->end != LE_END_REPLACED)
			remember_token(w, &d->cmd, reply.token);
		answered(w, &d->cmd, &reply);
	}
}

/* Stores the batch; the requests of the batch then have their replies. */
static void
batch_store(World *w)
{
	w->batches++;
	flush_before(w);
	w->lsn++;
	store_write(w);
	history_write(w);
	if (w->conf.model)
	{
		model_compare_answers(w->model);
		if (w->conf.check_every == 1 || w->batches % w->conf.check_every == 0)
		{
			model_compare(w->model);
			model_compare_rows(w->model);
			model_compare_history(w->model);
		}
	}
	for (uint32_t i = 0; i < w->nbatch; i++)
		durable_apply(w, &w->batch[i]);
	check_tokens(w);
	for (uint32_t i = 0; i < w->nbatch; i++)
	{
		if (w->batch[i].reply.status != LE_WAITING && w->batch[i].cmd.request != 0)
			answered(w, &w->batch[i].cmd, &w->batch[i].reply);
	}
}

/* Sends the replies to waiters. */
static void
batch_answer(World *w)
{
	give_answers(w);
	remember_tokens(w);
	le_core_batch_done(w->core, w->lsn);
	w->nbatch = 0;
	if (w->meta.incarnation < le_core_next_revision(w->core) >> LE_COUNTER_BITS)
	{
		w->meta.incarnation = le_core_next_revision(w->core) >> LE_COUNTER_BITS;
		w->meta.taken_at = world_time(w);
		flush_all(w);
	}
	if (w->newest_revision < le_core_next_revision(w->core))
		w->newest_revision = le_core_next_revision(w->core);
	if (w->conf.model)
		model_stored(w->model);
	disks_hear(w);
	check_core(w);
}

void
batch_end(World *w)
{
	batch_store(w);
	batch_answer(w);
}

/* --- failing --- */

static int
by_revision(const void *a, const void *b)
{
	const Durable *x = *(Durable *const *) a, *y = *(Durable *const *) b;
	int64_t rx = x->cmd.type == LE_CMD_ACQUIRE ? x->cmd.revision : x->cmd.token,
			ry = y->cmd.type == LE_CMD_ACQUIRE ? y->cmd.revision : y->cmd.token;

	return rx < ry ? -1 : rx > ry;
}

static void
post_waiters(World *w)
{
	Durable **waiting = malloc(w->conf.sessions * sizeof(*waiting));
	uint32_t n = 0;

	if (waiting == NULL)
		abort();
	for (uint32_t i = 0; i < w->conf.sessions; i++)
	{
		if (w->durable[i].waiting)
			waiting[n++] = &w->durable[i];
	}
	qsort(waiting, n, sizeof(*waiting), by_revision);
	for (uint32_t i = 0; i < n; i++)
	{
		LeCommand cmd = waiting[i]->cmd;
		LeReply reply;

		if (waiting[i]->wait_until != LE_NEVER)
			cmd.wait = waiting[i]->wait_until > w->now ? waiting[i]->wait_until - w->now : 1;
		batch_post(w, &cmd, &reply);
	}
	free(waiting);
}

/* A waiter that was granted, and waits again after a reload, must get its reply now. */
static void
expect_lost(World *w)
{
	for (uint32_t i = 0; i < w->conf.sessions; i++)
	{
		Durable *d = &w->durable[i];

		if (d->lost != 0 && w->conf.model)
			model_expect_answer(w->model, &d->cmd, d->lost);
		d->lost = 0;
	}
}

/* Builds a new core from the stored rows, with the remaining waiters or without any. */
void
batch_rebuild(World *w, int64_t next_revision, Loss loss)
{
	LeCore *old = w->core;

	w->reloads++;
	w->nbatch = 0;
	if (loss != LOST_BATCH)
	{
		store_write_later(w);
		lives_begin(w);
	}
	w->env.seed[0] = rng_mix(w->env.seed[0] + 1);
	w->core = le_core_create(&w->env, w->conf.sessions, next_revision);
	ENSURE(w, w->core != NULL);
	le_core_set_limits(w->core, &w->conf.limits);
	w->recovering = true;
	store_load(w, loss == LOST_BATCH ? old : NULL);
	le_core_destroy(old);
	post_waiters(w);
	le_core_load_done(w->core, w->now);
	if (w->conf.model)
		model_reload(w->model, w->now, loss);
	expect_lost(w);
	batch_end(w);
	w->recovering = false;
}

/* Starts another manager. */
void
batch_reload(World *w)
{
	batch_rebuild(w, le_core_next_revision(w->core), LOST_MANAGER);
}

void
batch_crash(World *w)
{
	/* it can take a while until the next start */
	world_new_manager(w, rng_chance(&w->rng, 300) ? rng_below(&w->rng, 4000000) : 0);
	NOTE(w, "crash");
	batch_reload(w);
}

/* Returns whether this waiter holds everything that it requested, and none of it has ended. */
static bool
has_all(World *w, const Durable *d, const LeEntry *answer)
{
	if (answer->waiter->answer != LE_OK || d->cmd.type != LE_CMD_ACQUIRE || answer->end == LE_END_REPLACED)
		return false;
	for (uint32_t i = 0; i < command_names(&d->cmd); i++)
	{
		const LeEntry *entry =
			le_core_find_entry(w->core, d->cmd.kind, command_name(&d->cmd, i), answer->waiter->answer_token);

		if (entry == NULL || entry->state != LE_STATE_HELD)
			return false;
	}
	return true;
}

/*
 * Simulates a crash after the batch was stored and before the waiters got their
 * replies.  Only if all of them were granted: other replies could not be
 * repeated.
 */
void
batch_lose_answers(World *w)
{
	bool all = true;

	batch_store(w);
	for (LeEntry *e = NULL; (e = le_next_answer(w->core, e)) != NULL;)
	{
		Durable *d = &w->durable[e->waiter->sessno];

		if (d->id != e->waiter->session || !d->waiting || d->cmd.request != e->waiter->request)
			continue;
		d->lost = e->waiter->answer_token;
		all = all && has_all(w, d, e);
	}
	for (uint32_t i = 0; i < w->conf.sessions && !all; i++)
		w->durable[i].lost = 0;
	if (!all)
	{
		batch_answer(w);
		return;
	}
	remember_tokens(w);
	if (w->conf.model)
		model_stored(w->model);
	batch_crash(w);
}

/*
 * Nothing can be written, and for a while not even read, because another session
 * has locked the tables.  Requests in this time are rejected, and repeated later.
 */
static void
fail_to_write(World *w)
{
	le_pause_broken(&w->pause);
	w->clock += rng_below(&w->rng, 500000);
	for (int n = rng_chance(&w->rng, 700) ? 0 : 1 + (int) rng_below(&w->rng, 4); n > 0; n--)
	{
		le_pause_refused(&w->pause);
		keeper_refused(w);
		w->clock += rng_below(&w->rng, 3000000);
		(void) le_pause_seen(&w->pause, w->pause.seen_at, w->clock);
	}

	/* requests from a time without rejections wait for the next batch */
	if (w->pause.refused)
		keeper_refused(w);
	(void) le_pause_mended(&w->pause, w->clock);
	w->now = le_pause_time(&w->pause, w->clock);
}

/* The batch was not stored: applies its requests again, one by one. */
void
batch_fail(World *w)
{
	uint32_t n = w->nbatch;
	Posted *again = malloc((n + 1) * sizeof(Posted));

	if (again == NULL)
		abort();
	NOTE(w, "batch of %u fails", n);
	memcpy(again, w->batch, n * sizeof(Posted));
	for (uint32_t i = 0; i < n; i++)
		again[i].cmd.names = again[i].names;
	if (w->conf.outages)
		fail_to_write(w);
	batch_rebuild(w, le_core_next_revision(w->core), LOST_BATCH);
	for (uint32_t i = 0; i < n; i++)
	{
		LeReply reply;

		batch_post(w, &again[i].cmd, &reply);
		batch_end(w);
	}
	free(again);
}
