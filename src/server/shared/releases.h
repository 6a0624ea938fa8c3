/*
 * shared/releases.h
 *		Passes the releases of a commit from a backend to the manager.
 *
 * The releases outlive the backend and the manager, so that a committed release is not lost if either of them
 * dies.  A few releases fit into the session's mailbox.  If there are more, they are in a segment of dynamic
 * shared memory that is pinned: it exists until le_releases_drop(), or until the server stops.
 */
#ifndef LE_RELEASES_H
#define LE_RELEASES_H

#include "shared/shmem.h"

/* Size of one release with its name, in bytes. */
#define le_release_size(name_len) MAXALIGN(sizeof(LeReleaseItem) + (name_len))

/*
 * Returns the items, or NULL if they no longer exist.  Sets *segment to the segment that contains them, which
 * the caller must detach, or to NULL if they are in the mailbox.  Called by the manager.
 */
extern const char *le_releases_open(const LeReleases *releases, dsm_segment **segment);

/* Frees the segment of releases that have been applied, or whose extension was dropped.  Must not fail. */
extern void le_releases_drop(LeReleases *releases);

#endif /* LE_RELEASES_H */
