# A release that its session has told by itself: whoever asks after that finds it made, whatever the manager does meanwhile.
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

my $node = new_node('main', faults => 1, conf => "autovacuum = off\n");
my ($a, $b, $c, $free) = map { session($node) } 1 .. 4;

sub fault { return $free->query("SELECT fault_$_[0]"); }

sub stop_at { my ($point, $pid) = @_; return fault("set('$point', 'wait', pid => " . ($pid // 0) . ')'); }

sub stopped
{
	my ($point) = @_;
	return wait_until(sub { fault("waiting('$point')") ne '0' }) || die "nobody comes to $point";
}

sub go_on { return fault("release('$_[0]')"); }

sub acquire { my ($s, $name, $ttl) = @_; return $s->query("SELECT acquire_lock('$name', $ttl)"); }

sub release { my ($s, $name, $token) = @_; return $s->query("SELECT release_lock('$name', $token)"); }

sub settle { return $c->query('SELECT count(*) FROM lock_election.locks'); }

# The manager has taken the stack with b's mail, and has not looked at it yet.
foreach my $point (qw(manager-took batch-horizon batch-rung))
{
	my $x = acquire($a, 'x', q{'1 min'});
	my $y = acquire($b, 'y', q{'1 min'});

	settle();
	sleep 0.05;
	stop_at($point);
	is(release($b, 'y', $y), 't', "$point: one release is told");
	stopped($point);
	is(release($a, 'x', $x), 't', 'and another one');
	$b->async(q{SELECT try_acquire_lock('x', '1 min')});
	sleep 0.1;
	go_on($point);
	my $token = $b->wait;
	like($token, qr/^\d+$/, 'and it is made for whoever asks after that');
	release($b, 'x', $token) if $token;
	nothing_left($node);
}

# The batch fails, and its requests are applied one by one.
{
	my $x = acquire($a, 'x', q{'1 min'});
	my $y = acquire($b, 'y', q{'1 min'});

	settle();
	stop_at('manager-took');
	$c->async(q{SELECT count(*) FROM lock_election.locks});
	stopped('manager-took');
	is(release($b, 'y', $y), 't', 'one release is told');
	is(release($a, 'x', $x), 't', 'and another one');
	$b->async(q{SELECT try_acquire_lock('x', '1 min')});
	sleep 0.1;
	fault(q{set('batch-begun', 'error', times => 1)});
	go_on('manager-took');
	$c->wait;
	my $token = $b->wait;
	like($token, qr/^\d+$/, 'it is made for whoever asks after that, also where the batch has failed') or diag $b->error;
	is(fault("hits('batch-begun')") > 1 ? 1 : 0, 1, 'which it has');
	release($b, 'x', $token) if $token;
	fault('clear()');
	nothing_left($node);
}

# A stop in order loses nothing that was told.
{
	my $x = acquire($a, 'x', q{'5 min'});
	my ($manager) = $c->query('SELECT pid FROM lock_election.manager');

	# the manager is about to take it
	kill 'STOP', $manager;
	is(release($a, 'x', $x), 't', 'a release is told');
	kill 'INT', $node->{_pid};
	sleep 0.1;
	kill 'CONT', $manager;
	wait_until(sub { !-e $node->data_dir . '/postmaster.pid' });
	$node->_update_pid(0);
	$node->start;
	my $left = $node->safe_psql('postgres', q{SELECT name FROM lock_election.locks WHERE mode IS NOT NULL});
	is($left, '', 'it is made over a stop of the server');
}
done_testing();
