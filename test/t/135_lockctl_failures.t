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

# In lockctl or lockctl-guard the N-th call of a function is refused, and so are all that follow.  It takes the place of a
# sanitizer, which has to be loaded before all else.
system_or_bail('make', '-s', 'build/refuse.so');
sub refusing { my ($call, %more) = @_; return { %more, plain => 1, env => { LD_PRELOAD => getcwd() . '/build/refuse.so', LE_REFUSE => $call, %{ $more{env} // {} } } }; }

subtest 'a call is refused' => sub {
	my $why = 'Function not implemented';
	my @lock = ('lock', 'x', '--', 'echo', 'ran');
	append_to_file("$dir/shards", "one dbname=postgres\n");

	foreach my $case (
		# the exit code, and what is told
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
		# it may end before lockctl looks for it, or later
		($rc, $out, $err) = ctl(refusing("lockctl-guard $call 1"), @lock);
		my $told = "lockctl: cannot guard a command: $why\n";
		like("$rc $out$err", qr/\A(?:126 $told|137 ${told}lockctl: the guardian was killed: ending the command\n)\z/, "$call: no guardian");
	}
	($rc, $out, $err) = ctl(refusing('lockctl open 1', wrap => [ 'sh', '-c', 'exec "$0" "$@" <&-' ]), @lock);
	is("$rc $out$err", "126 lockctl: cannot open /dev/null: $why\n", 'open, where the standard input is closed');
	nothing_left($node);
};

# Where the kernel knows no pidfd; and where there is no memory for a list of what is to be told.
subtest 'the command is ended all the same' => sub {
	my $tells = q{if [ $1 = child ]; then setsid sh "$0" grandchild & fi; trap 'echo $1; exit' TERM; echo ready; while :; do sleep 0.05; done};
	append_to_file("$dir/tells", $tells);
	my $c = start_ctl(refusing('lockctl-guard pidfd_open 1'), 'lock', 'x', '--ttl', '1h', '--', 'sh', "$dir/tells", 'child');
	ok(wait_until(sub { $c->out =~ /ready\nready/ }), 'a command, and one that it has started in a session of its own') or diag($c->err);
	# a process that is stopped is told, and goes on
	my $guardian = $c->guardian;
	kill 'STOP', child_of($guardian);
	$c->kill('KILL');
	$c->wait;
	ok(wait_until(sub { !alive($guardian) }), 'the guardian ends');
	is(join(' ', sort grep { $_ ne 'ready' } split ' ', $c->out), 'child grandchild', 'both have been told');
	one(q{SELECT force_release_lock('x')});
	# those that do not listen
	$c = start_ctl(refusing('lockctl-guard pidfd_open 1'), 'lock', 'x', '--ttl', '1h', '--grace', '100ms', '--', 'sh', '-c',
		"trap '' TERM; setsid sleep 1000 & echo \$!; sleep 1000");
	ok(wait_until(sub { $c->out =~ /^\d+\n/ }), 'one that ignores SIGTERM');
	my ($pid) = $c->out =~ /(\d+)/;
	$c->kill('KILL');
	$c->wait;
	ok(wait_until(sub { !alive($pid) }), 'is killed');
	one(q{SELECT force_release_lock('x')});
	($rc, $out, $err) = ctl(refusing('lockctl-guard realloc 1'), 'lock', 'x', '--at-most', '1s', '--grace', '100ms', '--', 'sh', "$dir/tells", 'alone');
	is("$rc $out", "124 ready\n", 'without a list it is killed at once');
	unlike($err, qr/guardian/, 'by the guardian');
  SKIP:
	{
		skip 'no control group (cgroup v2) of our own', 2 unless own_cgroup();
		($rc, $out) = ctl(refusing('lockctl-guard clone3 1', cgroup => 'ours'), 'lock', 'x', '--', 'cat', '/proc/self/cgroup');
		is($rc, 0, 'a kernel that cannot start a command in a control group');
		unlike($out, qr/lockctl-/, 'starts it in ours');
	}
	nothing_left($node);
};

# The socket of the server gets another name: what is connected stays so.
subtest 'a wait is interrupted, and the server cannot be reached' => sub {
	my $port = $node->port;
	my $real = $node->host . "/.s.PGSQL.$port";

	one(q{SELECT acquire_lock('x', '1 h')});
	foreach my $verbose (0, 1)
	{
		symlink $real, "$dir/.s.PGSQL.$port" or die $!;
		my $c = start_ctl($verbose ? '-v' : (), '-h', $dir, 'acquire', 'x');
		wait_waiting('x');
		is(one(q{SELECT application_name FROM pg_stat_activity WHERE query LIKE 'SELECT public.acquire_lock%'}), 'lockctl', 'its name in the server');
		unlink "$dir/.s.PGSQL.$port" or die $!;
		$c->kill('CONT');
		$c->kill('INT');
		ok(wait_until(sub { $c->err =~ /^lockctl: PQcancel.* failed: .*[^n]$/m }), 'which -v tells') || diag($c->err) if $verbose;
		# one may come before the other was taken: they would be one
		ok(wait_until(sub { $c->kill('TERM') if !$c->ended; return $c->ended; }), 'the second signal ends it at once');
		like($c->wait, qr/^1(?:30|43)$/, 'and it dies of it');
		is($c->err, '', 'without a word') if !$verbose;
		wait_for_sql($node, 'SELECT count(*) = 0 FROM lock_election.waiters');
	}
	# what comes after the signal nobody wants any more
	symlink $real, "$dir/.s.PGSQL.$port" or die $!;
	my $c = start_ctl('-v', '-h', $dir, 'acquire', 'x');
	wait_waiting('x');
	unlink "$dir/.s.PGSQL.$port" or die $!;
	$c->kill('INT');
	ok(wait_until(sub { $c->err =~ /PQcancel/ }), 'a signal');
	one(q{SELECT force_release_lock('x')});
	is($c->wait . $c->signal . $c->out, '1302', 'a lock that is granted after that is not told of');
	is(one('SELECT count(*) FROM lock_election.locks WHERE mode IS NOT NULL'), 0, 'and is given back');
	nothing_left($node);
};

# While the command runs the server begins to refuse that much.
subtest 'a lock cannot be kept closed' => sub {
	my $c = start_ctl('lock', 'x', '--hold-for', '1h', '--', 'sh', '-c', "echo ready; while [ ! -e $dir/shorter ]; do sleep 0.05; done; exit 7");
	ok(wait_until(sub { $c->out =~ /ready/ }), 'held');
	$node->append_conf('postgresql.conf', "lock_election.max_hold_for = '1min'");
	$node->reload;
	wait_for_sql($node, q{SELECT current_setting('lock_election.max_hold_for') = '1min'});
	append_to_file("$dir/shorter", '');
	is($c->wait, 7, 'the exit code is that of the command');
	like($c->err, qr/^lockctl: lock "x" was released without --hold-for: .*hold_for/m, 'it tells what has become of the lock');
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
	ok(wait_until(sub { $c->err =~ /^lockctl: lease $lease was not renewed: ./m }), 'the session is ended, which it tells') or diag($c->err);
	unlike($c->err, qr/\\n/, 'in one line');
	wait_for_sql($node, "SELECT count(*) = 1 FROM ($session AND pid <> $first) s");
	$kept->();
	ok(!$c->ended, 'it goes on with another one');
	freeze($node);
	ok(wait_until(sub { $c->err =~ /^lockctl: lease $lease was not renewed: no answer$/m }), 'a server that does not answer') or diag($c->err);
	thaw($node);
	$c->kill('INT');
	is($c->wait . $c->signal, '1302', 'it dies of a signal');
	ctl('lease', 'revoke', $lease);

	chomp($lease = (ctl('lease', 'grant', '--ttl', '3s'))[1]);
	$c = start_ctl('lease', 'keep-alive', $lease);
	wait_for_sql($node, "SELECT count(*) = 1 FROM ($session) s");
	freeze($node);
	is($c->wait(60), 4, 'no answer for as long as the lease can live');
	like($c->err, qr/^lockctl: lease $lease has ended$/m, 'which it tells');
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
	ok(wait_until(sub { $c->err =~ /^lockctl: the queue place was lost; waiting again for lock "x"$/m }), 'it tells that it waits again');
	one(q{SELECT force_release_lock('x')});
	is($c->wait . $c->out, "0ran\n", 'and has its turn');
	nothing_left($node);
};

subtest 'a lock cannot be given back' => sub {
	my $c = start_ctl('lock', 'x', '--ttl', '1h', '--', 'sh', '-c', "echo ready; while [ ! -e $dir/end ]; do sleep 0.05; done; exit 7");
	ok(wait_until(sub { $c->out =~ /ready/ }), 'held');
	my $waiter = start_ctl('acquire', 'x');
	wait_waiting('x');
	$node->stop('immediate');
	is($waiter->wait, 69, 'one that waits ends');
	like($waiter->err, qr/^lockctl: .*(?:terminat|closed the connection)/, 'and says why');
	append_to_file("$dir/end", '');
	is($c->wait(60), 7, 'the exit code is that of the command');
	like($c->err, qr/^lockctl: lock "x" was not released: (?!.*keeps trying)\S.*; it expires after its TTL at the latest$/m, 'it tells what it cannot do');
	unlike($c->err, qr/\\n/, 'in lines of its own');
	$node->start;
	one(q{SELECT force_release_lock('x')});
	nothing_left($node);
};

$node->stop;
done_testing();
