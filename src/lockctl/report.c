/*
 * report.c
 *		Queries the server for doctor, and prints its findings.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "doctor.h"
#include "globals.h"
#include "memory.h"
#include "text.h"

void
lc_find(patient *p, finding what, const char *check, const char *advice, const char *format, ...)
{
	static const char *const names[] = {"ok", "note", "WRONG"};
	char *text;
	va_list args;

	/* format the text, on one line */
	va_start(args, format);
	text = lc_line(lc_vformat(format, args));
	va_end(args);
	/* print it in the format that -o selects */
	if (lc_globals.output == LC_JSON)
		printf("%s{\"check\":%s,\"result\":%s,\"text\":%s,\"advice\":%s}", p->rows++ > 0 ? ",\n " : "[",
			   lc_json(check), lc_json(names[what]), lc_json(text), lc_json(advice));
	else if (lc_globals.output == LC_CSV)
	{
		if (p->rows++ == 0)
			puts("check,result,text,advice");
		lc_csv(check, true, ",");
		lc_csv(names[what], true, ",");
		lc_csv(text, true, ",");
		lc_csv(advice, true, "\n");
	}
	else
	{
		printf("%-6s %-12s %s\n", names[what], check, lc_printable(text));
		if (advice[0] != '\0')
			printf("       %-12s -> %s\n", "", lc_printable(advice));
	}
	if (what == BAD)
		p->bad++;
}

bool
lc_is_denied(const PGresult *result)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	return state != NULL && strcmp(state, "42501") == 0;
}

const char *
lc_ask(patient *p, const char *query)
{
	PGresult *result = lc_keep(PQexec(p->db, query));

	p->denied = lc_is_denied(result);
	return PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "";
}
