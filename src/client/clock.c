/*
 * clock.c
 *		Time: nanoseconds of a clock that goes on while the machine is
 *		suspended, and waiting by it; and pipes that end a wait.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/random.h>
#include <sys/timerfd.h>
#define LE_CLOCK CLOCK_BOOTTIME
#else
/* Elsewhere the monotonic clock is the one that may go on in suspend. */
#define LE_CLOCK CLOCK_MONOTONIC
#endif

/* A wait on a condition looks at the clock at least this often: its own clock stands still in suspend. */
#define COND_MAX LE_SEC_NS

int64_t
le_now_ns(void)
{
	struct timespec t;

	clock_gettime(LE_CLOCK, &t);
	return t.tv_sec * LE_SEC_NS + t.tv_nsec;
}

int64_t
le_now(void)
{
	return le_now_ns() / LE_MS_NS;
}

/* Rounded up, so that nobody wakes a moment too early again and again. */
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
	if (ms <= 0)
		return 0;
	return ms < LE_NEVER / LE_MS_NS ? ms * LE_MS_NS : LE_NEVER;
}

int
le_timer_new(void)
{
#ifdef __linux__
	return timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
#else
	return -1;
#endif
}

/* True: the timer will end the wait. */
static bool
timer_set(int timer, int64_t until)
{
#ifdef __linux__
	struct itimerspec at = {.it_value = {until / LE_SEC_NS, until % LE_SEC_NS}};

	return timer >= 0 && timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL) == 0;
#else
	(void) timer;
	(void) until;
	return false;
#endif
}

int
le_poll(struct pollfd *fds, int n, int timer, int64_t until)
{
	struct pollfd all[4];
	int64_t left = until == LE_NEVER ? LE_NEVER : until - le_now_ns();
	int timeout = -1, rc;

	for (int i = 0; i < n; i++)
		all[i] = fds[i];
	all[n] = (struct pollfd){.fd = -1, .events = POLLIN};
	if (left <= 0)
		timeout = 0;
	else if (until != LE_NEVER && timer_set(timer, until))
		all[n].fd = timer;
	else if (until != LE_NEVER)
		timeout = le_ms_up(left) > 1000 ? 1000 : (int) le_ms_up(left);
	rc = poll(all, n + 1, timeout);
	for (int i = 0; i < n; i++)
		fds[i].revents = rc > 0 ? all[i].revents : 0;
	return rc;
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
	struct timespec t;
	int64_t left;

	left = until - le_now_ns();
	if (left <= 0)
		return;
	if (left > COND_MAX)
		left = COND_MAX;
	clock_gettime(CLOCK_MONOTONIC, &t);
	left += t.tv_nsec;
	t.tv_sec += left / LE_SEC_NS;
	t.tv_nsec = left % LE_SEC_NS;
	pthread_cond_timedwait(cond, lock, &t);
}

bool
le_random(void *to, size_t size)
{
#ifdef __linux__
	return getrandom(to, size, GRND_NONBLOCK) == (ssize_t) size;
#else
	return getentropy(to, size) == 0;
#endif
}

/* Sessions that started together do not stay together. */
int64_t
le_jitter(int64_t ns)
{
	uint32_t r;

	if (!le_random(&r, sizeof(r)))
		r = (uint32_t) (le_now_ns() / 1000);
	return ns - ns / 10 + ns / 5 / 1000 * (r % 1000);
}

/* --- pipes --- */

bool
le_pipe(int fds[2])
{
#ifdef __linux__
	return pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0;
#else
	if (pipe(fds) != 0)
		return false;
	for (int i = 0; i < 2; i++)
	{
		fcntl(fds[i], F_SETFD, FD_CLOEXEC);
		fcntl(fds[i], F_SETFL, O_NONBLOCK);
	}
	return true;
#endif
}

/* A pipe that is full wakes just as well. */
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
