# Other extensions in shared_preload_libraries, before and after lock_election: hooks are chained in either order. The
# tests of the core run again, in a process each, next to the other extensions; further checks are here.
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

plan skip_all => 'there is no other extension here' if !@others;
diag("not installed: $_") foreach grep { my $name = $_; !grep { $_ eq $name } @others } qw(pg_stat_statements auto_explain pgaudit);

# All that they do, for each statement and those within it.
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

# --- what they and we do together ---

# Jobs of pg_cron, in background workers; they begin with the next minute, and are looked at in the end.
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

	ok(wait_for_sql($node, $done, 'alone succeeded, bound succeeded, released succeeded', timeout => 150), 'jobs of pg_cron call our functions');
	# The jobs may run at this moment, at the beginning of a minute.
	ok(wait_for_sql($node, q{SELECT string_agg(name, ',') FROM lock_election.locks WHERE mode IS NOT NULL}, 'cron job'), 'and leave what they are to leave');
	is($node->safe_psql('postgres', q{SELECT token IS NOT NULL FROM ran ORDER BY token LIMIT 1}), 't', 'with the token');
	$node->safe_psql('postgres', q{SELECT cron.unschedule(jobid) FROM cron.job; SELECT force_release_lock('cron job')});
	return;
}

sub together
{
	my ($node) = @_;
	my ($holder, $s, $control) = map { session($node) } 1 .. 3;
	my $from = -s $node->logfile;

	# a wait gives up its snapshot, whatever they have wrapped around the executor; and is cancelled
	my $x = $holder->query(q{SELECT acquire_lock('x', '1 h')});
	$s->async(q{SELECT acquire_lock('x', '1 h')});
	waiting($s);
	is($control->query('SELECT backend_xmin IS NULL FROM pg_stat_activity WHERE pid = ' . $s->pid), 't', 'a wait gives its snapshot up');
	$control->query('SELECT pg_cancel_backend(' . $s->pid . ')');
	$s->wait;
	like($s->error, qr/ERROR:  57014: canceling statement due to user request/, 'a cancel');
	$s->async(q{SELECT acquire_lock('x', '1 h') FROM pg_class LIMIT 1});
	waiting($s);
	is($control->query('SELECT backend_xmin IS NULL FROM pg_stat_activity WHERE pid = ' . $s->pid), 'f', 'one that reads a table keeps it');
	$holder->query("SELECT release_lock('x', $x)");
	my $token = $s->wait;
	like($token, qr/^\d+$/, 'and is granted');

	# a release in a transaction; one that is alone
	is($s->query("BEGIN; SELECT release_lock('x', $token)"), 't', 'a release in a transaction');
	is($control->query(q{SELECT try_acquire_lock('x') IS NULL}), 't', 'is none before the commit');
	$s->query('COMMIT');
	is($control->query(q{SELECT release_lock('x', try_acquire_lock('x'))}), 't', 'and is one after it');
	is($s->query(q{BEGIN; SELECT acquire_lock('undone') IS NOT NULL; ROLLBACK}), 't', 'an acquire that is rolled back');
	$token = $s->query(q{SELECT acquire_lock('y')});
	is($s->query("SELECT release_lock('y', $token)"), 't', 'a release at once');
	is($control->query(q{SELECT try_acquire_lock('y') IS NOT NULL AND release_lock('y')}), 't', 'it is free');

	# the session's
	$s->query(q{SELECT acquire_lock('bound', ttl => NULL)});
	is($s->query('DISCARD ALL') . $s->error, '', 'DISCARD ALL');
	is($control->query(q{SELECT release_lock('bound', try_acquire_lock('bound'))}), 't', 'ends what was bound to it');
	nothing_left($node);

	# they have seen all of it
	my $log = slurp_file($node->logfile, $from);
	my %seen = (auto_explain => qr/duration: .* plan:\s+Query Text: SELECT acquire_lock\('x'/, pgaudit => qr/AUDIT: SESSION,\d+,\d+,\w+,SELECT.*acquire_lock/);
	like($log, $seen{$_}, "$_ has seen it") foreach grep { $seen{$_} } @others;
	cmp_ok($control->query(q{SELECT sum(calls) FROM pg_stat_statements WHERE query LIKE 'SELECT acquire_lock(%'}), '>', 3, 'pg_stat_statements has counted it')
	  if grep { $_ eq 'pg_stat_statements' } @others;

	# the extension and databases go while somebody waits, or a manager runs
	$holder->query(q{SELECT acquire_lock('z', '1 h')});
	$s->async(q{SELECT acquire_lock('z', '1 h')});
	waiting($s);
	is($control->query('DROP EXTENSION lock_election') . ($control->error =~ /ERROR.*/ ? $& : ''), '', 'DROP EXTENSION');
	$s->wait;
	like($s->error, qr/ERROR:  55000: .*dropped/, 'ends waits');
	is($control->query('CREATE EXTENSION lock_election') . $control->error, '', 'CREATE EXTENSION');
	is($s->query(q{SELECT release_lock('z', acquire_lock('z'))}) . $s->error, 't', 'and all works');
	$control->query('CREATE DATABASE other');
	$node->safe_psql('other', 'CREATE EXTENSION lock_election');
	is($node->safe_psql('other', q{SELECT acquire_lock('x', '1 h') IS NOT NULL}), 't', 'another database');
	is($control->query('CREATE DATABASE copy TEMPLATE other') . $control->error, '', 'is copied');
	is($control->query('DROP DATABASE other; DROP DATABASE copy') . $control->error, '', 'and dropped, while its manager runs');
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

# --- the tests of the core beside them ---

# Each in one order; with SOAK all in both.
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
