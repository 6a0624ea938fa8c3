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

	dsm_pin_segment(segment);
	dsm_detach(segment);
	return handle;
}

static void
each(const char *from, uint32 len, LeReleaseFn apply, void *arg)
{
	const char *end = from + len;

	while (from < end)
	{
		const LeReleaseItem *item = (const LeReleaseItem *) from;

		apply(arg, item, (LeText){from + sizeof(LeReleaseItem), item->name_len});
		from += le_release_size(item->name_len);
	}
}

void
le_releases_each(const LeReleases *releases, LeReleaseFn apply, void *arg)
{
	dsm_segment *segment;

	if (releases->segment == DSM_HANDLE_INVALID)
	{
		each(releases->data, releases->len, apply, arg);
		return;
	}
	segment = le_segment_attach(releases->segment);
	if (segment == NULL)
	{
		/* its pin keeps it; without it there is nothing to try again */
		elog(LOG, "the releases of a commit are gone");
		return;
	}
	each(dsm_segment_address(segment), releases->len, apply, arg);
	dsm_detach(segment);
}

void
le_releases_drop(LeReleases *releases)
{
	if (releases->segment != DSM_HANDLE_INVALID)
		dsm_unpin_segment(releases->segment);
	releases->segment = DSM_HANDLE_INVALID;
	releases->len = 0;
}
