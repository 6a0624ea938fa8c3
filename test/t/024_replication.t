# Logical replication of all tables includes those of the extension. Locks are not replicated, and do not prevent the
# replication of other rows; versioned keys are replicated.
# Promises: -
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use LeTest;

my $node = new_node('logical', init => [ allows_streaming => 'logical' ], conf => "wal_retrieve_retry_interval = 200ms\nmax_worker_processes = 24\n");
my $next = 0;

# Something that comes after all that was written before.
sub replicated
{
	my ($name) = @_;

	$next++;
	$node->safe_psql('postgres', "INSERT INTO payload VALUES ($next)");
	return ok(wait_until(sub { $node->safe_psql('subscriber', "SELECT count(*) FROM payload WHERE id = $next") }), $name);
}

$node->safe_psql('postgres', 'CREATE TABLE payload (id integer PRIMARY KEY)');
$node->safe_psql('postgres', 'CREATE DATABASE subscriber');
$node->safe_psql('subscriber', 'CREATE TABLE payload (id integer PRIMARY KEY)');
$node->safe_psql('subscriber', 'CREATE EXTENSION lock_election');
my $theirs = $node->safe_psql('subscriber', q{SELECT acquire_lock('both', '1 h')});
my $lease = $node->safe_psql('postgres', q{SELECT grant_lease('1 h')});

# In one cluster the slot has to be there before.
$node->safe_psql('postgres', q{CREATE PUBLICATION everything FOR ALL TABLES});
$node->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('everything', 'pgoutput')});
$node->safe_psql('subscriber',
	'CREATE SUBSCRIPTION everything CONNECTION $$' . $node->connstr('postgres')
	  . q{$$ PUBLICATION everything WITH (create_slot = false, slot_name = 'everything')});
ok( wait_until(
		sub { $node->safe_psql('subscriber', q{SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'}) eq '0' }),
	'all tables are copied');

my $s = session($node);
my $token = $s->query(q{SELECT acquire_lock('both', '1 h')});
replicated('a lock');
$s->query(q{SELECT release_lock('both')});
$token = $s->query(q{SELECT acquire_lock('both', '1 h')});
replicated('a row that is used again');
$s->query("SELECT revoke_lease($lease); SELECT grant_lease('1 h'); SELECT release_lock('both')");
wait_for_sql($node, q{SELECT count(*) = 0 FROM _lock_election.slot});
replicated('rows that are deleted');
my $manager = $node->safe_psql('postgres', 'SELECT pid FROM lock_election.manager');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($manager)");
wait_for_sql($node, "SELECT pid <> $manager FROM lock_election.manager");
replicated('another manager');

# A change is looked for in the subscriber's table by the key: who holds very many locks is not slowed down by that.
{
	my $scans = sub { return $node->safe_psql('subscriber', "SELECT $_[0] FROM pg_stat_user_tables WHERE relid = '_lock_election.slot'::regclass"); };

	$node->safe_psql('subscriber', q{SELECT acquire_locks(array_agg('many ' || i), '1 h') FROM generate_series(1, 1000) i});
	my ($seq, $idx) = split /\|/, $scans->('seq_scan, idx_scan');
	$s->query(qq{SELECT release_lock('$_', acquire_lock('$_'))}) foreach 1 .. 100;
	replicated('many changes');
	ok(wait_until(sub { $scans->('idx_scan') >= $idx + 100 }, 60), 'each is looked for by the key');
	is($scans->('seq_scan'), $seq, 'not in the whole table');
	$node->safe_psql('subscriber', q{SELECT force_release_lock(name) FROM lock_election.locks WHERE name LIKE 'many %'});
}

# A queue place is inserted, changed by a second call in its transaction, and deleted.
$token = $s->query(q{SELECT acquire_lock('queue', '1 h')});
my $waiter = session($node);
my $on_lease = $waiter->query(q{SELECT grant_lease('1 h')});
my $place = $waiter->query("BEGIN; SELECT token FROM enqueue_lock('queue', lease => $on_lease)");
is($waiter->query("SELECT token FROM enqueue_lock('queue', lease => $on_lease)"), $place, 'the same place again');
is($node->safe_psql('postgres', 'SELECT holds FROM _lock_election.queue'), 2, 'which changes its row');
$waiter->query('COMMIT');
$waiter->query("SELECT release_lock('queue', $place); SELECT revoke_lease($on_lease)");
$s->query("SELECT release_lock('queue', $token)");
replicated('a queue place');

$s->query(q{SELECT compare_and_set('key', 0, 'a'); SELECT compare_and_set('key', 1, 'b')});
replicated('a key');
is($node->safe_psql('subscriber', q{SELECT * FROM read_versioned('key')}), 'b|2', 'which is data, and so the subscriber\'s as well');

is($node->safe_psql('subscriber', q{SELECT string_agg(name || ' ' || token, ',') FROM lock_election.locks}),
	"both $theirs", 'the subscriber has its own locks');
is($node->safe_psql('subscriber', 'SELECT count(*) FROM _lock_election.lease'), 0, 'and leases');
$node->safe_psql('subscriber', "SELECT release_lock('both', $theirs)");

$node->safe_psql('subscriber', 'ALTER SUBSCRIPTION everything DISABLE');
$node->safe_psql('subscriber', 'ALTER SUBSCRIPTION everything SET (slot_name = NONE)');
$node->safe_psql('subscriber', 'DROP SUBSCRIPTION everything');

sub subscribe
{
	my ($from, $to, $publication, %psql) = @_;

	$node->safe_psql($from, "SELECT pg_create_logical_replication_slot('$to', 'pgoutput')");
	return $node->psql($to, "CREATE SUBSCRIPTION \"$to\" CONNECTION \$\$" . $node->connstr($from)
		  . "\$\$ PUBLICATION $publication WITH (create_slot = false, slot_name = '$to')", %psql);
}

sub unsubscribe
{
	my ($name) = @_;

	$node->safe_psql($name, "ALTER SUBSCRIPTION \"$name\" $_") foreach 'DISABLE', 'SET (slot_name = NONE)';
	return $node->safe_psql($name, "DROP SUBSCRIPTION \"$name\"");
}

sub arrives
{
	my ($from, $to, $id, $seconds) = @_;

	$node->safe_psql($from, "INSERT INTO payload VALUES ($id)");
	return wait_until(sub { $node->safe_psql($to, "SELECT count(*) FROM payload WHERE id = $id") }, $seconds);
}

# The extension comes to the publisher alone: the guide says what to do before, and what helps afterwards.
subtest 'a subscriber without the extension' => sub {
	my $err;

	foreach my $db ('theirs', 'bare', 'late')
	{
		$node->safe_psql('postgres', "CREATE DATABASE $db");
		$node->safe_psql($db, 'CREATE TABLE payload (id integer PRIMARY KEY)');
	}
	$node->safe_psql('theirs', 'CREATE PUBLICATION everything FOR ALL TABLES; CREATE PUBLICATION app FOR TABLES IN SCHEMA public');
	subscribe('theirs', 'bare', 'everything');
	ok(arrives('theirs', 'bare', 1, 60), 'it follows');

	my $log = -s $node->logfile;
	$node->safe_psql('theirs', 'CREATE EXTENSION lock_election');
	my $theirs = $node->safe_psql('theirs', q{SELECT acquire_lock('theirs', '1 h')});
	$node->safe_psql('theirs', 'INSERT INTO payload VALUES (2)');
	ok(wait_until(sub { slurp_file($node->logfile, $log) =~ /target relation "_lock_election\.\w+" does not exist/ }), 'it stops at the first row of the extension');
	is($node->safe_psql('bare', 'SELECT count(*) FROM payload WHERE id = 2'), 0, 'and gets nothing that comes after');
	$node->safe_psql('bare', 'CREATE EXTENSION lock_election');
	ok(arrives('theirs', 'bare', 3, 60), 'with the extension it goes on');
	is($node->safe_psql('bare', 'SELECT count(*) FROM payload'), 3, 'and has missed nothing');
	$node->safe_psql('theirs', "SELECT release_lock('theirs', $theirs)");
	ok(arrives('theirs', 'bare', 4, 60), 'changes of rows that it never had are passed over');
	unsubscribe('bare');

	isnt(subscribe('theirs', 'late', 'everything', stderr => \$err), 0, 'a new subscription without the tables');
	like($err, qr/schema "_lock_election" does not exist/, 'is refused at once');
	$node->safe_psql('theirs', q{SELECT pg_drop_replication_slot('late')});

	# a publication that leaves them out
	is($node->safe_psql('theirs', q{SELECT string_agg(tablename, ',') FROM pg_publication_tables WHERE pubname = 'app'}), 'payload', 'the schemas of the application alone');
	subscribe('theirs', 'late', 'app');
	ok(arrives('theirs', 'late', 5, 60), 'the rest is replicated');
	$node->safe_psql('theirs', q{SELECT release_lock('theirs', acquire_lock('theirs', '1 h'))});
	ok(arrives('theirs', 'late', 6, 60), 'beside locks');
	unsubscribe('late');
};

done_testing();
