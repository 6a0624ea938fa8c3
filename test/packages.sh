#!/bin/bash
# make test-packages: in fresh systems the Debian packages are built, checked by lintian and autopkgtest, and then
# installed where there is no compiler: a lock is taken there, kept through an upgrade, and all is removed again.
#   test/packages.sh [SUITE...]      default: bookworm trixie
# The committed HEAD is what is tested.
LE_GOAL=test-packages
cd "$(dirname "$0")/.."
. test/chroot.sh
le_chroots "$@"
[ $# -gt 0 ] || set -- bookworm trixie

build_tools="build-essential debhelper fakeroot libncurses-dev libpq-dev pkgconf postgresql-server-dev-all scdoc"

# le_step LINE...: what is done in the systems is shown only if it fails
le_step()
{
	local dir=$1 log=$LE_CHROOTS/log
	shift
	le_in_chroot "$dir" "$*" >"$log" 2>&1 || { tail -n 60 "$log" >&2; le_die "failed: $*"; }
}

# Builds in DIR, from sources in its /src; the packages go to $LE_CHROOTS/SUITE.packages/NAME.
le_build_packages()
{
	local dir=$1 suite=$2 name=$3
	le_say "$suite: make deb ($name)"
	le_step "$dir" "cd /src && make deb"
	mkdir -p "$LE_CHROOTS/$suite.packages"
	mv "$dir/src/build/deb" "$LE_CHROOTS/$suite.packages/$name"
}

le_build_suite()
{
	local suite=$1 dir=$LE_CHROOTS/$1-build version
	le_chroot "$dir" "$suite"
	le_say "$suite: packages to build with"
	le_step "$dir" "apt-get install -qqy $build_tools lintian autopkgtest"
	mkdir "$dir/src"
	git archive HEAD | tar -C "$dir/src" -xf -
	le_build_packages "$dir" "$suite" this

	# The next version, for the upgrade.
	test/upgrade/make-next "$dir/src"
	version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" "$dir/src/lock_election.control")
	printf 'lock-election (%s.0-1) unstable; urgency=medium\n\n  * Next.\n\n -- %s  %s\n\n' "$version" \
		"lock_election contributors <maintainers@lock-election.invalid>" "$(date -uR)" |
		cat - "$dir/src/debian/changelog" >"$dir/changelog"
	mv "$dir/changelog" "$dir/src/debian/changelog"
	le_build_packages "$dir" "$suite" next

	le_say "$suite: lintian"
	cp -r "$LE_CHROOTS/$suite.packages/this" "$dir/packages"
	le_in_chroot "$dir" "lintian --allow-root --fail-on error --tag-display-limit 0 /packages/*.changes" >&2 ||
		le_die "lintian finds errors"

	le_say "$suite: autopkgtest"
	le_step "$dir" "cd /packages && autopkgtest --quiet lock-election/ ./*.deb -- null"
}

# psql as the server's superuser
le_sql()
{
	le_in_chroot "$dir" "runuser -u postgres -- psql -XAtqc \"$1\""
}

le_expect()
{
	local what=$1 expected=$2 got=$3
	[[ $got = $expected ]] || le_die "$what: expected \"$expected\", got \"$got\""
}

le_install_suite()
{
	local suite=$1 dir=$LE_CHROOTS/$1-install token next major server file
	le_chroot "$dir" "$suite"
	cp -r "$LE_CHROOTS/$suite.packages" "$dir/packages"
	rm -f "$dir"/packages/*/*-dbgsym*

	le_say "$suite: install"
	# The server is not reached over the network: the machine's own may have the port.
	mkdir -p "$dir/etc/postgresql-common/createcluster.d"
	echo "listen_addresses = ''" >"$dir/etc/postgresql-common/createcluster.d/test.conf"
	le_step "$dir" "cd /packages/this &&
		apt-get install -qqy postgresql ./postgresql-*-lock-election_*.deb ./lockctl_*.deb"
	le_expect "compilers" "" "$(le_in_chroot "$dir" 'command -v cc gcc clang || true')"
	major=$(ls "$dir/etc/postgresql")
	server="pg_ctlcluster $major main"
	le_step "$dir" "$server start"
	le_expect "without preload" "*Add this line to postgresql.conf*" \
		"$(le_sql "CREATE EXTENSION lock_election; SELECT acquire_lock('x')" 2>&1 || true)"
	echo "shared_preload_libraries = 'lock_election'" >"$dir/etc/postgresql/$major/main/conf.d/lock_election.conf"
	le_step "$dir" "$server restart"
	token=$(le_sql "SELECT acquire_lock('invoices', '1 h')")
	le_expect "lockctl" "under [0-9]*" \
		"$(le_in_chroot "$dir" "runuser -u postgres -- lockctl lock nightly -- sh -c 'echo under \$LOCK_TOKEN'")"
	le_expect "lockctl doctor" "*ok*" "$(le_in_chroot "$dir" "runuser -u postgres -- lockctl doctor")"

	le_say "$suite: upgrade"
	le_step "$dir" "cd /packages/next && apt-get install -qqy ./postgresql-*-lock-election_*.deb ./lockctl_*.deb"
	le_expect "before the restart" t "$(le_sql "SELECT is_held('invoices', $token)")"
	le_expect "ALTER EXTENSION before the restart" "*Restart the server*" \
		"$(le_sql "ALTER EXTENSION lock_election UPDATE" 2>&1 || true)"
	le_expect "lockctl doctor before the restart" "*restart the server*" \
		"$(le_in_chroot "$dir" "runuser -u postgres -- lockctl doctor" || true)"
	le_step "$dir" "$server restart"
	le_expect "before ALTER EXTENSION" t "$(le_sql "SELECT is_held('invoices', $token)")"
	le_sql "ALTER EXTENSION lock_election UPDATE"
	le_expect "after the upgrade" t "$(le_sql "SELECT is_held('invoices', $token)")"
	le_expect "the new version" "*.*" "$(le_sql "SELECT lock_election.library_version()")"
	next=$(le_sql "SELECT acquire_lock('next')")
	[ "$next" -gt "$token" ] || le_die "the next token is $next, after $token"

	le_say "$suite: remove, purge"
	le_sql "DROP EXTENSION lock_election"
	rm "$dir/etc/postgresql/$major/main/conf.d/lock_election.conf"
	le_step "$dir" "$server restart && apt-get remove -qqy 'postgresql-*-lock-election' lockctl && $server restart"
	le_expect "without the extension" 1 "$(le_sql "SELECT 1")"
	le_step "$dir" "apt-get purge -qqy 'postgresql-*-lock-election' lockctl && $server stop"
	for file in usr/lib/postgresql usr/share/{postgresql,doc,man,bash-completion} usr/bin; do
		[ -z "$(find "$dir/$file" -name '*lock_election*' -o -name '*lock-election*' -o -name 'lockctl*')" ] ||
			le_die "files are left in $file"
	done
}

for suite in "$@"; do
	le_build_suite "$suite"
	le_install_suite "$suite"
	le_say "$suite: all is well"
done
