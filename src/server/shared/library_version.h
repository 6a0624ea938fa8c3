/*
 * shared/library_version.h
 *		The version of this library, and of the SQL that calls it.
 *
 * A package brings both at once.  But the server loads the library when it starts, and a database has the SQL
 * that CREATE EXTENSION or ALTER EXTENSION UPDATE last ran there.  So either of them can be the older one,
 * for as long as an administrator likes.  These rules make that work:
 *
 *	1.	A symbol that SQL of any release refers to stays, with its arguments and the types of its columns.  A
 *		function with other arguments or results gets a new symbol; only columns may be appended to a returned
 *		row.
 *	2.	A table keeps its columns.  New ones are appended, nullable, and NULL means the behaviour before they
 *		existed.  So this library writes tables of older SQL (StoreTable.least) and of newer SQL, where it
 *		leaves the other columns NULL.
 *	3.	A script refuses to run in a server whose library is older than the script (setting
 *		lock_election.version).
 *	4.	Newer SQL in an older library happens all the same: a package was downgraded, or a promoted standby
 *		has an older package.  Then locks work.  Other functions may fail with an error, and the server log
 *		has le_version_advice().
 */
#ifndef LE_LIBRARY_VERSION_H
#define LE_LIBRARY_VERSION_H

/* Returns the version of the extension's SQL in this database; NULL: not installed.  Needs a transaction. */
extern char *le_version_installed(void);

/*
 * Returns a sentence that names the command which brings the library and the SQL of this database to the same
 * version; NULL if they have the same.  Needs a transaction.
 */
extern const char *le_version_advice(void);

/* A row that may have more columns than this library knows: the unknown ones are NULL. */
typedef struct LeWideRow
{
	Datum *values;
	bool *nulls;
} LeWideRow;

extern LeWideRow le_widen_row(int natts, int known, Datum *values, bool *nulls);

#endif /* LE_LIBRARY_VERSION_H */
