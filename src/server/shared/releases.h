/*
 * shared/releases.h
 *		The releases of a commit, on their way from a backend to the manager.
 *
 * They outlive the backend and the manager, so that a committed release is not lost with either.  A few
 * releases fit into the session's mailbox.  More of them are in a segment of dynamic shared memory that no
 * process holds: it lasts until le_releases_drop(), or until the server stops.
 */
#ifndef LE_RELEASES_H
#define LE_RELEASES_H

#include "shared/shmem.h"

/* Bytes for one release. */
#define le_release_size(name_len) MAXALIGN(sizeof(LeReleaseItem) + (name_len))

/*
 * Called by the manager: returns the items, or NULL if they are gone.  *segment is the segment that has them,
 * which the caller detaches; NULL: they are in the mailbox.
 */
extern const char *le_releases_open(const LeReleases *releases, dsm_segment **segment);

/* Frees the segment of releases that are applied, or whose extension is gone.  Must not fail. */
extern void le_releases_drop(LeReleases *releases);

#endif /* LE_RELEASES_H */
