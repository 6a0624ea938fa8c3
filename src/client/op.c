/*
 * op.c
 *		Calls that wait for one answer of the server: the network thread does
 *		them, over reconnects, until the call gives up.
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE (50 * LE_MS_NS)

le_op *
le_op_new(le_session *s, le_op_kind kind, const char *name, const char *text)
{
	le_op *op = calloc(1, sizeof(*op));

	(void) s;
	if (op == NULL)
		return NULL;
	op->name = name != NULL ? le_copy(name) : NULL;
	op->text = text != NULL ? le_copy(text) : NULL;
	if ((name != NULL && op->name == NULL) || (text != NULL && op->text == NULL) ||
		le_cond_init(&op->changed) != 0)
	{
		free(op->name);
		free(op->text);
		free(op);
		return NULL;
	}
	op->kind = kind;
	op->refs = 1;
	le_link_init(&op->link);
	return op;
}

void
le_op_unref(le_op *op)
{
	if (--op->refs > 0)
		return;
	pthread_cond_destroy(&op->changed);
	free(op->name);
	free(op->text);
	free(op);
}

/* Its link is the list's reference. */
void
le_op_done(le_op *op, const le_error *error)
{
	if (op->done)
		return;
	op->done = true;
	le_error_copy(&op->error, error);
	if (!le_link_empty(&op->link))
	{
		le_link_remove(&op->link);
		op->refs--;
	}
	pthread_cond_broadcast(&op->changed);
}

le_status
le_op_run(le_session *s, le_op *op, int64_t until, le_leader_info *leader, le_error *error)
{
	le_status status;

	op->give_up_at = until;
	le_lock(s);
	le_session_ref(s); /* le_close() in another thread does not wait for this call */
	if (s->closing)
		le_op_done(op, &s->error);
	else
	{
		op->refs++;
		le_link_append(&s->ops, &op->link);
		le_wake_net(s);
	}
	while (!op->done && le_now_ns() < until)
		le_cond_wait(&op->changed, &s->lock, until);
	if (!op->done)
	{
		le_error why;

		le_error_set(&why, op->sent && op->kind == LE_OP_PROCLAIM ? LE_UNKNOWN : LE_UNAVAILABLE, "",
					 "the server has not answered in time%s%s", s->trouble.message[0] != '\0' ? ": " : "",
					 s->trouble.message);
		le_op_done(op, &why);
	}
	status = le_error_copy(error, &op->error);
	if (status == LE_OK && leader != NULL)
		le_struct_write(leader, &op->leader, sizeof(op->leader));
	le_op_unref(op);
	le_unlock(s);
	le_session_unref(s);
	return status;
}

/* --- what they do; locked at entry and exit --- */

static PGresult *
run(le_session *s, const char *sql, int n, const char *const *values)
{
	PGresult *result;

	le_unlock(s);
	result = le_exec(s, le_add(le_now_ns(), s->call), sql, n, values);
	le_lock(s);
	return result;
}

/* True: the result is an answer.  Otherwise the operation has failed, or is tried again. */
static bool
is_answer(le_session *s, le_op *op, const PGresult *result)
{
	if (op->done || PQresultStatus(result) == PGRES_TUPLES_OK)
		return !op->done;
	if (result == NULL || le_error_passes(&s->net.error))
		s->net.ask_at = le_add(le_now_ns(), PAUSE);
	else
		le_op_done(op, &s->net.error);
	return false;
}

static void
leader(le_session *s, le_op *op)
{
	static const char sql[] = "SELECT term, candidate, (extract(epoch FROM elected_at) "
							  "OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8,"
							  " (extract(epoch FROM valid_for) OPERATOR(pg_catalog.*) 1000)::pg_catalog.int8"
							  " FROM @extschema@.current_leader($1)";
	const char *values[] = {op->name};
	PGresult *result = run(s, sql, 1, values);
	le_leader_info *info = &op->leader;
	le_error ok;

	if (is_answer(s, op, result))
	{
		*info = (le_leader_info){.size = sizeof(*info), .valid_ms = -1};
		if (PQntuples(result) > 0)
		{
			info->term = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
			snprintf(info->candidate, sizeof(info->candidate), "%s", PQgetvalue(result, 0, 1));
			info->elected_at = strtoll(PQgetvalue(result, 0, 2), NULL, 10);
			if (!PQgetisnull(result, 0, 3))
				info->valid_ms = strtoll(PQgetvalue(result, 0, 3), NULL, 10);
		}
		le_error_clear(&ok);
		le_op_done(op, &ok);
	}
	PQclear(result);
}

static void
proclaim(le_session *s, le_op *op)
{
	char term[24];
	const char *values[] = {op->name, term, op->text};
	PGresult *result;
	le_error answer;

	snprintf(term, sizeof(term), "%lld", (long long) op->token);
	op->sent = true;
	result = run(s, "SELECT @extschema@.proclaim($1, $2, $3)", 3, values);
	if (is_answer(s, op, result))
	{
		if (PQgetvalue(result, 0, 0)[0] == 't')
			le_error_clear(&answer);
		else
			le_error_set(&answer, LE_LOST, "LE001", "this term does not lead any more");
		le_op_done(op, &answer);
	}
	PQclear(result);
}

static void
reopen(le_session *s, le_op *op)
{
	bool hung = s->progress != 0 && le_now_ns() - atomic_load(&s->progress_at) >= s->progress;
	bool granted;
	le_error error;

	le_error_clear(&error);
	if (hung)
		le_error_set(&error, LE_UNAVAILABLE, "", "the application has not reported progress");
	else if (atomic_load(&s->state) == LE_ENDED)
	{
		le_unlock(s);
		granted = le_grant(s);
		le_lock(s);
		if (!granted && s->net.conn == NULL)
			return; /* connects, and tries again */
		if (!granted)
			le_error_copy(&error, &s->net.error);
	}
	le_op_done(op, &error);
}

void
le_op_work(le_session *s, le_op *op)
{
	op->refs++;
	switch (op->kind)
	{
		case LE_OP_REOPEN:
			reopen(s, op);
			break;
		case LE_OP_LEADER:
			leader(s, op);
			break;
		case LE_OP_PROCLAIM:
			proclaim(s, op);
			break;
	}
	le_op_unref(op);
}
