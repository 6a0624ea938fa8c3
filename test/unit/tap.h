/*
 * tap.h
 *		Just enough of the Test Anything Protocol.
 */
#ifndef TAP_H
#define TAP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

static int tap_run, tap_failed;

static inline bool
tap_ok(bool good, const char *name, int line)
{
	printf("%sok %d - %s\n", good ? "" : "not ", ++tap_run, name);
	if (!good)
	{
		tap_failed++;
		printf("#   at line %d\n", line);
	}
	return good;
}

static inline bool
tap_is(int64_t got, int64_t expected, const char *name, int line)
{
	if (!tap_ok(got == expected, name, line))
	{
		printf("#   got %lld, expected %lld\n", (long long) got, (long long) expected);
		return false;
	}
	return true;
}

#define ok(good, name)              tap_ok(good, name, __LINE__)
#define is_int(got, expected, name) tap_is((int64_t) (got), (int64_t) (expected), name, __LINE__)

static inline int
done_testing(void)
{
	printf("1..%d\n", tap_run);
	return tap_failed == 0 ? 0 : 1;
}

#endif /* TAP_H */
