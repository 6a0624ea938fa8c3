/*
 * client.c
 *		The actions of sessions: one random action per step.
 */
#include <string.h>

#include "sim.h"

#define FIRST_ROLE 10
#define ROLES      2

static LeText
some_name(World *w)
{
	return sim_name((int) rng_below(&w->rng, (uint32_t) w->conf.names));
}

static uint32_t
some_role(World *w)
{
	return FIRST_ROLE + rng_below(&w->rng, ROLES);
}

/* The checked roles, in the form of SET_PERMITS and EVICT. */
static LeText
role_text(uint32_t role)
{
	static uint32_t roles[ROLES];

	roles[role - FIRST_ROLE] = role;
	return (LeText){(const char *) &roles[role - FIRST_ROLE], sizeof(role)};
}

/* Returns a command of this session with a random name. */
static LeCommand
command(World *w, uint32_t sessno, LeCommandType type)
{
	Client *c = &w->clients[sessno];
	LeCommand cmd;

	memset(&cmd, 0, sizeof(cmd));
	if (!c->in_xact)
	{
		c->xact++;
		c->subxact = 1;
	}
	cmd.type = type;
	cmd.kind = rng_chance(&w->rng, 200) ? LE_KIND_ELECTION : LE_KIND_LOCK;
	cmd.name = some_name(w);
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

/* Returns a token that a client knows; rather a new one than an old one.  NULL: none yet. */
static const Known *
some_known(World *w)
{
	uint32_t n = w->nknown < KNOWN ? w->nknown : KNOWN;
	uint32_t back;

	if (n == 0)
		return NULL;
	back = rng_below(&w->rng, rng_chance(&w->rng, 800) && n > 8 ? 8 : n);
	return &w->known[(w->nknown - 1 - back) % KNOWN];
}

/* Chooses a known token with one of its names, and sometimes with another name. */
static bool
pick_known(World *w, LeCommand *cmd)
{
	const Known *known = some_known(w);

	if (known == NULL)
		return false;
	cmd->token = known->token;
	cmd->kind = (LeKind) known->kind;
	cmd->name = rng_chance(&w->rng, 30) ? some_name(w) : sim_name(known->names[rng_below(&w->rng, known->n)]);
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

static LeTime
some_wait(World *w)
{
	return rng_chance(&w->rng, 300)   ? 0
		   : rng_chance(&w->rng, 500) ? LE_WAIT_FOREVER
									  : 1 + (LeTime) rng_below(&w->rng, 3000000);
}

/* Chooses a recent lease; sometimes one of another role, or an invalid number. */
static void
pick_lease(World *w, LeCommand *cmd)
{
	const Known *known = rng_chance(&w->rng, 50) ? some_known(w) : NULL;
	uint32_t i = (w->nleases - 1 - rng_below(&w->rng, w->nleases < 8 ? w->nleases : 8)) % 64;

	if (known == NULL)
		cmd->lease = w->leases[i];
	else
		cmd->lease = known->token;
	if (rng_chance(&w->rng, 900))
		cmd->role = known != NULL ? known->role : w->lease_roles[i];
}

/* Changes the command into a repetition of the request that returned this token. */
static void
as_before(World *w, LeCommand *cmd, const Known *known)
{
	cmd->lease = known->lease;
	cmd->role = known->role;
	if (known->owner >= 0)
		cmd->owner = sim_owner(known->owner);
	else if (known->lease == 0 && rng_chance(&w->rng, 500))
		cmd->owner = sim_owner((int) rng_below(&w->rng, (uint32_t) w->conf.owners));
}

/* --- several names --- */

static void
add_name(LeCommand *cmd, LeText *names, LeText name)
{
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		if (names[i].data == name.data)
			return;
	}
	if (cmd->nnames < MAX_GROUP)
		names[cmd->nnames++] = name;
}

/* Chooses few names out of few, so that requests meet. */
static void
some_names(World *w, LeCommand *cmd, LeText *names)
{
	uint32_t n = rng_chance(&w->rng, 950) ? 1 + rng_below(&w->rng, 5) : 1 + rng_below(&w->rng, MAX_GROUP);
	uint32_t of = (uint32_t) w->conf.names;

	if (n <= 5 && of > 12 && rng_chance(&w->rng, 900))
		of = 12;
	if (n == 1 && rng_chance(&w->rng, 700))
		n = 2;
	for (uint32_t tries = 0; tries < n; tries++)
	{
		uint32_t id = rng_below(&w->rng, of);

		if (w->conf.permit_mille == 0 || id % 4 != 3 || rng_chance(&w->rng, 30))
			add_name(cmd, names, sim_name((int) id));
	}
	if (cmd->nnames == 0)
		add_name(cmd, names, sim_name(0));
}

/* Chooses the names of a token in another order; sometimes more or fewer of them. */
static void
known_names(World *w, LeCommand *cmd, LeText *names, const Known *known)
{
	uint32_t from = rng_below(&w->rng, known->n);

	for (uint32_t i = 0; i < known->n; i++)
	{
		if (known->n == 1 || rng_chance(&w->rng, 970))
			add_name(cmd, names, sim_name(known->names[(from + i) % known->n]));
	}
	if (rng_chance(&w->rng, 100) || cmd->nnames == 0)
		add_name(cmd, names, some_name(w));
}

static void
acquire_group(World *w, uint32_t sessno)
{
	LeCommand cmd = command(w, sessno, LE_CMD_ACQUIRE);
	const Known *known = rng_chance(&w->rng, 250) ? some_known(w) : NULL;
	LeText names[MAX_GROUP];

	cmd.kind = LE_KIND_LOCK;
	cmd.name = (LeText){NULL, 0};
	cmd.names = names;
	cmd.mode = rng_chance(&w->rng, w->conf.shared_mille) ? LE_MODE_SHARED : LE_MODE_EXCLUSIVE;
	cmd.ttl = some_ttl(w, true);
	cmd.wait = some_wait(w);
	if (known != NULL && known->kind == LE_KIND_LOCK)
	{
		known_names(w, &cmd, names, known);
		as_before(w, &cmd, known);
	}
	else
	{
		some_names(w, &cmd, names);
		if (rng_chance(&w->rng, w->conf.owner_mille))
			cmd.owner = sim_owner((int) rng_below(&w->rng, (uint32_t) w->conf.owners));
		if (rng_chance(&w->rng, w->conf.lease_mille) && w->nleases > 0)
			pick_lease(w, &cmd);
	}
	cmd.enqueue = rng_chance(&w->rng, w->conf.enqueue_mille);
	if (cmd.enqueue)
		cmd.wait = 0;
	post(w, &cmd);
}

/* ACQUIRE of several names, RELEASE or CHECK of several tokens, each independently. */
static void
each(World *w, uint32_t sessno)
{
	LeCommandType type = rng_chance(&w->rng, 600) ? LE_CMD_ACQUIRE : LE_CMD_CHECK;
	LeCommand cmd;
	LeText names[MAX_GROUP];
	int64_t tokens[MAX_GROUP] = {0};

	/* a release in a transaction waits for the commit */
	if (type == LE_CMD_CHECK && !w->clients[sessno].in_xact && rng_chance(&w->rng, 700))
		type = LE_CMD_RELEASE;
	cmd = command(w, sessno, type);
	cmd.kind = LE_KIND_LOCK;
	cmd.each = true;
	cmd.later = w->conf.later_mille > 0;
	cmd.name = (LeText){NULL, 0};
	cmd.names = names;
	cmd.tokens = tokens;
	if (type == LE_CMD_ACQUIRE)
	{
		some_names(w, &cmd, names);
		cmd.mode = rng_chance(&w->rng, w->conf.shared_mille) ? LE_MODE_SHARED : LE_MODE_EXCLUSIVE;
		cmd.ttl = some_ttl(w, true);
		cmd.enqueue = rng_chance(&w->rng, w->conf.enqueue_mille);
		if (rng_chance(&w->rng, w->conf.owner_mille))
			cmd.owner = sim_owner((int) rng_below(&w->rng, (uint32_t) w->conf.owners));
		if (rng_chance(&w->rng, w->conf.lease_mille) && w->nleases > 0)
			pick_lease(w, &cmd);
	}
	for (uint32_t n = 1 + rng_below(&w->rng, 8); n > 0; n--)
	{
		const Known *known = some_known(w);
		uint32_t before = cmd.nnames;

		if (known == NULL || known->kind != LE_KIND_LOCK ||
			(known->role != cmd.role && !rng_chance(&w->rng, 20)))
			continue;
		if (type == LE_CMD_ACQUIRE && (cmd.owner.data != NULL || cmd.lease != 0 || cmd.enqueue))
			break;
		add_name(&cmd, names, sim_name(known->names[rng_below(&w->rng, known->n)]));
		if (cmd.nnames > before)
			tokens[before] = known->token;
	}
	if (cmd.nnames == 0)
		return;
	w->clients[sessno].busy = true;
	batch_post_each(w, &cmd);
}

/* AWAIT, RELEASE or CHECK of a token with all its names. */
static void
on_group(World *w, LeCommand cmd)
{
	const Known *known = some_known(w);
	LeText names[MAX_GROUP];
	int64_t tokens[MAX_GROUP];

	if (known == NULL)
		return;
	cmd.kind = (LeKind) known->kind;
	cmd.name = (LeText){NULL, 0};
	cmd.names = names;
	cmd.token = known->token;
	cmd.revision = 0;
	if (rng_chance(&w->rng, 800) && cmd.role != 0)
		cmd.role = known->role;
	known_names(w, &cmd, names, known);
	if (cmd.type == LE_CMD_AWAIT)
	{
		post(w, &cmd);
		return;
	}

	/* all names with this token */
	cmd.each = true;
	cmd.tokens = tokens;
	for (uint32_t i = 0; i < cmd.nnames; i++)
		tokens[i] = cmd.token;
	w->clients[cmd.sessno].busy = true;
	if (cmd.nnames > 0)
		batch_post_each(w, &cmd);
}

/* --- one name --- */

static void
acquire(World *w, uint32_t sessno)
{
	LeCommand cmd = command(w, sessno, LE_CMD_ACQUIRE);
	const Known *known = NULL;
	int id;
	bool permit;

	if (rng_chance(&w->rng, 50) && pick_known(w, &cmd))
	{
		cmd.reenter = cmd.token;
		cmd.token = 0;
	}
	else if (rng_chance(&w->rng, w->conf.group_mille / 8) && (known = some_known(w)) != NULL)
	{
		/* one more hold of a member, if the token is that of a group */
		cmd.kind = (LeKind) known->kind;
		cmd.name = sim_name(known->names[rng_below(&w->rng, known->n)]);
	}
	id = sim_text_id(cmd.name.data);
	permit = rng_chance(&w->rng, 950) ? id % 4 == 3 : id % 4 != 3;
	if (cmd.kind == LE_KIND_ELECTION)
		permit = false;
	if (permit && w->conf.permit_mille > 0)
	{
		cmd.mode = LE_MODE_PERMIT;
		cmd.permits = rng_chance(&w->rng, 950) ? id % 3 + 1 : 2;
	}
	else
		cmd.mode = cmd.kind == LE_KIND_LOCK && rng_chance(&w->rng, w->conf.shared_mille) ? LE_MODE_SHARED
																						 : LE_MODE_EXCLUSIVE;
	cmd.ttl = some_ttl(w, true);
	cmd.wait = some_wait(w);
	if (cmd.reenter == 0 && rng_chance(&w->rng, w->conf.owner_mille))
		cmd.owner = sim_owner((int) rng_below(&w->rng, (uint32_t) w->conf.owners));
	if (cmd.reenter == 0 && rng_chance(&w->rng, w->conf.lease_mille) && w->nleases > 0)
		pick_lease(w, &cmd);
	if (known != NULL)
		as_before(w, &cmd, known);
	cmd.enqueue = cmd.reenter == 0 && rng_chance(&w->rng, w->conf.enqueue_mille);
	if (cmd.enqueue)
		cmd.wait = 0;
	if (cmd.kind == LE_KIND_ELECTION)
		cmd.value = sim_value((int) rng_below(&w->rng, 64));
	post(w, &cmd);
}

static void
on_token(World *w, uint32_t sessno, LeCommandType type)
{
	LeCommand cmd = command(w, sessno, type);

	if (!pick_known(w, &cmd))
		return;
	if (type == LE_CMD_RENEW && rng_chance(&w->rng, 200))
		cmd.ttl = some_ttl(w, false);
	if (type == LE_CMD_AWAIT)
		cmd.wait = some_wait(w);
	if (type == LE_CMD_CHECK && rng_chance(&w->rng, 300))
		cmd.role = 0;
	else if (type == LE_CMD_CHECK && rng_chance(&w->rng, 300))
	{
		if (rng_chance(&w->rng, 500))
			cmd.before = cmd.token;
		cmd.token = 0;
	}
	if ((type == LE_CMD_CHECK || type == LE_CMD_AWAIT) && rng_chance(&w->rng, w->conf.group_mille / 2))
	{
		on_group(w, cmd);
		return;
	}
	if (type == LE_CMD_PROCLAIM)
		cmd.value = sim_value((int) rng_below(&w->rng, 64));
	post(w, &cmd);
}

static void
release(World *w, uint32_t sessno)
{
	LeCommand cmd = command(w, sessno, LE_CMD_RELEASE);

	cmd.all_holds = rng_chance(&w->rng, 300);
	cmd.later = w->conf.later_mille > 0;
	if (rng_chance(&w->rng, 150))
		cmd.hold_for = 1 + (LeTime) rng_below(&w->rng, rng_chance(&w->rng, 800) ? 3000000 : 60000000);
	if (rng_chance(&w->rng, w->conf.group_mille / 2))
		on_group(w, cmd);
	else if (rng_chance(&w->rng, 300) || pick_known(w, &cmd))
		post(w, &cmd);
}

/* Ends all entries of a role, the own one or the other one. */
static void
force_role(World *w, LeCommand cmd)
{
	Client *c = &w->clients[cmd.sessno];

	cmd.type = LE_CMD_FORCE_ROLE;
	cmd.kind = (LeKind) 0;
	cmd.name = (LeText){NULL, 0};
	cmd.any_role = false;
	cmd.role = some_role(w);
	c->busy = true;
	c->forced_before = le_core_next_revision(w->core);
	batch_post_force_role(w, &cmd);
}

static void
on_name(World *w, uint32_t sessno)
{
	LeCommand cmd = command(w, sessno, rng_chance(&w->rng, 300) ? LE_CMD_SET_PERMITS : LE_CMD_FORCE);

	cmd.any_role = rng_chance(&w->rng, 500);
	if (cmd.type == LE_CMD_FORCE && rng_chance(&w->rng, 500))
	{
		cmd.type = LE_CMD_EVICT;
		cmd.value = role_text(some_role(w));
	}
	if (rng_chance(&w->rng, 20))
	{
		cmd.type = LE_CMD_ADVANCE;
		cmd.revision = le_core_next_revision(w->core) - 5 + rng_below(&w->rng, 100);
	}
	if (cmd.type == LE_CMD_SET_PERMITS)
	{
		int id = sim_text_id(cmd.name.data);

		cmd.name = sim_name(id | 3);
		cmd.kind = LE_KIND_LOCK;
		cmd.permits = 1 + (int32_t) rng_below(&w->rng, 4);
		cmd.value = role_text(some_role(w));
	}
	if (cmd.type == LE_CMD_FORCE && rng_chance(&w->rng, w->conf.sessions > 100 ? 5 : 100))
		force_role(w, cmd);
	else
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
		cmd = command(w, sessno,
					  what < 7   ? LE_CMD_KEEP_ALIVE
					  : what < 8 ? LE_CMD_REVOKE_LEASE
								 : LE_CMD_LEASE_TTL);
		pick_lease(w, &cmd);
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
		cmd.type = LE_CMD_FENCE_ENDED;
		batch_post(w, &cmd, &reply);
	}
}

/* --- transactions and sessions --- */

/* Rolls back from this subtransaction on, including a waiting call. */
void
client_undo(World *w, uint32_t sessno, uint32_t subxact)
{
	Client *c = &w->clients[sessno];
	LeCommand cmd;
	LeReply reply;

	memset(&cmd, 0, sizeof(cmd));
	cmd.type = LE_CMD_UNDO;
	cmd.session = c->id;
	cmd.sessno = sessno;
	cmd.xact = c->xact;
	cmd.subxact = subxact;
	c->request++;
	c->busy = false;
	batch_post(w, &cmd, &reply);
}

static void
undo(World *w, uint32_t sessno)
{
	Client *c = &w->clients[sessno];
	uint32_t subxact = 1;

	if (c->depth > 0 && rng_chance(&w->rng, 700))
	{
		c->depth -= 1 + (int) rng_below(&w->rng, (uint32_t) c->depth);
		subxact = c->stack[c->depth];
	}
	else
	{
		c->depth = 0;
		c->in_xact = false;
	}
	client_undo(w, sessno, subxact);
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
	cmd.type = LE_CMD_SESSION_END;
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
	c->id = world_session(w, sessno);
	c->role = FIRST_ROLE + sessno % ROLES;
}

static void
request(World *w, uint32_t sessno)
{
	Client *c = &w->clients[sessno];
	uint32_t what = rng_below(&w->rng, 100);

	if (rng_chance(&w->rng, w->conf.fence_mille))
	{
		/* More fences are kept than ended, so that some outlast their holder. */
		if (w->nfences > 0 && rng_chance(&w->rng, w->nfences == MAX_FENCES ? 700 : 350))
			client_unfence(w, (int) rng_below(&w->rng, (uint32_t) w->nfences), rng_chance(&w->rng, 500));
		else
			fence(w, sessno);
	}
	else if (rng_chance(&w->rng, w->conf.xact_mille))
		transaction(w, sessno);
	else if (what < 45)
	{
		if (rng_chance(&w->rng, w->conf.group_mille / 3))
			each(w, sessno);
		else if (rng_chance(&w->rng, w->conf.group_mille))
			acquire_group(w, sessno);
		else
			acquire(w, sessno);
	}
	else if (what < 65)
	{
		/* a release in a transaction waits for the commit */
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

/* Continues the steps of a call until its work is complete. */
static void
go_on(World *w, uint32_t sessno)
{
	Client *c = &w->clients[sessno];
	LeCommand cmd = c->more;

	cmd.request = ++c->request;
	c->has_more = false;
	post(w, &cmd);
}

void
client_step(World *w)
{
	uint32_t sessno = rng_below(&w->rng, w->conf.sessions);
	Client *c = &w->clients[sessno];

	if (w->mails[sessno].waiting)
		return;
	if (c->id == 0)
		connect_client(w, sessno);
	else if (!c->busy && c->has_more)
		go_on(w, sessno);
	else if (!c->busy)
		request(w, sessno);
	else if (rng_chance(&w->rng, 60))
		undo(w, sessno);
	else if (rng_chance(&w->rng, 20))
		client_end(w, sessno);
}
