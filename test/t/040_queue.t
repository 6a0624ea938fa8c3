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

# Enters a queue; returns the token.
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

# The tokens that have been announced to this session, in order.
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
	is(one('SELECT count(*) FROM _lock_election.queue'), '0', 'no row is left in the queue');
	return;
}

subtest 'enqueue and await' => sub {
	my ($holder, $s, $listener) = map { session($node) } 1 .. 3;
	my $free = $s->query(q{SELECT granted, queue_position, channel FROM enqueue_lock('free')});
	my $channel = one(q{SELECT 'le_' || left(encode(sha256(convert_to('lock x', 'UTF8')), 'hex'), 32)});

	like($free, qr/^t\|0\|le_[0-9a-f]{32}$/, 'a free lock is granted at once');
	is(one('SELECT count(*) FROM _lock_election.queue'), '0', 'without a row in the queue');
	my $held = $holder->query(q{SELECT acquire_lock('x')});
	$listener->query("LISTEN $channel");
	my ($token, @place) = split /\|/, $s->query(q{SELECT * FROM enqueue_lock('x')});
	is("@place", "f 1 $channel", 'else there is a place, and a channel that anybody can compute');
	is(enqueue($s, 'x') > $token ? 't' : 'f', 't', 'the next has a higher token');
	is(one(q{SELECT string_agg(queue_position::text, ' ') FROM lock_election.waiters WHERE name = 'x'}), '1 2', 'the view shows both');
	is(await($s, 'x', $token), 'f', 'not yet');
	is($s->query("SELECT is_held('x', $token)"), 'f', 'a place is not held');
	$s->query("SELECT renew_lock('x', $token)");
	like($s->error, qr/55000/, 'and not renewed');
	$holder->query("SELECT release_lock('x', $held)");
	is(await($s, 'x', $token), 't', 'granted');
	is(await($s, 'x', $token), 't', 'as often as it is asked');
	is_deeply([ wait_for_announced($listener, 1) ], [$token], 'one grant, one notification');
	is($s->query("SELECT release_lock('x', $token)"), 't', 'released like any other');
	my $gone = await($s, 'x', $token);
	like($s->error, qr/LE001: token $token neither holds lock "x" nor waits/, 'then it is gone');
	end_all($holder, $s, $listener);
};

subtest 'order, beside blocked calls' => sub {
	my ($holder, $s, @blocked) = map { session($node) } 1 .. 4;
	my $token = $holder->query(q{SELECT acquire_lock('x')});
	my @queue;

	foreach my $n (0 .. 4)
	{
		push @queue, enqueue($s, 'x') unless $n % 2;
		$blocked[ $n / 2 ]->async(q{SELECT acquire_lock('x')}) if $n % 2;
		wait_for_waiters($n + 1, 'x');
	}
	is($s->query(q{SELECT try_acquire_lock('x')}), '', 'nobody overtakes a place');
	$holder->query("SELECT release_lock('x', $token)");
	foreach my $n (0 .. 2)
	{
		is(await($s, 'x', $queue[$n], q{, '10 s'}), 't', "place $n");
		is(join(' ', map { await($s, 'x', $_) } @queue[ $n + 1 .. 2 ]), join(' ', ('f') x (2 - $n)), 'and no other');
		is($s->query("SELECT release_lock('x', $queue[$n])"), 't', 'is released');
		next if $n == 2;
		my $next = $blocked[$n]->wait;
		ok($next > $queue[$n] && $next < $queue[ $n + 1 ], 'then the blocked call between the two');
		$blocked[$n]->query(q{SELECT release_lock('x')});
	}

	# readers: all at once, each announced once
	$token = $holder->query(q{SELECT acquire_lock('x')});
	my ($listener, $channel) = (session($node), $s->query(q{SELECT channel FROM enqueue_lock('none')}));
	$s->query(q{SELECT release_lock('none')});
	my @readers = map { enqueue($s, 'x', q{, mode => 'shared'}) } 1 .. 3;
	my $writer = enqueue($s, 'x');
	$channel = $s->query(q{SELECT 'le_' || left(encode(sha256(convert_to('lock x', 'UTF8')), 'hex'), 32)});
	$listener->query("LISTEN $channel");
	$holder->query("SELECT release_lock('x', $token)");
	is_deeply([ sort(wait_for_announced($listener, 3)) ], [ sort @readers ], 'three readers are let in at once');
	is(await($s, 'x', $writer), 'f', 'the writer behind them waits');
	$s->query("SELECT release_lock('x', $_)") foreach @readers;
	is_deeply([ wait_for_announced($listener, 1) ], [$writer], 'for the last of them');
	Time::HiRes::sleep(0.2);
	is_deeply([ announced($listener) ], [], 'nothing is announced twice');
	end_all($holder, $s, $listener, @blocked);
};

subtest 'how long a place lasts' => sub {
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
		is(await($s, 'x', $asked), 'f', 'asked for') if time > $until - 0.2;
		await($s, 'x', $asked);
		$s->query("SELECT keep_alive($lease)");
		Time::HiRes::sleep(0.1);
	}
	$s->query("SELECT await_lock('x', $dead)");
	like($s->error, qr/LE001/, 'a place that nobody asks for is gone after its TTL');
	is($other->wait, 'f', 'a wait runs out');
	is($holder->query(q{SELECT string_agg(queue_position::text, ' ') FROM lock_election.waiters WHERE name = 'x'}), '1 2 3 4',
		'those that are asked for, waited for or on a living lease are there');
	is(await($s, 'x', $waited), 'f', 'also after the wait');
	$holder->query(q{SELECT force_release_lock('x')});
	is(await($s, 'x', $asked), 't', 'the first of them is granted');
	cmp_ok($s->query(q{SELECT time_left FROM lock_election.locks WHERE name = 'x'}), 'le', '00:00:03', 'with its own TTL');
	$s->query("SELECT release_lock('x', $asked)");
	is(await($s, 'x', $waited), 't', 'the second');
	$s->query("SELECT keep_alive($lease)");
	$s->query("SELECT release_lock('x', $waited)");
	is(await($s, 'x', $leased, q{, '5 s'}), 't', 'the one on the lease');
	is($s->query("SELECT revoke_lease($lease)"), 't', 'whose end');
	is(await($s, 'x', $behind, q{, '5 s'}), 't', 'hands the lock on');

	# with the connection
	my $bound = enqueue($other, 'x', ', NULL');
	is(await($s, 'x', $bound), 'f', 'ttl => NULL: a place');
	wait_for_waiters(1, 'x');
	$other->kill;
	wait_for_waiters(0, 'x');
	$s->query("SELECT await_lock('x', $bound)");
	like($s->error, qr/LE001/, 'that ends with its connection');
	end_all($holder, $s);
};

subtest 'leaving, and transactions' => sub {
	my ($holder, $s, $other) = map { session($node) } 1 .. 3;
	my $held = $holder->query(q{SELECT acquire_lock('x')});
	my $token = enqueue($s, 'x');

	is($other->query("SELECT release_lock('x', $token)"), 't', 'release_lock leaves the queue, also from elsewhere');
	is($other->query("SELECT release_lock('x', $token)"), 'f', 'once');
	wait_for_waiters(0, 'x');

	$token = enqueue($s, 'x');
	is($s->query("BEGIN; SELECT release_lock('x', $token)"), 't', 'in a transaction');
	is(await($other, 'x', $token), 'f', 'not before its end');
	$s->query('ROLLBACK');
	is(await($other, 'x', $token), 'f', 'nor by a rollback');
	$s->query("BEGIN; SELECT release_lock('x', $token); COMMIT");
	$s->query("SELECT await_lock('x', $token)");
	like($s->error, qr/LE001/, 'but by the commit');

	# granted before the commit: released by it
	$token = enqueue($s, 'x');
	$s->query("BEGIN; SELECT release_lock('x', $token)");
	$holder->query("SELECT release_lock('x', $held)");
	is($other->query("SELECT is_held('x', $token)"), 't', 'granted meanwhile');
	$s->query('COMMIT');
	$held = $holder->query(q{SELECT acquire_lock('x', wait => '20 s')});
	ok($held, 'and released');

	# undone
	$s->query('BEGIN');
	my $kept = enqueue($s, 'x');
	$s->query('SAVEPOINT a');
	my $undone = enqueue($s, 'x');
	$s->query('ROLLBACK TO a; COMMIT');
	wait_for_waiters(1, 'x');
	is(await($other, 'x', $kept), 'f', 'ROLLBACK TO undoes an enqueue');
	$other->query("SELECT await_lock('x', $undone)");
	like($other->error, qr/LE001/, 'that one alone');
	$s->query('BEGIN');
	$undone = enqueue($s, 'x');
	$other->query("SELECT release_lock('x', $kept)");
	$holder->query("SELECT release_lock('x', $held)");
	is(await($other, 'x', $undone, q{, '5 s'}), 't', 'granted before the transaction ends');
	$s->query('ROLLBACK');
	$held = $holder->query(q{SELECT acquire_lock('x', wait => '20 s')});
	ok($held, 'a rollback gives it back');
	$s->query('BEGIN');
	enqueue($s, 'x');
	$s->query(q{PREPARE TRANSACTION 'p'});
	like($s->error, qr/0A000/, 'no PREPARE TRANSACTION');
	end_all($holder, $s, $other);
};

subtest 'how an await ends' => sub {
	my ($holder, $s, $other) = map { session($node) } 1 .. 3;
	my $waiting = sub {
		wait_for_sql($node, 'SELECT state, wait_event_type FROM pg_stat_activity WHERE pid = ' . $_[0]->pid, 'active|Extension');
	};

	$holder->query(q{SELECT acquire_lock('x')});
	my $token = enqueue($s, 'x');
	my $start = time;
	is(await($s, 'x', $token, q{, '300 ms'}), 'f', 'the wait is over');
	cmp_ok(time - $start, '>=', 0.3, 'not too early');
	my %ends = (
		'lock_timeout' => [ q{SET lock_timeout = '200 ms'}, qr/55P03/ ],
		'statement_timeout' => [ q{SET statement_timeout = '200 ms'}, qr/57014/ ]);
	foreach my $how (sort keys %ends)
	{
		$s->query($ends{$how}[0]);
		await($s, 'x', $token, ', NULL');
		like($s->error, $ends{$how}[1], $how);
		$s->query("RESET $how");
		is(await($s, 'x', $token), 'f', 'the place stays');
	}
	$other->async("SELECT await_lock('x', $token, NULL)");
	$waiting->($other);
	is(one('SELECT backend_xmin FROM pg_stat_activity WHERE pid = ' . $other->pid), '', 'a bare wait holds no snapshot');
	one('SELECT pg_cancel_backend(' . $other->pid . ')');
	$other->wait;
	like($other->error, qr/57014/, 'cancel');
	is(await($s, 'x', $token), 'f', 'the place stays');

	# whoever comes last waits
	$other->async("SELECT await_lock('x', $token, NULL)");
	$waiting->($other);
	$s->async("SELECT await_lock('x', $token, NULL)");
	is($other->wait, 'f', 'a newer wait ends an older one');
	$waiting->($s);
	one('SELECT pg_terminate_backend(' . $s->pid . ')');
	$s->wait;
	like($s->error, qr/57P01/, 'terminate');
	is(await($other, 'x', $token), 'f', 'the place stays');

	# released under the wait
	$other->async("SELECT await_lock('x', $token, NULL)");
	$waiting->($other);
	$holder->query("SELECT release_lock('x', $token)");
	$other->wait;
	like($other->error, qr/LE001/, 'the place is given up by somebody else');

	# granted under the wait
	$token = enqueue($other, 'x');
	$other->async("SELECT await_lock('x', $token, NULL)");
	$waiting->($other);
	$holder->query(q{SELECT release_lock('x')});
	is($other->wait, 't', 'granted');
	await($other, 'y', $token);
	like($other->error, qr/LE001/, 'another name');
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

	# the manager alone
	foreach (1 .. 2)
	{
		my $pid = manager_pid();
		kill 'TERM', $pid;
		wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
	}
	wait_for_waiters(7, 'x');
	is(one($order), "@queue", 'a new manager: all keep their places');
	$open->query('ROLLBACK');
	wait_for_waiters(6, 'x');
	splice @queue, 4, 1;
	is(one($order), "@queue", 'an open enqueue can still be undone');

	# a batch that cannot be written
	$open->query('BEGIN; LOCK _lock_election.queue');
	$s->query(q{SELECT enqueue_lock('x')});
	like($s->error, qr/55P03/, 'a locked table');
	$open->query('ROLLBACK');
	is(one($order), "@queue", 'changes nothing');

	# a crash
	wait_for_sql($node, q{SELECT min(time_left) < '58 s' FROM lock_election.look() WHERE queue_position > 0});
	$node->stop('immediate');
	$_->quit foreach $holder, $s, $open, $blocked;
	$node->start;
	wait_for_sql($node, 'SELECT count(*) > 0 FROM lock_election.manager');
	splice @queue, 3, 2;
	is(one($order), "@queue", 'a crash: those bound to a connection are gone');
	my $left = one(q{SELECT extract(epoch FROM min(time_left)) FROM lock_election.look() WHERE queue_position > 0});
	cmp_ok($left, '>', 60 - (time - $entered), 'the others have lost no more than the time that has passed');
	is(one(q{SELECT count(*) FROM _lock_election.queue}), '4', 'and a row each');
	my $next = enqueue($s = session($node), 'x');
	cmp_ok($next, '>', $queue[3], 'tokens rise');
	$s->query("SELECT release_lock('x', $held)");
	foreach my $token (@queue, $next)
	{
		is(await($s, 'x', $token, q{, '5 s'}), 't', 'granted in the old order');
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
	# the manager may read its settings a moment later
	wait_until(sub { enqueue($s, 'x'); return $s->error ne ''; });
	like($s->error, qr/53400: .*too many requests wait for lock "x"/, 'max_waiters_per_lock');
	$s->query(q{SELECT release_lock('x', token) FROM lock_election.look() WHERE queue_position > 0});
	$node->append_conf('postgresql.conf', 'lock_election.max_waiters_per_lock = 0');
	$node->reload;
	end_all($s);
};

subtest 'the table' => sub {
	my $s = session($node);

	foreach my $sql ('INSERT INTO _lock_election.queue SELECT * FROM _lock_election.queue', 'DELETE FROM _lock_election.queue',
		'UPDATE _lock_election.queue SET ttl = 1', 'TRUNCATE _lock_election.queue')
	{
		$s->query($sql);
		like($s->error, qr/55000: .*written only by lock_election/, $sql);
	}
	is(one(q{SELECT has_table_privilege('pg_read_all_stats', '_lock_election.queue', 'SELECT')}), 'f', 'nobody may read it');

	# rewritten under the manager
	$s->query(q{SELECT acquire_lock('x', '1 h')});
	my $token = enqueue($s, 'x');
	$s->query('VACUUM FULL _lock_election.queue');
	my $second = enqueue($s, 'x');
	is(await($s, 'x', $token) . await($s, 'x', $second), 'ff', 'rewritten: the places are there');
	$s->query('ALTER TABLE _lock_election.queue ALTER ttl TYPE numeric');
	$s->query(q{SELECT enqueue_lock('x')});
	like($s->error, qr/55000: .*has been altered/, 'altered: an error');
	$s->query('ALTER TABLE _lock_election.queue ALTER ttl TYPE bigint');
	$s->quit;
};

$node->stop;
done_testing();
