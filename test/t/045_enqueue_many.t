# Queue places for permits and for several locks: one connection waits for everything. Places keep their order, are
# granted as a whole, announced once, survive a crash, are undone with their transaction, and can be requested again on
# a lease.
# Promises: Q, D, G
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "autovacuum = off\n");

# Returns token, granted, position and channel.
sub enqueue_locks
{
	my ($s, $names, $more) = @_;
	return split /\|/, $s->query("SELECT * FROM enqueue_locks('{$names}'" . ($more // '') . ')');
}

sub await_locks
{
	my ($s, $names, $token, $more) = @_;
	return $s->query("SELECT await_locks('{$names}', $token" . ($more // '') . ')');
}

sub held_with
{
	my ($token) = @_;
	return one("SELECT string_agg(name, ',' ORDER BY name) FROM lock_election.locks WHERE token = $token");
}

sub end_all
{
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach @_;
	nothing_left($node);
	is(one('SELECT count(*) FROM _lock_election.queue'), '0', 'no row is left in the table queue');
	is(one('SELECT count(*) FROM _lock_election.lease'), '0', 'no row is left in the table lease');
	return;
}

subtest 'several locks' => sub {
	my ($holder, $s, $listener) = map { session($node) } 1 .. 3;
	my ($token, $granted, $position, $channel) = enqueue_locks($s, 'a,b,c');

	is("$granted $position", 't 0', 'free locks are granted immediately');
	is(held_with($token), 'a,b,c', 'all three locks are held');
	is(await_locks($s, 'a,b,c', $token), 't', 'await_locks() returns true for granted locks');
	is($s->query("SELECT release_locks('{a,b,c}', $token)"), 't', 'the locks are released');

	my $held = $holder->query(q{SELECT acquire_lock('b')});
	($token, $granted, $position, $channel) = enqueue_locks($s, 'a,b,c');
	is("$granted $position", 'f 1', 'a held lock gives a place');
	is(one(q{SELECT 'le_' || left(encode(sha256(convert_to('lock a', 'UTF8')), 'hex'), 32)}), $channel, 'the grant is announced on the channel of the first name');
	is(one('SELECT count(*) FROM _lock_election.queue'), '3', 'each name has a row in the table queue');
	is(await_locks($s, 'a,b,c', $token), 'f', 'await_locks() returns false before the grant');
	is($holder->query(q{SELECT try_acquire_lock('c')}), '', 'a place reserves the locks that are free');
	$listener->query("LISTEN $channel");
	$holder->query("SELECT release_lock('b', $held)");
	is(await_locks($s, 'c,a,b', $token), 't',
		'all names are granted together, and await_locks() accepts any order of names');
	my @told;
	ok(wait_until(sub { push @told, $listener->query('SELECT 1') =~ /"token":"(\d+)"/g; return @told; }),
		'the grant is announced');
	is("@told", $token, 'the grant is announced once');
	is(await_locks($s, 'a,b', $token), 't', 'await_locks() accepts some of the names');
	await_locks($s, 'a,b,d', $token);
	like($s->error, qr/LE001.*"d"/s, 'await_locks() with another name raises LE001');
	is($s->query("SELECT release_locks('{a,b,c}', $token)"), 't', 'the locks are released after the wait');
	end_all($holder, $s, $listener);
};

subtest 'waiting, and leaving the queue' => sub {
	my ($holder, $s, $t) = map { session($node) } 1 .. 3;
	my $held = $holder->query(q{SELECT acquire_lock('b')});
	my ($token) = enqueue_locks($s, 'a,b');
	my ($later) = enqueue_locks($t, 'a,b');

	is(await_locks($s, 'a,b', $token, ", '100 ms'"), 'f', 'a wait times out, and the place stays');
	$s->async("SELECT await_locks('{a,b}', $token, NULL)");
	wait_for_sql($node, q{SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = } . $s->pid);
	is($t->query("SELECT release_locks('{a,b}', $later)"), 't', 'another place leaves both queues');
	is(one('SELECT count(*) FROM lock_election.waiters'), '2', 'no row of the other place is left');
	$holder->query("SELECT release_lock('b', $held)");
	is($s->wait, 't', 'the waiting place is granted the locks');
	is(held_with($token), 'a,b', 'both locks are held');
	($later) = enqueue_locks($t, 'b,x');
	is($t->query("SELECT release_lock('x', $later)"), 't', 'release_lock() of one name succeeds');
	is(one(qq{SELECT count(*) FROM lock_election.waiters WHERE token = $later}), '0', 'leaving one queue leaves all');
	end_all($holder, $s, $t);
};

subtest 'transactions' => sub {
	my ($holder, $s) = map { session($node) } 1 .. 2;
	$holder->query(q{SELECT acquire_lock('b', ttl => '1 h')});

	$s->query('BEGIN; SAVEPOINT one');
	my ($token) = enqueue_locks($s, 'a,b,c');
	my $kept;
	$s->query('ROLLBACK TO one');
	is(one('SELECT count(*) FROM lock_election.waiters'), '0', 'ROLLBACK TO removes a place');
	($kept) = enqueue_locks($s, 'b,d');
	enqueue_locks($s, 'b,e');
	$s->query('ROLLBACK TO one');
	is(one('SELECT count(*) FROM lock_election.waiters'), '0', 'ROLLBACK TO removes two places');
	($kept) = enqueue_locks($s, 'b,d');
	$s->query('COMMIT');
	is(one("SELECT count(*) FROM lock_election.waiters WHERE token = $kept"), '2', 'a commit keeps the place');
	is($s->query("SELECT release_locks('{b,d}', $kept)"), 't', 'the place leaves the queue after the commit');
	end_all($holder, $s);
};

subtest 'lifetime of a place' => sub {
	my ($holder, $s) = map { session($node) } 1 .. 2;
	$holder->query(q{SELECT acquire_lock('b', ttl => '1 h')});
	my ($token) = enqueue_locks($s, 'a,b', ", ttl => '3 s'");

	for (1 .. 3)
	{
		is(await_locks($s, 'a,b', $token, ", '1.5 s'"), 'f', 'each call of await_locks() renews the place') or last;
	}
	is(await_locks($s, 'a,b', $token, ", '4 s'"), 'f', 'the place stays during a wait longer than its TTL');
	wait_for_sql($node, 'SELECT count(*) = 0 FROM lock_election.waiters');
	await_locks($s, 'a,b', $token);
	like($s->error, qr/LE001/, 'the place expires without renewal');
	is(one(q{SELECT count(*) FROM _lock_election.lease}), '0', 'its own lease has ended');

	my $bound = session($node);
	enqueue_locks($bound, 'a,b', ', ttl => NULL');
	is(one('SELECT count(*) FROM lock_election.waiters'), '2', 'a bound place is queued');
	$bound->quit;
	ok(wait_for_sql($node, 'SELECT count(*) = 0 FROM lock_election.waiters'), 'a bound place ends with its connection');
	end_all($holder, $s);
};

subtest 'permits' => sub {
	my ($s, $t) = map { session($node) } 1 .. 2;
	my @one = split /\|/, $s->query(q{SELECT * FROM enqueue_permit('p', 2)});
	my @two = split /\|/, $s->query(q{SELECT * FROM enqueue_permit('p', 2)});
	my @three = split /\|/, $t->query(q{SELECT * FROM enqueue_permit('p', 2)});

	is("$one[1] $two[1] $three[1] $three[2]", 't t f 1', 'two permits are granted, and the third request has a place');
	$t->query(q{SELECT enqueue_permit('p', 3)});
	like($t->error, qr/22023/, 'another number of permits is an error while the name is in use');
	$t->query(q{SELECT enqueue_permit('p', 0)});
	like($t->error, qr/22023.*permits is out of range/s, 'zero permits is an error');
	$s->query("SELECT release_lock('p', $one[0])");
	is($t->query("SELECT await_lock('p', $three[0])"), 't', 'a released permit is granted to the place');
	end_all($s, $t);
};

subtest 'the same request again on a lease' => sub {
	my ($holder, $s, $t) = map { session($node) } 1 .. 3;
	$holder->query(q{SELECT acquire_lock(n, ttl => '1 h') FROM unnest('{b,x}'::text[]) n});
	my $lease = $s->query('SELECT grant_lease()');
	my ($token) = enqueue_locks($s, 'a,b', ", lease => $lease");
	my ($again, $granted) = enqueue_locks($t, 'a,b', ", lease => $lease");

	is($again, $token, 'repeating enqueue_locks() on a lease returns the same token');
	my $single = $s->query("SELECT token FROM enqueue_lock('x', lease => $lease)");
	is($t->query("SELECT token FROM enqueue_lock('x', lease => $lease)"), $single,
		'repeating enqueue_lock() on a lease returns the same token');
	isnt($t->query("SELECT token FROM enqueue_lock('x', lease => $lease, owner => 'other')"), $single, 'another owner on the same lease has its own place');

	# The first request is rolled back, the second is committed.
	$s->query('BEGIN');
	my ($open) = enqueue_locks($s, 'b,y', ", lease => $lease");
	is((enqueue_locks($t, 'b,y', ", lease => $lease"))[0], $open,
		'repeating the request of an open transaction returns the same token');
	$s->query('ROLLBACK');
	is(one("SELECT count(*) FROM lock_election.waiters WHERE token = $open"), '2',
		'the rollback of the first transaction keeps the place of the second');
	one(q{SELECT force_release_lock(n) FROM unnest('{b,x}'::text[]) n});
	is(one("SELECT await_locks('{a,b}', $token)"), 't', 'the place is granted the locks');
	is((enqueue_locks($t, 'a,b', ", lease => $lease"))[0], $token,
		'repeating enqueue_locks() on held locks returns the same token');
	is($t->query("SELECT token FROM enqueue_lock('x', lease => $lease)"), $single,
		'repeating enqueue_lock() on a held lock returns the same token');
	is($s->query("SELECT revoke_lease($lease)"), 't', 'the lease is revoked');
	end_all($holder, $s, $t);
};

subtest 'a crash' => sub {
	my $s = session($node);
	my $held = $s->query(q{SELECT acquire_lock('b', ttl => '1 h')});
	my $names = join(',', 'b', map { "long-name-of-a-lock-$_" x 10 } 1 .. 140);
	my ($token) = enqueue_locks($s, $names, ", ttl => '1 h'");
	my ($second) = enqueue_locks($s, 'a,b', ", ttl => '1 h'");
	my $lease = $s->query(q{SELECT grant_lease('1 h')});
	my ($leased) = enqueue_locks($s, 'b,c', ", lease => $lease");
	my $bound = session($node);
	enqueue_locks($bound, 'b,d', ', ttl => NULL');

	$node->stop('immediate');
	$node->start;
	$_->kill('KILL') foreach $s, $bound;
	$s = session($node);
	is(one(q{SELECT string_agg(token || ':' || queue_position, ' ' ORDER BY token) FROM lock_election.waiters WHERE name = 'b'}),
		"$token:1 $second:2 $leased:3", 'places keep their order after a crash, except those bound to a connection');
	is(one(q{SELECT count(*) FROM _lock_election.queue}), 141 + 2 + 2, 'each place has all its names after a crash');
	$s->async("SELECT await_locks('{a,b}', $second, NULL)");
	wait_for_sql($node, q{SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = } . $s->pid);
	one("SELECT release_lock('b', $held)");
	is(one("SELECT await_locks('{$names}', $token)"), 't', 'the first place is granted its locks after the crash');
	one(q{SELECT pg_terminate_backend(pid) FROM lock_election.manager});
	ok(wait_for_sql($node, "SELECT count(*) = 141 FROM lock_election.locks WHERE token = $token"),
		'the first place holds its locks after the manager was replaced');
	one("SELECT release_locks('{$names}', $token)");
	is($s->wait, 't', 'the second place is granted its locks although its call saw two managers');
	one("SELECT release_locks('{a,b}', $second)");
	is(one("SELECT await_locks('{b,c}', $leased)"), 't', 'the third place is granted its locks');
	one("SELECT revoke_lease($lease)");
	end_all($s);
};

done_testing();
