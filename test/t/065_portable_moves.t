# Moves between the editions in place, with sql/portable/to_extension.sql and from_extension.sql: holds, places,
# leaders, closed names and keys are kept, held locks are not granted, tokens grow, and a move that fails or crashes
# changes nothing.
# Promises: M, Q, T, D, L, F, C, H
# Needs: lockctl
use strict;
use warnings;
use LeCtl;
use LeTest;
use LeWire;
use PostgreSQL::Test::Utils;
use POSIX ();
use Test::More;

my $dir = 'sql/portable';
my $node = new_node('main', extension => 0, conf => "shared_preload_libraries = ''\nfsync = on\n");
my $db = 'app';
my $tmp = PostgreSQL::Test::Utils::tempdir();
ctl_node($node);

one('CREATE ROLE installer LOGIN; CREATE ROLE app LOGIN; CREATE ROLE other LOGIN; CREATE ROLE client LOGIN; CREATE DATABASE app OWNER installer');
one('ALTER DATABASE app SET search_path = locks, public');
one($node, 'CREATE SCHEMA locks AUTHORIZATION installer; GRANT USAGE ON SCHEMA locks TO PUBLIC; GRANT CREATE ON SCHEMA public TO app', $db);

sub as { my ($role, %opts) = @_; return session($node, dbname => $db, user => $role, %opts); }
sub say_in { return one($node, $_[0], $db); }

# Runs a script with psql. Returns its output and messages with SQLSTATEs.
sub script
{
	my ($file, %opts) = @_;
	my ($out, $err) = ('', '');
	my $in = defined $opts{user} ? " user='$opts{user}'" : '';

	local $ENV{PGOPTIONS} = $opts{settings} if defined $opts{settings};
	IPC::Run::run([ 'psql', '-XAtq', '-v', 'VERBOSITY=verbose', @{ $opts{options} // [] }, '-d', $node->connstr($opts{db} // $db) . $in, '-f', $file =~ m{/} ? $file : "$dir/$file" ],
		'>', \$out, '2>', \$err);
	return $out . $err;
}

sub to_extension { return script('to_extension.sql', @_); }
sub from_extension { return script('from_extension.sql', @_); }

# --- the state before a move ---

# Creates entries of every type, with names that begin with a prefix. Returns the tokens.
sub furnish
{
	my ($prefix) = @_;
	my ($s, $o) = (as('app', connstr => "application_name='nightly report'"), as('other'));
	my %t;
	my $get = sub { my ($key, $sql) = @_; $t{$key} = $s->query($sql); die "$sql: " . $s->error if $t{$key} !~ /^\d/; return $t{$key}; };

	# Locks of all modes, with different TTLs.
	$get->(x => "SELECT acquire_lock('${prefix}x', '4 min', owner => 'o1')");
	$get->(again => "SELECT acquire_lock('${prefix}x', '4 min', owner => 'o1')");
	$get->("shared$_" => "SELECT acquire_lock('${prefix}shared', '1 h', mode => 'shared', owner => 'r$_')") foreach 1, 2;
	$get->("permit$_" => "SELECT acquire_permit('${prefix}permit', 2, '4 min')") foreach 1, 2;
	$get->(group => "SELECT acquire_locks('{${prefix}g1,${prefix}g2}', '4 min')");

	# Entries on a named lease.
	$get->(lease => q{SELECT grant_lease('10 min', 'a session')});
	$get->(leased => "SELECT acquire_lock('${prefix}leased', lease => $t{lease})");
	$get->(leased_group => "SELECT acquire_locks('{${prefix}l1,${prefix}l2}', owner => 'lg', lease => $t{lease})");
	$get->(leased_term => "SELECT campaign('${prefix}leased', 'me', lease => $t{lease})");

	# Places, including one of another client.
	$get->(place1 => "SELECT token FROM enqueue_lock('${prefix}x', '4 min', owner => 'p1')");
	$t{place2} = $o->query("SELECT token FROM enqueue_lock('${prefix}x', '4 min', owner => 'p2')");
	$get->(place3 => "SELECT token FROM enqueue_lock('${prefix}x', lease => $t{lease})");
	$get->(place_group => "SELECT token FROM enqueue_locks('{${prefix}g1,${prefix}h1}', '4 min')");
	$get->(place_permit => "SELECT token FROM enqueue_permit('${prefix}permit', 2, '4 min')");

	# An election with a history.
	$s->query("SELECT resign('${prefix}boss', campaign('${prefix}boss', 'first', '4 min'))");
	$get->(term => "SELECT campaign('${prefix}boss', 'alice', '4 min')");
	$s->query("SELECT proclaim('${prefix}boss', $t{term}, 'Alice')");
	$get->(candidate => "SELECT term FROM enqueue_candidate('${prefix}boss', 'bob', '4 min')");

	# A closed name; a closed name that still has a holder; evicted holders.
	$s->query("SELECT release_lock('${prefix}closed', acquire_lock('${prefix}closed'), hold_for => '1 h')");
	$get->(still => "SELECT acquire_lock('${prefix}still', '1 h', mode => 'shared', owner => 's1')");
	$s->query("SELECT release_lock('${prefix}still', acquire_lock('${prefix}still', '1 h', mode => 'shared', owner => 's2'), hold_for => '1 h')");
	$get->(evicted => "SELECT acquire_lock('${prefix}evicted', '1 h')");
	$get->(evicted_lease => "SELECT acquire_lock('${prefix}evicted lease', lease => $t{lease})");
	$get->(evicted_group => "SELECT acquire_locks('{${prefix}e1,${prefix}e2}', '1 h')");
	is($s->query("SELECT evict_lock('${prefix}evicted'), evict_lock('${prefix}evicted lease'), evict_lock('${prefix}e1')"), '1|1|1', 'three holders are evicted');

	# Versioned keys.
	$s->query("SELECT compare_and_set('${prefix}key', 0, 'a'), compare_and_set('${prefix}key', 1, 'b')");
	$o->query("SELECT compare_and_set('${prefix}other', 0, NULL)");
	$_->quit foreach $s, $o;
	return \%t;
}

# Returns everything that furnish() has created, as the superuser sees it.
sub state_of
{
	my ($prefix, $t) = @_;

	return say_in(<<"SQL");
SELECT 'lock', kind, name, mode, owner, role, token, lease, holds, acquired_at, waiters, evicted, pid, application_name FROM lock_election.locks
	WHERE starts_with(name, '$prefix') AND mode IS NOT NULL ORDER BY kind, name, token;
SELECT 'closed', kind, name, max(closed_until) FROM lock_election.locks WHERE starts_with(name, '$prefix') AND closed_until IS NOT NULL GROUP BY kind, name ORDER BY name;
SELECT 'place', kind, name, token, owner, role, queue_position, mode, pid FROM lock_election.waiters WHERE starts_with(name, '$prefix') ORDER BY kind, name, queue_position;
SELECT 'election', election, candidate, term, elected_at, waiting FROM lock_election.elections WHERE starts_with(election, '$prefix') ORDER BY election;
SELECT 'lease', owner, role, ttl, locks, waiting FROM lock_election.leases WHERE owner = 'a session' AND lease IN ($t->{lease});
SELECT 'history', change, how, candidate, term, elected_at, changed_at, ended_at IS NOT NULL FROM election_history('${prefix}boss');
SELECT 'versions', * FROM read_versioned('${prefix}key'); SELECT 'versions', * FROM read_versioned('${prefix}other');
SQL
}

# Expects that no held lock is granted to another role, and that its holder can renew it.
sub holds
{
	my ($prefix, $t, $what) = @_;
	my ($s, $o) = (as('app'), as('other'));

	subtest $what => sub {
		is($o->query("SELECT string_agg(n, ' ') FROM unnest('{x,shared,permit,g1,g2,leased,l1,l2,h1,closed,evicted,evicted lease,e1,e2}'::text[]) n
			WHERE n <> 'permit' AND try_acquire_lock('$prefix' || n) IS NOT NULL OR n = 'permit' AND acquire_permit('$prefix' || n, 2, wait => '0') IS NOT NULL"), '', 'no held lock is granted to another role' . $o->error);
		is($o->query("SELECT try_acquire_lock('${prefix}still', mode => 'shared') IS NULL, campaign('${prefix}boss', 'x', wait => '0') IS NULL, campaign('${prefix}leased', 'x', wait => '0') IS NULL"),
			't|t|t', q{a closed name and terms are not granted to another role'});
		is($s->query("SELECT is_held('${prefix}x', $t->{x}), is_held('${prefix}g2', $t->{group}), is_held('${prefix}permit', $t->{permit2}), is_leader('${prefix}boss', $t->{term}), is_held('${prefix}x', $t->{place1})"),
			't|t|t|t|f', q{the holders hold their locks, and a place does not'});
		# After a crash, the remaining time can be slightly less than the TTL.
		is($s->query("SELECT string_agg((CASE WHEN renewed BETWEEN at_least AND ttl THEN ttl ELSE renewed END)::text, ' ' ORDER BY ttl, renewed) FROM (VALUES
				(renew_lock('${prefix}x', $t->{x}), interval '3 min 50 s', interval '4 min'), (renew_lock('${prefix}permit', $t->{permit1}), '3 min 50 s', '4 min'),
				(renew_lock('${prefix}g1', $t->{group}), '3 min 50 s', '4 min'), (renew_leadership('${prefix}boss', $t->{term}), '3 min 50 s', '4 min'),
				(renew_lock('${prefix}shared', $t->{shared2}), '59 min 50 s', '1 h')) r (renewed, at_least, ttl);
			SELECT await_lock('${prefix}x', $t->{place1}), await_lock('${prefix}x', $t->{place3}), await_locks('{${prefix}g1,${prefix}h1}', $t->{place_group})"),
			"00:04:00 00:04:00 00:04:00 00:04:00 01:00:00\nf|f|f", q{holders renew their locks, and places wait'});
		is($s->query("SELECT renew_lock('${prefix}evicted', $t->{evicted}), renew_lock('${prefix}evicted lease', $t->{evicted_lease}), renew_lock('${prefix}e2', $t->{evicted_group})"), '||', q{evicted holders cannot renew'});
		is($s->query("SELECT keep_alive($t->{lease}) BETWEEN '8 min' AND '10 min'"), 't', q{the lease is kept alive, at most until the deadline of its evicted holder'});
		is($s->query("SELECT string_agg(kind || ' ' || name || ' ' || granted, ', ' ORDER BY kind, name) FROM lease_holds($t->{lease})"),
			"election ${prefix}leased true, lock ${prefix}l1 true, lock ${prefix}l2 true, lock ${prefix}leased true, lock ${prefix}x false", q{the lease lists all its entries except the evicted one'});
	};
	$_->quit foreach $s, $o;
	return;
}

# Releases everything, in order.
sub ends
{
	my ($prefix, $t, $what) = @_;
	my ($s, $o) = (as('app'), as('other'));

	subtest $what => sub {
		is($s->query("SELECT release_lock('${prefix}x', $t->{x}), is_held('${prefix}x', $t->{x}), release_lock('${prefix}x', $t->{x}, all_holds => true)"), 't|t|t', q{a lock with two holds is released in two steps'});
		is($s->query("SELECT await_lock('${prefix}x', $t->{place1}, '10 s'), await_lock('${prefix}x', $t->{place3})"), 't|f', q{the first place is granted the lock'});
		$s->query("SELECT release_lock('${prefix}x', $t->{place1})");
		is($o->query("SELECT await_lock('${prefix}x', $t->{place2}, '10 s')"), 't', q{the second place, of another role, is granted the lock'});
		$o->query("SELECT release_lock('${prefix}x', $t->{place2})");
		is($s->query("SELECT await_lock('${prefix}x', $t->{place3}, '10 s')"), 't', q{the third place is granted the lock'});
		is($s->query("SELECT release_locks('{${prefix}g1,${prefix}g2}', $t->{group})"), 't', q{locks for several names are released'});
		is($s->query("SELECT await_locks('{${prefix}g1,${prefix}h1}', $t->{place_group}, '10 s')"), 't', q{a place for several names is granted'});
		is($s->query("SELECT release_lock('${prefix}permit', $t->{permit2})"), 't', q{a permit is released'});
		is($s->query("SELECT await_lock('${prefix}permit', $t->{place_permit}, '10 s')"), 't', q{the next place for a permit is granted'});
		is($s->query("SELECT release_lock('${prefix}shared', $t->{shared1}), release_lock('${prefix}evicted', $t->{evicted}), release_locks('{${prefix}e1,${prefix}e2}', $t->{evicted_group}),
			release_lock('${prefix}still', $t->{still})"), 't|t|t|t', q{a reader, evicted holders, and the last holder of a closed name release their locks'});
		is($o->query("SELECT try_acquire_lock('${prefix}shared') IS NULL, try_acquire_lock('${prefix}evicted') > $t->{evicted}, try_acquire_lock('${prefix}still') IS NULL"), 't|t|t', q{an evicted name is free after the release; a name with another reader, or that is closed, is not'});
		my $last = $s->query("SELECT max(change) FROM election_history('${prefix}boss')");
		is($s->query("SELECT resign('${prefix}boss', $t->{term})"), 't', 'the leader resigns');
		is($s->query("SELECT await_leadership('${prefix}boss', $t->{candidate}, '10 s')"), 't', 'the candidate leads');
		is($s->query("SELECT string_agg(how || ' ' || candidate, ', ') FROM election_history('${prefix}boss', $last)"), 'resigned Alice, elected bob', q{the history continues'});
		is($s->query("SELECT string_agg(how || ' ' || candidate, ', ') FROM election_history('${prefix}boss')"),
			'elected first, resigned first, elected alice, proclaimed Alice, resigned Alice, elected bob', q{the history contains the changes before and after the move'});
		is($s->query("SELECT compare_and_set('${prefix}key', 1, 'c') IS NULL, compare_and_set('${prefix}key', 2, 'c')"), 't|3', q{versions of keys continue'});
		$s->query("SELECT compare_and_set('${prefix}other', 1, 'c')");
		like($s->error, qr/42501/, q{a key of another role cannot be set'});
		is($s->query("SELECT revoke_lease($t->{lease})"), 't', 'the lease is revoked');
		is($s->query("SELECT count(*) FROM lock_election.locks WHERE lease = $t->{lease}"), '0', q{no entry of the revoked lease is left'});
		is($s->query("SELECT try_acquire_lock('${prefix}closed') IS NULL"), 't', q{a closed name is still closed'});
	};
	one($node, qq{SELECT locks.force_release_role('app'), locks.force_release_role('other')}, $db);
	$_->quit foreach $s, $o;
	return;
}

my $newest = 0;

# Expects that a new token is higher than all earlier ones.
sub tokens_rise
{
	my ($what) = @_;
	my $token = say_in(q{SELECT locks.acquire_lock('rise', '100 ms', wait => '30 s')});

	cmp_ok($token, '>', $newest, "tokens grow: $what");
	cmp_ok($token, '<', 2**53, "tokens are below 2^53: $what");
	$newest = $token;
	return;
}

# --- clients that run during the moves ---

my @hammers;
END { kill 'KILL', @hammers if @hammers; }

# A client that repeatedly acquires a lock, writes with a fence, and tries to acquire a lock that another client holds
# permanently. Each line of its output file is a count of rounds, or of an error.
sub hammer
{
	my ($number) = @_;
	my $pid = fork // die;

	return $pid if $pid;
	my ($w, %seen);
	my $stop = 0;
	local $SIG{TERM} = sub { $stop = 1 };
	local $SIG{PIPE} = 'IGNORE';
	my $ask = sub {
		$w //= LeWire->new($node, dbname => $db, user => 'client');
		$w->query($_[0]);
		my $rows = $w->wait('Z');
		my ($code) = ($w->error // '') =~ /ERROR (\w{5})/;
		$seen{$code}++ if $code;
		$seen{"$code: " . $w->error}++ if $code && $code !~ /^(57014|57P03|LE001|55P03)$/;
		return defined $code ? undef : $rows;
	};
	until ($stop)
	{
		eval {
			my $token = $ask->(q{SELECT acquire_lock('hot', '10 s', wait => '1 s')});
			if ($token)
			{
				my @all = map { $ask->($_) } 'BEGIN', "SELECT fence_lock('hot', $token)", "INSERT INTO busy VALUES (1, $token)", 'DELETE FROM busy WHERE one = 1', "INSERT INTO seen (token) VALUES ($token)", 'COMMIT';
				$seen{rounds}++ if !grep { !defined } @all;
				for (1 .. 50) { last if defined $ask->("SELECT release_lock('hot', $token)"); }
			}
			$seen{'granted what is held'}++ if $ask->(q{SELECT try_acquire_lock('held by a client')});
			1;
		} or do { $seen{"lost: $@"}++; undef $w; };
	}
	append_to_file("$tmp/hammer$number", join('', map { "$_=$seen{$_}\n" } sort keys %seen));
	POSIX::_exit(0);
}

my $rounds = sub { say_in('SELECT count(*) FROM public.seen') };

# --- the portable edition ---

is(script('lock_election.sql', user => 'installer', options => ['-1']), '', 'the portable edition is installed');

subtest 'moves to the extension that are rejected' => sub {
	like(to_extension(user => 'app'), qr/42501.*superuser/s, 'an ordinary role cannot move');
	like(to_extension(user => 'installer'), qr/42501.*superuser/s, 'the owner of the database cannot move');
	like(to_extension(), qr/55000.*shared_preload_libraries/s, 'rejected on a server that does not preload the library');
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'lock_election'");
	$node->restart;
	like(to_extension(db => 'postgres'), qr/55000.*not installed/s, 'rejected in a database without the portable edition');
	like(to_extension(settings => '-c default_transaction_isolation=serializable'), qr/0A000/, 'rejected with an isolation level other than READ COMMITTED');

	# Idle transactions.
	my ($s, $o) = (as('app'), as('app'));
	my $token = $s->query(q{SELECT acquire_lock('x', '1 h')});
	$s->query("BEGIN; SELECT fence_lock('x', $token)");
	like(to_extension(), qr/55P03.*processes @{[ $s->pid ]}\b/s, 'rejected while a transaction fences a lock; the error names the process');
	is($o->query("SELECT renew_lock('x', $token), try_acquire_lock('y') IS NOT NULL") . $o->error, '01:00:00|t', 'the rejected move changes nothing');
	$s->query(q{PREPARE TRANSACTION 'stands'});
	like(to_extension(), qr/55P03.*prepared transactions/s, 'rejected while a prepared transaction fences a lock');
	$s->query(q{ROLLBACK PREPARED 'stands'});

	# Advisory locks.
	$s->query(q{SELECT advisory_acquire('a')});
	like(to_extension(), qr/55006.*Processes @{[ $s->pid ]}\./s, 'rejected while a session holds an advisory lock');
	$s->query(q{SELECT advisory_release('a')});

	# Objects of others that depend on the portable edition.
	say_in('CREATE VIEW public.mine AS SELECT name FROM lock_election.locks');
	like(to_extension(), qr/2BP01.*view public\.mine/s, 'rejected if another view depends on one of its views');
	say_in('DROP VIEW public.mine; CREATE TABLE public.t (v text DEFAULT locks.observe_election(\'x\'))');
	like(to_extension(), qr/2BP01.*default value for column v of table public\.t/s, 'rejected if a column default depends on one of its functions');
	say_in('DROP TABLE public.t; CREATE TABLE _lock_election.extra ()');
	like(to_extension(), qr/2BP01.*_lock_election_portable\.extra/s, 'rejected if its schema contains an additional table');
	say_in('DROP TABLE _lock_election.extra');

	# The owner has replaced objects so that the superuser would run the owner's functions.
	say_in(q{CREATE FUNCTION public.trap() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN CREATE ROLE trapped; RETURN 1; END';
		CREATE FUNCTION public.trap2() RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS 'BEGIN CREATE ROLE trapped; RETURN true; END'});
	say_in('ALTER TABLE _lock_election.loss RENAME TO real; CREATE VIEW _lock_election.loss AS SELECT r.* FROM _lock_election.real r WHERE public.trap() = 1');
	like(to_extension(), qr/55000.*kind of relation/s, 'rejected if a view replaces a table');
	say_in('DROP VIEW _lock_election.loss; ALTER TABLE _lock_election.real RENAME TO loss; CREATE DOMAIN public.evil AS text; ALTER TABLE _lock_election.loss ALTER reason TYPE public.evil');
	like(to_extension(), qr/55000.*column reason/s, 'rejected if a column has a type of the owner');
	say_in('ALTER TABLE _lock_election.loss ALTER reason TYPE text; CREATE INDEX trap ON _lock_election.loss (lease) WHERE lower(reason) = \'\'');
	like(to_extension(), qr/55000.*index/s, 'rejected if an additional index has an expression');
	say_in('DROP INDEX _lock_election.trap; DROP DOMAIN public.evil; DROP FUNCTION public.trap, public.trap2');
	is(one('SELECT count(*) FROM pg_roles WHERE rolname = \'trapped\''), '0', 'no function of the owner was run');
	is($o->query("SELECT is_held('x', $token), release_lock('x', $token)"), 't|t', 'the portable edition still works');
	$_->quit foreach $s, $o;
	say_in(q{SELECT locks.force_release_role('app')});
};

# --- to the extension and back ---

say_in(q{CREATE TABLE public.busy (one int PRIMARY KEY, token bigint); CREATE TABLE public.seen (number bigserial, token bigint); GRANT ALL ON public.busy, public.seen TO client; GRANT ALL ON SEQUENCE public.seen_number_seq TO client});
my $holder = as('client');
my $held = $holder->query(q{SELECT acquire_lock('held by a client', '1 h')});
@hammers = map { hammer($_) } 1 .. 3;
my %ctl_env = (PGDATABASE => $db, PGUSER => 'client');
my $first_ctl = start_ctl({ env => \%ctl_env }, 'lock', '--ttl=30s', 'job', '--', 'sh', '-c', "until [ -e $tmp/stop ]; do sleep 0.1; done; echo first");
wait_for_sql($node, q{SELECT count(*) FROM lock_election.locks WHERE name = 'job'}, '1', dbname => $db);
my $second_ctl = start_ctl({ env => \%ctl_env }, 'lock', '--ttl=30s', 'job', '--', 'echo', 'second');
wait_for_sql($node, q{SELECT count(*) FROM lock_election.waiters WHERE name = 'job'}, '1', dbname => $db);

# Waits until the clients have made 20 rounds in this edition.
sub clients_work
{
	my ($what) = @_;
	my $before = $rounds->();

	ok(wait_until(sub { $rounds->() > $before + 20 }), "clients continue to work: $what");
	return;
}

# Some client fences a lock most of the time: a move that fails because of a fence is retried.
sub move
{
	my ($there) = @_;
	my $said = '';

	wait_until(sub { $said = $there ? to_extension() : from_extension(); return $said !~ /55P03|55006|40P01/; });
	return $said;
}

say_in(q{CREATE TABLE public.guarded (v text, version int NOT NULL DEFAULT 1); GRANT ALL ON public.guarded TO app;
	CREATE TRIGGER guard BEFORE INSERT ON public.guarded FOR EACH ROW EXECUTE FUNCTION locks.fence_guard('guarded');
	CREATE TRIGGER version BEFORE UPDATE ON public.guarded FOR EACH ROW EXECUTE FUNCTION locks.version_guard();
	ALTER TABLE public.guarded ENABLE ALWAYS TRIGGER guard; COMMENT ON TRIGGER guard ON public.guarded IS 'a guard';
	REVOKE ALL ON FUNCTION locks.force_release_role(regrole) FROM PUBLIC; GRANT EXECUTE ON FUNCTION locks.force_release_role(regrole) TO app;
	REVOKE ALL ON lock_election.waiters FROM PUBLIC; GRANT SELECT ON lock_election.waiters TO app WITH GRANT OPTION});

# Returns the triggers and privileges.
sub rights_of
{
	return say_in(q{SELECT tgname, tgenabled, obj_description(oid, 'pg_trigger') FROM pg_trigger WHERE tgrelid = 'public.guarded'::regclass ORDER BY 1;
		SELECT has_function_privilege(r, 'locks.force_release_role(regrole)', 'EXECUTE'), has_function_privilege(r, 'locks.advance_revision(bigint)', 'EXECUTE'),
			has_function_privilege(r, 'locks.acquire_lock(text, interval, interval, text, text, bigint)', 'EXECUTE'), has_table_privilege(r, 'lock_election.waiters', 'SELECT WITH GRANT OPTION'),
			has_table_privilege(r, 'lock_election.waiters', 'SELECT'), has_table_privilege(r, 'lock_election.locks', 'SELECT') FROM unnest('{app,other}'::text[]) r});
}
my $rights = rights_of();
is($rights, "guard|A|a guard\nversion|O|\nt|f|t|t|t|t\nf|f|t|f|f|t", 'triggers and privileges before the move');

my $t = furnish('a ');
my $gone = as('app');
$gone->query(q{SELECT acquire_lock('gone', '100 ms'), campaign('gone', 'late', '100 ms')});
is($gone->query(q{SELECT pg_sleep(0.15)}), '', 'the TTL expires');
$gone->quit;
my $state = state_of('a ', $t);
clients_work('before');
tokens_rise('before');

like(move(1), qr/moved to the extension: \d+ holds, \d+ places, \d+ leases, \d+ changes of elections and 2 versions/, 'moved to the extension');
like(to_extension(), qr/nothing to do/, 'a second move to the extension does nothing');
wait_for_sql($node, 'SELECT count(*) FROM lock_election.manager', '1', dbname => $db);
is(state_of('a ', $t), $state, 'the state is the same in the extension');
is(rights_of(), $rights, 'triggers and privileges are the same in the extension');
is(say_in(q{SELECT count(*) FROM pg_namespace WHERE nspname LIKE '%portable%'}), '0', 'the old schemas are removed');
is(say_in(q{SELECT string_agg(how || ' ' || candidate, ', ') FROM locks.election_history('gone')}), 'elected late, expired late', 'the history contains the end of a term that has expired');
is(say_in(q{SELECT locks.try_acquire_lock('gone', '100 ms') IS NOT NULL}), 't', 'an expired lock is free');
tokens_rise('in the extension');
holds('a ', $t, 'holds in the extension');
clients_work('in the extension');

like(move(0), qr/moved to the portable edition: \d+ holds, \d+ places, \d+ leases, \d+ changes of elections and 2 versions/, 'moved back to the portable edition');
like(from_extension(), qr/nothing to do/, 'a second move to the portable edition does nothing');
is(state_of('a ', $t), $state, 'the state is the same in the portable edition');
is(rights_of(), $rights, 'triggers and privileges are the same in the portable edition');
is(say_in(q{SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = '_lock_election'}), 'installer', 'the schema belongs to the owner of the database');
is(script('lock_election.sql', user => 'installer', options => ['-1']), '', 'the installation file finds its own version');
tokens_rise('in the portable edition');
holds('a ', $t, 'holds in the portable edition');
clients_work('in the portable edition');

# Another round trip, with entries that were created in the extension.
my $b;
like(move(1), qr/moved/, 'moved to the extension again');
is(state_of('a ', $t), $state, 'the state is the same in the extension again');
tokens_rise('in the extension again');
ends('a ', $t, 'releases in the extension');
$b = furnish('b ');
$state = state_of('b ', $b);
like(move(0), qr/moved/, 'moved back to the portable edition again');
is(state_of('b ', $b), $state, 'the state is the same in the portable edition again');
tokens_rise('in the portable edition again');
holds('b ', $b, 'holds of the extension in the portable edition');
clients_work('in the portable edition again');
ends('b ', $b, 'releases in the portable edition');

# The observations of the clients.
ok(!$second_ctl->ended, 'the second lockctl waits during all moves');
append_to_file("$tmp/stop", '');
is($first_ctl->wait . $first_ctl->out, "0first\n", 'the first lockctl holds its lock during all moves');
is($second_ctl->wait . $second_ctl->out, "0second\n", 'the second lockctl is granted the lock');
kill 'TERM', @hammers;
waitpid $_, 0 foreach @hammers;
@hammers = ();
is($holder->query("SELECT is_held('held by a client', $held), release_lock('held by a client', $held)"), 't|t', 'an idle session holds its lock during all moves');
my $seen = join('', map { slurp_file("$tmp/hammer$_") } 1 .. 3);
note $seen;
unlike($seen, qr/granted what is held|23505/, 'no client was granted a held lock');
unlike($seen, qr/^lost/m, 'no client lost its connection');
is(say_in('SELECT count(*) FROM (SELECT token <= lag(token) OVER (ORDER BY number) AS falls FROM public.seen) x WHERE falls'), '0', 'the tokens of the clients have grown');


# --- names that need quotes ---

subtest 'quotes' => sub {
	one('CREATE ROLE "Some Owner" LOGIN; CREATE ROLE "A Guest" LOGIN; CREATE DATABASE quotes OWNER "Some Owner"');
	one($node, 'CREATE SCHEMA "My Locks" AUTHORIZATION "Some Owner"; GRANT USAGE ON SCHEMA "My Locks" TO PUBLIC', 'quotes');
	is(script('lock_election.sql', db => 'quotes', user => 'Some Owner', options => ['-1'], settings => '-c search_path="My\\ Locks"'), '', 'the portable edition is installed into a schema whose name needs quotes');
	one($node, q{SET search_path = "My Locks"; REVOKE ALL ON FUNCTION advisory_release(text, boolean) FROM PUBLIC; GRANT EXECUTE ON FUNCTION advisory_release(text, boolean) TO "A Guest";
		CREATE TABLE public."A Table" (); CREATE TRIGGER "A Guard" BEFORE INSERT ON public."A Table" EXECUTE FUNCTION fence_guard('it''s')}, 'quotes');
	my $rights = sub { return one($node, q{SET search_path = "My Locks"; SELECT has_function_privilege(r, 'advisory_release(text, boolean)', 'EXECUTE') FROM unnest('{A Guest,app}'::text[]) r;
		SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = 'public."A Table"'::regclass}, 'quotes'); };
	my $before = $rights->();
	like($before, qr/^t\nf\nCREATE TRIGGER "A Guard".*'it''s'/, 'a privilege and a trigger exist');
	my $token = one($node, q{SELECT "My Locks".acquire_lock('it''s', '1 h')}, 'quotes');
	my $ahead = one($node, q{SELECT "My Locks".advance_revision((1::bigint << 50) + 5)}, 'quotes');
	like(script('to_extension.sql', db => 'quotes'), qr/moved/, 'moved to the extension');
	my $higher = one($node, q{SELECT "My Locks".acquire_lock('higher', '1 h')}, 'quotes');
	cmp_ok($higher, '>', $ahead, 'tokens continue above an advanced revision');
	is($rights->(), $before, 'the privilege and the trigger exist in the extension');
	is(one($node, qq{SELECT "My Locks".is_held('it''s', $token)}, 'quotes'), 't', 'the lock is held in the extension');
	like(script('from_extension.sql', db => 'quotes', options => [ '-v', 'owner=Some Owner' ]), qr/moved/, 'moved back to the portable edition');
	is($rights->(), $before, 'the privilege and the trigger exist in the portable edition');
	is(one($node, qq{SELECT "My Locks".is_held('it''s', $token)}, 'quotes'), 't', 'the lock is held in the portable edition');

	# Tokens stay ahead if the sequence is reset and a new life starts.
	one($node, q{SELECT setval('_lock_election.token', 1); TRUNCATE _lock_election.life}, 'quotes');
	my $last = one($node, q{SELECT "My Locks".acquire_lock('highest', '1 h')}, 'quotes');
	cmp_ok($last, '>', $higher, 'tokens stay ahead after the sequence was reset');
	cmp_ok($last, '<', 2**53, 'tokens are still below 2^53');
};

# --- moves to the portable edition that are rejected; the extension works afterwards ---

like(to_extension(), qr/moved/, 'moved to the extension for the rejected moves');
subtest 'moves to the portable edition that are rejected' => sub {
	my ($s, $o) = (as('app'), as('app'));
	my $works = sub {
		my $token = $o->query(q{SELECT acquire_lock('works', '1 min')});
		like($token . $o->error, qr/^\d+$/, 'the extension still works');
		$o->query("SELECT release_lock('works', $token)");
	};

	like(from_extension(user => 'app'), qr/42501.*superuser/s, 'an ordinary role cannot move');
	like(from_extension(options => [ '-v', 'owner=nobody here' ]), qr/42704/, 'rejected for an owner that does not exist');
	like(from_extension(options => [ '-v', 'owner=' . (getpwuid $>)[0] ]), qr/42501.*not for a superuser/s, 'rejected for an owner that is a superuser');
	like(from_extension(db => 'postgres', options => [ '-v', 'owner=installer' ]), qr/55000.*not installed/s, 'rejected in a database without the extension');
	one('CREATE ROLE weak');
	like(from_extension(options => [ '-v', 'owner=weak' ]), qr/42501/, 'rejected for an owner that cannot create schemas');
	$works->();

	# Entries that are bound to their connection, including a place.
	$s->query(q{SELECT acquire_lock('bound', ttl => NULL)});
	like(from_extension(), qr/0A000.*lock "bound"\..*ttl => NULL/s, 'rejected while a lock without a TTL is held');
	$o->query(q{SELECT enqueue_lock('bound', ttl => NULL)});
	$s->query(q{SELECT release_lock('bound')});
	$o->query(q{SELECT force_release_role('app')});
	$works->();

	# Fences and advisory locks.
	my $token = $s->query(q{SELECT acquire_lock('fenced', '1 h')});
	$s->query("BEGIN; SELECT fence_lock('fenced', $token)");
	like(from_extension(), qr/55006.*Processes @{[ $s->pid ]}\./s, 'rejected while a transaction fences a lock');
	is($s->query(q{ROLLBACK; SELECT advisory_acquire('a')}), 't', 'the fence ends, and an advisory lock is acquired');
	like(from_extension(), qr/55006.*Processes @{[ $s->pid ]}\./s, 'rejected while a session holds an advisory lock');
	$s->query(q{SELECT advisory_release('a')});
	$works->();

	say_in('CREATE VIEW public.mine AS SELECT name FROM lock_election.locks');
	like(from_extension(), qr/2BP01.*view public\.mine/s, 'rejected if another view depends on one of its views');
	say_in('DROP VIEW public.mine');
	$works->();
	is($s->query("SELECT renew_lock('fenced', $token), release_lock('fenced', $token)"), '01:00:00|t', 'the lock is still held after the rejected moves');
	$_->quit foreach $s, $o;
};

# --- moves that are rolled back or crash ---

# Returns the path of a copy of a script that runs another statement instead of its commit. Also copies the file that it
# includes.
sub changed
{
	my ($file, $instead) = @_;
	my $text = slurp_file("$dir/$file");

	if ($file eq 'from_extension.sql') { $text =~ s/^COMMIT;\n/$instead;\n/m or die; }
	else { $text = "BEGIN;\n$text\n$instead;\n"; }
	append_to_file("$tmp/$file", '');
	open my $out, '>', "$tmp/$file" or die;
	print $out $text;
	close $out;
	system_or_bail('cp', "$dir/lock_election.sql", $tmp);
	return "$tmp/$file";
}

sub crash { $node->stop('immediate'); $node->start; return; }

foreach my $file ('from_extension.sql', 'to_extension.sql')
{
	subtest "rollback and crash of a move: $file" => sub {
		my $prefix = "$file ";
		my $t = furnish($prefix);
		my $state = state_of($prefix, $t);
		my $edition = say_in(q{SELECT count(*) FROM pg_extension WHERE extname = 'lock_election'});

		like(script(changed($file, 'ROLLBACK')), qr/moved/, 'the move runs until its commit');
		is(state_of($prefix, $t), $state, 'after the rollback, the state is the same');
		holds($prefix, $t, 'holds after the rollback');

		# A crash before the commit.
		my $run = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr($db), '-f', changed($file, 'SELECT pg_sleep(3600)') ], '>', \my $out, '2>', \my $err);
		wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query = 'SELECT pg_sleep(3600);'}, '1', dbname => 'postgres');
		# A holder that renews now would rely on a deadline that the move does not know.
		my $s = as('app');
		is($s->query("SET lock_timeout = '1 s'; SELECT renew_lock('${prefix}x', $t->{x})"), '', 'no renewal succeeds during the move');
		like($s->error, qr/55P03|57P03/, 'the renewal fails with an error');
		crash();
		$run->finish;
		is(say_in(q{SELECT count(*) FROM pg_extension WHERE extname = 'lock_election'}), $edition, 'after a crash before the commit, the edition is the same');
		say_in('SELECT locks.acquire_lock(\'after\', \'100 ms\')');
		is(state_of($prefix, $t), $state, 'after a crash before the commit, the state is the same');
		holds($prefix, $t, 'holds after a crash before the commit');
		tokens_rise('after a crash before the commit');

		# A crash right after the commit.
		like(script($file), qr/moved/, 'the move succeeds');
		crash();
		isnt(say_in(q{SELECT count(*) FROM pg_extension WHERE extname = 'lock_election'}), $edition, 'after a crash after the commit, the edition is the other one');
		say_in('SELECT locks.acquire_lock(\'after\', \'100 ms\', wait => \'10 s\')');
		is(state_of($prefix, $t), $state, 'after a crash after the commit, the state is the same');
		tokens_rise('after a crash after the commit');
		holds($prefix, $t, 'holds after a crash after the commit');
		ends($prefix, $t, 'releases after a crash after the commit');
	};
}

# --- leases across crashes, and copies ---

like(from_extension(), qr/moved/, 'moved to the portable edition for the tests of leases');
subtest 'leases that start again after a crash' => sub {
	my $t = furnish('c ');
	my $state = state_of('c ', $t);
	my $age = sub { say_in(q{UPDATE _lock_election.lease SET expires_at = expires_at - interval '2 h'; UPDATE _lock_election.hold SET expires_at = expires_at - interval '2 h'}); };

	$age->();
	crash();
	like(to_extension(), qr/moved/, 'moved to the extension right after a crash');
	is(state_of('c ', $t), $state, 'leases that could not be renewed because of the crash are moved');
	like(from_extension(), qr/moved/, 'moved back to the portable edition');
	$age->();
	crash();
	is(say_in(q{SELECT locks.try_acquire_lock('c x') IS NULL}), 't', 'the first acquire after a crash');
	like(to_extension(), qr/moved/, 'moved to the extension after the first acquire');
	is(state_of('c ', $t), $state, 'leases that have started again are moved');
	like(from_extension(), qr/moved/, 'moved back to the portable edition again');
	is(state_of('c ', $t), $state, 'leases that have started again are moved back');
	$age->();
	like(to_extension(), qr/moved to the extension: 0 holds, 0 places, 0 leases/, 'expired leases and locks are not moved');
	is(say_in(q{SELECT string_agg(how, ' ') FROM locks.election_history('c boss', } . $t->{term} . ')'), 'elected proclaimed expired', 'the history contains the end of an expired term');
	like(from_extension(), qr/moved/, 'moved back to the portable edition for the last time');
};

subtest 'a copy of the database' => sub {
	my $s = as('app');
	my $token = $s->query(q{SELECT acquire_lock('copied', '1 h')});
	$s->quit;
	one('CREATE DATABASE copy TEMPLATE app');
	like(to_extension(db => 'copy'), qr/moved to the extension: 0 holds/, 'the holders of the original are not moved in a copy');
	cmp_ok(one($node, q{SELECT locks.acquire_lock('copied', '1 h')}, 'copy'), '>', $token, 'a lock is free in the copy, with a higher token');
	is(say_in("SELECT locks.is_held('copied', $token)"), 't', 'the original database is unchanged');
	one('DROP DATABASE copy WITH (FORCE)');
};

# --- dumps and upgrades of a portable edition that was moved from the extension ---

subtest 'dumps' => sub {
	my $s = as('app');
	my $token = $s->query(q{SELECT acquire_lock('dumped', '1 h')});
	my $lease = $s->query(q{SELECT grant_lease('1 h')});
	my $dump = "$tmp/dump.sql";

	cmp_ok(say_in('SELECT tokens_ahead FROM _lock_election.config'), '>', 0, 'the tokens are ahead of the clock');
	system_or_bail('pg_dump', '-f', $dump, $node->connstr($db));
	my $last = $s->query(q{SELECT acquire_lock('after the dump', '1 h')});
	$s->quit;
	one('ALTER DATABASE app RENAME TO old; CREATE DATABASE app OWNER installer; ALTER DATABASE app SET search_path = locks, public');
	system_or_bail('psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-d', $node->connstr($db), '-f', $dump);
	$s = as('app');
	cmp_ok($s->query(q{SELECT acquire_lock('first', '1 h')}), '>', $last, 'restored in place of the original: tokens are above those that were issued after the dump');
	is($s->query("SELECT is_held('dumped', $token), keep_alive($lease) IS NULL, try_acquire_lock('dumped', '1 h') > $last"), 'f|t|t', 'restored in place of the original: nothing is held');
	$s->quit;
};

subtest 'pg_upgrade' => sub {
	my $t = furnish('u ');
	my $state = state_of('u ', $t);
	my $last = say_in(q{SELECT locks.acquire_lock('last', '100 ms')});
	my $new = new_node('new', start => 0);
	my $bin = $node->config_data('--bindir');
	my $here = $ENV{PWD};

	$node->stop;
	chdir $node->basedir;
	$new->command_ok([ 'pg_upgrade', '--no-sync', '-d', $node->data_dir, '-D', $new->data_dir, '-b', $bin, '-B', $bin, '-s', $node->host, '-p', $node->port, '-P', $new->port ], 'pg_upgrade');
	chdir $here;
	$new->start;
	$node = $new;
	is(state_of('u ', $t), $state, 'the state is the same after pg_upgrade');
	cmp_ok(say_in(q{SELECT locks.acquire_lock('last', '100 ms', wait => '10 s')}), '>', $last, 'tokens grow after pg_upgrade');
	holds('u ', $t, 'holds after pg_upgrade');
	ends('u ', $t, 'releases after pg_upgrade');
};

done_testing();
