/*
 * http.c
 *		Tells a load balancer or Kubernetes whether this process leads: any
 *		request is answered with 200 or 503.
 */
#include "lockctl.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A client that has not sent its request by then is dropped. */
#define CLIENT_MS 2000

/* "127.0.0.1:8080", "[::1]:8080", "*:8080", ":8080" */
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

void
lc_http_open(lc_http *http, const char *address)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
	char host[256];
	const char *port;
	int on = 1, error;

	split(address, host, &port);
	error = getaddrinfo(host[0] != '\0' ? host : NULL, port, &hints, &list);
	if (error != 0)
		lc_usage("--http: \"%s\": %s", address, gai_strerror(error));
	http->fd = -1;
	for (struct addrinfo *a = list; a != NULL && http->fd < 0; a = a->ai_next)
	{
		http->fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (http->fd < 0)
			continue;
		setsockopt(http->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		if (bind(http->fd, a->ai_addr, a->ai_addrlen) != 0 || listen(http->fd, LC_HTTP_CLIENTS) != 0)
		{
			error = errno;
			close(http->fd);
			http->fd = -1;
		}
	}
	freeaddrinfo(list);
	if (http->fd < 0)
		lc_usage("--http: cannot listen on \"%s\": %s", address, strerror(error));
	for (int i = 0; i < LC_HTTP_CLIENTS; i++)
		http->clients[i].fd = -1;
}

int
lc_http_poll(lc_http *http, struct pollfd *fds)
{
	int n = 0;
	bool room = false;

	if (http->fd < 0)
		return 0;
	for (int i = 0; i < LC_HTTP_CLIENTS; i++)
	{
		if (http->clients[i].fd >= 0)
			fds[n++] = (struct pollfd){.fd = http->clients[i].fd, .events = POLLIN};
		else
			room = true;
	}
	if (room)
		fds[n++] = (struct pollfd){.fd = http->fd, .events = POLLIN};
	return n;
}

static void
drop(lc_http_client *client)
{
	close(client->fd);
	client->fd = -1;
}

/* As a text of JSON, in quotes. */
static void
quote(char *to, size_t size, const char *text)
{
	size_t n = 0;

	to[n++] = '"';
	for (const unsigned char *c = (const unsigned char *) text; *c != '\0' && n + 8 < size; c++)
	{
		if (*c == '"' || *c == '\\')
			n += (size_t) sprintf(to + n, "\\%c", *c);
		else if (*c < 0x20)
			n += (size_t) sprintf(to + n, "\\u%04x", *c);
		else
			to[n++] = (char) *c;
	}
	to[n++] = '"';
	to[n] = '\0';
}

static void
answer(lc_http_client *client, const lc_http_state *state)
{
	static char election[2048], candidate[32768], body[36000], text[36500];
	bool head = strncmp(client->request, "HEAD ", 5) == 0;

	quote(election, sizeof(election), state->election);
	quote(candidate, sizeof(candidate), state->candidate);
	if (state->leads)
		snprintf(body, sizeof(body),
				 "{\"leader\": true, \"election\": %s, \"candidate\": %s, \"term\": %lld}\n", election,
				 candidate, (long long) state->term);
	else
		snprintf(body, sizeof(body), "{\"leader\": false, \"election\": %s, \"candidate\": %s}\n", election,
				 candidate);
	snprintf(text, sizeof(text),
			 "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
			 "Cache-Control: no-store\r\nConnection: close\r\n\r\n%s",
			 state->leads ? "200 OK" : "503 Service Unavailable", strlen(body), head ? "" : body);
	/* It fits in the socket's buffer; a client that takes nothing is dropped. */
	if (send(client->fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		lc_detail("an HTTP client is gone: %s", strerror(errno));
	shutdown(client->fd, SHUT_WR);
	drop(client);
}

static void
read_request(lc_http_client *client, const lc_http_state *state)
{
	ssize_t got = recv(client->fd, client->request + client->length,
					   sizeof(client->request) - 1 - client->length, MSG_DONTWAIT);

	if (got > 0)
	{
		client->length += (size_t) got;
		client->request[client->length] = '\0';
		/* Of long headers the beginning is enough; the rest is of no interest. */
		if (strstr(client->request, "\r\n\r\n") != NULL || strstr(client->request, "\n\n") != NULL ||
			client->length == sizeof(client->request) - 1)
			answer(client, state);
	}
	else if (got == 0 || (errno != EAGAIN && errno != EINTR) || le_now() > client->until)
		drop(client);
}

void
lc_http_work(lc_http *http, const lc_http_state *state)
{
	if (http->fd < 0)
		return;
	for (int i = 0; i < LC_HTTP_CLIENTS; i++)
	{
		lc_http_client *client = &http->clients[i];

		if (client->fd < 0)
		{
			client->fd = accept4(http->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
			client->length = 0;
			client->until = le_now() + CLIENT_MS;
		}
		if (client->fd >= 0)
			read_request(client, state);
	}
}
