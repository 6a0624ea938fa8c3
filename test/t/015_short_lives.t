# Managers and servers that end again and again: leases that are not renewed still end, renewed leases are kept, and a
# renewal reports how much time a crash would leave.
# Promises: L, D
use strict;
use warnings;
use LeTest;
use Test::More;
use Time::HiRes qw(time);

my $ttl = 6;
my $node = new_node('main', conf => "autovacuum = off\n");
my $holder = session($node);

sub manager
{
	return one('SELECT pid FROM lock_election.manager');
}

# The manager runs until so much of that is recorded, and ends; or the whole server crashes.
sub live
{
	my ($ms, $crash) = @_;
	my $pid = manager();

	wait_for_sql($node, "SELECT uptime >= $ms FROM _lock_election.meta");
	if ($crash)
	{
		$node->stop('immediate');
		$node->start;
	}
	else
	{
		one("SELECT pg_terminate_backend($pid)");
	}
	wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager") if !$crash;
	wait_for_sql($node, 'SELECT count(*) FROM lock_election.manager', 1);
	return;
}

sub held
{
	return one(q{SELECT string_agg(DISTINCT name, ' ' ORDER BY name) FROM (SELECT name FROM lock_election.locks
		UNION ALL SELECT 'lease' FROM lock_election.leases UNION ALL SELECT 'place' FROM lock_election.waiters
		UNION ALL SELECT 'term' FROM lock_election.elections) t WHERE name <> 'kept'});
}

foreach my $crash (0, 1)
{
	my $what = $crash ? 'the server crashes' : 'the manager ends';

	$holder = session($node);
	$holder->query("SELECT acquire_lock('dead', '$ttl s', owner => 'w1')");
	$holder->query("SELECT acquire_lock('blocks', '1 h', owner => 'w1')");
	$holder->query("SELECT token FROM enqueue_lock('blocks', '$ttl s', owner => 'w2')");
	$holder->query("SELECT grant_lease('$ttl s')");
	$holder->query("SELECT campaign('term', 'me', '$ttl s', owner => 'w1')");
	my $kept = $holder->query("SELECT acquire_lock('kept', '$ttl s', owner => 'w3')");
	is(held(), 'blocks dead lease place term', "$what: all is there");

	# the life of the grants takes nothing off, and records nothing; of the others less than 3 s each
	my ($lives, $renewed) = (0, 0);
	while (held() ne 'blocks' && $lives < 9)
	{
		live($lives == 0 ? 0 : 2000, $crash);
		$holder = session($node);
		$renewed++ if $holder->query("SELECT renew_lock('kept', $kept) BETWEEN '1 s' AND '$ttl s'") eq 't';
		$lives++;
	}
	is(held(), 'blocks', "$what: what nobody renews ends, after $lives lives");
	cmp_ok($lives, '>=', 2, "$what: not before its TTL");
	is($renewed, $lives, "$what: what is renewed is kept");
	is(one("SELECT is_held('kept', $kept)"), 't', "$what: and held");
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	nothing_left($node, "$what: nothing is left behind");
}

# Nobody flushes: a renewal is answered all the same, and tells what a crash would leave.
subtest 'a renewal whose row is not flushed' => sub {
	my $token = $holder->query(q{SELECT acquire_lock('unflushed', '20 s', owner => 'w1')});
	my $writer = one(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'});
	my ($told, $at, $left);

	one(q{SELECT pg_terminate_backend(pid) FROM lock_election.manager});
	wait_for_sql($node, 'SELECT uptime >= 1500 FROM _lock_election.meta');
	kill 'STOP', $writer;
	$at = time;
	$told = $holder->query("SELECT extract(epoch FROM renew_lock('unflushed', $token))");
	cmp_ok(time - $at, '<', 15, 'is answered');
	cmp_ok($told, '<', 18.6, 'it is valid for less: what managers have run is taken off');
	cmp_ok($told, '>', 1, 'and not for nothing');
	$node->stop('immediate');
	kill 'CONT', $writer;
	$node->start;
	wait_for_sql($node, 'SELECT count(*) FROM lock_election.manager', 1);
	$left = one(q{SELECT extract(epoch FROM time_left) FROM lock_election.locks WHERE name = 'unflushed'});
	cmp_ok(time + $left, '>=', $at + $told, 'after the crash, that is there');
	cmp_ok($left, '<', 19.5, 'but not all of the TTL');

	$holder = session($node);
	is($holder->query("SELECT renew_lock('unflushed', $token)"), '00:00:20', 'a renewal that is flushed is valid for all of it');
	$node->stop('immediate');
	$node->start;
	wait_for_sql($node, 'SELECT count(*) FROM lock_election.manager', 1);
	cmp_ok(one(q{SELECT extract(epoch FROM time_left) FROM lock_election.locks WHERE name = 'unflushed'}), '>', 15, 'and a crash leaves it');
	$holder = session($node);
	is($holder->query("SELECT release_lock('unflushed', $token)"), 't', 'released');
	nothing_left($node);
};

# In normal operation a renewal writes nothing, and nothing is recorded.
subtest 'what is written' => sub {
	my $lease = $holder->query(q{SELECT grant_lease('20 s')});

	# the rows of what has ended go
	wait_for_sql($node, 'SELECT count(*) FROM _lock_election.slot', 0);
	my $rows = one('SELECT rows_written FROM lock_election.stat');
	my $meta = one('SELECT ctid FROM _lock_election.meta');

	is($holder->query("SELECT keep_alive($lease)"), '00:00:20', 'a renewal') foreach 1 .. 10;
	$holder->query('SELECT pg_sleep(1.5)');
	is(one('SELECT rows_written FROM lock_election.stat'), $rows, 'writes nothing');
	is(one('SELECT ctid FROM _lock_election.meta'), $meta, 'nor does the time');
	my $pid = manager();
	one("SELECT pg_terminate_backend($pid)");
	wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
	$holder->query("SELECT keep_alive($lease)") foreach 1 .. 10;
	is(one('SELECT rows_written FROM lock_election.stat'), $rows + 1, 'after a restart the first of them does');
	$holder->query("SELECT revoke_lease($lease)");
	nothing_left($node);
};

$holder->quit;
done_testing();
