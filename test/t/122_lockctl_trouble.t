# lockctl with problems: no server, a wrong password, no library; a promoted standby; many processes.
# Promises: -
# Needs: lockctl
use strict;
use warnings;
use Cwd;
use IO::Socket::INET;
use LeCtl;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', init => [ allows_streaming => 1 ], conf => "fsync = on\n");
ctl_node($node);
my $dir = PostgreSQL::Test::Utils::tempdir();
my ($rc, $out, $err);

subtest 'no server' => sub {
	my $port = PostgreSQL::Test::Cluster::get_free_port();

	my @elect = ('elect', 'x', 'y', '--', 'true');
	foreach my $args ([ 'lock', 'x', 'true' ], \@elect, ['locks'], [ 'acquire', 'x' ], ['top'], ['watch'], [ 'elect', '-l', 'x' ])
	{
		($rc, $out, $err) = ctl('-p', $port, @$args);
		is($rc, 69, "69: @$args");
		like($err, qr/^lockctl: .*(No such file or directory|Connection refused)/, 'the error of libpq is printed');
	}
	($rc, $out, $err) = ctl('-p', $port, 'doctor');
	is($rc, 1, 'doctor without a server exits with 1');
	like($out, qr/^WRONG +connection .*\n +-> set -h/m, 'doctor advises to set -h');
	# A server that accepts the connection and never replies. Elements 2 and 3 of times: CPU times of children that
	# have ended.
	my $deaf = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 5) or die $!;
	my ($user, $system) = (times)[ 2, 3 ];
	my $connstr = 'host=127.0.0.1 connect_timeout=5 port=' . $deaf->sockport;
	is(ctl('-d', $connstr, 'lock', 'x', 'true'), 69, 'a server that never replies');
	cmp_ok((times)[2] + (times)[3] - $user - $system, '<', 0.2, 'waiting for the server uses no CPU time');
	is(ctl('-h', 'nowhere.invalid', 'lock', 'x', 'true'), 69, 'no such host');
	is(ctl('-d', 'nothing', 'lock', 'x', 'true'), 69, 'no such database');
};

subtest 'a full disk' => sub {
	($rc, $out, $err) = ctl({ stdout => '/dev/full' }, 'lock', 'full', '--ttl', '1h');
	is($rc, 1, 'lock: a token that cannot be printed');
	like($err, qr/^lockctl: cannot write the output: No space left on device\n/, 'lock: the error names the full disk');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM lock_election.locks WHERE name = 'full' AND mode IS NOT NULL}), '0', 'lock: the lock is released');

	foreach my $format ('table', 'json', 'csv')
	{
		($rc, $out, $err) = ctl({ stdout => '/dev/full' }, '-o', $format, 'acquire', 'full', '--ttl', '1h');
		is($rc, 1, "acquire -o $format: a token that cannot be printed");
		like($err, qr/^lockctl: cannot write the output: No space left on device\n/,
			"acquire -o $format: the error names the full disk");
		is($node->safe_psql('postgres', q{SELECT count(*) FROM lock_election.locks WHERE name = 'full' AND mode IS NOT NULL}), '0', "acquire -o $format: the lock is released");
	}
	chomp(my $token = (ctl('acquire', 'full', '--ttl', '1h', '--owner', 'me'))[1]);
	is(ctl({ stdout => '/dev/full' }, 'acquire', 'full', '--ttl', '1h', '--owner', 'me'), 1, 'a second hold of the same owner: the token cannot be printed');
	is($node->safe_psql('postgres', q{SELECT holds FROM lock_election.locks WHERE name = 'full' AND mode IS NOT NULL}), '1', 'only the second hold is released');
	is(ctl('release', 'full', $token), 0, 'the first hold is released with its token');
	is(ctl({ stdout => '/dev/full' }, 'lease', 'grant'), 1, 'lease grant: a lease that cannot be printed');
	is(ctl({ stdout => '/dev/full' }, @$_), 1, "@$_") foreach ['--version'], ['--help'], [ 'help', 'lock' ];
	is($node->safe_psql('postgres', q{SELECT count(*) FROM lock_election.leases}), '0', 'the lease is revoked');
};

subtest 'closed standard files' => sub {
	# as "rc output errors"
	my $run = sub {
		my ($closed, @args) = @_;
		local %ENV = (%ENV, ctl_env());
		($out, $err) = run_command([ 'sh', '-c', qq{timeout 60 "\$0" "\$@" $closed; echo rc \$?}, getcwd() . "/$lockctl", @args ]);
		return "$out $err";
	};
	my $bad = qr/^rc 1 lockctl: cannot write the output: Bad file descriptor$/;

	like($run->('>&-', 'acquire', 'shut', '--ttl', '1h'), $bad, 'acquire: a token that cannot be printed');
	like($run->('>&-', 'lock', 'shut', '--ttl', '1h'), $bad, 'lock without a command');
	like($run->('>&-', 'lease', 'grant'), $bad, 'lease grant');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM lock_election.locks WHERE mode IS NOT NULL'), '0', 'the locks are released');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM lock_election.leases'), '0', 'the lease is revoked');
	like($run->('>&-', 'locks'), $bad, 'locks');
	is($run->('>&-', 'lock', 'shut', '--', 'sh', '-c', 'exit 7'), 'rc 7 ', 'a command that prints nothing');
	like($run->('>&-', 'lock', 'shut', '--', 'sh', '-c', 'echo lost'), qr/^rc [^0].*: .*(Bad file descriptor|I\/O error)/, 'the command inherits the closed standard output');
	is($run->('2>&-', 'acquire', 'shut', '--try', '--ttl', '1h') =~ /^\d+\nrc 0 $/, 1,
		'acquire with a closed standard error');
	is($run->('2>&-', 'acquire', 'shut', '--try', '-v'), 'rc 3 ',
		'acquire -v with a closed standard error, not acquired');
	is($run->('<&-', 'release', '--force', '--now', '-q', 'shut'), "1\nrc 0 ", 'release with a closed standard input');
	is($run->('<&- >&- 2>&-', 'lock', 'shut', 'true'), 'rc 0 ', 'lock with all three closed');
	nothing_left($node);
};

subtest 'a wrong password' => sub {
	$node->safe_psql('postgres', q{CREATE ROLE secret LOGIN PASSWORD 'right'; CREATE ROLE nobody_special LOGIN});
	my $hba = slurp_file($node->data_dir . '/pg_hba.conf');
	append_to_file($node->data_dir . '/pg_hba.new', "local all secret scram-sha-256\n$hba");
	rename $node->data_dir . '/pg_hba.new', $node->data_dir . '/pg_hba.conf' or die $!;
	$node->reload;
	local $ENV{PGPASSWORD} = 'wrong';
	foreach my $args ([ 'lock', 'x', 'true' ], ['locks'])
	{
		ok( wait_until(
				sub {
					($rc, $out, $err) = ctl('-U', 'secret', @$args);
					return $rc == 69 && $err =~ /password authentication failed/;
				}),
			"69: @$args")
		  or diag($err);
	}
	$ENV{PGPASSWORD} = 'right';
	is(ctl('-U', 'secret', 'lock', 'x', 'true'), 0, 'the right password');
	my $host = $node->host;
	my $connstr = "host=$host user=secret password=right dbname=postgres";
	is(ctl('-d', $connstr, 'lock', 'x', 'true'), 0, 'a connection string');
	my $uri = "postgresql://secret:right@/postgres?host=$host";
	is(ctl('-d', $uri, '-p', $node->port, 'lock', 'x', 'true'), 0, 'a URI, and -p');
	my @right = ('-h', $host, '-p', $node->port, '-U', 'secret');
	is(ctl('-d', 'host=/nowhere port=1 user=nobody_at_all dbname=postgres', @right, 'locks'), 0,
		'-h, -p and -U override the connection string');

	# The command line, which every user can see.
	my $arguments = sub { return slurp_file("/proc/$_[0]/cmdline") =~ tr/\0/ /r; };
	foreach my $case (
		[ [ '-d', $connstr, 'lock', 'seen' ], qr/ -d \*+ lock seen -- sleep 1000 $/ ],
		[ [ "--dbname=$uri", '-p', $node->port, 'lock', 'seen' ], qr/ --dbname=\*+ -p \d+ lock seen -- / ],
		[ [ 'lock', 'seen', '-d', $connstr ], qr/ lock seen -d \*+ -- / ],
		[ [ 'lock', 'seen', '-d', "dbname=postgres user=secret host=$host sslpassword=right" ], qr/ -d \*+ -- / ],
		[ [ 'lock', 'seen', '-d', "dbname=postgres user=secret host=$host" ], qr/ -d dbname=postgres user=secret host=\S+ -- / ],
		[ [ '-d', 'postgres', 'lock', 'seen' ], qr/ -d postgres lock seen / ])
	{
		my ($args, $seen) = @$case;
		my $c = start_ctl(@$args, '--', 'sleep', '1000');

		wait_held('seen');
		foreach my $pid ($c->pid, $c->guardian)
		{
			like($arguments->($pid), $seen, 'the visible command line');
			unlike($arguments->($pid), qr/right/, 'the command line does not contain the password');
		}
		$c->kill('TERM');
		is($c->wait, 143, 'lockctl had connected with the password');
	}
	delete $ENV{PGPASSWORD};
	append_to_file("$dir/passwords", "*:*:*:secret:right\n");
	chmod 0600, "$dir/passwords" or die $!;
	is(ctl({ env => { PGPASSFILE => "$dir/passwords" } }, '-U', 'secret', 'lock', 'x', 'true'), 0, 'PGPASSFILE');
};

subtest 'another role' => sub {
	my $token = $node->safe_psql('postgres', q{SELECT acquire_lock('root''s')});
	($rc, $out, $err) = ctl('-U', 'nobody_special', 'release', q{root's}, $token);
	is($rc, 69, 'another role cannot release');
	like($err, qr/permission denied|role/, 'the error names the missing right');
	is(ctl('-U', 'nobody_special', 'release', '--force', q{root's}), 69, 'another role cannot release by force');
	($rc, $out) = ctl('-U', 'nobody_special', '-o', 'json', 'locks');
	like($out, qr/"name":"root's".*"token":null/, 'another role sees the name, but not the token');
	is(ctl('release', q{root's}, $token), 0, 'the owner can release');
	nothing_left($node);

	# what doctor can and cannot see as this role
	my $doctor = qr{^ok +workers +an unknown number of \d+ worker processes are used$}m;
	like((ctl('-U', 'nobody_special', 'doctor'))[1], $doctor,
		'doctor: the role cannot see how many processes are used');
	like((ctl('-U', 'nobody_special', 'doctor'))[1], qr/^ok +rights +nobody_special may call what a lock needs$/m, 'doctor: the role can use locks');
	$node->safe_psql('postgres', 'REVOKE EXECUTE ON FUNCTION grant_lease, is_held FROM PUBLIC');
	is(ctl('-U', 'nobody_special', 'lock', 'x', 'true'), 69, 'a role without all rights cannot lock');
	($rc, $out) = ctl('-U', 'nobody_special', 'doctor');
	like("$rc $out", qr/^0 .*^note +rights +lockctl and the clients cannot use locks as nobody_special, which may not call grant_lease, is_held\n +-> GRANT EXECUTE/ms, 'doctor names the missing rights');
	$node->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION grant_lease, is_held TO PUBLIC');
};

subtest 'no extension, no library' => sub {
	$node->safe_psql('postgres', 'CREATE DATABASE plain');
	foreach my $args ([ 'lock', 'x', 'true' ], ['locks'], [ 'acquire', 'x' ], ['status'])
	{
		($rc, $out, $err) = ctl('-d', 'plain', @$args);
		is($rc, 69, "69: @$args");
		like($err, qr/CREATE EXTENSION/, 'the error names CREATE EXTENSION');
	}
	($rc, $out, $err) = ctl('-d', 'plain', 'doctor');
	is($rc, 1, 'doctor without the extension exits with 1');
	like($out, qr/^WRONG +extension .*\n +-> CREATE EXTENSION lock_election/m, 'doctor advises CREATE EXTENSION');

	my $without = new_node('without', extension => 0, conf => "shared_preload_libraries = ''\n");
	my ($o, $e);
	$without->psql('postgres', 'CREATE EXTENSION lock_election', stderr => \$e);
	ctl_node($without);
	($rc, $out, $err) = ctl('lock', 'x', 'true');
	is($rc, 69, '69 without the library');
	like($err, qr/shared_preload_libraries|CREATE EXTENSION/, 'the error names the missing step');
	($rc, $out, $err) = ctl('doctor');
	is($rc, 1, 'doctor without the library exits with 1');
	like($out, qr/^WRONG +preload .*\n +-> .*shared_preload_libraries/m,
		'doctor advises to set shared_preload_libraries');
	($rc, $out, $err) = ctl('-o', 'json', 'doctor');
	my $count = 'SELECT count(*) > 3 FROM json_array_elements($q$' . $out . '$q$)';
	is($node->safe_psql('postgres', $count), 't', 'doctor without the library, as JSON');
	$without->stop;
	ctl_node($node);
	($rc, $out, $err) = ctl('doctor');
	is("$rc $err", '0 ', 'doctor exits with 0 if everything is fine') or diag($out);
	like($out, qr/^ok +waits .*^ok +counters/ms, 'doctor: waits and counters are ok');
	like($out, qr/^ok +health +locks are granted here$/m, 'doctor: health() is ok');

	$node->append_conf('postgresql.conf', 'lock_election.min_durability = remote');
	$node->reload;
	wait_for_sql($node, 'SELECT NOT ok FROM lock_election.health()');
	($rc, $out, $err) = ctl('doctor');
	is($rc, 1, 'doctor exits with 1 if nothing is granted');
	like($out, qr/^WRONG +health +no synchronous standby is defined.*\n +-> /m,
		'doctor prints the problem of health()');
	$node->append_conf('postgresql.conf', 'lock_election.min_durability = off');
	$node->reload;
	wait_for_sql($node, 'SELECT ok FROM lock_election.health()');
};

subtest 'the doctor finds a hung holder' => sub {
	# The server is stopped for an hour of its clock; this library sets its time of day.
	my $late = new_node('late', start => 0);
	my $clock = "$dir/clock";
	system_or_bail('make', '-s', 'build/clock.so');
	my $start = sub {
		local $ENV{LD_PRELOAD} = getcwd() . '/build/clock.so';
		local $ENV{LE_CLOCK} = $clock;
		append_to_file("$clock.new", pack('q', $_[0]));
		rename("$clock.new", $clock) or die $!;
		$late->start;
	};
	$start->(0);
	$late->safe_psql('postgres', 'CREATE EXTENSION lock_election');
	$late->safe_psql('postgres', "SELECT acquire_lock('a job', '10 h'); SELECT enqueue_lock('a job', '10 h')");
	ctl_node($late);
	($rc, $out, $err) = ctl('doctor');
	like($out, qr/^ok +waits /m, 'a short wait is ok');
	$late->stop;
	$start->(3600);
	($rc, $out, $err) = ctl('doctor');
	my $said = qr/somebody has waited 01:0\d:\d\d for lock 'a job', held by role \S+ since .*, process \d+, not connected/;
	like($out, qr/^note +waits +$said\n +-> if it hangs: lockctl release --force 'a job'$/m, 'doctor names the lock and the holder of a long wait');

	# A name with characters that a terminal or a shell could interpret is not printed.
	$late->safe_psql('postgres', "SELECT force_release_lock('a job') FROM generate_series(1, 2)");
	$late->safe_psql('postgres', q{SELECT acquire_lock(E'x\'; \e[2Jrm', '10 h'); SELECT enqueue_lock(E'x\'; \e[2Jrm', '10 h')});
	$late->stop;
	$start->(7200);
	($rc, $out, $err) = ctl('doctor');
	like($out, qr/^note +waits +.* for lock \(see lock_election.waiters\), held .*\n +-> look at lock_election.waiters and /m, 'doctor refers to the view instead of a name that a shell could interpret');
	unlike($out, qr/rm|\e/, 'the name is not printed');
	$late->stop;
	ctl_node($node);
};

subtest 'the doctor does not wait for a manager that hangs' => sub {
	my $manager = $node->safe_psql('postgres', 'SELECT pid FROM lock_election.manager');
	kill 'STOP', $manager;
	my $doctor = start_ctl('doctor');
	my $rc = $doctor->wait(60);
	kill 'CONT', $manager;
	is($rc, 1, 'doctor exits');
	like($doctor->out, qr/^WRONG +waits +the manager does not return the waiters: .*statement timeout/m, 'doctor reports that the manager does not return the waiters');
	like($doctor->out, qr/^ok +clock /m, 'doctor runs the remaining checks');
};

subtest '50 processes add 1 to a number in a file' => sub {
	append_to_file("$dir/sum", "0\n");
	# Reads, lets other processes run, and writes: without the lock, most of the additions would be lost.
	my @add = ('sh', '-c', 'read n <"$0"; sleep 0.005; echo $((n + 1)) >"$0"', "$dir/sum");
	my @processes = map { start_ctl('lock', 'sum', '--', @add) } 1 .. 50;
	is(join(' ', map { $_->wait(120) } @processes), join(' ', (0) x 50), 'all processes exit with 0');
	is(slurp_file("$dir/sum"), "50\n", 'no addition is lost');
	nothing_left($node);
};

subtest 'a standby is promoted' => sub {
	$node->backup('copy');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'copy', has_streaming => 1);
	$standby->start;
	($rc, $out, $err) = ctl('-h', $standby->host, '-p', $standby->port, 'doctor');
	like($out, qr/standby: it shows locks, and grants none/, 'doctor reports a standby');
	my @both = ('-h', $node->host . ',' . $standby->host, '-p', $node->port . ',' . $standby->port);
	my @until_file = ('sh', '-c', 'echo started; while [ ! -e "$0" ]; do sleep 0.05; done; exit 7', "$dir/end");
	my $holder = start_ctl(@both, 'lock', 'x', '--ttl', '20s', '--', @until_file);
	ok(wait_until(sub { $holder->out =~ /started/ }), 'the lock is held');
	my $waiter = start_ctl(@both, 'lock', 'x', '--ttl', '20s', '--', 'echo', 'granted');
	wait_waiting('x');
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	$node->stop('immediate');
	$standby->promote;
	ctl_node($standby);
	wait_for_sql($standby, q{SELECT count(*) = 1 FROM lock_election.locks WHERE time_left > '15 s'});
	my $renewed = $standby->safe_psql('postgres', q{SELECT token FROM lock_election.locks});
	# The lease survives the promotion: the lock is held for longer than the TTL.
	ok(!$holder->ended, 'the holder continues after the promotion');
	wait_for_sql($standby, q{SELECT count(*) >= 2 FROM pg_stat_activity WHERE query ~ 'lease_sync' AND pid <> pg_backend_pid()});
	is($waiter->out, '', 'the waiter still waits');
	append_to_file("$dir/end", '');
	is($holder->wait, 7, "the holder exits with its command's code");
	is($waiter->wait . $waiter->out, "0granted\n", 'the waiter is granted after the holder');
	nothing_left($standby);
	$standby->stop;
};

done_testing();
