/*
 * launcher/notifier.h
 *		The notifier of a database: a background worker that sends a NOTIFY for each hint.
 */
#ifndef LE_NOTIFIER_H
#define LE_NOTIFIER_H

#include "postgres.h"

/* Entry point of the notifier's process.  The argument is the database's OID. */
extern PGDLLEXPORT void le_notifier_main(Datum arg);

#endif /* LE_NOTIFIER_H */
