/*
 * http.c
 *		Reports to a load balancer or Kubernetes whether this process leads: the
 *		reply to any request is 200 if it leads, otherwise 503.
 */
#include "http.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lock_election.h"
#include "memory.h"
#include "message.h"
#include "text.h"

/* Time limit in ms for a client to send its whole request, even if it sends the bytes slowly */
#define CLIENT_MS 1000
/*
 * Of a request that is longer than the buffer, only the first HEAD bytes (the method) and the last TAIL bytes
 * (which may begin the empty line) are kept.
 */
#define HEAD 5
#define TAIL 3

/*
 * Splits an address such as "127.0.0.1:8080", "[::1]:8080", "*:8080" or ":8080".  An empty host means all
 * addresses.
 */
static void
split(const char *address, char host[256], const char **port)
{
	const char *colon = strrchr(address, ':');
	size_t length = colon != NULL ? (size_t) (colon - address) : 0;

	if (colon == NULL || colon[1] == '\0' || length >= 256)
		lc_usage("--http: \"%s\" is not ADDR:PORT", address);
	*port = colon + 1;
	if (length >= 2 && address[0] == '[' && colon[-1] == ']')
	{
		address++;
		length -= 2;
	}
	memcpy(host, address, length);
	host[length] = '\0';
	if (strcmp(host, "*") == 0)
		host[0] = '\0';
}

/*
 * Returns a socket that listens on an address, or -1 and sets errno.  If all is set, an IPv6 socket also
 * serves IPv4.
 */
static int
listen_on(const struct addrinfo *a, bool all)
{
	int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1, off = 0, error;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (all && a->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

/* Listens on the first usable address of a host.  Returns the socket, or -1 and sets errno. */
static int
listen_at(const char *address, const char *host, const char *port, bool all)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
	int fd = -1, error = getaddrinfo(host, port, &hints, &list);

	if (error != 0)
		lc_usage("--http: \"%s\": %s", address, gai_strerror(error));
	for (struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next)
		fd = listen_on(a, all);
	error = errno;
	freeaddrinfo(list);
	errno = error;
	return fd;
}

void
lc_http_open(lc_http *http, const char *address)
{
	char host[256];
	const char *port;
	bool all;

	split(address, host, &port);
	all = host[0] == '\0';
	http->fd = listen_at(address, all ? "::" : host, port, all);
	/* use IPv4 if the kernel has no IPv6 */
	if (http->fd < 0 && all && errno == EAFNOSUPPORT)
		http->fd = listen_at(address, "0.0.0.0", port, all);
	if (http->fd < 0)
		lc_usage("--http: cannot listen on \"%s\": %s", address, strerror(errno));
	for (int i = 0; i < LC_HTTP_CLIENTS; i++)
		http->clients[i].fd = -1;
}

int
lc_http_poll(lc_http *http, struct pollfd *fds)
{
	int n = 0;

	if (http->fd < 0)
		return 0;
	fds[n++] = (struct pollfd){.fd = http->fd, .events = POLLIN};
	for (int i = 0; i < LC_HTTP_CLIENTS; i++)
	{
		if (http->clients[i].fd >= 0)
			fds[n++] = (struct pollfd){.fd = http->clients[i].fd, .events = POLLIN};
	}
	return n;
}

int64_t
lc_http_until(const lc_http *http)
{
	int64_t first = INT64_MAX;

	for (int i = 0; http->fd >= 0 && i < LC_HTTP_CLIENTS; i++)
	{
		if (http->clients[i].fd >= 0 && http->clients[i].until < first)
			first = http->clients[i].until;
	}
	return first;
}

static void
drop(lc_http_client *client)
{
	close(client->fd);
	client->fd = -1;
}

/* Sends the reply, and drops the client. */
static void
answer(lc_http_client *client, const lc_http_state *state)
{
	const char *term, *body, *text;
	bool head = strncmp(client->request, "HEAD ", HEAD) == 0;

	term = state->leads ? lc_format(", \"term\": %lld", (long long) state->term) : "";
	body =
		lc_format("{\"leader\": %s, \"election\": %s, \"candidate\": %s%s}\n",
				  state->leads ? "true" : "false", lc_json(state->election), lc_json(state->candidate), term);
	text = lc_format("HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
					 "Cache-Control: no-store\r\nConnection: close\r\n\r\n%s",
					 state->leads ? "200 OK" : "503 Service Unavailable", strlen(body), head ? "" : body);
	/* Do not wait for the client: the reply fits into the socket's buffer. */
	if (send(client->fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		lc_detail("an HTTP client is gone: %s", strerror(errno));
	shutdown(client->fd, SHUT_WR);
	drop(client);
}

/*
 * Reads from a client, and replies when its request is complete.  The request must be read completely,
 * because closing a socket with unread bytes resets the connection, and the reply may be lost.
 */
static void
read_request(lc_http_client *client, const lc_http_state *state)
{
	ssize_t got = recv(client->fd, client->request + client->length,
					   sizeof(client->request) - 1 - client->length, MSG_DONTWAIT);

	if (got > 0)
	{
		client->length += (size_t) got;
		client->request[client->length] = '\0';
		if (strstr(client->request, "\r\n\r\n") != NULL || strstr(client->request, "\n\n") != NULL)
		{
			answer(client, state);
			return;
		}
		if (client->length == sizeof(client->request) - 1)
		{
			memmove(client->request + HEAD, client->request + client->length - TAIL, TAIL);
			client->length = HEAD + TAIL;
		}
	}
	else if (got == 0 || (errno != EAGAIN && errno != EINTR))
	{
		drop(client);
		return;
	}
	if (le_now() >= client->until)
		drop(client);
}

/*
 * Returns a free slot.  If there is none, drops the client that has been connected longest, so that a new
 * probe can always connect.
 */
static lc_http_client *
place(lc_http *http)
{
	lc_http_client *oldest = &http->clients[0];

	for (int i = 0; i < LC_HTTP_CLIENTS; i++)
	{
		if (http->clients[i].fd < 0)
			return &http->clients[i];
		if (http->clients[i].until < oldest->until)
			oldest = &http->clients[i];
	}
	drop(oldest);
	return oldest;
}

void
lc_http_work(lc_http *http, const lc_http_state *state)
{
	int fd;

	if (http->fd < 0)
		return;
	for (int i = 0; i < LC_HTTP_CLIENTS; i++)
	{
		if (http->clients[i].fd >= 0)
			read_request(&http->clients[i], state);
	}
	/* accept at most as many clients as there are slots, so that each one is read before it can be dropped */
	for (int i = 0; i < LC_HTTP_CLIENTS; i++)
	{
		lc_http_client *client;

		fd = accept4(http->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			return;
		client = place(http);
		*client = (lc_http_client){.fd = fd, .until = le_now() + CLIENT_MS};
		read_request(client, state);
	}
}
