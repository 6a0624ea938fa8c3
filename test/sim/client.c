/*
 * client.c
 *		What sessions do: one random deed a step.
 */
#include <string.h>

#include "sim.h"

/* A command of this session, on some name. */
static LeCommand
command(World *w, uint32_t sessno, LeCommandKind kind)
{
	Client *c = &w->clients[sessno];
	LeCommand cmd;

	memset(&cmd, 0, sizeof(cmd));
	if (!c->in_xact)
	{
		c->xact++;
		c->subxact = 1;
	}
	cmd.kind = kind;
	cmd.ns = rng_chance(&w->rng, 200) ? LE_KIND_ELECTION : LE_KIND_LOCK;
	cmd.name = sim_name((int) rng_below(&w->rng, (uint32_t) w->conf.names));
	cmd.role = c->role;
	cmd.session = c->id;
	cmd.sessno = sessno;
	cmd.xact = c->xact;
	cmd.subxact = c->depth > 0 ? c->stack[c->depth - 1] : 1;
	cmd.request = ++c->request;
	return cmd;
}

static void
post(World *w, const LeCommand *cmd)
{
	LeReply reply;

	w->clients[cmd->sessno].busy = true;
	batch_post(w, cmd, &reply);
}

/* A token that somebody was told; a new one rather than an old one. */
static bool
pick_known(World *w, LeCommand *cmd)
{
	uint32_t n = w->nknown < KNOWN ? w->nknown : KNOWN;
	uint32_t back;
	Known *known;

	if (n == 0)
		return false;
	back = rng_below(&w->rng, rng_chance(&w->rng, 800) && n > 8 ? 8 : n);
	known = &w->known[(w->nknown - 1 - back) % KNOWN];
	cmd->token = known->token;
	cmd->ns = (LeKind) known->ns;
	cmd->name = sim_name(known->name);
	if (rng_chance(&w->rng, 800))
		cmd->role = known->role;
	return true;
}

static LeTime
some_ttl(World *w, bool may_be_bound)
{
	if (may_be_bound && rng_chance(&w->rng, w->conf.bound_mille))
		return LE_TTL_BOUND;
	if (rng_chance(&w->rng, 30))
		return (300 + rng_below(&w->rng, 600)) * LE_SECOND + rng_below(&w->rng, 1000000);
	return 100 * LE_MS + rng_below(&w->rng, 5000000);
}

static void
acquire(World *w, uint32_t sessno)
{
	LeCommand cmd = command(w, sessno, LE_CMD_ACQUIRE);
	int id;
	bool permit;

	if (rng_chance(&w->rng, 50) && pick_known(w, &cmd))
	{
		cmd.again = cmd.token;
		cmd.token = 0;
	}
	id = sim_text_id(cmd.name.data);
	permit = rng_chance(&w->rng, 950) ? id % 4 == 3 : id % 4 != 3;
	if (w->durable[sessno].nholds > MAX_HOLDS - 8 && w->clients[sessno].in_xact)
		return;
	if (permit && w->conf.permit_mille > 0)
	{
		cmd.mode = LE_MODE_PERMIT;
		cmd.permits = rng_chance(&w->rng, 950) ? id % 3 + 1 : 2;
	}
	else
		cmd.mode = rng_chance(&w->rng, w->conf.shared_mille) ? LE_MODE_SHARED : LE_MODE_EXCLUSIVE;
	cmd.ttl = some_ttl(w, true);
	cmd.wait = rng_chance(&w->rng, 300)   ? 0
			   : rng_chance(&w->rng, 500) ? LE_WAIT_FOREVER
										  : 1 + (LeTime) rng_below(&w->rng, 3000000);
	if (cmd.again == 0 && rng_chance(&w->rng, w->conf.owner_mille))
		cmd.owner = sim_owner((int) rng_below(&w->rng, (uint32_t) w->conf.owners));
	if (cmd.again == 0 && rng_chance(&w->rng, w->conf.lease_mille) && w->nleases > 0)
	{
		uint32_t i = (w->nleases - 1 - rng_below(&w->rng, w->nleases < 8 ? w->nleases : 8)) % 64;

		cmd.lease = w->leases[i];
		if (rng_chance(&w->rng, 900))
			cmd.role = w->lease_roles[i];
	}
	cmd.enqueue = cmd.again == 0 && rng_chance(&w->rng, w->conf.enqueue_mille);
	if (cmd.enqueue)
		cmd.wait = 0;
	if (cmd.ns == LE_KIND_ELECTION)
		cmd.value = sim_value((int) rng_below(&w->rng, 64));
	post(w, &cmd);
}

static void
on_token(World *w, uint32_t sessno, LeCommandKind kind)
{
	LeCommand cmd = command(w, sessno, kind);

	if (!pick_known(w, &cmd))
		return;
	if (kind == LE_CMD_RENEW && rng_chance(&w->rng, 200))
		cmd.ttl = some_ttl(w, false);
	if (kind == LE_CMD_AWAIT)
		cmd.wait = rng_chance(&w->rng, 300)   ? 0
				   : rng_chance(&w->rng, 500) ? LE_WAIT_FOREVER
											  : 1 + (LeTime) rng_below(&w->rng, 3000000);
	if (kind == LE_CMD_CHECK && rng_chance(&w->rng, 300))
		cmd.role = 0;
	else if (kind == LE_CMD_CHECK && rng_chance(&w->rng, 300))
	{
		if (rng_chance(&w->rng, 500))
			cmd.revision = cmd.token;
		cmd.token = 0;
	}
	if (kind == LE_CMD_PROCLAIM)
		cmd.value = sim_value((int) rng_below(&w->rng, 64));
	post(w, &cmd);
}

static void
release(World *w, uint32_t sessno)
{
	LeCommand cmd = command(w, sessno, LE_CMD_RELEASE);

	if (rng_chance(&w->rng, 700) && !pick_known(w, &cmd))
		return;
	cmd.all_holds = rng_chance(&w->rng, 300);
	if (rng_chance(&w->rng, 150))
		cmd.hold_for = 1 + (LeTime) rng_below(&w->rng, rng_chance(&w->rng, 800) ? 3000000 : 60000000);
	post(w, &cmd);
}

static void
on_name(World *w, uint32_t sessno)
{
	LeCommand cmd = command(w, sessno, rng_chance(&w->rng, 300) ? LE_CMD_SET_PERMITS : LE_CMD_FORCE);

	cmd.any_role = rng_chance(&w->rng, 500);
	if (cmd.kind == LE_CMD_SET_PERMITS)
	{
		int id = sim_text_id(cmd.name.data);

		cmd.name = sim_name(id | 3);
		cmd.ns = LE_KIND_LOCK;
		cmd.permits = 1 + (int32_t) rng_below(&w->rng, 4);
	}
	post(w, &cmd);
}

static void
on_lease(World *w, uint32_t sessno)
{
	LeCommand cmd;
	uint32_t what = rng_below(&w->rng, 10);

	if (what < 3 || w->nleases == 0)
	{
		cmd = command(w, sessno, LE_CMD_GRANT_LEASE);
		cmd.ttl = some_ttl(w, false);
	}
	else
	{
		uint32_t i = (w->nleases - 1 - rng_below(&w->rng, w->nleases < 8 ? w->nleases : 8)) % 64;

		cmd = command(w, sessno,
					  what < 7   ? LE_CMD_KEEP_ALIVE
					  : what < 8 ? LE_CMD_REVOKE_LEASE
								 : LE_CMD_LEASE_TTL);
		cmd.lease = w->leases[i];
		if (rng_chance(&w->rng, 900))
			cmd.role = w->lease_roles[i];
	}
	post(w, &cmd);
}

/* --- fences --- */

static void
fence(World *w, uint32_t sessno)
{
	LeCommand cmd = command(w, sessno, LE_CMD_CHECK);

	if (!pick_known(w, &cmd))
		return;
	if (w->nfences < MAX_FENCES)
	{
		NOTE(w, "fence %lld", (long long) cmd.token);
		w->fences[w->nfences++] = cmd.token;
	}
	post(w, &cmd);
}

void
client_unfence(World *w, int i, bool tell)
{
	NOTE(w, "unfence %lld", (long long) w->fences[i]);
	w->fences[i] = w->fences[--w->nfences];
	if (tell)
	{
		LeCommand cmd;
		LeReply reply;

		memset(&cmd, 0, sizeof(cmd));
		cmd.kind = LE_CMD_FENCE_ENDED;
		batch_post(w, &cmd, &reply);
	}
}

/* --- transactions and sessions --- */

/* The (sub)transaction aborts, and with it whatever is under way. */
static void
undo(World *w, uint32_t sessno)
{
	Client *c = &w->clients[sessno];
	LeCommand cmd;
	LeReply reply;

	memset(&cmd, 0, sizeof(cmd));
	cmd.kind = LE_CMD_UNDO;
	cmd.session = c->id;
	cmd.sessno = sessno;
	cmd.xact = c->xact;
	if (c->depth > 0 && rng_chance(&w->rng, 700))
	{
		c->depth -= 1 + (int) rng_below(&w->rng, (uint32_t) c->depth);
		cmd.subxact = c->stack[c->depth];
	}
	else
	{
		cmd.subxact = 1;
		c->depth = 0;
		c->in_xact = false;
	}
	c->request++;
	c->busy = false;
	batch_post(w, &cmd, &reply);
}

static void
transaction(World *w, uint32_t sessno)
{
	Client *c = &w->clients[sessno];

	if (!c->in_xact)
	{
		c->in_xact = true;
		c->xact++;
		c->subxact = 1;
		c->depth = 0;
		return;
	}
	switch (rng_below(&w->rng, 4))
	{
		case 0:
			if (c->depth < 8)
				c->stack[c->depth++] = ++c->subxact;
			break;
		case 1:
			if (c->depth > 0)
				c->depth--;
			break;
		case 2:
			undo(w, sessno);
			break;
		case 3:
			c->depth = 0;
			if (rng_chance(&w->rng, 500))
				release(w, sessno);
			c->in_xact = false;
			break;
	}
}

void
client_end(World *w, uint32_t sessno)
{
	Client *c = &w->clients[sessno];
	LeCommand cmd;
	LeReply reply;

	memset(&cmd, 0, sizeof(cmd));
	cmd.kind = LE_CMD_SESSION_END;
	cmd.session = c->id;
	cmd.sessno = sessno;
	memset(c, 0, sizeof(*c));
	batch_post(w, &cmd, &reply);
}

static void
connect_client(World *w, uint32_t sessno)
{
	Client *c = &w->clients[sessno];

	memset(c, 0, sizeof(*c));
	c->id = w->next_session++;
	c->role = 10 + sessno % 2;
}

static void
request(World *w, uint32_t sessno)
{
	Client *c = &w->clients[sessno];
	uint32_t what = rng_below(&w->rng, 100);

	if (rng_chance(&w->rng, w->conf.fence_mille))
	{
		if (w->nfences > 0 && rng_chance(&w->rng, 600))
			client_unfence(w, (int) rng_below(&w->rng, (uint32_t) w->nfences), rng_chance(&w->rng, 500));
		else
			fence(w, sessno);
	}
	else if (rng_chance(&w->rng, w->conf.xact_mille))
		transaction(w, sessno);
	else if (what < 45)
		acquire(w, sessno);
	else if (what < 65)
	{
		/* inside a transaction a release waits for the commit */
		if (!c->in_xact)
			release(w, sessno);
		else
			transaction(w, sessno);
	}
	else if (what < 74)
		on_token(w, sessno, LE_CMD_RENEW);
	else if (what < 80)
		on_token(w, sessno, LE_CMD_AWAIT);
	else if (what < 83)
		on_token(w, sessno, LE_CMD_CHECK);
	else if (what < 85)
		on_token(w, sessno, LE_CMD_PROCLAIM);
	else if (what < 88)
		on_name(w, sessno);
	else if (what < 97)
		on_lease(w, sessno);
	else
		client_end(w, sessno);
}

void
client_step(World *w)
{
	uint32_t sessno = rng_below(&w->rng, w->conf.sessions);
	Client *c = &w->clients[sessno];

	if (c->id == 0)
		connect_client(w, sessno);
	else if (!c->busy)
		request(w, sessno);
	else if (rng_chance(&w->rng, 60))
		undo(w, sessno);
	else if (rng_chance(&w->rng, 20))
		client_end(w, sessno);
}
