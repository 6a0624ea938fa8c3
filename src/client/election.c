/*
 * election.c
 *		Reads the leader of an election.  Candidacies are holds, see hold.c.
 */
#include <stdio.h>
#include <stdlib.h>

#include "arguments.h"
#include "error.h"
#include "objects.h"
#include "ownership.h"

/* Size of le_leader_info in the library's first version, in which candidate was the last member */
#define LEADER_LEAST (offsetof(le_leader_info, candidate) + LE_CANDIDATE_MAX + 1)

le_status
le_leader(le_session *session, const char *election, le_leader_info *leader, le_error *error)
{
	static const char sql[] = "SELECT term, candidate, (extract(epoch FROM elected_at) "
							  "OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8,"
							  " (extract(epoch FROM valid_for) OPERATOR(pg_catalog.*) 1000)::pg_catalog.int8"
							  " FROM @extschema@.current_leader($1)";
	le_leader_info info = {.size = sizeof(info), .valid_ms = -1};
	PGresult *result;
	le_error why;

	le_must(le_check_session(session, error));
	le_must(le_check_pointer(leader, "leader", error));
	le_must(le_struct_check(leader, LEADER_LEAST, "le_leader_info", error));
	le_must(le_check_text("election", election, LE_NAME_MAX, error));
	le_lock(session);
	session->refs++; /* keeps the session in memory, because le_close() does not wait for this call */
	result = le_ask(session, sql, 1, &election, &why);
	le_unlock(session);
	le_session_unref(session);
	if (result == NULL)
		return le_error_copy(error, &why);
	/* no row means that there is no leader */
	if (PQntuples(result) > 0)
	{
		info.term = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
		snprintf(info.candidate, sizeof(info.candidate), "%s", PQgetvalue(result, 0, 1));
		info.elected_at = strtoll(PQgetvalue(result, 0, 2), NULL, 10);
		if (!PQgetisnull(result, 0, 3))
			info.valid_ms = strtoll(PQgetvalue(result, 0, 3), NULL, 10);
	}
	PQclear(result);
	le_struct_write(leader, &info, sizeof(info));
	return LE_OK;
}
