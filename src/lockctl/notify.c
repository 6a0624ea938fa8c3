/*
 * notify.c
 *		Notifies systemd, like sd_notify(3): sends one datagram.
 */
#include "notify.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void
lc_notify(const char *format, ...)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	size_t length;
	char text[2048];
	va_list args;
	int fd;

	if (path == NULL || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof(to.sun_path))
		return;
	length = strlen(path);
	memcpy(to.sun_path, path, length);
	/* "@" means an abstract socket, whose name begins with a zero byte */
	if (path[0] == '@')
		to.sun_path[0] = '\0';
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	sendto(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *) &to,
		   (socklen_t) (offsetof(struct sockaddr_un, sun_path) + length));
	close(fd);
}
