/*
 * shared/releases.h
 *		What a commit releases, on its way from a backend to the manager.
 *
 * It outlives the backend and the manager, so that a release that was
 * committed is not lost with either.  A few releases have room in the
 * session's mailbox.  More of them are in a segment of dynamic shared memory that
 * no process holds: it lasts until le_releases_drop(), or until the server
 * stops.
 */
#ifndef LE_RELEASES_H
#define LE_RELEASES_H

#include "shared/shmem.h"

/* Bytes for one release. */
#define le_release_size(name_len) MAXALIGN(sizeof(LeReleaseItem) + (name_len))

/*
 * Manager: the items, and the segment that they are in, which is to be detached; NULL:
 * they are in the mailbox.  NULL: they are gone.
 */
extern const char *le_releases_open(const LeReleases *releases, dsm_segment **segment);

/* The releases are made, or the extension is gone: give back their segment.  May not fail. */
extern void le_releases_drop(LeReleases *releases);

#endif /* LE_RELEASES_H */
