#!/bin/bash
# Runs `make demo` and `make test` on fresh Debians, each with the PostgreSQL that it has: 15, 17 and 18. So it also
# shows which packages the commands forget to install. To be run as root, in a clone: what is committed is tested.
#   SUITES     default: bookworm trixie sid
#   COMMANDS   one a line; default: make demo, make test
#   CACHE      where the bare systems are kept; default: /var/cache/lock_election
set -eu
SUITES=${SUITES:-bookworm trixie sid}
COMMANDS=${COMMANDS:-make demo
make test}
CACHE=${CACHE:-/var/cache/lock_election}
ROOT=$(cd "$(dirname "$0")/.." && pwd -P)
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL

say()
{
	echo "== $*" >&2
}

die()
{
	echo "error: $*" >&2
	exit 1
}

# The archive that this machine itself uses.
mirror()
{
	apt-cache policy | sed -n 's,^ *[0-9]* \(https\?://[^ ]*debian\) [^ ]*/main .*,\1,p' | head -n 1
}

# A bare system of this suite, made once.
base()
{
	local suite=$1 dir=$CACHE/$1
	[ ! -e "$dir/.complete" ] || return 0
	say "making a bare $suite in $dir"
	mkdir -p "$CACHE"
	rm -rf --one-file-system "$dir"
	debootstrap --variant=minbase --include=git,make,ca-certificates "$suite" "$dir" "$(mirror)" \
		>"$CACHE/$suite.log" 2>&1 ||
		{ tail -n 5 "$CACHE/$suite.log" >&2; die "debootstrap $suite failed"; }
	cp -a /etc/apt/apt.conf.d/. "$dir/etc/apt/apt.conf.d/"
	touch "$dir/.complete"
}

# In namespaces of its own: mounts and processes end with it.
inside='set -eu
	root=$1
	mount -t tmpfs -o mode=755 none "$root/dev"
	for d in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "$root/dev/${d%:*}" c 1 "${d#*:}"; done
	mknod -m 666 "$root/dev/tty" c 5 0
	ln -s /proc/self/fd "$root/dev/fd"
	mkdir "$root/dev/shm" "$root/dev/pts"
	mount -t tmpfs -o mode=1777 none "$root/dev/shm"
	mount -t devpts -o newinstance,ptmxmode=666 none "$root/dev/pts"
	ln -s pts/ptmx "$root/dev/ptmx"
	mount -t proc none "$root/proc"
	mount --rbind /sys "$root/sys"
	exec chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 CI=true \
		${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
		sh -c "cd /root/project && $2"'

try()
{
	local suite=$1 dir=$2 command start
	while IFS= read -r command; do
		say "$suite: $command"
		start=$SECONDS
		unshare --mount --pid --fork --kill-child sh -c "$inside" "$suite" "$dir" "$command" </dev/null ||
			{ say "$suite: FAILED after $((SECONDS - start)) s: $command"; return 1; }
		say "$suite: ok in $((SECONDS - start)) s: $command"
	done <<<"$COMMANDS"
}

[ "$(id -u)" = 0 ] || die "this needs root: it makes systems of their own with debootstrap and chroot"
if ! command -v debootstrap >/dev/null; then
	say "installing: debootstrap"
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends debootstrap >/dev/null
fi

RUN=$(mktemp -d /var/tmp/lock_election.XXXXXX)
trap 'rm -rf --one-file-system "$RUN"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
failed=
for suite in $SUITES; do
	base "$suite"
	cp -a "$CACHE/$suite" "$RUN/$suite"
	cp /etc/resolv.conf /etc/hosts "$RUN/$suite/etc/"
	git clone -q --no-hardlinks "$ROOT" "$RUN/$suite/root/project"
	try "$suite" "$RUN/$suite" || failed+=" $suite"
	rm -rf --one-file-system "${RUN:?}/$suite"
done
[ -z "$failed" ] || die "failed on:$failed"
say "passed on: $SUITES"
