/*
 * post.c
 *		The manager's part: applies the commands of a batch, and checks each
 *		reply.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static Posted *
posted_add(World *w, const LeCommand *cmd)
{
	Posted *posted;

	if (w->nbatch == w->batch_cap)
	{
		w->batch_cap = w->batch_cap ? w->batch_cap * 2 : MAX_BATCH;
		w->batch = realloc(w->batch, w->batch_cap * sizeof(Posted));
		if (w->batch == NULL)
			abort();
		for (uint32_t i = 0; i < w->nbatch; i++)
			w->batch[i].cmd.names = w->batch[i].names;
	}
	posted = &w->batch[w->nbatch++];
	posted->cmd = *cmd;
	posted->at = w->now;
	keep_names(&posted->cmd, posted->names);
	return posted;
}

/* Returns the names as text, as many as fit. */
static const char *
names_text(const LeCommand *cmd)
{
	static char text[64];
	size_t len = 0;

	text[0] = '\0';
	for (uint32_t i = 0; i < cmd->nnames && len < sizeof(text) - 8; i++)
		len += (size_t) snprintf(text + len, sizeof(text) - len, i > 0 ? ",%d" : " %d",
								 sim_text_id(cmd->names[i].data));
	return text;
}

static void
note_command(World *w, const LeCommand *cmd, const LeReply *reply)
{
	NOTE(w,
		 "%s s%u#%d x%u.%u %s name %d%s mode %d ttl %lld wait %lld token %lld rev %lld lease %lld "
		 "owner %d hold_for %lld%s%s -> %s %lld",
		 sim_command_name(cmd->type), cmd->sessno, (int) cmd->session, cmd->xact, cmd->subxact,
		 cmd->kind == LE_KIND_ELECTION ? "election" : "lock", sim_text_id(cmd->name.data), names_text(cmd),
		 cmd->mode, (long long) cmd->ttl, (long long) cmd->wait, (long long) cmd->token,
		 (long long) cmd->revision, (long long) cmd->lease, sim_text_id(cmd->owner.data),
		 (long long) cmd->hold_for, cmd->enqueue ? " enqueue" : "", cmd->all_holds ? " all" : "",
		 sim_status_name(reply->status), (long long) reply->token);
}

/* Called when the core has applied this command. */
static void
post_applied(World *w, const LeCommand *cmd, const LeReply *reply)
{
	posted_add(w, cmd)->reply = *reply;
	note_command(w, cmd, reply);
	if (cmd->type == LE_CMD_UNDO || cmd->type == LE_CMD_SESSION_END)
		w->mails[cmd->sessno] = (Mail){.cmd = *cmd, .waiting = reply->next != 0};
	if (cmd->type == LE_CMD_UNDO && reply->next == 0 && w->conf.check_every == 1)
		check_undone(w, cmd);
	if (cmd->type == LE_CMD_FORCE_ROLE && reply->next == 0 && w->clients[cmd->sessno].id == cmd->session)
		check_forced(w, cmd, w->clients[cmd->sessno].forced_before);
	if (w->conf.model && !w->recovering)
	{
		LeReply expected;

		model_apply(w->model, cmd, w->now, &expected, reply);
		model_compare_reply(w->model, cmd, &expected, reply);
	}
}

/* Applies one command in the way of the manager. */
void
batch_post(World *w, const LeCommand *cmd, LeReply *reply)
{
	w->commands++;
	lives_run(w);
	ENSURE(w, le_core_reserve(w->core, cmd));
	le_core_apply(w->core, cmd, w->now, reply);
	le_core_check_reply(w->core, cmd, w->now, reply);
	post_applied(w, cmd, reply);
}

/* Returns whether an entry of this role waits. */
static bool
role_waits(const World *w, uint32_t role)
{
	for (uint32_t i = 0; i < le_core_lock_indexes(w->core); i++)
	{
		const LeLock *lock = le_core_lock_at(w->core, i);

		for (const LeLink *link = lock != NULL ? lock->queue.next : NULL;
			 link != NULL && link != &lock->queue; link = link->next)
		{
			if (le_queued(link)->role == role)
				return true;
		}
	}
	return false;
}

/* Runs one step with a limit of work; then the manager grants the locks that were freed, or later. */
static void
force_step(World *w, const LeCommand *step, const LeLimits *limits, LeReply *reply)
{
	LeReply before = *reply;

	(void) le_core_expire(w->core, w->now, 0); /* another batch's work */
	le_core_set_limits(w->core, limits);
	w->commands++;
	ENSURE(w, le_core_reserve(w->core, step));
	le_core_apply(w->core, step, w->now, reply);
	le_core_check_reply(w->core, step, w->now, reply);
	le_core_set_limits(w->core, &w->conf.limits);
	ENSURE(w, reply->next == 0 || reply->next != step->from || reply->ended > 0 || before.next != 0);
	reply->ended += before.ended;
	reply->reopened |= before.reopened;
}

/*
 * FORCE_ROLE.  The model has no partial commands, so in worlds with a model, work is limited only for this
 * command, and nothing happens between its steps except what the manager does with each batch.  If nothing
 * of the role waits, which the steps could grant, several steps are one for the model.  Otherwise they are
 * steps of a client, like those of other commands.
 */
void
batch_post_force_role(World *w, const LeCommand *cmd)
{
	LeLimits limits = w->conf.limits;
	LeCommand step = *cmd;
	LeReply reply;

	if (!w->conf.model || w->expired != w->now || le_core_next_deadline(w->core) <= w->now ||
		rng_chance(&w->rng, 300))
	{
		batch_post(w, cmd, &reply);
		return;
	}
	limits.work = 1 + (int64_t) rng_below(&w->rng, 6);
	do
	{
		LeCommand first = step;

		memset(&reply, 0, sizeof(reply));
		do
		{
			force_step(w, &step, &limits, &reply);
			step.from = reply.next;
		} while (reply.next != 0 && rng_chance(&w->rng, 500) && !role_waits(w, cmd->role));
		while (le_core_expire(w->core, w->now, 16) == 16)
			;
		post_applied(w, &first, &reply);
	} while (reply.next != 0);
}

static LeCommand
one_of_each(const LeCommand *cmd, uint32_t i)
{
	LeCommand one = *cmd;

	one.each = false;
	one.name = cmd->names[i];
	one.names = NULL;
	one.nnames = 0;
	one.tokens = NULL;
	*(cmd->type == LE_CMD_ACQUIRE ? &one.reenter : &one.token) = cmd->tokens[i];
	return one;
}

/* Returns whether this name of a RELEASE is that of a place of several names. */
static bool
waits_in_group(const World *w, const LeCommand *cmd, uint32_t i)
{
	const LeEntry *entry = le_core_find_entry(w->core, cmd->kind, cmd->names[i], cmd->tokens[i]);

	return entry != NULL && entry->state == LE_STATE_QUEUED && entry->place && entry->grouped &&
		   (entry->lease == NULL || !entry->lease->draining);
}

/* Returns whether this status of a name is no error of the command. */
static bool
is_answer(LeStatus status)
{
	return status == LE_OK || status == LE_QUEUED || status == LE_NOT_GRANTED || status == LE_NOT_HELD;
}

/*
 * An error of the whole command is that of one of its names alone.  Nothing has changed, no revision was
 * used, and none of the names before it would have been an error.
 */
static void
check_refused(World *w, const LeCommand *cmd, const LeReply *all, int64_t revision)
{
	LeReply told;

	memset(&told, 0, sizeof(told));
	told.status = all->status;
	told.which = all->which;
	if (all->status == LE_NO_LEASE)
	{
		told.ending = all->ending;
		told.ending_ago = all->ending_ago;
	}
	ENSURE(w, !is_answer(all->status) && all->status != LE_WAITING && all->which < cmd->nnames);
	ENSURE(w, memcmp(&told, all, sizeof(told)) == 0 && le_core_next_revision(w->core) == revision);
	if (w->conf.model && w->conf.check_every == 1)
		model_compare_refused(w->model, cmd);
}

/*
 * Checks the reply to the whole command, which contains what its names have in common: nothing of a name
 * that was not granted, and the shortest remaining time.
 */
static void
check_all(World *w, const LeCommand *cmd, const LeReply *replies, const LeReply *all)
{
	uint32_t there = 0, bound = 0, reentrant = 0, lasting = 0;
	LeReply told;

	memset(&told, 0, sizeof(told));
	told.status = LE_OK;
	told.valid_for = LE_NEVER;
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		const LeReply *one = &replies[i];

		ENSURE(w, is_answer(one->status) && (cmd->type != LE_CMD_RELEASE || one->status != LE_QUEUED) &&
					  (cmd->type == LE_CMD_ACQUIRE || one->status != LE_NOT_GRANTED) &&
					  (cmd->type != LE_CMD_ACQUIRE || one->status != LE_NOT_HELD));
		told.wrote = told.wrote || one->wrote;
		told.counted = told.counted || one->counted;
		told.lsn = one->lsn > told.lsn ? one->lsn : told.lsn;
		lasting += one->wrote && !one->may_return;
		if (one->status != LE_OK && one->status != LE_QUEUED)
			continue;
		there++;
		bound += one->bound;
		reentrant += one->reentrant || one->status == LE_QUEUED;
		told.valid_for = one->valid_for < told.valid_for ? one->valid_for : told.valid_for;
	}
	told.bound = bound == there;
	told.reentrant = reentrant == there;
	told.may_return = cmd->type == LE_CMD_RELEASE && lasting == 0;
	ENSURE(w, memcmp(&told, all, sizeof(told)) == 0);
}

/*
 * A client gets a reply for each name, and flushes once, up to the write on which the whole command depends.
 */
static void
rest_on_all(LeReply *one, const LeReply *all)
{
	one->wrote = all->wrote;
	one->lsn = all->lsn;
	one->bound = all->bound;
	one->may_return = all->may_return;
}

/*
 * Several names, each independently.  For the model and for clients, these are separate commands.  An error
 * has changed nothing, and must be the correct one: separate commands for the same names reach it, too.
 */
void
batch_post_each(World *w, const LeCommand *cmd)
{
	LeReply replies[MAX_GROUP], all, reply;
	bool waits[MAX_GROUP];
	int64_t revision = le_core_next_revision(w->core);

	w->commands++;
	memset(replies, 0xff, sizeof(replies));
	for (uint32_t i = 0; i < cmd->nnames; i++)
		waits[i] = cmd->type == LE_CMD_RELEASE && waits_in_group(w, cmd, i);
	ENSURE(w, le_core_reserve(w->core, cmd));
	le_core_apply_each(w->core, cmd, w->now, replies, &all);
	NOTE(w, "%s each s%u#%d%s -> %s %u", sim_command_name(cmd->type), cmd->sessno, (int) cmd->session,
		 names_text(cmd), sim_status_name(all.status), all.which);
	if (all.status == LE_OK)
		check_all(w, cmd, replies, &all);
	else
		check_refused(w, cmd, &all, revision);
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		LeCommand one = one_of_each(cmd, i);
		bool ended = false;

		/*
		 * A place of several names has ended with the first of them, so nothing is left to post for the
		 * others.  But a name before it may have been the one for which it waited: then it has held since.
		 */
		for (uint32_t j = 0; j < i; j++)
			ended |= waits[i] && waits[j] && cmd->tokens[j] == cmd->tokens[i];
		ended = ended && !(w->conf.model && model_has(w->model, &one));
		if (all.status == LE_OK && ended)
			ENSURE(w, replies[i].status == LE_OK && replies[i].token == cmd->tokens[i]);
		else if (all.status == LE_OK)
		{
			le_core_check_reply(w->core, &one, w->now, &replies[i]);
			rest_on_all(&replies[i], &all);
			post_applied(w, &one, &replies[i]);
		}
		else if (i <= all.which)
		{
			batch_post(w, &one, &reply);
			ENSURE(w, i < all.which ? is_answer(reply.status) : reply.status == all.status);
		}
	}
}
