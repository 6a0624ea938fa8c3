# Other extensions in shared_preload_libraries, before and after lock_election: hooks are chained in either order. The
# tests of the core run again with the other extensions, each in its own process; this file adds further checks.
# Promises: F, G
# Needs: postgresql-15-pgaudit, postgresql-15-cron
use strict;
use warnings;
use IPC::Run ();
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $libdir = `pg_config --pkglibdir`;
chomp $libdir;
my @others = grep { -e "$libdir/$_.so" } qw(pg_stat_statements auto_explain pgaudit);

plan skip_all => 'no other extension is installed' if !@others;
diag("not installed: $_") foreach grep { my $name = $_; !grep { $_ eq $name } @others } qw(pg_stat_statements auto_explain pgaudit);

# Enables every feature of the other extensions, for statements and nested statements.
my $conf = <<'CONF';
compute_query_id = on
auto_explain.log_min_duration = 0
auto_explain.log_analyze = on
auto_explain.log_buffers = on
auto_explain.log_triggers = on
auto_explain.log_verbose = on
auto_explain.log_nested_statements = on
pgaudit.log = 'all'
pgaudit.log_catalog = on
pgaudit.log_parameter = on
CONF
my %orders = (before => [ @others, 'lock_election' ], after => [ 'lock_election', @others ]);
my @core = (qw(010_waits 012_transactions 014_releases 030_snapshots 050_fence 061_advisory));

sub preload { return "shared_preload_libraries = '" . join(',', @{ $orders{ $_[0] } }) . "'\n$conf"; }

# --- lock_election together with the other extensions ---

# Schedules jobs of pg_cron in background workers. They start with the next minute; the results are checked at the end.
sub schedule
{
	my ($node) = @_;

	$node->safe_psql('postgres', q{CREATE EXTENSION pg_cron; CREATE TABLE ran (job text, token bigint);
		SELECT cron.schedule('alone', '* * * * *', $$INSERT INTO ran SELECT 'alone', try_acquire_lock('cron job', '1 h')$$);
		SELECT cron.schedule('released', '* * * * *', $$SELECT release_lock('cron 2', acquire_lock('cron 2', '1 min'))$$);
		SELECT cron.schedule('bound', '* * * * *', $$SELECT acquire_lock('cron 3', ttl => NULL)$$)});
	return;
}

sub check_jobs
{
	my ($node) = @_;
	my $done = q{SELECT string_agg(DISTINCT jobname || ' ' || status, ', ' ORDER BY jobname || ' ' || status) FROM cron.job_run_details JOIN cron.job USING (jobid)};

	ok(wait_for_sql($node, $done, 'alone succeeded, bound succeeded, released succeeded', timeout => 150), 'jobs of pg_cron can call the functions of lock_election');
	# Jobs start at the beginning of each minute, so they may be running right now.
	ok(wait_for_sql($node, q{SELECT string_agg(name, ',') FROM lock_election.locks WHERE mode IS NOT NULL}, 'cron job'), 'only the lock of the job that keeps it is held');
	is($node->safe_psql('postgres', q{SELECT token IS NOT NULL FROM ran ORDER BY token LIMIT 1}), 't', 'the job gets a token');
	$node->safe_psql('postgres', q{SELECT cron.unschedule(jobid) FROM cron.job; SELECT force_release_lock('cron job')});
	return;
}

sub together
{
	my ($node) = @_;
	my ($holder, $s, $control) = map { session($node) } 1 .. 3;
	my $from = -s $node->logfile;

	# A wait gives up its snapshot although other extensions hook into the executor, and can be cancelled.
	my $x = $holder->query(q{SELECT acquire_lock('x', '1 h')});
	$s->async(q{SELECT acquire_lock('x', '1 h')});
	waiting($s);
	is($control->query('SELECT backend_xmin IS NULL FROM pg_stat_activity WHERE pid = ' . $s->pid), 't', 'a waiting statement gives up its snapshot');
	$control->query('SELECT pg_cancel_backend(' . $s->pid . ')');
	$s->wait;
	like($s->error, qr/ERROR:  57014: canceling statement due to user request/, 'a waiting statement is cancelled');
	$s->async(q{SELECT acquire_lock('x', '1 h') FROM pg_class LIMIT 1});
	waiting($s);
	is($control->query('SELECT backend_xmin IS NULL FROM pg_stat_activity WHERE pid = ' . $s->pid), 'f', 'a waiting statement that reads a table keeps its snapshot');
	$holder->query("SELECT release_lock('x', $x)");
	my $token = $s->wait;
	like($token, qr/^\d+$/, 'a waiting statement that reads a table is granted the lock');

	# A release in a transaction, and a release outside of one.
	is($s->query("BEGIN; SELECT release_lock('x', $token)"), 't', 'release_lock() in a transaction returns true');
	is($control->query(q{SELECT try_acquire_lock('x') IS NULL}), 't', 'the lock is still held before the commit');
	$s->query('COMMIT');
	is($control->query(q{SELECT release_lock('x', try_acquire_lock('x'))}), 't', 'the lock is free after the commit');
	is($s->query(q{BEGIN; SELECT acquire_lock('undone') IS NOT NULL; ROLLBACK}), 't', 'an acquire in a transaction that is rolled back returns a token');
	$token = $s->query(q{SELECT acquire_lock('y')});
	is($s->query("SELECT release_lock('y', $token)"), 't', 'a release outside of a transaction returns true');
	is($control->query(q{SELECT try_acquire_lock('y') IS NOT NULL AND release_lock('y')}), 't', 'the lock is free immediately after that release');

	# A lock that is bound to the connection.
	$s->query(q{SELECT acquire_lock('bound', ttl => NULL)});
	is($s->query('DISCARD ALL') . $s->error, '', 'DISCARD ALL');
	is($control->query(q{SELECT release_lock('bound', try_acquire_lock('bound'))}), 't', 'DISCARD ALL releases a lock that is bound to the connection');
	nothing_left($node);

	# The other extensions have processed the statements.
	my $log = slurp_file($node->logfile, $from);
	my %seen = (auto_explain => qr/duration: .* plan:\s+Query Text: SELECT acquire_lock\('x'/, pgaudit => qr/AUDIT: SESSION,\d+,\d+,\w+,SELECT.*acquire_lock/);
	like($log, $seen{$_}, "$_ has logged the statement") foreach grep { $seen{$_} } @others;
	cmp_ok($control->query(q{SELECT sum(calls) FROM pg_stat_statements WHERE query LIKE 'SELECT acquire_lock(%'}), '>', 3, 'pg_stat_statements has counted the statement')
	  if grep { $_ eq 'pg_stat_statements' } @others;

	# The extension and databases are dropped while a session waits, or while a manager runs.
	$holder->query(q{SELECT acquire_lock('z', '1 h')});
	$s->async(q{SELECT acquire_lock('z', '1 h')});
	waiting($s);
	is($control->query('DROP EXTENSION lock_election') . ($control->error =~ /ERROR.*/ ? $& : ''), '', 'DROP EXTENSION');
	$s->wait;
	like($s->error, qr/ERROR:  55000: .*dropped/, 'DROP EXTENSION ends waits with an error');
	is($control->query('CREATE EXTENSION lock_election') . $control->error, '', 'CREATE EXTENSION');
	is($s->query(q{SELECT release_lock('z', acquire_lock('z'))}) . $s->error, 't', 'locks work after CREATE EXTENSION');
	$control->query('CREATE DATABASE other');
	$node->safe_psql('other', 'CREATE EXTENSION lock_election');
	is($node->safe_psql('other', q{SELECT acquire_lock('x', '1 h') IS NOT NULL}), 't', 'a lock is acquired in another database');
	is($control->query('CREATE DATABASE copy TEMPLATE other') . $control->error, '', 'a database with a running manager is copied');
	is($control->query('DROP DATABASE other; DROP DATABASE copy') . $control->error, '', 'databases are dropped while their manager runs');
	$_->quit foreach $holder, $s, $control;
	return;
}

my $cron = -e "$libdir/pg_cron.so";
my $with_jobs;
foreach my $order (sort keys %orders)
{
	my $jobs = $order eq 'before' && $cron;
	my $node = new_node($order, conf => preload($order) . ($jobs ? "shared_preload_libraries = 'pg_cron," . join(',', @{ $orders{$order} }) . "'\ncron.use_background_workers = on\n" : ''), extension => 0);

	$node->safe_psql('postgres', "CREATE EXTENSION $_") foreach grep { $_ ne 'auto_explain' } @others;
	$node->safe_psql('postgres', 'CREATE EXTENSION lock_election');
	subtest "others come $order" => sub { together($node); };
	if ($jobs) { schedule($node); $with_jobs = $node; }
	else { $node->stop; }
}

# --- the tests of the core with the other extensions ---

# Each test runs in one order; with SOAK, in both orders.
my $n = 0;
foreach my $test (@core)
{
	foreach my $order (defined $ENV{LE_BUDGET} ? (sort keys %orders)[ $n++ % 2 ] : sort keys %orders)
	{
		my $dir = PostgreSQL::Test::Utils::tempdir();
		my ($out, $err) = ('', '');
		local %ENV = (%ENV, LE_CONF => preload($order), TESTDIR => $dir, TESTDATADIR => "$dir/tmp_check", TESTLOGDIR => "$dir/tmp_check/log");

		delete $ENV{LE_STDERR};
		ok(IPC::Run::run([ $^X, "test/t/$test.t" ], '>', \$out, '2>', \$err), "$test: others come $order") or diag(join "\n", grep { /^ *(?:not ok|#)/ } split /\n/, "$out$err");
	}
}
if ($with_jobs)
{
	check_jobs($with_jobs);
	nothing_left($with_jobs);
	$with_jobs->stop;
}
done_testing();
