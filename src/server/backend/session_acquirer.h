/*
 * backend/session_acquirer.h
 *		The connection that acquires, as a text that is kept with what it holds:
 *		for people who look, also when the connection is gone.
 */
#ifndef LE_SESSION_ACQUIRER_H
#define LE_SESSION_ACQUIRER_H

#include "core/command.h"

/* Of this session, as of now; to be copied before the next call. */
extern LeText le_acquirer_self(void);

/* The parts of such a text, as copies; pid 0: it is not such a text.  NULL: that part is not there. */
typedef struct LeAcquirerParts
{
	int pid;
	char *client_addr; /* numeric; NULL: a local connection, or a background process */
	char *application_name;
} LeAcquirerParts;

extern void le_acquirer_parse(LeText text, LeAcquirerParts *parts);

#endif /* LE_SESSION_ACQUIRER_H */
