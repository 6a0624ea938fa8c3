/*
 * chance.c
 *		Random choices of a client of the torture test, and their SQL.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "chance.h"

int
up_to(int n)
{
	return (int) (random() % n);
}

bool
one_in(int n)
{
	return up_to(n) == 0;
}

const char *
any_lock(void)
{
	static const char *const names[LOCKS] = {"l0", "l1", "l2", "l3", "l4", "l5"};
	int n = up_to(LOCKS + LOCKS / 2);

	return names[n < LOCKS ? n : 0];
}

int
any_ttl(void)
{
	static const int ttl[] = {300, 500, 1000, 2000, 4000};

	return one_in(20) ? 7000 : ttl[up_to(5)];
}

int
any_wait(void)
{
	static const int wait[] = {0, 5, 100, 1000, 5000, -1};

	return wait[up_to(6)];
}

const char *
interval(char buffer[32], int ms)
{
	if (ms == 0)
		return "NULL";
	snprintf(buffer, 32, "'%d ms'", ms);
	return buffer;
}

const char *
wait_argument(char buffer[32], int wait)
{
	return wait < 0 ? "NULL" : wait == 0 ? "'0'" : interval(buffer, wait);
}
