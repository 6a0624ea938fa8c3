/*
 * store/row.c
 *		The texts of a row, and a row that is not ours.
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "shared/compat.h"
#include "store/internal.h"
#include "store/store.h"

/* Uncommitted holds that a row can tell; more count as committed at a load. */
#define MAX_UNCOMMITTED 64

LeText
le_store_read_text(TupleTableSlot *tuple, int column)
{
	LeText text = {NULL, 0};

	if (!le_store_is_null(tuple, column))
	{
		struct varlena *datum = PG_DETOAST_DATUM_PACKED(tuple->tts_values[column]);

		text.data = VARDATA_ANY(datum);
		text.len = VARSIZE_ANY_EXHDR(datum);
	}
	return text;
}

/* Whoever wrote this was not us. */
void
le_store_invalid_row(Relation rel, const TupleTableSlot *tuple)
{
	ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED), errmsg("invalid row (%u,%u) in table \"%s.%s\"",
															ItemPointerGetBlockNumber(&tuple->tts_tid),
															ItemPointerGetOffsetNumber(&tuple->tts_tid),
															STORE_SCHEMA, RelationGetRelationName(rel))));
}

void
le_store_set_text(Datum *values, bool *nulls, int column, const char *data, Size len)
{
	nulls[column] = data == NULL;
	if (data != NULL)
		values[column] = PointerGetDatum(cstring_to_text_with_len(data, (int) len));
}

void
le_store_set_texts(Datum *values, bool *nulls, int name_column, const LeEntry *entry)
{
	const LeLock *lock = entry->lock;
	const LeAcquirer *acquirer = entry->acquirer;
	LeStoredHold uncommitted[MAX_UNCOMMITTED];
	int n = 0;

	for (const LeUncommitted *hold = entry->uncommitted; hold != NULL && n < MAX_UNCOMMITTED;
		 hold = hold->next)
		uncommitted[n++] = (LeStoredHold){hold->session, hold->xact, hold->subxact};
	Assert(lock->name_len > 0 && lock->name_len <= LE_MAX_NAME && entry->value_len <= LE_MAX_VALUE);
	le_store_set_text(values, nulls, name_column, lock->name, lock->name_len);
	le_store_set_text(values, nulls, name_column + 1, entry->owner, entry->owner_len);
	le_store_set_text(values, nulls, name_column + 2, entry->value, entry->value_len);
	le_store_set_text(values, nulls, name_column + 3, n > 0 ? (const char *) uncommitted : NULL,
					  n * sizeof(LeStoredHold));
	le_store_set_text(values, nulls, name_column + 4, acquirer != NULL ? acquirer->text : NULL,
					  acquirer != NULL ? acquirer->len : 0);
}
