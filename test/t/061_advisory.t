# Advisory locks by name: ends of waits, prepared transactions, a standby, and a server without the preloaded library.
# Promises: -
use strict;
use warnings;
use IPC::Run ();
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', init => [ allows_streaming => 1 ], conf => "autovacuum = off\n");
my $dir = PostgreSQL::Test::Utils::tempdir();
my ($holder, $s) = map { session($node) } 1 .. 2;
my $mine = q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()};

sub wait_for_lock_wait
{
	my ($pid) = @_;
	return wait_for_sql($node, "SELECT wait_event_type || wait_event FROM pg_stat_activity WHERE pid = $pid", 'Lockadvisory');
}

subtest 'ends of waits' => sub {
	$holder->query(q{SELECT advisory_acquire('x')});
	foreach my $scope ('session', 'transaction')
	{
		my $start = time;
		is($s->query("SELECT advisory_acquire('x', '300 ms', scope => '$scope')"), 'f', "$scope: a wait that times out returns false");
		cmp_ok(time - $start, '>=', 0.3, "$scope: the wait does not end early");
		is($s->error, '', "$scope: a wait that times out raises no error");
		is($s->query('SHOW lock_timeout'), '0', "$scope: lock_timeout is unchanged after the wait");
		is($s->query("BEGIN; SAVEPOINT a; SELECT advisory_acquire('x', '1 us', scope => '$scope'); SELECT 1; COMMIT"), "f\n1", "$scope: the transaction can continue after the wait");

		$s->query("SET lock_timeout = '100 ms'");
		foreach my $wait ('NULL', q{'1 h'}, q{'100 days'})
		{
			$s->query("SELECT advisory_acquire('x', $wait, scope => '$scope')");
			like($s->error, qr/ERROR:  55P03: canceling statement due to lock timeout/, "$scope: a lower lock_timeout ends a wait of $wait");
		}
		is($s->query("SELECT advisory_acquire('x', '50 ms', scope => '$scope')"), 'f', "$scope: a higher lock_timeout does not end the wait");
		is($s->query("SELECT advisory_acquire('x', '100 ms', scope => '$scope')"), 'f', "$scope: a lock_timeout of the same length does not end the wait");
		is($s->query('SHOW lock_timeout'), '100ms', "$scope: the setting lock_timeout is unchanged");
		$s->query("SET lock_timeout = 0; SET statement_timeout = '100 ms'");
		$s->query("SELECT advisory_acquire('x', '1 h', scope => '$scope')");
		like($s->error, qr/ERROR:  57014: canceling statement due to statement timeout/, "$scope: statement_timeout ends the wait");
		$s->query('SET statement_timeout = 0');
		$s->async("SELECT advisory_acquire('x', '1 h', scope => '$scope')");
		wait_for_lock_wait($s->pid);
		$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $s->pid . ')');
		$s->wait;
		like($s->error, qr/ERROR:  57014: canceling statement due to user request/, "$scope: a cancel ends the wait");
		is($s->query($mine), 0, "$scope: no advisory lock is left");
	}
	my $gone = session($node);
	$gone->async(q{SELECT advisory_acquire('x', '1 h')});
	wait_for_lock_wait($gone->pid);
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $gone->pid . ')');
	is($gone->wait, undef, 'a terminated connection ends the wait');
	wait_for_sql($node, 'SELECT count(*) FROM pg_locks WHERE NOT granted', 0);
	$holder->kill;
	is($s->query(q{SELECT advisory_acquire('x', '60 s')}), 't', 'the lock is granted when the connection of its holder ends');
	is($s->query(q{SELECT advisory_release('x')}), 't', 'the granted lock is released');
	$holder = session($node);
};

# A timeout or a cancel coincides with the grant: a timeout must not become an error, and no lock may be left that the
# caller does not know about.
subtest 'the grant coincides with the end of the wait' => sub {
	append_to_file("$dir/limit.sql", <<'SQL');
\set us random(200, 1500)
SELECT advisory_acquire('race', '1 ms', scope => 'session')::int AS got \gset
\if :got
SELECT pg_sleep(:us / 1e6);
SELECT 1 / advisory_release('race')::int;
\endif
BEGIN;
SELECT advisory_acquire('race', '1 ms', scope => 'transaction')::int AS got \gset
\if :got
SELECT pg_sleep(:us / 1e6);
\endif
COMMIT;
SQL
	my ($out, $err) = run_command([ 'pgbench', '-n', '-c', 4, '-j', 2, '-t', 1500, '-f', "$dir/limit.sql", $node->connstr('postgres') ]);
	like($out, qr/actually processed: 6000\/6000/, 'a timeout never becomes an error') or diag($err);

	# Another client holds the lock for about as long as this one waits before it is cancelled.
	append_to_file("$dir/holder.sql", <<'SQL');
SELECT advisory_acquire('race');
SELECT pg_sleep(0.0018);
SELECT 1 / advisory_release('race')::int;
SQL
	my $load = IPC::Run::start([ 'pgbench', '-n', '-c', 1, '-T', 600, '-f', "$dir/holder.sql", $node->connstr('postgres') ], '>', \my $load_out, '2>', \my $load_err);
	wait_for_sql($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}, 1);
	my ($cancelled, $granted, $left) = (0, 0, 0);

	# A sequence is not rolled back, so it shows which cancels came only after the function had returned.
	$node->safe_psql('postgres', 'CREATE SEQUENCE granted');
	my $script = join '', map {
		my $ms = 1 + $_ % 3;
		<<"SQL" } 1 .. 1500;
SET statement_timeout = '$ms ms';
SELECT CASE WHEN advisory_acquire('race') THEN setval('granted', $_ + 1) END;
\\if :ERROR
\\set mine 'cancelled '
\\else
\\set mine 'held '
\\endif
SET statement_timeout = 0;
SELECT :'mine' || count(*) FROM pg_locks, granted
WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND pg_locks.granted AND (:'mine' = 'held ' OR last_value <> $_ + 1);
SELECT pg_advisory_unlock_all();
SQL

	# On a busy machine the holder may not run for a while, so that nobody waits for it.
	for (my $end = time + $PostgreSQL::Test::Utils::timeout_default; time < $end && ($cancelled <= 50 || $granted <= 50);)
	{
		my $answer = '';
		$node->safe_psql('postgres', q{SELECT setval('granted', 1)});
		$node->psql('postgres', $script, stdout => \$answer, stderr => \my $errors, on_error_stop => 0);
		$cancelled += () = $answer =~ /^cancelled 0$/mg;
		$granted += () = $answer =~ /^held 1$/mg;
		$left += () = $answer =~ /^cancelled 1$/mg;
	}
	cmp_ok($cancelled, '>', 50, 'more than 50 waits are cancelled');
	cmp_ok($granted, '>', 50, 'more than 50 waits are granted');
	is($left, 0, 'a cancelled wait leaves no lock');
	$load->signal('TERM');
	$load->finish;
};

subtest 'PREPARE TRANSACTION' => sub {
	$s->query(q{BEGIN; SELECT advisory_acquire('p', scope => 'transaction'); PREPARE TRANSACTION 'p'});
	is($s->error, '', 'a transaction with a transaction-level lock is prepared');
	is($holder->query(q{SELECT advisory_acquire('p', '0')}), 'f', 'the prepared transaction keeps its lock');
	$node->restart;
	($holder, $s) = map { session($node) } 1 .. 2;
	is($holder->query(q{SELECT advisory_acquire('p', '0')}), 'f', 'the prepared transaction keeps its lock across a restart');
	$s->query(q{COMMIT PREPARED 'p'});
	is($holder->query(q{SELECT advisory_acquire('p', '0')}), 't', 'the lock is free after COMMIT PREPARED');
	is($holder->query(q{SELECT advisory_release('p')}), 't', 'the lock is released');
	$s->query(q{SELECT advisory_acquire('q'); BEGIN; SELECT 1; PREPARE TRANSACTION 'q'});
	is($s->error, '', 'a transaction of a session with a session-level lock is prepared');
	is($holder->query(q{SELECT advisory_acquire('q', '0')}), 'f', 'the session keeps its session-level lock');
	$s->query(q{ROLLBACK PREPARED 'q'; SELECT advisory_acquire('r'); BEGIN; SELECT advisory_acquire('r', scope => 'transaction'); PREPARE TRANSACTION 'r'});
	like($s->error, qr/ERROR:  0A000: cannot PREPARE while holding both session-level and transaction-level locks/, 'a transaction with both kinds of locks on one name cannot be prepared');
	$_->quit foreach $holder, $s;
};

subtest 'a standby' => sub {
	$node->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'base', has_streaming => 1);
	$standby->start;
	my ($one, $two) = map { session($standby) } 1 .. 2;
	foreach my $scope ('session', 'transaction')
	{
		$one->query("SELECT advisory_acquire('x', '0', true, '$scope')");
		like($one->error, qr/ERROR:  25006: cannot use advisory locks during recovery\nDETAIL:  .*\nHINT:  .*lock_election\.advisory_on_standby/, "$scope: advisory locks are rejected on a standby");
	}
	is($one->query($mine), 0, 'a rejected call leaves no lock');
	$_->query('SET lock_election.advisory_on_standby = on') foreach $one, $two;
	is($one->query(q{SELECT advisory_acquire('x')}), 't', 'with advisory_on_standby, a lock is acquired on a standby');
	is($two->query(q{SELECT advisory_acquire('x', '0')}), 'f', 'with advisory_on_standby, the lock excludes other sessions');
	is($two->query(q{SELECT advisory_acquire('x', '50 ms', scope => 'transaction')}), 'f', 'with advisory_on_standby, a wait times out');
	is($node->safe_psql('postgres', q{SELECT advisory_acquire('x', '0')}), 't', 'the primary has its own advisory locks');
	is($one->query(q{SELECT advisory_release('x')}), 't', 'the lock on the standby is released');
	is($two->query(q{SELECT advisory_acquire('x', '0', true)}), 't', 'the lock on the standby is free after the release');
	$_->quit foreach $one, $two;

	$standby->append_conf('postgresql.conf', "shared_preload_libraries = ''");
	$standby->restart;
	$one = session($standby);
	$one->query(q{SELECT advisory_acquire('x')});
	like($one->error, qr/ERROR:  25006: /, 'not preloaded: advisory locks are rejected on a standby');
	$one->quit;
	is($standby->safe_psql('postgres', q{SELECT advisory_acquire('x', '0')}, connstr => $standby->connstr('postgres') . q{ options='-c lock_election.advisory_on_standby=on'}),
		't', 'not preloaded: advisory_on_standby that was set before the library is loaded has an effect');
	$standby->stop;
};

subtest 'library not preloaded' => sub {
	$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
	$node->restart;
	my ($one, $two) = map { session($node) } 1 .. 2;
	is($one->query(q{SELECT advisory_acquire('x')}), 't', 'not preloaded: a lock is acquired');
	is($two->query(q{SELECT advisory_acquire('x', '10 ms')}), 'f', 'not preloaded: the lock excludes other sessions');
	is($one->query(q{DISCARD ALL}), '', 'not preloaded: DISCARD ALL succeeds');
	is($two->query(q{SELECT advisory_acquire('x', '60 s')}), 't', 'not preloaded: DISCARD ALL releases the lock');
	$_->quit foreach $one, $two;
};

$node->stop;
done_testing();
