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

/* l0 to l5; many of the calls meet at one lock. */
extern const char *any_lock(void);

/* ms; mostly short, so that abandoned locks are taken over; some outlive a restart of the server. */
extern int any_ttl(void);

/* ms; below 0: without a limit. */
extern int any_wait(void);

/* An interval as SQL has it; 0: NULL. */
extern const char *interval(char buffer[32], int ms);

/* The argument "wait"; below 0: without a limit. */
extern const char *wait_argument(char buffer[32], int wait);

#endif /* TORTURE_CHANCE_H */
