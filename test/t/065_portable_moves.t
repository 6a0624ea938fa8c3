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

# What a script says, with SQLSTATEs.
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

# --- what is there before a move ---

# Something of everything, in the names that begin with a prefix; returns the tokens.
sub furnish
{
	my ($prefix) = @_;
	my ($s, $o) = (as('app', connstr => "application_name='nightly report'"), as('other'));
	my %t;
	my $get = sub { my ($key, $sql) = @_; $t{$key} = $s->query($sql); die "$sql: " . $s->error if $t{$key} !~ /^\d/; return $t{$key}; };

	# locks of all modes, each with a time of its own
	$get->(x => "SELECT acquire_lock('${prefix}x', '4 min', owner => 'o1')");
	$get->(again => "SELECT acquire_lock('${prefix}x', '4 min', owner => 'o1')");
	$get->("shared$_" => "SELECT acquire_lock('${prefix}shared', '1 h', mode => 'shared', owner => 'r$_')") foreach 1, 2;
	$get->("permit$_" => "SELECT acquire_permit('${prefix}permit', 2, '4 min')") foreach 1, 2;
	$get->(group => "SELECT acquire_locks('{${prefix}g1,${prefix}g2}', '4 min')");

	# on a lease
	$get->(lease => q{SELECT grant_lease('10 min', 'a session')});
	$get->(leased => "SELECT acquire_lock('${prefix}leased', lease => $t{lease})");
	$get->(leased_group => "SELECT acquire_locks('{${prefix}l1,${prefix}l2}', owner => 'lg', lease => $t{lease})");
	$get->(leased_term => "SELECT campaign('${prefix}leased', 'me', lease => $t{lease})");

	# places, of another client too
	$get->(place1 => "SELECT token FROM enqueue_lock('${prefix}x', '4 min', owner => 'p1')");
	$t{place2} = $o->query("SELECT token FROM enqueue_lock('${prefix}x', '4 min', owner => 'p2')");
	$get->(place3 => "SELECT token FROM enqueue_lock('${prefix}x', lease => $t{lease})");
	$get->(place_group => "SELECT token FROM enqueue_locks('{${prefix}g1,${prefix}h1}', '4 min')");
	$get->(place_permit => "SELECT token FROM enqueue_permit('${prefix}permit', 2, '4 min')");

	# an election with a past, and one whose leader has gone and nobody has noticed
	$s->query("SELECT resign('${prefix}boss', campaign('${prefix}boss', 'first', '4 min'))");
	$get->(term => "SELECT campaign('${prefix}boss', 'alice', '4 min')");
	$s->query("SELECT proclaim('${prefix}boss', $t{term}, 'Alice')");
	$get->(candidate => "SELECT term FROM enqueue_candidate('${prefix}boss', 'bob', '4 min')");

	# closed, one with a holder left; evicted
	$s->query("SELECT release_lock('${prefix}closed', acquire_lock('${prefix}closed'), hold_for => '1 h')");
	$get->(still => "SELECT acquire_lock('${prefix}still', '1 h', mode => 'shared', owner => 's1')");
	$s->query("SELECT release_lock('${prefix}still', acquire_lock('${prefix}still', '1 h', mode => 'shared', owner => 's2'), hold_for => '1 h')");
	$get->(evicted => "SELECT acquire_lock('${prefix}evicted', '1 h')");
	$get->(evicted_lease => "SELECT acquire_lock('${prefix}evicted lease', lease => $t{lease})");
	$get->(evicted_group => "SELECT acquire_locks('{${prefix}e1,${prefix}e2}', '1 h')");
	is($s->query("SELECT evict_lock('${prefix}evicted'), evict_lock('${prefix}evicted lease'), evict_lock('${prefix}e1')"), '1|1|1', 'evicted');

	# versions
	$s->query("SELECT compare_and_set('${prefix}key', 0, 'a'), compare_and_set('${prefix}key', 1, 'b')");
	$o->query("SELECT compare_and_set('${prefix}other', 0, NULL)");
	$_->quit foreach $s, $o;
	return \%t;
}

# All of that, as everybody sees it.
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

# Nobody else is granted what is held, and its holders renew it.
sub holds
{
	my ($prefix, $t, $what) = @_;
	my ($s, $o) = (as('app'), as('other'));

	subtest $what => sub {
		is($o->query("SELECT string_agg(n, ' ') FROM unnest('{x,shared,permit,g1,g2,leased,l1,l2,h1,closed,evicted,evicted lease,e1,e2}'::text[]) n
			WHERE n <> 'permit' AND try_acquire_lock('$prefix' || n) IS NOT NULL OR n = 'permit' AND acquire_permit('$prefix' || n, 2, wait => '0') IS NOT NULL"), '', 'nobody else is granted a lock' . $o->error);
		is($o->query("SELECT try_acquire_lock('${prefix}still', mode => 'shared') IS NULL, campaign('${prefix}boss', 'x', wait => '0') IS NULL, campaign('${prefix}leased', 'x', wait => '0') IS NULL"),
			't|t|t', 'a closed name, a term');
		is($s->query("SELECT is_held('${prefix}x', $t->{x}), is_held('${prefix}g2', $t->{group}), is_held('${prefix}permit', $t->{permit2}), is_leader('${prefix}boss', $t->{term}), is_held('${prefix}x', $t->{place1})"),
			't|t|t|t|f', 'they are held');
		# of what began before a crash the next one leaves a little less
		is($s->query("SELECT string_agg((CASE WHEN renewed BETWEEN at_least AND ttl THEN ttl ELSE renewed END)::text, ' ' ORDER BY ttl, renewed) FROM (VALUES
				(renew_lock('${prefix}x', $t->{x}), interval '3 min 50 s', interval '4 min'), (renew_lock('${prefix}permit', $t->{permit1}), '3 min 50 s', '4 min'),
				(renew_lock('${prefix}g1', $t->{group}), '3 min 50 s', '4 min'), (renew_leadership('${prefix}boss', $t->{term}), '3 min 50 s', '4 min'),
				(renew_lock('${prefix}shared', $t->{shared2}), '59 min 50 s', '1 h')) r (renewed, at_least, ttl);
			SELECT await_lock('${prefix}x', $t->{place1}), await_lock('${prefix}x', $t->{place3}), await_locks('{${prefix}g1,${prefix}h1}', $t->{place_group})"),
			"00:04:00 00:04:00 00:04:00 00:04:00 01:00:00\nf|f|f", 'and renewed');
		is($s->query("SELECT renew_lock('${prefix}evicted', $t->{evicted}), renew_lock('${prefix}evicted lease', $t->{evicted_lease}), renew_lock('${prefix}e2', $t->{evicted_group})"), '||', 'but not what was evicted');
		is($s->query("SELECT keep_alive($t->{lease}) BETWEEN '8 min' AND '10 min'"), 't', 'the lease is kept alive, for as long as what was evicted holds');
		is($s->query("SELECT string_agg(kind || ' ' || name || ' ' || granted, ', ' ORDER BY kind, name) FROM lease_holds($t->{lease})"),
			"election ${prefix}leased true, lock ${prefix}l1 true, lock ${prefix}l2 true, lock ${prefix}leased true, lock ${prefix}x false", 'with all that hangs on it');
	};
	$_->quit foreach $s, $o;
	return;
}

# It is all given back, in order.
sub ends
{
	my ($prefix, $t, $what) = @_;
	my ($s, $o) = (as('app'), as('other'));

	subtest $what => sub {
		is($s->query("SELECT release_lock('${prefix}x', $t->{x}), is_held('${prefix}x', $t->{x}), release_lock('${prefix}x', $t->{x}, all_holds => true)"), 't|t|t', 'released as often as it was acquired');
		is($s->query("SELECT await_lock('${prefix}x', $t->{place1}, '10 s'), await_lock('${prefix}x', $t->{place3})"), 't|f', 'the first of the queue has it');
		$s->query("SELECT release_lock('${prefix}x', $t->{place1})");
		is($o->query("SELECT await_lock('${prefix}x', $t->{place2}, '10 s')"), 't', 'then the second, whoever it is of');
		$o->query("SELECT release_lock('${prefix}x', $t->{place2})");
		is($s->query("SELECT await_lock('${prefix}x', $t->{place3}, '10 s')"), 't', 'then the third');
		is($s->query("SELECT release_locks('{${prefix}g1,${prefix}g2}', $t->{group})"), 't', 'several at once');
		is($s->query("SELECT await_locks('{${prefix}g1,${prefix}h1}', $t->{place_group}, '10 s')"), 't', 'to others at once');
		is($s->query("SELECT release_lock('${prefix}permit', $t->{permit2})"), 't', 'a permit');
		is($s->query("SELECT await_lock('${prefix}permit', $t->{place_permit}, '10 s')"), 't', 'to the next');
		is($s->query("SELECT release_lock('${prefix}shared', $t->{shared1}), release_lock('${prefix}evicted', $t->{evicted}), release_locks('{${prefix}e1,${prefix}e2}', $t->{evicted_group}),
			release_lock('${prefix}still', $t->{still})"), 't|t|t|t', 'a reader, what was evicted, and the last holder of a closed name');
		is($o->query("SELECT try_acquire_lock('${prefix}shared') IS NULL, try_acquire_lock('${prefix}evicted') > $t->{evicted}, try_acquire_lock('${prefix}still') IS NULL"), 't|t|t', 'free or not');
		my $last = $s->query("SELECT max(change) FROM election_history('${prefix}boss')");
		is($s->query("SELECT resign('${prefix}boss', $t->{term})"), 't', 'the leader resigns');
		is($s->query("SELECT await_leadership('${prefix}boss', $t->{candidate}, '10 s')"), 't', 'the candidate leads');
		is($s->query("SELECT string_agg(how || ' ' || candidate, ', ') FROM election_history('${prefix}boss', $last)"), 'resigned Alice, elected bob', 'the history goes on');
		is($s->query("SELECT string_agg(how || ' ' || candidate, ', ') FROM election_history('${prefix}boss')"),
			'elected first, resigned first, elected alice, proclaimed Alice, resigned Alice, elected bob', 'behind what there was');
		is($s->query("SELECT compare_and_set('${prefix}key', 1, 'c') IS NULL, compare_and_set('${prefix}key', 2, 'c')"), 't|3', 'versions go on');
		$s->query("SELECT compare_and_set('${prefix}other', 1, 'c')");
		like($s->error, qr/42501/, 'those of another role are his');
		is($s->query("SELECT revoke_lease($t->{lease})"), 't', 'the lease is revoked');
		is($s->query("SELECT count(*) FROM lock_election.locks WHERE lease = $t->{lease}"), '0', 'and nothing of it left');
		is($s->query("SELECT try_acquire_lock('${prefix}closed') IS NULL"), 't', 'closed names stay closed');
	};
	one($node, qq{SELECT locks.force_release_role('app'), locks.force_release_role('other')}, $db);
	$_->quit foreach $s, $o;
	return;
}

my $newest = 0;

# A new token is above all earlier ones.
sub tokens_rise
{
	my ($what) = @_;
	my $token = say_in(q{SELECT locks.acquire_lock('rise', '100 ms', wait => '30 s')});

	cmp_ok($token, '>', $newest, "tokens rise: $what");
	cmp_ok($token, '<', 2**53, 'below 2^53');
	$newest = $token;
	return;
}

# --- clients that do not stop ---

my @hammers;
END { kill 'KILL', @hammers if @hammers; }

# One that takes a lock again and again, writes under it with a fence, and tries a lock that somebody holds all the time.  Each
# line of its file is a phase's count or an error.
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

is(script('lock_election.sql', user => 'installer', options => ['-1']), '', 'the portable edition');

subtest 'what is refused on the way there' => sub {
	like(to_extension(user => 'app'), qr/42501.*superuser/s, 'an ordinary role may not');
	like(to_extension(user => 'installer'), qr/42501.*superuser/s, 'nor the owner');
	like(to_extension(), qr/55000.*shared_preload_libraries/s, 'a server without the library');
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'lock_election'");
	$node->restart;
	like(to_extension(db => 'postgres'), qr/55000.*not installed/s, 'another database');
	like(to_extension(settings => '-c default_transaction_isolation=serializable'), qr/0A000/, 'an old snapshot');

	# transactions that stand still
	my ($s, $o) = (as('app'), as('app'));
	my $token = $s->query(q{SELECT acquire_lock('x', '1 h')});
	$s->query("BEGIN; SELECT fence_lock('x', $token)");
	like(to_extension(), qr/55P03.*processes @{[ $s->pid ]}\b/s, 'a fence: the process is named');
	is($o->query("SELECT renew_lock('x', $token), try_acquire_lock('y') IS NOT NULL") . $o->error, '01:00:00|t', 'nothing has happened');
	$s->query(q{PREPARE TRANSACTION 'stands'});
	like(to_extension(), qr/55P03.*prepared transactions/s, 'a prepared transaction');
	$s->query(q{ROLLBACK PREPARED 'stands'});

	# advisory locks
	$s->query(q{SELECT advisory_acquire('a')});
	like(to_extension(), qr/55006.*Processes @{[ $s->pid ]}\./s, 'an advisory lock');
	$s->query(q{SELECT advisory_release('a')});

	# what others have made of it
	say_in('CREATE VIEW public.mine AS SELECT name FROM lock_election.locks');
	like(to_extension(), qr/2BP01.*view public\.mine/s, 'a view of its views');
	say_in('DROP VIEW public.mine; CREATE TABLE public.t (v text DEFAULT locks.observe_election(\'x\'))');
	like(to_extension(), qr/2BP01.*default value for column v of table public\.t/s, 'a default that calls a function');
	say_in('DROP TABLE public.t; CREATE TABLE _lock_election.extra ()');
	like(to_extension(), qr/2BP01.*_lock_election_portable\.extra/s, 'a table of others');
	say_in('DROP TABLE _lock_election.extra');

	# an owner who lays a trap
	say_in(q{CREATE FUNCTION public.trap() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN CREATE ROLE trapped; RETURN 1; END';
		CREATE FUNCTION public.trap2() RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS 'BEGIN CREATE ROLE trapped; RETURN true; END'});
	say_in('ALTER TABLE _lock_election.loss RENAME TO real; CREATE VIEW _lock_election.loss AS SELECT r.* FROM _lock_election.real r WHERE public.trap() = 1');
	like(to_extension(), qr/55000.*kind of relation/s, 'a view in the place of a table');
	say_in('DROP VIEW _lock_election.loss; ALTER TABLE _lock_election.real RENAME TO loss; CREATE DOMAIN public.evil AS text; ALTER TABLE _lock_election.loss ALTER reason TYPE public.evil');
	like(to_extension(), qr/55000.*column reason/s, 'a type of its own');
	say_in('ALTER TABLE _lock_election.loss ALTER reason TYPE text; CREATE INDEX trap ON _lock_election.loss (lease) WHERE lower(reason) = \'\'');
	like(to_extension(), qr/55000.*index/s, 'an index with an expression');
	say_in('DROP INDEX _lock_election.trap; DROP DOMAIN public.evil; DROP FUNCTION public.trap, public.trap2');
	is(one('SELECT count(*) FROM pg_roles WHERE rolname = \'trapped\''), '0', 'nothing of it was run');
	is($o->query("SELECT is_held('x', $token), release_lock('x', $token)"), 't|t', 'the portable edition is whole');
	$_->quit foreach $s, $o;
	say_in(q{SELECT locks.force_release_role('app')});
};

# --- there and back ---

say_in(q{CREATE TABLE public.busy (one int PRIMARY KEY, token bigint); CREATE TABLE public.seen (number bigserial, token bigint); GRANT ALL ON public.busy, public.seen TO client; GRANT ALL ON SEQUENCE public.seen_number_seq TO client});
my $holder = as('client');
my $held = $holder->query(q{SELECT acquire_lock('held by a client', '1 h')});
@hammers = map { hammer($_) } 1 .. 3;
my %ctl_env = (PGDATABASE => $db, PGUSER => 'client');
my $first_ctl = start_ctl({ env => \%ctl_env }, 'lock', '--ttl=30s', 'job', '--', 'sh', '-c', "until [ -e $tmp/stop ]; do sleep 0.1; done; echo first");
wait_for_sql($node, q{SELECT count(*) FROM lock_election.locks WHERE name = 'job'}, '1', dbname => $db);
my $second_ctl = start_ctl({ env => \%ctl_env }, 'lock', '--ttl=30s', 'job', '--', 'echo', 'second');
wait_for_sql($node, q{SELECT count(*) FROM lock_election.waiters WHERE name = 'job'}, '1', dbname => $db);

# Until the clients have been at work in this edition.
sub clients_work
{
	my ($what) = @_;
	my $before = $rounds->();

	ok(wait_until(sub { $rounds->() > $before + 20 }), "clients go on: $what");
	return;
}

# Somebody fences all the time: a move that meets a longer one is repeated.
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

# What triggers and rights are.
sub rights_of
{
	return say_in(q{SELECT tgname, tgenabled, obj_description(oid, 'pg_trigger') FROM pg_trigger WHERE tgrelid = 'public.guarded'::regclass ORDER BY 1;
		SELECT has_function_privilege(r, 'locks.force_release_role(regrole)', 'EXECUTE'), has_function_privilege(r, 'locks.advance_revision(bigint)', 'EXECUTE'),
			has_function_privilege(r, 'locks.acquire_lock(text, interval, interval, text, text, bigint)', 'EXECUTE'), has_table_privilege(r, 'lock_election.waiters', 'SELECT WITH GRANT OPTION'),
			has_table_privilege(r, 'lock_election.waiters', 'SELECT'), has_table_privilege(r, 'lock_election.locks', 'SELECT') FROM unnest('{app,other}'::text[]) r});
}
my $rights = rights_of();
is($rights, "guard|A|a guard\nversion|O|\nt|f|t|t|t|t\nf|f|t|f|f|t", 'triggers and rights');

my $t = furnish('a ');
my $gone = as('app');
$gone->query(q{SELECT acquire_lock('gone', '100 ms'), campaign('gone', 'late', '100 ms')});
is($gone->query(q{SELECT pg_sleep(0.15)}), '', 'time passes');
$gone->quit;
my $state = state_of('a ', $t);
clients_work('before');
tokens_rise('before');

like(move(1), qr/moved to the extension: \d+ holds, \d+ places, \d+ leases, \d+ changes of elections and 2 versions/, 'moved to the extension');
like(to_extension(), qr/nothing to do/, 'once more: nothing');
wait_for_sql($node, 'SELECT count(*) FROM lock_election.manager', '1', dbname => $db);
is(state_of('a ', $t), $state, 'all is there');
is(rights_of(), $rights, 'triggers and rights, too');
is(say_in(q{SELECT count(*) FROM pg_namespace WHERE nspname LIKE '%portable%'}), '0', 'the old schemas are not');
is(say_in(q{SELECT string_agg(how || ' ' || candidate, ', ') FROM locks.election_history('gone')}), 'elected late, expired late', 'a term that was over has ended in the history');
is(say_in(q{SELECT locks.try_acquire_lock('gone', '100 ms') IS NOT NULL}), 't', 'a lock that was over is free');
tokens_rise('in the extension');
holds('a ', $t, 'what is held, in the extension');
clients_work('in the extension');

like(move(0), qr/moved to the portable edition: \d+ holds, \d+ places, \d+ leases, \d+ changes of elections and 2 versions/, 'moved back');
like(from_extension(), qr/nothing to do/, 'once more: nothing');
is(state_of('a ', $t), $state, 'all is there');
is(rights_of(), $rights, 'triggers and rights, too');
is(say_in(q{SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = '_lock_election'}), 'installer', 'owned by the owner of the database');
is(script('lock_election.sql', user => 'installer', options => ['-1']), '', 'the file finds its own version');
tokens_rise('in the portable edition');
holds('a ', $t, 'what is held, in the portable edition');
clients_work('in the portable edition');

# and once more, with what began in the extension
my $b;
like(move(1), qr/moved/, 'there');
is(state_of('a ', $t), $state, 'all is there');
tokens_rise('in the extension again');
ends('a ', $t, 'ends in the extension');
$b = furnish('b ');
$state = state_of('b ', $b);
like(move(0), qr/moved/, 'and back');
is(state_of('b ', $b), $state, 'all is there');
tokens_rise('in the portable edition again');
holds('b ', $b, 'what was acquired in the extension is held');
clients_work('in the portable edition again');
ends('b ', $b, 'ends in the portable edition');

# what the clients have seen
ok(!$second_ctl->ended, 'lockctl waits all the time');
append_to_file("$tmp/stop", '');
is($first_ctl->wait . $first_ctl->out, "0first\n", 'lockctl has held its lock all the time');
is($second_ctl->wait . $second_ctl->out, "0second\n", 'and the next one has got it');
kill 'TERM', @hammers;
waitpid $_, 0 foreach @hammers;
@hammers = ();
is($holder->query("SELECT is_held('held by a client', $held), release_lock('held by a client', $held)"), 't|t', 'a session that did nothing has its lock');
my $seen = join('', map { slurp_file("$tmp/hammer$_") } 1 .. 3);
note $seen;
unlike($seen, qr/granted what is held|23505/, 'nobody was granted what is held');
unlike($seen, qr/^lost/m, 'no connection was lost');
is(say_in('SELECT count(*) FROM (SELECT token <= lag(token) OVER (ORDER BY number) AS falls FROM public.seen) x WHERE falls'), '0', 'their tokens have risen');


# --- names that need quotes ---

subtest 'quotes' => sub {
	one('CREATE ROLE "Some Owner" LOGIN; CREATE ROLE "A Guest" LOGIN; CREATE DATABASE quotes OWNER "Some Owner"');
	one($node, 'CREATE SCHEMA "My Locks" AUTHORIZATION "Some Owner"; GRANT USAGE ON SCHEMA "My Locks" TO PUBLIC', 'quotes');
	is(script('lock_election.sql', db => 'quotes', user => 'Some Owner', options => ['-1'], settings => '-c search_path="My\\ Locks"'), '', 'installed');
	one($node, q{SET search_path = "My Locks"; REVOKE ALL ON FUNCTION advisory_release(text, boolean) FROM PUBLIC; GRANT EXECUTE ON FUNCTION advisory_release(text, boolean) TO "A Guest";
		CREATE TABLE public."A Table" (); CREATE TRIGGER "A Guard" BEFORE INSERT ON public."A Table" EXECUTE FUNCTION fence_guard('it''s')}, 'quotes');
	my $rights = sub { return one($node, q{SET search_path = "My Locks"; SELECT has_function_privilege(r, 'advisory_release(text, boolean)', 'EXECUTE') FROM unnest('{A Guest,app}'::text[]) r;
		SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = 'public."A Table"'::regclass}, 'quotes'); };
	my $before = $rights->();
	like($before, qr/^t\nf\nCREATE TRIGGER "A Guard".*'it''s'/, 'a right and a trigger');
	my $token = one($node, q{SELECT "My Locks".acquire_lock('it''s', '1 h')}, 'quotes');
	my $ahead = one($node, q{SELECT "My Locks".advance_revision((1::bigint << 50) + 5)}, 'quotes');
	like(script('to_extension.sql', db => 'quotes'), qr/moved/, 'there');
	my $higher = one($node, q{SELECT "My Locks".acquire_lock('higher', '1 h')}, 'quotes');
	cmp_ok($higher, '>', $ahead, 'tokens that are far ahead stay there');
	is($rights->(), $before, 'they are there');
	is(one($node, qq{SELECT "My Locks".is_held('it''s', $token)}, 'quotes'), 't', 'the lock, too');
	like(script('from_extension.sql', db => 'quotes', options => [ '-v', 'owner=Some Owner' ]), qr/moved/, 'and back');
	is($rights->(), $before, 'they are there');
	is(one($node, qq{SELECT "My Locks".is_held('it''s', $token)}, 'quotes'), 't', 'the lock, too');

	# also where the sequence is lost with a life
	one($node, q{SELECT setval('_lock_election.token', 1); TRUNCATE _lock_election.life}, 'quotes');
	my $last = one($node, q{SELECT "My Locks".acquire_lock('highest', '1 h')}, 'quotes');
	cmp_ok($last, '>', $higher, 'tokens stay ahead');
	cmp_ok($last, '<', 2**53, 'below 2^53');
};

# --- what is refused on the way back; afterwards the extension works ---

like(to_extension(), qr/moved/, 'to the extension, once more');
subtest 'what is refused on the way back' => sub {
	my ($s, $o) = (as('app'), as('app'));
	my $works = sub {
		my $token = $o->query(q{SELECT acquire_lock('works', '1 min')});
		like($token . $o->error, qr/^\d+$/, 'the extension goes on');
		$o->query("SELECT release_lock('works', $token)");
	};

	like(from_extension(user => 'app'), qr/42501.*superuser/s, 'an ordinary role may not');
	like(from_extension(options => [ '-v', 'owner=nobody here' ]), qr/42704/, 'an owner that is no role');
	like(from_extension(options => [ '-v', 'owner=' . (getpwuid $>)[0] ]), qr/42501.*not for a superuser/s, 'nor a superuser');
	like(from_extension(db => 'postgres', options => [ '-v', 'owner=installer' ]), qr/55000.*not installed/s, 'another database');
	one('CREATE ROLE weak');
	like(from_extension(options => [ '-v', 'owner=weak' ]), qr/42501/, 'an owner who may create no schema');
	$works->();

	# what lasts as long as its connection; a place, too
	$s->query(q{SELECT acquire_lock('bound', ttl => NULL)});
	like(from_extension(), qr/0A000.*lock "bound"\..*ttl => NULL/s, 'a lock without a TTL');
	$o->query(q{SELECT enqueue_lock('bound', ttl => NULL)});
	$s->query(q{SELECT release_lock('bound')});
	$o->query(q{SELECT force_release_role('app')});
	$works->();

	# fences, advisory locks
	my $token = $s->query(q{SELECT acquire_lock('fenced', '1 h')});
	$s->query("BEGIN; SELECT fence_lock('fenced', $token)");
	like(from_extension(), qr/55006.*Processes @{[ $s->pid ]}\./s, 'a fence');
	is($s->query(q{ROLLBACK; SELECT advisory_acquire('a')}), 't', 'its end');
	like(from_extension(), qr/55006.*Processes @{[ $s->pid ]}\./s, 'an advisory lock');
	$s->query(q{SELECT advisory_release('a')});
	$works->();

	say_in('CREATE VIEW public.mine AS SELECT name FROM lock_election.locks');
	like(from_extension(), qr/2BP01.*view public\.mine/s, 'a view of its views');
	say_in('DROP VIEW public.mine');
	$works->();
	is($s->query("SELECT renew_lock('fenced', $token), release_lock('fenced', $token)"), '01:00:00|t', 'what was held is');
	$_->quit foreach $s, $o;
};

# --- a move that is rolled back, and crashes ---

# A copy of a script that does something else in the place of its commit, and the file that it needs.
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
	subtest "rolled back and crashed: $file" => sub {
		my $prefix = "$file ";
		my $t = furnish($prefix);
		my $state = state_of($prefix, $t);
		my $edition = say_in(q{SELECT count(*) FROM pg_extension WHERE extname = 'lock_election'});

		like(script(changed($file, 'ROLLBACK')), qr/moved/, 'it would have moved');
		is(state_of($prefix, $t), $state, 'rolled back: nothing has');
		holds($prefix, $t, 'what is held');

		# before the commit
		my $run = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr($db), '-f', changed($file, 'SELECT pg_sleep(3600)') ], '>', \my $out, '2>', \my $err);
		wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query = 'SELECT pg_sleep(3600);'}, '1', dbname => 'postgres');
		# nobody is told anything that the move does not know
		my $s = as('app');
		is($s->query("SET lock_timeout = '1 s'; SELECT renew_lock('${prefix}x', $t->{x})"), '', 'meanwhile no renewal is answered');
		like($s->error, qr/55P03|57P03/, 'but with an error');
		crash();
		$run->finish;
		is(say_in(q{SELECT count(*) FROM pg_extension WHERE extname = 'lock_election'}), $edition, 'a crash before the commit: not moved');
		say_in('SELECT locks.acquire_lock(\'after\', \'100 ms\')');
		is(state_of($prefix, $t), $state, 'all is as it was');
		holds($prefix, $t, 'what is held');
		tokens_rise('after the crash');

		# right after it
		like(script($file), qr/moved/, 'moved');
		crash();
		isnt(say_in(q{SELECT count(*) FROM pg_extension WHERE extname = 'lock_election'}), $edition, 'a crash right after the commit: moved');
		say_in('SELECT locks.acquire_lock(\'after\', \'100 ms\', wait => \'10 s\')');
		is(state_of($prefix, $t), $state, 'all is there');
		tokens_rise('after the crash');
		holds($prefix, $t, 'what is held');
		ends($prefix, $t, 'ends');
	};
}

# --- leases over crashes, and copies ---

like(from_extension(), qr/moved/, 'to the portable edition, once more');
subtest 'leases that begin again' => sub {
	my $t = furnish('c ');
	my $state = state_of('c ', $t);
	my $age = sub { say_in(q{UPDATE _lock_election.lease SET expires_at = expires_at - interval '2 h'; UPDATE _lock_election.hold SET expires_at = expires_at - interval '2 h'}); };

	$age->();
	crash();
	like(to_extension(), qr/moved/, 'moved right after a crash');
	is(state_of('c ', $t), $state, 'all is there, as nothing could be renewed');
	like(from_extension(), qr/moved/, 'and back');
	$age->();
	crash();
	is(say_in(q{SELECT locks.try_acquire_lock('c x') IS NULL}), 't', 'somebody comes after a crash');
	like(to_extension(), qr/moved/, 'then it is moved');
	is(state_of('c ', $t), $state, 'all is there');
	like(from_extension(), qr/moved/, 'and back');
	is(state_of('c ', $t), $state, 'still');
	$age->();
	like(to_extension(), qr/moved to the extension: 0 holds, 0 places, 0 leases/, 'what is over does not move');
	is(say_in(q{SELECT string_agg(how, ' ') FROM locks.election_history('c boss', } . $t->{term} . ')'), 'elected proclaimed expired', 'and its term has ended');
	like(from_extension(), qr/moved/, 'back');
};

subtest 'a copy' => sub {
	my $s = as('app');
	my $token = $s->query(q{SELECT acquire_lock('copied', '1 h')});
	$s->quit;
	one('CREATE DATABASE copy TEMPLATE app');
	like(to_extension(db => 'copy'), qr/moved to the extension: 0 holds/, 'a copy has none of its holders');
	cmp_ok(one($node, q{SELECT locks.acquire_lock('copied', '1 h')}, 'copy'), '>', $token, 'a lock of it is free, with a higher token');
	is(say_in("SELECT locks.is_held('copied', $token)"), 't', 'nothing has happened to the database itself');
	one('DROP DATABASE copy WITH (FORCE)');
};

# --- copies of the portable edition that came from the extension ---

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
	cmp_ok($s->query(q{SELECT acquire_lock('first', '1 h')}), '>', $last, 'restored in its place: tokens go on above those that came after the dump');
	is($s->query("SELECT is_held('dumped', $token), keep_alive($lease) IS NULL, try_acquire_lock('dumped', '1 h') > $last"), 'f|t|t', 'and nothing is held');
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
	is(state_of('u ', $t), $state, 'all is there');
	cmp_ok(say_in(q{SELECT locks.acquire_lock('last', '100 ms', wait => '10 s')}), '>', $last, 'tokens rise');
	holds('u ', $t, 'what is held');
	ends('u ', $t, 'ends');
};

done_testing();
