/*
 * backend/session_acquirer.c
 *		Describes the acquiring connection in the text "PID ADDRESS APPLICATION", such as "21092 10.0.0.7
 *		nightly report".  ADDRESS is "-" if there is none.
 */
#include "postgres.h"

#include <netdb.h>

#include "common/ip.h"
#include "miscadmin.h"
#include "utils/backend_status.h"
#include "utils/guc.h"

#include "backend/session_acquirer.h"

/* Returns the client's address, or "-".  It does not change during the life of the process. */
static const char *
my_address(void)
{
	static char address[INET6_ADDRSTRLEN + 16] = "";
	const SockAddr *peer = (const SockAddr *) &MyBEEntry->st_clientaddr;

	if (address[0] != '\0')
		return address;
	if ((peer->addr.ss_family != AF_INET && peer->addr.ss_family != AF_INET6) ||
		pg_getnameinfo_all(&peer->addr, peer->salen, address, sizeof(address), NULL, 0, NI_NUMERICHOST) != 0)
		strlcpy(address, "-", sizeof(address));

	/* remove the zone of a link-local address, which type inet does not accept */
	address[strcspn(address, "%")] = '\0';
	return address;
}

LeText
le_acquirer_self(void)
{
	static char text[LE_MAX_ACQUIRER + 1];
	int len = snprintf(text, sizeof(text), "%d %s %s", MyProcPid, my_address(),
					   application_name != NULL ? application_name : "");

	Assert(len > 0);
	return (LeText){text, (uint32_t) Min(len, LE_MAX_ACQUIRER)};
}

void
le_acquirer_parse(LeText text, LeAcquirerParts *parts)
{
	char *copy = pnstrdup(text.data != NULL ? text.data : "", text.len);
	char *address = strchr(copy, ' ');
	char *application = address != NULL ? strchr(address + 1, ' ') : NULL;

	memset(parts, 0, sizeof(*parts));
	if (application == NULL)
		return;
	*address++ = *application++ = '\0';
	parts->pid = atoi(copy);
	if (strcmp(address, "-") != 0)
		parts->client_addr = address;
	if (*application != '\0')
		parts->application_name = application;
}
