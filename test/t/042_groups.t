# Several locks acquired together: all or none, with one token, in the order of the queues, without deadlocks, through a
# restart of the manager, a crash, a cancel and a rollback.
# Promises: Q, D, G
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', conf => "autovacuum = off\ndeadlock_timeout = '500ms'\nmax_connections = 150\n"
	  . "lock_election.max_locks_per_role = 0\nlock_election.max_memory_per_role = 0\n");

sub held { return one("SELECT string_agg(name, ',' ORDER BY name COLLATE \"C\") FROM lock_election.locks WHERE token = $_[0]"); }

# Starts a session that waits in the given number of queues.
sub begin_to_wait
{
	my ($sql, $queues) = @_;
	my $s = session($node);
	$s->async($sql);
	wait_for_sql($node, "SELECT count(*) = $queues FROM lock_election.waiters WHERE pid = " . $s->pid);
	return $s;
}

# Names are stored in the mailbox as long as they fit, otherwise in a segment. At each length around this limit, no name
# is truncated, and the next mailbox, of another session, is not overwritten. This is the first subtest, because
# sessions then have adjacent mailboxes.
subtest 'names that just fit into a mailbox' => sub {
	my @s = map { session($node) } 0 .. 7;

	$s[$_]->query("SELECT acquire_lock('bound $_', NULL)") foreach 0 .. $#s;

	foreach my $i (0 .. $#s)
	{
		$s[$i]->query(qq{DO \$\$
			DECLARE
				others text[] := (SELECT '{first $i}'::text[] || array_agg(rpad('$i ' || k, 255, 'x')) FROM generate_series(1, 18) k);
				names text[];
			BEGIN
				FOR n IN 100 .. 255 LOOP
					names := others || rpad('$i last', n, 'x');
					IF NOT release_locks(names, acquire_locks(names)) THEN
						RAISE 'not all with % bytes', n;
					END IF;
					COMMIT;
				END LOOP;
			END \$\$});
		is($s[$i]->error, '', "session $i: all names are acquired and released");
	}
	$_->quit foreach @s;
	nothing_left($node, 'no mailbox was overwritten: each bound lock ends with its session');
};

sub kill_manager
{
	my $pid = one('SELECT pid FROM lock_election.manager');
	kill 'TERM', $pid or die "kill $pid: $!";
	wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
	return;
}

sub end_all
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	one(q{SELECT force_release_lock(name) FROM (SELECT DISTINCT name FROM lock_election.locks) AS l});
	$_->quit foreach @_;
	nothing_left($node);
	is(one('SELECT count(*) FROM _lock_election.lease'), '0', 'no lease is left');
	return;
}

# These names do not fit into a mailbox together.
my $many = q{ARRAY(SELECT repeat('n', 200) || n FROM generate_series(1, 100) AS n)};

subtest 'all or none' => sub {
	my $s = session($node);
	my $token = $s->query(q{SELECT acquire_locks('{c,a,b}')});

	is(held($token), 'a,b,c', 'all names have one token');
	is(one(q{SELECT acquire_locks('{b,d}', wait => '0') IS NULL}), 't',
		'acquire_locks() returns NULL if one name is held');
	is(one(q{SELECT acquire_locks('{b,d}', wait => '100ms') IS NULL}), 't',
		'acquire_locks() returns NULL if its wait times out');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'd'}), '0',
		'a failed acquire_locks() holds no name');
	is(one("SELECT is_held('a', $token), is_held('d', $token)"), 't|f', 'the token is valid for its names only');
	is(one(q{SELECT count(DISTINCT time_left) FROM lock_election.locks}), '1', 'all names have the same TTL');
	is(one("SELECT renew_lock('b', $token, '1 min')"), '00:01:00', 'a renewal of one name succeeds');
	is(one(q{SELECT bool_and(time_left > '50s') FROM lock_election.locks}), 't', 'a renewal of one name renews all');
	is(one("SELECT release_lock('b', $token)"), 't', 'one name can be released alone');
	is(held($token), 'a,c', 'the other names stay held');
	is(one("SELECT release_locks('{a,b}', $token)"), 'f',
		'release_locks() returns false if one name is not held any more');
	is(held($token), 'c', 'release_locks() releases the held names even if it returns false');
	is(one("SELECT release_locks('{c}', $token)"), 't', 'the last name is released');
	is(one(q{SELECT bool_and(t IS NOT NULL) FROM (SELECT acquire_locks('{r1,r2}', mode => 'shared') AS t FROM generate_series(1, 3)) AS l}),
		't', 'several groups share their names in mode shared');
	$token = one(q{SELECT acquire_locks('{e,f}', '200ms')});
	wait_for_sql($node, qq{SELECT NOT is_held('e', $token) AND NOT is_held('f', $token)});
	end_all($s);
};

subtest 'order' => sub {
	my $holder = session($node);
	my $held = $holder->query(q{SELECT acquire_lock('b')});
	my $group = begin_to_wait(q{SELECT acquire_locks('{a,b,c}')}, 3);
	my $behind = begin_to_wait(q{SELECT acquire_lock('c')}, 1);
	my $other = begin_to_wait(q{SELECT acquire_locks('{c,b,a}')}, 3);

	is(one(q{SELECT try_acquire_lock('a') IS NULL}), 't',
		'a free lock is reserved for the group that is first in its queue');
	is(one(q{SELECT string_agg(pid::text, ',') FROM lock_election.waiters WHERE name = 'c' AND blocked_by = ARRAY[} . $group->pid . '] AND token IS NOT NULL'),
		join(',', map { $_->pid } $behind, $other),
			'waiters: blocked_by shows the group that reserves the lock, and waiting groups have a token');
	is(one(q{SELECT string_agg(queue_position::text, ',' ORDER BY queue_position) FROM lock_election.waiters WHERE name = 'c'}),
		'1,2,3', 'waiters: the queue order is shown');
	one("SELECT release_lock('b', $held)");
	my $token = $group->wait;
	is(held($token), 'a,b,c', 'the group is granted all names when the last one is released');
	one("SELECT release_locks('{a,b,c}', $token)");
	my $next = $behind->wait;
	ok($next > $token && !$other->ready, 'the next waiter is granted the lock');
	one("SELECT release_lock('c', $next)");
	ok($other->wait > $next, 'the last group is granted its locks');
	end_all($holder, $group, $behind, $other);
};

# Each client inserts the names it holds into a table whose primary key detects a second holder. The names are in random
# order.
subtest 'no deadlock, and exclusion' => sub {
	my $dir = PostgreSQL::Test::Utils::tempdir;
	my $start = time;

	one('CREATE TABLE inside (name text PRIMARY KEY)');
	append_to_file("$dir/many.sql", <<'SQL');
SELECT array_agg(n) AS names FROM (SELECT 'n' || n AS n FROM generate_series(1, 12) AS n ORDER BY random() LIMIT 1 + floor(random() * 5)) AS s \gset
SELECT acquire_locks(:'names', owner => :'client_id' || 'w') AS token \gset
INSERT INTO inside SELECT unnest(:'names'::text[]);
DELETE FROM inside WHERE name = ANY (:'names');
SELECT release_locks(:'names', :token) AS released \gset
\if :released
\else
SELECT 1 / 0;
\endif
SQL
	my @clients = map { my $s = session($node); $s } 1 .. 8;
	my $loop = slurp_file("$dir/many.sql") x 60;

	foreach my $i (0 .. $#clients)
	{
		$clients[$i]->query("\\set client_id $i");
		$clients[$i]->async($loop);
	}
	foreach my $s (@clients)
	{
		$s->wait(120);
		is($s->error, '', 'a client succeeds');
	}
	note sprintf('%.1f s', time - $start);
	one('DROP TABLE inside');
	end_all(@clients);
};

subtest 'waits that end without a grant' => sub {
	my $holder = session($node);
	$holder->query(q{SELECT acquire_lock('a')});
	my $cancelled = begin_to_wait(q{SELECT acquire_locks('{a,b,c}')}, 3);
	my $behind = begin_to_wait(q{SELECT acquire_lock('c')}, 1);

	one('SELECT pg_cancel_backend(' . $cancelled->pid . ')');
	$cancelled->wait;
	like($cancelled->error, qr/57014/, 'a wait for a group is cancelled');
	ok($behind->wait > 0, 'the lock that the cancelled group reserved is granted');
	my $terminated = begin_to_wait("SELECT acquire_locks('{a,d}' || $many)", 102);
	my $next = begin_to_wait(q{SELECT acquire_lock('d')}, 1);
	one('SELECT pg_terminate_backend(' . $terminated->pid . ')');
	ok($next->wait > 0, 'the lock that a terminated group reserved is granted');
	$cancelled->query(q{SET lock_timeout = '200ms'});
	$cancelled->query("SELECT acquire_locks('{a,e}' || $many)");
	like($cancelled->error, qr/55P03/, 'a wait for a group is ended by lock_timeout');
	wait_for_waiters(0);
	end_all($holder, $cancelled, $behind, $terminated, $next);
};

subtest 'transactions' => sub {
	my $s = session($node);
	$s->query('BEGIN');
	my $token = $s->query(q{SELECT acquire_locks('{a,b}')});
	is($s->query(q{SELECT acquire_locks('{b,a}')}), $token, 'the group is acquired again in the same transaction');
	$s->query('SAVEPOINT s');
	my $inner = $s->query("SELECT acquire_locks('{c}' || $many)");
	is(one("SELECT count(*) FROM lock_election.locks WHERE token = $inner"), '101',
		'a group whose names do not fit into a mailbox is held');
	$s->query('ROLLBACK TO s');
	wait_for_sql($node, q{SELECT count(*) = 2 FROM lock_election.locks});
	$s->query(q{SELECT acquire_locks('{a,x}')});
	like($s->error, qr/22023.*"a" is already held by the same owner/,
		'acquiring one of the names with another token fails');
	$s->query('ROLLBACK');
	wait_for_sql($node, q{SELECT count(*) = 0 FROM lock_election.locks});

	$token = $s->query("SELECT acquire_locks('{a,b}' || $many)");
	$s->query('BEGIN');
	is($s->query("SELECT release_locks('{a,b}' || $many, $token)"), 't',
		'release_locks() in a transaction returns true');
	is(one("SELECT count(*) FROM lock_election.locks WHERE token = $token"), '102',
		'the names are held until the commit');
	is($s->query("SELECT release_locks('{a,b}', $token)"), 'f',
		'a second release_locks() in the transaction returns false');
	$s->query('ROLLBACK');
	is(one("SELECT count(*) FROM lock_election.locks WHERE token = $token"), '102', 'a rollback cancels the release');
	$s->query('BEGIN');
	is($s->query("SELECT release_locks('{a,b}' || $many, $token)"), 't', 'the group is released in a transaction');
	is($s->query("SELECT acquire_locks('{a,b}' || $many)"), $token, 'the group is acquired again before the commit');
	$s->query('COMMIT');
	is(one("SELECT count(*) FROM lock_election.locks WHERE token = $token"), '102',
		'the group is still held after the commit');
	$s->query('BEGIN');
	is($s->query("SELECT release_lock('a', $token)"), 't', 'one name is released in a transaction');
	is($s->query("SELECT release_locks('{a,b}', $token)"), 'f',
		'release_locks() returns false, and releases the other name');
	is($s->query("SELECT release_locks('{b}' || $many, $token)"), 'f',
		'release_locks() returns false, and releases the remaining names');
	is($s->query("SELECT release_locks($many, $token)"), 'f', 'release_locks() of released names returns false');
	$s->query('COMMIT');
	is(one('SELECT count(*) FROM lock_election.locks'), '0', 'all names are free after the commit');
	$s->query('BEGIN');

	# Acquiring again cancels a pending release only if all names have it, with the same token.
	my ($p, $q) = map { $s->query("SELECT acquire_lock('$_')") } 'p', 'q';
	$s->query("COMMIT; BEGIN; SELECT release_lock('p', $p), release_lock('q', $q)");
	is($s->query("SELECT acquire_locks('$_', wait => '0')"), '', "$_ is not granted, because a name is held until the commit") foreach '{p,free}', '{free,p}', '{p,q}';
	is($s->query("SELECT acquire_locks('{p}', wait => '0')"), $p,
		'a single name with a pending release is acquired again');
	$s->query('COMMIT');
	is(one(q{SELECT string_agg(name, ' ') FROM lock_election.locks}), 'p', 'the name acquired again is kept');
	$s->query("SELECT release_lock('p', $p); BEGIN");
	$token = $s->query(q{SELECT acquire_locks('{a,b}')});
	$s->query(q{PREPARE TRANSACTION 'p'});
	like($s->error, qr/0A000/, 'PREPARE TRANSACTION fails after acquiring a group');
	end_all($s);
};

subtest 'owners and leases' => sub {
	my $lease = one('SELECT grant_lease()');
	my $token = one(q{SELECT acquire_locks('{a,b}', owner => 'w')});

	is(one(q{SELECT acquire_locks('{b,a}', owner => 'w')}), $token, 'the same owner gets the same token');
	is(one(q{SELECT acquire_lock('a', owner => 'w')}), $token,
		'the same owner gets the same token for one of the names');
	is(one("SELECT release_locks('{a,b}', $token)"), 't', 'one of several holds is released');
	is(held($token), 'a,b', 'one hold is left');
	is(one("SELECT release_lock('a', $token, all_holds => true)"), 't', 'all holds of one name are released');
	is(held($token), 'b', 'the other name is still held');
	$token = one("SELECT acquire_locks('{c,d}', lease => $lease)");
	is(one("SELECT acquire_locks('{d,c}', lease => $lease)"), $token,
		'acquiring a group again on a lease returns the same token');
	is(one("SELECT locks FROM lock_election.leases"), '2', 'leases: only named leases are shown');
	my $s = begin_to_wait("SELECT acquire_locks('{d,e}')", 2);
	one("SELECT revoke_lease($lease)");
	ok($s->wait > $token, 'the waiter is granted the locks when the lease of the group is revoked');
	my ($rc, undef, $err) = $node->psql('postgres', "SELECT acquire_lock('z', lease => $token)");
	like($err, qr/lease $token does not exist/, 'the own lease of a group cannot be used as a named lease');
	is(one("SELECT keep_alive($token) IS NULL"), 't', 'keep_alive() of the own lease returns NULL');
	my $permit = session($node);
	$permit->query(q{SELECT acquire_permit('permit', 1); SELECT acquire_permit('permit', 1, wait => '100ms')});
	unlike($permit->error, qr/NOTICE/, 'a wait for a permit gives no notice, because any holder may release one');
	$permit->quit;
	my $bound = session($node);
	$bound->query(q{SELECT acquire_locks('{f,g}', NULL)});
	$bound->query(q{SELECT acquire_lock('f', wait => '100ms')});
	like($bound->error, qr/NOTICE.*"f" is already held by this connection/,
		'a session that waits for itself gets a notice');
	$bound->query(q{SELECT acquire_locks('{h,g}', wait => '100ms')});
	like($bound->error, qr/NOTICE.*"g" is already held by this connection/,
		'the notice names the lock of the group that is held');
	$bound->quit;
	wait_for_sql($node, q{SELECT count(*) = 0 FROM lock_election.locks WHERE name IN ('f', 'g')});
	end_all($s);
};

subtest 'a fenced group' => sub {
	my $s = session($node);
	my $token = $s->query(q{SELECT acquire_locks('{a,b}', '300ms')});
	$s->query('BEGIN');
	$s->query("SELECT fence_lock('a', $token)");
	my $next = begin_to_wait(q{SELECT acquire_lock('b')}, 1);
	wait_for_sql($node, "SELECT NOT is_held('b', $token)");
	ok(!$next->ready, 'a fence on one name keeps all names held after the TTL');
	$s->query('COMMIT');
	ok($next->wait > $token, 'the fence ends with its transaction');
	end_all($s, $next);
};

# The rows of a group may be anywhere in the table. They are still loaded as one group.
subtest 'rows of a group that are not adjacent' => sub {
	my ($s, $ends) = map { session($node) } 1 .. 2;
	my %holder = map { $_ => $s->query("SELECT acquire_lock('$_', '1 h')") } qw(a b c d);
	my $gone = $ends->query(q{SELECT token FROM enqueue_lock('c', '1 h', owner => 'gone')});
	my $between = $ends->query(q{SELECT token FROM enqueue_locks('{c,d}', '1 h')});

	$ends->query("SELECT release_lock('c', $gone)");
	wait_for_sql($node, 'SELECT count(*) FROM _lock_election.queue', '2');
	one('VACUUM _lock_election.queue');
	my $group = $ends->query(q{SELECT token FROM enqueue_locks('{a,b}', '1 h')});
	is(one('SELECT string_agg(token::text, \',\' ORDER BY ctid) FROM _lock_election.queue'), "$group,$between,$between,$group", 'rows of another group are between the rows of the group');
	kill_manager();
	$s->query("SELECT release_lock('a', $holder{a})");
	is(held($group), '', 'after a load, a free name is not granted without the other name');
	$s->query("SELECT release_lock('b', $holder{b})");
	is($ends->query("SELECT await_locks('{a,b}', $group, wait => '20 s')"), 't',
		'the group is granted the locks after both are free');
	is(held($group), 'a,b', 'the group holds both names');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$ends->query("SELECT release_locks('{c,d}', $between)");
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach $s, $ends;
	nothing_left($node);
};

subtest 'a restart of the manager' => sub {
	my $holder = session($node);
	my $held = $holder->query(q{SELECT acquire_lock('b')});
	my $token = $holder->query(q{SELECT acquire_locks('{p,q}', '20min')});
	my $first = begin_to_wait("SELECT acquire_locks('{a,b}' || $many)", 102);
	my $second = begin_to_wait(q{SELECT acquire_locks('{b,a}')}, 2);

	kill_manager();
	wait_for_waiters(104);
	is(held($token), 'p,q', 'held groups stay held');
	is(one(q{SELECT count(*) FROM lock_election.leases}), '0', 'leases: the own lease of a loaded group is not shown');
	is(one(q{SELECT string_agg(pid::text, ',' ORDER BY queue_position) FROM lock_election.waiters WHERE name = 'b'}),
		$first->pid . ',' . $second->pid, 'groups that wait keep their order');
	one("SELECT release_lock('b', $held)");
	my $granted = $first->wait;
	one("SELECT release_locks('{a,b}', $granted)");
	ok($second->wait > $granted, 'groups are granted the lock in this order');
	is(one("SELECT renew_lock('q', $token, '30min')"), '00:30:00', 'a group can be renewed after the restart');
	one("SELECT release_locks('{p}', $token)");
	kill_manager();
	is(one("SELECT release_locks('{q}', $token)"), 't', 'the last name of a group is released after another restart');
	end_all($holder, $first, $second);
};

subtest 'a crash' => sub {
	my $token = one(q{SELECT acquire_locks('{a,b}', '10min')});
	my $bound = session($node);
	$bound->query(q{SELECT acquire_locks('{c,d}', NULL)});
	$node->stop('immediate');
	$node->start;
	wait_for_sql($node, 'SELECT count(*) = 1 FROM lock_election.manager');
	is(held($token), 'a,b', 'an acknowledged group is held after the crash');
	is(one(q{SELECT count(*) FROM lock_election.locks}), '2', 'a bound group is not held after the crash');
	is(one("SELECT renew_lock('a', $token)"), '00:10:00', 'one renewal renews the group after the crash');
	ok(one(q{SELECT acquire_locks('{c,d}')}) > $token, 'tokens increase after the crash');
	$bound->kill;
	end_all();
};

subtest 'deadlocks with other locks' => sub {
	my ($x, $y) = map { session($node) } 1 .. 2;

	# y waits only for lock a. It is behind x, which waits for lock b, too, which y holds.
	$y->query(q{SELECT acquire_lock('b', NULL)});
	$x->async(q{SELECT acquire_locks('{a,b}')});
	wait_for_waiters(2);
	$y->async(q{SELECT acquire_lock('a')});
	$y->wait;
	like($y->error, qr/40P01/, 'a deadlock with a group that reserves a free lock is detected');
	my ($px, $py) = ($x->pid, $y->pid);
	like($y->error, qr/Process $py waits for lock "a"; blocked by process $px\.\s+Process $px waits for lock "b"; blocked by process $py\./,
		'the error describes the cycle');
	$y->query(q{SELECT release_lock('b')});
	ok($x->wait > 0, 'the group is granted its locks after the deadlock');
	end_all($x, $y);
};

subtest 'privileges and arguments' => sub {
	my $s;
	one('CREATE ROLE other LOGIN');
	$s = session($node, user => 'other');
	my $token = one(q{SELECT acquire_locks('{a,b}')});
	$s->query("SELECT release_locks('{a,b}', $token)");
	like($s->error, qr/42501/, 'another role cannot release a group');
	$s->query("BEGIN; SELECT release_locks('{a,b}', $token)");
	like($s->error, qr/42501/, 'another role cannot release a group in a transaction');
	$s->query('ROLLBACK');
	is(held($token), 'a,b', 'the group is still held');

	foreach my $case (
		[ 'NULL',                                              qr/names must not be null/ ],
		[ q{'{}'},                                             qr/names is out of range: 0 names/ ],
		[ q{'{a,NULL}'},                                       qr/names\[2\] must not be null/ ],
		[ q{'{a,""}'},                                         qr/names\[2\] must not be empty/ ],
		[ q{'{x,y,x}'},                                        qr/names contains "x" twice/ ],
		[ q{'{{a,b},{c,d}}'},                                  qr/one dimension/ ],
		[ q{ARRAY[repeat('x', 256)]},                          qr/names\[1\] is too long: 256 bytes/ ],
		[ q{ARRAY(SELECT n::text FROM generate_series(1, 1001) AS n)}, qr/names is out of range: 1001 names/ ])
	{
		my ($names, $error) = @$case;
		foreach my $call ("acquire_locks($names)", "release_locks($names, 1)")
		{
			$s->query("SELECT $call");
			like($s->error, qr/22023: .*$error/, $call);
		}
	}
	is($s->query(q{SELECT release_locks('{a}', NULL)}), 'f', 'release_locks() with token NULL returns false');
	one(q{SELECT acquire_permit('p', 2)});
	$s->query(q{SELECT acquire_locks('{n,p}')});
	like($s->error, qr/22023: "p" is in use in another way/, 'the error names the lock with another use');
	end_all($s);
};

subtest 'a wait that ends with an error' => sub {
	my $holder = session($node);
	my $s = session($node);

	$holder->query("SELECT acquire_locks($many)");
	foreach my $in ('', 'the exception block catches the timeout')
	{
		my $call = "SELECT acquire_locks($many, wait => NULL)";
		$s->query("SET lock_timeout = '50ms'");
		$s->query($in ? "DO \$\$ BEGIN PERFORM 1 FROM ($call) AS w; EXCEPTION WHEN OTHERS THEN NULL; END \$\$" : $call);
		$in ? is($s->error, '', $in) : like($s->error, qr/55P03/, 'a wait is ended by lock_timeout');
		is($s->query(q{SELECT is_held('x', 1)}), 'f', 'the session still works');
		is($s->error, '', 'the session has no error');
	}
	end_all($s, $holder);
};

# Each waiter checks repeatedly whether it waits for itself, and each of its locks leads to all waiters ahead of it. On
# a busy machine, elapsed time says nothing, so the test measures processor time.
subtest 'very many locks' => sub {
	my $names = q{ARRAY(SELECT 'm' || n FROM generate_series(1, 1000) AS n)};
	my $s = session($node);
	my $token = $s->query("SELECT acquire_locks($names, '5 min')");
	my @waiters = map { session($node, connstr => "options='-c deadlock_timeout=100'") } 1 .. 120;
	my $manager = one('SELECT pid FROM lock_election.manager');
	my $longest = 0;

	$_->async("SELECT acquire_locks($names)") foreach @waiters;
	wait_for_waiters(120000);
	for (my $end = time() + 3; time() < $end;)
	{
		my $used = cpu_time($manager);
		$s->query(q{SELECT release_lock('other', try_acquire_lock('other'))});
		$used = cpu_time($manager) - $used;
		$longest = $used if $used > $longest;
	}
	note(sprintf 'while one request waits: %.2f s at most', $longest);
	cmp_ok($longest, '<', 0.5, 'waiters with very many locks do not delay other requests');

	# The checks may take a tenth of the time, plus the requests.
	my $used = cpu_time($manager);
	$s->query('SELECT pg_sleep(4)');
	$used = cpu_time($manager) - $used;
	note(sprintf '%.2f s of 4', $used);
	cmp_ok($used, '<', 0.25 * 4, 'waiters with very many locks use little processor time of the manager');
	$_->kill('KILL') foreach @waiters;
	wait_for_waiters(0);
	one("SELECT release_locks($names, $token)");
	$_->quit foreach @waiters;

	$s->query("CREATE TEMP TABLE t AS SELECT g, acquire_locks(ARRAY(SELECT g || '/' || n FROM generate_series(1, 1000) AS n), "
		  . q{'5 min') AS token FROM generate_series(1, 60) AS g});
	$s->query("BEGIN; SELECT bool_and(release_locks(ARRAY(SELECT g || '/' || n FROM generate_series(1, 1000) AS n), token)) FROM t");
	$used = cpu_time($manager) + cpu_time($s->pid);
	$s->query('COMMIT');
	$used = cpu_time($manager) + cpu_time($s->pid) - $used;
	note(sprintf 'the commit: %.2f s', $used);
	cmp_ok($used, '<', 2, 'a commit that releases very many locks is fast');
	end_all($s);
};

done_testing();
