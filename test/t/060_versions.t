# Eight clients that increment one counter lose no update, at any isolation level; without versions they lose some. Keys
# are data: a dump contains them, and a standby can read them.
# Promises: -
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $clients = 8;
my $each = 100;
my $node = new_node('main', init => [ allows_streaming => 1 ], conf => "autovacuum = off\n");
my $dir = PostgreSQL::Test::Utils::tempdir();

# Each client runs the script until it has succeeded $each times; error 40001 is retried.
sub increment
{
	my ($name, $level, $script) = @_;
	my $file = "$dir/$name.sql";

	append_to_file($file, $script) unless -e $file;
	local $ENV{PGOPTIONS} = "-c default_transaction_isolation=" . $level =~ s/ /\\ /r;
	my ($out, $err) = run_command([
		'pgbench', '-n', '-c', $clients, '-j', 2, '-t', $each, '--max-tries=1000000', '-f', $file, $node->connstr('postgres') ]);
	like($out, qr/actually processed: @{[ $clients * $each ]}\//, "$name, $level: all increments succeed") or diag($out, $err);
	return;
}

one(q{
CREATE FUNCTION lost() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'lost' USING ERRCODE = '40001'; END $$;
CREATE TABLE guarded (n int, version bigint NOT NULL DEFAULT 1);
CREATE TRIGGER guard BEFORE UPDATE ON guarded FOR EACH ROW EXECUTE FUNCTION version_guard();
INSERT INTO guarded VALUES (0);
CREATE TABLE bare (n int);
INSERT INTO bare VALUES (0);
SELECT compare_and_set('counter', 0, '0');
});

my $done = 0;
foreach my $level ('read committed', 'repeatable read', 'serializable')
{
	$done += $clients * $each;
	increment('compare_and_set', $level, <<'SQL');
BEGIN;
SELECT value AS n, version FROM read_versioned('counter') \gset
SELECT coalesce(compare_and_set('counter', :version, (:n + 1)::text), lost());
COMMIT;
SQL
	is(one(q{SELECT value, version FROM read_versioned('counter')}), "$done|@{[ $done + 1 ]}", "compare_and_set, $level: no increment is lost");
	increment('version_guard', $level, <<'SQL');
BEGIN;
SELECT n, version FROM guarded \gset
UPDATE guarded SET n = :n + 1, version = :version;
COMMIT;
SQL
	is(one('SELECT * FROM guarded'), "$done|@{[ $done + 1 ]}", "version_guard, $level: no increment is lost");
}

# The same without versions. If no increment were lost here, the test above would have had no conflicts either.
increment('bare', 'read committed', <<'SQL');
BEGIN;
SELECT n FROM bare \gset
UPDATE bare SET n = :n + 1;
COMMIT;
SQL
cmp_ok(one('SELECT n FROM bare'), '<', $clients * $each, 'without versions, increments are lost');

# Several sessions create the same key: one succeeds.
my @sessions = map { session($node) } 1 .. $clients;
foreach my $i (1 .. 20)
{
	$_->async("SELECT compare_and_set('new $i', 0, '$i')") foreach @sessions;
	is(join('', sort map { $_->wait } @sessions), '1', "key $i is created once");
}
$_->quit foreach @sessions;

# --- the extension is dropped and created again in one session ---

one('CREATE DATABASE fresh');
is($node->safe_psql('fresh', q{CREATE EXTENSION lock_election; SELECT compare_and_set('k', 0, 'x');
	DROP EXTENSION lock_election; CREATE EXTENSION lock_election; SELECT compare_and_set('k', 0, 'y');
	BEGIN; DROP EXTENSION lock_election; CREATE EXTENSION lock_election; SELECT compare_and_set('k', 0, 'z'); ROLLBACK;
	SELECT * FROM read_versioned('k')}), "1\n1\n1\ny|1", 'a session finds the new table after DROP and CREATE EXTENSION');

# --- dump and restore ---

my $file = "$dir/dump.sql";
one(q{CREATE ROLE keeper; CREATE ROLE stranger});
one(q{SET ROLE keeper; SELECT compare_and_set('kept', 0, 'x'); SELECT compare_and_set('kept', 1, 'y')});
$node->command_ok([ 'pg_dump', '-f', $file, '-d', $node->connstr('postgres') ], 'pg_dump succeeds');
one('CREATE DATABASE restored');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $file, '-d', $node->connstr('restored') ], 'the dump is restored');
is($node->safe_psql('restored', q{SET ROLE keeper; SELECT value, version FROM read_versioned('kept')}), 'y|2', 'a dump contains keys');
is($node->safe_psql('restored', q{SET ROLE keeper; SELECT compare_and_set('kept', 2, 'z')}), 3, 'a dump contains the versions of keys');
is($node->safe_psql('restored', q{SELECT version FROM read_versioned('counter')}), $done + 1, 'a dump contains the keys of other roles');

# A new role with the name of a dropped role is another role.
one(q{CREATE ROLE gone; SET ROLE gone; SELECT compare_and_set('of the gone one', 0, 'secret')});
one(q{DROP ROLE gone; CREATE ROLE gone});
like(error_of($node, q{SET ROLE gone; SELECT * FROM read_versioned('of the gone one')}), qr/42501/, 'a new role with the name of a dropped one cannot read its keys');
like(error_of($node, q{SET ROLE gone; SELECT compare_and_set('of the gone one', 1, 'x')}), qr/42501/, 'a new role with the name of a dropped one cannot set its keys');
is(one(q{SELECT value FROM read_versioned('of the gone one')}), 'secret', 'a superuser can read keys of a dropped role');

# The owner of a database that is not a superuser.
one(q{CREATE ROLE chief LOGIN; CREATE DATABASE owned OWNER chief});
$node->safe_psql('owned', q{CREATE EXTENSION lock_election; SELECT compare_and_set('kept', 0, 'y')});
$node->command_ok([ 'pg_dump', '-f', $file, '-U', 'chief', '-d', $node->connstr('owned') ], 'the owner of the database can dump it');
like(PostgreSQL::Test::Utils::slurp_file($file), qr/COPY _lock_election\.versioned.*\bkept\ty/s, 'the dump of the owner contains the keys');
$node->psql('owned', q{SET ROLE chief; DELETE FROM _lock_election.versioned}, stderr => \my $denied);
like($denied, qr/permission denied/, 'the owner of the database cannot write the table of keys');
my ($out, $err) = ('', '');
$node->psql('restored', q{SET ROLE stranger; SELECT compare_and_set('kept', 3, 'z')}, stdout => \$out, stderr => \$err);
like($err, qr/permission denied to write key "kept"/, 'restored keys keep their owners');

# --- a standby ---

$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
one(q{SELECT compare_and_set('counter', version, 'replayed') FROM read_versioned('counter')});
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is($standby->safe_psql('postgres', q{SELECT value FROM read_versioned('counter')}), 'replayed', 'a standby reads keys');
like(error_of($standby, q{SELECT compare_and_set('counter', 1, 'x')}), qr/ERROR:  25006: cannot execute compare_and_set\(\) during recovery/, 'a standby does not write keys');
$standby->stop;

# --- without shared_preload_libraries ---

$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
is(one(q{SELECT compare_and_set('counter', version, 'still') IS NOT NULL FROM read_versioned('counter')}), 't', 'not preloaded: compare_and_set() works');
is(one('UPDATE guarded SET n = 0, version = version; SELECT n FROM guarded'), 0, 'not preloaded: version_guard() allows an update with the current version');
like(error_of($node, 'UPDATE guarded SET n = 0, version = 1'), qr/ERROR:  40001: /, 'not preloaded: version_guard() rejects an update with an old version');
$node->stop;
done_testing();
