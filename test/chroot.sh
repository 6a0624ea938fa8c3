# Fresh Debian systems in chroots, for tests that run as root: versions.sh, packages.sh. To be sourced by bash.
#
#   need_debootstrap           requires root; installs debootstrap
#   base SUITE                 creates a minimal system in $CACHE/SUITE, unless it exists; "experimental" is sid with
#                              the PostgreSQL of experimental, and with packages of bookworm where it has none
#   suites                     prints the systems of test/postgresql-versions, one per line
#   major SUITE                prints the major version of PostgreSQL that this file states for a system
#
#   in_namespaces "$@"         runs the calling script again in namespaces of its own, so that no process or mount
#                              outlives it; $RUN is a directory for it, which is removed at the end
#   fresh DIR SUITE            makes DIR a mounted copy of that base, with a current list of packages; installed servers
#                              do not start automatically
#   inside DIR COMMAND         runs a shell command line in it
#
#   CACHE      directory of the minimal systems; default: /var/cache/lock_election

set -eu
CACHE=${CACHE:-/var/cache/lock_election}

say()
{
	echo "== $*" >&2
}

die()
{
	echo "error: $*" >&2
	exit 1
}

need_debootstrap()
{
	[ "$(id -u)" = 0 ] || die "this needs root: it makes systems of their own with debootstrap and chroot"
	command -v debootstrap >/dev/null && return
	say "installing: debootstrap"
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends debootstrap >/dev/null
}

# The archive that this machine itself uses.
mirror()
{
	apt-cache policy | sed -n 's,^ *[0-9]* \(https\?://[^ ]*debian\) [^ ]*/main .*,\1,p' | head -n 1
}

LE_VERSIONS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)/postgresql-versions

suites()
{
	sed -n 's/^[0-9]* //p' "$LE_VERSIONS"
}

major()
{
	sed -n "s/^\([0-9]*\) $1\$/\1/p" "$LE_VERSIONS"
}

base()
{
	local suite=$1 dir=$CACHE/$1 mirror
	[ ! -e "$dir/.complete" ] || return 0
	mirror=$(mirror)
	say "making a bare $suite in $dir"
	mkdir -p "$CACHE"
	rm -rf --one-file-system "$dir"
	debootstrap --variant=minbase --include=git,make,ca-certificates "${suite/experimental/sid}" "$dir" "$mirror" \
		>"$CACHE/$suite.log" 2>&1 ||
		{ tail -n 5 "$CACHE/$suite.log" >&2; die "debootstrap $suite failed"; }
	cp -a /etc/apt/apt.conf.d/. "$dir/etc/apt/apt.conf.d/"
	if [ "$suite" = experimental ]; then
		printf "deb $mirror %s main\n" experimental bookworm >"$dir/etc/apt/sources.list.d/experimental.list"
		printf '%s\n' 'Package: postgresql* libpq*' 'Pin: release a=experimental' 'Pin-Priority: 500' '' \
			'Package: *' 'Pin: release n=bookworm' 'Pin-Priority: 100' >"$dir/etc/apt/preferences.d/experimental"
	fi
	touch "$dir/.complete"
}

in_namespaces()
{
	local rc=0
	[ -z "${IN_NAMESPACES:-}" ] || return 0
	need_debootstrap
	RUN=$(mktemp -d /var/tmp/lock_election-fresh.XXXXXX)
	trap 'rm -rf --one-file-system "$RUN"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	IN_NAMESPACES=1 RUN=$RUN unshare --mount --pid --ipc --fork --kill-child --mount-proc \
		"$BASH" "$0" "$@" </dev/null || rc=$?
	exit $rc
}

fresh()
{
	local dir=$1 suite=$2 node
	base "$suite"
	mkdir -p "$CACHE/$suite.archives/partial"
	cp -a "$CACHE/$suite" "$dir"
	cp /etc/resolv.conf /etc/hosts "$dir/etc/"
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
	mount --bind "$CACHE/$suite.archives" "$dir/var/cache/apt/archives"
	printf '#!/bin/sh\nexit 101\n' >"$dir/usr/sbin/policy-rc.d"
	chmod 755 "$dir/usr/sbin/policy-rc.d"
	# the settings for apt are this machine's: a package that brings the same file asks nobody
	echo 'APT::Install-Recommends "false"; APT::Keep-Downloaded-Packages "true"; Acquire::Retries "3";' \
		'Dpkg::Options { "--force-confold"; };' >"$dir/etc/apt/apt.conf.d/90test"
	inside "$dir" 'apt-get update -qq'
}

inside()
{
	local dir=$1
	shift
	chroot "$dir" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
		${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
		bash -euc "$*" </dev/null
}
