# A session releases its lock without asking the manager: it returns that the lock was held, and mails the release.
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

# What is on disk, without a word to the manager, which looks only when it is awake.
sub is_stored_free
{
	my ($name) = @_;
	return ask($free, "SELECT count(*) FROM _lock_election.slot WHERE name = '$name' AND token <> 0") eq '0';
}

sub manager { return ask($free, 'SELECT pid FROM lock_election.manager'); }

subtest 'it is told at once' => sub {
	my $pid = manager();
	my ($x, $y) = (acquire($one, 'x'), acquire($two, 'y'));

	stop_asleep($pid);
	is(release($two, 'y', $y), 't', 'though the manager does not run');
	is(release($one, 'x', $x), 't', 'nor for another session');

	# the mailbox of this session is the first that the manager comes to
	$two->query(q{SELECT try_acquire_lock('x') IS NOT NULL});
	$three->query(q{SELECT try_acquire_lock('y') IS NOT NULL});
	ok(is_busy($two, 0.2), 'a request is not');
	kill 'CONT', $pid;
	is($two->wait('Z'), 't', 'who asks after that finds it released');
	is($three->wait('Z'), 't', 'in whatever order');
	ask($free, q{SELECT force_release_lock('x'), force_release_lock('y')});
};

subtest 'of each of the last eight grants' => sub {
	my $pid = manager();

	# 5 minutes: the longest TTL
	my %token = map { $_ => acquire($one, "n$_", q{, '5 min'}) } 1 .. 8;
	ask($one, q{SET lock_timeout = '2 s'});
	foreach my $i (1 .. 8)
	{
		stop_asleep($pid);
		is(release($one, "n$i", $token{$i}), 't', "grant $i");
		kill 'CONT', $pid;
		ok(wait_until(sub { is_stored_free("n$i") }), 'it is released');
	}
	ask($one, 'RESET lock_timeout');
	nothing_left($node);
};

subtest 'of this name, token and kind alone' => sub {
	my ($x, $y, $e) = (acquire($one, 'x'), acquire($one, 'y'), ask($one, q{SELECT campaign('e', 'me')}));

	is(release($one, 'y', $x), 'f', 'another lock');
	is(release($one, 'xx', $x), 'f', 'one that is not held');
	is(release($one, 'x', $y), 'f', 'the token of another lock');
	is(release($one, 'e', $e), 'f', 'the term of an election');
	is(ask($one, "SELECT resign('x', $x)"), 'f', 'the token of a lock, of an election');
	is(ask($free, "SELECT concat(is_held('x', $x), is_held('y', $y), is_leader('e', $e))"), 'ttt', 'which releases nothing');
	is(join(' ', release($one, 'x', $x), release($one, 'y', $y), ask($one, "SELECT resign('e', $e)")), 't t t', 'they are released');
	my $next = acquire($one, 'x');
	is(release($one, 'x', $x), 'f', 'the token of an earlier grant');
	is(ask($free, "SELECT is_held('x', $next)"), 't', 'it is held');
	is(release($one, 'x', $next), 't', 'released');
	nothing_left($node);
};

subtest 'nobody has to ring twice' => sub {
	my $x = acquire($one, 'x');

	is(release($one, 'x', $x), 't', 'the manager has just been busy');
	ok(wait_until(sub { is_stored_free('x') }), 'it looks once more before it sleeps');

	# while anything is held it wakes up each second
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
	cmp_ok((sort { $a <=> $b } @took)[4], '<', 0.5, 'where it sleeps it is woken');

	$x = acquire($one, 'x');
	$two->query(q{SELECT acquire_lock('x')});
	ok(is_busy($two, 0.3), 'somebody waits');
	is(release($one, 'x', $x), 't', 'released');
	$x = $two->wait('Z');
	is(release($two, 'x', $x), 't', 'what was waited for is released in the same way');

	# over and over, at all distances from the manager's last look; others may have the processor for as long, now and then
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
	cmp_ok($late, '<', 3, 'no hand-over waits for that');
};

# After a batch the manager naps for some milliseconds, in which a release does not wake it.  The request that follows does,
# whether it is of the same session, whose mailbox is on the stack already, or of another one.  Times are compared with each
# other alone: a busy machine makes both of them long.
subtest 'a request after a release wakes the manager' => sub {
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
	my ($same, $other) = map { (sort { $a <=> $b } @{ $took{$_} })[25] } 'same', 'other';
	cmp_ok($same, '<', 2 * $other + 0.001, sprintf('of the same session as soon as of another one (%.1f and %.1f ms)', 1000 * $same, 1000 * $other));
	nothing_left($node);
};

subtest 'what has ended before is not released' => sub {
	my $x = acquire($one, 'x');

	is(ask($two, q{SELECT force_release_lock('x')}), '1', 'ended by force');
	is(release($one, 'x', $x), 'f', 'told so');
	$x = acquire($one, 'x', q{, '300 ms'});
	sleep 0.5;
	is(release($one, 'x', $x), 'f', 'expired');
	my $pid = manager();
	$x = acquire($one, 'x', q{, '300 ms'});
	kill 'STOP', $pid;
	sleep 0.5;
	$one->query("SELECT release_lock('x', $x)");
	ok(is_busy($one, 0.2), 'its time is over, and the manager does not run: it is asked');
	kill 'CONT', $pid;
	like($one->wait('Z'), qr/^[tf]$/, 'and decides');
	$x = acquire($one, 'x');
	is(release($two, 'x', $x), 't', 'released by another connection of the role');
	is(release($one, 'x', $x), 'f', 'told so');
	$x = acquire($one, 'x');
	is(join(' ', map { release($one, 'x', $x) } 1 .. 3), 't f f', 'released once');
	is(ask($one, "SELECT is_held('x', $x)"), 'f', 'the session itself sees that');

	ask($one, 'BEGIN');
	$x = acquire($one, 'x');
	kill 'STOP', $pid;
	ask($one, 'ROLLBACK');
	$one->query("SELECT release_lock('x', $x)");
	ok(is_busy($one, 0.2), 'rolled back: the manager is asked');
	kill 'CONT', $pid;
	is($one->wait('Z'), 'f', 'and knows');

	ask($one, $_) foreach 'BEGIN', 'SAVEPOINT s';
	$x = acquire($one, 'x');
	ask($one, 'ROLLBACK TO s');
	ask($one, 'COMMIT');
	is(release($one, 'x', $x), 'f', 'also to a savepoint');

	# a new manager knows what the old one had
	$x = acquire($one, 'x');
	ask($free, "SELECT pg_terminate_backend($pid)");
	ok(wait_until(sub { manager() ne $pid }), 'another manager');
	is(release($one, 'x', $x), 't', 'what it has loaded is released');
	nothing_left($node);
};

subtest 'where something rests on it, it waits' => sub {
	my $pid = manager();

	foreach my $case ([ q{SET lock_election.durable_release = on}, '' ], [ q{SET lock_election.durable_release = off}, q{, '10 min'} ])
	{
		my ($set, $more) = @$case;

		ask($one, $set);
		my $x = acquire($one, 'x', $more);
		kill 'STOP', $pid;
		$one->query("SELECT release_lock('x', $x)");
		ok(is_busy($one, 0.2), "$set$more");
		kill 'CONT', $pid;
		is($one->wait('Z'), 't', 'released');
	}
	my $x = acquire($one, 'x');
	ask($two, "SELECT renew_lock('x', $x, '10 min')");
	kill 'STOP', $pid;
	$one->query("SELECT release_lock('x', $x)");
	ok(is_busy($one, 0.2), 'renewed for longer, by another connection');
	kill 'CONT', $pid;
	is($one->wait('Z'), 't', 'released');

	# after a wait less than five minutes are left of more
	$x = acquire($two, 'x');
	$one->query(q{SELECT acquire_lock('x', '300.5 s')});
	ok(is_busy($one, 0.2), 'waits');
	fault(q{set('batch-committed', 'sleep', 800)});
	release($two, 'x', $x);
	$x = $one->wait('Z');
	kill 'STOP', $pid;
	$one->query("SELECT release_lock('x', $x)");
	ok(is_busy($one, 0.2), 'a TTL of more than five minutes, of which less is left');
	kill 'CONT', $pid;
	is($one->wait('Z'), 't', 'released');

	$x = acquire($one, 'x');
	ask($one, 'DISCARD ALL');
	ask($one, "SELECT is_held('x', $x)");
	kill 'STOP', $pid;
	$one->query("SELECT release_lock('x', $x)");
	ok(is_busy($one, 0.2), 'acquired before DISCARD ALL');
	kill 'CONT', $pid;
	is($one->wait('Z'), 't', 'released');

	ask($free, 'CREATE ROLE other');
	$x = acquire($one, 'x');
	ask($one, 'SET ROLE other');
	release($one, 'x', $x);
	like($one->error, qr/ERROR 42501/, 'another role');
	ask($one, 'RESET ROLE');
	is(release($one, 'x', $x), 't', 'released');
	ask($free, 'DROP ROLE other');
	nothing_left($node);
};

subtest 'one that cannot be written' => sub {
	my ($a, $b) = map { acquire($one, $_) } 'a', 'b';

	fault(q{set('batch-begun', 'error', times => 0)});
	is(release($one, 'a', $a), 't', 'it was told');
	ok(wait_until(sub { fault(q{hits('batch-begun')}) > 0 }), 'and is to be written soon');
	my $errors = join '', map { ask($one, $_); $one->error } 'BEGIN', "SELECT release_lock('b', $b)", 'COMMIT';
	like($errors, qr/WARNING 01000 the transaction is committed, but/, 'a transaction that releases another one warns');
	my $tries = fault(q{hits('batch-begun')});
	sleep 2;
	cmp_ok(fault(q{hits('batch-begun')}) - $tries, '<', 20, 'what fails is tried again after a while, not all the time');
	fault('clear()');
	ok(wait_until(sub { is_stored_free('a') && is_stored_free('b') }), 'both are released when that can be written');
	nothing_left($node);
};

# The manager that leaves makes what was told before that; if the server stops then, no other finds what comes later.
subtest 'it is not told without a manager' => sub {
	my $launcher = ask($free, q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election launcher'});
	my $pid = manager();
	my $x = acquire($one, 'x');

	kill 'STOP', $launcher;
	kill 'TERM', $pid;
	wait_until(sub { ask($free, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") eq '0' });
	$one->query("SELECT release_lock('x', $x)");
	my $waits = "SELECT wait_event_type = 'Extension' AND state = 'active' FROM pg_stat_activity WHERE pid = " . $one->pid;
	wait_until(sub { !is_busy($one) || ask($free, $waits) eq 't' });
	ok(is_busy($one), 'it waits for one');
	kill 'CONT', $launcher;
	is($one->wait('Z'), 't', 'which makes it');
	nothing_left($node);
};

subtest 'ends of the session, and of the server' => sub {
	my $pid = manager();
	my $leaves = LeWire->new($node);
	my $x = acquire($leaves, 'x');

	kill 'STOP', $pid;
	is(release($leaves, 'x', $x), 't', 'released');
	$leaves->cut;
	kill 'CONT', $pid;
	ok(wait_until(sub { is_stored_free('x') }), 'also if that was its last word');

	$x = acquire($one, 'x', q{, '5 s'});
	kill 'STOP', $pid;
	is(release($one, 'x', $x), 't', 'released');
	$node->stop('immediate');
	kill 'KILL', $pid;
	$node->start;
	my $again = LeWire->new($node);
	like(ask($again, q{SELECT acquire_lock('x', wait => '20 s')}), qr/^\d+$/, 'after a crash it is free, at the latest when its TTL is over');
	$again->quit;
	$node->safe_psql('postgres', q{SELECT force_release_lock('x')});
	nothing_left($node);
};

$node->stop;
done_testing();
