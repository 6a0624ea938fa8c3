/*
 * sql/sql_row.c
 *		Rows that SQL functions return.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "utils/tuplestore.h"

#include "shared/library_version.h"
#include "sql/sql.h"

Datum
le_row_datum(FunctionCallInfo fcinfo, Datum *values, bool *nulls, int known)
{
	TupleDesc desc;
	LeWideRow row;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	row = le_widen_row(desc->natts, known, values, nulls);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), row.values, row.nulls));
}

void
le_put_row(ReturnSetInfo *rsinfo, Datum *values, bool *nulls, int known)
{
	LeWideRow row = le_widen_row(rsinfo->setDesc->natts, known, values, nulls);

	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, row.values, row.nulls);
}
