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

# A session that has begun to wait; it is in so many queues.
sub begin_to_wait
{
	my ($sql, $queues) = @_;
	my $s = session($node);
	$s->async($sql);
	wait_for_sql($node, "SELECT count(*) = $queues FROM lock_election.waiters WHERE pid = " . $s->pid);
	return $s;
}

# Names go into the mailbox as long as there is room, then into a segment. At each length around that nothing is cut off, and
# the mailbox behind, of another session, stays as it is. First of all: sessions have mailboxes side by side.
subtest 'as many names as a mailbox has room for' => sub {
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
		is($s[$i]->error, '', "session $i: all names are held, and released");
	}
	$_->quit foreach @s;
	nothing_left($node, 'each session is known as what it was: its lock ends with it');
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

# Names that are too long, together, for a request's mailbox.
my $many = q{ARRAY(SELECT repeat('n', 200) || n FROM generate_series(1, 100) AS n)};

subtest 'all or none' => sub {
	my $s = session($node);
	my $token = $s->query(q{SELECT acquire_locks('{c,a,b}')});

	is(held($token), 'a,b,c', 'one token for all');
	is(one(q{SELECT acquire_locks('{b,d}', wait => '0') IS NULL}), 't', 'who cannot have all gets none');
	is(one(q{SELECT acquire_locks('{b,d}', wait => '100ms') IS NULL}), 't', 'nor after a wait');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'd'}), '0', 'and keeps nothing');
	is(one("SELECT is_held('a', $token), is_held('d', $token)"), 't|f', 'a token is of its names only');
	is(one(q{SELECT count(DISTINCT time_left) FROM lock_election.locks}), '1', 'they have one TTL');
	is(one("SELECT renew_lock('b', $token, '1 min')"), '00:01:00', 'which any of them renews');
	is(one(q{SELECT bool_and(time_left > '50s') FROM lock_election.locks}), 't', 'for all');
	is(one("SELECT release_lock('b', $token)"), 't', 'one can be released alone');
	is(held($token), 'a,c', 'the others stay');
	is(one("SELECT release_locks('{a,b}', $token)"), 'f', 'not all are held any more');
	is(held($token), 'c', 'those that are go');
	is(one("SELECT release_locks('{c}', $token)"), 't', 'and the last');
	is(one(q{SELECT bool_and(t IS NOT NULL) FROM (SELECT acquire_locks('{r1,r2}', mode => 'shared') AS t FROM generate_series(1, 3)) AS l}),
		't', 'shared, several have them');
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

	is(one(q{SELECT try_acquire_lock('a') IS NULL}), 't', 'a free lock is kept for who is first');
	is(one(q{SELECT string_agg(pid::text, ',') FROM lock_election.waiters WHERE name = 'c' AND blocked_by = ARRAY[} . $group->pid . '] AND token IS NOT NULL'),
		join(',', map { $_->pid } $behind, $other), 'who keeps it, and with which token, is shown');
	is(one(q{SELECT string_agg(queue_position::text, ',' ORDER BY queue_position) FROM lock_election.waiters WHERE name = 'c'}),
		'1,2,3', 'the queue is shown');
	one("SELECT release_lock('b', $held)");
	my $token = $group->wait;
	is(held($token), 'a,b,c', 'granted with the last of its locks');
	one("SELECT release_locks('{a,b,c}', $token)");
	my $next = $behind->wait;
	ok($next > $token && !$other->ready, 'the next in the order');
	one("SELECT release_lock('c', $next)");
	ok($other->wait > $next, 'and the next');
	end_all($holder, $group, $behind, $other);
};

# Whoever enters notes the names in a table, where nobody else may be; in any order, with single locks in between.
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
		is($s->error, '', 'a client has come through');
	}
	note sprintf('%.1f s', time - $start);
	one('DROP TABLE inside');
	end_all(@clients);
};

subtest 'a wait that ends' => sub {
	my $holder = session($node);
	$holder->query(q{SELECT acquire_lock('a')});
	my $cancelled = begin_to_wait(q{SELECT acquire_locks('{a,b,c}')}, 3);
	my $behind = begin_to_wait(q{SELECT acquire_lock('c')}, 1);

	one('SELECT pg_cancel_backend(' . $cancelled->pid . ')');
	$cancelled->wait;
	like($cancelled->error, qr/57014/, 'cancelled');
	ok($behind->wait > 0, 'and the lock that it kept free is granted');
	my $terminated = begin_to_wait("SELECT acquire_locks('{a,d}' || $many)", 102);
	my $next = begin_to_wait(q{SELECT acquire_lock('d')}, 1);
	one('SELECT pg_terminate_backend(' . $terminated->pid . ')');
	ok($next->wait > 0, 'as when its connection ends');
	$cancelled->query(q{SET lock_timeout = '200ms'});
	$cancelled->query("SELECT acquire_locks('{a,e}' || $many)");
	like($cancelled->error, qr/55P03/, 'or lock_timeout strikes');
	wait_for_waiters(0);
	end_all($holder, $cancelled, $behind, $terminated, $next);
};

subtest 'transactions' => sub {
	my $s = session($node);
	$s->query('BEGIN');
	my $token = $s->query(q{SELECT acquire_locks('{a,b}')});
	is($s->query(q{SELECT acquire_locks('{b,a}')}), $token, 'once more in the same transaction');
	$s->query('SAVEPOINT s');
	my $inner = $s->query("SELECT acquire_locks('{c}' || $many)");
	is(one("SELECT count(*) FROM lock_election.locks WHERE token = $inner"), '101', 'more than a mailbox can carry');
	$s->query('ROLLBACK TO s');
	wait_for_sql($node, q{SELECT count(*) = 2 FROM lock_election.locks});
	$s->query(q{SELECT acquire_locks('{a,x}')});
	like($s->error, qr/22023.*"a" is already held by the same owner/, 'a part of them, with another token, is refused');
	$s->query('ROLLBACK');
	wait_for_sql($node, q{SELECT count(*) = 0 FROM lock_election.locks});

	$token = $s->query("SELECT acquire_locks('{a,b}' || $many)");
	$s->query('BEGIN');
	is($s->query("SELECT release_locks('{a,b}' || $many, $token)"), 't', 'a release in a transaction');
	is(one("SELECT count(*) FROM lock_election.locks WHERE token = $token"), '102', 'waits for the commit');
	is($s->query("SELECT release_locks('{a,b}', $token)"), 'f', 'and is made once');
	$s->query('ROLLBACK');
	is(one("SELECT count(*) FROM lock_election.locks WHERE token = $token"), '102', 'which a rollback cancels');
	$s->query('BEGIN');
	is($s->query("SELECT release_locks('{a,b}' || $many, $token)"), 't', 'released');
	is($s->query("SELECT acquire_locks('{a,b}' || $many)"), $token, 'and acquired again before the commit');
	$s->query('COMMIT');
	is(one("SELECT count(*) FROM lock_election.locks WHERE token = $token"), '102', 'is one more hold, which stays');
	$s->query('BEGIN');
	is($s->query("SELECT release_lock('a', $token)"), 't', 'one of them');
	is($s->query("SELECT release_locks('{a,b}', $token)"), 'f', 'then the others');
	is($s->query("SELECT release_locks('{b}' || $many, $token)"), 'f', 'b is to be released already');
	is($s->query("SELECT release_locks($many, $token)"), 'f', 'and so are the others');
	$s->query('COMMIT');
	is(one('SELECT count(*) FROM lock_election.locks'), '0', 'all of it at the commit');
	$s->query('BEGIN');

	# more than is to be released, or what has two tokens, is not one more hold
	my ($p, $q) = map { $s->query("SELECT acquire_lock('$_')") } 'p', 'q';
	$s->query("COMMIT; BEGIN; SELECT release_lock('p', $p), release_lock('q', $q)");
	is($s->query("SELECT acquire_locks('$_', wait => '0')"), '', "$_ not: they are held until the commit") foreach '{p,free}', '{free,p}', '{p,q}';
	is($s->query("SELECT acquire_locks('{p}', wait => '0')"), $p, 'one that is to be released');
	$s->query('COMMIT');
	is(one(q{SELECT string_agg(name, ' ') FROM lock_election.locks}), 'p', 'is kept');
	$s->query("SELECT release_lock('p', $p); BEGIN");
	$token = $s->query(q{SELECT acquire_locks('{a,b}')});
	$s->query(q{PREPARE TRANSACTION 'p'});
	like($s->error, qr/0A000/, 'PREPARE is refused');
	end_all($s);
};

subtest 'owners and leases' => sub {
	my $lease = one('SELECT grant_lease()');
	my $token = one(q{SELECT acquire_locks('{a,b}', owner => 'w')});

	is(one(q{SELECT acquire_locks('{b,a}', owner => 'w')}), $token, 'the same owner has the same token');
	is(one(q{SELECT acquire_lock('a', owner => 'w')}), $token, 'also for one of them');
	is(one("SELECT release_locks('{a,b}', $token)"), 't', 'and each acquire is released');
	is(held($token), 'a,b', 'one is left');
	is(one("SELECT release_lock('a', $token, all_holds => true)"), 't', 'or all at once');
	is(held($token), 'b', 'for a name');
	$token = one("SELECT acquire_locks('{c,d}', lease => $lease)");
	is(one("SELECT acquire_locks('{d,c}', lease => $lease)"), $token, 'on a lease it is idempotent');
	is(one("SELECT locks FROM lock_election.leases"), '2', 'only named leases are shown');
	my $s = begin_to_wait("SELECT acquire_locks('{d,e}')", 2);
	one("SELECT revoke_lease($lease)");
	ok($s->wait > $token, 'they end with their lease');
	my ($rc, undef, $err) = $node->psql('postgres', "SELECT acquire_lock('z', lease => $token)");
	like($err, qr/lease $token does not exist/, 'their own lease is nobody else\'s');
	is(one("SELECT keep_alive($token) IS NULL"), 't', 'in no way');
	my $permit = session($node);
	$permit->query(q{SELECT acquire_permit('permit', 1); SELECT acquire_permit('permit', 1, wait => '100ms')});
	unlike($permit->error, qr/NOTICE/, 'but not who waits for a permit: any may come back');
	$permit->quit;
	my $bound = session($node);
	$bound->query(q{SELECT acquire_locks('{f,g}', NULL)});
	$bound->query(q{SELECT acquire_lock('f', wait => '100ms')});
	like($bound->error, qr/NOTICE.*"f" is already held by this connection/, 'who waits for itself is told');
	$bound->query(q{SELECT acquire_locks('{h,g}', wait => '100ms')});
	like($bound->error, qr/NOTICE.*"g" is already held by this connection/, 'and for which of several');
	$bound->quit;
	wait_for_sql($node, q{SELECT count(*) = 0 FROM lock_election.locks WHERE name IN ('f', 'g')});
	end_all($s);
};

subtest 'fenced' => sub {
	my $s = session($node);
	my $token = $s->query(q{SELECT acquire_locks('{a,b}', '300ms')});
	$s->query('BEGIN');
	$s->query("SELECT fence_lock('a', $token)");
	my $next = begin_to_wait(q{SELECT acquire_lock('b')}, 1);
	wait_for_sql($node, "SELECT NOT is_held('b', $token)");
	ok(!$next->ready, 'one fence keeps all of them past their TTL');
	$s->query('COMMIT');
	ok($next->wait > $token, 'until its transaction ends');
	end_all($s, $next);
};

# The rows of a group may be anywhere in the table: it is loaded as one all the same.
subtest 'rows that are not side by side' => sub {
	my ($s, $ends) = map { session($node) } 1 .. 2;
	my %holder = map { $_ => $s->query("SELECT acquire_lock('$_', '1 h')") } qw(a b c d);
	my $gone = $ends->query(q{SELECT token FROM enqueue_lock('c', '1 h', owner => 'gone')});
	my $between = $ends->query(q{SELECT token FROM enqueue_locks('{c,d}', '1 h')});

	$ends->query("SELECT release_lock('c', $gone)");
	wait_for_sql($node, 'SELECT count(*) FROM _lock_election.queue', '2');
	one('VACUUM _lock_election.queue');
	my $group = $ends->query(q{SELECT token FROM enqueue_locks('{a,b}', '1 h')});
	is(one('SELECT string_agg(token::text, \',\' ORDER BY ctid) FROM _lock_election.queue'), "$group,$between,$between,$group", 'those of another group are between theirs');
	kill_manager();
	$s->query("SELECT release_lock('a', $holder{a})");
	is(held($group), '', 'after a load the one that is free is not granted without the other');
	$s->query("SELECT release_lock('b', $holder{b})");
	is($ends->query("SELECT await_locks('{a,b}', $group, wait => '20 s')"), 't', 'both are granted');
	is(held($group), 'a,b', 'together');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$ends->query("SELECT release_locks('{c,d}', $between)");
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach $s, $ends;
	nothing_left($node);
};

subtest 'a manager that restarts' => sub {
	my $holder = session($node);
	my $held = $holder->query(q{SELECT acquire_lock('b')});
	my $token = $holder->query(q{SELECT acquire_locks('{p,q}', '20min')});
	my $first = begin_to_wait("SELECT acquire_locks('{a,b}' || $many)", 102);
	my $second = begin_to_wait(q{SELECT acquire_locks('{b,a}')}, 2);

	kill_manager();
	wait_for_waiters(104);
	is(held($token), 'p,q', 'what is held stays');
	is(one(q{SELECT count(*) FROM lock_election.leases}), '0', 'on its own lease');
	is(one(q{SELECT string_agg(pid::text, ',' ORDER BY queue_position) FROM lock_election.waiters WHERE name = 'b'}),
		$first->pid . ',' . $second->pid, 'and the order of those who wait');
	one("SELECT release_lock('b', $held)");
	my $granted = $first->wait;
	one("SELECT release_locks('{a,b}', $granted)");
	ok($second->wait > $granted, 'in which they are granted');
	is(one("SELECT renew_lock('q', $token, '30min')"), '00:30:00', 'a renewal');
	one("SELECT release_locks('{p}', $token)");
	kill_manager();
	is(one("SELECT release_locks('{q}', $token)"), 't', 'the last of them');
	end_all($holder, $first, $second);
};

subtest 'a crash' => sub {
	my $token = one(q{SELECT acquire_locks('{a,b}', '10min')});
	my $bound = session($node);
	$bound->query(q{SELECT acquire_locks('{c,d}', NULL)});
	$node->stop('immediate');
	$node->start;
	wait_for_sql($node, 'SELECT count(*) = 1 FROM lock_election.manager');
	is(held($token), 'a,b', 'what was answered is there');
	is(one(q{SELECT count(*) FROM lock_election.locks}), '2', 'but not what hung on a connection');
	is(one("SELECT renew_lock('a', $token)"), '00:10:00', 'all of it');
	ok(one(q{SELECT acquire_locks('{c,d}')}) > $token, 'tokens go on');
	$bound->kill;
	end_all();
};

subtest 'deadlocks with other locks' => sub {
	my ($x, $y) = map { session($node) } 1 .. 2;

	# y waits for a alone, but behind x, who waits for b as well: that is y's
	$y->query(q{SELECT acquire_lock('b', NULL)});
	$x->async(q{SELECT acquire_locks('{a,b}')});
	wait_for_waiters(2);
	$y->async(q{SELECT acquire_lock('a')});
	$y->wait;
	like($y->error, qr/40P01/, 'a lock that is kept free for one who waits for us');
	my ($px, $py) = ($x->pid, $y->pid);
	like($y->error, qr/Process $py waits for lock "a"; blocked by process $px\.\s+Process $px waits for lock "b"; blocked by process $py\./,
		'the cycle is told');
	$y->query(q{SELECT release_lock('b')});
	ok($x->wait > 0, 'the other goes on');
	end_all($x, $y);
};

subtest 'rights and arguments' => sub {
	my $s;
	one('CREATE ROLE other LOGIN');
	$s = session($node, user => 'other');
	my $token = one(q{SELECT acquire_locks('{a,b}')});
	$s->query("SELECT release_locks('{a,b}', $token)");
	like($s->error, qr/42501/, 'another role may not');
	$s->query("BEGIN; SELECT release_locks('{a,b}', $token)");
	like($s->error, qr/42501/, 'in no way');
	$s->query('ROLLBACK');
	is(held($token), 'a,b', 'nor has it');

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
	is($s->query(q{SELECT release_locks('{a}', NULL)}), 'f', 'no token holds nothing');
	one(q{SELECT acquire_permit('p', 2)});
	$s->query(q{SELECT acquire_locks('{n,p}')});
	like($s->error, qr/22023: "p" is in use in another way/, 'the name that is wrong is told');
	end_all($s);
};

subtest 'a wait that is broken off' => sub {
	my $holder = session($node);
	my $s = session($node);

	$holder->query("SELECT acquire_locks($many)");
	foreach my $in ('', 'in a block that catches it')
	{
		my $call = "SELECT acquire_locks($many, wait => NULL)";
		$s->query("SET lock_timeout = '50ms'");
		$s->query($in ? "DO \$\$ BEGIN PERFORM 1 FROM ($call) AS w; EXCEPTION WHEN OTHERS THEN NULL; END \$\$" : $call);
		$in ? is($s->error, '', $in) : like($s->error, qr/55P03/, 'a wait times out');
		is($s->query(q{SELECT is_held('x', 1)}), 'f', 'the session goes on');
		is($s->error, '', 'without an error');
	}
	end_all($s, $holder);
};

# Each asks again and again whether it waits for itself, and each of its locks leads to all who are before it.  Of a machine
# that is busy nothing can be said by the clock.
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
	cmp_ok($longest, '<', 0.5, 'whose waiters keep nobody else waiting');

	# a tenth, and what the requests take
	my $used = cpu_time($manager);
	$s->query('SELECT pg_sleep(4)');
	$used = cpu_time($manager) - $used;
	note(sprintf '%.2f s of 4', $used);
	cmp_ok($used, '<', 0.25 * 4, 'and take little of the time of the manager');
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
	cmp_ok($used, '<', 2, 'a commit that releases very many does not take long');
	end_all($s);
};

done_testing();
