/*
 * durability.h
 *		A session waits until an answer is as durable as synchronous_commit
 *		asks for.
 */
#ifndef LE_DURABILITY_H
#define LE_DURABILITY_H

#include "core/core.h"

/* Do this session's requests have to be flushed before they are answered? */
extern bool le_needs_flush(void);

/*
 * Wait until what this reply says is as durable as synchronous_commit asks for,
 * then check that the lease has not ended meanwhile.  If it has, the first
 * answers false and the second raises LE001 for this name.
 */
extern bool le_durable_in_time(const LeReply *reply);
extern void le_wait_durable(const LeReply *reply, const char *what, LeText name);

#endif /* LE_DURABILITY_H */
