# The unique key of the tables costs nothing while it does not change, and is always correct.
# Promises: -
use strict;
use warnings;
use LeTest;
use Test::More;

my $node = new_node('main', conf => "autovacuum = off\n");

# Each client acquires and releases $n times, with a random one of $names names.
sub start_pairs
{
	my ($n, $names, @clients) = @_;

	foreach my $i (0 .. $#clients)
	{
		$clients[$i]->async("DO \$\$ DECLARE t bigint; lock text; BEGIN
			FOR j IN 1 .. $n LOOP
				lock := 'k' || (random() * ($names - 1))::int;
				t := acquire_lock(lock, '1 h', owner => 'client $i'); COMMIT;
				PERFORM release_lock(lock, t); COMMIT;
			END LOOP; END \$\$");
	}
	return;
}

sub stat_of_slot
{
	return split /\|/, one(q{SELECT n_tup_ins, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = '_lock_election.slot'::regclass});
}

# While a snapshot is held, dead row versions cannot be removed. If grants had to check each of them, they would become
# slower and slower.
subtest 'a held snapshot' => sub {
	my @clients = map { session($node) } 1 .. 4;
	my $reader = session($node);

	foreach my $names (1, 10)
	{
		my ($ins, $upd, $hot) = stat_of_slot();

		$reader->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class');
		start_pairs(500, $names, @clients);
		foreach my $client (@clients)
		{
			$client->wait;
			is($client->error, '', 'no client fails');
		}
		$reader->query('COMMIT');
		# The manager reports its statistics with a batch. A hand-off is one update.
		wait_until(sub { $reader->query(q{SELECT release_lock('k0', acquire_lock('k0'))}); (stat_of_slot())[1] - $upd >= 1000 }) or die 'the statistics do not arrive';
		my ($ins2, $upd2, $hot2) = stat_of_slot();
		my ($inserted, $updated, $kept) = ($ins2 - $ins, $upd2 - $upd, $hot2 - $hot);

		note("$names names: $inserted rows inserted, $updated updates, $kept of them HOT");
		cmp_ok($inserted, '<=', 0.1 * $updated, "$names names: each name keeps its row while it is used");
		# all rows of a full page must move to another page
		cmp_ok($kept, '>=', ($names == 1 ? 0.9 : 0.6) * $updated, "$names names: most updates are HOT");
		cmp_ok(one(q{SELECT pg_relation_size('_lock_election.slot_key')}), '<', 20 * 8192, 'the index stays small');
	}
	$_->quit foreach @clients, $reader;
	nothing_left($node);
};

# The manager accepts only indexes that match the key exactly, because others would not be maintained. A copy of the
# key, as REINDEX CONCURRENTLY creates it, is maintained as soon as it is ready.
subtest 'indexes that are accepted as copies of the key' => sub {
	my $table = '_lock_election.slot';
	my ($admin, $holder) = map { session($node) } 1 .. 2;
	my $n = 0;
	my $alter = sub {
		my ($sql) = @_;
		$admin->query("BEGIN; ALTER EXTENSION lock_election DROP TABLE $table; $sql; ALTER EXTENSION lock_election ADD TABLE $table; COMMIT");
		is($admin->error, '', $sql);
	};
	# Acquires a name that has no row yet. It stays held, because the row of a free name would be deleted soon.
	my $acquire = sub {
		$n++;
		return $holder->query("SELECT acquire_lock('indexed $n', '1 h') > 0") . $holder->error;
	};
	my $altered = qr/ERROR:  55000: table "$table" has been altered/;
	my $is_entered = sub {
		$admin->query('BEGIN; SET LOCAL enable_seqscan = off; UPDATE pg_index SET indisvalid = indexrelid = $$_lock_election.copy$$::regclass
			WHERE indrelid = $$_lock_election.slot$$::regclass');
		my $found = $admin->query(qq{SELECT count(*) FROM $table WHERE kind = 1 AND name = 'indexed $n'}) . $admin->error;
		$admin->query('ROLLBACK');
		return $found;
	};

	foreach my $other ('INDEX other ON #(kind, name, slot)', 'UNIQUE INDEX other ON #(kind, name)',
		'UNIQUE INDEX other ON #(kind, name) INCLUDE (slot)', 'UNIQUE INDEX other ON #(kind, name, slot) INCLUDE (token)',
		'UNIQUE INDEX other ON #(kind, name, slot) WHERE mode <> 0',
		'UNIQUE INDEX other ON #(kind, name, slot, token)', 'UNIQUE INDEX other ON #(mode, name, slot)',
		'UNIQUE INDEX other ON #(kind, owner, slot)', 'UNIQUE INDEX other ON #(kind, name, holds)',
		'UNIQUE INDEX other ON #(kind, name, (slot + 0))', 'UNIQUE INDEX other ON #(kind, name text_pattern_ops, slot)',
		'UNIQUE INDEX other ON #(kind, name COLLATE "POSIX", slot)')
	{
		$alter->("CREATE $other" =~ s/#/$table /r);
		like($acquire->(), $altered, 'an acquire fails with another index');
		$admin->query('DROP INDEX _lock_election.other');
	}
	$alter->("ALTER TABLE $table ADD CONSTRAINT other UNIQUE (kind, name, slot) DEFERRABLE");
	like($acquire->(), $altered, 'an acquire fails with a deferrable constraint');
	$alter->("ALTER TABLE $table DROP CONSTRAINT other");
	is($acquire->(), 't', 'an acquire succeeds without other indexes');

	# Copies of the key.
	$alter->("CREATE UNIQUE INDEX copy ON $table (kind, name, slot)");
	is($acquire->(), 't', 'an acquire succeeds with a copy of the key');
	is($is_entered->(), '1', 'the copy contains the row');
	one('UPDATE pg_index SET indisvalid = false WHERE indexrelid = $$_lock_election.copy$$::regclass');
	is($acquire->(), 't', 'an acquire succeeds with an invalid copy');
	is($is_entered->(), '1', 'the invalid copy contains the row');
	one('UPDATE pg_index SET indisready = false WHERE indexrelid = $$_lock_election.copy$$::regclass');
	is($acquire->(), 't', 'an acquire succeeds with a copy that is not ready');
	is($is_entered->(), '0', 'the copy that is not ready does not contain the row');
	is(one("SELECT count(*) FROM $table WHERE kind = 1 AND name || '' = 'indexed $n'"), '1',
		'the table contains the row');
	one('UPDATE pg_index SET indisready = true WHERE indexrelid = $$_lock_election.copy$$::regclass');
	one('UPDATE pg_index SET indisvalid = false WHERE indexrelid = $$_lock_election.slot_key$$::regclass');
	like($acquire->(), $altered, 'an acquire fails if no copy is valid');
	one('UPDATE pg_index SET indisvalid = true WHERE indexrelid = $$_lock_election.slot_key$$::regclass');
	is($acquire->(), 't', 'an acquire succeeds if the key is valid again');
	$alter->(join '; ', map { "CREATE UNIQUE INDEX copy$_ ON $table (kind, name, slot)" } 3 .. 8);
	is($acquire->(), 't', 'an acquire succeeds with eight indexes');
	$alter->("CREATE UNIQUE INDEX copy9 ON $table (kind, name, slot)");
	like($acquire->(), $altered, 'an acquire fails with nine indexes');
	$admin->query("DROP INDEX _lock_election.copy$_") foreach '', 3 .. 9;
	is($acquire->(), 't', 'an acquire succeeds without copies');
	unlike($holder->query(q{SELECT release_lock(name) FROM lock_election.locks}), qr/f/, 'all locks are released');
	$_->quit foreach $admin, $holder;
	nothing_left($node);
};

subtest 'the indexes agree with the tables' => sub {
	plan skip_all => 'amcheck is not installed' if one(q{SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'}) == 0;
	one('CREATE EXTENSION amcheck');
	my $admin;
	my $check = sub {
		my ($when) = @_;

		foreach my $key ('slot_key', 'lease_key', 'queue_key', 'history_key')
		{
			my ($rc, $out, $err) = $node->psql('postgres', "SELECT bt_index_parent_check('_lock_election.$key', true)");

			is($err, '', "$when: $key");
		}
		is(one(q{SELECT count(*) FROM (SELECT 1 FROM _lock_election.slot GROUP BY kind, name, slot HAVING count(*) > 1) d}), 0, "$when: no slot has two rows");
	};

	foreach my $round (1 .. 2)
	{
		my @clients = map { session($node) } 1 .. 6;

		$admin = session($node);
		$admin->query(q{SELECT acquire_lock('locked row', '1 h', owner => 'me')});
		$admin->query(q{BEGIN; SELECT 1 FROM _lock_election.slot WHERE name = 'locked row' FOR UPDATE});
		start_pairs(100_000, 50, @clients[ 0 .. 2 ]);
		start_pairs(100_000, 1_000_000, @clients[ 3 .. 5 ]);

		# Batches fail after they have written rows and index entries of other requests.
		my $bad = session($node);
		my $failed = one('SELECT failed_batches FROM lock_election.stat');
		for (my $i = 0; $i < 200 && one('SELECT failed_batches FROM lock_election.stat') < $failed + 5; $i++)
		{
			$bad->query(q{SELECT force_release_lock('locked row')});
			$bad->query(q{SELECT grant_lease('500 ms'); SELECT enqueue_lock('locked row', '500 ms'); SELECT campaign('e', 'c', '500 ms', '0')});
			$bad->query('VACUUM _lock_election.slot') if $i == 2;
		}
		cmp_ok(one('SELECT failed_batches FROM lock_election.stat'), '>=', $failed + 5, 'several batches fail');
		$node->stop('immediate');
		$_->kill foreach @clients, $bad, $admin;
		$node->start;
		wait_for_sql($node, 'SELECT count(*) = 1 FROM lock_election.manager');
		$check->('after a crash');
		one(q{SELECT force_release_lock(name) FROM lock_election.locks WHERE kind = 'lock'});
		@clients = map { session($node) } 1 .. 2;
		start_pairs(300, 50, @clients);
		foreach my $client (@clients)
		{
			$client->wait;
			is($client->error, '', 'a client works after the crash');
		}
		one(q{SELECT force_release_lock(name) FROM lock_election.locks WHERE kind = 'lock'});
		$check->('after more requests');
		$_->quit foreach @clients;
	}
	is(one('SELECT key_violations FROM lock_election.stat'), 0, 'no row was rejected');
	wait_for_sql($node, 'SELECT count(*) = 0 FROM lock_election.leases');
	nothing_left($node);
};

$node->stop;
done_testing();
