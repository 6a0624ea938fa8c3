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

# Inserts a row into payload, and checks that it arrives: then all earlier changes have been replicated.
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

# Within one cluster, the slot must be created before the subscription.
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
replicated('replication continues after a lock');
$s->query(q{SELECT release_lock('both')});
$token = $s->query(q{SELECT acquire_lock('both', '1 h')});
replicated('replication continues after a row is reused');
$s->query("SELECT revoke_lease($lease); SELECT grant_lease('1 h'); SELECT release_lock('both')");
wait_for_sql($node, q{SELECT count(*) = 0 FROM _lock_election.slot});
replicated('replication continues after rows are deleted');
my $manager = $node->safe_psql('postgres', 'SELECT pid FROM lock_election.manager');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($manager)");
wait_for_sql($node, "SELECT pid <> $manager FROM lock_election.manager");
replicated('replication continues after the manager is replaced');

# The subscriber finds changed rows by the index: a subscriber with many locks of its own is not slowed down.
{
	my $scans = sub { return $node->safe_psql('subscriber', "SELECT $_[0] FROM pg_stat_user_tables WHERE relid = '_lock_election.slot'::regclass"); };

	$node->safe_psql('subscriber', q{SELECT acquire_locks(array_agg('many ' || i), '1 h') FROM generate_series(1, 1000) i});
	my ($seq, $idx) = split /\|/, $scans->('seq_scan, idx_scan');
	$s->query(qq{SELECT release_lock('$_', acquire_lock('$_'))}) foreach 1 .. 100;
	replicated('replication continues after many changes');
	ok(wait_until(sub { $scans->('idx_scan') >= $idx + 100 }, 60), 'each change uses the index');
	is($scans->('seq_scan'), $seq, 'no change scans the whole table');
	$node->safe_psql('subscriber', q{SELECT force_release_lock(name) FROM lock_election.locks WHERE name LIKE 'many %'});
}

# A place is inserted, updated by a second call in its transaction, and deleted.
$token = $s->query(q{SELECT acquire_lock('queue', '1 h')});
my $waiter = session($node);
my $on_lease = $waiter->query(q{SELECT grant_lease('1 h')});
my $place = $waiter->query("BEGIN; SELECT token FROM enqueue_lock('queue', lease => $on_lease)");
is($waiter->query("SELECT token FROM enqueue_lock('queue', lease => $on_lease)"), $place,
	'the second call returns the same place');
is($node->safe_psql('postgres', 'SELECT holds FROM _lock_election.queue'), 2,
	'the second call updates the row of the place');
$waiter->query('COMMIT');
$waiter->query("SELECT release_lock('queue', $place); SELECT revoke_lease($on_lease)");
$s->query("SELECT release_lock('queue', $token)");
replicated('replication continues after changes of a place');

$s->query(q{SELECT compare_and_set('key', 0, 'a'); SELECT compare_and_set('key', 1, 'b')});
replicated('a versioned key is replicated');
is($node->safe_psql('subscriber', q{SELECT * FROM read_versioned('key')}), 'b|2', 'the subscriber can read the versioned key');

is($node->safe_psql('subscriber', q{SELECT string_agg(name || ' ' || token, ',') FROM lock_election.locks}),
	"both $theirs", 'the subscriber keeps its own locks');
is($node->safe_psql('subscriber', 'SELECT count(*) FROM _lock_election.lease'), 0,
	'the leases of the publisher are not replicated');
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

# Only the publisher gets the extension. The guide says what to do before that, and how to repair the subscription
# afterwards.
subtest 'a subscriber without the extension' => sub {
	my $err;

	foreach my $db ('theirs', 'bare', 'late')
	{
		$node->safe_psql('postgres', "CREATE DATABASE $db");
		$node->safe_psql($db, 'CREATE TABLE payload (id integer PRIMARY KEY)');
	}
	$node->safe_psql('theirs', 'CREATE PUBLICATION everything FOR ALL TABLES; CREATE PUBLICATION app FOR TABLES IN SCHEMA public');
	subscribe('theirs', 'bare', 'everything');
	ok(arrives('theirs', 'bare', 1, 60), 'the subscriber replicates the table before the extension exists');

	my $log = -s $node->logfile;
	$node->safe_psql('theirs', 'CREATE EXTENSION lock_election');
	my $theirs = $node->safe_psql('theirs', q{SELECT acquire_lock('theirs', '1 h')});
	$node->safe_psql('theirs', 'INSERT INTO payload VALUES (2)');
	ok(wait_until(sub { slurp_file($node->logfile, $log) =~ /target relation "_lock_election\.\w+" does not exist/ }), 'replication stops at the first row of the extension');
	is($node->safe_psql('bare', 'SELECT count(*) FROM payload WHERE id = 2'), 0, 'later rows are not replicated');
	$node->safe_psql('bare', 'CREATE EXTENSION lock_election');
	ok(arrives('theirs', 'bare', 3, 60), 'replication continues after the subscriber has the extension');
	is($node->safe_psql('bare', 'SELECT count(*) FROM payload'), 3, 'the subscriber has all rows');
	$node->safe_psql('theirs', "SELECT release_lock('theirs', $theirs)");
	ok(arrives('theirs', 'bare', 4, 60), 'changes of rows that the subscriber never had are skipped');
	unsubscribe('bare');

	isnt(subscribe('theirs', 'late', 'everything', stderr => \$err), 0, 'a new subscription without the tables fails');
	like($err, qr/schema "_lock_election" does not exist/,
		'the error of the new subscription names the missing schema');
	$node->safe_psql('theirs', q{SELECT pg_drop_replication_slot('late')});

	# A publication without the tables of the extension.
	is($node->safe_psql('theirs', q{SELECT string_agg(tablename, ',') FROM pg_publication_tables WHERE pubname = 'app'}), 'payload', 'the publication contains only the schema of the application');
	subscribe('theirs', 'late', 'app');
	ok(arrives('theirs', 'late', 5, 60), 'the publication of the schema is replicated');
	$node->safe_psql('theirs', q{SELECT release_lock('theirs', acquire_lock('theirs', '1 h'))});
	ok(arrives('theirs', 'late', 6, 60), 'the publication of the schema is replicated while locks change');
	unsubscribe('late');
};

done_testing();
