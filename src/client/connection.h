/*
 * connection.h
 *		The connection to the server.  The calling thread must own the
 *		connection, and must not hold the session's mutex.
 */
#ifndef LE_CLIENT_CONNECTION_H
#define LE_CLIENT_CONNECTION_H

#include "types.h"

/*
 * Connects to the first host that works, trying each host once.  Returns false
 * and sets net.error if none works.
 */
extern bool le_connect(le_session *s);
extern void le_disconnect(le_session *s);
/*
 * Runs a statement with n arguments, or, if n < 0, several statements without
 * arguments.  Replaces "@extschema@" with the extension's schema.  If that
 * schema was renamed, reads its new name from the server and repeats the
 * statement.  Returns NULL if the connection was lost.  In that case, and after
 * a server error, sets net.error.
 */
extern PGresult *le_exec(le_session *s, const char *sql, int n, const char *const *values);

/* Columns of the result of le_sync(), in the order of its statement; the validity is in microseconds */
typedef enum LeColumn
{
	LE_COLUMN_ITEM,
	LE_COLUMN_EVENT,
	LE_COLUMN_KIND,
	LE_COLUMN_NAME,
	LE_COLUMN_TOKEN,
	LE_COLUMN_QUEUE_POSITION,
	LE_COLUMN_OWNER,
	LE_COLUMN_REASON,
	LE_COLUMN_SQLSTATE,
	LE_COLUMN_MESSAGE,
	LE_COLUMN_HINT,
	LE_COLUMN_VALIDITY,
	LE_COLUMN_INCARNATION,
	LE_COLUMN_NEWS,
	LE_COLUMN_COMPLETE,
	LE_COLUMN_CHANNEL
} LeColumn;

/*
 * Calls lease_sync() with its six arguments; the items are a binary array of
 * items_length bytes.  Returns the same as le_exec.
 */
extern PGresult *le_sync(le_session *s, const char *const *values, int items_length);
/* Reads the data that the server has sent, and handles the notifications in it. */
extern void le_receive(le_session *s);

#endif /* LE_CLIENT_CONNECTION_H */
