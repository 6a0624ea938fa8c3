/*
 * le_sql_fence.c
 *		The SQL functions for fences: of a transaction, and of a table.
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "miscadmin.h"
#include "utils/rel.h"

#include "le_args.h"
#include "le_compat.h"
#include "le_fence.h"
#include "le_request.h"
#include "le_sql.h"

LE_FUNCTION(le_fence_lock);
LE_FUNCTION(le_fence_guard);

/* --- fences --- */

static void
check_holder(LeCommand *cmd, LeReply *reply)
{
	le_request(cmd, reply, false);
	le_check_reply(cmd, reply);
	if (reply->status != LE_OK)
		ereport(ERROR, (errcode(ERRCODE_LE_LOST), errmsg("lock \"%.*s\" is not held by token " INT64_FORMAT,
														 (int) cmd->name.len, cmd->name.data, cmd->token)));
}

/* fence_lock(name, token) */
Datum
le_fence_lock(PG_FUNCTION_ARGS)
{
	LeCommand cmd = {.kind = LE_CMD_CHECK, .ns = LE_KIND_LOCK};
	LeReply reply;

	cmd.name = le_arg_name(fcinfo, 0);
	cmd.token = le_arg_token(fcinfo, 1);
	cmd.role = GetUserId();

	/* its TTL may have ended since: that takes nothing from this transaction */
	if (le_fence_is_mine(cmd.ns, cmd.name, cmd.token))
		PG_RETURN_VOID();

	/* first the right to fence it, then the fence, then what it rests on */
	check_holder(&cmd, &reply);
	le_fence_take(cmd.token);
	check_holder(&cmd, &reply);

	/* fenced, it cannot be lost however long this takes */
	reply.valid_for = LE_NEVER;
	le_wait_durable(&reply, "lock", cmd.name);
	le_fence_note(cmd.ns, cmd.name, cmd.token);
	PG_RETURN_VOID();
}

/* --- guards of tables --- */

static LeText
guard_name(FunctionCallInfo fcinfo)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	LeText name;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
						errmsg("function \"%s\" was not called by trigger manager", "fence_guard")));
	if (!TRIGGER_FIRED_BEFORE(trigger->tg_event))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
						errmsg("trigger \"%s\" must be fired BEFORE: it calls fence_guard",
							   trigger->tg_trigger->tgname)));
	if (trigger->tg_trigger->tgnargs != 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("trigger \"%s\" must call fence_guard with one argument, the name of a lock",
							   trigger->tg_trigger->tgname)));
	name.data = trigger->tg_trigger->tgargs[0];
	name.len = (uint32) strlen(name.data);
	if (name.len < 1 || name.len > LE_MAX_NAME)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("trigger \"%s\" calls fence_guard with a name of %u bytes",
							   trigger->tg_trigger->tgname, name.len),
						errdetail("The name of a lock has 1 to %u bytes.", LE_MAX_NAME)));
	return name;
}

/* fence_guard('name'), BEFORE a statement or a row of it */
Datum
le_fence_guard(PG_FUNCTION_ARGS)
{
	LeText name = guard_name(fcinfo);
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!le_fence_is_mine(LE_KIND_LOCK, name, 0))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot write to table \"%s\": this transaction has not fenced lock \"%s\"",
							   RelationGetRelationName(trigger->tg_relation), name.data),
						errhint("Call fence_lock(name, token) in this transaction first.")));
	if (TRIGGER_FIRED_FOR_STATEMENT(trigger->tg_event))
		return PointerGetDatum(NULL);
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple
																	  : trigger->tg_trigtuple);
}
