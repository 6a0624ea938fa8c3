/*
 * error.h
 *		Sets errors of calls, also from errors of the server and of libpq.
 */
#ifndef LE_CLIENT_ERROR_H
#define LE_CLIENT_ERROR_H

#include <stdbool.h>

#include "lock_election.h"

/* SQLSTATEs that a server without the extension returns */
#define LE_NOT_INSTALLED "55000 42883 3F000"

/* Returns the call's status from the calling function, unless it is LE_OK. */
#define le_must(call)                                                                                        \
	do                                                                                                       \
	{                                                                                                        \
		le_status must_status = (call);                                                                      \
		if (must_status != LE_OK)                                                                            \
			return must_status;                                                                              \
	} while (0)

/* Fill an error, unless it is NULL, and return its status.  "result" is the result of a failed statement. */
extern le_status le_error_set(le_error *error, le_status status, const char *sqlstate, const char *format,
							  ...) __attribute__((format(printf, 4, 5)));
#define le_invalid(error, ...) le_error_set((error), LE_INVALID, "", __VA_ARGS__)
extern le_status le_error_clear(le_error *error);
extern le_status le_error_copy(le_error *to, const le_error *from);
extern le_status le_error_result(le_error *error, const PGresult *result);
/* Fills an error from the fields of a server error, of which message and hint may be NULL. */
extern le_status le_error_server(le_error *error, const char *sqlstate, const char *message,
								 const char *hint);
extern le_status le_no_memory(le_error *error);
extern le_status le_status_of(const char *sqlstate);
/* Returns whether the error's SQLSTATE is in a list that is separated by spaces. */
extern bool le_error_is(const le_error *error, const char *sqlstates);
/* Returns whether the error says that the schema, or a function in it, does not exist. */
extern bool le_error_is_absent(const le_error *error);
/* Returns whether the error is temporary, so that a retry may help. */
extern bool le_error_passes(const le_error *error);
/* Returns whether the session must reconnect after the error, perhaps to another host. */
extern bool le_error_ends_connection(const le_error *error);

/* --- secret.c: errors of connections, without passwords --- */

/*
 * Sets the error for a connection string that libpq cannot parse.  "message" is
 * libpq's error message.  It quotes a part of the string, which may contain a
 * password, so the error normally names only the kind of mistake.
 */
extern le_status le_error_unparsed(le_error *error, const char *message);
/*
 * Returns the reason why this connection's error message must not be shown, or
 * NULL if it may be shown.  The reason is that an option has impossible
 * characters, for example because libpq took a part of a password for the host.
 */
extern const char *le_misread(const PGconn *conn);
/*
 * Returns whether a statement on the application's connection has succeeded.
 * If not, sets the error.  "result" is NULL if libpq returned none.
 */
extern bool le_succeeded(const PGconn *conn, const PGresult *result, le_error *error);

#endif /* LE_CLIENT_ERROR_H */
