# Locks and transactions: an acquire is undone with its (sub)transaction, and a release takes effect at the commit.
# Promises: G, F
use strict;
use warnings;
use LeTest;
use Test::More;

my $node = new_node('main', start => 0);
my $counts = -e $node->config_data('--pkglibdir') . '/pg_stat_statements.so';
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_stat_statements, lock_election'") if $counts;
$node->start;
one('CREATE EXTENSION lock_election');
my ($a, $b, $c) = map { session($node) } 1 .. 3;

# The names that are held, as everybody sees them.
sub held
{
	my ($expected, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($c->query(q{SELECT string_agg(name, ',' ORDER BY name) FROM lock_election.locks WHERE mode IS NOT NULL}), $expected, $test_name);
}

# Another session would get it.
sub is_free
{
	my ($name, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($c->query("SELECT try_acquire_lock('$name') IS NOT NULL") . $c->query("SELECT release_lock('$name')"), 'tt', $test_name);
}

sub is_taken
{
	my ($name, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($c->query("SELECT try_acquire_lock('$name')"), '', $test_name);
}

# Releases all that the session has left over.
sub clean
{
	$_->query('ROLLBACK') foreach $a, $b;
	$c->query('SELECT force_release_lock(name) FROM lock_election.locks');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return nothing_left($node);
}

$a->query(q{
	CREATE TABLE t (id int PRIMARY KEY, v int);
	INSERT INTO t VALUES (1, 0);
	CREATE TABLE parent (id int PRIMARY KEY);
	CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
	SET client_min_messages = error});

# --- acquire: effect at once, undone by a rollback ---

$a->query("BEGIN; SELECT acquire_lock('x')");
is_taken('x', 'an acquire takes effect at once');
$b->async("SELECT acquire_lock('x')");
waiting($b);
$a->query('ROLLBACK');
like($b->wait, qr/^\d+$/, 'a rollback undoes it, and the next waiter is let in');
$b->query("SELECT release_lock('x')");

$a->query("BEGIN; SELECT acquire_lock('x'); SELECT 1 / 0");
is_free('x', 'an error undoes it, before the ROLLBACK');
clean();
$a->query("SELECT acquire_lock('x') / 0");
is_free('x', 'as does an error in the very statement');
$a->query("BEGIN; SELECT acquire_lock('x'); COMMIT");
$a->query('BEGIN; SELECT 1; ROLLBACK');
is_taken('x', 'a later rollback does not undo a committed acquire');
$a->query("BEGIN; SELECT try_acquire_lock('y'); ROLLBACK");
held('x', 'nor one with an acquire of its own');
clean();

# in the transaction that acquired, it can be acquired again
{
	my $token = $a->query("BEGIN; SELECT acquire_lock('x')");
	is($a->query("SELECT acquire_lock('x')"), $token, 'the same transaction acquires again: the same token');
	is($a->query("SELECT try_acquire_lock('x', mode => 'shared')"), $token, 'in either mode');
	is($a->query("SELECT release_lock('x')"), 't', 'one release');
	$a->query('COMMIT');
	is($a->query("SELECT holds FROM lock_election.locks"), '2', 'leaves two of three holds');
	is($a->query("SELECT try_acquire_lock('x')"), '', 'after the commit it is not acquired again');
	clean();
}

# --- savepoints ---

$a->query("BEGIN; SELECT acquire_lock('a'); SAVEPOINT s; SELECT acquire_lock('b'); SAVEPOINT s2; SELECT acquire_lock('c')");
held('a,b,c', 'three');
$a->query('ROLLBACK TO s2');
held('a,b', 'ROLLBACK TO the inner savepoint');
$a->query("SELECT acquire_lock('d'); RELEASE s2");
held('a,b,d', 'acquired after it, and its savepoint released');
$a->query('ROLLBACK TO s');
held('a', 'ROLLBACK TO the outer savepoint undoes what belongs to it by now');
$a->query("SELECT acquire_lock('e'); SAVEPOINT s3; SELECT acquire_lock('f'); RELEASE s3; SAVEPOINT s4; SELECT acquire_lock('g'); ROLLBACK TO s4");
held('a,e,f', 'ROLLBACK TO a later savepoint leaves what an earlier one has handed up');
$a->query('COMMIT');
held('a,e,f', 'and so it is committed');
clean();

$a->query("BEGIN; SAVEPOINT s; SELECT acquire_lock('a'); RELEASE s; ROLLBACK");
nothing_left($node, 'RELEASE SAVEPOINT, then ROLLBACK');
$a->query("BEGIN; SAVEPOINT s; SELECT acquire_lock('a'); SAVEPOINT s2; RELEASE s; SELECT 1 / 0");
nothing_left($node, 'RELEASE SAVEPOINT, then an error');
$a->query('ROLLBACK');

# the hold that was added in the savepoint, not the one before
$a->query("BEGIN; SELECT acquire_lock('a'); SAVEPOINT s; SELECT acquire_lock('a'), acquire_lock('a'); ROLLBACK TO s");
is($c->query('SELECT holds FROM lock_election.locks'), '1', 'ROLLBACK TO undoes the holds that came after');
$a->query('ROLLBACK');
nothing_left($node);

# a waiter whose savepoint is gone
$b->query("SELECT acquire_lock('a')");
$a->query("BEGIN; SELECT acquire_lock('kept'); SAVEPOINT s");
$a->async("SELECT acquire_lock('a')");
waiting($a);
$c->query('SELECT pg_cancel_backend(' . $a->pid . ')');
$a->wait;
$a->query('ROLLBACK TO s');
held('a,kept', 'a wait is cancelled in a savepoint');
is($a->query("SELECT try_acquire_lock('a')"), '', 'the transaction goes on');
$b->query("SELECT release_lock('a')");
is($a->query("SELECT try_acquire_lock('a') IS NOT NULL"), 't', 'and acquires it when it is free');
$a->query('COMMIT');
held('a,kept', 'both are committed');
$b->query("SELECT try_acquire_lock('a')");
clean();

# --- exception blocks ---

$a->query(q{DO $$
BEGIN
	PERFORM acquire_lock('outer');
	BEGIN
		PERFORM acquire_lock('lost');
		BEGIN
			PERFORM acquire_lock('lost too');
		EXCEPTION WHEN division_by_zero THEN NULL;
		END;
		PERFORM 1 / 0;
	EXCEPTION WHEN division_by_zero THEN
		PERFORM acquire_lock('handler');
	END;
	BEGIN
		PERFORM acquire_lock('inner');
	EXCEPTION WHEN division_by_zero THEN NULL;
	END;
END $$});
held('handler,inner,outer', 'exception blocks');
clean();

$a->query(q{DO $$
BEGIN
	FOR i IN 1 .. 100 LOOP
		BEGIN
			PERFORM acquire_lock('loop');
			RAISE EXCEPTION 'again';
		EXCEPTION WHEN raise_exception THEN NULL;
		END;
	END LOOP;
END $$});
nothing_left($node, '100 acquires, each undone by its exception block');

# --- many ---

is($a->query("BEGIN; SELECT count(acquire_lock('n' || i)) FROM generate_series(1, 100) AS i"), '100', '100 acquires');
is($c->query('SELECT count(*) FROM lock_election.locks'), '100', 'are held');
$a->query('ROLLBACK');
is($c->query('SELECT count(*) FROM lock_election.locks'), '0', 'and undone at once');

is($a->query("SELECT count(acquire_lock('n' || i)) FROM generate_series(1, 300) AS i"), '300', '300 acquires');
is($a->query("BEGIN; SELECT count(*) FROM generate_series(1, 300) AS i WHERE release_lock('n' || i)"), '300', '300 releases');
is($c->query('SELECT count(*) FROM lock_election.locks'), '300', 'not before the commit');
$a->query('COMMIT');
is($c->query('SELECT count(*) FROM lock_election.locks'), '0', 'and all with it');
is($a->query("SELECT count(acquire_lock(repeat('n', 250) || i)) FROM generate_series(1, 100) AS i"), '100', '100 acquires of long names');
is($a->query("SELECT count(*) FROM generate_series(1, 100) AS i WHERE release_lock(repeat('n', 250) || i)"), '100', 'released by one statement');
nothing_left($node);

# --- one hold of a named owner that two sessions have ---

{
	my $token = $a->query("SELECT acquire_lock('h', owner => 'o')");

	is($b->query("BEGIN; SELECT acquire_lock('h', owner => 'o')"), $token, 'one more hold in another session');
	$b->query('ROLLBACK');
	is($c->query("SELECT holds FROM lock_election.locks"), '1', 'a rollback undoes that one only');
	is($a->query("BEGIN; SELECT acquire_lock('h', owner => 'o')"), $token, 'again: one here');
	is($b->query("BEGIN; SELECT acquire_lock('h', owner => 'o'); SELECT acquire_lock('h', owner => 'o')"), "$token\n$token", 'two there');
	is($c->query("SELECT holds FROM lock_election.locks"), '4', 'are four');
	$b->query('ROLLBACK');
	is($c->query("SELECT holds FROM lock_election.locks"), '2', 'of which two are undone');
	$a->query('COMMIT');
	is($a->query("SELECT release_lock('h'), release_lock('h', $token)"), 't|t', 'two releases');
	nothing_left($node);

	# the first hold is undone, a later one of another session stays
	$token = $a->query("BEGIN; SELECT acquire_lock('h', owner => 'o')");
	is($b->query("SELECT acquire_lock('h', owner => 'o')"), $token, 'one more hold while the first is not committed');
	$a->query('ROLLBACK');
	is($b->query("SELECT is_held('h', $token)"), 't', 'which is not undone with the first');
	is($b->query("SELECT release_lock('h', $token)"), 't', 'but released');
	nothing_left($node);
}

# --- release: at the commit ---

{
	my $token = $a->query("SELECT acquire_lock('r')");

	is($a->query("BEGIN; SELECT release_lock('r')"), 't', 'release in a transaction');
	is($a->query("SELECT is_held('r', $token)"), 't', 'it is still held');
	is_taken('r', 'and refused to others');
	is($a->query("SELECT release_lock('r')"), 'f', 'a second release is false');
	is($a->query("SELECT release_lock('r', $token)"), 'f', 'by its token, too');
	$b->async("SELECT acquire_lock('r')");
	waiting($b);
	$a->query('UPDATE t SET v = v + 1');
	ok(!$b->ready, 'nobody is let in before the commit');
	$a->query('COMMIT');
	like($b->wait, qr/^\d+$/, 'but with it');
	is($b->query('SELECT v FROM t'), '1', 'and sees what the holder before has written');
	is($a->query("SELECT release_lock('r', $token)"), 'f', 'a release after that is false');
	$b->query("SELECT release_lock('r')");
	nothing_left($node);

	# in a loop: acquire, read, write, release in one transaction with the write; nothing is lost
	$a->query('UPDATE t SET v = 0');
	my $work = q{DO $$
		DECLARE
			old int;
		BEGIN
			FOR i IN 1 .. 50 LOOP
				PERFORM acquire_lock('counter');
				COMMIT;
				SELECT v INTO old FROM t;
				UPDATE t SET v = old + 1;
				PERFORM release_lock('counter');
				COMMIT;
			END LOOP;
		END $$};
	$_->async($work) foreach $a, $b;
	$_->wait foreach $a, $b;
	is($c->query('SELECT v FROM t'), '100', 'two sessions count to 100 under a lock that each releases with its write');
	nothing_left($node);
}

foreach my $how ([ 'ROLLBACK', 'ROLLBACK' ], [ 'an error', 'SELECT 1 / 0; ROLLBACK' ])
{
	my $token = $a->query("SELECT acquire_lock('r')");
	$a->query("BEGIN; SELECT release_lock('r'); $how->[1]");
	is($a->query("SELECT is_held('r', $token)"), 't', "$how->[0] cancels a release");
	is_taken('r', 'it is refused to others');
	is($a->query("SELECT release_lock('r')"), 't', 'it can be released again');
	nothing_left($node);
}

{
	my $token = $a->query("SELECT acquire_lock('r')");

	$a->query("BEGIN; SAVEPOINT s; SELECT release_lock('r'); ROLLBACK TO s; COMMIT");
	is($a->query("SELECT is_held('r', $token)"), 't', 'ROLLBACK TO cancels a release');
	$a->query("BEGIN; SAVEPOINT s; SELECT release_lock('r'); RELEASE s; ROLLBACK");
	is($a->query("SELECT is_held('r', $token)"), 't', 'as does ROLLBACK of all');
	is($a->query("BEGIN; SAVEPOINT s; SELECT release_lock('r'); ROLLBACK TO s; SELECT release_lock('r')"), "t\nt", 'released, cancelled, released');
	$a->query('COMMIT');
	nothing_left($node, 'is released');

	$a->query("SELECT acquire_lock('r')");
	$a->query("BEGIN; SAVEPOINT s; SELECT release_lock('r'); SAVEPOINT s2; RELEASE s; SAVEPOINT s3; ROLLBACK TO s3; COMMIT");
	nothing_left($node, 'a release in a released savepoint is made');
}

# Savepoints are set, released and rolled back to in any order.  A model says what the commit leaves: a list of what was done
# for each open subtransaction.
{
	my (@bad, %done);
	my @left = map { "old $_" } 1 .. 30;

	srand(2);
	foreach my $round (1 .. 20)
	{
		my @open = ([]);
		my @sql = 'BEGIN';
		my $n = 0;

		$a->query(q{SELECT acquire_lock('old ' || i, '1 h') FROM generate_series(1, 30) AS i});
		foreach (1 .. 60)
		{
			my $what = int rand 5;

			if ($what <= 1 && $n < 30)
			{
				my $name = ++$n;

				push @{ $open[-1] }, $what ? "acquired $name" : "released $name";
				push @sql, $what ? "SELECT acquire_lock('new $name', '1 h')" : "SELECT release_lock('old $name')";
			}
			elsif ($what == 2 && @open < 6)
			{
				push @sql, 'SAVEPOINT s' . scalar @open;
				push @open, [];
			}
			elsif ($what >= 3 && @open > 1)
			{
				my $to = 1 + int rand $#open;
				my @ended = map { @$_ } splice @open, $to;

				push @sql, $what == 3 ? "RELEASE s$to" : "ROLLBACK TO s$to";
				push @{ $open[-1] }, @ended if $what == 3;
				push @open, [] if $what == 4;
			}
		}
		$a->query(join '; ', @sql, 'COMMIT');
		%done = map { $_ => 1 } map { @$_ } @open;
		my $expected = join ',', sort +(grep { !$done{ 'released ' . s/old //r } } @left), map { /^acquired (.*)/ ? "new $1" : () } keys %done;
		my $held = $c->query(q{SELECT string_agg(name, ',' ORDER BY name COLLATE "C") FROM lock_election.locks WHERE mode IS NOT NULL});
		push @bad, "@sql: $held, not $expected" . $a->error if $held ne $expected;
		clean();
	}
	is(join("\n", @bad), '', 'savepoints in any order');
}

# acquired and released in one transaction
$a->query("BEGIN; SELECT acquire_lock('r'); SELECT release_lock('r')");
is_taken('r', 'acquired and released in one transaction: held until its end');
$a->query('COMMIT');
nothing_left($node, 'and free then');
$a->query("BEGIN; SELECT acquire_lock('r'); SELECT release_lock('r'); ROLLBACK");
nothing_left($node, 'also after a rollback');

# --- release, then acquire again ---

{
	my $token = $a->query("SELECT acquire_lock('r')");

	is($a->query("BEGIN; SELECT release_lock('r'); SELECT acquire_lock('r')"), "t\n$token", 'released and acquired again: the same token');
	$a->query('COMMIT');
	is($a->query("SELECT is_held('r', $token)"), 't', 'it is kept');
	is($c->query('SELECT holds FROM lock_election.locks'), '1', 'once');

	is($a->query("BEGIN; SELECT release_lock('r'); SELECT acquire_lock('r'); SELECT release_lock('r')"), "t\n$token\nt", 'and released once more');
	is_taken('r', 'before the commit it is taken');
	$a->query('COMMIT');
	nothing_left($node, 'which counts');

	$token = $a->query("SELECT acquire_lock('r')");
	is($a->query("BEGIN; SELECT release_lock('r'); SAVEPOINT s; SELECT acquire_lock('r'); ROLLBACK TO s; SELECT is_held('r', $token)"),
		"t\n$token\nt", 'acquired again, which is rolled back');
	$a->query('COMMIT');
	nothing_left($node, 'it is released');

	$token = $a->query("SELECT acquire_lock('r')");
	$a->query("BEGIN; SELECT release_lock('r'); SELECT acquire_lock('r'); ROLLBACK");
	is($a->query("SELECT is_held('r', $token)"), 't', 'after a rollback of both it is held');
	is($c->query('SELECT holds FROM lock_election.locks'), '1', 'once');
	is($a->query("SELECT release_lock('r')"), 't', 'release');
	nothing_left($node);

	# the rules of acquiring again hold here as well
	$token = $a->query("SELECT acquire_lock('r', ttl => '10 s')");
	$a->query("BEGIN; SELECT release_lock('r'); SELECT acquire_lock('r', ttl => '1 h'); COMMIT");
	is($a->query("SELECT token = $token AND time_left > '59 min' FROM lock_election.locks"), 't', 'acquired again with a longer TTL');
	$a->query("BEGIN; SELECT release_lock('r'); SELECT acquire_lock('r', ttl => '1 s'); COMMIT");
	is($a->query("SELECT token = $token AND time_left > '59 min' FROM lock_election.locks"), 't', 'acquired again with a shorter TTL: never shorter');
	$a->query("BEGIN; SELECT release_lock('r'); SELECT acquire_lock('r', ttl => NULL)");
	like($a->error, qr/22023/, 'acquired again for the connection: an error');
	$a->query('ROLLBACK');
	is($a->query("SELECT release_lock('r')"), 't', 'release');

	$token = $a->query("SELECT acquire_lock('r', mode => 'shared')");
	is($b->query("SELECT acquire_lock('r', mode => 'shared') IS NOT NULL"), 't', 'two readers');
	$a->query("BEGIN; SELECT release_lock('r'); SET LOCAL lock_timeout = '5s'; SELECT acquire_lock('r')");
	like($a->error, qr/22023/, 'a reader that releases and acquires again to write: an error, not a grant');
	$a->query('ROLLBACK');
	$_->query("SELECT release_lock('r')") foreach $a, $b;
	nothing_left($node);

	# a named owner
	$token = $a->query("SELECT acquire_lock('r', owner => 'o')");
	is($a->query("BEGIN; SELECT release_lock('r', $token); SELECT acquire_lock('r', owner => 'o')"), "t\n$token", 'a named owner, released and acquired again');
	$a->query('COMMIT');
	is($c->query('SELECT holds FROM lock_election.locks'), '1', 'is kept once');
	$b->query("SELECT acquire_lock('r', owner => 'o')");
	is($a->query("BEGIN; SELECT release_lock('r', $token, all_holds => true); SELECT acquire_lock('r', owner => 'o')"), "t\n$token", 'all holds released, one acquired again');
	$a->query('COMMIT');
	is($c->query('SELECT holds FROM lock_election.locks'), '1', 'is one hold');
	is($a->query("BEGIN; SELECT acquire_lock('r', owner => 'o'); SELECT release_lock('r', $token, all_holds => true); SELECT release_lock('r', $token)"),
		"$token\nt\nf", 'nothing is left to release after all holds');
	$a->query('COMMIT');
	nothing_left($node);
}

# a named owner, or a lease, is somebody else: it waits for the commit
{
	my $lease = $a->query(q{SELECT grant_lease('5 min')});
	my $token = $a->query(q{SELECT acquire_lock('r', '5 min')});

	# it waits for itself, which on a busy machine might be found before the wait is over
	$a->query(q{SET deadlock_timeout = '1 min'});
	foreach my $who (q{owner => 'o'}, "lease => $lease")
	{
		is($a->query("BEGIN; SELECT release_lock('r', $token); SELECT acquire_lock('r', wait => '50 ms', $who)"), "t\n",
			'released, and acquired by another owner or lease: not granted');
		unlike($a->error, qr/ERROR/, 'which is not an error');
		$a->query('ROLLBACK');
	}
	$a->query('RESET deadlock_timeout');
	is($a->query("SELECT release_lock('r', $token)"), 't', 'release');
	is($a->query("SELECT revoke_lease($lease)"), 't', 'the lease');
	nothing_left($node);
}

# on a named lease nothing is counted: acquired again means kept
{
	my $lease = $a->query('SELECT grant_lease()');
	my $token = $a->query("SELECT acquire_lock('l', lease => $lease)");

	is($a->query("BEGIN; SELECT release_lock('l'); SELECT acquire_lock('l', lease => $lease)"), "t\n$token", 'on a lease, released and acquired again');
	$a->query('COMMIT');
	is($c->query("SELECT is_held('l', $token)"), 't', 'is kept');
	is($a->query("SELECT release_lock('l', $token)"), 't', 'and released by one release');
	nothing_left($node);

	$token = $a->query("BEGIN; SELECT acquire_lock('l', lease => $lease)");
	is($a->query("SELECT release_lock('l'); SELECT acquire_lock('l', lease => $lease)"), "t\n$token", 'on a lease, all three in one transaction');
	$a->query('COMMIT');
	is($c->query("SELECT is_held('l', $token)"), 't', 'is kept');
	is($a->query("BEGIN; SELECT release_lock('l', $token); SAVEPOINT s; SELECT acquire_lock('l', lease => $lease); ROLLBACK TO s"), "t\n$token",
		'acquired again, which is rolled back');
	$a->query('COMMIT');
	nothing_left($node, 'is released');
	is($a->query("SELECT revoke_lease($lease)"), 't', 'the lease');
}

# Of several releases an acquire takes back those of its token and name: not those of another kind, of a name that is as long,
# or begins alike, or was acquired at once with it.
{
	my $kept = q{SELECT string_agg(kind || ' ' || name, ', ' ORDER BY kind, name) FROM lock_election.locks WHERE mode IS NOT NULL};
	my $all = q{SELECT release_lock('l1'), release_lock('l2'), release_lock('l12'), release_lock('m1', BOTH), release_lock('m2', BOTH), resign('l1', TERM)};
	my $lease;
	my $ask = sub {
		$lease = $a->query(q{SELECT grant_lease('5 min')});
		$a->query("SELECT acquire_lock(name, lease => $lease) FROM (VALUES ('l1'), ('l2'), ('l12')) AS locks (name)");
		my ($both, $term) = split /\|/, $a->query("SELECT acquire_locks('{m1, m2}', lease => $lease), campaign('l1', 'c', lease => $lease)");
		return $all =~ s/BOTH/$both/gr =~ s/TERM/$term/r;
	};

	my $sql = $ask->();
	is($a->query("BEGIN; $sql"), 't|t|t|t|t|t', 'released on a lease');
	$a->query("SELECT acquire_lock('l1', lease => $lease), acquire_lock('m2', lease => $lease)");
	$a->query('COMMIT');
	is($c->query($kept), 'lock l1, lock m2', 'two are acquired again, and kept');
	$a->query("SELECT revoke_lease($lease)");
	$lease = $a->query(q{SELECT grant_lease('5 min')});
	my $several = $a->query("SELECT acquire_locks('{m1, m2}', lease => $lease)");
	is($a->query("BEGIN; SELECT release_locks('{m1, m2}', $several); SELECT acquire_locks('{m1, m2}', lease => $lease)"), "t\n$several", 'several at once');
	$a->query('COMMIT');
	is($c->query($kept), 'lock m1, lock m2', 'are kept together');
	$a->query("SELECT revoke_lease($lease)");
	$sql = $ask->();
	$a->query("BEGIN; $sql; SELECT campaign('l1', 'c', lease => $lease); SAVEPOINT s; SELECT acquire_lock('l2', lease => $lease)");
	$a->query("ROLLBACK TO s; SELECT acquire_lock('l12', lease => $lease); COMMIT");
	is($c->query($kept), 'election l1, lock l12', 'again, and one of them in a savepoint that is rolled back');
	is($a->query("SELECT revoke_lease($lease)"), 't', 'the lease');
	nothing_left($node);

	# without a lease
	my %token = map { $_ => $a->query("SELECT acquire_lock('$_', '5 min')") } 'u1', 'u2';
	my $term = $a->query(q{SELECT campaign('u1', 'c', '5 min')});
	my $named = $a->query(q{SELECT acquire_lock('o1', '5 min', owner => 'o')});
	$a->query("BEGIN; SELECT resign('u1', $term), release_lock('u1'), release_lock('u2'), release_lock('o1', $named)");
	is($a->query(q{SELECT campaign('u1', 'c', '5 min')}), $term, 'an election and a lock of one name: the election again');
	is($a->query(q{SELECT acquire_lock('u2', '5 min')}), $token{u2}, 'a lock');
	cmp_ok($a->query(q{SELECT acquire_lock('u', '5 min')}), '>', $named, 'one whose name they begin with');
	is($a->query(q{SELECT try_acquire_lock('o1')}), '', 'and one of a named owner, as nobody');
	$a->query('COMMIT');
	is($c->query($kept), 'election u1, lock u, lock u2', 'are kept');
	is($c->query('SELECT max(holds) FROM lock_election.locks'), '1', 'once');
	is($a->query("SELECT resign('u1', $term), release_lock('u'), release_lock('u2')"), 't|t|t', 'released');
	nothing_left($node);
}

# permits count each for itself
{
	my $first = $a->query("SELECT acquire_permit('p', 2)");
	my ($released, $second) = split /\n/, $a->query("BEGIN; SELECT release_lock('p'); SELECT acquire_permit('p', 2)");

	is($released, 't', 'a permit is released');
	cmp_ok($second, '>', $first, 'and another one acquired');
	$a->query(q{SET LOCAL deadlock_timeout = '1 min'});
	is($a->query("SELECT acquire_permit('p', 2, wait => '200 ms')"), '', 'no third one before the commit');
	unlike($a->error, qr/ERROR/, 'which is not an error');
	$a->query('COMMIT');
	is($c->query("SELECT count(*), max(holds) FROM lock_election.locks WHERE name = 'p'"), '1|1', 'one is left');
	is($a->query("SELECT release_lock('p')"), 't', 'release');
	nothing_left($node);
}

# two holds of one connection, each with its token
{
	my $first = $a->query("SELECT acquire_lock('s', mode => 'shared')");
	my $second = $a->query("SELECT acquire_lock('s', mode => 'shared')");

	isnt($first, $second, 'a connection reads twice');
	is($a->query("BEGIN; SELECT release_lock('s'); SELECT release_lock('s'); SELECT release_lock('s')"), "t\nt\nf", 'and releases both in one transaction');
	$a->query('COMMIT');
	nothing_left($node);
}

# --- hold_for in a transaction ---

$a->query("BEGIN; SELECT release_lock('job', acquire_lock('job'), hold_for => '1 h'); COMMIT");
held('', 'released with hold_for in a transaction');
is_taken('job', 'nobody gets it');

# --- the TTL ends between release and commit ---

{
	my $token = $a->query("SELECT acquire_lock('r', ttl => '1 h')");

	is($a->query("BEGIN; UPDATE t SET v = -1; SELECT release_lock('r')"), 't', 'release of a short TTL');
	shorten($c, 'r', $token, '300 ms');
	$b->async("SELECT acquire_lock('r')");
	waiting($b);
	ok(wait_until(sub { $c->query("SELECT is_held('r', $token)") eq 'f' }), 'the TTL ends');
	is($c->query('SELECT count(*) FROM lock_election.waiters'), '1', 'nobody is let in');
	is($c->query("SELECT fenced_by = ARRAY[$a->{pid}] FROM lock_election.locks WHERE name = 'r'"), 't', 'the view tells who is in the way');
	is($c->query("SELECT renew_lock('r', $token)"), '', 'it cannot be renewed any more');
	$c->query('SELECT 1 FROM pg_sleep(1.2)');
	ok(!$b->ready, 'nor later');
	$a->query('COMMIT');
	like($b->wait, qr/^\d+$/, 'but with the commit');
	is($b->query('SELECT v FROM t'), '-1', 'and it sees the write');
	$b->query("SELECT release_lock('r')");

	$token = $a->query("SELECT acquire_lock('r', ttl => '1 h')");
	$a->query("BEGIN; SELECT release_lock('r')");
	shorten($c, 'r', $token, '300 ms');
	ok(wait_until(sub { $c->query("SELECT is_held('r', $token)") eq 'f' }), 'the TTL ends');
	$b->async("SELECT acquire_lock('r')");
	waiting($b);
	$a->query('ROLLBACK');
	like($b->wait, qr/^\d+$/, 'a rollback lets the next one in, too');
	$b->query("SELECT release_lock('r')");

	# ROLLBACK TO ends the fence in the middle of the transaction
	$token = $a->query("SELECT acquire_lock('r', ttl => '1 h')");
	$a->query("BEGIN; SAVEPOINT s; SELECT release_lock('r')");
	shorten($c, 'r', $token, '300 ms');
	ok(wait_until(sub { $c->query("SELECT is_held('r', $token)") eq 'f' }), 'the TTL ends');
	$b->async("SELECT acquire_lock('r')");
	waiting($b);
	$a->query('ROLLBACK TO s');
	like($b->wait, qr/^\d+$/, 'as does a ROLLBACK TO');
	$a->query('ROLLBACK');
	$b->query("SELECT release_lock('r')");

	# acquired again too late: it would wait for itself
	$token = $a->query("SELECT acquire_lock('r', ttl => '1 h')");
	$a->query("BEGIN; SELECT release_lock('r')");
	shorten($c, 'r', $token, '300 ms');
	ok(wait_until(sub { $c->query("SELECT is_held('r', $token)") eq 'f' }), 'the TTL ends');
	is($a->query("SELECT try_acquire_lock('r')"), '', 'then it cannot be acquired again');
	$a->query("SET LOCAL lock_timeout = '5s'; SELECT acquire_lock('r')");
	like($a->error, qr/LE001/, 'and is not waited for');
	$a->query('ROLLBACK');
	nothing_left($node);

	# an administrator does not break a fence
	$token = $a->query("SELECT acquire_lock('r', ttl => '1 h')");
	$a->query("BEGIN; UPDATE t SET v = -2; SELECT release_lock('r')");
	is($c->query("SELECT force_release_lock('r')"), '1', 'force_release_lock() of a lock that is about to be released');
	$b->async("SELECT acquire_lock('r')");
	waiting($b);
	$a->query('COMMIT');
	like($b->wait, qr/^\d+$/, 'waits for the commit');
	$b->query("SELECT release_lock('r')");
	nothing_left($node);
}

# --- not a top-level call ---

$a->query(q{
	CREATE FUNCTION release_it(n text) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		RETURN release_lock(n);
	END $$;
	CREATE FUNCTION release_sql(n text) RETURNS boolean VOLATILE LANGUAGE sql AS 'SELECT release_lock(n)'});

# Each statement does something after the release, during which it is still held by the session.
foreach my $how (
	[ 'DO block', q{DO $$ BEGIN PERFORM release_lock('r'); PERFORM pg_advisory_lock(1); END $$} ],
	[ 'function', q{SELECT release_it('r'), pg_advisory_lock(1)} ],
	[ 'SQL function', q{SELECT release_sql('r') FROM (SELECT 1 OFFSET 0) AS s WHERE pg_advisory_lock(1) IS NOT NULL} ],
	[ 'second column', q{SELECT release_lock('r'), pg_advisory_lock(1)} ],
	[ 'several statements', q{SELECT release_lock('r')\; SELECT pg_advisory_lock(1)} ],
	[ 'data-modifying CTE', q{WITH w AS (UPDATE t SET v = 7 RETURNING 1) SELECT release_lock('r'), pg_advisory_lock(1) FROM w} ],
	[ 'INSERT', q{INSERT INTO t SELECT 2, 1 FROM (SELECT release_lock('r'), pg_advisory_lock(1)) AS s} ],
	[ 'EXPLAIN ANALYZE', q{EXPLAIN ANALYZE SELECT release_lock('r'), pg_advisory_lock(1)} ])
{
	my ($name, $sql) = @$how;
	my $token = $a->query("SELECT acquire_lock('r')");

	# c keeps the statement from ending
	$c->query('SELECT pg_advisory_lock(1)');
	$a->async($sql);
	ok(wait_until(sub { $c->query("SELECT wait_event_type FROM pg_stat_activity WHERE pid = $a->{pid}") eq 'Lock' }), "$name: release, and something more");
	is($c->query("SELECT is_held('r', $token), try_acquire_lock('r')"), 't|', "$name: the lock is held until it ends");
	$c->query('SELECT pg_advisory_unlock(1)');
	$a->wait;
	is($a->error, '', "$name: no error");
	$a->query('SELECT pg_advisory_unlock_all()');
	nothing_left($node, "$name: the release is made");
}

# A procedure that commits in the middle.
$a->query("SELECT acquire_lock('r')");
$c->query('SELECT pg_advisory_lock(1)');
$a->async(q{DO $$ BEGIN PERFORM release_lock('r'); COMMIT; PERFORM pg_advisory_lock(1); END $$});
ok(wait_until(sub { $c->query("SELECT wait_event_type FROM pg_stat_activity WHERE pid = $a->{pid}") eq 'Lock' }), 'a DO block that commits goes on');
is_free('r', 'the release is made with its COMMIT');
$c->query('SELECT pg_advisory_unlock(1)');
$a->wait;
$a->query('SELECT pg_advisory_unlock_all()');

# an error later in the same simple query cancels it
{
	my $token = $a->query("SELECT acquire_lock('r')");
	$a->query(q{SELECT release_lock('r')\; SELECT 1 / 0});
	is($a->query("SELECT is_held('r', $token)"), 't', 'an error in a later statement of the same query cancels a release');
	clean();
}

# A function that is wrongly said to be parallel safe: its workers' transactions would commit what ours rolls back.
{
	$a->query(q{CREATE FUNCTION hidden(name text) RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE
		AS $$ BEGIN RETURN try_acquire_lock(name); END $$});
	$a->query(q{CREATE TABLE many AS SELECT i FROM generate_series(1, 50) i});
	$a->query(q{ALTER TABLE many SET (parallel_workers = 2)});
	$a->query(q{SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0});
	$a->query(q{BEGIN; SELECT count(hidden('worker ' || i)) FROM many});
	like($a->error, qr/25000: .*cannot execute lock functions during a parallel operation/, 'no lock in a parallel worker');
	$a->query('ROLLBACK; RESET ALL; DROP TABLE many; DROP FUNCTION hidden');
	held('', 'nothing is left of it');
}

# --- errors at the commit ---

{
	my $token = $a->query("SELECT acquire_lock('kept')");

	$a->query("BEGIN; SELECT acquire_lock('undone'); SELECT release_lock('kept'); INSERT INTO child VALUES (1)");
	held('kept,undone', 'before the commit');
	$a->query('COMMIT');
	like($a->error, qr/23503/, 'a deferred constraint fails at the commit');
	held('kept', 'acquires are undone and releases cancelled');
	is($a->query("SELECT is_held('kept', $token)"), 't', 'it is the same');
	is($a->query("SELECT release_lock('kept')"), 't', 'release');
	nothing_left($node);
}

# --- tables that cannot be written at the commit ---

# The server lives where the client's encoding has no character for a name in the warning's context.
foreach my $writes (0, 1)
{
	unreadable_commits('utf8');
	my ($holder, $locker) = map { session($node, dbname => 'utf8') } 1 .. 2;
	my $log = -s $node->logfile;

	$holder->query(q{CREATE TABLE written (id int)});
	$holder->query(q{SET client_encoding = 'LATIN1'});
	$holder->query(q{SELECT acquire_lock('r')});
	$locker->query('BEGIN; LOCK TABLE _lock_election.slot IN ACCESS EXCLUSIVE MODE');
	$holder->query('DO $$ BEGIN ' . ($writes ? 'INSERT INTO written VALUES (1); ' : '') . q{PERFORM release_lock('r'); CALL commits(); END $$});
	is($holder->error, '', 'nothing that the client cannot read');
	ok($node->log_contains(qr/WARNING:  the transaction is committed, but/, $log), 'the log has it');
	$locker->query('ROLLBACK');
	is($holder->query('SELECT count(*) FROM written'), $writes, 'it is committed');
	is($holder->query(q{SELECT release_lock('r', acquire_lock('r', wait => '20 s'))}), 't', 'and the session goes on');
	$_->quit foreach $holder, $locker;
	one('DROP DATABASE utf8');
}

{
	$a->query("SELECT acquire_lock('r', ttl => NULL)");
	$a->query("BEGIN; UPDATE t SET v = 8; SELECT release_lock('r')");
	$c->query('BEGIN; LOCK TABLE _lock_election.slot IN ACCESS EXCLUSIVE MODE');
	$a->async('COMMIT');
	is($a->wait, '', 'a commit does not wait until the tables can be written');
	like($a->error, qr/WARNING:  01000: the transaction is committed, but the locks that it releases may still be held\nDETAIL:  the tables of extension/,
		'nor fail, but it warns');
	$b->query("SELECT acquire_lock('other')");
	like($b->error, qr/ERROR/, 'an acquire does');
	$c->query('COMMIT');
	nothing_left($node, 'the release is made when they can');
	is($a->query("SELECT acquire_lock('r') IS NOT NULL"), 't', 'the session goes on');
	$a->query("SELECT release_lock('r')");
	nothing_left($node);
}

# --- two-phase commit ---

foreach my $how ([ 'acquire', "SELECT acquire_lock('p')" ], [ 'release', "SELECT release_lock('held')" ])
{
	$a->query("SELECT acquire_lock('held')");
	$a->query("BEGIN; $how->[1]; PREPARE TRANSACTION 'two'");
	like($a->error, qr/ERROR:  0A000: cannot PREPARE .*\nHINT:  Acquire and release locks outside of two-phase transactions\./, "PREPARE TRANSACTION after an $how->[0] is refused");
	$a->query('ROLLBACK');
	held('held', "$how->[0]: undone");
	is($a->query("SELECT release_lock('held')"), 't', 'release');
	is($c->query('SELECT count(*) FROM pg_prepared_xacts'), '0', 'nothing is prepared');
}
$a->query("BEGIN; UPDATE t SET v = 0; PREPARE TRANSACTION 'two'");
is($a->error, '', 'PREPARE TRANSACTION without locks is none of our business');
$a->query("COMMIT PREPARED 'two'");
nothing_left($node);

# --- another library, whose hooks were set before ours ---

if ($counts)
{
	my $counted = sub { return one(qq{SELECT coalesce(string_agg(calls || ' ' || rows, ','), 'none') FROM pg_stat_statements WHERE query LIKE '$_[0]%'}); };

	$a->query(q{CREATE EXTENSION pg_stat_statements;
		CREATE TABLE hooked (v int);
		CREATE FUNCTION nested() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO t (id, v) SELECT 4711, 0; RETURN NULL; END$$;
		CREATE TRIGGER nested AFTER INSERT ON hooked FOR EACH ROW EXECUTE FUNCTION nested()});
	is($counted->('CREATE TABLE hooked'), '1 0', 'it is called for a utility command');
	$a->query(q{SELECT release_lock(n, acquire_lock(n)) FROM (VALUES ('h1'), ('h2')) AS hooked_query(n)}) for 1 .. 2;
	is($counted->('SELECT release_lock(n, acquire_lock(n)) FROM'), '2 4', 'and for a query, with its rows');
	$a->query('INSERT INTO hooked VALUES (1)');
	is($counted->('INSERT INTO hooked'), '1 1', 'and for one with an AFTER trigger');
	is($counted->('INSERT INTO t (id, v) SELECT'), 'none', 'which it knows to be within that');
	is($a->query('SELECT v FROM t WHERE id = 4711'), '0', 'and which runs');
	$a->query('DROP EXTENSION pg_stat_statements; DROP TABLE hooked; DELETE FROM t WHERE id = 4711');
}

# --- commit and rollback, again and again ---

{
	my @bad;

	srand(1);
	for my $round (1 .. 200)
	{
		my $how = int rand 4;
		my $token = $a->query("BEGIN; SELECT acquire_lock('again')");
		my $end = (qw(COMMIT ROLLBACK COMMIT ROLLBACK))[$how];

		$a->query("SELECT release_lock('again')") if $how >= 2;
		$a->query($end);
		my $got = $b->query("SELECT try_acquire_lock('again')");

		if ($how == 0)
		{
			push @bad, "$round: committed, but $got let in" if $got ne '';
			push @bad, "$round: not held" if $a->query("SELECT release_lock('again', $token)") ne 't';
		}
		else
		{
			push @bad, "$round: case $how: still held" if $got eq '';
			$b->query("SELECT release_lock('again')");
		}
	}
	is(join("\n", @bad), '', '200 transactions one after the other');
	nothing_left($node);
}

$_->quit foreach $a, $b, $c;
$node->stop;
done_testing();
