/*
 * cgroup.c
 *		Gives CMD its own control group (cgroup v2), where that is possible.
 *
 * The kernel kills all processes of a group in one step, even thousands of them,
 * and even if a program forks faster than /proc can be read.  lockctl also
 * signals the process tree, because a program may have moved to another group,
 * and because the kernel skips a process whose first thread has ended.
 *
 * systemd allows other programs to create groups only below a group that it has
 * delegated to them.  systemd delegates a group to a user by making the user the
 * owner of the group, and to root by setting an attribute of the group.
 *
 *		lockctl, before it forks the guardian    lc_cgroup_find()
 *		the guardian                             lc_cgroup_fork()
 *		both, repeatedly                         lc_cgroup_kill()
 *		both, when the group is empty            lc_cgroup_remove()
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "guardian.h"
#include "message.h"

#define REMOVE_AGAIN_MS 5
#define REMOVE_TIMES    100

static char path[4096]; /* path of CMD's group; "" = none */

/* Returns whether lockctl may create groups below this group.  top: it is the root of the namespace. */
static bool
is_ours(const char *group, bool top)
{
	static const char *const attributes[] = {"trusted.delegate", "user.delegate"};
	char value;
	struct stat file;

	if (access(group, W_OK) != 0 || stat(group, &file) != 0)
		return false;
	if (top || file.st_uid != 0)
		return file.st_uid == geteuid();
	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
	{
		if (getxattr(group, attributes[i], &value, 1) == 1 && value == '1')
			return true;
	}
	return false;
}

/* Finds the path of lockctl's own group, relative to the mount point.  Returns false if there is none. */
static bool
own_group(char *name, size_t size)
{
	FILE *in = fopen("/proc/self/cgroup", "re");
	bool found = false;

	while (in != NULL && !found && fgets(name, (int) size, in) != NULL)
		found = strncmp(name, "0::/", 4) == 0;
	if (in != NULL)
		fclose(in);
	if (!found)
		return false;
	name[strcspn(name, "\n")] = '\0';
	memmove(name, name + 3, strlen(name + 3) + 1);
	/* A path that contains "/.." is outside of lockctl's namespace. */
	return strstr(name, "/..") == NULL;
}

void
lc_cgroup_find(void)
{
	static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
	char name[2048], group[3072], file[4096];

	if (!own_group(name, sizeof(name)))
		return;
	for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++)
	{
		snprintf(group, sizeof(group), "%s%s", mounts[i], strcmp(name, "/") == 0 ? "" : name);
		snprintf(file, sizeof(file), "%s/cgroup.procs", group);
		if (access(file, W_OK) != 0 || !is_ours(group, strcmp(name, "/") == 0))
			continue;
		snprintf(path, sizeof(path), "%s/lockctl-%d", group, (int) getpid());
		return;
	}
}

/* Creates CMD's group.  Returns its descriptor, or -1 if it could not be created. */
static int
create(void)
{
	char file[4200];
	int fd;

	if (path[0] == '\0')
		return -1;
	/* An earlier lockctl with this pid may have left its group, if its guardian was killed, too. */
	rmdir(path);
	if (mkdir(path, 0755) != 0)
		return -1;
	snprintf(file, sizeof(file), "%s/cgroup.kill", path);
	fd = access(file, W_OK) == 0 ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	if (fd < 0)
		lc_cgroup_remove();
	return fd;
}

pid_t
lc_cgroup_fork(void)
{
	int fd = create();
	struct clone_args args = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (unsigned) fd};
	pid_t pid = -1;

	/* Create the child inside the group; moving it later would take about 10 ms. */
	if (fd >= 0)
		pid = (pid_t) syscall(SYS_clone3, &args, sizeof(args));
	if (pid < 0)
		pid = fork();
	if (fd >= 0)
		close(fd);
	return pid;
}

void
lc_cgroup_kill(void)
{
	char file[4200];
	int fd;

	if (path[0] == '\0')
		return;
	snprintf(file, sizeof(file), "%s/cgroup.kill", path);
	fd = open(file, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (write(fd, "1", 1) != 1)
		lc_detail("cannot kill by %s: %s", file, strerror(errno));
	close(fd);
}

static int
remove_one(const char *file, const struct stat *status, int type, struct FTW *where)
{
	(void) status;
	(void) where;
	return type == FTW_DP ? rmdir(file) : 0;
}

void
lc_cgroup_remove(void)
{
	if (path[0] == '\0')
		return;
	/*
	 * Retry, because a process stays in its group for a moment after it was reaped.  Groups that CMD has
	 * created below this one are removed first.
	 */
	for (int i = 0; i < REMOVE_TIMES; i++)
	{
		if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno != EBUSY)
			return;
		poll(NULL, 0, REMOVE_AGAIN_MS);
	}
}
