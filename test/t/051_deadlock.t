# Deadlocks between connections that wait for locks of lock_election and of PostgreSQL are found and broken, without
# false positives.
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

# What a deadlock is told after at the latest: deadlock_timeout and a second, and time for a busy machine. Nothing else ends it.
my $soon = 30;

sub waiting_or_broken
{
	my ($session) = @_;
	my $sql = 'SELECT count(*) FROM lock_election.waiters WHERE pid = ' . $session->pid;

	# on a busy machine its deadlock may have been found by then
	wait_until(sub { $session->ready || $node->safe_psql('postgres', $sql) ne '0' }) or die 'it does not wait';
	return;
}

sub waiting_in_postgres
{
	my ($session) = @_;
	wait_for_sql($node, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = " . $session->pid);
	return;
}

# The lines of the detail, with letters for the processes.
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

# The session is told of a deadlock, soon, and the others are not.
sub is_victim
{
	my ($session, $detail, $test_name, @others) = @_;
	my $start = time;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$session->wait;
	cmp_ok(time - $start, '<', $soon, "$test_name: soon");
	like($session->error, qr/40P01: deadlock detected/, "$test_name: deadlock detected");
	is(detail($session), $detail, "$test_name: the cycle is told");
	my $advice = $detail =~ /\n/ ? 'Acquire locks in the same order everywhere.'
	  : 'Only a named owner, a named lease or the transaction that acquired it can acquire it again.';
	like($session->error, qr/HINT:  \Q$advice\E\n(?!.*HINT)/s, "$test_name: and what to do");
	ok((!grep { $_->ready; $_->{err} =~ /ERROR/ } @others), "$test_name: nobody else is told of it");
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

# No deadlock: all of these wait on for longer than it would take to find one.
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
is_victim($b, qq{Process B waits for lock "x"; blocked by process A.\nProcess A waits for lock "y"; blocked by process B.}, 'two', $a);
is($node->safe_psql('postgres', 'SELECT waiters FROM lock_election.locks WHERE name = $$x$$'), '0', 'it has left the queue');
is($b->query("SELECT release_lock('y')"), 't', 'what it held it still has');
like($a->wait, qr/^\d+$/, 'when it releases that, the other one goes on');
$b->query('SELECT pg_stat_force_next_flush()');
wait_for_sql($node, q{SELECT deadlocks > 0 FROM pg_stat_database WHERE datname = 'postgres'});
pass('pg_stat_database counts it');
clean();

bound($a, 'x');
bound($b, 'y');
bound($c, 'z');
wait_for_lock($b, 'z');
wait_for_lock($c, 'x');
wait_for_lock($a, 'y');
is_victim($a, qq{Process A waits for lock "y"; blocked by process B.\nProcess B waits for lock "z"; blocked by process C.\nProcess C waits for lock "x"; blocked by process A.},
	'three', $b, $c);
clean();

# one that waits for itself can never end
bound($a, 'x');
wait_for_lock($a, 'x');
is_victim($a, 'Process A waits for lock "x"; blocked by process A.', 'one');
like($a->error, qr/NOTICE.*already held by this connection/s, 'after it was told that it waits for itself');
like($a->error, qr/HINT:  Only a named owner.*HINT:  Only a named owner/s, 'with a hint about that, not about an order');
clean();

# who waits for one of a cycle is not of it, though only he looks, and has come last
bound($b, $_) foreach 'y', 'z';
bound($c, 'x');
$_->query("SET deadlock_timeout = '1 h'") foreach $b, $c;
wait_for_lock($b, 'x');
wait_for_lock($c, 'y');
wait_for_lock($a, 'z');
is_victim($c, qq{Process C waits for lock "y"; blocked by process B.\nProcess B waits for lock "x"; blocked by process C.}, 'before a cycle', $a, $b);
clean();

# a shared lock of many: each of its holders is in the way
foreach my $session ($a, $b)
{
	$session->query("SELECT acquire_lock('x', ttl => NULL, mode => 'shared')");
}
bound($c, 'y');
wait_for_lock($b, 'y');
wait_for_lock($c, 'x');
is_victim($c, qq{Process C waits for lock "x"; blocked by process B.\nProcess B waits for lock "y"; blocked by process C.}, 'shared', $b);
clean();

# behind a queued writer
$a->query("SELECT acquire_lock('x', ttl => NULL, mode => 'shared')");
bound($b, 'y');
wait_for_lock($c, 'x');
wait_for_lock($b, 'x', ", mode => 'shared'");
wait_for_lock($a, 'y');
is_victim($a, qq{Process A waits for lock "y"; blocked by process B.\nProcess B waits for lock "x"; blocked by process A.}, 'behind a writer', $b, $c);
clean();

# one permit
$a->query("SELECT acquire_permit('p', 1, ttl => NULL)");
bound($b, 'y');
wait_for_lock($a, 'y');
$b->async("SELECT acquire_permit('p', 1)");
is_victim($b, qq{Process B waits for lock "p"; blocked by process A.\nProcess A waits for lock "y"; blocked by process B.}, 'a permit', $a);
clean();

# several names at once: for any of them, and behind one who waits for others as well
bound($a, 'x');
bound($b, 'y');
wait_for_lock($b, 'x');
$a->async(q{SELECT acquire_locks('{w,y,z}', '1 h')});
is_victim($a, qq{Process A waits for lock "y"; blocked by process B.\nProcess B waits for lock "x"; blocked by process A.}, 'several names', $b);
clean();
bound($a, 'x');
$b->async(q{SELECT acquire_locks('{v,w,x}', '1 h')});
waiting_or_broken($b);
wait_for_lock($c, 'w');
wait_for_lock($d, 'w');
$a->async(q{SELECT acquire_locks('{u,w}', '1 h')});
is_victim($a, qq{Process A waits for lock "w"; blocked by process B.\nProcess B waits for lock "x"; blocked by process A.}, 'behind several names', $b, $c, $d);
clean();

# more edges than there is room for at first, and than are followed between two looks at the clock
bound($a, 'x');
bound($b, 'm1000');
wait_for_lock($b, 'x');
$a->async(q{SELECT acquire_locks(ARRAY(SELECT 'm' || i FROM generate_series(1, 1000) AS i), '1 h')});
is_victim($a, qq{Process A waits for lock "m1000"; blocked by process B.\nProcess B waits for lock "x"; blocked by process A.}, 'very many names', $b);
clean();

# places of several names, which nobody waits for any more, keep nobody, though the one that has them waits for us
bound($a, $_) foreach 'v', 'x';
my $place = $b->query(q{SELECT token FROM enqueue_locks('{w,x}', '1 h')});
like($place, qr/^\d+$/, 'places');
is($b->query("SELECT await_locks('{w,x}', $place, '10 ms')"), 'f', 'waited for');
wait_for_lock($b, 'v');
wait_for_lock($a, 'w');
all_wait_on('behind places', $a, $b);
one('SELECT pg_cancel_backend(' . $b->pid . ')');
$b->wait;
is($b->query("SELECT release_locks('{w,x}', $place)"), 't', 'given up');
like($a->wait, qr/^\d+$/, 'and so the next one is granted');
clean();

# and hide nobody who waits before them
bound($a, 'x');
$b->async(q{SELECT acquire_locks('{v,w,x}', '1 h')});
waiting_or_broken($b);
$place = $d->query(q{SELECT token FROM enqueue_locks('{t,w}', '1 h')});
$a->async(q{SELECT acquire_locks('{u,w}', '1 h')});
is_victim($a, qq{Process A waits for lock "w"; blocked by process B.\nProcess B waits for lock "x"; blocked by process A.}, 'behind several names and places', $b);
is($d->query("SELECT release_locks('{t,w}', $place)"), 't', 'given up');
clean();

# --- in open transactions ---

$a->query("BEGIN; SELECT acquire_lock('x', '1 h')");
$b->query("BEGIN; SELECT acquire_lock('y', '1 h')");
wait_for_lock($a, 'y');
wait_for_lock($b, 'x');
is_victim($b, qq{Process B waits for lock "x"; blocked by process A.\nProcess A waits for lock "y"; blocked by process B.}, 'in transactions', $a);
$b->query('ROLLBACK');
like($a->wait, qr/^\d+$/, 'its rollback lets the other one go on');
clean();

# a subtransaction is enough
$a->query("BEGIN; SELECT acquire_lock('x', '1 h')");
$b->query("BEGIN; SELECT acquire_lock('y', '1 h'); SAVEPOINT s");
wait_for_lock($a, 'y');
$b->async(q{DO $$ BEGIN PERFORM acquire_lock('x'); EXCEPTION WHEN deadlock_detected THEN RAISE NOTICE 'caught'; END $$});
$b->wait($soon);
like($b->error, qr/caught/, 'the error can be caught');
is($b->query('SELECT 1'), '1', 'and the transaction goes on');
ok(!$a->ready, 'and keeps what it has');
clean();

# a fence
my $token = $c->query("SELECT acquire_lock('x', owner => 'somebody', ttl => '1 h')");
$a->query("BEGIN; SELECT fence_lock('x', $token)");
bound($b, 'y');
wait_for_lock($b, 'x');
wait_for_lock($a, 'y');
is_victim($a, qq{Process A waits for lock "y"; blocked by process B.\nProcess B waits for lock "x"; blocked by process A.}, 'a fence', $b);
clean();

# more than one of this token, and others
$token = $c->query("SELECT acquire_lock('x', owner => 'somebody', ttl => '1 h')");
$c->query("BEGIN; SELECT fence_lock('z', acquire_lock('z', '1 h'))");
$_->query("BEGIN; SELECT fence_lock('x', $token)") foreach $d, $a;
bound($b, 'y');
wait_for_lock($b, 'x');
wait_for_lock($a, 'y');
is_victim($a, qq{Process A waits for lock "y"; blocked by process B.\nProcess B waits for lock "x"; blocked by process A.}, 'fences', $b);
clean();

# --- through locks of PostgreSQL ---

# the one that waits here was first
$a->query('BEGIN; UPDATE t SET v = 0 WHERE id = 1');
bound($b, 'x');
wait_for_lock($a, 'x');
$b->async('UPDATE t SET v = 0 WHERE id = 1');
waiting_in_postgres($b);
is_victim($a, qq{Process A waits for lock "x"; blocked by process B.\nProcess B waits for ShareLock on transaction N; blocked by process A.}, 'a row', $b);
$a->query('ROLLBACK');
$b->wait;
is($b->error, '', 'the rollback lets the other one go on');
clean();

# the one that waits here was last
$a->query('BEGIN; LOCK t');
bound($b, 'x');
$b->async('SELECT count(*) FROM t');
waiting_in_postgres($b);
wait_for_lock($a, 'x');
is_victim($a, qq{Process A waits for lock "x"; blocked by process B.\nProcess B waits for AccessShareLock on relation N of database N; blocked by process A.}, 'a table', $b);
clean();

# advisory locks, of the session
$a->query('SELECT pg_advisory_lock(1)');
$b->query("BEGIN; SELECT acquire_lock('x', '1 h')");
$b->async('SELECT pg_advisory_lock(1)');
waiting_in_postgres($b);
wait_for_lock($a, 'x');
is_victim($a, qq{Process A waits for lock "x"; blocked by process B.\nProcess B waits for ExclusiveLock on advisory lock [N,0,1,1]; blocked by process A.} =~ s/\[N/'[' . $node->safe_psql('postgres', 'SELECT oid FROM pg_database WHERE datname = current_database()')/er,
	'an advisory lock', $b);
clean();

# behind somebody who waits there himself, and two of us
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
like($b->error, qr/40P01/, 'four in a row');
like(detail($b), qr/\AProcess B waits for lock "y"; blocked by process C\.\nProcess C waits for ExclusiveLock on tuple.*; blocked by process D\.\nProcess D waits for ShareLock on transaction N; blocked by process A\.\nProcess A waits for lock "x"; blocked by process B\.\z/,
	'the cycle is told, also who waits before it for the same row');
clean();

# a parallel worker waits, for its leader
$a->query('CREATE TABLE w (); BEGIN');
$b->query(q{CREATE FUNCTION read_w() RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN RETURN (SELECT count(*) FROM w); END'});
$b->query(q{SET parallel_leader_participation = off; SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')});
bound($b, 'x');
$a->query('LOCK w');
$b->async('SELECT read_w()');
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND leader_pid = } . $b->pid);
wait_for_lock($a, 'x');
is_victim($a, qq{Process A waits for lock "x"; blocked by process B.\nProcess B waits for a lock; blocked by process A.}, 'a parallel worker', $b);
$a->query('ROLLBACK; DROP TABLE w');
is($b->wait . $b->error, '0', 'and goes on');
clean();

# --- no deadlocks ---

# what has a TTL ends by itself
my @token = ($a->query("SELECT acquire_lock('x', '6 s')"), $b->query("SELECT acquire_lock('y', '1 h')"));
wait_for_lock($a, 'y');
wait_for_lock($b, 'x');
my $lease = $c->query(q{SELECT grant_lease('1 h')});
$c->query("SELECT acquire_lock('leased', ttl => NULL, lease => $lease)");
bound($d, 'z');
wait_for_lock($c, 'z');
wait_for_lock($d, 'leased');
all_wait_on('locks with a TTL, or on a lease', $a, $b, $c, $d);
like($b->wait, qr/^\d+$/, 'which ends');
is(one("SELECT revoke_lease($lease)"), 't', 'and a lease that is revoked');
like($d->wait, qr/^\d+$/, 'as does that');
clean();

# a transaction that has committed
$a->query("BEGIN; SELECT acquire_lock('x', '1 h'); COMMIT; BEGIN; SELECT 1");
$b->query("BEGIN; SELECT acquire_lock('y', '1 h')");
wait_for_lock($b, 'x');
wait_for_lock($a, 'y');
all_wait_on('the transaction that acquired it has committed', $a, $b);
clean();
$a->query("BEGIN; SELECT acquire_lock('x', '1 h'); COMMIT; BEGIN; SELECT 1");
$b->query('BEGIN; UPDATE t SET v = 0 WHERE id = 1');
wait_for_lock($b, 'x');
$a->async('UPDATE t SET v = 0 WHERE id = 1');
waiting_in_postgres($a);
all_wait_on('... and waits for a row', $a, $b);
clean();

# a named owner, whoever asks for him
@token = ($a->query("SELECT acquire_lock('x', ttl => NULL, owner => 'one')"), $b->query("SELECT acquire_lock('y', '1 h', owner => 'two')"));
$a->query("BEGIN; SELECT acquire_lock('z', '1 h', owner => 'one')");
wait_for_lock($a, 'y');
wait_for_lock($b, 'x');
wait_for_lock($c, 'z');
all_wait_on('named owners', $a, $b, $c);
is($d->query("SELECT release_lock('y', $token[1])"), 't', 'another connection can release');
like($a->wait, qr/^\d+$/, 'and lets the first one go on');
clean();

# an advisory lock with the number of a token is no fence
$token = $c->query("SELECT acquire_lock('x', owner => 'somebody', ttl => '1 h')");
$d->query("BEGIN; SELECT fence_lock('z', acquire_lock('z', '1 h'))");
$a->query("SELECT pg_advisory_lock($token)");
wait_for_lock($a, 'x');
all_wait_on('an advisory lock with the number of its token', $a);
clean();

# who waits for one who does not wait
bound($a, 'x');
wait_for_lock($b, 'x');
wait_for_lock($c, 'x');
all_wait_on('one connection that is not blocked', $b, $c);
clean();

# more permits than one: another one may come back
$a->query("SELECT acquire_permit('p', 2, ttl => NULL)");
$c->query("SELECT acquire_permit('p', 2, ttl => NULL)");
bound($b, 'y');
wait_for_lock($a, 'y');
$b->async("SELECT acquire_permit('p', 2)");
waiting_or_broken($b);
all_wait_on('two permits', $a, $b);
is($c->query(q{SELECT acquire_permit('p', 2, wait => '200 ms')}) . $c->error, '', 'nor is it waiting for oneself');
$c->query("SELECT release_lock('p')");
like($b->wait, qr/^\d+$/, 'and so it is');
clean();

# each wait is looked at after deadlock_timeout, also of a connection that has waited for longer before
bound($c, 'z');
is($a->query("SELECT acquire_lock('z', wait => '1 s')"), '', 'a long wait');
$_->query("SET deadlock_timeout = '1 h'") foreach $a, $b;
bound($a, 'x');
bound($b, 'y');
wait_for_lock($b, 'x');
$a->async(q{SELECT acquire_lock('y')});
all_wait_on('... says nothing of the next one', $a, $b);
clean();

# what PostgreSQL finds is left to it
$a->query('BEGIN; UPDATE t SET v = 0 WHERE id = 1');
$b->query("BEGIN; UPDATE t SET v = 0 WHERE id = 2; SELECT acquire_lock('x', '1 h')");
wait_for_lock($c, 'x');
$a->async('UPDATE t SET v = 0 WHERE id = 2');
waiting_in_postgres($a);
$b->async('UPDATE t SET v = 0 WHERE id = 1');
$_->wait foreach $a, $b;
is(scalar(() = ($a->error . $b->error) =~ /40P01/g), 1, q{one of PostgreSQL's own two});
$_->query('ROLLBACK') foreach $a, $b;
like($c->wait, qr/^\d+$/, 'not the one who waits for them');
is($c->error, '', 'and is told nothing');
clean();

# A wait in PostgreSQL counts when its own detector has had the time that the server gives it.
$node->safe_psql('postgres', q{ALTER SYSTEM SET deadlock_timeout = '1 h'});
$node->reload;
wait_for_sql($node, 'SHOW deadlock_timeout', '1h');
$a->query(q{SET deadlock_timeout = '100 ms'; BEGIN; UPDATE t SET v = 0 WHERE id = 1});
bound($b, 'x');
wait_for_lock($a, 'x');
$b->async('UPDATE t SET v = 0 WHERE id = 1');
waiting_in_postgres($b);
all_wait_on('a wait in PostgreSQL that is not a long one yet', $a, $b);
$node->safe_psql('postgres', 'ALTER SYSTEM RESET deadlock_timeout');
$node->reload;
wait_for_sql($node, 'SHOW deadlock_timeout', '500ms');
$a->wait($soon);
like($a->error, qr/40P01/, 'then it is');
clean();

# Nor is a cycle taken for one of ours where PostgreSQL does not look yet, though one of ours waits for them.
$_->query("SET deadlock_timeout = '1 h'") foreach $a, $b;
$a->query('BEGIN; UPDATE t SET v = 0 WHERE id = 1');
$b->query("BEGIN; UPDATE t SET v = 0 WHERE id = 2; SELECT acquire_lock('x', '1 h')");
$a->async('UPDATE t SET v = 0 WHERE id = 2');
$b->async('UPDATE t SET v = 0 WHERE id = 1');
waiting_in_postgres($_) foreach $a, $b;
wait_for_lock($c, 'x');
all_wait_on('a cycle of PostgreSQL alone', $a, $b, $c);
clean();

# a prepared transaction is no process
my $manager = manager_pid();
$a->query(q{BEGIN; LOCK t; PREPARE TRANSACTION 'prepared'});
bound($b, 'x');
$b->async('SELECT count(*) FROM t');
waiting_in_postgres($b);
wait_for_lock($c, 'x');
all_wait_on('a prepared transaction', $b, $c);
is(manager_pid(), $manager, 'which the manager can tell from a process');
$a->query(q{ROLLBACK PREPARED 'prepared'});
is($b->wait, '4', 'the end of it lets the first one go on');
clean();

# --- a long detail ---

# Cut at the end of a character, wherever that is.
foreach my $shift (0 .. 2)
{
	my @ring = map { session($node) } 0 .. ($shift ? 19 : 39);
	my $name = sub { return sprintf('%02d', $_[0] % @ring) . 'x' x $shift . "\xe2\x82\xac" x 80; };

	bound($ring[$_], $name->($_)) foreach 0 .. $#ring;
	$ring[$_]->async("SELECT acquire_lock('" . $name->($_ + 1) . "', ttl => NULL)") foreach 0 .. $#ring;
	ok(wait_until(sub { grep { $_->ready } @ring }), @ring . ' in a ring');
	my ($victim) = grep { $_->ready } @ring;
	$victim->wait;
	my ($detail) = $victim->error =~ /^DETAIL:  (.*?)\n(?:HINT|LOCATION)/ms;
	cmp_ok(length $detail, '>', 4500, 'as much of the cycle as there is room for');
	ok(utf8::decode($detail), 'and no part of a character');
	$_->kill foreach @ring;
	nothing_left($node);
}

# --- many at a time ---

# Each takes two of four locks and four rows, in the same order everywhere or in any; returns how many gave up.
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
	is(join('', map { $_->error } @workers), '', 'none of eight workers has failed');
	$_->quit foreach @workers;
	return $given_up;
}

is(work(300, 'true'), 0, 'nobody who takes them in the same order is told of a deadlock');
cmp_ok(work(15, 'false'), '>', 0, 'of those who do not, some are, and all come to an end');
clean();

$_->quit foreach @all;
$node->stop;
done_testing();
