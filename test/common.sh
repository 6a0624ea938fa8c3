# Shared by run.sh, demo.sh, bench/run.sh and bench/quick.sh: packages, build, a private copy of PostgreSQL with the
# extension, an account for the server, and a clean-up that always runs at the end of the script. To be sourced by bash.
#
#   le_prepare [make goals]   afterwards $LE_TMP contains everything, and le_run works; if LE_MAKE has arguments for
#                             make, the copy is built with them, and the checkout's own build does not change
#   le_run COMMAND...         runs COMMAND as the unprivileged account in $LE_TMP/src, a copy of the project

set -eu
# A make that calls us must not hand its options on to the makes that we call.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL
LE_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
LE_TMP=
LE_ETC=/etc
LE_CHILD=
LE_CGROUP=
LE_APT_FILES=()
LE_MAKE=()
LE_FAULTS_COPY=
LE_FAULTS_MAKE=()
LE_JOBS=$(nproc 2>/dev/null || echo 2)

le_say()
{
	echo "== $*" >&2
}

le_die()
{
	echo "error: $*" >&2
	exit 1
}

# --- clean-up -------------------------------------------------------------------------------------------------------

# Process ids that belong to this run: the program lies in $LE_TMP (the server overwrites its environment), or the
# environment carries our mark.
le_ours()
{
	{
		find /proc -maxdepth 2 -name exe -lname "$LE_TMP/*" -printf '%h\n'
		grep -lzxF "LE_RUN=$LE_TMP" /proc/[0-9]*/environ
	} 2>/dev/null | sed 's,^/proc/,,; s,/environ$,,' | sort -u
}

# Shared memory outlives a server that is killed. What the living have mapped is in their maps (for the old kind, the
# inode is the id); the dead leave an id in the seventh line of postmaster.pid.
le_shared_memory()
{
	{
		cat $(le_ours | sed 's,.*,/proc/&/maps,') /dev/null |
			sed -n 's,.* \([0-9]*\) */SYSV.*,\1,p; s,.* \(/dev/shm/PostgreSQL\.[0-9]*\).*,\1,p'
		find "$LE_TMP" -name postmaster.pid -exec sed -s -n '7s/.* //p' {} +
	} 2>/dev/null | sort -u
}

# With all that is in it: also what has overwritten our mark in its environment.
le_cgroup_remove()
{
	local i
	[ -n "$LE_CGROUP" ] || return 0
	[ ! -e "$LE_CGROUP/cgroup.kill" ] || echo 1 >"$LE_CGROUP/cgroup.kill"
	# The kernel passes over a process whose first thread has ended.
	kill -KILL $(cat "$LE_CGROUP/cgroup.procs" "$LE_CGROUP"/*/cgroup.procs) 2>/dev/null || true
	for ((i = 0; i < 20; i++)); do
		! find "$LE_CGROUP" -depth -type d -exec rmdir {} + 2>/dev/null || break
		sleep 0.1
	done
}

# Immediate shutdown: the one that also removes a server's shared memory.
le_stop_servers()
{
	local pid
	for pid in $(find "$LE_TMP" -name postmaster.pid -exec sed -s -n '1s/^\([0-9]*\)$/\1/p' {} + 2>/dev/null); do
		case "$(readlink "/proc/$pid/exe")" in
			"$LE_TMP"/*) kill -QUIT "$pid" 2>/dev/null || true ;;
		esac
	done
}

# What root has built in somebody else's sources since the start is theirs.
le_give_back()
{
	local owner
	[ "$(id -u)" = 0 ] && [ -e "$LE_TMP/began" ] || return 0
	owner=$(stat -c %u:%g "$LE_ROOT")
	[ "${owner%:*}" != 0 ] || return 0
	find "$LE_ROOT" -xdev -user 0 -newer "$LE_TMP/began" -exec chown -h "$owner" {} +
}

le_cleanup()
{
	local i pids memory
	trap '' INT TERM HUP
	if [ -n "$LE_TMP" ]; then
		memory=$(le_shared_memory)
		[ -z "$LE_CHILD" ] || kill -TERM -- "-$LE_CHILD" 2>/dev/null || true
		le_stop_servers
		for ((i = 0; ; i++)); do
			pids=$(le_ours)
			[ -n "$pids" ] || break
			memory+=" $(le_shared_memory)"
			if [ $i = 10 ]; then kill -TERM $pids 2>/dev/null || true; fi
			if [ $i -ge 40 ]; then kill -KILL $pids 2>/dev/null || true; fi
			sleep 0.1
		done
		for i in $memory; do
			case $i in
				/*) rm -f "$i" ;;
				*) ipcrm -m "$i" 2>/dev/null || true ;;
			esac
		done
		le_cgroup_remove
		le_give_back || true
		rm -rf "$LE_TMP"
	fi
	le_apt_files_remove
}

trap le_cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# Runs a command in a session of its own, in the background, so that a signal to this script is served at once.
le_wait()
{
	local rc=0
	setsid "$@" </dev/null &
	LE_CHILD=$!
	wait "$LE_CHILD" || rc=$?
	LE_CHILD=
	return $rc
}

# --- packages -------------------------------------------------------------------------------------------------------

le_as_root()
{
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		le_die "this needs root or sudo: $*"
	fi
}

# What these tests need, by their lines "# Needs: faults, tmux", each once.
le_needs()
{
	sed -n 's/^# Needs: //p' "$@" | tr -d , | tr ' ' '\n' | sort -u
}

le_installed()
{
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

le_offered()
{
	[ -n "$(apt-cache madison "$1" 2>/dev/null)" ]
}

# The major version of the distribution's metapackage, as "15" from "15+248".
le_distribution_major()
{
	apt-cache policy postgresql 2>/dev/null | sed -n 's/^ *Candidate: \([0-9][0-9]*\).*/\1/p'
}

# The distribution's, unless other ones are installed and that is not: then the newest of them.
le_default_major()
{
	local own installed dir=/usr/lib/postgresql
	own=$(le_distribution_major)
	installed=$(printf '%s\n' $dir/*/bin/postgres | sed -n "s,^$dir/\([0-9]*\)/.*,\1,p" | sort -n)
	case " ${installed//$'\n'/ } " in
		'  ' | *" $own "*) echo "$own" ;;
		*) tail -n 1 <<<"$installed" ;;
	esac
}

le_apt_update()
{
	[ -z "${LE_APT_UPDATED:-}" ] || return 0
	le_say "apt-get update"
	le_as_root apt-get update -qq
	LE_APT_UPDATED=1
}

# While packages are installed: no default cluster is created, and no existing cluster is started that was stopped.
le_apt_files_create()
{
	local file=/etc/postgresql-common/createcluster.d/zz-lock-election-test.conf
	LE_APT_FILES=("$file")
	le_as_root mkdir -p "${file%/*}"
	echo "create_main_cluster = false" | le_as_root tee "$file" >/dev/null
	file=/usr/sbin/policy-rc.d
	if [ ! -e $file ]; then
		LE_APT_FILES+=("$file")
		printf '#!/bin/sh\ncase $1 in %s) exit 101 ;; esac\nexit 0\n' \
			'postgresql*|pgbouncer*|patroni*|haproxy*|etcd*|redis*|zookeeper*|prometheus*' |
			le_as_root tee $file >/dev/null
		le_as_root chmod 755 $file
	fi
}

le_apt_files_remove()
{
	[ ${#LE_APT_FILES[@]} = 0 ] && return 0
	le_as_root rm -f "${LE_APT_FILES[@]}"
	dpkg -S "${LE_APT_FILES[0]%/*}" >/dev/null 2>&1 ||
		le_as_root rmdir --ignore-fail-on-non-empty "${LE_APT_FILES[0]%/*}"
	LE_APT_FILES=()
}

le_packages()
{
	local p postgresql='' missing=()
	command -v apt-get >/dev/null || le_die "apt-get not found: this script is for Debian and its derivatives"
	PG_MAJOR=${PG_MAJOR:-$(le_default_major)}
	if [ -z "$PG_MAJOR" ]; then
		le_apt_update
		PG_MAJOR=$(le_default_major)
		[ -n "$PG_MAJOR" ] || le_die "the distribution offers no package postgresql; set PG_MAJOR"
	fi
	# One that was installed without a package, where a package would be, is used as it is.
	p=/usr/lib/postgresql/$PG_MAJOR/bin/pg_config
	if [ ! -x "$p" ] || dpkg -S "$p" >/dev/null 2>&1; then
		le_offered "postgresql-server-dev-$PG_MAJOR" || le_apt_update
		postgresql="postgresql-$PG_MAJOR postgresql-server-dev-$PG_MAJOR"
		# A server that is not released yet has none: le_borrow_pgtap.
		! le_offered "postgresql-$PG_MAJOR-pgtap" || postgresql+=" postgresql-$PG_MAJOR-pgtap"
	fi
	for p in $postgresql libpq-dev libncurses-dev gcc libc6-dev make perl libipc-run-perl iproute2 util-linux; do
		le_installed "$p" || missing+=("$p")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	le_apt_update
	le_apt_install "${missing[@]}" || { tail -n 30 "$LE_TMP/apt.log" >&2; le_die "apt-get install failed"; }
}

# What starts at boot: systemd's links, and those of the older scripts.
le_boot_links()
{
	find "$LE_ETC/systemd/system" "$LE_ETC"/rc[0-6S].d -type l 2>/dev/null | sort
}

# le_boot_undo LINKS: nothing that was installed since then starts at boot, except PostgreSQL's own service, which
# starts only clusters that somebody has made.
le_boot_undo()
{
	local new
	mapfile -t new < <(comm -13 <(echo "$1") <(le_boot_links) |
		grep -Ev '/(postgresql(@.*)?\.service|[KS][0-9]*postgresql)$')
	[ ${#new[@]} -gt 0 ] || return 0
	le_say "not started at boot: $(printf '%s\n' "${new[@]##*/}" | sort -u | paste -sd ' ')"
	le_as_root rm -f "${new[@]}"
}

le_apt_install()
{
	local rc=0 links
	le_say "installing: $*"
	links=$(le_boot_links)
	le_apt_files_create
	le_as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get -o DPkg::Lock::Timeout=120 install -qq -y --no-install-recommends "$@" \
		>"$LE_TMP/apt.log" 2>&1 </dev/null || rc=$?
	le_apt_files_remove
	le_boot_undo "$links"
	return $rc
}

# What some tests need, and are skipped without: the rest is worth running all the same.
le_extra_packages()
{
	local p
	for p in "$@"; do
		le_installed "$p" && continue
		[ "$(id -u)" = 0 ] || command -v sudo >/dev/null || { le_say "no $p here"; continue; }
		le_apt_update
		if apt-get install -s -qq --no-install-recommends "$p" >/dev/null 2>&1; then
			le_apt_install "$p" || le_say "$p cannot be installed"
		else
			le_say "$p is not available here"
		fi
	done
	# what has come to PostgreSQL belongs to the private copies as well
	for p in "$LE_TMP" "$LE_TMP/faults"; do
		[ ! -d "$p/usr/lib/postgresql" ] || le_private_links "$p"
	done
}

# --- a private PostgreSQL -------------------------------------------------------------------------------------------

# Links in a private tree for extensions that were installed after it was made.
le_private_links()
{
	local root=$1 sys=/usr/lib/postgresql/$PG_MAJOR dir file
	for dir in "$("$sys/bin/pg_config" --pkglibdir)" "$("$sys/bin/pg_config" --sharedir)/extension"; do
		for file in "$dir"/*; do
			case ${file##*/} in
				lock_election*) ;;
				*) [ -e "$root$file" ] || ln -s "$file" "$root$file" ;;
			esac
		done
	done
}

# PostgreSQL finds its directories relative to its programs. So a tree of links, with real copies of the programs (they
# resolve links to themselves) and real directories where the extension goes, is an installation of its own.
le_private_tree()
{
	local root=$1 sys=/usr/lib/postgresql/$PG_MAJOR share pkglib lib inc bin
	share=$("$sys/bin/pg_config" --sharedir)
	pkglib=$("$sys/bin/pg_config" --pkglibdir)
	lib=$(dirname "$("$sys/bin/pg_config" --libdir)/x")
	inc=$("$sys/bin/pg_config" --includedir)
	bin=$root$sys/bin
	mkdir -p "$bin" "$root$pkglib" "$root$share/extension" "$root$lib" "$root$(dirname "$inc")"
	cp -a "$sys/bin/." "$bin"
	ln -s "$pkglib"/* "$root$pkglib/"
	# the one can be in the other
	rmdir "$root$lib" 2>/dev/null && ln -s "$lib" "$root$lib" ||
		find "$lib" -mindepth 1 -maxdepth 1 ! -path "$pkglib" -exec ln -s -t "$root$lib" {} +
	ln -s "$inc" "$root$inc"
	find "$share" -mindepth 1 -maxdepth 1 ! -name extension -exec ln -s -t "$root$share" {} +
	ln -s "$share"/extension/* "$root$share/extension/"
	rm -rf "$root$pkglib"/lock_election* "$root$share"/extension/lock_election*
	case "$("$bin/pg_config" --pkglibdir) $("$bin/pg_config" --sharedir)" in
		"$root$pkglib $root$share") ;;
		*) le_die "PostgreSQL $PG_MAJOR does not work from another place: $("$bin/pg_config" --pkglibdir)" ;;
	esac
}

# le_build DIRECTORY [arguments of make for all that is built beside the extension as well]
le_build()
{
	local dir=$1 log=$LE_TMP/build.log
	shift
	le_say "building for PostgreSQL $PG_MAJOR"
	# Built with the system's pg_config, whose paths stay the same from run to run, and installed with the copy's.
	le_wait make -C "$dir" -s -j"$LE_JOBS" PG_CONFIG="/usr/lib/postgresql/$PG_MAJOR/bin/pg_config" "${LE_MAKE[@]}" \
		all >"$log" 2>&1 &&
		{ [ $# = 0 ] || le_wait make -C "$dir" -s -j"$LE_JOBS" "$@" >>"$log" 2>&1; } &&
		le_wait make -C "$dir" -s PG_CONFIG="$LE_BIN/pg_config" "${LE_MAKE[@]}" install >>"$log" 2>&1 ||
		{ tail -n 40 "$log" >&2; le_die "the build failed"; }
}

# le_copy [options of tar]: with the objects of the programs, so that a test that installs them does not link them anew
# while another one runs them.
le_copy()
{
	tar -C "$LE_ROOT" --exclude=./.git --exclude=./build/cache --exclude=./clients/rust/target \
		--exclude='./src/*.o' "$@" -cf - . |
		tar -C "$LE_TMP/src" -xf -
}

# Servers start under valgrind with these options, and so do their children, which are forked; initdb and everything
# else starts programs that it would only slow down.  pg_ctl restart would start the server without it.
le_valgrind()
{
	le_extra_packages valgrind
	mv "$LE_BIN/postgres" "$LE_BIN/postgres.real"
	cat >"$LE_BIN/postgres" <<-EOF
		#!/bin/sh
		[ "\$1" = -D ] && exec valgrind $* $LE_BIN/postgres.real "\$@"
		exec $LE_BIN/postgres.real "\$@"
	EOF
	chmod 755 "$LE_BIN/postgres"
}

# A second installation beside the first, with fault points in the extension: LE_FAULTS_TREE has its bin and lib. Built
# from a copy, so that the objects of both stay valid from run to run.
le_faults_tree()
{
	local copy=${LE_FAULTS_COPY:-$LE_ROOT/build/faults} log=$LE_TMP/build.log
	le_say "building with fault points"
	LE_FAULTS_TREE=$LE_TMP/faults/usr/lib/postgresql/$PG_MAJOR
	le_private_tree "$LE_TMP/faults"
	mkdir -p "$copy"
	find "$copy" -path "$copy/build" -prune -o -name '*.[ch]' -exec rm -f {} +
	tar -C "$LE_ROOT" --exclude='*.o' --exclude='*.d' -cf - Makefile META.json lock_election.control sql src |
		tar -C "$copy" -xf -
	le_wait make -C "$copy" -s -j"$LE_JOBS" LE_FAULTS=1 PG_CONFIG="/usr/lib/postgresql/$PG_MAJOR/bin/pg_config" \
		"${LE_FAULTS_MAKE[@]}" all >>"$log" 2>&1 &&
		le_wait make -C "$copy" -s LE_FAULTS=1 PG_CONFIG="$LE_FAULTS_TREE/bin/pg_config" "${LE_FAULTS_MAKE[@]}" \
			install >>"$log" 2>&1 ||
		{ tail -n 40 "$log" >&2; le_die "the build with fault points failed"; }
	LE_ENV+=(LE_FAULTS_TREE="$LE_FAULTS_TREE")
}

# pgTAP consists of SQL alone, so the package for the newest PostgreSQL works with every version. LE_PGTAP names the
# directory that another run has borrowed it into, for a run that has no network.
le_borrow_pgtap()
{
	local share=$1 dir=$LE_TMP/pgtap package
	[ ! -e "$share/extension/pgtap.control" ] || return 0
	if [ -z "${LE_PGTAP:-}" ]; then
		package=$(apt-cache search --names-only '^postgresql-[0-9]+-pgtap$' | awk '{ print $1 }' | sort -V | tail -n 1)
		mkdir "$dir"
		if ! (cd "$dir" && apt-get download -qq "$package" && dpkg-deb -x ./*.deb .) >"$LE_TMP/pgtap.log" 2>&1; then
			le_say "pgTAP is not available"
			return 0
		fi
		chmod -R a+rX "$dir"
		LE_PGTAP=$dir/$(cd "$dir" && echo usr/share/postgresql/*/extension)
	fi
	ln -s "$LE_PGTAP"/pgtap* "$share/extension/"
}

# Another minor release, where Debian offers one: LE_OTHER_MINOR has its bin and lib.
le_other_minor()
{
	local dir=$LE_TMP/other here version
	le_installed "postgresql-$PG_MAJOR" || return 0
	here=$(dpkg-query -W -f '${Version}' "postgresql-$PG_MAJOR")
	version=$(apt-cache madison "postgresql-$PG_MAJOR" | awk -v here="$here" '$3 != here { print $3; exit }')
	[ -n "$version" ] || return 0
	mkdir "$dir"
	if ! (cd "$dir" && apt-get download -qq "postgresql-$PG_MAJOR=$version" && dpkg-deb -x ./*.deb .) \
		>"$LE_TMP/other.log" 2>&1; then
		le_say "PostgreSQL $version cannot be had"
		return 0
	fi
	# the programs of the package for clients do not matter
	cp -n "/usr/lib/postgresql/$PG_MAJOR/bin"/* "$dir/usr/lib/postgresql/$PG_MAJOR/bin"
	chmod -R a+rwX "$dir"
	LE_ENV+=(LE_OTHER_MINOR="$dir/usr/lib/postgresql/$PG_MAJOR")
}

# Older major versions that are installed here, each in a copy of its packages with the extension in it: LE_OLDER_MAJORS
# has their directories.
le_older_majors()
{
	local major dir copy log=$LE_TMP/build.log found=()
	for major in $(sed -n 's/^\([0-9]*\) .*/\1/p' "$LE_ROOT/test/postgresql-versions"); do
		[ "$major" -lt "$PG_MAJOR" ] && le_installed "postgresql-$major" || continue
		dir=$LE_TMP/older/$major
		copy=$LE_ROOT/build/older/$major
		mkdir -p "$dir" "$copy"
		if ! (cd "$dir" && apt-get download -qq postgresql-{,client-,server-dev-}"$major" &&
			for deb in *.deb; do dpkg-deb -x "$deb" .; done) >"$LE_TMP/older.log" 2>&1; then
			le_say "PostgreSQL $major cannot be had"
			continue
		fi
		dir+=/usr/lib/postgresql/$major
		le_say "building for PostgreSQL $major"
		find "$copy" -path "$copy/build" -prune -o -name '*.[ch]' -exec rm -f {} +
		tar -C "$LE_ROOT" --exclude='*.o' --exclude='*.d' -cf - Makefile META.json lock_election.control sql src |
			tar -C "$copy" -xf -
		le_wait make -C "$copy" -s -j"$LE_JOBS" PG_CONFIG="$dir/bin/pg_config" all >>"$log" 2>&1 &&
			le_wait make -C "$copy" -s PG_CONFIG="$dir/bin/pg_config" install >>"$log" 2>&1 ||
			{ tail -n 40 "$log" >&2; le_die "the build for PostgreSQL $major failed"; }
		chmod -R a+rX "$LE_TMP/older"
		found+=("$dir")
	done
	LE_ENV+=(LE_OLDER_MAJORS="${found[*]}")
}

le_prepare()
{
	LE_TMP=$(mktemp -d "${TMPDIR:-/tmp}/lock_election.XXXXXX")
	LE_TMP=$(cd "$LE_TMP" && pwd -P)
	chmod 755 "$LE_TMP"
	touch "$LE_TMP/began"
	le_packages
	le_private_tree "$LE_TMP"
	LE_BIN=$LE_TMP/usr/lib/postgresql/$PG_MAJOR/bin
	le_borrow_pgtap "$("$LE_BIN/pg_config" --sharedir)"
	# The account may not be able to read the checkout.
	mkdir "$LE_TMP/src" "$LE_TMP/work" "$LE_TMP/home"
	if [ ${#LE_MAKE[@]} = 0 ]; then
		# nobody else builds while this is copied
		mkdir -p "$LE_ROOT/build"
		exec 9>"$LE_ROOT/build/lock"
		flock 9
		le_build "$LE_ROOT" "$@"
		le_copy --exclude=./build/faults
		exec 9>&-
	else
		le_copy --exclude=./build --exclude='*.so'
		le_build "$LE_TMP/src" "${LE_MAKE[@]}" "$@"
	fi
	LE_ENV=(env LE_RUN="$LE_TMP" PG_CONFIG="$LE_BIN/pg_config" PATH="$LE_BIN:$PATH" HOME="$LE_TMP/home" LC_ALL=C.UTF-8)
	[ -z "${LE_PGTAP:-}" ] || LE_ENV+=(LE_PGTAP="$LE_PGTAP")
	# PostgreSQL refuses to run as root; nobody is an account that no existing cluster trusts.
	LE_AS=()
	if [ "$(id -u)" = 0 ]; then
		LE_AS=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
		chown -R nobody:nogroup "$LE_TMP/src" "$LE_TMP/work" "$LE_TMP/home"
	fi
	cd "$LE_TMP/src"
}

le_run()
{
	le_wait "${LE_ENV[@]}" "${LE_AS[@]}" "$@"
}

# A control group for the tests (cgroup v2, Linux 5.14), where root can make one: "tests" has them, "ours" is the
# account's, which may also move processes from the one to the other. "theirs" and "delegated" are root's, and anybody
# may write there; of the second one an attribute says, as systemd would, that groups may be made in it.
le_cgroup()
{
	local mount group
	[ "$(id -u)" = 0 ] || return 0
	for mount in /sys/fs/cgroup /sys/fs/cgroup/unified; do
		group=$mount/${LE_TMP##*/}
		[ -e $mount/cgroup.procs ] && mkdir "$group" 2>/dev/null || continue
		LE_CGROUP=$group
		mkdir "$group/tests" "$group/ours" "$group/theirs" "$group/delegated"
		[ -e "$group/ours/cgroup.kill" ] || return 0
		chown nobody "$group/cgroup.procs" "$group/ours" "$group/ours/cgroup.procs"
		chmod a+w "$group"/{theirs,delegated}{,/cgroup.procs}
		python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.delegate", b"1")' "$group/delegated" 2>/dev/null ||
			rmdir "$group/delegated"
		LE_ENV+=(LE_CGROUP="$group")
		return 0
	done
}

# After le_prepare: what the tests need in their environment. With argument "disk", or in a long run (SOAK), their
# clusters are on disk.
le_test_env()
{
	local net own perl_lib in_memory=
	# Where the kernel allows it, the tests get a network of their own and the right to change it, because one of them
	# needs a host that falls silent; and disks in memory that are small enough to be filled. If there is enough memory,
	# the clusters are in memory, too: a disk would take a tenth of the processor time to create and remove their files.
	if [ "$(id -u)" = 0 ]; then
		net=(unshare --net --mount)
	else
		net=(unshare --user --map-current-user --keep-caps --net --mount)
	fi
	if [ "${1:-${SOAK:+disk}}" != disk ] && awk '/^MemAvailable/ { exit $2 < 8 * 1024 * 1024 }' /proc/meminfo; then
		in_memory='
		mount -t tmpfs -o mode=1777 none "$0/../tmp_check"
		ln -s ../log "$0/../tmp_check/log"'
	fi
	mkdir "$LE_TMP/work"/{disks,tmp_check,log}
	ln -s ../log "$LE_TMP/work/tmp_check/log"
	[ ${#LE_AS[@]} = 0 ] || chown nobody:nogroup "$LE_TMP/work"/{tmp_check,log}
	own='set -e
		[ -z "${LE_CGROUP:-}" ] || echo 0 >"$LE_CGROUP/tests/cgroup.procs"
		ip link set lo up
		mount -t tmpfs -o mode=1777 none "$0"
		for d in a:200m b:200m wal-a:240m wal-b:240m notify-a:128k notify-b:128k wal:48m tables:48m; do
			mkdir "$0/${d%:*}"
			mount -t tmpfs -o size=${d#*:},mode=1777 none "$0/${d%:*}"
		done
		'"$in_memory"'
		exec "$@"'
	net+=(sh -c "$own" "$LE_TMP/work/disks"
		${LE_AS[@]:-setpriv} --inh-caps=-all,+net_admin --ambient-caps=-all,+net_admin)
	if "${net[@]}" true 2>/dev/null; then
		LE_AS=("${net[@]}")
		LE_ENV+=(LE_NET=1 LE_DISKS="$LE_TMP/work/disks")
		le_cgroup
	fi

	# Dynamic shared memory as files of the data directory: nothing survives a server that a test kills.
	echo "dynamic_shared_memory_type = mmap" >"$LE_TMP/temp.conf"
	perl_lib=$("$LE_BIN/pg_config" --pkglibdir)/pgxs/src/test
	LE_ENV+=(PERL5LIB="$perl_lib/perl:$LE_TMP/src/test/lib" PG_REGRESS="$perl_lib/regress/pg_regress"
		TESTDIR="$LE_TMP/work" TESTDATADIR="$LE_TMP/work/tmp_check" TESTLOGDIR="$LE_TMP/work/tmp_check/log"
		PG_TEST_PORT_DIR="$LE_TMP/work/ports" TEMP_CONFIG="$LE_TMP/temp.conf" TMPDIR="$LE_TMP/work"
		PG_TEST_TIMEOUT_DEFAULT="${PG_TEST_TIMEOUT_DEFAULT:-60}")

	# A cluster that they copy: initdb each would take as much of the processors as the rest of many a test.
	le_run initdb -D "$LE_TMP/work/template" -A trust -N >"$LE_TMP/initdb.log" 2>&1 ||
		{ tail -n 30 "$LE_TMP/initdb.log" >&2; le_die "initdb failed"; }
	LE_ENV+=(INITDB_TEMPLATE="$LE_TMP/work/template")
}
