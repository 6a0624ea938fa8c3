# The portable edition, sql/portable/lock_election.sql: installed by an ordinary role on a server without the library;
# privileges; and the effects of idle transactions, crashes and fences on locks.
# Promises: M, T, D, L, G, F
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $file = 'sql/portable/lock_election.sql';
my $node = new_node('main', extension => 0, conf => "shared_preload_libraries = ''\nfsync = on\n");
my $db = 'app';

one('CREATE ROLE installer LOGIN; CREATE ROLE app LOGIN; CREATE ROLE other LOGIN; CREATE ROLE guest LOGIN');
one('CREATE DATABASE app OWNER installer; CREATE DATABASE twice; GRANT CREATE ON DATABASE twice TO installer');
one('ALTER DATABASE app SET search_path = locks, public; ALTER DATABASE twice SET search_path = locks, public');

# The psql command that installs the file, as documented.
sub install_command
{
	my ($dbname, @options) = @_;
	return [ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($dbname) . " user='installer'", @options, '-f', $file ];
}

sub install
{
	my ($dbname, @options) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run(install_command($dbname, @options), '>', \$out, '2>', \$err);
	return $out . $err;
}

sub as { my ($role, %opts) = @_; return session($node, dbname => $db, user => $role, %opts); }

# Runs a statement. Returns its duration in seconds, and its output.
sub timed { my ($s, $sql) = @_; my $begin = time; my $out = $s->query($sql); return (time - $begin, $out); }

# Expects that a statement returns within 5 seconds although another transaction is idle: long before the section times
# out.
sub in_time
{
	my ($s, $sql, $wanted, $what) = @_;
	my ($seconds, $out) = timed($s, $sql);

	is($out . $s->error, $wanted, $what);
	cmp_ok($seconds, '<', 5, "$what: within 5 seconds");
	return;
}

subtest 'installation' => sub {
	one($node, 'REVOKE CREATE ON SCHEMA public FROM PUBLIC', 'twice'); # as from PostgreSQL 15 on
	like(install('twice', '-1'), qr/may not create functions in schema "public".*Name another one/s, 'a role with CREATE only on the database is told that it cannot create functions in public');
	one($node, 'CREATE SCHEMA locks AUTHORIZATION installer; GRANT USAGE ON SCHEMA locks TO PUBLIC', $db);
	like(install($db), qr/has to run in one transaction/, 'without a transaction, the installation is rejected');
	one($node, 'CREATE SCHEMA half AUTHORIZATION installer', $db);
	like(install($db, '-v', 'ON_ERROR_STOP=0', '-c', 'SET search_path = half'), qr/has to run in one transaction\nHINT:.*psql -q -1 -v ON_ERROR_STOP=1.*\n.*\n\z/,
		'without a transaction and ON_ERROR_STOP, the last error says why nothing is installed');
	is(one($node, q{SELECT count(*) FROM pg_proc WHERE pronamespace = 'half'::regnamespace}, $db), '0', 'without a transaction, no function is installed');
	one($node, 'DROP SCHEMA half', $db);
	is(install($db, '-1'), '', 'the owner of the database installs');
	my $before = one($node, q{SELECT md5(string_agg(oid || prosrc, ',' ORDER BY oid)) FROM pg_proc WHERE pronamespace IN ('locks'::regnamespace, '_lock_election'::regnamespace)}, $db);
	my $life = one($node, 'SELECT life FROM _lock_election.life', $db);
	is(install($db, '-1'), '', 'the owner of the database installs again');
	is(one($node, q{SELECT md5(string_agg(oid || prosrc, ',' ORDER BY oid)) FROM pg_proc WHERE pronamespace IN ('locks'::regnamespace, '_lock_election'::regnamespace)}, $db),
		$before, 'the second installation keeps the functions');
	is(one($node, 'SELECT life FROM _lock_election.life', $db), $life, 'the second installation does not start a new life');

	# Two installations at the same time, by a role with CREATE only on the database.
	one($node, 'CREATE SCHEMA locks AUTHORIZATION installer', 'twice');
	my @runs = map { my %r; $r{run} = IPC::Run::start(install_command('twice', '-1'), '>', \$r{out}, '2>', \$r{err}); \%r } 1 .. 2;
	$_->{run}->finish foreach @runs;
	is(join('', map { $_->{err} } @runs), '', 'two installations at the same time succeed');
	is(one($node, 'SELECT count(*) FROM _lock_election.edition', 'twice'), '1', 'two installations at the same time create one edition');

	one($node, 'UPDATE _lock_election.edition SET version = 99', 'twice');
	one($node, 'REVOKE CREATE ON SCHEMA public FROM PUBLIC', 'twice'); # as from PostgreSQL 15 on
	like(install('twice', '-1'), qr/version 99 of the portable edition is installed/, 'an installation does not replace a newer version');
	is(one($node, q{SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname IN ('locks', 'lock_election') AND NOT p.prosecdef}, $db), '0',
		'every public function runs with the privileges of the installing role');
	is(one($node, q{SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname IN ('locks', 'lock_election')
		AND NOT coalesce(proconfig, '{}') @> ARRAY['search_path=pg_catalog, pg_temp']}, $db), '0', 'every public function has a fixed search_path');
};

# Same names, arguments, defaults and results as the extension.
subtest 'the interface' => sub {
	my $text = slurp_file('sql/lock_election--1.0.sql');
	my %missing = map { $_ => 1 } qw(refuse_write floor_written role_oid counters histograms stat_reset manager_info);
	my %wanted = map { $_ => 1 } grep { !$missing{$_} } $text =~ /^CREATE FUNCTION (?:\@extschema\@|lock_election)\.(\w+)/mg;
	my %found = map { $_ => 1 } split /\n/,
	  one($node, q{SELECT DISTINCT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname IN ('locks', 'lock_election')}, $db);

	is(join(' ', grep { !$found{$_} } sort keys %wanted), '', 'every function of the extension exists');
	is(join(' ', grep { !$wanted{$_} } sort keys %found), 'configure reap', 'only configure() and reap() are additional functions');
	is(one($node, q{SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname IN ('locks', 'lock_election')
		AND obj_description(p.oid, 'pg_proc') IS NULL AND p.prorettype <> 'trigger'::regtype}, $db), '0', 'every function has a comment');
	system_or_bail('sql/portable/assemble', '--check');
};

subtest 'privileges' => sub {
	my ($s, $o) = (as('app'), as('other'));
	my $token = $s->query(q{SELECT acquire_lock('r', '1 min')});
	my $lease = $s->query(q{SELECT grant_lease('1 min')});
	my $term = $s->query(qq{SELECT campaign('r', 'me', lease => $lease)});

	foreach my $sql ("SELECT release_lock('r', $token)", "SELECT renew_lock('r', $token)", "SELECT fence_lock('r', $token)", "SELECT keep_alive($lease)", "SELECT revoke_lease($lease)",
		"SELECT lease_sync($lease, 1)", "SELECT lease_holds($lease)", "SELECT lease_time_to_live($lease)", "SELECT resign('r', $term)", "SELECT proclaim('r', $term, 'x')", "SELECT fence_leader('r', $term)",
		"SELECT force_release_lock('r')", "SELECT evict_lock('r')", "SELECT force_release_role('app')", "SELECT acquire_lock('x', lease => $lease)",
		'SELECT advance_revision(1)', q{SELECT lock_election.configure('notify', 'none')}, 'SELECT * FROM _lock_election.hold', 'SELECT _lock_election.who()',
		'UPDATE _lock_election.lease SET ttl = ttl', q{SELECT nextval('_lock_election.token')})
	{
		$o->query($sql);
		like($o->error, qr/42501/, "another role is rejected: $sql");
	}
	is($o->query(q{SELECT owner IS NULL AND token IS NULL AND pid IS NULL FROM lock_election.locks WHERE kind = 'lock' AND name = 'r'}), 't', 'another role cannot see owner, token and pid of a holder');
	is($o->query(q{SELECT candidate FROM current_leader('r')}), 'me', 'every role can see the leader');
	is($s->query("SELECT is_held('r', $token), is_leader('r', $term)"), 't|t', 'locks of the role are unchanged');
	is($o->query(q{SET _lock_election.granted = 'yes'; SET ROLE other; SELECT try_acquire_lock('r') IS NULL}), 't', 'settings and SET ROLE to itself give no additional privileges');
	$o->query('SET ROLE app');
	like($o->error, qr/42501/, 'another role cannot SET ROLE to the holder');
	one('GRANT app TO other');
	is($o->query("SET ROLE app; SELECT is_held('r', $token), renew_lock('r', $token) IS NOT NULL; RESET ROLE"), 't|t', 'a member of the role can use its locks after SET ROLE');
	one('REVOKE app FROM other; GRANT pg_signal_backend TO other');
	is($o->query(q{SELECT force_release_lock('r')}), '1', 'a member of pg_signal_backend can force the release');
	one('REVOKE pg_signal_backend FROM other');
	$s->query("SELECT revoke_lease($lease)");
	$_->quit foreach $s, $o;
};

subtest 'a hostile search_path' => sub {
	my $s = as('guest');
	one($node, 'CREATE SCHEMA trap AUTHORIZATION guest', $db);
	foreach my $f ('clock_timestamp() RETURNS timestamptz', 'pg_try_advisory_xact_lock(bigint) RETURNS boolean', 'hashtextextended(text, bigint) RETURNS bigint', 'octet_length(text) RETURNS int',
		'nextval(regclass) RETURNS bigint', 'pg_backend_pid() RETURNS int', 'now() RETURNS timestamptz', 'current_setting(text) RETURNS text')
	{
		$s->query("CREATE FUNCTION trap.$f LANGUAGE plpgsql AS \$\$ BEGIN RAISE EXCEPTION 'trap'; END \$\$");
	}
	$s->query(q{CREATE FUNCTION trap.never(anyelement, anyelement) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trap'; END $$});
	$s->query("CREATE FUNCTION trap.never(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS \$\$ BEGIN RAISE EXCEPTION 'trap'; END \$\$; CREATE OPERATOR trap.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = trap.never)");
	$s->query("CREATE FUNCTION trap.never(text, text) RETURNS boolean LANGUAGE plpgsql AS \$\$ BEGIN RAISE EXCEPTION 'trap'; END \$\$; CREATE OPERATOR trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.never)");
	$s->query('CREATE TABLE trap.hold (x int); CREATE TABLE trap.life (x int); CREATE TEMP TABLE lease (x int); CREATE TEMP TABLE config (x int)');
	$s->query('SET search_path = pg_temp, trap, pg_catalog, locks');
	my $token = $s->query(q{SELECT locks.acquire_lock('h')});
	is($s->query("SELECT locks.release_lock('h', $token)") . $s->error, 't', 'shadowing objects do not affect locks');
	my $lease = $s->query('SELECT locks.grant_lease()');
	is($s->query("SELECT event FROM locks.lease_sync($lease, 1, items => '{1,try_candidate,h,NULL,o,me,2,enqueue_shared,h,NULL,o2,NULL}')"), "lease\ngranted\ngranted", 'shadowing objects do not affect leases');
	is($s->query("SELECT count(*) FROM lock_election.locks; SELECT locks.revoke_lease($lease)"), "2\nt", 'shadowing objects do not affect views');
	is($s->error, '', 'shadowing objects cause no error');
	$s->quit;
};

subtest 'transactions' => sub {
	my ($s, $o) = (as('app'), as('app'));

	# Isolation levels.
	foreach my $level ('REPEATABLE READ', 'SERIALIZABLE')
	{
		foreach my $sql (q{acquire_lock('i')}, q{try_acquire_lock('i')}, q{release_lock('i', 1)}, q{is_held('i', 1)}, q{enqueue_lock('i')}, q{grant_lease()}, q{lease_sync(1, 1)}, q{campaign('i', 'me')})
		{
			$s->query("BEGIN ISOLATION LEVEL $level; SELECT $sql");
			like($s->error, qr/0A000.*READ COMMITTED/s, "$level is rejected: $sql");
			$s->query('ROLLBACK');
		}
	}

	# Rollbacks to a savepoint, and of the whole transaction.
	$s->query(q{BEGIN; SAVEPOINT a; SELECT acquire_lock('s1'); ROLLBACK TO a; SELECT acquire_lock('s2')});
	is($o->query(q{SELECT try_acquire_lock('s1') IS NOT NULL, try_acquire_lock('s2') IS NULL}), 't|t', 'a rollback to a savepoint releases only the locks that were acquired after it');
	$s->query('ROLLBACK');
	is($o->query(q{SELECT try_acquire_lock('s2') IS NOT NULL}), 't', 'a rollback releases all locks of the transaction');
	my $token = $o->query(q{SELECT acquire_lock('s3')});
	$o->query("BEGIN; SELECT release_lock('s3', $token)");
	is($s->query(q{SELECT try_acquire_lock('s3') IS NULL}), 't', 'a release takes effect at commit');
	$o->query('ROLLBACK');
	is($o->query("SELECT is_held('s3', $token)"), 't', 'a release that is rolled back has no effect');

	# Prepared transactions.
	$s->query(q{BEGIN; SELECT acquire_lock('p'); PREPARE TRANSACTION 'p'});
	is($s->error, '', 'a transaction that has acquired a lock can be prepared');
	is($o->query(q{SELECT try_acquire_lock('p') IS NULL, try_acquire_lock('q') IS NOT NULL}), 't|t', 'the lock of a prepared transaction is not free');
	$s->query(q{COMMIT PREPARED 'p'});
	is($o->query(q{SELECT try_acquire_lock('p') IS NULL}), 't', 'the lock is held after COMMIT PREPARED');

	# Re-entry in the same transaction, and by the same owner.
	is($s->query(q{BEGIN; SELECT count(DISTINCT t) FROM (VALUES (acquire_lock('again')), (acquire_lock('again'))) v(t); COMMIT}), '1', 'a second acquire in the same transaction returns the same token');
	is($s->query(q{SELECT acquire_lock('own', owner => 'o') = acquire_lock('own', owner => 'o')}), 't', 'a second acquire by the same owner returns the same token');
	is($s->query(q{SELECT holds FROM lock_election.locks WHERE name = 'own'}), '2', 'the holds of an owner are counted');

	$s->query(q{SELECT acquire_lock('named')});
	is($s->query(q{SELECT release_lock('named'), release_lock('named')}), 't|f', 'release_lock() without a token releases the lock of this role');

	# In a transaction that has already written, lease_sync() would change the durability of those writes.
	my $lease = $s->query('SELECT grant_lease()');
	$s->query("BEGIN; CREATE TEMP TABLE w (x int); SELECT lease_sync($lease, 1)");
	like($s->error, qr/25001/, 'lease_sync() is rejected in a transaction that has written');
	$s->query('ROLLBACK');
	is($s->query("SELECT event FROM lease_sync($lease, 2); SHOW synchronous_commit"), "lease\non", 'lease_sync() does not change synchronous_commit of the session');
	one($node, q{SELECT force_release_role('app')}, $db);
	$_->quit foreach $s, $o;
};

# A call that waits for the critical section of a name restores the settings of its session.
subtest 'the timeout of a section' => sub {
	my ($idle, $s) = (as('app'), as('app'));

	$idle->query(q{BEGIN; SELECT enqueue_lock('section', '1 min')});
	$s->async(q{SELECT count(*) FROM enqueue_lock('section', '1 min')});
	wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND pid = } . $s->pid, '1', dbname => $db);
	$idle->query('ROLLBACK');
	is($s->wait . $s->error, '1', 'a call is executed after waiting for the section');
	is($s->query('SHOW lock_timeout'), '0', 'the call restores lock_timeout');
	one($node, q{SELECT force_release_role('app')}, $db);
	$_->quit foreach $idle, $s;
};

subtest 'idle transactions' => sub {
	my ($idle, $s, $o) = (as('app'), as('app'), as('app'));
	my $token = $s->query(q{SELECT acquire_lock('x', '1 min')});
	my $lease = $s->query('SELECT grant_lease()');
	my $call = 0;
	my $first = $s->query("SELECT incarnation || ', ' || news FROM lease_sync($lease, " . ++$call . ", items => '{1,enqueue_lock,x,NULL,me,NULL}') LIMIT 1");

	# A transaction that has enqueued a place.
	my $place = $idle->query(q{BEGIN; SELECT token FROM enqueue_lock('x', '1 min')});
	like($place, qr/^\d+$/, 'a place is enqueued in an open transaction');
	in_time($s, "SELECT renew_lock('x', $token)", '00:01:00', 'an open enqueue_lock() does not block renew_lock() of the holder');
	in_time($s, "SELECT is_held('x', $token)", 't', 'an open enqueue_lock() does not block is_held()');
	in_time($s, "SELECT keep_alive($lease)", '00:01:00', 'an open enqueue_lock() does not block keep_alive() of a lease with a place');
	in_time($s, "SELECT event FROM lease_sync($lease, " . ++$call . ", $first)", 'lease', 'an open enqueue_lock() does not block lease_sync()');
	in_time($o, q{SELECT try_acquire_lock('x') IS NULL}, 't', 'an open enqueue_lock() does not block try_acquire_lock()');
	in_time($o, q{SELECT acquire_lock('x', wait => '200 ms') IS NULL}, 't', 'an open enqueue_lock() does not block acquire_lock() with a wait');
	in_time($o, q{SELECT lock_election.reap() >= 0}, 't', 'an open enqueue_lock() does not block reap()');
	in_time($o, q{SELECT try_acquire_lock('elsewhere') IS NOT NULL}, 't', 'an open enqueue_lock() does not block other names');
	in_time($o, q{SELECT count(*) FROM lock_election.locks WHERE name = 'x'}, '1', 'an open enqueue_lock() does not block the view locks');
	in_time($s, "SELECT release_lock('x', $token)", 't', 'an open enqueue_lock() does not block release_lock()');
	$idle->query('COMMIT');
	is($o->query(q{SELECT try_acquire_lock('x') IS NULL}), 't', 'a try does not overtake the places on a free lock');
	is(join(' ', sort split /\n/, $s->query("SELECT event FROM lease_sync($lease, " . ++$call . ", $first)")), 'granted lease', 'the first place is granted the lock');
	is($o->query("SELECT await_lock('x', $place)"), 'f', 'the place of the committed transaction is next');
	$s->query("SELECT revoke_lease($lease)");
	is($o->query("SELECT await_lock('x', $place, '1 s')"), 't', 'the place is granted when the lease ahead of it is revoked');
	$o->query("SELECT release_lock('x', $place)");

	# A transaction whose try failed holds no lock on rows.
	$token = $s->query(q{SELECT acquire_lock('y')});
	$idle->query(q{BEGIN; SELECT try_acquire_lock('y')});
	in_time($s, "SELECT release_lock('y', $token)", 't', 'a failed try in an open transaction does not block a release');
	in_time($o, q{SELECT try_acquire_lock('y') IS NOT NULL}, 't', 'a failed try in an open transaction does not block the next holder');
	$idle->query('COMMIT');

	# The same for a try that failed within the critical section.
	$token = $s->query(q{SELECT acquire_permit('pp', 1)});
	is($idle->query(q{BEGIN; SELECT acquire_permit('pp', 1, wait => '0') IS NULL}), 't', 'no permit is free');
	in_time($s, "SELECT release_lock('pp', $token)", 't', 'a failed try for a permit in an open transaction does not block a release');
	in_time($o, q{SELECT acquire_permit('pp', 1, wait => '0') IS NOT NULL}, 't', 'a failed try for a permit in an open transaction does not block the next holder');
	$idle->query('COMMIT');

	# A transaction that has ended an expired lock and acquired it.
	$s->query(q{SELECT acquire_lock('z', '100 ms')});
	select undef, undef, undef, 0.15;
	$idle->query(q{BEGIN; SELECT acquire_lock('z')});
	in_time($o, q{SELECT try_acquire_lock('z') IS NULL}, 't', 'an uncommitted acquire does not block a try');
	in_time($o, q{SELECT lock_election.reap() >= 0}, 't', 'an uncommitted acquire does not block reap()');
	$idle->query('ROLLBACK');
	in_time($o, q{SELECT try_acquire_lock('z') IS NOT NULL}, 't', 'the lock is free after the rollback');
	one($node, q{SELECT force_release_role('app')}, $db);
	$_->quit foreach $idle, $s, $o;
};

subtest 'hand-offs' => sub {
	my ($s, $o, $w) = (as('app'), as('app'), as('app'));
	my $token = $s->query(q{SELECT acquire_lock('w', '1 min')});
	my $place = $o->query(q{SELECT token FROM enqueue_lock('w', '1 min')});

	# A call that waits for its place does not block others.
	$o->async("SELECT await_lock('w', $place, '5 s')");
	wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND pid = } . $o->pid, '1');
	my $second = $w->query(q{SELECT token FROM enqueue_lock('w', '1 min')});
	ok(!$o->ready, 'a place can be enqueued while a call waits for another place');
	is($o->wait, 'f', 'a place that is not granted in time returns false');
	is($s->query("SELECT release_lock('w', $token)"), 't', 'the holder releases the lock');
	is($w->query(q{SELECT token FROM lock_election.locks WHERE name = 'w'}), $place, 'the lock is granted to the place although no call waits for it');
	is($w->query("SELECT await_lock('w', $second)"), 'f', 'the second place is not granted the lock');

	# A call that waits without a limit sleeps between its checks.
	$w->async("SELECT await_lock('w', $second, NULL)");
	wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND pid = } . $w->pid, '1');
	$s->async(q{SELECT acquire_lock('w')});
	waiting($s);
	is($o->query("SELECT release_lock('w', $place)"), 't', 'the first place releases the lock');
	is($w->wait, 't', 'the second place is granted the lock');
	$w->query("SELECT release_lock('w', $second)");
	like($s->wait, qr/^\d+$/, 'the waiting call without a place is granted the lock last');

	# A try that finds an expired holder grants the lock to the first place, not to itself.
	$s->query(q{SELECT acquire_lock('v', '100 ms')});
	$place = $s->query(q{SELECT token FROM enqueue_lock('v', '1 min')});
	select undef, undef, undef, 0.15;
	is($o->query(q{SELECT try_acquire_lock('v') IS NULL}), 't', 'a try fails although the holder has expired, because a place is next');
	is($s->query("SELECT await_lock('v', $place)"), 't', 'the place is granted the lock of the expired holder');
	one($node, q{SELECT force_release_role('app')}, $db);

	# A blocked call does not overtake earlier places, and is not overtaken by later ones.
	my ($a, $b) = split /\|/, $s->query(q{SELECT acquire_lock('a', '1 min'), acquire_lock('b', '1 min')});
	my $first = $s->query(q{SELECT token FROM enqueue_locks('{a,b}', '1 min')});
	$w->async(q{SELECT acquire_lock('a', '1 min', wait => '1 min')});
	waiting($w);
	$place = $o->query(q{SELECT token FROM enqueue_locks('{a,b}', '1 min')});
	$s->query("SELECT release_lock('a', $a)");
	ok(!wait_until(sub { $w->ready }, 1), 'a blocked call waits for an earlier place for several names, one of which is not free');
	$s->query("SELECT release_lock('b', $b)");
	is($s->query("SELECT await_locks('{a,b}', $first), release_locks('{a,b}', $first)"), 't|t', 'the earlier place for several names is granted');
	my $got = $w->wait;
	ok($first < $got && $got < $place, 'the token of the blocked call is between those of the earlier and the later place');
	is($o->query("SELECT await_locks('{a,b}', $place)"), 'f', 'the later place waits for the blocked call');
	$w->query("SELECT release_lock('a', $got)");
	is($o->query("SELECT await_locks('{a,b}', $place)"), 't', 'the later place is granted after the release of the blocked call');
	one($node, q{SELECT force_release_role('app')}, $db);

	# A wait for several names can be longer than their TTL.
	$token = $s->query(q{SELECT acquire_lock('a', '1 min')});
	$place = $o->query(q{SELECT token FROM enqueue_locks('{a,b}', '3 s')});
	$o->async("SELECT await_locks('{a,b}', $place, '1 min'), renew_lock('a', $place, '1 min') IS NOT NULL");
	sleep 4;
	$s->query("SELECT release_lock('a', $token)");
	is($o->wait . $o->error, 't|t', 'the TTL of several names starts at the grant, after a wait that is longer than the TTL');
	one($node, q{SELECT force_release_role('app')}, $db);

	# A place is being granted by an idle transaction. If its owner were told that it still waits, the owner would lose
	# the hold without notice.
	$token = $s->query(q{SELECT acquire_lock('g', '1 min')});
	$place = $o->query(q{SELECT token FROM enqueue_lock('g', '1 min')});
	$s->query("BEGIN; SELECT release_lock('g', $token)");
	$o->query("SELECT await_lock('g', $place)");
	like($o->error, qr/55P03.*has not ended yet/s, 'await_lock() fails while an open transaction grants the place');
	$s->query('COMMIT');
	is($o->query("SELECT await_lock('g', $place)"), 't', 'await_lock() returns true after the grant is committed');
	one($node, q{SELECT force_release_role('app')}, $db);
	$_->quit foreach $s, $o, $w;
};

subtest 'expiry, and tokens' => sub {
	my ($s, $o) = (as('app'), as('app'));
	my $old = $s->query(q{SELECT acquire_lock('e', '2 s')});

	is($o->query(q{SELECT try_acquire_lock('e') IS NULL}), 't', 'a lock is not free before its TTL has expired');
	my $new = $o->query(q{SELECT acquire_lock('e', wait => '1 min')});
	cmp_ok($new, '>', $old, 'the next holder has a higher token');
	cmp_ok($new, '<', 2**53, 'tokens are below 2^53');
	is($s->query("SELECT renew_lock('e', $old) IS NULL, is_held('e', $old), release_lock('e', $old)"), 't|f|f', 'the expired token cannot be renewed, held or released');
	is($s->query("SELECT is_held('e', $new)"), 't', 'a release with the expired token does not affect the next holder');

	# A place of a client that has gone does not block others.
	my $lease = $s->query(q{SELECT grant_lease('200 ms')});
	$s->query("SELECT enqueue_lock('e', lease => $lease)");
	select undef, undef, undef, 0.25;
	$o->query("SELECT release_lock('e', $new)");
	is($o->query(q{SELECT try_acquire_lock('e') IS NOT NULL}), 't', 'a place whose lease has expired is skipped');
	one($node, q{SELECT force_release_role('app')}, $db);

	# A renewal that waits for the row until the lease has expired is too late.
	$lease = $s->query(q{SELECT grant_lease('5 s')});
	my $slow = session($node, dbname => $db);
	$slow->query("BEGIN; SELECT FROM _lock_election.lease WHERE id = $lease FOR NO KEY UPDATE");
	$s->async("SELECT keep_alive($lease) IS NULL");
	wait_for_sql($node, 'SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = \'Lock\' AND pid = ' . $s->pid, '1');
	select undef, undef, undef, 5.1;
	$slow->query('ROLLBACK');
	is($s->wait, 't', 'a renewal counts from the time at which it has locked the row');
	$slow->quit;

	# An observer sees the end of a term although no candidate waits.
	$s->query(q{SELECT campaign('e', 'me', '100 ms')});
	select undef, undef, undef, 0.15;
	is($o->query(q{SELECT string_agg(how, ' ') FROM election_history('e')}), 'elected expired', 'reading the history ends an expired term');
	$_->quit foreach $s, $o;
};

subtest 'fences' => sub {
	my ($s, $o, $w) = (as('app'), as('app'), as('app'));
	my $table = one($node, q{CREATE TABLE public.t (v text); GRANT ALL ON public.t TO PUBLIC;
		CREATE TRIGGER g BEFORE INSERT OR DELETE ON public.t FOR EACH ROW EXECUTE FUNCTION locks.fence_guard('f')}, $db);
	my $token = $s->query(q{SELECT acquire_lock('f', '1 min')});

	$s->query(q{INSERT INTO t VALUES ('none')});
	like($s->error, qr/55000/, 'the guard rejects a write without a fence');
	$w->query("BEGIN; SELECT fence_lock('f', $token); INSERT INTO t VALUES ('fenced')");
	is($w->error, '', 'the guard accepts a write with a fence');
	is($s->query("SELECT renew_lock('f', $token, '300 ms')"), '00:00:00.3', 'a fence does not block renewals');
	select undef, undef, undef, 0.35;
	is($o->query(q{SELECT try_acquire_lock('f') IS NULL}), 't', 'nobody is granted an expired lock while it is fenced');
	is($s->query("SELECT renew_lock('f', $token) IS NULL"), 't', 'an expired lock cannot be renewed while it is fenced');
	is($o->query(q{SELECT force_release_lock('f')}), '0', 'an expired lock is not counted by force_release_lock() while it is fenced');
	$o->async(q{SELECT acquire_lock('f', wait => '10 s')});
	ok(!$o->ready, 'the waiter is not granted the lock before the fence ends');
	$w->query('COMMIT');
	like($o->wait, qr/^\d+$/, 'the waiter is granted the lock when the fencing transaction ends');
	$w->query("BEGIN; SELECT fence_lock('f', $token)");
	like($w->error, qr/LE001/, 'the expired token cannot be fenced any more');
	$w->query('ROLLBACK');

	# The views show the fencing processes.
	$token = $s->query(q{SELECT acquire_lock('f3', '1 min')});
	my $term = $s->query(q{SELECT campaign('f3', 'me', '1 min')});
	$w->query("BEGIN; SELECT fence_lock('f3', $token); SELECT fence_leader('f3', $term); SAVEPOINT a; SELECT renew_lock('f3', $token)");
	my $fenced_by = q{SELECT l.fenced_by, e.fenced_by FROM lock_election.locks l JOIN lock_election.elections e ON e.election = l.name WHERE l.name = 'f3' AND l.kind = 'lock'};
	is($s->query($fenced_by), sprintf('{%d}|{%d}', ($w->pid) x 2), 'the views show the pid that fences');
	is(one($node, "SET SESSION AUTHORIZATION other; $fenced_by", $db), '{}|{}', 'the views hide the pid from another role');
	$w->query('COMMIT');
	$w->query("BEGIN; SAVEPOINT a; SELECT fence_lock('f3', $token); ROLLBACK TO a; SELECT renew_lock('f3', $token)");
	is($s->query($fenced_by), '{}|{}', 'the views do not show a fence that was rolled back');
	$w->query("ROLLBACK; SELECT release_lock('f3', $token), resign('f3', $term)");

	# A release and force_release_lock() of a fenced lock.
	$token = $s->query(q{SELECT acquire_lock('f2', '1 min')});
	$w->query("BEGIN; SELECT fence_lock('f2', $token)");
	in_time($s, "SELECT release_lock('f2', $token)", 't', 'a release does not wait for a fence');
	is($s->query("SELECT is_held('f2', $token)") . $o->query(q{SELECT try_acquire_lock('f2') IS NULL}), 'ft', 'a released lock is neither held nor free while it is fenced');
	$w->query('ROLLBACK');
	is($o->query(q{SELECT try_acquire_lock('f2') IS NOT NULL}), 't', 'a released lock is free after the end of the fence');

	# A savepoint.
	$token = $s->query(q{SELECT acquire_lock('f', wait => '0', owner => 'x') IS NULL, force_release_lock('f')}) && $s->query(q{SELECT acquire_lock('f', '1 min')});
	$w->query("BEGIN; SAVEPOINT a; SELECT fence_lock('f', $token); ROLLBACK TO a; INSERT INTO t VALUES ('rolled back')");
	like($w->error, qr/55000/, 'the guard ignores a fence that was rolled back');
	$w->query('ROLLBACK');
	is(one($node, q{SELECT string_agg(v, ' ') FROM public.t}, $db), 'fenced', 'only the fenced write is committed');
	one($node, q{SELECT force_release_role('app'); DROP TABLE public.t}, $db);
	$_->quit foreach $s, $o, $w;
};

# Values that lock_election.configure() sets apply to all sessions; invalid settings and values are rejected.
subtest 'settings' => sub {
	my ($s, $o) = (as('app'), as('other'));
	# Random values that compression cannot shorten.
	my $long = sub { return "(SELECT left(string_agg(md5(i || '$_[0]'), ''), 4000) FROM generate_series(1, 128) i)"; };
	my $configure = sub { my ($setting, $value) = @_; return error_of($node, "SELECT lock_election.configure('$setting', $value)", dbname => $db, user => 'installer'); };

	foreach my $bad ([ 'notify', q{'some'} ], [ 'notify', 'NULL' ], [ 'max_ttl', q{'25 days'} ], [ 'max_ttl', q{'1 ms'} ], [ 'max_hold_for', q{'-1 s'} ], [ 'history_retention', q{'x'} ],
		[ 'max_locks_per_role', q{'-1'} ], [ 'max_leases_per_role', q{'many'} ], [ 'max_keys_per_role', q{'1 furlong'} ], [ 'max_keys_per_role', q{'-1 MB'} ])
	{
		like($configure->(@$bad), qr/22023: invalid value for $bad->[0]/, "rejected by configure(): @$bad");
	}
	like($configure->('fence_timeout', q{'1 min'}), qr/0A000: .*"fence_timeout".*HINT: .*idle_in_transaction_session_timeout/s, 'fence_timeout, which PL/pgSQL cannot implement, is rejected with a hint');
	like($configure->('no_such', q{'1'}), qr/0A000/, 'an unknown setting is rejected');

	# Keys: the first check counts the whole table, later ones only the keys of the role.
	$configure->('max_keys_per_role', q{'20 kB'});
	$s->query("SELECT compare_and_set('k$_', 0, " . $long->("k$_") . ')') foreach 1 .. 4;
	is($s->error, '', 'keys within the limit are accepted');
	$s->query(q{SELECT compare_and_set('k5', 0, } . $long->('k5') . ')');
	like($s->error, qr/53400: the keys of role "app" take too much room.*HINT: .*max_keys_per_role \(20 kB\)/s, 'a key beyond the limit is rejected');
	is($s->query(q{SELECT compare_and_set('k4', 1, repeat('v', 4096))}), '2', 'a key can grow within the limit');
	is($s->query(q{SELECT compare_and_set('k1', 1, NULL), compare_and_set('k5', 0, } . $long->('k5') . ')'), '2|1', 'a key that shrinks makes room for another key');
	is($o->query(q{SELECT compare_and_set('o', 0, } . $long->('o') . ')'), '1', 'another role has its own limit');
	$configure->('max_keys_per_role', q{'0'});
	is($s->query(q{SELECT compare_and_set('k6', 0, } . $long->('k6') . ')'), '1', '0 disables the limit');

	# The history of elections.
	$configure->('max_history_per_role', q{'30 kB'});
	$s->query("SELECT resign('h', campaign('h', " . $long->($_) . '))') foreach 1 .. 4;
	is($s->error, '', 'changes within the limit of the history are accepted');
	my $term = $s->query(q{SELECT campaign('h', 'c')});
	like($s->error, qr/53400: the history of the elections of role "app" is too long.*HINT: .*max_history_per_role \(30 kB\)/s, 'an election beyond the limit of the history is rejected');
	$term = $o->query(q{SELECT campaign('h', 'c')});
	like($term, qr/^\d+$/, 'the limit of the history counts only changes of the role');
	is($s->query(q{SELECT try_acquire_lock('h') IS NOT NULL}), 't', 'locks do not need room in the history');
	$configure->('max_history_per_role', q{'1 kB'});
	is($o->query("SELECT proclaim('h', $term, repeat('d', 1000)), proclaim('h', $term, repeat('e', 1000))") . ($o->error =~ /(53400)/)[0], '53400', 'a proclaim counts as a change');
	$configure->($_, q{'256 MB'}) foreach 'max_history_per_role', 'max_keys_per_role';
	one($node, q{SELECT force_release_role('app'), force_release_role('other'); DELETE FROM _lock_election.versioned; DELETE FROM _lock_election.history}, $db);
	$_->quit foreach $s, $o;
};

# Many sessions: a lock is held by one at a time, and each token is new.
subtest 'many at once' => sub {
	my $script = PostgreSQL::Test::Utils::tempdir() . '/many.sql';
	one($node, q{CREATE UNLOGGED TABLE public.busy (name text PRIMARY KEY); CREATE UNLOGGED TABLE public.seen (name text, token bigint, kind text); GRANT ALL ON public.busy, public.seen TO app}, $db);
	append_to_file($script, <<'SQL');
\set n random(1, 2)
\set w random(1, 4)
\if :w = 1
SELECT coalesce(acquire_lock('m' || :n, wait => '2 s'), 0) AS t \gset
\elif :w = 2
SELECT coalesce(acquire_locks('{m2,m1}', wait => '2 s'), 0) AS t \gset
\set n 0
\elif :w = 3
SELECT token AS t, granted AS g FROM enqueue_lock('m' || :n) \gset
SELECT CASE WHEN await_lock('m' || :n, :t, '2 s') THEN :t ELSE 0 END AS g \gset
\if :g = 0
SELECT release_lock('m' || :n, :t);
\set t 0
\endif
\else
SELECT coalesce(try_acquire_lock('m' || :n), 0) AS t \gset
\endif
\if :t <> 0
INSERT INTO busy SELECT 'm' || i FROM generate_series(1, 2) i WHERE :n IN (0, i);
INSERT INTO seen SELECT 'm' || i, :t FROM generate_series(1, 2) i WHERE :n IN (0, i);
DELETE FROM busy WHERE :n = 0 OR name = 'm' || :n;
SELECT release_locks(CASE WHEN :n = 0 THEN '{m1,m2}' ELSE ARRAY['m' || :n] END, :t) AS r \gset
\if :r
\else
SELECT 1/0 AS lost;
\endif
\endif
SQL
	$node->command_ok([ 'pgbench', '-n', '-c', '8', '-j', '2', '-T', '5', '-U', 'app', '-f', $script, $db ], 'eight sessions never find another holder');
	cmp_ok(one($node, 'SELECT count(*) FROM public.seen', $db), '>', 20, 'eight sessions have held the locks more than 20 times');
	is(one($node, 'SELECT count(*) - count(DISTINCT (name, token)) FROM public.seen', $db), '0', 'each hold has its own token');
	is(one($node, q{SELECT count(*) FROM lock_election.locks} , $db) . one($node, q{SELECT count(*) FROM lock_election.waiters}, $db), '00', 'no lock or waiter is left');
};

subtest 'settings' => sub {
	my $s = as('installer');
	$s->query(q{SELECT lock_election.configure('max_tll', '1 h')});
	like($s->error, qr/no setting "max_tll"\nDETAIL:.*\bmax_ttl\b/, 'the error for an unknown setting lists the known ones');
	$s->query(q{SELECT lock_election.configure('max_ttl', NULL)});
	like($s->error, qr/invalid value for \w+: null/, 'a null value is rejected');
	$s->quit;
};

# A copy of the database has the rows, but none of the holders.
subtest 'copies' => sub {
	my $s = as('app');
	my $lease = $s->query(q{SELECT grant_lease('1 h')});
	my $token = $s->query(q{SELECT acquire_lock('copied', '1 h')});
	$s->query("SELECT acquire_lock('leased', lease => $lease)");
	$s->quit;
	one('CREATE DATABASE copy TEMPLATE app; ALTER DATABASE copy SET search_path = locks');
	my $c = session($node, dbname => 'copy', user => 'app');
	my $first = $c->query(q{SELECT acquire_lock('new', '1 h')});
	is($c->query("SELECT keep_alive($lease) IS NULL"), 't', 'in a copy, a lease has ended');
	cmp_ok($c->query(q{SELECT try_acquire_lock('copied')}), '>', $token, 'in a copy, a lock is free, with a higher token');
	is($c->query("SELECT is_held('new', $first)"), 't', 'in a copy, a lock that was acquired in the copy is held');
	$c->quit;

	# A restored dump.
	one('CREATE DATABASE restored; ALTER DATABASE restored SET search_path = locks');
	my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
	my $term = one($node, q{SELECT locks.campaign('led', 'x', '1 h')}, $db);
	system_or_bail('pg_dump', '-f', $dump, $node->connstr('app'));
	system_or_bail('psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-d', $node->connstr('restored'), '-f', $dump);
	$c = session($node, dbname => 'restored', user => 'app');
	is($c->query(q{SELECT count(*) FROM lock_election.locks}) . $c->query(q{SELECT count(*) FROM current_leader('led')}) . $c->query(q{SELECT count(*) FROM lock_election.leases}),
		'000', 'in a restored database, the views show no holder before the first acquire');
	is($c->query("SELECT is_held('copied', $token)") . $c->query("SELECT is_leader('led', $term)"), 'ff', 'in a restored database, an old token is not held');
	$c->query("SELECT fence_lock('copied', $token)");
	like($c->error, qr/LE001/, 'in a restored database, an old token cannot be fenced');
	is($c->query("SELECT release_lock('copied', $token)"), 'f', 'in a restored database, an old token cannot be released');
	$first = $c->query(q{SELECT acquire_lock('new', '1 h')});
	cmp_ok($first, '>', $token + 2**20, 'in a restored database, new tokens are at least 2^20 higher');
	is($c->query(q{SELECT try_acquire_lock('copied') IS NOT NULL}), 't', 'in a restored database, old locks are free');
	is($c->query("SELECT is_held('new', $first)"), 't', 'in a restored database, a lock that was acquired there is held');
	$c->quit;
	is(one($node, "SELECT locks.is_held('copied', $token)", $db), 't', 'the original database is unchanged');
	one($node, "SELECT locks.resign('led', $term)", $db);
	one($node, q{SELECT force_release_role('app')}, $db);
};

# This must be the last test, because it stops the server several times.
subtest 'restarts and crashes' => sub {
	my $s = as('app');
	my $lease = $s->query(q{SELECT grant_lease('1 min')});
	my $own = $s->query(q{SELECT acquire_lock('own', '1 min')});
	my $token = $s->query("SELECT acquire_lock('c', lease => $lease)");
	my $left = sub { return one($node, "SELECT extract(epoch FROM time_left)::int FROM lock_election.locks WHERE name = '$_[0]'", $db); };
	my $age = sub { one($node, "UPDATE _lock_election.lease SET expires_at = expires_at - interval '40 s'; UPDATE _lock_election.hold SET expires_at = expires_at - interval '40 s'", $db); };

	$s->quit;
	$age->();
	$node->restart;
	$s = as('app');
	is($s->query("SELECT is_held('c', $token), is_held('own', $own)"), 't|t', 'locks survive an orderly restart');
	cmp_ok($left->('c'), '<', 25, 'an orderly restart does not extend leases');
	is(one($node, 'SELECT count(*) FROM _lock_election.lives', $db), '1', 'an orderly restart does not start a new life');

	# A crash.
	$s->quit;
	$node->stop('immediate');
	$node->start;
	$s = as('app');
	is($s->query("SELECT name, time_left IS NULL FROM lock_election.locks ORDER BY name") . $s->error, "c|t\nown|t", 'after a crash, nothing expires before the first acquire');
	is($s->query("SELECT is_held('c', $token)"), 't', 'after a crash, locks are held');
	my $next = $s->query(q{SELECT acquire_lock('after')});
	cmp_ok($next, '>', $token + 2**20, 'after a crash, new tokens are at least 2^20 higher');
	cmp_ok($left->('c'), '>', 50, 'after a crash, named leases start again');
	cmp_ok($left->('own'), '>', 50, 'after a crash, leases of single locks start again');

	# A second crash without renewals in between.
	my $was = one($node, q{SELECT expires_at FROM lock_election.locks WHERE name = 'c'}, $db);
	$s->quit;
	$node->stop('immediate');
	$node->start;
	$s = as('app');
	$s->query(q{SELECT acquire_lock('after2')});
	is(one($node, q{SELECT expires_at FROM lock_election.locks WHERE name = 'c'}, $db), $was, 'a second crash does not extend leases without renewals');

	# A crash after a renewal.
	like($s->query("SELECT keep_alive($lease)"), qr/00:01:00/, 'the lease is renewed');
	$age->();
	$s->quit;
	$node->stop('immediate');
	$node->start;
	$s = as('app');
	$s->query(q{SELECT acquire_lock('after3')});
	cmp_ok($left->('c'), '>', 50, 'a crash after a renewal extends the lease again');
	is($s->query("SELECT is_held('c', $token)"), 't', 'the lock is still held');

	# The first acquire after a crash waits for a lock that is held.
	$s->query(q{SELECT acquire_lock('short', '100 ms')});
	$s->quit;
	$node->stop('immediate');
	$node->start;
	$s = as('app');
	is($s->query(q{SELECT acquire_lock('short', wait => '20 s') IS NOT NULL}), 't', 'a call that waits for a held lock after a crash is granted it after its TTL');

	# Promotions of standbys start a life, too.
	is(one($node, 'SELECT count(*) FROM _lock_election.lives', $db), '5', 'each crash has started a life');
	# The first transaction after a crash is idle.
	$s->quit;
	$node->stop('immediate');
	$node->start;
	my ($idle, $o) = (as('app'), as('app'));
	$s = as('app');
	my $place = $idle->query(q{BEGIN; SELECT acquire_lock('first')});
	$o->query(q{SELECT try_acquire_lock('second')});
	like($o->error, qr/57P03: the locks of this database are not ready after a crash/, 'other sessions get an error until the first transaction after a crash has ended');
	like($s->query("SELECT keep_alive($lease)"), qr/00:01:00/, 'a lease is renewed in the meantime');
	is($s->query("SELECT is_held('c', $token)"), 't', 'a lock is held in the meantime');
	like($s->query("SELECT renew_lock('own', $own)") . $s->error, qr/^00:01:00$/, 'a lock is renewed in the meantime');
	$idle->query('ROLLBACK');
	is($o->query(q{SELECT try_acquire_lock('second') IS NOT NULL}), 't', 'locks are granted after the first transaction has ended');
	is(one($node, 'SELECT count(*) FROM _lock_election.lives', $db), '6', 'only one life has started');
	$_->quit foreach $s, $o, $idle;
};

subtest 'installed for one role' => sub {
	one($node, 'CREATE DATABASE granted');
	one($node, 'GRANT CREATE ON DATABASE granted TO installer');
	PostgreSQL::Test::Utils::system_or_bail('psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-1', '-o', '/dev/null', '-d', $node->connstr('granted') . q{ user='installer'},
		'-c', q{SET LOCAL _lock_election.schema = 'mine'; SET LOCAL _lock_election."grant" = 'app'}, '-f', 'sql/portable/lock_election.sql');
	is(one($node, q{SELECT has_schema_privilege('app', 'mine', 'USAGE'), has_schema_privilege('guest', 'mine', 'USAGE')}, 'granted'), 't|f', 'only the named role has USAGE on the schema that the installation creates');
};

subtest 'indexes' => sub {
	is(one($node, q{SELECT string_agg(c.relname, ' ' ORDER BY c.relname) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = '_lock_election'::regnamespace AND NOT i.indisprimary}, $db),
		'fence_transaction history_age history_role hold_evicted hold_lease place_lease versioned_role', 'exactly the intended indexes exist');
};

done_testing();
