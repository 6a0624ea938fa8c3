# Tables that contain mostly dead rows, because of an old snapshot: the cost of a failed batch depends on its rows, not
# on the table; and the table shrinks while that snapshot still exists.
# Promises: -
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

# of a table larger than a quarter of shared_buffers a scan begins where the last one is
my $node = new_node('main', init => [ allows_streaming => 'logical' ], conf => "autovacuum = off\nshared_buffers = 128MB\nmax_wal_size = 2GB\nmax_parallel_workers_per_gather = 0\n");
my ($old, $admin, $holder, $client) = map { session($node) } 1 .. 4;

sub size { return one('SELECT pg_relation_size(\'_lock_election.slot\')'); }

# Pages of table slot that were read, from memory or from disk; the manager tells its counts with its batches.
sub pages_read { return one(q{SELECT heap_blks_read + heap_blks_hit FROM pg_statio_all_tables WHERE relid = '_lock_election.slot'::regclass}); }

# A table of so many pages without a row that anybody sees, as a held snapshot makes it; only quicker.
sub bloat
{
	my ($pages, $by) = @_;

	$by->query(qq{BEGIN; ALTER TABLE _lock_election.slot DISABLE TRIGGER USER;
		INSERT INTO _lock_election.slot (token, acquired_at, ttl, time_left, lease, session, role, slot, holds, permits, kind, mode, name, value)
			SELECT 1, now(), 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 'dead ' || i, repeat('x', 4000) FROM generate_series(1, $pages) i;
		DELETE FROM _lock_election.slot WHERE name LIKE 'dead %';
		ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_write; ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_row; COMMIT});
	is($by->error, '', 'very many dead rows');
	$by->query('SELECT pg_stat_force_next_flush()'); # the pages of this are counted now, not later
	cmp_ok(size(), '>=', $pages * 8192, 'the table is large');
	$by->query('SELECT pg_stat_force_next_flush()'); # these pages do not count later
	return;
}

# not of this table, which it would lock
$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class');
my %token = map { $_ => $holder->query("SELECT acquire_lock('$_', '1 h')") } 'first', 'second';
my $lease = $holder->query(q{SELECT grant_lease('1 h')});
my $place = $holder->query(qq{SELECT token FROM enqueue_lock('first', lease => $lease)});

subtest 'a failed batch reads the rows that it knows' => sub {
	bloat(4000, $admin);
	my $failed = one('SELECT failed_batches FROM lock_election.stat');
	my $before = pages_read();

	my $row = $client->query(q{SELECT acquire_lock('row', '1 h')});
	$admin->query("BEGIN; SET LOCAL enable_seqscan = off; SELECT FROM _lock_election.slot WHERE kind = 1 AND name = 'row' FOR UPDATE");
	$client->query("SELECT renew_lock('row', $row, '2 h')");
	like($client->error, qr/ERROR:  55P03: /, 'a batch fails');
	$admin->query('COMMIT');
	$client->query("SELECT release_lock('row', $row)");
	isnt($token{third} = $client->query(q{SELECT acquire_lock('third', '1 h')}), '', 'the next one does not');
	cmp_ok(one('SELECT failed_batches FROM lock_election.stat'), '>', $failed, 'memory was loaded again');

	# one that has written the other row of the two when it fails, whichever comes first; by the key, as these pages count as well
	my $both = $holder->query(q{SELECT acquire_locks(ARRAY['a', 'b'], '1 h')});
	foreach my $locked ('a', 'b')
	{
		is($admin->query(qq{BEGIN; SET LOCAL enable_seqscan = off; SELECT name FROM _lock_election.slot WHERE kind = 1 AND name = '$locked' FOR UPDATE}), $locked, "the row of $locked is locked");
		$holder->query("SELECT release_locks(ARRAY['a', 'b'], $both)");
		like($holder->error, qr/ERROR:  55P03: /, 'it cannot be written');
		$admin->query('COMMIT');
		is($client->query("SELECT is_held('a', $both) AND is_held('b', $both)"), 't', 'both are held');
		is($client->query(q{SELECT try_acquire_lock('a') IS NULL AND try_acquire_lock('b') IS NULL}), 't', 'and nobody gets in');
	}
	is($holder->query("SELECT release_locks(ARRAY['a', 'b'], $both)"), 't', 'released');
	is(one("SELECT is_held('$_', $token{$_})"), 't', "$_ is held") foreach sort keys %token;
	is(one("SELECT await_lock('first', $place)"), 'f', 'the place is there');
	ok( wait_until(
			sub {
				$client->query(q{SELECT release_lock('flush', acquire_lock('flush', '1 h'))});
				return pages_read() > $before;
			}),
		'what was read is counted');
	cmp_ok(pages_read() - $before, '<', 2000, 'pages read');
};

subtest 'somebody else has written: all is read' => sub {
	$admin->query(qq{BEGIN; ALTER TABLE _lock_election.slot DISABLE TRIGGER USER;
		INSERT INTO _lock_election.slot (token, acquired_at, ttl, time_left, lease, session, role, slot, holds, permits, kind, mode, name)
			VALUES (77, now(), 3600000000, 3600000000, 0, 0, 10, 0, 1, 0, 1, 1, 'by hand');
		ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_write; ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_row; COMMIT});
	is($client->query(q{SELECT try_acquire_lock('by hand', '1 h') IS NULL}), 't', 'a key that is there already');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'by hand'}), 1, 'its row holds the lock');

	# a row that is somewhere else, and one that has gone
	$admin->query(qq{BEGIN; ALTER TABLE _lock_election.slot DISABLE TRIGGER USER; DELETE FROM _lock_election.slot WHERE name = 'by hand';
		UPDATE _lock_election.slot SET permits = permits WHERE name = 'second';
		ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_write; ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_row; COMMIT});
	$admin->query(q{BEGIN; SELECT FROM _lock_election.slot WHERE name = 'third' FOR UPDATE});
	$client->query("SELECT renew_lock('third', $token{third}, '2 h')");
	like($client->error, qr/ERROR:  55P03: /, 'a batch fails');
	$admin->query('COMMIT');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'by hand'}), 0, 'a row that has gone is missed by the next load');
	is(one("SELECT is_held('$_', $token{$_})"), 't', "$_ is held") foreach sort keys %token;
};

subtest 'the table becomes small' => sub {
	my $standby = PostgreSQL::Test::Cluster->new('standby');

	$node->backup('backup');
	$standby->init_from_backup($node, 'backup', has_streaming => 1);
	$standby->start;

	# a pg_dump, for one; before there is anything to write anew
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
		'its size is shown');
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
	is(one(q{SELECT pg_relation_filenode('_lock_election.slot')}), $file, 'not while somebody reads it');
	cmp_ok($longest, '<', 30, 'nobody waits for him');
	$admin->query(q{DECLARE half CURSOR FOR SELECT name FROM _lock_election.slot WHERE (ctid::text::point)[0] >= 4000; FETCH half});
	# a row at the end of the table
	my $beat = $client->query(q{SELECT acquire_lock('beat', '1 h')});
	# from 17 on that one has read ahead, maybe to the end: then they begin with the first page
	isnt(one('SELECT array_agg(ctid) FROM _lock_election.slot'), one('SELECT array_agg(ctid ORDER BY ctid) FROM _lock_election.slot'),
		'somebody has read the half of it: scans begin in its middle')
		if one('SHOW server_version_num') < 170000;
	$client->query("SELECT release_lock('beat', $beat)");
	# other tables are in use, as by a reader: they are passed over, and as large as before
	my $other_bytes = one('SELECT lease_bytes, queue_bytes FROM lock_election.manager');
	like($other_bytes, qr/^[1-9]\d*\|[1-9]\d*$/, 'there is a lease, and a place');
	$admin->query('COMMIT; BEGIN; LOCK TABLE _lock_election.lease, _lock_election.queue IN ROW EXCLUSIVE MODE');

	ok( wait_until(
			sub {
				$client->query(q{SELECT release_lock('beat', acquire_lock('beat', '1 h'))});
				return size() < 1024 * 1024;
			}),
		'then it does, though the old snapshot is still there');
	ok(wait_until(sub { one('SELECT slot_bytes FROM lock_election.manager') < 1024 * 1024 }), 'that is shown as well');
	is(one('SELECT lease_bytes, queue_bytes FROM lock_election.manager'), $other_bytes, 'and that the others are as large as they were');
	$admin->query('COMMIT');
	$client->query("SELECT revoke_lease($lease)");
	my ($rows, $had, $has) = slurp_file($node->logfile, $log) =~
	  /LOG:  table "_lock_election.slot" contained mostly dead rows and was rewritten\n.*DETAIL:  It has (\d+) rows, and had (\d+) pages; now it has (\d+)\./;
	ok($rows, 'and logged');
	is($rows, one('SELECT count(*) FROM _lock_election.slot'), 'with its rows') if $rows;
	cmp_ok($had, '>', 8192, 'the pages that it had');
	cmp_ok($has, '<', 100, 'and has');
	is(one("SELECT is_held('$_', $token{$_})"), 't', "$_ is held") foreach sort keys %token;
	is($client->query(qq{SELECT release_lock('third', $token{third}); SELECT acquire_lock('third', '1 h') > $token{third}}), "t\nt", 'a row that was there is written');
	is(one(q{SELECT failed_batches FROM lock_election.stat}), $failed, 'no batch fails for it');
	is(one(q{SELECT string_agg(name, ',' ORDER BY name) FROM _lock_election.slot WHERE mode <> 0}), 'first,second,third', 'all rows are there, for a snapshot of today');
	is($old->query(q{SELECT count(*) > 0 FROM _lock_election.slot WHERE mode <> 0}), 't', 'and for the old one');
	is(one(q{SELECT relfrozenxid::text::bigint > 2 AND age(relfrozenxid) >= 0 AND relminmxid::text <> '0' AND mxid_age(relminmxid) >= 0
		FROM pg_class WHERE oid = '_lock_election.slot'::regclass}), 't', 'frozen until now');
	ok( wait_until(
			sub {
				$client->query(q{SELECT release_lock('beat', acquire_lock('beat', '1 h'))});
				return one(q{SELECT n_dead_tup < 5000 FROM pg_stat_all_tables WHERE relid = '_lock_election.slot'::regclass}) eq 't';
			}),
		'no dead row is counted any more');
	is(one(q{SELECT indisvalid AND indisunique FROM pg_index WHERE indexrelid = '_lock_election.slot_key'::regclass}), 't', 'with the key');
	$admin->query(q{BEGIN; ALTER TABLE _lock_election.slot DISABLE TRIGGER USER;
		INSERT INTO _lock_election.slot (token, acquired_at, ttl, time_left, lease, session, role, slot, holds, permits, kind, mode, name)
			VALUES (78, now(), 3600000000, 3600000000, 0, 0, 10, 0, 1, 0, 1, 1, 'first')});
	like($admin->error, qr/23505: /, 'which is checked');
	$admin->query('ROLLBACK');

	SKIP:
	{
		skip 'test_decoding is not installed', 1 unless $decodes;
		is(one(q{SELECT count(*) FILTER (WHERE data LIKE 'table _lock_election.slot: INSERT:%''first''%') || ' ' ||
				(count(*) FILTER (WHERE data LIKE 'table _lock_election.slot: %''third''%') > 0)
			FROM pg_logical_slot_get_changes('decoded', NULL, NULL, 'include-rewrites', '1')}), '0 true', 'for logical decoding no row has come, but changes afterwards have');
		one(q{SELECT pg_drop_replication_slot('decoded')});
	}

	$node->wait_for_catchup($standby);
	is($standby->safe_psql('postgres', q{SELECT string_agg(name, ',' ORDER BY name) FROM lock_election.locks}), 'first,second,third', 'a standby shows the same');
	cmp_ok($standby->safe_psql('postgres', q{SELECT pg_relation_size('_lock_election.slot')}), '<', 1024 * 1024, 'in a small table');
	$standby->stop;

	$old->query('COMMIT');
	$_->quit foreach $old, $admin, $holder, $client;
	one('SELECT pg_terminate_backend(pid, 60000) FROM lock_election.manager') if $ENV{COVERAGE}; # a crash loses its counts
	$node->stop('immediate');
	$node->start;
	is(one("SELECT is_held('$_', $token{$_})"), 't', "$_ is held after a crash") foreach 'first', 'second';
	is(one("SELECT await_lock('first', $place)"), 'f', 'and the place is there');
};

# Four pages a row are not too many.
subtest 'a large table with many rows stays' => sub {
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

	is($busy->query(q{SELECT count(acquire_lock('many ' || i, NULL)) FROM generate_series(1, 2300) AS i}), '2300', 'many locks');
	bloat(8200, $busy);
	my $before = $file->();
	$looked->(1, 'somebody has looked');
	is($file->(), $before, 'and left it as it is');
	$busy->query(q{SELECT release_lock('many ' || i) FROM generate_series(1, 2300) AS i});
	$looked->(!!0, 'when they are released it is written anew');
	isnt($file->(), $before, 'indeed');
	$busy->quit;
};

# PostgreSQL copies the rows, applies what is written meanwhile, and swaps the files.
subtest 'an administrator rewrites it beside its writers' => sub {
	plan skip_all => 'from PostgreSQL 19 on' if one('SHOW server_version_num') < 190000;
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
		is(error_of("REPACK (CONCURRENTLY) _lock_election.$_"), '', "table $_") foreach 'slot', 'queue';
		$times++;
	}
	cmp_ok($times, '>', 0, 'beside them');
	foreach (@clients)
	{
		$_->wait;
		# on a slow machine the last step may take longer than the manager waits for it
		like($_->error, qr{^$|ERROR:  55P03: |WARNING:  01000: the transaction is committed, but the locks that it releases may still be held}, 'no client fails');
		$_->quit;
	}
	$there->('nothing is lost');
	is(one(q{SELECT count(*) FROM (SELECT 1 FROM _lock_election.slot GROUP BY kind, name, slot HAVING count(*) > 1) d}), 0, 'no slot has two rows');
	$node->stop('immediate');
	$node->start;
	wait_for_sql($node, 'SELECT count(*) = 1 FROM lock_election.manager');
	$there->('also after a crash');
};

$node->stop;
done_testing();
