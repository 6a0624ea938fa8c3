/*
 * fence.c
 *		The fence, in the application's own connection.
 */
#include "internal.h"

#include <stdio.h>
#include <string.h>

static void
fence_sql(const le_hold *hold, le_text *sql, le_text *names)
{
	le_session *s = hold->session;
	const char *schema;

	le_lock(s);
	schema = s->fence_schema;
	if (hold->kind == LE_KIND_TERM)
		le_text_add(sql, "SELECT %s.fence_leader($1, $2)", schema);
	else if (hold->kind != LE_KIND_LOCKS)
		le_text_add(sql, "SELECT %s.fence_lock($1, $2)", schema);
	else
		le_text_add(sql,
					"SELECT %s.fence_lock(u.n, $2) FROM pg_catalog.unnest($1::pg_catalog.text[]) AS u(n)",
					schema);
	le_unlock(s);
	le_hold_names(hold, names);
}

/* Whatever fails here, the transaction writes nothing: there is no unknown outcome. */
static le_status
answer(const PGresult *result, const PGconn *yours, le_error *error)
{
	le_error why;

	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		return LE_OK;
	if (result == NULL)
		le_error_connection(&why, yours);
	else
		le_error_result(&why, result);
	if (why.status == LE_UNKNOWN)
		why.status = LE_UNAVAILABLE;
	return le_error_copy(error, &why);
}

le_status
le_fence(le_hold *hold, PGconn *yours, le_error *error)
{
	le_text sql = {0}, names = {0};
	char token[24];
	const char *values[] = {NULL, token};
	le_status status;
	PGresult *result;

	le_error_clear(error);
	if (le_in_child(hold->session))
		return le_error_set(error, LE_INVALID, "", "the session belongs to the parent process");
	if (yours == NULL || PQtransactionStatus(yours) != PQTRANS_INTRANS)
		return le_error_set(error, LE_INVALID, "", "the connection has no open transaction");
	if (!le_valid(hold))
		return le_error_set(error, LE_LOST, "LE001", "it is not held any more");
	snprintf(token, sizeof(token), "%lld", (long long) le_token(hold));
	fence_sql(hold, &sql, &names);
	values[0] = names.data;
	if (sql.failed || names.failed)
		status = le_error_set(error, LE_NO_MEMORY, "", "out of memory");
	else
	{
		result = PQexecParams(yours, sql.data, 2, NULL, values, NULL, NULL, 0);
		status = answer(result, yours, error);
		PQclear(result);
	}
	le_text_free(&sql);
	le_text_free(&names);
	return status;
}
