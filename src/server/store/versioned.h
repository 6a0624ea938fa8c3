/*
 * store/versioned.h
 *		Reads and writes _lock_election.versioned, the keys and values of compare_and_set().
 */
#ifndef LE_STORE_VERSIONED_H
#define LE_STORE_VERSIONED_H

#include "postgres.h"

typedef struct LeVersioned
{
	int64 version; /* 0 = there is no such key */
	Oid role;      /* role that owns the key; InvalidOid = the role no longer exists */
	bool value_is_null;
	Datum value; /* a text */
} LeVersioned;

/*
 * Each of these functions runs a statement in the caller's transaction, with the snapshot that the
 * transaction's isolation level requires.  key and value: of type text.  le_version_read() reads the row of a
 * key.
 */
extern void le_version_read(Datum key, LeVersioned *row);

/*
 * Raises 53400 if the keys of this role would exceed their limit with "more" additional bytes.  Computes the
 * total size of the role's keys only if the table is larger than the limit of one role, and only once for
 * each megabyte that this session writes.
 */
extern void le_version_check_size(Oid role, int64 more);

/* Insert or update a key.  Return the new version, or 0 if another transaction has changed the key first. */
extern int64 le_version_insert(Datum key, Datum value, bool value_is_null, Oid role);
extern int64 le_version_update(Datum key, int64 expected, Datum value, bool value_is_null);

#endif /* LE_STORE_VERSIONED_H */
