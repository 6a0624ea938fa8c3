# Calls all functions with random arguments, from eight sessions of two ordinary roles, some of which are cancelled or
# lose their socket. Single replies are not checked; but no error is internal, no other session ends, and afterwards the
# tables are sound, and a new manager has the same state. FUZZ_SECONDS: duration; FUZZ_SEED: repeats the statements of a
# run, unless they depend on the time.
# Promises: D
use strict;
use warnings;
use LeTest;
use LeWire;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

my $seconds = $ENV{FUZZ_SECONDS} // budget(60);
my $seed = $ENV{FUZZ_SEED} // int rand 1_000_000_000;
my $sessions = 8;
my $node = new_node('main', conf => <<'CONF');
log_statement = none
log_min_error_statement = panic
lock_election.max_locks_per_role = 400
lock_election.max_leases_per_role = 50
lock_election.max_waiters_per_lock = 20
lock_election.max_memory_per_role = 1
lock_election.max_history_per_role = 4
deadlock_timeout = 50
CONF

my $amcheck = one(q{SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'});
one('CREATE EXTENSION amcheck') if $amcheck;
one('CREATE ROLE fuzz0 LOGIN; CREATE ROLE fuzz1 LOGIN; CREATE TABLE t (v int); GRANT ALL ON t TO PUBLIC');
srand $seed;
diag("FUZZ_SEED=$seed");

# Name, OID and argument types of each function that every role can call.
my @functions = map { [ split /\|/ ] } split /\n/, one(<<'SQL');
SELECT p.oid::regproc, p.oid, array_to_string(p.proargtypes::regtype[], ',')
FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
JOIN pg_extension e ON e.oid = d.refobjid
WHERE e.extname = 'lock_election' AND p.prorettype <> 'trigger'::regtype AND has_function_privilege('fuzz0', p.oid, 'EXECUTE')
ORDER BY p.oid
SQL
cmp_ok(scalar @functions, '>', 30, 'there are functions to call');

# Numbers for arguments; includes returned tokens, leases and versions, so that most calls refer to something that
# exists.
my @numbers = (0, -1, 1, 9223372036854775807);

sub pick { return $_[ rand @_ ]; }

sub random_text
{
	my $what = rand;
	return pick('exclusive', 'shared', 'session', 'transaction') if $what < 0.15;
	return pick(map { "n$_" } 1 .. 12) if $what < 0.85;
	return pick('', 'x' x 255, 'x' x 256, 'x' x 4096, 'x' x 5000, "\x{c3}\x{a4}" x 100, "a'b\\\"c", ' ', '0', "\n\t", 'fuzz0');
}

sub random_value
{
	my ($type) = @_;

	return undef if rand() < 0.08;
	return random_text() if $type eq 'text' || $type eq 'name';
	return pick(@numbers) if $type eq 'bigint';
	return pick(-1, 0, 1, 2, 3, 5, 2147483647) if $type eq 'integer';
	return pick('t', 'f') if $type eq 'boolean';
	return pick('100 ms', '1 s', '30 s', '1 h', '0', '-1 s', '24 days', '25 days', '1 month', '1 us', '178000000 years') if $type eq 'interval';
	return '{' . join(',', map { my $t = random_text(); $t =~ s/(["\\])/\\$1/g; qq{"$t"} } 1 .. pick(0, 1, 2, 3, 10)) . '}' if $type eq 'text[]';
	return '{' . join(',', map { pick(@numbers, 'NULL') } 1 .. pick(0, 1, 2, 3, 10)) . '}' if $type eq 'bigint[]';
	return pick('fuzz0', 'fuzz1', '12345', '0') if $type eq 'regrole';
	die "no value of type $type";
}

sub literal
{
	my ($value, $type) = @_;

	return "NULL::$type" unless defined $value;
	$value =~ s/'/''/g;
	$value =~ s/\\/\\\\/g;
	return "E'$value'::$type";
}

sub random_call
{
	my ($function) = @_;
	my ($name, undef, $types) = @$function;

	return "$name(" . join(', ', map { literal(random_value($_), $_) } split /,/, $types // '') . ')';
}

# Returns a random statement. Some statements leave out arguments that have a default.
sub random_statement
{
	my $what = rand;
	my $call = random_call(pick(@functions));

	return pick('BEGIN', 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'BEGIN READ ONLY', 'COMMIT', 'ROLLBACK', 'SAVEPOINT s', 'ROLLBACK TO s', 'RELEASE s')
	  if $what < 0.25;
	return pick('DISCARD ALL', 'INSERT INTO t VALUES (1)', 'SELECT * FROM lock_election.locks', 'SELECT * FROM lock_election.waiters',
		'SELECT * FROM lock_election.leases', 'SELECT * FROM lock_election.elections', 'SELECT * FROM lock_election.stat', 'SET synchronous_commit = off')
	  if $what < 0.30;
	return "SELECT $call FROM generate_series(1, " . pick(2, 20) . ')' if $what < 0.33;
	return "DO \$\$ BEGIN PERFORM $call; PERFORM " . random_call(pick(@functions)) . '; EXCEPTION WHEN others THEN NULL; END $$' if $what < 0.38;
	return "SELECT $call, " . random_call(pick(@functions)) if $what < 0.43;
	return pick("SELECT acquire_lock('" . pick(map { "n$_" } 1 .. 12) . "', '1 h', '0')", "SELECT (enqueue_lock('n1', '1 h')).token", "SELECT grant_lease('1 h')",
		"SELECT campaign('n" . int(rand 12) . "', 'me', '1 h', '0')", "SELECT compare_and_set('n" . int(rand 12) . "', 0, 'x')")
	  if $what < 0.6;
	return "SELECT $call";
}

sub connect_one
{
	my ($i) = @_;
	return LeWire->new($node, user => 'fuzz' . $i % 2, settings => { statement_timeout => '300ms', idle_in_transaction_session_timeout => '5s' });
}

my @s = map { connect_one($_) } 1 .. $sessions;
my (%states, $calls, $cuts, $cancels) = ();
my $end = time + $seconds;
my $internal = '';

while (time < $end)
{
	my @cut;

	foreach my $i (0 .. $#s)
	{
		if (rand() < 0.05)
		{
			my $function = pick(@functions);
			$s[$i]->call($function->[1], map { random_value($_) } split /,/, $function->[2] // '');
		}
		else
		{
			$s[$i]->query($s[$i]{status} eq 'E' && rand() < 0.7 ? pick('ROLLBACK', 'ROLLBACK TO s') : random_statement());
		}
		$calls++;
		$s[$i]->cancel, $cancels++ if rand() < 0.05;
		push @cut, $i if rand() < 0.02;
	}
	foreach my $i (@cut)
	{
		$s[$i]->cut;
		$s[$i] = undef;
		$cuts++;
	}
	foreach my $i (0 .. $#s)
	{
		my $rows = defined $s[$i] ? eval { $s[$i]->wait('Z') } : undef;

		if (!defined $rows)
		{
			# 57P01: a transaction that has fenced was open for too long; 25P03: a transaction was idle for too long
			$internal .= "a session has ended: $@\n" if defined $s[$i] && $s[$i]->error !~ / (?:57P01|25P03) /;
			$s[$i] = connect_one($i);
			next;
		}
		push @numbers, $1 while $rows =~ /\b(\d{15,16})\b/g;
		splice @numbers, 4, @numbers - 60 if @numbers > 64;
		foreach my $error (split /\n/, $s[$i]->error)
		{
			next unless $error =~ /^(?:ERROR|FATAL|PANIC) (\S+) (.*)/;
			$states{$1}++;
			$internal .= "$error\n" if $1 =~ /^(?:XX|58|53[12]|42883|42601)/;
		}
	}
}
diag("$calls statements, $cancels cancels, $cuts sockets cut; errors: " . join(', ', map { "$_ $states{$_}" } sort keys %states));
is($internal, '', 'no internal errors, and no session ends because of another');
cmp_ok(scalar keys %states, '>', 5, 'at least six kinds of errors');

$_->cut foreach @s;
ok(wait_until(sub { one(q{SELECT count(*) FROM pg_stat_activity WHERE usename LIKE 'fuzz%'}) eq '0' }), 'all sessions have ended');
ok(wait_until(sub { one(q{SELECT count(*) FROM lock_election.locks WHERE connected}) eq '0' }), 'no lock of an ended session is left');
is(one('SELECT failed_batches FROM lock_election.stat'), '0', 'no batch has failed');

# After a restart of the manager, long-lived locks are still held, and the queues have the same order.
my $state = q{SELECT * FROM (
	SELECT kind, name, slot::text, mode, owner, role::text, token, lease, holds FROM lock_election.locks WHERE time_left > '5 min' OR lease IS NOT NULL
	UNION ALL SELECT kind, name, 'place ' || queue_position, mode, owner, role::text, token, lease, 0 FROM lock_election.waiters) AS s
	WHERE lease IS NULL OR lease IN (SELECT lease FROM lock_election.leases WHERE time_left > '5 min')
	ORDER BY 1, 2, 7, 3};
my $before = one($state);
my $pid = one('SELECT pid FROM lock_election.manager');
one("SELECT pg_terminate_backend($pid)");
wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
is(one($state), $before, 'a new manager has the same state');
cmp_ok(length $before, '>', 0, 'the state is not empty');

SKIP:
{
	skip 'no amcheck here', 2 unless $amcheck;
	is(one(q{SELECT string_agg(v.msg, E'\n') FROM pg_class c, verify_heapam(c.oid) AS v WHERE c.relnamespace = '_lock_election'::regnamespace AND c.relkind = 'r'}),
		'', 'the tables are sound');
	is($node->psql('postgres', q{SELECT bt_index_check(c.oid, true) FROM pg_class c WHERE c.relnamespace = '_lock_election'::regnamespace AND c.relkind = 'i'}),
		0, 'the indexes are sound');
}
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/PANIC|terminated by signal|TRAP/,
	'no process has crashed');
$node->stop;
done_testing();
