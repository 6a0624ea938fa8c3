# Many independent locks in one call: limits and tokens of other roles, names that do not fit into a mailbox, and what
# is held after a crash, an error or a cancel between any two of them.
# Promises: M, D, L, G
# Needs: faults
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', faults => 1);


# Returns the SQL of an array of n names with that many bytes each.
sub names
{
	my ($prefix, $n, $bytes) = @_;
	return sprintf q{(SELECT array_agg(rpad('%s' || i, %d, 'x')) FROM generate_series(1, %d) AS i)}, $prefix, $bytes // 12, $n;
}

# Returns whether the statement fails.
sub fails
{
	my ($s, $sql) = @_;
	$s->query($sql);
	return $s->error =~ /^(?:psql\S* )?(?:ERROR|FATAL)/m;
}

sub held { return one('SELECT count(*) FROM lock_election.locks WHERE mode IS NOT NULL'); }

# Checks that exactly the returned tokens are held.
sub same_as_told
{
	my ($what, @tokens) = @_;
	is(one(q{SELECT coalesce(string_agg(token::text, ',' ORDER BY token), '') FROM lock_election.locks WHERE mode IS NOT NULL}),
		join(',', sort { $a <=> $b } @tokens), $what);
	return;
}

sub end_all
{
	one(q{SELECT force_release_role('holder'), force_release_role(current_user::regrole)});
	nothing_left($node);
	return;
}

one('CREATE ROLE holder LOGIN');

subtest 'limits apply to all names together' => sub {
	my $s = session($node, user => 'holder');

	one('ALTER SYSTEM SET lock_election.max_locks_per_role = 5; SELECT pg_reload_conf()');
	wait_for_sql($node, 'SHOW lock_election.max_locks_per_role', '5');
	is($s->query('SELECT count(token) FROM try_acquire_each(' . names('a', 3) . ')'), '3',
		'three of five locks are granted');
	wait_until(sub { fails($s, 'SELECT count(token) FROM try_acquire_each(' . names('b', 3) . ')') });
	like($s->error, qr/too many locks/, 'three more locks exceed the limit');
	is(held(), '3', 'none of the rejected locks is held');
	ok(fails($s, 'SELECT count(token) FROM enqueue_each(' . names('b', 3) . ')'), 'three places exceed the limit, too');
	is(one('SELECT count(*) FROM lock_election.waiters'), '0', 'none of the rejected places is queued');
	is($s->query('SELECT count(token) FROM try_acquire_each(' . names('b', 2) . ')'), '2',
		'two more locks do not exceed the limit');
	is($s->query('SELECT count(token) FROM try_acquire_each(' . names('a', 3) . q{, owner => 'x')}), '0',
		'names that are not granted do not count');

	one('ALTER SYSTEM RESET lock_election.max_locks_per_role; ALTER SYSTEM SET lock_election.max_waiters_per_lock = 1; SELECT pg_reload_conf()');
	wait_for_sql($node, 'SHOW lock_election.max_waiters_per_lock', '1');
	is($s->query(q{SELECT granted FROM enqueue_lock(rpad('a1', 12, 'x'))}), 'f', 'one place is queued');
	ok(fails($s, 'SELECT * FROM enqueue_each(' . names('a', 3) . ')'), 'enqueue_each() fails if one queue is full');
	like($s->error, qr/too many requests wait for lock "a1x/, 'the error names the full queue');
	is(one('SELECT count(*) FROM lock_election.waiters'), '1', 'no other queue has a new place');
	one('ALTER SYSTEM RESET lock_election.max_waiters_per_lock; SELECT pg_reload_conf()');
	wait_for_sql($node, 'SHOW lock_election.max_waiters_per_lock', '1000');
	$s->quit;
	end_all();
};

subtest 'a lease that has ended' => sub {
	my $s = session($node);
	my $lease = $s->query('SELECT grant_lease()');

	$s->query("SELECT revoke_lease($lease)");
	ok(fails($s, "SELECT * FROM try_acquire_each('{a,b}', lease => $lease)"),
		'try_acquire_each() on an ended lease fails');
	like($s->error, qr/LE001: lease $lease does not exist, or has ended\n.*revoked/,
		'the error says how the lease ended');
	$s->query("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT acquire_lock('a', owner => 'x')");
	$s->query("SELECT count(token) FROM try_acquire_each('{a,b}')");
	like($s->error, qr/older than the grant of lock "b"/, 'the warning names the lock that was granted');
	$s->query('ROLLBACK');
	$s->query("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT acquire_lock('a')");
	is($s->query("SELECT count(token) FROM try_acquire_each('{a,b,c}')"), '3',
		'one name held by the transaction, and others, are granted');
	like($s->error, qr/\A[^\n]*older than the grant of lock "b"\n(?:(?!WARNING).)*\z/s, 'one warning names the first lock that was granted');
	$s->query('ROLLBACK');
	$s->quit;
	end_all();
};

subtest 'a token of another role' => sub {
	my $s = session($node, user => 'holder');
	my $mine = $s->query(q{SELECT array_agg(token) FROM try_acquire_each('{mine,also}')});
	my $other = one(q{SELECT acquire_lock('other')});

	foreach my $begin (0, 1)
	{
		$s->query('BEGIN') if $begin;
		my ($t1, $t2) = $mine =~ /(\d+)/g;
		ok(fails($s, "SELECT * FROM release_each('{mine,other,also}', '{$t1,$other,$t2}')"),
			'release_each() with a token of another role fails');
		like($s->error, qr/lock "other" is held by another role/, 'the error names the lock');
		$s->query('ROLLBACK') if $begin;
		is(held(), '3', 'nothing is released');
	}
	$s->quit;
	end_all();
};

subtest 'names that do not fit into a mailbox' => sub {
	my $s = session($node);

	foreach my $n (1, 17, 18, 19, 20, 130, 131, 132, 133, 1000)
	{
		my $bytes = $n < 25 ? 255 : $n < 500 ? 9 : 200;
		my $names = names('n', $n, $bytes);

		is($s->query("SELECT count(*) || ' ' || count(DISTINCT token) FROM try_acquire_each($names)"), "$n $n",
			"$n names of $bytes bytes are granted");
		is($s->query("SELECT count(*) FROM try_acquire_each($names, owner => 'other') WHERE token IS NULL"), $n, "$n names are not granted to another owner");
		is($s->query("SELECT count(*) FILTER (WHERE released) FROM (SELECT array_agg(name) AS names, array_agg(token) AS tokens FROM "
				. "lock_election.locks) AS l, release_each(l.names, l.tokens)"), $n, "$n names are released");
	}
	$s->quit;
	end_all();
};

subtest 'a connection that ends' => sub {
	my $s = session($node);

	$s->query('SELECT count(*) FROM try_acquire_each(' . names('bound', 30) . ', ttl => NULL)');
	$s->query('BEGIN; SELECT count(*) FROM try_acquire_each(' . names('open', 30) . ')');
	is(held(), '60', 'bound locks and uncommitted locks are held');
	$s->kill;
	wait_for_sql($node, 'SELECT count(*) FROM lock_election.locks', '0');
	nothing_left($node);
};

# Whatever fails between two names, the reply and the table agree.
foreach my $point ('batch-applied', 'store-row', 'batch-written', 'request-answered')
{
	foreach my $action ('error', 'kill')
	{
		subtest "$action at $point" => sub {
			my ($s, $before) = (session($node), session($node));
			my $rpt = 'SELECT token FROM try_acquire_each(' . names('f', 20) . ')';
			# Longer than the TTL of the others, which may be held again until the end of their TTL, depending on what
			# was flushed before the kill.
			my $kept = $before->query(q{SELECT acquire_lock('before', '10 min')});
			my ($answer, $cause);

			# The fault applies only to the session's own request, or the manager's batch.
			one(sprintf q{SELECT fault_set('%s', '%s', skip => %d, pid => %s)}, $point, $action, $point eq 'store-row' ? 7 : 0,
				$point =~ /^request/ ? $s->query('SELECT pg_backend_pid()') : '(SELECT pid FROM lock_election.manager)');
			$answer = $s->query($rpt);
			$cause = $s->error;
			wait_until(sub { eval { one('SELECT fault_clear()'); 1 } });
			wait_until(sub { eval { held(); 1 } });
			if ($cause eq '')
			{
				my @tokens = split /\n/, $answer;
				is(scalar(@tokens), 20, 'the call returned 20 tokens');
				same_as_told('the returned tokens are held', $kept, @tokens);
			}
			else
			{
				note($cause);
				wait_for_sql($node, 'SELECT count(*) FROM lock_election.locks', '1');
				same_as_told('after an error, only the earlier lock is held', $kept);
			}
			$_->kill foreach $s, $before;
			end_all();
		};
	}
}

# Each call with twenty names: the setup, the call, and the numbers of locks that may be held after a failure.
my %calls = (
	'try_acquire_each' => [ '', 'SELECT count(token) FROM try_acquire_each(' . names('g', 20) . ')', 0 ],
	'enqueue_each' => [ q{SELECT acquire_lock('g' || i, owner => 'other') FROM generate_series(1, 10) AS i}, q{SELECT count(token) FROM enqueue_each(ARRAY(SELECT 'g' || i FROM generate_series(1, 20) AS i))}, 10 ],
	'release_each' => [ 'SELECT array_agg(token) FROM try_acquire_each(' . names('g', 20) . ')', q{SELECT * FROM release_each('NAMES', 'TOKENS')}, 0, 20 ],
	'release_each in a transaction' => [ 'SELECT array_agg(token) FROM try_acquire_each(' . names('g', 20) . ')', q{BEGIN; SELECT count(*) FROM release_each('NAMES', 'TOKENS')}, 20 ]);
my $twenty = one('SELECT ' . names('g', 20));

sub prepare_call
{
	my ($call, $s) = @_;
	my ($before, $sql) = @{ $calls{$call} };
	my $tokens = $before ne '' ? $s->query($before) : '';

	return $sql =~ s/NAMES/$twenty/r =~ s/TOKENS/$tokens/r;
}

# Checks that all names or none are held at any time, and that the right number is held in the end.
sub left_by
{
	my ($call, $test_name) = @_;
	my (undef, undef, @left) = @{ $calls{$call} };
	my $now = held();

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(wait_until(sub { $now = held(); grep { $_ eq $now } @left }), $test_name) or diag("$now locks are held");
	is(one('SELECT count(*) FROM lock_election.waiters'), '0', 'no place is left');
	return;
}

foreach my $call (sort keys %calls)
{
	subtest "$call with an error in the session" => sub {
		foreach my $point ('request-posted', 'request-answered', 'request-done')
		{
			foreach my $action ('error', 'fatal', 'pg_cancel_backend', 'pg_terminate_backend')
			{
				my ($before, $s) = (session($node), session($node));
				my $sql = prepare_call($call, $before);
				my $pid = $s->pid;

				one(sprintf q{SELECT fault_set('%s', '%s', pid => %s)}, $point, $action =~ /^pg/ ? 'wait' : $action, $pid);
				$s->async($sql);
				if ($action =~ /^pg/)
				{
					wait_for_sql($node, "SELECT fault_waiting('$point') <> 0");
					one("SELECT $action($pid), fault_release('$point')");
				}
				$s->wait;
				like($s->error, qr/ERROR|FATAL/, "$action at $point");
				left_by($call, 'all names or none are held after $action at $point');
				one('SELECT fault_clear()');
				$_->kill foreach $s, $before;
				end_all();
			}
		}
	};
	next if $call eq 'try_acquire_each';    # tested above
	subtest "a crash in the middle of $call" => sub {
		foreach my $point ('batch-applied', 'batch-written')
		{
			my ($before, $s) = (session($node), session($node));
			my $sql = prepare_call($call, $before);
			my $writes = $call !~ /transaction/;

			one("SELECT fault_set('$point', 'kill', pid => (SELECT pid FROM lock_election.manager))");

			# A delayed write of the manager may also reach this point.
			eval { $s->query($writes ? $sql : "$sql; COMMIT"); 1 } || $@ =~ /Broken pipe/ || die $@;
			wait_until(sub { eval { one('SELECT fault_clear()'); held(); 1 } });
			my $held = held();
			ok($held eq '0' || $held eq '20' || ($call eq 'enqueue_each' && $held eq '10'), "all names or none are held after a crash at $point") or diag("$held locks are held");
			$_->kill foreach $s, $before;
			end_all();
		}
	};
}

subtest 'a manager that is stopped' => sub {
	my $s = session($node);
	my $pid = one('SELECT pid FROM lock_election.manager');
	my $many = names('m', 1000, 200);

	kill 'STOP', $pid;
	$s->query(q{SET statement_timeout = '300ms'});
	ok(fails($s, "SELECT count(token) FROM enqueue_each($many)"), 'statement_timeout ends the call');
	like($s->error, qr/57014/, 'the error is 57014');
	kill 'CONT', $pid;
	is($s->query(q{SET statement_timeout = 0; SELECT count(token) FROM try_acquire_each('{m1,m2}')}), '2', 'the session still works');
	is(held(), '2', 'none of the 1000 names is held');
	$s->quit;
	end_all();
};

subtest 'changes of the session between the calls' => sub {
	my ($s, $other) = (session($node), session($node));
	my $tokens = $s->query(q{SET ROLE holder; SELECT array_agg(token) FROM try_acquire_each('{s1,s2}')});

	# Roles.
	one('CREATE ROLE second');
	ok(fails($s, "SET ROLE second; SELECT * FROM release_each('{s1,s2}', '$tokens')"),
		'another role cannot release the locks');
	like($s->error, qr/42501/, 'the error is 42501');
	$s->query("BEGIN; SET LOCAL ROLE holder; SELECT * FROM release_each('{s1,s2}', '$tokens'); SET LOCAL ROLE second; COMMIT");
	is($s->error, '', 'a transaction that changes its role commits');
	is(held(), '0', 'the commit releases the locks of the first role');
	$s->query('RESET ROLE');

	# DISCARD ALL.
	$s->query(q{SELECT count(*) FROM try_acquire_each('{d1,d2,d3}', ttl => NULL)});
	$tokens = $s->query(q{SELECT array_agg(token) FROM try_acquire_each('{d4,d5}')});
	$s->query('DISCARD ALL');
	is(one(q{SELECT string_agg(name, ',' ORDER BY name) FROM lock_election.locks WHERE mode IS NOT NULL}), 'd4,d5',
		'DISCARD ALL releases only bound locks');

	# Two-phase commit.
	$s->query("BEGIN; SELECT * FROM release_each('{d4,d5}', '$tokens'); SELECT * FROM try_acquire_each('{p1,p2}'); PREPARE TRANSACTION 'x'");
	like($s->error, qr/0A000/, 'a transaction that acquires and releases cannot be prepared');
	wait_for_sql($node, q{SELECT string_agg(name, ',' ORDER BY name) FROM lock_election.locks WHERE mode IS NOT NULL}, 'd4,d5');

	# A lease that ends before the reply is read.
	my $lease = $s->query(q{SELECT grant_lease('1 h')});
	one(sprintf q{SELECT fault_set('request-answered', 'wait', pid => %s)}, $s->pid);
	$s->async("SELECT count(token) FROM try_acquire_each('{e1,e2,e3}', lease => $lease)");
	wait_for_sql($node, q{SELECT fault_waiting('request-answered') <> 0});
	one("SELECT revoke_lease($lease), fault_release('request-answered')");
	$s->wait;
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name LIKE 'e_'}), '0',
		'locks on a revoked lease are released');
	ok(fails($s, "SELECT * FROM enqueue_each('{e1,e2,e3}', lease => $lease)"),
		'enqueue_each() on a revoked lease fails');

	# A deadlock: each session has a place for a lock that the other one holds.
	$s->query(q{SELECT count(*) FROM try_acquire_each('{x1,x2}', ttl => NULL)});
	$other->query(q{SELECT count(*) FROM try_acquire_each('{y1,y2}', ttl => NULL)});
	my $place = $s->query(q{SELECT token FROM enqueue_each('{y1}')});
	my $its = $other->query(q{SELECT token FROM enqueue_each('{x2}')});
	$s->async("SELECT await_lock('y1', $place, wait => NULL)");
	$other->async("SELECT await_lock('x2', $its, wait => NULL)");
	wait_until(sub { $s->ready || $other->ready });
	my ($first, $second) = $s->ready ? ($s, $other) : ($other, $s);
	$first->wait;
	like($first->error, qr/40P01/, 'the deadlock is detected');
	$first->kill;
	is($second->wait, 't', 'the other session is granted the lock');
	$_->kill foreach $s, $other;
	end_all();
};

subtest 'a crash after the reply' => sub {
	my $s = session($node);
	my @tokens = split /\n/, $s->query('SELECT token FROM try_acquire_each(' . names('c', 100) . ')');

	$node->stop('immediate');
	$node->start;
	same_as_told('all locks are held after the crash', @tokens);
	is(one(q{SELECT count(*) FILTER (WHERE released) FROM (SELECT array_agg(name) AS names, array_agg(token) AS tokens FROM }
			. q{lock_election.locks) AS l, release_each(l.names, l.tokens)}), '100',
				'the locks are released by their tokens');
	end_all();
};

# The release does not depend on the write: it takes effect immediately, and is written later.
subtest 'a release whose row cannot be written yet' => sub {
	my $s = session($node);
	my $tokens = $s->query('SELECT array_agg(token) FROM try_acquire_each(' . names('r', 20) . ')');
	my $all = one('SELECT ' . names('r', 20));
	my $stored = q{SELECT count(*) FROM _lock_election.slot WHERE token <> 0};

	# A statement of its own, so that the release takes effect immediately.
	one(q{SELECT fault_set('batch-begun', 'error', times => 0, pid => (SELECT pid FROM lock_election.manager))});
	is($s->query("SELECT count(*) FROM (SELECT * FROM release_each('$all', '$tokens') OFFSET 0) AS r WHERE released"), '20', 'all locks are released');
	ok(wait_until(sub { one(q{SELECT fault_hits('batch-begun')}) > 2 }),
		'the manager tries to write the release more than once');
	is(one($stored), '20', 'no row is written yet');
	one('SELECT fault_clear()');
	ok(wait_until(sub { one($stored) eq '0' }), 'the rows are written when this is possible');
	is(held(), '0', 'no lock is held');
	$s->quit;
	end_all();
};

subtest 'with durable_release, a rejected release changes nothing' => sub {
	my $s = session($node);
	my $tokens = $s->query('SELECT array_agg(token) FROM try_acquire_each(' . names('r', 20) . ')');
	my $all = one('SELECT ' . names('r', 20));

	$s->query('SET lock_election.durable_release = on');
	one(q{SELECT fault_set('batch-begun', 'error', times => 100, pid => (SELECT pid FROM lock_election.manager))});
	ok(fails($s, "SELECT * FROM release_each('$all', '$tokens')"), 'release_each() fails');
	one('SELECT fault_clear()');
	is(held(), '20', 'all locks are still held');
	wait_until(sub { !fails($s, 'SELECT renew_lock(rpad(\'r1\', 12, \'x\'), 1)') });
	is($s->query("SELECT count(*) FROM release_each('$all', '$tokens') WHERE released"), '20',
		'all locks are released when rows can be written');
	$s->quit;
	end_all();
};

$node->stop;
done_testing();
