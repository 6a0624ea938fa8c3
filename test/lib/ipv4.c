/*
 * ipv4.c
 *		A library for LD_PRELOAD that imitates a kernel without IPv6.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

int
socket(int family, int type, int protocol)
{
	int (*next)(int, int, int) = (int (*)(int, int, int)) dlsym(RTLD_NEXT, "socket");

	if (family != AF_INET6)
		return next(family, type, protocol);
	errno = EAFNOSUPPORT;
	return -1;
}
