/*
 * sql/sql_args.h
 *		Arguments of the SQL functions: checked, and turned into a command.
 */
#ifndef LE_SQL_ARGS_H
#define LE_SQL_ARGS_H

#include "fmgr.h"

#include "core/command.h"

#define LE_MIN_TTL (100 * LE_MS)
#define LE_MAX_TTL (24 * INT64CONST(86400) * LE_SECOND)

#define ERRCODE_LE_LOST MAKE_SQLSTATE('L', 'E', '0', '0', '1')

/*
 * Each raises 22023 with the argument's name, its value and the allowed
 * range.  "number" is the argument's.
 */
extern LeText le_arg_text(FunctionCallInfo fcinfo, int number, const char *argument, uint32 max);
/* The same of a text that is no argument of its own; data NULL: null. */
extern LeText le_check_text(LeText value, const char *argument, uint32 max);
extern LeText le_arg_owner(FunctionCallInfo fcinfo, int number);
extern int32 le_arg_permits(FunctionCallInfo fcinfo, int number);
extern int64 le_arg_token(FunctionCallInfo fcinfo, int number, const char *argument);
extern void le_arg_check_value(FunctionCallInfo fcinfo, int number);

/* A number from min to max; "range" is the detail that says so. */
extern int64 le_arg_number(FunctionCallInfo fcinfo, int number, const char *argument, int64 min, int64 max,
						   const char *range);

/* Is the argument the first of two words?  Anything but the two is an error. */
extern bool le_arg_is_first(FunctionCallInfo fcinfo, int number, const char *argument, const char *first,
							const char *second);

/* The first argument: the name of a lock or election. */
extern LeText le_arg_name(FunctionCallInfo fcinfo, LeKind kind);

/* The first argument: names of several locks.  A command with "each" may have none. */
extern void le_arg_names(FunctionCallInfo fcinfo, LeCommand *cmd);

/* Tokens of n names: an array as long.  NULL, and what cannot be a token, become -1, which holds nothing. */
extern int64 *le_arg_tokens(FunctionCallInfo fcinfo, int number, uint32 n);

/* The first two arguments: name and token, or election and term. */
extern void le_arg_holder(FunctionCallInfo fcinfo, LeCommand *cmd);

/* Durations.  A TTL that is NULL becomes if_null. */
extern LeTime le_arg_ttl(FunctionCallInfo fcinfo, int number, LeTime if_null);
extern LeTime le_arg_wait(FunctionCallInfo fcinfo, int number);
extern LeTime le_arg_hold_for(FunctionCallInfo fcinfo, int number);

/* hold_for as a text; data NULL: none. */
extern LeTime le_check_hold_for(LeText value);
/* A number of permits. */
extern int32 le_check_permits(int64 permits);
/* No name is there twice. */
extern void le_check_duplicates(const LeText *names, int n);

/* A duration as an interval of SQL. */
extern Datum le_interval_datum(LeTime duration_us);

#endif /* LE_SQL_ARGS_H */
