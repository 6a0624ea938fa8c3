# Nothing can be written, because a table is locked (behind a reader or not) or a disk is full. Renewals, reads and
# fences succeed, requests that must write fail, health() reports the reason, and nothing is lost.
# Promises: A, D, L
use strict;
use warnings;
use LeTest;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', conf => "autovacuum = off\n");
my ($holder, $reader, $vacuum, $other) = map { session($node) } 1 .. 4;
my $problem = q{SELECT ok, problem, blocked_by, cannot_write_since IS NOT NULL FROM lock_election.health()};

# A reader keeps the table, VACUUM FULL queues behind it, and every writer behind that.
subtest 'VACUUM FULL behind a reader' => sub {
	my $token = $holder->query(q{SELECT acquire_lock('job', '5 s', owner => 'w1')});
	my $term = $holder->query(q{SELECT campaign('boss', 'me', '5 s')});
	my $lease = $holder->query(q{SELECT grant_lease('5 s')});
	my $place = $other->query(q{SELECT token FROM enqueue_lock('job', '5 s')});
	my $failed = one('SELECT failed_batches FROM lock_election.stat');

	$reader->query('BEGIN; LOCK TABLE _lock_election.slot IN ACCESS SHARE MODE');
	$vacuum->async('VACUUM FULL _lock_election.slot');
	wait_for_sql($node, 'SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND pid = ' . $vacuum->pid);
	my ($start, $answers, $refused) = (time, 0, 0);
	while (time - $start < 8)
	{
		$other->query(q{SELECT acquire_lock('another', '1 h')});
		$refused++ if $other->error =~ /ERROR:  55P03: the tables of extension lock_election are locked/;
		# also the session that was just refused
		$answers++ if $holder->query("SELECT renew_lock('job', $token) = '5 s', renew_leadership('boss', $term) = '5 s', keep_alive($lease) = '5 s'") eq 't|t|t'
			and $other->query("SELECT is_held('job', $token), await_lock('job', $place), is_leader('boss', $term)") eq 't|f|t'
			and $holder->query("BEGIN; SELECT count(*) FROM (SELECT fence_lock('job', $token)) f; COMMIT") eq 1
			and one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'job'}) eq 1
			and one(q{SELECT candidate FROM current_leader('boss')}) eq 'me';
	}
	cmp_ok($refused, '>', 1, 'what has to write is refused, again and again');
	is($answers, $refused, 'all else is answered each time');
	is(one($problem), 'f|nothing can be written: process ' . $vacuum->pid . ' has locked the tables of lock_election, or waits to|' . $vacuum->pid . '|t', 'health() tells it');
	is(one('SELECT failed_batches FROM lock_election.stat'), $failed, 'no batch was thrown away');
	$reader->query('ROLLBACK');
	$vacuum->wait;
	is($vacuum->error, '', 'the table is written anew');
	is($other->query(q{SELECT acquire_lock('another', '1 h', wait => '20 s') IS NOT NULL}), 't', 'and all goes on');
	wait_for_sql($node, $problem, 't|||f');
	is($holder->query("SELECT is_held('job', $token), is_leader('boss', $term), keep_alive($lease) IS NOT NULL"), 't|t|t', 'what was renewed is there');
	$holder->query("SELECT release_lock('job', $token), resign('boss', $term), revoke_lease($lease)");
	is($other->query("SELECT await_lock('job', $place, '20 s')"), 't', 'the place that was renewed is granted');
	$other->query("SELECT release_lock('job', $place), release_lock('another')");
	nothing_left($node);
};

# What is answered is not taken back, what is told is true, and what has ended meanwhile ends afterwards.
subtest 'waits, releases and rollbacks' => sub {
	my ($waiter, $open) = map { session($node) } 1 .. 2;

	my $token = $holder->query(q{SELECT acquire_lock('x', '2 min')});
	$open->query(q{BEGIN; SELECT acquire_lock('rolled back', '1 h')});
	$waiter->async(q{SELECT acquire_lock('x', '1 h', wait => '3 s') IS NULL});
	wait_for_waiters(1, 'x');
	$reader->query('BEGIN; LOCK TABLE _lock_election.slot IN SHARE MODE');
	$other->query(q{SELECT acquire_lock('y', '1 h')});
	like($other->error, qr/ERROR:  55P03/, 'nothing can be written');
	is($waiter->wait, 't', 'a wait that is over is answered');
	is($waiter->query("SELECT is_held('x', $token)"), 't', 'and its session goes on');
	is($holder->query("SELECT release_lock('x', $token)"), 't', 'a release is answered');
	is($other->query("SELECT is_held('x', $token)"), 'f', 'and seen by all, though it cannot be written');
	is($other->query("SELECT renew_lock('x', $token) IS NULL"), 't', 'it cannot be renewed');
	$open->query('ROLLBACK');
	$reader->query('ROLLBACK');
	is($other->query(q{SELECT acquire_lock('x', '1 h', wait => '20 s') IS NOT NULL}), 't', 'then it is free');
	is($other->query(q{SELECT acquire_lock('rolled back', '1 h', wait => '20 s') IS NOT NULL}), 't', 'so is what was rolled back');
	is($waiter->query(q{SELECT try_acquire_lock('x') IS NULL}), 't', 'who had given up does not get it');
	$other->query(q{SELECT release_lock('x'), release_lock('rolled back')});
	$_->quit foreach $waiter, $open;
	nothing_left($node);
};

# The manager has not taken such a request: it must not be granted afterwards, when nobody waits for it.
subtest 'an acquire that is given up' => sub {
	my $given_up = session($node);

	$given_up->query(q{SET statement_timeout = '40 ms'});
	foreach (1 .. 5)
	{
		$reader->query('BEGIN; LOCK TABLE _lock_election.slot IN SHARE MODE');
		$given_up->query(q{SELECT acquire_lock('gone', '1 h')});
		$reader->query('ROLLBACK');
	}
	is($other->query(q{SELECT release_lock('later', acquire_lock('later', wait => '20 s'))}), 't', 'others go on');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'gone'}), 0, 'it holds nothing');
	$given_up->quit;
	nothing_left($node);
};

# A wait that was answered in an outage is over, whatever its session asks next.
subtest 'a wait that is over' => sub {
	my $waiter = session($node);
	my $token = $holder->query(q{SELECT acquire_lock('x', '1 h')});

	$waiter->async(q{SELECT acquire_lock('x', '1 h', wait => '2 s') IS NULL});
	wait_for_waiters(1, 'x');
	$reader->query('BEGIN; LOCK TABLE _lock_election.slot IN SHARE MODE');
	$other->query(q{SELECT acquire_lock('y', '1 h')});
	is($waiter->wait, 't', 'is answered');
	is($waiter->query("SELECT is_held('x', $token)"), 't', 'its session looks');
	$waiter->query(q{SELECT acquire_lock('z', '1 h')});
	like($waiter->error, qr/ERROR:  55P03/, 'and asks for another lock');
	$reader->query('ROLLBACK');
	is($holder->query("SELECT release_lock('x', $token)"), 't', 'the lock is released');
	is($waiter->query(q{SELECT release_lock('z', acquire_lock('z', wait => '20 s'))}), 't', 'the other one is granted');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name IN ('x', 'z') AND owner IS NOT NULL}), 0, 'nobody has it');
	$waiter->quit;
	nothing_left($node);
};

# A call that has only waited leaves nothing to undo: its session can renew what it holds.
subtest 'a wait that is cancelled' => sub {
	my $waiter = session($node);
	my $blocking = $other->query(q{SELECT acquire_lock('x', '1 h')});
	my $kept = $waiter->query(q{SELECT acquire_lock('kept', '1 h')});

	foreach my $case ([ 'a call', q{SELECT acquire_lock('x', '1 h')}, '' ],
		[ 'one in a subtransaction', q{BEGIN; SAVEPOINT s; SELECT acquire_lock('x', '1 h')}, 'ROLLBACK TO s; COMMIT' ],
		[ 'one that was answered before the rollback', q{BEGIN; SELECT acquire_lock('x', '1 h', wait => '2 s')}, 'ROLLBACK' ])
	{
		my ($what, $call, $end) = @$case;

		$waiter->async($call);
		wait_for_waiters(1, 'x');
		$reader->query('BEGIN; LOCK TABLE _lock_election.slot IN SHARE MODE');
		$holder->query(q{SELECT acquire_lock('y', '1 h')});
		like($holder->error, qr/ERROR:  55P03/, "$what: nothing can be written");
		one('SELECT pg_cancel_backend(' . $waiter->pid . ')') if $end ne 'ROLLBACK';
		is($waiter->wait, '', 'it has waited in vain');
		$waiter->query($end) if $end ne '';
		is($waiter->query("SELECT renew_lock('kept', $kept)"), '01:00:00', 'its session renews') or diag $waiter->error;
		$reader->query('ROLLBACK');
		is($holder->query(q{SELECT release_lock('z', acquire_lock('z', wait => '20 s'))}), 't', 'all goes on');
		is(one(q{SELECT count(*) FROM lock_election.waiters}), 0, 'and nobody waits');
	}
	is($other->query("SELECT release_lock('x', $blocking)"), 't', 'the lock is released');
	is($holder->query(q{SELECT release_lock('x', acquire_lock('x', wait => '20 s'))}), 't', 'and free');
	is($waiter->query("SELECT release_lock('kept', $kept)"), 't', 'what was kept is there');
	$waiter->quit;
	nothing_left($node);
};

# Changes of elections alone need the table of their history.
subtest 'a locked history' => sub {
	my $blocker = session($node);

	# an outage that has ended, by somebody else
	$reader->query('BEGIN; LOCK TABLE _lock_election.slot IN SHARE MODE');
	wait_until(sub { $other->query(q{SELECT acquire_lock('y', '1 h')}); return one($problem) =~ /\|@{[ $reader->pid ]}\|/ });
	$reader->query('ROLLBACK');
	is($other->query(q{SELECT release_lock('y', acquire_lock('y', wait => '20 s'))}), 't', 'all goes on');

	$blocker->query('BEGIN; LOCK TABLE _lock_election.history IN SHARE MODE');
	$other->query(q{SELECT campaign('boss', 'me', '1 h')});
	like($other->error, qr/ERROR:  55P03/, 'nobody can lead');
	is(one($problem), 'f|nothing can be written: process ' . $blocker->pid . ' has locked the tables of lock_election, or waits to|' . $blocker->pid . '|t', 'health() tells it');
	is($other->query(q{SELECT release_lock('y', acquire_lock('y'))}), 't', 'locks go on');
	$blocker->query('ROLLBACK');
	wait_for_sql($node, $problem, 't|||f');
	is($other->query(q{SELECT resign('boss', campaign('boss', 'me', '1 h'))}), 't', 'one can lead again');
	$blocker->quit;
	nothing_left($node);
};

# Leases are kept by whatever renews them, also where that has to write for another reason and is refused.
subtest 'renewals that write something else' => sub {
	my $token = $holder->query(q{SELECT acquire_lock('x', '3 s')});
	my $other_ttl = $holder->query(q{SELECT acquire_lock('y', '3 s')});
	my $place = $other->query(q{SELECT token FROM enqueue_lock('x', '3 s')});
	my ($start, $renewed, $refused) = (time, 0, 0);

	$reader->query('BEGIN; LOCK TABLE _lock_election.slot IN SHARE MODE');
	while (time - $start < 7)
	{
		$renewed++ if $holder->query("SELECT renew_lock('x', $token, '3 s')") eq '00:00:03';
		$holder->query("SELECT renew_lock('y', $other_ttl, '1 h')");
		$refused++ if $holder->error =~ /ERROR:  55P03/;
		$other->query("SELECT await_lock('x', $place, wait => '50 ms')");
	}
	cmp_ok($renewed, '>', 1, 'with the TTL that it has: renewed');
	is($refused, $renewed, 'with another one: refused');
	$reader->query('ROLLBACK');
	is($holder->query("SELECT release_lock('y', $other_ttl)"), 't', 'but kept');
	is($holder->query("SELECT release_lock('x', $token)"), 't', 'so is the other one');
	is($other->query("SELECT await_lock('x', $place, '20 s')"), 't', 'and the place');
	$other->query("SELECT release_lock('x', $place)");
	nothing_left($node);
};

# One request that cannot be written, for its row is locked, does not make an outage of a table lock that has gone.
subtest 'a locked row after a locked table' => sub {
	my $row = session($node);
	my $token = $holder->query(q{SELECT acquire_lock('row', '1 h')});

	$row->query("BEGIN; SELECT FROM _lock_election.slot WHERE token = $token FOR UPDATE");
	$holder->query("BEGIN; SELECT release_lock('row', $token)");
	$reader->query('BEGIN; LOCK TABLE _lock_election.queue IN SHARE MODE');
	$holder->query('COMMIT');
	like($holder->error, qr/WARNING:  01000/, 'a release that cannot be made');
	$reader->query('ROLLBACK');
	is($other->query(qq{SELECT release_lock('free $_', acquire_lock('free $_', wait => '20 s'))}), 't', 'others go on') foreach 1 .. 3;
	$row->query('ROLLBACK');
	$row->quit;
	nothing_left($node);
};

$_->quit foreach $holder, $reader, $vacuum, $other;
done_testing();
