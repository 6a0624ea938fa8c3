/*
 * shared/releases.c
 *		What a commit releases, on its way from a backend to the manager.
 */
#include "postgres.h"

#include "storage/dsm.h"

#include "shared/names.h"
#include "shared/releases.h"
#include "shared/shmem.h"

char *
le_releases_make_room(uint32 len, dsm_segment **segment)
{
	*segment = dsm_create(len, 0);
	return dsm_segment_address(*segment);
}

dsm_handle
le_releases_keep(dsm_segment *segment)
{
	dsm_handle handle = dsm_segment_handle(segment);

	Assert(handle != DSM_HANDLE_INVALID);
	dsm_pin_segment(segment);
	dsm_detach(segment);
	return handle;
}

/* le_releases_each(), for items at "data". */
static uint32
each(const char *data, const LeReleases *releases, LeReleaseFn apply, void *arg)
{
	uint32 at = releases->done;

	Assert(at <= releases->len && at == MAXALIGN(at));
	while (at < releases->len)
	{
		const LeReleaseItem *item = (const LeReleaseItem *) (data + at);

		Assert(item->token > 0 && item->name_len <= LE_MAX_NAME && item->holds > 0);
		if (!apply(arg, item, (LeText){data + at + sizeof(LeReleaseItem), item->name_len}))
			break;
		at += le_release_size(item->name_len);
	}
	return at;
}

uint32
le_releases_each(const LeReleases *releases, LeReleaseFn apply, void *arg)
{
	dsm_segment *segment;
	uint32 done;

	if (releases->segment == DSM_HANDLE_INVALID)
		return each(releases->data, releases, apply, arg);
	segment = le_segment_attach(releases->segment);
	if (segment == NULL)
	{
		/* its pin keeps it; without it there is nothing to try again */
		elog(LOG, "the releases of a commit are gone");
		return releases->len;
	}
	done = each(dsm_segment_address(segment), releases, apply, arg);
	dsm_detach(segment);
	return done;
}

void
le_releases_drop(LeReleases *releases)
{
	if (releases->segment != DSM_HANDLE_INVALID)
		dsm_unpin_segment(releases->segment);
	releases->segment = DSM_HANDLE_INVALID;
	releases->len = 0;
}
