/*
 * refuse.c
 *		A library for LD_PRELOAD that makes a call fail.  LE_REFUSE is "PROCESS CALL N":
 *		in a process of this name, the N-th call by lockctl itself, and all later ones,
 *		fail with ENOSYS.  Calls by libraries and by other programs succeed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

static bool
is_refused(const char *call, const void *caller)
{
	static int calls;
	const char *refuse = getenv("LE_REFUSE");
	char process[32], name[32], own[32] = "";
	int from;
	Dl_info by;

	if (refuse == NULL || sscanf(refuse, "%31s %31s %d", process, name, &from) != 3 || strcmp(name, call) != 0)
		return false;
	if (pthread_getname_np(pthread_self(), own, sizeof(own)) != 0 || strcmp(own, process) != 0)
		return false;
	if (dladdr(caller, &by) == 0 || strcmp(basename(by.dli_fname), "lockctl") != 0 || ++calls < from)
		return false;
	errno = ENOSYS;
	return true;
}

#define REFUSED(call) is_refused(call, __builtin_return_address(0))
#define NEXT(call) ((__typeof__(&call)) dlsym(RTLD_NEXT, #call))

pid_t
fork(void)
{
	return REFUSED("fork") ? -1 : NEXT(fork)();
}

int
socketpair(int family, int type, int protocol, int fds[2])
{
	return REFUSED("socketpair") ? -1 : NEXT(socketpair)(family, type, protocol, fds);
}

int
socket(int family, int type, int protocol)
{
	return REFUSED("socket") ? -1 : NEXT(socket)(family, type, protocol);
}

int
signalfd(int fd, const sigset_t *mask, int flags)
{
	return REFUSED("signalfd") ? -1 : NEXT(signalfd)(fd, mask, flags);
}

int
timerfd_create(clockid_t clock, int flags)
{
	return REFUSED("timerfd_create") ? -1 : NEXT(timerfd_create)(clock, flags);
}

int
setenv(const char *name, const char *value, int replace)
{
	return REFUSED("setenv") ? -1 : NEXT(setenv)(name, value, replace);
}

int
unsetenv(const char *name)
{
	return REFUSED("unsetenv") ? -1 : NEXT(unsetenv)(name);
}

/* Only of /dev/null, because a build for coverage also opens other files. */
int
open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list args;

	va_start(args, flags);
	if (flags & (O_CREAT | __O_TMPFILE))
		mode = va_arg(args, mode_t);
	va_end(args);
	return strcmp(path, "/dev/null") == 0 && REFUSED("open") ? -1 : NEXT(open)(path, flags, mode);
}

int
prctl(int option, ...)
{
	unsigned long a[4];
	va_list args;

	va_start(args, option);
	for (int i = 0; i < 4; i++)
		a[i] = va_arg(args, unsigned long);
	va_end(args);
	return REFUSED("prctl") ? -1 : NEXT(prctl)(option, a[0], a[1], a[2], a[3]);
}

/* Only system calls for which the C library has no function. */
long
syscall(long number, ...)
{
	const char *call = number == SYS_pidfd_open ? "pidfd_open" : number == SYS_clone3 ? "clone3" : "";
	long a[6];
	va_list args;

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	return REFUSED(call) ? -1 : NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

void *
calloc(size_t n, size_t size)
{
	static void *(*next)(size_t, size_t);
	static char first[4096]; /* memory for dlsym() itself */

	if (next == NULL)
	{
		static bool asking;

		if (asking)
			return n * size <= sizeof(first) ? first : NULL;
		asking = true;
		next = NEXT(calloc);
	}
	return REFUSED("calloc") ? NULL : next(n, size);
}

void *
realloc(void *old, size_t size)
{
	return REFUSED("realloc") ? NULL : NEXT(realloc)(old, size);
}
