# Many locks in one call, each for itself: what a limit or another role's token does to all of them, names that do not fit
# into a mailbox, and what is held after a crash, an error or a cancel between any two of them.
# Promises: M, D, L
# Needs: faults
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', faults => 1);


# SQL of an array of n names, of that many bytes.
sub names
{
	my ($prefix, $n, $bytes) = @_;
	return sprintf q{(SELECT array_agg(rpad('%s' || i, %d, 'x')) FROM generate_series(1, %d) AS i)}, $prefix, $bytes // 12, $n;
}

# The session's statement is an error.
sub fails
{
	my ($s, $sql) = @_;
	$s->query($sql);
	return $s->error =~ /^(?:psql\S* )?(?:ERROR|FATAL)/m;
}

sub held { return one('SELECT count(*) FROM lock_election.locks WHERE mode IS NOT NULL'); }

# What the table has is what the session was told: as many tokens as locks that are held, the same ones.
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

subtest 'limits are those of all together' => sub {
	my $s = session($node, user => 'holder');

	one('ALTER SYSTEM SET lock_election.max_locks_per_role = 5; SELECT pg_reload_conf()');
	wait_for_sql($node, 'SHOW lock_election.max_locks_per_role', '5');
	is($s->query('SELECT count(token) FROM try_acquire_each(' . names('a', 3) . ')'), '3', 'three of five');
	wait_until(sub { fails($s, 'SELECT count(token) FROM try_acquire_each(' . names('b', 3) . ')') });
	like($s->error, qr/too many locks/, 'three more are too many');
	is(held(), '3', 'and none of them is held');
	ok(fails($s, 'SELECT count(token) FROM enqueue_each(' . names('b', 3) . ')'), 'nor are three places');
	is(one('SELECT count(*) FROM lock_election.waiters'), '0', 'and none is taken');
	is($s->query('SELECT count(token) FROM try_acquire_each(' . names('b', 2) . ')'), '2', 'two are not');
	is($s->query('SELECT count(token) FROM try_acquire_each(' . names('a', 3) . q{, owner => 'x')}), '0', 'what is not granted does not count');

	one('ALTER SYSTEM RESET lock_election.max_locks_per_role; ALTER SYSTEM SET lock_election.max_waiters_per_lock = 1; SELECT pg_reload_conf()');
	wait_for_sql($node, 'SHOW lock_election.max_waiters_per_lock', '1');
	is($s->query(q{SELECT granted FROM enqueue_lock(rpad('a1', 12, 'x'))}), 'f', 'one place');
	ok(fails($s, 'SELECT * FROM enqueue_each(' . names('a', 3) . ')'), 'a queue that is full');
	like($s->error, qr/too many requests wait for lock "a1x/, 'is named');
	is(one('SELECT count(*) FROM lock_election.waiters'), '1', 'and no queue has another place');
	one('ALTER SYSTEM RESET lock_election.max_waiters_per_lock; SELECT pg_reload_conf()');
	wait_for_sql($node, 'SHOW lock_election.max_waiters_per_lock', '1000');
	$s->quit;
	end_all();
};

subtest 'a lease that has ended' => sub {
	my $s = session($node);
	my $lease = $s->query('SELECT grant_lease()');

	$s->query("SELECT revoke_lease($lease)");
	ok(fails($s, "SELECT * FROM try_acquire_each('{a,b}', lease => $lease)"), 'is an error');
	like($s->error, qr/LE001: lease $lease does not exist, or has ended\n.*revoked/, 'which says how it ended');
	$s->query("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT acquire_lock('a', owner => 'x')");
	$s->query("SELECT count(token) FROM try_acquire_each('{a,b}')");
	like($s->error, qr/older than the grant of lock "b"/, 'a warning names the one that was granted');
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
		ok(fails($s, "SELECT * FROM release_each('{mine,other,also}', '{$t1,$other,$t2}')"), 'an error');
		like($s->error, qr/lock "other" is held by another role/, 'which names the lock');
		$s->query('ROLLBACK') if $begin;
		is(held(), '3', 'and nothing is released');
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

		is($s->query("SELECT count(*) || ' ' || count(DISTINCT token) FROM try_acquire_each($names)"), "$n $n", "$n names of $bytes bytes");
		is($s->query("SELECT count(*) FROM try_acquire_each($names, owner => 'other') WHERE token IS NULL"), $n, 'are held');
		is($s->query("SELECT count(*) FILTER (WHERE released) FROM (SELECT array_agg(name) AS names, array_agg(token) AS tokens FROM "
				. "lock_election.locks) AS l, release_each(l.names, l.tokens)"), $n, 'are released');
	}
	$s->quit;
	end_all();
};

subtest 'a connection that ends' => sub {
	my $s = session($node);

	$s->query('SELECT count(*) FROM try_acquire_each(' . names('bound', 30) . ', ttl => NULL)');
	$s->query('BEGIN; SELECT count(*) FROM try_acquire_each(' . names('open', 30) . ')');
	is(held(), '60', 'bound to it, and of an open transaction');
	$s->kill;
	wait_for_sql($node, 'SELECT count(*) FROM lock_election.locks', '0');
	nothing_left($node);
};

# Whatever happens between two names, the caller's answer and the table agree.
foreach my $point ('batch-applied', 'store-row', 'batch-written', 'request-answered')
{
	foreach my $action ('error', 'kill')
	{
		subtest "$action at $point" => sub {
			my ($s, $before) = (session($node), session($node));
			my $rpt = 'SELECT token FROM try_acquire_each(' . names('f', 20) . ')';
			my $kept = $before->query(q{SELECT acquire_lock('before')});
			my ($answer, $cause);

			# only the session's own request, or the manager's batch
			one(sprintf q{SELECT fault_set('%s', '%s', skip => %d, pid => %s)}, $point, $action, $point eq 'store-row' ? 7 : 0,
				$point =~ /^request/ ? $s->query('SELECT pg_backend_pid()') : '(SELECT pid FROM lock_election.manager)');
			$answer = $s->query($rpt);
			$cause = $s->error;
			wait_until(sub { eval { one('SELECT fault_clear()'); 1 } });
			wait_until(sub { eval { held(); 1 } });
			if ($cause eq '')
			{
				my @tokens = split /\n/, $answer;
				is(scalar(@tokens), 20, 'it was answered');
				same_as_told('and what was told is held', $kept, @tokens);
			}
			else
			{
				note($cause);
				wait_for_sql($node, 'SELECT count(*) FROM lock_election.locks', '1');
				same_as_told('it was refused: nothing is held but what was', $kept);
			}
			$_->kill foreach $s, $before;
			end_all();
		};
	}
}

subtest 'a crash after the answer' => sub {
	my $s = session($node);
	my @tokens = split /\n/, $s->query('SELECT token FROM try_acquire_each(' . names('c', 100) . ')');

	$node->stop('immediate');
	$node->start;
	same_as_told('all are held', @tokens);
	is(one(q{SELECT count(*) FILTER (WHERE released) FROM (SELECT array_agg(name) AS names, array_agg(token) AS tokens FROM }
			. q{lock_election.locks) AS l, release_each(l.names, l.tokens)}), '100', 'and released by their tokens');
	end_all();
};

subtest 'a release that is refused is as if it was not asked for' => sub {
	my $s = session($node);
	my $tokens = $s->query('SELECT array_agg(token) FROM try_acquire_each(' . names('r', 20) . ')');

	my $all = one('SELECT ' . names('r', 20));

	# a statement of its own, so that it is made at once
	one(q{SELECT fault_set('batch-begun', 'error', times => 100, pid => (SELECT pid FROM lock_election.manager))});
	ok(fails($s, "SELECT * FROM release_each('$all', '$tokens')"), 'an error');
	one('SELECT fault_clear()');
	is(held(), '20', 'all are held');
	wait_until(sub { !fails($s, 'SELECT renew_lock(rpad(\'r1\', 12, \'x\'), 1)') });
	is($s->query("SELECT count(*) FROM release_each('$all', '$tokens') WHERE released"), '20', 'and released now');
	$s->quit;
	end_all();
};

$node->stop;
done_testing();
