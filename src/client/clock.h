/*
 * clock.h
 *		Reads a clock, waits, and wakes up waiting threads through pipes.
 */
#ifndef LE_CLIENT_CLOCK_H
#define LE_CLIENT_CLOCK_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define LE_US_NS  INT64_C(1000)
#define LE_MS_NS  INT64_C(1000000)
#define LE_SEC_NS (1000 * LE_MS_NS)

#define LE_NEVER INT64_MAX

/* Sets *next to the earlier of *next and at. */
static inline void
le_sooner(int64_t *next, int64_t at)
{
	if (at < *next)
		*next = at;
}

static inline int64_t
le_clamp(int64_t value, int64_t low, int64_t high)
{
	return value < low ? low : value > high ? high : value;
}

extern int64_t le_now_ns(void);              /* returns the time of CLOCK_BOOTTIME in ns */
extern int64_t le_ms_up(int64_t ns);         /* returns ns in ms, rounded up; 0 if negative */
extern int64_t le_add(int64_t a, int64_t b); /* returns a + b, or LE_NEVER after an overflow */
/* Returns the time, in ns, that is wait_ms after now; LE_NEVER if wait_ms is negative. */
extern int64_t le_until(int wait_ms);
/* Converts a time of le_now(), in ms, to a time of le_now_ns(), in ns. */
extern int64_t le_until_point(int64_t ms);
/*
 * Calls poll(), which waits at most until the given time (ns of le_now_ns()).
 * It may return earlier, so the caller must check the time.
 */
extern void le_poll(struct pollfd *fds, int n, int64_t until);
extern int le_cond_init(pthread_cond_t *cond);
/*
 * Waits for a condition, at most until the given time (ns of le_now_ns()).  It
 * may return earlier, so the caller must check the time.
 */
extern void le_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until);
extern int64_t le_jitter(int64_t ns); /* returns a random value between 0.9 * ns and 1.1 * ns */
extern uint64_t le_random(void);
/* Create, write to, and empty a pipe that wakes up a thread in poll(). */
extern bool le_pipe(int fds[2]);
extern void le_wake(int fds[2]);
extern void le_drain(int fds[2]);

#endif /* LE_CLIENT_CLOCK_H */
