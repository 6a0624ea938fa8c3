# Requests with much to do are put aside, and the manager rests from them. Each batch takes 50 ms here: so the rollback of
# very many locks takes some seconds, and what has to happen meanwhile, or must not, can be seen.
use strict;
use warnings;
use LeTest;
use LeWire;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', faults => 1, conf => "log_statement = none\nautovacuum = off\n");
my $free = LeWire->new($node);
my $held = 16000;

sub ask
{
	my ($session, $sql) = @_;
	$session->query($sql);
	my $out = $session->wait('Z');
	die "$sql: " . $session->error if $session->error;
	return $out;
}

# Asks nothing of the manager.
sub fault { return ask($free, "SELECT fault_$_[0]"); }

sub names { my ($prefix, $n) = @_; return "ARRAY(SELECT '$prefix' || i FROM generate_series(1, $n) AS i)"; }

sub is_busy { my ($session) = @_; return !IO::Select->new($session->{socket})->can_read(0); }

my $hog = LeWire->new($node);
my $others = LeWire->new($node);
my $waits = LeWire->new($node);

sub begin_much
{
	ask($hog, 'BEGIN');
	ask($hog, "SELECT count(acquire_locks(ARRAY(SELECT 'hog' || j || '-' || i FROM generate_series(1, 1000) AS i), ttl => '1 h')) FROM generate_series(1, $held / 1000) AS j");
	fault(q{set('batch-applied', 'sleep', ms => 50, times => 0)});
	$hog->query('ROLLBACK');

	# it asks for something, and has to wait until all is undone
	$hog->wait('Z');
	$hog->query(q{SELECT acquire_lock('behind')});

	# the manager rests only where others ask for little
	$others->query(q{DO $$ BEGIN FOR i IN 1 .. 1000 LOOP PERFORM pg_sleep(0.01), release_lock('little', acquire_lock('little')); COMMIT; END LOOP; END $$});
	return;
}

sub end_much
{
	$others->cancel;
	$others->wait('Z');
	fault('clear()');
	like($hog->wait('Z'), qr/^\d+$/, 'the rollback is done') or diag($hog->error);
	ask($hog, q{SELECT release_lock('behind', token) FROM lock_election.locks WHERE name = 'behind'});
	ask($others, q{SELECT force_release_lock('little')});
	return nothing_left($node, undef, timeout => 30);
}

subtest 'a renewal of many names waits for nobody' => sub {
	my $holder = LeWire->new($node);
	my $held_by_other = ask($holder, 'SELECT acquire_locks(' . names('place', 20) . ')');

	begin_much();
	my $token = ask($waits, 'SELECT (enqueue_locks(' . names('place', 20) . q{, ttl => '2 s')).token});
	my $end = time + 4;
	my $n = 0;
	my $lost = '';
	while (time < $end && $lost eq '')
	{
		$waits->query('SELECT await_locks(' . names('place', 20) . ", $token, wait => '0')");
		$waits->wait('Z');
		$lost = $waits->error;
		$n++;
	}
	is($lost, '', "a place with a TTL of two seconds is kept alive for four, $n renewals");
	ok(is_busy($hog), 'all the time the manager had much to do');
	ask($holder, 'SELECT release_locks(' . names('place', 20) . ", $held_by_other)");
	ask($waits, 'SELECT release_locks(' . names('place', 20) . ", $token)");
	$holder->quit;
	end_much();
};

subtest 'those with much to do take turns' => sub {
	begin_much();
	my $start = time;
	my $token = ask($waits, 'SELECT acquire_locks(' . names('mine', 20) . ')');
	my $took = time - $start;
	ok(is_busy($hog), sprintf 'twenty locks are granted after %.1f s, before the rollback of %d is done', $took, $held);
	ask($waits, 'SELECT release_locks(' . names('mine', 20) . ", $token)");
	end_much();
};

# A rest is twice as long as the batch before it: two of three of these batches are of a rest, and the rollback is put aside.
subtest 'batches fail while the manager rests' => sub {
	begin_much();
	for my $i (1 .. 6)
	{
		fault(q{set('batch-before-expiry', 'error')});
		$waits->query('SELECT acquire_locks(' . names('mine', 20) . ')');
		my $token = $waits->wait('Z');
		like($token, qr/^\d+$/, 'a batch fails, and what was put aside is done') or diag($waits->error);
		cmp_ok(fault(q{hits('batch-before-expiry')}), '>', 1, 'it has failed');
		ask($waits, 'SELECT release_locks(' . names('mine', 20) . ", $token)");
	}
	ok(is_busy($hog), 'the rollback is not yet done');
	fault(q{clear()});
	end_much();
};

$_->quit foreach $hog, $others, $waits, $free;
$node->stop;
done_testing();
