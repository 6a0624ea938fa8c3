# The manager is stopped, suspended, delayed and killed: no lock, queue place or token is lost, and no lease ends early.
# Promises: D, L
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', conf => "autovacuum = off\n");

sub incarnation { return one('SELECT incarnation FROM lock_election.manager'); }

# The first request after a start waits for the manager.
sub token_of { my ($name) = @_; return one("SELECT acquire_lock('$name', '1 h')"); }

sub launcher_pid
{
	return one(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election launcher'});
}

subtest 'SIGTERM among holders and waiters' => sub {
	my ($ttl, $bound, $open, $pending) = map { session($node) } 1 .. 4;
	my @queue = map { session($node) } 1 .. 4;
	my $last = $ttl->query(q{SELECT acquire_lock('queue', '1 h')});

	# token and owner of what must be there afterwards
	my $bound_token = $bound->query(q{SELECT acquire_lock('bound', NULL)});
	my $pending_token = $pending->query(q{SELECT acquire_lock('pending', '1 h')});
	$open->query(q{BEGIN; SELECT acquire_lock('open', '1 h'); SAVEPOINT s; SELECT acquire_lock('sub', '1 h')});
	$pending->query(q{BEGIN; SELECT release_lock('pending')});
	for my $i (0 .. 3)
	{
		$queue[$i]->async(q{SELECT acquire_lock('queue', '1 h')});
		wait_for_waiters($i + 1, 'queue');
	}
	my @pids = map { $_->pid } @queue;
	my $order = q{SELECT string_agg(pid::text, ' ' ORDER BY queue_position) FROM lock_election.waiters WHERE name = 'queue'};
	my $incarnation = incarnation();

	replace_manager() for 1 .. 3;
	wait_for_waiters(4, 'queue');
	is(one($order), "@pids", 'waiters keep their order');
	cmp_ok(incarnation(), '>=', $incarnation + 3, 'each manager takes a new incarnation');
	is($bound->query("SELECT is_held('bound', $bound_token)"), 't', 'ttl => NULL holds on');
	is($ttl->query("SELECT is_held('queue', $last)"), 't', 'a TTL holds on');
	cmp_ok(one(q{SELECT extract(epoch FROM time_left) FROM lock_election.locks WHERE name = 'queue'}), '>', 3500,
		'with its time');

	is(one(q{SELECT try_acquire_lock('sub') IS NULL AND try_acquire_lock('open') IS NULL}), 't', 'uncommitted locks are held');
	$open->query('ROLLBACK TO s');
	is(one(q{SELECT acquire_lock('sub', wait => '20 s') IS NOT NULL}), 't', 'rollback to a savepoint gives a lock back');
	is(one(q{SELECT try_acquire_lock('open') IS NULL}), 't', 'and no other');
	$open->query('ROLLBACK');
	is(one(q{SELECT acquire_lock('open', wait => '20 s') IS NOT NULL}), 't', 'so does the rollback');

	is(one("SELECT is_held('pending', $pending_token)"), 't', 'a pending release is pending');
	$pending->query('COMMIT');
	is(one("SELECT is_held('pending', $pending_token)"), 'f', 'until the commit');

	my $increasing = 1;
	my $holder = $ttl;
	foreach my $next (@queue)
	{
		is($holder->query("SELECT release_lock('queue', $last)"), 't', 'hand-off');
		my $token = $next->wait;
		$increasing &&= $token =~ /^\d+$/ && $token > $last;
		($holder, $last) = ($next, $token);
	}
	ok($increasing, 'in order, with increasing tokens');
	$holder->query("SELECT release_lock('queue', $last)");
	$bound->quit;
	one(q{SELECT force_release_lock(name) FROM lock_election.locks WHERE name <> 'bound'});
	$_->quit foreach $ttl, $open, $pending, @queue;
	nothing_left($node);
};

# The launcher is stopped, so that there is no manager for as long as the test likes.
subtest 'what ends while there is no manager' => sub {
	my ($open, $bound, $waiter, $late, $holder) = map { session($node) } 1 .. 5;
	my ($launcher, $manager) = (launcher_pid(), manager_pid());
	my $token = $holder->query(q{SELECT acquire_lock('held', '1 h')});

	$open->query(q{BEGIN; SELECT acquire_lock('open', '1 h')});
	$bound->query(q{SELECT acquire_lock('bound', NULL)});
	$waiter->async(q{SELECT acquire_lock('held', '1 h')});
	wait_for_waiters(1, 'held');
	$late->async(q{SELECT acquire_lock('held', '1 h', wait => '6 s')});
	wait_for_waiters(2, 'held');

	# for less than the 5 s that whoever waits has patience without a manager
	stop_asleep($launcher);
	kill 'TERM', $manager;
	wait_until(sub { $holder->query("SELECT count(*) FROM pg_stat_activity WHERE pid = $manager") eq '0' });
	$holder->query('SELECT pg_terminate_backend(' . $_->pid . ', 10000)') foreach $open, $bound, $waiter;
	kill 'CONT', $launcher;
	is(one(q{SELECT acquire_lock('open', '1 h', wait => '20 s') IS NOT NULL}), 't', 'an open transaction was rolled back');
	is(one(q{SELECT acquire_lock('bound', '1 h', wait => '20 s') IS NOT NULL}), 't', 'a connection has ended');
	wait_for_waiters(1, 'held');
	is($late->wait, '', 'a wait ends in time');
	is($late->error, '', 'with an answer');
	is($holder->query("SELECT release_lock('held', $token)"), 't', 'the holder holds on');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach $open, $bound, $waiter, $late, $holder;
	nothing_left($node);
};

subtest 'no manager for long' => sub {
	my ($launcher, $manager) = (launcher_pid(), manager_pid());
	my ($s, @waiters) = map { session($node) } 1 .. 7;

	$s->query(q{SELECT acquire_lock('commit', '1 h')});
	$s->query(q{BEGIN; SELECT release_lock('commit')});
	stop_asleep($launcher);
	kill 'TERM', $manager;
	wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $manager");

	# at least 1 s, and at most 5
	my @cases = (
		[ q{acquire_lock('x', wait => '500 ms')}, '1.0' ],
		[ q{try_acquire_lock('x')}, '1.0' ],
		[ q{acquire_lock('x', wait => '1500 ms')}, '1.5' ],
		[ q{acquire_lock('x', wait => '20 s')}, '5.0' ],
		[ q{acquire_lock('x')}, '5.0' ],
		[ q{is_held('x', 1)}, '5.0' ]);
	$waiters[$_]->async("SELECT $cases[$_][0]") foreach 0 .. $#cases;
	foreach my $i (0 .. $#cases)
	{
		$waiters[$i]->wait;
		like($waiters[$i]->error, qr/57P03: .*manager of database "postgres" is not running\nDETAIL:  It did not start within \Q$cases[$i][1]\E seconds\.\nHINT:  See the server log\./,
			"a caller is told, after its wait: $cases[$i][0]");
	}
	is($s->query('COMMIT'), '', 'a commit ends');
	kill 'CONT', $launcher;
	is(one(q{SELECT acquire_lock('commit', wait => '20 s') IS NOT NULL}), 't', 'its release is applied later');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach $s, @waiters;
	nothing_left($node);
};

# More releases than one request carries.
subtest 'a commit with many releases and no manager' => sub {
	my ($launcher, $manager) = (launcher_pid(), manager_pid());
	my $s = session($node);

	$s->query(q{SELECT count(acquire_lock('many ' || i, '1 h')) FROM generate_series(1, 300) i});
	$s->query(q{BEGIN; SELECT count(release_lock('many ' || i)) FROM generate_series(1, 300) i});
	stop_asleep($launcher);
	kill 'TERM', $manager;
	wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $manager");
	my $start = time;
	is($s->query('COMMIT'), '', 'it ends');
	cmp_ok(time - $start, '<', 30, 'it waits once, not for each of them');
	kill 'CONT', $launcher;
	is($s->query(q{SELECT acquire_lock('many 300', '1 h', wait => '20 s') IS NOT NULL}), 't', 'the session goes on');
	is(one(q{SELECT string_agg(name, ' ') FROM lock_election.locks}), 'many 300', 'and no release is lost');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$s->quit;
	nothing_left($node);
};

# A time between two batches bounds how many transaction ids they take.
subtest 'an interval between batches' => sub {
	my $s = session($node);
	my $interval = 0.4;

	$s->query(q{ALTER SYSTEM SET lock_election.min_batch_interval = '400 ms'});
	$s->query('SELECT pg_reload_conf()');
	wait_for_sql($node, 'SHOW lock_election.min_batch_interval', '400ms');
	$s->query(q{SELECT release_lock('first', acquire_lock('first'))}); # its manager has read that, too
	$s->query(q{SELECT release_lock('first', acquire_lock('first'))});
	my $start = time;
	$s->query("SELECT acquire_lock('interval $_', '1 h')") foreach 1 .. 5;
	my $took = time - $start;
	cmp_ok($took, '>', 4 * $interval - 0.02, 'each request waits for the next batch');
	cmp_ok($took, '<', 40 * $interval, 'and no longer than that');

	# those who come meanwhile share one
	my @many = map { session($node) } 1 .. 8;
	my $batches = one('SELECT transaction_ids FROM lock_election.stat');
	$start = time;
	$many[$_]->async("SELECT acquire_lock('many $_', '1 h')") foreach 0 .. $#many;
	$_->wait foreach @many;
	my $were = one('SELECT transaction_ids FROM lock_election.stat') - $batches;
	cmp_ok($were, '<=', 1 + (time - $start) / ($interval - 0.01), 'which bounds how many there are');
	$s->query(q{ALTER SYSTEM RESET lock_election.min_batch_interval});
	$s->query('SELECT pg_reload_conf()');
	wait_for_sql($node, 'SHOW lock_election.min_batch_interval', '0');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach $s, @many;
	nothing_left($node);
};

# The one that begins later, and would end between the other's end and what would be its end if it began again.
subtest 'a limited wait goes on over a restart' => sub {
	my ($holder, $first, $later) = map { session($node) } 1 .. 3;
	my $since = q{SELECT extract(epoch FROM min(waiting_since)) FROM lock_election.waiters WHERE name = 'limited'};

	$holder->query(q{SELECT acquire_lock('limited', '1 h')});
	$first->async(q{SELECT acquire_lock('limited', wait => '12 s')});
	wait_until(sub { $holder->query(q{SELECT min(waiting_since) < clock_timestamp() - interval '3 s' FROM lock_election.waiters WHERE name = 'limited'}) eq 't' });
	my $began = $holder->query($since);
	replace_manager();
	cmp_ok(abs($holder->query($since) - $began), '<', 1, 'it began when it did');
	$later->async(q{SELECT acquire_lock('limited', wait => '10 s')});
	is($later->wait, '', 'one that has begun later, for less, ends');
	is($holder->query(q{SELECT count(*) FROM lock_election.waiters WHERE name = 'limited'}), 0, 'after that one, which had less left');
	is($first->wait, '', 'which ends as it should');
	$holder->query(q{SELECT release_lock('limited')});
	$_->quit foreach $holder, $first, $later;
	nothing_left($node);
};

subtest 'pg_cancel_backend' => sub {
	my $pid = manager_pid();
	my ($holder, $waiter, $other, $worker) = map { session($node) } 1 .. 4;
	my $token = $holder->query(q{SELECT acquire_lock('cancel', '1 h')});

	$waiter->async(q{SELECT acquire_lock('cancel', '1 h') IS NOT NULL});
	wait_for_waiters(1, 'cancel');
	$worker->async(q{DO $$ BEGIN FOR i IN 1 .. 2000 LOOP PERFORM release_lock('w', acquire_lock('w')); COMMIT; END LOOP; END $$});
	$other->query(q{DO $$ BEGIN FOR i IN 1 .. 5000 LOOP PERFORM pg_cancel_backend(pid) FROM lock_election.manager; END LOOP; END $$})
	  until $worker->ready;
	$worker->wait;
	is($worker->error, '', 'no request fails under a storm of them');
	is(manager_pid(), $pid, 'it is the same manager');
	$holder->query("SELECT release_lock('cancel', $token)");
	is($waiter->wait, 't', 'and it grants');

	# cancelled while it waits for a lock, which it does for 200 ms at a time
	my $row = $other->query(q{SELECT acquire_lock('row', '1 h')});
	$other->query("BEGIN; SELECT FROM _lock_election.slot WHERE token = $row FOR UPDATE");
	my $cancelled = wait_until(
		sub {
			my $sent;

			$worker->async("SELECT renew_lock('row', $row, '2 h')");
			$sent = $holder->query("SELECT pg_cancel_backend(pid) FROM pg_locks WHERE pid = $pid AND NOT granted LIMIT 1") until $sent || $worker->ready;
			$worker->wait;
			return $sent;
		});
	ok($cancelled, 'cancelled while it waits for a lock');
	like($worker->error, qr/55P03/, 'a cancel does not reach a client');
	$other->query('ROLLBACK');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach $holder, $waiter, $other, $worker;
	nothing_left($node);
};

subtest 'what any process of the server does when it is asked' => sub {
	my $pid = manager_pid();
	my $log = -s $node->logfile;

	one("SELECT pg_log_backend_memory_contexts($pid)");
	ok(wait_until(sub { return $node->log_contains(qr/\[$pid\] .*Grand total: /, $log) }), 'it tells of its memory');
	my $told = slurp_file($node->logfile, $log);
	cmp_ok(one('SELECT failed_batches FROM lock_election.stat'), '>', 0, 'some batches have failed');
	is(scalar(() = $told =~ /level: \d+; lock_election $_:/g), 1, "which leaves no second $_") foreach qw(state batch history);

	# the context of its process, and that of its batches
	my $memory = sub {
		my $log = -s $node->logfile;

		one("SELECT pg_log_backend_memory_contexts($pid)");
		ok(wait_until(sub { return $node->log_contains(qr/\[$pid\].*Grand total: /, $log) }), 'it tells of its memory');
		return map { slurp_file($node->logfile, $log) =~ /\[$pid\].* $_: (\d+) total/ ? $1 : die "no $_" } 'TopMemoryContext', 'lock_election batch';
	};
	my ($top) = $memory->();
	one(q{DO $$ BEGIN FOR i IN 1 .. 500 LOOP PERFORM release_lock('w', acquire_lock('w', '1 h')); COMMIT; END LOOP; END $$});
	my ($later, $batch) = $memory->();
	cmp_ok($later - $top, '<', 65536, 'no request leaves anything behind');
	cmp_ok($batch, '<', 65536, 'nor in the memory of batches');
	one('SELECT pg_reload_conf()');
};

# No session has a release on its way: there is nothing to wait for.  Each try begins with a session that has asked for something.
subtest 'it leaves at once' => sub {
	my $s = session($node);
	my $took = 5;

	for (my $try = 1; $try <= 10 && $took >= 5; $try++)
	{
		$s->query(q{SELECT release_lock('w', acquire_lock('w', '1 min'))});
		my $pid = manager_pid();
		my ($start, $log) = (time, -s $node->logfile);
		kill 'TERM', $pid;
		wait_until(sub { !kill 0, $pid }, undef, 0.01) or die 'it does not leave';
		$took = time - $start;
		wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
		unlike(slurp_file($node->logfile, $log), qr/PID $pid\) exited with exit code/, 'as one that is done');
	}
	cmp_ok($took, '<', 5, 'not after as long as it would wait for one');
	$s->quit;
	nothing_left($node);
};

subtest 'stopped for some seconds' => sub {
	my ($holder, $waiter, $short) = map { session($node) } 1 .. 3;
	my $pid = manager_pid();
	my $token = $holder->query(q{SELECT acquire_lock('stall', '1 h')});
	my ($stalls, $before, $log, $began);

	# a pause of a busy machine is counted first, and then told
	wait_until(
		sub {
			($before, $log, $began) = (one('SELECT stalls FROM lock_election.stat'), -s $node->logfile, time);
			return one('SELECT stalls FROM lock_election.stat') == $before && slurp_file($node->logfile, $log) !~ /did not run for/;
		}) or die 'it is never quiet';
	$stalls = $before;

	$waiter->async(q{SELECT acquire_lock('stall', '1 h')});
	wait_for_waiters(1, 'stall');
	shorten($holder, 'stall', $token, '2 s');
	my $start = time;
	kill 'STOP', $pid;

	# a renewal that comes in time, and is looked at too late
	$holder->async("SELECT renew_lock('stall', $token) > '1 s'");
	Time::HiRes::sleep(0.1) until time - $start > 3.5;    # the stall itself
	my $continued = time;
	kill 'CONT', $pid;
	is($holder->wait, 't', 'a renewal is served first');
	my $let_in = $waiter->ready;
	ok(!$let_in || time - $continued >= 2, 'nobody was let in before its end');
	wait_for_sql($node, "SELECT stalls > $stalls FROM lock_election.stat");

	# without a renewal: the lease goes on where it was, for a second that a busy machine may need before and after the stall
	my $held;
	foreach my $try (1 .. 5)
	{
		my $acquired = time;
		$token = $short->query(q{SELECT acquire_lock('stall2', '2 s')});
		kill 'STOP', $pid;
		$start = time;
		Time::HiRes::sleep(0.1) until time - $start > 3;
		my $stopped = time - $start;
		kill 'CONT', $pid;
		$held = $short->query("SELECT is_held('stall2', $token)");
		last if $held eq 't' || time - $acquired - $stopped < 0.9;
	}
	is($held, 't', 'a lease does not end by a stall');
	ok($waiter->wait, 'but it ends');
	wait_for_sql($node, q{SELECT count(*) = 0 FROM lock_election.locks WHERE name = 'stall2'});
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});

	# it would have slept for a second: it is stopped since somebody asked
	$token = $short->query(q{SELECT acquire_lock('stall3', '1 h')});
	$stalls = one('SELECT stalls FROM lock_election.stat');
	$holder->query("SELECT is_held('stall3', $token)");
	kill 'STOP', $pid;
	$short->async("SELECT is_held('stall3', $token)");
	Time::HiRes::sleep(1.5);    # the stall itself
	kill 'CONT', $pid;
	is($short->wait, 't', 'what was asked is answered');
	wait_for_sql($node, "SELECT stalls > $stalls FROM lock_election.stat");

	# the log tells of each, how long it was, and by how much leases go on
	my @told;
	ok( wait_until(
			sub {
				@told = slurp_file($node->logfile, $log) =~ /LOG:  the lock_election manager did not run for (\d+ ms; all leases are extended by \d+) ms\n/g;
				return @told == one('SELECT stalls FROM lock_election.stat') - $before;
			}),
		'the log tells of each');
	my @wrong = grep { my ($took, $moved) = /(\d+)/g; $took < 1000 || $took > 1000 * (time - $began) || $moved > $took } @told;
	is("@wrong", '', 'no longer than it was');
	cmp_ok((sort { $b <=> $a } map { /(\d+)/ } @told)[0], '>', 2000, 'nor shorter');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach $holder, $waiter, $short;
	nothing_left($node);
};

subtest 'expiry' => sub {
	my ($holder, $waiter) = map { session($node) } 1 .. 2;
	my ($early, @late) = 0;

	# From outside: the lease begins after the call was sent and before its answer came.
	for my $ttl ((0.1, 0.35, 0.8) x 3)
	{
		my $sent = time;
		$holder->query("SELECT acquire_lock('exact', '$ttl s')");
		my $answered = time;
		$waiter->query(q{SELECT acquire_lock('exact', '1 h')});
		my $granted = time;
		$early++ if $granted - $sent < $ttl;
		push @late, $granted - $answered - $ttl;
		$waiter->query(q{SELECT release_lock('exact')});
	}
	is($early, 0, 'never before its time');
	@late = sort { $a <=> $b } @late;
	cmp_ok($late[ @late / 2 ], '<', 0.5, 'and soon after, but for what else the machine does');
	note(sprintf('at the worst %.1f ms late', $late[-1] * 1000));
	$_->quit foreach $holder, $waiter;
	nothing_left($node);
};

# What a start does: the same for each way to stop.
sub check_restart
{
	my ($how, $stop, $start) = @_;
	my ($s, $waiter) = map { session($node) } 1 .. 2;
	my $incarnation = incarnation();
	my $token = $s->query(q{SELECT acquire_lock('ttl', '1 min', owner => 'me')});
	my $long = $s->query(q{SELECT acquire_lock('long', '1 h')});
	my $highest = $s->query(q{SELECT acquire_lock('bound', NULL)});

	$waiter->async(q{SELECT acquire_lock('ttl', '1 h')});
	wait_for_waiters(1, 'ttl');

	# the TTL must be full again after the start
	wait_for_sql($node, q{SELECT time_left < '58 s' FROM lock_election.locks WHERE name = 'ttl'});
	my $stopped = time;
	$stop->();
	# before a start, which would keep their pipes open
	$_->quit foreach $s, $waiter;
	$start->();
	wait_for_sql($node, 'SELECT count(*) > 0 FROM lock_election.manager');
	my $left = one(q{SELECT extract(epoch FROM time_left) FROM lock_election.locks WHERE name = 'ttl'});
	my $since = time - $stopped;
	is(one(q{SELECT string_agg(name, ' ' ORDER BY name) FROM lock_election.locks}), 'long ttl', "$how: TTL locks are there");
	cmp_ok($left, '>', 59.5 - $since, "$how: with the full TTL");
	is(one(q{SELECT count(*) FROM lock_election.waiters}), 0, "$how: no waiter is");
	is(one("SELECT is_held('ttl', $token) AND is_held('long', $long)"), 't', "$how: their tokens are good");
	is(one(q{SELECT try_acquire_lock('ttl') IS NULL}), 't', "$how: and exclude others");
	is(one(q{SELECT try_acquire_lock('ttl', owner => 'me')}), $token, "$how: a named owner is known");
	my $next = token_of('next');
	cmp_ok($next, '>', $highest, "$how: tokens increase");
	cmp_ok(incarnation(), '>', $incarnation, "$how: higher incarnation");
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	nothing_left($node, "$how: nothing is left behind");
	return;
}

subtest 'restarts of the server' => sub {
	my $start = sub { $node->start };
	my $killed;

	check_restart(
		'manager SIGKILL',
		sub { $killed = manager_pid(); kill 'KILL', $killed; },
		sub {
			$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'lock_election manager' AND pid <> $killed")
			  or die 'the server does not come back';
		});
	check_restart('immediate', sub { $node->stop('immediate') }, $start);
	check_restart('fast', sub { $node->stop('fast') }, $start);
	check_restart('fast again', sub { $node->stop('fast') }, $start);
	check_restart('immediate again', sub { $node->stop('immediate') }, $start);
};

subtest 'tokens and the extension' => sub {
	my $minutes = q{floor((extract(epoch FROM now()) - extract(epoch FROM timestamptz '2025-01-01 00:00 UTC')) / 60)};
	my $token = token_of('x');

	is(one("SELECT $token / (1 << 28)"), incarnation(), 'a token is incarnation and counter');
	cmp_ok($token, '<', 2**53, 'and exact as a double');

	my $before = one("SELECT $minutes");
	$node->safe_psql('postgres', 'DROP EXTENSION lock_election');
	$node->safe_psql('postgres', 'CREATE EXTENSION lock_election');
	my $new = token_of('x');
	my $first = one("SELECT $new / (1 << 28)");
	cmp_ok($before, '<=', $first, 'the first incarnation is at least the minute of its creation');
	cmp_ok($token, '<', $new, 'and above the one that was dropped');
	is(one('SELECT count(*) FROM lock_election.locks'), 1, 'a new extension has no locks');
};

# A database that has seen many restarts is ahead of the clock.  Where it is restored, the manager runs already when the data come.
subtest 'dump and restore' => sub {
	$node->safe_psql('postgres', 'ALTER TABLE _lock_election.meta DISABLE TRIGGER USER; UPDATE _lock_election.meta SET incarnation = incarnation + 5000; ALTER TABLE _lock_election.meta ENABLE ALWAYS TRIGGER refuse_write; ALTER TABLE _lock_election.meta ENABLE ALWAYS TRIGGER refuse_row');
	$node->stop('immediate');
	$node->start;
	my $token = token_of('dumped');
	my $file = $node->basedir . '/dump.sql';
	$node->safe_psql('postgres', 'CREATE DATABASE restored');
	$node->safe_psql('restored', 'CREATE EXTENSION lock_election');
	$node->safe_psql('restored', q{SELECT release_lock('first', acquire_lock('first'))});
	$node->command_ok([ 'pg_dump', '-f', $file, '-d', $node->connstr('postgres') ], 'pg_dump');
	$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '-f', $file ], 'restore');
	cmp_ok($node->safe_psql('restored', q{SELECT acquire_lock('dumped')}), '>', $token, 'tokens go on upwards');
	is($node->safe_psql('restored', q{SELECT count(*) FROM lock_election.locks}), 1, 'holders are not restored');
};

# Many names of one request are in a segment of their own, which the next manager attaches to.
subtest 'a request that waits cannot be read again' => sub {
	my ($holder, $first, $many, $second) = map { session($node) } 1 .. 4;
	my $memory = sub { my ($s) = @_; return map { m{(/\S+(?:/PostgreSQL\.\d+|/pg_dynshmem/\S+))} ? $1 : () } split(/\n/, slurp_file('/proc/' . $s->pid . '/maps')) };

	$holder->query(q{SELECT acquire_lock('line', '1 h')});
	$first->async(q{SELECT acquire_lock('line', '1 h')});
	waiting($first);
	$many->async(q{SELECT acquire_locks(array_agg(n), '1 h') FROM (SELECT 'line' UNION ALL SELECT repeat('n', 100) || i FROM generate_series(1, 100) i) AS t(n)});
	waiting($many);
	$second->async(q{SELECT acquire_lock('line', '1 h')});
	waiting($second);
	my %others = map { $_ => 1 } $memory->($second);
	my @segments = grep { !$others{$_} } $memory->($many);
	plan skip_all => 'no such segment here' unless @segments;

	unlink @segments;
	replace_manager();
	$many->wait;
	like($many->error, qr/ERROR/, 'an error for this request');
	is(one(q{SELECT string_agg(pid::text, ' ' ORDER BY queue_position) FROM lock_election.waiters WHERE name = 'line'}), $first->pid . ' ' . $second->pid, 'the others stay in line');
	$holder->query(q{SELECT release_lock('line')});
	like($first->wait, qr/^\d+$/, 'who came first is served first');
	ok(!$second->ready, 'and then the next');
	$first->query(q{SELECT release_lock('line')});
	like($second->wait, qr/^\d+$/, 'when it is free');
	$second->query(q{SELECT release_lock('line')});
	$_->quit foreach $holder, $first, $many, $second;
};

# No manager takes what was before it began for a pause.
my @pauses = slurp_file($node->logfile) =~ /the lock_election manager did not run for (-?\d+) ms/g;
is(join(' ', grep { $_ < 1000 || $_ > 1000 * (time - $^T) } @pauses), '', 'no pause is longer than this test');

$node->stop;
done_testing();
