# A release that its session has already reported: every later request finds it done, whatever the manager does
# meanwhile.
# Promises: E
# Needs: faults
use strict;
use warnings;
use LePoints;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

my $node = new_node('main', faults => 1, conf => "autovacuum = off\n");
my ($a, $b, $c, $free) = map { session($node) } 1 .. 4;
points_by(\$free);

sub acquire { my ($s, $name, $ttl) = @_; return $s->query("SELECT acquire_lock('$name', $ttl)"); }

sub release { my ($s, $name, $token) = @_; return $s->query("SELECT release_lock('$name', $token)"); }

# No batch is still to come for what was released before: it would meet the fault that another batch is to meet.
sub settle
{
	return wait_for_sql($node,
		'SELECT (SELECT count(*) FROM _lock_election.slot) = (SELECT count(*) FROM lock_election.locks WHERE mode IS NOT NULL)');
}

# The manager has taken the stack with b's mail, and has not looked at it yet.
foreach my $point (qw(manager-took batch-horizon batch-rung))
{
	my $x = acquire($a, 'x', q{'1 min'});
	my $y = acquire($b, 'y', q{'1 min'});

	settle();
	sleep 0.05;
	stop_at($point);
	is(release($b, 'y', $y), 't', "$point: one release is told");
	stopped($point);
	is(release($a, 'x', $x), 't', 'and another one');
	$b->async(q{SELECT try_acquire_lock('x', '1 min')});
	asking($b);
	go_on($point);
	my $token = $b->wait;
	like($token, qr/^\d+$/, 'and it is made for whoever asks after that');
	release($b, 'x', $token) if $token;
	nothing_left($node);
}

# They ring while the manager is busy, and it takes them in that order, whatever their numbers are.  On a busy machine the
# first one may have to wait for it longer than one that tries does; the second one may give up.
foreach my $order ([ $a, $b ], [ $b, $a ])
{
	my ($first, $second) = @$order;

	settle();
	stop_at('batch-done');
	$c->async(q{SELECT count(*) FROM lock_election.locks});
	stopped('batch-done');
	$first->async(q{SELECT acquire_lock('x', '1 min', wait => '20 s')});
	asking($first);
	$second->async(q{SELECT try_acquire_lock('x', '1 min')});
	asking($second);
	go_on('batch-done');
	my $token = $first->wait;
	like($token, qr/^\d+$/, 'who rings first is granted the lock');
	is($second->wait, '', 'and not who rings second');
	$c->wait;
	release($first, 'x', $token);
	nothing_left($node);
}

# The batch fails, and its requests are applied one by one.
{
	my $x = acquire($a, 'x', q{'1 min'});
	my $y = acquire($b, 'y', q{'1 min'});

	settle();
	stop_at('manager-took');
	$c->async(q{SELECT count(*) FROM lock_election.locks});
	stopped('manager-took');
	is(release($b, 'y', $y), 't', 'one release is told');
	is(release($a, 'x', $x), 't', 'and another one');
	$b->async(q{SELECT try_acquire_lock('x', '1 min')});
	asking($b);
	fault(q{set('batch-begun', 'error', times => 1)});
	go_on('manager-took');
	$c->wait;
	my $token = $b->wait;
	like($token, qr/^\d+$/, 'it is made for whoever asks after that, also where the batch has failed') or diag $b->error;
	is(fault("hits('batch-begun')") > 1 ? 1 : 0, 1, 'which it has');
	release($b, 'x', $token) if $token;
	fault('clear()');
	nothing_left($node);
}

# A batch fails with what it has taken, and so does the load after it: nothing of that is on the stack any more. Whoever is
# served next, with the first load that works, finds it done.
sub refuse
{
	my ($do) = @_;

	fault(q{set('reload-loaded', 'error', times => 1)});
	fault(q{set('batch-begun', 'error', times => 1)});
	$do->();
	wait_until(sub { fault("hits('reload-loaded')") ne '0' }) || die 'nothing was loaded again';
	return;
}

{
	my $x = acquire($a, 'x', q{'1 min'});

	settle();
	refuse(sub { is(release($a, 'x', $x), 't', 'a release is told, and then refused with all of its batch'); });
	my $token = $b->query(q{SELECT try_acquire_lock('x', '1 min')});
	like($token, qr/^\d+$/, 'whoever is served next finds it made');
	release($b, 'x', $token) if $token;
	nothing_left($node);

	settle();
	$a->query('BEGIN');
	acquire($a, 'x', q{'1 min'});
	refuse(sub { $a->query('ROLLBACK'); });
	$token = $b->query(q{SELECT try_acquire_lock('x', '1 min')});
	like($token, qr/^\d+$/, 'the same of a rollback');
	release($b, 'x', $token) if $token;
	nothing_left($node);
}

# While it is replayed nothing can be loaded: after that requests are taken again.
{
	my $x = acquire($a, 'x', q{'1 min'});

	settle();
	fault(q{set('reload-loaded', 'error', skip => 1, times => 1)});
	fault(q{set('batch-begun', 'error', times => 2)});
	is(release($a, 'x', $x), 't', 'a release is told, and refused once more when it is tried alone');
	wait_until(sub { fault("hits('reload-loaded')") >= 2 }) || die 'nothing was loaded again';
	my $y = $b->query(q{SELECT try_acquire_lock('y', '1 min')});
	unless (like($y, qr/^\d+$/, 'who asks after that is served'))
	{
		$node->stop('immediate');
		die 'requests are not taken any more';
	}
	release($b, 'y', $y);
	nothing_left($node);
	fault('clear()');
}

# One batch has a request of c, which is answered before anything is written, one of a, and those of two others. What each of them is told, and how many
# batches have failed.
sub served_together
{
	my ($first, @faults) = @_;
	my @others = map { session($node) } 1 .. 2;
	my $failed = q{SELECT failed_batches FROM lock_election.stat};

	settle();
	my $before = $free->query($failed);
	stop_at('manager-took');
	$c->async(q{SELECT count(*) FROM lock_election.locks});
	stopped('manager-took');
	$first->();
	foreach my $ask ([ $a, 'a' ], [ $others[0], 'b' ], [ $others[1], 'c' ])
	{
		$ask->[0]->async("SELECT acquire_lock('$ask->[1]', '1 min')");
		asking($ask->[0]);
	}
	fault($_) foreach @faults;
	go_on('manager-took');
	$_->wait foreach $c, $a, @others;
	my @told = map { $_->error =~ /ERROR:  (.*)/ ? $1 : 'served' } $c, $a, @others;
	my $failures = $free->query($failed) - $before;
	fault('clear()');
	$_->quit foreach @others;
	return join ', ', @told, $failures;
}

# It fails, its mailboxes are served one by one, and then nothing can be read: all that are not served yet are told that.
{
	my $x = acquire($a, 'x', q{'1 min'});
	my ($applied, $written, $reload) = map { qq{XX000: fault at "$_"} } qw(batch-applied batch-written reload-begun);
	my $later = q{set('reload-begun', 'error', skip => 1)};

	is(served_together(sub { is(release($a, 'x', $x), 't', 'a release is told') }, $later, q{set('batch-applied', 'error', times => 2)}),
		"served, $applied, $reload, $reload, 2", 'releases come first, and the first one fails');
	ok(wait_for_sql($node, 'SELECT count(*) = 0 FROM lock_election.locks'), 'what was told is made later, and nothing else');
	is(served_together(sub { }, $later, q{set('batch-applied', 'error')}, q{set('batch-written', 'error', skip => 1)}),
		"served, served, $written, $reload, 2", 'a request in the middle fails');
	is($free->query(q{SELECT name FROM lock_election.locks WHERE mode IS NOT NULL}), 'a', 'what was served before is done');
	$c->query(q{SELECT force_release_lock('a')});
	nothing_left($node);
}

# A request for very many names waits, and when it is to wait again, after a load, they cannot be had: that is told to nobody else.
{
	my $names = q{ARRAY['x'] || ARRAY(SELECT repeat('n', 50) || i FROM generate_series(1, 500) i)};
	my $waits = session($node);
	my $lost = qr/ERROR:  XX000: fault at "segment-attached"/;

	foreach my $after ('a batch that failed', 'the end of a manager')
	{
		my $x = acquire($a, 'x', q{'1 min'});

		$waits->async("SELECT acquire_locks($names, '1 min')");
		waiting($waits);
		fault(q{set('segment-attached', 'error', times => 1)});
		if ($after eq 'a batch that failed') { fault(q{set('batch-begun', 'error', times => 1)}); }
		else { replace_manager(); }
		my $y = acquire($b, 'y', q{'1 min'});
		like($y, qr/^\d+$/, "after $after: whoever is served next is not told") or diag $b->error;
		$waits->wait;
		like($waits->error, $lost, 'but whose names they are');
		release($b, 'y', $y) if $y;
		$waits->async("SELECT acquire_locks($names, '1 min')");
		waiting($waits);
		release($a, 'x', $x);
		like(my $all = $waits->wait, qr/^\d+$/, 'asked again, it is served');
		is($waits->query("SELECT release_locks($names, $all)"), 't', 'and gives all of them back');
		fault('clear()');
		nothing_left($node);
	}

	# one that is new fails alone as well, without a load
	my $before = $free->query('SELECT failed_batches FROM lock_election.stat');
	fault(q{set('segment-attached', 'error', times => 1)});
	$waits->query("SELECT acquire_locks($names, '1 min')");
	like($waits->error, $lost, 'a new request whose names cannot be had');
	is($free->query('SELECT failed_batches FROM lock_election.stat') - $before, 0, 'is refused alone');
	fault('clear()');
	$waits->quit;
	nothing_left($node);
}

# A session is about to read its answer when its release, which is in its mailbox as well, is refused: that says nothing to it.
{
	my $x = acquire($a, 'x', q{'1 min'});

	settle();
	stop_at('manager-took');
	$c->async(q{SELECT count(*) FROM lock_election.locks});
	stopped('manager-took');
	is(release($a, 'x', $x), 't', 'a release is told');
	stop_at('request-answered', $a->pid);
	$a->async("SELECT is_held('x', $x)");
	asking($a);
	fault(q{set('batch-applied', 'error', times => 2)});
	go_on('manager-took');
	stopped('request-answered');
	wait_until(sub { fault(q{hits('batch-applied')}) > 2 }) || die 'it is not tried again';
	go_on('request-answered');
	is($a->wait . $a->error, 'f', 'and refused twice, beside an answer, which stays what it was');
	$c->wait;
	nothing_left($node);
	fault('clear()');
}

# Nothing can be read for a long time: who does not want to wait for longer than some seconds does not.
{
	my $x = acquire($a, 'x', q{'1 h'});
	my ($waiting, $long, $ever) = map { session($node) } 1 .. 3;

	settle();
	$long->async(q{SELECT acquire_lock('x', '1 min', wait => '1 h')});
	waiting($long);
	$ever->async(q{SELECT acquire_lock('x', '1 min', wait => NULL)});
	waiting($ever);
	foreach (1 .. 5)
	{
		# on a busy machine it may have waited before that is seen
		$waiting->async(q{SELECT acquire_lock('x', '1 min', wait => '3 s') IS NULL});
		wait_until(sub { $waiting->ready || $free->query('SELECT count(*) FROM lock_election.waiters WHERE pid = ' . $waiting->pid) eq '1' });
		last if !$waiting->ready;
		is($waiting->wait . $waiting->error, 't', 'a wait that is over too soon');
	}
	fault(q{set('reload-begun', 'error', times => 0)});
	fault(q{set('batch-begun', 'error', times => 1)});
	$c->query(q{SELECT try_acquire_lock('y', '1 min')});
	like($c->error, qr/ERROR:  XX000: fault/, 'a batch fails, and nothing can be read');
	ok(wait_until(sub { $waiting->ready }), 'a wait ends all the same');
	is($waiting->wait . $waiting->error, 't', 'as one that has been in vain');
	is($c->query(q{SELECT try_acquire_lock('y', '1 min')}), '', 'nothing can be read');
	ok(!$_->ready, 'whoever has more time waits on') foreach $long, $ever;
	fault('clear()');
	release($a, 'x', $x);
	foreach my $next ($long, $ever)
	{
		my $token = $next->wait;
		like($token, qr/^\d+$/, 'and is granted the lock');
		release($next, 'x', $token);
	}
	$_->quit foreach $waiting, $long, $ever;
	nothing_left($node);
}

# A table has got new files: the batch is done again, and none has failed; unless nothing can be read then.
{
	my $failed = sub { return $free->query('SELECT failed_batches FROM lock_election.stat'); };
	my $before = $failed->();
	my $rewrite = 'VACUUM FULL _lock_election.slot';

	settle();
	$free->query($rewrite);
	like(acquire($a, 'x', q{'1 min'}), qr/^\d+$/, 'a batch that finds new files');
	is($failed->() - $before, 0, 'has not failed');
	$free->query($rewrite);
	fault(q{set('reload-begun', 'error')});
	acquire($a, 'y', q{'1 min'});
	like($a->error, qr/ERROR:  XX000: fault at "reload-begun"/, 'one whose new files cannot be read');
	is($failed->() - $before, 1, 'has');

	# while it is replayed
	fault(q{set('batch-written', 'error')});
	stop_at('replay');
	$a->async(q{SELECT acquire_lock('y', '1 min')});
	stopped('replay');
	$free->query($rewrite);
	go_on('replay');
	my $y = $a->wait;
	like($y, qr/^\d+$/, 'a replay that finds new files is done again') or diag $a->error;
	is($a->query("SELECT is_held('y', $y)"), 't', 'and what it has found at last is told');
	is($failed->() - $before, 2, 'and has not failed');
	$c->query(q{SELECT force_release_lock('y'), force_release_lock('x')});
	nothing_left($node);
	fault('clear()');
}

# A release that fails by itself is tried again after a second, however many others fail meanwhile.
{
	my $x = acquire($a, 'x', q{'1 min'});
	my ($end, $made, $failed) = (time + 8, 0, 0);

	settle();
	fault(q{set('batch-begun', 'error', times => 3)});
	is(release($a, 'x', $x), 't', 'a release is told, and refused');
	wait_until(sub { fault("hits('batch-begun')") >= 3 }) || die 'no batch has failed';
	until ($made || time > $end)
	{
		fault(q{set('batch-begun', 'error', times => 2)});
		$failed++ if $b->query(q{SELECT try_acquire_lock('y', '1 min')}) eq '';
		fault('clear()');
		sleep 0.1;
		$made = $free->query(q{SELECT count(*) FROM _lock_election.slot WHERE name = 'x' AND token <> 0}) eq '0';
	}
	ok($made, "it is made while others fail ($failed times)");
	$c->query(q{SELECT force_release_lock('y'), force_release_lock('x')});
	nothing_left($node);
}

# A manager is asked to leave, and cannot make it: it does not try for ever.
{
	my $x = acquire($a, 'x', q{'5 min'});
	my ($manager) = $c->query('SELECT pid FROM lock_election.manager');

	settle();
	kill 'STOP', $manager;
	is(release($a, 'x', $x), 't', 'a release is told, and cannot be made');
	fault(q{set('batch-applied', 'error', times => 0)});
	my $start = time;
	kill 'TERM', $manager;
	kill 'CONT', $manager;
	wait_until(sub { !kill 0, $manager }) or die 'it does not leave';
	my $took = time - $start;
	cmp_ok($took, '>', 4.9, 'a manager that leaves tries for five seconds');
	cmp_ok($took, '<', 30, 'and then leaves');
	fault('clear()');
	ok(wait_for_sql($node, 'SELECT count(*) = 0 FROM lock_election.locks'), 'the next one makes it');
	nothing_left($node);
}

# --- orderly stops of the server lose nothing that was told ---

# The server has begun to stop.
sub stop_server { kill 'INT', $node->{_pid}; return; }

sub restart
{
	wait_until(sub { !-e $node->data_dir . '/postmaster.pid' }) || die 'the server does not stop';
	$node->_update_pid(0);
	$node->start;
	($a, $b, $c, $free) = map { session($node) } 1 .. 4;
	return;
}

sub is_made
{
	my ($test_name) = @_;
	return is($node->safe_psql('postgres', q{SELECT name FROM lock_election.locks WHERE mode IS NOT NULL}), '', $test_name);
}

# The manager is about to take it.
{
	my $x = acquire($a, 'x', q{'5 min'});
	my ($manager) = $c->query('SELECT pid FROM lock_election.manager');

	kill 'STOP', $manager;
	is(release($a, 'x', $x), 't', 'a release is told');
	stop_server();
	# SIGTERM has come
	wait_until(sub { slurp_file("/proc/$manager/status") =~ /^(?:Sig|Shd)Pnd:\s*[0-9a-f]*[4-7c-f][0-9a-f]{3}$/m });
	kill 'CONT', $manager;
	restart();
	is_made('it is made over a stop of the server');
}

# A batch has failed with it.
{
	my $x = acquire($a, 'x', q{'5 min'});

	settle();
	refuse(sub { is(release($a, 'x', $x), 't', 'a release is told, and refused'); });
	stop_server();
	restart();
	is_made('it is made over a stop of the server');
}

# It fails when the manager that leaves makes it, with all of its batch and alone.
{
	my $x = acquire($a, 'x', q{'5 min'});
	my ($manager) = $c->query('SELECT pid FROM lock_election.manager');

	settle();
	kill 'STOP', $manager;
	is(release($a, 'x', $x), 't', 'a release is told');
	fault(q{set('batch-applied', 'error', times => 2)});
	stop_server();
	wait_until(sub { slurp_file("/proc/$manager/status") =~ /^(?:Sig|Shd)Pnd:\s*[0-9a-f]*[4-7c-f][0-9a-f]{3}$/m });
	my $log = -s $node->logfile;
	kill 'CONT', $manager;
	restart();
	is(scalar(() = slurp_file($node->logfile, $log) =~ /ERROR:  fault at "batch-applied"/g), 2, 'it fails while the server stops, and again');
	is_made('it is made over a stop of the server');
}

# Its session has answered it, as far as it is concerned, and is slow to post it.
{
	my $x = acquire($a, 'x', q{'5 min'});
	my ($manager) = $c->query('SELECT pid FROM lock_election.manager');

	settle();
	stop_at('release-before-post', $a->pid);
	$a->async("SELECT release_lock('x', $x)");
	my $backend = stopped('release-before-post') && fault(q{waiting('release-before-post')});
	kill 'STOP', $backend;
	stop_server();
	wait_until(sub { !-e "/proc/$manager" }, 1);
	kill 'CONT', $backend;
	is($a->wait, 't', 'a release is told while the server stops');
	restart();
	is_made('it is made over a stop of the server');
}
done_testing();
