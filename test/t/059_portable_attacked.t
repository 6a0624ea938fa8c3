# Attacks on the portable edition: an ordinary role tries to use the privileges of the installing role or the locks of
# another role; transactions end a hold while another one renews it; unusual privileges, names and settings.
# Promises: M, D, A
# Needs: lockctl
use strict;
use warnings;
use LeCtl;
use LeShadows;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', extension => 0, conf => "shared_preload_libraries = ''\nfsync = on\n");
my $db = 'app';

one('CREATE ROLE installer LOGIN; CREATE ROLE app LOGIN; CREATE ROLE evil LOGIN; CREATE DATABASE app OWNER installer');
one('ALTER DATABASE app SET search_path = locks, public');

# Installs with psql, as documented. Returns the output.
sub install
{
	my ($dbname, $on, $schema) = @_;
	my $out = '';

	local $ENV{PGOPTIONS} = '-c _lock_election.schema=' . ($schema // 'locks');
	IPC::Run::run([ 'psql', '-XAtq', '-1', '-v', 'ON_ERROR_STOP=1', '-d', ($on // $node)->connstr($dbname) . " user='installer'", '-f', 'sql/portable/lock_election.sql' ], '>&', \$out);
	return $out;
}

sub as { my ($role, %opts) = @_; return session($node, dbname => $db, user => $role, %opts); }

# Waits until this session waits for a row or lock of another session.
sub wait_for_lock { return wait_for_sql($node, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = " . $_[0]->pid); }

is(install($db), '', 'the portable edition is installed');

# Functions that run with the installer's privileges must not call functions of the caller.
subtest 'the privileges of the installer' => sub {
	my $s = as('evil');

	# A type in the temporary schema, which every role has: its conversions report the role that runs them.
	$s->query(<<'SQL');
CREATE TYPE pg_temp.trap AS ENUM ('a');
CREATE FUNCTION pg_temp.sprung(pg_temp.trap) RETURNS json LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'sprung by %', current_user; RETURN '1'; END $$;
CREATE CAST (pg_temp.trap AS json) WITH FUNCTION pg_temp.sprung(pg_temp.trap);
CREATE FUNCTION pg_temp.checked(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'checked by %', current_user; RETURN true; END $$;
CREATE DOMAIN pg_temp.checking AS text CHECK (pg_temp.checked(VALUE));
CREATE TEMP TABLE baited (id int, "a ""version" bigint NOT NULL DEFAULT 1, trap pg_temp.trap DEFAULT 'a', checking pg_temp.checking);
CREATE TRIGGER version BEFORE UPDATE ON baited FOR EACH ROW EXECUTE FUNCTION locks.version_guard('a "version');
INSERT INTO baited VALUES (1);
SQL
	is($s->query('UPDATE baited SET id = 2 RETURNING "a ""version"') . $s->error, '2', 'version_guard() increments the version, and calls no function of the types of other columns');

	# A session whose current role was dropped has no privileges.
	my $victim = as('app');
	my $token = $victim->query(q{SELECT acquire_lock('v', '1 hour')});
	my $lease = $victim->query(q{SELECT grant_lease('1 hour')});
	$victim->query(qq{SELECT acquire_permit('vp', 3, '1 hour', lease => $lease)});
	one('CREATE ROLE ghost; GRANT ghost TO evil');
	$s->query('SET ROLE ghost');
	one('DROP ROLE ghost');
	foreach my $sql (q{evict_lock('v')}, q{force_release_lock('v')}, q{force_release_role('app')}, "revoke_lease($lease)", "keep_alive($lease)", "lease_holds($lease)", "lease_time_to_live($lease)",
		"lease_sync($lease, 1)", "acquire_lock('w', lease => $lease)", q{set_permits('vp', 1)}, "release_lock('v', $token)", "renew_lock('v', $token)", "fence_lock('v', $token)")
	{
		is($s->query("SELECT locks.$sql"), '', "a session whose role was dropped is rejected: $sql");
		like($s->error, qr/role "ghost" does not exist any more|42501/, 'the error says that the role does not exist, or that the privilege is missing');
	}
	is($victim->query("SELECT is_held('v', $token), lease_time_to_live($lease) > '0'"), 't|t', 'the locks and the lease of the other role are unchanged');
	$_->quit foreach $s, $victim;
	one($node, q{SELECT locks.force_release_role('app')}, $db);
};

# A hold is ended by an open transaction, while its holder or a release waits for that transaction.
subtest 'a hold that an open transaction ends' => sub {
	my ($s, $o) = (as('app'), as('app'));
	my ($token) = split /\|/, $s->query(q{SELECT token FROM enqueue_lock('e', '1 min')});

	$o->query(q{BEGIN; SELECT force_release_lock('e')});
	$s->async("SELECT await_lock('e', $token)");
	wait_for_lock($s);
	$o->query('COMMIT');
	is($s->wait // '', '', 'await_lock() waits for the transaction that ends the lock');
	like($s->error, qr/LE001/, 'await_lock() reports that the lock is not held');

	# The critical section of the name is occupied by another session, so that nobody else can enter it.
	foreach my $case ([ 'force_release_lock(%1$s)', 'acquire_lock(%1$s, owner => \'me\', wait => \'0\') IS NOT DISTINCT FROM %2$s', 'f', 'one more hold' ],
		[ 'release_lock(%1$s, %2$s)', 'release_lock(%1$s, %2$s)', 't', 'the release of the last of two holds' ])
	{
		my ($ends, $waits, $wanted, $what) = @$case;
		my $idle = as('app');

		$token = $s->query(q{SELECT acquire_lock('f', '1 min', owner => 'me')});
		$s->query(q{SELECT acquire_lock('f', owner => 'me')}) if $ends =~ /^release/;
		$idle->query(q{BEGIN; SELECT release_lock('f', 1)});
		$o->query('BEGIN; SELECT ' . sprintf($ends, q{'f'}, $token));
		$idle->query('COMMIT');
		$s->async('SELECT ' . sprintf($waits, q{'f'}, $token));
		wait_for_lock($s);
		$o->query('COMMIT');
		is($s->wait . $s->error, $wanted, "$what, while the first end is not committed");
		is($o->query("SELECT is_held('f', $token)"), 'f', 'nobody holds the lock afterwards');
		one($node, q{SELECT locks.force_release_lock('f')}, $db);
		$idle->quit;
	}
	$_->quit foreach $s, $o;
};

# An idle transaction that has used its lease and lock.
subtest 'an idle transaction blocks operators' => sub {
	my ($idle, $op) = (as('app'), session($node, dbname => $db));
	my $lease = $idle->query(q{SELECT grant_lease('1 hour')});
	my $token = $idle->query(qq{SELECT acquire_lock('g', lease => $lease)});

	$idle->query("BEGIN; SELECT acquire_lock('h', lease => $lease), keep_alive($lease)");
	is($op->query(q{SELECT locks.evict_lock('g')}), '', 'an eviction does not wait forever for an idle transaction');
	like($op->error, qr/55P03/, 'the blocked eviction fails with lock_not_available');
	is($op->query(q{SELECT locks.force_release_role('app')}) . $op->error, '1', 'force_release_role() ends everything that is not blocked');
	is($op->query("SELECT locks.is_held('g', $token), locks.try_acquire_lock('g') IS NOT NULL"), 'f|t', 'the lock of the role is free');
	my $own = as('app');
	is($own->query("SELECT revoke_lease($lease)"), '', 'revoking a lease does not wait forever for an idle transaction');
	like($own->error, qr/55P03/, 'the blocked revocation fails with lock_not_available');
	$idle->query('COMMIT');
	is($op->query(q{SELECT locks.force_release_role('app')}) . $op->error, '1', 'force_release_role() ends the lease after the end of the transaction');
	is($own->query("SELECT event, reason FROM lease_sync($lease, 1)"), 'gone|forced', 'the client of the lease is told that it was ended by force');
	$_->quit foreach $idle, $op, $own;
	one($node, q{SELECT locks.force_release_lock('g')}, $db);
};

# Names in columns with their own collation, and arrays that do not begin at 1.
subtest 'names with collations, and arrays with other bounds' => sub {
	my $s = as('app');
	my @collations = grep { one($node, "SELECT count(*) FROM pg_collation WHERE collname = '$_'", $db) } 'und-x-icu';

	one($node, q{CREATE COLLATION blunt (PROVIDER = icu, LOCALE = '@colStrength=primary', DETERMINISTIC = false)}, $db) if @collations;
	push @collations, 'blunt' if @collations;
	foreach my $collation (@collations)
	{
		my $t = as('app');

		is($s->query(q{SELECT acquire_lock('other') IS NOT NULL}), 't', 'there are rows with other names');
		$t->query(qq{CREATE TEMP TABLE n (n text COLLATE "$collation"); INSERT INTO n VALUES ('Name')});
		my $token = $t->query('SELECT acquire_lock(n) FROM n');
		like($token . $t->error, qr/^\d+$/, "collation $collation: acquired");
		is($s->query(q{SELECT try_acquire_lock('Name') IS NULL, try_acquire_lock('name') IS NOT NULL}), 't|t', "collation $collation: only the lock with exactly these bytes is held");
		is($t->query("SELECT is_held(n, $token), renew_lock(n, $token), try_acquire_lock(n) IS NULL, fence_lock(n, $token), evict_lock(n), release_lock(n, $token) FROM n") . $t->error,
			't|00:00:30|t||1|t', "collation $collation: functions of a single lock");
		is($t->query(q{SELECT (enqueue_lock(n)).granted, force_release_lock(n) FROM n}) . $t->error, 't|1', "collation $collation: places");
		is($t->query(q{SELECT release_locks(ARRAY[n], acquire_locks(ARRAY[n])), (try_acquire_each(ARRAY[n])).name, (enqueue_each(ARRAY[n])).granted, force_release_lock(n) FROM n}) . $t->error,
			't|Name|f|1', "collation $collation: functions of several locks");
		one($node, q{SELECT locks.force_release_role('app')}, $db);
		$s->query(q{SELECT acquire_lock('other')});
		is($t->query(q{SELECT acquire_permit(n, 2) > 0, set_permits(n, 3), (enqueue_permit(n, 3)).granted, force_release_lock(n) FROM n}) . $t->error, 't|2|t|2', "collation $collation: permits");
		is($t->query(q{SELECT is_leader(n, t), renew_leadership(n, t), proclaim(n, t, 'you'), (SELECT candidate FROM current_leader(n)), length(observe_election(n)), fence_leader(n, t), resign(n, t),
			(SELECT count(*) FROM election_history(n)) FROM (SELECT n, campaign(n, 'me') AS t FROM n OFFSET 0) x}) . $t->error, 't|00:00:15|t|you|35||t|3', "collation $collation: elections");
		is($t->query(q{SELECT compare_and_set(n, 0, n), compare_and_set(n, 1, n), (read_versioned(n)).value, advisory_acquire(n), advisory_release(n) FROM n}) . $t->error, '1|2|Name|t|t', "collation $collation: versioned keys and advisory locks");
		one($node, q{SELECT locks.force_release_role('app'); DELETE FROM _lock_election.versioned; DELETE FROM _lock_election.history}, $db);
		$t->quit;
	}

	my $token = $s->query(q{SELECT acquire_locks('[5:6]={b1,b2}', '1 min')});
	is($s->query(qq{SELECT await_locks('[7:8]={b1,b2}', $token), release_locks('[0:1]={b1,b2}', $token)}) . $s->error, 't|t', 'functions of several locks accept any array bounds');
	is($s->query(q{SELECT count(token) FROM try_acquire_each('[-1:0]={b1,b2}')}), '2', 'try_acquire_each() accepts any array bounds');
	is($s->query(q{SELECT name, released FROM release_each('[3:4]={b1,b2}', ('[5:6]={0,0}'::bigint[])[5:5] || (SELECT token FROM lock_election.locks WHERE name = 'b2'))}), "b1|f\nb2|t", 'release_each() accepts any array bounds');
	my $lease = $s->query('SELECT grant_lease()');
	is($s->query("SELECT event FROM lease_sync($lease, 1, items => '[0:5]={1,try_lock,b2,NULL,NULL,NULL}')") . $s->error, "lease\ngranted", 'lease_sync() accepts any array bounds');
	one($node, q{SELECT locks.force_release_role('app')}, $db);
	$s->quit;
};

# Expired places behind a place that is kept alive.
subtest 'a queue full of expired places' => sub {
	my $s = as('app');
	my $count = q{SELECT count(*) FROM lock_election.waiters WHERE name = 'q'};

	one($node, q{SELECT lock_election.configure('max_waiters_per_lock', '3')}, $db);
	$s->query(q{SELECT acquire_lock('q', '1 hour'), enqueue_lock('q', '1 hour'), enqueue_lock('q', '100 ms'), enqueue_lock('q', '100 ms')});
	wait_for_sql($node, $count, '1', dbname => $db);
	is($s->query(q{SELECT (enqueue_lock('q', '1 hour')).granted}) . $s->error, 'f', 'expired places do not count for max_waiters_per_lock');
	is(one($node, q{SELECT lock_election.reap() > 0; SELECT count(*) FROM _lock_election.place WHERE name = 'q'}, $db), "t\n2", 'reap() removes expired places');
	$s->query(q{SELECT enqueue_lock('q', '1 hour')});
	is($s->query(q{SELECT enqueue_lock('q', '1 hour')}) . ($s->error =~ /53400/ ? 'refused' : $s->error), 'refused', 'max_waiters_per_lock limits places that have not expired');

	# Expired locks do not count for max_locks_per_role either.
	one($node, q{SELECT locks.force_release_role('app'), lock_election.configure('max_locks_per_role', '2')}, $db);
	$s->query(q{SELECT acquire_lock('o1', '100 ms'), acquire_lock('o2', '100 ms')});
	wait_for_sql($node, q{SELECT count(*) FROM lock_election.locks}, '0', dbname => $db);
	is($s->query(q{SELECT acquire_lock('o3') > 0, acquire_lock('o4') > 0}) . $s->error, 't|t', 'expired locks do not count for max_locks_per_role');
	is($s->query(q{SELECT acquire_lock('o5')}) . ($s->error =~ /53400/ ? 'refused' : $s->error), 'refused', 'max_locks_per_role limits locks that are held');
	one($node, q{SELECT lock_election.configure('max_locks_per_role', '0')}, $db);
	one($node, q{SELECT lock_election.configure('max_waiters_per_lock', '1000'), locks.force_release_role('app')}, $db);
	$s->quit;
};

# Privileges and objects that exist before the installation.
subtest 'installed next to existing privileges and objects' => sub {
	one('CREATE DATABASE given OWNER installer; CREATE DATABASE squatted OWNER installer; GRANT CREATE ON DATABASE squatted TO evil');
	one($node, q{ALTER DEFAULT PRIVILEGES FOR ROLE installer GRANT ALL ON TABLES TO evil; ALTER DEFAULT PRIVILEGES FOR ROLE installer GRANT ALL ON SEQUENCES TO evil;
		ALTER DEFAULT PRIVILEGES FOR ROLE installer GRANT ALL ON FUNCTIONS TO evil; ALTER DEFAULT PRIVILEGES FOR ROLE installer GRANT ALL ON SCHEMAS TO evil}, 'given');
	is(install('given'), '', 'installed by a role with default privileges');
	my $s = session($node, dbname => 'given', user => 'evil');
	foreach my $sql ('SELECT * FROM _lock_election.hold', 'DELETE FROM _lock_election.lease', q{SELECT nextval('_lock_election.token')}, 'SELECT _lock_election.who()', 'CREATE TABLE _lock_election.x ()',
		'SELECT locks.advance_revision(1)', q{SELECT lock_election.configure('notify', 'none')})
	{
		$s->query($sql);
		like($s->error, qr/42501/, "default privileges do not apply to: $sql");
	}
	is($s->query(q{SELECT locks.release_lock('x', locks.acquire_lock('x'))}), 't', 'every role can use locks');
	one($node, 'GRANT EXECUTE ON FUNCTION lock_election.configure(text, text) TO evil', 'given');
	is(install('given'), '', 'installed again');
	is($s->query(q{SELECT lock_election.configure('notify', 'none')}) . $s->error, '', 'a privilege that was granted since is kept by the second installation');
	$s->quit;

	$s = session($node, dbname => 'squatted', user => 'evil');
	foreach my $schema ('_lock_election', 'lock_election')
	{
		$s->query("CREATE SCHEMA $schema");
		like(install('squatted'), qr/schema $schema belongs to role "evil".*drop the schema/s, "schema $schema of another role is rejected");
		$s->query("DROP SCHEMA $schema");
	}
	$s->query('CREATE SCHEMA locks; GRANT ALL ON SCHEMA locks TO installer');
	like(install('squatted'), qr/schema "locks" belongs to role "evil", which could replace functions/, 'a schema of another role for the functions is rejected');
	$s->query('DROP SCHEMA locks');
	one($node, 'CREATE SCHEMA locks; GRANT CREATE, USAGE ON SCHEMA locks TO installer, evil', 'squatted');
	$s->query(q{CREATE FUNCTION locks.acquire_lock(text, text) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'});
	like(install('squatted'), qr/function (?:locks\.)?acquire_lock\(text,text\) belongs to another role/, 'a function of another role that calls could resolve to is rejected');
	$s->query('DROP FUNCTION locks.acquire_lock(text, text)');
	is(install('squatted'), '', 'installed after these objects are dropped');
	$s->quit;
};

# A fence is recorded with the number of its transaction; a copy of the database on another server can reach the same
# number again.
subtest 'a copy of the database' => sub {
	my $s = as('app');
	my $token = $s->query(q{SELECT acquire_lock('c')});

	$s->query("SELECT fence_lock('c', $token)");
	$s->quit;
	is(one($node, 'SELECT count(*) > 0 FROM _lock_election.fence', $db), 't', 'a fence leaves a row');
	one('CREATE DATABASE copy TEMPLATE app');
	is(one($node, q{SELECT locks.try_acquire_lock('c') IS NOT NULL; SELECT count(*) FROM _lock_election.fence}, 'copy'), "t\n0", 'the copy of a fence does not delay the next holder');
};

# A lock is granted by a transaction that does not wait for the flush, and reported to a client that does.
subtest 'reported grants are durable' => sub {
	my ($s, $o) = (as('app'), as('app'));

	$node->append_conf('postgresql.conf', "wal_writer_delay = 10000\n");
	$node->reload;
	my $lease = $s->query(q{SELECT grant_lease('1 hour')});
	my $token = $o->query(q{SELECT acquire_lock('d', '1 hour')});
	my $seen = $s->query("SELECT incarnation || ', ' || news FROM lease_sync($lease, 1, items => '{1,enqueue_lock,d,NULL,NULL,NULL}') LIMIT 1");
	$seen = $s->query("SELECT incarnation || ', ' || news FROM lease_sync($lease, 2, $seen) LIMIT 1");
	is($o->query("SET synchronous_commit = off; SELECT release_lock('d', $token)"), 't', 'a lock is released without waiting for the flush');
	is($s->query("SELECT event FROM lease_sync($lease, 3, $seen)"), "lease\ngranted", 'the grant is reported to the next holder');
	$_->kill foreach $s, $o;
	$node->stop('immediate');
	$node->start;
	is(one($node, q{SELECT lease FROM lock_election.locks WHERE name = 'd'}, $db), $lease, 'the next holder still holds the lock after a crash');
};

# Tables that their owner has modified are moved by a superuser.
subtest 'a move to the extension does not run code of the owner' => sub {
	my $moving = new_node('moving', extension => 0);
	my $err;

	one($moving, 'CREATE ROLE installer LOGIN; GRANT CREATE ON DATABASE postgres TO installer');
	is(install('postgres', $moving, 'Odd'), '', 'installed into a schema whose name needs quotes');
	one($moving, 'REVOKE EXECUTE ON FUNCTION "Odd".evict_lock(text) FROM PUBLIC; GRANT EXECUTE ON FUNCTION "Odd".evict_lock(text) TO pg_monitor');
	my $s = session($moving, user => 'installer');
	$s->query(<<'SQL');
CREATE FUNCTION "Odd".sprung() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'sprung by %', current_user; RETURN NEW; END $$;
CREATE FUNCTION "Odd".made() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'sprung by %', current_user; RETURN 1; END $$;
SELECT "Odd".campaign('m', 'me', '100 ms');
CREATE TRIGGER trap BEFORE INSERT OR UPDATE OR DELETE ON _lock_election.history FOR EACH ROW EXECUTE FUNCTION "Odd".sprung();
ALTER TABLE _lock_election.history ADD trap int;
ALTER TABLE _lock_election.history ALTER trap SET DEFAULT "Odd".made();
SQL
	is($s->error, '', 'triggers and defaults of the owner are created');
	$s->quit;
	wait_for_sql($moving, 'SELECT expires_at < clock_timestamp() FROM _lock_election.hold');
	IPC::Run::run([ 'psql', '-X', '-v', 'ON_ERROR_STOP=1', '-d', $moving->connstr('postgres'), '-f', 'sql/portable/to_extension.sql' ], '>&', \$err);
	like($err, qr/moved to the extension/, 'the portable edition is moved to the extension');
	unlike($err, qr/sprung/, 'no function of the owner has run');
	is(one($moving, q{SELECT string_agg(how, ' ' ORDER BY change) FROM "Odd".election_history('m')}), 'elected expired', 'the history contains the end of the term');
	is(one($moving, q{SELECT has_function_privilege('installer', '"Odd".evict_lock(text)', 'EXECUTE'), has_function_privilege('pg_monitor', '"Odd".evict_lock(text)', 'EXECUTE')}), 'f|t', 'the privileges on functions are moved');
	$moving->stop;
};

# A role with the CREATE privilege on a schema of search_path creates objects with the names of PostgreSQL's own.
subtest 'objects that shadow those of PostgreSQL' => sub {
	one('CREATE DATABASE shadowed OWNER installer');
	make_shadows($node, 'shadowed', 'public', 'text,name,bigint,integer,smallint,boolean,oid,interval,inet,timestamp with time zone,regrole');
	ctl_node($node);
	my $from = -s $node->logfile;
	my ($code, $out, $err) = ctl({ env => { PGUSER => 'installer', PGDATABASE => 'shadowed' } }, qw(install --schema locks));

	is($code, 0, 'installed next to shadowing objects') or diag($err);
	is(shadows_that_ran($node, $from), '', 'lockctl install runs none of the shadowing objects');
	one('ALTER DATABASE shadowed SET search_path = public, pg_catalog');
	is((ctl({ env => { PGUSER => 'installer', PGDATABASE => 'shadowed' } }, 'install'))[0], 0, 'lockctl install succeeds where shadowing objects come first in search_path');
	is(install('shadowed'), '', 'psql installs where shadowing objects come first in search_path');
	is(shadows_that_ran($node, $from), '', 'an installation runs none of the shadowing objects that come first');
	is(depends_on_shadows($node, 'shadowed'), '', 'no installed object depends on a shadowing object');

	$node->psql('shadowed', <<'SQL', extra_params => [ '-U', 'app' ], stdout => \$out, stderr => \$err);
SELECT locks.acquire_lock('a', '1 min', owner => 'o', lease => locks.grant_lease('1 h', 'me'));
SELECT locks.enqueue_lock('a', '1 min'), locks.enqueue_locks('{a,b}', '1 min', 'shared', 'o');
SELECT locks.release_lock('c', locks.acquire_lock('c'), hold_for => '1 h'), locks.enqueue_lock('c', '1 min');
SELECT locks.enqueue_permit('p', 2, '1 min'), locks.acquire_permit('p', 2), locks.set_permits('p', 1);
SELECT locks.campaign('e', 'alice', '1 h'), locks.enqueue_candidate('e', 'bob', '1 h'), locks.current_leader('e'), locks.election_history('e', 0), locks.observe_election('e');
SELECT locks.compare_and_set('k', 0, 'x'), locks.compare_and_set('k', 1, 'y'), locks.read_versioned('k'), locks.advisory_acquire('a', '0', true), locks.advisory_release('a', true);
CREATE TEMP TABLE guarded (version pg_catalog.int4, v pg_catalog.text);
CREATE TRIGGER version BEFORE UPDATE ON guarded FOR EACH ROW EXECUTE FUNCTION locks.version_guard();
CREATE TRIGGER fence BEFORE UPDATE ON guarded FOR EACH STATEMENT EXECUTE FUNCTION locks.fence_guard('f');
INSERT INTO guarded VALUES (1, 'x');
BEGIN;
SELECT locks.fence_lock('f', locks.acquire_lock('f'));
UPDATE guarded SET v = 'y';
COMMIT;
SELECT locks.grant_lease() AS lease \gset
SELECT event FROM locks.lease_sync(:lease, 1, items => '{1,try_candidate,h,NULL,o,me,2,enqueue_shared,a,NULL,o2,NULL,3,release,z,1,NULL,NULL}');
SELECT locks.evict_lock('a'), lock_election.reap(), lock_election.health();
SELECT * FROM lock_election.locks; SELECT * FROM lock_election.waiters; SELECT * FROM lock_election.elections; SELECT * FROM lock_election.leases;
SELECT locks.force_release_role('app');
SQL
	is($err, '', 'all functions and views are used without an error');
	is(shadows_that_ran($node, $from), '', 'no function or view runs a shadowing object');
};

$node->stop;
done_testing();
