# Selects the systems that take part, and builds and calls their client programs.

java_classpath="$dir/bin:$PEERS_DIR/zookeeper/*"

build_postgres()
{
	cc -O2 -Wall -I"$(pg_config --includedir)" -o "$dir/bin/postgres" bench/peers/postgres.c bench/peers/harness.c \
		-L"$(pg_config --libdir)" -lpq -lpthread
}

# need PACKAGE FILE-OR-COMMAND: adds the package to "missing" if the file or command does not exist
need()
{
	[ -e "$2" ] || command -v "$2" >/dev/null || missing+=" $1"
}

build_redis_client()
{
	need libhiredis-dev /usr/include/hiredis/hiredis.h
	[ -z "$missing" ] || return 1
	cc -O2 -Wall -o "$dir/bin/redis" bench/peers/redis.c bench/peers/harness.c -lhiredis -lpthread
}

build_redis()
{
	need redis-server redis-server
	build_redis_client
}

build_redis-everysec()
{
	build_redis
}

build_redis-memory()
{
	build_redis
}

build_valkey()
{
	need valkey "$PEERS_DIR/valkey/valkey-server"
	build_redis_client
}

# packages.sh has already built the client, when it installed etcd.
build_etcd()
{
	need etcd "$PEERS_DIR/etcd/client"
	[ -z "$FLUSH_US" ] || need strace strace
	[ -z "$missing" ]
}

build_zookeeper()
{
	need default-jdk-headless javac
	need zookeeper "$PEERS_DIR/zookeeper"
	[ -z "$missing" ] || return 1
	javac -d "$dir/bin" -cp "$java_classpath" bench/peers/zookeeper/*.java
}

server_of()
{
	case $1 in
		lock_election* | portable | table | advisory | select1) echo postgres ;;
		*) echo "$1" ;;
	esac
}

# Sets "systems" to the systems that can run, "servers" to their servers, "skipped" to the other systems, and
# "why_skipped" to the reasons.
choose_systems()
{
	local s server missing
	systems=
	servers=
	skipped=
	why_skipped=
	for s in $SYSTEMS; do
		server=$(server_of "$s")
		declare -F "build_$server" >/dev/null || { echo "error: there is no system $s" >&2; exit 1; }
		case " $servers " in
			*" $server "*) ;;
			*)
				missing=
				if ! build_$server 2>"$dir/build.log"; then
					cat "$dir/build.log" >&2
					skipped+=" $s"
					why_skipped+="${why_skipped:+; }$s (${missing:+not installed:}${missing:-its client could not be built})"
					echo "-- skipped: ${why_skipped##*; }" >&2
					continue
				fi
				servers+=" $server"
				;;
		esac
		systems+=" $s"
	done
}

# Prints the database for a system. The portable edition needs its own, because a database cannot have both editions.
database_of()
{
	case $1 in
		portable) [ "$PGDATABASE" = postgres ] && echo portable || echo "portable-$PGDATABASE" ;;
		*) echo "$PGDATABASE" ;;
	esac
}

# client SYSTEM WORKLOAD CLIENTS SECONDS ...: executes the system's program instead of this shell, so call it in the
# background
client()
{
	local system=$1
	shift
	case $system in
		lock_election-async) PGOPTIONS='-c synchronous_commit=off' exec "$dir/bin/postgres" "$@" system=lock_election ;;
		portable) PGDATABASE=$(database_of portable) exec "$dir/bin/postgres" "$@" system=lock_election ;;
		lock_election | table | advisory | select1) exec "$dir/bin/postgres" "$@" system="$system" ;;
		redis* | valkey) REDISPORT=${redis_port[$system]} REDISPASSWORD=$password exec "$dir/bin/redis" "$@" ;;
		etcd) exec "$PEERS_DIR/etcd/client" "$@" ;;
		zookeeper) exec java -cp "$java_classpath" Bench "$@" ;;
	esac
}
