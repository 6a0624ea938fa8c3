# Attacks on the portable edition: an ordinary role that tries to get the rights of the installing role or the locks of
# another; transactions that end a hold while another one renews it; unexpected rights, names and settings.
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

# psql with the file, as the documents have it; what it writes.
sub install
{
	my ($dbname, $on, $schema) = @_;
	my $out = '';

	local $ENV{PGOPTIONS} = '-c _lock_election.schema=' . ($schema // 'locks');
	IPC::Run::run([ 'psql', '-XAtq', '-1', '-v', 'ON_ERROR_STOP=1', '-d', ($on // $node)->connstr($dbname) . " user='installer'", '-f', 'sql/portable/lock_election.sql' ], '>&', \$out);
	return $out;
}

sub as { my ($role, %opts) = @_; return session($node, dbname => $db, user => $role, %opts); }

# Whether this session waits for another one's row or lock.
sub wait_for_lock { return wait_for_sql($node, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = " . $_[0]->pid); }

is(install($db), '', 'installed');

# Functions of ours that have its rights must run none of the caller's.
subtest 'the rights of the installer' => sub {
	my $s = as('evil');

	# a type whose conversions tell who runs them, in a temporary schema, which everybody has
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
	is($s->query('UPDATE baited SET id = 2 RETURNING "a ""version"') . $s->error, '2', 'version_guard() counts, and runs no function of the types of other columns');

	# a role that has gone is nobody
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
		is($s->query("SELECT locks.$sql"), '', "a session whose role was dropped may not: $sql");
		like($s->error, qr/role "ghost" does not exist any more|42501/, 'and is told so');
	}
	is($victim->query("SELECT is_held('v', $token), lease_time_to_live($lease) > '0'"), 't|t', 'nothing has happened');
	$_->quit foreach $s, $victim;
	one($node, q{SELECT locks.force_release_role('app')}, $db);
};

# A hold that is ended while its holder, or its release, waits for the transaction that does it.
subtest 'ended by an open transaction' => sub {
	my ($s, $o) = (as('app'), as('app'));
	my ($token) = split /\|/, $s->query(q{SELECT token FROM enqueue_lock('e', '1 min')});

	$o->query(q{BEGIN; SELECT force_release_lock('e')});
	$s->async("SELECT await_lock('e', $token)");
	wait_for_lock($s);
	$o->query('COMMIT');
	is($s->wait // '', '', 'await_lock() waits for who ends the lock');
	like($s->error, qr/LE001/, 'and does not say that it is held');

	# in the section of another one, so that nobody else can enter it
	foreach my $case ([ 'force_release_lock(%1$s)', 'acquire_lock(%1$s, owner => \'me\', wait => \'0\') IS NOT DISTINCT FROM %2$s', 'f', 'a hold more' ],
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
		is($o->query("SELECT is_held('f', $token)"), 'f', 'nobody has that lock');
		one($node, q{SELECT locks.force_release_lock('f')}, $db);
		$idle->quit;
	}
	$_->quit foreach $s, $o;
};

# A transaction that has used its lease or lock, and stands still.
subtest 'in the way of operators' => sub {
	my ($idle, $op) = (as('app'), session($node, dbname => $db));
	my $lease = $idle->query(q{SELECT grant_lease('1 hour')});
	my $token = $idle->query(qq{SELECT acquire_lock('g', lease => $lease)});

	$idle->query("BEGIN; SELECT acquire_lock('h', lease => $lease), keep_alive($lease)");
	is($op->query(q{SELECT locks.evict_lock('g')}), '', 'an eviction does not wait for ever');
	like($op->error, qr/55P03/, 'but says so');
	is($op->query(q{SELECT locks.force_release_role('app')}) . $op->error, '1', 'all of the role is ended as far as can be');
	is($op->query("SELECT locks.is_held('g', $token), locks.try_acquire_lock('g') IS NOT NULL"), 'f|t', 'its lock is the next one\'s');
	my $own = as('app');
	is($own->query("SELECT revoke_lease($lease)"), '', 'nor does the end of the lease');
	like($own->error, qr/55P03/, 'but says so');
	$idle->query('COMMIT');
	is($op->query(q{SELECT locks.force_release_role('app')}) . $op->error, '1', 'the lease with the rest once the transaction has ended');
	is($own->query("SELECT event, reason FROM lease_sync($lease, 1)"), 'gone|forced', 'and its client is told');
	$_->quit foreach $idle, $op, $own;
	one($node, q{SELECT locks.force_release_lock('g')}, $db);
};

# Names of columns with a collation of their own, and arrays that do not begin at 1.
subtest 'names' => sub {
	my $s = as('app');
	my @collations = grep { one($node, "SELECT count(*) FROM pg_collation WHERE collname = '$_'", $db) } 'und-x-icu';

	one($node, q{CREATE COLLATION blunt (PROVIDER = icu, LOCALE = '@colStrength=primary', DETERMINISTIC = false)}, $db) if @collations;
	push @collations, 'blunt' if @collations;
	foreach my $collation (@collations)
	{
		my $t = as('app');

		is($s->query(q{SELECT acquire_lock('other') IS NOT NULL}), 't', 'there are rows');
		$t->query(qq{CREATE TEMP TABLE n (n text COLLATE "$collation"); INSERT INTO n VALUES ('Name')});
		my $token = $t->query('SELECT acquire_lock(n) FROM n');
		like($token . $t->error, qr/^\d+$/, "collation $collation: acquired");
		is($s->query(q{SELECT try_acquire_lock('Name') IS NULL, try_acquire_lock('name') IS NOT NULL}), 't|t', 'the lock of these very bytes');
		is($t->query("SELECT is_held(n, $token), renew_lock(n, $token), try_acquire_lock(n) IS NULL, fence_lock(n, $token), evict_lock(n), release_lock(n, $token) FROM n") . $t->error,
			't|00:00:30|t||1|t', 'all functions of one lock');
		is($t->query(q{SELECT (enqueue_lock(n)).granted, force_release_lock(n) FROM n}) . $t->error, 't|1', 'of places');
		is($t->query(q{SELECT release_locks(ARRAY[n], acquire_locks(ARRAY[n])), (try_acquire_each(ARRAY[n])).name, (enqueue_each(ARRAY[n])).granted, force_release_lock(n) FROM n}) . $t->error,
			't|Name|f|1', 'of several');
		one($node, q{SELECT locks.force_release_role('app')}, $db);
		$s->query(q{SELECT acquire_lock('other')});
		is($t->query(q{SELECT acquire_permit(n, 2) > 0, set_permits(n, 3), (enqueue_permit(n, 3)).granted, force_release_lock(n) FROM n}) . $t->error, 't|2|t|2', 'of permits');
		is($t->query(q{SELECT is_leader(n, t), renew_leadership(n, t), proclaim(n, t, 'you'), (SELECT candidate FROM current_leader(n)), length(observe_election(n)), fence_leader(n, t), resign(n, t),
			(SELECT count(*) FROM election_history(n)) FROM (SELECT n, campaign(n, 'me') AS t FROM n OFFSET 0) x}) . $t->error, 't|00:00:15|t|you|35||t|3', 'of elections');
		is($t->query(q{SELECT compare_and_set(n, 0, n), compare_and_set(n, 1, n), (read_versioned(n)).value, advisory_acquire(n), advisory_release(n) FROM n}) . $t->error, '1|2|Name|t|t', 'of keys');
		one($node, q{SELECT locks.force_release_role('app'); DELETE FROM _lock_election.versioned; DELETE FROM _lock_election.history}, $db);
		$t->quit;
	}

	my $token = $s->query(q{SELECT acquire_locks('[5:6]={b1,b2}', '1 min')});
	is($s->query(qq{SELECT await_locks('[7:8]={b1,b2}', $token), release_locks('[0:1]={b1,b2}', $token)}) . $s->error, 't|t', 'the elements of an array count, whatever their numbers');
	is($s->query(q{SELECT count(token) FROM try_acquire_each('[-1:0]={b1,b2}')}), '2', 'also in requests for each');
	is($s->query(q{SELECT name, released FROM release_each('[3:4]={b1,b2}', ('[5:6]={0,0}'::bigint[])[5:5] || (SELECT token FROM lock_election.locks WHERE name = 'b2'))}), "b1|f\nb2|t", 'and in releases');
	my $lease = $s->query('SELECT grant_lease()');
	is($s->query("SELECT event FROM lease_sync($lease, 1, items => '[0:5]={1,try_lock,b2,NULL,NULL,NULL}')") . $s->error, "lease\ngranted", 'and in items');
	one($node, q{SELECT locks.force_release_role('app')}, $db);
	$s->quit;
};

# Places that nobody keeps alive, behind one that somebody does.
subtest 'a queue full of the dead' => sub {
	my $s = as('app');
	my $count = q{SELECT count(*) FROM lock_election.waiters WHERE name = 'q'};

	one($node, q{SELECT lock_election.configure('max_waiters_per_lock', '3')}, $db);
	$s->query(q{SELECT acquire_lock('q', '1 hour'), enqueue_lock('q', '1 hour'), enqueue_lock('q', '100 ms'), enqueue_lock('q', '100 ms')});
	wait_for_sql($node, $count, '1', dbname => $db);
	is($s->query(q{SELECT (enqueue_lock('q', '1 hour')).granted}) . $s->error, 'f', 'the dead are no waiters, for the limit');
	is(one($node, q{SELECT lock_election.reap() > 0; SELECT count(*) FROM _lock_election.place WHERE name = 'q'}, $db), "t\n2", 'and reap() removes them');
	$s->query(q{SELECT enqueue_lock('q', '1 hour')});
	is($s->query(q{SELECT enqueue_lock('q', '1 hour')}) . ($s->error =~ /53400/ ? 'refused' : $s->error), 'refused', 'the living are limited');

	# nor do locks that are over count for the limit of their role
	one($node, q{SELECT locks.force_release_role('app'), lock_election.configure('max_locks_per_role', '2')}, $db);
	$s->query(q{SELECT acquire_lock('o1', '100 ms'), acquire_lock('o2', '100 ms')});
	wait_for_sql($node, q{SELECT count(*) FROM lock_election.locks}, '0', dbname => $db);
	is($s->query(q{SELECT acquire_lock('o3') > 0, acquire_lock('o4') > 0}) . $s->error, 't|t', 'what is over is no lock');
	is($s->query(q{SELECT acquire_lock('o5')}) . ($s->error =~ /53400/ ? 'refused' : $s->error), 'refused', 'what is held is');
	one($node, q{SELECT lock_election.configure('max_locks_per_role', '0')}, $db);
	one($node, q{SELECT lock_election.configure('max_waiters_per_lock', '1000'), locks.force_release_role('app')}, $db);
	$s->quit;
};

# Rights and objects that are there before the installation.
subtest 'installed where somebody has been' => sub {
	one('CREATE DATABASE given OWNER installer; CREATE DATABASE squatted OWNER installer; GRANT CREATE ON DATABASE squatted TO evil');
	one($node, q{ALTER DEFAULT PRIVILEGES FOR ROLE installer GRANT ALL ON TABLES TO evil; ALTER DEFAULT PRIVILEGES FOR ROLE installer GRANT ALL ON SEQUENCES TO evil;
		ALTER DEFAULT PRIVILEGES FOR ROLE installer GRANT ALL ON FUNCTIONS TO evil; ALTER DEFAULT PRIVILEGES FOR ROLE installer GRANT ALL ON SCHEMAS TO evil}, 'given');
	is(install('given'), '', 'installed by a role with default privileges');
	my $s = session($node, dbname => 'given', user => 'evil');
	foreach my $sql ('SELECT * FROM _lock_election.hold', 'DELETE FROM _lock_election.lease', q{SELECT nextval('_lock_election.token')}, 'SELECT _lock_election.who()', 'CREATE TABLE _lock_election.x ()',
		'SELECT locks.advance_revision(1)', q{SELECT lock_election.configure('notify', 'none')})
	{
		$s->query($sql);
		like($s->error, qr/42501/, "they do not hold for: $sql");
	}
	is($s->query(q{SELECT locks.release_lock('x', locks.acquire_lock('x'))}), 't', 'locks are for all');
	one($node, 'GRANT EXECUTE ON FUNCTION lock_election.configure(text, text) TO evil', 'given');
	is(install('given'), '', 'once more');
	is($s->query(q{SELECT lock_election.configure('notify', 'none')}) . $s->error, '', 'a right that was given since is kept');
	$s->quit;

	$s = session($node, dbname => 'squatted', user => 'evil');
	foreach my $schema ('_lock_election', 'lock_election')
	{
		$s->query("CREATE SCHEMA $schema");
		like(install('squatted'), qr/schema $schema belongs to role "evil".*drop the schema/s, "$schema is somebody else's");
		$s->query("DROP SCHEMA $schema");
	}
	$s->query('CREATE SCHEMA locks; GRANT ALL ON SCHEMA locks TO installer');
	like(install('squatted'), qr/schema "locks" belongs to role "evil", which could replace functions/, 'so is the schema of the functions');
	$s->query('DROP SCHEMA locks');
	one($node, 'CREATE SCHEMA locks; GRANT CREATE, USAGE ON SCHEMA locks TO installer, evil', 'squatted');
	$s->query(q{CREATE FUNCTION locks.acquire_lock(text, text) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'});
	like(install('squatted'), qr/function (?:locks\.)?acquire_lock\(text,text\) belongs to another role/, 'and a function that calls could mean instead of ours');
	$s->query('DROP FUNCTION locks.acquire_lock(text, text)');
	is(install('squatted'), '', 'installed without them');
	$s->quit;
};

# What a transaction has fenced is told by its number, which comes again in a copy that goes to another server.
subtest 'a copy' => sub {
	my $s = as('app');
	my $token = $s->query(q{SELECT acquire_lock('c')});

	$s->query("SELECT fence_lock('c', $token)");
	$s->quit;
	is(one($node, 'SELECT count(*) > 0 FROM _lock_election.fence', $db), 't', 'a fence leaves a row');
	one('CREATE DATABASE copy TEMPLATE app');
	is(one($node, q{SELECT locks.try_acquire_lock('c') IS NOT NULL; SELECT count(*) FROM _lock_election.fence}, 'copy'), "t\n0", 'in a copy it has gone');
};

# A lock that was granted by a transaction that does not wait for the disk, and told to a client that does.
subtest 'told is durable' => sub {
	my ($s, $o) = (as('app'), as('app'));

	$node->append_conf('postgresql.conf', "wal_writer_delay = 10000\n");
	$node->reload;
	my $lease = $s->query(q{SELECT grant_lease('1 hour')});
	my $token = $o->query(q{SELECT acquire_lock('d', '1 hour')});
	my $seen = $s->query("SELECT incarnation || ', ' || news FROM lease_sync($lease, 1, items => '{1,enqueue_lock,d,NULL,NULL,NULL}') LIMIT 1");
	$seen = $s->query("SELECT incarnation || ', ' || news FROM lease_sync($lease, 2, $seen) LIMIT 1");
	is($o->query("SET synchronous_commit = off; SELECT release_lock('d', $token)"), 't', 'released, perhaps not on disk');
	is($s->query("SELECT event FROM lease_sync($lease, 3, $seen)"), "lease\ngranted", 'the next one is told');
	$_->kill foreach $s, $o;
	$node->stop('immediate');
	$node->start;
	is(one($node, q{SELECT lease FROM lock_election.locks WHERE name = 'd'}, $db), $lease, 'and has it after a crash');
};

# Tables that their owner has changed, and a superuser who moves them.
subtest 'a move' => sub {
	my $moving = new_node('moving', extension => 0);
	my $err;

	one($moving, 'CREATE ROLE installer LOGIN; GRANT CREATE ON DATABASE postgres TO installer');
	is(install('postgres', $moving, 'Odd'), '', 'installed, into a schema whose name has to be quoted');
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
	is($s->error, '', 'traps are set');
	$s->quit;
	wait_for_sql($moving, 'SELECT expires_at < clock_timestamp() FROM _lock_election.hold');
	IPC::Run::run([ 'psql', '-X', '-v', 'ON_ERROR_STOP=1', '-d', $moving->connstr('postgres'), '-f', 'sql/portable/to_extension.sql' ], '>&', \$err);
	like($err, qr/moved to the extension/, 'moved');
	unlike($err, qr/sprung/, 'nothing of them has run');
	is(one($moving, q{SELECT string_agg(how, ' ' ORDER BY change) FROM "Odd".election_history('m')}), 'elected expired', 'the end of the term is told');
	is(one($moving, q{SELECT has_function_privilege('installer', '"Odd".evict_lock(text)', 'EXECUTE'), has_function_privilege('pg_monitor', '"Odd".evict_lock(text)', 'EXECUTE')}), 'f|t', 'rights have moved');
	$moving->stop;
};

# A role that may create objects in a schema of search_path has some there with the names of PostgreSQL's own.
subtest 'shadows' => sub {
	one('CREATE DATABASE shadowed OWNER installer');
	make_shadows($node, 'shadowed', 'public', 'text,name,bigint,integer,smallint,boolean,oid,interval,inet,timestamp with time zone,regrole');
	ctl_node($node);
	my $from = -s $node->logfile;
	my ($code, $out, $err) = ctl({ env => { PGUSER => 'installer', PGDATABASE => 'shadowed' } }, qw(install --schema locks));

	is($code, 0, 'installed beside them') or diag($err);
	is(shadows_that_ran($node, $from), '', 'which runs none');
	one('ALTER DATABASE shadowed SET search_path = public, pg_catalog');
	is((ctl({ env => { PGUSER => 'installer', PGDATABASE => 'shadowed' } }, 'install'))[0], 0, 'also where they are found before PostgreSQL\'s own');
	is(install('shadowed'), '', 'and by psql');
	is(shadows_that_ran($node, $from), '', 'runs none');
	is(depends_on_shadows($node, 'shadowed'), '', 'nothing that it has made refers to one');

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
	is($err, '', 'everything is used');
	is(shadows_that_ran($node, $from), '', 'which runs none');
};

$node->stop;
done_testing();
