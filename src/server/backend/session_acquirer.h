/*
 * backend/session_acquirer.h
 *		Describes the acquiring connection in a text for human readers.  The text is stored with the
 *		connection's holders and waiters, even after the connection has ended.
 */
#ifndef LE_SESSION_ACQUIRER_H
#define LE_SESSION_ACQUIRER_H

#include "core/command.h"

/* Returns the text that describes this session now.  It is valid until the next call. */
extern LeText le_acquirer_self(void);

/*
 * Copies of the parts of an acquirer's text.  pid is 0 if the text cannot be parsed; a missing part is NULL.
 */
typedef struct LeAcquirerParts
{
	int pid;
	char *client_addr; /* numeric address; NULL: a local connection or a background process */
	char *application_name;
} LeAcquirerParts;

extern void le_acquirer_parse(LeText text, LeAcquirerParts *parts);

#endif /* LE_SESSION_ACQUIRER_H */
