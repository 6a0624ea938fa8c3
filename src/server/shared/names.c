/*
 * shared/names.c
 *		Passes the bodies of requests from a backend to the manager, and reads and writes those that contain
 *		the names of several locks.
 *
 * The body of a request with "each" begins with room for its results and a token for each name.  The names
 * follow; each one consists of its length (two bytes) and its text.
 */
#include "postgres.h"

#include "storage/dsm.h"

#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/names.h"
#include "shared/shmem.h"

/* The contents of a segment.  Session and number identify the request: handles of segments are reused. */
typedef struct SharedBody
{
	uint64 session;
	uint32 request;
	uint32 len;
	char data[FLEXIBLE_ARRAY_MEMBER] pg_attribute_aligned(8);
} SharedBody;

static dsm_segment *segment = NULL;

/* Returns the offset of the tokens of a request with "each". */
static Size
tokens_at(const LeCommand *cmd)
{
	Assert(cmd->each);
	return cmd->nnames * sizeof(LeEachAnswer);
}

/* Returns the offset of the names of a request. */
static Size
names_at(const LeCommand *cmd)
{
	return cmd->each ? tokens_at(cmd) + cmd->nnames * sizeof(int64) : 0;
}

/* --- backend --- */

/* Writes tokens and names in the format described at the top.  Returns the end of the written data. */
static char *
pack(const LeCommand *cmd, char *to)
{
	if (cmd->each && cmd->tokens != NULL)
		memcpy(to + tokens_at(cmd), cmd->tokens, cmd->nnames * sizeof(int64));
	else if (cmd->each)
		memset(to + tokens_at(cmd), 0, cmd->nnames * sizeof(int64));
	to += names_at(cmd);
	for (uint32 i = 0; i < cmd->nnames; i++)
	{
		uint16 len = (uint16) cmd->names[i].len;

		Assert(len > 0 && len <= LE_MAX_NAME);
		memcpy(to, &len, sizeof(len));
		memcpy(to + sizeof(len), cmd->names[i].data, len);
		to += sizeof(len) + len;
	}
	return to;
}

char *
le_body_new(LeMailbox *box, uint32 at, Size size, Size most)
{
	SharedBody *shared;

	Assert(segment == NULL && box->session != 0 && size > 0 && most <= LE_PAYLOAD_SIZE);
	box->body_at = MAXALIGN(at);
	box->body_handle = DSM_HANDLE_INVALID;
	if (box->body_at + size <= most)
		return box->payload + box->body_at;
	segment = dsm_create(offsetof(SharedBody, data) + size, 0);
	shared = dsm_segment_address(segment);
	shared->session = box->session;
	shared->request = box->command.request;
	shared->len = (uint32) size;
	Assert(shared->request != 0);
	box->body_handle = dsm_segment_handle(segment);
	return shared->data;
}

void
le_names_put(LeMailbox *box, const LeCommand *cmd, uint32 len)
{
	Size size = names_at(cmd);
	char *body, *end PG_USED_FOR_ASSERTS_ONLY;

	Assert(cmd->nnames > 0 && cmd->nnames <= LE_MAX_NAMES);
	for (uint32 i = 0; i < cmd->nnames; i++)
		size += sizeof(uint16) + cmd->names[i].len;
	body = le_body_new(box, len, size, LE_PAYLOAD_SIZE);
	end = pack(cmd, body);
	Assert(end == body + size);
}

const char *
le_body_mine(const LeMailbox *box)
{
	Assert((segment != NULL) == (box->body_handle != DSM_HANDLE_INVALID));
	if (segment == NULL)
		return box->payload + box->body_at;
	return ((const SharedBody *) dsm_segment_address(segment))->data;
}

void
le_body_done(void)
{
	if (segment != NULL)
		dsm_detach(segment);
	segment = NULL;
}

/* --- manager --- */

/* Reads tokens and names.  The texts are not copied: the command points into the body. */
static void
unpack(const char *from, LeCommand *cmd)
{
	LeText *names = palloc_array(LeText, cmd->nnames);

	cmd->tokens = cmd->each ? (const int64 *) (from + tokens_at(cmd)) : NULL;
	from += names_at(cmd);
	for (uint32 i = 0; i < cmd->nnames; i++)
	{
		uint16 len;

		memcpy(&len, from, sizeof(len));
		Assert(len > 0 && len <= LE_MAX_NAME);
		names[i] = (LeText){from + sizeof(len), len};
		from += sizeof(len) + len;
	}
	cmd->names = names;
}

dsm_segment *
le_segment_attach(dsm_handle handle)
{
	dsm_segment *attached = NULL;

	PG_TRY();
	{
		attached = dsm_attach(handle);
		LE_FAULT("segment-attached");
	}
	PG_CATCH();
	{
		attached = dsm_find_mapping(handle);
		if (attached != NULL)
			dsm_detach(attached);
		PG_RE_THROW();
	}
	PG_END_TRY();
	return attached;
}

/*
 * Attaches to the segment of this request.  Returns NULL if the request was withdrawn: the backend destroys
 * the segment at the end of its statement, even before it mails the abort.
 */
static dsm_segment *
attach_of_request(const LeMailbox *box)
{
	dsm_segment *attached = le_segment_attach(box->body_handle);
	const SharedBody *shared;

	if (attached == NULL)
		return NULL;
	shared = dsm_segment_address(attached);
	if (dsm_segment_map_length(attached) >= offsetof(SharedBody, data) && shared->session == box->session &&
		shared->request == box->command.request)
		return attached;
	dsm_detach(attached);
	return NULL;
}

const char *
le_body_get(const LeMailbox *box)
{
	dsm_segment *attached;
	const SharedBody *shared;
	char *copy;

	if (box->body_handle == DSM_HANDLE_INVALID)
		return box->payload + box->body_at;
	attached = attach_of_request(box);
	if (attached == NULL)
		return NULL;
	shared = dsm_segment_address(attached);

	/* Detach the segment before any error: a segment that stays attached cannot be attached again. */
	Assert(dsm_segment_map_length(attached) >= offsetof(SharedBody, data) + shared->len);
	copy = palloc_extended(shared->len, MCXT_ALLOC_NO_OOM);
	if (copy != NULL)
		memcpy(copy, shared->data, shared->len);
	dsm_detach(attached);
	if (copy == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	return copy;
}

bool
le_names_get(const LeMailbox *box, LeCommand *cmd)
{
	const char *body = le_body_get(box);

	Assert(cmd->nnames > 0);
	if (body != NULL)
		unpack(body, cmd);
	return body != NULL;
}

void
le_body_answer(LeMailbox *box, const void *answers, Size size)
{
	dsm_segment *attached;

	if (box->body_handle == DSM_HANDLE_INVALID)
	{
		memcpy(box->payload + box->body_at, answers, size);
		return;
	}
	attached = attach_of_request(box);
	if (attached == NULL)
		return; /* the request was withdrawn: no process reads the results */
	memcpy(((SharedBody *) dsm_segment_address(attached))->data, answers, size);
	dsm_detach(attached);
}
