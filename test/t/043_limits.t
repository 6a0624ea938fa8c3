# The limits of a role in a database: locks, permits, places and waits together, and named leases. Other roles are not
# affected, existing locks are kept, and a restart of the manager keeps all counts.
# Promises: -
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "lock_election.max_locks_per_role = 3\nlock_election.max_leases_per_role = 2\n");
my $too_many_locks =
  qr/53400: .*role "alice" has too many locks in this database.*lock_election\.max_locks_per_role \(3\)/s;
my $too_many_leases =
  qr/53400: .*role "alice" has too many leases in this database.*lock_election\.max_leases_per_role \(2\)/s;

$node->safe_psql('postgres', 'CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN');
my ($alice, $alice2, $bob) = map { session($node, user => $_) } 'alice', 'alice', 'bob';

sub set
{
	my ($setting, $value) = @_;
	$node->append_conf('postgresql.conf', "lock_election.$setting = $value");
	$node->reload;
	return wait_for_sql($node, "SHOW lock_election.$setting", $value);
}

# The manager may read its settings a moment later than everybody else.
sub refused
{
	my ($s, $sql, $error, $test_name) = @_;
	my $answer = $s->query($sql);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($answer, '', "$test_name: no answer");
	return like($s->error, $error, "$test_name: 53400");
}

sub granted
{
	my ($s, $sql, $test_name) = @_;
	my $answer = $s->query($sql);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like($answer, qr/^\d+$/, $test_name) or diag($s->error);
	return $answer;
}

subtest 'locks' => sub {
	my $token = granted($alice, q{SELECT acquire_lock('a', '1 h', owner => 'me')}, 'a lock');
	granted($alice, q{SELECT acquire_permit('p', 2, '1 h')}, 'a permit');
	granted($alice, q{SELECT token FROM enqueue_lock('a', '1 h')}, 'a queue place');

	refused($alice, q{SELECT acquire_lock('b')}, $too_many_locks, 'a free lock');
	refused($alice2, q{SELECT acquire_lock('b')}, $too_many_locks, 'also in another connection');
	refused($alice2, q{SELECT acquire_lock('a')}, $too_many_locks, 'one to wait for');
	refused($alice, q{SELECT token FROM enqueue_lock('b')}, $too_many_locks, 'one more place');
	refused($alice, q{SELECT acquire_permit('p', 2)}, $too_many_locks, 'one more permit');
	refused($alice, q{SELECT try_acquire_lock('b')}, $too_many_locks, 'a try of a free lock');
	is($alice->query(q{SELECT try_acquire_lock('a') IS NULL}), 't', 'a try that is not granted anyway is answered');
	is($alice->query(q{SELECT acquire_lock('a', '1 h', owner => 'me')}), $token, 'one more hold is not one more lock');
	granted($bob, q{SELECT acquire_lock('b')}, 'another role has its own');
	one(q{SELECT acquire_lock('s' || g) FROM generate_series(1, 3) g});
	my ($out, $err);
	isnt($node->psql('postgres', q{SELECT acquire_lock('s4')}, stdout => \$out, stderr => \$err), 0, 'a superuser too');
	like($err, qr/role ".*" has too many locks/, 'is limited');

	# room again
	is($alice->query("SELECT release_lock('a', $token, all_holds => true)"), 't', 'released');
	my $next = granted($alice, q{SELECT acquire_lock('c', '1 h')}, 'room for one');
	refused($alice, q{SELECT acquire_lock('d')}, $too_many_locks, 'not for two');
	$alice->query(q{BEGIN});
	$alice->query("SELECT release_lock('c', $next)");
	refused($alice, q{SELECT acquire_lock('d')}, $too_many_locks, 'a release that waits for its commit');
	$alice->query(q{ROLLBACK});
	is($alice->query("SELECT release_lock('c', $next)"), 't', 'released at once');
	$alice->query(q{BEGIN});
	granted($alice, q{SELECT acquire_lock('d')}, 'room');
	$alice->query(q{ROLLBACK});
	granted($alice, q{SELECT acquire_lock('d', '1 h')}, 'an acquire that was rolled back does not count');
};

subtest 'leases' => sub {
	my $first = granted($alice, q{SELECT grant_lease('1 h')}, 'a lease');
	granted($alice, q{SELECT grant_lease('1 h', owner => 'me')}, 'and another');
	refused($alice2, q{SELECT grant_lease('1 h')}, $too_many_leases, 'one more');
	granted($bob, q{SELECT grant_lease('1 h')}, 'another role has its own');
	is($alice->query("SELECT keep_alive($first)"), '01:00:00', 'they are kept alive');
	is($alice->query("SELECT revoke_lease($first)"), 't', 'revoked');
	granted($alice, q{SELECT grant_lease('1 h')}, 'room again');
};

# The limit itself is allowed.
subtest 'durations' => sub {
	set('max_ttl', '1min');
	set('max_hold_for', '2min');
	one('CREATE ROLE carol LOGIN');
	my $s = session($node, user => 'carol');
	my $lock = granted($s, q{SELECT acquire_lock('limited', '1 min')}, 'the longest TTL of a lock');
	my $lease = granted($s, q{SELECT grant_lease('1 min')}, 'of a lease');
	my $term = granted($s, q{SELECT campaign('limited', 'me', '1 min')}, 'of an election');
	my $long = q{'1 min 0.000001 s'};

	foreach my $call ("acquire_lock('other', $long)", "try_acquire_lock('other', $long)", "acquire_locks('{other}', $long)", "enqueue_lock('other', $long)",
		"acquire_permit('other', 2, $long)", "renew_lock('limited', $lock, $long)", "grant_lease($long)", "campaign('other', 'me', $long)",
		"renew_leadership('limited', $term, $long)")
	{
		refused($s, "SELECT $call", qr/ERROR:  53400: ttl is too long for this server: 00:01:00\.000001\nHINT:  See lock_election\.max_ttl \(1min\)\.\n/, $call);
	}
	refused($s, "SELECT release_lock('limited', $lock, hold_for => '2 min 0.000001 s')",
		qr/ERROR:  53400: hold_for is too long for this server: 00:02:00\.000001\nHINT:  See lock_election\.max_hold_for \(2min\)\.\n/, 'closed for too long');
	is($s->query("SELECT renew_lock('limited', $lock)"), '00:01:00', 'what is held stays held');
	is($s->query("SELECT release_lock('limited', $lock, hold_for => '2 min')"), 't', 'closed for as long as is allowed');
	is($s->query("SELECT revoke_lease($lease), resign('limited', $term), force_release_lock('limited')"), 't|t|0', 'ended');
	set('max_ttl', '24d');
	set('max_hold_for', '1d');
	$s->quit;
};

subtest 'memory of a role' => sub {
	my $much = sub { return "SELECT acquire_locks(ARRAY(SELECT repeat('x', 200) || '$_[0]-' || i FROM generate_series(1, 1000) AS i), '1 h')"; };
	my ($n, $error) = (0, '');

	set('max_locks_per_role', 0);
	set('max_memory_per_role', '8MB');
	while ($n < 50 && $error eq '')
	{
		$bob->query($much->(++$n));
		$error = $bob->error;
	}
	like($error, qr/ERROR:  53400: the locks and leases of role "bob" take too much memory in this database\nHINT:  See lock_election\.max_memory_per_role \(8 MB\)\.\n/,
		"too much, after some ($n)");
	cmp_ok($n, '>', 5, 'not at once');
	granted($alice, q{SELECT release_lock('free', t)::int FROM acquire_lock('free') AS t}, 'another role has its own');
	one(q{SELECT force_release_role('bob')});
	set('max_memory_per_role', '128MB');
	set('max_locks_per_role', 3);
};

# Name, value and 150 bytes of each key count.  The limit is what a role may have, not what is refused.
subtest 'keys' => sub {
	my $too_much = qr/ERROR:  53400: the keys of role "alice" take too much room in this database\nHINT:  See lock_election\.max_keys_per_role \(1 MB\)\.$/m;
	my $key = sub { return "SELECT compare_and_set('$_[0]', $_[1], repeat('x', $_[2]))"; };

	set('max_keys_per_role', '1MB');
	is($alice->query(q{SELECT sum(compare_and_set('k' || i, 0, repeat('x', 3942))) FROM generate_series(100, 354) AS i}), '255', 'one key less than a megabyte');

	# a session counts what is there when it writes first
	my $fresh = session($node);
	is($fresh->query('SET ROLE bob; ' . $key->('bobs', 0, 4096)), '1', 'what alice has is nothing to bob');
	refused($fresh, 'SET ROLE alice; ' . $key->('last', 0, 3943), $too_much, 'a byte too much');
	is($fresh->query($key->('last', 0, 3942)), '1', 'a full megabyte');
	refused($fresh, $key->('more', 0, 0), $too_much, 'not even an empty one');
	refused($fresh, $key->('last', 1, 3943), $too_much, 'nor may one grow');
	is($fresh->query($key->('last', 1, 3942)), '2', 'one of the same size may be set');
	is($fresh->query($key->('last', 2, 3000)), '3', 'a shorter one');
	is($fresh->query($key->('last', 3, 3942)), '4', 'makes room');

	# null takes none, as an empty value does
	my $null = sub { return "SELECT compare_and_set('$_[0]', $_[1], NULL)"; };
	is($fresh->query($null->('last', 4)), '5', 'null makes room');
	refused($fresh, $key->('last', 5, 3943), $too_much, 'but for a byte too much');
	is($fresh->query($key->('last', 5, 3942)), '6', 'that can be filled');
	is($fresh->query($key->('last', 6, 0)), '7', 'so does an empty value');
	is($fresh->query($key->('other', 0, 3787)), '1', 'filled by another key');
	is($fresh->query($null->('last', 7)) . $fresh->query($key->('last', 8, 0)), '89', 'from one to the other');
	is($fresh->query($key->('other', 1, 3636)), '2', 'room for 151 bytes');
	refused($fresh, $null->('ab', 0), $too_much, 'is none for a key of 152');
	is($fresh->query($null->('a', 0)), '1', 'but for one of 151');
	is($fresh->query('RESET ROLE; ' . $key->('theirs', 0, 4096)), '1', 'of another role');
	refused($fresh, $key->('k100', 1, 4096), $too_much, 'it counts for the role that the key belongs to, not for who sets it');
	refused($alice, $key->('more', 0, 4096), $too_much, 'the session that has written it all');
	set('max_keys_per_role', '0');
	is($alice->query($key->('more', 0, 4096)), '1', 'no limit');

	# more than the limit already
	set('max_keys_per_role', '1MB');
	is($alice->query($key->('more', 1, 4096)), '2', 'with one again: what does not grow may be set');
	is($alice->query($key->('more', 2, 100)), '3', 'and what shrinks');
	refused($fresh, 'SET ROLE alice; ' . $key->('k100', 1, 4096), $too_much, 'but not what grows');

	# the table is larger than the limit, so that the sum of the role is asked for
	my $oids = one(q{SELECT string_agg(oid::text, ',') FROM pg_class WHERE relname LIKE 'versioned%'});
	my $scans = sub {
		my ($sql) = @_;
		my $so_far = "SELECT sum(pg_stat_get_xact_numscans(o)) FROM unnest(ARRAY[$oids]::oid[]) AS o";
		my @said = split /\n/, $fresh->query("BEGIN; $so_far; $sql; $so_far; COMMIT") . $fresh->error;

		is($said[1], '1', $sql);
		return $said[2] - $said[0];
	};
	$fresh->query('SET ROLE bob');
	my @scans = map { $scans->($key->("counted $_", 0, 1000)) } 1 .. 4;
	cmp_ok($scans[0], '>', $scans[1], 'the keys of a role are summed up once');
	is($scans[$_], $scans[1], 'and no more') foreach 2, 3;
	$fresh->query('RESET ROLE');
	cmp_ok($scans->($key->('counted 5', 0, 1000)), '>', $scans[1], 'those of another one as well');
	$fresh->query('SET ROLE bob');
	cmp_ok($scans->($key->('counted 6', 0, 1000)), '>', $scans[1], 'and then those of the first again');
	set('max_keys_per_role', '0');
	$fresh->quit;
};

# More than its row has room for is not counted.
subtest 'holds of one lock' => sub {
	my $acquire = q{SELECT acquire_lock('often', '1 h', owner => 'me')};
	my $token = $bob->query($acquire);

	one(q{ALTER TABLE _lock_election.slot DISABLE TRIGGER USER; UPDATE _lock_election.slot SET holds = 2147483646 WHERE name = 'often';
		ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_write; ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_row});
	replace_manager();
	is($bob->query($acquire), $token, 'the last hold');
	refused($bob, $acquire, qr/ERROR:  53400: lock "often" is already held 2147483647 times\n/, 'one more');
	is($bob->query("SELECT release_lock('often', $token)"), 't', 'one is released');
	is($bob->query($acquire), $token, 'which makes room');
	is($bob->query("SELECT release_lock('often', $token, all_holds => true)"), 't', 'all are');
};

# The manager is replaced while somebody waits: all of it is there again, and counted.
subtest 'restart of the manager' => sub {
	my $pid = one('SELECT pid FROM lock_election.manager');

	set('max_locks_per_role', 4);
	wait_until(
		sub {
			$alice2->async(q{SELECT acquire_lock('d')});
			wait_until(sub { $alice2->ready || one(q{SELECT count(*) FROM lock_election.waiters WHERE name = 'd'}) });
			return 1 unless $alice2->ready;
			$alice2->wait;
			return 0;
		});
	set('max_locks_per_role', 3);
	kill 'TERM', $pid;
	wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
	ok(!$alice2->ready, 'one who waited goes on, beyond the limit that was lowered');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE role = 'alice'::regrole}), 3, 'what is held is held');
	is(one(q{SELECT count(*) FROM lock_election.leases WHERE role = 'alice'::regrole}), 2, 'leases too');
	refused($alice, q{SELECT acquire_lock('e')}, $too_many_locks, 'one more lock');
	refused($alice, q{SELECT grant_lease()}, $too_many_leases, 'one more lease');
	$alice->query(q{SELECT release_lock('d')});
	like($alice2->wait, qr/^\d+$/, 'the one who waited is granted');
	refused($alice, q{SELECT acquire_lock('e')}, $too_many_locks, 'a hand-off makes no room');
	is($alice2->query(q{SELECT release_lock('d')}), 't', 'a release');
	granted($alice, q{SELECT acquire_lock('e')}, 'does');
};

subtest 'no limit' => sub {
	set('max_locks_per_role', 0);
	ok(wait_until(sub { $alice->query(q{SELECT acquire_lock('f')}) =~ /^\d+$/ }), 'locks');
	set('max_leases_per_role', 0);
	ok(wait_until(sub { $alice->query(q{SELECT grant_lease()}) =~ /^\d+$/ }), 'leases');
};

subtest 'as much as max_memory' => sub {
	my $used = sub { return one('SELECT memory FROM lock_election.manager'); };
	my $fill = sub {
		my ($names) = @_;
		return error_of(qq{DO \$\$ BEGIN FOR j IN 1 .. 100000 LOOP
			PERFORM acquire_locks(ARRAY(SELECT 'fill ' || repeat('x', 200) || $names || '-' || j || '-' || i FROM generate_series(1, $names) AS i), '1 h'); COMMIT; END LOOP; END \$\$});
	};
	my $limit = 8 * 1024 * 1024;
	my $full = qr/ERROR:  53400: the locks of this database take too much memory\nHINT:  See lock_election\.max_memory \(8 MB\)\./;

	set('max_memory', '8MB');
	one(q{SELECT count(try_acquire_lock('read ' || i)) FROM generate_series(1, 3) i}); # the manager has read it, too
	my $one = $alice->query(q{SELECT acquire_lock('one', '1 h')});
	like($fill->(500), $full, 'five hundred names too many');
	like($fill->(1), $full, 'one name too many');
	my $is = $used->();
	ok($is <= $limit && $is > 0.9 * $limit, "what they take is what they may ($is bytes)");
	like($fill->(1000), $full, 'a thousand names too many');
	cmp_ok($used->(), '<=', $limit, 'nor kept of what was refused');
	is($alice->query("SELECT renew_lock('one', $one, '2 h'), release_lock('one', $one)"), '02:00:00|t', 'what is there can be renewed and released');
	one(q{SELECT count(force_release_lock(name)) FROM lock_election.locks WHERE name LIKE 'fill %'});
	set('max_memory', '512MB');
	ok(wait_until(sub { one(q{SELECT release_lock('more', acquire_lock('more'))}) eq 't' }), 'and gives its memory back');
	one(q{SELECT count(force_release_lock(name)) FROM lock_election.locks WHERE name LIKE 'read %'});
};

# What is there is loaded, also where it is more than max_memory by now: then nothing is added, and the log says how much it is.
subtest 'more than max_memory' => sub {
	my $restart = sub {
		my $pid = manager_pid();
		my $log = -s $node->logfile;

		kill 'TERM', $pid;
		wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
		return join '', slurp_file($node->logfile, $log) =~ /WARNING:  (the locks of this database take .*)/g;
	};
	my $term = one(q{SELECT campaign('election', 'me', '1 h')});
	my $before = one('SELECT held FROM lock_election.manager');

	is(one(q{SELECT count(acquire_locks(ARRAY(SELECT repeat('x', 200) || j || '-' || i FROM generate_series(1, 1000) AS i), '1 h')) FROM generate_series(1, 30) AS j}), 30, 'much is held');
	my $mb = int(one('SELECT memory FROM lock_election.manager') / 1024 / 1024);
	cmp_ok($mb, '>=', 10, 'and takes memory');
	is($restart->(), '', 'a manager that starts says nothing while there is room');
	set('max_memory', '8MB');
	my $warning = $restart->();
	like($warning, qr/^the locks of this database take (\d+) MB, more than lock_election\.max_memory \(8 MB\)$/, 'without room it warns');
	cmp_ok(abs(($warning =~ /take (\d+)/)[0] - $mb), '<=', 4, 'and says how much there is');
	is(one('SELECT held FROM lock_election.manager'), $before + 30000, 'all is there');
	refused($alice, q{SELECT acquire_lock('more')}, qr/53400: .*max_memory \(8 MB\)/s, 'one more lock');
	refused($alice, q{SELECT grant_lease()}, qr/53400: .*max_memory \(8 MB\)/s, 'one more lease');
	like(error_of("SELECT proclaim('election', $term, 'you')"), qr/53400: .*max_memory \(8 MB\)/s, 'a proclaim');
	is(one("SELECT renew_leadership('election', $term), resign('election', $term)"), '01:00:00|t', 'nothing else is refused');
	set('max_memory', '512MB');
	ok(wait_until(sub { $alice->query(q{SELECT acquire_lock('more')}) =~ /^\d+$/ }), 'with more memory it is granted');
};

$_->quit foreach $alice, $alice2, $bob;
$node->stop;
done_testing();
