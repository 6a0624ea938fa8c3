# The files of docs/monitoring for Prometheus and Grafana: Debian's prometheus and exporter, monitoring a server.
# Promises: -
# Needs: prometheus, prometheus-postgres-exporter
use strict;
use warnings;
use Cwd;
use JSON::PP ();
use LeTest;
use LeWatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $src = getcwd();
my $folder = "$src/docs/monitoring";
my %metrics = metrics_of(slurp_file("$folder/metrics"));
my $alerts = slurp_file("$folder/alerts.yaml");
my $queries = slurp_file("$folder/queries.yaml");
my $board = JSON::PP::decode_json(slurp_file("$folder/dashboard.json"));
my @expressions = map { map { $_->{expr} } @{ $_->{targets} } } @{ $board->{panels} };

# --- what is generated ---

my ($out, $err);
ok(IPC::Run::run([ "$folder/generate", '--check' ], '>', \$out, '2>', \$err), 'the generated files are up to date') or diag($err);
my $copy = PostgreSQL::Test::Utils::tempdir();
system_or_bail('cp', '-r', $folder, $copy);
append_to_file("$copy/monitoring/metrics", "gauge more: 1\n\tAnother one.\n");
ok(!IPC::Run::run([ "$copy/monitoring/generate", '--check' ], '>', \$out, '2>', \$err), 'after a change of the list, generate --check fails');
is(join(' ', sort $err =~ /^(\S+) is not up to date/mg), 'dashboard.json queries.yaml',
	'generate --check names both files');
system_or_bail("$copy/monitoring/generate");
ok(IPC::Run::run([ "$copy/monitoring/generate", '--check' ]), 'generate --check passes after generate');

# A rule on an unknown metric never fires.
my %known = map { $_ => 1 } map { $metrics{$_} eq 'histogram' ? ("${_}_bucket", "${_}_sum", "${_}_count") : $_ } keys %metrics;
is(join(' ', grep { !$known{$_} } $alerts =~ /(?<!: )\b(lock_election_\w+)/g), 'lock_election_hold_seconds', 'the rules use only metrics of the list; a text names one other');
cmp_ok(scalar(keys %metrics), '>', 30, 'there are metrics');
my @titles = $alerts =~ /alert: (\w+)/g;
my $cases = slurp_file("$src/test/watching/alerts.yaml");
is(join(' ', grep { $cases !~ /alertname="$_"/ } @titles), '', 'the test cases of promtool include each alert');
my $what_to_do = slurp_file("$src/docs/operation/watching.md") =~ s/.*^## The alerts\n//msr;
is(join(' ', grep { $what_to_do !~ /^\|[^|]*`$_`/m } @titles), '', 'the documentation has a line for each alert');

# --- a server ---

my $node = new_node('main', init => [ allows_streaming => 1 ]);
$node->safe_psql('postgres', "SELECT release_lock('a', acquire_lock('a'));\n" x 20 . q{SELECT campaign('leader', 'me')});

# --- the queries also work on a standby, where nothing is granted ---

$node->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'copy', has_streaming => 1);
$standby->start;
my ($query) = $queries =~ /^lock_election:\n  query: \|\n((?:    .*\n)+)/m;
is($standby->safe_psql('postgres', "SELECT healthy, up, standby, coalesce(acquires_total, 0) FROM ($query) q"), '0|0|1|0', 'the query on a standby');
is($node->safe_psql('postgres', "SELECT healthy, up, standby, acquires_total FROM ($query) q"), '1|1|0|21', 'the query on the primary');

SKIP:
{
	skip 'prometheus or prometheus-postgres-exporter is not installed', 1 unless can_watch();

	# --- the rules ---

	foreach my $command ([ 'check', 'rules', "$folder/alerts.yaml" ], [ 'test', 'rules', "$src/test/watching/alerts.yaml" ])
	{
		ok(IPC::Run::run([ 'promtool', @$command ], '>&', \$out), "promtool @$command[0, 1]") or diag($out);
	}

	# --- what the exporter makes of the queries ---

	my @exporters = map { start_exporter($_, "$folder/queries.yaml", 'postgres') } $node, $standby;
	my %samples = scrape($exporters[0]);
	my @missing = grep { !$samples{ $metrics{$_} eq 'histogram' ? "${_}_bucket" : $_ } } sort keys %metrics;
	is(join(' ', @missing), '', 'the exporter has every metric of the list');
	is(join(' ', grep { !$known{$_} } sort grep { /^lock_election/ } keys %samples), '',
		'the exporter has no other metric');
	is(join(' ', map { $_->{labels}{datname} } @{ $samples{lock_election_up} }), 'postgres',
		'a sample has its database as a label');
	is_deeply([ map { $_->{labels}{le} } @{ $samples{lock_election_hold_seconds_bucket} } ],
		[ split /\n/, $node->safe_psql('postgres', q{SELECT CASE le WHEN 'Infinity' THEN '+Inf' WHEN 0.0001 THEN '0.0001' WHEN 0.0003 THEN '0.0003'
				ELSE le::text END FROM lock_election.histogram WHERE name = 'hold' ORDER BY histogram.le}) ], 'a histogram with its bounds');
	is($samples{lock_election_hold_seconds_bucket}[-1]{value}, $samples{lock_election_hold_seconds_count}[0]{value}, 'the last bucket of the histogram contains all samples');
	is($samples{lock_election_hold_seconds_count}[0]{value}, 20, 'the histogram has 20 samples');
	is($samples{lock_election_leader_changes_total}[0]{value}, 1, 'the counter of leader changes');

	# Several databases, and the exporter's own metrics: with the options of docs/operation/watching.md.
	$node->safe_psql('postgres', 'CREATE DATABASE app');
	$node->safe_psql('app', 'CREATE EXTENSION lock_election');
	my ($options) = slurp_file("$src/docs/operation/watching.md") =~ /^ +ARGS='\S+ (--auto-discover-databases .*)'$/m or die 'no options';
	my %several = scrape(start_exporter($node, "$folder/queries.yaml", 'app', split / /, $options =~ s/other/postgres/r));
	is(join(' ', sort map { "$_->{labels}{datname}=$_->{value}" } @{ $several{lock_election_healthy} }), 'app=1 postgres=1', 'the exporter has samples of several databases');
	ok($several{pg_stat_bgwriter_buffers_alloc_total} || $several{pg_stat_bgwriter_buffers_alloc}, "the exporter's own metrics");

	# --- a holder hangs, and an alert fires: here after 3 s, because a minute is too long for a test ---

	my $dir = PostgreSQL::Test::Utils::tempdir();
	$alerts =~ s/(oldest_wait_seconds >) 60$/$1 3/m or die 'no threshold';
	$alerts =~ s/^( +)(expr: lock_election_healthy == 0 .*)\n +for: 30s$/$1$2\n$1for: 1s/m or die 'no rule';
	append_to_file("$dir/alerts.yaml", $alerts);
	my $prometheus = start_prometheus("$dir/alerts.yaml", @exporters);
	my $firing = sub { return join ' ', sort map { "$_->{metric}{alertname}@" . $_->{metric}{instance} } ask_prometheus($prometheus, 'ALERTS{alertstate="firing"}') };

	# Started after all servers, which would otherwise keep the pipes of the sessions open.
	my $holder = session($node);
	my $waiter = session($node);

	ok(wait_until(sub { ask_prometheus($prometheus, 'lock_election_up') == 2 }), 'Prometheus has both servers');
	is($firing->(), '', 'no alert fires before the holder hangs');
	my $token = $holder->query(q{SELECT acquire_lock('hung', ttl => '1 h')});
	$waiter->async(q{SELECT acquire_lock('hung')});
	ok(wait_until(sub { $firing->() ne '' }), 'an alert fires when a holder hangs');
	is($firing->(), "LockElectionHungHolder\@$exporters[0]", 'only LockElectionHungHolder fires');

	# Each expression of the dashboard is valid, and returns at least one series.
	foreach my $expression (@expressions)
	{
		my $now = $expression =~ s/"\$(?:instance|datname)"/".*"/gr =~ s/\$__rate_interval/20s/gr;
		my @curves = eval { ask_prometheus($prometheus, $now) };

		cmp_ok(scalar(@curves), '>', 0, "the dashboard: $expression") or diag($@);
	}
	$holder->query("SELECT release_lock('hung', $token)");
	like($waiter->wait, qr/^\d+$/, 'the waiter is granted after the release');
	ok(wait_until(sub { $firing->() eq '' }), 'no alert fires after the release');
	my ($quantile) = ask_prometheus($prometheus, 'histogram_quantile(0.99, lock_election_wait_seconds_bucket)');
	cmp_ok($quantile->{value}[1], '>', 3, 'the wait is in the histogram');

	# --- the manager hangs: its counters do not change, and only health() reports it ---

	my $manager = $node->safe_psql('postgres', 'SELECT pid FROM lock_election.manager');
	kill 'STOP', $manager;
	$waiter->async(q{SELECT acquire_lock('unanswered') IS NOT NULL});
	ok(wait_until(sub { $firing->() ne '' }), 'an alert fires when the manager hangs');
	is($firing->(), "LockElectionDown\@$exporters[0]", 'only LockElectionDown fires');
	my ($waited) = ask_prometheus($prometheus, 'lock_election_request_wait_seconds > 2');
	is($waited->{metric}{instance}, $exporters[0], 'the metric of the waiting request names the server');
	kill 'CONT', $manager;
	is($waiter->wait, 't', 'the request is granted when the manager continues');
	ok(wait_until(sub { $firing->() !~ /LockElectionDown/ }), 'LockElectionDown ends');
	stop_watching();
	$waiter->quit;
	$holder->quit;
}

done_testing();
