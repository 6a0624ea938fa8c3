# Dead rows of the portable edition: renewals are HOT updates, and rows of released locks are reused, so that the tables
# do not grow with the number of calls.
# Promises: G
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', extension => 0, conf => "shared_preload_libraries = ''\nautovacuum_naptime = 1s\n");
my $db = 'app';
my $dir = PostgreSQL::Test::Utils::tempdir();

one('CREATE DATABASE app');
system_or_bail('psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-1', '-o', '/dev/null', '-d', $node->connstr($db), '-f', 'sql/portable/lock_election.sql');

sub pgbench
{
	my ($transactions, $script, $what) = @_;

	open(my $out, '>', "$dir/script.sql") or die $!;
	print $out $script;
	close($out);
	$node->command_ok([ 'pgbench', '-n', '-M', 'prepared', '-c', '4', '-t', $transactions, '-f', "$dir/script.sql", $db ], $what);
	return;
}

# Returns the share of HOT updates, after waiting until the statistics contain all updates.
sub hot
{
	my ($table, $count) = @_;

	wait_for_sql($node, "SELECT n_tup_upd >= $count FROM pg_stat_user_tables WHERE relname = '$table'", 't', dbname => $db);
	return one($node, "SELECT n_tup_hot_upd::float8 / n_tup_upd FROM pg_stat_user_tables WHERE relname = '$table'", $db);
}

subtest 'renewals' => sub {
	pgbench(1, q{SELECT grant_lease('10 min'), acquire_lock('own' || :client_id, '10 min');}, 'four leases and four locks are created');
	pgbench(2000, <<'SQL', '8000 renewals of leases and of locks');
\set n random(1, 4)
SELECT keep_alive(id) FROM _lock_election.lease ORDER BY id OFFSET :n - 1 LIMIT 1;
SELECT renew_lock(name, token) FROM _lock_election.hold ORDER BY name OFFSET :n - 1 LIMIT 1;
SQL
	cmp_ok(hot('lease', 8000), '>', 0.9, 'most renewals of leases are HOT updates');
	cmp_ok(hot('hold', 8000), '>', 0.9, 'most renewals of locks are HOT updates');
};

subtest 'pairs of acquire and release' => sub {
	my $pair = <<'SQL';
\set n random(1, 1000000)
SELECT acquire_lock('k' || :n) AS token \gset
SELECT release_lock('k' || :n, :token);
SQL
	my @sizes;
	foreach my $round (1 .. 4)
	{
		pgbench(1000, $pair, 'locks are acquired and released');
		wait_for_sql($node, q{SELECT n_tup_ins >= } . 4000 * $round . q{ AND n_dead_tup < 400 FROM pg_stat_user_tables WHERE relname = 'hold'}, 't', dbname => $db);
		push @sizes, one($node, q{SELECT pg_total_relation_size('_lock_election.hold')}, $db);
	}
	# 16,000 rows with their index entries would need about 4 MB. On a busy machine, autovacuum may not run before the 4,000
	# rows of a round are dead.
	cmp_ok($sizes[3], '<', 2_500_000, "the table does not grow with the number of pairs: @sizes bytes");
};

done_testing();
