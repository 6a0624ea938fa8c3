# The queue for clients that do not block a connection: places keep their order next to blocked calls, last as long as
# they are renewed, survive a crash, and their grants are announced.
# Promises: Q, D
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', conf => "autovacuum = off\n");

sub notifier_pid { return one(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election notifier'}); }

# Enqueues and returns the token.
sub enqueue
{
	my ($s, $name, $more) = @_;
	return $s->query("SELECT token FROM enqueue_lock('$name'" . ($more // '') . ')');
}

sub await
{
	my ($s, $name, $token, $more) = @_;
	return $s->query("SELECT await_lock('$name', $token" . ($more // '') . ')');
}

# Returns the tokens that were announced to this session, in order.
sub announced
{
	my ($s) = @_;
	my $out = $s->query('SELECT 1');
	return map { /"token":"(\d+)"/ } grep { /^Asynchronous notification/ } split /\n/, $out;
}

sub wait_for_announced
{
	my ($s, $n) = @_;
	my @tokens;
	wait_until(sub { push @tokens, announced($s); return @tokens >= $n; });
	return @tokens;
}

sub end_all
{
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach @_;
	nothing_left($node);
	is(one('SELECT count(*) FROM _lock_election.queue'), '0', 'no row is left in the table queue');
	return;
}

subtest 'enqueue and await' => sub {
	my ($holder, $s, $listener) = map { session($node) } 1 .. 3;
	my $free = $s->query(q{SELECT granted, queue_position, channel FROM enqueue_lock('free')});
	my $channel = one(q{SELECT 'le_' || left(encode(sha256(convert_to('lock x', 'UTF8')), 'hex'), 32)});

	like($free, qr/^t\|0\|le_[0-9a-f]{32}$/, 'a free lock is granted immediately');
	is(one('SELECT count(*) FROM _lock_election.queue'), '0', 'a granted lock has no row in the table queue');
	my $held = $holder->query(q{SELECT acquire_lock('x')});
	$listener->query("LISTEN $channel");
	my ($token, @place) = split /\|/, $s->query(q{SELECT * FROM enqueue_lock('x')});
	is("@place", "f 1 $channel", 'a held lock gives a place, and a channel that can be computed from the name');
	is(enqueue($s, 'x') > $token ? 't' : 'f', 't', 'the next place has a higher token');
	is(one(q{SELECT string_agg(queue_position::text, ' ') FROM lock_election.waiters WHERE name = 'x'}), '1 2',
		'waiters: both places are shown');
	is(await($s, 'x', $token), 'f', 'await_lock() returns false before the grant');
	is($s->query("SELECT is_held('x', $token)"), 'f', 'is_held() returns false for a place');
	$s->query("SELECT renew_lock('x', $token)");
	like($s->error, qr/55000/, 'renew_lock() of a place is an error');
	$holder->query("SELECT release_lock('x', $held)");
	is(await($s, 'x', $token), 't', 'await_lock() returns true after the grant');
	is(await($s, 'x', $token), 't', 'await_lock() returns true again');
	is_deeply([ wait_for_announced($listener, 1) ], [$token], 'one grant sends one notification');
	is($s->query("SELECT release_lock('x', $token)"), 't', 'the granted lock is released');
	my $gone = await($s, 'x', $token);
	like($s->error, qr/LE001: token $token neither holds lock "x" nor waits/,
		'await_lock() raises LE001 after the release');
	end_all($holder, $s, $listener);
};

subtest 'order of places and blocked calls' => sub {
	my ($holder, $s, @blocked) = map { session($node) } 1 .. 4;
	my $token = $holder->query(q{SELECT acquire_lock('x')});
	my @queue;

	foreach my $n (0 .. 4)
	{
		push @queue, enqueue($s, 'x') unless $n % 2;
		$blocked[ $n / 2 ]->async(q{SELECT acquire_lock('x')}) if $n % 2;
		wait_for_waiters($n + 1, 'x');
	}
	is($s->query(q{SELECT try_acquire_lock('x')}), '', 'try_acquire_lock() does not overtake a place');
	$holder->query("SELECT release_lock('x', $token)");
	foreach my $n (0 .. 2)
	{
		is(await($s, 'x', $queue[$n], q{, '10 s'}), 't', "place $n is granted the lock");
		is(join(' ', map { await($s, 'x', $_) } @queue[ $n + 1 .. 2 ]), join(' ', ('f') x (2 - $n)),
			"no place behind place $n is granted the lock");
		is($s->query("SELECT release_lock('x', $queue[$n])"), 't', "place $n is released");
		next if $n == 2;
		my $next = $blocked[$n]->wait;
		ok($next > $queue[$n] && $next < $queue[ $n + 1 ], "the blocked call behind place $n is granted the lock next");
		$blocked[$n]->query(q{SELECT release_lock('x')});
	}

	# Readers are granted together, and each is announced once.
	$token = $holder->query(q{SELECT acquire_lock('x')});
	my ($listener, $channel) = (session($node), $s->query(q{SELECT channel FROM enqueue_lock('none')}));
	$s->query(q{SELECT release_lock('none')});
	my @readers = map { enqueue($s, 'x', q{, mode => 'shared'}) } 1 .. 3;
	my $writer = enqueue($s, 'x');
	$channel = $s->query(q{SELECT 'le_' || left(encode(sha256(convert_to('lock x', 'UTF8')), 'hex'), 32)});
	$listener->query("LISTEN $channel");
	$holder->query("SELECT release_lock('x', $token)");
	is_deeply([ sort(wait_for_announced($listener, 3)) ], [ sort @readers ],
		'three readers are granted the lock together');
	is(await($s, 'x', $writer), 'f', 'the writer behind the readers waits');
	$s->query("SELECT release_lock('x', $_)") foreach @readers;
	is_deeply([ wait_for_announced($listener, 1) ], [$writer], 'the writer is granted the lock after the last reader');
	Time::HiRes::sleep(0.2);
	is_deeply([ announced($listener) ], [], 'no grant is announced twice');
	end_all($holder, $s, $listener, @blocked);
};

subtest 'lifetime of a place' => sub {
	my ($holder, $s, $other) = map { session($node) } 1 .. 3;

	$holder->query(q{SELECT acquire_lock('x', '1 h')});
	my $asked = enqueue($s, 'x', q{, '3 s'});
	my $waited = enqueue($s, 'x', q{, '3 s'});
	my $lease = $s->query(q{SELECT grant_lease('3 s')});
	my $leased = enqueue($s, 'x', ", lease => $lease");
	my $dead = enqueue($s, 'x', q{, '3 s'});
	my $behind = enqueue($s, 'x', q{, '1 h'});
	my $until = time + 5;

	$other->async("SELECT await_lock('x', $waited, '4500 ms')");
	while (time < $until)
	{
		is(await($s, 'x', $asked), 'f', 'await_lock() renews a place') if time > $until - 0.2;
		await($s, 'x', $asked);
		$s->query("SELECT keep_alive($lease)");
		Time::HiRes::sleep(0.1);
	}
	$s->query("SELECT await_lock('x', $dead)");
	like($s->error, qr/LE001/, 'a place expires after its TTL');
	is($other->wait, 'f', 'a wait times out');
	is($holder->query(q{SELECT string_agg(queue_position::text, ' ') FROM lock_election.waiters WHERE name = 'x'}), '1 2 3 4',
		'places that are renewed, waited for, or on a living lease stay');
	is(await($s, 'x', $waited), 'f', 'a place stays after its wait timed out');
	$holder->query(q{SELECT force_release_lock('x')});
	is(await($s, 'x', $asked), 't', 'the first place is granted the lock');
	cmp_ok($s->query(q{SELECT time_left FROM lock_election.locks WHERE name = 'x'}), 'le', '00:00:03', 'the granted lock has the TTL of the place');
	$s->query("SELECT release_lock('x', $asked)");
	is(await($s, 'x', $waited), 't', 'the second place is granted the lock');
	$s->query("SELECT keep_alive($lease)");
	$s->query("SELECT release_lock('x', $waited)");
	is(await($s, 'x', $leased, q{, '5 s'}), 't', 'the place on the lease is granted the lock');
	is($s->query("SELECT revoke_lease($lease)"), 't', 'the lease is revoked');
	is(await($s, 'x', $behind, q{, '5 s'}), 't', 'the end of the lease hands the lock to the next place');

	# Places that are bound to a connection.
	my $bound = enqueue($other, 'x', ', NULL');
	is(await($s, 'x', $bound), 'f', 'a bound place is queued');
	wait_for_waiters(1, 'x');
	$other->kill;
	wait_for_waiters(0, 'x');
	$s->query("SELECT await_lock('x', $bound)");
	like($s->error, qr/LE001/, 'a bound place ends with its connection');
	end_all($holder, $s);
};

subtest 'leaving the queue, and transactions' => sub {
	my ($holder, $s, $other) = map { session($node) } 1 .. 3;
	my $held = $holder->query(q{SELECT acquire_lock('x')});
	my $token = enqueue($s, 'x');

	is($other->query("SELECT release_lock('x', $token)"), 't', 'release_lock() from another session removes a place');
	is($other->query("SELECT release_lock('x', $token)"), 'f', 'a second release_lock() returns false');
	wait_for_waiters(0, 'x');

	$token = enqueue($s, 'x');
	is($s->query("BEGIN; SELECT release_lock('x', $token)"), 't',
		'release_lock() of a place in a transaction returns true');
	is(await($other, 'x', $token), 'f', 'the place stays until the end of the transaction');
	$s->query('ROLLBACK');
	is(await($other, 'x', $token), 'f', 'the place stays after a rollback');
	$s->query("BEGIN; SELECT release_lock('x', $token); COMMIT");
	$s->query("SELECT await_lock('x', $token)");
	like($s->error, qr/LE001/, 'the place ends with the commit');

	# The place is granted the lock before the commit, which then releases the lock.
	$token = enqueue($s, 'x');
	$s->query("BEGIN; SELECT release_lock('x', $token)");
	$holder->query("SELECT release_lock('x', $held)");
	is($other->query("SELECT is_held('x', $token)"), 't', 'the place is granted the lock before the commit');
	$s->query('COMMIT');
	$held = $holder->query(q{SELECT acquire_lock('x', wait => '20 s')});
	ok($held, 'the commit releases the granted lock');

	# Enqueuing is rolled back.
	$s->query('BEGIN');
	my $kept = enqueue($s, 'x');
	$s->query('SAVEPOINT a');
	my $undone = enqueue($s, 'x');
	$s->query('ROLLBACK TO a; COMMIT');
	wait_for_waiters(1, 'x');
	is(await($other, 'x', $kept), 'f', 'a place enqueued before the savepoint stays');
	$other->query("SELECT await_lock('x', $undone)");
	like($other->error, qr/LE001/, 'ROLLBACK TO removes the place enqueued after the savepoint');
	$s->query('BEGIN');
	$undone = enqueue($s, 'x');
	$other->query("SELECT release_lock('x', $kept)");
	$holder->query("SELECT release_lock('x', $held)");
	is(await($other, 'x', $undone, q{, '5 s'}), 't', 'a place is granted the lock before its transaction ends');
	$s->query('ROLLBACK');
	$held = $holder->query(q{SELECT acquire_lock('x', wait => '20 s')});
	ok($held, 'a rollback releases the granted lock');
	$s->query('BEGIN');
	enqueue($s, 'x');
	$s->query(q{PREPARE TRANSACTION 'p'});
	like($s->error, qr/0A000/, 'PREPARE TRANSACTION fails after enqueuing');
	end_all($holder, $s, $other);
};

subtest 'how await_lock() ends' => sub {
	my ($holder, $s, $other) = map { session($node) } 1 .. 3;
	my $waiting = sub {
		wait_for_sql($node, 'SELECT state, wait_event_type FROM pg_stat_activity WHERE pid = ' . $_[0]->pid, 'active|Extension');
	};

	$holder->query(q{SELECT acquire_lock('x')});
	my $token = enqueue($s, 'x');
	my $start = time;
	is(await($s, 'x', $token, q{, '300 ms'}), 'f', 'await_lock() times out');
	cmp_ok(time - $start, '>=', 0.3, 'await_lock() does not time out early');
	my %ends = (
		'lock_timeout' => [ q{SET lock_timeout = '200 ms'}, qr/55P03/ ],
		'statement_timeout' => [ q{SET statement_timeout = '200 ms'}, qr/57014/ ]);
	foreach my $how (sort keys %ends)
	{
		$s->query($ends{$how}[0]);
		await($s, 'x', $token, ', NULL');
		like($s->error, $ends{$how}[1], $how);
		$s->query("RESET $how");
		is(await($s, 'x', $token), 'f', "the place stays after $how");
	}
	$other->async("SELECT await_lock('x', $token, NULL)");
	$waiting->($other);
	is(one('SELECT backend_xmin FROM pg_stat_activity WHERE pid = ' . $other->pid), '', 'a bare await_lock() holds no snapshot');
	one('SELECT pg_cancel_backend(' . $other->pid . ')');
	$other->wait;
	like($other->error, qr/57014/, 'await_lock() is cancelled');
	is(await($s, 'x', $token), 'f', 'the place stays after the cancel');

	# A newer wait replaces an older one.
	$other->async("SELECT await_lock('x', $token, NULL)");
	$waiting->($other);
	$s->async("SELECT await_lock('x', $token, NULL)");
	is($other->wait, 'f', 'a newer await_lock() ends an older one');
	$waiting->($s);
	one('SELECT pg_terminate_backend(' . $s->pid . ')');
	$s->wait;
	like($s->error, qr/57P01/, 'the connection of a waiting call is terminated');
	is(await($other, 'x', $token), 'f', 'the place stays after the termination');

	# The place is released during the wait.
	$other->async("SELECT await_lock('x', $token, NULL)");
	$waiting->($other);
	$holder->query("SELECT release_lock('x', $token)");
	$other->wait;
	like($other->error, qr/LE001/, 'a release by another session ends the wait with LE001');

	# The place is granted the lock during the wait.
	$token = enqueue($other, 'x');
	$other->async("SELECT await_lock('x', $token, NULL)");
	$waiting->($other);
	$holder->query(q{SELECT release_lock('x')});
	is($other->wait, 't', 'await_lock() returns true at the grant');
	await($other, 'y', $token);
	like($other->error, qr/LE001/, 'await_lock() with another name raises LE001');
	end_all($holder, $s, $other);
};

subtest 'restarts' => sub {
	my ($holder, $s, $open, $blocked) = map { session($node) } 1 .. 4;
	my $held = $holder->query(q{SELECT acquire_lock('x', '1 h')});
	my $entered = time;
	my @queue = map { enqueue($s, 'x', q{, '1 min', owner => 'o'}) } 1 .. 3;
	my $order = q{SELECT string_agg(token::text, ' ' ORDER BY queue_position) FROM lock_election.look() WHERE name = 'x' AND queue_position > 0};

	$blocked->async(q{SELECT acquire_lock('x')});
	wait_for_waiters(4, 'x');
	my $blocked_token = one($order) =~ s/.* //r;
	push @queue, $blocked_token;
	$open->query('BEGIN');
	push @queue, enqueue($open, 'x', q{, '1 h'});
	push @queue, enqueue($s, 'x', q{, NULL});
	my $lease = $s->query(q{SELECT grant_lease('1 h')});
	push @queue, enqueue($s, 'x', ", lease => $lease");

	# Only the manager is replaced.
	foreach (1 .. 2)
	{
		my $pid = manager_pid();
		kill 'TERM', $pid;
		wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
	}
	wait_for_waiters(7, 'x');
	is(one($order), "@queue", 'all places and calls keep their order when the manager is replaced');
	$open->query('ROLLBACK');
	wait_for_waiters(6, 'x');
	splice @queue, 4, 1;
	is(one($order), "@queue", 'an uncommitted place can be rolled back after the manager was replaced');

	# A batch cannot be written.
	$open->query('BEGIN; LOCK _lock_election.queue');
	$s->query(q{SELECT enqueue_lock('x')});
	like($s->error, qr/55P03/, 'enqueuing fails while the table is locked');
	$open->query('ROLLBACK');
	is(one($order), "@queue", 'the failed batch does not change the queue');

	# The server crashes.
	wait_for_sql($node, q{SELECT min(time_left) < '58 s' FROM lock_election.look() WHERE queue_position > 0});
	$node->stop('immediate');
	$_->quit foreach $holder, $s, $open, $blocked;
	$node->start;
	wait_for_sql($node, 'SELECT count(*) > 0 FROM lock_election.manager');
	splice @queue, 3, 2;
	is(one($order), "@queue", 'places bound to a connection are removed by a crash');
	my $left = one(q{SELECT extract(epoch FROM min(time_left)) FROM lock_election.look() WHERE queue_position > 0});
	cmp_ok($left, '>', 60 - (time - $entered), 'the other places lose at most the time that has passed');
	is(one(q{SELECT count(*) FROM _lock_election.queue}), '4', 'the other places have one row each');
	my $next = enqueue($s = session($node), 'x');
	cmp_ok($next, '>', $queue[3], 'tokens increase after the crash');
	$s->query("SELECT release_lock('x', $held)");
	foreach my $token (@queue, $next)
	{
		is(await($s, 'x', $token, q{, '5 s'}), 't', 'places are granted the lock in the old order');
		$s->query("SELECT release_lock('x', $token)");
	}
	end_all($s);
};

subtest 'limit' => sub {
	my $s = session($node);

	$node->append_conf('postgresql.conf', 'lock_election.max_waiters_per_lock = 2');
	$node->reload;
	wait_for_sql($node, 'SHOW lock_election.max_waiters_per_lock', '2');
	enqueue($s, 'x') foreach 1 .. 3;
	# The manager may reload its settings a moment later.
	wait_until(sub { enqueue($s, 'x'); return $s->error ne ''; });
	like($s->error, qr/53400: .*too many requests wait for lock "x"/,
		'enqueuing fails if max_waiters_per_lock is exceeded');
	$s->query(q{SELECT release_lock('x', token) FROM lock_election.look() WHERE queue_position > 0});
	$node->append_conf('postgresql.conf', 'lock_election.max_waiters_per_lock = 0');
	$node->reload;
	end_all($s);
};

subtest 'the table of places' => sub {
	my $s = session($node);

	foreach my $sql ('INSERT INTO _lock_election.queue SELECT * FROM _lock_election.queue', 'DELETE FROM _lock_election.queue',
		'UPDATE _lock_election.queue SET ttl = 1', 'TRUNCATE _lock_election.queue')
	{
		$s->query($sql);
		like($s->error, qr/55000: .*written only by lock_election/, $sql);
	}
	is(one(q{SELECT has_table_privilege('pg_read_all_stats', '_lock_election.queue', 'SELECT')}), 'f',
		'pg_read_all_stats cannot read the table');

	# The table is rewritten while the manager runs.
	$s->query(q{SELECT acquire_lock('x', '1 h')});
	my $token = enqueue($s, 'x');
	$s->query('VACUUM FULL _lock_election.queue');
	my $second = enqueue($s, 'x');
	is(await($s, 'x', $token) . await($s, 'x', $second), 'ff', 'the places exist after VACUUM FULL');
	$s->query('ALTER TABLE _lock_election.queue ALTER ttl TYPE numeric');
	$s->query(q{SELECT enqueue_lock('x')});
	like($s->error, qr/55000: .*has been altered/, 'enqueuing fails after a column type was changed');
	$s->query('ALTER TABLE _lock_election.queue ALTER ttl TYPE bigint');
	$s->quit;
};

$node->stop;
done_testing();
