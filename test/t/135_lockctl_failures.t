# lockctl when a system call fails, and when the server disappears while lockctl waits, renews or releases.
# Promises: -
# Needs: lockctl
use strict;
use warnings;
use Cwd;
use LeClient;
use LeCtl;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
ctl_node($node);
my $dir = PostgreSQL::Test::Utils::tempdir_short();
my ($rc, $out, $err);

# Options that make the N-th call of a function, and all later ones, fail in lockctl or lockctl-guard. Uses the build
# without sanitizers, because a sanitizer would have to be loaded before this library.
system_or_bail('make', '-s', 'build/refuse.so');
sub refusing { my ($call, %more) = @_; return { %more, plain => 1, env => { LD_PRELOAD => getcwd() . '/build/refuse.so', LE_REFUSE => $call, %{ $more{env} // {} } } }; }

subtest 'a system call fails' => sub {
	my $why = 'Function not implemented';
	my @lock = ('lock', 'x', '--', 'echo', 'ran');
	append_to_file("$dir/shards", "one dbname=postgres\n");

	foreach my $case (
		# the exit code, and the output
		[ 'lockctl nothing 1', 0, '' ],
		[ 'lockctl socketpair 1', 126, "lockctl: socketpair failed: $why\n" ],
		[ 'lockctl fork 1', 126, "lockctl: cannot fork: $why\n" ],
		[ 'lockctl-guard fork 1', 126, "lockctl: cannot fork: $why\n" ],
		[ 'lockctl signalfd 1', 69, "lockctl: signalfd failed\n", 'acquire', 'x' ],
		[ 'lockctl setenv 1', 126, "lockctl: out of memory\n" ],
		[ 'lockctl setenv 2', 126, "lockctl: out of memory\n" ],
		[ 'lockctl-guard setenv 1', 126, '' ],
		[ 'lockctl unsetenv 1', 126, "lockctl: out of memory\n", 'lock', 'x', '--and', 'y', '--', 'echo', 'ran' ],
		[ 'lockctl calloc 1', 69, "lockctl: out of memory\n" ],
		[ 'lockctl realloc 1', 69, "lockctl: out of memory\n", '-S', "$dir/shards", 'shard', 'x' ],
		[ 'lockctl socket 1', 64, qq{lockctl: --http: cannot listen on "127.0.0.1:1": $why\nTry "lockctl elect --help".\n}, 'elect', 'x', 'y', '--http', '127.0.0.1:1' ])
	{
		my ($call, $code, $told, @args) = @$case;

		($rc, $out, $err) = ctl(refusing($call), @args ? @args : @lock);
		is("$rc $out$err", "$code " . ($code ? '' : "ran\n") . $told, $call);
	}
	foreach my $call (qw(signalfd timerfd_create prctl))
	{
		# the guardian can exit before or after lockctl checks for it
		($rc, $out, $err) = ctl(refusing("lockctl-guard $call 1"), @lock);
		my $told = "lockctl: cannot guard a command: $why\n";
		like("$rc $out$err", qr/\A(?:126 $told|137 ${told}lockctl: the guardian was killed: ending the command\n)\z/, "$call: the command does not run without a guardian");
	}
	($rc, $out, $err) = ctl(refusing('lockctl open 1', wrap => [ 'sh', '-c', 'exec "$0" "$@" <&-' ]), @lock);
	is("$rc $out$err", "126 lockctl: cannot open /dev/null: $why\n", 'open fails while the standard input is closed');
	nothing_left($node);
};

# The guardian ends the command on a kernel without pidfd, and if it has no memory for its list of processes.
subtest 'the command is ended although a call of the guardian fails' => sub {
	my $tells = q{if [ $1 = child ]; then setsid sh "$0" grandchild & fi; trap 'echo $1; exit' TERM; echo ready; while :; do sleep 0.05; done};
	append_to_file("$dir/tells", $tells);
	my $c = start_ctl(refusing('lockctl-guard pidfd_open 1'), 'lock', 'x', '--ttl', '1h', '--', 'sh', "$dir/tells", 'child');
	ok(wait_until(sub { $c->out =~ /ready\nready/ }), 'the command and its grandchild in another session run') or diag($c->err);
	# a stopped process receives SIGTERM, and is continued
	my $guardian = $c->guardian;
	kill 'STOP', child_of($guardian);
	$c->kill('KILL');
	$c->wait;
	ok(wait_until(sub { !alive($guardian) }), 'without pidfd, the guardian exits');
	is(join(' ', sort grep { $_ ne 'ready' } split ' ', $c->out), 'child grandchild',
		'without pidfd, both processes receive SIGTERM');
	one(q{SELECT force_release_lock('x')});
	# processes that ignore SIGTERM
	$c = start_ctl(refusing('lockctl-guard pidfd_open 1'), 'lock', 'x', '--ttl', '1h', '--grace', '100ms', '--', 'sh', '-c',
		"trap '' TERM; setsid sleep 1000 & echo \$!; sleep 1000");
	ok(wait_until(sub { $c->out =~ /^\d+\n/ }), 'a command that ignores SIGTERM runs');
	my ($pid) = $c->out =~ /(\d+)/;
	$c->kill('KILL');
	$c->wait;
	ok(wait_until(sub { !alive($pid) }), 'without pidfd, a process that ignores SIGTERM is killed');
	one(q{SELECT force_release_lock('x')});
	($rc, $out, $err) = ctl(refusing('lockctl-guard realloc 1'), 'lock', 'x', '--at-most', '1s', '--grace', '100ms', '--', 'sh', "$dir/tells", 'alone');
	is("$rc $out", "124 ready\n", 'without memory for the list, the command is killed immediately');
	unlike($err, qr/guardian/, 'without memory for the list, the guardian is not reported as dead');
  SKIP:
	{
		skip 'no control group (cgroup v2) of our own', 2 unless own_cgroup();
		($rc, $out) = ctl(refusing('lockctl-guard clone3 1', cgroup => 'ours'), 'lock', 'x', '--', 'cat', '/proc/self/cgroup');
		is($rc, 0, 'without clone3, the command runs');
		unlike($out, qr/lockctl-/, 'without clone3, the command has no control group of its own');
	}
	nothing_left($node);
};

# The socket of the server is renamed: existing connections continue.
subtest 'a wait is interrupted, and the server cannot be reached' => sub {
	my $port = $node->port;
	my $real = $node->host . "/.s.PGSQL.$port";

	one(q{SELECT acquire_lock('x', '1 h')});
	foreach my $verbose (0, 1)
	{
		symlink $real, "$dir/.s.PGSQL.$port" or die $!;
		my $c = start_ctl($verbose ? '-v' : (), '-h', $dir, 'acquire', 'x');
		wait_waiting('x');
		is(one(q{SELECT application_name FROM pg_stat_activity WHERE query LIKE 'SELECT public.acquire_lock%'}), 'lockctl', 'application_name is lockctl');
		unlink "$dir/.s.PGSQL.$port" or die $!;
		$c->kill('CONT');
		$c->kill('INT');
		ok(wait_until(sub { $c->err =~ /^lockctl: PQcancel.* failed: .*[^n]$/m }),
			'-v prints that PQcancel has failed') || diag($c->err) if $verbose;
		# Repeats the signal, because two signals at the same time would be one.
		ok(wait_until(sub { $c->kill('TERM') if !$c->ended; return $c->ended; }),
			'the second signal ends lockctl immediately');
		like($c->wait, qr/^1(?:30|43)$/, 'the exit code is that of a signal');
		is($c->err, '', 'without -v, nothing is printed') if !$verbose;
		wait_for_sql($node, 'SELECT count(*) = 0 FROM lock_election.waiters');
	}
	# A grant that arrives after the signal is not reported.
	symlink $real, "$dir/.s.PGSQL.$port" or die $!;
	my $c = start_ctl('-v', '-h', $dir, 'acquire', 'x');
	wait_waiting('x');
	unlink "$dir/.s.PGSQL.$port" or die $!;
	$c->kill('INT');
	ok(wait_until(sub { $c->err =~ /PQcancel/ }), 'the cancel after SIGINT has failed');
	one(q{SELECT force_release_lock('x')});
	is($c->wait . $c->signal . $c->out, '1302', 'no token is printed if the lock is granted after the signal');
	is(one('SELECT count(*) FROM lock_election.locks WHERE mode IS NOT NULL'), 0,
		'a lock granted after the signal is released');
	nothing_left($node);
};

# The server's limit is lowered while the command runs, so that the release with --hold-for fails.
subtest '--hold-for is rejected at the release' => sub {
	my $c = start_ctl('lock', 'x', '--hold-for', '1h', '--', 'sh', '-c', "echo ready; while [ ! -e $dir/shorter ]; do sleep 0.05; done; exit 7");
	ok(wait_until(sub { $c->out =~ /ready/ }), 'the lock is held');
	$node->append_conf('postgresql.conf', "lock_election.max_hold_for = '1min'");
	$node->reload;
	wait_for_sql($node, q{SELECT current_setting('lock_election.max_hold_for') = '1min'});
	append_to_file("$dir/shorter", '');
	is($c->wait, 7, 'the exit code is that of the command');
	like($c->err, qr/^lockctl: lock "x" was released without --hold-for: .*hold_for/m, 'the error says that the lock was released without --hold-for');
	nothing_left($node);
};

subtest 'a lease is kept alive' => sub {
	chomp(my $lease = (ctl('lease', 'grant', '--ttl', '6s'))[1]);
	my $c = start_ctl('lease', 'keep-alive', $lease);
	my $kept = sub { return wait_for_sql($node, "SELECT time_left > '5 s' FROM lock_election.leases WHERE lease = $lease"); };
	my $session = q{SELECT pid FROM pg_stat_activity WHERE application_name = 'lockctl' AND query ~ 'keep_alive'};

	wait_for_sql($node, "SELECT count(*) = 1 FROM ($session) s");
	my $first = one($session);
	$c->kill('CONT');
	one("SELECT pg_terminate_backend($first)");
	ok(wait_until(sub { $c->err =~ /^lockctl: lease $lease was not renewed: ./m }), 'keep-alive reports that the renewal has failed') or diag($c->err);
	unlike($c->err, qr/\\n/, 'the message is a single line');
	wait_for_sql($node, "SELECT count(*) = 1 FROM ($session AND pid <> $first) s");
	$kept->();
	ok(!$c->ended, 'keep-alive continues with another session');
	freeze($node);
	ok(wait_until(sub { $c->err =~ /^lockctl: lease $lease was not renewed: no answer$/m }), 'keep-alive reports a server that does not reply') or diag($c->err);
	thaw($node);
	$c->kill('INT');
	is($c->wait . $c->signal, '1302', 'SIGINT ends keep-alive');
	ctl('lease', 'revoke', $lease);

	chomp($lease = (ctl('lease', 'grant', '--ttl', '3s'))[1]);
	$c = start_ctl('lease', 'keep-alive', $lease);
	wait_for_sql($node, "SELECT count(*) = 1 FROM ($session) s");
	freeze($node);
	is($c->wait(60), 4, 'keep-alive exits with 4 if the server does not reply within the TTL');
	like($c->err, qr/^lockctl: lease $lease has ended$/m, 'keep-alive reports that the lease has ended');
	thaw($node);
	nothing_left($node);
};

subtest 'a queue place is lost' => sub {
	one(q{SELECT acquire_lock('x', '1 h')});
	my $c = start_ctl('lock', 'x', '--ttl', '1s', '--', 'echo', 'ran');
	wait_waiting('x');
	$c->kill('STOP');
	wait_waiting('x', 0);
	$c->kill('CONT');
	wait_waiting('x');
	ok(wait_until(sub { $c->err =~ /^lockctl: the queue place was lost; waiting again for lock "x"$/m }), 'lockctl reports that it waits again');
	one(q{SELECT force_release_lock('x')});
	is($c->wait . $c->out, "0ran\n", 'lockctl is granted after it has waited again');
	nothing_left($node);
};

subtest 'a lock cannot be released' => sub {
	my $c = start_ctl('lock', 'x', '--ttl', '1h', '--', 'sh', '-c', "echo ready; while [ ! -e $dir/end ]; do sleep 0.05; done; exit 7");
	ok(wait_until(sub { $c->out =~ /ready/ }), 'the lock is held');
	my $waiter = start_ctl('acquire', 'x');
	wait_waiting('x');
	$node->stop('immediate');
	is($waiter->wait, 69, 'a waiting acquire exits with 69');
	like($waiter->err, qr/^lockctl: .*(?:terminat|closed the connection)/, 'the waiting acquire prints the error');
	append_to_file("$dir/end", '');
	is($c->wait(60), 7, 'the exit code is that of the command');
	like($c->err, qr/^lockctl: lock "x" was not released: (?!.*keeps trying)\S.*; it expires after its TTL at the latest$/m, 'the error says that the lock was not released');
	unlike($c->err, qr/\\n/, 'the error has no escaped line feeds');
	$node->start;
	one(q{SELECT force_release_lock('x')});
	nothing_left($node);
};

$node->stop;
done_testing();
