/*
 * lock.h
 *		Declares the state of one run of lockctl lock or elect.
 */
#ifndef LOCK_H
#define LOCK_H

#include "guardian.h"
#include "http.h"
#include "lock_election.h"

typedef struct run
{
	/* arguments */
	bool elect;
	const char **names; /* NAME, and the names given with --and */
	int n;
	const char *candidate, *http_address;
	char **command;
	int ttl, wait, hold_for, grace, at_most;
	int codes[2]; /* exit codes: not acquired, lost */
	bool listen, notify;
	le_how how;
	lc_command guarded;

	/* state */
	le_session *session;
	le_hold *hold;
	lc_guardian guardian;
	lc_http http;
	int signal_fd;
	int signo; /* last signal received; 0 = none */
	int died;  /* signal that the exit code reports; 0 = none */
	int64_t deadline, extend_at, answer_by;
	bool killed;    /* the lock is lost, and CMD must be killed */
	int64_t end_at; /* time at which --at-most ends CMD; 0 = never */
	bool ended;     /* end_at has passed, so CMD is being ended */
	bool told_place;
} run;

/* Parses and checks the arguments of lock, or of elect, and chooses the shard. */
extern void lc_lock_arguments(run *r, bool elect, int argc, char **argv);

#endif /* LOCK_H */
