#!/bin/bash
# make test-packages: builds the Debian packages in fresh systems, checks them with lintian and autopkgtest, and
# installs them in systems without a compiler, where a lock is acquired and kept through an upgrade, and everything is
# removed.
#   test/packages.sh [SUITE...]      default: those of test/postgresql-versions whose PostgreSQL is Debian's
# Tests the committed HEAD.
. "$(dirname "$0")/chroot.sh"
in_namespaces "$@"
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- $(suites | grep -v -- -16)

build_tools="build-essential debhelper fakeroot libncurses-dev libpq-dev pkgconf postgresql-server-dev-all scdoc"

# step LINE...: what is done in the systems is shown only if it fails
step()
{
	local dir=$1 log=$RUN/log
	shift
	inside "$dir" "$*" >"$log" 2>&1 || { tail -n 60 "$log" >&2; die "failed: $*"; }
}

# Builds in DIR, from sources in its /src; the packages go to $RUN/SUITE.packages/NAME.
build_packages()
{
	local dir=$1 suite=$2 name=$3 major
	major=$(major "$suite")
	say "$suite: make deb ($name)"
	step "$dir" "cd /src && PG_SUPPORTED_VERSIONS=$major make deb"
	mkdir -p "$RUN/$suite.packages"
	mv "$dir/src/build/deb" "$RUN/$suite.packages/$name"
}

build_suite()
{
	local suite=$1 dir=$RUN/$1-build version major
	major=$(major "$suite")
	fresh "$dir" "$suite"
	say "$suite: packages to build with"
	step "$dir" "apt-get install -qqy $build_tools postgresql-server-dev-$major lintian autopkgtest"
	mkdir "$dir/src"
	git archive HEAD | tar -C "$dir/src" -xf -
	build_packages "$dir" "$suite" this

	# The next version, for the upgrade.
	test/upgrade/make-next "$dir/src"
	version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" "$dir/src/lock_election.control")
	printf 'lock-election (%s.0-1) unstable; urgency=medium\n\n  * Next.\n\n -- %s  %s\n\n' "$version" \
		"lock_election contributors <maintainers@lock-election.invalid>" "$(date -uR)" |
		cat - "$dir/src/debian/changelog" >"$dir/changelog"
	mv "$dir/changelog" "$dir/src/debian/changelog"
	build_packages "$dir" "$suite" next

	say "$suite: lintian"
	cp -r "$RUN/$suite.packages/this" "$dir/packages"
	inside "$dir" "lintian --allow-root --fail-on error --tag-display-limit 0 /packages/*.changes" >&2 ||
		die "lintian finds errors"

	say "$suite: autopkgtest"
	step "$dir" "cd /packages && autopkgtest --quiet --env=PG_SUPPORTED_VERSIONS=$major lock-election/ ./*.deb -- null"
}

# psql as the server's superuser
sql()
{
	inside "$dir" "runuser -u postgres -- psql -XAtqc \"$1\""
}

expect()
{
	local what=$1 expected=$2 got=$3
	[[ $got = $expected ]] || die "$what: expected \"$expected\", got \"$got\""
}

install_suite()
{
	local suite=$1 dir=$RUN/$1-install token next major server file documents
	major=$(major "$suite")
	fresh "$dir" "$suite"
	cp -r "$RUN/$suite.packages" "$dir/packages"
	rm -f "$dir"/packages/*/*-dbgsym*

	say "$suite: install"
	# The server is not reached over the network: the machine's own may have the port.
	mkdir -p "$dir/etc/postgresql-common/createcluster.d"
	echo "listen_addresses = ''" >"$dir/etc/postgresql-common/createcluster.d/test.conf"
	step "$dir" "cd /packages/this &&
		apt-get install -qqy postgresql-$major ./postgresql-*-lock-election_*.deb ./lockctl_*.deb"
	expect "compilers" "" "$(inside "$dir" 'command -v cc gcc clang || true')"
	expect "the servers" "$major" "$(ls "$dir/etc/postgresql")"
	server="pg_ctlcluster $major main"
	documents=/usr/share/doc/postgresql-$major-lock-election
	step "$dir" "$server start"
	sql "CREATE EXTENSION lock_election" 2>/dev/null
	expect "without preload" "*Add this line to postgresql.conf*" "$(sql "SELECT acquire_lock('x')" 2>&1 || true)"
	echo "shared_preload_libraries = 'lock_election'" >"$dir/etc/postgresql/$major/main/conf.d/lock_election.conf"
	step "$dir" "$server restart"
	token=$(sql "SELECT acquire_lock('invoices', '1 h')")
	expect "lockctl" "under [0-9]*" \
		"$(inside "$dir" "runuser -u postgres -- lockctl lock nightly -- sh -c 'echo under \$LOCK_TOKEN'")"
	for file in examples/pool.c docs/monitoring/{alerts.yaml,queries.yaml,dashboard.json}; do
		[ -f "$dir$documents/$file" ] || die "$file is not in the package"
	done
	expect "links of the documents that lead nowhere" "" "$(test/lib/links "$dir$documents")"
	expect "lockctl doctor" "*ok*" "$(inside "$dir" "runuser -u postgres -- lockctl doctor")"

	say "$suite: upgrade"
	step "$dir" "cd /packages/next && apt-get install -qqy ./postgresql-*-lock-election_*.deb ./lockctl_*.deb"
	expect "before the restart" t "$(sql "SELECT is_held('invoices', $token)")"
	expect "ALTER EXTENSION before the restart" "*Restart the server*" \
		"$(sql "ALTER EXTENSION lock_election UPDATE" 2>&1 || true)"
	expect "lockctl doctor before the restart" "*restart the server*" \
		"$(inside "$dir" "runuser -u postgres -- lockctl doctor" || true)"
	step "$dir" "$server restart"
	expect "before ALTER EXTENSION" t "$(sql "SELECT is_held('invoices', $token)")"
	sql "ALTER EXTENSION lock_election UPDATE"
	expect "after the upgrade" t "$(sql "SELECT is_held('invoices', $token)")"
	expect "the new version" "*.*" "$(sql "SELECT lock_election.library_version()")"
	next=$(sql "SELECT acquire_lock('next')")
	[ "$next" -gt "$token" ] || die "the next token is $next, after $token"

	say "$suite: remove, purge"
	sql "DROP EXTENSION lock_election"
	rm "$dir/etc/postgresql/$major/main/conf.d/lock_election.conf"
	step "$dir" "$server restart && apt-get remove -qqy 'postgresql-*-lock-election' lockctl && $server restart"
	expect "without the extension" 1 "$(sql "SELECT 1")"
	step "$dir" "dpkg --purge postgresql-$major-lock-election lockctl && $server stop"
	for file in usr/lib/postgresql usr/share/{postgresql,doc,man,bash-completion} usr/bin; do
		[ -z "$(find "$dir/$file" -name '*lock_election*' -o -name '*lock-election*' -o -name 'lockctl*')" ] ||
			die "files are left in $file"
	done
}

for suite in "$@"; do
	build_suite "$suite"
	install_suite "$suite"
	say "$suite: all is well"
done
