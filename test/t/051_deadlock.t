# Deadlocks between connections that wait for locks of lock_election and of PostgreSQL are detected and resolved. Waits
# that can end are not reported as deadlocks.
# Promises: A
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', conf => "deadlock_timeout = '500ms'\n");
my ($a, $b, $c, $d) = map { session($node) } 1 .. 4;
my @all = ($a, $b, $c, $d);

$node->safe_psql('postgres', 'CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT n, n FROM generate_series(1, 4) AS n');

# Seconds until a deadlock must have been reported: deadlock_timeout plus one second, and a reserve for a busy machine.
# Nothing else ends these waits.
my $soon = 30;

sub waiting_or_broken
{
	my ($session) = @_;
	my $sql = 'SELECT count(*) FROM lock_election.waiters WHERE pid = ' . $session->pid;

	# On a busy machine, the deadlock may have been detected by then.
	wait_until(sub { $session->ready || $node->safe_psql('postgres', $sql) ne '0' }) or die 'it does not wait';
	return;
}

sub waiting_in_postgres
{
	my ($session) = @_;
	wait_for_sql($node, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = " . $session->pid);
	return;
}

# Returns the DETAIL of the session's error, with letters instead of process ids.
sub detail
{
	my ($session) = @_;
	my ($detail) = $session->error =~ /^DETAIL:  (.*?)\n(?:HINT|LOCATION)/ms;
	my %name = ($a->pid => 'A', $b->pid => 'B', $c->pid => 'C', $d->pid => 'D');

	return '' unless defined $detail;
	$detail =~ s{(?<=rocess )(\d+)}{$name{$1} // $1}ge;
	$detail =~ s/(tuple|transaction|relation|database) [\d(),]+/$1 N/g;
	return $detail;
}

# Expects that the session gets a deadlock error within $soon seconds, and that the other sessions get none.
sub is_victim
{
	my ($session, $detail, $test_name, @others) = @_;
	my $start = time;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$session->wait;
	cmp_ok(time - $start, '<', $soon, "$test_name: reported in time");
	like($session->error, qr/40P01: deadlock detected/, "$test_name: deadlock detected");
	is(detail($session), $detail, "$test_name: the detail describes the cycle");
	my $advice = $detail =~ /\n/ ? 'Acquire locks in the same order everywhere.'
	  : 'Only a named owner, a named lease or the transaction that acquired it can acquire it again.';
	like($session->error, qr/HINT:  \Q$advice\E\n(?!.*HINT)/s, "$test_name: the hint gives advice");
	ok((!grep { $_->ready; $_->{err} =~ /ERROR/ } @others), "$test_name: no other session gets an error");
	return;
}

sub clean
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(pid) FROM unnest(ARRAY[' . join(',', map { $_->pid } @all) . ']) AS pid');
	foreach my $session (@all)
	{
		$session->wait while $session->{got} < $session->{sent};
		$session->query('ROLLBACK');
		$session->query('DISCARD ALL');
	}
	$node->safe_psql('postgres', q{SELECT count(force_release_lock(name)) FROM (SELECT DISTINCT name FROM lock_election.locks) AS l});
	nothing_left($node);
	return;
}

# Expects no deadlock: all sessions still wait after the time that a detection takes.
sub all_wait_on
{
	my ($test_name, @sessions) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	select undef, undef, undef, 3;
	ok((!grep { $_->ready } @sessions), $test_name);
	return;
}

sub bound { my ($session, $name) = @_; return $session->query("SELECT acquire_lock('$name', ttl => NULL)"); }

sub wait_for_lock
{
	my ($session, $name, $arguments) = @_;
	$session->async("SELECT acquire_lock('$name'" . ($arguments // '') . ')');
	waiting_or_broken($session);
	return;
}

# --- locks that are bound to their connections ---

bound($a, 'x');
bound($b, 'y');
wait_for_lock($a, 'y');
wait_for_lock($b, 'x');
is_victim($b, qq{Process B waits for lock "x"; blocked by process A.\nProcess A waits for lock "y"; blocked by process B.}, 'a cycle of two', $a);
is($node->safe_psql('postgres', 'SELECT waiters FROM lock_election.locks WHERE name = $$x$$'), '0', 'the victim has left the queue');
is($b->query("SELECT release_lock('y')"), 't', 'the victim still holds its lock');
like($a->wait, qr/^\d+$/, 'the other session is granted the lock after the release of the victim');
$b->query('SELECT pg_stat_force_next_flush()');
wait_for_sql($node, q{SELECT deadlocks > 0 FROM pg_stat_database WHERE datname = 'postgres'});
pass('pg_stat_database counts the deadlock');
clean();

bound($a, 'x');
bound($b, 'y');
bound($c, 'z');
wait_for_lock($b, 'z');
wait_for_lock($c, 'x');
wait_for_lock($a, 'y');
is_victim($a, qq{Process A waits for lock "y"; blocked by process B.\nProcess B waits for lock "z"; blocked by process C.\nProcess C waits for lock "x"; blocked by process A.},
	'a cycle of three', $b, $c);
clean();

# A connection that waits for itself is a deadlock of one.
bound($a, 'x');
wait_for_lock($a, 'x');
is_victim($a, 'Process A waits for lock "x"; blocked by process A.', 'a connection waits for itself');
like($a->error, qr/NOTICE.*already held by this connection/s, 'a notice says that this connection already holds the lock');
like($a->error, qr/HINT:  Only a named owner.*HINT:  Only a named owner/s, 'a wait for itself gets the hint about owners, not about the order of locks');
clean();

# A session that waits for a member of a cycle is not part of the cycle, although only this session searches and came
# last.
bound($b, $_) foreach 'y', 'z';
bound($c, 'x');
$_->query("SET deadlock_timeout = '1 h'") foreach $b, $c;
wait_for_lock($b, 'x');
wait_for_lock($c, 'y');
wait_for_lock($a, 'z');
is_victim($c, qq{Process C waits for lock "y"; blocked by process B.\nProcess B waits for lock "x"; blocked by process C.}, 'a session that waits for a member of a cycle', $a, $b);
clean();

# Each holder of a shared lock blocks a writer.
foreach my $session ($a, $b)
{
	$session->query("SELECT acquire_lock('x', ttl => NULL, mode => 'shared')");
}
bound($c, 'y');
wait_for_lock($b, 'y');
wait_for_lock($c, 'x');
is_victim($c, qq{Process C waits for lock "x"; blocked by process B.\nProcess B waits for lock "y"; blocked by process C.}, 'one of two shared holders waits for the writer', $b);
clean();

# A reader that waits behind a queued writer.
$a->query("SELECT acquire_lock('x', ttl => NULL, mode => 'shared')");
bound($b, 'y');
wait_for_lock($c, 'x');
wait_for_lock($b, 'x', ", mode => 'shared'");
wait_for_lock($a, 'y');
is_victim($a, qq{Process A waits for lock "y"; blocked by process B.\nProcess B waits for lock "x"; blocked by process A.}, 'a reader behind a queued writer', $b, $c);
clean();

# A semaphore with a single permit.
$a->query("SELECT acquire_permit('p', 1, ttl => NULL)");
bound($b, 'y');
wait_for_lock($a, 'y');
$b->async("SELECT acquire_permit('p', 1)");
is_victim($b, qq{Process B waits for lock "p"; blocked by process A.\nProcess A waits for lock "y"; blocked by process B.}, 'the only permit', $a);
clean();

# acquire_locks(): blocked by any of its names, and by a waiter that waits for other names as well.
bound($a, 'x');
bound($b, 'y');
wait_for_lock($b, 'x');
$a->async(q{SELECT acquire_locks('{w,y,z}', '1 h')});
is_victim($a, qq{Process A waits for lock "y"; blocked by process B.\nProcess B waits for lock "x"; blocked by process A.}, 'one of several names', $b);
clean();
bound($a, 'x');
$b->async(q{SELECT acquire_locks('{v,w,x}', '1 h')});
waiting_or_broken($b);
wait_for_lock($c, 'w');
wait_for_lock($d, 'w');
$a->async(q{SELECT acquire_locks('{u,w}', '1 h')});
is_victim($a, qq{Process A waits for lock "w"; blocked by process B.\nProcess B waits for lock "x"; blocked by process A.}, 'behind a waiter for several names', $b, $c, $d);
clean();

# More edges than the search has memory for initially, and than it follows between two checks of the clock.
bound($a, 'x');
bound($b, 'm1000');
wait_for_lock($b, 'x');
$a->async(q{SELECT acquire_locks(ARRAY(SELECT 'm' || i FROM generate_series(1, 1000) AS i), '1 h')});
is_victim($a, qq{Process A waits for lock "m1000"; blocked by process B.\nProcess B waits for lock "x"; blocked by process A.}, 'one of 1000 names', $b);
clean();

# Places for several names that no call waits for do not block other waiters, although their owner waits for this
# session.
bound($a, $_) foreach 'v', 'x';
my $place = $b->query(q{SELECT token FROM enqueue_locks('{w,x}', '1 h')});
like($place, qr/^\d+$/, 'places for two names are enqueued');
is($b->query("SELECT await_locks('{w,x}', $place, '10 ms')"), 'f', 'a call waits for the places for a short time');
wait_for_lock($b, 'v');
wait_for_lock($a, 'w');
all_wait_on('places without a call are not part of a cycle', $a, $b);
one('SELECT pg_cancel_backend(' . $b->pid . ')');
$b->wait;
is($b->query("SELECT release_locks('{w,x}', $place)"), 't', 'the places are released');
like($a->wait, qr/^\d+$/, 'the waiter behind the places is granted the lock');
clean();

# Places do not hide a blocked waiter that is ahead of them in the queue.
bound($a, 'x');
$b->async(q{SELECT acquire_locks('{v,w,x}', '1 h')});
waiting_or_broken($b);
$place = $d->query(q{SELECT token FROM enqueue_locks('{t,w}', '1 h')});
$a->async(q{SELECT acquire_locks('{u,w}', '1 h')});
is_victim($a, qq{Process A waits for lock "w"; blocked by process B.\nProcess B waits for lock "x"; blocked by process A.}, 'behind a waiter for several names, and places', $b);
is($d->query("SELECT release_locks('{t,w}', $place)"), 't', 'the place behind it is released');
clean();

# --- in open transactions ---

$a->query("BEGIN; SELECT acquire_lock('x', '1 h')");
$b->query("BEGIN; SELECT acquire_lock('y', '1 h')");
wait_for_lock($a, 'y');
wait_for_lock($b, 'x');
is_victim($b, qq{Process B waits for lock "x"; blocked by process A.\nProcess A waits for lock "y"; blocked by process B.}, 'a cycle of transactions', $a);
$b->query('ROLLBACK');
like($a->wait, qr/^\d+$/, 'the rollback of the victim lets the other session acquire the lock');
clean();

# Rolling back a subtransaction resolves the deadlock.
$a->query("BEGIN; SELECT acquire_lock('x', '1 h')");
$b->query("BEGIN; SELECT acquire_lock('y', '1 h'); SAVEPOINT s");
wait_for_lock($a, 'y');
$b->async(q{DO $$ BEGIN PERFORM acquire_lock('x'); EXCEPTION WHEN deadlock_detected THEN RAISE NOTICE 'caught'; END $$});
$b->wait($soon);
like($b->error, qr/caught/, 'the deadlock error can be caught');
is($b->query('SELECT 1'), '1', 'the transaction can continue after the caught deadlock');
ok(!$a->ready, 'the victim keeps the locks of its outer transaction');
clean();

# A fence blocks a waiter.
my $token = $c->query("SELECT acquire_lock('x', owner => 'somebody', ttl => '1 h')");
$a->query("BEGIN; SELECT fence_lock('x', $token)");
bound($b, 'y');
wait_for_lock($b, 'x');
wait_for_lock($a, 'y');
is_victim($a, qq{Process A waits for lock "y"; blocked by process B.\nProcess B waits for lock "x"; blocked by process A.}, 'a fence blocks the waiter', $b);
clean();

# Several transactions fence the same token, and another token is fenced as well.
$token = $c->query("SELECT acquire_lock('x', owner => 'somebody', ttl => '1 h')");
$c->query("BEGIN; SELECT fence_lock('z', acquire_lock('z', '1 h'))");
$_->query("BEGIN; SELECT fence_lock('x', $token)") foreach $d, $a;
bound($b, 'y');
wait_for_lock($b, 'x');
wait_for_lock($a, 'y');
is_victim($a, qq{Process A waits for lock "y"; blocked by process B.\nProcess B waits for lock "x"; blocked by process A.}, 'one of several fences blocks the waiter', $b);
clean();

# --- through locks of PostgreSQL ---

# The session that waits for a lock of lock_election began to wait first.
$a->query('BEGIN; UPDATE t SET v = 0 WHERE id = 1');
bound($b, 'x');
wait_for_lock($a, 'x');
$b->async('UPDATE t SET v = 0 WHERE id = 1');
waiting_in_postgres($b);
is_victim($a, qq{Process A waits for lock "x"; blocked by process B.\nProcess B waits for ShareLock on transaction N; blocked by process A.}, 'a cycle through a row lock', $b);
$a->query('ROLLBACK');
$b->wait;
is($b->error, '', 'the rollback of the victim lets the other session update the row');
clean();

# The session that waits for a lock of lock_election began to wait last.
$a->query('BEGIN; LOCK t');
bound($b, 'x');
$b->async('SELECT count(*) FROM t');
waiting_in_postgres($b);
wait_for_lock($a, 'x');
is_victim($a, qq{Process A waits for lock "x"; blocked by process B.\nProcess B waits for AccessShareLock on relation N of database N; blocked by process A.}, 'a cycle through a table lock', $b);
clean();

# Advisory locks of the session.
$a->query('SELECT pg_advisory_lock(1)');
$b->query("BEGIN; SELECT acquire_lock('x', '1 h')");
$b->async('SELECT pg_advisory_lock(1)');
waiting_in_postgres($b);
wait_for_lock($a, 'x');
is_victim($a, qq{Process A waits for lock "x"; blocked by process B.\nProcess B waits for ExclusiveLock on advisory lock [N,0,1,1]; blocked by process A.} =~ s/\[N/'[' . $node->safe_psql('postgres', 'SELECT oid FROM pg_database WHERE datname = current_database()')/er,
	'a cycle through an advisory lock', $b);
clean();

# A cycle of four: behind a process that waits for the same row in PostgreSQL, and with two locks of lock_election.
$a->query('BEGIN; UPDATE t SET v = 0 WHERE id = 1');
$d->query('BEGIN; SELECT v FROM t WHERE id = 2');
bound($b, 'x');
bound($c, 'y');
wait_for_lock($a, 'x');
wait_for_lock($b, 'y');
$d->async('UPDATE t SET v = 0 WHERE id = 1');
waiting_in_postgres($d);
$c->async('UPDATE t SET v = 1 WHERE id = 1');
waiting_in_postgres($c);
$b->wait($soon);
like($b->error, qr/40P01/, 'a cycle of four is detected');
like(detail($b), qr/\AProcess B waits for lock "y"; blocked by process C\.\nProcess C waits for ExclusiveLock on tuple.*; blocked by process D\.\nProcess D waits for ShareLock on transaction N; blocked by process A\.\nProcess A waits for lock "x"; blocked by process B\.\z/,
	'the detail includes the process ahead in the queue for the same row');
clean();

# A parallel worker waits for a lock on behalf of its leader.
$a->query('CREATE TABLE w (); BEGIN');
$b->query(q{CREATE FUNCTION read_w() RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN RETURN (SELECT count(*) FROM w); END'});
$b->query(q{SET parallel_leader_participation = off; SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')});
bound($b, 'x');
$a->query('LOCK w');
$b->async('SELECT read_w()');
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND leader_pid = } . $b->pid);
wait_for_lock($a, 'x');
is_victim($a, qq{Process A waits for lock "x"; blocked by process B.\nProcess B waits for a lock; blocked by process A.}, 'a cycle through a parallel worker', $b);
$a->query('ROLLBACK; DROP TABLE w');
is($b->wait . $b->error, '0', 'the parallel query succeeds after the rollback of the victim');
clean();

# --- no deadlocks ---

# A lock with a TTL expires, so it does not count as blocked forever.
my @token = ($a->query("SELECT acquire_lock('x', '6 s')"), $b->query("SELECT acquire_lock('y', '1 h')"));
wait_for_lock($a, 'y');
wait_for_lock($b, 'x');
my $lease = $c->query(q{SELECT grant_lease('1 h')});
$c->query("SELECT acquire_lock('leased', ttl => NULL, lease => $lease)");
bound($d, 'z');
wait_for_lock($c, 'z');
wait_for_lock($d, 'leased');
all_wait_on('locks with a TTL or on a named lease cause no deadlock', $a, $b, $c, $d);
like($b->wait, qr/^\d+$/, 'the lock with the TTL expires and is granted');
is(one("SELECT revoke_lease($lease)"), 't', 'the lease is revoked');
like($d->wait, qr/^\d+$/, 'the lock on the revoked lease is granted');
clean();

# The transaction that acquired the lock has committed, so the lock is no longer bound to it.
$a->query("BEGIN; SELECT acquire_lock('x', '1 h'); COMMIT; BEGIN; SELECT 1");
$b->query("BEGIN; SELECT acquire_lock('y', '1 h')");
wait_for_lock($b, 'x');
wait_for_lock($a, 'y');
all_wait_on('a lock of a committed transaction causes no deadlock', $a, $b);
clean();
$a->query("BEGIN; SELECT acquire_lock('x', '1 h'); COMMIT; BEGIN; SELECT 1");
$b->query('BEGIN; UPDATE t SET v = 0 WHERE id = 1');
wait_for_lock($b, 'x');
$a->async('UPDATE t SET v = 0 WHERE id = 1');
waiting_in_postgres($a);
all_wait_on('a lock of a committed transaction causes no deadlock with a row lock', $a, $b);
clean();

# A lock of a named owner: every connection may release it.
@token = ($a->query("SELECT acquire_lock('x', ttl => NULL, owner => 'one')"), $b->query("SELECT acquire_lock('y', '1 h', owner => 'two')"));
$a->query("BEGIN; SELECT acquire_lock('z', '1 h', owner => 'one')");
wait_for_lock($a, 'y');
wait_for_lock($b, 'x');
wait_for_lock($c, 'z');
all_wait_on('locks of named owners cause no deadlock', $a, $b, $c);
is($d->query("SELECT release_lock('y', $token[1])"), 't', 'another connection can release the lock of a named owner');
like($a->wait, qr/^\d+$/, 'the waiter is granted the lock of a named owner after its release');
clean();

# An advisory lock whose number equals a token is not a fence.
$token = $c->query("SELECT acquire_lock('x', owner => 'somebody', ttl => '1 h')");
$d->query("BEGIN; SELECT fence_lock('z', acquire_lock('z', '1 h'))");
$a->query("SELECT pg_advisory_lock($token)");
wait_for_lock($a, 'x');
all_wait_on('an advisory lock with the number of the token causes no deadlock', $a);
clean();

# The holder does not wait.
bound($a, 'x');
wait_for_lock($b, 'x');
wait_for_lock($c, 'x');
all_wait_on('waiters for a connection that is not blocked are no deadlock', $b, $c);
clean();

# A semaphore with two permits: the other holder can release its permit.
$a->query("SELECT acquire_permit('p', 2, ttl => NULL)");
$c->query("SELECT acquire_permit('p', 2, ttl => NULL)");
bound($b, 'y');
wait_for_lock($a, 'y');
$b->async("SELECT acquire_permit('p', 2)");
waiting_or_broken($b);
all_wait_on('one of two permits is held by a session that is not blocked', $a, $b);
is($c->query(q{SELECT acquire_permit('p', 2, wait => '200 ms')}) . $c->error, '', 'a session that holds one of two permits is not reported as waiting for itself');
$c->query("SELECT release_lock('p')");
like($b->wait, qr/^\d+$/, 'the waiter is granted the permit that the other session releases');
clean();

# The search starts deadlock_timeout after the start of each wait, also if the same connection has waited longer before.
bound($c, 'z');
is($a->query("SELECT acquire_lock('z', wait => '1 s')"), '', 'a wait longer than deadlock_timeout times out');
$_->query("SET deadlock_timeout = '1 h'") foreach $a, $b;
bound($a, 'x');
bound($b, 'y');
wait_for_lock($b, 'x');
$a->async(q{SELECT acquire_lock('y')});
all_wait_on('the next wait starts its own deadlock_timeout', $a, $b);
clean();

# A cycle of PostgreSQL's own locks is left to PostgreSQL's detector.
$a->query('BEGIN; UPDATE t SET v = 0 WHERE id = 1');
$b->query("BEGIN; UPDATE t SET v = 0 WHERE id = 2; SELECT acquire_lock('x', '1 h')");
wait_for_lock($c, 'x');
$a->async('UPDATE t SET v = 0 WHERE id = 2');
waiting_in_postgres($a);
$b->async('UPDATE t SET v = 0 WHERE id = 1');
$_->wait foreach $a, $b;
is(scalar(() = ($a->error . $b->error) =~ /40P01/g), 1, 'PostgreSQL cancels one member of its own cycle');
$_->query('ROLLBACK') foreach $a, $b;
like($c->wait, qr/^\d+$/, q{a session that waits for a member of PostgreSQL's cycle is granted the lock});
is($c->error, '', q{a session that waits for a member of PostgreSQL's cycle gets no error});
clean();

# A wait for a lock of PostgreSQL counts only after the deadlock_timeout of the server, so that its own detector runs
# first.
$node->safe_psql('postgres', q{ALTER SYSTEM SET deadlock_timeout = '1 h'});
$node->reload;
wait_for_sql($node, 'SHOW deadlock_timeout', '1h');
$a->query(q{SET deadlock_timeout = '100 ms'; BEGIN; UPDATE t SET v = 0 WHERE id = 1});
bound($b, 'x');
wait_for_lock($a, 'x');
$b->async('UPDATE t SET v = 0 WHERE id = 1');
waiting_in_postgres($b);
all_wait_on('a wait in PostgreSQL shorter than deadlock_timeout is not counted', $a, $b);
$node->safe_psql('postgres', 'ALTER SYSTEM RESET deadlock_timeout');
$node->reload;
wait_for_sql($node, 'SHOW deadlock_timeout', '500ms');
$a->wait($soon);
like($a->error, qr/40P01/, 'a wait in PostgreSQL longer than deadlock_timeout is counted');
clean();

# A cycle that PostgreSQL does not check yet is not reported either if a session waits for one of its members in
# lock_election.
$_->query("SET deadlock_timeout = '1 h'") foreach $a, $b;
$a->query('BEGIN; UPDATE t SET v = 0 WHERE id = 1');
$b->query("BEGIN; UPDATE t SET v = 0 WHERE id = 2; SELECT acquire_lock('x', '1 h')");
$a->async('UPDATE t SET v = 0 WHERE id = 2');
$b->async('UPDATE t SET v = 0 WHERE id = 1');
waiting_in_postgres($_) foreach $a, $b;
wait_for_lock($c, 'x');
all_wait_on(q{a cycle of PostgreSQL's locks alone is not reported}, $a, $b, $c);
clean();

# A prepared transaction has no process.
my $manager = manager_pid();
$a->query(q{BEGIN; LOCK t; PREPARE TRANSACTION 'prepared'});
bound($b, 'x');
$b->async('SELECT count(*) FROM t');
waiting_in_postgres($b);
wait_for_lock($c, 'x');
all_wait_on('a prepared transaction causes no deadlock', $b, $c);
is(manager_pid(), $manager, 'the manager survives the search through a prepared transaction');
$a->query(q{ROLLBACK PREPARED 'prepared'});
is($b->wait, '4', 'the reader continues after the end of the prepared transaction');
clean();

# --- a long detail ---

# The detail is truncated at a character boundary, for each offset within a character.
foreach my $shift (0 .. 2)
{
	my @ring = map { session($node) } 0 .. ($shift ? 19 : 39);
	my $name = sub { return sprintf('%02d', $_[0] % @ring) . 'x' x $shift . "\xe2\x82\xac" x 80; };

	bound($ring[$_], $name->($_)) foreach 0 .. $#ring;
	$ring[$_]->async("SELECT acquire_lock('" . $name->($_ + 1) . "', ttl => NULL)") foreach 0 .. $#ring;
	ok(wait_until(sub { grep { $_->ready } @ring }), @ring . ' processes in one cycle: deadlock detected');
	my ($victim) = grep { $_->ready } @ring;
	$victim->wait;
	my ($detail) = $victim->error =~ /^DETAIL:  (.*?)\n(?:HINT|LOCATION)/ms;
	cmp_ok(length $detail, '>', 4500, 'the detail is long');
	ok(utf8::decode($detail), 'the detail is not truncated within a character');
	$_->kill foreach @ring;
	nothing_left($node);
}

# --- many sessions at the same time ---

# Each worker locks two of four locks and four rows, in the same order as the others or in random order. Returns the
# number of deadlock errors.
$node->safe_psql('postgres', q{
	CREATE FUNCTION take(n int) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		IF n > 4 THEN UPDATE t SET v = v + 1 WHERE id = n - 4; ELSE PERFORM acquire_lock('l' || n, '1 h'); PERFORM release_lock('l' || n); END IF;
	END $$;
	CREATE PROCEDURE work(rounds int, in_order boolean, INOUT given_up int) LANGUAGE plpgsql AS $$
	DECLARE a int; b int;
	BEGIN
		given_up := 0;
		FOR i IN 1 .. rounds LOOP
			a := 1 + floor(random() * 8);
			b := 1 + floor(random() * 8);
			BEGIN
				PERFORM take(CASE WHEN in_order THEN least(a, b) ELSE a END);
				PERFORM pg_sleep(CASE WHEN in_order THEN 0 ELSE 0.02 END);
				IF a <> b THEN PERFORM take(CASE WHEN in_order THEN greatest(a, b) ELSE b END); END IF;
			EXCEPTION WHEN deadlock_detected THEN given_up := given_up + 1;
			END;
			COMMIT;
		END LOOP;
	END $$});

sub work
{
	my ($rounds, $in_order) = @_;
	my @workers = map { session($node) } 1 .. 8;
	my $given_up = 0;

	$_->async("CALL work($rounds, $in_order, 0)") foreach @workers;
	$given_up += $_->wait(2 * LeTest::timeout()) foreach @workers;
	is(join('', map { $_->error } @workers), '', 'eight workers finish without an error');
	$_->quit foreach @workers;
	return $given_up;
}

is(work(300, 'true'), 0, 'workers that lock in the same order get no deadlock');
cmp_ok(work(15, 'false'), '>', 0, 'workers that lock in random order get deadlocks, and all finish');
clean();

$_->quit foreach @all;
$node->stop;
done_testing();
