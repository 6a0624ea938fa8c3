# Managers and servers that end repeatedly: leases that are not renewed still end, renewed leases are kept, and a
# renewal returns the time that would be left after a crash.
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

# Ends the manager or crashes the server once the manager has recorded this uptime.
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
	is(held(), 'blocks dead lease place term', "$what: all locks, places and leases exist");

	# The lifetime of the manager that granted them is not recorded and does not count. The other managers live for less
	# than 3 s each.
	my ($lives, $renewed) = (0, 0);
	while (held() ne 'blocks' && $lives < 9)
	{
		live($lives == 0 ? 0 : 2000, $crash);
		$holder = session($node);
		$renewed++ if $holder->query("SELECT renew_lock('kept', $kept) BETWEEN '1 s' AND '$ttl s'") eq 't';
		$lives++;
	}
	is(held(), 'blocks', "$what: leases that are not renewed end after $lives managers");
	cmp_ok($lives, '>=', 2, "$what: they do not end before their TTL");
	is($renewed, $lives, "$what: each renewal of a renewed lease succeeds");
	is(one("SELECT is_held('kept', $kept)"), 't', "$what: the renewed lock is held");
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	nothing_left($node, "$what: no entry is left over");
}

# The WAL is not flushed: a renewal still succeeds, and returns the time that would be left after a crash.
subtest 'a renewal whose row is not flushed' => sub {
	my $token = $holder->query(q{SELECT acquire_lock('unflushed', '20 s', owner => 'w1')});
	my $writer = one(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'});
	my ($told, $at, $left);

	one(q{SELECT pg_terminate_backend(pid) FROM lock_election.manager});
	wait_for_sql($node, 'SELECT uptime >= 1500 FROM _lock_election.meta');
	kill 'STOP', $writer;
	$at = time;
	$told = $holder->query("SELECT extract(epoch FROM renew_lock('unflushed', $token))");
	cmp_ok(time - $at, '<', 15, 'a renewal returns although its row is not flushed');
	cmp_ok($told, '<', 18.6, 'a renewal that is not flushed returns less than the TTL, by the uptime of the manager');
	cmp_ok($told, '>', 1, 'a renewal that is not flushed returns more than zero');
	$node->stop('immediate');
	kill 'CONT', $writer;
	$node->start;
	wait_for_sql($node, 'SELECT count(*) FROM lock_election.manager', 1);
	$left = one(q{SELECT extract(epoch FROM time_left) FROM lock_election.locks WHERE name = 'unflushed'});
	cmp_ok(time + $left, '>=', $at + $told, 'after the crash, the lease is still valid for the returned time');
	cmp_ok($left, '<', 19.5, 'after the crash, the lease is valid for less than the TTL');

	$holder = session($node);
	is($holder->query("SELECT renew_lock('unflushed', $token)"), '00:00:20',
		'a renewal that is flushed returns the whole TTL');
	$node->stop('immediate');
	$node->start;
	wait_for_sql($node, 'SELECT count(*) FROM lock_election.manager', 1);
	cmp_ok(one(q{SELECT extract(epoch FROM time_left) FROM lock_election.locks WHERE name = 'unflushed'}), '>', 15, 'a crash does not shorten a lease whose renewal is flushed');
	$holder = session($node);
	is($holder->query("SELECT release_lock('unflushed', $token)"), 't', 'the lock is released');
	nothing_left($node);
};

# In normal operation, renewals write no rows, and the uptime is not recorded.
subtest 'rows written by renewals' => sub {
	my $lease = $holder->query(q{SELECT grant_lease('20 s')});

	# Wait until the rows of ended entries are deleted.
	wait_for_sql($node, 'SELECT count(*) FROM _lock_election.slot', 0);
	my $rows = one('SELECT rows_written FROM lock_election.stat');
	my $meta = one('SELECT ctid FROM _lock_election.meta');

	is($holder->query("SELECT keep_alive($lease)"), '00:00:20', 'keep_alive() returns the whole TTL') foreach 1 .. 10;
	$holder->query('SELECT pg_sleep(1.5)');
	is(one('SELECT rows_written FROM lock_election.stat'), $rows, 'ten renewals write no rows');
	is(one('SELECT ctid FROM _lock_election.meta'), $meta, 'the uptime is not recorded');
	my $pid = manager();
	one("SELECT pg_terminate_backend($pid)");
	wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
	$holder->query("SELECT keep_alive($lease)") foreach 1 .. 10;
	is(one('SELECT rows_written FROM lock_election.stat'), $rows + 1,
		'after a restart of the manager, the first of ten renewals writes a row');
	$holder->query("SELECT revoke_lease($lease)");
	nothing_left($node);
};

$holder->quit;
done_testing();
