# Fresh Debian systems in chroots, for tests that run as root. To be sourced by bash.
#
#   le_chroots "$@"            once, first: runs the script again in namespaces of its own, so that neither a process
#                              nor a mount survives it
#   le_chroot DIR SUITE        makes DIR such a system: minimal, with the suite's packages as they are today
#   le_in_chroot DIR COMMAND   runs a line of shell in it
#
# debootstrap runs once for a suite; what it made, and packages that were downloaded, stay in $LE_CHROOT_CACHE.

set -eu
LE_CHROOT_CACHE=${LE_CHROOT_CACHE:-/var/tmp/lock_election-chroots}
LE_MIRROR=${LE_MIRROR:-http://deb.debian.org/debian}

le_say()
{
	echo "== $*" >&2
}

le_die()
{
	echo "error: $*" >&2
	exit 1
}

le_chroots()
{
	local rc=0
	if [ -z "${LE_CHROOTS:-}" ]; then
		[ "$(id -u)" = 0 ] || le_die "chroots need root: sudo make $LE_GOAL"
		command -v debootstrap >/dev/null || le_die "install debootstrap first"
		LE_CHROOTS=$(mktemp -d "${TMPDIR:-/var/tmp}/lock_election-run.XXXXXX")
		trap 'rm -rf --one-file-system "$LE_CHROOTS"' EXIT
		trap 'exit 130' INT TERM HUP
		export LE_CHROOTS
		unshare --mount --pid --ipc --fork --kill-child --mount-proc "$BASH" "$0" "$@" </dev/null || rc=$?
		exit $rc
	fi
}

le_chroot_base()
{
	local suite=$1 base=$LE_CHROOT_CACHE/$1
	[ ! -e "$base.done" ] || return 0
	le_say "debootstrap $suite"
	rm -rf --one-file-system "$base"
	mkdir -p "$LE_CHROOT_CACHE"
	debootstrap --variant=minbase --include=ca-certificates "$suite" "$base" "$LE_MIRROR" >"$base.log" 2>&1 ||
		{ tail -n 20 "$base.log" >&2; le_die "debootstrap failed"; }
	touch "$base.done"
}

le_chroot()
{
	local dir=$1 suite=$2 node
	le_chroot_base "$suite"
	mkdir -p "$dir" "$LE_CHROOT_CACHE/$suite.archives/partial"
	cp -a "$LE_CHROOT_CACHE/$suite/." "$dir/"
	cp /etc/resolv.conf "$dir/etc/"
	mount -t proc proc "$dir/proc"
	mount -t tmpfs tmpfs "$dir/dev"
	for node in null:3 zero:5 full:7 random:8 urandom:9; do
		mknod -m 666 "$dir/dev/${node%:*}" c 1 "${node#*:}"
	done
	mknod -m 666 "$dir/dev/tty" c 5 0
	ln -s /proc/self/fd "$dir/dev/fd"
	mkdir "$dir/dev/shm" "$dir/dev/pts"
	mount -t tmpfs -o mode=1777 tmpfs "$dir/dev/shm"
	mount -t devpts -o newinstance,ptmxmode=666 devpts "$dir/dev/pts"
	ln -s pts/ptmx "$dir/dev/ptmx"
	mount --bind "$LE_CHROOT_CACHE/$suite.archives" "$dir/var/cache/apt/archives"
	printf '#!/bin/sh\nexit 101\n' >"$dir/usr/sbin/policy-rc.d"
	chmod 755 "$dir/usr/sbin/policy-rc.d"
	echo 'APT::Install-Recommends "false"; APT::Keep-Downloaded-Packages "true"; Acquire::Retries "3";' \
		>"$dir/etc/apt/apt.conf.d/90test"
	le_in_chroot "$dir" 'apt-get update -qq'
}

le_in_chroot()
{
	local dir=$1
	shift
	chroot "$dir" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
		${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
		bash -euc "$*" </dev/null
}
