/*
 * sql/sql_args.h
 *		Checks the arguments of the SQL functions, and converts them to a command.
 */
#ifndef LE_SQL_ARGS_H
#define LE_SQL_ARGS_H

#include "fmgr.h"
#include "utils/array.h"

#include "core/command.h"

#define LE_MIN_TTL (100 * LE_MS)
#define LE_MAX_TTL (24 * INT64CONST(86400) * LE_SECOND)

#define ERRCODE_LE_LOST MAKE_SQLSTATE('L', 'E', '0', '0', '1')

/*
 * Read an argument.  Each of these functions raises 22023, with the argument's name and the allowed range, if
 * the value is invalid.  "number" is the index of the argument.
 */
extern LeText le_arg_text(FunctionCallInfo fcinfo, int number, const char *argument, uint32 max);
/* Returns the elements of an array of texts.  A NULL element becomes a text without data. */
extern LeText *le_array_texts(ArrayType *array, int *n);
/* Checks a text that is only a part of an argument, and returns it.  A null text has data NULL. */
extern LeText le_check_text(LeText value, const char *argument, uint32 max);
extern LeText le_arg_owner(FunctionCallInfo fcinfo, int number);
extern int32 le_arg_permits(FunctionCallInfo fcinfo, int number);
extern int64 le_arg_token(FunctionCallInfo fcinfo, int number, const char *argument);
extern void le_arg_check_value(FunctionCallInfo fcinfo, int number);

/* Reads a number from min to max.  "range" is the text of the error detail that states the range. */
extern int64 le_arg_number(FunctionCallInfo fcinfo, int number, const char *argument, int64 min, int64 max,
						   const char *range);

/* Returns whether the argument is the word "first".  Raises an error if it is neither of the two words. */
extern bool le_arg_is_first(FunctionCallInfo fcinfo, int number, const char *argument, const char *first,
							const char *second);

/* Reads the first argument, the name of a lock or election. */
extern LeText le_arg_name(FunctionCallInfo fcinfo, LeKind kind);

/* Reads the first argument, the names of several locks.  The array may be empty if the command has "each". */
extern void le_arg_names(FunctionCallInfo fcinfo, LeCommand *cmd);

/*
 * Reads the tokens of n names from an array of n elements.  NULL, and numbers that cannot be tokens, become
 * -1, which matches no holder.
 */
extern int64 *le_arg_tokens(FunctionCallInfo fcinfo, int number, uint32 n);

/* Reads the first two arguments: name and token, or election and term. */
extern void le_arg_holder(FunctionCallInfo fcinfo, LeCommand *cmd);

/* Read durations.  le_arg_ttl() returns if_null if the TTL is NULL. */
extern LeTime le_arg_ttl(FunctionCallInfo fcinfo, int number, LeTime if_null);
extern LeTime le_arg_wait(FunctionCallInfo fcinfo, int number);
extern LeTime le_arg_hold_for(FunctionCallInfo fcinfo, int number);

/* Reads hold_for from a text.  Returns 0 if data is NULL. */
extern LeTime le_check_hold_for(LeText value);
/* Checks a number of permits, and returns it. */
extern int32 le_check_permits(int64 permits);
/* Raises an error if a name occurs twice. */
extern void le_check_duplicates(const LeText *names, int n);

/* Returns a duration as an SQL interval. */
extern Datum le_interval_datum(LeTime duration_us);

#endif /* LE_SQL_ARGS_H */
