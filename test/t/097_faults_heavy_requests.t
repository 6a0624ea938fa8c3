# Heavy requests are deferred, and the manager backs off after them. It is stopped in the middle of one; or each batch
# takes 50 ms, so that the rollback of many locks takes some seconds, and other requests can be observed in the
# meantime.
# Promises: G
# Needs: faults
use strict;
use warnings;
use IO::Select ();
use LePoints;
use LeTest;
use LeWire;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', faults => 1, conf => "log_statement = none\nautovacuum = off\n");
my $free = LeWire->new($node);
points_by(\$free);
my $held = 16000;

sub ask
{
	my ($session, $sql) = @_;
	$session->query($sql);
	my $out = $session->wait('Z');
	die "$sql: " . $session->error if $session->error;
	return $out;
}

sub names { my ($prefix, $n) = @_; return "ARRAY(SELECT '$prefix' || i FROM generate_series(1, $n) AS i)"; }

sub is_busy { my ($session, $seconds) = @_; return !IO::Select->new($session->{socket})->can_read($seconds // 0); }

my $hog = LeWire->new($node);
my $others = LeWire->new($node);
my $waits = LeWire->new($node);
my $renews = LeWire->new($node);

# Starts a stream of light requests: the manager backs off only while there are other requests.
sub ask_for_little
{
	$others->query(q{DO $$ BEGIN FOR i IN 1 .. 1000 LOOP PERFORM pg_sleep(0.01), release_lock('little', acquire_lock('little')); COMMIT; END LOOP; END $$});
	return;
}

sub end_little
{
	$others->cancel;
	$others->wait('Z');
	fault('clear()');
	ask($others, q{SELECT force_release_lock('little')});
	return;
}

sub begin_heavy
{
	ask($hog, 'BEGIN');
	ask($hog, "SELECT count(acquire_locks(ARRAY(SELECT 'hog' || j || '-' || i FROM generate_series(1, 1000) AS i), ttl => '1 h')) FROM generate_series(1, $held / 1000) AS j");
	fault(q{set('batch-applied', 'sleep', ms => 50, times => 0)});
	$hog->query('ROLLBACK');

	# The next request of this session waits until the rollback is complete.
	$hog->wait('Z');
	$hog->query(q{SELECT acquire_lock('behind')});
	ask_for_little();
	return;
}

sub end_heavy
{
	end_little();
	like($hog->wait('Z'), qr/^\d+$/, 'the rollback is complete') or diag($hog->error);
	ask($hog, q{SELECT release_lock('behind', token) FROM lock_election.locks WHERE name = 'behind'});
	return nothing_left($node, undef, timeout => 30);
}

# Keeps the manager at the start of a batch until three requests are posted, in this order: a light one, which this
# batch serves; and for the next batch, a rollback that exceeds the limit of a batch, and the given statement.
sub ask_behind_heavy
{
	my ($session, $sql) = @_;

	ask($hog, 'BEGIN');
	ask($hog, 'SELECT acquire_locks(' . names('heavy', 300) . ", ttl => '1 h')");
	fault(q{set('batch-rung', 'wait')});
	$others->query(q{SELECT is_held('little', 1)});
	stopped('batch-rung');
	ask($hog, 'ROLLBACK');
	$session->query($sql);
	asking($session);
	return;
}

# The first batch of the rollback takes more than 50 ms, so the back-off after it has its maximum of 100 ms. The next
# batch comes within the back-off, unless the machine does not run the manager for so long; then the test is repeated.
subtest 'the manager backs off after heavy work' => sub {
	my $place = names('place', 20);
	my $waiting = ask($renews, "SELECT (enqueue_locks($place, ttl => '1 h')).token");
	my ($granted, $renewed) = 20;

	for (my $try = 1; $try <= 20 && $granted > 0; $try++)
	{
		my $mine = names("try $try-", 20);

		ask_behind_heavy($waits, "SELECT acquire_locks($mine, ttl => '1 h')");
		fault(q{set('batch-applied', 'wait', skip => 1)});
		fault(q{release('batch-rung')});
		$others->wait('Z');
		stopped('batch-applied');
		my $end = time + 0.06;
		$others->query(q{SELECT is_held('little', 1)});
		$renews->query("SELECT await_locks($place, $waiting, wait => '1 min')");
		asking($_) foreach $others, $renews;
		wait_until(sub { time > $end });
		fault(q{set('batch-done', 'wait', skip => 1)});
		fault(q{release('batch-applied')});
		stopped('batch-done');
		$granted = ask($free, "SELECT count(*) FROM _lock_election.slot WHERE name = ANY ($mine)");
		$renewed = !is_busy($renews, 30);
		fault(q{release('batch-done')});
		is($renews->wait('Z'), 't', 'a renewal of places for many names is served');
		is($others->wait('Z'), 'f', 'a light request is served');
		my $token = $waits->wait('Z');
		like($token, qr/^\d+$/, 'a heavy request is served after the back-off');
		ask($waits, "SELECT release_locks($mine, $token)");
	}
	is($granted, 0, 'twenty locks are not granted during the back-off');
	ok($renewed, 'a renewal of twenty places is not deferred');
	ask($renews, "SELECT release_locks($place, $waiting)");
	nothing_left($node);
};

# Lookups count even if they fail or find nothing: a batch has room for only some of the requests for a thousand names.
subtest 'requests that only look names up' => sub {
	my @crowd = map { LeWire->new($node) } 1 .. 20;
	my $all = names('held', 1000);

	ask($hog, "SELECT count(token) FROM try_acquire_each($all, ttl => '1 h')");
	foreach my $sql (
		"SELECT count(token) FROM try_acquire_each($all)",
		"SELECT acquire_locks($all, wait => '0')",
		"SELECT count(*) FILTER (WHERE released) FROM release_each($all, array_fill(1, ARRAY[1000]))")
	{
		fault(q{set('batch-rung', 'wait')});
		$others->query(q{SELECT is_held('little', 1)});
		stopped('batch-rung');
		foreach my $s (@crowd)
		{
			$s->query($sql);
			asking($s);
		}
		fault(q{set('batch-done', 'wait', skip => 1)});
		fault(q{release('batch-rung')});
		$others->wait('Z');
		stopped('batch-done');
		my $answered = grep { !is_busy($_, 0.05) } @crowd;
		cmp_ok($answered, '<', 10, "a batch serves only some of the requests: $sql");
		fault('clear()');
		like($_->wait('Z'), qr/^0?$/, 'each request is served') foreach @crowd;
		is($_->error, '', 'each request is served without an error') foreach @crowd;
	}
	$_->quit foreach @crowd;
	is(ask($hog, 'SELECT force_release_role(current_user::regrole)'), '1000', 'the held locks are unchanged');
	nothing_left($node);
};

# health() is about the whole server: heavy requests of some sessions must not make it report a problem.
subtest 'deferred requests are no problem for health()' => sub {
	my @hogs = map { LeWire->new($node) } 1 .. 24;

	foreach my $i (0 .. $#hogs)
	{
		ask($hogs[$i], 'BEGIN');
		ask($hogs[$i], 'SELECT acquire_locks(' . names("heavy$i-", 300) . ')');
	}
	fault(q{set('batch-applied', 'sleep', ms => 50, times => 0)});
	ask_for_little();
	$_->query('ROLLBACK'), $_->wait('Z'), $_->query(q{SELECT is_held('behind', 1)}) foreach @hogs;
	$waits->query('SELECT acquire_locks(' . names('mine', 20) . ')');
	my $end = time + 2.5;
	wait_until(sub { time > $end });
	ok(is_busy($waits), 'a heavy request waits for more than two seconds');
	is(ask($free, q{SELECT problem, request_wait < '1 s' FROM lock_election.health()}), '|t', 'health() reports no problem');
	end_little();
	my $token = $waits->wait('Z');
	like($token, qr/^\d+$/, 'the heavy request is granted');
	ask($waits, 'SELECT release_locks(' . names('mine', 20) . ", $token)");
	$_->wait('Z') foreach @hogs;
	$_->quit foreach @hogs;
	nothing_left($node, undef, timeout => 30);
};

subtest 'heavy requests take turns' => sub {
	begin_heavy();
	my $start = time;
	my $token = ask($waits, 'SELECT acquire_locks(' . names('mine', 20) . ')');
	my $took = time - $start;
	ok(is_busy($hog), sprintf 'twenty locks are granted after %.1f s, before the rollback of %d is done', $took, $held);
	ask($waits, 'SELECT release_locks(' . names('mine', 20) . ", $token)");
	end_heavy();
};

subtest 'deferred requests that give up' => sub {
	begin_heavy();
	my $ended = 0;
	foreach my $i (1 .. 5)
	{
		$waits->query("SET statement_timeout = 20; SELECT acquire_locks(" . names('mine', 20) . ", ttl => '1 h')");
		$waits->wait('Z');
		$ended += $waits->error =~ /57014/;
		$waits->query("RESET statement_timeout");
		$waits->wait('Z');
		my $gone = LeWire->new($node);
		$gone->query('SELECT acquire_locks(' . names("gone$i", 20) . ', NULL)');
		$gone->cut;
	}
	cmp_ok($ended, '>', 0, 'statement_timeout ends a deferred request');
	ok(is_busy($hog), 'the rollback is not complete yet');
	my $token = ask($waits, 'SELECT acquire_locks(' . names('mine', 20) . ", wait => '20 s')");
	like($token, qr/^\d+$/, 'the names of the requests that gave up are free');
	ask($waits, 'SELECT release_locks(' . names('mine', 20) . ", $token)");
	end_heavy();
};

# A back-off is twice as long as the batch before it: two of three of these batches happen within a back-off, and the
# rollback is deferred.
subtest 'failed batches during a back-off' => sub {
	begin_heavy();
	for my $i (1 .. 6)
	{
		fault(q{set('batch-before-expiry', 'error')});
		$waits->query('SELECT acquire_locks(' . names('mine', 20) . ')');
		my $token = $waits->wait('Z');
		like($token, qr/^\d+$/, 'a deferred request is granted after a failed batch') or diag($waits->error);
		cmp_ok(fault(q{hits('batch-before-expiry')}), '>', 1, 'the batch has failed');
		ask($waits, 'SELECT release_locks(' . names('mine', 20) . ", $token)");
	}
	ok(is_busy($hog), 'the rollback is not complete yet');
	fault(q{clear()});
	end_heavy();
};

# A session that ends keeps its mailbox until its mail is processed, because the next session would have to wait for it.
subtest 'a session with many locks exits after they have ended' => sub {
	foreach my $left ('', 'BEGIN; ')
	{
		my $leaves = LeWire->new($node);
		my $pid = ask($leaves, 'SELECT pg_backend_pid()');
		ask($leaves, $left) if $left;
		my $ttl = $left ? "'1 h'" : 'NULL';
		ask($leaves, "SELECT count(acquire_locks(ARRAY(SELECT 'leaves' || j || '-' || i FROM generate_series(1, 1000) AS i), ttl => $ttl)) FROM generate_series(1, 4) AS j");
		stop_at('manager-took');
		$leaves->quit;
		stopped('manager-took');
		is(ask($free, "SELECT pg_sleep(0.3) IS NOT NULL, count(*) FROM pg_stat_activity WHERE pid = $pid"), 't|1', 'the backend does not exit while the manager is stopped');
		go_on('manager-took');
		ok(wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid"), 'the backend exits when the manager continues');
		is(ask($free, 'SELECT count(*) FROM lock_election.locks'), '0', 'the locks of the session have ended when its backend exits');
	}
	nothing_left($node);
};

# A queue position is found by walking the queue: no page may walk through all queues.
subtest 'a lease with places in long queues' => sub {
	my $lease = ask($waits, q{SELECT grant_lease('1 h')});
	my @queues = map { "long $_" } 1 .. 6;
	my $asked = sub { return fault(q{hits('request-posted')}); };

	foreach my $queue (@queues)
	{
		ask($others, "SELECT acquire_lock('$queue', '1 h')");
		is(ask($others, "SELECT count((enqueue_lock('$queue', '1 h')).token) FROM generate_series(1, 900)"), '900', "$queue: 900 places are enqueued");
		ask($waits, "SELECT enqueue_lock('$queue', lease => $lease)");
	}
	my $before = $asked->();
	is(ask($waits, "SELECT string_agg(name || queue_position, ' ' ORDER BY name) FROM lease_holds($lease)"), join(' ', map { "${_}901" } @queues), 'lease_holds() returns all queue positions');
	is($asked->() - $before, 3, 'each page walks two queues');
	ask($waits, "SELECT revoke_lease($lease)");
	foreach my $queue (@queues)
	{
		is(ask($others, "SELECT count(*) FROM generate_series(1, 901) WHERE force_release_lock('$queue') = 1"), '901', "$queue: all places are granted and released");
	}
	nothing_left($node);
};

$_->quit foreach $hog, $others, $waits, $renews, $free;
$node->stop;
done_testing();
