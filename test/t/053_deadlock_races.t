# A deadlock search fails, coincides with the end of a wait, or has several parts.
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

# A search for deadlocks fails in the middle of a path: the next one begins with no mark of it.
{
	my ($s, $t) = map { session($node) } 1 .. 2;

	fault(q{set('deadlock-step', 'error', skip => 1, times => 1)});
	acquire($s, 'x', 'NULL');
	acquire($t, 'y', 'NULL');
	$s->async(q{SELECT acquire_lock('y', NULL)});
	waiting($s);
	$t->async(q{SELECT acquire_lock('x', NULL)});
	ok(wait_until(sub { $s->ready || $t->ready }), 'a deadlock is found all the same');
	is(fault(q{hits('deadlock-step')}) > 2, 1, 'by another search');
	my ($victim, $other) = $s->ready ? ($s, $t) : ($t, $s);
	$victim->wait;
	like($victim->error, qr/ERROR:  40P01/, 'somebody gives up');
	$victim->quit;
	$c->query('SELECT force_release_lock(name) FROM lock_election.locks');
	$other->wait;
	$c->query('SELECT force_release_lock(name) FROM lock_election.locks');
	$other->quit;
	fault('clear()');
	nothing_left($node);
}

# One process has a lock several times, in slots and in one transaction: it is one edge (an assertion looks).
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
	like($s->error, qr/ERROR:  40P01/, 'who comes last gives up');
	$s->query('ROLLBACK');
	$s->quit;
	like($_->wait, qr/^\d+$/, 'the others go on') foreach $t, $u;
	$_->quit foreach $t, $u;
	nothing_left($node);
}

my ($held_up, $held_for);

# The first of two gives up when the search has found both of them: it waits no more, and so the second one waits on.
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
	like($t->wait, qr/^\d+$/, "$how: the other one is told of no deadlock") or diag($t->error);
	$_->quit foreach $s, $t;
	fault('clear()');
	nothing_left($node);
}

# Both of two ask in one batch: once the first one is told, there is no cycle for the second one.  The last search has taken
# some seconds, as a process that ends waits for the manager.
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
	like($t->error, qr/ERROR:  40P01/, 'both ask at a time: the newest is told');
	my $took = time - $held_up;
	ok($took < 20 || $took < 9 * $held_for, "and not after nine times as long as the last search was held up: $took s, $held_for s");
	ok(!$s->ready, 'and nobody else');
	$t->quit;
	like($s->wait, qr/^\d+$/, 'but goes on when that one ends');
	$s->quit;
	nothing_left($node);
}

# Ten steps take a millisecond each, more than the search has: it goes on in another batch, where it has ended in this one.
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
	like($t->error, qr/ERROR:  40P01/, 'a search in parts comes to its end');
	my $steps = fault(q{hits('deadlock-step')});
	ok($steps > 403 && $steps < 500, "and looks at nothing twice but at the path: $steps steps");
	$t->quit;
	ok($s->wait, 'the other one goes on');
	$s->quit;
	fault('clear()');
	nothing_left($node);
}

$_->quit foreach $c, $free;
$node->stop;
done_testing();
