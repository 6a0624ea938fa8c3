/*
 * clock.c
 *		A library for LD_PRELOAD that shifts the time of day by the number of
 *		seconds in the file LE_CLOCK, an int64, which is read at each call.  Other
 *		clocks do not change.
 *
 * libfaketime does not work in a process that was forked in a signal handler,
 * as are the managers of PostgreSQL 15.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;
static int (*real_clock_gettime)(clockid_t clock, struct timespec *now);

__attribute__((constructor)) static void
begin(void)
{
	const char *path = getenv("LE_CLOCK");
	int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *file = fd >= 0 ? mmap(NULL, sizeof(*offset), PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;

	real_clock_gettime = (int (*)(clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
	if (file == MAP_FAILED || real_clock_gettime == NULL)
		abort();
	close(fd);
	offset = file;
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	int rc;

	/* a constructor of another library may run before ours */
	if (real_clock_gettime == NULL)
		real_clock_gettime = (int (*)(clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
	rc = real_clock_gettime(clock, now);
	if (rc == 0 && offset != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += *offset;
	return rc;
}

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec time;

	(void) zone;
	if (clock_gettime(CLOCK_REALTIME, &time) != 0)
		return -1;
	now->tv_sec = time.tv_sec;
	now->tv_usec = time.tv_nsec / 1000;
	return 0;
}

time_t
time(time_t *out)
{
	struct timespec now;

	if (clock_gettime(CLOCK_REALTIME, &now) != 0)
		return -1;
	if (out != NULL)
		*out = now.tv_sec;
	return now.tv_sec;
}
