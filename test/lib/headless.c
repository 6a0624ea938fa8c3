/*
 * headless.c
 *		A process whose first thread has ended, so that /proc shows it as a
 *		zombie.  Another thread writes stamps, like stamps() of LeCtl.pm.
 *
 *		headless NAME FILE
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LIFE_S 300 /* seconds */

static const char *name;
static int file;

/* Ends after LIFE_S seconds, because a failed test may not stop the process. */
static void *
work(void *arg)
{
	for (time_t end = time(NULL) + LIFE_S; time(NULL) < end;)
	{
		struct timespec t;
		char text[200];
		int length;

		clock_gettime(CLOCK_BOOTTIME, &t);
		length = snprintf(text, sizeof(text), "%s %lld.%06ld %d\n", name, (long long) t.tv_sec, t.tv_nsec / 1000,
						  (int) getpid());
		if (write(file, text, (size_t) length) != length)
			_exit(1);
		nanosleep(&(struct timespec){0, 5000000}, NULL);
	}
	return arg;
}

int
main(int argc, char **argv)
{
	pthread_t thread;

	if (argc != 3)
	{
		fprintf(stderr, "usage: headless NAME FILE\n");
		return 2;
	}
	signal(SIGTERM, SIG_IGN);
	name = argv[1];
	file = open(argv[2], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
	if (file < 0 || pthread_create(&thread, NULL, work, NULL) != 0)
	{
		perror("headless");
		return 1;
	}
	pthread_exit(NULL);
}
