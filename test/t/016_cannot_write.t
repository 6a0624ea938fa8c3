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

# A reader locks the table. VACUUM FULL waits for the reader, and all writers wait for VACUUM FULL.
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
		# This also includes the session whose request was just rejected.
		$answers++ if $holder->query("SELECT renew_lock('job', $token) = '5 s', renew_leadership('boss', $term) = '5 s', keep_alive($lease) = '5 s'") eq 't|t|t'
			and $other->query("SELECT is_held('job', $token), await_lock('job', $place), is_leader('boss', $term)") eq 't|f|t'
			and $holder->query("BEGIN; SELECT count(*) FROM (SELECT fence_lock('job', $token)) f; COMMIT") eq 1
			and one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'job'}) eq 1
			and one(q{SELECT candidate FROM current_leader('boss')}) eq 'me';
	}
	cmp_ok($refused, '>', 1, 'requests that must write fail again and again');
	is($answers, $refused, 'all other requests succeed each time');
	is(one($problem), 'f|nothing can be written: process ' . $vacuum->pid . ' has locked the tables of lock_election, or waits to|' . $vacuum->pid . '|t', 'health() reports the process that locks the tables');
	is(one('SELECT failed_batches FROM lock_election.stat'), $failed, 'no batch failed');
	$reader->query('ROLLBACK');
	$vacuum->wait;
	is($vacuum->error, '', 'VACUUM FULL succeeds');
	is($other->query(q{SELECT acquire_lock('another', '1 h', wait => '20 s') IS NOT NULL}), 't',
		'an acquire succeeds after VACUUM FULL');
	wait_for_sql($node, $problem, 't|||f');
	is($holder->query("SELECT is_held('job', $token), is_leader('boss', $term), keep_alive($lease) IS NOT NULL"), 't|t|t', 'the renewed lock, leadership and lease still exist');
	$holder->query("SELECT release_lock('job', $token), resign('boss', $term), revoke_lease($lease)");
	is($other->query("SELECT await_lock('job', $place, '20 s')"), 't', 'the renewed place is granted the lock');
	$other->query("SELECT release_lock('job', $place), release_lock('another')");
	nothing_left($node);
};

# Replies are not revoked and are true, and entries that ended during the outage are written as ended afterwards.
subtest 'waits, releases and rollbacks' => sub {
	my ($waiter, $open) = map { session($node) } 1 .. 2;

	my $token = $holder->query(q{SELECT acquire_lock('x', '2 min')});
	$open->query(q{BEGIN; SELECT acquire_lock('rolled back', '1 h')});
	$waiter->async(q{SELECT acquire_lock('x', '1 h', wait => '3 s') IS NULL});
	wait_for_waiters(1, 'x');
	$reader->query('BEGIN; LOCK TABLE _lock_election.slot IN SHARE MODE');
	$other->query(q{SELECT acquire_lock('y', '1 h')});
	like($other->error, qr/ERROR:  55P03/, 'an acquire fails while a table is locked');
	is($waiter->wait, 't', 'a wait that times out during the outage returns NULL');
	is($waiter->query("SELECT is_held('x', $token)"), 't',
		'the session of the timed-out wait can read during the outage');
	is($holder->query("SELECT release_lock('x', $token)"), 't', 'a release during the outage returns true');
	is($other->query("SELECT is_held('x', $token)"), 'f',
		'other sessions see the release, even though it cannot be written');
	is($other->query("SELECT renew_lock('x', $token) IS NULL"), 't',
		'a lock released during the outage cannot be renewed');
	$open->query('ROLLBACK');
	$reader->query('ROLLBACK');
	is($other->query(q{SELECT acquire_lock('x', '1 h', wait => '20 s') IS NOT NULL}), 't',
		'the released lock is free after the outage');
	is($other->query(q{SELECT acquire_lock('rolled back', '1 h', wait => '20 s') IS NOT NULL}), 't',
		'the lock of the rolled-back transaction is free after the outage');
	is($waiter->query(q{SELECT try_acquire_lock('x') IS NULL}), 't',
		'the waiter that timed out is not granted the lock later');
	$other->query(q{SELECT release_lock('x'), release_lock('rolled back')});
	$_->quit foreach $waiter, $open;
	nothing_left($node);
};

# The manager did not take these requests. It must not grant them after the outage, because their calls have ended.
subtest 'an acquire whose call is cancelled' => sub {
	my $given_up = session($node);

	$given_up->query(q{SET statement_timeout = '40 ms'});
	foreach (1 .. 5)
	{
		$reader->query('BEGIN; LOCK TABLE _lock_election.slot IN SHARE MODE');
		$given_up->query(q{SELECT acquire_lock('gone', '1 h')});
		$reader->query('ROLLBACK');
	}
	is($other->query(q{SELECT release_lock('later', acquire_lock('later', wait => '20 s'))}), 't',
		'other sessions are granted locks after the outages');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'gone'}), 0,
		'the session whose calls were cancelled holds nothing');
	$given_up->quit;
	nothing_left($node);
};

# A wait that timed out during an outage has ended, whatever its session requests next.
subtest 'a wait that timed out during an outage' => sub {
	my $waiter = session($node);
	my $token = $holder->query(q{SELECT acquire_lock('x', '1 h')});

	$waiter->async(q{SELECT acquire_lock('x', '1 h', wait => '2 s') IS NULL});
	wait_for_waiters(1, 'x');
	$reader->query('BEGIN; LOCK TABLE _lock_election.slot IN SHARE MODE');
	$other->query(q{SELECT acquire_lock('y', '1 h')});
	is($waiter->wait, 't', 'the wait times out during the outage');
	is($waiter->query("SELECT is_held('x', $token)"), 't', 'the session of the timed-out wait can read');
	$waiter->query(q{SELECT acquire_lock('z', '1 h')});
	like($waiter->error, qr/ERROR:  55P03/,
		'the session of the timed-out wait cannot acquire another lock during the outage');
	$reader->query('ROLLBACK');
	is($holder->query("SELECT release_lock('x', $token)"), 't', 'the lock is released after the outage');
	is($waiter->query(q{SELECT release_lock('z', acquire_lock('z', wait => '20 s'))}), 't',
		'the other lock is granted after the outage');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name IN ('x', 'z') AND owner IS NOT NULL}), 0,
		'no lock is held by the session whose calls ended');
	$waiter->quit;
	nothing_left($node);
};

# A call that only waited leaves nothing to undo, so its session can renew its locks during the outage.
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
		like($holder->error, qr/ERROR:  55P03/, "$what: an acquire fails while the table is locked");
		one('SELECT pg_cancel_backend(' . $waiter->pid . ')') if $end ne 'ROLLBACK';
		is($waiter->wait, '', "$what: the wait ends without a grant");
		$waiter->query($end) if $end ne '';
		is($waiter->query("SELECT renew_lock('kept', $kept)"), '01:00:00',
			"$what: the session can renew its lock") or diag $waiter->error;
		$reader->query('ROLLBACK');
		is($holder->query(q{SELECT release_lock('z', acquire_lock('z', wait => '20 s'))}), 't',
			"$what: other sessions are granted locks after the outage");
		is(one(q{SELECT count(*) FROM lock_election.waiters}), 0, "$what: no waiter is left");
	}
	is($other->query("SELECT release_lock('x', $blocking)"), 't', 'the lock that blocked the waits is released');
	is($holder->query(q{SELECT release_lock('x', acquire_lock('x', wait => '20 s'))}), 't',
		'the lock is granted after the release');
	is($waiter->query("SELECT release_lock('kept', $kept)"), 't', 'the renewed lock is still held');
	$waiter->quit;
	nothing_left($node);
};

# Only changes of elections need the history table.
subtest 'a locked history' => sub {
	my $blocker = session($node);

	# An earlier outage, caused by another session.
	$reader->query('BEGIN; LOCK TABLE _lock_election.slot IN SHARE MODE');
	wait_until(sub { $other->query(q{SELECT acquire_lock('y', '1 h')}); return one($problem) =~ /\|@{[ $reader->pid ]}\|/ });
	$reader->query('ROLLBACK');
	is($other->query(q{SELECT release_lock('y', acquire_lock('y', wait => '20 s'))}), 't',
		'an acquire succeeds after the earlier outage');

	$blocker->query('BEGIN; LOCK TABLE _lock_election.history IN SHARE MODE');
	$other->query(q{SELECT campaign('boss', 'me', '1 h')});
	like($other->error, qr/ERROR:  55P03/, 'campaign() fails while the history table is locked');
	is(one($problem), 'f|nothing can be written: process ' . $blocker->pid . ' has locked the tables of lock_election, or waits to|' . $blocker->pid . '|t', 'health() reports the process that locks the history table');
	is($other->query(q{SELECT release_lock('y', acquire_lock('y'))}), 't',
		'locks work while the history table is locked');
	$blocker->query('ROLLBACK');
	wait_for_sql($node, $problem, 't|||f');
	is($other->query(q{SELECT resign('boss', campaign('boss', 'me', '1 h'))}), 't',
		'campaign() succeeds after the history table is unlocked');
	$blocker->quit;
	nothing_left($node);
};

# A renewal keeps its lease even if it must also write something else and is therefore rejected.
subtest 'renewals that must also write' => sub {
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
	cmp_ok($renewed, '>', 1, 'renewals with the current TTL succeed during the outage');
	is($refused, $renewed, 'renewals with another TTL are rejected during the outage');
	$reader->query('ROLLBACK');
	is($holder->query("SELECT release_lock('y', $other_ttl)"), 't',
		'the lock whose renewals were rejected is still held');
	is($holder->query("SELECT release_lock('x', $token)"), 't', 'the renewed lock is still held');
	is($other->query("SELECT await_lock('x', $place, '20 s')"), 't', 'the renewed place is granted the lock');
	$other->query("SELECT release_lock('x', $place)");
	nothing_left($node);
};

# One request that cannot be written because its row is locked must not prolong the outage of a table lock that has
# ended.
subtest 'a locked row after a locked table' => sub {
	my $row = session($node);
	my $token = $holder->query(q{SELECT acquire_lock('row', '1 h')});

	$row->query("BEGIN; SELECT FROM _lock_election.slot WHERE token = $token FOR UPDATE");
	$holder->query("BEGIN; SELECT release_lock('row', $token)");
	$reader->query('BEGIN; LOCK TABLE _lock_election.queue IN SHARE MODE');
	$holder->query('COMMIT');
	like($holder->error, qr/WARNING:  01000/, 'the release cannot be written at the commit');
	$reader->query('ROLLBACK');
	is($other->query(qq{SELECT release_lock('free $_', acquire_lock('free $_', wait => '20 s'))}), 't', "lock $_ of another session is granted") foreach 1 .. 3;
	$row->query('ROLLBACK');
	$row->quit;
	nothing_left($node);
};

$_->quit foreach $holder, $reader, $vacuum, $other;
done_testing();
