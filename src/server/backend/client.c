/*
 * backend/client.c
 *		Checks through the client's socket whether the client is still connected.
 *
 * If a client's process ends, its socket is closed.  If the client's host stops responding, the socket stays
 * open; two socket options detect such a host:
 *
 *	-	Keepalive probes detect it while the connection is idle.  They are enabled while a call waits, and for
 *		as long as a lock is bound to the connection.
 *	-	The kernel sends no probes while a packet is unacknowledged, for example a grant to a host that
 *		stopped responding during the wait.  In that case TCP_USER_TIMEOUT ends the connection.  This timeout
 *		would also end the connection of a client that reads slowly, so it is set only while a call waits, and
 *		from the grant of a bound lock until the next statement.
 *
 * If tcp_keepalives_* or tcp_user_timeout are set, this file does not change them, because the administrator
 * knows the network better.
 */
#include "postgres.h"

#include <netinet/tcp.h>

#include "miscadmin.h"

#include "backend/client.h"
#include "shared/compat.h"

/* Keepalive times in seconds: a host that stops responding is detected after 4 + 3 * 2 = 10 s. */
#define KEEPALIVE_IDLE     4
#define KEEPALIVE_INTERVAL 2
#define KEEPALIVE_COUNT    3
#define USER_TIMEOUT_MS    10000

static bool in_wait = false;
static bool holding = false;   /* a lock is bound to the connection */
static bool answering = false; /* the client may not have read its grant yet */

/* whether keepalive probes and TCP_USER_TIMEOUT are currently set on the socket */
static bool probes = false;
static bool user_timeout = false;

/*
 * Switches keepalive probes on or off.  Does not switch them on if the server has its own keepalive settings.
 */
static void
set_probes(bool on)
{
	if (probes == on)
		return;
	probes = on;
	if (on && (tcp_keepalives_idle != 0 || tcp_keepalives_interval != 0 || tcp_keepalives_count != 0))
		return;
	(void) pq_setkeepalivesidle(on ? KEEPALIVE_IDLE : tcp_keepalives_idle, MyProcPort);
	(void) pq_setkeepalivesinterval(on ? KEEPALIVE_INTERVAL : tcp_keepalives_interval, MyProcPort);
	(void) pq_setkeepalivescount(on ? KEEPALIVE_COUNT : tcp_keepalives_count, MyProcPort);
}

/* Switches TCP_USER_TIMEOUT on or off.  Does not switch it on if the server sets tcp_user_timeout. */
static void
set_user_timeout(bool on)
{
#ifdef TCP_USER_TIMEOUT
	if (user_timeout == on)
		return;
	user_timeout = on;
	if (on && tcp_user_timeout != 0)
		return;
	(void) pq_settcpusertimeout(on ? USER_TIMEOUT_MS : tcp_user_timeout, MyProcPort);
#endif
}

static void
apply(void)
{
	Assert(!answering || holding);
	if (MyProcPort == NULL)
		return;
	set_probes(in_wait || holding);
	set_user_timeout(in_wait || answering);
}

/* Uses pq_check_connection(), which does not read from the socket, so that no data is lost. */
void
le_client_look(void)
{
	if (MyProcPort != NULL && !pq_check_connection())
	{
		ClientConnectionLost = true;
		InterruptPending = true;
	}
}

void
le_client_look_in_wait(void)
{
	in_wait = true;
	apply();
	le_client_look();
}

void
le_client_wait_over(void)
{
	in_wait = false;
	apply();
}

void
le_client_hold(bool bound, bool granted)
{
	if (holding == bound && !granted)
		return;
	holding = bound;
	answering = bound && granted;
	apply();
}

void
le_client_statement(LeMailbox *mailbox)
{
	if (!holding)
		return;
	holding = mailbox != NULL && pg_atomic_read_u32(&mailbox->bound) != 0;
	answering = false;
	apply();
}
