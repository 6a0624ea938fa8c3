# The portable edition, sql/portable/lock_election.sql: installed by an ordinary role on a server without the library;
# rights; and the effects of idle transactions, crashes and fences on locks.
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

# psql with the file, as the documents have it.
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

# How long a statement has taken, in seconds, and its output.
sub timed { my ($s, $sql) = @_; my $begin = time; my $out = $s->query($sql); return (time - $begin, $out); }

# A statement ends although somebody's transaction stands still: long before that one would have to give up.
sub in_time
{
	my ($s, $sql, $wanted, $what) = @_;
	my ($seconds, $out) = timed($s, $sql);

	is($out . $s->error, $wanted, $what);
	cmp_ok($seconds, '<', 5, "$what: in time");
	return;
}

subtest 'installation' => sub {
	one($node, 'REVOKE CREATE ON SCHEMA public FROM PUBLIC', 'twice'); # as from PostgreSQL 15 on
	like(install('twice', '-1'), qr/may not create functions in schema "public".*Name another one/s, 'a role with CREATE on the database alone may not create in public: the file says so');
	one($node, 'CREATE SCHEMA locks AUTHORIZATION installer; GRANT USAGE ON SCHEMA locks TO PUBLIC', $db);
	like(install($db), qr/has to run in one transaction/, 'without a transaction it does nothing');
	one($node, 'CREATE SCHEMA half AUTHORIZATION installer', $db);
	like(install($db, '-v', 'ON_ERROR_STOP=0', '-c', 'SET search_path = half'), qr/has to run in one transaction\nHINT:.*psql -q -1 -v ON_ERROR_STOP=1.*\n.*\n\z/,
		'nor if psql goes on after errors: the last one says why');
	is(one($node, q{SELECT count(*) FROM pg_proc WHERE pronamespace = 'half'::regnamespace}, $db), '0', 'and no function is left');
	one($node, 'DROP SCHEMA half', $db);
	is(install($db, '-1'), '', 'installed by the owner of the database');
	my $before = one($node, q{SELECT md5(string_agg(oid || prosrc, ',' ORDER BY oid)) FROM pg_proc WHERE pronamespace IN ('locks'::regnamespace, '_lock_election'::regnamespace)}, $db);
	my $life = one($node, 'SELECT life FROM _lock_election.life', $db);
	is(install($db, '-1'), '', 'and again');
	is(one($node, q{SELECT md5(string_agg(oid || prosrc, ',' ORDER BY oid)) FROM pg_proc WHERE pronamespace IN ('locks'::regnamespace, '_lock_election'::regnamespace)}, $db),
		$before, 'nothing has changed');
	is(one($node, 'SELECT life FROM _lock_election.life', $db), $life, 'no life has begun');

	# two at once, by a role with CREATE on the database alone
	one($node, 'CREATE SCHEMA locks AUTHORIZATION installer', 'twice');
	my @runs = map { my %r; $r{run} = IPC::Run::start(install_command('twice', '-1'), '>', \$r{out}, '2>', \$r{err}); \%r } 1 .. 2;
	$_->{run}->finish foreach @runs;
	is(join('', map { $_->{err} } @runs), '', 'two at once');
	is(one($node, 'SELECT count(*) FROM _lock_election.edition', 'twice'), '1', 'make one');

	one($node, 'UPDATE _lock_election.edition SET version = 99', 'twice');
	one($node, 'REVOKE CREATE ON SCHEMA public FROM PUBLIC', 'twice'); # as from PostgreSQL 15 on
	like(install('twice', '-1'), qr/version 99 of the portable edition is installed/, 'a newer version is kept');
	is(one($node, q{SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname IN ('locks', 'lock_election') AND NOT p.prosecdef}, $db), '0',
		'all that everybody may call has the rights of the installer, and a fixed search_path');
	is(one($node, q{SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname IN ('locks', 'lock_election')
		AND NOT coalesce(proconfig, '{}') @> ARRAY['search_path=pg_catalog, pg_temp']}, $db), '0', 'each of them');
};

# as the extension has them: names, arguments, defaults, results
subtest 'the interface' => sub {
	my $text = slurp_file('sql/lock_election--1.0.sql');
	my %missing = map { $_ => 1 } qw(refuse_write floor_written role_oid counters histograms stat_reset manager_info);
	my %wanted = map { $_ => 1 } grep { !$missing{$_} } $text =~ /^CREATE FUNCTION (?:\@extschema\@|lock_election)\.(\w+)/mg;
	my %found = map { $_ => 1 } split /\n/,
	  one($node, q{SELECT DISTINCT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname IN ('locks', 'lock_election')}, $db);

	is(join(' ', grep { !$found{$_} } sort keys %wanted), '', 'has every function');
	is(join(' ', grep { !$wanted{$_} } sort keys %found), 'configure reap', 'and two of its own');
	is(one($node, q{SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname IN ('locks', 'lock_election')
		AND obj_description(p.oid, 'pg_proc') IS NULL AND p.prorettype <> 'trigger'::regtype}, $db), '0', 'each with a comment');
	system_or_bail('sql/portable/assemble', '--check');
};

subtest 'rights' => sub {
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
		like($o->error, qr/42501/, "another role may not: $sql");
	}
	is($o->query(q{SELECT owner IS NULL AND token IS NULL AND pid IS NULL FROM lock_election.locks WHERE kind = 'lock' AND name = 'r'}), 't', 'nor see whose it is');
	is($o->query(q{SELECT candidate FROM current_leader('r')}), 'me', 'who leads is for everybody');
	is($s->query("SELECT is_held('r', $token), is_leader('r', $term)"), 't|t', 'nothing has happened to it');
	is($o->query(q{SET _lock_election.granted = 'yes'; SET ROLE other; SELECT try_acquire_lock('r') IS NULL}), 't', 'settings change nothing');
	$o->query('SET ROLE app');
	like($o->error, qr/42501/, 'the role cannot be chosen');
	one('GRANT app TO other');
	is($o->query("SET ROLE app; SELECT is_held('r', $token), renew_lock('r', $token) IS NOT NULL; RESET ROLE"), 't|t', 'a member may, by SET ROLE');
	one('REVOKE app FROM other; GRANT pg_signal_backend TO other');
	is($o->query(q{SELECT force_release_lock('r')}), '1', 'an operator may force it');
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
	is($s->query("SELECT locks.release_lock('h', $token)") . $s->error, 't', 'changes nothing for locks');
	my $lease = $s->query('SELECT locks.grant_lease()');
	is($s->query("SELECT event FROM locks.lease_sync($lease, 1, items => '{1,try_candidate,h,NULL,o,me,2,enqueue_shared,h,NULL,o2,NULL}')"), "lease\ngranted\ngranted", 'nor for leases');
	is($s->query("SELECT count(*) FROM lock_election.locks; SELECT locks.revoke_lease($lease)"), "2\nt", 'nor for views');
	is($s->error, '', 'no error');
	$s->quit;
};

subtest 'transactions' => sub {
	my ($s, $o) = (as('app'), as('app'));

	# isolation
	foreach my $level ('REPEATABLE READ', 'SERIALIZABLE')
	{
		foreach my $sql (q{acquire_lock('i')}, q{try_acquire_lock('i')}, q{release_lock('i', 1)}, q{is_held('i', 1)}, q{enqueue_lock('i')}, q{grant_lease()}, q{lease_sync(1, 1)}, q{campaign('i', 'me')})
		{
			$s->query("BEGIN ISOLATION LEVEL $level; SELECT $sql");
			like($s->error, qr/0A000.*READ COMMITTED/s, "$level is refused: $sql");
			$s->query('ROLLBACK');
		}
	}

	# a rollback to a savepoint, and of all
	$s->query(q{BEGIN; SAVEPOINT a; SELECT acquire_lock('s1'); ROLLBACK TO a; SELECT acquire_lock('s2')});
	is($o->query(q{SELECT try_acquire_lock('s1') IS NOT NULL, try_acquire_lock('s2') IS NULL}), 't|t', 'what was rolled back to a savepoint is free, the rest is not');
	$s->query('ROLLBACK');
	is($o->query(q{SELECT try_acquire_lock('s2') IS NOT NULL}), 't', 'after the rollback that is free as well');
	my $token = $o->query(q{SELECT acquire_lock('s3')});
	$o->query("BEGIN; SELECT release_lock('s3', $token)");
	is($s->query(q{SELECT try_acquire_lock('s3') IS NULL}), 't', 'a release takes effect at commit');
	$o->query('ROLLBACK');
	is($o->query("SELECT is_held('s3', $token)"), 't', 'and not after a rollback');

	# in two phases
	$s->query(q{BEGIN; SELECT acquire_lock('p'); PREPARE TRANSACTION 'p'});
	is($s->error, '', 'a transaction that has acquired can be prepared');
	is($o->query(q{SELECT try_acquire_lock('p') IS NULL, try_acquire_lock('q') IS NOT NULL}), 't|t', 'the lock is not free meanwhile');
	$s->query(q{COMMIT PREPARED 'p'});
	is($o->query(q{SELECT try_acquire_lock('p') IS NULL}), 't', 'and held after it');

	# again in the transaction, and by the same owner
	is($s->query(q{BEGIN; SELECT count(DISTINCT t) FROM (VALUES (acquire_lock('again')), (acquire_lock('again'))) v(t); COMMIT}), '1', 'once more in the same transaction is the same token');
	is($s->query(q{SELECT acquire_lock('own', owner => 'o') = acquire_lock('own', owner => 'o')}), 't', 'and by the same owner');
	is($s->query(q{SELECT holds FROM lock_election.locks WHERE name = 'own'}), '2', 'counted');

	$s->query(q{SELECT acquire_lock('named')});
	is($s->query(q{SELECT release_lock('named'), release_lock('named')}), 't|f', 'a release without a token');

	# in a transaction that has written lease_sync() would change what is not its own
	my $lease = $s->query('SELECT grant_lease()');
	$s->query("BEGIN; CREATE TEMP TABLE w (x int); SELECT lease_sync($lease, 1)");
	like($s->error, qr/25001/, 'lease_sync() is refused in a transaction that has written');
	$s->query('ROLLBACK');
	is($s->query("SELECT event FROM lease_sync($lease, 2); SHOW synchronous_commit"), "lease\non", 'and changes no setting of the session');
	one($node, q{SELECT force_release_role('app')}, $db);
	$_->quit foreach $s, $o;
};

# A call that has waited for the section of a name leaves the settings of its session as they were.
subtest 'the timeout of a section' => sub {
	my ($idle, $s) = (as('app'), as('app'));

	$idle->query(q{BEGIN; SELECT enqueue_lock('section', '1 min')});
	$s->async(q{SELECT count(*) FROM enqueue_lock('section', '1 min')});
	wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND pid = } . $s->pid, '1', dbname => $db);
	$idle->query('ROLLBACK');
	is($s->wait . $s->error, '1', 'it gets in');
	is($s->query('SHOW lock_timeout'), '0', 'and sets nothing');
	one($node, q{SELECT force_release_role('app')}, $db);
	$_->quit foreach $idle, $s;
};

subtest 'transactions that stand still' => sub {
	my ($idle, $s, $o) = (as('app'), as('app'), as('app'));
	my $token = $s->query(q{SELECT acquire_lock('x', '1 min')});
	my $lease = $s->query('SELECT grant_lease()');
	my $call = 0;
	my $first = $s->query("SELECT incarnation || ', ' || news FROM lease_sync($lease, " . ++$call . ", items => '{1,enqueue_lock,x,NULL,me,NULL}') LIMIT 1");

	# one that has enqueued
	my $place = $idle->query(q{BEGIN; SELECT token FROM enqueue_lock('x', '1 min')});
	like($place, qr/^\d+$/, 'a place in an open transaction');
	in_time($s, "SELECT renew_lock('x', $token)", '00:01:00', 'does not stop the renewal of the holder');
	in_time($s, "SELECT is_held('x', $token)", 't', 'nor a look');
	in_time($s, "SELECT keep_alive($lease)", '00:01:00', 'nor that of a lease that waits for it');
	in_time($s, "SELECT event FROM lease_sync($lease, " . ++$call . ", $first)", 'lease', 'nor by lease_sync()');
	in_time($o, q{SELECT try_acquire_lock('x') IS NULL}, 't', 'nor an attempt');
	in_time($o, q{SELECT acquire_lock('x', wait => '200 ms') IS NULL}, 't', 'nor one that waits');
	in_time($o, q{SELECT lock_election.reap() >= 0}, 't', 'nor reap()');
	in_time($o, q{SELECT try_acquire_lock('elsewhere') IS NOT NULL}, 't', 'nor other names');
	in_time($o, q{SELECT count(*) FROM lock_election.locks WHERE name = 'x'}, '1', 'nor a view');
	in_time($s, "SELECT release_lock('x', $token)", 't', 'nor the release');
	$idle->query('COMMIT');
	is($o->query(q{SELECT try_acquire_lock('x') IS NULL}), 't', 'after it nobody overtakes the places, though nobody has the lock');
	is(join(' ', sort split /\n/, $s->query("SELECT event FROM lease_sync($lease, " . ++$call . ", $first)")), 'granted lease', 'and the first of the queue has it');
	is($o->query("SELECT await_lock('x', $place)"), 'f', 'and the place of that transaction is the next');
	$s->query("SELECT revoke_lease($lease)");
	is($o->query("SELECT await_lock('x', $place, '1 s')"), 't', 'which is then granted');
	$o->query("SELECT release_lock('x', $place)");

	# one whose attempt was refused keeps nothing
	$token = $s->query(q{SELECT acquire_lock('y')});
	$idle->query(q{BEGIN; SELECT try_acquire_lock('y')});
	in_time($s, "SELECT release_lock('y', $token)", 't', 'a refused attempt in an open transaction stops no release');
	in_time($o, q{SELECT try_acquire_lock('y') IS NOT NULL}, 't', 'nor the next holder');
	$idle->query('COMMIT');

	# nor does one that was refused in the section
	$token = $s->query(q{SELECT acquire_permit('pp', 1)});
	is($idle->query(q{BEGIN; SELECT acquire_permit('pp', 1, wait => '0') IS NULL}), 't', 'no permit is left');
	in_time($s, "SELECT release_lock('pp', $token)", 't', 'nor does one for a permit');
	in_time($o, q{SELECT acquire_permit('pp', 1, wait => '0') IS NOT NULL}, 't', 'which the next one has');
	$idle->query('COMMIT');

	# one that has ended an expired lock
	$s->query(q{SELECT acquire_lock('z', '100 ms')});
	select undef, undef, undef, 0.15;
	$idle->query(q{BEGIN; SELECT acquire_lock('z')});
	in_time($o, q{SELECT try_acquire_lock('z') IS NULL}, 't', 'one that has acquired stops no attempt');
	in_time($o, q{SELECT lock_election.reap() >= 0}, 't', 'nor reap()');
	$idle->query('ROLLBACK');
	in_time($o, q{SELECT try_acquire_lock('z') IS NOT NULL}, 't', 'after its rollback the lock is free');
	one($node, q{SELECT force_release_role('app')}, $db);
	$_->quit foreach $idle, $s, $o;
};

subtest 'hand-offs' => sub {
	my ($s, $o, $w) = (as('app'), as('app'), as('app'));
	my $token = $s->query(q{SELECT acquire_lock('w', '1 min')});
	my $place = $o->query(q{SELECT token FROM enqueue_lock('w', '1 min')});

	# one that waits for its place is in nobody's way
	$o->async("SELECT await_lock('w', $place, '5 s')");
	wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND pid = } . $o->pid, '1');
	my $second = $w->query(q{SELECT token FROM enqueue_lock('w', '1 min')});
	ok(!$o->ready, 'another place is taken while one is awaited');
	is($o->wait, 'f', 'which is not granted in time');
	is($s->query("SELECT release_lock('w', $token)"), 't', 'released');
	is($w->query(q{SELECT token FROM lock_election.locks WHERE name = 'w'}), $place, 'and handed on, though nobody has looked');
	is($w->query("SELECT await_lock('w', $second)"), 'f', 'to the first of the queue');

	# whoever waits without a limit sleeps in between
	$w->async("SELECT await_lock('w', $second, NULL)");
	wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND pid = } . $w->pid, '1');
	$s->async(q{SELECT acquire_lock('w')});
	waiting($s);
	is($o->query("SELECT release_lock('w', $place)"), 't', 'released');
	is($w->wait, 't', 'the next place has it');
	$w->query("SELECT release_lock('w', $second)");
	like($s->wait, qr/^\d+$/, 'and then who has no place');

	# who comes after the end of a lease gives the lock to the place, and not to itself
	$s->query(q{SELECT acquire_lock('v', '100 ms')});
	$place = $s->query(q{SELECT token FROM enqueue_lock('v', '1 min')});
	select undef, undef, undef, 0.15;
	is($o->query(q{SELECT try_acquire_lock('v') IS NULL}), 't', 'an attempt behind a place is refused');
	is($s->query("SELECT await_lock('v', $place)"), 't', 'the place has the lock');
	one($node, q{SELECT force_release_role('app')}, $db);

	# who waits in SQL overtakes no place that came before it, and is overtaken by none that came later
	my ($a, $b) = split /\|/, $s->query(q{SELECT acquire_lock('a', '1 min'), acquire_lock('b', '1 min')});
	my $first = $s->query(q{SELECT token FROM enqueue_locks('{a,b}', '1 min')});
	$w->async(q{SELECT acquire_lock('a', '1 min', wait => '1 min')});
	waiting($w);
	$place = $o->query(q{SELECT token FROM enqueue_locks('{a,b}', '1 min')});
	$s->query("SELECT release_lock('a', $a)");
	ok(!wait_until(sub { $w->ready }, 1), 'it waits for the place for several names, of which one is not free');
	$s->query("SELECT release_lock('b', $b)");
	is($s->query("SELECT await_locks('{a,b}', $first), release_locks('{a,b}', $first)"), 't|t', 'which is granted');
	my $got = $w->wait;
	ok($first < $got && $got < $place, 'and then has a higher token, which is lower than that of the next place');
	is($o->query("SELECT await_locks('{a,b}', $place)"), 'f', 'which waits for it');
	$w->query("SELECT release_lock('a', $got)");
	is($o->query("SELECT await_locks('{a,b}', $place)"), 't', 'until it is released');
	one($node, q{SELECT force_release_role('app')}, $db);

	# a wait for several names may be longer than their ttl
	$token = $s->query(q{SELECT acquire_lock('a', '1 min')});
	$place = $o->query(q{SELECT token FROM enqueue_locks('{a,b}', '3 s')});
	$o->async("SELECT await_locks('{a,b}', $place, '1 min'), renew_lock('a', $place, '1 min') IS NOT NULL");
	sleep 4;
	$s->query("SELECT release_lock('a', $token)");
	is($o->wait . $o->error, 't|t', 'the time of several names begins when a wait that is longer has ended');
	one($node, q{SELECT force_release_role('app')}, $db);

	# who is granted a place in a transaction that stands still, and is told that it waits, would lose the hold without a word
	$token = $s->query(q{SELECT acquire_lock('g', '1 min')});
	$place = $o->query(q{SELECT token FROM enqueue_lock('g', '1 min')});
	$s->query("BEGIN; SELECT release_lock('g', $token)");
	$o->query("SELECT await_lock('g', $place)");
	like($o->error, qr/55P03.*has not ended yet/s, 'a place that is being granted is not kept meanwhile');
	$s->query('COMMIT');
	is($o->query("SELECT await_lock('g', $place)"), 't', 'and granted then');
	one($node, q{SELECT force_release_role('app')}, $db);
	$_->quit foreach $s, $o, $w;
};

subtest 'expiry, and tokens' => sub {
	my ($s, $o) = (as('app'), as('app'));
	my $old = $s->query(q{SELECT acquire_lock('e', '2 s')});

	is($o->query(q{SELECT try_acquire_lock('e') IS NULL}), 't', 'held');
	my $new = $o->query(q{SELECT acquire_lock('e', wait => '1 min')});
	cmp_ok($new, '>', $old, 'the next one has a higher token');
	cmp_ok($new, '<', 2**53, 'below 2^53');
	is($s->query("SELECT renew_lock('e', $old) IS NULL, is_held('e', $old), release_lock('e', $old)"), 't|f|f', 'the first one has lost it');
	is($s->query("SELECT is_held('e', $new)"), 't', 'and does the second no harm');

	# a place whose client is gone is in nobody's way
	my $lease = $s->query(q{SELECT grant_lease('200 ms')});
	$s->query("SELECT enqueue_lock('e', lease => $lease)");
	select undef, undef, undef, 0.25;
	$o->query("SELECT release_lock('e', $new)");
	is($o->query(q{SELECT try_acquire_lock('e') IS NOT NULL}), 't', 'a place whose lease has ended is passed over');
	one($node, q{SELECT force_release_role('app')}, $db);

	# a renewal that comes too late because it had to wait for the row is none
	$lease = $s->query(q{SELECT grant_lease('5 s')});
	my $slow = session($node, dbname => $db);
	$slow->query("BEGIN; SELECT FROM _lock_election.lease WHERE id = $lease FOR NO KEY UPDATE");
	$s->async("SELECT keep_alive($lease) IS NULL");
	wait_for_sql($node, 'SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = \'Lock\' AND pid = ' . $s->pid, '1');
	select undef, undef, undef, 5.1;
	$slow->query('ROLLBACK');
	is($s->wait, 't', 'a renewal counts when it has the row, not when it began');
	$slow->quit;

	# an observer is told of a leader that nobody wants to replace
	$s->query(q{SELECT campaign('e', 'me', '100 ms')});
	select undef, undef, undef, 0.15;
	is($o->query(q{SELECT string_agg(how, ' ') FROM election_history('e')}), 'elected expired', 'who reads the history ends a term that is over');
	$_->quit foreach $s, $o;
};

subtest 'fences' => sub {
	my ($s, $o, $w) = (as('app'), as('app'), as('app'));
	my $table = one($node, q{CREATE TABLE public.t (v text); GRANT ALL ON public.t TO PUBLIC;
		CREATE TRIGGER g BEFORE INSERT OR DELETE ON public.t FOR EACH ROW EXECUTE FUNCTION locks.fence_guard('f')}, $db);
	my $token = $s->query(q{SELECT acquire_lock('f', '1 min')});

	$s->query(q{INSERT INTO t VALUES ('none')});
	like($s->error, qr/55000/, 'the guard refuses a write without a fence');
	$w->query("BEGIN; SELECT fence_lock('f', $token); INSERT INTO t VALUES ('fenced')");
	is($w->error, '', 'and lets one with a fence pass');
	is($s->query("SELECT renew_lock('f', $token, '300 ms')"), '00:00:00.3', 'a fence does not stop renewals');
	select undef, undef, undef, 0.35;
	is($o->query(q{SELECT try_acquire_lock('f') IS NULL}), 't', 'nobody is granted the lock while it stands, though its time is over');
	is($s->query("SELECT renew_lock('f', $token) IS NULL"), 't', 'nor is it renewed');
	is($o->query(q{SELECT force_release_lock('f')}), '0', 'nor forced');
	$o->async(q{SELECT acquire_lock('f', wait => '10 s')});
	ok(!$o->ready, 'the next one waits');
	$w->query('COMMIT');
	like($o->wait, qr/^\d+$/, 'until the transaction has ended');
	$w->query("BEGIN; SELECT fence_lock('f', $token)");
	like($w->error, qr/LE001/, 'who has lost it cannot fence');
	$w->query('ROLLBACK');

	# who fences
	$token = $s->query(q{SELECT acquire_lock('f3', '1 min')});
	my $term = $s->query(q{SELECT campaign('f3', 'me', '1 min')});
	$w->query("BEGIN; SELECT fence_lock('f3', $token); SELECT fence_leader('f3', $term); SAVEPOINT a; SELECT renew_lock('f3', $token)");
	my $fenced_by = q{SELECT l.fenced_by, e.fenced_by FROM lock_election.locks l JOIN lock_election.elections e ON e.election = l.name WHERE l.name = 'f3' AND l.kind = 'lock'};
	is($s->query($fenced_by), sprintf('{%d}|{%d}', ($w->pid) x 2), 'the views tell who fences');
	is(one($node, "SET SESSION AUTHORIZATION other; $fenced_by", $db), '{}|{}', 'but not another role');
	$w->query('COMMIT');
	$w->query("BEGIN; SAVEPOINT a; SELECT fence_lock('f3', $token); ROLLBACK TO a; SELECT renew_lock('f3', $token)");
	is($s->query($fenced_by), '{}|{}', 'as long as it does');
	$w->query("ROLLBACK; SELECT release_lock('f3', $token), resign('f3', $term)");

	# a release and a force beside a fence
	$token = $s->query(q{SELECT acquire_lock('f2', '1 min')});
	$w->query("BEGIN; SELECT fence_lock('f2', $token)");
	in_time($s, "SELECT release_lock('f2', $token)", 't', 'a release does not wait for a fence');
	is($s->query("SELECT is_held('f2', $token)") . $o->query(q{SELECT try_acquire_lock('f2') IS NULL}), 'ft', 'it is over, and nobody else has it');
	$w->query('ROLLBACK');
	is($o->query(q{SELECT try_acquire_lock('f2') IS NOT NULL}), 't', 'until the fence has ended');

	# a savepoint
	$token = $s->query(q{SELECT acquire_lock('f', wait => '0', owner => 'x') IS NULL, force_release_lock('f')}) && $s->query(q{SELECT acquire_lock('f', '1 min')});
	$w->query("BEGIN; SAVEPOINT a; SELECT fence_lock('f', $token); ROLLBACK TO a; INSERT INTO t VALUES ('rolled back')");
	like($w->error, qr/55000/, 'a fence that was rolled back is none');
	$w->query('ROLLBACK');
	is(one($node, q{SELECT string_agg(v, ' ') FROM public.t}, $db), 'fenced', 'so much was written');
	one($node, q{SELECT force_release_role('app'); DROP TABLE public.t}, $db);
	$_->quit foreach $s, $o, $w;
};

# What lock_election.configure() sets holds for everybody; what cannot be set is refused.
subtest 'settings' => sub {
	my ($s, $o) = (as('app'), as('other'));
	# no compression makes it shorter
	my $long = sub { return "(SELECT left(string_agg(md5(i || '$_[0]'), ''), 4000) FROM generate_series(1, 128) i)"; };
	my $configure = sub { my ($setting, $value) = @_; return error_of($node, "SELECT lock_election.configure('$setting', $value)", dbname => $db, user => 'installer'); };

	foreach my $bad ([ 'notify', q{'some'} ], [ 'notify', 'NULL' ], [ 'max_ttl', q{'25 days'} ], [ 'max_ttl', q{'1 ms'} ], [ 'max_hold_for', q{'-1 s'} ], [ 'history_retention', q{'x'} ],
		[ 'max_locks_per_role', q{'-1'} ], [ 'max_leases_per_role', q{'many'} ], [ 'max_keys_per_role', q{'1 furlong'} ], [ 'max_keys_per_role', q{'-1 MB'} ])
	{
		like($configure->(@$bad), qr/22023: invalid value for $bad->[0]/, "refused: @$bad");
	}
	like($configure->('fence_timeout', q{'1 min'}), qr/0A000: .*"fence_timeout".*HINT: .*idle_in_transaction_session_timeout/s, 'what PL/pgSQL cannot do is refused, with what to do');
	like($configure->('no_such', q{'1'}), qr/0A000/, 'and what there is not');

	# keys: the whole table first, then those of the role
	$configure->('max_keys_per_role', q{'20 kB'});
	$s->query("SELECT compare_and_set('k$_', 0, " . $long->("k$_") . ')') foreach 1 .. 4;
	is($s->error, '', 'keys within the limit');
	$s->query(q{SELECT compare_and_set('k5', 0, } . $long->('k5') . ')');
	like($s->error, qr/53400: the keys of role "app" take too much room.*HINT: .*max_keys_per_role \(20 kB\)/s, 'and beyond it');
	is($s->query(q{SELECT compare_and_set('k4', 1, repeat('v', 4096))}), '2', 'one that grows within it');
	is($s->query(q{SELECT compare_and_set('k1', 1, NULL), compare_and_set('k5', 0, } . $long->('k5') . ')'), '2|1', 'one that shrinks makes room');
	is($o->query(q{SELECT compare_and_set('o', 0, } . $long->('o') . ')'), '1', 'another role has room of its own');
	$configure->('max_keys_per_role', q{'0'});
	is($s->query(q{SELECT compare_and_set('k6', 0, } . $long->('k6') . ')'), '1', '0 is no limit');

	# the history of elections
	$configure->('max_history_per_role', q{'30 kB'});
	$s->query("SELECT resign('h', campaign('h', " . $long->($_) . '))') foreach 1 .. 4;
	is($s->error, '', 'elections within the limit');
	my $term = $s->query(q{SELECT campaign('h', 'c')});
	like($s->error, qr/53400: the history of the elections of role "app" is too long.*HINT: .*max_history_per_role \(30 kB\)/s, 'and beyond it');
	$term = $o->query(q{SELECT campaign('h', 'c')});
	like($term, qr/^\d+$/, 'of that role alone');
	is($s->query(q{SELECT try_acquire_lock('h') IS NOT NULL}), 't', 'locks have no history');
	$configure->('max_history_per_role', q{'1 kB'});
	is($o->query("SELECT proclaim('h', $term, repeat('d', 1000)), proclaim('h', $term, repeat('e', 1000))") . ($o->error =~ /(53400)/)[0], '53400', 'a proclaim is a change as well');
	$configure->($_, q{'256 MB'}) foreach 'max_history_per_role', 'max_keys_per_role';
	one($node, q{SELECT force_release_role('app'), force_release_role('other'); DELETE FROM _lock_election.versioned; DELETE FROM _lock_election.history}, $db);
	$_->quit foreach $s, $o;
};

# Many sessions together: a lock is held by one at a time, readers are never beside a writer, permits are not exceeded.
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
	$node->command_ok([ 'pgbench', '-n', '-c', '8', '-j', '2', '-T', '5', '-U', 'app', '-f', $script, $db ], 'eight sessions find nobody beside them');
	cmp_ok(one($node, 'SELECT count(*) FROM public.seen', $db), '>', 20, 'and have had the locks');
	is(one($node, 'SELECT count(*) - count(DISTINCT (name, token)) FROM public.seen', $db), '0', 'each time with another token');
	is(one($node, q{SELECT count(*) FROM lock_election.locks} , $db) . one($node, q{SELECT count(*) FROM lock_election.waiters}, $db), '00', 'nothing is left');
};

subtest 'settings' => sub {
	my $s = as('installer');
	$s->query(q{SELECT lock_election.configure('max_tll', '1 h')});
	like($s->error, qr/no setting "max_tll"\nDETAIL:.*\bmax_ttl\b/, 'a setting that does not exist: the error lists those that do');
	$s->query(q{SELECT lock_election.configure('max_ttl', NULL)});
	like($s->error, qr/invalid value for \w+: null/, 'no value');
	$s->quit;
};

# A copy of the database is another one: it has its rows, and nobody who holds anything.
subtest 'copies' => sub {
	my $s = as('app');
	my $lease = $s->query(q{SELECT grant_lease('1 h')});
	my $token = $s->query(q{SELECT acquire_lock('copied', '1 h')});
	$s->query("SELECT acquire_lock('leased', lease => $lease)");
	$s->quit;
	one('CREATE DATABASE copy TEMPLATE app; ALTER DATABASE copy SET search_path = locks');
	my $c = session($node, dbname => 'copy', user => 'app');
	my $first = $c->query(q{SELECT acquire_lock('new', '1 h')});
	is($c->query("SELECT keep_alive($lease) IS NULL"), 't', 'in a copy a lease has ended');
	cmp_ok($c->query(q{SELECT try_acquire_lock('copied')}), '>', $token, 'a lock is free, with a higher token');
	is($c->query("SELECT is_held('new', $first)"), 't', 'what was acquired in the copy before stays');
	$c->quit;

	# a dump that is restored
	one('CREATE DATABASE restored; ALTER DATABASE restored SET search_path = locks');
	my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
	my $term = one($node, q{SELECT locks.campaign('led', 'x', '1 h')}, $db);
	system_or_bail('pg_dump', '-f', $dump, $node->connstr('app'));
	system_or_bail('psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-d', $node->connstr('restored'), '-f', $dump);
	$c = session($node, dbname => 'restored', user => 'app');
	is($c->query(q{SELECT count(*) FROM lock_election.locks}) . $c->query(q{SELECT count(*) FROM current_leader('led')}) . $c->query(q{SELECT count(*) FROM lock_election.leases}),
		'000', 'in a restored database nobody holds anything, also before anybody has acquired');
	is($c->query("SELECT is_held('copied', $token)") . $c->query("SELECT is_leader('led', $term)"), 'ff', 'not for those who ask with a token');
	$c->query("SELECT fence_lock('copied', $token)");
	like($c->error, qr/LE001/, 'who have no fence');
	is($c->query("SELECT release_lock('copied', $token)"), 'f', 'and nothing to release');
	$first = $c->query(q{SELECT acquire_lock('new', '1 h')});
	cmp_ok($first, '>', $token + 2**20, 'in a restored database tokens go on far above');
	is($c->query(q{SELECT try_acquire_lock('copied') IS NOT NULL}), 't', 'and locks are free');
	is($c->query("SELECT is_held('new', $first)"), 't', 'those of before stay');
	$c->quit;
	is(one($node, "SELECT locks.is_held('copied', $token)", $db), 't', 'nothing has happened to the database itself');
	one($node, "SELECT locks.resign('led', $term)", $db);
	one($node, q{SELECT force_release_role('app')}, $db);
};

# Last: the server ends several times.
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
	is($s->query("SELECT is_held('c', $token), is_held('own', $own)"), 't|t', 'an orderly restart keeps the locks');
	cmp_ok($left->('c'), '<', 25, 'with the time that they had');
	is(one($node, 'SELECT count(*) FROM _lock_election.lives', $db), '1', 'no life has begun');

	# a crash
	$s->quit;
	$node->stop('immediate');
	$node->start;
	$s = as('app');
	is($s->query("SELECT name, time_left IS NULL FROM lock_election.locks ORDER BY name") . $s->error, "c|t\nown|t", 'before anybody comes after a crash nothing ends');
	is($s->query("SELECT is_held('c', $token)"), 't', 'and is held');
	my $next = $s->query(q{SELECT acquire_lock('after')});
	cmp_ok($next, '>', $token + 2**20, 'after a crash tokens go on far above');
	cmp_ok($left->('c'), '>', 50, 'and leases begin anew');
	cmp_ok($left->('own'), '>', 50, 'those of single locks too');

	# and another one: nobody has renewed
	my $was = one($node, q{SELECT expires_at FROM lock_election.locks WHERE name = 'c'}, $db);
	$s->quit;
	$node->stop('immediate');
	$node->start;
	$s = as('app');
	$s->query(q{SELECT acquire_lock('after2')});
	is(one($node, q{SELECT expires_at FROM lock_election.locks WHERE name = 'c'}, $db), $was, 'once: the next crash gives nothing more');

	# unless it was renewed
	like($s->query("SELECT keep_alive($lease)"), qr/00:01:00/, 'renewed');
	$age->();
	$s->quit;
	$node->stop('immediate');
	$node->start;
	$s = as('app');
	$s->query(q{SELECT acquire_lock('after3')});
	cmp_ok($left->('c'), '>', 50, 'a renewal gives it the next beginning');
	is($s->query("SELECT is_held('c', $token)"), 't', 'still held');

	# whoever comes first, also to a name that is held
	$s->query(q{SELECT acquire_lock('short', '100 ms')});
	$s->quit;
	$node->stop('immediate');
	$node->start;
	$s = as('app');
	is($s->query(q{SELECT acquire_lock('short', wait => '20 s') IS NOT NULL}), 't', 'who waits for a lock that was held is granted it when its time is over');

	# a standby that is promoted is a life, too
	is(one($node, 'SELECT count(*) FROM _lock_election.lives', $db), '5', 'a life for each crash');
	# the first transaction after a crash stands still
	$s->quit;
	$node->stop('immediate');
	$node->start;
	my ($idle, $o) = (as('app'), as('app'));
	$s = as('app');
	my $place = $idle->query(q{BEGIN; SELECT acquire_lock('first')});
	$o->query(q{SELECT try_acquire_lock('second')});
	like($o->error, qr/57P03: the locks of this database are not ready after a crash/, 'until the first transaction has ended nobody else is granted anything, and is told so');
	like($s->query("SELECT keep_alive($lease)"), qr/00:01:00/, 'a lease is renewed meanwhile');
	is($s->query("SELECT is_held('c', $token)"), 't', 'and held');
	like($s->query("SELECT renew_lock('own', $own)") . $s->error, qr/^00:01:00$/, 'so is a lock');
	$idle->query('ROLLBACK');
	is($o->query(q{SELECT try_acquire_lock('second') IS NOT NULL}), 't', 'then they are');
	is(one($node, 'SELECT count(*) FROM _lock_election.lives', $db), '6', 'in one life');
	$_->quit foreach $s, $o, $idle;
};

subtest 'for one role' => sub {
	one($node, 'CREATE DATABASE granted');
	one($node, 'GRANT CREATE ON DATABASE granted TO installer');
	PostgreSQL::Test::Utils::system_or_bail('psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-1', '-o', '/dev/null', '-d', $node->connstr('granted') . q{ user='installer'},
		'-c', q{SET LOCAL _lock_election.schema = 'mine'; SET LOCAL _lock_election."grant" = 'app'}, '-f', 'sql/portable/lock_election.sql');
	is(one($node, q{SELECT has_schema_privilege('app', 'mine', 'USAGE'), has_schema_privilege('guest', 'mine', 'USAGE')}, 'granted'), 't|f', 'a schema that is made at installation is for the role that was named');
};

subtest 'what is indexed' => sub {
	is(one($node, q{SELECT string_agg(c.relname, ' ' ORDER BY c.relname) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = '_lock_election'::regnamespace AND NOT i.indisprimary}, $db),
		'fence_transaction history_age history_role hold_evicted hold_lease place_lease versioned_role', 'all indexes are there');
};

done_testing();
