# Fences: in a transaction that has fenced a lock, every write is that of the current holder, or fails.
# Promises: F
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', conf => "max_locks_per_transaction = 10\nmax_connections = 20\nmax_prepared_transactions = 2\n");
my ($a, $b, $c) = map { session($node) } 1 .. 3;

sub acquire
{
	my ($session, $name, $ttl) = @_;
	return $session->query("SELECT acquire_lock('$name', '" . ($ttl // '1 h') . "')");
}

# Waits until the token is no longer held, from the point of view of every session.
sub lapsed
{
	my ($name, $token) = @_;
	return wait_for_sql($node, "SELECT is_held('$name', $token)", 'f');
}

sub fails
{
	my ($session, $sql, $error, $test_name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$session->query($sql);
	like($session->error, $error, $test_name);
	$session->query('ROLLBACK');
	return;
}

sub client_signal { my ($session, $signal) = @_; return kill $signal, map { $_->{PID} } @{ $session->{run}{KIDS} }; }

one('CREATE TABLE account (id int PRIMARY KEY, balance int)');

# --- the end of a fence wakes up the next waiter ---

# The manager checks every second whether a fence has ended; the next holder must not wait for that check.
{
	my @took;

	foreach (1 .. 5)
	{
		my $token = acquire($a, 'ended');

		$a->query("BEGIN; SELECT fence_lock('ended', $token)");
		shorten($c, 'ended', $token, '300 ms');
		$b->async(q{SELECT acquire_lock('ended', '1 h')});
		waiting($b);
		lapsed('ended', $token);
		my $start = time;
		$a->query('COMMIT');
		like($b->wait, qr/^\d+$/, 'the waiter is granted the lock when the fence ends');
		push @took, time - $start;
		$b->query(q{SELECT release_lock('ended')});
	}
	cmp_ok((sort { $::a <=> $::b } @took)[2], '<', 0.5, 'the waiter is granted the lock immediately after the fence ends');
}

# --- a holder that is suspended past its TTL ---

# The session reads 100, is stopped with a signal, and later writes 100 + 1; meanwhile the next holder adds 10. Returns
# the balance and the session's error.
sub sleeper
{
	my ($begin) = @_;
	my $sleeper = session($node);
	my ($token, $next);

	one('DELETE FROM account; INSERT INTO account VALUES (1, 100)');
	$token = $sleeper->query("SELECT acquire_lock('account', ttl => '500 ms')");
	$sleeper->query("SELECT balance AS was FROM account \\gset");
	client_signal($sleeper, 'STOP');
	$sleeper->async(sprintf("$begin; UPDATE account SET balance = :was + 1; COMMIT", $token));

	$next = $b->query("SELECT acquire_lock('account')");
	cmp_ok($next, '>', $token, 'the waiter is granted the lock when the TTL of the suspended holder has expired');
	$b->query("BEGIN; SELECT fence_lock('account', $next); UPDATE account SET balance = balance + 10; COMMIT");
	$b->query("SELECT release_lock('account', $next)");

	client_signal($sleeper, 'CONT');
	$sleeper->wait;
	my $error = $sleeper->error;
	$sleeper->quit;
	return (one('SELECT balance FROM account'), $error);
}

{
	my ($balance, $error) = sleeper('BEGIN');
	is($balance, '101', 'without a fence, the suspended holder overwrites an update');
	is($error, '', 'without a fence, the suspended holder gets no error');

	($balance, $error) = sleeper("BEGIN; SELECT fence_lock('account', %s)");
	is($balance, '110', 'with a fence, the update of the next holder is kept');
	like($error, qr/LE001: lock "account" is not held by token \d+/, 'with a fence, the suspended holder gets error LE001');

	nothing_left($node);
}

# --- outside of a transaction block ---

{
	my $token = acquire($a, 'x', '1 h');

	$a->query("SELECT fence_lock('x', $token)");
	like($a->error, qr/WARNING:  25P01: the fence ends with this statement/, 'fence_lock() outside a transaction block warns that the fence ends immediately');
	$a->query("DO \$\$ BEGIN PERFORM fence_lock('x', $token); END \$\$");
	is($a->error, '', 'fence_lock() within a function does not warn');
	$a->query("SELECT release_lock('x', $token)");
}

# --- the TTL expires while the lock is fenced ---

{
	my $token = acquire($a, 'x');

	is($a->query("BEGIN; SELECT fence_lock('x', $token)"), '', 'fence_lock() returns nothing');
	is($a->error, '', 'fence_lock() raises no error or warning');
	shorten($c, 'x', $token, '300 ms');
	$b->async("SELECT acquire_lock('x')");
	waiting($b);
	lapsed('x', $token);
	is($c->query("SELECT fenced_by = ARRAY[$a->{pid}] FROM lock_election.locks WHERE name = 'x'"), 't', 'the view locks shows the pid that fences the lock');
	is($c->query("SELECT time_left FROM lock_election.locks WHERE name = 'x'"), '00:00:00', 'the view locks shows no time left for the expired lock');
	is($c->query("SELECT renew_lock('x', $token)"), '', 'an expired TTL cannot be renewed');
	is($c->query("SELECT release_lock('x', $token)"), 'f', 'a token that has expired while fenced cannot be released');
	fails($c, "SELECT fence_lock('x', $token)", qr/LE001: .*\nDETAIL:  .*Nobody holds it now\./, 'a token that has expired while fenced cannot be fenced by another transaction');
	is($a->query("SELECT fence_lock('x', $token)") . $a->error, '', 'the fencing transaction can fence the expired token again');
	ok(!$b->ready, 'the waiter is not granted the lock before the fence ends');
	$a->query('COMMIT');
	like($b->wait, qr/^\d+$/, 'the waiter is granted the lock at the commit');
	fails($a, "SELECT fence_lock('x', $token)", qr/LE001/, 'the token cannot be fenced after the commit');
	$b->query("SELECT release_lock('x')");
	nothing_left($node);
}

# --- every other way to end a holder also waits for the fence ---

foreach my $how (
	[ 'release_lock by another connection', sub { $c->query("SELECT release_lock('x', $_[0])") }, 't' ],
	[ 'force_release_lock', sub { $c->query("SELECT force_release_lock('x')") }, '1' ],
	[ 'revoke_lease', sub { $c->query("SELECT revoke_lease((SELECT lease FROM lock_election.leases))") }, 't' ])
{
	my ($name, $end, $answer) = @$how;
	my $lease = $name =~ /lease$/ && $name !~ /_lock/ ? $a->query('SELECT grant_lease()') : 'NULL';
	my $token = $a->query("SELECT acquire_lock('x', lease => $lease)");
	my $pid = $a->pid;

	$a->query("BEGIN; SELECT fence_lock('x', $token)");
	$b->async("SELECT acquire_lock('x')");
	waiting($b);
	is($end->($token), $answer, "$name of a fenced lock");
	like($c->error, qr/NOTICE: .* fenced by the transaction of process $pid/, "$name names the process that fences") if $name =~ /force/;
	$c->query('SELECT 1 FROM pg_sleep(1.2)');
	ok(!$b->ready, "$name: the waiter is not granted the lock before the fence ends");
	$a->query('COMMIT');
	like($b->wait, qr/^\d+$/, "$name: the waiter is granted the lock at the commit");
	$b->query("SELECT release_lock('x')");
	nothing_left($node, "$name: nothing is left behind");
}

{
	# The lock is bound to a connection that ends, while the transaction of another connection fences it.
	my $holder = session($node);
	my $token = $holder->query("SELECT acquire_lock('x', ttl => NULL)");

	$a->query("BEGIN; SELECT fence_lock('x', $token)");
	$holder->quit;
	lapsed('x', $token);
	$b->async("SELECT acquire_lock('x')");
	waiting($b);
	$a->query('ROLLBACK');
	like($b->wait, qr/^\d+$/, 'a lock of an ended connection is granted only after the fence of another connection');
	$b->query("SELECT release_lock('x')");
	nothing_left($node);
}

# --- subtransactions ---

{
	my $token = acquire($a, 'x');

	$a->query("BEGIN; SAVEPOINT s; SELECT fence_lock('x', $token); SAVEPOINT later");
	shorten($c, 'x', $token, '300 ms');
	$b->async("SELECT acquire_lock('x')");
	waiting($b);
	lapsed('x', $token);
	$a->query('ROLLBACK TO later');
	$c->query('SELECT 1 FROM pg_sleep(1.2)');
	ok(!$b->ready, 'ROLLBACK TO a later savepoint keeps the fence');
	$a->query('ROLLBACK TO s');
	like($b->wait, qr/^\d+$/, 'ROLLBACK TO a savepoint before the fence ends the fence');
	$a->query('COMMIT');
	$b->query("SELECT release_lock('x')");

	# Fenced in the outer transaction and again in a subtransaction.
	$token = acquire($a, 'x');
	$a->query("BEGIN; SELECT fence_lock('x', $token); SAVEPOINT s; SELECT fence_lock('x', $token); ROLLBACK TO s");
	shorten($c, 'x', $token, '300 ms');
	$b->async("SELECT acquire_lock('x')");
	waiting($b);
	lapsed('x', $token);
	$c->query('SELECT 1 FROM pg_sleep(1.2)');
	ok(!$b->ready, 'the fence of the outer transaction survives ROLLBACK TO');
	$a->query('COMMIT');
	like($b->wait, qr/^\d+$/, 'the fence of the outer transaction ends at its commit');
	$b->query("SELECT release_lock('x')");

	# An error aborts only the subtransaction.
	$a->query(q{BEGIN; DO $$ BEGIN PERFORM fence_lock('x', 1); EXCEPTION WHEN SQLSTATE 'LE001' THEN RAISE NOTICE 'late'; END $$});
	like($a->error, qr/late/, 'LE001 can be caught in an exception block');
	is($a->query('SELECT 1'), '1', 'the transaction can continue after a caught LE001');
	$a->query('COMMIT');
	nothing_left($node);
}

# --- privileges and wrong arguments ---

{
	one('CREATE ROLE other LOGIN; GRANT ALL ON SCHEMA public TO other');
	my $other = session($node, user => 'other');
	my $token = $a->query("SELECT acquire_lock('x')");

	fails($other, "BEGIN; SELECT fence_lock('x', $token)", qr/42501: lock "x" is held by another role/, 'the lock of another role cannot be fenced');
	fails($other, "BEGIN; SELECT fence_lock('y', $token)", qr/LE001/, 'the token of another lock cannot be fenced, as another role');
	fails($a, "SELECT fence_lock('y', $token)", qr/LE001/, 'the token of another lock cannot be fenced by its holder');
	fails($a, "SELECT fence_lock('x', 1)", qr/LE001/, 'a token that never existed cannot be fenced');
	fails($a, 'SELECT fence_lock(NULL, 1)', qr/22023: name must not be null/, 'fence_lock() rejects a null name');
	fails($a, "SELECT fence_lock('x', NULL)", qr/22023: token must not be null/, 'fence_lock() rejects a null token');
	fails($a, "SELECT fence_lock('', 1)", qr/22023/, 'fence_lock() rejects an empty name');
	fails($a, "BEGIN; SELECT fence_lock('x', $token); PREPARE TRANSACTION 'p'", qr/0A000/, 'PREPARE TRANSACTION is rejected in a transaction with a fence');

	# Two transactions of the same role.
	$a->query("BEGIN; SELECT fence_lock('x', $token)");
	$b->query("BEGIN; SELECT fence_lock('x', $token)");
	is($a->error . $b->error, '', 'two transactions of the same role can fence one lock');
	is($c->query("SELECT fenced_by @> ARRAY[$a->{pid}, $b->{pid}] FROM lock_election.locks"), 't', 'the view locks shows both transactions that fence the lock');
	$a->query("SELECT release_lock('x')");
	$a->query('COMMIT');
	$c->async("SELECT acquire_lock('x')");
	waiting($c);
	ok(!$c->ready, 'a released lock with two fences stays after the first commit');
	$b->query('COMMIT');
	like($c->wait, qr/^\d+$/, 'a released lock with two fences is granted after the second commit');
	$c->query("SELECT release_lock('x')");

	# force_release_lock() reports the fences of those holders that the caller may end, up to a limit.
	my $own = $other->query(q{SELECT acquire_lock('x', '5 min', mode => 'shared')});
	my $theirs = $a->query(q{SELECT acquire_lock('x', '5 min', mode => 'shared')});
	$other->query("BEGIN; SELECT fence_lock('x', $own)");
	$a->query("BEGIN; SELECT fence_lock('x', $theirs)");
	my $forced = session($node, user => 'other');
	is($forced->query(q{SELECT force_release_lock('x')}), '1', 'force_release_lock() ends only the holder of its own role');
	is(join(' ', $forced->error =~ /is fenced by the transaction of process (\d+)/g), $other->pid, 'force_release_lock() reports only the fence of that holder');
	$_->query('COMMIT') foreach $other, $a;
	is($forced->query(q{SELECT name FROM lock_election.locks WHERE mode IS NOT NULL}), 'x', 'the holder of the other role remains');
	$forced->quit;
	one('CREATE ROLE watchman LOGIN IN ROLE pg_signal_backend');
	$a->query("BEGIN; SELECT fence_lock('x', $theirs)");
	like(error_of(q{SELECT force_release_lock('x')}, user => 'watchman'), qr/is fenced by the transaction of process $a->{pid}, and ends with it\n/,
		'a member of pg_signal_backend gets a notice about the fence of another role');
	$a->query('COMMIT');
	one('DROP ROLE watchman');
	$a->query(q{SELECT count(acquire_permit('many', 20, '5 min')) FROM generate_series(1, 18)});
	is($a->query(q{BEGIN; SELECT count(fence_lock(name, token)) FROM lock_election.locks WHERE name = 'many'}), '18', '18 permits of one name are fenced');
	is($c->query(q{SELECT force_release_lock('many')}), '18', 'force_release_lock() ends all 18 fenced permits');
	is(scalar(() = $c->error =~ /fenced by the transaction of process $a->{pid}, and ends with it\n/g), 16, 'force_release_lock() reports at most 16 fences');
	is(scalar(() = $c->error =~ /HINT:  pg_terminate_backend\($a->{pid}\) would end that transaction\.\n/g), 16, 'force_release_lock() gives a hint for each reported fence');
	$a->query('COMMIT');

	# A READ ONLY transaction can fence a lock that another connection holds.
	$token = acquire($c, 'x');
	is($a->query("BEGIN READ ONLY; SELECT fence_lock('x', $token); COMMIT") . $a->error, '', 'fence_lock() works in a READ ONLY transaction');
	$c->query("SELECT release_lock('x')");
	$other->quit;
	nothing_left($node);
}

# --- the fencing backend is killed, or the manager restarts ---

{
	my $d = session($node);
	my $token = acquire($d, 'x');

	$d->query("BEGIN; SELECT fence_lock('x', $token)");
	shorten($c, 'x', $token, '300 ms');
	lapsed('x', $token);
	$b->async("SELECT acquire_lock('x')");
	waiting($b);
	$c->query("SELECT pg_terminate_backend($d->{pid})");
	like($b->wait, qr/^\d+$/, 'a terminated backend leaves no fence');
	$b->query("SELECT release_lock('x')");
	$d->quit;

	my ($lapsed, $valid) = (acquire($a, 'lapsed'), acquire($a, 'valid'));
	$a->query("BEGIN; SELECT fence_lock('lapsed', $lapsed); SELECT fence_lock('valid', $valid)");
	shorten($c, 'lapsed', $lapsed, '300 ms');
	lapsed('lapsed', $lapsed);
	my $manager = one('SELECT pid FROM lock_election.manager');
	kill 'TERM', $manager;
	wait_for_sql($node, "SELECT pid <> $manager FROM lock_election.manager");
	is($c->query("SELECT is_held('lapsed', $lapsed)"), 'f', 'a lock that expired while fenced is not held after a restart of the manager');
	is($c->query("SELECT is_held('valid', $valid)"), 't', 'a fenced lock that did not expire is held after a restart of the manager');
	$b->async("SELECT acquire_lock('lapsed')");
	waiting($b);
	shorten($c, 'valid', $valid, '300 ms');
	lapsed('valid', $valid);
	$c->async("SELECT acquire_lock('valid')");
	waiting($c);
	ok(!$b->ready && !$c->ready, 'both locks are still fenced after a restart of the manager');
	$a->query('COMMIT');
	like($_->wait, qr/^\d+$/, 'each waiter is granted its lock at the commit') foreach $b, $c;
	$b->query("SELECT release_lock('lapsed')");
	$c->query("SELECT release_lock('valid')");
	nothing_left($node);
}

# --- fence_timeout ---

{
	my ($idle, $busy, $savepoint, $quick) = map { session($node) } 1 .. 4;
	my $log = -s $node->logfile;
	my %token = map { $_ => acquire($c, $_) } qw(idle busy savepoint);
	$token{quick} = acquire($c, 'quick');

	$node->append_conf('postgresql.conf', "lock_election.fence_timeout = '1s'\n");
	$node->reload;
	$idle->query("BEGIN; SELECT fence_lock('idle', $token{idle})");
	$savepoint->query("BEGIN; SAVEPOINT s; SELECT fence_lock('savepoint', $token{savepoint}); SAVEPOINT t");
	$quick->query("BEGIN; SELECT fence_lock('quick', $token{quick})");
	$busy->query("BEGIN; SELECT fence_lock('busy', $token{busy})");
	$busy->async('SELECT 1 FROM pg_sleep(60)');
	shorten($c, $_, $token{$_}, '300 ms') foreach qw(idle busy savepoint);
	lapsed($_, $token{$_}) foreach qw(idle busy savepoint);
	is($b->query("SELECT acquire_lock('$_', wait => '20 s') IS NOT NULL"), 't', "fence_timeout terminates the transaction: $_") foreach qw(idle busy savepoint);
	foreach my $session ($idle, $busy, $savepoint)
	{
		ok(wait_until(sub { $c->query("SELECT count(*) FROM pg_stat_activity WHERE pid = $session->{pid}") eq '0' }), 'fence_timeout terminates the connection');
	}
	like(slurp_file($node->logfile, $log),
		qr/terminating connection of process $idle->{pid} due to lock_election.fence_timeout.*Its transaction has fenced lock "idle", whose lease ended more than 1000 ms ago/s,
		'the log names the setting, the lock and the expired lease');
	is($quick->query('SELECT 1'), '1', 'fence_timeout does not terminate a holder whose lease is valid');
	is($quick->query("COMMIT; SELECT release_lock('quick', $token{quick})"), 't', 'a valid holder can commit after fence_timeout');
	$b->query("SELECT release_lock('$_')") foreach qw(idle busy savepoint);
	$_->quit foreach $idle, $busy, $savepoint, $quick;

	# 0 disables fence_timeout.
	$node->append_conf('postgresql.conf', "lock_election.fence_timeout = 0\n");
	$node->reload;
	my $token = acquire($a, 'x');
	$a->query("BEGIN; SELECT fence_lock('x', $token)");
	shorten($c, 'x', $token, '300 ms');
	lapsed('x', $token);
	is($b->query("SELECT acquire_lock('x', wait => '2500 ms')"), '', 'with fence_timeout = 0, the fence lasts');
	is($a->query('COMMIT') . $a->error, '', 'with fence_timeout = 0, the transaction can commit');
	nothing_left($node);
}

# --- guarded tables ---

{
	my $refused = qr/55000: cannot write to table "guarded": this transaction has not fenced lock "books"/;
	my $token = acquire($a, 'books');

	one(q{CREATE TABLE guarded (id int PRIMARY KEY, v int);
		INSERT INTO guarded VALUES (1, 1), (2, 2);
		CREATE TRIGGER a BEFORE INSERT OR UPDATE OR DELETE ON guarded FOR EACH ROW EXECUTE FUNCTION fence_guard('books');
		CREATE TRIGGER b BEFORE TRUNCATE ON guarded FOR EACH STATEMENT EXECUTE FUNCTION fence_guard('books')});
	fails($a, $_, $refused, "refused without a fence: $_")
	  foreach 'INSERT INTO guarded VALUES (3, 3)', 'UPDATE guarded SET v = 3', 'DELETE FROM guarded', 'TRUNCATE guarded',
	  'INSERT INTO guarded VALUES (1, 1) ON CONFLICT DO NOTHING';
	fails($a, "COPY guarded FROM PROGRAM 'echo 3,3' WITH (FORMAT csv)", $refused, 'refused without a fence: COPY');
	like($a->query('SELECT count(*) FROM guarded'), qr/2$/, 'a refused write changes nothing');

	$a->query("BEGIN; SELECT fence_lock('books', $token)");
	is($a->query('INSERT INTO guarded VALUES (3, 3) RETURNING v; UPDATE guarded SET v = v * 10 RETURNING v; DELETE FROM guarded WHERE id = 1 RETURNING v'),
		"3\n10\n20\n30\n10", 'with a fence, INSERT, UPDATE and DELETE write the intended rows');
	is($a->query('TRUNCATE guarded; INSERT INTO guarded VALUES (1, 1)') . $a->error, '', 'with a fence, TRUNCATE is allowed');
	$a->query('COMMIT');
	fails($a, 'UPDATE guarded SET v = 3', $refused, 'the next transaction needs a fence of its own');
	is(one('SELECT v FROM guarded'), '1', 'the guarded write is committed');

	# The guard checks the current fences, so a rolled-back fence does not count.
	$a->query("BEGIN; SAVEPOINT s; SELECT fence_lock('books', $token); UPDATE guarded SET v = 2; ROLLBACK TO s");
	is($a->error, '', 'a write in the fenced subtransaction is allowed');
	fails($a, 'UPDATE guarded SET v = 3', $refused, 'ROLLBACK TO ends the fence for the guard');
	$a->query("BEGIN; SAVEPOINT s; SELECT fence_lock('books', $token); RELEASE s; SAVEPOINT t; ROLLBACK TO t; UPDATE guarded SET v = 4; COMMIT");
	is($a->error, '', 'RELEASE SAVEPOINT keeps the fence for the guard');
	fails($a, "BEGIN; SAVEPOINT s; SAVEPOINT t; SELECT fence_lock('books', $token); RELEASE t; ROLLBACK TO s; UPDATE guarded SET v = 5", $refused,
		'ROLLBACK TO an outer savepoint ends a fence of a released subtransaction');
	fails($a, q{BEGIN; DO $$ BEGIN PERFORM fence_lock('books', } . $token . q{); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END $$; UPDATE guarded SET v = 5},
		$refused, 'an exception block that is rolled back ends the fence');

	# A fence of another transaction, of another lock, or with an old token.
	my $other = acquire($a, 'other');
	$b->query("BEGIN; SELECT fence_lock('books', $token)");
	fails($a, "BEGIN; SELECT fence_lock('other', $other); UPDATE guarded SET v = 5", $refused, 'the fence of another lock or of another transaction does not count');
	$b->query('COMMIT');
	$a->query("SELECT release_lock('books', $token)");
	my $next = acquire($b, 'books');
	fails($a, "BEGIN; SELECT fence_lock('books', $token); UPDATE guarded SET v = 5", qr/LE001/, 'an earlier holder cannot fence the lock');
	fails($a, q{BEGIN; DO $$ BEGIN PERFORM fence_lock('books', } . $token . q{); EXCEPTION WHEN SQLSTATE 'LE001' THEN NULL; END $$; UPDATE guarded SET v = 5},
		$refused, 'an earlier holder that ignores LE001 cannot write');
	$b->query("BEGIN; SELECT fence_lock('books', $next); UPDATE guarded SET v = 6; COMMIT");
	is($b->error . one('SELECT v FROM guarded'), '6', 'the next holder can write');
	$b->query("SELECT release_lock('books')");
	$a->query("SELECT release_lock('other')");

	# The TTL has expired while the lock is fenced: nobody else can be granted it, so the transaction may write.
	$token = acquire($a, 'books');
	$a->query("BEGIN; SELECT fence_lock('books', $token)");
	shorten($c, 'books', $token, '300 ms');
	lapsed('books', $token);
	$a->query('UPDATE guarded SET v = 7; COMMIT');
	is($a->error . one('SELECT v FROM guarded'), '7', 'a fenced transaction can write after its TTL has expired');
	is($a->query("SET session_replication_role = replica; UPDATE guarded SET v = 8 RETURNING v; RESET session_replication_role"), '8',
		'the guard is skipped when a replica applies changes');
	nothing_left($node);
}

# --- guards with a wrong definition ---

{
	one('CREATE TABLE wrong (v int); CREATE VIEW wrong_view AS SELECT * FROM wrong');
	my @wrong = (
		[ 'BEFORE INSERT ON wrong FOR EACH ROW', '', qr/22023: trigger "g" must call fence_guard with one argument/, 'no argument' ],
		[ 'BEFORE INSERT ON wrong FOR EACH ROW', "'a', 'b'", qr/22023: trigger "g" must call fence_guard with one argument/, 'two arguments' ],
		[ 'BEFORE INSERT ON wrong FOR EACH ROW', "'a', 'lock', 'c'", qr/22023: trigger "g" must call fence_guard with one argument/, 'three arguments' ],
		[ 'BEFORE INSERT ON wrong FOR EACH ROW', "'a', 'election', 'c'", qr/22023: trigger "g" must call fence_guard with one argument/, 'three for an election' ],
		[ 'BEFORE INSERT ON wrong FOR EACH ROW', "''", qr/22023: trigger "g" calls fence_guard with a name of 0 bytes/, 'an empty name' ],
		[ 'BEFORE INSERT ON wrong', "'" . ('n' x 256) . "'", qr/22023: trigger "g" calls fence_guard with a name of 256 bytes\n.*DETAIL:  A name has 1 to 255 bytes\./, 'a name too long' ],
		[ 'BEFORE INSERT ON wrong', "'" . ('n' x 255) . "'", qr/55000: cannot write .* fenced lock "n{255}"\n.*HINT:  Call fence_lock\(name, token\) in this transaction first\./, 'the longest name is accepted' ],
		[ 'AFTER INSERT ON wrong FOR EACH ROW', "'a'", qr/39P01: trigger "g" must be fired BEFORE/, 'AFTER' ],
		[ 'INSTEAD OF INSERT ON wrong_view FOR EACH ROW', "'a'", qr/39P01: trigger "g" must be fired BEFORE/, 'INSTEAD OF' ]);
	foreach my $case (@wrong)
	{
		my ($when, $arguments, $error, $name) = @$case;
		my $table = $when =~ /view/ ? 'wrong_view' : 'wrong';
		fails($a, "BEGIN; CREATE TRIGGER g $when EXECUTE FUNCTION fence_guard($arguments); INSERT INTO $table VALUES (1)", $error, "wrong use: $name");
	}
	fails($a, 'SELECT fence_guard()', qr/0A000|39P01/, 'wrong use: called outside a trigger');
	nothing_left($node);
}

# --- more fences than the lock table of PostgreSQL has room for ---

{
	my $lease = $a->query('SELECT grant_lease()');

	is($a->query("SELECT count(acquire_lock('n' || n, lease => $lease)) FROM generate_series(1, 3000) AS n"), '3000', '3000 locks are acquired');
	$a->query("CREATE TEMP TABLE held AS SELECT name, token FROM lock_election.locks");
	is($a->query("BEGIN; SELECT count(fence_lock(name, token)) FROM (SELECT * FROM held LIMIT 100) AS few; COMMIT"), '100', '100 of them are fenced in one transaction');

	# While the lock table is full, the manager cannot write. Requests that need no row are served, also for fenced
	# locks.
	my ($name, $token) = split /\|/, $a->query('SELECT name, token FROM held LIMIT 1');
	my $long = acquire($b, 'long', '1 min');
	my $short = acquire($c, 'short');
	$c->query("BEGIN; SELECT fence_lock('short', $short)");
	shorten($b, 'short', $short, '500 ms');
	$a->query(q{BEGIN; DO $$ DECLARE n int := 0;
		BEGIN LOOP BEGIN PERFORM pg_advisory_xact_lock(n); EXCEPTION WHEN out_of_memory THEN EXIT; END; n := n + 1; END LOOP; END $$});
	is($a->error, '', 'the lock table of PostgreSQL is full');
	$a->query('SAVEPOINT no_room');
	$a->query("SELECT fence_lock('$name', $token)");
	like($a->error, qr/53200: out of shared memory.*max_locks_per_transaction/s, 'a fence in a full lock table fails with out of shared memory');
	$a->query('ROLLBACK TO no_room');
	select undef, undef, undef, 1;
	is($b->query("SELECT renew_lock('long', $long)") . $b->error, '00:01:00', 'renewals succeed while the lock table is full');
	$b->query("SELECT try_acquire_lock('meanwhile')");
	like($b->error, qr/53200: out of shared memory/, 'a new lock cannot be acquired while the lock table is full');
	$a->query('ROLLBACK');
	ok(wait_until(sub { $b->query("SELECT try_acquire_lock('meanwhile') IS NOT NULL") eq 't' }), 'a new lock can be acquired when the lock table has room again');
	is($b->query("SELECT release_lock('meanwhile') AND release_lock('long')"), 't', 'locks can be released when the lock table has room again');
	lapsed('short', $short);
	$c->query('COMMIT');
	is($a->query("BEGIN; SELECT fence_lock('$name', $token); COMMIT") . $a->error, '', 'fence_lock() succeeds when the lock table has room again');
	is(one(q{SELECT count(*) FROM pg_locks WHERE locktype = 'userlock'}), '0', 'no fence is left');
	$a->query("SELECT revoke_lease($lease)");
	nothing_left($node);
}

$_->quit foreach $a, $b, $c;
$node->stop;
done_testing();
