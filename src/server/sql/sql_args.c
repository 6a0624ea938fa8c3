/*
 * sql/sql_args.c
 *		Checks the arguments of the SQL functions, and converts them to a command.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "common/int.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "shared/compat.h"
#include "shared/words.h"
#include "shared/settings.h"
#include "sql/sql_args.h"

static LeText
datum_text(Datum datum)
{
	text *value = DatumGetTextPP(datum);

	return (LeText){VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value)};
}

static LeText
text_arg(FunctionCallInfo fcinfo, int number)
{
	return datum_text(PG_GETARG_DATUM(number));
}

static void
bad_null(const char *argument)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must not be null", argument)));
}

/* Returns the text if it has 1 to max bytes; otherwise raises an error. */
static LeText
sized(LeText value, const char *argument, uint32 max)
{
	if (value.len == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must not be empty", argument),
						errdetail("It is a text of 1 to %u bytes.", max)));
	if (value.len > max)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s is too long: %u bytes", argument, value.len),
						errdetail("It is a text of 1 to %u bytes.", max)));
	return value;
}

LeText
le_check_text(LeText value, const char *argument, uint32 max)
{
	if (value.data == NULL)
		bad_null(argument);
	return sized(value, argument, max);
}

LeText
le_arg_text(FunctionCallInfo fcinfo, int number, const char *argument, uint32 max)
{
	return le_check_text(PG_ARGISNULL(number) ? (LeText){NULL, 0} : text_arg(fcinfo, number), argument, max);
}

static int
compare_names(const void *a, const void *b)
{
	const LeText *x = a, *y = b;
	int c = memcmp(x->data, y->data, Min(x->len, y->len));

	return c != 0 ? c : x->len < y->len ? -1 : x->len > y->len ? 1 : 0;
}

void
le_check_duplicates(const LeText *names, int n)
{
	LeText *sorted = palloc_array(LeText, n);

	memcpy(sorted, names, n * sizeof(LeText));
	qsort(sorted, n, sizeof(LeText), compare_names);
	for (int i = 1; i < n; i++)
	{
		if (compare_names(&sorted[i - 1], &sorted[i]) == 0)
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("names contains \"%.*s\" twice", (int) sorted[i].len, sorted[i].data)));
	}
}

/* Returns the array and its length.  Raises an error if the array is null or has more than one dimension. */
static ArrayType *
required_array(FunctionCallInfo fcinfo, int number, const char *argument, int *length)
{
	ArrayType *array;

	if (PG_ARGISNULL(number))
		bad_null(argument);
	array = PG_GETARG_ARRAYTYPE_P(number);
	if (ARR_NDIM(array) > 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s must have one dimension only", argument)));
	*length = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	return array;
}

LeText *
le_array_texts(ArrayType *array, int *n)
{
	Datum *elements;
	bool *nulls;
	LeText *texts;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, n);
	texts = palloc0_array(LeText, Max(*n, 1));
	for (int i = 0; i < *n; i++)
	{
		if (!nulls[i])
			texts[i] = datum_text(elements[i]);
	}
	return texts;
}

void
le_arg_names(FunctionCallInfo fcinfo, LeCommand *cmd)
{
	ArrayType *array;
	LeText *names;
	int n, min = cmd->each ? 0 : 1;

	/* 1. read the array */
	array = required_array(fcinfo, 0, "names", &n);
	if (n < min || n > LE_MAX_NAMES)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("names is out of range: %d names", n),
				 errdetail("It is an array of %d to %d names.", min, LE_MAX_NAMES)));

	/* 2. check its names */
	names = le_array_texts(array, &n);
	for (int i = 0; i < n; i++)
	{
		if (names[i].len == 0 || names[i].len > LE_MAX_NAME)
			(void) le_check_text(names[i], psprintf("names[%d]", i + 1), LE_MAX_NAME);
	}
	le_check_duplicates(names, n);

	/* 3. store them in the command */
	cmd->names = names;
	cmd->nnames = (uint32) n;
	if (n > 0)
		cmd->name = names[0];
}

/* A token that matches no holder.  (0 would select the holder of this connection.) */
#define NO_TOKEN INT64CONST(-1)

static int64
token_or_none(int64 token)
{
	return token > 0 ? token : NO_TOKEN;
}

int64 *
le_arg_tokens(FunctionCallInfo fcinfo, int number, uint32 n)
{
	ArrayType *array;
	Datum *elements;
	bool *nulls;
	int64 *tokens;
	int length;

	array = required_array(fcinfo, number, "tokens", &length);
	if (length != (int) n)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("there are %u names and %d tokens", n, length),
						errdetail("Each name needs a token, which may be null.")));
	deconstruct_array(array, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &elements, &nulls,
					  &length);
	tokens = palloc_array(int64, n);
	for (int i = 0; i < length; i++)
		tokens[i] = nulls[i] ? NO_TOKEN : token_or_none(DatumGetInt64(elements[i]));
	return tokens;
}

void
le_arg_check_value(FunctionCallInfo fcinfo, int number)
{
	LeText value;

	if (PG_ARGISNULL(number))
		return;
	value = text_arg(fcinfo, number);
	if (value.len > LE_MAX_VALUE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("value is too long: %u bytes", value.len),
				 errdetail("It is a text of 0 to %d bytes.", LE_MAX_VALUE)));
}

int64
le_arg_number(FunctionCallInfo fcinfo, int number, const char *argument, int64 min, int64 max,
			  const char *range)
{
	int64 value = PG_GETARG_INT64(number);

	if (PG_ARGISNULL(number))
		bad_null(argument);
	if (value < min || value > max)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s is out of range: " INT64_FORMAT, argument, value),
						errdetail_internal("%s", range)));
	return value;
}

int32
le_check_permits(int64 permits)
{
	if (permits < 1 || permits > PG_INT32_MAX)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("permits is out of range: " INT64_FORMAT, permits),
						errdetail("It must be at least 1.")));
	return (int32) permits;
}

int32
le_arg_permits(FunctionCallInfo fcinfo, int number)
{
	if (PG_ARGISNULL(number))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("permits must not be null"),
						errdetail("It must be at least 1.")));
	return le_check_permits(PG_GETARG_INT32(number));
}

LeText
le_arg_owner(FunctionCallInfo fcinfo, int number)
{
	if (PG_ARGISNULL(number))
		return (LeText){NULL, 0};
	return sized(text_arg(fcinfo, number), "owner", LE_MAX_OWNER);
}

static bool
text_is(LeText text, const char *word)
{
	return text.len == strlen(word) && memcmp(text.data, word, text.len) == 0;
}

bool
le_arg_is_first(FunctionCallInfo fcinfo, int number, const char *argument, const char *first,
				const char *second)
{
	LeText word;

	if (PG_ARGISNULL(number))
		bad_null(argument);
	word = text_arg(fcinfo, number);
	if (!text_is(word, first) && !text_is(word, second))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("unknown %s \"%.*s\"", argument, pg_mbcliplen(word.data, (int) word.len, 64),
							   word.data),
						errdetail("A %s is \"%s\" or \"%s\".", argument, first, second)));
	return text_is(word, first);
}

int64
le_arg_token(FunctionCallInfo fcinfo, int number, const char *argument)
{
	if (PG_ARGISNULL(number))
		bad_null(argument);
	return token_or_none(PG_GETARG_INT64(number));
}

LeText
le_arg_name(FunctionCallInfo fcinfo, LeKind kind)
{
	return le_arg_text(fcinfo, 0, kind == LE_KIND_ELECTION ? "election" : "name", LE_MAX_NAME);
}

void
le_arg_holder(FunctionCallInfo fcinfo, LeCommand *cmd)
{
	cmd->name = le_arg_name(fcinfo, cmd->kind);
	cmd->token = le_arg_token(fcinfo, 1, le_token_word(cmd->kind));
}

static char *
interval_text(Interval *interval)
{
	return DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(interval)));
}

/*
 * Converts an interval to microseconds; a month has 30 days.  Raises an error if the interval is infinite or
 * out of range.
 */
static LeTime
duration(Interval *interval, const char *argument, LeTime min_us, LeTime max_us, const char *range)
{
	int64 days = (int64) interval->month * DAYS_PER_MONTH + interval->day;
	LeTime us;

	if (le_interval_infinite(interval) || pg_mul_s64_overflow(days, USECS_PER_DAY, &us) ||
		pg_add_s64_overflow(us, interval->time, &us) || us < min_us || us > max_us)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s is out of range: %s", argument, interval_text(interval)),
						errdetail("It is an interval %s.", range)));
	return us;
}

/* Returns the duration.  Raises an error if it is longer than this setting allows. */
static LeTime
limited(Interval *interval, LeTime us, const char *argument, const char *setting, int max_ms)
{
	if (us > max_ms * LE_MS)
		ereport(ERROR, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
						errmsg("%s is too long for this server: %s", argument, interval_text(interval)),
						errhint("See lock_election.%s (%s).", setting,
								GetConfigOptionByName(psprintf("lock_election.%s", setting), NULL, false))));
	return us;
}

LeTime
le_arg_ttl(FunctionCallInfo fcinfo, int number, LeTime if_null)
{
	Interval *interval;

	if (PG_ARGISNULL(number))
		return if_null;
	interval = PG_GETARG_INTERVAL_P(number);
	return limited(interval,
				   duration(interval, "ttl", LE_MIN_TTL, LE_MAX_TTL, "from 100 milliseconds to 24 days"),
				   "ttl", "max_ttl", le_max_ttl_ms);
}

LeTime
le_arg_wait(FunctionCallInfo fcinfo, int number)
{
	if (PG_ARGISNULL(number))
		return LE_WAIT_FOREVER;
	return duration(PG_GETARG_INTERVAL_P(number), "wait", 0, LE_NEVER - 1,
					"of 0 or more, or null to wait without limit");
}

static LeTime
hold_for(Interval *interval)
{
	return limited(interval, duration(interval, "hold_for", 0, LE_MAX_TTL, "from 0 to 24 days"), "hold_for",
				   "max_hold_for", le_max_hold_for_ms);
}

LeTime
le_arg_hold_for(FunctionCallInfo fcinfo, int number)
{
	return PG_ARGISNULL(number) ? 0 : hold_for(PG_GETARG_INTERVAL_P(number));
}

LeTime
le_check_hold_for(LeText value)
{
	char *text;

	if (value.data == NULL)
		return 0;
	text = pnstrdup(value.data, value.len);
	return hold_for(DatumGetIntervalP(DirectFunctionCall3(interval_in, CStringGetDatum(text),
														  ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1))));
}

Datum
le_interval_datum(LeTime duration_us)
{
	Interval *interval = palloc0(sizeof(Interval));

	Assert(duration_us >= 0);
	interval->time = Min(duration_us, LE_MAX_TTL);
	PG_RETURN_INTERVAL_P(interval);
}
