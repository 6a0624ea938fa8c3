# The history of elections: it has every change once and in order, despite failures, and observers can catch up with it.
# Promises: H
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('primary', init => [ allows_streaming => 1 ], conf => "autovacuum = off\n");

# The changes of an election after a change number, for example "elected one, resigned one".
sub story
{
	my ($election, $after, $on) = @_;
	return ($on // $node)->safe_psql('postgres',
		"SELECT string_agg(how || ' ' || candidate, ', ' ORDER BY ordinality) FROM election_history('$election', " . ($after // 0) . ') WITH ORDINALITY');
}

sub newest { return one("SELECT coalesce(max(change), 0) FROM election_history('$_[0]')"); }

# Expects that each term has one start and one end, and that terms do not overlap.
sub is_sound
{
	my ($test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(one(q{
		WITH h AS (SELECT *, lag(how) OVER w AS before, lag(term) OVER w AS term_before FROM
			(SELECT DISTINCT election FROM _lock_election.history) AS e, election_history(e.election) WINDOW w AS (PARTITION BY e.election ORDER BY change))
		SELECT count(*) FROM h WHERE CASE WHEN how = 'elected' THEN before IN ('elected', 'proclaimed') ELSE before IS NULL OR before NOT IN ('elected', 'proclaimed') OR term <> term_before END}),
		'0', $test_name);
	return;
}

sub kill_manager
{
	my ($signal) = @_;
	my $pid = one('SELECT pid FROM lock_election.manager');
	kill $signal, $pid or die "kill $pid: $!";
	$node->poll_query_until('postgres', "SELECT pid <> $pid FROM lock_election.manager") or die 'no manager';
	return;
}

subtest 'every change' => sub {
	my $s = session($node);
	my $term = $s->query(q{SELECT campaign('e', 'a')});
	my $next = session($node);
	$next->async(q{SELECT campaign('e', 'b', '400 ms')});
	wait_for_sql($node, q{SELECT count(*) = 1 FROM lock_election.waiters});
	one("SELECT proclaim('e', $term, 'A')");
	is(one("SELECT resign('e', $term)"), 't', 'the leader resigns');
	my $second = $next->wait;
	wait_for_sql($node, q{SELECT count(*) = 0 FROM lock_election.elections});
	is(story('e'), 'elected a, proclaimed A, resigned A, elected b, expired b', 'the history has the changes of two terms in order');
	is(one(q{SELECT string_agg(DISTINCT term::text, ',' ORDER BY term::text) FROM election_history('e')}), "$term,$second", 'each change has its term');
	is(one(q{SELECT bool_and(ended_at IS NULL = how IN ('elected', 'proclaimed') AND changed_at >= elected_at) FROM election_history('e')}),
		't', 'each change has its times');
	is(story('e', newest('e')), '', 'the history after the newest change is empty');
	is(story('e', one(q{SELECT change FROM election_history('e') ORDER BY change OFFSET 2 LIMIT 1})), 'elected b, expired b', 'the history after a change has the later changes');
	my $before = newest('e');
	$s->query(q{BEGIN; SELECT campaign('e', 'c'); ROLLBACK});
	my $lease = one('SELECT grant_lease()');
	one("SELECT campaign('e', 'd', lease => $lease)");
	one("SELECT revoke_lease($lease)");
	one(q{SELECT campaign('e', 'f')});
	one(q{SELECT force_resign('e')});
	$s->query(q{SELECT campaign('e', 'g', NULL)});
	$s->kill;
	wait_for_sql($node, q{SELECT count(*) = 0 FROM lock_election.elections});
	is(story('e', $before), 'elected c, undone c, elected d, revoked d, elected f, forced f, elected g, disconnected g', 'the history has every type of end of a term');
	is(one(q{SELECT count(*) FROM (SELECT FROM election_history('e') GROUP BY term HAVING count(DISTINCT elected_at) > 1 OR min(changed_at) <> min(elected_at)) AS t}),
		'0', 'all changes of a term have the same elected_at');
	is(story('f'), '', 'another election has its own history');
	one(q{CREATE ROLE reader LOGIN});
	is($node->safe_psql('postgres', q{SELECT count(*) FROM election_history('e')}, extra_params => [ '-U', 'reader' ]), '13', 'every role can read the history');
	is(one(q{SELECT count(*) FROM election_history('e', NULL)}), '13', 'a null change number returns the whole history');

	# Frequent readers mostly find nothing new.
	my $manager = manager_pid();
	my $last = newest('e');
	stop_asleep($manager);
	is(one("SET statement_timeout = '20 s'; SELECT count(*) FROM election_history('e', $last)"), '0', 'a reader without new changes does not need the manager');
	like(error_of(q{SET statement_timeout = '200 ms'; SELECT count(*) FROM election_history('e', 0)}), qr/ERROR:  57014/, 'a reader with new changes waits for the manager');
	kill 'CONT', $manager;
	my ($rc, undef, $err) = $node->psql('postgres', q{SELECT election_history('')});
	like($err, qr/must not be empty/, 'an empty election name is rejected');
	is_sound('terms do not overlap');
	$next->quit;
};

subtest 'observers' => sub {
	my $observer = session($node);
	my $witness = session($node);
	my $leader = session($node);
	my $channel = $observer->query(q{SELECT observe_election('o')});
	my $notices = '';

	$_->query("LISTEN $channel") foreach $observer, $witness;
	my $term = $leader->query(q{SELECT campaign('o', 'a')});
	$leader->query("SELECT proclaim('o', $term, 'b')");
	$leader->query("SELECT resign('o', $term)");
	ok(wait_until(sub { $notices .= $observer->query('SELECT 1'); return (() = $notices =~ /"$channel"/g) >= 3; }), 'an observer is notified three times');
	is(join(' ', $notices =~ /"event":"(\w+)","term":"$term"/g), 'elected proclaimed resigned', 'an observer is notified of each change');
	my @changes = $notices =~ /"change":"(\d+)"/g;
	my @previous = $notices =~ /"previous":"(\d+)"/g;
	is(join(',', @changes), one(q{SELECT string_agg(change::text, ',' ORDER BY change) FROM election_history('o')}), 'each notification has the number of its change');
	is(join(',', @previous), join(',', 0, @changes[ 0, 1 ]), 'each notification has the number of the previous change');
	unlike($notices, qr/"a"|"b"/, 'notifications do not contain the candidate');

	# The observer misses a change: the next notification reveals this, and the history contains the missed change.
	$observer->query("UNLISTEN $channel");
	my $missed = $leader->query(q{SELECT campaign('o', 'missed')});
	$leader->query("SELECT resign('o', $missed)");
	# Hints are sent later: the change has only been missed when the witness has received it.
	ok(wait_until(sub { return $witness->query('SELECT 1') =~ /"event":"resigned","term":"$missed"/; }), 'the witness is notified of a change that the observer misses');
	$observer->query("LISTEN $channel");
	$notices = '';
	$leader->query(q{SELECT campaign('o', 'seen')});
	ok(wait_until(sub { $notices .= $observer->query('SELECT 1'); return $notices =~ /"$channel"/; }), 'the observer is notified of the next change');
	my ($previous) = $notices =~ /"previous":"(\d+)"/;
	isnt($previous, $changes[2], 'the previous change number reveals a gap');
	is(story('o', $changes[2]), 'elected missed, resigned missed, elected seen', 'the history fills the gap');

	# The place of a candidate is notified on the same channel, only once.
	my $place = $leader->query(q{SELECT term FROM enqueue_candidate('o', 'waits')});
	$notices = '';
	one(q{SELECT force_resign('o')});
	ok(wait_until(sub { $notices .= $observer->query('SELECT 1'); return $notices =~ /"$place"/; }), 'the grant of a place is notified');
	$notices .= $observer->query('SELECT pg_sleep(0.1)');
	is(scalar(() = $notices =~ /"term":"$place"/g), 1, 'the grant of a place is notified once');
	one(q{SELECT force_resign('o')});

	# With notify = waiters, changes are not notified.
	$node->append_conf('postgresql.conf', "lock_election.notify = waiters");
	$node->reload;
	wait_for_sql($node, q{SELECT current_setting('lock_election.notify') = 'waiters'});
	$notices = '';
	my $quiet = $leader->query(q{SELECT campaign('o', 'quiet')});
	$place = $leader->query(q{SELECT term FROM enqueue_candidate('o', 'waits')});
	one(q{SELECT force_resign('o')});
	ok(wait_until(sub { $notices .= $observer->query('SELECT 1'); return $notices =~ /"$place"/; }), 'notify = waiters sends the grant of a place');
	unlike($notices, qr/"term":"$quiet"/, 'notify = waiters sends no other change');
	one(q{SELECT force_resign('o')});
	$node->append_conf('postgresql.conf', "lock_election.notify = all");
	$node->reload;
	$_->quit foreach $observer, $witness, $leader;
};

subtest 'restarts, crashes and failed batches' => sub {
	my $bound = session($node);
	my $before;

	one(q{SELECT campaign('kept', 'k', '1 h')});
	$bound->query(q{SELECT campaign('bound', 'b', NULL)});
	kill_manager('TERM');
	is(story('kept') . ', ' . story('bound'), 'elected k, elected b', 'a restart of the manager changes nothing');
	is(one(q{SELECT (SELECT elected_at FROM current_leader('kept')) = elected_at AND elected_at = (SELECT elected_at FROM lock_election.elections WHERE election = 'kept') FROM election_history('kept')}),
		't', 'the history, current_leader() and the view agree on elected_at');
	$node->stop('immediate');
	$bound->kill;
	$node->start;
	wait_for_sql($node, q{SELECT count(*) = 1 FROM lock_election.manager});
	wait_for_sql($node, q{SELECT count(*) = 2 FROM election_history('bound')});
	is(story('kept'), 'elected k', 'after a crash, the leader continues');
	is(story('bound'), 'elected b, disconnected b', 'after a crash, the end of a bound leader is in the history');
	$node->restart;
	is(story('bound'), 'elected b, disconnected b', 'the end of a bound leader is written only once');

	# The table is locked: the change cannot be written, so the campaign fails.
	my $locker = session($node);
	$locker->query('BEGIN; LOCK TABLE _lock_election.history');
	my ($rc, undef, $err) = $node->psql('postgres', q{SELECT campaign('failed', 'f')});
	like($err, qr/locked by another session/, 'a campaign whose change cannot be written fails');
	is(one(q{SELECT acquire_lock('other') > 0}), 't', 'locks do not need the history');
	$locker->query('COMMIT');
	is(story('failed'), '', 'the failed campaign is not in the history');
	ok(one(q{SELECT campaign('failed', 'f', '200ms')}) > 0, 'a campaign succeeds when the table is unlocked');
	wait_for_sql($node, q{SELECT count(*) = 0 FROM lock_election.elections WHERE election = 'failed'});
	is(story('failed'), 'elected f, expired f', 'the history has only the successful campaign');
	$locker->query('VACUUM FULL _lock_election.history');
	is($locker->error, '', 'the table can be rewritten with VACUUM FULL');
	one(q{SELECT force_resign('kept')});
	is(story('kept'), 'elected k, forced k', 'the history continues after VACUUM FULL');
	is_sound('terms do not overlap after failures');
	$locker->quit;
};

subtest 'a change that cannot be written' => sub {
	my $bound = session($node);

	# The end that a start of the manager finds has no request, so no session can get the error.
	$bound->query(q{SELECT campaign('unwritten', 'u', NULL)});
	one('ALTER TABLE _lock_election.history ALTER how TYPE integer');
	$node->stop('immediate');
	$bound->kill;
	$node->start;
	wait_for_sql($node, q{SELECT failed_batches > 0 FROM lock_election.stat});
	my $start = time;
	one(q{SELECT pg_sleep(2)});
	my $limit = 4 * (time - $start + 2);
	is(one("SELECT failed_batches <= $limit FROM lock_election.stat"), 't', 'a change that cannot be written is retried with pauses');
	one('ALTER TABLE _lock_election.history ALTER how TYPE smallint');
	wait_for_sql($node, q{SELECT count(*) = 2 FROM election_history('unwritten')});
	is(story('unwritten'), 'elected u, disconnected u', 'the change is written when it is possible');
	is(one(q{SELECT acquire_lock('unwritten') > 0}), 't', 'the manager works after the failures');

	# An expiry has no request either; it is written only once.
	my $locker = session($node);
	my $late = one(q{SELECT campaign('late', 'l', '1 h')});
	$locker->query('BEGIN; LOCK TABLE _lock_election.history IN SHARE MODE');
	my $failed = one('SELECT failed_batches FROM lock_election.stat');
	shorten($locker, 'late', $late, '300 ms', 'renew_leadership');
	wait_for_sql($node, "SELECT failed_batches > $failed + 1 FROM lock_election.stat");
	is(one(q{SELECT acquire_lock('meanwhile') > 0}), 't', 'locks can be acquired while an expiry cannot be written');
	is(story('late'), 'elected l', 'a term whose end cannot be written has not ended');
	$locker->query('COMMIT');
	wait_for_sql($node, q{SELECT count(*) = 2 FROM election_history('late')});
	is(story('late'), 'elected l, expired l', 'the term ends when its end can be written');

	# The manager remembers how a fenced term was ended, even if it reloads before the fence ends.
	my $writer = session($node);
	my $term = one(q{SELECT campaign('fenced', 'f')});
	$writer->query("BEGIN; SELECT fence_leader('fenced', $term)");
	one(q{SELECT force_resign('fenced')});
	$locker->query('BEGIN; LOCK TABLE _lock_election.history IN SHARE MODE');
	my (undef, undef, $err) = $node->psql('postgres', q{SELECT campaign('another', 'a')});
	like($err, qr/locked by another session/, 'a batch fails, so that the manager reloads');
	$locker->query('COMMIT');
	is(story('fenced'), 'elected f', 'a term that was forced to end does not end while it is fenced');
	$writer->query('COMMIT');
	wait_for_sql($node, q{SELECT count(*) = 2 FROM election_history('fenced')});
	is(story('fenced'), 'elected f, forced f', 'the term ends as forced after the fence');
	$writer->quit;
	$locker->quit;
};

subtest 'many candidates, and restarts of the manager' => sub {
	my @sessions = map { session($node) } 1 .. 6;

	foreach my $i (0 .. $#sessions)
	{
		$sessions[$i]->async(join '', map { "DO \$\$ DECLARE t bigint; i int := $_; BEGIN
				t := campaign('busy', 'c$i', CASE WHEN i % 10 > 0 THEN interval '100 ms' END, wait => '200 ms');
				COMMIT;
				IF t IS NULL THEN RETURN; END IF;
				PERFORM proclaim('busy', t, 'p$i');
				COMMIT;
				IF i % 3 > 0 OR i % 10 = 0 THEN PERFORM resign('busy', t); END IF;
				IF i % 7 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
				IF i % 5 = 0 THEN PERFORM force_resign('busy'); COMMIT; END IF;
			END \$\$;\n" } 1 .. 60);
	}
	foreach (1 .. 3)
	{
		my $newest = newest('busy');
		wait_until(sub { return newest('busy') > $newest; });
		kill_manager('TERM');
	}
	foreach my $s (@sessions)
	{
		$s->wait(120);
		# On a busy machine, a manager may start later than such a short wait allows; and a term of 100 ms, or one that
		# another session ends by force, may end before its grant is flushed.
		unlike($s->error, qr/ERROR:  (?!57P03|LE001: election "busy" was lost while waiting for durability)/, 'a candidate gets no unexpected error');
		$s->quit;
	}
	wait_for_sql($node, q{SELECT count(*) = 0 FROM lock_election.elections WHERE election = 'busy'});
	is(one(q{SELECT count(*) > 100 FROM election_history('busy')}), 't', 'more than 100 changes were written');
	is_sound('no change is missing or written twice');
};

subtest 'retention' => sub {
	is(one('SHOW lock_election.history_retention'), '7d', 'the default retention is a week');

	# Rows with other times: only a superuser can insert them, with disabled triggers.
	one(q{ALTER TABLE _lock_election.history DISABLE TRIGGER ALL;
		INSERT INTO _lock_election.history SELECT n, n, now() - interval '6 days', now() - interval '6 days', 10, 1, 'before', 'b' FROM generate_series(1, 40000) AS n;
		INSERT INTO _lock_election.history SELECT n, n, now() - interval '8 days', now() - interval '8 days', 10, 1, 'old', 'o' FROM generate_series(1, 10000) AS n;
		INSERT INTO _lock_election.history SELECT n, n, now() - interval '6 days', now() - interval '6 days', 10, 1, 'new', 'n' FROM generate_series(1, 10) AS n;
		INSERT INTO _lock_election.history SELECT 1, 1, now(), now(), 10, how, 'how' || how, 'n' FROM unnest('{-1,0,9,10}'::int[]) AS how;
		ALTER TABLE _lock_election.history ENABLE ALWAYS TRIGGER refuse_write;
		ALTER TABLE _lock_election.history ENABLE ALWAYS TRIGGER refuse_row});
	kill_manager('TERM');
	wait_for_sql($node, q{SELECT count(*) = 0 FROM _lock_election.history WHERE election = 'old'}, 't');
	is(one(q{SELECT count(*) FROM election_history('new')}), '10', 'rows that are younger than the retention are kept');
	is(one(q{SELECT count(*) FROM election_history('before')}), '40000', 'many younger rows do not delay the removal of old ones');
	is(one(q{SELECT how FROM election_history('how9')}), 'evicted', 'the last name of a change');
	like(error_of("SELECT * FROM election_history('how$_')"), qr/ERROR:  XX000: unknown change $_ of an election/, "$_ is not a known change") foreach -1, 0, 10;
	my ($rc, undef, $err) = $node->psql('postgres', q{DELETE FROM _lock_election.history});
	like($err, qr/written only by lock_election/, 'other sessions cannot delete from the history');
};

# A row counts 120 bytes, plus twice the length of its election, plus that of its candidate, until it is too old. The
# limit rejects only elected and proclaimed changes. One role fills a megabyte exactly, the other one all but one byte.
subtest 'max_history_per_role' => sub {
	my $set = sub { one("ALTER SYSTEM SET lock_election.$_[0]"); one('SELECT pg_reload_conf()'); return wait_for_sql($node, 'SHOW lock_election.' . $_[0] =~ s/ = .*//r, $_[0] =~ s/.* = '(.*)'/$1/r); };
	my $by_hand = sub {
		one("ALTER TABLE _lock_election.history DISABLE TRIGGER ALL; $_[0];
			ALTER TABLE _lock_election.history ENABLE ALWAYS TRIGGER refuse_write;
			ALTER TABLE _lock_election.history ENABLE ALWAYS TRIGGER refuse_row");
		return;
	};
	my $count = q{SELECT count(*) FROM _lock_election.history WHERE election LIKE 'full%'};
	my $full = qr/ERROR:  53400: the history of the elections of role "\w+" is too long in this database\nHINT:  See lock_election\.max_history_per_role \(1 MB\)\./;
	my $fill = sub {
		my ($s, $election, $term, $last) = @_;

		$s->query("DO \$\$ BEGIN
			FOR i IN 1 .. 248 LOOP PERFORM proclaim('$election', $term, repeat('x', 4096)); END LOOP;
			PERFORM proclaim('$election', $term, repeat('x', $last)); END \$\$");
		return is($s->error, '', "$election: filled up to the limit");
	};
	my ($writer, $edge, $left) = map { session($node) } 1 .. 3;

	# Role oids whose lowest byte is 0: code that treats the number as a text would confuse the roles.
	foreach my $role ('writer', 'edge')
	{
		$writer->query("DO \$\$ BEGIN CREATE ROLE $role; WHILE (SELECT oid::bigint % 256 > 0 FROM pg_roles WHERE rolname = '$role') LOOP DROP ROLE $role; CREATE ROLE $role; END LOOP; END \$\$");
		is($writer->error, '', "role $role is created");
	}
	$set->(q{max_history_per_role = '1MB'});
	$writer->query('SET ROLE writer');
	$_->query('SET ROLE edge') foreach $edge, $left;

	# 129 + 248 * 4224 + 895 bytes
	my $term = $writer->query(q{SELECT campaign('full', 'x', '1 h')});
	$fill->($writer, 'full', $term, 767);
	$writer->query("SELECT proclaim('full', $term, 'x')");
	like($writer->error, $full, 'a proclaim beyond the limit is rejected');
	is(one($count), 250, 'the history has a megabyte before the rejected proclaim');
	$writer->query(q{SELECT campaign('full as well', 'x')});
	like($writer->error, $full, 'a campaign in another election is rejected as well');
	is($writer->query(q{SELECT release_lock('full', acquire_lock('full'))}), 't', 'a lock needs no room in the history');
	is($writer->query(q{SELECT term FROM current_leader('full')}), $term, 'the term continues');
	is($writer->query("SELECT renew_leadership('full', $term) IS NOT NULL, resign('full', $term)"), 't|t', 'the leader can renew and resign');

	# Another role has its own limit: 3 * 129 + 248 * 4224 + 636 bytes. 129 of them are for a term that ends with the
	# server; its end is the first change after the restart, long before the first pass over the table has finished.
	my $leads = $edge->query(q{SELECT campaign('edge', 'x', '1 h')});
	$left->query(q{SELECT campaign('left', 'x', NULL)});
	$fill->($edge, 'edge', $leads, 508);
	$by_hand->(q{INSERT INTO _lock_election.history SELECT n, n, now() - interval '8 days', now() - interval '8 days', 'edge'::regrole, 1, 'too old', 'o' FROM generate_series(1, 1000) AS n});
	$node->stop('immediate');
	$_->quit foreach $writer, $edge, $left;
	$node->start;
	($writer, $edge) = map { session($node) } 1 .. 2;
	$writer->query('SET ROLE writer');
	$edge->query('SET ROLE edge');
	ok(wait_until(sub { $writer->query(q{SELECT campaign('edge', 'x', wait => '0')}); $writer->error =~ $full }), 'the next manager counts the rows of the limit');
	wait_for_sql($node, q{SELECT count(*) = 0 FROM _lock_election.history WHERE election = 'too old'});
	is(story('left'), 'elected x, disconnected x', 'the end of the bound term is written despite the limit');
	$writer->query(q{SELECT campaign('edge', 'x', wait => '0')});
	like($writer->error, $full, 'the limit applies after the first pass over the table');
	$edge->query("SELECT proclaim('edge', $leads, 'x')");
	is($edge->error, '', 'each row is counted once, and old rows are not counted: one more byte fits');
	$edge->query("SELECT proclaim('edge', $leads, 'x')");
	like($edge->error, $full, 'a further byte does not fit');

	# Without a limit.
	$set->(q{max_history_per_role = '0'});
	is($writer->query(q{SELECT resign('full', campaign('full', 'x'))}), 't', 'max_history_per_role = 0 disables the limit');
	$set->(q{max_history_per_role = '1MB'});
	$writer->query(q{SELECT campaign('full', 'x')});
	like($writer->error, $full, 'the limit applies again after it is set');

	# The table is locked: the pass is not retried with each batch.
	my $locker = session($node);
	my $log = -s $node->logfile;
	$locker->query('BEGIN; LOCK TABLE _lock_election.history IN SHARE MODE');
	kill_manager('TERM');
	my $pid = manager_pid(); # The previous manager may have been due for a pass as well.
	my $refused = sub { return scalar(() = slurp_file($node->logfile, $log) =~ /\[$pid\] .*ERROR:  canceling statement due to lock timeout/g) };
	ok(wait_until(sub { $refused->() > 0 }), 'a pass does not wait for the locked table');
	is(one(q{SELECT release_lock('beat', acquire_lock('beat'))}), 't', 'locks work while the pass is delayed') foreach 1 .. 5;
	is($refused->(), 1, 'the pass is not retried within a minute');
	$locker->query('COMMIT');
	$locker->quit;

	# Rows that are too old.
	$by_hand->(q{UPDATE _lock_election.history SET at = now() - interval '8 days' WHERE election LIKE 'full%'});
	kill_manager('TERM');
	wait_for_sql($node, $count, '0');
	is($writer->query(q{SELECT resign('full', campaign('full', 'x'))}), 't', 'rows that are too old are not counted') or diag $writer->error;
	one(q{ALTER SYSTEM RESET lock_election.max_history_per_role});
	one('SELECT pg_reload_conf()');
	one(q{SELECT force_resign('edge')});
	$_->quit foreach $writer, $edge;
	one('DROP ROLE writer; DROP ROLE edge');
};

subtest '5000 terms on one lease' => sub {
	my $lease = one(q{SELECT grant_lease('1 h')});
	my $pid = one('SELECT pid FROM lock_election.manager');
	my $peak = sub { return slurp_file("/proc/$pid/status") =~ /VmHWM:\s+(\d+) kB/ ? $1 : undef; };

	plan skip_all => 'no /proc' if !-e "/proc/$pid/status";
	one("SELECT count(campaign('many' || n, repeat('x', 4096), lease => $lease)) FROM generate_series(1, 5000) AS n");
	my $before = $peak->();
	is(one("SELECT revoke_lease($lease)"), 't', 'the lease of 5000 terms is revoked');
	is(one(q{SELECT count(*) FROM _lock_election.history WHERE election LIKE 'many%' AND how = 5}), '5000', 'the end of each term is in the history');
	cmp_ok($peak->() - $before, '<', 20_000, 'the changes are not in memory all at once');
};

subtest 'a standby' => sub {
	$node->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'base', has_streaming => 1);
	$standby->start;
	my $term = one(q{SELECT campaign('s', 'one', '1 h')});
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	is(story('s', 0, $standby), 'elected one', 'a standby shows the history');
	is($standby->safe_psql('postgres', q{SELECT observe_election('s')}), one(q{SELECT observe_election('s')}), 'a standby returns the same channel');
	$node->stop;
	$standby->promote;
	wait_for_sql($standby, q{SELECT count(*) = 1 FROM lock_election.manager});
	is($standby->safe_psql('postgres', "SELECT resign('s', $term)"), 't', 'the leader resigns after a promotion');
	my $changes = $standby->safe_psql('postgres', q{SELECT string_agg((change > } . $term . q{)::text, ',') FROM election_history('s')});
	is(story('s', 0, $standby) . " $changes", 'elected one, resigned one true,true', 'the history continues after a promotion');
	$standby->stop;
};

done_testing();
