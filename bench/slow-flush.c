/*
 * slow-flush.c
 *		Library that is preloaded into a server, and makes each flush FLUSH_US microseconds longer, as on a disk in a
 *		cloud.
 *
 * FLUSH_COUNT names a file with a counter of the flushes, so that the benchmark can check that the library is used.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static _Atomic uint64_t *count;
static struct timespec delay;

__attribute__((constructor)) static void
begin(void)
{
	const char *us = getenv("FLUSH_US"), *name = getenv("FLUSH_COUNT");
	long n = us != NULL ? atol(us) : 0;
	int fd = name != NULL ? open(name, O_RDWR) : -1;
	void *page = MAP_FAILED;

	delay = (struct timespec){n / 1000000, n % 1000000 * 1000};
	if (fd >= 0)
	{
		page = mmap(NULL, sizeof(*count), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
	}
	if (page != MAP_FAILED)
		count = page;
}

static int
slowly(const char *name, int fd)
{
	int (*real)(int) = (int (*)(int)) dlsym(RTLD_NEXT, name);
	int slack = prctl(PR_GET_TIMERSLACK), result = real(fd);

	(void) prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
	(void) nanosleep(&delay, NULL);
	(void) prctl(PR_SET_TIMERSLACK, slack, 0, 0, 0);
	if (count != NULL)
		(*count)++;
	return result;
}

int
fsync(int fd)
{
	return slowly("fsync", fd);
}

int
fdatasync(int fd)
{
	return slowly("fdatasync", fd);
}
