/*
 * shared/library_version.h
 *		The version of this library, and of the SQL that calls it.
 *
 * A package brings both at once.  But the server loads a library when it starts,
 * and a database has the SQL that CREATE EXTENSION or ALTER EXTENSION UPDATE has
 * run there last.  So either can be the older one, for as long as an
 * administrator likes.  What makes that work:
 *
 *	1.	A symbol that SQL of any release refers to stays, with its arguments and the
 *		types of its columns.  What takes or returns something else gets a new one;
 *		only columns may be appended to a row that is returned.
 *	2.	A table keeps its columns.  New ones are appended, nullable, and NULL means
 *		what there was before them.  So this library writes tables of older SQL
 *		(StoreTable.least) and of newer SQL, where it leaves the rest NULL.
 *	3.	A script refuses to run in a server whose library is older than itself
 *		(setting lock_election.version).
 *	4.	Newer SQL in an older library happens all the same: a package was put back,
 *		or a standby was promoted whose package is older.  Then locks work.  What
 *		does not work ends in an error, and the server log has le_version_advice().
 */
#ifndef LE_LIBRARY_VERSION_H
#define LE_LIBRARY_VERSION_H

/* The version of the extension's SQL in this database; NULL: it is not installed.  In a transaction. */
extern char *le_version_installed(void);

/*
 * A sentence that says which command makes the library and the SQL of this
 * database one version; NULL: they are.  In a transaction.
 */
extern const char *le_version_advice(void);

/* A row that may have more columns than this library knows: those are NULL. */
typedef struct LeWideRow
{
	Datum *values;
	bool *nulls;
} LeWideRow;

extern LeWideRow le_widen_row(int natts, int known, Datum *values, bool *nulls);

#endif /* LE_LIBRARY_VERSION_H */
