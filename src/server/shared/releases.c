/*
 * shared/releases.c
 *		Passes the releases of a commit from a backend to the manager.
 */
#include "postgres.h"

#include "storage/dsm.h"

#include "shared/names.h"
#include "shared/releases.h"
#include "shared/shmem.h"

const char *
le_releases_open(const LeReleases *releases, dsm_segment **segment)
{
	*segment = NULL;
	if (releases->segment == DSM_HANDLE_INVALID)
		return releases->data;
	*segment = le_segment_attach(releases->segment);
	return *segment != NULL ? dsm_segment_address(*segment) : NULL;
}

void
le_releases_drop(LeReleases *releases)
{
	if (releases->segment != DSM_HANDLE_INVALID)
		dsm_unpin_segment(releases->segment);
	releases->segment = DSM_HANDLE_INVALID;
	releases->len = 0;
}
