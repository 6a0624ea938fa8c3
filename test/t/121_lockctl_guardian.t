# The command is dead before another process can acquire the lock, whatever happens to lockctl, the guardian or the
# server. The command and the next holder write times to one file, by a clock that both share.
# Promises: M
# Needs: lockctl
use strict;
use warnings;
use LeClient;
use LeCtl;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = ctl_network_node();
my $dir = PostgreSQL::Test::Utils::tempdir();

subtest 'lockctl is killed' => sub {
	my ($file, $first, $second) = two();
	$first->kill('KILL');
	is($first->wait, 137, 'lockctl is dead');
	one_after_the_other($file, $second);
};

# The guardian sees the end of lockctl, and does not wait for the deadline.
subtest 'lockctl is killed, long before the deadline' => sub {
	my $file = "$dir/long";
	my $first = start_ctl('lock', 'long', '--ttl', '1h', '--grace', '100ms', '--', stamps('first', $file));
	wait_until(sub { (ran($file, 'first'))[0] }) or die $first->err;
	my (undef, undef, $pid) = ran($file, 'first');
	$first->kill('KILL');
	$first->wait;
	ok(wait_until(sub { !alive($pid) }), 'the command is killed');
	$node->safe_psql('postgres', q{SELECT force_release_lock('long')});
};

subtest 'lockctl is stopped' => sub {
	my ($file, $first, $second) = two();
	$first->kill('STOP');
	one_after_the_other($file, $second);
	$first->kill('CONT');
	is($first->wait, 4, 'a continued lockctl exits with 4');
	like($first->err, qr/lock "$contended" (is lost|could not be renewed in time)/,
		'the error of the continued lockctl');
};

# If lockctl has renewed its lease, the deadline of the last renewal counts.
subtest 'lockctl is stopped after renewals' => sub {
	my ($file, $first, $second) = two();
	my ($start) = ran($file, 'first');
	ok(wait_until(sub { (ran($file, 'first'))[1] > $start + $short_ttl }),
		'the command has run for longer than the TTL');
	$first->kill('STOP');
	one_after_the_other($file, $second);
	$first->kill('CONT');
	is($first->wait, 4, 'a lockctl that is continued after renewals exits with 4');
};

subtest 'lockctl and its command are stopped' => sub {
	my ($file, $first, $second) = two();
	$first->kill('STOP');
	kill 'STOP', (ran($file, 'first'))[2];
	one_after_the_other($file, $second);
	$first->kill('CONT');
	is($first->wait, 4, 'a lockctl that is continued after its command was stopped exits with 4');
};

subtest 'a grandchild in a session of its own' => sub {
	# The child exits immediately. Its child, in its own session, is adopted by the guardian.
	my ($file, $first, $second) = two(
		command => sub {
			my @stamps = stamps('first', $_[0], before => 'use POSIX; exit if fork; POSIX::setsid(); exit if fork');
			my $stamps = join ' ', map { s/'/'\\''/gr =~ s/^|$/'/gr } @stamps;
			return ('sh', '-c', "trap '' TERM; $stamps & while :; do sleep 0.1; done");
		});
	my (undef, undef, $pid) = ran($file, 'first');
	isnt((split ' ', slurp_file("/proc/$pid/stat"))[5], getpgrp, 'the grandchild has another session');
	is((split ' ', slurp_file("/proc/$pid/stat"))[3], $first->guardian, 'the guardian is the parent of the grandchild');
	$first->kill('KILL');
	$first->wait;
	one_after_the_other($file, $second);
};

subtest 'the guardian is stopped, and --at-most has passed' => sub {
	my $locks = q{SELECT count(*) FROM lock_election.locks WHERE name = 'at most' AND mode IS NOT NULL};
	my $start = boottime();
	my $first = start_ctl('lock', 'at most', '--at-most', '4s', '--ttl', '6s', '--grace', '1500ms', '--', 'sleep', '1000');

	wait_for_sql($node, $locks, '1');
	kill 'STOP', $first->guardian;
	is($first->wait, 124, 'lockctl ends the command and exits with 124');
	cmp_ok(boottime() - $start, '>=', 4 + 1.5 + 0.5,
		'lockctl waits for the grace and half a second first, because the guardian should end the command');
	is($node->safe_psql('postgres', $locks), '0', 'lockctl releases the lock after --at-most');
};

subtest 'the guardian is killed' => sub {
	my ($file, $first, $second) = two();
	kill 'KILL', $first->guardian;
	is($first->wait, 137, 'the command is killed when the guardian is killed');
	like($first->err, qr/the guardian was killed/, 'the error says that the guardian was killed');
	one_after_the_other($file, $second);
};

subtest 'SIGTERM comes first' => sub {
	my ($file, $first, $second) = two(
		command => sub {
			my $stamp = q{echo "first $(cut -d" " -f1 /proc/uptime) $$" >>"$0"};
			return ('sh', '-c', "trap 'echo term; exit 0' TERM; $stamp; while :; do sleep 0.02; done", $_[0]);
		});
	my $guardian = $first->guardian;
	$first->kill('STOP');
	ok(wait_until(sub { $first->out eq "term\n" }), 'the guardian sends SIGTERM to the command');
	ok(wait_until(sub { !alive($guardian) }), 'the guardian exits after the command');
	ok(wait_until(sub { (ran($file, 'second'))[0] }), 'the second lockctl is granted the lock');
	$first->kill('CONT');
	is($first->wait, 4, 'exit code 4 for a lost lock, even if the command has exited with 0');
	my $pid = (ran($file, 'second'))[2];
	$second->kill('KILL');
	$second->wait;
	ok(wait_until(sub { !alive($pid) }), 'the second command is dead');
	$node->safe_psql('postgres', "SELECT force_release_lock('$contended')");
};

subtest 'the server does not reply' => sub {
	# only the guardian can find the grandchild
	my ($file, $first) = two(alone => 1,
		command => sub { return stamps('first', $_[0], before => 'use POSIX; if (fork) { sleep 1000 } POSIX::setsid()'); });
	freeze($node);
	my $frozen = boottime();
	is($first->wait, 4, 'lockctl exits with 4 if the server does not reply');
	my ($start, $end, $pid) = ran($file, 'first');
	ok(!alive($pid), 'the process that the command has started is dead');
	cmp_ok($end - $frozen, '<', $short_ttl, 'the process has ended before the TTL has passed');
	like($first->err, qr/lock "$contended" (is lost|could not be renewed)/,
		'the error says that the lock was lost or could not be renewed');
	thaw($node);
	nothing_left($node, undef, timeout => 30);
};

# Packets are dropped without an error. The second lockctl does not use that network.
subtest 'the network is cut' => sub {
	plan skip_all => 'no network of our own' unless can_silence();
	my $address = '10.97.0.1';

	add_host($address);
	my ($file, $first, $second) = two(options => [ '-h', $address ]);
	silence_host($address);
	is($first->wait, 4, 'lockctl exits with 4 if its network is cut');
	like($first->err, qr/lock "$contended" (is lost|could not be renewed)/,
		'the error says that the lock was lost or could not be renewed');
	one_after_the_other($file, $second);
};

subtest 'the lock is released by force' => sub {
	my ($file, $first, $second) = two();
	$node->safe_psql('postgres', "SELECT force_release_lock('$contended')");
	is($first->wait, 4, 'lockctl exits with 4 after a release by force');
	ok(!alive((ran($file, 'first'))[2]), 'the command is dead when lockctl exits');
	like($first->err, qr/is lost.*the command was killed/, 'the error says that the command was killed');
	my $pid = (ran($file, 'second'))[2];
	$second->kill('KILL');
	$second->wait;
	$node->safe_psql('postgres', "SELECT force_release_lock('$contended')");
};

subtest 'a restart of the server' => sub {
	my ($file, $first) = two(alone => 1, options => [ '--ttl', '10s' ]);
	$node->restart;
	wait_held("$contended");
	my $end = (ran($file, 'first'))[1];
	ok(wait_until(sub { (ran($file, 'first'))[1] > $end + 1 }),
		'the command continues to run after a restart of the server');
	kill 'KILL', (ran($file, 'first'))[2];
	is($first->wait, 137, 'the exit code is that of the command');
	nothing_left($node);
};

$node->stop;
done_testing();
