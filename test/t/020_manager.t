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

# Returns a new token of this name. After a start of the server, this waits for the manager.
sub token_of { my ($name) = @_; return one("SELECT acquire_lock('$name', '1 h')"); }

sub launcher_pid
{
	return one(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election launcher'});
}

subtest 'SIGTERM with holders and waiters' => sub {
	my ($ttl, $bound, $open, $pending) = map { session($node) } 1 .. 4;
	my @queue = map { session($node) } 1 .. 4;
	my $last = $ttl->query(q{SELECT acquire_lock('queue', '1 h')});

	# Tokens that must still be valid afterwards.
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
	is(one($order), "@pids", 'waiters keep their order when the manager is replaced');
	cmp_ok(incarnation(), '>=', $incarnation + 3, 'each manager has a new incarnation');
	is($bound->query("SELECT is_held('bound', $bound_token)"), 't',
		'a bound lock is still held when the manager is replaced');
	is($ttl->query("SELECT is_held('queue', $last)"), 't',
		'a lock with a TTL is still held when the manager is replaced');
	cmp_ok(one(q{SELECT extract(epoch FROM time_left) FROM lock_election.locks WHERE name = 'queue'}), '>', 3500,
		'the lease keeps its remaining time when the manager is replaced');

	is(one(q{SELECT try_acquire_lock('sub') IS NULL AND try_acquire_lock('open') IS NULL}), 't',
		'uncommitted locks are still held when the manager is replaced');
	$open->query('ROLLBACK TO s');
	is(one(q{SELECT acquire_lock('sub', wait => '20 s') IS NOT NULL}), 't',
		'a rollback to a savepoint releases the lock acquired after it');
	is(one(q{SELECT try_acquire_lock('open') IS NULL}), 't',
		'a rollback to a savepoint keeps the lock acquired before it');
	$open->query('ROLLBACK');
	is(one(q{SELECT acquire_lock('open', wait => '20 s') IS NOT NULL}), 't',
		'a rollback releases the lock of its transaction');

	is(one("SELECT is_held('pending', $pending_token)"), 't',
		'a pending release does not end the lock before the commit');
	$pending->query('COMMIT');
	is(one("SELECT is_held('pending', $pending_token)"), 'f', 'a pending release ends the lock at the commit');

	my $increasing = 1;
	my $holder = $ttl;
	foreach my $next (@queue)
	{
		is($holder->query("SELECT release_lock('queue', $last)"), 't', 'the lock is handed to the next waiter');
		my $token = $next->wait;
		$increasing &&= $token =~ /^\d+$/ && $token > $last;
		($holder, $last) = ($next, $token);
	}
	ok($increasing, 'waiters are granted the lock in order, with increasing tokens');
	$holder->query("SELECT release_lock('queue', $last)");
	$bound->quit;
	one(q{SELECT force_release_lock(name) FROM lock_election.locks WHERE name <> 'bound'});
	$_->quit foreach $ttl, $open, $pending, @queue;
	nothing_left($node);
};

# The launcher is stopped, so that no manager starts until the test continues it.
subtest 'events while no manager runs' => sub {
	my ($open, $bound, $waiter, $late, $holder) = map { session($node) } 1 .. 5;
	my ($launcher, $manager) = (launcher_pid(), manager_pid());
	my $token = $holder->query(q{SELECT acquire_lock('held', '1 h')});

	$open->query(q{BEGIN; SELECT acquire_lock('open', '1 h')});
	$bound->query(q{SELECT acquire_lock('bound', NULL)});
	$waiter->async(q{SELECT acquire_lock('held', '1 h')});
	wait_for_waiters(1, 'held');
	$late->async(q{SELECT acquire_lock('held', '1 h', wait => '6 s')});
	wait_for_waiters(2, 'held');

	# For less than 5 s, after which waiting calls give up if there is no manager.
	stop_asleep($launcher);
	kill 'TERM', $manager;
	wait_until(sub { $holder->query("SELECT count(*) FROM pg_stat_activity WHERE pid = $manager") eq '0' });
	$holder->query('SELECT pg_terminate_backend(' . $_->pid . ', 10000)') foreach $open, $bound, $waiter;
	kill 'CONT', $launcher;
	is(one(q{SELECT acquire_lock('open', '1 h', wait => '20 s') IS NOT NULL}), 't',
		'the lock of a transaction that ended without a manager is free');
	is(one(q{SELECT acquire_lock('bound', '1 h', wait => '20 s') IS NOT NULL}), 't',
		'the bound lock of a connection that ended without a manager is free');
	wait_for_waiters(1, 'held');
	is($late->wait, '', 'a wait that began before the restart times out');
	is($late->error, '', 'the timed-out wait raises no error');
	is($holder->query("SELECT release_lock('held', $token)"), 't', 'the holder still holds the lock');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach $open, $bound, $waiter, $late, $holder;
	nothing_left($node);
};

subtest 'calls fail if no manager starts' => sub {
	my ($launcher, $manager) = (launcher_pid(), manager_pid());
	my ($s, @waiters) = map { session($node) } 1 .. 7;

	$s->query(q{SELECT acquire_lock('commit', '1 h')});
	$s->query(q{BEGIN; SELECT release_lock('commit')});
	stop_asleep($launcher);
	kill 'TERM', $manager;
	wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $manager");

	# Time limits of at least 1 s and at most 5 s.
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
			"the call fails after its time limit: $cases[$i][0]");
	}
	is($s->query('COMMIT'), '', 'a commit returns without a manager');
	kill 'CONT', $launcher;
	is(one(q{SELECT acquire_lock('commit', wait => '20 s') IS NOT NULL}), 't',
		'the release of the commit is applied later');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach $s, @waiters;
	nothing_left($node);
};

# The commit has more releases than one request can carry.
subtest 'a commit with many releases while no manager runs' => sub {
	my ($launcher, $manager) = (launcher_pid(), manager_pid());
	my $s = session($node);

	$s->query(q{SELECT count(acquire_lock('many ' || i, '1 h')) FROM generate_series(1, 300) i});
	$s->query(q{BEGIN; SELECT count(release_lock('many ' || i)) FROM generate_series(1, 300) i});
	stop_asleep($launcher);
	kill 'TERM', $manager;
	wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $manager");
	my $start = time;
	is($s->query('COMMIT'), '', 'a commit with many releases returns without a manager');
	cmp_ok(time - $start, '<', 30, 'the commit waits once, not once for each request');
	kill 'CONT', $launcher;
	is($s->query(q{SELECT acquire_lock('many 300', '1 h', wait => '20 s') IS NOT NULL}), 't',
		'the session still works');
	is(one(q{SELECT string_agg(name, ' ') FROM lock_election.locks}), 'many 300', 'no release is lost');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$s->quit;
	nothing_left($node);
};

# lock_election.min_batch_interval limits the rate of batches, and so the number of transaction ids.
subtest 'lock_election.min_batch_interval' => sub {
	my $s = session($node);
	my $interval = 0.4;

	$s->query(q{ALTER SYSTEM SET lock_election.min_batch_interval = '400 ms'});
	$s->query('SELECT pg_reload_conf()');
	wait_for_sql($node, 'SHOW lock_election.min_batch_interval', '400ms');
	$s->query(q{SELECT release_lock('first', acquire_lock('first'))}); # Now the manager has also read the setting.
	$s->query(q{SELECT release_lock('first', acquire_lock('first'))});
	my $start = time;
	$s->query("SELECT acquire_lock('interval $_', '1 h')") foreach 1 .. 5;
	my $took = time - $start;
	cmp_ok($took, '>', 4 * $interval - 0.02, 'each request waits for the next batch');
	cmp_ok($took, '<', 40 * $interval, 'no request waits for much longer than the next batch');

	# Requests that arrive during the interval share one batch.
	my @many = map { session($node) } 1 .. 8;
	my $batches = one('SELECT transaction_ids FROM lock_election.stat');
	$start = time;
	$many[$_]->async("SELECT acquire_lock('many $_', '1 h')") foreach 0 .. $#many;
	$_->wait foreach @many;
	my $were = one('SELECT transaction_ids FROM lock_election.stat') - $batches;
	cmp_ok($were, '<=', 1 + (time - $start) / ($interval - 0.01), 'the interval limits the number of transaction ids');
	$s->query(q{ALTER SYSTEM RESET lock_election.min_batch_interval});
	$s->query('SELECT pg_reload_conf()');
	wait_for_sql($node, 'SHOW lock_election.min_batch_interval', '0');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach $s, @many;
	nothing_left($node);
};

# The second wait begins later, and would time out between the end of the first one and the time at which the first
# would end if it started again.
subtest 'a restart of the manager does not extend a wait' => sub {
	my ($holder, $first, $later) = map { session($node) } 1 .. 3;
	my $since = q{SELECT extract(epoch FROM min(waiting_since)) FROM lock_election.waiters WHERE name = 'limited'};

	$holder->query(q{SELECT acquire_lock('limited', '1 h')});
	$first->async(q{SELECT acquire_lock('limited', wait => '12 s')});
	wait_until(sub { $holder->query(q{SELECT min(waiting_since) < clock_timestamp() - interval '3 s' FROM lock_election.waiters WHERE name = 'limited'}) eq 't' });
	my $began = $holder->query($since);
	replace_manager();
	cmp_ok(abs($holder->query($since) - $began), '<', 1, 'waiting_since stays the same after the restart');
	$later->async(q{SELECT acquire_lock('limited', wait => '10 s')});
	is($later->wait, '', 'the later wait times out');
	is($holder->query(q{SELECT count(*) FROM lock_election.waiters WHERE name = 'limited'}), 0, 'the first wait has ended before the later one');
	is($first->wait, '', 'the first wait timed out');
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
	is($worker->error, '', 'no request fails while the manager receives many cancels');
	is(manager_pid(), $pid, 'the manager keeps running');
	$holder->query("SELECT release_lock('cancel', $token)");
	is($waiter->wait, 't', 'the waiter is granted the lock');

	# The manager is cancelled while it waits for a PostgreSQL lock, which it does for 200 ms at a time.
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
	ok($cancelled, 'the manager is cancelled while it waits for a lock');
	like($worker->error, qr/55P03/, 'the client gets the error of the locked row, not of the cancel');
	$other->query('ROLLBACK');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach $holder, $waiter, $other, $worker;
	nothing_left($node);
};

subtest 'memory contexts and reload' => sub {
	my $pid = manager_pid();
	my $log = -s $node->logfile;

	one("SELECT pg_log_backend_memory_contexts($pid)");
	ok(wait_until(sub { return $node->log_contains(qr/\[$pid\] .*Grand total: /, $log) }),
		'the manager logs its memory contexts');
	my $told = slurp_file($node->logfile, $log);
	cmp_ok(one('SELECT failed_batches FROM lock_election.stat'), '>', 0, 'some batches have failed');
	is(scalar(() = $told =~ /level: \d+; lock_election $_:/g), 1, "a failed batch leaves no second memory context $_") foreach qw(state batch history);

	# Returns the sizes of the top memory context and of the memory context of batches.
	my $memory = sub {
		my $log = -s $node->logfile;

		one("SELECT pg_log_backend_memory_contexts($pid)");
		ok(wait_until(sub { return $node->log_contains(qr/\[$pid\].*Grand total: /, $log) }),
			'the manager logs its memory contexts');
		return map { slurp_file($node->logfile, $log) =~ /\[$pid\].* $_: (\d+) total/ ? $1 : die "no $_" } 'TopMemoryContext', 'lock_election batch';
	};
	my ($top) = $memory->();
	one(q{DO $$ BEGIN FOR i IN 1 .. 500 LOOP PERFORM release_lock('w', acquire_lock('w', '1 h')); COMMIT; END LOOP; END $$});
	my ($later, $batch) = $memory->();
	cmp_ok($later - $top, '<', 65536, 'requests do not leak memory in the top memory context');
	cmp_ok($batch, '<', 65536, 'requests do not leak memory in the memory context of batches');
	one('SELECT pg_reload_conf()');
};

# No session has a pending release, so the manager has nothing to wait for. Each try begins with a session that has sent
# a request.
subtest 'the manager exits immediately on SIGTERM' => sub {
	my $s = session($node);
	my $took = 5;

	for (my $try = 1; $try <= 10 && $took >= 5; $try++)
	{
		$s->query(q{SELECT release_lock('w', acquire_lock('w', '1 min'))});
		my $pid = manager_pid();
		my ($start, $log) = (time, -s $node->logfile);
		kill 'TERM', $pid;
		wait_until(sub { !kill 0, $pid }, undef, 0.01) or die 'the manager does not exit';
		$took = time - $start;
		wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
		unlike(slurp_file($node->logfile, $log), qr/PID $pid\) exited with exit code/, 'the manager exits normally');
	}
	cmp_ok($took, '<', 5, 'the manager does not wait for pending releases if there are none');
	$s->quit;
	nothing_left($node);
};

subtest 'a stopped manager counts a stall' => sub {
	my ($holder, $waiter, $short) = map { session($node) } 1 .. 3;
	my $pid = manager_pid();
	my $token = $holder->query(q{SELECT acquire_lock('stall', '1 h')});
	my ($stalls, $before, $log, $began);

	# The manager counts a stall first, and logs it afterwards. Wait until all stalls of the busy machine are logged.
	wait_until(
		sub {
			($before, $log, $began) = (one('SELECT stalls FROM lock_election.stat'), -s $node->logfile, time);
			return one('SELECT stalls FROM lock_election.stat') == $before && slurp_file($node->logfile, $log) !~ /did not run for/;
		}) or die 'the manager stalls all the time';
	$stalls = $before;

	$waiter->async(q{SELECT acquire_lock('stall', '1 h')});
	wait_for_waiters(1, 'stall');
	shorten($holder, 'stall', $token, '2 s');
	my $start = time;
	kill 'STOP', $pid;

	# A renewal is posted in time, but the manager reads it too late.
	$holder->async("SELECT renew_lock('stall', $token) > '1 s'");
	Time::HiRes::sleep(0.1) until time - $start > 3.5;    # the stall itself
	my $continued = time;
	kill 'CONT', $pid;
	is($holder->wait, 't', 'the renewal is applied before the lease expires');
	my $let_in = $waiter->ready;
	ok(!$let_in || time - $continued >= 2, 'the waiter is not granted the lock before the end of the lease');
	wait_for_sql($node, "SELECT stalls > $stalls FROM lock_election.stat");

	# Without a renewal, the lease is extended by the stall. A busy machine may need a second before and after the
	# stall.
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
	is($held, 't', 'a lease does not expire during a stall');
	ok($waiter->wait, 'the waiter is granted the lock when the lease expires');
	wait_for_sql($node, q{SELECT count(*) = 0 FROM lock_election.locks WHERE name = 'stall2'});
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});

	# The manager would have slept for a second. Here it is stopped since a request was posted.
	$token = $short->query(q{SELECT acquire_lock('stall3', '1 h')});
	$stalls = one('SELECT stalls FROM lock_election.stat');
	$holder->query("SELECT is_held('stall3', $token)");
	kill 'STOP', $pid;
	$short->async("SELECT is_held('stall3', $token)");
	Time::HiRes::sleep(1.5);    # the stall itself
	kill 'CONT', $pid;
	is($short->wait, 't', 'the request is served after the stall');
	wait_for_sql($node, "SELECT stalls > $stalls FROM lock_election.stat");

	# The log reports the length of each stall, and the time by which leases are extended.
	my @told;
	ok( wait_until(
			sub {
				@told = slurp_file($node->logfile, $log) =~ /LOG:  the lock_election manager did not run for (\d+ ms; all leases are extended by \d+) ms\n/g;
				return @told == one('SELECT stalls FROM lock_election.stat') - $before;
			}),
		'the log reports each stall');
	my @wrong = grep { my ($took, $moved) = /(\d+)/g; $took < 1000 || $took > 1000 * (time - $began) || $moved > $took } @told;
	is("@wrong", '', 'no stall is reported as longer than it was, or extends leases by more than its length');
	cmp_ok((sort { $b <=> $a } map { /(\d+)/ } @told)[0], '>', 2000,
		'the stall is not reported as shorter than it was');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach $holder, $waiter, $short;
	nothing_left($node);
};

subtest 'expiry' => sub {
	my ($holder, $waiter) = map { session($node) } 1 .. 2;
	my ($early, @late) = 0;

	# Measured by the clients: the lease begins after the call is sent and before it returns.
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
	is($early, 0, 'no lease expires before its TTL');
	@late = sort { $a <=> $b } @late;
	cmp_ok($late[ @late / 2 ], '<', 0.5, 'leases expire soon after their TTL on a machine that is not overloaded');
	note(sprintf('at most %.1f ms late', $late[-1] * 1000));
	$_->quit foreach $holder, $waiter;
	nothing_left($node);
};

# Restarts the server or the manager, and checks the state afterwards, which does not depend on the kind of the stop.
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

	# The lease must have its full TTL again after the start.
	wait_for_sql($node, q{SELECT time_left < '58 s' FROM lock_election.locks WHERE name = 'ttl'});
	my $stopped = time;
	$stop->();
	# Before the start, because the server would inherit the pipes of these sessions and keep them open.
	$_->quit foreach $s, $waiter;
	$start->();
	wait_for_sql($node, 'SELECT count(*) > 0 FROM lock_election.manager');
	my $left = one(q{SELECT extract(epoch FROM time_left) FROM lock_election.locks WHERE name = 'ttl'});
	my $since = time - $stopped;
	is(one(q{SELECT string_agg(name, ' ' ORDER BY name) FROM lock_election.locks}), 'long ttl',
		"$how: locks with a TTL still exist");
	cmp_ok($left, '>', 59.5 - $since, "$how: they have their full TTL again");
	is(one(q{SELECT count(*) FROM lock_election.waiters}), 0, "$how: no waiter is left");
	is(one("SELECT is_held('ttl', $token) AND is_held('long', $long)"), 't', "$how: their tokens are valid");
	is(one(q{SELECT try_acquire_lock('ttl') IS NULL}), 't', "$how: they are not granted to others");
	is(one(q{SELECT try_acquire_lock('ttl', owner => 'me')}), $token, "$how: a named owner gets its token again");
	my $next = token_of('next');
	cmp_ok($next, '>', $highest, "$how: tokens increase");
	cmp_ok(incarnation(), '>', $incarnation, "$how: the incarnation is higher");
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	nothing_left($node, "$how: no entry is left over");
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
			  or die 'the server does not start a new manager';
		});
	check_restart('immediate', sub { $node->stop('immediate') }, $start);
	check_restart('fast', sub { $node->stop('fast') }, $start);
	check_restart('fast again', sub { $node->stop('fast') }, $start);
	check_restart('immediate again', sub { $node->stop('immediate') }, $start);
};

subtest 'tokens and the extension' => sub {
	my $minutes = q{floor((extract(epoch FROM now()) - extract(epoch FROM timestamptz '2025-01-01 00:00 UTC')) / 60)};
	my $token = token_of('x');

	is(one("SELECT $token / (1 << 28)"), incarnation(), 'a token consists of incarnation and counter');
	cmp_ok($token, '<', 2**53, 'a token fits exactly into a double');

	my $before = one("SELECT $minutes");
	$node->safe_psql('postgres', 'DROP EXTENSION lock_election');
	$node->safe_psql('postgres', 'CREATE EXTENSION lock_election');
	my $new = token_of('x');
	my $first = one("SELECT $new / (1 << 28)");
	cmp_ok($before, '<=', $first, 'the first incarnation is at least the minute of its creation');
	cmp_ok($token, '<', $new, 'tokens of a new extension are above those of the dropped one');
	is(one('SELECT count(*) FROM lock_election.locks'), 1, 'a new extension has no locks');
};

# After many restarts, the incarnation is higher than the clock would give. In the database of the restore, the manager
# is already running when the data arrives.
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
	cmp_ok($node->safe_psql('restored', q{SELECT acquire_lock('dumped')}), '>', $token,
		'tokens after the restore are higher than those of the dump');
	is($node->safe_psql('restored', q{SELECT count(*) FROM lock_election.locks}), 1, 'holders are not restored');
};

# A request with many names keeps them in its own shared memory segment, which the next manager must attach.
subtest 'the names of a waiting request are lost' => sub {
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
	plan skip_all => 'the names are not in a segment of their own' unless @segments;

	unlink @segments;
	replace_manager();
	$many->wait;
	like($many->error, qr/ERROR/, 'the request whose names are lost fails');
	is(one(q{SELECT string_agg(pid::text, ' ' ORDER BY queue_position) FROM lock_election.waiters WHERE name = 'line'}), $first->pid . ' ' . $second->pid, 'the other waiters stay in the queue');
	$holder->query(q{SELECT release_lock('line')});
	like($first->wait, qr/^\d+$/, 'the first waiter is granted the lock');
	ok(!$second->ready, 'the second waiter still waits');
	$first->query(q{SELECT release_lock('line')});
	like($second->wait, qr/^\d+$/, 'the second waiter is granted the lock after the release');
	$second->query(q{SELECT release_lock('line')});
	$_->quit foreach $holder, $first, $many, $second;
};

# A new manager does not report the time before its start as a stall.
my @pauses = slurp_file($node->logfile) =~ /the lock_election manager did not run for (-?\d+) ms/g;
is(join(' ', grep { $_ < 1000 || $_ > 1000 * (time - $^T) } @pauses), '', 'no reported stall is longer than this test');

$node->stop;
done_testing();
