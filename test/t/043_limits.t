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

# Checks that a statement fails with this error.
sub refused
{
	my ($s, $sql, $error, $test_name) = @_;
	my $answer = $s->query($sql);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($answer, '', "$test_name: no result");
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

subtest 'max_locks_per_role' => sub {
	my $token = granted($alice, q{SELECT acquire_lock('a', '1 h', owner => 'me')}, 'a lock is granted below the limit');
	granted($alice, q{SELECT acquire_permit('p', 2, '1 h')}, 'a permit is granted below the limit');
	granted($alice, q{SELECT token FROM enqueue_lock('a', '1 h')}, 'a place is queued below the limit');

	refused($alice, q{SELECT acquire_lock('b')}, $too_many_locks, 'a free lock above the limit');
	refused($alice2, q{SELECT acquire_lock('b')}, $too_many_locks,
		'a free lock above the limit, on another connection');
	refused($alice2, q{SELECT acquire_lock('a')}, $too_many_locks, 'a held lock above the limit');
	refused($alice, q{SELECT token FROM enqueue_lock('b')}, $too_many_locks, 'a place above the limit');
	refused($alice, q{SELECT acquire_permit('p', 2)}, $too_many_locks, 'a permit above the limit');
	refused($alice, q{SELECT try_acquire_lock('b')}, $too_many_locks,
		'try_acquire_lock() of a free lock above the limit');
	is($alice->query(q{SELECT try_acquire_lock('a') IS NULL}), 't',
		'try_acquire_lock() of a held lock returns NULL above the limit');
	is($alice->query(q{SELECT acquire_lock('a', '1 h', owner => 'me')}), $token,
		'another hold does not count as another lock');
	granted($bob, q{SELECT acquire_lock('b')}, 'another role has its own limit');
	one(q{SELECT acquire_lock('s' || g) FROM generate_series(1, 3) g});
	my ($out, $err);
	isnt($node->psql('postgres', q{SELECT acquire_lock('s4')}, stdout => \$out, stderr => \$err), 0,
		'a superuser is limited, too');
	like($err, qr/role ".*" has too many locks/, 'the error names the role of the superuser');

	# After a release, one more lock is allowed.
	is($alice->query("SELECT release_lock('a', $token, all_holds => true)"), 't', 'a lock is released');
	my $next = granted($alice, q{SELECT acquire_lock('c', '1 h')}, 'another lock is granted after the release');
	refused($alice, q{SELECT acquire_lock('d')}, $too_many_locks, 'a second lock is above the limit');
	$alice->query(q{BEGIN});
	$alice->query("SELECT release_lock('c', $next)");
	refused($alice, q{SELECT acquire_lock('d')}, $too_many_locks, 'a pending release still counts');
	$alice->query(q{ROLLBACK});
	is($alice->query("SELECT release_lock('c', $next)"), 't', 'a lock is released without a transaction');
	$alice->query(q{BEGIN});
	granted($alice, q{SELECT acquire_lock('d')}, 'a lock is granted in a transaction');
	$alice->query(q{ROLLBACK});
	granted($alice, q{SELECT acquire_lock('d', '1 h')}, 'a rolled-back acquire does not count');
};

subtest 'max_leases_per_role' => sub {
	my $first = granted($alice, q{SELECT grant_lease('1 h')}, 'a lease is granted below the limit');
	granted($alice, q{SELECT grant_lease('1 h', owner => 'me')}, 'a second lease is granted below the limit');
	refused($alice2, q{SELECT grant_lease('1 h')}, $too_many_leases, 'a lease above the limit');
	granted($bob, q{SELECT grant_lease('1 h')}, 'another role has its own limit of leases');
	is($alice->query("SELECT keep_alive($first)"), '01:00:00', 'existing leases can be kept alive');
	is($alice->query("SELECT revoke_lease($first)"), 't', 'a lease is revoked');
	granted($alice, q{SELECT grant_lease('1 h')}, 'a lease is granted after one was revoked');
};

# The limit itself is a valid duration.
subtest 'max_ttl and max_hold_for' => sub {
	set('max_ttl', '1min');
	set('max_hold_for', '2min');
	one('CREATE ROLE carol LOGIN');
	my $s = session($node, user => 'carol');
	my $lock = granted($s, q{SELECT acquire_lock('limited', '1 min')}, 'the longest TTL of a lock');
	my $lease = granted($s, q{SELECT grant_lease('1 min')}, 'the longest TTL of a lease');
	my $term = granted($s, q{SELECT campaign('limited', 'me', '1 min')}, 'the longest TTL of an election');
	my $long = q{'1 min 0.000001 s'};

	foreach my $call ("acquire_lock('other', $long)", "try_acquire_lock('other', $long)", "acquire_locks('{other}', $long)", "enqueue_lock('other', $long)",
		"acquire_permit('other', 2, $long)", "renew_lock('limited', $lock, $long)", "grant_lease($long)", "campaign('other', 'me', $long)",
		"renew_leadership('limited', $term, $long)")
	{
		refused($s, "SELECT $call", qr/ERROR:  53400: ttl is too long for this server: 00:01:00\.000001\nHINT:  See lock_election\.max_ttl \(1min\)\.\n/, $call);
	}
	refused($s, "SELECT release_lock('limited', $lock, hold_for => '2 min 0.000001 s')",
		qr/ERROR:  53400: hold_for is too long for this server: 00:02:00\.000001\nHINT:  See lock_election\.max_hold_for \(2min\)\.\n/, 'hold_for above the limit');
	is($s->query("SELECT renew_lock('limited', $lock)"), '00:01:00', 'an existing lock can be renewed');
	is($s->query("SELECT release_lock('limited', $lock, hold_for => '2 min')"), 't',
		'the longest hold_for is accepted');
	is($s->query("SELECT revoke_lease($lease), resign('limited', $term), force_release_lock('limited')"), 't|t|0',
		'lease, election and closed name are ended');
	set('max_ttl', '24d');
	set('max_hold_for', '1d');
	$s->quit;
};

subtest 'max_memory_per_role' => sub {
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
		"the role reaches its limit after $n calls");
	cmp_ok($n, '>', 5, 'the limit is not reached early');
	granted($alice, q{SELECT release_lock('free', t)::int FROM acquire_lock('free') AS t},
		'another role has its own memory');
	one(q{SELECT force_release_role('bob')});
	set('max_memory_per_role', '128MB');
	set('max_locks_per_role', 3);
};

# A key counts with its name, its value and 150 bytes. The role may use exactly the limit.
subtest 'max_keys_per_role' => sub {
	my $too_much = qr/ERROR:  53400: the keys of role "alice" take too much room in this database\nHINT:  See lock_election\.max_keys_per_role \(1 MB\)\.$/m;
	my $key = sub { return "SELECT compare_and_set('$_[0]', $_[1], repeat('x', $_[2]))"; };

	set('max_keys_per_role', '1MB');
	is($alice->query(q{SELECT sum(compare_and_set('k' || i, 0, repeat('x', 3942))) FROM generate_series(100, 354) AS i}), '255', 'keys of almost one megabyte are written');

	# A session sums up the existing keys when it writes its first one.
	my $fresh = session($node);
	is($fresh->query('SET ROLE bob; ' . $key->('bobs', 0, 4096)), '1',
		'keys of one role do not count for another role');
	refused($fresh, 'SET ROLE alice; ' . $key->('last', 0, 3943), $too_much, 'a key that is one byte too large');
	is($fresh->query($key->('last', 0, 3942)), '1', 'a key that exactly reaches the limit is written');
	refused($fresh, $key->('more', 0, 0), $too_much, 'an empty key above the limit');
	refused($fresh, $key->('last', 1, 3943), $too_much, 'a larger value above the limit');
	is($fresh->query($key->('last', 1, 3942)), '2', 'a value of the same size is accepted at the limit');
	is($fresh->query($key->('last', 2, 3000)), '3', 'a shorter value is accepted');
	is($fresh->query($key->('last', 3, 3942)), '4', 'the shorter value has freed space');

	# NULL and an empty value need no space for the value.
	my $null = sub { return "SELECT compare_and_set('$_[0]', $_[1], NULL)"; };
	is($fresh->query($null->('last', 4)), '5', 'a value is set to NULL');
	refused($fresh, $key->('last', 5, 3943), $too_much, 'a key that is one byte larger than the freed space');
	is($fresh->query($key->('last', 5, 3942)), '6', 'the space freed by NULL can be used');
	is($fresh->query($key->('last', 6, 0)), '7', 'a value is set to the empty string');
	is($fresh->query($key->('other', 0, 3787)), '1', 'the space freed by the empty value can be used');
	is($fresh->query($null->('last', 7)) . $fresh->query($key->('last', 8, 0)), '89',
		'NULL and the empty value have the same size');
	is($fresh->query($key->('other', 1, 3636)), '2', '151 bytes are left free');
	refused($fresh, $null->('ab', 0), $too_much, 'a key of 152 bytes');
	is($fresh->query($null->('a', 0)), '1', 'a key of 151 bytes is accepted');
	is($fresh->query('RESET ROLE; ' . $key->('theirs', 0, 4096)), '1', 'another role writes a key');
	refused($fresh, $key->('k100', 1, 4096), $too_much, 'a key counts for its owner, not for the role that sets it');
	refused($alice, $key->('more', 0, 4096), $too_much, 'the session that wrote the first keys');
	set('max_keys_per_role', '0');
	is($alice->query($key->('more', 0, 4096)), '1', 'without a limit, a key is accepted');

	# The role already uses more than the limit.
	set('max_keys_per_role', '1MB');
	is($alice->query($key->('more', 1, 4096)), '2', 'above the limit, a value of the same size is accepted');
	is($alice->query($key->('more', 2, 100)), '3', 'above the limit, a smaller value is accepted');
	refused($fresh, 'SET ROLE alice; ' . $key->('k100', 1, 4096), $too_much, 'above the limit, a larger value');

	# The table is larger than the limit, so the session sums up the keys of the role.
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
	cmp_ok($scans[0], '>', $scans[1], 'the keys of a role are summed up for its first write');
	is($scans[$_], $scans[1], 'the keys of a role are not summed up again') foreach 2, 3;
	$fresh->query('RESET ROLE');
	cmp_ok($scans->($key->('counted 5', 0, 1000)), '>', $scans[1],
		'the keys of another role are summed up for its first write');
	$fresh->query('SET ROLE bob');
	cmp_ok($scans->($key->('counted 6', 0, 1000)), '>', $scans[1],
		'the keys of the first role are summed up again after a change of the role');
	set('max_keys_per_role', '0');
	$fresh->quit;
};

# More holds than the row can store are rejected.
subtest 'maximum number of holds' => sub {
	my $acquire = q{SELECT acquire_lock('often', '1 h', owner => 'me')};
	my $token = $bob->query($acquire);

	one(q{ALTER TABLE _lock_election.slot DISABLE TRIGGER USER; UPDATE _lock_election.slot SET holds = 2147483646 WHERE name = 'often';
		ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_write; ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_row});
	replace_manager();
	is($bob->query($acquire), $token, 'the last possible hold is acquired');
	refused($bob, $acquire, qr/ERROR:  53400: lock "often" is already held 2147483647 times\n/,
		'a hold above the maximum');
	is($bob->query("SELECT release_lock('often', $token)"), 't', 'one hold is released');
	is($bob->query($acquire), $token, 'another hold is acquired after the release');
	is($bob->query("SELECT release_lock('often', $token, all_holds => true)"), 't', 'all holds are released');
};

# The manager is replaced while a session waits. All entries exist afterwards, and count.
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
	ok(!$alice2->ready, 'a waiter stays after the restart although the limit was lowered');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE role = 'alice'::regrole}), 3,
		'locks are still held after the restart');
	is(one(q{SELECT count(*) FROM lock_election.leases WHERE role = 'alice'::regrole}), 2,
		'leases still exist after the restart');
	refused($alice, q{SELECT acquire_lock('e')}, $too_many_locks, 'a lock above the limit after the restart');
	refused($alice, q{SELECT grant_lease()}, $too_many_leases, 'a lease above the limit after the restart');
	$alice->query(q{SELECT release_lock('d')});
	like($alice2->wait, qr/^\d+$/, 'the waiter is granted the lock');
	refused($alice, q{SELECT acquire_lock('e')}, $too_many_locks, 'the number of locks is the same after a hand-off');
	is($alice2->query(q{SELECT release_lock('d')}), 't', 'the lock is released');
	granted($alice, q{SELECT acquire_lock('e')}, 'a lock is granted after the release');
};

subtest 'limits of 0' => sub {
	set('max_locks_per_role', 0);
	ok(wait_until(sub { $alice->query(q{SELECT acquire_lock('f')}) =~ /^\d+$/ }), 'locks are not limited');
	set('max_leases_per_role', 0);
	ok(wait_until(sub { $alice->query(q{SELECT grant_lease()}) =~ /^\d+$/ }), 'leases are not limited');
};

subtest 'max_memory' => sub {
	my $used = sub { return one('SELECT memory FROM lock_election.manager'); };
	my $fill = sub {
		my ($names) = @_;
		return error_of(qq{DO \$\$ BEGIN FOR j IN 1 .. 100000 LOOP
			PERFORM acquire_locks(ARRAY(SELECT 'fill ' || repeat('x', 200) || $names || '-' || j || '-' || i FROM generate_series(1, $names) AS i), '1 h'); COMMIT; END LOOP; END \$\$});
	};
	my $limit = 8 * 1024 * 1024;
	my $full = qr/ERROR:  53400: the locks of this database take too much memory\nHINT:  See lock_election\.max_memory \(8 MB\)\./;

	set('max_memory', '8MB');
	one(q{SELECT count(try_acquire_lock('read ' || i)) FROM generate_series(1, 3) i}); # The manager has read the setting, too.
	my $one = $alice->query(q{SELECT acquire_lock('one', '1 h')});
	like($fill->(500), $full, 'groups of 500 names reach max_memory');
	like($fill->(1), $full, 'single names reach max_memory');
	my $is = $used->();
	ok($is <= $limit && $is > 0.9 * $limit, "the memory in use is just below max_memory ($is bytes)");
	like($fill->(1000), $full, 'groups of 1000 names reach max_memory');
	cmp_ok($used->(), '<=', $limit, 'a rejected request keeps no memory');
	is($alice->query("SELECT renew_lock('one', $one, '2 h'), release_lock('one', $one)"), '02:00:00|t',
		'an existing lock can be renewed and released at max_memory');
	one(q{SELECT count(force_release_lock(name)) FROM lock_election.locks WHERE name LIKE 'fill %'});
	set('max_memory', '512MB');
	ok(wait_until(sub { one(q{SELECT release_lock('more', acquire_lock('more'))}) eq 't' }), 'memory is freed when locks are released');
	one(q{SELECT count(force_release_lock(name)) FROM lock_election.locks WHERE name LIKE 'read %'});
};

# A manager loads all entries even if they exceed max_memory. Then it adds nothing, and the log shows how much memory
# they take.
subtest 'the entries exceed max_memory' => sub {
	my $restart = sub {
		my $pid = manager_pid();
		my $log = -s $node->logfile;

		kill 'TERM', $pid;
		wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
		return join '', slurp_file($node->logfile, $log) =~ /WARNING:  (the locks of this database take .*)/g;
	};
	my $term = one(q{SELECT campaign('election', 'me', '1 h')});
	my $before = one('SELECT held FROM lock_election.manager');

	is(one(q{SELECT count(acquire_locks(ARRAY(SELECT repeat('x', 200) || j || '-' || i FROM generate_series(1, 1000) AS i), '1 h')) FROM generate_series(1, 30) AS j}), 30, 'many locks are acquired');
	my $mb = int(one('SELECT memory FROM lock_election.manager') / 1024 / 1024);
	cmp_ok($mb, '>=', 10, 'the locks take at least 10 MB');
	is($restart->(), '', 'a new manager does not warn if memory is below max_memory');
	set('max_memory', '8MB');
	my $warning = $restart->();
	like($warning, qr/^the locks of this database take (\d+) MB, more than lock_election\.max_memory \(8 MB\)$/, 'a new manager warns if memory is above max_memory');
	cmp_ok(abs(($warning =~ /take (\d+)/)[0] - $mb), '<=', 4, 'the warning shows the amount of memory');
	is(one('SELECT held FROM lock_election.manager'), $before + 30000, 'all entries are loaded');
	refused($alice, q{SELECT acquire_lock('more')}, qr/53400: .*max_memory \(8 MB\)/s, 'a lock above max_memory');
	refused($alice, q{SELECT grant_lease()}, qr/53400: .*max_memory \(8 MB\)/s, 'a lease above max_memory');
	like(error_of("SELECT proclaim('election', $term, 'you')"), qr/53400: .*max_memory \(8 MB\)/s,
		'proclaim() fails above max_memory');
	is(one("SELECT renew_leadership('election', $term), resign('election', $term)"), '01:00:00|t', 'renewals and ends succeed above max_memory');
	set('max_memory', '512MB');
	ok(wait_until(sub { $alice->query(q{SELECT acquire_lock('more')}) =~ /^\d+$/ }),
		'a lock is granted after max_memory is raised');
};

$_->quit foreach $alice, $alice2, $bob;
$node->stop;
done_testing();
