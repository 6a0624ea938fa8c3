# Starts a temporary cluster for the demo and the benchmark. The clean-up of the script that called le_run stops it. It
# listens only on a socket in its own directory, so any port works; a port that is unused elsewhere is chosen, so that
# the output is easier to read.
#
#   server_start NAME 'more lines of postgresql.conf'    afterwards psql and pgbench connect to it
#
# With ENGINE=portable, the portable edition is installed by an ordinary role, and the library is not loaded.

server_start()
{
	local dir=$LE_RUN/work/$1
	mkdir -p -m 700 "$dir"
	initdb -D "$dir/data" -A trust -U postgres -E UTF8 --locale=C.UTF-8 --no-instructions >"$dir/initdb.log" 2>&1 ||
		{ cat "$dir/initdb.log" >&2; return 1; }
	export PGHOST=$dir PGUSER=postgres PGDATABASE=postgres PGCONNECT_TIMEOUT=10
	PGPORT=$(perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1")->sockport')
	export PGPORT
	cat >>"$dir/data/postgresql.conf" <<-CONF
		shared_preload_libraries = '$([ "${ENGINE:-c}" = portable ] || echo lock_election)'
		listen_addresses = ''
		unix_socket_directories = '$dir'
		port = $PGPORT
		log_line_prefix = '%m [%p] %b '
		$2
	CONF
	SERVER_LOG=$dir/server.log
	pg_ctl -D "$dir/data" -l "$SERVER_LOG" -w -s start || { tail -n 20 "$SERVER_LOG" >&2; return 1; }
	if [ "${ENGINE:-c}" = portable ]; then
		psql -Xq -c 'CREATE ROLE installer LOGIN' -c 'GRANT CREATE ON DATABASE postgres TO installer' &&
			PGUSER=installer PGOPTIONS='-c _lock_election.schema=locks' psql -Xq1 -v ON_ERROR_STOP=1 -o /dev/null \
				-f sql/portable/lock_election.sql &&
			psql -Xqc 'ALTER DATABASE postgres SET search_path = "$user", public, locks' \
				-c "ALTER DATABASE postgres SET idle_in_transaction_session_timeout = '30 s'" # for fences
	else
		psql -Xqc 'CREATE EXTENSION lock_election'
	fi
}
