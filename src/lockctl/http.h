/*
 * http.h
 *		Declares an HTTP server that reports whether this process leads.
 */
#ifndef HTTP_H
#define HTTP_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LC_HTTP_CLIENTS 128

typedef struct lc_http_client
{
	int fd;        /* socket of the client; -1 = free slot */
	int64_t until; /* time (le_now()) by which the client must have sent its request */
	size_t length;
	char request[1024];
} lc_http_client;

typedef struct lc_http
{
	int fd; /* listening socket; -1 = none */
	lc_http_client clients[LC_HTTP_CLIENTS];
} lc_http;

/* Data for the reply */
typedef struct lc_http_state
{
	bool leads;
	const char *election, *candidate;
	int64_t term;
} lc_http_state;

/* Listens on ADDR:PORT, or ends the program. */
extern void lc_http_open(lc_http *http, const char *address);
/* Fills in the descriptors to poll.  Returns their number, at most 1 + LC_HTTP_CLIENTS. */
extern int lc_http_poll(lc_http *http, struct pollfd *fds);
/* Returns the time (le_now()) at which the first client times out; INT64_MAX if there is no client. */
extern int64_t lc_http_until(const lc_http *http);
/* Accepts clients, reads their requests, and sends replies. */
extern void lc_http_work(lc_http *http, const lc_http_state *state);

#endif /* HTTP_H */
