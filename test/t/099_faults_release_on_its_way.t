# An asynchronous release that its session has reported: every later request finds it applied, no matter what the
# manager does in the meantime.
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

# Waits until all releases are written: a later batch with them would run into the fault of another batch.
sub settle
{
	return wait_for_sql($node,
		'SELECT (SELECT count(*) FROM _lock_election.slot) = (SELECT count(*) FROM lock_election.locks WHERE mode IS NOT NULL)');
}

# The manager has taken the stack with b's mail, but has not processed it yet.
foreach my $point (qw(manager-took batch-horizon batch-rung))
{
	my $x = acquire($a, 'x', q{'1 min'});
	my $y = acquire($b, 'y', q{'1 min'});

	settle();
	sleep 0.05;
	stop_at($point);
	is(release($b, 'y', $y), 't', "$point: a release is reported");
	stopped($point);
	is(release($a, 'x', $x), 't', "$point: a second release is reported");
	$b->async(q{SELECT try_acquire_lock('x', '1 min')});
	asking($b);
	go_on($point);
	my $token = $b->wait;
	like($token, qr/^\d+$/, "$point: a later request finds the second release applied");
	release($b, 'x', $token) if $token;
	nothing_left($node);
}

# Two requests ring while the manager is busy, and are processed in this order, regardless of their session numbers. On
# a busy machine, the wait for the manager may be too long for a try, so the first request has a wait; the second one
# may give up.
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
	like($token, qr/^\d+$/, 'the first request is granted the lock');
	is($second->wait, '', 'the second request is not granted the lock');
	$c->wait;
	release($first, 'x', $token);
	nothing_left($node);
}

# The batch fails, and its mailboxes are replayed one by one.
{
	my $x = acquire($a, 'x', q{'1 min'});
	my $y = acquire($b, 'y', q{'1 min'});

	settle();
	stop_at('manager-took');
	$c->async(q{SELECT count(*) FROM lock_election.locks});
	stopped('manager-took');
	is(release($b, 'y', $y), 't', 'a release is reported before a failed batch');
	is(release($a, 'x', $x), 't', 'a second release is reported before a failed batch');
	$b->async(q{SELECT try_acquire_lock('x', '1 min')});
	asking($b);
	fault(q{set('batch-begun', 'error', times => 1)});
	go_on('manager-took');
	$c->wait;
	my $token = $b->wait;
	like($token, qr/^\d+$/, 'a later request finds the release applied, although the batch has failed') or diag $b->error;
	is(fault("hits('batch-begun')") > 1 ? 1 : 0, 1, 'the batch has failed');
	release($b, 'x', $token) if $token;
	fault('clear()');
	nothing_left($node);
}

# A batch fails, and so does the load after it, so the mailboxes of the batch are no longer on the stack. The first
# request that is served after a successful load finds the release applied.
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
	refuse(sub { is(release($a, 'x', $x), 't', 'a release is reported, and its batch and the load fail'); });
	my $token = $b->query(q{SELECT try_acquire_lock('x', '1 min')});
	like($token, qr/^\d+$/, 'the next request finds the release applied');
	release($b, 'x', $token) if $token;
	nothing_left($node);

	settle();
	$a->query('BEGIN');
	acquire($a, 'x', q{'1 min'});
	refuse(sub { $a->query('ROLLBACK'); });
	$token = $b->query(q{SELECT try_acquire_lock('x', '1 min')});
	like($token, qr/^\d+$/, 'the next request finds a rollback applied, although its batch and the load have failed');
	release($b, 'x', $token) if $token;
	nothing_left($node);
}

# The load fails during the replay: afterwards, requests are taken again.
{
	my $x = acquire($a, 'x', q{'1 min'});

	settle();
	fault(q{set('reload-loaded', 'error', skip => 1, times => 1)});
	fault(q{set('batch-begun', 'error', times => 2)});
	is(release($a, 'x', $x), 't', 'a release is reported, and its replay fails');
	wait_until(sub { fault("hits('reload-loaded')") >= 2 }) || die 'nothing was loaded again';
	my $y = $b->query(q{SELECT try_acquire_lock('y', '1 min')});
	unless (like($y, qr/^\d+$/, 'a request after the failed replay is served'))
	{
		$node->stop('immediate');
		die 'requests are not taken any more';
	}
	release($b, 'y', $y);
	nothing_left($node);
	fault('clear()');
}

# One batch has a request of c, which is answered before the write, one of a, and those of two other sessions. Returns
# their errors or "served", and the number of failed batches.
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

# The batch fails, its mailboxes are replayed one by one, and then the load fails: all requests that are not served yet
# get this error.
{
	my $x = acquire($a, 'x', q{'1 min'});
	my ($applied, $written, $reload) = map { qq{XX000: fault at "$_"} } qw(batch-applied batch-written reload-begun);
	my $later = q{set('reload-begun', 'error', skip => 1)};

	is(served_together(sub { is(release($a, 'x', $x), 't', 'a release is reported before a failed replay') }, $later, q{set('batch-applied', 'error', times => 2)}),
		"served, $applied, $reload, $reload, 2", 'releases come first, and the first mailbox fails');
	ok(wait_for_sql($node, 'SELECT count(*) = 0 FROM lock_election.locks'), 'the reported release is applied later, and no request of the batch');
	is(served_together(sub { }, $later, q{set('batch-applied', 'error')}, q{set('batch-written', 'error', skip => 1)}),
		"served, served, $written, $reload, 2", 'a request in the middle of the replay fails');
	is($free->query(q{SELECT name FROM lock_election.locks WHERE mode IS NOT NULL}), 'a', 'the request before the failure is applied');
	$c->query(q{SELECT force_release_lock('a')});
	nothing_left($node);
}

# A request for many names waits. After a load it has to be enqueued again, but its names cannot be read: only this
# request gets the error.
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
		like($y, qr/^\d+$/, "after $after: the next request of another session is served") or diag $b->error;
		$waits->wait;
		like($waits->error, $lost, "after $after: the request whose names cannot be read gets the error");
		release($b, 'y', $y) if $y;
		$waits->async("SELECT acquire_locks($names, '1 min')");
		waiting($waits);
		release($a, 'x', $x);
		like(my $all = $waits->wait, qr/^\d+$/, "after $after: the repeated request is granted");
		is($waits->query("SELECT release_locks($names, $all)"), 't', "after $after: the repeated request releases all names");
		fault('clear()');
		nothing_left($node);
	}

	# A new request with such a failure gets the error alone, and no load is needed.
	my $before = $free->query('SELECT failed_batches FROM lock_election.stat');
	fault(q{set('segment-attached', 'error', times => 1)});
	$waits->query("SELECT acquire_locks($names, '1 min')");
	like($waits->error, $lost, 'a new request whose names cannot be read gets the error');
	is($free->query('SELECT failed_batches FROM lock_election.stat') - $before, 0, 'a new request whose names cannot be read fails no batch');
	fault('clear()');
	$waits->quit;
	nothing_left($node);
}

# A session is about to read its reply when its release, which is in the same mailbox, fails: this must not change the
# reply.
{
	my $x = acquire($a, 'x', q{'1 min'});

	settle();
	stop_at('manager-took');
	$c->async(q{SELECT count(*) FROM lock_election.locks});
	stopped('manager-took');
	is(release($a, 'x', $x), 't', 'a release is reported before a request of the same session');
	stop_at('request-answered', $a->pid);
	$a->async("SELECT is_held('x', $x)");
	asking($a);
	fault(q{set('batch-applied', 'error', times => 2)});
	go_on('manager-took');
	stopped('request-answered');
	wait_until(sub { fault(q{hits('batch-applied')}) > 2 }) || die 'it is not tried again';
	go_on('request-answered');
	is($a->wait . $a->error, 'f', 'the reply of the request is kept, although the release has failed twice');
	$c->wait;
	nothing_left($node);
	fault('clear()');
}

# The tables cannot be read for a long time: calls with a short wait must return.
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
		# On a busy machine, the wait may be over before it is seen.
		$waiting->async(q{SELECT acquire_lock('x', '1 min', wait => '3 s') IS NULL});
		wait_until(sub { $waiting->ready || $free->query('SELECT count(*) FROM lock_election.waiters WHERE pid = ' . $waiting->pid) eq '1' });
		last if !$waiting->ready;
		is($waiting->wait . $waiting->error, 't', 'a wait was too short, and is repeated');
	}
	fault(q{set('reload-begun', 'error', times => 0)});
	fault(q{set('batch-begun', 'error', times => 1)});
	$c->query(q{SELECT try_acquire_lock('y', '1 min')});
	like($c->error, qr/ERROR:  XX000: fault/, 'a batch fails, and the tables cannot be read');
	ok(wait_until(sub { $waiting->ready }), 'a wait of 3 s ends');
	is($waiting->wait . $waiting->error, 't', 'the call returns that the lock is not granted');
	is($c->query(q{SELECT try_acquire_lock('y', '1 min')}), '', 'a try returns without a reply while the tables cannot be read');
	ok(!$_->ready, 'calls with a longer wait keep waiting') foreach $long, $ever;
	fault('clear()');
	release($a, 'x', $x);
	foreach my $next ($long, $ever)
	{
		my $token = $next->wait;
		like($token, qr/^\d+$/, 'a call with a longer wait is granted the lock');
		release($next, 'x', $token);
	}
	$_->quit foreach $waiting, $long, $ever;
	nothing_left($node);
}

# A table is rewritten: the batch is replayed without counting as failed, unless the load fails.
{
	my $failed = sub { return $free->query('SELECT failed_batches FROM lock_election.stat'); };
	my $before = $failed->();
	my $rewrite = 'VACUUM FULL _lock_election.slot';

	settle();
	$free->query($rewrite);
	like(acquire($a, 'x', q{'1 min'}), qr/^\d+$/, 'a batch that finds a rewritten table succeeds');
	is($failed->() - $before, 0, 'a batch that finds a rewritten table does not count as failed');
	$free->query($rewrite);
	fault(q{set('reload-begun', 'error')});
	acquire($a, 'y', q{'1 min'});
	like($a->error, qr/ERROR:  XX000: fault at "reload-begun"/, 'a batch whose rewritten table cannot be read fails');
	is($failed->() - $before, 1, 'a batch whose rewritten table cannot be read counts as failed');

	# The table is rewritten during a replay.
	fault(q{set('batch-written', 'error')});
	stop_at('replay');
	$a->async(q{SELECT acquire_lock('y', '1 min')});
	stopped('replay');
	$free->query($rewrite);
	go_on('replay');
	my $y = $a->wait;
	like($y, qr/^\d+$/, 'a replay that finds a rewritten table is repeated') or diag $a->error;
	is($a->query("SELECT is_held('y', $y)"), 't', 'the reported token is that of the last replay');
	is($failed->() - $before, 2, 'a replay that finds a rewritten table does not count as failed');
	$c->query(q{SELECT force_release_lock('y'), force_release_lock('x')});
	nothing_left($node);
	fault('clear()');
}

# A failed release is retried after a second, regardless of how many other requests fail in the meantime.
{
	my $x = acquire($a, 'x', q{'1 min'});
	my ($end, $made, $failed) = (time + 8, 0, 0);

	settle();
	fault(q{set('batch-begun', 'error', times => 3)});
	is(release($a, 'x', $x), 't', 'a release is reported, and its batch fails');
	wait_until(sub { fault("hits('batch-begun')") >= 3 }) || die 'no batch has failed';
	until ($made || time > $end)
	{
		fault(q{set('batch-begun', 'error', times => 2)});
		$failed++ if $b->query(q{SELECT try_acquire_lock('y', '1 min')}) eq '';
		fault('clear()');
		sleep 0.1;
		$made = $free->query(q{SELECT count(*) FROM _lock_election.slot WHERE name = 'x' AND token <> 0}) eq '0';
	}
	ok($made, "the release is applied while other requests fail ($failed times)");
	$c->query(q{SELECT force_release_lock('y'), force_release_lock('x')});
	nothing_left($node);
}

# A manager is terminated, and cannot apply a release: it must not retry forever.
{
	my $x = acquire($a, 'x', q{'5 min'});
	my ($manager) = $c->query('SELECT pid FROM lock_election.manager');

	settle();
	stop_asleep($manager);
	is(release($a, 'x', $x), 't', 'a release is reported, and cannot be applied');
	fault(q{set('batch-applied', 'error', times => 0)});
	my $start = time;
	kill 'TERM', $manager;
	kill 'CONT', $manager;
	wait_until(sub { !kill 0, $manager }) or die 'it does not leave';
	my $took = time - $start;
	cmp_ok($took, '>', 4.9, 'an exiting manager retries for five seconds');
	cmp_ok($took, '<', 30, 'an exiting manager gives up after that');
	fault('clear()');
	ok(wait_for_sql($node, 'SELECT count(*) = 0 FROM lock_election.locks'), 'the next manager applies the release');
	nothing_left($node);
}

# --- a smart or fast stop of the server loses no reported release ---

# Starts a stop of the server.
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

# The manager is about to take the release.
{
	my $x = acquire($a, 'x', q{'5 min'});
	my ($manager) = $c->query('SELECT pid FROM lock_election.manager');

	kill 'STOP', $manager;
	is(release($a, 'x', $x), 't', 'a release is reported before the server stops');
	stop_server();
	# until SIGTERM is pending
	wait_until(sub { slurp_file("/proc/$manager/status") =~ /^(?:Sig|Shd)Pnd:\s*[0-9a-f]*[4-7c-f][0-9a-f]{3}$/m });
	kill 'CONT', $manager;
	restart();
	is_made('the release is applied across a stop of the server');
}

# A batch with the release has failed.
{
	my $x = acquire($a, 'x', q{'5 min'});

	settle();
	refuse(sub { is(release($a, 'x', $x), 't', 'a release is reported before the server stops, and its batch fails'); });
	stop_server();
	restart();
	is_made('the release of a failed batch is applied across a stop of the server');
}

# The exiting manager fails twice with the release: in the batch, and in the replay.
{
	my $x = acquire($a, 'x', q{'5 min'});
	my ($manager) = $c->query('SELECT pid FROM lock_election.manager');

	settle();
	kill 'STOP', $manager;
	is(release($a, 'x', $x), 't', 'a release is reported before its manager is terminated');
	fault(q{set('batch-applied', 'error', times => 2)});
	stop_server();
	wait_until(sub { slurp_file("/proc/$manager/status") =~ /^(?:Sig|Shd)Pnd:\s*[0-9a-f]*[4-7c-f][0-9a-f]{3}$/m });
	my $log = -s $node->logfile;
	kill 'CONT', $manager;
	restart();
	is(scalar(() = slurp_file($node->logfile, $log) =~ /ERROR:  fault at "batch-applied"/g), 2, 'the release fails twice while the server stops');
	is_made('the release that failed twice is applied across a stop of the server');
}

# The session is about to report the release, and is slow to post it.
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
	is($a->wait, 't', 'a release is reported while the server stops');
	restart();
	is_made('the release of a slow session is applied across a stop of the server');
}
done_testing();
