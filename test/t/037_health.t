# health() always replies: without the library, on a standby, while the manager is loading, stopped or missing, and
# while no synchronous standby confirms. With lock_election.min_durability = remote, nothing is granted without a
# standby.
# Promises: D
# Needs: faults
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $primary = new_node('primary', init => [ allows_streaming => 1 ], conf => "autovacuum = off\nwal_retrieve_retry_interval = 100ms\n", faults => 1);
my $standby = PostgreSQL::Test::Cluster->new('s1', install_path => $ENV{LE_FAULTS_TREE});
$primary->backup('base');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

# At no level is anything waited for; a statement_timeout would end what waits.
sub health
{
	my ($node, $columns) = @_;
	my ($out, $err);

	$node->psql('postgres', "SET statement_timeout = '20 s'; SELECT $columns FROM lock_election.health()", stdout => \$out, stderr => \$err);
	die $err if $err ne '';
	return $out;
}

sub is_healthy
{
	my ($node, $problem, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $told;

	# both at once: a moment later it may be another
	wait_until(sub { return ($told = health($node, 'problem, ok')) =~ /^\Q$problem\E\|/ });
	return is($told, $problem eq '' ? '|t' : "$problem|f", $name) || diag health($node, '*');
}

# Waits until this session waits for a standby.
sub waits_for_standby
{
	my ($s) = @_;
	return wait_for_sql($primary, q{SET synchronous_commit = local; SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = } . $s->pid);
}

my $version = one($primary, 'SHOW lock_election.version');
like(slurp_file('META.json'), qr/"version": "\Q@{[ one($primary, 'SHOW lock_election.release') ]}\E"/, 'the release is told');
subtest 'a primary' => sub {
	is_healthy($primary, '', 'all is well');
	is(health($primary, 'role, manager, loading, request_wait, standby_confirms, standby_wait, library_version, sql_version, replayed_at'),
		"primary|t|f|00:00:00||00:00:00|$version|$version|", 'its columns');
	is(health($primary, 'incarnation'), one($primary, 'SELECT incarnation FROM lock_election.manager'), 'incarnation');
	one($primary, q{CREATE ROLE prober LOGIN});
	is(one($primary, q{SET ROLE prober; SELECT ok FROM lock_election.health()}), 't', 'for everyone');

	# each database has its own
	one($primary, 'CREATE DATABASE second');
	one($primary, 'CREATE EXTENSION lock_election', 'second');
	wait_for_sql($primary, 'SELECT ok FROM lock_election.health()', 't', dbname => 'second');
	is(one($primary, 'SELECT incarnation = (SELECT incarnation FROM lock_election.manager) FROM lock_election.health()', 'second'), 't', 'of another database');
	my $pid = one($primary, q{SELECT pid FROM lock_election.manager});
	my $asks = session($primary);
	$asks->query('SELECT 1');
	stop_asleep($pid);
	$asks->async(q{SELECT is_held('a', 1)});
	is_healthy($primary, 'the manager of this database does not reply', 'one of two managers is stopped');
	is(one($primary, q{SELECT ok, request_wait FROM lock_election.health()}, 'second'), 't|00:00:00', 'which is nothing to the other database');
	kill 'CONT', $pid;
	is($asks->wait, 'f', 'it goes on');
	$asks->quit;
	one($primary, 'DROP DATABASE second');
	is_healthy($primary, '', 'all is well again');

	my $holder = session($primary);
	my $waiter = session($primary);
	$holder->query(q{SELECT acquire_lock('busy', '1 h')});
	$waiter->async(q{SELECT acquire_lock('busy', '1 h')});
	wait_for_sql($primary, q{SELECT clock_timestamp() - waiting_since > '2500 ms' FROM lock_election.waiters});
	is_healthy($primary, '', 'a long wait for a lock is none for the manager');
	$holder->query(q{SELECT release_lock('busy')});
	$waiter->wait;
	is($waiter->query(q{SELECT release_lock('busy')}), 't', 'handed on');
	$_->quit foreach $holder, $waiter;
};

subtest 'a standby' => sub {
	$primary->wait_for_catchup($standby);
	is_healthy($standby, 'this is a standby: it shows locks, and grants none', 'a standby');
	is(health($standby, 'role, manager, standby_confirms, sql_version'), "standby|f||$version", 'its columns');
	$standby->append_conf('postgresql.conf', "synchronous_standby_names = 'nobody'");
	$standby->reload;
	wait_for_sql($standby, 'SHOW synchronous_standby_names', 'nobody');
	is(health($standby, 'standby_confirms'), '', 'nobody waits for its standbys');
	$standby->append_conf('postgresql.conf', "synchronous_standby_names = ''");
	$standby->reload;
	wait_for_sql($standby, 'SHOW synchronous_standby_names', '');
	my $before = health($standby, 'replayed_at');
	one($primary, q{SELECT acquire_lock('seen', '1 h')});
	$primary->wait_for_catchup($standby, 'replay');
	is(one($standby, qq{SELECT replayed_at > '$before' AND replayed_at = (SELECT replayed_at FROM lock_election.health()) FROM lock_election.locks WHERE name = 'seen'}),
		't', 'when it replayed last, in the view as well');
	is(one($primary, q{SELECT count(*), count(replayed_at) FROM lock_election.locks}), '1|0', 'not on a primary');
	one($primary, q{SELECT campaign('boss', 'me', '1 h')});
	$primary->wait_for_catchup($standby, 'replay');
	is(one($standby, q{SELECT replayed_at IS NOT NULL FROM lock_election.elections}), 't', 'elections');
	one($primary, q{SELECT force_release_lock('seen'), force_resign('boss')});
};

subtest 'the manager' => sub {
	my $pid = one($primary, 'SELECT pid FROM lock_election.manager');
	my $s = session($primary);
	$s->query('SELECT 1');
	stop_asleep($pid);
	is(health($primary, 'ok, manager'), 't|t', 'stopped: nobody can know before somebody asks');
	$s->async(q{SELECT acquire_lock('a', '1 h')});
	is_healthy($primary, 'the manager of this database does not reply', 'stopped, and somebody asks');
	cmp_ok(health($primary, 'extract(epoch FROM request_wait)'), '>=', 2, 'how long that has waited');
	kill 'CONT', $pid;
	like($s->wait, qr/^\d+$/, 'goes on');
	is_healthy($primary, '', 'and all is well');

	kill 'STOP', $pid;
	$s->async(q{SELECT renew_lock('a', 1)});
	is_healthy($primary, 'the manager of this database does not reply', 'stopped again');
	one($primary, 'SELECT pg_cancel_backend(' . $s->pid . ')');
	$s->wait;
	like($s->error, qr/ERROR:  57014/, 'who waits gives up');
	is(health($primary, 'request_wait'), '00:00:00', 'then nobody waits');
	is_healthy($primary, 'the manager of this database does not reply', 'but somebody has waited too long');
	kill 'CONT', $pid;
	is_healthy($primary, '', 'it goes on');

	one($primary, q{SELECT fault_set('manager-loaded', 'wait')});
	one($primary, "SELECT pg_terminate_backend($pid)");
	is_healthy($primary, 'the manager of this database is loading its tables', 'it loads');
	is(health($primary, 'manager, loading, incarnation'), 'f|t|', 'its columns');
	one($primary, q{SELECT fault_release('manager-loaded')});
	is_healthy($primary, '', 'loaded');
	one($primary, q{SELECT force_release_lock('a')});

	one($primary, q{SELECT fault_set('manager-start', 'error', times => 100)});
	one($primary, q{SELECT pg_terminate_backend(pid) FROM lock_election.manager});
	is_healthy($primary, 'no manager runs for this database', 'it does not start');
	$s->query(q{SELECT renew_lock('a', 1)});
	like($s->error, qr/ERROR:  57P03/, 'who waits gives up');
	is(health($primary, 'request_wait'), '00:00:00', 'then nobody waits');
	one($primary, q{SELECT fault_clear()});
	is_healthy($primary, '', 'it starts again');
	$s->quit;
};

# One that the manager finds only when its session has ended is not left lying either.
subtest 'tables that are locked' => sub {
	my ($admin, $other, $s) = map { session($primary) } 1 .. 3;

	$admin->query('BEGIN; LOCK TABLE _lock_election.slot IN ACCESS EXCLUSIVE MODE');
	$other->query(q{SELECT acquire_lock('a', '1 h')});
	like($other->error, qr/ERROR:  55P03/, 'an error');
	one($primary, q{SELECT fault_set('manager-took', 'wait')});
	$s->async(q{SELECT renew_lock('a', 1)});
	wait_for_sql($primary, q{SELECT request_wait > '0' AND fault_waiting('manager-took') > 0 FROM lock_election.health()});
	one($primary, 'SELECT pg_terminate_backend(' . $s->pid . ')');
	wait_for_sql($primary, 'SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ' . $s->pid);
	is_healthy($primary, 'the manager of this database does not reply', 'the session has ended');
	is(health($primary, 'request_wait'), '00:00:00', 'so that nobody waits');
	one($primary, q{SELECT fault_clear()});
	my $locked = 'nothing can be written: process ' . $admin->pid . ' has locked the tables of lock_election, or waits to';
	is_healthy($primary, $locked, 'it has looked at the request');
	is(health($primary, "blocked_by, cannot_write_since BETWEEN now() - interval '10 min' AND now()"), $admin->pid . '|t', 'by whom, and since when');
	$admin->query('ROLLBACK');
	is_healthy($primary, '', 'the lock is gone');
	is(health($primary, 'blocked_by, cannot_write_since'), '|', 'and nothing of it is told');

	# who only waits for the lock keeps the manager out as well
	my $reader = session($primary);
	$reader->query('BEGIN; LOCK TABLE _lock_election.slot IN ACCESS SHARE MODE');
	$admin->async('VACUUM FULL _lock_election.slot');
	wait_for_sql($primary, 'SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND pid = ' . $admin->pid);
	$other->query(q{SELECT acquire_lock('a', '1 h')});
	like($other->error, qr/ERROR:  55P03/, 'an error again');
	is_healthy($primary, $locked, 'behind a reader');
	$reader->quit;
	$admin->wait;
	is_healthy($primary, '', 'it goes on');
	$_->quit foreach $admin, $other;
	wait_for_sql($primary, q{SELECT release_lock('a', try_acquire_lock('a'))});
};

sub synchronous
{
	my ($names, $count) = @_;
	one($primary, "SET synchronous_commit = local; ALTER SYSTEM SET synchronous_standby_names = '$names'");
	$primary->reload;
	return wait_for_sql($primary, "SET synchronous_commit = local; SELECT count(*) = $count FROM pg_stat_replication WHERE sync_state = 'sync'");
}

subtest 'synchronous standbys' => sub {
	synchronous('s1', 1);
	is_healthy($primary, '', 'one that is there');
	is(health($primary, 'standby_confirms'), 't', 'confirms');
	my $s = session($primary);
	my $receiver = wal_receiver($standby);
	kill 'STOP', $receiver;
	$s->async(q{SELECT acquire_lock('a', '1 h')});
	is_healthy($primary, 'no synchronous standby confirms', 'one that does not answer');
	is(health($primary, q{standby_confirms, standby_wait >= '2 s'}), 'f|t', 'how long that has lasted');
	kill 'CONT', $receiver;
	like($s->wait, qr/^\d+$/, 'answers again');
	is_healthy($primary, '', 'and all is well');
	$s->query(q{SELECT release_lock('a')});

	# what it has received it may replay much later: readers of the standby can cause that, and any session wait for it
	one($standby, 'SELECT pg_wal_replay_pause()');
	$s->query('SET synchronous_commit = remote_apply');
	$s->async(q{SELECT acquire_lock('b', '1 h')});
	my $until = time + 2.5;
	waits_for_standby($s);
	wait_until(sub { time > $until });
	is_healthy($primary, '', 'one that does not replay');
	is(one($primary, q{SET synchronous_commit = remote_apply; SELECT problem FROM lock_election.health()}), 'no synchronous standby confirms',
		'is told to who waits for its replay');
	ok(!$s->ready, 'as somebody does');

	# received is not enough for them, and what is cancelled is not confirmed
	my $t = session($primary, connstr => "options='-c synchronous_commit=remote_apply'");
	$t->async(q{SELECT acquire_lock('c', '1 h')});
	waits_for_standby($t);
	one($primary, 'SELECT pg_cancel_backend(' . $t->pid . ')');
	is($t->wait, '', 'not granted');
	like($t->error, qr/ERROR:  57014: canceling wait for the replication of a lock/, 'but cancelled');
	$t->query(q{SET synchronous_commit = local; SELECT acquire_lock('c', '1 h'); SET synchronous_commit = remote_apply});
	$t->query(q{BEGIN; SET LOCAL synchronous_commit = local; SELECT release_lock('c'); SET LOCAL synchronous_commit = remote_apply});
	$t->async('COMMIT');
	waits_for_standby($t);
	one($primary, 'SELECT pg_cancel_backend(' . $t->pid . ')');
	$t->wait;
	like($t->error, qr/WARNING:  01000: canceling wait for synchronous replication due to user request\n/, 'nor is a commit');
	$t->quit;
	one($standby, 'SELECT pg_wal_replay_resume()');
	like($s->wait, qr/^\d+$/, 'goes on');
	$s->query(q{SELECT release_lock('b')});
	$s->query('RESET synchronous_commit');

	# also of the releases of a commit
	$s->query(q{SELECT acquire_lock('a', '1 h')});
	$s->query(q{BEGIN; SELECT release_lock('a')});
	kill 'STOP', $receiver;
	$s->async(q{COMMIT});
	is_healthy($primary, 'no synchronous standby confirms', 'a COMMIT that waits');
	kill 'CONT', $receiver;
	$s->wait;
	synchronous('s1, s2', 1);
	is_healthy($primary, '', 'one of two is enough');
	synchronous('2 (s1, s2)', 1);
	is_healthy($primary, 'no synchronous standby confirms', 'one of two is not');
	synchronous('', 0);
	is_healthy($primary, '', 'none is asked for');
	$s->quit;
};

subtest 'min_durability = remote' => sub {
	$primary->append_conf('postgresql.conf', "lock_election.min_durability = remote\n");
	my $s = session($primary, connstr => "options='-c synchronous_commit=off'");
	my $token = $s->query(q{SELECT acquire_lock('held', '1 h')});
	my $show = 'SHOW synchronous_commit; SHOW client_min_messages; SHOW log_min_messages';
	my $settings = $s->query($show);
	my $lease = $s->query(q{SELECT grant_lease('1 h')});
	my $term = $s->query(q{SELECT campaign('boss', 'me', '1 h')});
	my $place = $s->query(q{SELECT token FROM enqueue_lock('held', '1 h')});
	$primary->reload;
	is_healthy($primary, 'no synchronous standby is defined, and lock_election.min_durability is remote', 'no standby is defined');
	foreach my $call (
		q{acquire_lock('a')}, q{acquire_lock('a', ttl => NULL)}, q{acquire_locks('{a, b}')}, q{acquire_permit('p', 1)}, q{enqueue_lock('a')},
		"await_lock('held', $place)", "renew_lock('held', $token)", "is_held('held', $token)", "fence_lock('held', $token)", q{campaign('e', 'me')},
		"proclaim('boss', $term, 'you')", "renew_leadership('boss', $term)", "is_leader('boss', $term)", 'grant_lease()', "keep_alive($lease)")
	{
		$s->query("SELECT $call");
		like($s->error, qr/ERROR:  57P03: no synchronous standby is defined\n/m, "$call: refused");
	}
	is($s->query(q{SELECT candidate FROM current_leader('boss')}), 'me', 'whoever looks sees');
	is($s->query(q{SELECT string_agg(name, ' ' ORDER BY name) FROM lock_election.locks}), 'boss held', 'the views show');
	$s->query("BEGIN; SELECT release_lock('held', $token)");
	like($s->error, qr/ERROR:  57P03: no synchronous standby is defined\n/, 'a release in a transaction, which says that it is held: refused');
	$s->query('ROLLBACK');
	foreach my $call ("release_lock('held', $place)", "release_lock('held', $token)", "resign('boss', $term)", "revoke_lease($lease)")
	{
		is($s->query("SELECT $call"), 't', "$call: given back") or diag $s->error;
	}

	# with one, also those wait who ask for nothing
	synchronous('s1', 1);
	is_healthy($primary, '', 'a standby is defined');
	$token = $s->query(q{SELECT acquire_lock('held', '1 h')});
	like($token, qr/^\d+$/, 'granted');
	my $receiver = wal_receiver($standby);

	# who has given up to wait for the replay does not hide who waits for less
	one($standby, 'SELECT pg_wal_replay_pause()');
	my $replays = session($primary, connstr => "options='-c synchronous_commit=remote_apply'");
	$replays->query(q{SET statement_timeout = '200 ms'; SELECT acquire_lock('replays', '1 h')});
	like($replays->error, qr/ERROR:  57014/, 'the replay is given up');
	$replays->quit;
	is_healthy($primary, '', 'which is nothing to others');
	kill 'STOP', $receiver;
	$s->async("SELECT renew_lock('held', $token) IS NOT NULL");
	waits_for_standby($s);
	is(one($primary, q{SET synchronous_commit = local; INSERT INTO other VALUES (1) RETURNING 1}), 1, 'other commits at level local wait for nobody')
	  if one($primary, q{SET synchronous_commit = local; CREATE TABLE other (n int)}) eq '';
	ok(!$s->ready, 'synchronous_commit = off waits for the standby');

	# who gives up after less than that hides nothing
	my $hasty = session($primary);
	$hasty->query(q{SET statement_timeout = '200 ms'; SELECT acquire_lock('hasty', '1 h')});
	like($hasty->error, qr/ERROR:  57014/, 'another caller gives up');
	one($primary, 'SELECT pg_cancel_backend(' . $s->pid . ')');
	$s->wait;
	like($s->error, qr/ERROR:  57014/, 'and the first one');
	is_healthy($primary, 'no synchronous standby confirms', 'nobody waits, and nothing is confirmed');
	cmp_ok(health($primary, 'extract(epoch FROM standby_wait)'), '>=', 2, 'for how long');
	synchronous('', 0);
	is(health($primary, 'standby_confirms, standby_wait'), '|00:00:00', 'once none is defined, none is waited for');
	synchronous('s1', 1);
	is_healthy($primary, 'no synchronous standby confirms', 'until one is');
	kill 'CONT', $receiver;
	one($standby, 'SELECT pg_wal_replay_resume()');
	is_healthy($primary, '', 'it confirms');
	is(health($primary, 'standby_wait'), '00:00:00', 'and nothing is told of it');
	$hasty->quit;
	kill 'STOP', $receiver;
	$s->async("SELECT renew_lock('held', $token) IS NOT NULL");
	waits_for_standby($s);

	# the cluster manager gives the standby up meanwhile: that confirms nothing
	synchronous('', 0);
	is($s->wait, '', 'not confirmed');
	like($s->error, qr/ERROR:  57P03: no synchronous standby is defined\n/m, 'and says why');
	kill 'CONT', $receiver;
	is($s->query($show), $settings, 'the settings of the session stay');
	synchronous('s1', 1);
	is($s->query("SELECT renew_lock('held', $token) IS NOT NULL"), 't', 'held all the time');
	is($s->query("SELECT release_lock('held', $token)"), 't', 'released');
	synchronous('', 0);
	$s->quit;
	nothing_left($primary);
};

# Names of standbys to which the server sends nothing: nobody waits for them, as no commit does.
subtest 'max_wal_senders = 0' => sub {
	$primary->append_conf('postgresql.conf', "max_wal_senders = 0\nsynchronous_standby_names = 's1'\nlock_election.min_durability = off\n");
	one($primary, q{SET synchronous_commit = local; ALTER SYSTEM RESET synchronous_standby_names});
	$primary->restart;
	my $s = session($primary);
	my $token = $s->query(q{SET statement_timeout = '30 s'; SELECT acquire_lock('held', '1 h')});
	like($token, qr/^\d+$/, 'a grant waits for none');
	is($s->query("SELECT renew_lock('held', $token) IS NOT NULL"), 't', 'nor does a renewal');
	$s->query("BEGIN; SELECT release_lock('held', $token); COMMIT");
	is($s->error, '', 'nor a commit that releases');
	nothing_left($primary);
	$primary->append_conf('postgresql.conf', "lock_election.min_durability = remote\n");
	$primary->reload;
	wait_for_sql($primary, 'SHOW lock_election.min_durability', 'remote');
	$s->query(q{SELECT acquire_lock('held', '1 h')});
	like($s->error, qr/ERROR:  57P03: no synchronous standby is defined\n/, 'which is refused where it has to');
	$s->quit;
};

subtest 'without the library' => sub {
	$primary->append_conf('postgresql.conf', "shared_preload_libraries = ''\nmax_wal_senders = 0\nsynchronous_standby_names = 's1'\n");
	$primary->restart;
	unlike(slurp_file($primary->logfile), qr/lock_election launcher .*FATAL/, 'the launcher has left the server without a FATAL in its log');
	is_healthy($primary, 'lock_election is not in shared_preload_libraries', 'not preloaded');
	is(health($primary, 'role, manager, library_version, sql_version'), "primary|f||$version", 'its columns');
	is(health($primary, 'standby_confirms'), '', 'where no standby can be there, none is waited for');
};

$_->stop foreach $standby, $primary;
done_testing();
