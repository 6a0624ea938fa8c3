# All ways in which a wait for a lock can end, also at the moment of the grant: the holder is always known, and no entry
# is left over.
# Promises: G, A
use strict;
use warnings;
use LeTest;
use Test::More;
use Time::HiRes qw(time);

# Seed of the random times in the rounds at the moment of the grant. It is printed with a failure; set LE_SEED to repeat
# the rounds.
my $seed = $ENV{LE_SEED} // 20250101;
my $rounds = $ENV{LE_ROUNDS} // 150;
srand($seed);

my $node = new_node('main');

my $watch = session($node);

# Waits until a session with a short wait is enqueued, or has already given up: on a busy machine that may happen first.
sub waiting_for_a_moment
{
	my ($session) = @_;
	my $sql = 'SELECT count(*) FROM lock_election.waiters WHERE pid = ' . $session->pid;
	return wait_until(sub { $session->ready || $watch->query($sql) eq '1' }) || die 'the session does not wait';
}

# The next waiter is granted the lock, and can release it.
sub next_gets_it
{
	my ($session, $name, $test_name) = @_;
	my $token = $session->wait;

	like($token, qr/^\d+$/, "$test_name: the next waiter is granted the lock");
	is($session->query("SELECT is_held('$name', $token)"), 't', "$test_name: the next waiter holds it");
	is($session->query("SELECT release_lock('$name', $token)"), 't', "$test_name: the next waiter releases it");
	nothing_left($node, "$test_name: no entry is left over");
	return;
}

my ($holder, $first, $second, $third) = map { session($node) } 1 .. 4;

# --- wakeups ---

# A backend also checks for its reply once a second, and can be woken up for other reasons: waking up does not mean that
# it is granted.
{
	my $token = $holder->query(q{SELECT acquire_lock('woken', '1 h')});
	my $start = time;

	is($first->query(q{SELECT acquire_lock('woken', wait => '2500 ms')}) . $first->error, '', 'a waiter that wakes up without a reply is not granted the lock');
	cmp_ok(time - $start, '>=', 2.5, 'a waiter that wakes up without a reply continues to wait');
	is($holder->query("SELECT release_lock('woken', $token)"), 't', 'the holder still holds the lock');
}

# Backend and manager both check once a second by themselves; a grant must not wait for that. On a busy machine, more
# tries are needed until three grants have been fast.
foreach my $case (
	[ 'release', '', q{'5 min'}, q{SELECT release_lock('woken')} ],
	[ 'ROLLBACK', 'BEGIN', q{'5 min'}, 'ROLLBACK' ],
	[ 'ROLLBACK TO', 'BEGIN; SAVEPOINT s', q{'5 min'}, 'ROLLBACK TO s' ],
	[ 'DISCARD ALL', '', 'NULL', 'DISCARD ALL' ])
{
	my ($title, $before, $ttl, $end) = @$case;
	my $fast = 0;

	for (my $try = 1; $try <= 20 && $fast < 3; $try++)
	{
		$holder->query($before) if $before;
		$holder->query("SELECT acquire_lock('woken', $ttl)");
		$first->async("SELECT acquire_lock('woken')");
		waiting($first);
		$watch->query('SELECT pg_sleep(0.1)');
		my $start = time;
		$holder->query($end);
		$first->wait;
		$fast++ if time - $start < 0.3;
		$first->query("SELECT release_lock('woken')");
		$holder->query('COMMIT') if $before;
	}
	is($fast, 3, "$title: the grant wakes up the waiter immediately");
}

# --- a manager that has not seen the request yet ---

# The manager finds the request and its cancellation at the same time.
foreach my $case ([ 'in a block', 'BEGIN; SAVEPOINT s', 'ROLLBACK TO s; COMMIT' ], [ 'alone', '', '' ])
{
	my ($title, $before, $after) = @$case;
	my $manager = $holder->query('SELECT pid FROM lock_election.manager');

	$first->query($before) if $before;
	kill 'STOP', $manager;
	$first->async("SELECT acquire_lock('late', '1 h')");
	wait_for_sql($node, q{SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = } . $first->pid);
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $first->pid . ')');
	$first->wait;
	like($first->error, qr/ERROR:  57014: /, "$title: cancelled before the manager has seen the request");
	$first->query($after) if $after;
	kill 'CONT', $manager;
	is($second->query("SELECT release_lock('late', try_acquire_lock('late'))"), 't',
		"$title: the cancelled request is not granted");
}

# The manager finds one message for several rollbacks, and undoes all holds since the earliest savepoint.
{
	my $manager = $holder->query('SELECT pid FROM lock_election.manager');

	$first->query("BEGIN; SAVEPOINT s; SELECT acquire_lock('undone', '1 h'); SAVEPOINT t; SELECT acquire_lock('undone 2', '1 h')");
	kill 'STOP', $manager;
	$first->query('ROLLBACK TO t; ROLLBACK TO s; SAVEPOINT t');
	$first->async("SELECT acquire_lock('undone 2', '1 h')");
	wait_for_sql($node, q{SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = } . $first->pid);
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $first->pid . ')');
	$first->wait;
	like($first->error, qr/ERROR:  57014: /, 'an acquire after a rollback is cancelled');
	$first->query('ROLLBACK TO t');
	kill 'CONT', $manager;
	is($second->query("SELECT release_lock('$_', try_acquire_lock('$_'))"), 't', "ROLLBACK TO, three times: $_") foreach 'undone', 'undone 2';
	$first->query('COMMIT');
}

# The manager finds a renewal and the end of the lease at the same time. The renewal was posted before the deadline.
{
	my $manager = $holder->query('SELECT pid FROM lock_election.manager');
	my ($posted_at, $renewed, $token, $end);

	# On a busy machine, the renewal may be posted too late; then try again.
	foreach (1 .. 10)
	{
		my $start = time;

		$token = $first->query("SELECT acquire_lock('renewed', '2 s')");
		$end = time + 2;
		wait_until(sub { time > $start + 1.6 });
		kill 'STOP', $manager;
		$first->async("SELECT renew_lock('renewed', $token) IS NOT NULL");
		wait_until(sub { $second->query(q{SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = } . $first->pid) eq 't' });
		$posted_at = time - $start;
		wait_until(sub { time > $end + 0.05 });
		kill 'CONT', $manager;
		$renewed = $first->wait;
		last if $posted_at < 2;
	}
	is($renewed, 't', 'a renewal posted before the deadline succeeds even if the manager reads it later');
	is($first->query("SELECT release_lock('renewed', $token)"), 't', 'the lock is still held after the late renewal');
}

# --- order ---

{
	my @order;

	$holder->query("SELECT acquire_lock('fifo')");
	foreach my $session ($first, $second, $third)
	{
		$session->async("SELECT acquire_lock('fifo')");
		waiting($session);
	}
	is($holder->query("SELECT string_agg(queue_position || ' ' || (pid = " . $first->pid . ")::int || (pid = " . $second->pid
			  . ")::int || (pid = " . $third->pid . ")::int || ' ' || (blocked_by = ARRAY[" . $holder->pid
			  . "])::text, ', ' ORDER BY queue_position) FROM lock_election.waiters WHERE name = 'fifo'"),
		'1 100 true, 2 010 true, 3 001 true',
		'the view shows the waiters in order of arrival');
	is($holder->query("SELECT waiters FROM lock_election.locks"), '3', 'view locks shows the number of waiters');
	is($holder->query("SELECT try_acquire_lock('fifo')"), '', 'try_acquire_lock() does not overtake the waiters');
	$holder->query("SELECT release_lock('fifo')");
	push @order, $first->wait;
	ok(!$second->ready && !$third->ready, 'the first waiter is granted the lock, and the others still wait');
	$first->query("SELECT release_lock('fifo')");
	push @order, $second->wait;
	ok(!$third->ready, 'the second waiter is granted the lock, and the third still waits');
	$second->query("SELECT release_lock('fifo')");
	push @order, $third->wait;
	ok($order[0] < $order[1] && $order[1] < $order[2],
		'the third waiter is granted the lock, and tokens increase') or diag("@order");
	$third->query("SELECT release_lock('fifo')");
	nothing_left($node);
}

# --- wait ---

{
	my $start;

	$holder->query("SELECT acquire_lock('wait')");
	$start = time;
	is($first->query("SELECT acquire_lock('wait', wait => '0')"), '', "wait => '0' is NULL");
	is($first->query("SELECT acquire_lock('wait', wait => '1 s')"), '', "wait => '1 s' is NULL");
	cmp_ok(time - $start, '>=', 1, 'acquire_lock() does not return before its wait of one second ends');
	cmp_ok(time - $start, '<', 30, 'acquire_lock() returns soon after its wait ends');
	is($first->error, '', 'a wait that times out is not an error');
	is($holder->query('SELECT count(*) FROM lock_election.waiters'), '0', 'a wait that times out leaves the queue');

	# A waiter that gives up does not block the waiters behind it.
	$first->async("SELECT acquire_lock('wait', wait => '300 ms')");
	waiting_for_a_moment($first);
	$second->async("SELECT acquire_lock('wait')");
	is($first->wait, '', 'the first waiter gives up');
	ok(!$second->ready, 'the second waiter still waits');
	$holder->query("SELECT release_lock('wait')");
	next_gets_it($second, 'wait', 'after one that gave up');
}

# --- shared behind a queued writer ---

{
	$holder->query("SELECT acquire_lock('rw', mode => 'shared')");
	is($first->query("SELECT acquire_lock('rw', mode => 'shared') IS NOT NULL"), 't', 'two readers hold the lock');
	$second->async("SELECT acquire_lock('rw')");
	waiting($second);
	is($first->query("SELECT try_acquire_lock('rw', mode => 'shared')"), '', 'no reader overtakes a queued writer');
	$third->async("SELECT acquire_lock('rw', mode => 'shared', owner => 'reader')");
	waiting($third);
	$holder->query("SELECT release_lock('rw')");
	ok(!$second->ready, 'the writer waits for the last reader');
	$first->query("SELECT release_lock('rw')");
	like($second->wait, qr/^\d+$/, 'the writer is granted the lock after the last reader released it');
	ok(!$third->ready, 'a reader behind the writer still waits');
	$first->async("SELECT acquire_lock('rw', mode => 'shared')");
	waiting($first);
	$second->query("SELECT release_lock('rw')");
	like($third->wait, qr/^\d+$/, 'the first reader is granted the lock after the writer');
	like($first->wait, qr/^\d+$/, 'the second reader is granted the lock after the writer');
	$_->query("SELECT release_lock('rw')") foreach $first, $third;
	nothing_left($node);

	# If a queued writer gives up, the readers behind it join the readers that hold the lock.
	$holder->query("SELECT acquire_lock('rw', mode => 'shared')");
	$first->async("SELECT acquire_lock('rw', wait => '300 ms')");
	waiting_for_a_moment($first);
	$second->async("SELECT acquire_lock('rw', mode => 'shared')");
	is($first->wait, '', 'a queued writer gives up');
	like($second->wait, qr/^\d+$/, 'the reader behind it is granted the lock');
	$_->query("SELECT release_lock('rw')") foreach $holder, $second;
	nothing_left($node);
}

# --- ends of a wait ---

# Ends the wait of a session that waits between a holder and another waiter.
sub ended_wait
{
	my ($what, $session, $end, $state) = @_;

	$holder->query("SELECT acquire_lock('end', ttl => '1 h')");
	$session->async("SELECT acquire_lock('end', ttl => '1 h')");
	waiting($session);
	$third->async("SELECT acquire_lock('end')");
	waiting($third);
	$end->($session);
	if (defined $state)
	{
		$session->wait;
		like($session->error, qr/:  $state: /, "$what: $state");
	}
	wait_for_sql($node, "SELECT count(*), min(queue_position) FROM lock_election.waiters", '1|1');
	$holder->query("SELECT release_lock('end')");
	next_gets_it($third, 'end', $what);
	return;
}

sub signalled
{
	my ($function) = @_;
	return sub { $holder->query("SELECT $function(" . $_[0]->pid . ')'); };
}

sub setting
{
	my ($session, $name) = @_;
	$session->query("SET $name = '3s'");
	return $session;
}

ended_wait('cancel', $first, signalled('pg_cancel_backend'), '57014');
ended_wait('lock_timeout', setting($first, 'lock_timeout'), sub { }, '55P03');
$first->query('RESET lock_timeout');
{
	my $token = $holder->query(q{SELECT acquire_lock('end', '1 h')});

	$first->query(q{SET lock_timeout = '1 ms'});
	is($first->query(q{SELECT acquire_lock('end', wait => '1 min')}), '', 'the shortest lock_timeout ends a wait');
	like($first->error, qr/55P03/, 'the shortest lock_timeout raises 55P03');
	$first->query('RESET lock_timeout');
	$holder->query("SELECT release_lock('end', $token)");
}
ended_wait('statement_timeout', setting($first, 'statement_timeout'), sub { }, '57014');
like($first->error, qr/statement timeout/, 'statement_timeout: the error message names statement_timeout');
$first->query('RESET statement_timeout');
is($first->query('SELECT 1'), '1', 'the session still works after a statement_timeout');
ended_wait('terminate', $first, signalled('pg_terminate_backend'), '57P01');
$first = session($node);

{
	my $start;
	my $session = session($node);

	ended_wait('client killed', $session, sub { $start = time; $session->kill('KILL'); });
	ok(wait_until(sub { $node->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $session->pid) eq '0' }),
		'client killed: the backend exits');

	# 1 s, plus the delay of a busy machine
	cmp_ok(time - $start, '<', 30, 'client killed: the backend notices it in time');
}

# A wait that is cancelled in a transaction that holds other locks.
{
	my $session = session($node);

	$holder->query("SELECT acquire_lock('end')");
	$session->query("BEGIN; SELECT acquire_lock('kept'); SELECT acquire_lock('bound', ttl => NULL)");
	$session->async("SELECT acquire_lock('end')");
	waiting($session);
	$holder->query('SELECT pg_cancel_backend(' . $session->pid . ')');
	$session->wait;
	like($session->error, qr/57014/, 'a wait is cancelled in a transaction');
	is($holder->query("SELECT string_agg(name, ',') FROM lock_election.locks"), 'end',
		'locks acquired in the cancelled transaction are released');
	$session->query('ROLLBACK');
	$session->quit;
	$holder->query("SELECT release_lock('end')");
	nothing_left($node);
}

# --- exception blocks ---

{
	$holder->query("SELECT acquire_lock('exception')");
	$second->query(q{CREATE FUNCTION acquire_or_not(name text) RETURNS text LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM acquire_lock(name);
			RETURN 'granted';
		EXCEPTION WHEN lock_not_available THEN
			RETURN SQLSTATE;
		END $$});
	$second->query("SET lock_timeout = '200ms'; BEGIN");
	my $token = $second->query("SELECT acquire_lock('before')");
	is($second->query("SELECT acquire_or_not('exception')"), '55P03', 'lock_timeout is caught in an exception block');
	is($second->query("SELECT acquire_or_not('exception')"), '55P03',
		'lock_timeout is caught in an exception block a second time');
	is($second->query("SELECT is_held('before', $token)"), 't',
		'a lock acquired before the exception block is still held');
	is($holder->query('SELECT count(*) FROM lock_election.waiters'), '0',
		'no waiter is left after the exception block');
	$holder->query("SELECT release_lock('exception')");
	is($second->query("SELECT acquire_or_not('exception')"), 'granted',
		'a later acquire in the same transaction is granted');
	$second->query('COMMIT; RESET lock_timeout');
	is($holder->query("SELECT string_agg(name, ',' ORDER BY name) FROM lock_election.locks"), 'before,exception', 'both are held after the commit');
	is($holder->query("SELECT try_acquire_lock('exception')"), '', 'the lock is not granted to other sessions');
	is($second->query("SELECT release_lock('exception')"), 't', 'release');
	is($second->query("SELECT release_lock('before')"), 't', 'release');
	nothing_left($node);

	# The timeout is set for each wait, and disabled after it.
	$holder->query("SELECT acquire_lock('exception')");
	$second->query("SET lock_timeout = '2s'; BEGIN");
	$second->async("SELECT acquire_or_not('exception')");
	waiting($second);
	$holder->query("SELECT release_lock('exception')");
	is($second->wait, 'granted', 'the lock is granted before lock_timeout');
	is($second->query('SELECT 1 FROM pg_sleep(2.2)'), '1', 'lock_timeout is disabled after the grant');
	$second->query('ROLLBACK; RESET lock_timeout');
	nothing_left($node);
}

# --- at the moment of the grant ---

# A wait ends with either the lock or the error; after the error, any session can acquire the lock immediately. In each
# round, the release and the event that ends the wait happen within a few milliseconds, at random times.
my %seen;

$holder->query(q{CREATE FUNCTION spin(seconds float8) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		until timestamptz := clock_timestamp() + make_interval(secs => seconds);
	BEGIN
		WHILE clock_timestamp() < until LOOP END LOOP;
	END $$});

sub judge
{
	my ($what, $session, $state, $lost) = @_;
	my $token = $session->wait;
	my $error = $session->error;
	my @bad;

	# psql prints the result after the commit, so an error can follow it.
	$token = $1 if !defined $token && $session->{out} =~ /^(\d+)$/m;
	if (($token // '') =~ /^\d+$/)
	{
		$seen{$what}{granted}++;
		push @bad, "granted, and an error: $error" if $error ne '' && !$lost;
		push @bad, 'granted, but not held' if $third->query("SELECT is_held('race', $token)") ne 't';
		push @bad,
			'granted, but another session was granted it too' if $third->query("SELECT try_acquire_lock('race')") ne '';
		push @bad, 'granted, but the release failed' if $third->query("SELECT release_lock('race', $token)") ne 't';
	}
	else
	{
		$seen{$what}{ended}++;
		push @bad, "unexpected error: $error" if $error !~ /:  $state: /;
	}

	# A connection that was terminated is removed a moment later; in all other cases the entry is gone when the call
	# returns.
	push @bad, 'an entry is left over' if $third->query("SELECT acquire_lock('race', wait => '" . ($lost ? 30 : 0) . " s')") !~ /^\d+$/;
	push @bad, 'not released' if $third->query("SELECT release_lock('race')") ne 't';
	return @bad;
}

sub race
{
	my ($what, $state, $end, %opts) = @_;
	my $n = $opts{rounds} // $rounds;
	my @bad;

	for (my $round = 1; $round <= $n && @bad < 3; $round++)
	{
		my $session = $opts{fresh} ? session($node) : $first;

		$holder->query("SELECT acquire_lock('race')");
		$session->query($opts{before}) if $opts{before};
		$session->async("SELECT acquire_lock('race')");
		$end->($session);
		push @bad, map { "round $round: $_" } judge($what, $session, $state, $opts{fresh});
		$session->query($opts{after}) if $opts{after};
		$session->quit if $opts{fresh};
	}
	is(join("\n", @bad), '', "$what at the moment of the grant, $n rounds") or diag("seed $seed");
	note("$what: " . join(', ', map { "$_ $seen{$what}{$_}" } sort keys %{ $seen{$what} }));
	return;
}

# Runs the release and the signal in two sessions, at random times.
sub around
{
	my ($function) = @_;
	return sub {
		my ($session) = @_;

		wait_until(sub { $third->query('SELECT count(*) FROM lock_election.waiters') eq '1' });
		$second->async(sprintf('SELECT spin(%.6f), %s(%d)', rand(0.004), $function, $session->pid));
		$holder->async(sprintf("SELECT spin(%.6f);\nSELECT release_lock('race')", rand(0.002)));
		$_->wait foreach $second, $holder;
	};
}

# Releases the lock at about the time of the timeout.
sub about
{
	my ($seconds) = @_;
	return sub { $holder->query(sprintf("SELECT spin(%.6f);\nSELECT release_lock('race')", $seconds - 0.004 + rand(0.005))); };
}

race('cancel', '57014', around('pg_cancel_backend'));
race('terminate', '57P01', around('pg_terminate_backend'), fresh => 1, rounds => int($rounds / 3));
race('lock_timeout', '55P03', about(0.02), before => "SET lock_timeout = '20ms'", after => 'RESET lock_timeout');
race('statement_timeout', '57014', about(0.02), before => "SET statement_timeout = '20ms'", after => 'RESET statement_timeout');
nothing_left($node);

# A wait that times out returns NULL and raises no error.
{
	my @bad;

	for (my $round = 1; $round <= $rounds && @bad < 3; $round++)
	{
		$holder->query("SELECT acquire_lock('race')");
		$first->async("SELECT acquire_lock('race', wait => '20 ms')");
		about(0.02)->();
		my $token = $first->wait;

		$seen{wait}{ $token eq '' ? 'ended' : 'granted' }++;
		push @bad, $first->error if $first->error ne '';
		push @bad, "round $round: granted, but not held" if $token ne '' && $first->query("SELECT release_lock('race', $token)") ne 't';
		push @bad, "round $round: an entry is left over" if $third->query("SELECT try_acquire_lock('race') IS NOT NULL") ne 't';
		$third->query("SELECT release_lock('race')");
	}
	is(join("\n", @bad), '', "end of the wait at the moment of the grant, $rounds rounds");
	note('wait: ' . join(', ', map { "$_ $seen{wait}{$_}" } sort keys %{ $seen{wait} }));
	nothing_left($node);
}

foreach my $session ($holder, $second, $third, $watch)
{
	is($session->query('SELECT 1'), '1', 'the session still works');
	$session->quit;
}
$node->stop;

# --- all connections are in use ---

# Each of the connections is woken up for its grant. Without the wakeup, it would notice the grant at its next check
# only, which is not as fast in three rounds.
{
	my $full = new_node('full', conf => "max_connections = 6\nsuperuser_reserved_connections = 0\nmax_wal_senders = 0\nsynchronous_standby_names = '*'\ndeadlock_timeout = 1min\n");
	my @all;
	my %least;

	# The session that created the extension may not have ended yet.
	wait_until(
		sub {
			my $s = eval { session($full) } or return 0;
			return push(@all, $s) == 6;
		}) or die 'cannot connect';

	# More rounds on a busy machine.
	foreach my $round (1 .. 20)
	{
		last if $round > 3 && !grep { $_ >= 0.5 } values %least;
		foreach my $i (0 .. 5)
		{
			my ($holds, $waits) = @all[ $i - 1, $i ];
			my $token = $holds->query(q{SELECT acquire_lock('full', '1 h')});

			$waits->async(q{SELECT acquire_lock('full', '1 h')});
			wait_until(sub { $holds->query('SELECT count(*) FROM lock_election.waiters') eq '1' });
			my $start = time;
			$holds->query("SELECT release_lock('full', $token)");
			$token = $waits->wait;
			my $took = time - $start;
			$least{$i} = $took if $took < ($least{$i} // 60);
			is($waits->query("SELECT release_lock('full', $token)"), 't', "connection $i of 6: its waiter was granted the lock") if $round == 1;
			$waits->query("SELECT release_lock('full', $token)") if $round > 1;
		}
	}
	cmp_ok($least{$_}, '<', 0.5, "connection $_ of 6 is woken up") foreach 0 .. 5;

	# No standby can connect, so no call waits for a standby, and no WAL is written for standbys.
	my $s = $all[0];
	my $token = $s->query(q{SELECT acquire_lock('alone', '1 h')});
	my $lsn = sub { return $s->query('SELECT pg_current_wal_insert_lsn()') };
	ok(wait_until(sub { my $before = $lsn->(); $s->query("SELECT is_held('alone', $token)"); return $lsn->() eq $before; }), 'is_held() writes no WAL if no standby can connect');
	$_->quit foreach @all;
	$full->stop;
}
done_testing();
