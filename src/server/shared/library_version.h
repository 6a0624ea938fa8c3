/*
 * shared/library_version.h
 *		Handles different versions of this library and of the SQL that calls it.
 *
 * A package contains both.  But the server loads the library when it starts, and a database contains the SQL
 * that CREATE EXTENSION or ALTER EXTENSION UPDATE last ran in it.  So either of the two can be older than the
 * other, for any length of time.  These rules make both cases work:
 *
 *	1.	A symbol that the SQL of any release refers to is never removed, and its arguments and the types of
 *		its columns never change.  A function with different arguments or results gets a new symbol, except
 *		that columns may be appended to a returned row.
 *	2.	A table keeps its columns.  New columns are appended and nullable, and NULL means the behaviour before
 *		the column existed.  So this library can write tables of older SQL (StoreTable.least), and tables of
 *		newer SQL, whose additional columns it leaves NULL.
 *	3.	A script refuses to run in a server whose library is older than the script (setting
 *		lock_election.version).
 *	4.	Newer SQL can still meet an older library, if a package was downgraded or a promoted standby has an
 *		older package.  Then locks work, but other functions may fail, and the server log contains
 *		le_version_advice().
 */
#ifndef LE_LIBRARY_VERSION_H
#define LE_LIBRARY_VERSION_H

/*
 * Returns the version of the extension's SQL in this database, or NULL if the extension is not installed.
 * The caller must be in a transaction.
 */
extern char *le_version_installed(void);

/*
 * Returns a sentence that says how to bring the library and the SQL of this database to the same version, or
 * NULL if they already have the same version.  The caller must be in a transaction.
 */
extern const char *le_version_advice(void);

/*
 * A row with the number of columns that the SQL declares; columns that this library does not know are NULL.
 */
typedef struct LeWideRow
{
	Datum *values;
	bool *nulls;
} LeWideRow;

extern LeWideRow le_widen_row(int natts, int known, Datum *values, bool *nulls);

#endif /* LE_LIBRARY_VERSION_H */
