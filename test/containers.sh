#!/bin/bash
# make test-containers: builds the image of container/Dockerfile, and runs it and compose.yaml under podman: health,
# locks from outside, crashes, the programs of docs/quick-start.md, metrics, upgrades. These images themselves are not
# downloaded: test/containers has replacements. Needs root, and Debian 12 or newer. Leaves no container, image,
# network or volume behind.
#   SUITE      of Debian, for the replacements; default: bookworm. test/postgresql-versions states its PostgreSQL
#   CACHE      directory of the minimal systems; default: /var/cache/lock_election
. "$(dirname "$0")/chroot.sh"
SUITE=${SUITE:-bookworm}
PG_MAJOR=$(major "$SUITE")
ROOT=$(cd "$(dirname "$0")/.." && pwd -P)
EXPORTER=$(sed -n 's/^ *image: \(.*postgres-exporter.*\)/\1/p' "$ROOT/compose.yaml")
PROMETHEUS=$(sed -n 's/^ *image: \(.*\/prometheus:.*\)/\1/p' "$ROOT/compose.yaml")

# Before namespaces are made, which end with what apt-get starts.
need_packages()
{
	local package missing=()
	for package in buildah podman runc netavark aardvark-dns iptables iproute2 python3 python3-pip \
		curl postgresql-client; do
		[ "$(dpkg-query -W -f '${db:Status-Status}' $package 2>/dev/null)" = installed ] || missing+=($package)
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	say "installing: ${missing[*]}"
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -qq -y --no-install-recommends \
		"${missing[@]}" >/dev/null
}

# Podman's places are those of this run. It works without systemd, and where a container may be given no more than this
# process has.
settings()
{
	local dir driver=vfs
	mkdir "$RUN"/overlay{,/lower,/upper,/work,/all}
	if mount -t overlay none "$RUN/overlay/all" \
		-o "lowerdir=$RUN/overlay/lower,upperdir=$RUN/overlay/upper,workdir=$RUN/overlay/work" 2>/dev/null; then
		umount "$RUN/overlay/all"
		driver=overlay
	fi
	for dir in /var/lib/containers /run/containers /run/libpod /run/netns /run/runc /dev/shm /etc/containers; do
		mkdir -p "$dir" "$RUN/podman$dir"
		[ $dir != /etc/containers ] || cp -a /etc/containers/. "$RUN/podman$dir"
		mount --bind "$RUN/podman$dir" "$dir"
	done
	cat >/etc/containers/containers.conf <<-'CONF'
		[containers]
		default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
		[engine]
		runtime = "runc"
		cgroup_manager = "cgroupfs"
		events_logger = "file"
		[network]
		network_backend = "netavark"
	CONF
	cat >/etc/containers/storage.conf <<-CONF
		[storage]
		driver = "$driver"
		runroot = "/run/containers/storage"
		graphroot = "/var/lib/containers/storage"
	CONF
	echo 'unqualified-search-registries = []' >/etc/containers/registries.conf
	export BUILDAH_ISOLATION=chroot TMPDIR=$RUN
}

# build NAME ARGUMENT...: the format is Docker's, because the other one has no health check
build()
{
	local name=$1
	shift
	say "building $name"
	buildah bud --quiet --format docker --layers --pull-never --tag "$name" \
		--volume "$CACHE/$SUITE.archives:/var/cache/apt/archives" "$@" >"$RUN/log" 2>&1 ||
		{ tail -n 40 "$RUN/log" >&2; die "$name cannot be built"; }
}

build_images()
{
	local stand_ins=("$ROOT/test/containers")
	base "$SUITE"
	mkdir -p "$CACHE/$SUITE.archives/partial"
	tar -C "$CACHE/$SUITE" -c . | podman import --quiet - bare >/dev/null
	build stand-in --build-arg "PG_MAJOR=$PG_MAJOR" --target postgres "${stand_ins[@]}"
	build "$EXPORTER" --target exporter "${stand_ins[@]}"
	build "$PROMETHEUS" --target prometheus "${stand_ins[@]}"
	build lock_election --build-arg BASE=localhost/stand-in -f "$ROOT/container/Dockerfile" "$ROOT"
	build lock_election-extension --build-arg BASE=localhost/stand-in --target extension \
		-f "$ROOT/container/Dockerfile" "$ROOT"
}

# A value of .devcontainer/devcontainer.json.
dev()
{
	perl -MJSON::PP -e 'print decode_json(join "", <STDIN>)->{$ARGV[0]}' "$1" <"$ROOT/.devcontainer/devcontainer.json"
}

# What an editor does after it has started the container of .devcontainer: in a bare Debian, which is that image.
dev_container()
{
	local dir=$RUN/dev command image
	image=$(dev image)
	command=$(dev onCreateCommand)
	say "the command of .devcontainer"
	fresh "$dir" "${image#debian:}"
	mkdir "$dir/src"
	tar -C "$ROOT" --exclude=./build --exclude=./.git --exclude='*.[do]' --exclude='*.so' -cf - . |
		tar -C "$dir/src" -xf -
	inside "$dir" "cd /src && $command" >"$RUN/log" 2>&1 || { tail -n 40 "$RUN/log" >&2; die "it fails"; }
	grep -q '^Result: PASS' "$RUN/log" || die "it tests nothing"
}

# --- tests ----------------------------------------------------------------------------------------------------------

expect()
{
	local what=$1 expected=$2 got=$3
	[[ $got = $expected ]] || die "$what: expected \"$expected\", got \"$got\""
}

# until SECONDS COMMAND...: waits until the command succeeds
until_true()
{
	local end=$((SECONDS + $1))
	shift
	until "$@" >"$RUN/log" 2>&1; do
		[ $SECONDS -lt $end ] || { tail -n 20 "$RUN/log" >&2; return 1; }
		sleep 0.2
	done
}

# healthy CONTAINER: no systemd runs its health check every ten seconds
healthy()
{
	until_true 60 podman healthcheck run "$1" || { podman logs "$1" >&2; die "$1 is not healthy"; }
	expect "the state of $1" healthy "$(podman inspect --format '{{.State.Health.Status}}' "$1")"
}

# From outside, over the mapped port.
sql()
{
	psql -XAtqw -c "$1" 2>&1
}

# quick_start WORD REGEX: the block of docs/quick-start.md with this word whose text matches.
quick_start()
{
	perl -I"$ROOT/test/lib" -MLeDocs -e '
		my ($file, $word, $like) = @ARGV;
		open my $in, "<", $file or die "$file: $!\n";
		my @found = grep { $_->{word} eq $word && $_->{text} =~ /$like/ } blocks_of(join "", <$in>);
		die "$file has " . @found . " blocks with $like\n" if @found != 1;
		print $found[0]{text}' "$ROOT/docs/quick-start.md" "$@"
}

quick_start_programs()
{
	quick_start sh '^lockctl lock import' >"$RUN/program.sh"
	expect "the page's shell" "alone, with token [0-9]*" "$(PATH=$RUN/bin:$PATH bash -e "$RUN/program.sh" 2>&1)"
	quick_start python '^import lock_election' >"$RUN/program.py"
	expect "the page's Python" "alone, with token [0-9]*" \
		"$(PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$RUN/python:$ROOT/clients/python/src python3 "$RUN/program.py" 2>&1)"
}

test_image()
{
	local token next wait='while [ ! -e /tmp/go-on ]; do sleep 0.1; done'
	say "a container: health"
	echo "$wait" >"$RUN/wait.sh"
	podman run --quiet --detach --name one -e POSTGRES_PASSWORD=secret -e POSTGRES_DB=app -p 127.0.0.1:5432:5432 \
		-v one:/var/lib/postgresql/data -v "$RUN/wait.sh:/docker-entrypoint-initdb.d/wait.sh:ro" \
		lock_election >/dev/null
	until_true 60 podman exec one psql -XAtq -U postgres -d app -c "SELECT lock_election.health()" ||
		die "the extension is not created"
	! podman healthcheck run one >/dev/null || die "healthy while init scripts run"
	expect "health, while init scripts run" "the server does not listen" "$(podman exec one lock_election-health)"
	podman exec one touch /tmp/go-on
	healthy one

	say "a container: the extension, and a lock from outside"
	export PGHOST=127.0.0.1 PGUSER=postgres PGPASSWORD=secret PGDATABASE=app
	expect "the preloaded libraries" lock_election "$(sql "SHOW shared_preload_libraries")"
	expect "the extension" lock_election "$(sql "SELECT extname FROM pg_extension WHERE extname LIKE 'lock%'")"
	token=$(sql "SELECT acquire_lock('kept', '1 h')")
	expect "the lock" t "$(sql "SELECT is_held('kept', $token)")"
	podman cp one:/usr/local/bin/lockctl "$RUN/bin/lockctl"
	quick_start_programs
	expect "lockctl in the container" "*kept*" "$(podman exec one lockctl -U postgres -d app locks)"

	say "a container: stop and start, SIGKILL"
	podman stop --time 60 one >/dev/null 2>&1
	expect "the exit code" 0 "$(podman inspect --format '{{.State.ExitCode}}' one)"
	podman start one >/dev/null
	healthy one
	expect "the lock after a restart" t "$(sql "SELECT is_held('kept', $token)")"
	podman kill --signal KILL one >/dev/null
	podman wait one >/dev/null
	podman start one >/dev/null
	healthy one
	expect "the lock after SIGKILL" t "$(sql "SELECT is_held('kept', $token)")"
	next=$(sql "SELECT acquire_lock('next')")
	[ "$next" -gt "$token" ] || die "the next token is $next, after $token"

	say "a container: what is unhealthy"
	sql "DROP EXTENSION lock_election"
	expect "health without the extension" "*lock_election*" "$(podman exec one lock_election-health)"
	! podman healthcheck run one >/dev/null || die "healthy without the extension"
	podman rm --force --time 0 --volumes one >/dev/null 2>&1
}

# The variables of the official image that say who, where and how; and what the last steps of the Dockerfile make of a
# base that preloads a library of its own.
test_variables()
{
	say "a container: other variables"
	{
		echo 'FROM localhost/stand-in'
		echo "RUN sed -i \"s/^#shared_preload_libraries = ''/shared_preload_libraries = 'auto_explain'/\"" \
			'/usr/share/postgresql/postgresql.conf.sample'
		sed -n '/^# New clusters/,$p' "$ROOT/container/Dockerfile"
	} >"$RUN/Dockerfile"
	build other -f "$RUN/Dockerfile" "$RUN/bin"
	expect "the libraries of another base" "shared_preload_libraries = 'auto_explain,lock_election'*" \
		"$(podman run --rm --entrypoint grep other ^shared_preload /usr/share/postgresql/postgresql.conf.sample)"
	echo hidden >"$RUN/password"
	podman run --quiet --detach --name two -e POSTGRES_USER=me -e POSTGRES_PASSWORD=hidden \
		-e POSTGRES_INITDB_ARGS=--auth=scram-sha-256 lock_election >/dev/null
	healthy two
	expect "the extension in the user's database" 1 "$(podman exec -e PGPASSWORD=hidden two psql -XAtq -U me -c "
		SELECT count(*) FROM pg_extension WHERE extname = 'lock_election'")"
	expect "health, without POSTGRES_PASSWORD" "*password*" \
		"$(podman exec -e POSTGRES_PASSWORD= two lock_election-health)"
	podman cp "$RUN/password" two:/tmp/password
	expect "health, with POSTGRES_PASSWORD_FILE" ok \
		"$(podman exec -e POSTGRES_PASSWORD= -e POSTGRES_PASSWORD_FILE=/tmp/password two lock_election-health)"
	podman rm --force --time 0 --volumes two >/dev/null 2>&1
}

# The files of target "extension" beside a server that has none of them, as an image volume brings them.
test_extension_image()
{
	say "the image of the extension alone"
	mkdir "$RUN/extension"
	podman create --quiet --name files lock_election-extension none >/dev/null
	podman export files | tar -C "$RUN/extension" -xf -
	podman rm files >/dev/null
	expect "the library" "$RUN/extension/lib/lock_election.so" "$(ls "$RUN"/extension/lib/*)"
	[ -f "$RUN/extension/share/extension/lock_election.control" ] || die "no control file"
	if [ "$PG_MAJOR" -lt 18 ]; then
		say "skipped: PostgreSQL $PG_MAJOR has no extension_control_path"
		return
	fi
	podman run --quiet --detach --name three -e POSTGRES_PASSWORD=secret -p 127.0.0.1:5432:5432 \
		-v "$RUN/extension:/extensions/lock_election:ro" stand-in postgres -c shared_preload_libraries=lock_election \
		-c 'extension_control_path=$system:/extensions/lock_election/share' \
		-c 'dynamic_library_path=$libdir:/extensions/lock_election/lib' >/dev/null
	export PGDATABASE=postgres
	until_true 60 psql -Xqc "SELECT 1"
	sql "CREATE EXTENSION lock_election"
	expect "a lock" "[0-9]*" "$(sql "SELECT acquire_lock('x')")"
	export PGDATABASE=app
	podman rm --force --time 0 --volumes three >/dev/null 2>&1
}

metric()
{
	[[ $(curl -fsS "http://127.0.0.1:${EXPORTER_PORT:-9187}/metrics") == *$'\n'"$1"* ]]
}

# prometheus_has PATH REGEX [PARAMETER]: does its reply match?
prometheus_has()
{
	[[ $(curl -fsSG "http://127.0.0.1:${PROMETHEUS_PORT:-9090}/api/v1/$1" ${3:+--data-urlencode "$3"}) =~ $2 ]]
}

test_compose()
{
	local token before compose=(env PYTHONPATH="$RUN/python" python3 -m podman_compose)
	cd "$ROOT"
	say "compose: up"
	"${compose[@]}" up --detach >"$RUN/compose.log" 2>&1 ||
		{ cat "$RUN/compose.log" >&2; die "compose.yaml: up failed"; }
	container=$(podman ps --format '{{.Names}}' | grep 'db_1\|db-1')
	healthy "$container"
	quick_start_programs
	token=$(sql "SELECT acquire_lock('kept', '1 h')")
	expect "the exporter's role" f "$(sql "SELECT rolsuper FROM pg_roles WHERE rolname = 'prometheus'")"

	say "compose: metrics"
	until_true 60 metric 'lock_election_healthy{datname="app"' || die "the exporter has no metrics"
	until_true 60 prometheus_has query '"value":\[[^]]*,"1"\]' query=lock_election_healthy ||
		die "Prometheus has no metrics"
	prometheus_has rules LockElectionDown || die "Prometheus has no rules"

	say "compose: down, and up again with other ports"
	"${compose[@]}" down >>"$RUN/compose.log" 2>&1
	expect "containers" "" "$(podman ps --all --quiet)"
	export PGPORT=15432 EXPORTER_PORT=19187 PROMETHEUS_PORT=19090
	"${compose[@]}" up --detach >>"$RUN/compose.log" 2>&1
	healthy "$container"
	expect "the lock" t "$(sql "SELECT is_held('kept', $token)")"
	until_true 60 metric 'lock_election_healthy{datname="app"' || die "the exporter's port does not change"
	until_true 60 prometheus_has rules LockElectionDown || die "the port of Prometheus does not change"

	say "compose: another image"
	before=$(podman inspect --format '{{.Id}}' "$container")
	"${compose[@]}" up --detach --force-recreate >>"$RUN/compose.log" 2>&1
	[ "$(podman inspect --format '{{.Id}}' "$container")" != "$before" ] || die "the container is not replaced"
	healthy "$container"
	"${compose[@]}" exec -T db psql -U postgres -d app -c 'ALTER EXTENSION lock_election UPDATE' \
		>>"$RUN/compose.log" 2>&1
	expect "the lock" t "$(sql "SELECT is_held('kept', $token)")"

	say "compose: another volume"
	sql "CREATE ROLE app LOGIN" && sql "CREATE TABLE kept AS SELECT 1 AS x"
	sql "SELECT compare_and_set('key', 0, 'value')" >/dev/null
	"${compose[@]}" exec -T db pg_dumpall -U postgres >"$RUN/all.sql" 2>>"$RUN/compose.log"
	"${compose[@]}" down >>"$RUN/compose.log" 2>&1
	compose+=(-p lock_election18)
	"${compose[@]}" up --detach >>"$RUN/compose.log" 2>&1
	container=$(podman ps --format '{{.Names}}' | grep 'db_1\|db-1')
	healthy "$container"
	"${compose[@]}" exec -T db dropdb -U postgres --force app >>"$RUN/compose.log" 2>&1
	"${compose[@]}" exec -T db psql -qX -U postgres -d postgres <"$RUN/all.sql" >>"$RUN/compose.log" 2>&1
	healthy "$container"
	expect "the role" 1 "$(sql "SELECT count(*) FROM pg_roles WHERE rolname = 'app'")"
	expect "the table" 1 "$(sql "SELECT x FROM kept")"
	expect "the version of the key" 2 "$(sql "SELECT compare_and_set('key', 1, 'new')")"
	[ "$(sql "SELECT acquire_lock('kept')")" -gt "$token" ] || die "the tokens do not continue"
	until_true 60 metric 'lock_election_healthy{datname="app"' || die "the exporter has no metrics of the copy"
	"${compose[@]}" down --volumes >>"$RUN/compose.log" 2>&1
}

if [ -z "${IN_NAMESPACES:-}" ]; then
	need_packages
fi
in_namespaces
if [ -z "${IN_NETWORK:-}" ]; then
	mount --make-rprivate /
	settings
	mkdir "$RUN/bin"
	say "podman-compose, psycopg"
	python3 -m pip install -q --disable-pip-version-check --root-user-action ignore --target "$RUN/python" \
		podman-compose==1.6.0 "psycopg[binary]"
	# The groups that Podman makes outlive it.
	trap 'podman rm --all --force --time 0 >/dev/null 2>&1 || true
		find /sys/fs/cgroup -depth -type d -path "*/libpod_parent*" -exec rmdir {} + 2>/dev/null || true' EXIT
	build_images
	# What runs has a network of its own: bridges, rules and ports end with it.
	IN_NETWORK=1 unshare --net "$BASH" "$0"
	dev_container
	say "all is well"
	exit
fi
ip link set lo up
test_image
test_variables
test_extension_image
test_compose
