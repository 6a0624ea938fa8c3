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

# Checks the names of the locks that are held, as another session sees them.
sub held
{
	my ($expected, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($c->query(q{SELECT string_agg(name, ',' ORDER BY name) FROM lock_election.locks WHERE mode IS NOT NULL}), $expected, $test_name);
}

# Checks that another session can acquire the lock.
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

# Releases all locks that the test has left over.
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

# --- acquire: takes effect immediately, and is undone by a rollback ---

$a->query("BEGIN; SELECT acquire_lock('x')");
is_taken('x', 'an acquire takes effect before the commit');
$b->async("SELECT acquire_lock('x')");
waiting($b);
$a->query('ROLLBACK');
like($b->wait, qr/^\d+$/, 'a rollback undoes an acquire, and the next waiter is granted the lock');
$b->query("SELECT release_lock('x')");

$a->query("BEGIN; SELECT acquire_lock('x'); SELECT 1 / 0");
is_free('x', 'an error in the transaction undoes an acquire before the ROLLBACK');
clean();
$a->query("SELECT acquire_lock('x') / 0");
is_free('x', 'an error in the same statement undoes an acquire');
$a->query("BEGIN; SELECT acquire_lock('x'); COMMIT");
$a->query('BEGIN; SELECT 1; ROLLBACK');
is_taken('x', 'a later rollback does not undo a committed acquire');
$a->query("BEGIN; SELECT try_acquire_lock('y'); ROLLBACK");
held('x', 'a later rollback with an acquire of its own does not undo a committed acquire');
clean();

# The transaction that acquired a lock can acquire it again.
{
	my $token = $a->query("BEGIN; SELECT acquire_lock('x')");
	is($a->query("SELECT acquire_lock('x')"), $token,
		'the same transaction acquires the lock again and gets the same token');
	is($a->query("SELECT try_acquire_lock('x', mode => 'shared')"), $token,
		'the same transaction acquires the lock again in mode shared');
	is($a->query("SELECT release_lock('x')"), 't', 'one of three holds is released');
	$a->query('COMMIT');
	is($a->query("SELECT holds FROM lock_election.locks"), '2', 'two holds are left after the commit');
	is($a->query("SELECT try_acquire_lock('x')"), '', 'after the commit, the session cannot acquire the lock again');
	clean();
}

# --- savepoints ---

$a->query("BEGIN; SELECT acquire_lock('a'); SAVEPOINT s; SELECT acquire_lock('b'); SAVEPOINT s2; SELECT acquire_lock('c')");
held('a,b,c', 'three locks are acquired in nested savepoints');
$a->query('ROLLBACK TO s2');
held('a,b', 'ROLLBACK TO undoes the acquire in the inner savepoint');
$a->query("SELECT acquire_lock('d'); RELEASE s2");
held('a,b,d', 'an acquire is kept after RELEASE SAVEPOINT');
$a->query('ROLLBACK TO s');
held('a', 'ROLLBACK TO the outer savepoint also undoes acquires of released inner savepoints');
$a->query("SELECT acquire_lock('e'); SAVEPOINT s3; SELECT acquire_lock('f'); RELEASE s3; SAVEPOINT s4; SELECT acquire_lock('g'); ROLLBACK TO s4");
held('a,e,f', 'ROLLBACK TO a later savepoint keeps acquires of an earlier, released savepoint');
$a->query('COMMIT');
held('a,e,f', 'the remaining acquires are committed');
clean();

$a->query("BEGIN; SAVEPOINT s; SELECT acquire_lock('a'); RELEASE s; ROLLBACK");
nothing_left($node, 'a ROLLBACK undoes an acquire in a released savepoint');
$a->query("BEGIN; SAVEPOINT s; SELECT acquire_lock('a'); SAVEPOINT s2; RELEASE s; SELECT 1 / 0");
nothing_left($node, 'an error undoes an acquire in a released savepoint');
$a->query('ROLLBACK');

# ROLLBACK TO undoes the holds added in the savepoint, not the one before it.
$a->query("BEGIN; SELECT acquire_lock('a'); SAVEPOINT s; SELECT acquire_lock('a'), acquire_lock('a'); ROLLBACK TO s");
is($c->query('SELECT holds FROM lock_election.locks'), '1', 'ROLLBACK TO undoes the holds added in the savepoint');
$a->query('ROLLBACK');
nothing_left($node);

# A waiter whose savepoint is rolled back.
$b->query("SELECT acquire_lock('a')");
$a->query("BEGIN; SELECT acquire_lock('kept'); SAVEPOINT s");
$a->async("SELECT acquire_lock('a')");
waiting($a);
$c->query('SELECT pg_cancel_backend(' . $a->pid . ')');
$a->wait;
$a->query('ROLLBACK TO s');
held('a,kept', 'a cancelled wait in a savepoint leaves no entry');
is($a->query("SELECT try_acquire_lock('a')"), '', 'the transaction continues after the cancelled wait');
$b->query("SELECT release_lock('a')");
is($a->query("SELECT try_acquire_lock('a') IS NOT NULL"), 't',
	'the transaction acquires the lock after it is released');
$a->query('COMMIT');
held('a,kept', 'both locks are held after the commit');
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
held('handler,inner,outer', 'exception blocks undo the acquires of failed blocks only');
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

# --- many locks ---

is($a->query("BEGIN; SELECT count(acquire_lock('n' || i)) FROM generate_series(1, 100) AS i"), '100',
	'100 locks are acquired in a transaction');
is($c->query('SELECT count(*) FROM lock_election.locks'), '100', '100 locks are held before the commit');
$a->query('ROLLBACK');
is($c->query('SELECT count(*) FROM lock_election.locks'), '0', 'a rollback undoes 100 acquires');

is($a->query("SELECT count(acquire_lock('n' || i)) FROM generate_series(1, 300) AS i"), '300',
	'300 locks are acquired');
is($a->query("BEGIN; SELECT count(*) FROM generate_series(1, 300) AS i WHERE release_lock('n' || i)"), '300',
	'300 locks are released in a transaction');
is($c->query('SELECT count(*) FROM lock_election.locks'), '300', '300 locks are held until the commit');
$a->query('COMMIT');
is($c->query('SELECT count(*) FROM lock_election.locks'), '0', 'the commit releases 300 locks');
is($a->query("SELECT count(acquire_lock(repeat('n', 250) || i)) FROM generate_series(1, 100) AS i"), '100',
	'100 locks with long names are acquired');
is($a->query("SELECT count(*) FROM generate_series(1, 100) AS i WHERE release_lock(repeat('n', 250) || i)"), '100',
	'100 locks with long names are released by one statement');
nothing_left($node);

# --- one entry of a named owner with holds of two sessions ---

{
	my $token = $a->query("SELECT acquire_lock('h', owner => 'o')");

	is($b->query("BEGIN; SELECT acquire_lock('h', owner => 'o')"), $token,
		'a second session of the named owner adds a hold');
	$b->query('ROLLBACK');
	is($c->query("SELECT holds FROM lock_election.locks"), '1',
		'a rollback undoes only the hold of the second session');
	is($a->query("BEGIN; SELECT acquire_lock('h', owner => 'o')"), $token,
		'the first session adds a hold in a transaction');
	is($b->query("BEGIN; SELECT acquire_lock('h', owner => 'o'); SELECT acquire_lock('h', owner => 'o')"), "$token\n$token", 'the second session adds two holds in a transaction');
	is($c->query("SELECT holds FROM lock_election.locks"), '4', 'all four holds are counted');
	$b->query('ROLLBACK');
	is($c->query("SELECT holds FROM lock_election.locks"), '2',
		'a rollback of the second session undoes its two holds');
	$a->query('COMMIT');
	is($a->query("SELECT release_lock('h'), release_lock('h', $token)"), 't|t', 'two releases end the two holds');
	nothing_left($node);

	# The first hold is undone, and a later one of another session stays.
	$token = $a->query("BEGIN; SELECT acquire_lock('h', owner => 'o')");
	is($b->query("SELECT acquire_lock('h', owner => 'o')"), $token,
		'the second session adds a hold while the first hold is not committed');
	$a->query('ROLLBACK');
	is($b->query("SELECT is_held('h', $token)"), 't',
		'the hold of the second session stays after the rollback of the first');
	is($b->query("SELECT release_lock('h', $token)"), 't', 'the hold of the second session is released');
	nothing_left($node);
}

# --- release: takes effect at the commit ---

{
	my $token = $a->query("SELECT acquire_lock('r')");

	is($a->query("BEGIN; SELECT release_lock('r')"), 't', 'release_lock() in a transaction returns true');
	is($a->query("SELECT is_held('r', $token)"), 't', 'the lock is held until the commit');
	is_taken('r', 'the lock is not granted to others before the commit');
	is($a->query("SELECT release_lock('r')"), 'f', 'a second release in the transaction returns false');
	is($a->query("SELECT release_lock('r', $token)"), 'f',
		'a second release by token in the transaction returns false');
	$b->async("SELECT acquire_lock('r')");
	waiting($b);
	$a->query('UPDATE t SET v = v + 1');
	ok(!$b->ready, 'a waiter is not granted the lock before the commit of the release');
	$a->query('COMMIT');
	like($b->wait, qr/^\d+$/, 'a waiter is granted the lock at the commit of the release');
	is($b->query('SELECT v FROM t'), '1', 'the new holder sees the writes of the previous holder');
	is($a->query("SELECT release_lock('r', $token)"), 'f', 'a release after the commit returns false');
	$b->query("SELECT release_lock('r')");
	nothing_left($node);

	# In a loop, two sessions acquire, read, write, and release in one transaction with the write. No update is lost.
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
	is_taken('r', '$how->[0]: the lock is not granted to others');
	is($a->query("SELECT release_lock('r')"), 't', '$how->[0]: the lock can be released again');
	nothing_left($node);
}

{
	my $token = $a->query("SELECT acquire_lock('r')");

	$a->query("BEGIN; SAVEPOINT s; SELECT release_lock('r'); ROLLBACK TO s; COMMIT");
	is($a->query("SELECT is_held('r', $token)"), 't', 'ROLLBACK TO cancels a release in the savepoint');
	$a->query("BEGIN; SAVEPOINT s; SELECT release_lock('r'); RELEASE s; ROLLBACK");
	is($a->query("SELECT is_held('r', $token)"), 't', 'ROLLBACK cancels a release in a released savepoint');
	is($a->query("BEGIN; SAVEPOINT s; SELECT release_lock('r'); ROLLBACK TO s; SELECT release_lock('r')"), "t\nt",
		'a lock is released, the release is cancelled, and the lock is released again');
	$a->query('COMMIT');
	nothing_left($node, 'the second release takes effect at the commit');

	$a->query("SELECT acquire_lock('r')");
	$a->query("BEGIN; SAVEPOINT s; SELECT release_lock('r'); SAVEPOINT s2; RELEASE s; SAVEPOINT s3; ROLLBACK TO s3; COMMIT");
	nothing_left($node, 'a release in a released savepoint takes effect at the commit');
}

# Savepoints are set, released and rolled back to in any order. A model predicts the result of the commit: it keeps a
# list of the calls of each open subtransaction.
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
	is(join("\n", @bad), '', 'random savepoints leave the locks that the model predicts');
}

# A lock that is acquired and released in one transaction.
$a->query("BEGIN; SELECT acquire_lock('r'); SELECT release_lock('r')");
is_taken('r', 'a lock acquired and released in one transaction is held until its end');
$a->query('COMMIT');
nothing_left($node, 'a lock acquired and released in one transaction is free after the commit');
$a->query("BEGIN; SELECT acquire_lock('r'); SELECT release_lock('r'); ROLLBACK");
nothing_left($node, 'a lock acquired and released in one transaction is free after a rollback');

# --- release, then acquire again ---

{
	my $token = $a->query("SELECT acquire_lock('r')");

	is($a->query("BEGIN; SELECT release_lock('r'); SELECT acquire_lock('r')"), "t\n$token",
		'a lock released and acquired again in one transaction keeps its token');
	$a->query('COMMIT');
	is($a->query("SELECT is_held('r', $token)"), 't', 'a lock released and acquired again is held after the commit');
	is($c->query('SELECT holds FROM lock_election.locks'), '1', 'a lock released and acquired again has one hold');

	is($a->query("BEGIN; SELECT release_lock('r'); SELECT acquire_lock('r'); SELECT release_lock('r')"), "t\n$token\nt",
		'a lock is released, acquired again and released once more');
	is_taken('r', 'the lock is held until the commit');
	$a->query('COMMIT');
	nothing_left($node, 'the last release takes effect at the commit');

	$token = $a->query("SELECT acquire_lock('r')");
	is($a->query("BEGIN; SELECT release_lock('r'); SAVEPOINT s; SELECT acquire_lock('r'); ROLLBACK TO s; SELECT is_held('r', $token)"),
		"t\n$token\nt", 'a lock is released and acquired again in a savepoint, which is rolled back');
	$a->query('COMMIT');
	nothing_left($node, 'the release takes effect after the acquire was rolled back');

	$token = $a->query("SELECT acquire_lock('r')");
	$a->query("BEGIN; SELECT release_lock('r'); SELECT acquire_lock('r'); ROLLBACK");
	is($a->query("SELECT is_held('r', $token)"), 't', 'a rollback of the release and the acquire keeps the lock');
	is($c->query('SELECT holds FROM lock_election.locks'), '1',
		'a rollback of the release and the acquire keeps one hold');
	is($a->query("SELECT release_lock('r')"), 't', 'the lock is released');
	nothing_left($node);

	# The rules for acquiring a lock again also apply after a release in the same transaction.
	$token = $a->query("SELECT acquire_lock('r', ttl => '10 s')");
	$a->query("BEGIN; SELECT release_lock('r'); SELECT acquire_lock('r', ttl => '1 h'); COMMIT");
	is($a->query("SELECT token = $token AND time_left > '59 min' FROM lock_election.locks"), 't',
		'acquiring again with a longer TTL extends the lease');
	$a->query("BEGIN; SELECT release_lock('r'); SELECT acquire_lock('r', ttl => '1 s'); COMMIT");
	is($a->query("SELECT token = $token AND time_left > '59 min' FROM lock_election.locks"), 't',
		'acquiring again with a shorter TTL does not shorten the lease');
	$a->query("BEGIN; SELECT release_lock('r'); SELECT acquire_lock('r', ttl => NULL)");
	like($a->error, qr/22023/, 'acquiring again as a bound lock fails');
	$a->query('ROLLBACK');
	is($a->query("SELECT release_lock('r')"), 't', 'the lock is released');

	$token = $a->query("SELECT acquire_lock('r', mode => 'shared')");
	is($b->query("SELECT acquire_lock('r', mode => 'shared') IS NOT NULL"), 't', 'two readers hold the lock');
	$a->query("BEGIN; SELECT release_lock('r'); SET LOCAL lock_timeout = '5s'; SELECT acquire_lock('r')");
	like($a->error, qr/22023/, 'a reader that releases and acquires again in mode exclusive gets an error');
	$a->query('ROLLBACK');
	$_->query("SELECT release_lock('r')") foreach $a, $b;
	nothing_left($node);

	# The same for a named owner.
	$token = $a->query("SELECT acquire_lock('r', owner => 'o')");
	is($a->query("BEGIN; SELECT release_lock('r', $token); SELECT acquire_lock('r', owner => 'o')"), "t\n$token",
		'a lock of a named owner is released and acquired again');
	$a->query('COMMIT');
	is($c->query('SELECT holds FROM lock_election.locks'), '1',
		'a lock of a named owner that was released and acquired again has one hold');
	$b->query("SELECT acquire_lock('r', owner => 'o')");
	is($a->query("BEGIN; SELECT release_lock('r', $token, all_holds => true); SELECT acquire_lock('r', owner => 'o')"), "t\n$token", 'all holds are released, and the lock is acquired again');
	$a->query('COMMIT');
	is($c->query('SELECT holds FROM lock_election.locks'), '1',
		'one hold is left after all holds were released and one was acquired');
	is($a->query("BEGIN; SELECT acquire_lock('r', owner => 'o'); SELECT release_lock('r', $token, all_holds => true); SELECT release_lock('r', $token)"),
		"$token\nt\nf", 'a release after a release of all holds returns false');
	$a->query('COMMIT');
	nothing_left($node);
}

# Another owner or lease does not cancel the pending release, and waits for the commit.
{
	my $lease = $a->query(q{SELECT grant_lease('5 min')});
	my $token = $a->query(q{SELECT acquire_lock('r', '5 min')});

	# The session waits for itself. On a busy machine, the deadlock might be detected before the wait times out.
	$a->query(q{SET deadlock_timeout = '1 min'});
	foreach my $who (q{owner => 'o'}, "lease => $lease")
	{
		is($a->query("BEGIN; SELECT release_lock('r', $token); SELECT acquire_lock('r', wait => '50 ms', $who)"), "t\n",
			'after a release, another owner or lease is not granted the lock before the commit');
		unlike($a->error, qr/ERROR/, 'the timeout of a wait for its own release is not an error');
		$a->query('ROLLBACK');
	}
	$a->query('RESET deadlock_timeout');
	is($a->query("SELECT release_lock('r', $token)"), 't', 'the lock is released');
	is($a->query("SELECT revoke_lease($lease)"), 't', 'the lease is revoked');
	nothing_left($node);
}

# On a named lease, holds are not counted: acquiring again keeps the lock.
{
	my $lease = $a->query('SELECT grant_lease()');
	my $token = $a->query("SELECT acquire_lock('l', lease => $lease)");

	is($a->query("BEGIN; SELECT release_lock('l'); SELECT acquire_lock('l', lease => $lease)"), "t\n$token",
		'a lock on a lease is released and acquired again');
	$a->query('COMMIT');
	is($c->query("SELECT is_held('l', $token)"), 't', 'a lock on a lease that was released and acquired again is held');
	is($a->query("SELECT release_lock('l', $token)"), 't', 'one release ends a lock on a lease');
	nothing_left($node);

	$token = $a->query("BEGIN; SELECT acquire_lock('l', lease => $lease)");
	is($a->query("SELECT release_lock('l'); SELECT acquire_lock('l', lease => $lease)"), "t\n$token",
		'a lock on a lease is acquired, released and acquired again in one transaction');
	$a->query('COMMIT');
	is($c->query("SELECT is_held('l', $token)"), 't', 'a lock on a lease that was acquired twice is held');
	is($a->query("BEGIN; SELECT release_lock('l', $token); SAVEPOINT s; SELECT acquire_lock('l', lease => $lease); ROLLBACK TO s"), "t\n$token",
		'a lock on a lease is acquired again, which is rolled back');
	$a->query('COMMIT');
	nothing_left($node, 'the lock on a lease is released after the acquire was rolled back');
	is($a->query("SELECT revoke_lease($lease)"), 't', 'the lease is revoked');
}

# An acquire cancels only the pending releases of its own token and name: not those of another kind, of a name of the
# same length or with the same prefix, or of another name of the same acquire_locks().
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
	is($a->query("BEGIN; $sql"), 't|t|t|t|t|t', 'six names on a lease are released in a transaction');
	$a->query("SELECT acquire_lock('l1', lease => $lease), acquire_lock('m2', lease => $lease)");
	$a->query('COMMIT');
	is($c->query($kept), 'lock l1, lock m2', 'the two locks that are acquired again are kept');
	$a->query("SELECT revoke_lease($lease)");
	$lease = $a->query(q{SELECT grant_lease('5 min')});
	my $several = $a->query("SELECT acquire_locks('{m1, m2}', lease => $lease)");
	is($a->query("BEGIN; SELECT release_locks('{m1, m2}', $several); SELECT acquire_locks('{m1, m2}', lease => $lease)"), "t\n$several", 'several names are released and acquired again at once');
	$a->query('COMMIT');
	is($c->query($kept), 'lock m1, lock m2', 'the names that are acquired again at once are kept');
	$a->query("SELECT revoke_lease($lease)");
	$sql = $ask->();
	$a->query("BEGIN; $sql; SELECT campaign('l1', 'c', lease => $lease); SAVEPOINT s; SELECT acquire_lock('l2', lease => $lease)");
	$a->query("ROLLBACK TO s; SELECT acquire_lock('l12', lease => $lease); COMMIT");
	is($c->query($kept), 'election l1, lock l12',
		'only the names acquired again outside the rolled-back savepoint are kept');
	is($a->query("SELECT revoke_lease($lease)"), 't', 'the lease is revoked');
	nothing_left($node);

	# The same without a lease.
	my %token = map { $_ => $a->query("SELECT acquire_lock('$_', '5 min')") } 'u1', 'u2';
	my $term = $a->query(q{SELECT campaign('u1', 'c', '5 min')});
	my $named = $a->query(q{SELECT acquire_lock('o1', '5 min', owner => 'o')});
	$a->query("BEGIN; SELECT resign('u1', $term), release_lock('u1'), release_lock('u2'), release_lock('o1', $named)");
	is($a->query(q{SELECT campaign('u1', 'c', '5 min')}), $term, 'an election with the same name as a released lock is acquired again');
	is($a->query(q{SELECT acquire_lock('u2', '5 min')}), $token{u2}, 'a lock is acquired again');
	cmp_ok($a->query(q{SELECT acquire_lock('u', '5 min')}), '>', $named,
		'a lock whose name is a prefix of the released names gets a new token');
	is($a->query(q{SELECT try_acquire_lock('o1')}), '',
		'without the owner, the lock of a named owner is not acquired again');
	$a->query('COMMIT');
	is($c->query($kept), 'election u1, lock u, lock u2',
		'the locks and the election that were acquired again are kept');
	is($c->query('SELECT max(holds) FROM lock_election.locks'), '1', 'each has one hold');
	is($a->query("SELECT resign('u1', $term), release_lock('u'), release_lock('u2')"), 't|t|t', 'all are released');
	nothing_left($node);
}

# Each permit has its own token and hold.
{
	my $first = $a->query("SELECT acquire_permit('p', 2)");
	my ($released, $second) = split /\n/, $a->query("BEGIN; SELECT release_lock('p'); SELECT acquire_permit('p', 2)");

	is($released, 't', 'a permit is released');
	cmp_ok($second, '>', $first, 'another permit is acquired after the release, with a new token');
	$a->query(q{SET LOCAL deadlock_timeout = '1 min'});
	is($a->query("SELECT acquire_permit('p', 2, wait => '200 ms')"), '',
		'a third permit is not granted before the commit');
	unlike($a->error, qr/ERROR/, 'the timeout of the wait for a permit is not an error');
	$a->query('COMMIT');
	is($c->query("SELECT count(*), max(holds) FROM lock_election.locks WHERE name = 'p'"), '1|1',
		'one permit is left after the commit');
	is($a->query("SELECT release_lock('p')"), 't', 'the permit is released');
	nothing_left($node);
}

# A connection with two shared holds, each with its own token.
{
	my $first = $a->query("SELECT acquire_lock('s', mode => 'shared')");
	my $second = $a->query("SELECT acquire_lock('s', mode => 'shared')");

	isnt($first, $second, 'a connection acquires two shared holds with different tokens');
	is($a->query("BEGIN; SELECT release_lock('s'); SELECT release_lock('s'); SELECT release_lock('s')"), "t\nt\nf",
		'a connection releases both shared holds in one transaction');
	$a->query('COMMIT');
	nothing_left($node);
}

# --- hold_for in a transaction ---

$a->query("BEGIN; SELECT release_lock('job', acquire_lock('job'), hold_for => '1 h'); COMMIT");
held('', 'released with hold_for in a transaction');
is_taken('job', 'a name that was released with hold_for is not granted');

# --- the TTL ends between the release and the commit ---

{
	my $token = $a->query("SELECT acquire_lock('r', ttl => '1 h')");

	is($a->query("BEGIN; UPDATE t SET v = -1; SELECT release_lock('r')"), 't',
		'release_lock() in a transaction returns true');
	shorten($c, 'r', $token, '300 ms');
	$b->async("SELECT acquire_lock('r')");
	waiting($b);
	ok(wait_until(sub { $c->query("SELECT is_held('r', $token)") eq 'f' }),
		'the TTL ends before the commit of the release');
	is($c->query('SELECT count(*) FROM lock_election.waiters'), '1',
		'the waiter is not granted the lock before the commit');
	is($c->query("SELECT fenced_by = ARRAY[$a->{pid}] FROM lock_election.locks WHERE name = 'r'"), 't',
		'view locks shows the session that fences the lock');
	is($c->query("SELECT renew_lock('r', $token)"), '', 'the lapsed lock cannot be renewed');
	$c->query('SELECT 1 FROM pg_sleep(1.2)');
	ok(!$b->ready, 'the waiter is not granted the lock later either');
	$a->query('COMMIT');
	like($b->wait, qr/^\d+$/, 'the waiter is granted the lock at the commit');
	is($b->query('SELECT v FROM t'), '-1', 'the new holder sees the write of the fencing transaction');
	$b->query("SELECT release_lock('r')");

	$token = $a->query("SELECT acquire_lock('r', ttl => '1 h')");
	$a->query("BEGIN; SELECT release_lock('r')");
	shorten($c, 'r', $token, '300 ms');
	ok(wait_until(sub { $c->query("SELECT is_held('r', $token)") eq 'f' }),
		'the TTL ends before the rollback of the release');
	$b->async("SELECT acquire_lock('r')");
	waiting($b);
	$a->query('ROLLBACK');
	like($b->wait, qr/^\d+$/, 'a waiter for the lapsed lock is granted it after a rollback');
	$b->query("SELECT release_lock('r')");

	# ROLLBACK TO ends the fence before the end of the transaction.
	$token = $a->query("SELECT acquire_lock('r', ttl => '1 h')");
	$a->query("BEGIN; SAVEPOINT s; SELECT release_lock('r')");
	shorten($c, 'r', $token, '300 ms');
	ok(wait_until(sub { $c->query("SELECT is_held('r', $token)") eq 'f' }), 'the TTL ends before the ROLLBACK TO');
	$b->async("SELECT acquire_lock('r')");
	waiting($b);
	$a->query('ROLLBACK TO s');
	like($b->wait, qr/^\d+$/, 'a waiter for the lapsed lock is granted it after ROLLBACK TO');
	$a->query('ROLLBACK');
	$b->query("SELECT release_lock('r')");

	# The session acquires the lock again too late. It would wait for itself.
	$token = $a->query("SELECT acquire_lock('r', ttl => '1 h')");
	$a->query("BEGIN; SELECT release_lock('r')");
	shorten($c, 'r', $token, '300 ms');
	ok(wait_until(sub { $c->query("SELECT is_held('r', $token)") eq 'f' }),
		'the TTL ends before the lock is acquired again');
	is($a->query("SELECT try_acquire_lock('r')"), '',
		'a lapsed lock is not acquired again by the session that fences it');
	$a->query("SET LOCAL lock_timeout = '5s'; SELECT acquire_lock('r')");
	like($a->error, qr/LE001/, 'acquire_lock() of a lock that the session fences itself raises LE001');
	$a->query('ROLLBACK');
	nothing_left($node);

	# force_release_lock() does not end a fence.
	$token = $a->query("SELECT acquire_lock('r', ttl => '1 h')");
	$a->query("BEGIN; UPDATE t SET v = -2; SELECT release_lock('r')");
	is($c->query("SELECT force_release_lock('r')"), '1',
		'force_release_lock() ends a holder whose release is not committed yet');
	$b->async("SELECT acquire_lock('r')");
	waiting($b);
	$a->query('COMMIT');
	like($b->wait, qr/^\d+$/, 'a waiter is granted the lock at the commit, despite force_release_lock()');
	$b->query("SELECT release_lock('r')");
	nothing_left($node);
}

# --- releases in functions and larger statements ---

$a->query(q{
	CREATE FUNCTION release_it(n text) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		RETURN release_lock(n);
	END $$;
	CREATE FUNCTION release_sql(n text) RETURNS boolean VOLATILE LANGUAGE sql AS 'SELECT release_lock(n)'});

# Each statement continues after the release. The session holds the lock until the statement ends.
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

	# Session c blocks the end of the statement.
	$c->query('SELECT pg_advisory_lock(1)');
	$a->async($sql);
	ok(wait_until(sub { $c->query("SELECT wait_event_type FROM pg_stat_activity WHERE pid = $a->{pid}") eq 'Lock' }),
		"$name: the statement continues after the release");
	is($c->query("SELECT is_held('r', $token), try_acquire_lock('r')"), 't|',
		"$name: the lock is held until the statement ends");
	$c->query('SELECT pg_advisory_unlock(1)');
	$a->wait;
	is($a->error, '', "$name: no error");
	$a->query('SELECT pg_advisory_unlock_all()');
	nothing_left($node, "$name: the release takes effect");
}

# A DO block that commits in the middle.
$a->query("SELECT acquire_lock('r')");
$c->query('SELECT pg_advisory_lock(1)');
$a->async(q{DO $$ BEGIN PERFORM release_lock('r'); COMMIT; PERFORM pg_advisory_lock(1); END $$});
ok(wait_until(sub { $c->query("SELECT wait_event_type FROM pg_stat_activity WHERE pid = $a->{pid}") eq 'Lock' }),
	'a DO block continues after its COMMIT');
is_free('r', 'the COMMIT in the DO block releases the lock');
$c->query('SELECT pg_advisory_unlock(1)');
$a->wait;
$a->query('SELECT pg_advisory_unlock_all()');

# An error later in the same simple query cancels the release.
{
	my $token = $a->query("SELECT acquire_lock('r')");
	$a->query(q{SELECT release_lock('r')\; SELECT 1 / 0});
	is($a->query("SELECT is_held('r', $token)"), 't',
		'an error in a later statement of the same simple query cancels a release');
	clean();
}

# A function that is wrongly marked as parallel safe. The transactions of its workers would commit holds that our
# transaction may roll back.
{
	$a->query(q{CREATE FUNCTION hidden(name text) RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE
		AS $$ BEGIN RETURN try_acquire_lock(name); END $$});
	$a->query(q{CREATE TABLE many AS SELECT i FROM generate_series(1, 50) i});
	$a->query(q{ALTER TABLE many SET (parallel_workers = 2)});
	$a->query(q{SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0});
	$a->query(q{BEGIN; SELECT count(hidden('worker ' || i)) FROM many});
	like($a->error, qr/25000: .*cannot execute lock functions during a parallel operation/, 'lock functions fail in a parallel worker');
	$a->query('ROLLBACK; RESET ALL; DROP TABLE many; DROP FUNCTION hidden');
	held('', 'no lock is held after the error in a parallel worker');
}

# --- errors at the commit ---

{
	my $token = $a->query("SELECT acquire_lock('kept')");

	$a->query("BEGIN; SELECT acquire_lock('undone'); SELECT release_lock('kept'); INSERT INTO child VALUES (1)");
	held('kept,undone', 'both locks are held before the commit');
	$a->query('COMMIT');
	like($a->error, qr/23503/, 'a deferred constraint fails at the commit');
	held('kept', 'a failed commit undoes acquires and cancels releases');
	is($a->query("SELECT is_held('kept', $token)"), 't', 'the kept lock still has the same token');
	is($a->query("SELECT release_lock('kept')"), 't', 'the kept lock is released');
	nothing_left($node);
}

# --- tables that cannot be written at the commit ---

# The name in the context of the warning has a character that the client's encoding lacks.
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
	is($holder->error, '', 'the client gets no message that it cannot convert');
	ok($node->log_contains(qr/WARNING:  the transaction is committed, but/, $log), 'the log contains the warning');
	$locker->query('ROLLBACK');
	is($holder->query('SELECT count(*) FROM written'), $writes, 'the transaction is committed');
	is($holder->query(q{SELECT release_lock('r', acquire_lock('r', wait => '20 s'))}), 't', 'the session still works');
	$_->quit foreach $holder, $locker;
	one('DROP DATABASE utf8');
}

{
	$a->query("SELECT acquire_lock('r', ttl => NULL)");
	$a->query("BEGIN; UPDATE t SET v = 8; SELECT release_lock('r')");
	$c->query('BEGIN; LOCK TABLE _lock_election.slot IN ACCESS EXCLUSIVE MODE');
	$a->async('COMMIT');
	is($a->wait, '', 'a commit does not wait for locked tables');
	like($a->error, qr/WARNING:  01000: the transaction is committed, but the locks that it releases may still be held\nDETAIL:  the tables of extension/,
		'the commit succeeds with a warning');
	$b->query("SELECT acquire_lock('other')");
	like($b->error, qr/ERROR/, 'an acquire fails while the tables are locked');
	$c->query('COMMIT');
	nothing_left($node, 'the release takes effect when the tables are unlocked');
	is($a->query("SELECT acquire_lock('r') IS NOT NULL"), 't', 'the session still works after the warning');
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
	held('held', "$how->[0]: undone after the failed PREPARE TRANSACTION");
	is($a->query("SELECT release_lock('held')"), 't', 'release');
	is($c->query('SELECT count(*) FROM pg_prepared_xacts'), '0', 'no transaction is prepared');
}
$a->query("BEGIN; UPDATE t SET v = 0; PREPARE TRANSACTION 'two'");
is($a->error, '', 'PREPARE TRANSACTION without lock functions succeeds');
$a->query("COMMIT PREPARED 'two'");
nothing_left($node);

# --- pg_stat_statements, whose hooks are called by our hooks ---

if ($counts)
{
	my $counted = sub { return one(qq{SELECT coalesce(string_agg(calls || ' ' || rows, ','), 'none') FROM pg_stat_statements WHERE query LIKE '$_[0]%'}); };

	$a->query(q{CREATE EXTENSION pg_stat_statements;
		CREATE TABLE hooked (v int);
		CREATE FUNCTION nested() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO t (id, v) SELECT 4711, 0; RETURN NULL; END$$;
		CREATE TRIGGER nested AFTER INSERT ON hooked FOR EACH ROW EXECUTE FUNCTION nested()});
	is($counted->('CREATE TABLE hooked'), '1 0', 'pg_stat_statements counts a utility command');
	$a->query(q{SELECT release_lock(n, acquire_lock(n)) FROM (VALUES ('h1'), ('h2')) AS hooked_query(n)}) for 1 .. 2;
	is($counted->('SELECT release_lock(n, acquire_lock(n)) FROM'), '2 4',
		'pg_stat_statements counts a query and its rows');
	$a->query('INSERT INTO hooked VALUES (1)');
	is($counted->('INSERT INTO hooked'), '1 1', 'pg_stat_statements counts an INSERT with an AFTER trigger');
	is($counted->('INSERT INTO t (id, v) SELECT'), 'none',
		'pg_stat_statements does not count the nested statement of the trigger');
	is($a->query('SELECT v FROM t WHERE id = 4711'), '0', 'the trigger runs');
	$a->query('DROP EXTENSION pg_stat_statements; DROP TABLE hooked; DELETE FROM t WHERE id = 4711');
}

# --- random commits, rollbacks and releases ---

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
			push @bad, "$round: committed, but also granted to another session as $got" if $got ne '';
			push @bad, "$round: not held" if $a->query("SELECT release_lock('again', $token)") ne 't';
		}
		else
		{
			push @bad, "$round: case $how: still held" if $got eq '';
			$b->query("SELECT release_lock('again')");
		}
	}
	is(join("\n", @bad), '', '200 transactions with random ends hold or release the lock as expected');
	nothing_left($node);
}

$_->quit foreach $a, $b, $c;
$node->stop;
done_testing();
