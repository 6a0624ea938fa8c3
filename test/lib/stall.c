/*
 * stall.c
 *		A library for LD_PRELOAD that imitates a stalled disk: while the file that LE_STALL names exists, no
 *		flush of a file ends.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int
stalled(const char *name, int fd)
{
	int (*real)(int) = (int (*)(int)) dlsym(RTLD_NEXT, name);
	const char *file = getenv("LE_STALL");

	while (file != NULL && access(file, F_OK) == 0)
		(void) nanosleep(&(struct timespec){0, 1000000}, NULL);
	return real(fd);
}

int
fsync(int fd)
{
	return stalled("fsync", fd);
}

int
fdatasync(int fd)
{
	return stalled("fdatasync", fd);
}
