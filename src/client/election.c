/*
 * election.c
 *		Leader election: candidacies are holds, see hold.c; and who leads.
 */
#include "internal.h"

#include <string.h>

/* The first version ends with the candidate. */
#define LEADER_LEAST (offsetof(le_leader_info, candidate) + LE_CANDIDATE_MAX + 1)

le_status
le_check_candidacy(const char *election, const char *candidate, le_error *error)
{
	le_status status = le_check_election(election, error);

	return status == LE_OK ? le_check_candidate(candidate, error) : status;
}

le_status
le_enqueue_candidate(le_session *session, const char *election, const char *candidate, le_hold **hold,
					 le_error *error)
{
	le_status status;

	le_error_clear(error);
	status = le_check_pointer(hold, "hold", error);
	if (status != LE_OK)
		return status;
	*hold = NULL;
	status = le_check_candidacy(election, candidate, error);
	if (status != LE_OK)
		return status;
	return le_hold_new(session, LE_KIND_TERM, &election, 1, NULL, candidate, LE_NEVER, hold, error);
}

le_status
le_campaign(le_session *session, const char *election, const char *candidate, int wait_ms, le_hold **hold,
			le_error *error)
{
	int64_t until = le_until(wait_ms);
	le_hold *own;
	le_status status;

	le_error_clear(error);
	status = le_check_pointer(hold, "hold", error);
	if (status != LE_OK)
		return status;
	*hold = NULL;
	status = le_check_candidacy(election, candidate, error);
	if (status == LE_OK)
		status = le_check_wait(wait_ms, error);
	if (status == LE_OK)
		status = le_hold_new(session, LE_KIND_TERM, &election, 1, NULL, candidate, until, &own, error);
	return status == LE_OK ? le_hold_finish(own, hold, error) : status;
}

le_status
le_proclaim(le_hold *hold, const char *candidate, le_error *error)
{
	le_session *s;
	le_status status;
	le_op *op;

	le_error_clear(error);
	status = le_check_hold(hold, error);
	if (status == LE_OK && hold->kind != LE_KIND_TERM)
		status = le_error_set(error, LE_INVALID, "", "hold is a lock: a term is allowed");
	if (status == LE_OK)
		status = le_check_candidate(candidate, error);
	if (status != LE_OK)
		return status;
	s = hold->session;
	if (!le_valid(hold))
		return le_error_set(error, LE_LOST, "LE001", "this term does not lead");
	op = le_op_new(s, LE_OP_PROCLAIM, hold->names[0], candidate);
	if (op == NULL)
		return le_error_set(error, LE_NO_MEMORY, "", "out of memory");
	op->token = le_token(hold);
	return le_op_run(s, op, le_add(le_now_ns(), s->call), NULL, error);
}

le_status
le_leader(le_session *session, const char *election, le_leader_info *leader, le_error *error)
{
	le_status status;
	le_op *op;

	le_error_clear(error);
	status = le_check_session(session, error);
	if (status == LE_OK)
		status = le_check_pointer(leader, "leader", error);
	if (status == LE_OK)
		status = le_struct_check(leader, LEADER_LEAST, "le_leader_info", error);
	if (status == LE_OK)
		status = le_check_election(election, error);
	if (status != LE_OK)
		return status;
	op = le_op_new(session, LE_OP_LEADER, election, NULL);
	if (op == NULL)
		return le_error_set(error, LE_NO_MEMORY, "", "out of memory");
	return le_op_run(session, op, le_add(le_now_ns(), session->call), leader, error);
}
