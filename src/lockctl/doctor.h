/*
 * doctor.h
 *		Declarations shared by the files of lockctl doctor.
 */
#ifndef DOCTOR_H
#define DOCTOR_H

#include <libpq-fe.h>
#include <stdbool.h>

typedef struct patient
{
	PGconn *db;
	bool primary, installed, preloaded; /* server is a primary; extension is installed; library is loaded */
	bool portable;                      /* the portable edition is installed, instead of the extension */
	bool denied;                        /* the last query failed because the role lacks a privilege */
	int bad;                            /* number of BAD findings */
	int rows;                           /* number of findings printed */
} patient;

typedef enum finding
{
	GOOD,
	ODD, /* works, but may not be intended */
	BAD
} finding;

/* --- report.c --- */

/* Prints a finding.  advice is the command to type, or "". */
extern void lc_find(patient *p, finding what, const char *check, const char *advice, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
/* Returns whether a query failed because this role lacks a privilege. */
extern bool lc_is_denied(const PGresult *result);
/* Returns the first value of a query, or "" if there is none or after an error. */
extern const char *lc_ask(patient *p, const char *query);

/* --- portable.c --- */

/* Runs the checks for the portable edition only: its version, owner, search_path and tables. */
extern void lc_check_portable(patient *p);

#endif /* DOCTOR_H */
