# Resources of the whole server that an ordinary role can exhaust: dynamic shared memory, the table of PostgreSQL's
# locks, connections to a standby. Others keep their locks, small requests continue, large ones fail with the reason,
# and everything works again when the resource is free.
# Promises: -
use strict;
use warnings;
use LeTest;
use LeWire;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', init => [ allows_streaming => 1 ], conf => <<'CONF');
dynamic_shared_memory_type = mmap
max_connections = 40
max_locks_per_transaction = 10
max_prepared_transactions = 0
max_wal_senders = 4
hot_standby_feedback = on
CONF
my $names = q{ARRAY(SELECT repeat('x', 200) || i FROM generate_series(1, 1000) AS i)};

one('CREATE ROLE mallory LOGIN; CREATE ROLE bob LOGIN');
my ($bob, $other) = map { session($node, user => 'bob') } 1 .. 2;
my $held = $bob->query(q{SELECT acquire_lock('of bob', '1 h')});

# Each session that waits for many names keeps a segment. A read-only folder simulates exhausted memory.
subtest 'no dynamic shared memory' => sub {
	my $dir = $node->data_dir . '/pg_dynshmem';
	my @few = map { LeWire->new($node, user => 'mallory') } 1 .. 4;

	$bob->query('BEGIN');
	$bob->query(q{SELECT count(release_lock('of a commit ' || i, acquire_lock('of a commit ' || i, '1 h'))) FROM generate_series(1, 100) AS i});
	$few[0]->query("SELECT acquire_locks($names, ttl => NULL)");
	$few[0]->wait('Z');
	foreach my $i (1 .. 3)
	{
		$few[$i]->query("SELECT acquire_locks($names, ttl => NULL)");
		wait_for_sql($node, q{SELECT max(queue_position) FROM lock_election.waiters}, $i);
	}
	chmod 0500, $dir or die "chmod $dir: $!";
	is($other->query("SELECT acquire_locks($names)"), '', 'without shared memory, a long array is not acquired');
	like($other->error, qr/ERROR:  42501: could not open shared memory segment/,
		'without shared memory, a long array fails with the reason');
	like($other->query(q{SELECT acquire_locks(ARRAY['a', 'b'])}), qr/^\d+$/,
		'without shared memory, a short array is acquired');
	is($other->query(q{SELECT release_locks(ARRAY['a', 'b'], token) FROM lock_election.locks WHERE name = 'a'}), 't', 'without shared memory, a short array is released');
	is($other->query(q{SELECT release_lock('x', acquire_lock('x'))}), 't',
		'without shared memory, a single lock is acquired and released');
	$bob->query('COMMIT');
	like($bob->error, qr/ERROR:  42501: could not open shared memory segment/, 'without shared memory, a commit with many releases fails');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name LIKE 'of a commit%' AND mode IS NOT NULL}), '0', 'the failed commit is rolled back');
	is($bob->query("SELECT is_held('of bob', $held)"), 't', 'a lock acquired before the transaction is held');
	$few[0]->cut;
	like($few[1]->wait('Z'), qr/^\d+$/, 'calls that already wait are granted');
	chmod 0700, $dir or die "chmod $dir: $!";
	$_->cut foreach @few[ 1 .. 3 ];
	nothing_left_but_bob('all locks of the attackers end');
	like($other->query("SELECT acquire_locks($names)"), qr/^\d+$/, 'with shared memory again, a long array is granted');
	$other->query("SELECT release_locks($names, token) FROM lock_election.locks WHERE name = repeat('x', 200) || 1");
	nothing_left_but_bob('the long array is released');
};

sub nothing_left_but_bob
{
	my ($test_name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(wait_until(sub { one(q{SELECT string_agg(name, ' ') FROM lock_election.locks WHERE mode IS NOT NULL}) eq 'of bob' }), $test_name);
}

# PostgreSQL itself then accepts no connections or writes, and starts no workers. Connected sessions get an error in
# time, and keep their locks.
subtest 'no room in the table of locks, and no manager' => sub {
	my @greedy = map { session($node, user => 'mallory') } 1 .. 2;
	my $super = session($node);
	my $pid = one('SELECT pid FROM lock_election.manager');
	my $postmaster = one('SELECT pg_postmaster_start_time()');

	foreach my $s (@greedy)
	{
		my $mine = $s->pid;
		$s->query("DO \$\$ BEGIN FOR i IN 1 .. 10000 LOOP PERFORM pg_advisory_lock($mine, i); COMMIT; END LOOP; END \$\$");
		like($s->error, qr/53200: out of shared memory/, 'the table of locks is full');
	}
	is($bob->query("SELECT renew_lock('of bob', $held) > '59 min'"), 't', 'a running manager renews') or diag($bob->error);
	is($bob->query("SELECT is_held('of bob', $held)"), 't',
		'a running manager replies to is_held()') or diag($bob->error);
	$other->query(q{SELECT acquire_lock('x')});
	like($other->error, qr/53200: out of shared memory/, 'an acquire fails because no transaction can write');
	$bob->query('BEGIN');
	$bob->query("SELECT fence_lock('of bob', $held)");
	like($bob->error, qr/53200: out of shared memory/, 'a fence fails with the reason');
	$bob->query('ROLLBACK');

	kill 'TERM', $pid;
	$other->query(q{SELECT acquire_lock('x')});
	like($other->error, qr/57P03|53200/, 'without a manager, acquire_lock() fails');
	$other->query(q{SELECT try_acquire_lock('x')});
	like($other->error, qr/57P03|53200/, 'without a manager, try_acquire_lock() fails');
	$_->query('SELECT pg_advisory_unlock_all()') foreach @greedy;
	wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
	is($bob->query("SELECT is_held('of bob', $held)"), 't', 'when the table of locks has room, a manager starts, and the lock is held') or diag($bob->error);
	is(one('SELECT pg_postmaster_start_time()'), $postmaster, 'the server has not restarted');
	nothing_left_but_bob('no other lock is left');
	$_->quit foreach @greedy, $super;
};

# Calls all functions and views in sessions of a standby. The statement timeout is shorter than the 5 s for which a
# call waits for a manager.
subtest 'a standby' => sub {
	$node->backup('copy');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'copy', has_streaming => 1);
	$standby->start;
	$node->wait_for_catchup($standby);
	my @functions = map { [ split /\|/ ] } split /\n/, one(<<'SQL');
SELECT p.oid::regproc, p.oid, (SELECT string_agg('NULL::' || t::regtype::text, ', ' ORDER BY n) FROM unnest(p.proargtypes) WITH ORDINALITY AS a(t, n)),
	(SELECT string_agg(CASE t::regtype::text WHEN 'text' THEN '''x''' WHEN 'interval' THEN '''1 min''' WHEN 'text[]' THEN 'ARRAY[''x'']' WHEN 'bigint[]' THEN 'ARRAY[1]' WHEN 'regrole' THEN '''bob''' WHEN 'boolean' THEN 'true' ELSE '1' END || '::' || t::regtype::text, ', ' ORDER BY n)
	 FROM unnest(p.proargtypes) WITH ORDINALITY AS a(t, n)), p.pronargs
FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
JOIN pg_extension e ON e.oid = d.refobjid
WHERE e.extname = 'lock_election' AND p.prorettype <> 'trigger'::regtype AND has_function_privilege('mallory', p.oid, 'EXECUTE')
SQL
	my @attackers = map { LeWire->new($standby, user => 'mallory', settings => { statement_timeout => '4s' }) } 1 .. 4;
	my (%states, @wrong);

	foreach my $function (@functions)
	{
		my ($name, $oid, $nulls, $values, $n) = @$function;

		foreach my $sql ("SELECT $name($values)", "SELECT $name($nulls)", "BEGIN; SELECT $name($values); ROLLBACK")
		{
			$_->query($sql) foreach @attackers;
			foreach my $s (@attackers)
			{
				$s->wait('Z');
				$states{$1}++ if $s->error =~ /^(?:ERROR|FATAL) (\S+)/m;
				push @wrong, "$sql: $1" if $s->error =~ /^((?:ERROR|FATAL|PANIC) (?!25006|22023|22004|25P02|42501)\S+ .*)/m;
				$s->query('ROLLBACK'), $s->wait('Z') if $s->{status} ne 'I';
			}
		}
		# the fast path
		$attackers[0]->call($oid, map { undef } 1 .. $n);
		$attackers[0]->wait('Z');
		push @wrong, "fast path of $name: " . $attackers[0]->error if $attackers[0]->error =~ /(?:XX|58)\w{3} /;
		$attackers[0]->query('ROLLBACK'), $attackers[0]->wait('Z') if $attackers[0]{status} ne 'I';
	}
	is(join("\n", @wrong), '', 'each function fails only with errors about a standby or invalid arguments');
	cmp_ok($states{25006} // 0, '>', 20 * 4, 'most calls fail because the server is a standby');

	foreach my $view (qw(locks waiters leases elections stat manager))
	{
		$_->query("SELECT * FROM lock_election.$view") foreach @attackers;
		foreach my $s (@attackers)
		{
			$s->wait('Z');
			is($s->error, '', "view $view");
		}
	}
	$attackers[0]->query(q{SELECT owner, token IS NULL, pid FROM lock_election.locks WHERE name = 'of bob'});
	is($attackers[0]->wait('Z'), '|t|', 'the view hides the same columns of other roles as on the primary');

	# Replay does not wait for readers of the views, and row versions that they keep alive do not slow down the
	# manager.
	$attackers[1]->query($_), $attackers[1]->wait('Z') foreach 'SET statement_timeout = 0', 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM lock_election.locks';
	$bob->query(q{DO $$ BEGIN FOR i IN 1 .. 2000 LOOP PERFORM release_lock('x', acquire_lock('x')); COMMIT; END LOOP; END $$}, 300);
	is($bob->error, '', '2,000 grants while a standby has an old snapshot');
	$node->wait_for_catchup($standby);
	ok(1, 'the grants are replayed');
	$_->quit foreach @attackers;
	is($bob->query("SELECT is_held('of bob', $held)"), 't', 'the lock is still held on the primary');
	$standby->stop;
};

is($bob->query("SELECT release_lock('of bob', $held)"), 't', 'the lock is released on the primary');
nothing_left($node);
$_->quit foreach $bob, $other;
$node->stop;
done_testing();
