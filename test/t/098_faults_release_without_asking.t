# Asynchronous releases: a session releases its lock without waiting for the manager. It returns that the lock was held,
# and mails the release.
# Promises: E
# Needs: faults
use strict;
use warnings;
use IO::Select ();
use LePoints;
use LeTest;
use LeWire;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

my $node = new_node('main', faults => 1, conf => <<'CONF');
log_statement = none
autovacuum = off
CONF
my ($one, $two, $three, $free) = map { LeWire->new($node) } 1 .. 4;
points_by(\$free);

sub ask
{
	my ($session, $sql) = @_;
	$session->query($sql);
	return $session->wait('Z');
}

sub acquire { my ($session, $name, $more) = @_; return ask($session, "SELECT acquire_lock('$name'" . ($more // '') . ')'); }
sub release { my ($session, $name, $token) = @_; return ask($session, "SELECT release_lock('$name', $token)"); }
sub is_busy { my ($session) = @_; return !IO::Select->new($session->{socket})->can_read($_[1] // 0); }

# Reads the stored row without a request: the manager does not notice this.
sub is_stored_free
{
	my ($name) = @_;
	return ask($free, "SELECT count(*) FROM _lock_election.slot WHERE name = '$name' AND token <> 0") eq '0';
}

sub manager { return ask($free, 'SELECT pid FROM lock_election.manager'); }

subtest 'an asynchronous release returns immediately' => sub {
	my $pid = manager();
	my ($x, $y) = (acquire($one, 'x'), acquire($two, 'y'));

	stop_asleep($pid);
	is(release($two, 'y', $y), 't', 'a release returns while the manager is stopped');
	is(release($one, 'x', $x), 't', 'a release of another session returns while the manager is stopped');

	# The mailbox of this session is the first one that the manager processes.
	$two->query(q{SELECT try_acquire_lock('x') IS NOT NULL});
	$three->query(q{SELECT try_acquire_lock('y') IS NOT NULL});
	ok(is_busy($two, 0.2), 'a request waits for the manager');
	kill 'CONT', $pid;
	is($two->wait('Z'), 't', 'a later request finds the first lock released');
	is($three->wait('Z'), 't', 'a later request finds the second lock released, in any order of the mailboxes');
	ask($free, q{SELECT force_release_lock('x'), force_release_lock('y')});
};

subtest 'each of the last eight grants can be released asynchronously' => sub {
	my $pid = manager();

	# 5 minutes is the longest TTL that allows an asynchronous release.
	my %token = map { $_ => acquire($one, "n$_", q{, '5 min'}) } 1 .. 8;
	ask($one, q{SET lock_timeout = '2 s'});
	foreach my $i (1 .. 8)
	{
		stop_asleep($pid);
		is(release($one, "n$i", $token{$i}), 't', "the release of grant $i returns while the manager is stopped");
		kill 'CONT', $pid;
		ok(wait_until(sub { is_stored_free("n$i") }), "grant $i is released");
	}
	ask($one, 'RESET lock_timeout');
	nothing_left($node);
};

subtest 'name, token and kind must match' => sub {
	my ($x, $y, $e) = (acquire($one, 'x'), acquire($one, 'y'), ask($one, q{SELECT campaign('e', 'me')}));

	is(release($one, 'y', $x), 'f', 'the token with the name of another lock releases nothing');
	is(release($one, 'xx', $x), 'f', 'the token with an unknown name releases nothing');
	is(release($one, 'x', $y), 'f', 'the token of another lock releases nothing');
	is(release($one, 'e', $e), 'f', 'release_lock() with a term releases nothing');
	is(ask($one, "SELECT resign('x', $x)"), 'f', 'resign() with the token of a lock releases nothing');
	is(ask($free, "SELECT concat(is_held('x', $x), is_held('y', $y), is_leader('e', $e))"), 'ttt', 'all entries are still held');
	is(join(' ', release($one, 'x', $x), release($one, 'y', $y), ask($one, "SELECT resign('e', $e)")), 't t t', 'all entries are released with the right arguments');
	my $next = acquire($one, 'x');
	is(release($one, 'x', $x), 'f', 'the token of an earlier grant releases nothing');
	is(ask($free, "SELECT is_held('x', $next)"), 't', 'the next grant is still held');
	is(release($one, 'x', $next), 't', 'the next grant is released');
	nothing_left($node);
};

subtest 'releases wake the manager up in time' => sub {
	my $x = acquire($one, 'x');

	is(release($one, 'x', $x), 't', 'a release returns shortly after the manager was busy');
	ok(wait_until(sub { is_stored_free('x') }), 'the manager processes the release before it sleeps');

	# While a lock is held, the manager wakes up every second.
	my @took;
	for (1 .. 9)
	{
		$x = acquire($one, 'x');
		sleep 0.1;
		release($one, 'x', $x);
		my $start = time;
		1 until is_stored_free('x');
		push @took, time - $start;
	}
	cmp_ok((sort { $a <=> $b } @took)[4], '<', 0.5, 'a release wakes a sleeping manager up');

	$x = acquire($one, 'x');
	$two->query(q{SELECT acquire_lock('x')});
	ok(is_busy($two, 0.3), 'another session waits for the lock');
	is(release($one, 'x', $x), 't', 'the lock is released');
	$x = $two->wait('Z');
	is(release($two, 'x', $x), 't', 'a lock that was granted after a wait is released asynchronously');

	# Repeated with all distances from the manager's last check. On a busy machine, a few hand-offs may be slow.
	my $late = 0;
	for my $i (1 .. 300)
	{
		$x = acquire($one, 'x');
		$two->query(q{SELECT acquire_lock('x')});
		sleep 0.0001 * ($i % 70);
		release($one, 'x', $x);
		my $start = time;
		release($two, 'x', $two->wait('Z'));
		$late++ if time - $start > 0.9;
	}
	cmp_ok($late, '<', 3, 'no hand-off waits for the next wake-up of the manager');
};

# After a batch the manager naps for some milliseconds, during which a release does not wake it up. The next request
# does, whether it comes from the same session, whose mailbox is already on the stack, or from another one. The test
# compares the two times with each other, and takes short ones of each, because a busy machine makes many of them long.
subtest 'a request after a release wakes the manager up' => sub {
	my %took;

	foreach my $round (1 .. 51)
	{
		foreach my $who ([ 'same', $one ], [ 'other', $two ])
		{
			my $x = acquire($one, 'x');

			release($one, 'x', $x);
			my $start = time;
			$x = acquire($who->[1], 'y');
			push @{ $took{ $who->[0] } }, time - $start;
			release($who->[1], 'y', $x);
		}
	}
	my ($same, $other) = map { (sort { $a <=> $b } @{ $took{$_} })[5] } 'same', 'other';
	cmp_ok($same, '<', 2 * $other + 0.001, sprintf('the same session is served as soon as another one (%.1f and %.1f ms)', 1000 * $same, 1000 * $other));
	nothing_left($node);
};

subtest 'a lock that has ended is not released' => sub {
	my $x = acquire($one, 'x');

	is(ask($two, q{SELECT force_release_lock('x')}), '1', 'the lock is ended by force');
	is(release($one, 'x', $x), 'f', 'a release after force returns false');
	$x = acquire($one, 'x', q{, '300 ms'});
	sleep 0.5;
	is(release($one, 'x', $x), 'f', 'a release after the TTL returns false');
	my $pid = manager();
	$x = acquire($one, 'x', q{, '300 ms'});
	kill 'STOP', $pid;
	sleep 0.5;
	$one->query("SELECT release_lock('x', $x)");
	ok(is_busy($one, 0.2), 'a release after the TTL waits for the manager');
	kill 'CONT', $pid;
	like($one->wait('Z'), qr/^[tf]$/, 'the manager decides about a release after the TTL');
	$x = acquire($one, 'x');
	is(release($two, 'x', $x), 't', 'another connection of the role releases the lock');
	is(release($one, 'x', $x), 'f', 'a release of a released lock returns false');
	$x = acquire($one, 'x');
	is(join(' ', map { release($one, 'x', $x) } 1 .. 3), 't f f', 'a lock is released only once');
	is(ask($one, "SELECT is_held('x', $x)"), 'f', 'the session itself sees the lock released');

	ask($one, 'BEGIN');
	$x = acquire($one, 'x');
	kill 'STOP', $pid;
	ask($one, 'ROLLBACK');
	$one->query("SELECT release_lock('x', $x)");
	ok(is_busy($one, 0.2), 'a release after a rollback waits for the manager');
	kill 'CONT', $pid;
	is($one->wait('Z'), 'f', 'a release after a rollback returns false');

	ask($one, $_) foreach 'BEGIN', 'SAVEPOINT s';
	$x = acquire($one, 'x');
	ask($one, 'ROLLBACK TO s');
	ask($one, 'COMMIT');
	is(release($one, 'x', $x), 'f', 'a release after ROLLBACK TO SAVEPOINT returns false');

	# The next manager loads the locks.
	$x = acquire($one, 'x');
	ask($free, "SELECT pg_terminate_backend($pid)");
	ok(wait_until(sub { manager() ne $pid }), 'another manager starts');
	is(release($one, 'x', $x), 't', 'a lock of the earlier manager is released');
	nothing_left($node);
};

subtest 'releases that wait for the manager' => sub {
	my $pid = manager();

	foreach my $case ([ q{SET lock_election.durable_release = on}, '' ], [ q{SET lock_election.durable_release = off}, q{, '10 min'} ])
	{
		my ($set, $more) = @$case;

		ask($one, $set);
		my $x = acquire($one, 'x', $more);
		kill 'STOP', $pid;
		$one->query("SELECT release_lock('x', $x)");
		ok(is_busy($one, 0.2), "a release waits for the manager: $set$more");
		kill 'CONT', $pid;
		is($one->wait('Z'), 't', 'the release returns true');
	}
	my $x = acquire($one, 'x');
	ask($two, "SELECT renew_lock('x', $x, '10 min')");
	kill 'STOP', $pid;
	$one->query("SELECT release_lock('x', $x)");
	ok(is_busy($one, 0.2), 'a release of a lock that another connection has renewed for 10 minutes waits for the manager');
	kill 'CONT', $pid;
	is($one->wait('Z'), 't', 'the release returns true');

	# The TTL is more than five minutes, but less than that is left after the wait.
	$x = acquire($two, 'x');
	$one->query(q{SELECT acquire_lock('x', '300.5 s')});
	ok(is_busy($one, 0.2), 'the call waits for the lock');
	fault(q{set('batch-committed', 'sleep', 800)});
	release($two, 'x', $x);
	$x = $one->wait('Z');
	kill 'STOP', $pid;
	$one->query("SELECT release_lock('x', $x)");
	ok(is_busy($one, 0.2), 'a release of a lock with a TTL of more than five minutes waits, even if less is left');
	kill 'CONT', $pid;
	is($one->wait('Z'), 't', 'the release returns true');

	$x = acquire($one, 'x');
	ask($one, 'DISCARD ALL');
	ask($one, "SELECT is_held('x', $x)");
	kill 'STOP', $pid;
	$one->query("SELECT release_lock('x', $x)");
	ok(is_busy($one, 0.2), 'a release of a lock acquired before DISCARD ALL waits for the manager');
	kill 'CONT', $pid;
	is($one->wait('Z'), 't', 'the release returns true');

	ask($free, 'CREATE ROLE other');
	$x = acquire($one, 'x');
	ask($one, 'SET ROLE other');
	release($one, 'x', $x);
	like($one->error, qr/ERROR 42501/, 'a release by another role is rejected');
	ask($one, 'RESET ROLE');
	is(release($one, 'x', $x), 't', 'the role itself releases the lock');
	ask($free, 'DROP ROLE other');
	nothing_left($node);
};

subtest 'a release that cannot be written' => sub {
	my ($a, $b) = map { acquire($one, $_) } 'a', 'b';

	fault(q{set('batch-begun', 'error', times => 0)});
	is(release($one, 'a', $a), 't', 'the release returns true');
	ok(wait_until(sub { fault(q{hits('batch-begun')}) > 0 }), 'the manager tries to write the release');
	my $errors = join '', map { ask($one, $_); $one->error } 'BEGIN', "SELECT release_lock('b', $b)", 'COMMIT';
	like($errors, qr/WARNING 01000 the transaction is committed, but/, 'a transaction with another release gets a warning');
	my $tries = fault(q{hits('batch-begun')});
	sleep 2;
	cmp_ok(fault(q{hits('batch-begun')}) - $tries, '<', 20, 'a release that fails is retried with pauses');
	fault('clear()');
	ok(wait_until(sub { is_stored_free('a') && is_stored_free('b') }), 'both locks are released when they can be written');
	nothing_left($node);
};

# An exiting manager applies the releases that were reported before. If the server stops after that, no manager would
# find later ones.
subtest 'a release without a manager waits' => sub {
	my $launcher = ask($free, q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election launcher'});
	my $pid = manager();
	my $x = acquire($one, 'x');

	kill 'STOP', $launcher;
	kill 'TERM', $pid;
	wait_until(sub { ask($free, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") eq '0' });
	$one->query("SELECT release_lock('x', $x)");
	my $waits = "SELECT wait_event_type = 'Extension' AND state = 'active' FROM pg_stat_activity WHERE pid = " . $one->pid;
	wait_until(sub { !is_busy($one) || ask($free, $waits) eq 't' });
	ok(is_busy($one), 'the release waits for a manager');
	kill 'CONT', $launcher;
	is($one->wait('Z'), 't', 'the next manager applies the release');
	nothing_left($node);
};

subtest 'ends of the session and of the server' => sub {
	my $pid = manager();
	my $leaves = LeWire->new($node);
	my $x = acquire($leaves, 'x');

	kill 'STOP', $pid;
	is(release($leaves, 'x', $x), 't', 'the release returns while the manager is stopped');
	$leaves->cut;
	kill 'CONT', $pid;
	ok(wait_until(sub { is_stored_free('x') }), 'the release of an ended session is applied');

	$x = acquire($one, 'x', q{, '5 s'});
	kill 'STOP', $pid;
	is(release($one, 'x', $x), 't', 'the release returns while the manager is stopped');
	$node->stop('immediate');
	kill 'KILL', $pid;
	$node->start;
	my $again = LeWire->new($node);
	like(ask($again, q{SELECT acquire_lock('x', wait => '20 s')}), qr/^\d+$/, 'after a crash, the lock is free at the latest when its TTL expires');
	$again->quit;
	$node->safe_psql('postgres', q{SELECT force_release_lock('x')});
	nothing_left($node);
};

$node->stop;
done_testing();
