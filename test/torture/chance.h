/*
 * chance.h
 *		Random choices of a client of the torture test.
 */
#ifndef TORTURE_CHANCE_H
#define TORTURE_CHANCE_H

#include <stdbool.h>

#define LOCKS 6 /* l0 to l5 */

/* 0 to n - 1. */
extern int up_to(int n);
extern bool one_in(int n);

/* A name from l0 to l5; one of them is chosen often, so that many calls meet at it. */
extern const char *any_lock(void);

/*
 * Milliseconds; mostly short, so that abandoned locks are taken over; some outlive a restart of the server.
 */
extern int any_ttl(void);

/* Milliseconds; negative: without a limit. */
extern int any_wait(void);

/* An interval in SQL; NULL for 0. */
extern const char *interval(char buffer[32], int ms);

/* The argument "wait" in SQL; negative: without a limit. */
extern const char *wait_argument(char buffer[32], int wait);

#endif /* TORTURE_CHANCE_H */
