/*
 * sql/sql_fence.c
 *		Implements the SQL functions for fences, and for triggers that guard tables.
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "miscadmin.h"
#include "utils/rel.h"

#include "backend/session_fence.h"
#include "backend/session_request.h"
#include "backend/snapshot.h"
#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/words.h"
#include "sql/sql_args.h"
#include "sql/sql.h"

LE_FUNCTION(le_fence_guard);

/* --- fences --- */

/*
 * Checks that the token holds the lock, and that the caller may fence it.  Otherwise raises an error, whose
 * detail says how the token ended.
 */
static void
check_holder(LeCommand *cmd, LeReply *reply)
{
	le_request(cmd, reply, false);
	le_check_reply(cmd, reply);
	if (reply->status != LE_OK)
	{
		const char *detail = le_lost_detail(cmd, reply);

		ereport(ERROR, (errcode(ERRCODE_LE_LOST),
						errmsg("%s is not held by %s " INT64_FORMAT, le_named(cmd->kind, cmd->name),
							   le_token_word(cmd->kind), cmd->token),
						errdetail_internal("%s", detail)));
	}
}

Datum
le_fence(FunctionCallInfo fcinfo, LeKind kind)
{
	LeCommand cmd = {.type = LE_CMD_CHECK, .kind = kind};
	LeReply reply;

	le_arg_holder(fcinfo, &cmd);
	cmd.role = GetUserId();

	if (le_call_is_alone(fcinfo))
		ereport(WARNING, (errcode(ERRCODE_NO_ACTIVE_SQL_TRANSACTION),
						  errmsg("the fence ends with this statement, which is not in a transaction block"),
						  errhint("Fence and write in one transaction block.")));

	/* return if this transaction has already fenced the token, even if its TTL has expired since */
	if (le_fence_is_mine(cmd.kind, cmd.name, cmd.token))
		PG_RETURN_VOID();

	/*
	 * first check the right to fence the token, then take the fence, then check that the token still holds
	 * the lock
	 */
	check_holder(&cmd, &reply);
	LE_FAULT("fence-before-lock");
	le_fence_take(cmd.token);
	LE_FAULT("fence-locked");
	check_holder(&cmd, &reply);
	LE_FAULT("fence-checked");

	le_wait_durable_fenced(&cmd, &reply);
	le_fence_note(cmd.kind, cmd.name, cmd.token);
	Assert(le_fence_is_mine(cmd.kind, cmd.name, cmd.token));
	PG_RETURN_VOID();
}

/* --- table guards --- */

/* Returns the name of the lock or election in the trigger's arguments, and sets *kind. */
static LeText
guard_name(FunctionCallInfo fcinfo, LeKind *kind)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	Trigger *trigger;
	LeText name;

	/* 1. check that the function is called as a trigger before a statement or row */
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
						errmsg("function \"%s\" was not called by trigger manager", "fence_guard")));
	trigger = data->tg_trigger;
	if (!TRIGGER_FIRED_BEFORE(data->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("trigger \"%s\" must be fired BEFORE: it calls fence_guard", trigger->tgname)));

	/* 2. read the kind: a lock or an election */
	*kind = trigger->tgnargs == 2 && strcmp(trigger->tgargs[1], "election") == 0 ? LE_KIND_ELECTION
																				 : LE_KIND_LOCK;
	if (trigger->tgnargs != 1 &&
		(trigger->tgnargs != 2 || strcmp(trigger->tgargs[1], le_kind_word(*kind)) != 0))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("trigger \"%s\" must call fence_guard with one argument, the name of a lock, "
							   "or with two, the "
							   "name and \"lock\" or \"election\"",
							   trigger->tgname)));

	/* 3. read the name */
	name = (LeText){trigger->tgargs[0], (uint32) strlen(trigger->tgargs[0])};
	if (name.len < 1 || name.len > LE_MAX_NAME)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("trigger \"%s\" calls fence_guard with a name of %u bytes", trigger->tgname,
							   name.len),
						errdetail("A name has 1 to %u bytes.", LE_MAX_NAME)));
	return name;
}

/*
 * Implements trigger function fence_guard('name' [, 'election']), called BEFORE a statement or BEFORE each
 * row.
 */
Datum
le_fence_guard(PG_FUNCTION_ARGS)
{
	LeKind kind;
	LeText name = guard_name(fcinfo, &kind);
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!le_fence_is_mine(kind, name, 0))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot write to table \"%s\": this transaction has not fenced %s \"%s\"",
							   RelationGetRelationName(trigger->tg_relation), le_kind_word(kind), name.data),
						errhint("Call %s in this transaction first.", kind == LE_KIND_ELECTION
																		  ? "fence_leader(election, term)"
																		  : "fence_lock(name, token)")));

	/* in a statement-level trigger both rows are NULL */
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple
																	  : trigger->tg_trigtuple);
}
