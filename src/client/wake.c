/*
 * wake.c
 *		Pipes by which one thread ends another one's poll().
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

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
