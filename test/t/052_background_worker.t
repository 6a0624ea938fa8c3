# A background worker without a client, such as that of pg_cron with cron.use_background_workers: all its statements run
# in one transaction, and the server knows only the current statement.
# Promises: F
# Needs: faults
use strict;
use warnings;
use LeTest;
use Test::More;

my $node = new_node('main', faults => 1);
my ($a, $b, $c) = map { session($node) } 1 .. 3;

$a->query(q{
	CREATE FUNCTION fault_worker(sql text) RETURNS void LANGUAGE c STRICT AS 'lock_election', 'le_fault_worker';
	CREATE TABLE t (v int)});

# The advisory lock 1 stops the worker in the middle of its transaction.
foreach my $release (q{release_lock('r', %d)}, q{release_locks('{r}', %d)})
{
	my $token = $a->query(q{SELECT acquire_lock('r', '1 h')});
	my $call = sprintf $release, $token;

	$c->query('SELECT pg_advisory_lock(1)');
	my $sql = ($call =~ s/'/''/gr) . '; SELECT pg_advisory_xact_lock(1); INSERT INTO t VALUES (1)';
	$a->query("SELECT fault_worker('SELECT $sql')");
	wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'lock_election test' AND wait_event_type = 'Lock'}, '1');
	is($c->query("SELECT is_held('r', $token), try_acquire_lock('r')"), 't|', "$call: held until the worker's transaction ends");
	$b->async(q{SELECT acquire_lock('r')});
	wait_for_sql($node, q{SELECT count(*) FROM lock_election.waiters}, '1');
	$c->query('SELECT pg_advisory_unlock(1)');
	like($b->wait, qr/^\d+$/, q{the lock is granted to the waiter when the worker's transaction ends});
	is($b->query('SELECT count(*) FROM t'), '1', 'the next holder sees the rows that the worker has written');
	$b->query(q{SELECT release_lock('r')});
	$b->query('TRUNCATE t');
}

nothing_left($node);
$_->quit foreach $a, $b, $c;
$node->stop;
done_testing();
