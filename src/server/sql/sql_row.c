/*
 * sql/sql_row.c
 *		Builds the rows that SQL functions return.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "shared/library_version.h"
#include "sql/sql.h"

/*
 * Returns true if the row has the declared number of columns, or if different versions of library and SQL
 * explain the difference.
 */
static inline pg_attribute_unused() bool has_all_columns(const LeTuple *tuple, const TupleDesc desc)
{
	return tuple->n == desc->natts || le_version_advice() != NULL;
}

void
le_tuple_add_if(LeTuple *tuple, bool given, Datum value)
{
	Assert(tuple->n < LE_TUPLE_COLUMNS);
	tuple->nulls[tuple->n] = !given;
	tuple->values[tuple->n++] = value;
}

void
le_tuple_add(LeTuple *tuple, Datum value)
{
	le_tuple_add_if(tuple, true, value);
}

void
le_tuple_add_text(LeTuple *tuple, LeText text)
{
	le_tuple_add_if(tuple, text.data != NULL,
					text.data == NULL ? 0
									  : PointerGetDatum(cstring_to_text_with_len(text.data, (int) text.len)));
}

void
le_tuple_add_string(LeTuple *tuple, const char *string)
{
	le_tuple_add_if(tuple, string != NULL, string == NULL ? 0 : CStringGetTextDatum(string));
}

Datum
le_tuple_datum(FunctionCallInfo fcinfo, LeTuple *tuple)
{
	TupleDesc desc;
	LeWideRow row;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	Assert(has_all_columns(tuple, desc));
	row = le_widen_row(desc->natts, tuple->n, tuple->values, tuple->nulls);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), row.values, row.nulls));
}

void
le_tuple_put(ReturnSetInfo *rsinfo, LeTuple *tuple)
{
	LeWideRow row;

	Assert(has_all_columns(tuple, rsinfo->setDesc));
	row = le_widen_row(rsinfo->setDesc->natts, tuple->n, tuple->values, tuple->nulls);

	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, row.values, row.nulls);
}
