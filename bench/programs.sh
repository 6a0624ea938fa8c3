# Which systems take part, and how their client programs are built and called.

java_classpath="$dir/bin:$PEERS_DIR/zookeeper/*"

build_postgres()
{
	cc -O2 -Wall -I"$(pg_config --includedir)" -o "$dir/bin/postgres" bench/peers/postgres.c bench/peers/harness.c \
		-L"$(pg_config --libdir)" -lpq -lpthread
}

# need PACKAGE FILE-OR-COMMAND: if it is not there, the package is added to "missing"
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

# Its client is built where it is installed.
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

# Leaves in "systems" those that can run, in "servers" their servers, in "skipped" the others, and why in "why_skipped".
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

# The portable edition has a database of its own beside each: both editions in one are refused.
database_of()
{
	case $1 in
		portable) [ "$PGDATABASE" = postgres ] && echo portable || echo "portable-$PGDATABASE" ;;
		*) echo "$PGDATABASE" ;;
	esac
}

# client SYSTEM WORKLOAD CLIENTS SECONDS ...: becomes the system's program, so it has to be called in the background
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
