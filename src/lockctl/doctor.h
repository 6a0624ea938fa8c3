/*
 * doctor.h
 *		What the files of lockctl doctor share.
 */
#ifndef DOCTOR_H
#define DOCTOR_H

#include "lockctl.h"

typedef struct patient
{
	PGconn *db;
	bool primary, installed, preloaded; /* a primary; the extension is installed; its library is loaded */
	bool portable;                      /* the edition without C is installed */
	bool denied;                        /* the last query was refused: the role lacks a right */
	int bad;                            /* number of BAD findings */
	int rows;                           /* number of findings printed */
} patient;

typedef enum finding
{
	GOOD,
	ODD, /* works, but is perhaps not intended */
	BAD
} finding;

/* --- report.c --- */

/* Prints a finding.  advice: what to type, or "". */
extern void lc_find(patient *p, finding what, const char *check, const char *advice, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
/* Returns whether a query failed because this role lacks a right. */
extern bool lc_is_denied(const PGresult *result);
/* Returns the first value of a query; "" if there is none, or after an error.  To be freed. */
extern char *lc_ask(patient *p, const char *query);

/* --- portable.c --- */

/* Checks what only the portable edition has: its version, its owner, and its tables. */
extern void lc_check_portable(patient *p);

#endif /* DOCTOR_H */
