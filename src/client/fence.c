/*
 * fence.c
 *		The fence, in the application's own connection.
 */
#include "internal.h"

#include <stdio.h>
#include <string.h>

/*
 * A name as the argument of this connection, whose encoding is the
 * application's: in UTF-8, or as the bytes of that.
 */
static void
add_name(const char *name, bool utf8, bool element, le_text *names)
{
	le_text bytes = {0};
	const char *value = name;

	if (!utf8)
	{
		le_text_add(&bytes, "\\x");
		for (const char *c = name; *c != '\0'; c++)
			le_text_add(&bytes, "%02x", (unsigned char) *c);
		value = bytes.data;
	}
	names->failed |= bytes.failed;
	if (!names->failed && element)
		le_text_add_element(names, value);
	else if (!names->failed)
		le_text_add(names, "%s", value);
	le_text_free(&bytes);
}

static void
fence_sql(const le_hold *hold, bool utf8, le_text *sql, le_text *names)
{
	le_session *s = hold->session;
	bool several = hold->n > 1;
	const char *one = utf8 ? "$1" : "pg_catalog.convert_from($1, 'UTF8')";
	const char *each = utf8 ? "u.n" : "pg_catalog.convert_from(u.n, 'UTF8')";

	le_lock(s);
	le_text_add(sql, "SELECT %s.%s(%s, $2)", s->fence_schema,
				hold->kind == LE_KIND_TERM ? "fence_leader" : "fence_lock", several ? each : one);
	le_unlock(s);
	if (several)
		le_text_add(sql, " FROM pg_catalog.unnest($1::%s[]) AS u(n)", utf8 ? "text" : "bytea");
	for (int i = 0; i < hold->n; i++)
	{
		if (several)
			le_text_add(names, i == 0 ? "{" : ",");
		add_name(hold->names[i], utf8, several, names);
	}
	if (several)
		le_text_add(names, "}");
}

/*
 * The schema may have got another name: that cannot be tried again in this
 * transaction, but in the next one.  The session learns the new name with a
 * renewal.
 */
static void
learn_schema(le_session *s)
{
	le_lock(s);
	s->renew_at = 0;
	le_wake_net(s);
	le_unlock(s);
}

/* Whatever fails here, the transaction writes nothing: there is no unknown outcome. */
static le_status
answer(const PGresult *result, const PGconn *yours, le_error *error)
{
	le_error why;

	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		return LE_OK;
	if (result == NULL)
		le_connection_error(yours, &why);
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
	le_error why;
	PGresult *result;
	bool utf8;

	le_must(le_check_hold(hold, error));
	le_must(le_check_pointer(yours, "yours", error));
	if (PQtransactionStatus(yours) != PQTRANS_INTRANS)
		return le_error_set(error, LE_INVALID, "", "yours has no open transaction, or one that has failed");
	if (!le_valid(hold))
		return le_error_set(error, LE_LOST, "LE001", "it is not held any more");
	snprintf(token, sizeof(token), "%lld", (long long) le_token(hold));
	utf8 = strcmp(pg_encoding_to_char(PQclientEncoding(yours)), "UTF8") == 0;
	fence_sql(hold, utf8, &sql, &names);
	values[0] = names.data;
	if (sql.failed || names.failed)
		status = le_no_memory(error);
	else
	{
		result = PQexecParams(yours, sql.data, 2, NULL, values, NULL, NULL, 0);
		status = answer(result, yours, &why);
		PQclear(result);
		if (status != LE_OK)
			le_error_copy(error, &why);
		if (status != LE_OK && le_error_is_absent(&why))
			learn_schema(hold->session);
	}
	le_text_free(&sql);
	le_text_free(&names);
	return status;
}
