# The history of elections: every change once and in order, whatever ends meanwhile, and observers that catch up from
# it.
# Promises: H
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('primary', init => [ allows_streaming => 1 ], conf => "autovacuum = off\n");

# "elected one, resigned one": what has become of an election after that change.
sub story
{
	my ($election, $after, $on) = @_;
	return ($on // $node)->safe_psql('postgres',
		"SELECT string_agg(how || ' ' || candidate, ', ' ORDER BY ordinality) FROM election_history('$election', " . ($after // 0) . ') WITH ORDINALITY');
}

sub newest { return one("SELECT coalesce(max(change), 0) FROM election_history('$_[0]')"); }

# Terms begin when there is none, and end once.
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
	is(one("SELECT resign('e', $term)"), 't', 'resigned');
	my $second = $next->wait;
	wait_for_sql($node, q{SELECT count(*) = 0 FROM lock_election.elections});
	is(story('e'), 'elected a, proclaimed A, resigned A, elected b, expired b', 'is there, in order');
	is(one(q{SELECT string_agg(DISTINCT term::text, ',' ORDER BY term::text) FROM election_history('e')}), "$term,$second", 'with its term');
	is(one(q{SELECT bool_and(ended_at IS NULL = how IN ('elected', 'proclaimed') AND changed_at >= elected_at) FROM election_history('e')}),
		't', 'and its times');
	is(story('e', newest('e')), '', 'nothing after the newest');
	is(story('e', one(q{SELECT change FROM election_history('e') ORDER BY change OFFSET 2 LIMIT 1})), 'elected b, expired b', 'or what came after one');
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
	is(story('e', $before), 'elected c, undone c, elected d, revoked d, elected f, forced f, elected g, disconnected g', 'however a term ends');
	is(one(q{SELECT count(*) FROM (SELECT FROM election_history('e') GROUP BY term HAVING count(DISTINCT elected_at) > 1 OR min(changed_at) <> min(elected_at)) AS t}),
		'0', 'a term has one beginning');
	is(story('f'), '', 'of this election alone');
	one(q{CREATE ROLE reader LOGIN});
	is($node->safe_psql('postgres', q{SELECT count(*) FROM election_history('e')}, extra_params => [ '-U', 'reader' ]), '13', 'for everyone');
	is(one(q{SELECT count(*) FROM election_history('e', NULL)}), '13', 'from the beginning, if it is not said after which');

	# who looks often finds nothing most of the time
	my $manager = manager_pid();
	my $last = newest('e');
	stop_asleep($manager);
	is(one("SET statement_timeout = '20 s'; SELECT count(*) FROM election_history('e', $last)"), '0', 'nothing new needs no manager');
	like(error_of(q{SET statement_timeout = '200 ms'; SELECT count(*) FROM election_history('e', 0)}), qr/ERROR:  57014/, 'what there is does');
	kill 'CONT', $manager;
	my ($rc, undef, $err) = $node->psql('postgres', q{SELECT election_history('')});
	like($err, qr/must not be empty/, 'of an election that has a name');
	is_sound('terms follow each other');
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
	ok(wait_until(sub { $notices .= $observer->query('SELECT 1'); return (() = $notices =~ /"$channel"/g) >= 3; }), 'are told');
	is(join(' ', $notices =~ /"event":"(\w+)","term":"$term"/g), 'elected proclaimed resigned', 'of each change');
	my @changes = $notices =~ /"change":"(\d+)"/g;
	my @previous = $notices =~ /"previous":"(\d+)"/g;
	is(join(',', @changes), one(q{SELECT string_agg(change::text, ',' ORDER BY change) FROM election_history('o')}), 'by its number');
	is(join(',', @previous), join(',', 0, @changes[ 0, 1 ]), 'and the one before');
	unlike($notices, qr/"a"|"b"/, 'but not the candidate');

	# this one is missed: the next says so, and the history has it
	$observer->query("UNLISTEN $channel");
	my $missed = $leader->query(q{SELECT campaign('o', 'missed')});
	$leader->query("SELECT resign('o', $missed)");
	# hints are sent later: only what the witness has heard is over
	ok(wait_until(sub { return $witness->query('SELECT 1') =~ /"event":"resigned","term":"$missed"/; }), 'one is told what the other misses');
	$observer->query("LISTEN $channel");
	$notices = '';
	$leader->query(q{SELECT campaign('o', 'seen')});
	ok(wait_until(sub { $notices .= $observer->query('SELECT 1'); return $notices =~ /"$channel"/; }), 'and told again');
	my ($previous) = $notices =~ /"previous":"(\d+)"/;
	isnt($previous, $changes[2], 'a gap is seen');
	is(story('o', $changes[2]), 'elected missed, resigned missed, elected seen', 'and closed');

	# a candidate with a place hears it on the same channel, once
	my $place = $leader->query(q{SELECT term FROM enqueue_candidate('o', 'waits')});
	$notices = '';
	one(q{SELECT force_resign('o')});
	ok(wait_until(sub { $notices .= $observer->query('SELECT 1'); return $notices =~ /"$place"/; }), 'a candidate is told as well');
	$notices .= $observer->query('SELECT pg_sleep(0.1)');
	is(scalar(() = $notices =~ /"term":"$place"/g), 1, 'once');
	one(q{SELECT force_resign('o')});

	# only what is asked for
	$node->append_conf('postgresql.conf', "lock_election.notify = waiters");
	$node->reload;
	wait_for_sql($node, q{SELECT current_setting('lock_election.notify') = 'waiters'});
	$notices = '';
	my $quiet = $leader->query(q{SELECT campaign('o', 'quiet')});
	$place = $leader->query(q{SELECT term FROM enqueue_candidate('o', 'waits')});
	one(q{SELECT force_resign('o')});
	ok(wait_until(sub { $notices .= $observer->query('SELECT 1'); return $notices =~ /"$place"/; }), 'without observers: candidates');
	unlike($notices, qr/"term":"$quiet"/, 'and nobody else');
	one(q{SELECT force_resign('o')});
	$node->append_conf('postgresql.conf', "lock_election.notify = all");
	$node->reload;
	$_->quit foreach $observer, $witness, $leader;
};

subtest 'a manager, a server, a batch that ends' => sub {
	my $bound = session($node);
	my $before;

	one(q{SELECT campaign('kept', 'k', '1 h')});
	$bound->query(q{SELECT campaign('bound', 'b', NULL)});
	kill_manager('TERM');
	is(story('kept') . ', ' . story('bound'), 'elected k, elected b', 'a manager that restarts changes nothing');
	is(one(q{SELECT (SELECT elected_at FROM current_leader('kept')) = elected_at AND elected_at = (SELECT elected_at FROM lock_election.elections WHERE election = 'kept') FROM election_history('kept')}),
		't', 'who leads since when is told alike by all');
	$node->stop('immediate');
	$bound->kill;
	$node->start;
	wait_for_sql($node, q{SELECT count(*) = 1 FROM lock_election.manager});
	wait_for_sql($node, q{SELECT count(*) = 2 FROM election_history('bound')});
	is(story('kept'), 'elected k', 'after a crash the leader goes on');
	is(story('bound'), 'elected b, disconnected b', 'who was bound to a connection does not, and that is said');
	$node->restart;
	is(story('bound'), 'elected b, disconnected b', 'once');

	# somebody has the table: the change fails, and with it the election
	my $locker = session($node);
	$locker->query('BEGIN; LOCK TABLE _lock_election.history');
	my ($rc, undef, $err) = $node->psql('postgres', q{SELECT campaign('failed', 'f')});
	like($err, qr/locked by another session/, 'without the change there is no election');
	is(one(q{SELECT acquire_lock('other') > 0}), 't', 'locks do not need the history');
	$locker->query('COMMIT');
	is(story('failed'), '', 'nothing is told of it');
	ok(one(q{SELECT campaign('failed', 'f', '200ms')}) > 0, 'then it can be had');
	wait_for_sql($node, q{SELECT count(*) = 0 FROM lock_election.elections WHERE election = 'failed'});
	is(story('failed'), 'elected f, expired f', 'as if nothing had been');
	$locker->query('VACUUM FULL _lock_election.history');
	is($locker->error, '', 'the table can be rewritten');
	one(q{SELECT force_resign('kept')});
	is(story('kept'), 'elected k, forced k', 'and goes on');
	is_sound('terms follow each other');
	$locker->quit;
};

subtest 'a change that cannot be written' => sub {
	my $bound = session($node);

	# nobody has asked for what the next start finds: no request can be told
	$bound->query(q{SELECT campaign('unwritten', 'u', NULL)});
	one('ALTER TABLE _lock_election.history ALTER how TYPE integer');
	$node->stop('immediate');
	$bound->kill;
	$node->start;
	wait_for_sql($node, q{SELECT failed_batches > 0 FROM lock_election.stat});
	my $start = time;
	one(q{SELECT pg_sleep(2)});
	my $limit = 4 * (time - $start + 2);
	is(one("SELECT failed_batches <= $limit FROM lock_election.stat"), 't', 'is tried again now and then, not without a pause');
	one('ALTER TABLE _lock_election.history ALTER how TYPE smallint');
	wait_for_sql($node, q{SELECT count(*) = 2 FROM election_history('unwritten')});
	is(story('unwritten'), 'elected u, disconnected u', 'until it can');
	is(one(q{SELECT acquire_lock('unwritten') > 0}), 't', 'and all goes on');

	# an end by time has no request either; it is told once
	my $locker = session($node);
	my $late = one(q{SELECT campaign('late', 'l', '1 h')});
	$locker->query('BEGIN; LOCK TABLE _lock_election.history IN SHARE MODE');
	my $failed = one('SELECT failed_batches FROM lock_election.stat');
	shorten($locker, 'late', $late, '300 ms', 'renew_leadership');
	wait_for_sql($node, "SELECT failed_batches > $failed + 1 FROM lock_election.stat");
	is(one(q{SELECT acquire_lock('meanwhile') > 0}), 't', 'locks do not wait for it');
	is(story('late'), 'elected l', 'a leader whose end cannot be written');
	$locker->query('COMMIT');
	wait_for_sql($node, q{SELECT count(*) = 2 FROM election_history('late')});
	is(story('late'), 'elected l, expired l', 'ends once it can');

	# how a term has ended is known also when its fence ends after a reload
	my $writer = session($node);
	my $term = one(q{SELECT campaign('fenced', 'f')});
	$writer->query("BEGIN; SELECT fence_leader('fenced', $term)");
	one(q{SELECT force_resign('fenced')});
	$locker->query('BEGIN; LOCK TABLE _lock_election.history IN SHARE MODE');
	my (undef, undef, $err) = $node->psql('postgres', q{SELECT campaign('another', 'a')});
	like($err, qr/locked by another session/, 'a batch fails');
	$locker->query('COMMIT');
	is(story('fenced'), 'elected f', 'a leader who is fenced');
	$writer->query('COMMIT');
	wait_for_sql($node, q{SELECT count(*) = 2 FROM election_history('fenced')});
	is(story('fenced'), 'elected f, forced f', 'ends as it was ended');
	$writer->quit;
	$locker->quit;
};

subtest 'candidates who come and go' => sub {
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
		# On a busy machine a manager may take longer to start than such a short wait has patience, and a term of 100 ms,
		# or one that another session ends by force, may be over before its grant is on disk.
		unlike($s->error, qr/ERROR:  (?!57P03|LE001: election "busy" was lost while waiting for durability)/, 'a candidate has come through');
		$s->quit;
	}
	wait_for_sql($node, q{SELECT count(*) = 0 FROM lock_election.elections WHERE election = 'busy'});
	is(one(q{SELECT count(*) > 100 FROM election_history('busy')}), 't', 'much has happened');
	is_sound('and nothing is missing or told twice');
};

subtest 'retention' => sub {
	is(one('SHOW lock_election.history_retention'), '7d', 'a week');

	# rows of another time: only a superuser can make them, without the triggers
	one(q{ALTER TABLE _lock_election.history DISABLE TRIGGER ALL;
		INSERT INTO _lock_election.history SELECT n, n, now() - interval '6 days', now() - interval '6 days', 10, 1, 'before', 'b' FROM generate_series(1, 40000) AS n;
		INSERT INTO _lock_election.history SELECT n, n, now() - interval '8 days', now() - interval '8 days', 10, 1, 'old', 'o' FROM generate_series(1, 10000) AS n;
		INSERT INTO _lock_election.history SELECT n, n, now() - interval '6 days', now() - interval '6 days', 10, 1, 'new', 'n' FROM generate_series(1, 10) AS n;
		INSERT INTO _lock_election.history SELECT 1, 1, now(), now(), 10, how, 'how' || how, 'n' FROM unnest('{-1,0,9,10}'::int[]) AS how;
		ALTER TABLE _lock_election.history ENABLE ALWAYS TRIGGER refuse_write;
		ALTER TABLE _lock_election.history ENABLE ALWAYS TRIGGER refuse_row});
	kill_manager('TERM');
	wait_for_sql($node, q{SELECT count(*) = 0 FROM _lock_election.history WHERE election = 'old'}, 't');
	is(one(q{SELECT count(*) FROM election_history('new')}), '10', 'what is younger stays');
	is(one(q{SELECT count(*) FROM election_history('before')}), '40000', 'and has not held up the rest');
	is(one(q{SELECT how FROM election_history('how9')}), 'evicted', 'the last of the words for a change');
	like(error_of("SELECT * FROM election_history('how$_')"), qr/ERROR:  XX000: unknown change $_ of an election/, "$_ is none") foreach -1, 0, 10;
	my ($rc, undef, $err) = $node->psql('postgres', q{DELETE FROM _lock_election.history});
	like($err, qr/written only by lock_election/, 'nobody else deletes');
};

# A row counts 120 bytes, twice its election, and its candidate, until it is too old; elected and proclaimed candidates alone are
# refused.  One role has a megabyte to the byte, the other one byte less.
subtest 'as much as a role may have' => sub {
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
		return is($s->error, '', "$election: up to its megabyte");
	};
	my ($writer, $edge, $left) = map { session($node) } 1 .. 3;

	# of two numbers that are the same for who takes them for a text: their lowest byte is 0
	foreach my $role ('writer', 'edge')
	{
		$writer->query("DO \$\$ BEGIN CREATE ROLE $role; WHILE (SELECT oid::bigint % 256 > 0 FROM pg_roles WHERE rolname = '$role') LOOP DROP ROLE $role; CREATE ROLE $role; END LOOP; END \$\$");
		is($writer->error, '', "a role $role");
	}
	$set->(q{max_history_per_role = '1MB'});
	$writer->query('SET ROLE writer');
	$_->query('SET ROLE edge') foreach $edge, $left;

	# 129 + 248 * 4224 + 895 bytes
	my $term = $writer->query(q{SELECT campaign('full', 'x', '1 h')});
	$fill->($writer, 'full', $term, 767);
	$writer->query("SELECT proclaim('full', $term, 'x')");
	like($writer->error, $full, 'a proclaim too many');
	is(one($count), 250, 'comes after a megabyte');
	$writer->query(q{SELECT campaign('full as well', 'x')});
	like($writer->error, $full, 'nor may it campaign');
	is($writer->query(q{SELECT release_lock('full', acquire_lock('full'))}), 't', 'a lock has no history');
	is($writer->query(q{SELECT term FROM current_leader('full')}), $term, 'its term goes on');
	is($writer->query("SELECT renew_leadership('full', $term) IS NOT NULL, resign('full', $term)"), 't|t', 'and ends as it likes');

	# another role has its own: 3 * 129 + 248 * 4224 + 636 bytes, where 129 are of a term that ends with the server, and is the
	# first change after it, long before the first pass is done
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
	ok(wait_until(sub { $writer->query(q{SELECT campaign('edge', 'x', wait => '0')}); $writer->error =~ $full }), 'another manager counts it');
	wait_for_sql($node, q{SELECT count(*) = 0 FROM _lock_election.history WHERE election = 'too old'});
	is(story('left'), 'elected x, disconnected x', 'the other one has another row');
	$writer->query(q{SELECT campaign('edge', 'x', wait => '0')});
	like($writer->error, $full, 'all has been counted');
	$edge->query("SELECT proclaim('edge', $leads, 'x')");
	is($edge->error, '', 'once; and what was too old no more: there is room for a byte');
	$edge->query("SELECT proclaim('edge', $leads, 'x')");
	like($edge->error, $full, 'and then there is not');

	# without a limit
	$set->(q{max_history_per_role = '0'});
	is($writer->query(q{SELECT resign('full', campaign('full', 'x'))}), 't', 'without a limit it does not matter');
	$set->(q{max_history_per_role = '1MB'});
	$writer->query(q{SELECT campaign('full', 'x')});
	like($writer->error, $full, 'with one it does');

	# somebody has the table: it is not asked for again with each batch
	my $locker = session($node);
	my $log = -s $node->logfile;
	$locker->query('BEGIN; LOCK TABLE _lock_election.history IN SHARE MODE');
	kill_manager('TERM');
	my $pid = manager_pid(); # the one before may have been due for a pass as well
	my $refused = sub { return scalar(() = slurp_file($node->logfile, $log) =~ /\[$pid\] .*ERROR:  canceling statement due to lock timeout/g) };
	ok(wait_until(sub { $refused->() > 0 }), 'a pass waits for nobody');
	is(one(q{SELECT release_lock('beat', acquire_lock('beat'))}), 't', 'locks go on') foreach 1 .. 5;
	is($refused->(), 1, 'and goes on a minute later');
	$locker->query('COMMIT');
	$locker->quit;

	# too old
	$by_hand->(q{UPDATE _lock_election.history SET at = now() - interval '8 days' WHERE election LIKE 'full%'});
	kill_manager('TERM');
	wait_for_sql($node, $count, '0');
	is($writer->query(q{SELECT resign('full', campaign('full', 'x'))}), 't', 'what is too old counts no more') or diag $writer->error;
	one(q{ALTER SYSTEM RESET lock_election.max_history_per_role});
	one('SELECT pg_reload_conf()');
	one(q{SELECT force_resign('edge')});
	$_->quit foreach $writer, $edge;
	one('DROP ROLE writer; DROP ROLE edge');
};

subtest 'many leaders at once' => sub {
	my $lease = one(q{SELECT grant_lease('1 h')});
	my $pid = one('SELECT pid FROM lock_election.manager');
	my $peak = sub { return slurp_file("/proc/$pid/status") =~ /VmHWM:\s+(\d+) kB/ ? $1 : undef; };

	plan skip_all => 'no /proc' if !-e "/proc/$pid/status";
	one("SELECT count(campaign('many' || n, repeat('x', 4096), lease => $lease)) FROM generate_series(1, 5000) AS n");
	my $before = $peak->();
	is(one("SELECT revoke_lease($lease)"), 't', 'end with their lease');
	is(one(q{SELECT count(*) FROM _lock_election.history WHERE election LIKE 'many%' AND how = 5}), '5000', 'all of them');
	cmp_ok($peak->() - $before, '<', 20_000, 'and their changes are not all in memory at once');
};

subtest 'a standby' => sub {
	$node->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'base', has_streaming => 1);
	$standby->start;
	my $term = one(q{SELECT campaign('s', 'one', '1 h')});
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	is(story('s', 0, $standby), 'elected one', 'shows the history');
	is($standby->safe_psql('postgres', q{SELECT observe_election('s')}), one(q{SELECT observe_election('s')}), 'and the channel');
	$node->stop;
	$standby->promote;
	wait_for_sql($standby, q{SELECT count(*) = 1 FROM lock_election.manager});
	is($standby->safe_psql('postgres', "SELECT resign('s', $term)"), 't', 'the leader goes on after a promotion');
	my $changes = $standby->safe_psql('postgres', q{SELECT string_agg((change > } . $term . q{)::text, ',') FROM election_history('s')});
	is(story('s', 0, $standby) . " $changes", 'elected one, resigned one true,true', 'and so does the history');
	$standby->stop;
};

done_testing();
