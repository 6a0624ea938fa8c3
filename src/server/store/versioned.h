/*
 * store/versioned.h
 *		The rows of _lock_election.versioned.
 */
#ifndef LE_STORE_VERSIONED_H
#define LE_STORE_VERSIONED_H

#include "postgres.h"

typedef struct LeVersioned
{
	int64 version; /* 0: there is no such key */
	Oid role;      /* whose it is; InvalidOid: there is no such role any more */
	bool value_is_null;
	Datum value; /* text */
} LeVersioned;

/*
 * All of them are statements of the caller's transaction, each with the
 * snapshot that a statement of its isolation level has.  "key" is a text.
 */
extern void le_version_read(Datum key, LeVersioned *row);

/*
 * May the keys of this role take so many bytes more?  53400: no.  They are summed
 * up where the table is larger than what one role may have, and once for each
 * megabyte that this session writes.
 */
extern void le_version_check_size(Oid role, int64 more);

/* The new version; 0: somebody else was first. */
extern int64 le_version_insert(Datum key, Datum value, bool value_is_null, Oid role);
extern int64 le_version_update(Datum key, int64 expected, Datum value, bool value_is_null);

#endif /* LE_STORE_VERSIONED_H */
