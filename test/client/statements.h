/*
 * statements.h
 *		A program that includes this replaces send(), also for libpq.  It sees
 *		every statement of the library's sessions, and can delay it, change it so
 *		that the server rejects it, and lose the reply.
 */
#ifndef STATEMENTS_H
#define STATEMENTS_H

#include <sys/socket.h>

/* Statements that contain a text. */
typedef struct
{
	const char *text;
	_Atomic int seen;
	_Atomic int64_t at;    /* when the last one was sent */
	_Atomic int64_t least; /* least ms between two of them; INT64_MAX: fewer than two */
	_Atomic int size;      /* bytes of the last one, with all that was sent together with it */
	_Atomic int slow_ms;
	_Atomic bool cut;    /* cut the connection after the next one */
	_Atomic bool refuse; /* make the server reject the next one */
	_Atomic bool fails;  /* each is sent to schema publix instead of public */
	_Atomic bool astray; /* each names another channel, so that it has no effect */
} statement;

/* A turn is "lease_sync"; its items are found by their actions. */
static statement grants = {.text = "grant_lease"}, turns = {.text = "lease_sync"},
				 listens = {.text = ";LISTEN le_"}, places = {.text = "enqueue_lock"},
				 candidacies = {.text = "enqueue_candidate"}, permits = {.text = "enqueue_permit"},
				 releases = {.text = "\7release"}, leaders = {.text = "current_leader("},
				 histories = {.text = "election_history("}, notifies = {.text = "NOTIFY le_"},
				 unlistens = {.text = "UNLISTEN"}, revokes = {.text = "revoke_lease"},
				 of_n12 = {.text = "n12"};
static statement *const statements[] = {&grants,    &turns,    &listens, &places,    &candidacies,
										&permits,   &releases, &leaders, &histories, &notifies,
										&unlistens, &revokes,  &of_n12};
#define N_STATEMENTS (sizeof(statements) / sizeof(statements[0]))

/* The socket of the test's own connection, which is not counted. */
static int own_fd = -1;
/* Number of all statements of the sessions. */
static _Atomic int all_sent;

static inline void
statements_begin(const PGconn *own)
{
	own_fd = PQsocket(own);
	for (size_t i = 0; i < N_STATEMENTS; i++)
		statements[i]->least = INT64_MAX;
}

/* Loses the reply even if it has arrived already, as on a busy machine. */
static inline void
lose_connection(int fd)
{
	char lost[8192];

	shutdown(fd, SHUT_RDWR);
	while (recv(fd, lost, sizeof(lost), MSG_DONTWAIT) > 0)
		;
}

static inline void
spoil(statement *s, char *at)
{
	if (atomic_exchange(&s->refuse, false))
		*at = 'X';
	if (s->fails)
		at[-2] = 'X';
	if (s->astray)
		at[strlen(s->text) - 1] = 'X';
}

/* Replaces the function of the system. */
ssize_t
send(int fd, const void *data, size_t size, int flags)
{
	bool met[N_STATEMENTS] = {false}, counts = fd != own_fd;
	int64_t now = le_now();
	ssize_t sent;

	for (size_t i = 0; i < N_STATEMENTS && counts; i++)
	{
		char *at = memmem(data, size, statements[i]->text, strlen(statements[i]->text));

		met[i] = at != NULL;
		if (met[i])
			spoil(statements[i], at);
	}
	all_sent += counts;
	sent = sendto(fd, data, size, flags, NULL, 0);
	for (size_t i = 0; i < N_STATEMENTS; i++)
	{
		statement *s = statements[i];

		if (!met[i])
			continue;
		if (s->seen > 0 && now - s->at < s->least)
			s->least = now - s->at;
		s->at = now;
		s->size = (int) size;
		s->seen++;
		usleep((useconds_t) s->slow_ms * 1000);
		if (atomic_exchange(&s->cut, false))
			lose_connection(fd);
	}
	return sent;
}

/*
 * Makes sessions call a function of the test instead of lease_sync().  Its table
 * "told" says whether it fails, and which part of the validity it returns.
 */
static inline void
wrap_calls(PGconn *db)
{
	query(db,
		  "SET client_min_messages = error; ALTER FUNCTION lease_sync RENAME TO real_lease_sync;"
		  " CREATE TABLE told(fails boolean, factor float); INSERT INTO told VALUES (false, 1);"
		  " CREATE TYPE answer AS (item integer, event text, kind text, name text, token bigint,"
		  " queue_position bigint, owner text, reason text, sqlstate text, message text, detail text,"
		  " hint text, validity interval, incarnation bigint, news bigint, complete boolean, channel text)");
	query(
		db,
		"CREATE FUNCTION lease_sync(bigint, bigint, bigint, bigint, text[], interval)"
		" RETURNS SETOF answer LANGUAGE plpgsql AS $$BEGIN"
		" IF (SELECT t.fails FROM told AS t) THEN RAISE io_error; END IF;"
		" RETURN QUERY SELECT r.item, r.event, r.kind, r.name, r.token, r.queue_position, r.owner, r.reason,"
		" r.sqlstate, r.message, r.detail, r.hint, r.validity * t.factor, r.incarnation, r.news,"
		" r.complete, r.channel FROM real_lease_sync($1, $2, $3, $4, $5, $6) AS r, told AS t; END$$");
}

static inline void
unwrap_calls(PGconn *db)
{
	query(db, "DROP FUNCTION lease_sync; DROP TYPE answer; DROP TABLE told;"
			  " ALTER FUNCTION real_lease_sync RENAME TO lease_sync");
}

#endif /* STATEMENTS_H */
