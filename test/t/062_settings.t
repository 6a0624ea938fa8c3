# Settings of roles and databases, by ALTER ROLE and ALTER DATABASE: SQL functions and lockctl work with all of them.
# Promises: -
# Needs: lockctl
use strict;
use warnings;
use LeCtl;
use LeShadows;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "max_connections = 200\nautovacuum = off\n");
ctl_node($node);
my $s = session($node);

# Settings that this server does not have are skipped. The settings of a list are set together, under the name of the
# list.
my %settings = (
	none => [],
	(map { s/ = '(.*)'/ $1/r => [$_] } "statement_timeout = '300ms'", "lock_timeout = '100ms'", "idle_in_transaction_session_timeout = '200ms'",
		"idle_session_timeout = '1s'", "transaction_timeout = '300ms'", "search_path = ''", "default_transaction_isolation = 'serializable'",
		"default_transaction_isolation = 'repeatable read'", "default_transaction_read_only = 'on'", "role = 'other'", "client_encoding = 'LATIN1'",
		"client_encoding = 'SJIS'", "client_encoding = 'SQL_ASCII'", "datestyle = 'SQL, DMY'", "datestyle = 'German'", "intervalstyle = 'iso_8601'",
		"intervalstyle = 'sql_standard'", "intervalstyle = 'postgres_verbose'", "timezone = 'Asia/Kathmandu'", "bytea_output = 'escape'",
		"standard_conforming_strings = 'off'", "backslash_quote = 'off'", "extra_float_digits = '-15'", "quote_all_identifiers = 'on'", "array_nulls = 'off'",
		"transform_null_equals = 'on'", "event_triggers = 'off'", "row_security = 'off'", "session_replication_role = 'replica'",
		"application_name = 'somebody'", "log_statement = 'all'", "client_min_messages = 'debug5'", "client_min_messages = 'error'", "track_activities = 'off'",
		"plan_cache_mode = 'force_generic_plan'", "plan_cache_mode = 'force_custom_plan'", "synchronous_commit = 'off'", "synchronous_commit = 'remote_apply'"),
	deferrable => [ "default_transaction_deferrable = 'on'", "default_transaction_read_only = 'on'", "default_transaction_isolation = 'serializable'" ],
	jit => [ "jit = 'on'", "jit_above_cost = '0'" ],
	hostile => ['search_path = hostile, pg_catalog, public']);
my %of_database = (
	formats => [ "intervalstyle = 'iso_8601'", "datestyle = 'SQL, DMY'", "timezone = 'Asia/Kathmandu'", "client_encoding = 'LATIN1'", "bytea_output = 'escape'",
		"standard_conforming_strings = 'off'", "extra_float_digits = '-15'", "search_path = ''", "array_nulls = 'off'", "row_security = 'off'" ],
	limits => [ "statement_timeout = '300ms'", "lock_timeout = '100ms'", "idle_in_transaction_session_timeout = '200ms'", "plan_cache_mode = 'force_generic_plan'" ],
	transactions => [ "default_transaction_isolation = 'serializable'", "default_transaction_read_only = 'on'", "default_transaction_deferrable = 'on'",
		"synchronous_commit = 'off'", "session_replication_role = 'replica'" ]);

sub is_known { return $s->query("SELECT current_setting('" . ($_[0] =~ /^(\w+)/)[0] . "', true) IS NOT NULL") eq 't'; }

# Returns a role name for the name of a setting.
sub role_of { return lc("s_$_[0]" =~ s/\W+/_/gr); }

# Roles with the settings: [ name of the setting, role, database, settings ]
my @users;

$s->query('CREATE ROLE other; CREATE SCHEMA hostile');
make_shadows($node, 'postgres', 'hostile', used_types($node));
foreach my $name (sort keys %settings)
{
	my $role = role_of($name);

	next if grep { !is_known($_) } @{ $settings{$name} };
	$s->query("CREATE ROLE $role LOGIN; GRANT other TO $role; GRANT pg_signal_backend TO $role, other; GRANT USAGE ON SCHEMA hostile TO $role");
	$s->query("ALTER ROLE $role SET $_") foreach @{ $settings{$name} };
	push @users, [ $name, $role, 'postgres', @{ $settings{$name} } ];
}
foreach my $name (sort keys %of_database)
{
	my $role = role_of($name);

	$s->query("CREATE ROLE $role LOGIN; GRANT pg_signal_backend TO $role; CREATE DATABASE $name");
	$node->safe_psql($name, 'CREATE EXTENSION lock_election');
	$s->query("ALTER DATABASE $name SET $_") foreach @{ $of_database{$name} };
	push @users, [ "database $name", $role, $name, @{ $of_database{$name} } ];
}
is($s->error, '', 'roles and databases are created');

# --- SQL ---

# Uses schema-qualified functions and no operators, so that the test does not depend on search_path.
sub functions
{
	my ($name, $user, $dbname, @settings) = @_;
	my $set = sub { my ($re) = @_; return scalar grep { /$re/ } @settings; };
	my $holder = session($node, dbname => $dbname);
	my $t = session($node, user => $user, dbname => $dbname);
	my $ask = sub { my ($sql, $wanted) = @_; my $got = $t->query($sql); return is(join("\n", $got, grep { /ERROR|FATAL/ } split /\n/, $t->error), $wanted, $sql); };

	# The holder is a superuser, to which the settings of the database must not apply.
	$holder->query("SET statement_timeout = 0; SET lock_timeout = 0; SET search_path = public; SET default_transaction_isolation = 'read committed'; SET client_encoding = 'UTF8'");

	# Locks, and the views that show them.
	my $token = $t->query(q{SELECT public.acquire_lock('a', '1 min')});
	like($token, qr/^\d+$/, 'a lock is acquired') or diag $t->error;
	$ask->("SELECT pg_catalog.justify_interval(public.renew_lock('a', $token, '2 min')) IS NULL", 'f');
	$ask->("SELECT public.is_held('a', $token)", 't');
	$ask->(q{SELECT pg_catalog.count(token) FROM lock_election.locks}, '1');
	$ask->(q{SELECT problem FROM lock_election.health()}, '');
	$ask->("BEGIN; SELECT public.fence_lock('a', $token); SELECT public.release_lock('a', $token); COMMIT", "\nt");
	$ask->("SELECT public.is_held('a', $token)", 'f');
	$ask->("BEGIN; SELECT pg_catalog.count(public.acquire_lock('undone')); ROLLBACK", '1');

	# A wait.
	$token = $holder->query(q{SELECT acquire_lock('b', '1 min')});
	$t->async(q{SELECT public.acquire_lock('b', '1 min')});
	if ($set->(qr/^(?:statement|lock|transaction)_timeout/))
	{
		$t->wait;
		like($t->error, qr/(?:ERROR:  (?:57014|55P03)|FATAL:  25P04)/, 'the timeout of the setting ends a wait');
		$t = session($node, user => $user, dbname => $dbname) if $t->error =~ /FATAL/; # PostgreSQL terminates the session.
		$holder->query("SELECT release_lock('b', $token)");
	}
	else
	{
		wait_for_waiters(1, 'b', dbname => $dbname);
		$holder->query("SELECT release_lock('b', $token)");
		$token = $t->wait;
		like($token, qr/^\d+$/, 'a wait ends with a grant') or diag $t->error;
		$ask->("SELECT public.release_lock('b', $token)", 't');
	}

	# A place in the queue, and its notification.
	$token = $holder->query(q{SELECT acquire_lock('c', '1 min')});
	my ($place, $channel) = split /\|/, $t->query(q{SELECT token, channel FROM public.enqueue_lock('c', '1 min')});
	$t->query("LISTEN $channel");
	$ask->("SELECT public.await_lock('c', $place)", 'f');
	$holder->query("SELECT release_lock('c', $token)");
	my $told = '';
	ok(wait_until(sub { $told .= $t->query('SELECT 1') . $t->error; $told =~ /Asynchronous notification "$channel"/ }), 'the grant of a place is notified') or diag $told;
	$ask->("UNLISTEN *; SELECT public.await_lock('c', $place)", 't');
	$ask->("SELECT public.release_lock('c', $place)", 't');

	# Functions for several locks, and arrays.
	$ask->(q{WITH l AS MATERIALIZED (SELECT * FROM public.try_acquire_each('{d,e,f}')) SELECT pg_catalog.count(token) FROM l}, '3');
	$ask->(q{SELECT released FROM public.release_each('{d,e}', ARRAY[NULL, 1]::bigint[])}, "f\nf");
	$ask->(q{SELECT public.release_lock('d'), public.release_lock('e'), public.release_lock('f')}, 't|t|t');
	$token = $t->query(q{SELECT public.acquire_locks('{g,h}')});
	$ask->("SELECT public.release_locks('{g,h}', $token)", 't');

	# Leases and elections.
	my $lease = $t->query(q{SELECT public.grant_lease('1 min')});
	my $term = $t->query("SELECT public.campaign('$user', 'me', lease => $lease)");
	like($term, qr/^\d+$/, 'the candidate is elected') or diag $t->error;
	$ask->("SELECT candidate FROM public.current_leader('$user')", 'me');
	$ask->("SELECT kind, granted FROM public.lease_holds($lease)", 'election|t');
	$ask->("SELECT public.keep_alive($lease) IS NULL", 'f');
	$ask->("SELECT public.resign('$user', $term)", 't');
	$ask->("SELECT public.revoke_lease($lease)", 't');
	$ask->("SELECT how FROM public.election_history('$user')", "elected\nresigned");

	# Versioned keys are rows, so a read-only transaction cannot write them. Advisory locks are not.
	if ($set->(qr/read_only/)) { like(query_error($t, q{SELECT public.compare_and_set('k', 0, 'v')}), qr/ERROR:  25006/, 'a read-only transaction cannot write a versioned key'); }
	else { $ask->(qq{SELECT public.compare_and_set('$user', 0, 'v')}, '1'); }
	$ask->(q{SELECT public.advisory_acquire('a', '0'), public.advisory_release('a')}, 't|t');
	$_->quit foreach $t, $holder;
	nothing_left($node, undef, dbname => $dbname);
	return;
}

sub query_error { my ($t, $sql) = @_; $t->query($sql); return $t->error; }

# Skips idle_session_timeout, which ends the sessions of psql, and the hostile schema, which 038_shadowing_objects.t
# tests.
foreach my $user (grep { $_->[0] !~ /^(?:idle_session|hostile)/ } @users)
{
	subtest "SQL functions, $user->[0]" => sub { functions(@$user); };
}
# --- lockctl ---

# Runs the commands of all roles at the same time, because they mostly wait: one holds for longer than the TTL, another
# one waits for it.
my $from = -s $node->logfile;
my $all_wait = PostgreSQL::Test::Utils::tempdir() . '/all-wait';
my %started;

foreach my $user (@users)
{
	my ($name, $role, $dbname) = @$user;
	my $env = { PGUSER => $role, PGDATABASE => $dbname };

	$started{$name}{holds} = start_ctl({ env => $env, plain => 1 }, 'lock', "n $role", '--ttl', '4s', '--', 'sh', '-c', "sleep 6; until [ -e $all_wait ]; do sleep 0.1; done");
}
foreach my $user (@users)
{
	my ($name, $role, $dbname) = @$user;

	wait_for_sql($node, "SELECT count(*) FROM lock_election.locks WHERE name = 'n $role'", '1', dbname => $dbname);
	$started{$name}{waits} = start_ctl({ env => { PGUSER => $role, PGDATABASE => $dbname }, plain => 1 }, 'lock', '--wait', '2min', "n $role", '--ttl', '4s', '--', 'true');
}
append_to_file($all_wait, '');
foreach my $user (@users)
{
	my ($name, $role, $dbname) = @$user;
	my %opts = (env => { PGUSER => $role, PGDATABASE => $dbname }, plain => 1);
	my $run = sub { my ($wanted, @args) = @_; my ($rc, $out, $err) = ctl(\%opts, @args); return is($rc, $wanted, "@args") || diag("$out$err"); };

	subtest "lockctl, $name" => sub {
		is($started{$name}{holds}->wait, 0, 'lockctl holds a lock for longer than its TTL') or diag $started{$name}{holds}->err;
		is($started{$name}{waits}->wait, 0, 'lockctl waits for longer than the TTL') or diag $started{$name}{waits}->err;
		$run->(0, 'elect', "e $role", 'me', '--ttl', '10s', '--', 'true');

		# The other commands call functions without a schema, so search_path decides which ones.
		return if $name eq 'hostile';
		my ($rc, $token, $err) = ctl(\%opts, 'acquire', "o $role");
		like($token, qr/^\d+$/, 'acquire prints a token') or diag $err;
		chomp $token;
		$run->(0, 'renew', "o $role", $token);
		$run->(0, 'held', "o $role", $token);
		$run->(0, $_) foreach 'locks', 'waiters', 'elections', 'status';
		($rc, my $out, $err) = ctl(\%opts, 'doctor');
		unlike("$out$err", qr/^(?:error|lockctl: )/m, "doctor has no error ($rc)") or diag "$out$err";
		$run->(0, 'release', '--force', '--now', "o $role");
		$run->(4, 'held', "o $role", $token);
		($rc, my $lease, $err) = ctl(\%opts, 'lease', 'grant', '--ttl', '1min');
		is($rc, 0, 'lease grant succeeds') or diag $err;
		chomp $lease;
		$run->(0, 'lease', $_, $lease) foreach 'ttl', 'revoke';
	};
}
is(shadows_that_ran($node, $from), '', 'no shadowing function or operator has run');
nothing_left($node);
$s->quit;
$node->stop;
done_testing();
