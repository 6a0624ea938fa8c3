/*
 * clock.c
 *		Reads a clock in nanoseconds that keeps running while the machine is
 *		suspended, waits by that clock, and wakes up waiting threads through
 *		pipes.
 */
#include "clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "lock_election.h"

/* Without CLOCK_BOOTTIME, use the monotonic clock, which on some systems does not stop during suspend. */
#ifndef CLOCK_BOOTTIME
#define CLOCK_BOOTTIME CLOCK_MONOTONIC
#endif

/*
 * Longest wait in ns before the time is checked again.  The clock by which poll() and conditions wait
 * stops while the machine is suspended.
 */
#define WAIT_MAX LE_SEC_NS

int64_t
le_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * LE_SEC_NS + t.tv_nsec;
}

int64_t
le_now(void)
{
	return le_now_ns() / LE_MS_NS;
}

/* Rounds up, because a wait that is too short would be repeated many times. */
int64_t
le_ms_up(int64_t ns)
{
	return ns <= 0 ? 0 : ns / LE_MS_NS + (ns % LE_MS_NS != 0);
}

int64_t
le_add(int64_t a, int64_t b)
{
	int64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? LE_NEVER : sum;
}

int64_t
le_until(int wait_ms)
{
	return wait_ms < 0 ? LE_NEVER : le_add(le_now_ns(), wait_ms * LE_MS_NS);
}

int64_t
le_until_point(int64_t ms)
{
	return ms <= 0 ? 0 : ms < LE_NEVER / LE_MS_NS ? ms * LE_MS_NS : LE_NEVER;
}

void
le_poll(struct pollfd *fds, int n, int64_t until)
{
	int64_t left = le_clamp(until - le_now_ns(), 0, WAIT_MAX);

	if (poll(fds, (nfds_t) n, (int) le_ms_up(left)) <= 0)
	{
		for (int i = 0; i < n; i++)
			fds[i].revents = 0;
	}
}

int
le_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;
	int rc = pthread_condattr_init(&attr);

	if (rc == 0)
	{
		pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
		rc = pthread_cond_init(cond, &attr);
		pthread_condattr_destroy(&attr);
	}
	return rc;
}

void
le_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until)
{
	int64_t left = le_clamp(until - le_now_ns(), 0, WAIT_MAX);
	struct timespec t;

	if (left == 0)
		return;
	clock_gettime(CLOCK_MONOTONIC, &t);
	left += t.tv_nsec;
	t.tv_sec += left / LE_SEC_NS;
	t.tv_nsec = left % LE_SEC_NS;
	pthread_cond_timedwait(cond, lock, &t);
}

uint64_t
le_random(void)
{
	uint64_t random;

	if (getentropy(&random, sizeof(random)) != 0)
		random = ((uint64_t) le_now_ns() << 20) ^ ((uint64_t) getpid() << 8) ^ (uint64_t) (uintptr_t) &random;
	return random;
}

/* Adds a random part, so that sessions that began at the same time do not all renew at the same time. */
int64_t
le_jitter(int64_t ns)
{
	return ns - ns / 10 + ns / 5 / 1000 * (int64_t) (le_random() % 1000);
}

bool
le_pipe(int fds[2])
{
#ifdef __linux__
	return pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0;
#else
	bool ok = pipe(fds) == 0;

	for (int i = 0; i < 2 && ok; i++)
		ok = fcntl(fds[i], F_SETFD, FD_CLOEXEC) == 0 && fcntl(fds[i], F_SETFL, O_NONBLOCK) == 0;
	return ok;
#endif
}

/* Ignores that the pipe is full, because a full pipe also wakes up the thread. */
void
le_wake(int fds[2])
{
	while (write(fds[1], "", 1) < 0 && errno == EINTR)
		;
}

void
le_drain(int fds[2])
{
	char buffer[64];
	ssize_t n;

	do
		n = read(fds[0], buffer, sizeof(buffer));
	while (n == (ssize_t) sizeof(buffer) || (n < 0 && errno == EINTR));
}
