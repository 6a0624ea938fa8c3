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

# Runs health() with the default durability. statement_timeout would end it if it waited.
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

	# Both columns in one call, because a moment later the state may differ.
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
like(slurp_file('META.json'), qr/"version": "\Q@{[ one($primary, 'SHOW lock_election.release') ]}\E"/, 'lock_election.release agrees with META.json');
subtest 'a primary' => sub {
	is_healthy($primary, '', 'a healthy primary has no problem');
	is(health($primary, 'role, manager, loading, request_wait, standby_confirms, standby_wait, library_version, sql_version, replayed_at'),
		"primary|t|f|00:00:00||00:00:00|$version|$version|", 'columns on a healthy primary');
	is(health($primary, 'incarnation'), one($primary, 'SELECT incarnation FROM lock_election.manager'),
		'the incarnation is that of the manager');
	one($primary, q{CREATE ROLE prober LOGIN});
	is(one($primary, q{SET ROLE prober; SELECT ok FROM lock_election.health()}), 't', 'every role can call health()');

	# Each database has its own state.
	one($primary, 'CREATE DATABASE second');
	one($primary, 'CREATE EXTENSION lock_election', 'second');
	wait_for_sql($primary, 'SELECT ok FROM lock_election.health()', 't', dbname => 'second');
	is(one($primary, 'SELECT incarnation = (SELECT incarnation FROM lock_election.manager) FROM lock_election.health()', 'second'), 't', 'a second database shows its own incarnation');
	my $pid = one($primary, q{SELECT pid FROM lock_election.manager});
	my $asks = session($primary);
	$asks->query('SELECT 1');
	stop_asleep($pid);
	$asks->async(q{SELECT is_held('a', 1)});
	is_healthy($primary, 'the manager of this database does not reply',
		'a stopped manager that has a request is reported');
	is(one($primary, q{SELECT ok, request_wait FROM lock_election.health()}, 'second'), 't|00:00:00', 'the other database is not affected');
	kill 'CONT', $pid;
	is($asks->wait, 'f', 'the manager replies after it continues');
	$asks->quit;
	one($primary, 'DROP DATABASE second');
	is_healthy($primary, '', 'the primary is healthy again');

	my $holder = session($primary);
	my $waiter = session($primary);
	$holder->query(q{SELECT acquire_lock('busy', '1 h')});
	$waiter->async(q{SELECT acquire_lock('busy', '1 h')});
	wait_for_sql($primary, q{SELECT clock_timestamp() - waiting_since > '2500 ms' FROM lock_election.waiters});
	is_healthy($primary, '', 'a long wait for a lock is not reported as a problem of the manager');
	$holder->query(q{SELECT release_lock('busy')});
	$waiter->wait;
	is($waiter->query(q{SELECT release_lock('busy')}), 't', 'the lock is released after the wait');
	$_->quit foreach $holder, $waiter;
};

subtest 'a standby' => sub {
	$primary->wait_for_catchup($standby);
	is_healthy($standby, 'this is a standby: it shows locks, and grants none',
		'a standby reports that it is a standby');
	is(health($standby, 'role, manager, standby_confirms, sql_version'), "standby|f||$version", 'columns on a standby');
	$standby->append_conf('postgresql.conf', "synchronous_standby_names = 'nobody'");
	$standby->reload;
	wait_for_sql($standby, 'SHOW synchronous_standby_names', 'nobody');
	is(health($standby, 'standby_confirms'), '', 'a standby does not check its own standbys');
	$standby->append_conf('postgresql.conf', "synchronous_standby_names = ''");
	$standby->reload;
	wait_for_sql($standby, 'SHOW synchronous_standby_names', '');
	my $before = health($standby, 'replayed_at');
	one($primary, q{SELECT acquire_lock('seen', '1 h')});
	$primary->wait_for_catchup($standby, 'replay');
	is(one($standby, qq{SELECT replayed_at > '$before' AND replayed_at = (SELECT replayed_at FROM lock_election.health()) FROM lock_election.locks WHERE name = 'seen'}),
		't', 'replayed_at is the time of the last replay, in health() and in the views');
	is(one($primary, q{SELECT count(*), count(replayed_at) FROM lock_election.locks}), '1|0',
		'replayed_at is NULL on a primary');
	one($primary, q{SELECT campaign('boss', 'me', '1 h')});
	$primary->wait_for_catchup($standby, 'replay');
	is(one($standby, q{SELECT replayed_at IS NOT NULL FROM lock_election.elections}), 't',
		'view elections has replayed_at on a standby');
	one($primary, q{SELECT force_release_lock('seen'), force_resign('boss')});
};

subtest 'the manager' => sub {
	my $pid = one($primary, 'SELECT pid FROM lock_election.manager');
	my $s = session($primary);
	$s->query('SELECT 1');
	stop_asleep($pid);
	is(health($primary, 'ok, manager'), 't|t', 'a stopped manager without requests is not noticed');
	$s->async(q{SELECT acquire_lock('a', '1 h')});
	is_healthy($primary, 'the manager of this database does not reply', 'a stopped manager with a request is reported');
	cmp_ok(health($primary, 'extract(epoch FROM request_wait)'), '>=', 2,
		'request_wait is the time for which the request has waited');
	kill 'CONT', $pid;
	like($s->wait, qr/^\d+$/, 'the request is granted after the manager continues');
	is_healthy($primary, '', 'the primary is healthy after the manager continues');

	kill 'STOP', $pid;
	$s->async(q{SELECT renew_lock('a', 1)});
	is_healthy($primary, 'the manager of this database does not reply',
		'the manager is reported when it is stopped again');
	one($primary, 'SELECT pg_cancel_backend(' . $s->pid . ')');
	$s->wait;
	like($s->error, qr/ERROR:  57014/, 'the waiting call is cancelled');
	is(health($primary, 'request_wait'), '00:00:00', 'request_wait is zero after the call was cancelled');
	is_healthy($primary, 'the manager of this database does not reply',
		'the problem is reported although the call was cancelled');
	kill 'CONT', $pid;
	is_healthy($primary, '', 'the primary is healthy after the manager continues');

	one($primary, q{SELECT fault_set('manager-loaded', 'wait')});
	one($primary, "SELECT pg_terminate_backend($pid)");
	is_healthy($primary, 'the manager of this database is loading its tables',
		'a manager that loads its tables is reported');
	is(health($primary, 'manager, loading, incarnation'), 'f|t|', 'columns while the manager loads');
	one($primary, q{SELECT fault_release('manager-loaded')});
	is_healthy($primary, '', 'the primary is healthy after the manager has loaded');
	one($primary, q{SELECT force_release_lock('a')});

	one($primary, q{SELECT fault_set('manager-start', 'error', times => 100)});
	one($primary, q{SELECT pg_terminate_backend(pid) FROM lock_election.manager});
	is_healthy($primary, 'no manager runs for this database', 'a manager that does not start is reported');
	$s->query(q{SELECT renew_lock('a', 1)});
	like($s->error, qr/ERROR:  57P03/, 'a waiting call gives up');
	is(health($primary, 'request_wait'), '00:00:00', 'request_wait is zero after the call gave up');
	one($primary, q{SELECT fault_clear()});
	is_healthy($primary, '', 'the primary is healthy after the manager has started');
	$s->quit;
};

# A request that the manager takes only after its session has ended must not be left over.
subtest 'locked tables' => sub {
	my ($admin, $other, $s) = map { session($primary) } 1 .. 3;

	$admin->query('BEGIN; LOCK TABLE _lock_election.slot IN ACCESS EXCLUSIVE MODE');
	$other->query(q{SELECT acquire_lock('a', '1 h')});
	like($other->error, qr/ERROR:  55P03/, 'an acquire fails');
	one($primary, q{SELECT fault_set('manager-took', 'wait')});
	$s->async(q{SELECT renew_lock('a', 1)});
	wait_for_sql($primary, q{SELECT request_wait > '0' AND fault_waiting('manager-took') > 0 FROM lock_election.health()});
	one($primary, 'SELECT pg_terminate_backend(' . $s->pid . ')');
	wait_for_sql($primary, 'SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ' . $s->pid);
	is_healthy($primary, 'the manager of this database does not reply',
		'the stopped manager is reported although the session of the request has ended');
	is(health($primary, 'request_wait'), '00:00:00', 'request_wait is zero because the session has ended');
	one($primary, q{SELECT fault_clear()});
	my $locked = 'nothing can be written: process ' . $admin->pid . ' has locked the tables of lock_election, or waits to';
	is_healthy($primary, $locked, 'the locked tables are reported after the manager has taken the request');
	is(health($primary, "blocked_by, cannot_write_since BETWEEN now() - interval '10 min' AND now()"), $admin->pid . '|t', 'blocked_by and cannot_write_since are set');
	$admin->query('ROLLBACK');
	is_healthy($primary, '', 'the primary is healthy after the tables are unlocked');
	is(health($primary, 'blocked_by, cannot_write_since'), '|', 'blocked_by and cannot_write_since are NULL');

	# A session that only waits for the table lock blocks the manager, too.
	my $reader = session($primary);
	$reader->query('BEGIN; LOCK TABLE _lock_election.slot IN ACCESS SHARE MODE');
	$admin->async('VACUUM FULL _lock_election.slot');
	wait_for_sql($primary, 'SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND pid = ' . $admin->pid);
	$other->query(q{SELECT acquire_lock('a', '1 h')});
	like($other->error, qr/ERROR:  55P03/, 'an acquire fails again');
	is_healthy($primary, $locked, 'VACUUM FULL that waits for a reader is reported');
	$reader->quit;
	$admin->wait;
	is_healthy($primary, '', 'the primary is healthy after VACUUM FULL');
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
	is_healthy($primary, '', 'a connected synchronous standby is no problem');
	is(health($primary, 'standby_confirms'), 't', 'standby_confirms is true');
	my $s = session($primary);
	my $receiver = wal_receiver($standby);
	kill 'STOP', $receiver;
	$s->async(q{SELECT acquire_lock('a', '1 h')});
	is_healthy($primary, 'no synchronous standby confirms', 'a standby that does not confirm is reported');
	is(health($primary, q{standby_confirms, standby_wait >= '2 s'}), 'f|t',
		'standby_wait is the time for which it has not confirmed');
	kill 'CONT', $receiver;
	like($s->wait, qr/^\d+$/, 'the acquire returns after the standby continues');
	is_healthy($primary, '', 'the primary is healthy after the standby continues');
	$s->query(q{SELECT release_lock('a')});

	# The standby may replay WAL much later than it receives it. Sessions on the standby can cause this, and any session
	# may wait for the replay.
	one($standby, 'SELECT pg_wal_replay_pause()');
	$s->query('SET synchronous_commit = remote_apply');
	$s->async(q{SELECT acquire_lock('b', '1 h')});
	my $until = time + 2.5;
	waits_for_standby($s);
	wait_until(sub { time > $until });
	is_healthy($primary, '', 'a standby that does not replay is no problem at the default level');
	is(one($primary, q{SET synchronous_commit = remote_apply; SELECT problem FROM lock_election.health()}), 'no synchronous standby confirms',
		'a standby that does not replay is reported to a session at level remote_apply');
	ok(!$s->ready, 'the session at level remote_apply still waits');

	# For such sessions, it is not enough that the WAL was received; a cancelled wait confirms nothing.
	my $t = session($primary, connstr => "options='-c synchronous_commit=remote_apply'");
	$t->async(q{SELECT acquire_lock('c', '1 h')});
	waits_for_standby($t);
	one($primary, 'SELECT pg_cancel_backend(' . $t->pid . ')');
	is($t->wait, '', 'the acquire returns nothing');
	like($t->error, qr/ERROR:  57014: canceling wait for the replication of a lock/, 'the acquire is cancelled');
	$t->query(q{SET synchronous_commit = local; SELECT acquire_lock('c', '1 h'); SET synchronous_commit = remote_apply});
	$t->query(q{BEGIN; SET LOCAL synchronous_commit = local; SELECT release_lock('c'); SET LOCAL synchronous_commit = remote_apply});
	$t->async('COMMIT');
	waits_for_standby($t);
	one($primary, 'SELECT pg_cancel_backend(' . $t->pid . ')');
	$t->wait;
	like($t->error, qr/WARNING:  01000: canceling wait for synchronous replication due to user request\n/, 'the cancelled COMMIT gives a warning');
	$t->quit;
	one($standby, 'SELECT pg_wal_replay_resume()');
	like($s->wait, qr/^\d+$/, 'the acquire returns after the replay continues');
	$s->query(q{SELECT release_lock('b')});
	$s->query('RESET synchronous_commit');

	# The same for releases at a commit.
	$s->query(q{SELECT acquire_lock('a', '1 h')});
	$s->query(q{BEGIN; SELECT release_lock('a')});
	kill 'STOP', $receiver;
	$s->async(q{COMMIT});
	is_healthy($primary, 'no synchronous standby confirms', 'a COMMIT that waits for a standby is reported');
	kill 'CONT', $receiver;
	$s->wait;
	synchronous('s1, s2', 1);
	is_healthy($primary, '', 'one of two standbys is enough for a list');
	synchronous('2 (s1, s2)', 1);
	is_healthy($primary, 'no synchronous standby confirms', 'one of two standbys is not enough if both are required');
	synchronous('', 0);
	is_healthy($primary, '', 'no problem is reported if no standby is required');
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
	is_healthy($primary, 'no synchronous standby is defined, and lock_election.min_durability is remote',
		'a missing definition of standbys is reported');
	foreach my $call (
		q{acquire_lock('a')}, q{acquire_lock('a', ttl => NULL)}, q{acquire_locks('{a, b}')}, q{acquire_permit('p', 1)}, q{enqueue_lock('a')},
		"await_lock('held', $place)", "renew_lock('held', $token)", "is_held('held', $token)", "fence_lock('held', $token)", q{campaign('e', 'me')},
		"proclaim('boss', $term, 'you')", "renew_leadership('boss', $term)", "is_leader('boss', $term)", 'grant_lease()', "keep_alive($lease)")
	{
		$s->query("SELECT $call");
		like($s->error, qr/ERROR:  57P03: no synchronous standby is defined\n/m, "$call: fails");
	}
	is($s->query(q{SELECT candidate FROM current_leader('boss')}), 'me', 'current_leader() works without a standby');
	is($s->query(q{SELECT string_agg(name, ' ' ORDER BY name) FROM lock_election.locks}), 'boss held',
		'the views work without a standby');
	$s->query("BEGIN; SELECT release_lock('held', $token)");
	like($s->error, qr/ERROR:  57P03: no synchronous standby is defined\n/,
		'release_lock() in a transaction fails, because it reveals that the lock is held');
	$s->query('ROLLBACK');
	foreach my $call ("release_lock('held', $place)", "release_lock('held', $token)", "resign('boss', $term)", "revoke_lease($lease)")
	{
		is($s->query("SELECT $call"), 't', "$call: ends without a standby") or diag $s->error;
	}

	# With a standby, sessions with synchronous_commit = off also wait for it.
	synchronous('s1', 1);
	is_healthy($primary, '', 'the primary is healthy after a standby is defined');
	$token = $s->query(q{SELECT acquire_lock('held', '1 h')});
	like($token, qr/^\d+$/, 'an acquire is granted with the standby');
	my $receiver = wal_receiver($standby);

	# A call that gave up waiting for the replay must not hide calls that wait for less.
	one($standby, 'SELECT pg_wal_replay_pause()');
	my $replays = session($primary, connstr => "options='-c synchronous_commit=remote_apply'");
	$replays->query(q{SET statement_timeout = '200 ms'; SELECT acquire_lock('replays', '1 h')});
	like($replays->error, qr/ERROR:  57014/, 'a call that waits for the replay is cancelled');
	$replays->quit;
	is_healthy($primary, '', 'the cancelled wait for the replay is not reported to other sessions');
	kill 'STOP', $receiver;
	$s->async("SELECT renew_lock('held', $token) IS NOT NULL");
	waits_for_standby($s);
	is(one($primary, q{SET synchronous_commit = local; INSERT INTO other VALUES (1) RETURNING 1}), 1, 'other commits at level local do not wait')
	  if one($primary, q{SET synchronous_commit = local; CREATE TABLE other (n int)}) eq '';
	ok(!$s->ready, 'a session with synchronous_commit = off waits for the standby');

	# A call that gives up sooner must not hide the problem.
	my $hasty = session($primary);
	$hasty->query(q{SET statement_timeout = '200 ms'; SELECT acquire_lock('hasty', '1 h')});
	like($hasty->error, qr/ERROR:  57014/, 'another call gives up');
	one($primary, 'SELECT pg_cancel_backend(' . $s->pid . ')');
	$s->wait;
	like($s->error, qr/ERROR:  57014/, 'the first call is cancelled');
	is_healthy($primary, 'no synchronous standby confirms', 'the problem is reported although no call waits');
	cmp_ok(health($primary, 'extract(epoch FROM standby_wait)'), '>=', 2, 'standby_wait is still counted');
	synchronous('', 0);
	is(health($primary, 'standby_confirms, standby_wait'), '|00:00:00',
		'standby_wait is zero if no standby is defined');
	synchronous('s1', 1);
	is_healthy($primary, 'no synchronous standby confirms', 'the problem is reported again after a standby is defined');
	kill 'CONT', $receiver;
	one($standby, 'SELECT pg_wal_replay_resume()');
	is_healthy($primary, '', 'the primary is healthy after the standby confirms');
	is(health($primary, 'standby_wait'), '00:00:00', 'standby_wait is zero after the standby confirms');
	$hasty->quit;
	kill 'STOP', $receiver;
	$s->async("SELECT renew_lock('held', $token) IS NOT NULL");
	waits_for_standby($s);

	# A cluster manager removes the standby from the configuration meanwhile. This confirms nothing.
	synchronous('', 0);
	is($s->wait, '', 'the renewal returns nothing');
	like($s->error, qr/ERROR:  57P03: no synchronous standby is defined\n/m,
		'the renewal fails because no standby is defined');
	kill 'CONT', $receiver;
	is($s->query($show), $settings, 'the settings of the session are unchanged');
	synchronous('s1', 1);
	is($s->query("SELECT renew_lock('held', $token) IS NOT NULL"), 't', 'the lock is still held');
	is($s->query("SELECT release_lock('held', $token)"), 't', 'the lock is released');
	synchronous('', 0);
	$s->quit;
	nothing_left($primary);
};

# Standbys are named, but the server cannot send WAL to any. No call waits for them, and no commit does.
subtest 'max_wal_senders = 0' => sub {
	$primary->append_conf('postgresql.conf', "max_wal_senders = 0\nsynchronous_standby_names = 's1'\nlock_election.min_durability = off\n");
	one($primary, q{SET synchronous_commit = local; ALTER SYSTEM RESET synchronous_standby_names});
	$primary->restart;
	my $s = session($primary);
	my $token = $s->query(q{SET statement_timeout = '30 s'; SELECT acquire_lock('held', '1 h')});
	like($token, qr/^\d+$/, 'a grant waits for no standby');
	is($s->query("SELECT renew_lock('held', $token) IS NOT NULL"), 't', 'a renewal waits for no standby');
	$s->query("BEGIN; SELECT release_lock('held', $token); COMMIT");
	is($s->error, '', 'a commit with a release waits for no standby');
	nothing_left($primary);
	$primary->append_conf('postgresql.conf', "lock_election.min_durability = remote\n");
	$primary->reload;
	wait_for_sql($primary, 'SHOW lock_election.min_durability', 'remote');
	$s->query(q{SELECT acquire_lock('held', '1 h')});
	like($s->error, qr/ERROR:  57P03: no synchronous standby is defined\n/,
		'an acquire fails if min_durability requires a standby');
	$s->quit;
};

subtest 'without the library' => sub {
	$primary->append_conf('postgresql.conf', "shared_preload_libraries = ''\nmax_wal_senders = 0\nsynchronous_standby_names = 's1'\n");
	$primary->restart;
	unlike(slurp_file($primary->logfile), qr/lock_election launcher .*FATAL/, 'the launcher exited without a FATAL message in the log');
	is_healthy($primary, 'lock_election is not in shared_preload_libraries', 'a missing library is reported');
	is(health($primary, 'role, manager, library_version, sql_version'), "primary|f||$version",
		'columns without the library');
	is(health($primary, 'standby_confirms'), '', 'standby_confirms is NULL without the library');
};

$_->stop foreach $standby, $primary;
done_testing();
