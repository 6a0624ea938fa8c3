/*
 * shared/names.c
 *		The names of a request for several locks, on their way from a backend
 *		to the manager: each as its length (two bytes) and its text.
 */
#include "postgres.h"

#include "storage/dsm.h"

#include "shared/names.h"
#include "shared/shmem.h"

/* A segment says whose names it has: handles are used again. */
typedef struct SharedNames
{
	uint64 session;
	uint32 request;
	uint32 len;
	char data[FLEXIBLE_ARRAY_MEMBER];
} SharedNames;

static dsm_segment *segment = NULL;

/* Writes the names as the head of this file says. */
static void
pack(const LeCommand *cmd, char *to)
{
	for (uint32 i = 0; i < cmd->nnames; i++)
	{
		uint16 len = (uint16) cmd->names[i].len;

		memcpy(to, &len, sizeof(len));
		memcpy(to + sizeof(len), cmd->names[i].data, len);
		to += sizeof(len) + len;
	}
}

void
le_names_put(LeMailbox *box, const LeCommand *cmd, uint32 len)
{
	SharedNames *shared;
	uint32 size = 0;

	Assert(segment == NULL && box->session != 0 && cmd->nnames > 0 && cmd->nnames <= LE_MAX_NAMES);
	box->names_at = len;
	box->names_handle = DSM_HANDLE_INVALID;
	for (uint32 i = 0; i < cmd->nnames; i++)
		size += sizeof(uint16) + cmd->names[i].len;
	if (len + size <= LE_PAYLOAD_SIZE)
	{
		pack(cmd, box->payload + len);
		return;
	}
	segment = dsm_create(offsetof(SharedNames, data) + size, 0);
	Assert(size > 0);
	shared = dsm_segment_address(segment);
	shared->session = box->session;
	shared->request = box->command.request;
	shared->len = size;
	pack(cmd, shared->data);
	box->names_handle = dsm_segment_handle(segment);
}

void
le_names_done(void)
{
	if (segment != NULL)
		dsm_detach(segment);
	segment = NULL;
}

/* Reads n names; their texts stay where they are. */
static LeText *
unpack(const char *from, uint32 n)
{
	LeText *names = palloc_array(LeText, n);

	for (uint32 i = 0; i < n; i++)
	{
		uint16 len;

		memcpy(&len, from, sizeof(len));
		names[i] = (LeText){from + sizeof(len), len};
		from += sizeof(len) + len;
	}
	return names;
}

dsm_segment *
le_segment_attach(dsm_handle handle)
{
	dsm_segment *attached = NULL;

	PG_TRY();
	{
		attached = dsm_attach(handle);
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

LeText *
le_names_get(const LeMailbox *box)
{
	dsm_segment *shared_segment;
	const SharedNames *shared;
	char *copy = NULL;
	bool failed = false;

	if (box->names_handle == DSM_HANDLE_INVALID)
		return unpack(box->payload + box->names_at, box->command.nnames);

	/* the segment goes with its statement, before an abort is mailed */
	shared_segment = le_segment_attach(box->names_handle);
	if (shared_segment == NULL)
		return NULL;
	shared = dsm_segment_address(shared_segment);
	if (dsm_segment_map_length(shared_segment) >= offsetof(SharedNames, data) &&
		shared->session == box->session && shared->request == box->command.request)
	{
		/* no error before it is detached: it could not be attached again */
		copy = palloc_extended(shared->len, MCXT_ALLOC_NO_OOM);
		if (copy != NULL)
			memcpy(copy, shared->data, shared->len);
		failed = copy == NULL;
	}
	dsm_detach(shared_segment);
	if (failed)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	return copy != NULL ? unpack(copy, box->command.nnames) : NULL;
}
