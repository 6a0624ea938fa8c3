/*
 * fence.c
 *		Fences a hold in a transaction on the application's own connection.
 */
#include <stdio.h>
#include <stdlib.h>

#include "arguments.h"
#include "due.h"
#include "error.h"
#include "objects.h"
#include "text.h"

/* Adds the hold's names as an array of bytea, because the application's connection may have any encoding. */
static void
add_names(const le_hold *hold, le_text *names)
{
	for (int i = 0; i < hold->n; i++)
	{
		le_text_add(names, "%s\"\\\\x", i == 0 ? "{" : ",");
		for (const char *c = hold->names[i]; *c != '\0'; c++)
			le_text_add(names, "%02x", (unsigned char) *c);
		le_text_add(names, "\"");
	}
	le_text_add(names, "}");
}

le_status
le_fence(le_hold *hold, PGconn *yours, le_error *error)
{
	le_text sql = {0}, names = {0};
	char token[24];
	le_error why = {.status = LE_OK};
	PGresult *result;

	le_must(le_check_hold(hold, error));
	le_must(le_check_pointer(yours, "yours", error));
	if (PQtransactionStatus(yours) != PQTRANS_INTRANS)
		return le_invalid(error, "yours has no open transaction, or one that has failed");
	if (!le_valid(hold))
		return le_error_set(error, LE_LOST, "LE001", "it is not held any more");
	snprintf(token, sizeof(token), "%lld", (long long) le_token(hold));
	add_names(hold, &names);
	le_lock(hold->session);
	le_text_add(&sql,
				"SELECT %s.%s(pg_catalog.convert_from(u.n, 'UTF8'), $2)"
				" FROM pg_catalog.unnest($1::pg_catalog.bytea[]) AS u(n)",
				hold->session->schema, hold->kind == LE_KIND_TERM ? "fence_leader" : "fence_lock");
	le_unlock(hold->session);
	if (sql.failed || names.failed)
		le_no_memory(&why);
	else
	{
		result = PQexecParams(yours, sql.data, 2, NULL, (const char *[]){names.data, token}, NULL, NULL, 0);
		le_succeeded(yours, result, &why);
		PQclear(result);
	}
	free(sql.data);
	free(names.data);
	/* an error aborts the transaction, which then writes nothing, so the outcome is never unknown */
	if (why.status == LE_UNKNOWN)
		why.status = LE_UNAVAILABLE;
	if (le_error_is_absent(&why))
	{
		/* make a renewal due, by which the session learns the new schema for the next transaction */
		le_lock(hold->session);
		hold->session->renew_at = 0;
		le_wake_net(hold->session);
		le_unlock(hold->session);
	}
	return why.status == LE_OK ? LE_OK : le_error_copy(error, &why);
}
