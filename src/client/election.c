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
	le_status status = le_check_names(&election, 1, error);

	if (status != LE_OK)
		return status;
	if (candidate == NULL || candidate[0] == '\0' || strlen(candidate) > LE_CANDIDATE_MAX)
		return le_error_set(error, LE_INVALID, "", "the candidate is not of 1 to %d bytes", LE_CANDIDATE_MAX);
	return LE_OK;
}

le_status
le_enqueue_candidate(le_session *session, const char *election, const char *candidate, le_hold **hold,
					 le_error *error)
{
	le_status status;

	*hold = NULL;
	le_error_clear(error);
	status = le_check_candidacy(election, candidate, error);
	if (status != LE_OK)
		return status;
	return le_hold_new(session, LE_KIND_TERM, &election, 1, NULL, candidate, false, hold, error);
}

le_status
le_campaign(le_session *session, const char *election, const char *candidate, int wait_ms, le_hold **hold,
			le_error *error)
{
	int64_t until = le_until(wait_ms);
	le_hold *own;
	le_status status;

	*hold = NULL;
	le_error_clear(error);
	status = le_check_candidacy(election, candidate, error);
	if (status == LE_OK)
		status = le_hold_new(session, LE_KIND_TERM, &election, 1, NULL, candidate, wait_ms == 0, &own, error);
	return status == LE_OK ? le_hold_finish(session, own, until, hold, error) : status;
}

le_status
le_proclaim(le_hold *hold, const char *candidate, le_error *error)
{
	le_session *s = hold->session;
	le_status status;
	le_op *op;

	le_error_clear(error);
	if (le_in_child(s))
		return le_error_set(error, LE_INVALID, "", "the session belongs to the parent process");
	if (hold->kind != LE_KIND_TERM)
		return le_error_set(error, LE_INVALID, "", "not a term");
	status = le_check_candidacy(hold->names[0], candidate, error);
	if (status != LE_OK)
		return status;
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
	if (le_in_child(session))
		return le_error_set(error, LE_INVALID, "", "the session belongs to the parent process");
	status = le_struct_check(leader, LEADER_LEAST, "le_leader_info", error);
	if (status == LE_OK)
		status = le_check_names(&election, 1, error);
	if (status != LE_OK)
		return status;
	op = le_op_new(session, LE_OP_LEADER, election, NULL);
	if (op == NULL)
		return le_error_set(error, LE_NO_MEMORY, "", "out of memory");
	return le_op_run(session, op, le_add(le_now_ns(), session->call), leader, error);
}
