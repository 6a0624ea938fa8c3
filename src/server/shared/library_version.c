/*
 * shared/library_version.c
 *		Gives advice if the library and the extension's SQL have different versions.  The rules are in
 *		shared/library_version.h.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/pg_extension.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

#include "shared/compat.h"
#include "shared/library_version.h"

#define LIBRARY "lock_election"

char *
le_version_installed(void)
{
	Relation rel = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;
	char *version = NULL;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ, CStringGetDatum(LIBRARY));
	scan = systable_beginscan(rel, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool isnull;
		Datum value = le_getattr(tuple, Anum_pg_extension_extversion, RelationGetDescr(rel), &isnull);

		version = TextDatumGetCString(value);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return version;
}

/* Compares two versions, each of which consists of two numbers, such as 1.10. */
static int
compare_versions(const char *a, const char *b)
{
	int a_major = 0, a_minor = 0, b_major = 0, b_minor = 0;

	(void) sscanf(a, "%d.%d", &a_major, &a_minor);
	(void) sscanf(b, "%d.%d", &b_major, &b_minor);
	return a_major != b_major ? a_major - b_major : a_minor - b_minor;
}

const char *
le_version_advice(void)
{
	char *version = le_version_installed();
	int difference = version != NULL ? compare_versions(version, LE_VERSION) : 0;

	if (difference == 0)
		return NULL;
	if (difference < 0)
		return psprintf(
			"The SQL of extension lock_election is of version %s, the server's library of %s: run "
			"ALTER EXTENSION lock_election UPDATE.",
			version, LE_VERSION);
	return psprintf(
		"The SQL of extension lock_election is of version %s, the server's library of %s: install "
		"version %s of the package, unless it is there already, and restart the server.",
		version, LE_VERSION, version);
}

LeWideRow
le_widen_row(int natts, int known, Datum *values, bool *nulls)
{
	LeWideRow row = {values, nulls};

	Assert(natts > 0 && known > 0);
	if (natts <= known)
		return row;
	row.values = palloc0_array(Datum, natts);
	row.nulls = palloc_array(bool, natts);
	memset(row.nulls, true, natts * sizeof(bool));
	memcpy(row.values, values, known * sizeof(Datum));
	memcpy(row.nulls, nulls, known * sizeof(bool));
	return row;
}
