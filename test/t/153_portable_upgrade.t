# Upgrades of the portable edition: an older version with data is replaced in one transaction, next to sessions that
# hold, wait and acquire; a newer version is kept; two upgrades at once; an upgrade that is killed; and a repeated
# installation, which neither waits for sessions nor blocks them.
# Promises: M, T, D
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', extension => 0, conf => "shared_preload_libraries = ''\nlog_statement = none\n");
my $db = 'app';
my $text = slurp_file('sql/portable/lock_election.sql');
my ($version) = $text =~ /set_config\('_lock_election\.installing', '(\d+)', true\)/;
my $dir = PostgreSQL::Test::Utils::tempdir();

one('CREATE ROLE installer LOGIN; CREATE ROLE app LOGIN');
one('CREATE DATABASE app OWNER installer; ALTER DATABASE app SET search_path = locks, public');

# Creates the file of another version: with this number, a function that returns another value, and these statements
# at its end.
sub version_of
{
	my ($number, $end) = @_;
	my $other = $text =~ s/(set_config\('_lock_election\.installing', )'\d+'/$1'$number'/r =~ s/(portable edition of lock_election, version )\d+/$1$number/r;

	$other =~ s/(CREATE OR REPLACE FUNCTION _lock_election\.word\(k int2\).*?ELSE )'election'/$1'old'/s or die if $number < $version;
	append_to_file("$dir/$number.sql", $other . ($end // ''));
	return "$dir/$number.sql";
}

sub start_install
{
	my ($file, $application) = @_;
	my %run = (out => '', err => '');

	local $ENV{PGOPTIONS} = '-c _lock_election.schema=locks';
	local $ENV{PGAPPNAME} = $application // 'install';
	$run{run} = IPC::Run::start([ 'psql', '-XAtq', '-1', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($db) . ' user=installer', '-f', $file ], '>', \$run{out}, '2>', \$run{err});
	return \%run;
}

sub finish { my ($run) = @_; $run->{run}->finish; return $run->{out} . $run->{err}; }
sub install { return finish(start_install(@_)); }
sub as { my ($role) = @_; return session($node, dbname => $db, user => $role); }
sub installed { return one($node, q{SELECT version || ' ' || _lock_election.word(2::int2) || ' ' || substring(obj_description('_lock_election'::regnamespace) from 'version \d+') FROM _lock_election.edition}, $db); }

my $older = version_of($version - 1);

is(install($older), '', 'an older version is installed');
is(installed(), ($version - 1) . ' old version ' . ($version - 1), 'the older version is active');

# The state before the upgrade to the newer version.
my ($holder, $waiter, $idle) = map { as('app') } 1 .. 3;
my $lease = $holder->query(q{SELECT grant_lease('1 h')});
my $held = $holder->query("SELECT acquire_lock('held', lease => $lease)");
my $own = $holder->query(q{SELECT acquire_lock('own', '1 h')});
my $term = $holder->query(q{SELECT campaign('e', 'me', '1 h')});
my $place = $waiter->query(q{SELECT token FROM enqueue_lock('held', '1 h')});
my $life = one($node, 'SELECT life FROM _lock_election.life', $db);
$holder->query(q{SELECT compare_and_set('key', 0, 'value')});

# a transaction that is idle after an enqueue, and a blocked call
$idle->query(q{BEGIN; SELECT enqueue_lock('idle', '1 h')});
$waiter->async("SELECT await_lock('held', $place, '10 min')");
wait_for_sql($node, 'SELECT count(*) FROM pg_stat_activity WHERE wait_event = \'PgSleep\' AND pid = ' . $waiter->pid, '1');

# Sessions that acquire, renew, read and release in a loop, until table "stop" is dropped.
one($node, 'CREATE TABLE public.stop (); GRANT SELECT ON public.stop TO app', $db);
append_to_file("$dir/load.sql", <<'SQL');
\set n random(1, 20)
SELECT coalesce(try_acquire_lock('l' || :n, '1 min'), 0) AS t \gset
\if :t
SELECT 1 / (renew_lock('l' || :n, :t) IS NOT NULL)::int, 1 / release_lock('l' || :n, :t)::int;
\endif
SELECT keep_alive(:lease);
SELECT count(*) FROM lock_election.locks;
SELECT 1 / (to_regclass('public.stop') IS NOT NULL)::int;
SQL
my ($load_out, $load_err) = ('', '');
my $load = IPC::Run::start([ 'pgbench', '-n', '-c', '4', '-j', '1', '-T', '600', '-D', "lease=$lease", '-U', 'app', '-f', "$dir/load.sql", $node->connstr($db) ],
	'>', \$load_out, '2>', \$load_err);
wait_for_sql($node, q{SELECT count(*) > 0 FROM _lock_election.token WHERE last_value > } . ($term + 200), 't', dbname => $db);

subtest 'an upgrade is killed' => sub {
	# The upgrade blocks after its last statement, when everything is changed and nothing is committed.
	my $blocker = session($node, dbname => $db);
	$blocker->query('SELECT pg_advisory_lock(68)');
	my $run = start_install(version_of($version + 1, "\nSELECT pg_advisory_lock(68);\n"), 'killed');
	wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'killed' AND wait_event = 'advisory'}, '1');
	is($holder->query("SELECT is_held('held', $held), keep_alive($lease) IS NOT NULL"), 't|t', 'during the upgrade, locks are held and renewed');
	my $token = $holder->query(q{SELECT try_acquire_lock('meanwhile')});
	is($holder->query("SELECT release_lock('meanwhile', $token)"), 't',
		'during the upgrade, locks are acquired and released');
	one(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'killed'});
	like(finish($run), qr/terminating connection/, 'the upgrade is killed');
	is(installed(), ($version - 1) . ' old version ' . ($version - 1), 'the older version is active after the kill');
	$blocker->quit;
};

subtest 'two upgrades at the same time' => sub {
	my @runs = map { start_install('sql/portable/lock_election.sql') } 1 .. 2;

	is(finish($_), '', 'an upgrade has no errors') foreach @runs;
	is(installed(), "$version election version $version", 'the new version is active: numbers and functions are new');
	is(one($node, 'SELECT count(*) FROM _lock_election.edition', $db), '1', 'the edition has one row');
};

subtest 'the state after the upgrade' => sub {
	is($holder->query("SELECT is_held('held', $held), is_held('own', $own), is_leader('e', $term), keep_alive($lease) IS NOT NULL"), 't|t|t|t', 'locks and leadership are held, and the lease is renewed');
	is($holder->query(q{SELECT version, value FROM read_versioned('key')}), '1|value', 'versioned values are kept');
	is(one($node, 'SELECT life FROM _lock_election.life', $db), $life, 'the upgrade does not start a new life');
	ok(!$waiter->ready, 'a blocked call still waits');
	is($holder->query("SELECT release_lock('held', $held)") . $waiter->wait . $waiter->error, 'tt', 'the blocked call is granted the lock');
	$idle->query('COMMIT');
	is($idle->error, '', 'a transaction that has called the older functions is committed');
	is($holder->query(q{SELECT queue_position FROM lock_election.waiters WHERE name = 'idle'}) . $holder->query(q{SELECT count(*) FROM lock_election.locks WHERE name = 'idle'}), '1', 'the place of the committed transaction is granted');
};

subtest 'clients during the upgrade' => sub {
	one($node, 'DROP TABLE public.stop', $db);
	$load->finish;
	my @errors = grep { !/division by zero/ } $load_err =~ /(?:ERROR|FATAL): .*/g;
	is(join("\n", @errors), '', 'no errors except the one that ends the clients') or diag($load_err);
	is(scalar(() = $load_err =~ /division by zero/g), 4, 'all four clients ran until the end');
};

subtest 'a newer version' => sub {
	is(install(version_of($version + 2)), '', 'a newer version is installed');
	like(install('sql/portable/lock_election.sql'), qr/version @{[$version + 2]} of the portable edition is installed, and this is version $version.*newer release/s, 'an older version does not replace a newer one');
	like(installed(), qr/^@{[$version + 2]} /, 'the newer version is still active');
	one($node, "UPDATE _lock_election.edition SET version = $version", $db);
};

# An idle transaction does not block a repeated installation of the same version, which blocks no other session
# either.
subtest 'the same version, next to an idle transaction' => sub {
	$idle->query(q{BEGIN; SELECT acquire_lock('still', '1 h')});
	is(install('sql/portable/lock_election.sql'), '', 'the same version is installed again');
	is($holder->query("SELECT keep_alive($lease) IS NOT NULL"), 't', 'renewals continue');
	$idle->query('COMMIT');
	is($idle->error, '', 'the idle transaction commits');
};

$_->quit foreach $holder, $waiter, $idle;
done_testing();
