# The servers of the benchmark: throw-away instances in $dir, with their default settings. Each flushes a change to disk
# before it replies. All listen on 127.0.0.1, because not all of them support local sockets.
#
#   start_SERVER    starts a server, and sets the variables by which its programs find it; stop_servers stops all

declare -A server_pid redis_port
TABLE_LOCK='CREATE TABLE table_lock (name text PRIMARY KEY, owner text NOT NULL, expires_at timestamptz NOT NULL)'

free_port()
{
	perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1")->sockport'
}

# until_up SECONDS PID COMMAND...: waits until COMMAND succeeds; fails after SECONDS, or if the process has ended
until_up()
{
	local seconds=$1 pid=$2 i
	shift 2
	for ((i = 0; i < seconds * 10; i++)); do
		kill -0 "$pid" 2>/dev/null || return 1
		! "$@" >/dev/null 2>&1 || return 0
		sleep 0.1
	done
	return 1
}

listening()
{
	(exec 3<>"/dev/tcp/127.0.0.1/$1")
}

# --- FLUSH_US -------------------------------------------------------------------------------------------------------

build_slow_flush()
{
	cc -O2 -Wall -fPIC -shared -o "$dir/bin/slow-flush.so" bench/slow-flush.c
	truncate -s 8 "$dir/flushes"
}

# Sets "slow" to the prefix for the command of a server that makes its flushes longer.
slow_flush()
{
	slow=()
	[ -z "$FLUSH_US" ] || slow=(env LD_PRELOAD="$dir/bin/slow-flush.so" FLUSH_US="$FLUSH_US" FLUSH_COUNT="$dir/flushes")
}

# Does the same for programs in Go, which call the kernel without the C library: strace delays their flushes.
slow_flush_of_go()
{
	slow=()
	[ -z "$FLUSH_US" ] || slow=(strace -D -f --seccomp-bpf -qq -e trace=fsync,fdatasync
		-e inject=fsync,fdatasync:delay_exit="$FLUSH_US" -o "$dir/etcd.flushes")
}

# longer_flushes SYSTEM: prints how many flushes of the system's server were made longer
longer_flushes()
{
	case $1 in
		etcd) grep -c DELAYED "$dir/etcd.flushes" || true ;;
		*) od -An -t u8 "$dir/flushes" | tr -d ' ' ;;
	esac
}

# launch NAME COMMAND...: runs the command in the background, with its output in $dir/NAME.log
launch()
{
	local name=$1
	shift
	"$@" >"$dir/$name.log" 2>&1 </dev/null &
	server_pid[$name]=$!
}

up_or_fail()
{
	local name=$1
	shift
	until_up 60 "${server_pid[$name]}" "$@" || { tail -n 20 "$dir/$name.log" >&2; echo "$name did not start" >&2; return 1; }
}

# install_portable DATABASE: creates a database with the portable edition, and a lock table
install_portable()
{
	PGDATABASE=postgres psql -Xqc "CREATE DATABASE \"$1\""
	PGDATABASE=$1 psql -Xq -v ON_ERROR_STOP=1 -1 -f sql/portable/lock_election.sql
	PGDATABASE=$1 psql -Xq -v ON_ERROR_STOP=1 -c "$TABLE_LOCK" -c "SELECT lock_election.configure('max_waiters_per_lock', '0')" -c "SELECT release_lock('first', acquire_lock('first'))" >/dev/null
}

# Starts PostgreSQL first without a network, to set the password before the port is open. Uses md5, because SCRAM would
# delay the start of a hundred connections by a second.
start_postgres()
{
	. test/lib/server.sh
	server_start postgres "
		max_connections = 250
		max_worker_processes = 32
		password_encryption = md5
		shared_buffers = 256MB
		lock_election.max_databases = 8
		lock_election.max_locks_per_role = 0
		lock_election.max_waiters_per_lock = 0
		lock_election.max_memory_per_role = 0
		lock_election.max_memory = 8GB"
	export PGPASSWORD=$password
	psql -Xqc "ALTER ROLE postgres PASSWORD '$password'"
	printf 'local all all trust\nhost all all 127.0.0.1/32 md5\n' >"$PGHOST/data/pg_hba.conf"
	echo "listen_addresses = '127.0.0.1'" >>"$PGHOST/data/postgresql.conf"
	slow_flush
	pg_ctl -D "$PGHOST/data" -w -s stop
	"${slow[@]}" pg_ctl -D "$PGHOST/data" -l "$SERVER_LOG" -w -s start
	PGDATA_DIR=$PGHOST/data
	export PGHOST=127.0.0.1
	server_pid[postgres]=$(head -n 1 "$PGDATA_DIR/postmaster.pid")
	psql -Xq -v ON_ERROR_STOP=1 -c "$TABLE_LOCK" -c "SELECT release_lock('first', acquire_lock('first'))" >/dev/null
	install_portable portable
}

# start_redis_with PROGRAM NAME LINES: starts an instance with these lines of configuration
start_redis_with()
{
	local program=$1 name=$2 port
	port=$(free_port)
	mkdir -p -m 700 "$dir/$name"
	cat >"$dir/$name/redis.conf" <<-CONF
		bind 127.0.0.1
		port $port
		dir $dir/$name
		requirepass $password
		set-proc-title no
		save ""
		$3
	CONF
	slow_flush
	launch "$name" "${slow[@]}" "$program" "$dir/$name/redis.conf"
	up_or_fail "$name" listening "$port"
	redis_port[$name]=$port
}

start_redis()
{
	start_redis_with redis-server redis "appendonly yes
		appendfsync always"
}

start_redis-everysec()
{
	start_redis_with redis-server redis-everysec "appendonly yes
		appendfsync everysec"
}

start_redis-memory()
{
	start_redis_with redis-server redis-memory "appendonly no"
}

start_valkey()
{
	start_redis_with "$PEERS_DIR/valkey/valkey-server" valkey "appendonly yes
		appendfsync always"
}

# Raises etcd's limit for the size of the database, which is 2 GB by default, so that a million locks fit.
start_etcd()
{
	local port peer
	port=$(free_port)
	peer=$(free_port)
	slow_flush_of_go
	launch etcd "${slow[@]}" "$PEERS_DIR/etcd/etcd" --name bench --data-dir "$dir/etcd" --log-level error --quota-backend-bytes 8589934592 \
		--listen-client-urls "http://127.0.0.1:$port" --advertise-client-urls "http://127.0.0.1:$port" \
		--listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
		--initial-cluster "bench=http://127.0.0.1:$peer"
	up_or_fail etcd listening "$port"
	export ETCD_ENDPOINT=127.0.0.1:$port
}

# tickTime as in ZooKeeper's own sample; forceSync is on by default.
start_zookeeper()
{
	local port
	port=$(free_port)
	mkdir -p -m 700 "$dir/zookeeper"
	cat >"$dir/zookeeper/zoo.cfg" <<-CONF
		tickTime=2000
		dataDir=$dir/zookeeper
		clientPort=$port
		clientPortAddress=127.0.0.1
		maxClientCnxns=0
		admin.enableServer=false
	CONF
	slow_flush
	launch zookeeper "${slow[@]}" java -cp "$java_classpath" org.apache.zookeeper.server.quorum.QuorumPeerMain "$dir/zookeeper/zoo.cfg"
	up_or_fail zookeeper listening "$port"
	export ZOOKEEPER=127.0.0.1:$port
}

stop_servers()
{
	local name
	for name in "${!server_pid[@]}"; do
		case $name in
			postgres) pg_ctl -D "$PGDATA_DIR" -m fast -w -s stop || true ;;
			*) kill "${server_pid[$name]}" 2>/dev/null || true ;;
		esac
	done
	for name in "${!server_pid[@]}"; do
		[ "$name" = postgres ] || wait "${server_pid[$name]}" 2>/dev/null || true
	done
	server_pid=()
}

# anonymous_memory PID: prints the private memory of the process in bytes, without files and shared memory
anonymous_memory()
{
	awk '/^RssAnon/ { printf "%.0f\n", $2 * 1024 }' "/proc/$1/status"
}

# --- description of the measured systems ----------------------------------------------------------------------------

# jar_version NAME: prints the version of a jar in ZooKeeper's class path
jar_version()
{
	(cd "$PEERS_DIR/zookeeper" && ls "$1"-[0-9]*.jar | sed "s/^$1-//; s/\.jar$//")
}

# redis_version PROGRAM: prints the version of Redis or Valkey, such as 7.0.15
redis_version()
{
	"$1" --version | sed 's/.* v=\([^ ]*\).*/\1/'
}

# Prints the description as lines of "key: value".
describe()
{
	local flush
	# Overwrite a file in place, like a WAL segment that is reused. The first command creates the file.
	dd if=/dev/zero of="$dir/flushed" bs=8k count=300 2>/dev/null
	flush=$(LC_ALL=C dd if=/dev/zero of="$dir/flushed" bs=8k count=300 conv=notrunc oflag=dsync 2>&1 | awk -F ', ' '/copied/ { printf "%.0f", $3 / 300 * 1e6 }')
	echo "machine: $(nproc) processors ($(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)), $(awk '/MemTotal/ { printf "%.0f GB", $2 / 1048576 }' /proc/meminfo), Linux $(uname -r | cut -d- -f1), $(stat -f -c %T "$dir"); a write of 8 kB with its flush takes $flush us"
	[ -z "$FLUSH_US" ] || echo "flushes: each fsync and fdatasync of a server takes $FLUSH_US us longer than that"
	echo "measured: $ROUNDS rounds, $DURATION s each after a warm-up of $WARMUP s, in $((SECONDS / 60)) min"
	case " $servers " in *" postgres "*)
		echo "PostgreSQL: $(postgres -V | sed 's/.* \([0-9.]*\) .*/\1/'): fsync on, synchronous_commit on (off for lock_election-async), shared_buffers 256 MB, the rest default"
		echo "shared memory: $(sql "SELECT round(sum(allocated_size)) FROM pg_shmem_allocations WHERE name LIKE 'lock_election%'") bytes for $(sql "SELECT sum(setting::int) FROM pg_settings WHERE name IN ('max_connections', 'autovacuum_max_workers', 'max_worker_processes', 'max_wal_senders')") processes"
		;;
	esac
	case " $servers " in *" etcd "*) echo "etcd: $("$PEERS_DIR/etcd/etcd" --version | sed -n 's/^etcd Version: //p; s/^Go Version: /built by /p' | paste -sd ' '), server and client, default settings (fdatasync of its log before each answer)" ;; esac
	case " $servers " in *" zookeeper "*) echo "ZooKeeper: $(jar_version zookeeper), default settings (forceSync yes), tickTime 2000; Curator $(jar_version curator-recipes), $(java -version 2>&1 | sed -n '1s/ version//p')" ;; esac
	case " $servers " in *" redis"*) echo "Redis: $(redis_version redis-server), appendonly yes, appendfsync always; redis-everysec: appendfsync everysec; redis-memory: without persistence" ;; esac
	case " $servers " in *" valkey "*) echo "Valkey: $(redis_version "$PEERS_DIR/valkey/valkey-server"), appendonly yes, appendfsync always" ;; esac
	[ -z "$skipped" ] || printf 'skipped: %s\n' "$why_skipped"
}
