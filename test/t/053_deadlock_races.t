# A deadlock search that fails, that coincides with the end of a wait, or that has several parts.
# Promises: A
# Needs: faults
use strict;
use warnings;
use LePoints;
use LeTest;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', faults => 1, conf => "autovacuum = off\n");
my ($c, $free) = map { session($node) } 1 .. 2;
points_by(\$free);

sub acquire { my ($s, $name, $ttl) = @_; return $s->query("SELECT acquire_lock('$name', $ttl)"); }

# A search fails in the middle of a path: the next search must not find its marks.
{
	my ($s, $t) = map { session($node) } 1 .. 2;

	fault(q{set('deadlock-step', 'error', skip => 1, times => 1)});
	acquire($s, 'x', 'NULL');
	acquire($t, 'y', 'NULL');
	$s->async(q{SELECT acquire_lock('y', NULL)});
	waiting($s);
	$t->async(q{SELECT acquire_lock('x', NULL)});
	ok(wait_until(sub { $s->ready || $t->ready }), 'a deadlock is found after a failed search');
	is(fault(q{hits('deadlock-step')}) > 2, 1, 'another search finds the deadlock');
	my ($victim, $other) = $s->ready ? ($s, $t) : ($t, $s);
	$victim->wait;
	like($victim->error, qr/ERROR:  40P01/, 'one session gets the deadlock error');
	$victim->quit;
	$c->query('SELECT force_release_lock(name) FROM lock_election.locks');
	$other->wait;
	$c->query('SELECT force_release_lock(name) FROM lock_election.locks');
	$other->quit;
	fault('clear()');
	nothing_left($node);
}

# One process holds a lock several times, in slots and in one transaction: this counts as one edge (an assertion checks
# it).
{
	my ($s, $t, $u) = map { session($node) } 1 .. 3;

	$s->query(q{SELECT acquire_permit('p', 3, ttl => NULL) FROM generate_series(1, 3)});
	$s->query(q{BEGIN; SELECT acquire_lock('x', '1 h') FROM generate_series(1, 3)});
	acquire($t, 'y', 'NULL');
	acquire($u, 'z', 'NULL');
	$t->async(q{SELECT acquire_permit('p', 3, ttl => NULL)});
	$u->async(q{SELECT acquire_lock('x', NULL)});
	waiting($_) foreach $t, $u;
	$s->query(q{SELECT acquire_locks(ARRAY['y', 'z'])});
	like($s->error, qr/ERROR:  40P01/, 'the last session to wait gets the deadlock error');
	$s->query('ROLLBACK');
	$s->quit;
	like($_->wait, qr/^\d+$/, 'the other sessions are granted their locks') foreach $t, $u;
	$_->quit foreach $t, $u;
	nothing_left($node);
}

my ($held_up, $held_for);

# The first of two sessions gives up after the search has visited both: it no longer waits, so the second one must keep
# waiting.
foreach my $how (qw(cancel terminate))
{
	my ($s, $t) = map { session($node) } 1 .. 2;

	$s->query(q{SET deadlock_timeout = '1 h'});
	$t->query(q{SET deadlock_timeout = '100 ms'});
	acquire($s, 'x', 'NULL');
	acquire($t, 'y', 'NULL');
	$s->async(q{SELECT acquire_lock('y', NULL)});
	waiting($s);
	fault(q{set('deadlock-step', 'wait', skip => 3)});
	$t->async(q{SELECT acquire_lock('x', NULL)});
	stopped('deadlock-step');
	my $stopped = time;
	$free->query("SELECT pg_${how}_backend(" . $s->pid . ')');
	$s->wait;
	$held_for = time - $stopped;
	go_on('deadlock-step');
	$held_up = time;
	$s->query(q{SELECT release_lock('x')}) if $how eq 'cancel';
	like($t->wait, qr/^\d+$/, "$how: the other session gets no deadlock error") or diag($t->error);
	$_->quit foreach $s, $t;
	fault('clear()');
	nothing_left($node);
}

# Both sessions request a search in one batch: after the first one has got its error, there is no cycle for the second
# one. The previous search took some seconds, because an exiting process waits for the manager.
{
	my ($s, $t) = map { session($node) } 1 .. 2;

	$_->query(q{SET deadlock_timeout = '50 ms'}) foreach $s, $t;
	acquire($s, 'x', 'NULL');
	acquire($t, 'y', 'NULL');
	stop_at('manager-took');
	$c->async(q{SELECT is_held('nothing', 1)});
	stopped('manager-took');
	$s->async(q{SELECT acquire_lock('y', NULL)});
	asking($s);
	$t->async(q{SELECT acquire_lock('x', NULL)});
	asking($t);
	$free->query('SELECT pg_sleep(0.5)');
	go_on('manager-took');
	$c->wait;
	$t->wait;
	like($t->error, qr/ERROR:  40P01/, 'two sessions request a search at the same time: the newest waiter gets the error');
	my $took = time - $held_up;
	ok($took < 20 || $took < 9 * $held_for, "the error comes before nine times the delay of the previous search: $took s, $held_for s");
	ok(!$s->ready, 'only one of the two sessions gets an error');
	$t->quit;
	like($s->wait, qr/^\d+$/, 'the other session is granted the lock after the end of the victim');
	$s->quit;
	nothing_left($node);
}

# Ten steps take one millisecond each, more than the time limit of a search: it continues in another batch.
{
	my ($s, $t) = map { session($node) } 1 .. 2;

	$s->query(q{SET deadlock_timeout = '1 h'});
	$t->query(q{SET deadlock_timeout = '100 ms'});
	acquire($s, 'm400', 'NULL');
	acquire($t, 'x', 'NULL');
	$s->async(q{SELECT acquire_lock('x', NULL)});
	waiting($s);
	fault(q{set('deadlock-step', 'sleep', ms => 1, times => 10)});
	$t->async(q{SELECT acquire_locks(ARRAY(SELECT 'm' || i FROM generate_series(1, 400) AS i), NULL)});
	$t->wait;
	like($t->error, qr/ERROR:  40P01/, 'a search in several parts finds the deadlock');
	my $steps = fault(q{hits('deadlock-step')});
	ok($steps > 403 && $steps < 500, "a search in several parts repeats only the steps of its current path: $steps steps");
	$t->quit;
	ok($s->wait, 'the other session is granted the lock');
	$s->quit;
	fault('clear()');
	nothing_left($node);
}

$_->quit foreach $c, $free;
$node->stop;
done_testing();
