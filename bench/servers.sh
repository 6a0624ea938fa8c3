# The servers of the benchmark: throw-away instances in $dir, each with its default settings and with its changes on disk
# before they are answered. All listen on 127.0.0.1, for a local socket is not to be had with all of them.
#
#   start_SERVER    afterwards its programs find it; stop_servers ends them all

declare -A server_pid

free_port()
{
	perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1")->sockport'
}

# until SECONDS PID COMMAND...: waits until COMMAND succeeds
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

# launch NAME COMMAND...: in the background, its output in $dir/NAME.log
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

# The first start is without a network: the password comes before the port.
start_postgres()
{
	. test/lib/server.sh
	server_start postgres "
		max_connections = 250
		shared_buffers = 256MB"
	export PGPASSWORD=$password
	psql -Xqc "ALTER ROLE postgres PASSWORD '$password'"
	printf 'local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n' >"$PGHOST/data/pg_hba.conf"
	echo "listen_addresses = '127.0.0.1'" >>"$PGHOST/data/postgresql.conf"
	pg_ctl -D "$PGHOST/data" -l "$SERVER_LOG" -w -s restart
	PGDATA_DIR=$PGHOST/data
	export PGHOST=127.0.0.1
	server_pid[postgres]=$(head -n 1 "$PGDATA_DIR/postmaster.pid")
	psql -Xq -v ON_ERROR_STOP=1 <<-SQL
		CREATE TABLE table_lock (name text PRIMARY KEY, owner text NOT NULL, expires_at timestamptz NOT NULL);
		SELECT release_lock('first', acquire_lock('first'));
	SQL
}

# redis NAME LINES: an instance with these lines of configuration
start_redis_with()
{
	local name=$1 port
	port=$(free_port)
	mkdir -p -m 700 "$dir/$name"
	cat >"$dir/$name/redis.conf" <<-CONF
		bind 127.0.0.1
		port $port
		dir $dir/$name
		requirepass $password
		set-proc-title no
		save ""
		$2
	CONF
	launch "$name" redis-server "$dir/$name/redis.conf"
	up_or_fail "$name" listening "$port"
	redis_port[$name]=$port
}

declare -A redis_port

start_redis()
{
	start_redis_with redis "appendonly yes
		appendfsync always"
}

start_redis-memory()
{
	start_redis_with redis-memory "appendonly no"
}

# Room for a million locks: its limit for the size of the database is 2 GB by default.
start_etcd()
{
	local port peer
	port=$(free_port)
	peer=$(free_port)
	launch etcd etcd --name bench --data-dir "$dir/etcd" --log-level error --quota-backend-bytes 8589934592 \
		--listen-client-urls "http://127.0.0.1:$port" --advertise-client-urls "http://127.0.0.1:$port" \
		--listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
		--initial-cluster "bench=http://127.0.0.1:$peer"
	up_or_fail etcd listening "$port"
	export ETCD_ENDPOINT=127.0.0.1:$port
}

# tickTime as in Debian's and in ZooKeeper's own sample; forceSync is on by default.
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
	launch zookeeper java -cp "$java_classpath" org.apache.zookeeper.server.quorum.QuorumPeerMain "$dir/zookeeper/zoo.cfg"
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

# Memory of its own, in bytes: what is not files and not shared.
anonymous_memory()
{
	awk '/^RssAnon/ { print $2 * 1024 }' "/proc/$1/status"
}
