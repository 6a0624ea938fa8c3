# Named leases and permits: locks on a lease end with it, and a name has at most as many holders as permits.
# Promises: M
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

my $node = new_node('main', conf => "autovacuum = off\n");
my ($a, $b, $c, $d) = map { session($node) } 1 .. 4;

sub token_like
{
	my ($answer, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return like($answer // 'no answer', qr/^\d+$/, $test_name);
}

# Ends all locks and leases, and checks that no lock, waiter or lease is left and, after free rows have been deleted, no
# row.
sub clean
{
	my ($dbname) = @_;
	$dbname //= 'postgres';
	one(q{SELECT force_release_lock(name) FROM lock_election.locks}, $dbname);
	one(q{SELECT revoke_lease(lease) FROM lock_election.leases}, $dbname);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	nothing_left($node, undef, dbname => $dbname);
	return is(one(q{SELECT (SELECT count(*) FROM lock_election.leases) + (SELECT count(*) FROM _lock_election.lease)}, $dbname),
		0, 'no lease is left');
}

subtest 'keep_alive() renews all locks of a lease, and they end together' => sub {
	my $ttl = 3;
	my $l = $a->query("SELECT grant_lease('$ttl s')");
	my $end = time + 1.5 * $ttl;
	my $sent = 0;

	$a->query("SELECT acquire_lock('x$_', lease => $l) FROM generate_series(1, 3)") foreach 1 .. 3;
	$a->query("SELECT acquire_permit('p', 2, lease => $l)");
	$b->query("SELECT acquire_lock('s', mode => 'shared', lease => $l)");
	is(one("SELECT locks FROM lock_election.leases WHERE lease = $l"), 5,
		'locks, shared locks and permits are on the lease');
	while (time < $end)
	{
		my $now = time;
		last if $a->query("SELECT keep_alive($l)") ne "00:00:0$ttl";
		$sent = $now;
		sleep(0.2);
	}
	cmp_ok($sent, '>', $end - 1, 'the lease is kept alive beyond its TTL');
	is(one("SELECT locks FROM lock_election.leases WHERE lease = $l"), 5, 'all locks are still on the lease');
	$a->query("SELECT keep_alive($l)");
	is(one(q{SELECT string_agg(DISTINCT name, ' ' ORDER BY name) FROM lock_election.locks}), 'p s x1 x2 x3',
		'the locks are held');

	# Waiters of each kind.
	my %waiter = ($b => q{SELECT acquire_lock('x1')}, $c => q{SELECT acquire_lock('s')}, $d => q{SELECT acquire_lock('x2')});
	$_->async($waiter{$_}) foreach $b, $c, $d;
	# On a busy machine, each check takes a while.
	$a->query("SELECT keep_alive($l)") && wait_for_waiters(1, $_) foreach 'x1', 's', 'x2';
	$sent = time;
	is($a->query("SELECT keep_alive($l)"), "00:00:0$ttl", 'the lease is renewed once more');
	my $answered = time;
	my %granted;
	wait_until(
		sub {
			foreach ($b, $c, $d) { $granted{$_} //= time if $_->ready }
			return keys %granted == 3;
		});
	token_like($_->wait, 'a waiter is granted the lock') foreach $b, $c, $d;
	cmp_ok($granted{$_} - $sent, '>=', $ttl, 'no waiter is granted the lock before the TTL') foreach $b, $c, $d;
	cmp_ok($granted{$_} - $answered, '<', $ttl + 30,
		'the waiters are granted the lock soon after the TTL') foreach $b, $c, $d;
	is(one(q{SELECT string_agg(name, ' ' ORDER BY name) FROM lock_election.locks}), 's x1 x2',
		'all locks of the lease ended together');
	is($a->query("SELECT keep_alive($l)") . $a->query("SELECT lease_time_to_live($l)") . $a->query("SELECT revoke_lease($l)"), 'f', 'the lease does not exist any more');
	$a->query("SELECT acquire_lock('x3', lease => $l)");
	like($a->error, qr/ERROR:  LE001: lease $l does not exist, or has ended/,
		'a lock cannot be acquired on an ended lease');
	clean();
};

subtest 'the end of the lease of a waiter' => sub {
	my $l = $a->query(q{SELECT grant_lease('3 s')});
	my $l2 = $a->query(q{SELECT grant_lease('1 h')});
	my $token = $a->query(q{SELECT acquire_lock('x', '1 h')});

	$a->query(q{SELECT acquire_permit('p', 1, '1 h')});
	$b->async("SELECT acquire_lock('x', lease => $l)");
	$c->async("SELECT acquire_lock('x', lease => $l2)");
	$d->async("SELECT acquire_permit('p', 1, lease => $l2)");
	wait_for_waiters(2, 'x');
	$a->query("SELECT keep_alive($l)");
	wait_for_waiters(1, 'p');
	is(one("SELECT locks, waiting FROM lock_election.leases WHERE lease = $l2"), '0|2',
		'leases: two waiting calls are counted');
	is($b->wait, '', 'a wait ends when its lease expires');
	like($b->error, qr/ERROR:  LE001: the wait for lock "x" was ended/, 'the wait on the expired lease raises LE001');
	is($a->query("SELECT revoke_lease($l2)"), 't', 'the second lease is revoked');
	is($c->wait . $d->wait, '', 'waits end when their lease is revoked');
	like($_->error, qr/ERROR:  LE001: /, 'a wait on the revoked lease raises LE001') foreach $c, $d;
	is($a->query("SELECT is_held('x', $token)"), 't', 'the holder on another lease still holds the lock');
	$b->async(q{SELECT acquire_lock('x')});
	wait_for_waiters(1, 'x');
	$a->query('SELECT force_release_role(current_role::regrole)');
	is($b->wait, '', 'force_release_role() ends a wait');
	like($b->error, qr/ERROR:  LE001: the wait for lock "x" was ended\nDETAIL:  force_release_role\(\) ended it\./, 'the detail names force_release_role(), not a lease');
	clean();
};

subtest 'acquire again on the same lease' => sub {
	my $l = $a->query(q{SELECT grant_lease('1 h')});
	my $holds = q{SELECT string_agg(holds::text, ' ') FROM lock_election.locks WHERE name = 'x'};
	my $acquire = "SELECT acquire_lock('x', lease => $l)";
	my $token = $a->query($acquire);

	is($b->query($acquire), $token, 'another session on the same lease gets the same token');
	is($c->query("BEGIN; $acquire; $acquire"), "$token\n$token",
		'two acquires in a transaction on the same lease get the same token');
	is(one($holds), 1, 'acquires on a lease are not counted');
	$c->query('ROLLBACK');
	is(one($holds), 1, 'the rollback of the transaction changes nothing');
	is($b->query("SELECT is_held('x', $token)"), 't', 'the lock is held after the rollback');
	is($b->query("BEGIN; SELECT release_lock('x', $token); SELECT release_lock('x', $token); COMMIT"), "t\nf",
		'one release ends the lock');
	is(one($holds), '', 'the lock is released for all sessions');

	# Two transactions acquire on the same lease. The lock is held if one of them commits.
	foreach my $end ('ROLLBACK', 'COMMIT')
	{
		$token = $a->query("BEGIN; $acquire");
		is($b->query("BEGIN; $acquire"), $token, 'two open transactions get the same token');
		is(one($holds), 1, 'the acquires of both transactions are not counted');
		$a->query('ROLLBACK');
		is($c->query("SELECT is_held('x', $token)"), 't', 'the lock is held after the first rollback');
		$b->query($end);
		is($c->query("SELECT is_held('x', $token)"), $end eq 'COMMIT' ? 't' : 'f',
			"expected state after the $end of the other transaction");
	}
	is($a->query("BEGIN; $acquire; SAVEPOINT s; $acquire; ROLLBACK TO s; COMMIT"), "$token\n$token",
		'an acquire in a rolled-back savepoint gets the same token');
	is($c->query("SELECT is_held('x', $token)"), 't', 'the lock is held after the rollback to the savepoint');

	# Acquiring again cancels a pending release.
	is($a->query("BEGIN; SELECT release_lock('x', $token); $acquire; COMMIT"), "t\n$token",
		'a lock is released and acquired again in a transaction');
	is($c->query("SELECT is_held('x', $token)"), 't', 'the lock is held after the release was cancelled');

	# Waiters on the same lease are granted the lock together.
	is($a->query("SELECT release_lock('x', $token)"), 't', 'the lock is released');
	$token = $a->query(q{SELECT acquire_lock('x', '1 h')});
	foreach my $s ($b, $c)
	{
		$s->async($acquire);
		wait_for_waiters($s == $b ? 1 : 2, 'x');
	}
	$a->query("SELECT release_lock('x', $token)");
	$token = $b->wait;
	token_like($token, 'the first of two waiters on one lease is granted the lock');
	is($c->wait, $token, 'the second waiter on the lease gets the same token');
	is(one($holds), 1, 'both waiters share one hold');
	clean();
};

subtest 'revoke' => sub {
	my $l = $a->query(q{SELECT grant_lease('1 h')});
	my $token = $a->query("SELECT acquire_lock('x', lease => $l)");

	$a->query("SELECT acquire_permit('p', 1, lease => $l)");
	$b->async(q{SELECT acquire_lock('x')});
	$c->async(q{SELECT acquire_permit('p', 1)});
	wait_for_waiters(1, 'x');
	wait_for_waiters(1, 'p');
	$a->query("SELECT revoke_lease($l)");
	cmp_ok($b->wait, '>', $token, 'revoking the lease hands the lock to the waiter');
	token_like($c->wait, 'revoking the lease hands the permit to the waiter');
	clean();

	# A pending release fences the lock, which is not granted to anyone before the commit.
	$l = $a->query(q{SELECT grant_lease('1 h')});
	$token = $a->query("SELECT acquire_lock('x', lease => $l)");
	$a->query("BEGIN; SELECT release_lock('x', $token)");
	$c->query("SELECT revoke_lease($l)");
	is($b->query(q{SELECT try_acquire_lock('x')}), '', 'the lock is not granted before the end of the pending release');
	$a->query('ROLLBACK');
	is($a->query("SELECT is_held('x', $token)"), 'f', 'a rollback of the release does not bring the lock back');
	token_like($b->query(q{SELECT acquire_lock('x', wait => '20 s')}), 'the lock is free after the rollback');
	clean();
};

subtest 'a lease outlives its connection' => sub {
	my $s = session($node);
	my $l = $s->query(q{SELECT grant_lease('1 h')});
	my $token = $s->query("SELECT acquire_lock('x', ttl => NULL, lease => $l)");
	my $pid = $s->pid;

	$s->quit;
	wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
	is($a->query("SELECT is_held('x', $token)"), 't', 'a lock on the lease is still held');
	is($a->query("SELECT acquire_lock('x', lease => $l)"), $token, 'another connection gets the lock on the lease');
	clean();
};

subtest 'permits' => sub {
	my @holder = map { session($node) } 1 .. 3;
	my @token = map { $_->query(q{SELECT acquire_permit('p', 3, '1 h')}) } @holder;

	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'p'}), 3, 'there are as many holders as permits');
	is(one(q{SELECT acquire_permit('p', 3, wait => '0')}), '', 'another permit is not granted');
	my $n = 0;
	foreach my $s ($a, $b, $c, $d)
	{
		$s->async(q{SELECT acquire_permit('p', 3, '1 h')});
		wait_for_waiters(++$n, 'p');
	}
	is(one("SELECT renew_lock('p', $token[1]) > '59 min'"), 't', 'a permit is renewed by its token');
	is(one("SELECT release_lock('p', $token[1])"), 't', 'a permit is released by its token');
	my $ta = $a->wait;
	token_like($ta, 'the first waiter gets a permit');
	wait_for_waiters(3, 'p');
	is(one("SELECT release_lock('p', $token[1])"), 'f', 'the released token is not valid any more');

	is(one(q{SELECT set_permits('p', 5)}), 3, 'set_permits() raises the number of permits');
	my ($tb, $tc) = ($b->wait, $c->wait);
	token_like($tb, 'the next waiter gets a permit');
	token_like($tc, 'the waiter behind it gets a permit');
	cmp_ok($tb, '<', $tc, 'waiters get permits in queue order');
	wait_for_waiters(1, 'p');

	is(one(q{SELECT set_permits('p', 2)}), 5, 'set_permits() lowers the number of permits');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'p'}), 5, 'fewer permits end no holder');
	foreach my $t ($token[0], $token[2], $ta)
	{
		one("SELECT release_lock('p', $t)");
		wait_for_waiters(1, 'p');
	}
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'p'}), 2,
		'the lower number takes effect as permits are released');
	one("SELECT release_lock('p', $tb)");
	token_like($d->wait, 'the waiter gets a permit when the number of holders is below the limit');
	is(one(q{SELECT acquire_permit('p', 2, wait => '0')}), '', 'no third permit is granted');

	# More rows than one batch can write.
	is(one(q{SELECT count(acquire_permit('many', 600, '1 h')) FROM generate_series(1, 500)}), 500,
		'500 permits are acquired');
	is(one(q{SELECT set_permits('many', 700)}), 600, 'the number of permits is changed for 500 holders');
	is(one(q{SELECT count(*) FROM _lock_election.slot WHERE name = 'many' AND permits = 700}), 500,
		'the row of each holder is written when set_permits() returns');
	clean();
	$_->quit foreach @holder;
};

subtest 'privileges of set_permits()' => sub {
	one('CREATE ROLE clerk LOGIN; CREATE ROLE watchman LOGIN IN ROLE pg_signal_backend');
	my ($clerk, $watchman) = map { session($node, user => $_) } 'clerk', 'watchman';

	one(q{SELECT acquire_permit('theirs', 3)});
	token_like($clerk->query(q{SELECT acquire_permit('theirs', 3)}), 'another role acquires a permit');
	$clerk->query(q{SELECT set_permits('theirs', 2)});
	like($clerk->error, qr/ERROR:  42501: /, 'the role of one of several holders cannot change the number');
	is($watchman->query(q{SELECT set_permits('theirs', 4)}), 3, 'a member of pg_signal_backend can change the number');
	one(q{SELECT force_release_lock('theirs')});
	token_like($clerk->query(q{SELECT acquire_permit('theirs', 3)}),
		'the role acquires a permit without other holders');
	is($clerk->query(q{SELECT set_permits('theirs', 2)}), 3, 'the role of all holders can change the number');

	# As many roles as a request has room for.
	my $hold = sub {
		my ($from, $to, $permits) = @_;
		return one("DO \$\$ BEGIN FOR i IN $from .. $to LOOP EXECUTE 'SET LOCAL ROLE many' || i; PERFORM acquire_permit('full', $permits, '1 h'); END LOOP; END \$\$");
	};
	one(q{DO $$ BEGIN FOR i IN 1 .. 1024 LOOP EXECUTE format('CREATE ROLE many%s ROLE clerk', i); END LOOP; END $$});
	$hold->(1, 1023, 2000);
	is($clerk->query(q{SELECT set_permits('full', 3000)}), 2000,
		'the number can be changed if 1023 roles hold permits');
	$hold->(1024, 1024, 3000);
	is($clerk->query(q{SELECT set_permits('full', 4000)}), '',
		'the number cannot be changed if 1024 roles hold permits');
	like($clerk->error, qr/ERROR:  54000: "full" is held by more than 1023 roles\n/,
		'the error says that there are too many roles');
	is($watchman->query(q{SELECT set_permits('full', 5000)}), 3000,
		'a member of pg_signal_backend can change the number even then');
	one(q{SELECT force_release_lock('full')});
	one(q{DO $$ BEGIN FOR i IN 1 .. 1024 LOOP EXECUTE 'DROP ROLE many' || i; END LOOP; END $$});
	clean();
	$_->quit foreach $clerk, $watchman;
	one('DROP ROLE clerk; DROP ROLE watchman');
};

# Checks that the number of permits is kept, also after it was changed.
sub check_permits
{
	my ($number) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($rc, $out, $err) = $node->psql('postgres', q{SELECT acquire_permit('p', 100)});
	return like($err, qr/"p" is in use with $number permits, not 100/, "the name has $number permits");
}

subtest 'SIGTERM of the manager' => sub {
	my $l = $a->query(q{SELECT grant_lease('1 h', owner => 'o')});
	my $dead = $a->query(q{SELECT grant_lease('1 h')});
	my $token = $a->query("SELECT acquire_lock('x', lease => $l)");
	my $permit = $a->query("SELECT acquire_permit('p', 2, lease => $l)");

	one(q{SELECT set_permits('p', 1)});
	one("SELECT revoke_lease($dead)");
	$b->async("SELECT acquire_lock('x')");
	$c->async("SELECT acquire_permit('p', 1)");
	wait_for_waiters(1, 'x');
	wait_for_waiters(1, 'p');
	replace_manager() for 1 .. 2;
	wait_for_waiters(1, 'x');
	wait_for_waiters(1, 'p');
	is(one('SELECT lease, owner, ttl, locks FROM lock_election.leases'), "$l|o|01:00:00|2",
		'the lease exists after the manager was replaced');
	is(one("SELECT is_held('x', $token), is_held('p', $permit)"), 't|t', 'lock and permit on the lease are still held');
	is(one("SELECT acquire_lock('x', lease => $l)"), $token, 'an acquire on the lease gets the same token');
	check_permits(1);
	one("SELECT revoke_lease($l)");
	token_like($_->wait, 'a waiter is granted the lock when the lease is revoked') foreach $b, $c;
	clean();

	# A lapsed lock must not be held again after the manager was replaced.
	$l = $a->query(q{SELECT grant_lease('1 h')});
	$token = $a->query("SELECT acquire_lock('x', lease => $l)");
	$a->query("BEGIN; SELECT release_lock('x', $token)");
	one("SELECT revoke_lease($l)");
	replace_manager();
	is($b->query(q{SELECT try_acquire_lock('x')}), '', 'a pending release still fences the lock with a new manager');
	$a->query('COMMIT');
	token_like($b->query(q{SELECT acquire_lock('x', wait => '20 s')}), 'the lock is free after the commit');
	clean();
	$l = $a->query(q{SELECT grant_lease('1 h')});
	$token = $a->query("SELECT acquire_lock('x', lease => $l)");
	my $token2 = $a->query(q{SELECT acquire_lock('y', '1 h')});
	$a->query("BEGIN; SELECT release_lock('x', $token); SELECT release_lock('y', $token2)");
	shorten($c, 'y', $token2, '1 s');
	one("SELECT revoke_lease($l)");
	wait_for_sql($node, "SELECT NOT is_held('y', $token2)");
	replace_manager();
	is(one("SELECT is_held('x', $token), is_held('y', $token2)"), 'f|f', 'lapsed locks are not held');
	$a->query('ROLLBACK');
	is(one("SELECT is_held('x', $token), is_held('y', $token2)"), 'f|f', 'lapsed locks are not held after a rollback');
	token_like($b->query(q{SELECT acquire_lock('x', wait => '20 s')}), 'the lapsed lock is free after the rollback');
	clean();
};

subtest 'a crash' => sub {
	my $short = $a->query(q{SELECT grant_lease('10 s')});
	my $long = $a->query(q{SELECT grant_lease('1 h')});
	my $token = $a->query("SELECT acquire_lock('x', lease => $short)");
	my $token2 = $a->query("SELECT acquire_lock('y', lease => $long)");
	my @permit = map { $a->query("SELECT acquire_permit('p', 2, '1 h')") } 1 .. 2;

	is(one(q{SELECT set_permits('p', 3)}), 2, 'the number of permits is set to three');
	sleep(1);
	my $start = time;
	$node->stop('immediate');
	$node->start;
	is(one(q{SELECT string_agg(ttl::text, ' ' ORDER BY ttl) FROM lock_election.leases}), '00:00:10 01:00:00',
		'leases exist after a crash');
	is(one("SELECT is_held('x', $token), is_held('y', $token2)"), 't|t', 'locks on leases are held after a crash');
	my $left = one("SELECT extract(epoch FROM lease_time_to_live($short))");
	cmp_ok($left, '>', 9.5 - (time - $start), 'a short lease has its full TTL after a crash');
	cmp_ok(one("SELECT extract(epoch FROM lease_time_to_live($long))"), '>', 3500,
		'a long lease has its stored time after a crash');
	check_permits(3);
	is(one("SELECT is_held('p', $permit[0]), is_held('p', $permit[1])"), 't|t', 'permits are held after a crash');
	($a, $b, $c, $d) = map { session($node) } 1 .. 4;
	token_like($a->query(q{SELECT acquire_permit('p', 3, '1 h', wait => '0')}),
		'a third permit is granted after a crash');
	is($a->query(q{SELECT acquire_permit('p', 3, wait => '0')}), '', 'a fourth permit is not granted after a crash');
	token_like($b->query(q{SELECT acquire_lock('x')}), 'the short lease expires');
	is(one("SELECT lease_time_to_live($short)"), '', 'the expired lease does not exist any more');
	clean();
};

# The launcher is stopped, so that the first request in the copy is posted before its manager starts.
subtest 'a copy of the database' => sub {
	my $launcher = one(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election launcher'});
	my ($l, $token, $copy, $locker);

	one('CREATE DATABASE original');
	one('CREATE EXTENSION lock_election', 'original');
	$l = one(q{SELECT grant_lease('1 h')}, 'original');
	$token = one("SELECT acquire_lock('x', lease => $l)", 'original');
	one("SELECT acquire_lock('own', '1 h')", 'original');
	one("SELECT acquire_permit('p', 2, lease => $l)", 'original');
	one(q{SELECT campaign('boss', 'me', '1 h')}, 'original');

	stop_asleep($launcher);
	one('CREATE DATABASE copy TEMPLATE original');
	$copy = session($node, dbname => 'copy');
	$copy->async("SELECT keep_alive($l)");
	kill 'CONT', $launcher;
	is($copy->wait, '', 'the copy has no lease, even for the first request');
	is($copy->query('SELECT count(*) FROM lock_election.locks'), 0, 'the copy has no lock');
	is($copy->query('SELECT count(*) FROM lock_election.leases'), 0, 'the copy has no row of a lease');
	is($copy->query(q{SELECT string_agg(how, ' ' ORDER BY change) FROM election_history('boss')}), 'elected expired',
		'the term has ended in the copy');
	token_like($copy->query("SELECT acquire_permit('p', 5, '1 h')"), 'a permit is granted in the copy');
	$copy->quit;
	one('DROP DATABASE copy');

	# The manager of the copy cannot delete the rows at first.
	stop_asleep($launcher);
	one('CREATE DATABASE copy TEMPLATE original');
	$locker = session($node, dbname => 'copy');
	$locker->query('BEGIN; SELECT FROM _lock_election.slot FOR UPDATE');
	kill 'CONT', $launcher;
	$copy = session($node, dbname => 'copy');
	$copy->query("SELECT is_held('x', $token)");
	$locker->query('ROLLBACK');
	wait_until(sub { $copy->query("SELECT is_held('x', $token)"); return $copy->error eq ''; });
	is($copy->query('SELECT count(*) FROM lock_election.locks'), 0, 'the copy has no lock after the rows are unlocked');
	is($copy->query("SELECT keep_alive($l)"), '', 'the copy has no lease after the rows are unlocked');
	$_->quit foreach $copy, $locker;
	one('DROP DATABASE copy');
	is(one("SELECT is_held('x', $token), keep_alive($l)", 'original'), 't|01:00:00',
		'lock and lease exist in the original');
	is(one(q{SELECT count(*) FROM current_leader('boss')}, 'original'), 1, 'the leader still leads in the original');
	one(q{SELECT force_resign('boss')}, 'original');
	clean('original');
	one('DROP DATABASE original');
};

subtest 'lease_holds() shows locks and places on a lease' => sub {
	my $l = $a->query(q{SELECT grant_lease('1 h')});
	my $l2 = $a->query(q{SELECT grant_lease('1 h')});
	my %place;

	# Name, granted, position and owner of each, in the order of tokens and names.
	my $rows = sub { return one("SELECT string_agg(concat_ws('|', kind, name, granted, queue_position, owner), ' ' ORDER BY token, name) FROM lease_holds($l)"); };

	is($rows->(), '', 'a new lease has no holds');
	my $busy = $b->query(q{SELECT acquire_lock('busy', '1 h')});
	$b->query(q{SELECT acquire_lock('busier', '1 h'), acquire_permit('few', 1, '1 h'), campaign('race', 'b', '1 h')});
	$a->query("SELECT acquire_lock('of another', lease => $l2), (enqueue_lock('busier', lease => $l2)).token");
	my $lock = $a->query("SELECT acquire_lock('lock', lease => $l)");
	$a->query("SELECT acquire_lock('lock', lease => $l), acquire_lock('shared', mode => 'shared', lease => $l, owner => 'me')");
	my @permits = map { $a->query("SELECT acquire_permit('permit', 2, lease => $l)") } 1 .. 2;
	my $both = $a->query("SELECT acquire_locks('{y, x}', lease => $l)");
	my $term = $a->query("SELECT campaign('boss', 'c', lease => $l)");
	$place{$_} = $a->query(
		{   lock => "SELECT * FROM enqueue_lock('busy', owner => 'later', lease => $l)",
			several => "SELECT * FROM enqueue_locks('{z, busier}', lease => $l)",
			permit => "SELECT * FROM enqueue_permit('few', 1, lease => $l)",
			candidate => "SELECT * FROM enqueue_candidate('race', 'c', lease => $l)"
		}->{$_})
	  foreach qw(lock several permit candidate);
	my $held = 'lock|lock|t|0 lock|shared|t|0|me lock|permit|t|0 lock|permit|t|0 lock|x|t|0 lock|y|t|0 election|boss|t|0';
	is($rows->(), "$held lock|busy|f|1|later lock|busier|f|2 lock|z|f|1 lock|few|f|1 election|race|f|1",
		'each name on the lease is shown');
	is(one("SELECT string_agg(DISTINCT token::text, ' ' ORDER BY token::text) FROM lease_holds($l) WHERE granted AND name <> 'shared'"), join(' ', sort $lock, @permits, $both, $term), 'tokens of holders are shown');
	foreach my $which (qw(lock several permit candidate))
	{
		my ($token, undef, $position, $channel) = split /\|/, $place{$which};

		is(one("SELECT DISTINCT token, bool_and(granted), max(queue_position), channel FROM lease_holds($l) WHERE token = $token GROUP BY token, channel"),
			"$token|f|$position|$channel", "$which: token, position and channel are shown");
	}

	# The grant of a place is announced on its channel. With several names, this is the channel of the first one.
	my ($several, undef, undef, $channel) = split /\|/, $place{several};
	$c->query("LISTEN $channel");
	$b->query(q{SELECT force_release_lock('busier')});
	is($a->query("SELECT revoke_lease($l2)"), 't', 'the lease of the place ahead is revoked');
	ok(wait_until(sub { return $c->query("SELECT 1") =~ /Asynchronous notification "$channel"/ }), 'the grant of several names is announced on their channel');
	is(one("SELECT string_agg(concat_ws('|', name, granted, queue_position), ' ' ORDER BY name) FROM lease_holds($l) WHERE token = $several"), 'busier|t|0 z|t|0', 'the granted names are shown as granted');

	# A waiting call has no token yet; a fenced holder that has ended has none any more.
	$c->async("SELECT acquire_lock('busy', lease => $l)");
	wait_for_waiters(2, 'busy');
	$d->query("BEGIN; SELECT fence_lock('lock', $lock)");
	$b->query(q{SELECT force_release_lock('lock')});
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'lock'}), 1, 'a fenced holder keeps its slot');
	is(one("SELECT string_agg(name, ' ' ORDER BY token, name) FROM lease_holds($l)"), 'shared permit permit x y boss busy busier z few race', 'neither a waiting call nor a lapsed holder is shown');
	$d->query('ROLLBACK');

	# Uncommitted holds are visible only to their own connection.
	my $new = "SELECT count(*) FROM lease_holds($l) WHERE name IN ('new', 'newer')";
	$d->query("BEGIN; SELECT acquire_lock('new', lease => $l), enqueue_lock('new', owner => 'd', lease => $l), acquire_locks('{newer}', lease => $l), acquire_lock('x', lease => $l)");
	is($d->query($new), 3, 'a transaction sees the locks it has acquired');
	is($a->query($new), 0, 'other sessions do not see uncommitted locks');
	like($rows->(), qr/\bx\|t/, 'other sessions see a lock that is also held by a committed acquire');
	$d->query('COMMIT');
	is($a->query($new), 3, 'other sessions see the locks after the commit');
	$d->query("BEGIN; SELECT acquire_lock('newest', lease => $l); ROLLBACK");
	is($a->query("SELECT count(*) FROM lease_holds($l) WHERE name = 'newest'"), 0,
		'locks of a rolled-back transaction are not shown');
	$d->query(q{SELECT force_release_lock('new'), force_release_lock('new'), force_release_lock('newer')});

	# A new manager returns the same, except for waiting calls.
	my $before = one("SELECT array_agg(h ORDER BY token, name) FROM lease_holds($l) AS h");
	replace_manager();
	is(one("SELECT array_agg(h ORDER BY token, name) FROM lease_holds($l) AS h"), $before, 'a new manager returns the same rows');
	is($a->query("SELECT release_lock('y', $both)"), 't', 'a lock on the lease is released');
	unlike($rows->(), qr/\by\b/, 'the released lock is not shown');
	is($a->query("BEGIN; SELECT release_lock('x', $both); SELECT count(*) FROM lease_holds($l) WHERE name = 'x'; COMMIT"), "t\n1", 'a lock with a pending release is shown until the commit');
	unlike($rows->(), qr/\bx\b/, 'the lock is not shown after the commit of its release');
	is($a->query("SELECT revoke_lease($l)"), 't', 'the lease is revoked');
	is($c->wait, '', 'the waiting call ends with its lease');
	$a->query("SELECT * FROM lease_holds($l)");
	like($a->error, qr/ERROR:  LE001: lease $l does not exist, or has ended\nDETAIL:  It was revoked \d{1,3}\.\d s ago\./, 'lease_holds() of a revoked lease raises LE001 with the reason');
	$b->query(q{SELECT force_resign('race')});
	clean();
};

subtest 'the error of a wait contains the end of its lease' => sub {
	my $held = $b->query(q{SELECT acquire_lock('held', '1 h')});

	foreach my $case ([ '300 ms', '', 'Its lease has expired.' ], [ '1 h', 'SELECT revoke_lease(%s)', 'Its lease was revoked.' ])
	{
		my ($ttl, $end, $detail) = @$case;
		my $l = $a->query("SELECT grant_lease('$ttl')");

		$c->async("SELECT acquire_lock('held', lease => $l)");
		wait_for_waiters(1, 'held') if $end;
		$a->query(sprintf $end, $l) if $end;
		$c->wait;
		like($c->error, qr/ERROR:  LE001: .*\nDETAIL:  \Q$detail\E/, $detail);
	}
	$b->query("SELECT release_lock('held', $held)");
	clean();
};

subtest 'lease_holds() of a lease with many locks' => sub {
	my $l = $a->query(q{SELECT grant_lease('1 h')});
	my $each = q{FROM try_acquire_each(ARRAY(SELECT 'n' || i || repeat('-', i % 240) FROM generate_series(%d, %d) AS i), owner => repeat('o', 200), lease => %s)};
	my $same = "SELECT count(*), count(DISTINCT name), bool_and(granted), min(octet_length(owner)) FROM lease_holds($l)";

	$a->query(sprintf "SELECT count(token) $each", 1000 * $_ - 999, 1000 * $_, $l) foreach 1 .. 3;
	is(one($same), '3000|3000|t|200', 'each lock on the lease is shown once');
	is(one("SELECT count(*) FROM (SELECT name, token FROM lease_holds($l) EXCEPT SELECT name, token FROM lock_election.locks) AS h"), 0, 'lease_holds() agrees with view locks');

	# Other locks are acquired and released meanwhile.
	$b->async("DO \$\$ DECLARE t bigint; BEGIN FOR i IN 1 .. 3000 LOOP t := acquire_lock('x' || i % 7, lease => $l); PERFORM release_lock('x' || i % 7, t); COMMIT; END LOOP; END \$\$");
	my %seen;
	do { $seen{ one("SELECT count(*) FROM lease_holds($l) WHERE name LIKE 'n%'") }++ } until $b->ready;
	$b->wait;
	is(join(' ', keys %seen), 3000, 'locks that stay are shown once while others change');
	is($a->query("SELECT revoke_lease($l)"), 't', 'the lease is revoked');
	clean();
};

subtest 'the table of leases is rewritten' => sub {
	my $l = $a->query(q{SELECT grant_lease('1 h')});
	my $token = $a->query("SELECT acquire_lock('x', lease => $l)");

	one('VACUUM FULL _lock_election.lease');
	is($a->query("SELECT keep_alive($l)"), '01:00:00', 'the lease exists after VACUUM FULL');
	my $l2 = $a->query(q{SELECT grant_lease('1 h')});
	is($a->query("SELECT revoke_lease($l), is_held('x', $token)"), 't|f',
		'revoking the lease after VACUUM FULL ends its lock');
	is(one('SELECT string_agg(id::text, $$ $$) FROM _lock_election.lease'), $l2,
		'the row of the revoked lease is deleted');
	clean();
};

$_->quit foreach $a, $b, $c, $d;
$node->stop;
done_testing();
