# Tables that contain mostly dead rows, because of an old snapshot: the cost of a failed batch depends on its rows, not
# on the table; and the table shrinks while that snapshot still exists.
# Promises: -
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

# A sequential scan of a table larger than a quarter of shared_buffers begins where the previous one is.
my $node = new_node('main', init => [ allows_streaming => 'logical' ], conf => "autovacuum = off\nshared_buffers = 128MB\nmax_wal_size = 2GB\nmax_parallel_workers_per_gather = 0\n");
my ($old, $admin, $holder, $client) = map { session($node) } 1 .. 4;

sub size { return one('SELECT pg_relation_size(\'_lock_election.slot\')'); }

# Returns the number of pages of table slot that were read from memory or disk. The manager reports its counts with its
# batches.
sub pages_read { return one(q{SELECT heap_blks_read + heap_blks_hit FROM pg_statio_all_tables WHERE relid = '_lock_election.slot'::regclass}); }

# Adds $pages pages without a visible row, as an old snapshot would cause them, but faster.
sub bloat
{
	my ($pages, $by) = @_;

	$by->query(qq{BEGIN; ALTER TABLE _lock_election.slot DISABLE TRIGGER USER;
		INSERT INTO _lock_election.slot (token, acquired_at, ttl, time_left, lease, session, role, slot, holds, permits, kind, mode, name, value)
			SELECT 1, now(), 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 'dead ' || i, repeat('x', 4000) FROM generate_series(1, $pages) i;
		DELETE FROM _lock_election.slot WHERE name LIKE 'dead %';
		ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_write; ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_row; COMMIT});
	is($by->error, '', 'many dead rows are created');
	$by->query('SELECT pg_stat_force_next_flush()'); # so that the pages read until now are counted now
	cmp_ok(size(), '>=', $pages * 8192, 'the table is large');
	$by->query('SELECT pg_stat_force_next_flush()'); # so that the pages read by this check are counted now
	return;
}

# The snapshot reads another table, because it would lock table slot.
$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class');
my %token = map { $_ => $holder->query("SELECT acquire_lock('$_', '1 h')") } 'first', 'second';
my $lease = $holder->query(q{SELECT grant_lease('1 h')});
my $place = $holder->query(qq{SELECT token FROM enqueue_lock('first', lease => $lease)});

subtest 'a failed batch reads only the known rows' => sub {
	bloat(4000, $admin);
	my $failed = one('SELECT failed_batches FROM lock_election.stat');
	my $before = pages_read();

	my $row = $client->query(q{SELECT acquire_lock('row', '1 h')});
	$admin->query("BEGIN; SET LOCAL enable_seqscan = off; SELECT FROM _lock_election.slot WHERE kind = 1 AND name = 'row' FOR UPDATE");
	$client->query("SELECT renew_lock('row', $row, '2 h')");
	like($client->error, qr/ERROR:  55P03: /, 'a batch fails');
	$admin->query('COMMIT');
	$client->query("SELECT release_lock('row', $row)");
	isnt($token{third} = $client->query(q{SELECT acquire_lock('third', '1 h')}), '', 'the next batch succeeds');
	cmp_ok(one('SELECT failed_batches FROM lock_election.stat'), '>', $failed,
		'the failed batch is counted, so the rows were loaded again');

	# The batch fails after it has written the other of two rows, whichever is written first. The row is found by the
	# index, because these page reads are counted, too.
	my $both = $holder->query(q{SELECT acquire_locks(ARRAY['a', 'b'], '1 h')});
	foreach my $locked ('a', 'b')
	{
		is($admin->query(qq{BEGIN; SET LOCAL enable_seqscan = off; SELECT name FROM _lock_election.slot WHERE kind = 1 AND name = '$locked' FOR UPDATE}), $locked, "the row of $locked is locked");
		$holder->query("SELECT release_locks(ARRAY['a', 'b'], $both)");
		like($holder->error, qr/ERROR:  55P03: /, 'the release fails while a row is locked');
		$admin->query('COMMIT');
		is($client->query("SELECT is_held('a', $both) AND is_held('b', $both)"), 't', 'both locks are still held');
		is($client->query(q{SELECT try_acquire_lock('a') IS NULL AND try_acquire_lock('b') IS NULL}), 't',
			'neither lock is granted to others');
	}
	is($holder->query("SELECT release_locks(ARRAY['a', 'b'], $both)"), 't',
		'both locks are released after the row is unlocked');
	is(one("SELECT is_held('$_', $token{$_})"), 't', "$_ is held") foreach sort keys %token;
	is(one("SELECT await_lock('first', $place)"), 'f', 'the place still exists');
	ok( wait_until(
			sub {
				$client->query(q{SELECT release_lock('flush', acquire_lock('flush', '1 h'))});
				return pages_read() > $before;
			}),
		'the page reads of the manager are counted');
	cmp_ok(pages_read() - $before, '<', 2000, 'few pages were read');
};

subtest 'all pages are read if another program has written' => sub {
	$admin->query(qq{BEGIN; ALTER TABLE _lock_election.slot DISABLE TRIGGER USER;
		INSERT INTO _lock_election.slot (token, acquired_at, ttl, time_left, lease, session, role, slot, holds, permits, kind, mode, name)
			VALUES (77, now(), 3600000000, 3600000000, 0, 0, 10, 0, 1, 0, 1, 1, 'by hand');
		ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_write; ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_row; COMMIT});
	is($client->query(q{SELECT try_acquire_lock('by hand', '1 h') IS NULL}), 't',
		'an acquire fails because a row with its key exists');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'by hand'}), 1, 'the inserted row holds the lock');

	# One row was moved, and one was deleted.
	$admin->query(qq{BEGIN; ALTER TABLE _lock_election.slot DISABLE TRIGGER USER; DELETE FROM _lock_election.slot WHERE name = 'by hand';
		UPDATE _lock_election.slot SET permits = permits WHERE name = 'second';
		ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_write; ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_row; COMMIT});
	$admin->query(q{BEGIN; SELECT FROM _lock_election.slot WHERE name = 'third' FOR UPDATE});
	$client->query("SELECT renew_lock('third', $token{third}, '2 h')");
	like($client->error, qr/ERROR:  55P03: /, 'a batch fails');
	$admin->query('COMMIT');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'by hand'}), 0, 'the next load notices that the row was deleted');
	is(one("SELECT is_held('$_', $token{$_})"), 't', "$_ is held") foreach sort keys %token;
};

subtest 'the table is rewritten and becomes small' => sub {
	my $standby = PostgreSQL::Test::Cluster->new('standby');

	$node->backup('backup');
	$standby->init_from_backup($node, 'backup', has_streaming => 1);
	$standby->start;

	# A reader locks the table, as pg_dump does, before the manager has a reason to rewrite it.
	$admin->query('BEGIN; LOCK TABLE _lock_election.slot IN ACCESS SHARE MODE');
	my $filler = session($node);
	bloat(5000, $filler);
	$filler->quit;
	my $file = one(q{SELECT pg_relation_filenode('_lock_election.slot')});
	my $log = -s $node->logfile;
	my $failed = one('SELECT failed_batches FROM lock_election.stat');
	my $lease = $client->query(q{SELECT grant_lease('1 h')});
	ok( wait_until(
			sub {
				$client->query(q{SELECT release_lock('beat', acquire_lock('beat', '1 h'))});
				die $client->error if $client->error;
				return one('SELECT slot_bytes FROM lock_election.manager') > 64 * 1024 * 1024;
			}),
		'slot_bytes shows the size');
	my $decodes = -e $node->config_data('--pkglibdir') . '/test_decoding.so';
	one(q{SELECT pg_create_logical_replication_slot('decoded', 'test_decoding')}) if $decodes;
	my $start = time;
	my $longest = 0;
	while (time - $start < 7)
	{
		my $at = time;

		$client->query(q{SELECT release_lock('beat', acquire_lock('beat', '1 h'))});
		$longest = time - $at if time - $at > $longest;
	}
	is(one(q{SELECT pg_relation_filenode('_lock_election.slot')}), $file,
		'the table is not rewritten while a session reads it');
	cmp_ok($longest, '<', 30, 'no call waits for the reader');
	$admin->query(q{DECLARE half CURSOR FOR SELECT name FROM _lock_election.slot WHERE (ctid::text::point)[0] >= 4000; FETCH half});
	# A row at the end of the table.
	my $beat = $client->query(q{SELECT acquire_lock('beat', '1 h')});
	# Since PostgreSQL 17, the reader may have read ahead to the end. Then scans begin with the first page.
	isnt(one('SELECT array_agg(ctid) FROM _lock_election.slot'), one('SELECT array_agg(ctid ORDER BY ctid) FROM _lock_election.slot'),
		'the reader has read half of the table, so scans begin in its middle')
		if one('SHOW server_version_num') < 170000;
	$client->query("SELECT release_lock('beat', $beat)");
	# Other sessions use the other tables. The manager skips these, and they keep their size.
	my $other_bytes = one('SELECT lease_bytes, queue_bytes FROM lock_election.manager');
	like($other_bytes, qr/^[1-9]\d*\|[1-9]\d*$/, 'the lease and the place have rows');
	$admin->query('COMMIT; BEGIN; LOCK TABLE _lock_election.lease, _lock_election.queue IN ROW EXCLUSIVE MODE');

	ok( wait_until(
			sub {
				$client->query(q{SELECT release_lock('beat', acquire_lock('beat', '1 h'))});
				return size() < 1024 * 1024;
			}),
		'the table is rewritten after the reader has ended, although the old snapshot still exists');
	ok(wait_until(sub { one('SELECT slot_bytes FROM lock_election.manager') < 1024 * 1024 }),
		'slot_bytes shows the new size');
	is(one('SELECT lease_bytes, queue_bytes FROM lock_election.manager'), $other_bytes, 'the sizes of the other tables are unchanged');
	$admin->query('COMMIT');
	$client->query("SELECT revoke_lease($lease)");
	my ($rows, $had, $has) = slurp_file($node->logfile, $log) =~
	  /LOG:  table "_lock_election.slot" contained mostly dead rows and was rewritten\n.*DETAIL:  It has (\d+) rows, and had (\d+) pages; now it has (\d+)\./;
	ok($rows, 'the rewrite is logged');
	is($rows, one('SELECT count(*) FROM _lock_election.slot'), 'the log shows the number of rows') if $rows;
	cmp_ok($had, '>', 8192, 'the log shows the old number of pages');
	cmp_ok($has, '<', 100, 'the log shows the new number of pages');
	is(one("SELECT is_held('$_', $token{$_})"), 't', "$_ is held") foreach sort keys %token;
	is($client->query(qq{SELECT release_lock('third', $token{third}); SELECT acquire_lock('third', '1 h') > $token{third}}), "t\nt", 'an old row can be changed after the rewrite');
	is(one(q{SELECT failed_batches FROM lock_election.stat}), $failed, 'no batch fails because of the rewrite');
	is(one(q{SELECT string_agg(name, ',' ORDER BY name) FROM _lock_election.slot WHERE mode <> 0}), 'first,second,third', 'a new snapshot sees all rows');
	is($old->query(q{SELECT count(*) > 0 FROM _lock_election.slot WHERE mode <> 0}), 't',
		'the old snapshot sees rows, too');
	is(one(q{SELECT relfrozenxid::text::bigint > 2 AND age(relfrozenxid) >= 0 AND relminmxid::text <> '0' AND mxid_age(relminmxid) >= 0
		FROM pg_class WHERE oid = '_lock_election.slot'::regclass}), 't', 'the rewritten table is frozen');
	ok( wait_until(
			sub {
				$client->query(q{SELECT release_lock('beat', acquire_lock('beat', '1 h'))});
				return one(q{SELECT n_dead_tup < 5000 FROM pg_stat_all_tables WHERE relid = '_lock_election.slot'::regclass}) eq 't';
			}),
		'dead rows are not counted any more');
	is(one(q{SELECT indisvalid AND indisunique FROM pg_index WHERE indexrelid = '_lock_election.slot_key'::regclass}), 't', 'the unique index is valid');
	$admin->query(q{BEGIN; ALTER TABLE _lock_election.slot DISABLE TRIGGER USER;
		INSERT INTO _lock_election.slot (token, acquired_at, ttl, time_left, lease, session, role, slot, holds, permits, kind, mode, name)
			VALUES (78, now(), 3600000000, 3600000000, 0, 0, 10, 0, 1, 0, 1, 1, 'first')});
	like($admin->error, qr/23505: /, 'the unique index rejects a duplicate');
	$admin->query('ROLLBACK');

	SKIP:
	{
		skip 'test_decoding is not installed', 1 unless $decodes;
		is(one(q{SELECT count(*) FILTER (WHERE data LIKE 'table _lock_election.slot: INSERT:%''first''%') || ' ' ||
				(count(*) FILTER (WHERE data LIKE 'table _lock_election.slot: %''third''%') > 0)
			FROM pg_logical_slot_get_changes('decoded', NULL, NULL, 'include-rewrites', '1')}), '0 true', 'logical decoding does not see the rewritten rows, but later changes');
		one(q{SELECT pg_drop_replication_slot('decoded')});
	}

	$node->wait_for_catchup($standby);
	is($standby->safe_psql('postgres', q{SELECT string_agg(name, ',' ORDER BY name) FROM lock_election.locks}), 'first,second,third', 'a standby shows the same locks');
	cmp_ok($standby->safe_psql('postgres', q{SELECT pg_relation_size('_lock_election.slot')}), '<', 1024 * 1024, 'the table is small on the standby');
	$standby->stop;

	$old->query('COMMIT');
	$_->quit foreach $old, $admin, $holder, $client;
	one('SELECT pg_terminate_backend(pid, 60000) FROM lock_election.manager') if $ENV{COVERAGE}; # a crash loses its counts
	$node->stop('immediate');
	$node->start;
	is(one("SELECT is_held('$_', $token{$_})"), 't', "$_ is held after a crash") foreach 'first', 'second';
	is(one("SELECT await_lock('first', $place)"), 'f', 'the place exists after a crash');
};

# Four pages for each row are not too many.
subtest 'a large table with many rows is not rewritten' => sub {
	my $busy = session($node);
	my $file = sub { return one(q{SELECT pg_relation_filenode('_lock_election.slot')}); };
	my $looked = sub {
		my ($large, $test_name) = @_;

		ok( wait_until(
				sub {
					$busy->query(q{SELECT release_lock('beat', acquire_lock('beat', '1 h'))});
					return (one('SELECT slot_bytes FROM lock_election.manager') > 64 * 1024 * 1024) == $large;
				}),
			$test_name);
	};

	is($busy->query(q{SELECT count(acquire_lock('many ' || i, NULL)) FROM generate_series(1, 2300) AS i}), '2300', 'many locks are acquired');
	bloat(8200, $busy);
	my $before = $file->();
	$looked->(1, 'the manager has checked the size');
	is($file->(), $before, 'the table is not rewritten');
	$busy->query(q{SELECT release_lock('many ' || i) FROM generate_series(1, 2300) AS i});
	$looked->(!!0, 'the table becomes small after the locks are released');
	isnt($file->(), $before, 'the table is rewritten');
	$busy->quit;
};

# REPACK (CONCURRENTLY) copies the rows, applies concurrent changes, and swaps the files.
subtest 'an administrator rewrites the tables while they are written' => sub {
	plan skip_all => 'needs PostgreSQL 19' if one('SHOW server_version_num') < 190000;
	my @clients = map { session($node) } 1 .. 4;
	my $held = one(q{SELECT acquire_lock('before', '1 h', owner => 'me')});
	my $place = one(q{SELECT token FROM enqueue_lock('before', '1 h')});
	my $there = sub { is(one("SELECT is_held('before', $held), await_lock('before', $place)"), 't|f', $_[0]) };
	my $times = 0;

	foreach my $i (0 .. $#clients)
	{
		$clients[$i]->async("DO \$\$ DECLARE t bigint; until timestamptz := clock_timestamp() + interval '4 s'; BEGIN
			WHILE clock_timestamp() < until LOOP
				t := acquire_lock('load$i', '1 h'); COMMIT;
				IF NOT release_lock('load$i', t) THEN RAISE 'load$i was lost'; END IF; COMMIT;
				t := acquire_lock('load', '1 h'); COMMIT;
				IF NOT release_lock('load', t) THEN RAISE 'load was lost'; END IF; COMMIT;
			END LOOP; END \$\$");
	}
	until (grep { $_->ready } @clients)
	{
		is(error_of("REPACK (CONCURRENTLY) _lock_election.$_"), '', "table $_ is rewritten") foreach 'slot', 'queue';
		$times++;
	}
	cmp_ok($times, '>', 0, 'the tables were rewritten while clients wrote');
	foreach (@clients)
	{
		$_->wait;
		# On a slow machine, the last step may take longer than the manager waits for it.
		like($_->error, qr{^$|ERROR:  55P03: |WARNING:  01000: the transaction is committed, but the locks that it releases may still be held}, 'no client has an unexpected error');
		$_->quit;
	}
	$there->('lock and place exist after the rewrites');
	is(one(q{SELECT count(*) FROM (SELECT 1 FROM _lock_election.slot GROUP BY kind, name, slot HAVING count(*) > 1) d}), 0, 'no slot has two rows');
	$node->stop('immediate');
	$node->start;
	wait_for_sql($node, 'SELECT count(*) = 1 FROM lock_election.manager');
	$there->('lock and place exist after a crash');
};

$node->stop;
done_testing();
