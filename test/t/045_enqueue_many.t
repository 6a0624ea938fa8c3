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

# (token, granted, position, channel)
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
	is(one('SELECT count(*) FROM _lock_election.queue'), '0', 'no row is left in the queue');
	is(one('SELECT count(*) FROM _lock_election.lease'), '0', 'nor of a lease');
	return;
}

subtest 'several locks' => sub {
	my ($holder, $s, $listener) = map { session($node) } 1 .. 3;
	my ($token, $granted, $position, $channel) = enqueue_locks($s, 'a,b,c');

	is("$granted $position", 't 0', 'free locks are granted at once');
	is(held_with($token), 'a,b,c', 'all of them');
	is(await_locks($s, 'a,b,c', $token), 't', 'and await_locks says so');
	is($s->query("SELECT release_locks('{a,b,c}', $token)"), 't', 'released');

	my $held = $holder->query(q{SELECT acquire_lock('b')});
	($token, $granted, $position, $channel) = enqueue_locks($s, 'a,b,c');
	is("$granted $position", 'f 1', 'one is held: a place');
	is(one(q{SELECT 'le_' || left(encode(sha256(convert_to('lock a', 'UTF8')), 'hex'), 32)}), $channel, 'announced on the channel of the first name');
	is(one('SELECT count(*) FROM _lock_election.queue'), '3', 'a row for each name');
	is(await_locks($s, 'a,b,c', $token), 'f', 'not yet');
	is($holder->query(q{SELECT try_acquire_lock('c')}), '', 'nobody overtakes it in a lock that is free');
	$listener->query("LISTEN $channel");
	$holder->query("SELECT release_lock('b', $held)");
	is(await_locks($s, 'c,a,b', $token), 't', 'granted as a whole, whatever the order of the names');
	my @told;
	ok(wait_until(sub { push @told, $listener->query('SELECT 1') =~ /"token":"(\d+)"/g; return @told; }), 'announced');
	is("@told", $token, 'once');
	is(await_locks($s, 'a,b', $token), 't', 'a part of the names will do');
	await_locks($s, 'a,b,d', $token);
	like($s->error, qr/LE001.*"d"/s, 'one that is not of them does not');
	is($s->query("SELECT release_locks('{a,b,c}', $token)"), 't', 'released');
	end_all($holder, $s, $listener);
};

subtest 'waiting, and leaving the queue' => sub {
	my ($holder, $s, $t) = map { session($node) } 1 .. 3;
	my $held = $holder->query(q{SELECT acquire_lock('b')});
	my ($token) = enqueue_locks($s, 'a,b');
	my ($later) = enqueue_locks($t, 'a,b');

	is(await_locks($s, 'a,b', $token, ", '100 ms'"), 'f', 'a wait runs out, the place stays');
	$s->async("SELECT await_locks('{a,b}', $token, NULL)");
	wait_for_sql($node, q{SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = } . $s->pid);
	is($t->query("SELECT release_locks('{a,b}', $later)"), 't', 'another one leaves both queues');
	is(one('SELECT count(*) FROM lock_election.waiters'), '2', 'whole');
	$holder->query("SELECT release_lock('b', $held)");
	is($s->wait, 't', 'the one that waits is granted');
	is(held_with($token), 'a,b', 'both');
	($later) = enqueue_locks($t, 'b,x');
	is($t->query("SELECT release_lock('x', $later)"), 't', 'leaving one queue leaves all');
	is(one(qq{SELECT count(*) FROM lock_election.waiters WHERE token = $later}), '0', 'none is left');
	end_all($holder, $s, $t);
};

subtest 'transactions' => sub {
	my ($holder, $s) = map { session($node) } 1 .. 2;
	$holder->query(q{SELECT acquire_lock('b', ttl => '1 h')});

	$s->query('BEGIN; SAVEPOINT one');
	my ($token) = enqueue_locks($s, 'a,b,c');
	my $kept;
	$s->query('ROLLBACK TO one');
	is(one('SELECT count(*) FROM lock_election.waiters'), '0', 'undone with its savepoint');
	($kept) = enqueue_locks($s, 'b,d');
	enqueue_locks($s, 'b,e');
	$s->query('ROLLBACK TO one');
	is(one('SELECT count(*) FROM lock_election.waiters'), '0', 'two of them as well');
	($kept) = enqueue_locks($s, 'b,d');
	$s->query('COMMIT');
	is(one("SELECT count(*) FROM lock_election.waiters WHERE token = $kept"), '2', 'kept by a commit');
	is($s->query("SELECT release_locks('{b,d}', $kept)"), 't', 'and left');
	end_all($holder, $s);
};

subtest 'time' => sub {
	my ($holder, $s) = map { session($node) } 1 .. 2;
	$holder->query(q{SELECT acquire_lock('b', ttl => '1 h')});
	my ($token) = enqueue_locks($s, 'a,b', ", ttl => '3 s'");

	for (1 .. 3)
	{
		is(await_locks($s, 'a,b', $token, ", '1.5 s'"), 'f', 'each call keeps the place') or last;
	}
	is(await_locks($s, 'a,b', $token, ", '4 s'"), 'f', 'so does a wait longer than the TTL');
	wait_for_sql($node, 'SELECT count(*) = 0 FROM lock_election.waiters');
	await_locks($s, 'a,b', $token);
	like($s->error, qr/LE001/, 'else it ends with its TTL');
	is(one(q{SELECT count(*) FROM _lock_election.lease}), '0', 'and its lease');

	my $bound = session($node);
	enqueue_locks($bound, 'a,b', ', ttl => NULL');
	is(one('SELECT count(*) FROM lock_election.waiters'), '2', 'a place that is bound to its connection');
	$bound->quit;
	ok(wait_for_sql($node, 'SELECT count(*) = 0 FROM lock_election.waiters'), 'ends with it');
	end_all($holder, $s);
};

subtest 'permits' => sub {
	my ($s, $t) = map { session($node) } 1 .. 2;
	my @one = split /\|/, $s->query(q{SELECT * FROM enqueue_permit('p', 2)});
	my @two = split /\|/, $s->query(q{SELECT * FROM enqueue_permit('p', 2)});
	my @three = split /\|/, $t->query(q{SELECT * FROM enqueue_permit('p', 2)});

	is("$one[1] $two[1] $three[1] $three[2]", 't t f 1', 'two are granted, the third has a place');
	$t->query(q{SELECT enqueue_permit('p', 3)});
	like($t->error, qr/22023/, 'another number is an error while it is in use');
	$t->query(q{SELECT enqueue_permit('p', 0)});
	like($t->error, qr/22023.*permits is out of range/s, 'so is none');
	$s->query("SELECT release_lock('p', $one[0])");
	is($t->query("SELECT await_lock('p', $three[0])"), 't', 'a permit that comes back is granted');
	end_all($s, $t);
};

subtest 'the same request once more, on a lease' => sub {
	my ($holder, $s, $t) = map { session($node) } 1 .. 3;
	$holder->query(q{SELECT acquire_lock(n, ttl => '1 h') FROM unnest('{b,x}'::text[]) n});
	my $lease = $s->query('SELECT grant_lease()');
	my ($token) = enqueue_locks($s, 'a,b', ", lease => $lease");
	my ($again, $granted) = enqueue_locks($t, 'a,b', ", lease => $lease");

	is($again, $token, 'several names: the same token');
	my $single = $s->query("SELECT token FROM enqueue_lock('x', lease => $lease)");
	is($t->query("SELECT token FROM enqueue_lock('x', lease => $lease)"), $single, 'one name: the same token');
	isnt($t->query("SELECT token FROM enqueue_lock('x', lease => $lease, owner => 'other')"), $single, 'two owners on one lease are two');

	# the first request rolls back, the second has been committed
	$s->query('BEGIN');
	my ($open) = enqueue_locks($s, 'b,y', ", lease => $lease");
	is((enqueue_locks($t, 'b,y', ", lease => $lease"))[0], $open, 'also of an open transaction');
	$s->query('ROLLBACK');
	is(one("SELECT count(*) FROM lock_election.waiters WHERE token = $open"), '2', 'whose rollback does not take it from the other');
	one(q{SELECT force_release_lock(n) FROM unnest('{b,x}'::text[]) n});
	is(one("SELECT await_locks('{a,b}', $token)"), 't', 'granted');
	is((enqueue_locks($t, 'a,b', ", lease => $lease"))[0], $token, 'what is held is held');
	is($t->query("SELECT token FROM enqueue_lock('x', lease => $lease)"), $single, 'one name too');
	is($s->query("SELECT revoke_lease($lease)"), 't', 'the lease ends it all');
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
		"$token:1 $second:2 $leased:3", 'the places are there, in their order; what was bound to a connection is gone');
	is(one(q{SELECT count(*) FROM _lock_election.queue}), 141 + 2 + 2, 'each with its names');
	$s->async("SELECT await_locks('{a,b}', $second, NULL)");
	wait_for_sql($node, q{SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = } . $s->pid);
	one("SELECT release_lock('b', $held)");
	is(one("SELECT await_locks('{$names}', $token)"), 't', 'the first is granted');
	one(q{SELECT pg_terminate_backend(pid) FROM lock_election.manager});
	ok(wait_for_sql($node, "SELECT count(*) = 141 FROM lock_election.locks WHERE token = $token"), 'and holds, also past another manager');
	one("SELECT release_locks('{$names}', $token)");
	is($s->wait, 't', 'the second is, though its call has seen two managers');
	one("SELECT release_locks('{a,b}', $second)");
	is(one("SELECT await_locks('{b,c}', $leased)"), 't', 'the third is');
	one("SELECT revoke_lease($lease)");
	end_all($s);
};

done_testing();
