# The extension's tables are locked, rewritten, indexed, and changed by hand. No lock is lost, and only requests that
# are impossible fail.
# Promises: D, L
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', conf => "autovacuum = off\nallow_in_place_tablespaces = on\n");

# Statements that an administrator needs to write to the table.
my $open_table = q{ALTER TABLE _lock_election.slot DISABLE TRIGGER USER;};
my $close_table = q{ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_write; ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_row;};

my ($admin, $holder, $bound, $open, $waiter) = map { session($node) } 1 .. 5;

# Creates holders of all kinds, and a waiter.
my %token;

sub set_up
{
	$token{held} = $holder->query(q{SELECT acquire_lock('held', '1 h')});
	$token{bound} = $bound->query(q{SELECT acquire_lock('bound', NULL)});
	$token{named} = $holder->query(q{SELECT acquire_lock('named', '1 h', owner => 'me')});
	$holder->query(q{SELECT acquire_lock('named', '1 h', owner => 'me')});
	$token{shared} = $holder->query(q{SELECT acquire_lock('shared', '1 h', mode => 'shared')});
	$bound->query(q{SELECT acquire_lock('shared', '1 h', mode => 'shared')});
	$open->query(q{BEGIN; SELECT acquire_lock('open', '1 h')});
	$waiter->async(q{SELECT acquire_lock('held', '1 h')});
	wait_for_waiters(1, 'held');
	return;
}

# Checks that all of them still work and can be ended.
sub check_and_end
{
	my ($name) = @_;
	my $failed = 0;

	foreach my $lock (sort keys %token)
	{
		$failed++ if one("SELECT is_held('$lock', $token{$lock})") ne 't';
	}
	is($failed, 0, "$name: all locks are held");
	is(one(q{SELECT try_acquire_lock('held') IS NULL AND try_acquire_lock('shared') IS NULL AND try_acquire_lock('open') IS NULL}),
		't', "$name: the locks are not granted to others");
	is($holder->query("SELECT release_lock('held', $token{held})"), 't', "$name: the holder releases its lock");
	cmp_ok($waiter->wait, '>', $token{held}, "$name: the waiter is granted the lock");
	$open->query('ROLLBACK');
	is(one(q{SELECT acquire_lock('open', '1 h', wait => '20 s') IS NOT NULL}), 't', "$name: a rollback releases the lock");
	is($holder->query("SELECT release_lock('named', $token{named})"), 't', "$name: one of two holds is released");
	is($holder->query("SELECT is_held('named', $token{named}); SELECT release_lock('named', $token{named}); SELECT is_held('named', $token{named})"),
		"t\nt\nf", "$name: the second hold is released");
	$bound->query(q{SELECT release_lock('bound')});
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'shared'}), 2, "$name: the shared lock has two holders");
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	return nothing_left($node, "$name: no entry is left over");
}

# Checks all columns of the rows of each kind of holder and place, to the microsecond, and the number of rows written.
subtest 'contents of all columns' => sub {
	my $app = session($node);
	my $su = one('SELECT current_user');
	my $wrote = one('SELECT rows_written FROM lock_election.stat');
	my $text = sub {
		my ($table, $columns, $where) = @_;
		return one("SELECT $columns FROM _lock_election.$table" . (defined $where ? " WHERE $where" : ''));
	};
	my $slot = sub {
		my ($name) = @_;
		return $text->('slot', q{kind, slot, mode, ttl, time_left, lease, role::regrole, holds, permits, owner, value,
			octet_length(uncommitted), CASE WHEN isfinite(expires_at) THEN (expires_at - acquired_at BETWEEN interval '1 h'
			AND interval '1 h 1 min')::text ELSE expires_at::text END, closed_until}, "name = '$name' AND mode <> 0") =~ s/true/t/r;
	};
	my $rows = sub {
		my ($n, $test_name) = @_;
		my $now = one('SELECT rows_written FROM lock_election.stat');

		is($now - $wrote, $n, "$test_name: rows written");
		$wrote = $now;
	};

	# rows of locks and leases
	one('CREATE ROLE app');
	$app->query('SET ROLE app');
	my $ttl = $app->query(q{SELECT acquire_lock('ttl', '1 h', owner => 'me')});
	$rows->(1, 'a lock');
	is($slot->('ttl'), '1|0|1|3600000000|3600000000|0|app|1|0|me||16|t|', 'slot row of a lock with a TTL');
	is($text->('slot', q{token, acquired_at BETWEEN now() - interval '1 min' AND now(),
		acquirer = (SELECT acquirer FROM lock_election.locks)}), "$ttl|t|t", 'token, time and acquirer of the slot row');
	my $lease = $app->query(q{SELECT grant_lease('1 h', 'us')});
	$rows->(1, 'a lease');
	is($text->('lease', q{id, ttl, time_left, expires_at BETWEEN now() + interval '59 min' AND now() + interval '1 h',
		role::regrole, owner}), "$lease|3600000000|3600000000|t|app|us", 'row of a lease');
	$app->query("SELECT acquire_lock('leased', lease => $lease, mode => 'shared')");
	is($slot->('leased'), "1|0|2|3600000000|0|$lease|app|1|0|||16||", 'slot row of a lock on a lease');
	$bound->query(q{SELECT acquire_lock('bound', NULL)});
	is($slot->('bound'), "1|0|1|-1|0|0|$su|1|0|||16|infinity|", 'slot row of a bound lock');
	$open->query(q{BEGIN; SELECT acquire_lock('open', '1 h'); SAVEPOINT s; SELECT acquire_lock('open', '1 h')});
	is($slot->('open'), "1|0|1|3600000000|3600000000|0|$su|2|0|||32|t|", 'slot row of an uncommitted lock with two holds');
	$wrote += 3 + 1;
	$rows->(0, 'three locks and one more hold');
	$open->query(q{SELECT count(acquire_lock('open', '1 h')) FROM generate_series(1, 70)});
	is($slot->('open'), "1|0|1|3600000000|3600000000|0|$su|72|0|||1024|t|", 'at most 64 uncommitted holds are stored in the slot row');
	$rows->(70, '70 more holds');
	$holder->query(q{SELECT acquire_permit('permit', 3, '1 h')});
	is($slot->('permit'), "1|0|3|3600000000|3600000000|0|$su|1|3|||16|t|", 'slot row of a permit');
	$rows->(1, 'a permit');
	my $term = $app->query(q{SELECT campaign('election', 'me', '1 h')});
	$rows->(2, 'a term and its history');
	is($slot->('election'), '2|0|1|3600000000|3600000000|0|app|1|0||me|16|t|', 'slot row of a term');
	is($text->('history', q{term, role::regrole, how, election, candidate, elected_at = at,
		at = (SELECT acquired_at FROM _lock_election.slot WHERE token = term)}), "$term|app|1|election|me|t|t", 'history row of a term');

	# rows of places
	my $place = $app->query(q{SELECT token FROM enqueue_lock('ttl', '1 h', owner => 'other')});
	$rows->(1, 'a place');
	is($text->('queue', q{token, entered_at BETWEEN now() - interval '1 min' AND now(), ttl, lease,
		session = (SELECT session FROM _lock_election.slot WHERE name = 'ttl'), role::regrole, permits, holds, member, kind, mode,
		name, owner, value, octet_length(uncommitted), acquirer = (SELECT acquirer FROM _lock_election.slot WHERE name = 'ttl')}),
		"$place|t|3600000000|0|t|app|0|1|0|1|1|ttl|other||16|t", 'queue row of a place');
	$app->query("SELECT release_lock('ttl', $place)");
	$rows->(1, 'the end of a place');
	$place = $app->query(qq{BEGIN; SELECT token FROM enqueue_locks(ARRAY['leased', 'ttl'], lease => $lease)});
	$rows->(2, 'a place of two names');
	is($text->('queue', q{string_agg(concat_ws(' ', token, ttl, lease, holds, member, mode, name, owner,
		octet_length(uncommitted)), ',' ORDER BY member)}),
		"$place 3600000000 $lease 1 1 1 leased 16,$place 3600000000 $lease 1 2 1 ttl 16", 'queue rows of a place on two names');
	$app->query('ROLLBACK');
	wait_for_sql($node, 'SELECT count(*) FROM _lock_election.queue', '0');

	# rows of free, closed and fenced names
	$app->query("SELECT release_lock('ttl', $ttl, hold_for => '1 h')");
	is($text->('slot', q{token, ttl, time_left, lease, session, role::regrole, holds, permits, mode, expires_at, owner, value,
		uncommitted, acquirer, closed_until - acquired_at BETWEEN interval '59 min' AND interval '1 h'}, q{name = 'ttl'}),
		'0|0|0|0|0|app|0|0|0||||||t', 'slot row of a closed name');
	$open->query('ROLLBACK');
	my $fenced = $holder->query(q{SELECT acquire_lock('fenced', '1 h')});
	$open->query("BEGIN; SELECT fence_lock('fenced', $fenced)");
	$holder->query("SELECT release_lock('fenced', $fenced, hold_for => '1 h')");
	is($text->('slot', q{mode, time_left, closed_until - expires_at BETWEEN interval '59 min' AND interval '1 h',
		expires_at >= acquired_at}, q{name = 'fenced'}), '1|-1|t|t', 'slot row of a lapsed holder');
	$open->query('ROLLBACK');
	wait_for_sql($node, q{SELECT mode, time_left, closed_until > now() + interval '50 min', expires_at
		FROM _lock_election.slot WHERE name = 'fenced'}, '0|0|t|');
	one(q{SELECT force_release_role('app'); SELECT force_release_lock(name) FROM lock_election.locks});
	$bound->query(q{SELECT release_lock('bound')});
	wait_for_sql($node, q{SELECT count(*) FROM _lock_election.slot WHERE mode = 0 AND closed_until IS NULL
		AND (token, ttl, time_left, lease, session, role, holds) <> (0, 0, 0, 0, 0, 0, 0)}, '0');
	one("SELECT revoke_lease($lease)") if one('SELECT count(*) FROM lock_election.leases');
	$app->quit;
	nothing_left($node);
};

subtest 'a locked table' => sub {
	my @clients = map { session($node) } 1 .. 3;
	my $releasing = session($node);

	set_up();
	$releasing->query(q{SELECT acquire_lock('released', NULL)});
	$releasing->query(q{BEGIN; SELECT release_lock('released')});
	my $failed = one('SELECT failed_batches FROM lock_election.stat');
	$admin->query('BEGIN; LOCK TABLE _lock_election.slot IN ACCESS EXCLUSIVE MODE');
	my $start = time;
	$clients[$_]->async("SELECT acquire_lock('c$_')") foreach 0 .. 2;
	foreach my $client (@clients)
	{
		$client->wait;
		like($client->error, qr/ERROR:  55P03: .*\nHINT:  SELECT blocked_by FROM lock_election\.health\(\) /, 'a request fails with a hint where to look');
	}
	cmp_ok(time - $start, '<', 30, 'the requests fail soon');
	$start = time;
	$clients[0]->query(q{SELECT acquire_lock('c0')});
	like($clients[0]->error, qr/ERROR:  55P03: /, 'the next request of the same client fails, too');
	cmp_ok(time - $start, '<', 30, 'the next request fails soon, too');
	is(one('SELECT failed_batches FROM lock_election.stat'), $failed, 'no batch failed');
	is(one("SELECT renew_lock('held', $token{held}) > '59 min', is_held('named', $token{named})"), 't|t', 'renewals and reads succeed');
	is(one(q{SELECT string_agg(name, ' ' ORDER BY name) FROM lock_election.locks}), 'bound held named open released shared shared', 'the views can be read');
	is(one("SELECT count(*) FROM (SELECT fence_lock('held', $token{held})) f"), 1, 'a lock can be fenced');
	ok(!$waiter->ready, 'the waiter still waits');

	# Ends that cannot be written yet.
	$open->query('ROLLBACK');
	$open->query('BEGIN');
	$releasing->query('COMMIT');
	like($releasing->error, qr/WARNING:  01000: the transaction is committed, but .*\nDETAIL:  the tables of .* are locked.*\nHINT:  The manager releases them as soon as it can, even after this session has ended\./, 'a commit with a release warns');
	$admin->query('COMMIT');
	is(one(q{SELECT release_lock('released', acquire_lock('released', '1 h', wait => '20 s'))}), 't', 'a release during the outage is not lost');
	is(one(q{SELECT release_lock('open', acquire_lock('open', '1 h', wait => '20 s'))}), 't', 'a rollback during the outage is not lost');
	$open->query(q{SELECT acquire_lock('open', '1 h')});
	is($clients[0]->query(q{SELECT acquire_lock('c0', '1 h') IS NOT NULL}), 't', 'an acquire succeeds after the outage')
	  or diag($clients[0]->error);
	check_and_end('locked');
	$_->quit foreach @clients, $releasing;
};

# The client got an error, so the deadline must not have changed.
subtest 'a renewal with a shorter TTL that cannot be written' => sub {
	my $client = session($node);
	my $token = $client->query(q{SELECT acquire_lock('shortened', '1 h')});

	$admin->query('BEGIN; LOCK TABLE _lock_election.slot IN ACCESS EXCLUSIVE MODE');
	$client->query("SELECT renew_lock('shortened', $token, '500 ms')");
	like($client->error, qr/ERROR:  55P03: /, 'a renewal with a shorter TTL fails while the table is locked');
	$admin->query('COMMIT');
	is($client->query("SELECT time_left > '10 min' FROM lock_election.locks WHERE token = $token"), 't', 'the failed renewal does not shorten the lease');
	is($client->query("SELECT release_lock('shortened', $token)"), 't', 'the lock is still held after the failed renewal');
	$client->quit;
	nothing_left($node);
};

subtest 'a wait times out although the table is locked' => sub {
	my $client = session($node);

	$holder->query(q{SELECT acquire_lock('held', '1 h')});
	$client->async(q{SELECT acquire_lock('held', '1 h', wait => '5 s') IS NULL});
	wait_for_waiters(1, 'held');
	$admin->query('BEGIN; LOCK TABLE _lock_election.slot IN ACCESS EXCLUSIVE MODE');
	$waiter->query(q{SELECT acquire_lock('other', '1 h')});
	is($client->wait, 't', 'the wait times out while the table is locked');
	$admin->query('COMMIT');
	wait_for_sql($node, q{SELECT force_release_lock('held') > 0});
	$client->quit;
	nothing_left($node);
};

# While nothing can be renewed, no lease ends. Leases that expired meanwhile end afterwards.
subtest 'leases while the table is locked' => sub {
	my $token = $holder->query(q{SELECT acquire_lock('lease', '1 h')});

	$waiter->async(q{SELECT acquire_lock('lease', '1 h')});
	wait_for_waiters(1, 'lease');
	shorten($holder, 'lease', $token, '2 s');
	$admin->query('BEGIN; LOCK TABLE _lock_election.slot IN ACCESS EXCLUSIVE MODE');
	$admin->query('SELECT pg_sleep(4)');
	ok(!$waiter->ready, 'the waiter is not granted the lock while the table is locked');
	$admin->query('COMMIT');
	cmp_ok($waiter->wait, '>', $token, 'the waiter is granted the lock after the table is unlocked');
	$waiter->query(q{SELECT release_lock('lease')});
	nothing_left($node);
};

# Renewed leases are kept even if the manager cannot write; other leases end as soon as it can.
subtest 'leases that are renewed while the table is locked' => sub {
	my $other = session($node);
	my $token = $holder->query(q{SELECT acquire_lock('lease', '3 s')});
	my $lease = $holder->query(q{SELECT grant_lease('3 s')});
	my $dead = $holder->query(q{SELECT acquire_lock('dead', '3 s')});

	$admin->query('BEGIN; LOCK TABLE _lock_election.slot IN ACCESS EXCLUSIVE MODE');
	$other->query(q{SELECT acquire_lock('other', '1 h')});
	like($other->error, qr/ERROR:  55P03: /, 'an acquire fails while the table is locked');
	my $until = time + 8;
	my ($renewed, $refused) = (0, 0);
	while (time < $until)
	{
		my $valid = $holder->query("SELECT renew_lock('lease', $token) = '3 s', keep_alive($lease) = '3 s'");

		$valid eq 't|t' ? $renewed++ : $refused++;
		$holder->query('SELECT pg_sleep(0.5)');
	}
	cmp_ok($renewed, '>', 1, 'renewals succeed while the table is locked');
	is($refused, 0, 'all renewals are valid for the full TTL');
	$admin->query('COMMIT');
	isnt($other->query(q{SELECT acquire_lock('dead', '1 h', wait => '20 s')}), '', 'a lease that was not renewed ends after the table is unlocked') or diag($other->error);
	is($holder->query("SELECT renew_lock('lease', $token) IS NOT NULL"), 't', 'the renewed lock is still held');
	is($holder->query("SELECT keep_alive($lease) IS NOT NULL"), 't', 'the renewed lease still exists');
	$holder->query("SELECT release_lock('lease', $token); SELECT revoke_lease($lease)");
	$other->query(q{SELECT release_lock('dead')});
	$other->quit;
	nothing_left($node);
};

# Otherwise the lock of a dead holder would stay held while batches fail repeatedly.
subtest 'a failed batch extends no lease' => sub {
	my $token = $holder->query(q{SELECT acquire_lock('failing', '60 s')});
	my $place = $holder->query(q{SELECT token FROM enqueue_lock('failing', '60 s')});
	my $lease = $holder->query(q{SELECT grant_lease('60 s')});
	my $left = q{(SELECT time_left FROM lock_election.locks WHERE name = 'failing')};
	my $failed = one('SELECT failed_batches FROM lock_election.stat');

	wait_for_sql($node, "SELECT $left < '58 s'");
	my $other = $waiter->query(q{SELECT acquire_lock('other', '1 h')});
	$admin->query("BEGIN; SELECT FROM _lock_election.slot WHERE token = $other FOR UPDATE");
	$waiter->query("SELECT renew_lock('other', $other, '2 h')");
	like($waiter->error, qr/ERROR:  55P03: /, 'a batch fails');
	$admin->query('COMMIT');
	isnt($waiter->query("SELECT renew_lock('other', $other, '2 h')"), '', 'a later batch succeeds') or diag($waiter->error);
	cmp_ok(one('SELECT failed_batches FROM lock_election.stat'), '>', $failed, 'the failed batch is counted, so the tables were read again');
	is(one("SELECT $left < '58 s'"), 't', 'the remaining time of a lock did not increase');
	is(one("SELECT lease_time_to_live($lease) < '58 s'"), 't', 'the remaining time of a lease did not increase');
	$holder->query("SELECT release_lock('failing', $place); SELECT release_lock('failing', $token); SELECT revoke_lease($lease)");
	$waiter->query(q{SELECT release_lock('other')});
	nothing_left($node);
};

my %rewrite = (
	'VACUUM FULL' => 'VACUUM FULL _lock_election.slot',
	'VACUUM' => 'VACUUM (FREEZE) _lock_election.slot',
	'VACUUM FULL of all' => 'VACUUM FULL',
	'CLUSTER' => 'CLUSTER _lock_election.slot USING slot_key',
	'SET TABLESPACE' => 'ALTER TABLE _lock_election.slot SET TABLESPACE other; ALTER TABLE _lock_election.slot SET TABLESPACE pg_default');

$rewrite{REPACK} = 'REPACK _lock_election.slot USING INDEX slot_key' if one('SHOW server_version_num') >= 190000;

one("CREATE TABLESPACE other LOCATION ''");

foreach my $name (sort keys %rewrite)
{
	subtest $name => sub {
		set_up();
		my $failed = one('SELECT failed_batches FROM lock_election.stat');
		my $from = -s $node->logfile;
		is($admin->query($rewrite{$name}) . $admin->error, '', $name);
		check_and_end($name);
		is(one('SELECT failed_batches FROM lock_election.stat'), $failed, "$name: no batch failed");
		unlike(substr(slurp_file($node->logfile), $from), qr/ ERROR: /, "$name: the log has no error");
	};
}

# Clients acquire and release continuously: each its own lock, and one lock that all share.
sub start_load
{
	my ($seconds, @clients) = @_;

	foreach my $i (0 .. $#clients)
	{
		$clients[$i]->async("DO \$\$ DECLARE t bigint; until timestamptz := clock_timestamp() + interval '$seconds s'; BEGIN
			WHILE clock_timestamp() < until LOOP
				t := acquire_lock('load$i', '1 h'); COMMIT;
				IF NOT release_lock('load$i', t) THEN RAISE 'load$i was lost'; END IF; COMMIT;
				t := acquire_lock('load', '1 h'); COMMIT;
				IF NOT release_lock('load', t) THEN RAISE 'load was lost'; END IF; COMMIT;
			END LOOP; END \$\$");
	}
	return;
}

# On a slow machine, a rewrite may take longer than the manager waits for it. Then a call fails, or a commit warns.
my $undisturbed = qr{^$|ERROR:  55P03: |WARNING:  01000: the transaction is committed, but the locks that it releases may still be held};

subtest 'rewrites under load' => sub {
	my @clients = map { session($node) } 1 .. 6;

	start_load(6, @clients);
	until (grep { $_->ready } @clients)
	{
		foreach my $name (sort keys %rewrite)
		{
			$admin->query($rewrite{$name});
			is($admin->error, '', $name) if $admin->error;
		}
	}
	foreach my $client (@clients)
	{
		$client->wait;
		like($client->error, $undisturbed, 'no client has an unexpected error');
	}
	my $doubled = one(q{SELECT count(*) FROM (SELECT 1 FROM _lock_election.slot GROUP BY kind, name, slot HAVING count(*) > 1) d});
	is($doubled, 0, 'no slot has two rows');
	$_->quit foreach @clients;
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	nothing_left($node);
};

# The table is rewritten again before the first rewrite is fully noticed: each batch finds another table.
subtest 'continuous rewrites' => sub {
	my @clients = map { session($node) } 1 .. 4;
	my @admins = map { session($node) } 1 .. 2;

	start_load(4, @clients);
	until (grep { $_->ready } @clients)
	{
		$_->async(join '; ', ('VACUUM FULL _lock_election.slot') x 20) foreach @admins;
		$_->wait foreach @admins;
	}
	foreach my $client (@clients)
	{
		$client->wait;
		like($client->error, $undisturbed, 'no client has an unexpected error');
	}
	$_->quit foreach @clients, @admins;
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	nothing_left($node);
};

# Locks a row, so that the one request that must change it fails.
sub lock_row
{
	my ($name) = @_;

	is($admin->query("BEGIN; SELECT name FROM _lock_election.slot WHERE name = '$name' FOR UPDATE") . $admin->error, $name, "the row of $name is locked");
	return;
}

subtest 'one bad request among good ones' => sub {
	my @clients = map { session($node) } 1 .. 4;
	my $bad = session($node);
	my $token = $bad->query(q{SELECT acquire_lock('one', '1 h')});

	$waiter->async(q{SELECT acquire_lock('one', '1 h')});
	wait_for_waiters(1, 'one');
	lock_row('one');
	start_load(3, @clients);
	my $failures = 0;
	my $start = time;
	while (time - $start < 2)
	{
		$bad->query("SELECT release_lock('one', $token)");
		$failures++ if $bad->error =~ /ERROR:  55P03: /;
		diag($bad->error) if $bad->error !~ /55P03/;
	}
	cmp_ok($failures, '>', 0, 'the request whose row is locked fails');
	note("$failures failures");
	foreach my $client (@clients)
	{
		$client->wait;
		is($client->error, '', 'requests of other clients succeed');
	}
	ok(!$waiter->ready, 'the waiter still waits');
	is($bad->query(q{SELECT acquire_lock('two', '1 h') IS NOT NULL}), 't', 'another request of the same client succeeds');
	$admin->query('COMMIT');
	is($bad->query("SELECT release_lock('one', $token)"), 't', 'the release succeeds after the row is unlocked');
	ok($waiter->wait, 'the waiter is granted the lock');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach @clients, $bad;
	nothing_left($node);
};

# The manager waits for the lock of a row for as long as for that of a table, also if it must delete the row.
subtest 'a locked row of a lease or place' => sub {
	my $held = $holder->query(q{SELECT acquire_lock('in front', '1 h')});
	my $lease = $holder->query(q{SELECT grant_lease('1 h')});
	my $place = $holder->query(q{SELECT token FROM enqueue_lock('in front', '1 h')});
	my %end = (lease => "SELECT revoke_lease($lease)", queue => "SELECT release_lock('in front', $place)");

	foreach my $table (sort keys %end)
	{
		$admin->query("BEGIN; SELECT FROM _lock_election.$table FOR UPDATE");
		$holder->query($end{$table});
		like($holder->error, qr/ERROR:  55P03: /, "$table: the request fails while the row is locked");
		$admin->query('COMMIT');
		is($holder->query($end{$table}) . $holder->error, 't', "$table: the request succeeds after the row is unlocked");
	}
	is($holder->query("SELECT release_lock('in front', $held)"), 't', 'the holder still holds the lock');
	nothing_left($node);
};

# The row was intended for the next lock.
subtest 'a locked row of a free lock' => sub {
	my $client = session($node);

	$client->query(q{SELECT release_lock('free', acquire_lock('free', '1 h'))});
	lock_row('free');
	my $failed = one('SELECT failed_batches FROM lock_election.stat');
	is($client->query(qq{SELECT acquire_lock('next $_', '1 h') IS NOT NULL}), 't', 'other locks can be acquired') foreach 1 .. 5;
	ok(wait_for_sql($node, "SELECT failed_batches > $failed FROM lock_election.stat"), 'a batch failed, when it tried to reuse or delete the row');
	$admin->query('COMMIT');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$client->quit;
	nothing_left($node);
};

# A failed batch reads the tables again. The time for this must not shorten the leases.
subtest 'no lease ends early after a failed batch' => sub {
	my $bad = session($node);
	my $token = $bad->query(q{SELECT acquire_lock('one', '1 h')});

	$holder->query(qq{SELECT acquire_locks(array_agg('many ' || i || ' ' || j), '1 h') FROM generate_series(1, 30) i, generate_series(1, 1000) j GROUP BY i});
	lock_row('one');
	my $start = time;
	$holder->query(q{SELECT acquire_lock('last row', '3 s')});
	$waiter->async(q{SELECT acquire_lock('last row', '1 h')});
	for (my $i = 0; $i < 30 && time - $start < 1.5; $i++)
	{
		$bad->query("SELECT release_lock('one', $token)");
		like($bad->error, qr/ERROR:  55P03: /, 'a batch fails') if $i == 0;
	}
	$waiter->wait;
	cmp_ok(time - $start, '>=', 3, 'the lease does not end before its TTL');
	$admin->query('COMMIT');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$bad->quit;
	nothing_left($node);
};

# The store writes below the executor, which bypasses triggers, rules and constraints. pg_repack needs a trigger.
subtest 'nothing can be added to the tables' => sub {
	my $held = one(q{SELECT acquire_lock('before', '1 h')});
	my %column = (slot => 'token', lease => 'id', queue => 'token', history => 'change', meta => 'database', incarnation_floor => 'incarnation');
	my %add = (
		indexes => sub { "CREATE INDEX added ON _lock_election.$_[0] ($column{$_[0]})" },
		triggers => sub { "CREATE TRIGGER added AFTER UPDATE ON _lock_election.$_[0] FOR EACH ROW EXECUTE FUNCTION lock_election.refuse_write()" },
		rules => sub { "CREATE RULE added AS ON UPDATE TO _lock_election.$_[0] DO ALSO NOTHING" },
		columns => sub { "ALTER TABLE _lock_election.$_[0] ADD added integer" },
		constraints => sub { "ALTER TABLE _lock_election.$_[0] ADD CONSTRAINT added CHECK ($column{$_[0]} IS NOT NULL)" });

	foreach my $table (sort keys %column)
	{
		foreach my $what (sort keys %add)
		{
			$admin->query($add{$what}->($table));
			like($admin->error, qr/ERROR:  55000: cannot add $what to table "_lock_election.$table"\nDETAIL:  The table belongs to extension lock_election, which writes it without regard for $what\./, "$what cannot be added to $table");
		}
	}
	foreach my $table (sort keys %column)
	{
		$admin->query("ALTER TABLE _lock_election.$table SET UNLOGGED");
		like($admin->error, qr/ERROR:  55000: cannot make table "_lock_election.$table" unlogged\nDETAIL:  The table belongs to extension lock_election, and a crash would empty it\./, "$table cannot be made unlogged");
	}
	foreach my $sql ('CREATE TABLE refers (id bigint REFERENCES _lock_election.lease)', 'CREATE TABLE refers (id bigint, FOREIGN KEY (id) REFERENCES _lock_election.lease)',
		'CREATE TABLE refers (id bigint); ALTER TABLE refers ADD FOREIGN KEY (id) REFERENCES _lock_election.lease',
		'ALTER TABLE refers ADD more bigint REFERENCES _lock_election.lease',
		q{DO $$BEGIN EXECUTE 'CREATE INDEX added ON _lock_election.slot (token)'; END$$})
	{
		$admin->query($sql);
		like($admin->error, qr/ERROR:  55000: cannot add (references|indexes) to table "_lock_election\.(?:lease|slot)"\n.* without regard for \1\./, $sql);
	}
	is($admin->query('CREATE TABLE theirs (id bigint PRIMARY KEY REFERENCES theirs); CREATE INDEX ON theirs (id); ALTER TABLE theirs ADD x int; CREATE TABLE alike (LIKE theirs, CHECK (id > 0)); DROP TABLE alike; DROP TABLE theirs, refers')
		. $admin->error, '', 'other tables are not protected');
	is($admin->query('CREATE TABLE theirs (id bigint); ALTER EXTENSION plpgsql ADD TABLE theirs; CREATE INDEX ON theirs (id); ALTER EXTENSION plpgsql DROP TABLE theirs; DROP TABLE theirs')
		. $admin->error, '', 'tables of other extensions are not protected');
	is($admin->query('CREATE RULE r AS ON INSERT TO lock_election.locks DO INSTEAD NOTHING; DROP RULE r ON lock_election.locks') . $admin->error, '', 'views are not protected');
	one('CREATE DATABASE without');
	is(error_of('CREATE TABLE t (id int PRIMARY KEY); CREATE INDEX ON t (id)', dbname => 'without'), '', 'tables in a database without the extension are not protected');
	one('DROP DATABASE without');

	# The index can be rebuilt.
	my @clients = map { session($node) } 1 .. 4;
	start_load(3, @clients);
	until (grep { $_->ready } @clients)
	{
		foreach my $sql ('REINDEX INDEX CONCURRENTLY _lock_election.slot_key', 'REINDEX TABLE _lock_election.slot', 'CLUSTER _lock_election.slot USING slot_key')
		{
			is($admin->query($sql) . $admin->error, '', $sql);
		}
	}
	foreach my $client (@clients)
	{
		$client->wait;
		like($client->error, $undisturbed, 'no client has an unexpected error');
	}
	is(one("SELECT is_held('before', $held)"), 't', 'the lock acquired before is still held');
	$_->quit foreach @clients;
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	nothing_left($node);
};

# The index is created while the library is not preloaded and cannot reject it.
subtest 'an index that was added without the library' => sub {
	my $held = one(q{SELECT acquire_lock('before', '1 h')});
	my %use = (slot => q{SELECT acquire_lock('indexed', '1 h')}, queue => q{SELECT enqueue_lock('before')}, lease => q{SELECT grant_lease('1 h')});

	$_->quit foreach $admin, $holder, $bound, $open, $waiter;
	$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
	$node->restart;
	one("CREATE INDEX added_$_ ON _lock_election.$_ (role)") foreach sort keys %use;
	one('CREATE INDEX added_meta ON _lock_election.meta (incarnation)');
	my $log = -s $node->logfile;
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'lock_election'");
	$node->restart;
	($admin, $holder, $bound, $open, $waiter) = map { session($node) } 1 .. 5;
	ok(wait_until(sub { slurp_file($node->logfile, $log) =~
			/ERROR:  table "_lock_election.meta" has been altered\n.*HINT:  Undo the change, or drop and create extension "lock_election"\./ }),
		'meta: no manager starts, and the log contains the reason');
	is($admin->query('DROP INDEX _lock_election.added_meta') . $admin->error, '', 'the index on meta can be dropped');
	wait_for_sql($node, 'SELECT count(*) = 1 FROM lock_election.manager');
	foreach my $table (sort keys %use)
	{
		$holder->query($use{$table});
		like($holder->error, qr/ERROR:  55000: table "_lock_election.$table" has been altered/, "$table: the request fails with a clear error");
		is($admin->query("DROP INDEX _lock_election.added_$table") . $admin->error, '', "$table: the index can be dropped");
		isnt($holder->query($use{$table}), '', "$table: the request succeeds after the index is dropped") or diag($holder->error);
	}
	is(one("SELECT is_held('before', $held)"), 't', 'the lock acquired before is still held');
	$holder->query(q{SELECT revoke_lease(lease) FROM lock_election.leases; SELECT force_release_lock(name) FROM lock_election.locks; SELECT force_release_lock(name) FROM lock_election.locks});
	nothing_left($node);
};

# When the manager is granted the lock on the table, it belongs to another schema.
subtest 'the table is moved to another schema while a batch waits for it' => sub {
	my $held = $holder->query(q{SELECT acquire_lock('before', '1 h')});

	# A request waits for 200 ms, which may be too short.
	foreach my $try (1 .. 20)
	{
		$admin->query('BEGIN; ALTER TABLE _lock_election.slot SET SCHEMA public');
		is($admin->error, '', 'the table is moved to another schema');
		$holder->async(qq{SELECT acquire_lock('meanwhile $try', '1 h')});
		$admin->query('SELECT pg_sleep(0.02); COMMIT');
		$holder->wait;
		is($admin->query(qq{SELECT count(*) FROM public.slot WHERE name = 'meanwhile $try'}), '0', 'nothing is written to the moved table');
		$admin->query('ALTER TABLE public.slot SET SCHEMA _lock_election');
		is($admin->error, '', 'the table is moved back');
		next if $holder->error =~ /55P03|57P03/ && $try < 20;
		like($holder->error, qr/ERROR:  55000: extension lock_election was dropped/, 'the request fails with an error');
		last;
	}
	is(one("SELECT release_lock('before', $held)"), 't', 'the lock acquired before is still held');
	nothing_left($node);
};

# Rows that only an administrator can have inserted hold their locks once they are read.
subtest 'rows inserted by hand' => sub {
	my @clients = map { session($node) } 1 .. 4;

	my $old = $holder->query(q{SELECT acquire_lock('older by hand', '1 h')});
	my $new = $holder->query(q{SELECT acquire_lock('newer by hand', '1 h')});
	my $shared = $holder->query(q{SELECT acquire_lock('shared by hand', '1 h', mode => 'shared')});
	$admin->query(qq{BEGIN; $open_table
		INSERT INTO _lock_election.slot (token, acquired_at, ttl, time_left, lease, session, role, slot, holds, permits, kind, mode, name)
		SELECT t, now(), 3600000000, 3600000000, 0, 0, role, slot + 1, 1, permits, kind, 1, n FROM _lock_election.slot,
		(VALUES (77, 'by hand'), (78, 'older by hand'), ($shared + 1, 'newer by hand'), (79, 'shared by hand')) AS v(t, n) WHERE name = 'older by hand';
		$close_table COMMIT; VACUUM FULL _lock_election.slot});
	is($admin->error, '', 'rows are inserted by hand');
	my $log = -s $node->logfile;
	start_load(2, @clients);
	foreach my $client (@clients)
	{
		$client->wait;
		is($client->error, '', 'no client has an error');
	}
	is(one(q{SELECT try_acquire_lock('by hand') IS NULL}), 't', 'an inserted row holds its lock');
	is(one("SELECT is_held('older by hand', $old)"), 't', 'of two holders of the same lock, the one with the higher token stays');
	is(one("SELECT is_held('newer by hand', $new)"), 'f', 'the higher token wins even if it was inserted by hand');
	is(one("SELECT is_held('shared by hand', $shared)"), 't', 'a shared holder stays if it has the higher token');
	is(one(q{SELECT string_agg(name, ',' ORDER BY name) FROM _lock_election.slot WHERE mode <> 0}), 'by hand,newer by hand,older by hand,shared by hand', 'one row of each lock is left');
	is(() = slurp_file($node->logfile, $log) =~ /WARNING:  "(?:older|newer|shared) by hand" has two holders/g, 3, 'the log contains a warning for each second holder');
	$admin->query('INSERT INTO _lock_election.slot SELECT * FROM _lock_election.slot');
	like($admin->error, qr/55000: table "slot" is written only by lock_election/, 'the table is protected against writes again');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach @clients;
	nothing_left($node);
};

# Even if the state of the manager is wrong, the unique index rejects a second row for the same slot.
subtest 'a second holder is rejected' => sub {
	my @clients = map { session($node) } 1 .. 4;
	my $insert = sub {
		my ($name, $token) = @_;
		return qq{$open_table
			INSERT INTO _lock_election.slot (token, acquired_at, ttl, time_left, lease, session, role, slot, holds, permits, kind, mode, name)
			VALUES ($token, now(), 3600000000, 3600000000, 0, 0, 10, 0, 1, 0, 1, 1, '$name'); $close_table};
	};
	my $log = -s $node->logfile;
	my $held = $holder->query(q{SELECT acquire_lock('held by all', '1 h')});

	is(one(q{SELECT key_violations FROM lock_election.stat}), 0, 'no row has been rejected so far');
	$admin->query('BEGIN; ' . $insert->('held by all', 76));
	like($admin->error, qr/23505: duplicate key value violates unique constraint "slot_key"/, 'an insert by an administrator is rejected, too');
	$admin->query('ROLLBACK');

	# The manager inserts a row, or reuses a free row.
	foreach my $name ('second', 'second, recycled')
	{
		$admin->query('BEGIN; ' . $insert->($name, 77) . ' COMMIT');
		is($admin->error, '', 'a holder is inserted that the manager does not know');
		start_load(1, @clients);
		if ($name eq 'second, recycled')
		{
			$holder->query(qq{SELECT release_lock('idle $_', acquire_lock('idle $_', '1 h'))}) foreach 1 .. 3;
			$holder->query('SELECT pg_sleep(0.2)');
		}
		my $refused = one(q{SELECT key_violations FROM lock_election.stat});
		is($holder->query(qq{SELECT try_acquire_lock('$name', '1 h') IS NULL}), 't', 'the lock is not granted');
		is($holder->error, '', 'the caller gets a reply from the contents of the table');
		cmp_ok(one(q{SELECT key_violations FROM lock_election.stat}), '>', $refused, 'key_violations counts the rejected row');
		foreach my $client (@clients)
		{
			$client->wait;
			is($client->error, '', 'other clients have no error');
		}
		my $text = slurp_file($node->logfile, $log);
		like($text, qr/ERROR:  duplicate key value violates unique constraint "slot_key"/, 'the log contains the error');
		like($text, qr/Key \(kind, name, slot\)=\(1, $name, 0\) already exists/, 'the log contains the name of the lock');
		like($text, qr/table "_lock_election.slot": 77 has this key, \d{12,} was to be written/, 'the log contains both tokens');
		is(one(qq{SELECT string_agg(token::text, ',') FROM _lock_election.slot WHERE name = '$name'}), 77, 'the inserted row stays');
		$log = -s $node->logfile;
	}

	# The manager waits for a transaction that has not committed the row yet.
	$admin->query('BEGIN; ALTER TABLE _lock_election.slot DISABLE TRIGGER USER; COMMIT; BEGIN; ' .
		  q{INSERT INTO _lock_election.slot (token, acquired_at, ttl, time_left, lease, session, role, slot, holds, permits, kind, mode, name)
			VALUES (78, now(), 3600000000, 3600000000, 0, 0, 10, 0, 1, 0, 1, 1, 'open by hand')});
	$holder->query(q{SELECT try_acquire_lock('open by hand', '1 h')});
	like($holder->error, qr/ERROR:  55P03: /, 'the request fails while the row is not committed');
	$admin->query("ROLLBACK; BEGIN; $close_table COMMIT");
	is($holder->query(q{SELECT try_acquire_lock('open by hand', '1 h') IS NOT NULL}), 't', 'the lock is granted after the row was rolled back');

	# The manager waits for the transaction for as long as for a lock.
	my $waits = q{SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid' AND pid = } . manager_pid();
	foreach my $try (1 .. 20)
	{
		one(q{SELECT force_release_lock('open by hand')});
		$admin->query('BEGIN; ALTER TABLE _lock_election.slot DISABLE TRIGGER USER; COMMIT; BEGIN; ' .
			  qq{INSERT INTO _lock_election.slot (token, acquired_at, ttl, time_left, lease, session, role, slot, holds, permits, kind, mode, name)
				VALUES (78, now(), 3600000000, 3600000000, 0, 0, 10, 0, 1, 0, 1, 1, 'undone by hand $try')});
		$holder->async("SELECT try_acquire_lock('undone by hand $try', '1 h') IS NOT NULL");
		wait_until(sub { $holder->ready || one($waits) eq 't' });
		$admin->query("ROLLBACK; BEGIN; $close_table COMMIT");
		my $answer = $holder->wait;
		next if $holder->error =~ /55P03|57P03/ && $try < 20;
		is($answer . $holder->error, 't', 'the lock is granted if the row is rolled back meanwhile');
		last;
	}

	is(one("SELECT is_held('held by all', $held)"), 't', 'the lock acquired before is still held');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach @clients;
	nothing_left($node);
};

# A second manager cannot write at all.
is(one(q{SELECT count(*) FROM pg_locks l JOIN lock_election.manager m USING (pid)
	WHERE locktype = 'object' AND classid = 'pg_class'::regclass AND objid = '_lock_election.slot'::regclass AND mode = 'ExclusiveLock'}), 1,
	'one manager has a lock on the table');

subtest 'a row deleted by hand' => sub {
	my $other = session($node);

	foreach my $vacuum (0, 1)
	{
		my $token = $holder->query(q{SELECT acquire_lock('gone', '1 h')});
		my $stays = $holder->query(q{SELECT acquire_lock('stays', '1 h')});
		$waiter->async(q{SELECT acquire_lock('gone', '1 h')});
		wait_for_waiters(1, 'gone');
		$admin->query(qq{BEGIN; $open_table DELETE FROM _lock_election.slot WHERE name = 'gone'; $close_table COMMIT});
		is($admin->error, '', 'the row is deleted');
		$admin->query('VACUUM _lock_election.slot') if $vacuum;

		# The new row may reuse the space of the deleted row.
		my $new = $other->query(q{SELECT acquire_lock('new', '1 h')});
		like($new, qr/^\d+$/, 'another lock can be acquired') or diag($other->error);
		my $log = -s $node->logfile;
		$holder->query("SELECT release_lock('gone', $token)");
		like($holder->error, qr/^$|ERROR:  55000: /, 'the release succeeds or fails with a clear error');
		like(slurp_file($node->logfile, $log), qr/ERROR:  row of lock "gone" was changed by another program\n/, 'the log contains the name of the lock');
		ok($waiter->wait, 'the waiter is granted the lock');
		is(one("SELECT is_held('stays', $stays) AND is_held('new', $new)"), 't', 'other locks are still held');
		is(one(q{SELECT count(*) FROM _lock_election.slot WHERE mode <> 0 AND name IN ('new', 'stays', 'gone')}), 3, 'the other rows stay in the table');
		one(q{SELECT force_release_lock(name) FROM lock_election.locks});
		nothing_left($node);
	}
	$other->quit;
};

# A later row can reuse the space of a deleted row.
subtest 'places whose rows are not in queue order' => sub {
	my $held = $holder->query(q{SELECT acquire_lock('in front', '1 h')});
	my $enqueue = sub { return $holder->query("SELECT token FROM enqueue_lock('$_[0]', '1 h')"); };
	my $gone = $enqueue->('in front');
	my $first = $enqueue->('in front');

	# VACUUM keeps a row that a snapshot may still see.
	my ($second, $order);
	foreach my $try (1 .. 20)
	{
		is($holder->query("SELECT release_lock('in front', $gone)"), 't', 'a place is deleted');
		$admin->query('VACUUM _lock_election.queue');
		$gone = $second = $enqueue->('in front');
		$order = one('SELECT string_agg(token::text, $$ $$ ORDER BY ctid) FROM _lock_election.queue');
		last if $order eq "$second $first";
	}
	is($order, "$second $first", 'the later row comes first in the table');
	replace_manager();
	$holder->query("SELECT release_lock('in front', $held)");
	is(one(qq{SELECT await_lock('in front', $first), await_lock('in front', $second)}), 't|f', 'another manager grants the lock to the first place');
	$holder->query("SELECT release_lock('in front', $first)");
	is(one(qq{SELECT await_lock('in front', $second)}), 't', 'the second place is granted the lock after that');
	$holder->query("SELECT release_lock('in front', $second)");
	nothing_left($node);
};

# A request that needs the deleted row fails, and is retried with the current contents of the table.
subtest 'rows of leases and places deleted by hand' => sub {
	my $held = $holder->query(q{SELECT acquire_lock('in front', '1 h')});
	my $kept = $holder->query(q{SELECT grant_lease('1 h')});
	my $lease = $holder->query(q{SELECT grant_lease('1 h')});
	my $stays = $holder->query(q{SELECT token FROM enqueue_lock('in front', '1 h')});
	my $place = $holder->query(q{SELECT token FROM enqueue_lock('in front', '1 h')});
	my $delete = sub {
		my ($table, $row) = @_;
		is($admin->query(qq{BEGIN; ALTER TABLE _lock_election.$table DISABLE TRIGGER USER; DELETE FROM _lock_election.$table WHERE $row;
			ALTER TABLE _lock_election.$table ENABLE ALWAYS TRIGGER refuse_write;
			ALTER TABLE _lock_election.$table ENABLE ALWAYS TRIGGER refuse_row; COMMIT}) . $admin->error, '', "$table: deleted");
	};
	my $log = -s $node->logfile;

	$delete->('lease', "id = $lease");
	is($holder->query("SELECT revoke_lease($lease)") . $holder->error, 'f', 'the lease does not exist any more');
	$delete->('queue', "token = $place");
	is($holder->query("SELECT release_lock('in front', $place)") . $holder->error, 'f', 'the place does not exist any more');
	my $text = slurp_file($node->logfile, $log);
	like($text, qr/ERROR:  row of lease $lease was changed by another program\n.*DETAIL:  Table "_lock_election\.lease" is written only by lock_election\./, 'the log contains the lease');
	like($text, qr/ERROR:  row of queue place $place was changed by another program\n.*DETAIL:  Table "_lock_election\.queue" is written only by lock_election\./, 'the log contains the place');
	is($holder->query("SELECT revoke_lease($kept), release_lock('in front', $stays), release_lock('in front', $held)"), 't|t|t',
		'other locks, leases and places are not affected');
	nothing_left($node);
};

# ALTER TABLE rewrites the table, so that all its rows belong to its transaction.
subtest 'the table is rewritten while a manager waits to read it' => sub {
	my $token = $holder->query(q{SELECT acquire_lock('rewritten', '1 h')});

	$admin->query(q{BEGIN; ALTER TABLE _lock_election.slot ALTER ttl TYPE numeric; ALTER TABLE _lock_election.slot ALTER ttl TYPE bigint});
	$admin->query(q{SELECT pg_terminate_backend(pid) FROM lock_election.manager;
		DO $$
		BEGIN
			WHILE NOT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = '_lock_election.slot'::regclass) LOOP
				PERFORM pg_sleep(0.001);
			END LOOP;
		END
		$$;
		COMMIT});
	is($admin->error, '', 'the table is rewritten');
	wait_for_sql($node, 'SELECT count(*) = 1 FROM lock_election.manager');
	is(one("SELECT release_lock('rewritten', $token)"), 't', 'the lock acquired before is still held');
};

# The manager does not guess the meaning of an invalid row: it grants nothing until the row is repaired.
subtest 'an invalid row' => sub {
	my $token = $holder->query(q{SELECT acquire_lock('good', '1 h')});

	my $bad = $holder->query(q{SELECT acquire_lock('bad', '1 h')});
	foreach my $damage ('mode = 99', 'slot = -1', 'holds = 0', q{name = ''})
	{
		my $row = q{name IN ('bad', '')};

		$admin->query(qq{BEGIN; $open_table CREATE TABLE was AS SELECT mode, slot, holds, name FROM _lock_election.slot WHERE $row;
			UPDATE _lock_election.slot SET $damage WHERE $row; $close_table COMMIT});
		is($admin->error, '', $damage);
		$holder->query("SELECT renew_lock('bad', $bad, '2 h')");
		like($holder->error, qr/ERROR:  (?:55000|XX001): /, "$damage: the row was moved by the update");
		like(one("SELECT ctid FROM _lock_election.slot WHERE $row") . $holder->query("SELECT renew_lock('good', $token)") . $holder->error,
			qr/^(\(\d+,\d+\)).*ERROR:  XX001: invalid row \1 in table "_lock_election\.slot"/, "$damage: the error names the position of the row");
		$admin->query(qq{BEGIN; $open_table UPDATE _lock_election.slot SET (mode, slot, holds, name) = (SELECT * FROM was) WHERE $row;
			$close_table DROP TABLE was; COMMIT});
		is($holder->query("SELECT renew_lock('good', $token) IS NOT NULL") . $holder->error, 't', "$damage: requests succeed after the repair");
	}
	is(one(q{SELECT try_acquire_lock('bad') IS NULL}), 't', 'the repaired lock is still held');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	nothing_left($node);
};

# Restoring a dump makes the manager start again. A release that was confirmed but not written yet must not be lost.
subtest 'an incarnation that is restored' => sub {
	my @back;

	foreach my $i (1 .. 5)
	{
		my $token = $holder->query("SELECT acquire_lock('answered $i', '200 s')");
		my $pid = manager_pid();

		$admin->query('BEGIN; INSERT INTO _lock_election.incarnation_floor VALUES (1)');
		is($holder->query("SELECT release_lock('answered $i', $token)"), 't', 'the lock is released');
		$admin->query('COMMIT');
		wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
		push @back, $i if one("SELECT try_acquire_lock('answered $i') IS NULL") eq 't';
	}
	is("@back", '', 'no released lock is held again');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	nothing_left($node);
};

# An older package was installed again, or a promoted standby has a newer one: locks still work, and the log has advice.
subtest 'the SQL and the library have different versions' => sub {
	my $this = one(q{SELECT extversion FROM pg_extension WHERE extname = 'lock_election'});
	my ($major, $minor) = split /\./, $this;
	my $token = $holder->query(q{SELECT acquire_lock('kept', '1 h', owner => 'me')});
	my $said = sub {
		my ($version) = @_;
		my $log = -s $node->logfile;
		my $pid = manager_pid();

		$admin->query("UPDATE pg_extension SET extversion = '$version' WHERE extname = 'lock_election'");
		kill 'TERM', $pid;
		wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
		return slurp_file($node->logfile, $log) =~ /LOG:  the library and the SQL of lock_election have different versions\n.*HINT:  (.*)\n/ ? $1 : '';
	};
	my $differ = sub { return "The SQL of extension lock_election is of version $_[0], the server's library of $this: "; };

	foreach my $older ('0.0', '0.' . ($minor + 7))
	{
		is($said->($older), $differ->($older) . 'run ALTER EXTENSION lock_election UPDATE.', "the SQL of version $older is older than the library");
	}
	foreach my $newer ("$major." . ($minor + 10), $major + 1 . '.0')
	{
		is($said->($newer), $differ->($newer) . "install version $newer of the package, unless it is there already, and restart the server.", "the SQL of version $newer is newer than the library");
	}

	# Tables of a newer version may have additional columns, in which this library writes NULL.
	$admin->query('BEGIN; ALTER EXTENSION lock_election DROP TABLE _lock_election.slot; ALTER TABLE _lock_election.slot ADD newer text, ADD newest bigint;
		ALTER EXTENSION lock_election ADD TABLE _lock_election.slot; COMMIT');
	is($admin->error, '', 'columns are added');
	my $more = $holder->query(q{SELECT acquire_lock('more', '1 h', owner => 'you')});
	like($more, qr/^\d+$/, 'an acquire succeeds despite additional columns') or diag($holder->error);
	is(one(q{SELECT name, owner, token, value IS NULL, newer IS NULL, newest IS NULL FROM _lock_election.slot WHERE name = 'more'}),
		"more|you|$more|t|t|t", 'the additional columns are NULL');
	is($said->("$major." . ($minor + 1)) ne '' && one("SELECT is_held('kept', $token) AND is_held('more', $more)"), 't', 'another manager reads the known columns');
	my $advised = "$major." . ($minor + 1);
	foreach my $other ([ q{ADD must text NOT NULL DEFAULT ''}, 'an additional column that cannot be NULL is an error' ], [ 'DROP must', 'a dropped column is an error' ])
	{
		my ($alter, $test_name) = @$other;
		my $log = -s $node->logfile;

		$admin->query("BEGIN; ALTER EXTENSION lock_election DROP TABLE _lock_election.slot; ALTER TABLE _lock_election.slot $alter;
			ALTER EXTENSION lock_election ADD TABLE _lock_election.slot; COMMIT");
		$holder->query("SELECT renew_lock('kept', $token, '2 h')");
		like($holder->error, qr/ERROR:  55000: table "_lock_election.slot" has been altered/, $test_name) or diag($admin->error);
		like(slurp_file($node->logfile, $log), qr/has been altered\n.*HINT:  The SQL .* install version $advised of the package/,
			'the log contains the advice');
	}
	$admin->query(qq{UPDATE pg_extension SET extversion = '$this' WHERE extname = 'lock_election';
		DROP EXTENSION lock_election; CREATE EXTENSION lock_election});
	is($admin->error . one(q{SELECT acquire_lock('w', '1 h') IS NOT NULL}), 't', 'DROP and CREATE EXTENSION repair the tables');
	one(q{SELECT force_release_lock('w')});
};

subtest 'truncated and altered tables' => sub {
	my $token = $holder->query(q{SELECT acquire_lock('t', '1 h')});

	$waiter->async(q{SELECT acquire_lock('t', '1 h')});
	wait_for_waiters(1, 't');
	$admin->query(qq{BEGIN; $open_table TRUNCATE _lock_election.slot; $close_table COMMIT});
	is(one(q{SELECT acquire_lock('u', '1 h') IS NOT NULL}), 't', 'a lock can be acquired after TRUNCATE');
	ok($waiter->wait, 'the waiter is granted the lock after TRUNCATE');
	is($holder->query("SELECT release_lock('t', $token)"), 'f', 'the holder has lost its lock by TRUNCATE');

	$token = $holder->query(q{SELECT acquire_lock('v', '1 h')});
	$admin->query('ALTER TABLE _lock_election.slot ALTER ttl TYPE numeric');
	$holder->query(q{SELECT acquire_lock('w', '1 h')});
	like($holder->error, qr/ERROR:  55000: table "_lock_election.slot" has been altered/, 'a column of another type is an error');
	$admin->query('ALTER TABLE _lock_election.slot ALTER ttl TYPE bigint');
	is($holder->query(q{SELECT acquire_lock('w', '1 h') IS NOT NULL}), 't', 'an acquire succeeds after the type is restored') or diag($holder->error);
	is(one("SELECT is_held('v', $token)"), 't', 'the lock acquired before is still held');

	# The first column and the last one.
	foreach my $case ([ 'token', 'numeric', 'bigint' ], [ 'acquirer', 'varchar', 'text' ])
	{
		my ($column, $other, $type) = @$case;

		is($admin->query("ALTER TABLE _lock_election.slot ALTER $column TYPE $other") . $admin->error, '', "$column: the type is changed");
		$holder->query(q{SELECT acquire_lock('w2', '1 h')});
		like($holder->error, qr/ERROR:  55000: table "_lock_election.slot" has been altered/, "$column: an acquire fails");
		$admin->query("ALTER TABLE _lock_election.slot ALTER $column TYPE $type");
	}
	is(one("SELECT is_held('v', $token)"), 't', 'the lock is still held after the types are restored');

	# A manager does not read a changed table.
	my $log = -s $node->logfile;
	$admin->query('ALTER TABLE _lock_election.slot ALTER ttl TYPE numeric');
	$admin->query('SELECT pg_terminate_backend(pid) FROM lock_election.manager');
	ok(wait_until(sub { slurp_file($node->logfile, $log) =~ /manager.* ERROR:  table "_lock_election.slot" has been altered/ }), 'no manager starts with a changed table');
	$admin->query('ALTER TABLE _lock_election.slot ALTER ttl TYPE bigint');
	wait_for_sql($node, 'SELECT count(*) = 1 FROM lock_election.manager');    # the launcher waits longer after each failure
	is(one("SELECT is_held('v', $token)"), 't', 'the lock is still held after the manager has started');

	# An unlogged table would lose its locks in a crash. The event trigger protects only tables of the extension.
	foreach my $persistence ('UNLOGGED', 'LOGGED')
	{
		is($admin->query("BEGIN; ALTER EXTENSION lock_election DROP TABLE _lock_election.slot; ALTER TABLE _lock_election.slot SET $persistence;
			ALTER EXTENSION lock_election ADD TABLE _lock_election.slot; COMMIT") . $admin->error, '', lc $persistence);
		$holder->query(q{SELECT acquire_lock('durable', '1 h')});
		like($holder->error, $persistence eq 'LOGGED' ? qr/^$/ : qr/ERROR:  55000: table "_lock_election.slot" has been altered/, 'acquire with this table');
	}
	is(one("SELECT is_held('v', $token)"), 't', 'the lock is still held after the table is logged again');

	# Another table with this name.
	$admin->query(q{BEGIN; ALTER TABLE _lock_election.lease RENAME TO was; CREATE TABLE _lock_election.lease (id bigint NOT NULL);
		ALTER EXTENSION lock_election ADD TABLE _lock_election.lease; COMMIT; VACUUM FULL _lock_election.was});
	$holder->query('SELECT grant_lease()');
	like($holder->error, qr/ERROR:  55000: table "_lock_election.lease" has been altered/, 'a table with fewer columns is an error');
	$admin->query('BEGIN; ALTER EXTENSION lock_election DROP TABLE _lock_election.lease; DROP TABLE _lock_election.lease; ALTER TABLE _lock_election.was RENAME TO lease; COMMIT');
	is($admin->error, '', 'the original table is restored');
	is($holder->query('SELECT revoke_lease(grant_lease())'), 't', 'a lease can be granted again') or diag($holder->error);
	$admin->query('ALTER INDEX _lock_election.history_key RENAME TO other');
	$holder->query(q{SELECT * FROM election_history('e')});
	like($holder->error, qr/ERROR:  55000: table "_lock_election.history" has been altered/, 'a renamed index of the history is an error');
	$admin->query('CREATE TABLE _lock_election.theirs (election text, change bigint);
		CREATE INDEX history_key ON _lock_election.theirs (election, change)');
	$holder->query(q{SELECT * FROM election_history('e')});
	like($holder->error, qr/ERROR:  55000: table "_lock_election.history" has been altered/, 'an index with this name on another table is an error');
	$admin->query('DROP TABLE _lock_election.theirs; ALTER INDEX _lock_election.other RENAME TO history_key');
	is($holder->query(q{SELECT count(*) FROM election_history('e')}) . $holder->error, '0', 'the history can be read after the index is restored');
	$admin->query('ALTER TABLE _lock_election.slot DROP CONSTRAINT slot_key');
	$holder->query(q{SELECT acquire_lock('no key', '1 h')});
	like($holder->error, qr/ERROR:  55000: table "_lock_election.slot" has been altered/, 'a missing unique index is an error');
	$admin->query('ALTER TABLE _lock_election.slot DROP COLUMN value');
	$holder->query(q{SELECT acquire_lock('x', '1 h')});
	like($holder->error, qr/ERROR:  55000/, 'a dropped column is an error');
	$admin->query('DROP EXTENSION lock_election; CREATE EXTENSION lock_election');
	is($admin->error, '', 'the extension is dropped and created');
	is(one(q{SELECT acquire_lock('w', '1 h') IS NOT NULL}), 't', 'an acquire succeeds in the new extension');
};

$_->quit foreach $admin, $holder, $bound, $open, $waiter;
$node->stop;
done_testing();
