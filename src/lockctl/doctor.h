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
	bool primary, installed, preloaded;
	bool portable; /* the edition without C is there */
	bool denied;   /* the last query was: the role has no right to see this */
	int bad;
	int rows;
} patient;

typedef enum finding
{
	GOOD,
	ODD, /* works, and may not be what is wanted */
	BAD
} finding;

/* --- report.c --- */

/* advice: what to type, or "". */
extern void lc_find(patient *p, finding what, const char *check, const char *advice, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
/* Not that something is wrong, but that this role is not to know. */
extern bool lc_is_denied(const PGresult *result);
/* The first value of a query; "" where there is none, or an error. To be freed. */
extern char *lc_ask(patient *p, const char *query);

/* --- portable.c --- */

/* Looks at what the portable edition alone has: its version, its owner, and its tables. */
extern void lc_check_portable(patient *p);

#endif /* DOCTOR_H */
