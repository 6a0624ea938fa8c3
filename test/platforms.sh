#!/bin/bash
# make test-platforms: lock_election on other processors, and with another C library, in fresh Debian systems. For arm64
# and s390x a cross compiler builds everything, and QEMU runs the core's tests, a server with the regression tests, and
# lockctl; s390x is big endian. For musl, which has no libpq in Debian, the core's tests run.
#   PARTS="arm64 s390x musl"    default: all
#   CACHE                       where the bare system is kept; default: /var/cache/lock_election
# Needs root, and registers QEMU as the kernel's interpreter for the programs of these processors while it runs.
. "$(dirname "$0")/chroot.sh"
in_namespaces "$@"
PARTS=${PARTS:-arm64 s390x musl}
SUITE=bookworm
PG_MAJOR=$(major "$SUITE")
PG_BIN=/usr/lib/postgresql/$PG_MAJOR/bin
ROOT=$(cd "$(dirname "$0")/.." && pwd -P)
FORMATS=$RUN/binfmt_misc
ran=()

# step LINE...: its output is shown only if it fails
step()
{
	inside "$dir" "cd /src; $*" >"$RUN/log" 2>&1 || { tail -n 60 "$RUN/log" >&2; die "$part: failed: $*"; }
}

# A fresh system in $dir, with the sources and packages.
system()
{
	dir=$RUN/$part
	say "$part: a fresh $SUITE"
	fresh "$dir" "$SUITE"
	mkdir "$dir/src"
	tar -C "$ROOT" --exclude=./build --exclude=./.git --exclude='*.[do]' --exclude='*.so' -cf - . |
		tar -C "$dir/src" -xf -
	[ -z "$1" ] || step "dpkg --add-architecture $1; apt-get update -qq"
	shift
	step "apt-get install -qqy make perl pkgconf $*"
}

# The core's own tests. Sanitizers do not run under QEMU, and musl has none.
core()
{
	say "$part: unit tests"
	step "make -j$(nproc) SANITIZE= CC=$1 core-tests && make SANITIZE= CC=$1 unit"
	ran+=("$part: $(grep -c '\. ok$' "$RUN/log") programs of unit tests")
	say "$part: simulator"
	step "build/sim-fast --seeds 4 --steps 20000"
	ran+=("$part: simulator: $(tail -n 1 "$RUN/log")")
}

# Makes the kernel run the programs of $machine with the QEMU in $dir.
register()
{
	mkdir -p "$FORMATS"
	mountpoint -q "$FORMATS" || mount -t binfmt_misc none "$FORMATS"
	sed "s/^:[^:]*/:lock_election-$$-$part/; s|:[^:]*:[A-Z]*$|:$dir/usr/bin/qemu-$1-static:F|" \
		"$dir/usr/lib/binfmt.d/qemu-$1.conf" >"$FORMATS/register"
}

unregister()
{
	local format
	for format in "$FORMATS/lock_election-$$-"*; do
		[ ! -e "$format" ] || echo -1 >"$format"
	done
}

# A session of the C library.  QEMU lacks a call of the kernel that "lockctl lock" needs (PR_SET_CHILD_SUBREAPER).
program()
{
	cat <<-'END'
		#include <stdio.h>
		#include <lock_election.h>

		int
		main(void)
		{
			le_session *session;
			le_hold *hold;
			le_error error;
			const char *name = "invoices";

			if (le_open(NULL, &session, &error) != LE_OK ||
				le_acquire(session, &name, 1, NULL, 5000, &hold, &error) != LE_OK)
				return fprintf(stderr, "%s\n", error.message), 1;
			printf("%lld\n", (long long) le_token(hold));
			if (!le_valid(hold) || le_release(hold, 0, &error) != LE_OK)
				return 1;
			le_close(session, 1000, NULL);
			return 0;
		}
	END
}

# foreign MACHINE TRIPLET [TEST]: everything but this isolation test, in a system whose server and libraries are those
# of the architecture $part
foreign()
{
	local cc=$2-gcc isolation
	isolation=$(cd "$ROOT/test/specs" && printf '%s\n' *.spec | sed 's/\.spec$//' | grep -vxF "${3:-}" | paste -sd ' ')
	system "$part" "gcc-$2" "libc6-dev-$part-cross" qemu-user-static "libpq-dev:$part" "libncurses-dev:$part"
	register "$1"
	core "$cc"
	say "$part: server"
	step "apt-get install -qqy postgresql-$PG_MAJOR:$part"
	# With its dependencies it would bring another compiler.
	step "cd /tmp && apt-get download -qq postgresql-server-dev-$PG_MAJOR:$part
		dpkg-deb -x postgresql-server-dev*.deb /"
	step "make -j$(nproc) CC=$cc PG_CONFIG=$PG_BIN/pg_config install"
	step "install -d -o postgres /data build; chown -R postgres .
		runuser -u postgres -- $PG_BIN/initdb -A trust --locale=C -E UTF8 -D /data
		echo \"shared_preload_libraries = 'lock_election'\" >>/data/postgresql.conf
		runuser -u postgres -- $PG_BIN/pg_ctl -D /data -l /data/log -w start
		runuser -u postgres -- make PG_CONFIG=$PG_BIN/pg_config PGHOST=/var/run/postgresql \
			ISOLATION='$isolation' installcheck"
	ran+=("$part: server: $(grep -c '^test .*\.\.\. ok' "$RUN/log") regression and isolation tests")
	say "$part: C library and lockctl"
	step "PKG_CONFIG_LIBDIR=/usr/lib/$2/pkgconfig make CC=$cc AR=$2-ar client lockctl"
	program >"$dir/src/build/program.c"
	step "psql -U postgres -Xqc 'CREATE EXTENSION lock_election'
		$cc -pthread -Isrc/client -I/usr/include/postgresql -o build/program build/program.c \
			build/client/liblockelection.a -lpq
		PGUSER=postgres build/program
		export PGUSER=postgres
		token=\$(build/lockctl/lockctl acquire --ttl 1h nightly)
		build/lockctl/lockctl locks | grep nightly
		build/lockctl/lockctl release nightly \$token"
	ran+=("$part: C library and lockctl: locks")
	step "runuser -u postgres -- $PG_BIN/pg_ctl -D /data -m fast -w stop"
}

part_arm64()
{
	foreign aarch64 aarch64-linux-gnu
}

part_s390x()
{
	# Its two names have the same hash only where the least significant byte comes first.
	foreign s390x s390x-linux-gnu advisory
}

# Debian has no libpq for musl, so the rest is only compiled, with the headers that do not depend on the C library.
part_musl()
{
	local flags=(-std=gnu11 -D_GNU_SOURCE -fsyntax-only -Werror=implicit-function-declaration
		-DLE_VERSION='\"1.0\"' -DLE_RELEASE='\"1.0.0\"'
		-Isrc -Isrc/server -Isrc/client -Ibuild/client -idirafter /usr/include/postgresql
		-idirafter "/usr/include/postgresql/$PG_MAJOR/server" -idirafter /usr/include
		-idirafter "/usr/include/$(uname -m)-linux-gnu")
	system "" musl-tools libpq-dev libncurses-dev
	core musl-gcc
	say "$part: server, C library and lockctl"
	step "cd /tmp && apt-get download -qq postgresql-server-dev-$PG_MAJOR && dpkg-deb -x postgresql-server-dev*.deb /"
	# It makes the file that the library includes.
	step "make CC=: AR=: client"
	step "for file in src/client/*.c src/lockctl/*.c src/server/*.c src/server/*/*.c; do
			musl-gcc ${flags[*]} \$file
			echo \$file
		done"
	ran+=("$part: compiled: $(grep -c '^src/.*\.c$' "$RUN/log") files of the server, the C library and lockctl")
}

trap unregister EXIT
for part in $PARTS; do
	"part_$part"
done
printf '%s\n' "${ran[@]}"
