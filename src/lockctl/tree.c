/*
 * tree.c
 *		Sends signals to all descendants of a process.
 *
 * A process group is not enough, because a grandchild may have created its own
 * session.  The guardian is a subreaper: a descendant that loses its parent
 * becomes the guardian's child, and stays in the guardian's tree.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guardian.h"

typedef struct process
{
	pid_t pid, parent;
} process;

/* Descendants of the root that were found by the last read of /proc */
static process *known;
static int nknown;

/*
 * Returns the parent of a process, or 0 if the process does not exist or all its threads have ended.  If only
 * the first thread has ended, /proc shows a zombie, although other threads still run.
 */
static pid_t
parent_of(pid_t pid)
{
	char path[40], line[512], state, *end;
	ssize_t length;
	int parent, threads, fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	length = read(fd, line, sizeof(line) - 1);
	close(fd);
	line[length > 0 ? length : 0] = '\0';
	/* Search for the last ")", because the name in parentheses may contain any characters. */
	end = strrchr(line, ')');
	if (end == NULL ||
		sscanf(end + 1, " %c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %d", &state,
			   &parent, &threads) != 3)
		return 0;
	return (state == 'Z' || state == 'X') && threads <= 1 ? 0 : parent;
}

/*
 * Returns a list of all processes that have a parent.  The list is cut short if
 * memory runs out.  The caller must free it.
 */
static process *
read_processes(int *count)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	process *list = NULL;
	int n = 0, size = 0;

	while (dir != NULL && (entry = readdir(dir)) != NULL)
	{
		pid_t pid = isdigit((unsigned char) entry->d_name[0]) ? atoi(entry->d_name) : 0;
		pid_t parent = pid > 0 ? parent_of(pid) : 0;

		if (parent == 0)
			continue;
		if (n == size)
		{
			process *more = realloc(list, sizeof(*list) * (size_t) (size = size * 2 + 256));

			if (more == NULL)
				break;
			list = more;
		}
		list[n++] = (process){.pid = pid, .parent = parent};
	}
	if (dir != NULL)
		closedir(dir);
	*count = n;
	return list;
}

/*
 * Returns whether a pid still belongs to the process that was found: a new process would have a different
 * parent.  If the parent has ended, the root becomes the parent.
 */
static bool
is_same(const process *p, pid_t root)
{
	pid_t parent = parent_of(p->pid);

	return parent != 0 && (parent == p->parent || parent == root);
}

/*
 * Sends a signal, and continues the process, because a stopped process only reacts to SIGKILL.  Returns
 * whether the signal was sent.
 */
static bool
send_signal(const process *p, pid_t root, int signo)
{
#if defined(SYS_pidfd_open) && defined(SYS_pidfd_send_signal)
	int fd = (int) syscall(SYS_pidfd_open, p->pid, 0);
	bool sent = false;

	if (fd >= 0)
	{
		if (is_same(p, root))
			sent = syscall(SYS_pidfd_send_signal, fd, signo, NULL, 0) == 0;
		if (sent && signo != SIGKILL)
			syscall(SYS_pidfd_send_signal, fd, SIGCONT, NULL, 0);
		close(fd);
		return sent;
	}
	if (errno == ESRCH)
		return false;
#endif
	if (!is_same(p, root) || kill(p->pid, signo) != 0)
		return false;
	if (signo != SIGKILL)
		kill(p->pid, SIGCONT);
	return true;
}

bool
lc_tree_is_visible(pid_t child)
{
	return parent_of(child) == getpid();
}

int
lc_tree_signal(pid_t root, int signo)
{
	int n, found = 0, sent = 0;
	process *list;

	/*
	 * First kill the processes that received SIGTERM, because on a busy machine, reading /proc may take more
	 * time than is left.
	 */
	for (int i = 0; i < nknown && signo == SIGKILL; i++)
		send_signal(&known[i], root, signo);
	list = read_processes(&n);
	/* Move the descendants of the root to the front of the list.  at = -1 stands for the root. */
	for (int at = -1; at < found; at++)
	{
		pid_t parent = at < 0 ? root : list[at].pid;

		for (int i = found; i < n; i++)
		{
			process p = list[i];

			if (p.parent != parent)
				continue;
			list[i] = list[found];
			list[found++] = p;
		}
	}
	for (int i = 0; i < found; i++)
	{
		if (send_signal(&list[i], root, signo))
			sent++;
	}
	free(known);
	known = list;
	nknown = found;
	return sent;
}
