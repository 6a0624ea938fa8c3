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
 * Backend, while an error is still possible: room for len bytes of releases.
 * Fill it in, and call le_releases_keep(): the segment then outlives this
 * process, and belongs to the holder of its handle.
 */
extern char *le_releases_make_room(uint32 len, dsm_segment **segment);
extern dsm_handle le_releases_keep(dsm_segment *segment);

/*
 * Manager: call apply for each release from "done" on, until it says false.  Returns
 * how far that is: what "done" is to be once the batch is committed.  apply may not
 * fail: a part of the batch is applied already.
 */
typedef bool (*LeReleaseFn)(void *arg, const LeReleaseItem *item, LeText name);
extern uint32 le_releases_each(const LeReleases *releases, LeReleaseFn apply, void *arg);

/* The releases are made, or the extension is gone: give back their segment.  May not fail. */
extern void le_releases_drop(LeReleases *releases);

#endif /* LE_RELEASES_H */
