# Tests with a real PgBouncer. All clients of a pool share one server connection: a lock belongs to its token, not to
# the client, and a lock that is bound to its connection belongs to no particular client.
# Promises: -
# Needs: pgbouncer, python3-psycopg
use strict;
use warnings;
use IPC::Run ();
use LeDocs;
use LePooler;
use LeTest;
use LeWire;
use PostgreSQL::Test::Utils;
use Test::More;

find_pgbouncer();

my $node = new_node('main', conf => "autovacuum = off\n");
my ($dir, $port) = start_pgbouncer(
	$node,
	databases => { map { $_ . 's' => "pool_mode=$_ pool_size=1" } qw(transaction session statement) },
	settings => ['max_client_conn = 50']);

sub pooled { return session($node, dbname => $_[0] // 'transactions', connstr => "host=$dir port=$port"); }

my $direct = session($node);
my ($one, $two) = map { pooled() } 1 .. 2;
is($one->pid, $two->pid, 'two clients share one server connection');
isnt($one->pid, $direct->pid, 'the direct connection is another one');

subtest 'locks' => sub {
	my $token = $one->query(q{SELECT acquire_lock('x')});
	cmp_ok($token, '>', 0, 'the first client acquires a lock');
	is($two->query(q{SELECT try_acquire_lock('x')}), '', 'the second client cannot acquire a held lock');
	is($two->query(q{SELECT acquire_lock('x', wait => '50 ms')}), '', 'the second client cannot acquire a held lock with a wait');
	like($two->error, qr/NOTICE: .* "x" is already held by this connection/, 'the second client gets the notice that its connection holds the lock');
	is($two->query(q{SELECT try_acquire_lock('x', mode => 'shared')}), '', 'the second client cannot acquire a shared lock');
	is($one->query("SELECT renew_lock('x', $token)"), '00:00:30', 'the first client renews the lock');
	is($two->query("SELECT is_held('x', $token)"), 't', 'the second client sees that the lock is held');
	is($two->query("SELECT release_lock('x', $token + 1)"), 'f', 'a wrong token releases nothing');
	is($one->query("SELECT release_lock('x', $token)"), 't', 'the first client releases the lock');
	cmp_ok($two->query(q{SELECT try_acquire_lock('x')}), '>', $token, 'the second client acquires the released lock');
	is($one->query(q{SELECT release_lock('x')}), 't', 'without a token, any client of the pool releases the lock of the server connection');

	$token = $one->query(q{SELECT acquire_lock('x', owner => 'worker 1')});
	is($two->query(q{SELECT try_acquire_lock('x', owner => 'worker 2')}), '', 'another named owner cannot acquire the lock');
	is($two->query(q{SELECT try_acquire_lock('x', owner => 'worker 1')}), $token, 'the same named owner re-enters the lock from another client');
	is($two->query("SELECT release_lock('x', $token, all_holds => true)"), 't', 'the second client releases all holds of the named owner');

	is($one->query(q{BEGIN; SELECT acquire_lock('x') > 0; ROLLBACK}), 't', 'a transaction with an acquire is rolled back');
	is($two->query(q{SELECT release_lock('x', try_acquire_lock('x'))}), 't', 'the rolled-back lock is free');
	nothing_left($node);
};

subtest 'queue places' => sub {
	my $token = $one->query(q{SELECT acquire_lock('x')});
	my @places = map { $_->query(q{SELECT token FROM enqueue_lock('x')}) } $two, $one;
	is($two->query("SELECT await_lock('x', $places[0])"), 'f', 'a place is not granted while the lock is held');
	is($one->query("SELECT release_lock('x', $token)"), 't', 'the holder releases the lock');
	is($one->query("SELECT await_lock('x', $places[1])"), 'f', 'the second place is not granted');
	is($two->query("SELECT await_lock('x', $places[0])"), 't', 'the first place is granted');
	is($two->query("SELECT release_lock('x', $places[0])"), 't', 'the first place releases the lock');
	is($one->query("SELECT await_lock('x', $places[1])"), 't', 'the second place is granted');
	$one->query("SELECT release_lock('x', $places[1])");
	nothing_left($node);
};

subtest 'several locks, leases, permits' => sub {
	my $token = $one->query(q{SELECT acquire_locks('{x, y}')});
	is($two->query(q{SELECT acquire_locks('{y, z}', wait => '0')}), '', 'the second client acquires none of several names if one is held');
	is($two->query(q{SELECT release_lock('z', try_acquire_lock('z'))}), 't', 'the other names are free');
	is($one->query("SELECT release_locks('{x, y}', $token)"), 't', 'the locks for several names are released');

	my ($mine, $other) = map { $_->query('SELECT grant_lease()') } $one, $two;
	$token = $one->query("SELECT acquire_lock('x', lease => $mine)");
	is($two->query("SELECT try_acquire_lock('x', lease => $other)"), '', 'another lease cannot acquire the lock');
	is($one->query("SELECT try_acquire_lock('x', lease => $mine)"), $token, 'the same lease re-enters the lock');
	is($one->query("SELECT keep_alive($mine)"), '00:01:00', 'the lease is renewed');
	is($one->query("SELECT revoke_lease($mine)"), 't', 'the lease is revoked');
	cmp_ok($two->query("SELECT try_acquire_lock('x', lease => $other)"), '>', $token, 'the other lease acquires the lock after the revocation');
	$two->query("SELECT revoke_lease($other)");

	my @permits = map { $_->query(q{SELECT acquire_permit('p', 2, wait => '0')}) } $one, $two, $one;
	cmp_ok($permits[1], '>', $permits[0], 'two clients acquire a permit each');
	is($permits[2], '', 'a third permit is not available');
	$one->query("SELECT release_lock('p', $_)") foreach @permits[ 0, 1 ];
	nothing_left($node);
};

subtest 'elections' => sub {
	my $term = $one->query(q{SELECT campaign('e', 'one')});
	is($two->query(q{SELECT campaign('e', 'two', wait => '0')}), '', 'the second candidate is not elected');
	my $next = $two->query(q{SELECT term FROM enqueue_candidate('e', 'two')});
	is($two->query("SELECT await_leadership('e', $next)"), 'f', 'the place of the second candidate is not elected');
	is($two->query(q{SELECT candidate FROM current_leader('e')}), 'one', 'the second client sees the leader');
	is($one->query("SELECT renew_leadership('e', $term)"), '00:00:15', 'the leader renews');
	is($one->query("SELECT proclaim('e', $term, 'first')"), 't', 'the leader proclaims');
	is($one->query("BEGIN; SELECT fence_leader('e', $term); SELECT resign('e', $term); COMMIT"), "\nt", 'the leader fences and resigns in a transaction');
	is($two->query("SELECT await_leadership('e', $next)"), 't', 'the second candidate is elected');
	is($one->query("SELECT is_leader('e', $term)"), 'f', 'the first candidate no longer leads');
	is($one->query(q{SELECT string_agg(how || ' ' || candidate, ', ' ORDER BY change) FROM election_history('e')}),
		'elected one, proclaimed first, resigned first, elected two', 'the history has all changes');
	is($two->query("SELECT resign('e', $next)"), 't', 'the second leader resigns');
};

subtest 'fences and versions' => sub {
	$direct->query('CREATE TABLE t (n int)');
	my $token = $one->query(q{SELECT acquire_lock('x')});
	$one->query("BEGIN; SELECT fence_lock('x', $token)");
	$two->async(q{SELECT count(*) FROM t});
	is($one->query('INSERT INTO t VALUES (1); SELECT 1; COMMIT'), 1, 'a write with a fence succeeds');
	is($two->wait, 1, 'the second client runs after the transaction');
	$one->query("SELECT release_lock('x', $token)");
	$one->query("BEGIN; SELECT fence_lock('x', $token)");
	like($one->error, qr/ERROR:  LE001: /, 'a lock that is not held cannot be fenced');
	$one->query('ROLLBACK');

	is($one->query(q{SELECT compare_and_set('k', 0, 'a')}), 1, 'a key is created');
	is($two->query(q{SELECT compare_and_set('k', 0, 'b')}), '', 'an outdated version sets nothing');
	is($two->query(q{SELECT compare_and_set('k', 1, 'b')}), 2, 'the current version sets the key');
};

# Unnamed statements, and named ones that are closed within one message group, work with any pooler.
subtest 'extended protocol' => sub {
	my $pool = bless {}, 'Pool';
	my ($first, $second) = map { LeWire->new($pool, dbname => 'transactions') } 1 .. 2;
	my @answers = map {
		$_->parse('', q{SELECT acquire_lock($1, wait => $2)}, 25, 1186);
		$_->bind('', '', 'x', '0');
		$_->execute('');
		$_->sync;
		$_->wait('Z');
	} $first, $second;
	cmp_ok($answers[0], '>', 0, 'acquire_lock() with parameters succeeds');
	is($answers[1], '', 'the second client cannot acquire the lock');
	foreach ($first, $second)
	{
		$_->parse('s', q{SELECT release_lock($1, $2)}, 25, 20);
		$_->bind('', 's', 'x', $answers[0]);
		$_->execute('');
		$_->message('C', "Ss\0");
		$_->sync;
	}
	is(join(' ', map { $_->wait('Z') . $_->error } $first, $second), 't f', 'a named statement that is prepared, used and closed in one group works');
	$_->quit foreach $first, $second;
};

# A counter is read in one transaction and written in another: only the lock prevents lost increments.
subtest 'many clients' => sub {
	$direct->query('CREATE TABLE counter AS SELECT 0 AS n, 0 AS writes');
	append_to_file("$dir/count.sql", <<'SQL');
SELECT coalesce(try_acquire_lock('counter'), 0) AS t \gset
\if :t > 0
SELECT n FROM counter \gset
UPDATE counter SET n = :n + 1, writes = writes + 1;
SELECT 1 / release_lock('counter', :t)::int;
\endif
SQL
	my @command = ('pgbench', '-n', '-h', $dir, '-p', $port, '-c', 8, '-t', 100, '-f', "$dir/count.sql", 'transactions');
	my ($out, $err) = ('', '');
	ok(IPC::Run::run(\@command, '>', \$out, '2>', \$err), 'pgbench with eight clients succeeds') or diag($err);
	my ($n, $writes) = split /\|/, $direct->query('SELECT n, writes FROM counter');
	cmp_ok($n, '>', 10, 'the counter was incremented more than 10 times');
	is($n, $writes, 'no increment is lost');
	nothing_left($node);
};

subtest 'a client that is killed' => sub {
	my $gone = pooled();
	my $token = $gone->query(q{SELECT acquire_lock('x', ttl => '3 s')});
	$gone->kill;
	is($two->query(q{SELECT try_acquire_lock('x')}), '', 'the lock of a killed client is held');
	ok(wait_until(sub { return $two->query(q{SELECT try_acquire_lock('x')}) ne ''; }), 'the lock of a killed client is free after its TTL');
	$two->query(q{SELECT release_lock('x')});

	# Killed during a wait: PgBouncer closes the server connection, so the server notices.
	$direct->query(q{SELECT acquire_lock('x')});
	$gone = pooled();
	$gone->async(q{SELECT acquire_lock('x')});
	wait_for_sql($node, 'SELECT count(*) FROM lock_election.waiters', 1);
	$gone->kill;
	wait_for_sql($node, 'SELECT count(*) FROM lock_election.waiters', 0);
	$direct->query(q{SELECT release_lock('x')});
	is($two->query('SELECT 1'), 1, 'the other clients can continue');
	nothing_left($node);
};

subtest 'a wait keeps the server connection' => sub {
	my $token = $direct->query(q{SELECT acquire_lock('x')});
	$two->async(q{SELECT acquire_lock('x')});
	wait_for_sql($node, 'SELECT count(*) FROM lock_election.waiters', 1);
	$one->async('SELECT 1');
	ok(!wait_until(sub { return $one->ready; }, 0.5), 'another client of the pool is not served during the wait');
	$direct->query(q{SELECT release_lock('x')});
	$token = $two->wait;
	is($one->wait, 1, 'another client of the pool is served after the wait');
	$two->query("SELECT release_lock('x', $token)");

	# The holder can neither renew nor release in the meantime.
	$token = $one->query(q{SELECT acquire_lock('x', ttl => '1 h')});
	$two->async(q{SELECT acquire_lock('x')});
	wait_for_sql($node, 'SELECT count(*) FROM lock_election.waiters', 1);
	shorten($direct, 'x', $token, '500 ms');
	$one->async("SELECT renew_lock('x', $token)");
	cmp_ok($two->wait, '>', $token, 'a waiter blocks the renewal of a holder in the same pool until its TTL expires');
	is($one->wait, '', 'the blocked renewal is too late');
	$two->query(q{SELECT release_lock('x')});

	# With short waits, the other clients are served in between.
	$token = $one->query(q{SELECT acquire_lock('x', ttl => '5 s')});
	$two->async(q{SELECT acquire_lock('x', wait => '200 ms')});
	$one->async("SELECT renew_lock('x', $token)");
	is($two->wait . $one->wait, '00:00:05', 'the holder can renew after a short wait of another client');
	$one->query("SELECT release_lock('x', $token)");
	nothing_left($node);
};

subtest 'objects that belong to the server connection' => sub {
	# A lock that is bound to the connection belongs to no client.
	my $gone = pooled();
	my $token = $gone->query(q{SELECT acquire_lock('x', ttl => NULL)});
	is($two->query(q{SELECT try_acquire_lock('x')}), '', 'a bound lock excludes the other clients');
	$gone->kill;
	is($two->query("SELECT is_held('x', $token)"), 't', 'a bound lock outlives its client');
	is($direct->query(q{SELECT force_release_lock('x')}), 1, 'a bound lock can be released by force');
	$one->query(q{SELECT acquire_lock('x', ttl => NULL)});
	$two->query('DISCARD ALL');
	nothing_left($node, 'DISCARD ALL of another client of the pool ends a bound lock');
	$one->query(q{SELECT campaign('e', 'one', ttl => NULL)});
	$two->query('DISCARD ALL');
	is($direct->query(q{SELECT count(*) FROM current_leader('e')}), 0, 'DISCARD ALL of another client of the pool ends a bound term');

	# PostgreSQL's advisory locks of the session belong to the connection.
	is($one->query(q{SELECT advisory_acquire('a')}), 't', 'a session-level advisory lock is acquired');
	is($two->query(q{SELECT advisory_acquire('a', '0')}), 't', 'a session-level advisory lock does not exclude another client of the pool');
	is($one->query(q{SELECT pg_try_advisory_lock(1)}) . $two->query(q{SELECT pg_try_advisory_lock(1)}), 'tt', 'the same is true for advisory locks of PostgreSQL');
	is($direct->query(q{SELECT advisory_acquire('a', '0')}), 'f', 'a session-level advisory lock excludes other connections');
	$one->query('SELECT pg_advisory_unlock_all()');
	$one->query(q{BEGIN; SELECT advisory_acquire('a', scope => 'transaction')});
	$two->async(q{SELECT advisory_acquire('a', '0', scope => 'transaction')});
	is($direct->query(q{SELECT advisory_acquire('a', '0')}), 'f', 'a transaction-level advisory lock excludes other connections');
	ok(!$two->ready, 'a transaction-level advisory lock keeps the server connection busy');
	$one->query('COMMIT');
	is($two->wait, 't', 'another client of the pool is granted the lock after the transaction');
	is($direct->query(q{SELECT advisory_acquire('a', '0')}) . $direct->query(q{SELECT advisory_release('a')}), 'tt', 'the advisory lock is free after both transactions');

	# LISTEN belongs to the server connection.
	$one->query('LISTEN c');
	is($two->query('SELECT pg_listening_channels()'), 'c', 'another client of the pool inherits LISTEN');
	$two->query('UNLISTEN *');
};

subtest 'session pooling' => sub {
	my $first = pooled('sessions');
	my $pid = $first->pid;
	cmp_ok($first->query(q{SELECT acquire_lock('x', ttl => NULL)}), '>', 0, 'with session pooling, a bound lock is acquired');
	is($first->query(q{SELECT advisory_acquire('a')}), 't', 'with session pooling, an advisory lock is acquired');
	$first->query('LISTEN c');
	is($one->query(q{SELECT try_acquire_lock('x')}) . $direct->query(q{SELECT advisory_acquire('a', '0')}), 'f', 'both locks exclude other connections');
	$first->kill;
	my $second = pooled('sessions');
	is($second->pid, $pid, 'the next session uses the same server connection');
	cmp_ok($second->query(q{SELECT try_acquire_lock('x', ttl => NULL)}), '>', 0, 'the next session does not inherit the bound lock');
	is($direct->query(q{SELECT advisory_acquire('a', '0')}), 't', 'the next session does not inherit the advisory lock');
	is($second->query('SELECT count(*) FROM pg_listening_channels()'), 0, 'the next session does not inherit LISTEN');
	$direct->query(q{SELECT advisory_release('a')});
	$second->quit;
	nothing_left($node);
};

subtest 'statement pooling' => sub {
	my ($first, $second) = map { pooled('statements') } 1 .. 2;
	is($first->pid, $second->pid, 'with statement pooling, two clients share one server connection');
	my $token = $first->query(q{SELECT acquire_lock('x')});
	is($second->query(q{SELECT try_acquire_lock('x')}), '', 'with statement pooling, the second client cannot acquire a held lock');
	is($first->query("SELECT renew_lock('x', $token)"), '00:00:30', 'with statement pooling, the lock is renewed');
	is($first->query("SELECT release_lock('x', $token)"), 't', 'with statement pooling, the lock is released');
	$token = $first->query(q{SELECT campaign('e', 'one')});
	is($second->query(q{SELECT campaign('e', 'two', wait => '0')}), '', 'with statement pooling, the second candidate is not elected');
	is($first->query("SELECT resign('e', $token)"), 't', 'with statement pooling, the leader resigns');
	$second->query('BEGIN');
	like($second->error, qr/FATAL: .*transaction blocks not allowed in statement pooling mode/i, 'with statement pooling, transactions and thus fences are rejected');
	$first->quit;
};

# A PgBouncer that ignores no startup parameters, with connections for two clients of each program.
subtest 'the programs of docs/how-to/plain-driver.md' => sub {
	plan skip_all => 'no psycopg' if system('python3 -c "import psycopg" 2>/dev/null') != 0;
	my ($host, $own) = start_pgbouncer(
		$node,
		databases => { transactions => 'pool_mode=transaction pool_size=4' },
		settings => ['ignore_startup_parameters ='],);
	local %ENV = (%ENV, PGHOST => $host, PGPORT => $own, PGDATABASE => 'transactions');
	my %programs = map { $_->{text} =~ /^# (\S+\.py)/m ? ($1 => $_->{text}) : () }
	  grep { $_->{word} eq 'python' } blocks_of(slurp_file('docs/how-to/plain-driver.md'));
	is(join(' ', sort keys %programs), 'leader.py worker.py', 'the page contains both programs');

	# The leader renews so often that a driver prepares the repeated statement.
	$programs{'leader.py'} =~ s{TTL / 3}{0.2};
	$programs{'leader.py'} =~ s/range\(3\)/range(30)/;
	$programs{'leader.py'} =~ s/print\("done"\)/print("done", job)/;
	foreach my $name (sort keys %programs)
	{
		my $file = PostgreSQL::Test::Utils::tempdir() . "/$name";
		my $done = $name eq 'leader.py' ? 'done 29' : 'done';
		my @outputs = ('', '');
		append_to_file($file, $programs{$name});
		my @runs = map { IPC::Run::start([ 'timeout', '120', 'python3', $file ], '<', \'', '>&', \$outputs[$_]) } 0 .. 1;
		foreach my $run (0 .. 1)
		{
			ok($runs[$run]->finish, "$name succeeds, as one of two");
			is($outputs[$run], "$done\n", 'the program completes its work');
		}
	}
	nothing_left($node);
};

$_->quit foreach $one, $two, $direct;
stop_pgbouncer();
$node->stop;
done_testing();

package Pool;

sub host { return $dir; }

sub port { return $port; }
