# A real PgBouncer. All clients of a pool share one server connection: locks there belong to a token, not to the
# connection, and connection-bound locks are shown to belong to no particular client.
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
is($one->pid, $two->pid, 'two clients, one server connection');
isnt($one->pid, $direct->pid, 'which the test itself does not use');

subtest 'locks' => sub {
	my $token = $one->query(q{SELECT acquire_lock('x')});
	cmp_ok($token, '>', 0, 'the first has it');
	is($two->query(q{SELECT try_acquire_lock('x')}), '', 'the second is not let in');
	is($two->query(q{SELECT acquire_lock('x', wait => '50 ms')}), '', 'nor when it waits');
	like($two->error, qr/NOTICE: .* "x" is already held by this connection/, 'and is told what the server sees');
	is($two->query(q{SELECT try_acquire_lock('x', mode => 'shared')}), '', 'nor to share it');
	is($one->query("SELECT renew_lock('x', $token)"), '00:00:30', 'renewed');
	is($two->query("SELECT is_held('x', $token)"), 't', 'seen');
	is($two->query("SELECT release_lock('x', $token + 1)"), 'f', 'a token of nobody releases nothing');
	is($one->query("SELECT release_lock('x', $token)"), 't', 'released');
	cmp_ok($two->query(q{SELECT try_acquire_lock('x')}), '>', $token, 'then the second has it');
	is($one->query(q{SELECT release_lock('x')}), 't', 'without a token the connection\'s goes, whoever took it');

	$token = $one->query(q{SELECT acquire_lock('x', owner => 'worker 1')});
	is($two->query(q{SELECT try_acquire_lock('x', owner => 'worker 2')}), '', 'another named owner is not let in');
	is($two->query(q{SELECT try_acquire_lock('x', owner => 'worker 1')}), $token, 'the same one is, wherever it comes from');
	is($two->query("SELECT release_lock('x', $token, all_holds => true)"), 't', 'and releases');

	is($one->query(q{BEGIN; SELECT acquire_lock('x') > 0; ROLLBACK}), 't', 'rolled back');
	is($two->query(q{SELECT release_lock('x', try_acquire_lock('x'))}), 't', 'and undone');
	nothing_left($node);
};

subtest 'queue places' => sub {
	my $token = $one->query(q{SELECT acquire_lock('x')});
	my @places = map { $_->query(q{SELECT token FROM enqueue_lock('x')}) } $two, $one;
	is($two->query("SELECT await_lock('x', $places[0])"), 'f', 'not yet');
	is($one->query("SELECT release_lock('x', $token)"), 't', 'handed on');
	is($one->query("SELECT await_lock('x', $places[1])"), 'f', 'not to the last');
	is($two->query("SELECT await_lock('x', $places[0])"), 't', 'but to the first');
	is($two->query("SELECT release_lock('x', $places[0])"), 't', 'who hands on');
	is($one->query("SELECT await_lock('x', $places[1])"), 't', 'in order');
	$one->query("SELECT release_lock('x', $places[1])");
	nothing_left($node);
};

subtest 'several locks, leases, permits' => sub {
	my $token = $one->query(q{SELECT acquire_locks('{x, y}')});
	is($two->query(q{SELECT acquire_locks('{y, z}', wait => '0')}), '', 'the second gets none');
	is($two->query(q{SELECT release_lock('z', try_acquire_lock('z'))}), 't', 'and holds none');
	is($one->query("SELECT release_locks('{x, y}', $token)"), 't', 'released');

	my ($mine, $other) = map { $_->query('SELECT grant_lease()') } $one, $two;
	$token = $one->query("SELECT acquire_lock('x', lease => $mine)");
	is($two->query("SELECT try_acquire_lock('x', lease => $other)"), '', 'another lease is not let in');
	is($one->query("SELECT try_acquire_lock('x', lease => $mine)"), $token, 'the same is');
	is($one->query("SELECT keep_alive($mine)"), '00:01:00', 'kept alive');
	is($one->query("SELECT revoke_lease($mine)"), 't', 'revoked');
	cmp_ok($two->query("SELECT try_acquire_lock('x', lease => $other)"), '>', $token, 'then the other has it');
	$two->query("SELECT revoke_lease($other)");

	my @permits = map { $_->query(q{SELECT acquire_permit('p', 2, wait => '0')}) } $one, $two, $one;
	cmp_ok($permits[1], '>', $permits[0], 'a permit each');
	is($permits[2], '', 'and no more');
	$one->query("SELECT release_lock('p', $_)") foreach @permits[ 0, 1 ];
	nothing_left($node);
};

subtest 'elections' => sub {
	my $term = $one->query(q{SELECT campaign('e', 'one')});
	is($two->query(q{SELECT campaign('e', 'two', wait => '0')}), '', 'the second is not elected');
	my $next = $two->query(q{SELECT term FROM enqueue_candidate('e', 'two')});
	is($two->query("SELECT await_leadership('e', $next)"), 'f', 'but is a candidate');
	is($two->query(q{SELECT candidate FROM current_leader('e')}), 'one', 'and sees who leads');
	is($one->query("SELECT renew_leadership('e', $term)"), '00:00:15', 'renewed');
	is($one->query("SELECT proclaim('e', $term, 'first')"), 't', 'proclaimed');
	is($one->query("BEGIN; SELECT fence_leader('e', $term); SELECT resign('e', $term); COMMIT"), "\nt", 'fenced, resigned');
	is($two->query("SELECT await_leadership('e', $next)"), 't', 'then the second leads');
	is($one->query("SELECT is_leader('e', $term)"), 'f', 'and the first does not');
	is($one->query(q{SELECT string_agg(how || ' ' || candidate, ', ' ORDER BY change) FROM election_history('e')}),
		'elected one, proclaimed first, resigned first, elected two', 'the history tells all');
	is($two->query("SELECT resign('e', $next)"), 't', 'resigned');
};

subtest 'fences and versions' => sub {
	$direct->query('CREATE TABLE t (n int)');
	my $token = $one->query(q{SELECT acquire_lock('x')});
	$one->query("BEGIN; SELECT fence_lock('x', $token)");
	$two->async(q{SELECT count(*) FROM t});
	is($one->query('INSERT INTO t VALUES (1); SELECT 1; COMMIT'), 1, 'written under a fence');
	is($two->wait, 1, 'the second comes after the transaction');
	$one->query("SELECT release_lock('x', $token)");
	$one->query("BEGIN; SELECT fence_lock('x', $token)");
	like($one->error, qr/ERROR:  LE001: /, 'no fence without the lock');
	$one->query('ROLLBACK');

	is($one->query(q{SELECT compare_and_set('k', 0, 'a')}), 1, 'a key');
	is($two->query(q{SELECT compare_and_set('k', 0, 'b')}), '', 'whoever comes late sets nothing');
	is($two->query(q{SELECT compare_and_set('k', 1, 'b')}), 2, 'whoever has read does');
};

# Unnamed statements, and named ones within one message group, need nothing of a pooler.
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
	cmp_ok($answers[0], '>', 0, 'with parameters');
	is($answers[1], '', 'the second is not let in');
	foreach ($first, $second)
	{
		$_->parse('s', q{SELECT release_lock($1, $2)}, 25, 20);
		$_->bind('', 's', 'x', $answers[0]);
		$_->execute('');
		$_->message('C', "Ss\0");
		$_->sync;
	}
	is(join(' ', map { $_->wait('Z') . $_->error } $first, $second), 't f', 'prepared, used and closed at once');
	$_->quit foreach $first, $second;
};

# A counter that is read in one transaction and written in another: only the lock keeps increments from being lost.
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
	ok(IPC::Run::run(\@command, '>', \$out, '2>', \$err), 'eight clients') or diag($err);
	my ($n, $writes) = split /\|/, $direct->query('SELECT n, writes FROM counter');
	cmp_ok($n, '>', 10, 'have counted');
	is($n, $writes, 'and nothing was lost');
	nothing_left($node);
};

subtest 'a client that dies' => sub {
	my $gone = pooled();
	my $token = $gone->query(q{SELECT acquire_lock('x', ttl => '3 s')});
	$gone->kill;
	is($two->query(q{SELECT try_acquire_lock('x')}), '', 'its lock lasts');
	ok(wait_until(sub { return $two->query(q{SELECT try_acquire_lock('x')}) ne ''; }), 'to the end of its lease');
	$two->query(q{SELECT release_lock('x')});

	# in the middle of a wait: the pooler drops the server connection, and so the server sees it
	$direct->query(q{SELECT acquire_lock('x')});
	$gone = pooled();
	$gone->async(q{SELECT acquire_lock('x')});
	wait_for_sql($node, 'SELECT count(*) FROM lock_election.waiters', 1);
	$gone->kill;
	wait_for_sql($node, 'SELECT count(*) FROM lock_election.waiters', 0);
	$direct->query(q{SELECT release_lock('x')});
	is($two->query('SELECT 1'), 1, 'the others go on');
	nothing_left($node);
};

subtest 'a wait keeps the server connection' => sub {
	my $token = $direct->query(q{SELECT acquire_lock('x')});
	$two->async(q{SELECT acquire_lock('x')});
	wait_for_sql($node, 'SELECT count(*) FROM lock_election.waiters', 1);
	$one->async('SELECT 1');
	ok(!wait_until(sub { return $one->ready; }, 0.5), 'meanwhile nobody else of the pool is served');
	$direct->query(q{SELECT release_lock('x')});
	$token = $two->wait;
	is($one->wait, 1, 'then all are');
	$two->query("SELECT release_lock('x', $token)");

	# so the holder cannot renew, and cannot release
	$token = $one->query(q{SELECT acquire_lock('x', ttl => '1 h')});
	$two->async(q{SELECT acquire_lock('x')});
	wait_for_sql($node, 'SELECT count(*) FROM lock_election.waiters', 1);
	shorten($direct, 'x', $token, '500 ms');
	$one->async("SELECT renew_lock('x', $token)");
	cmp_ok($two->wait, '>', $token, 'a waiter outlasts the lease of a holder of its own pool');
	is($one->wait, '', 'whose renewal comes too late');
	$two->query(q{SELECT release_lock('x')});

	# a short wait gives everybody a turn
	$token = $one->query(q{SELECT acquire_lock('x', ttl => '5 s')});
	$two->async(q{SELECT acquire_lock('x', wait => '200 ms')});
	$one->async("SELECT renew_lock('x', $token)");
	is($two->wait . $one->wait, '00:00:05', 'a short one does not');
	$one->query("SELECT release_lock('x', $token)");
	nothing_left($node);
};

subtest 'what belongs to the server connection' => sub {
	# bound to the connection: to no client
	my $gone = pooled();
	my $token = $gone->query(q{SELECT acquire_lock('x', ttl => NULL)});
	is($two->query(q{SELECT try_acquire_lock('x')}), '', 'ttl => NULL keeps the others out');
	$gone->kill;
	is($two->query("SELECT is_held('x', $token)"), 't', 'but outlives its client');
	is($direct->query(q{SELECT force_release_lock('x')}), 1, 'until it is forced');
	$one->query(q{SELECT acquire_lock('x', ttl => NULL)});
	$two->query('DISCARD ALL');
	nothing_left($node, 'or somebody else of the pool ends it');
	$one->query(q{SELECT campaign('e', 'one', ttl => NULL)});
	$two->query('DISCARD ALL');
	is($direct->query(q{SELECT count(*) FROM current_leader('e')}), 0, 'and so for a term');

	# PostgreSQL's own kind knows only the connection
	is($one->query(q{SELECT advisory_acquire('a')}), 't', 'an advisory lock of scope session');
	is($two->query(q{SELECT advisory_acquire('a', '0')}), 't', 'lets the second in');
	is($one->query(q{SELECT pg_try_advisory_lock(1)}) . $two->query(q{SELECT pg_try_advisory_lock(1)}), 'tt', 'as PostgreSQL\'s own does');
	is($direct->query(q{SELECT advisory_acquire('a', '0')}), 'f', 'and keeps out who has another connection');
	$one->query('SELECT pg_advisory_unlock_all()');
	$one->query(q{BEGIN; SELECT advisory_acquire('a', scope => 'transaction')});
	$two->async(q{SELECT advisory_acquire('a', '0', scope => 'transaction')});
	is($direct->query(q{SELECT advisory_acquire('a', '0')}), 'f', 'scope transaction keeps everybody out');
	ok(!$two->ready, 'for the second has no server connection meanwhile');
	$one->query('COMMIT');
	is($two->wait, 't', 'to the end of the transaction');
	is($direct->query(q{SELECT advisory_acquire('a', '0')}) . $direct->query(q{SELECT advisory_release('a')}), 'tt', 'and no longer');

	# LISTEN is the server connection's
	$one->query('LISTEN c');
	is($two->query('SELECT pg_listening_channels()'), 'c', 'whoever comes next is listening');
	$two->query('UNLISTEN *');
};

subtest 'session pooling' => sub {
	my $first = pooled('sessions');
	my $pid = $first->pid;
	cmp_ok($first->query(q{SELECT acquire_lock('x', ttl => NULL)}), '>', 0, 'bound to a session');
	is($first->query(q{SELECT advisory_acquire('a')}), 't', 'an advisory lock');
	$first->query('LISTEN c');
	is($one->query(q{SELECT try_acquire_lock('x')}) . $direct->query(q{SELECT advisory_acquire('a', '0')}), 'f', 'both keep others out');
	$first->kill;
	my $second = pooled('sessions');
	is($second->pid, $pid, 'the next session has the same server connection');
	cmp_ok($second->query(q{SELECT try_acquire_lock('x', ttl => NULL)}), '>', 0, 'and nothing of the one before: no lock');
	is($direct->query(q{SELECT advisory_acquire('a', '0')}), 't', 'no advisory lock');
	is($second->query('SELECT count(*) FROM pg_listening_channels()'), 0, 'nobody listens');
	$direct->query(q{SELECT advisory_release('a')});
	$second->quit;
	nothing_left($node);
};

subtest 'statement pooling' => sub {
	my ($first, $second) = map { pooled('statements') } 1 .. 2;
	is($first->pid, $second->pid, 'one server connection');
	my $token = $first->query(q{SELECT acquire_lock('x')});
	is($second->query(q{SELECT try_acquire_lock('x')}), '', 'the second is not let in');
	is($first->query("SELECT renew_lock('x', $token)"), '00:00:30', 'renewed');
	is($first->query("SELECT release_lock('x', $token)"), 't', 'released');
	$token = $first->query(q{SELECT campaign('e', 'one')});
	is($second->query(q{SELECT campaign('e', 'two', wait => '0')}), '', 'nor elected');
	is($first->query("SELECT resign('e', $token)"), 't', 'resigned');
	$second->query('BEGIN');
	like($second->error, qr/FATAL: .*transaction blocks not allowed in statement pooling mode/i, 'there are no transactions, and so no fences');
	$first->quit;
};

# One whose configuration ignores nothing, with connections for two clients of each program.
subtest 'the programs for any driver' => sub {
	plan skip_all => 'no psycopg' if system('python3 -c "import psycopg" 2>/dev/null') != 0;
	my ($host, $own) = start_pgbouncer(
		$node,
		databases => { transactions => 'pool_mode=transaction pool_size=4' },
		settings => ['ignore_startup_parameters ='],);
	local %ENV = (%ENV, PGHOST => $host, PGPORT => $own, PGDATABASE => 'transactions');
	my %programs = map { $_->{text} =~ /^# (\S+\.py)/m ? ($1 => $_->{text}) : () }
	  grep { $_->{word} eq 'python' } blocks_of(slurp_file('docs/how-to/plain-driver.md'));
	is(join(' ', sort keys %programs), 'leader.py worker.py', 'the programs of the page');

	# The leader renews often enough for a driver that prepares what it repeats.
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
			ok($runs[$run]->finish, "$name, one of two");
			is($outputs[$run], "$done\n", 'does all its work');
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
