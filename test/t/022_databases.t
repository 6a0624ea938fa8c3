# Databases, and the extension in them, are created and dropped under managers, holders and waiters.
# Promises: G, A
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', conf => "autovacuum = off\nlock_election.max_databases = 4\nmax_prepared_transactions = 2\n");

# Checks that managers exited normally when they were asked to. Otherwise the postmaster logs their exit.
sub left_in_peace
{
	my ($server, $from, $test_name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return unlike(slurp_file($server->logfile, $from), qr/lock_election manager.*exited with exit code/, $test_name);
}

sub new_database
{
	my ($name) = @_;
	one("CREATE DATABASE $name");
	one('CREATE EXTENSION lock_election', $name);
	return;
}

subtest 'DROP EXTENSION with waiters' => sub {
	my ($holder, $bound, $open, $ended) = map { session($node) } 1 .. 4;
	my @waiters = map { session($node) } 1 .. 3;
	my $log = -s $node->logfile;

	$ended->query(q{SELECT acquire_lock('ended', NULL)});
	$holder->query(q{SELECT acquire_lock('x', '1 h')});
	$bound->query(q{SELECT acquire_lock('bound', NULL)});
	$open->query(q{BEGIN; SELECT acquire_lock('open', '1 h')});
	$_->async(q{SELECT acquire_lock('x', '1 h')}) foreach @waiters;
	wait_for_waiters(3, undef, dbname => 'postgres');
	is(error_of('DROP EXTENSION lock_election'), '', 'the extension is dropped');
	foreach my $waiter (@waiters)
	{
		$waiter->wait;
		like($waiter->error, qr/ERROR:  55000: extension lock_election was dropped/,
			'DROP EXTENSION ends a wait with an error');
	}
	$open->query('ROLLBACK');
	is($open->error, '', 'a transaction that has acquired a lock can roll back after DROP EXTENSION');
	wait_for_sql($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'lock_election manager'});
	$ended->quit;
	wait_for_sql($node, 'SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ' . $ended->pid);
	one('CREATE EXTENSION lock_election');
	my @next = map { session($node) } 1 .. 3;
	is(join('', map { $_->query(q{SET statement_timeout = '20 s'; SELECT is_held('ended', 1)}) . $_->error } @next), 'fff',
		'a session that reuses the mailbox of an ended session works after CREATE EXTENSION');
	$_->quit foreach @next;
	is($open->query(q{SELECT acquire_lock('x', '1 h') IS NOT NULL}), 't', 'an old session works after CREATE EXTENSION') or diag($open->error);
	is($bound->query(q{SELECT try_acquire_lock('bound', '1 h') IS NOT NULL}), 't', 'old locks do not exist after CREATE EXTENSION') or diag($bound->error);
	$waiters[0]->async(q{SELECT acquire_lock('x', '1 h')});
	wait_for_waiters(1, undef, dbname => 'postgres');

	# Dropped and created in one transaction: waiters continue to wait or get an error, but never hang.
	is(error_of('BEGIN; DROP EXTENSION lock_election; CREATE EXTENSION lock_election; COMMIT'), '',
		'the extension is dropped and created in one transaction');
	$waiters[0]->wait;
	like($waiters[0]->error, qr/^$|ERROR:  55000: /, 'the wait continues or ends with an error');
	is(one(q{SELECT acquire_lock('y', '1 h') IS NOT NULL}), 't', 'a lock can be acquired in the new extension');
	is(error_of('BEGIN; DROP EXTENSION lock_election; ROLLBACK'), '', 'DROP EXTENSION is rolled back');
	is(one(q{SELECT try_acquire_lock('y') IS NULL}), 't',
		'the lock is still held after the rollback of DROP EXTENSION');
	like(error_of('DROP SCHEMA lock_election CASCADE'), qr/ERROR:  2BP01: cannot drop schema lock_election because extension lock_election requires it/,
		'the schema cannot be dropped');
	like(error_of('DROP TABLE _lock_election.slot'), qr/ERROR:  2BP01: /, 'the table cannot be dropped');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach $holder, $bound, $open, @waiters;
	nothing_left($node);
	left_in_peace($node, $log, 'managers of dropped extensions exit normally');
};

subtest 'DROP EXTENSION that is rolled back' => sub {
	my $s = session($node);
	my $token = $s->query(q{SELECT acquire_lock('x', '1 h')});
	my $manager = manager_pid();

	is(error_of('BEGIN; SAVEPOINT s; DROP EXTENSION lock_election; ROLLBACK TO s; COMMIT'), '',
		'DROP EXTENSION is rolled back to a savepoint');
	is(error_of('BEGIN; DROP EXTENSION lock_election; ROLLBACK'), '',
		'DROP EXTENSION is rolled back with its transaction');
	is($s->query("SELECT release_lock('x', $token)"), 't', 'the lock was still held after both rollbacks');
	is(manager_pid(), $manager, 'the manager was not replaced');
	$s->quit;
	nothing_left($node);
};

# COMMIT PREPARED could run in another database, where it could not notify the manager.
subtest 'DROP and CREATE EXTENSION, prepared' => sub {
	foreach my $sql ('DROP EXTENSION lock_election', 'DROP EXTENSION lock_election; CREATE EXTENSION lock_election',
		'INSERT INTO _lock_election.incarnation_floor VALUES (1)')
	{
		like(error_of("BEGIN; $sql; PREPARE TRANSACTION 'p'"),
			qr/ERROR:  0A000: cannot PREPARE a transaction that has created, dropped or restored extension lock_election/, $sql);
	}
	is(one(q{SELECT release_lock('x', acquire_lock('x'))}), 't', 'locks work after the failed PREPARE TRANSACTION');
};

# The library tracks which subtransaction created or dropped the extension. A rollback must undo this, and must not undo
# it for outer subtransactions.
subtest 'DROP and CREATE EXTENSION in subtransactions, and of other extensions' => sub {
	my $again = 'DROP EXTENSION lock_election; CREATE EXTENSION lock_election';
	my $call = q{SELECT release_lock('x', acquire_lock('x'))};
	my ($no_call, $no_prepare) = (qr/ERROR:  55000: cannot use locks in the transaction that created/, qr/ERROR:  0A000: cannot PREPARE a transaction that has created, dropped/);

	foreach my $case (
		[ "SAVEPOINT s; $again; ROLLBACK TO s; $call", qr/^$/ ],
		[ "SAVEPOINT s; SAVEPOINT t; $again; RELEASE t; ROLLBACK TO s; $call", qr/^$/ ],
		[ "$again; SAVEPOINT s; ROLLBACK TO s; $call", $no_call ],
		[ "$again; SAVEPOINT s; $again; ROLLBACK TO s; $call", $no_call ],
		[ "SAVEPOINT s; $again; SAVEPOINT t; ROLLBACK TO t; $call", $no_call ],
		[ "SAVEPOINT s; DROP EXTENSION lock_election; ROLLBACK TO s; PREPARE TRANSACTION 'p'", qr/^$/ ],
		[ "DROP EXTENSION lock_election; SAVEPOINT s; ROLLBACK TO s; PREPARE TRANSACTION 'p'", $no_prepare ],
		[ "$again; SAVEPOINT s; $again; ROLLBACK TO s; PREPARE TRANSACTION 'p'", $no_prepare ],
		[ "DROP EXTENSION plpgsql; CREATE EXTENSION plpgsql; $call", qr/^$/ ],
		[ "DROP EXTENSION plpgsql; CREATE EXTENSION plpgsql; PREPARE TRANSACTION 'p'", qr/^$/ ],
		[ "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'; ALTER EXTENSION lock_election ADD FUNCTION f(); $call", qr/^$/ ],
		[ "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'; ALTER EXTENSION lock_election ADD FUNCTION f(); PREPARE TRANSACTION 'p'", qr/^$/ ])
	{
		my ($sql, $error) = @$case;

		like(error_of("BEGIN; $sql"), $error, $sql);
		one(q{ROLLBACK PREPARED 'p'}) if $sql =~ /PREPARE/ && $error eq qr/^$/;
	}
	is(one($call), 't', 'locks work after all cases');
};

# The launcher looks for new databases every 5 s by itself, and a sleeping manager does not notice DROP EXTENSION by
# itself. On a busy machine, the test is repeated.
subtest 'a manager starts and exits with the extension' => sub {
	my $watch = session($node);
	my ($came, $went) = (3, 0.5);
	my $until = sub {
		my ($n) = @_;
		my $start = time;
		wait_until(sub { $watch->query(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'lock_election manager' AND datname = 'looked'}) eq $n }, undef, 0.01)
		  or die 'the number of managers does not change';
		return time - $start;
	};

	one('CREATE DATABASE looked');
	for (my $try = 1; $try <= 10 && ($came >= 3 || $went >= 0.5); $try++)
	{
		# Wait until the launcher has handled the wakeup by the exit of the previous manager.
		$watch->query('SELECT pg_sleep(0.5)');
		one('CREATE EXTENSION lock_election', 'looked');
		my $took = $until->(1);
		$came = $took if $took < $came;
		one('SELECT FROM lock_election.locks; SELECT pg_sleep(0.2)', 'looked');
		one('DROP EXTENSION lock_election', 'looked');
		$took = $until->(0);
		$went = $took if $took < $went;
	}
	cmp_ok($came, '<', 3, 'CREATE EXTENSION starts a manager immediately');
	cmp_ok($went, '<', 0.5, 'DROP EXTENSION ends the manager immediately');
	$watch->quit;
	one('DROP DATABASE looked');
};

# The manager finds new tables, to which its memory does not apply.
subtest 'the extension is dropped and created while the manager has a request to write' => sub {
	my ($holder, $asks) = map { session($node) } 1 .. 2;
	my $token = $holder->query(q{SELECT acquire_lock('x', '1 h')});
	my $pid = manager_pid();

	kill 'STOP', $pid;
	is(error_of('BEGIN; DROP EXTENSION lock_election; CREATE EXTENSION lock_election; COMMIT'), '',
		'the extension is dropped and created');
	$asks->async(q{SELECT acquire_lock('y', '1 h')});
	wait_for_sql($node, 'SELECT wait_event IS NOT NULL AND state = $$active$$ FROM pg_stat_activity WHERE pid = ' . $asks->pid);
	kill 'CONT', $pid;
	$asks->wait;
	like($asks->error, qr/^$|ERROR:  55000: extension lock_election was dropped/, 'the request is granted by the next manager, or fails with an error');
	wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
	is($holder->query("SELECT is_held('x', $token)"), 'f', 'old locks do not exist');
	cmp_ok($holder->query(q{SELECT acquire_lock('y', '1 h', wait => '0') >> 28}) || $asks->query(q{SELECT token >> 28 FROM lock_election.locks WHERE name = 'y'}),
		'>=', one('SELECT incarnation FROM _lock_election.meta'), 'tokens belong to an incarnation that is on disk');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach $holder, $asks;
	nothing_left($node);
};

subtest 'a lock immediately after CREATE EXTENSION' => sub {
	foreach my $i (1 .. 8)
	{
		one('CREATE DATABASE fresh');
		my $token = one(q{CREATE EXTENSION lock_election; SELECT acquire_lock('x')}, 'fresh');
		like($token, qr/^\d+$/, "new database $i: a lock is granted");
		one('DROP DATABASE fresh');
	}
	one('CREATE DATABASE fresh');
	foreach my $i (1 .. 8)
	{
		like(one(q{CREATE EXTENSION lock_election; SELECT acquire_lock('x')}, 'fresh'), qr/^\d+$/,
			"same database, new extension $i: a lock is granted");
		like(one(q{DROP EXTENSION lock_election; CREATE EXTENSION lock_election; SELECT try_acquire_lock('x')}, 'fresh'), qr/^\d+$/, "dropped and created $i: a lock is granted");
		one('DROP EXTENSION lock_election', 'fresh');
	}
	foreach my $call (q{acquire_lock('x')}, q{try_acquire_lock('x')}, q{release_lock('x')}, q{renew_lock('x', 1)}, q{is_held('x', 1)}, q{force_release_lock('x')}, q{advance_revision(1)})
	{
		like(error_of("BEGIN; CREATE EXTENSION lock_election; SELECT $call", dbname => 'fresh'), qr/ERROR:  55000: cannot use locks in the transaction that created/, $call);
	}
	is(one(q{BEGIN; SAVEPOINT s; CREATE EXTENSION lock_election; ROLLBACK TO s; CREATE EXTENSION lock_election; COMMIT; SELECT acquire_lock('x') IS NOT NULL}, 'fresh'), 't', 'a lock is granted after the commit of CREATE EXTENSION');
	one('DROP EXTENSION lock_election; CREATE SCHEMA locks; CREATE EXTENSION lock_election SCHEMA locks', 'fresh');
	like(one(q{SELECT locks.acquire_lock('x')}, 'fresh'), qr/^\d+$/, 'the functions work in another schema');
	is(one(q{SELECT count(*) FROM lock_election.locks}, 'fresh'), 1, 'the views are always in schema lock_election');
	one('DROP DATABASE fresh');
};

subtest 'DROP DATABASE' => sub {
	new_database('d1');
	one(q{SELECT acquire_lock('x', '1 h')}, 'd1');
	is(error_of('DROP DATABASE d1'), '', 'a database with a manager and a lock is dropped');

	new_database('d2');
	my ($holder, $waiter) = map { session($node, dbname => 'd2') } 1 .. 2;
	my $token = $holder->query(q{SELECT acquire_lock('x', '1 h')});
	$waiter->async(q{SELECT acquire_lock('x', '1 h')});
	wait_for_waiters(1, undef, dbname => 'd2');
	my $pid = one('SELECT pid FROM lock_election.manager', 'd2');
	# PostgreSQL waits for sessions for 5 s; a command that needs exclusive use of the database would wait for the
	# manager for 5 s more.
	my $took;
	foreach my $try (1, 2)
	{
		my $start = time;

		like(error_of('DROP DATABASE d2'), qr/ERROR:  55006: database "d2" is being accessed/,
			'DROP DATABASE fails if there are waiters');
		$took = time - $start;
		last if $took < 10;
	}
	cmp_ok($took, '<', 10, 'DROP DATABASE does not wait for the manager if there are other sessions');
	is($holder->query("SELECT is_held('x', $token)"), 't', 'the lock is still held after the failed DROP DATABASE');
	is(one('SELECT pid FROM lock_election.manager', 'd2'), $pid,
		'the manager keeps running after the failed DROP DATABASE');
	is(error_of('DROP DATABASE d2 WITH (FORCE)'), '', 'DROP DATABASE WITH (FORCE) succeeds');
	is($waiter->wait, undef, 'the waiter returns nothing');
	like($waiter->error, qr/57P01/, 'the connection of the waiter is terminated');
	$_->quit foreach $holder, $waiter;
	wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'lock_election manager'});

	# PostgreSQL waits up to 5 s for clients that are about to disconnect. The manager exits after the last of them.
	new_database('d3');
	my $drops = session($node);
	my $has_it = q{SELECT count(*) > 0 FROM pg_locks WHERE classid = 'pg_database'::regclass AND granted AND mode = 'AccessExclusiveLock' AND pid = } . $drops->pid;
	my $log = -s $node->logfile;
	foreach my $try (1 .. 3)
	{
		one(q{SELECT release_lock('x', acquire_lock('x'))}, 'd3');
		my @last = map { session($node, dbname => 'd3') } 1 .. 2;
		$drops->async('DROP DATABASE d3');
		wait_until(sub { $drops->ready || one($has_it) eq 't' });
		one('SELECT pg_sleep(0.5)'); # The launcher has handled the wakeup by the command.
		my $start = time;
		$_->quit foreach @last;
		$drops->wait;
		$took = time - $start;
		last if $drops->error !~ /55006/;
	}
	is($drops->error, '', 'DROP DATABASE succeeds if the clients disconnect meanwhile');
	cmp_ok($took, '<', 4, 'the manager exits before the launcher would look by itself');
	left_in_peace($node, $log, 'the manager of the dropped database exits normally');
	$drops->quit;
};

# PostgreSQL lets only a superuser terminate these processes, so they must have exited before PostgreSQL looks for
# sessions.
subtest 'DROP DATABASE WITH (FORCE) by the owner' => sub {
	one('CREATE ROLE le_owner LOGIN');
	my $drops = session($node, user => 'le_owner');
	my $workers = q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'owned' AND backend_type ~ '^lock_election'};

	foreach my $stopped (0, 0, 1)
	{
		new_database('owned');
		one('ALTER DATABASE owned OWNER TO le_owner');
		one(q{SELECT campaign('e', 'me', '1 h')}, 'owned');
		wait_for_sql($node, $workers, '2');
		my $notifier = one(q{SELECT pid FROM pg_stat_activity WHERE datname = 'owned' AND backend_type = 'lock_election notifier'});
		my $client = session($node, dbname => 'owned', user => 'le_owner');

		# The command waits for 5 s, which may be too short on a busy machine. This is not long enough for an idle
		# notifier to exit by itself.
		my $start = time;
		stop_asleep($notifier) if $stopped;
		$drops->async('DROP DATABASE owned WITH (FORCE)');
		wait_for_sql($node, $workers, '1') if $stopped;
		kill 'CONT', $notifier;
		my $answer = $drops->wait . $drops->error;
		$answer = $drops->query('DROP DATABASE owned WITH (FORCE)') . $drops->error if $answer ne '' && time - $start >= 4;
		is($answer, '', 'the owner drops the database' . ($stopped ? ' after its notifier has exited' : ''));
		$client->quit;
	}
	$drops->quit;
	one('DROP ROLE le_owner');
};

# Once PostgreSQL begins to remove files, nobody can connect any more. Before 15.4, it still lets
# clients connect.
subtest 'DROP DATABASE cancelled after the database has become invalid' => sub {
	my ($locks, $drops) = map { session($node) } 1 .. 2;
	my $launcher = q{FROM pg_stat_activity WHERE backend_type = 'lock_election launcher'};
	my $pid = $drops->pid;

	new_database('half');
	one(q{SELECT acquire_lock('x', '1 h', owner => 'me')}, 'half');
	$locks->query('BEGIN; LOCK pg_tablespace');
	$drops->async('DROP DATABASE half');
	wait_for_sql($node, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'pg_tablespace'::regclass AND pid = $pid", '1');
	one("SELECT pg_cancel_backend($pid)");
	$drops->wait;
	like($drops->error, qr/ERROR:  57014: /, 'DROP DATABASE is cancelled');
	my $cancelled = one('SELECT clock_timestamp()');
	$locks->query('ROLLBACK');
	one('ALTER DATABASE postgres CONNECTION LIMIT -1'); # wakes up the launcher
	wait_for_sql($node, "SELECT state = 'idle' AND state_change > '$cancelled' $launcher");
	my $log = -s $node->logfile;
	one('SELECT pg_sleep(0.6)');
	unlike(slurp_file($node->logfile, $log), qr/lock_election manager.*FATAL/,
		'no manager tries to start in the invalid database');
	is($drops->query('DROP DATABASE half') . $drops->error, '', 'the invalid database is dropped');
	$_->quit foreach $locks, $drops;
};

subtest 'a manager that does not exit' => sub {
	new_database('stuck');
	my $token = one(q{SELECT acquire_lock('x', '1 h', owner => 'me')}, 'stuck');
	my $manager = one('SELECT pid FROM lock_election.manager', 'stuck');
	my $renames = session($node);
	my $pid = $renames->pid;
	my $log = -s $node->logfile;

	# The command waits for 5 s, and then PostgreSQL waits. On a busy machine, the cancel may come too late.
	stop_asleep($manager);
	my $took = 5;
	for (my $try = 1; $try <= 5 && $took >= 4.5; $try++)
	{
		my $start = time;
		$renames->async('ALTER DATABASE stuck RENAME TO other');
		wait_until(sub { $renames->ready || one("SELECT wait_event_type FROM pg_stat_activity WHERE pid = $pid") eq 'Extension' });
		one("SELECT pg_log_backend_memory_contexts($pid)");
		wait_until(sub { $node->log_contains(qr/logging memory contexts of PID $pid/, $log) });
		my $used = cpu_time($pid);
		one('SELECT pg_sleep(0.5)');
		cmp_ok(cpu_time($pid) - $used, '<', 0.1, 'the command sleeps while it waits for the manager');
		one("SELECT pg_cancel_backend($pid)");
		$renames->wait;
		$took = time - $start;
	}
	like($renames->error, qr/ERROR:  57014: /, 'the command can be cancelled while it waits for the manager');
	cmp_ok($took, '<', 4.5, 'the cancel takes effect immediately');
	kill 'CONT', $manager;
	is(one("SELECT is_held('x', $token)", 'stuck'), 't', 'the lock is still held after the cancelled command');
	$renames->quit;
	one('DROP DATABASE stuck');
};

# COMMIT PREPARED may run in another process, which could not end the reservation of the database.
subtest 'ALTER DATABASE in a prepared transaction' => sub {
	new_database('first_name');
	my $token = one(q{SELECT acquire_lock('x', '1 h', owner => 'me')}, 'first_name');
	my $renames = session($node);

	is($renames->query(q{BEGIN; ALTER DATABASE first_name RENAME TO second_name; PREPARE TRANSACTION 'renamed'}) . $renames->error, '', 'ALTER DATABASE is prepared');
	one(q{COMMIT PREPARED 'renamed'});
	is(one("SELECT is_held('x', $token)", 'second_name'), 't', 'the lock is still held after COMMIT PREPARED');
	$renames->quit;
	one('DROP DATABASE second_name');
};

# The later of two commands takes over the reservation. The end of the earlier command must not end the reservation, nor
# free the entry.
subtest 'two commands for one database' => sub {
	my ($first, $second) = map { session($node) } 1 .. 2;
	my $waits = q{SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = } . $second->pid;
	my $managers = q{SELECT count(*) FROM pg_stat_activity WHERE datname IN ('two', 'too') AND backend_type = 'lock_election manager'};

	new_database('two');
	one(q{SELECT acquire_lock('x', '1 h', owner => 'me')}, 'two');
	$first->query('BEGIN; ALTER DATABASE two RENAME TO too');
	$second->async('ALTER DATABASE two RENAME TO too');
	wait_for_sql($node, $waits, '1');
	kill 'STOP', $second->pid;
	$first->query('ROLLBACK');
	replace_manager(); # The launcher has looked at all databases.
	is(one($managers), '0', 'the end of the earlier command starts no manager');
	kill 'CONT', $second->pid;
	is($second->wait . $second->error, '', 'the later command succeeds');

	# DROP DATABASE waits for clients for 5 s, which is too short on a busy machine. In this case the other command
	# renames the database.
	my $drops = q{SELECT count(*) > 0 FROM pg_locks WHERE classid = 'pg_database'::regclass AND granted AND mode = 'AccessExclusiveLock' AND pid = } . $first->pid;
	foreach my $try (1 .. 5)
	{
		my $client = session($node, dbname => 'too');
		$first->async('DROP DATABASE too');
		wait_until(sub { $first->ready || one($drops) eq 't' });
		$second->async('ALTER DATABASE too RENAME TO two');
		wait_until(sub { $second->ready || one($waits) eq '1' });
		$client->quit;
		$first->wait;
		$second->wait;
		last if $first->error !~ /55006/ || $try == 5;
		error_of('ALTER DATABASE two RENAME TO too');
	}
	is($first->error, '', 'one command drops the database');
	like($second->error, qr/ERROR:  3D000: /, 'the other command does not find the database');
	$_->quit foreach $first, $second;
	new_database("m$_") foreach 1 .. 3;
	like(one(q{SELECT acquire_lock('x')}, "m$_"), qr/^\d+$/,
		"all entries are free: a lock is granted in m$_") foreach 1 .. 3;
	one("DROP DATABASE m$_") foreach 1 .. 3;
};

subtest 'ALTER DATABASE' => sub {
	my $space = PostgreSQL::Test::Utils::tempdir();

	new_database('a1');
	my $token = one(q{SELECT acquire_lock('x', '1 h', owner => 'me')}, 'a1');
	my $log = -s $node->logfile;
	is(error_of('ALTER DATABASE a1 RENAME TO a2'), '', 'ALTER DATABASE RENAME succeeds');
	is(one("SELECT is_held('x', $token), (SELECT database FROM lock_election.manager)", 'a2'), 't|a2',
		'the lock is held after RENAME, and the manager has the new name');
	like(slurp_file($node->logfile, $log), qr/LOG:  lock_election manager started\n.*CONTEXT:  lock_election manager a2\n/, 'the log has the new name of the database');
	one("CREATE TABLESPACE space LOCATION '$space'");
	is(error_of('ALTER DATABASE a2 SET TABLESPACE space'), '', 'ALTER DATABASE SET TABLESPACE succeeds');
	is(one("SELECT is_held('x', $token)", 'a2'), 't', 'the lock is held after SET TABLESPACE');
	is(error_of('BEGIN; ALTER DATABASE a2 RENAME TO a3; ROLLBACK'), '', 'ALTER DATABASE RENAME is rolled back');
	is(one("SELECT is_held('x', $token)", 'a2'), 't', 'the lock is held after the rollback of RENAME');
	my $block = session($node);
	$block->query('BEGIN; SAVEPOINT s');
	$block->query('ALTER DATABASE a2 RENAME TO template1');
	like($block->error, qr/42P04/, 'a RENAME in a savepoint fails');
	$block->query('ROLLBACK TO s');
	is(one("SELECT is_held('x', $token)", 'a2'), 't',
		'the lock can be read in the open transaction after the failed RENAME');
	$block->query('ALTER DATABASE a2 RENAME TO a4; SAVEPOINT s');
	$block->query('ALTER DATABASE a4 RENAME TO template1');
	like($block->error, qr/42P04/, 'a second RENAME fails in a savepoint');
	$block->query('ROLLBACK TO s; COMMIT');
	is(one("SELECT is_held('x', $token)", 'a4'), 't', 'the first RENAME is committed, and the lock is held');
	new_database('b1');
	my $other = one(q{SELECT acquire_lock('x', '1 h', owner => 'me')}, 'b1');
	$block->query('BEGIN; ALTER DATABASE a4 RENAME TO a2');
	$block->query('ALTER DATABASE b1 RENAME TO b2');
	is($block->query('COMMIT') . $block->error, '', 'two databases are renamed in one transaction');
	is(one("SELECT is_held('x', $token)", 'a2') . one("SELECT is_held('x', $other)", 'b2'), 'tt',
		'the locks are held in both renamed databases');
	left_in_peace($node, $log, 'managers of altered databases exit normally');
	one('DROP DATABASE b2');
	$block->quit;

	# Settings of a database are meant for the sessions of its users.
	foreach my $set ('default_transaction_read_only = on', 'default_transaction_isolation = serializable', 'default_transaction_deferrable = on',
		'lock_timeout = 1', 'statement_timeout = 1', 'idle_in_transaction_session_timeout = 1', 'search_path = nowhere', 'role = pg_monitor',
		'row_security = off', 'synchronous_commit = off', 'enable_seqscan = off', 'zero_damaged_pages = on', 'default_tablespace = space',
		'session_replication_role = replica', 'client_min_messages = error', 'timezone = Mars')
	{
		error_of("ALTER DATABASE a2 SET $set");
	}
	local $ENV{PGOPTIONS} = '-c statement_timeout=0'; # so that a busy machine cannot make our own statements fail
	my $manager = one(q{RESET ROLE; SET search_path = public; SELECT pid FROM lock_election.manager}, 'a2');
	kill 'TERM', $manager;
	my $reset = q{RESET ROLE; SET lock_timeout = 0; SET search_path = public; };
	like(one("$reset SELECT acquire_lock('y', '1 h')", 'a2'), qr/^\d+$/,
		'ALTER DATABASE SET does not affect the manager');
	is(one("$reset SELECT is_held('x', $token)", 'a2'), 't', 'the lock is still held with these settings');
	is(one("$reset SELECT acquire_lock('y', '1 h', wait => '100 ms')", 'a2'), '',
		'a wait times out with these settings');
	is(one("$reset SELECT force_release_lock('y')", 'a2'), 1, 'a lock is released by force with these settings');
	one('DROP DATABASE a2');
	one('DROP TABLESPACE space');
};

# A command that will be rejected must not end the manager first.
subtest 'permission to copy or alter a database' => sub {
	one('CREATE ROLE le_creator LOGIN CREATEDB');
	one('CREATE ROLE le_nobody LOGIN');
	new_database('mine');
	one(q{SELECT release_lock('x', acquire_lock('x'))}, 'mine');
	my $manager = one('SELECT pid FROM lock_election.manager', 'mine');
	my $try = sub {
		my ($role) = @_;
		return error_of("SET ROLE $role; CREATE DATABASE mine_copy TEMPLATE mine");
	};

	like($try->('le_nobody'), qr/42501/, 'a role without CREATEDB cannot copy the database');
	foreach my $refused (
		[ 'postgres', 'SET ROLE le_creator; DROP DATABASE mine', '42501' ],
		[ 'postgres', 'SET ROLE le_creator; ALTER DATABASE mine RENAME TO yours', '42501' ],
		[ 'postgres', 'SET ROLE le_creator; ALTER DATABASE mine SET TABLESPACE pg_default', '42501' ],
		[ 'postgres', 'BEGIN; DROP DATABASE mine', '25001' ],
		[ 'postgres', 'BEGIN; CREATE DATABASE mine_copy TEMPLATE mine', '25001' ],
		[ 'postgres', 'BEGIN; ALTER DATABASE mine SET TABLESPACE pg_default', '25001' ],
		[ 'postgres', q{DO $$ BEGIN DROP DATABASE mine; END $$}, '25001' ],
		[ 'mine', 'DROP DATABASE mine', '55006' ],
		[ 'mine', 'ALTER DATABASE mine RENAME TO yours', '0A000' ])
	{
		my ($dbname, $sql, $code) = @$refused;

		like(error_of($sql, dbname => $dbname), qr/ERROR:  $code: /, "$sql: fails in $dbname");
		is(one('SELECT pid FROM lock_election.manager', 'mine'), $manager, 'the failed command ends no manager: $sql');
	}
	foreach my $sql ('ALTER DATABASE mine CONNECTION LIMIT 50', 'CREATE ROLE mine; ALTER ROLE mine RENAME TO yours; DROP ROLE yours',
		'CREATE TABLE t (mine int); ALTER TABLE t RENAME COLUMN mine TO yours; DROP TABLE t')
	{
		is(error_of($sql), '', $sql);
		is(one('SELECT pid FROM lock_election.manager', 'mine'), $manager,
			'the command needs no exclusive use and ends no manager: $sql');
	}
	like($try->('le_creator'), qr/42501/, 'a role with CREATEDB cannot copy the database of another role');
	is(one('SELECT pid FROM lock_election.manager', 'mine'), $manager, 'the failed copy ends no manager');
	one('ALTER DATABASE mine IS_TEMPLATE true');
	like($try->('le_nobody'), qr/42501/, 'a role without CREATEDB cannot copy a template');
	is(one('SELECT pid FROM lock_election.manager', 'mine'), $manager, 'the failed copy of a template ends no manager');
	is($try->('le_creator'), '', 'a role with CREATEDB can copy a template');
	one('DROP DATABASE mine_copy');
	one('ALTER DATABASE mine IS_TEMPLATE false');
	one('ALTER DATABASE mine OWNER TO le_nobody');
	$manager = one('SELECT pid FROM lock_election.manager', 'mine');
	like($try->('le_nobody'), qr/42501/, 'the owner without CREATEDB cannot copy the database');
	is(one('SELECT pid FROM lock_election.manager', 'mine'), $manager, 'the failed copy by the owner ends no manager');
	one('ALTER DATABASE mine OWNER TO le_creator');
	is($try->('le_creator'), '', 'the owner with CREATEDB can copy the database');
	one('DROP DATABASE mine_copy');
	one('CREATE ROLE le_super SUPERUSER NOCREATEDB');
	is($try->('le_super'), '', 'a superuser can copy any database');
	one('DROP DATABASE mine_copy');
	is(error_of('CREATE DATABASE mine_copy TEMPLATE DEFAULT'), '', 'CREATE DATABASE with TEMPLATE DEFAULT succeeds');
	like(error_of('DROP DATABASE IF EXISTS nowhere'), qr/NOTICE:  00000: database "nowhere" does not exist, skipping$/m, 'DROP DATABASE IF EXISTS of an unknown database succeeds');
	one('DROP DATABASE mine_copy');
	one('DROP DATABASE mine');
	one("DROP ROLE $_") foreach qw(le_creator le_nobody le_super);
};

subtest 'CREATE DATABASE .. TEMPLATE' => sub {
	foreach my $strategy ('wal_log', 'file_copy')
	{
		new_database('original');
		my $token = one(q{SELECT acquire_lock('x', '1 h')}, 'original');
		one(q{SELECT release_lock('done', acquire_lock('done'))}, 'original');
		is(error_of("CREATE DATABASE copy TEMPLATE original STRATEGY $strategy"), '', "copied with $strategy");
		is(one(q{SELECT count(*) FROM lock_election.locks}, 'copy'), 0, 'the copy has no holder');
		is(one("SELECT is_held('x', $token)", 'copy'), 'f', 'the token is not valid in the copy');
		cmp_ok(one(q{SELECT acquire_lock('x', '1 h')}, 'copy'), '>', $token, 'a lock in the copy has a higher token');
		is(one("SELECT is_held('x', $token)", 'original'), 't', 'the original still holds its lock');

		my $client = session($node, dbname => 'original');
		my $bound = $client->query(q{SELECT acquire_lock('bound', NULL)});
		like(error_of("CREATE DATABASE copy2 TEMPLATE original STRATEGY $strategy"), qr/ERROR:  55006: /, 'a database with clients cannot be copied');
		is($client->query("SELECT is_held('bound', $bound)"), 't', 'the failed copy keeps bound locks');

		# The connection that copies its own database does not prevent the copy, nor does a client that disconnects in
		# time.
		my $copies = session($node, dbname => 'original');
		$copies->async("CREATE DATABASE copy3 TEMPLATE original STRATEGY $strategy");
		wait_for_sql($node, q{SELECT count(*) > 0 FROM pg_locks WHERE classid = 'pg_database'::regclass AND granted AND mode = 'ShareLock' AND pid = } . $copies->pid);
		$client->quit;
		$copies->wait;
		is($copies->error, '', 'a database is copied from within after the other client has disconnected');
		is($copies->query("SELECT is_held('x', $token)"), 't', 'the lock in the original is still held after the copy');
		$copies->quit;
		one('DROP DATABASE copy3');
		one('DROP DATABASE original');
		one('DROP DATABASE copy');
	}
};

subtest 'more databases than max_databases' => sub {
	new_database("m$_") foreach 1 .. 3;
	one(q{SELECT acquire_lock('x', '1 h')}, "m$_") foreach 1 .. 3;
	one('CREATE DATABASE m4');
	one('CREATE EXTENSION lock_election', 'm4');
	my $start = time;
	my $error = error_of(q{SELECT acquire_lock('x')}, dbname => 'm4');
	cmp_ok(time - $start, '<', 4, 'a call fails without waiting if no entry will be free');
	like($error, qr/ERROR:  53400: lock_election cannot serve more than 4 databases/,
		'the error says that the limit is exceeded');
	like($error, qr/DETAIL:  Database "m4" would exceed this limit\.\nHINT:  Raise lock_election\.max_databases and restart the server\.\n/, 'the error names the setting');
	is(one(q{SELECT try_acquire_lock('x') IS NULL}, 'm1'), 't', 'other databases still work');
	one('DROP DATABASE m1');
	like(one(q{SELECT acquire_lock('x', '1 h')}, 'm4'), qr/^\d+$/, 'a lock is granted when an entry is free again');
	one("DROP DATABASE m$_") foreach 2 .. 4;
};

# A command that has reserved its database occupies an entry and will free it.
subtest 'an entry that will be free' => sub {
	my $log = -s $node->logfile;
	my ($renames, $s);
	my $waits = sub { return one(q{SELECT wait_event_type = 'Extension' AND state = 'active' FROM pg_stat_activity WHERE pid = } . $s->pid) eq 't' };

	one('CREATE DATABASE renamed');
	$renames = session($node);
	$renames->query('BEGIN; ALTER DATABASE renamed RENAME TO other_name');
	foreach my $i (1 .. 2)
	{
		new_database("m$i");
		one(q{SELECT acquire_lock('x', '1 h')}, "m$i");
	}
	new_database('m3');
	$s = session($node, dbname => 'm3');
	my $start = time;
	$s->async(q{SELECT acquire_lock('x')});

	# Nothing wakes the session up when an entry is free, so it checks often, even after it has waited for long.
	wait_until(sub { time - $start > 3 });
	my $asleep = times_asleep($s->pid);
	wait_until(sub { time - $start > 4 });
	SKIP: {
		skip 'the kernel does not count context switches', 1 unless defined $asleep;
		cmp_ok(times_asleep($s->pid) - $asleep, '>', 8, 'a session repeatedly checks for a free entry');
	}
	$s->wait;
	like($s->error, qr/ERROR:  53400: lock_election cannot serve more than 4 databases/, 'the session gets no entry');
	cmp_ok(time - $start, '>=', 5, 'the session has waited for an entry');

	# The wait is shorter than the time until the launcher tries again.
	$s->async(q{SELECT acquire_lock('x', '1 h', wait => '4 s')});
	wait_until(sub { $s->ready || $waits->() });
	ok(!$s->ready, 'the next call waits for an entry');
	$renames->query('ROLLBACK');
	like($s->wait, qr/^\d+$/, 'the call succeeds when the entry is free') or diag($s->error);
	my $said = () = slurp_file($node->logfile, $log) =~ /lock_election cannot start a manager for database "m3"/g;
	is($said, 1, 'the log reports the missing entry once');
	$_->quit foreach $renames, $s;
	one("DROP DATABASE $_") foreach 'renamed', map { "m$_" } 1 .. 3;
};

subtest 'the launcher is killed' => sub {
	my $launcher = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election launcher'};
	my $old = one($launcher);
	my $manager = one('SELECT pid FROM lock_election.manager');
	my ($holder, $waiter) = map { session($node) } 1 .. 2;
	my $token = $holder->query(q{SELECT acquire_lock('x', '1 h')});

	$waiter->async(q{SELECT acquire_lock('x', '1 h')});
	wait_for_waiters(1, undef, dbname => 'postgres');
	my $log = -s $node->logfile;
	stop_asleep($old); # A termination within a transaction would be logged as FATAL.
	kill 'TERM', $old;
	kill 'CONT', $old;
	wait_for_sql($node, "SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'lock_election launcher' AND pid <> $old");
	unlike(slurp_file($node->logfile, $log), qr/lock_election launcher.*FATAL/, 'the launcher exits normally');
	is(one('SELECT pid FROM lock_election.manager'), $manager, 'managers keep running without the launcher');
	new_database('l1');
	like(one(q{SELECT acquire_lock('x', '1 h')}, 'l1'), qr/^\d+$/, 'the new launcher starts a manager');

	# Both launcher and manager.
	$old = one($launcher);
	kill 'TERM', $old, $manager;
	is($holder->query("SELECT release_lock('x', $token)"), 't',
		'a request succeeds after launcher and manager are replaced') or diag($holder->error);
	ok($waiter->wait, 'the waiter is granted the lock');
	one('DROP DATABASE l1');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach $holder, $waiter;
	nothing_left($node);
};

subtest 'when the launcher looks for databases' => sub {
	my $launcher = one(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election launcher'});
	my $state = sub { return one("SELECT $_[0] FROM pg_stat_activity WHERE pid = $launcher"); };
	my $configure = sub {
		my ($value, $reload) = @_;
		$node->append_conf('postgresql.conf', "track_activities = $value");
		$node->reload if $reload;
	};

	# Runs a statement, and returns the time until the launcher has looked for databases again.
	my $looks = sub {
		my ($sql) = @_;
		my $before = $state->('state_change');

		one($sql);
		my $start = time;
		wait_until(sub { $state->('state_change') ne $before });
		return time - $start;
	};

	# By itself, the launcher looks every five seconds.
	my $took;
	foreach my $try (1 .. 3)
	{
		$looks->('SELECT 1');
		$took = $looks->('ALTER DATABASE postgres CONNECTION LIMIT 90');
		last if $took < 4;
	}
	cmp_ok($took, '<', 4, 'ALTER DATABASE wakes up the launcher');
	ok(wait_until(sub { $state->(q{state || ' ' || query}) eq 'idle looking for databases' }),
		'pg_stat_activity shows what the launcher does');
	ok(wait_until(sub { $state->(q{state = 'idle' AND state_change - query_start < interval '4 s'}) eq 't' }),
		'pg_stat_activity shows when the launcher looked');

	# Also if the session has just altered a database.
	my $s = session($node);
	my $now = $state->('state_change');
	$s->query('ALTER DATABASE postgres CONNECTION LIMIT 91');
	wait_until(sub { $state->('state_change') ne $now });
	my $woken = sub { return (slurp_file("/proc/$launcher/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m)[0]; };
	my $before = $woken->() // 0;
	$s->query(q{DO $$ BEGIN FOR i IN 1 .. 20000 LOOP COMMIT; END LOOP; END $$});
	cmp_ok(($woken->() // 0) - $before, '<', 200, 'commits of other transactions do not wake up the launcher');
	$s->quit;

	$configure->('off', 1);
	wait_for_sql($node, "SELECT state FROM pg_stat_activity WHERE pid = $launcher", 'disabled');
	$configure->('on', 0);
	replace_manager();
	is($state->('state'), 'disabled', 'the launcher does not reload its configuration without SIGHUP');
	$configure->('on', 1);
	wait_for_sql($node, "SELECT state FROM pg_stat_activity WHERE pid = $launcher", 'idle');
	one('ALTER DATABASE postgres CONNECTION LIMIT -1');
};

subtest 'errors that explain why no manager runs' => sub {
	my $not_running = 'ERROR:  57P03: the lock_election manager of database "%s" is not running\nDETAIL:  ';
	my $manager = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election manager' AND datname = '%s'};
	my $in = sub { return sprintf "SELECT count(*) FROM pg_stat_activity WHERE pid IN (%s)", join ',', @_ };

	# DROP DATABASE waits while clients are connected. On a busy machine, it gives up too soon.
	new_database('needed');
	my ($s, $drops) = (session($node, dbname => 'needed'), session($node));
	my $error;
	foreach (1 .. 5)
	{
		like($s->query(q{SELECT release_lock('x', acquire_lock('x', wait => '20 s'))}), qr/t/, 'the manager works');
		my $pid = one(sprintf $manager, 'needed');
		$drops->async('DROP DATABASE needed');
		wait_for_sql($node, q{SELECT count(*) > 0 FROM pg_locks WHERE classid = 'pg_database'::regclass AND granted AND mode = 'AccessExclusiveLock' AND pid = } . $drops->pid);
		kill 'TERM', $pid;
		wait_for_sql($node, $in->($pid), '0');
		$s->query(q{SELECT try_acquire_lock('y')});
		$error = $s->error;
		one('SELECT pg_cancel_backend(' . $drops->pid . ')');
		$drops->wait;
		like($drops->error, qr/57014|55006/, 'DROP DATABASE is cancelled, or fails in the end');
		last if $error =~ /needs the database/;
	}
	my ($told, $by) = (sprintf($not_running, 'needed'), $drops->pid);
	like($error, qr/${told}Process $by needs the database for a command such as DROP DATABASE\.\nHINT:  Try again later\./, 'the error names the command that needs the database');
	$_->quit foreach $s, $drops;
	one('DROP DATABASE needed');

	# The postmaster is stopped, because it would restart the launcher.
	$s = session($node);
	my @pids = map { $s->query($_) } sprintf($manager, 'postgres'), q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election launcher'};
	my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;
	kill 'STOP', $postmaster;
	kill 'TERM', @pids;
	eval {
		wait_until(sub { $s->query($in->(@pids)) eq '0' });
		$s->query(q{SELECT try_acquire_lock('y')});
	};
	kill 'CONT', $postmaster;
	$told = sprintf $not_running, 'postgres';
	like($s->error, qr/${told}The lock_election launcher, which starts it, is not running\.\nHINT:  See the server log\./, 'the error says that the launcher is not running');
	is($s->query(q{SELECT release_lock('x', acquire_lock('x', wait => '20 s'))}), 't',
		'the manager works after the launcher is restarted');
	$s->quit;
};

# A probe of a database without the extension must not use the entry of a database that has it.
subtest 'max_databases = 1' => sub {
	one("CREATE DATABASE p$_") foreach 1 .. 6;
	one('DROP EXTENSION lock_election');
	one('CREATE EXTENSION lock_election', 'p6');
	$node->append_conf('postgresql.conf', 'lock_election.max_databases = 1');
	foreach my $i (1 .. 5)
	{
		$node->restart;
		unlike(error_of(q{SELECT acquire_lock('x', '1 h', owner => 'me')}, dbname => 'p6'), qr/ERROR/,
			"the database with the extension gets the entry: start $i");
	}
	# The same with a slow probe.
	one(q{SELECT force_release_lock('x')}, 'p6');
	my $blocker = session($node, dbname => 'p1');
	$blocker->query('BEGIN; LOCK pg_extension');
	for my $i (1 .. 5)
	{
		my $launcher = one(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election launcher'});
		kill 'TERM', $launcher, one('SELECT pid FROM lock_election.manager', 'p6');
		unlike(error_of(q{SELECT acquire_lock('x', '1 h', owner => 'me')}, dbname => 'p6'), qr/ERROR/,
			"the database with the extension gets the entry during a slow probe: $i");
	}
	$blocker->quit;
	$node->append_conf('postgresql.conf', 'lock_election.max_databases = 4');
	$node->restart;
	one("DROP DATABASE p$_") foreach 1 .. 6;
	one('CREATE EXTENSION lock_election');
};

subtest 'no worker is free for a manager' => sub {
	# one for the launcher, one for logical replication
	$node->append_conf('postgresql.conf', 'max_worker_processes = 2');
	my $start = time;
	$node->restart;
	my ($patient, $s) = map { session($node) } 1 .. 2;
	$patient->async(q{SELECT acquire_lock('x')});
	$s->query(q{SELECT acquire_lock('x', wait => '1 s')});
	my $error = $s->error;
	like($error, qr/ERROR:  57P03: the lock_election manager of database "postgres" is not running/,
		'the error says that no manager runs');
	like($error, qr/DETAIL:  No background worker is free for it: max_worker_processes is 2\.\nHINT:  Raise max_worker_processes/, 'the error names max_worker_processes');
	ok(!$patient->ready, 'a call without a time limit waits longer than 1 s');
	$patient->wait;
	like($patient->error, qr/ERROR:  57P03: /, 'a call without a time limit fails after 5 s');
	$_->quit foreach $patient, $s;
	my $log = slurp_file($node->logfile);
	like($log, qr/max_worker_processes \(2\) has room for lock_election in 0 databases, and lock_election\.max_databases is 4\n.*HINT:  Raise max_worker_processes to 7 /, 'at its start, the log warns of max_worker_processes');
	like($log, qr/could not register the lock_election manager of database "postgres"\n.*DETAIL:  .*max_worker_processes is 2/, 'the log contains the failed start of a manager');
	my $said = () = $log =~ /could not register the lock_election manager of database "postgres"/g;
	ok($said <= 1 + (time - $start) / 60, 'the log repeats this at most once a minute') or diag("$said times");
};

# There are workers for both launchers (ours and that of PostgreSQL), two managers and one more. A notifier uses the
# last one until a manager needs it.
subtest 'managers come before notifiers' => sub {
	my $notifiers = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'lock_election notifier'};

	$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
	$node->restart;
	new_database('second');
	one(q{SELECT release_lock('x', acquire_lock('x'))}, 'second');
	$node->append_conf('postgresql.conf', 'max_worker_processes = 5');
	$node->restart;
	is(one(q{SELECT campaign('e', 'me', '1 h') IS NOT NULL}), 't', 'a change of an election needs a notifier');
	wait_for_sql($node, $notifiers, '1');
	wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'lock_election manager'}, '2');
	new_database('third');
	like(one(q{SELECT acquire_lock('x', '1 h')}, 'third'), qr/^\d+$/, 'a new manager gets the worker of the notifier');
	one(q{SELECT force_resign('e')});
	one("DROP DATABASE $_") foreach 'second', 'third';
	$node->append_conf('postgresql.conf', 'max_worker_processes = 7');
	my $before = -s $node->logfile;
	$node->restart;
	unlike(slurp_file($node->logfile, $before), qr/has room for lock_election/,
		'there are enough workers for all databases');
	$node->append_conf('postgresql.conf', 'max_worker_processes = 6');
	$before = -s $node->logfile;
	$node->restart;
	like(slurp_file($node->logfile, $before), qr/max_worker_processes \(6\) has room for lock_election in 3 databases, and lock_election\.max_databases is 4\n.*HINT:  Raise max_worker_processes to 7 /, 'the log warns if there is one worker too few');
};

# A session leaves a release for a manager that will not start again. Then another database gets the entry.
subtest 'the entry of a dropped database is reused' => sub {
	my $small = new_node('small', conf => "autovacuum = off\nlock_election.max_databases = 2\n");
	my $sql = sub { return $small->safe_psql($_[1] // 'postgres', $_[0]); };

	$sql->('CREATE DATABASE first');
	$sql->('CREATE EXTENSION lock_election', 'first');
	my $s = session($small, dbname => 'first');
	$s->query(q{SELECT acquire_lock('x', '1 h')});
	$s->query(q{BEGIN; SELECT release_lock('x')});
	my $manager = $sql->('SELECT pid FROM lock_election.manager', 'first');
	$sql->('ALTER DATABASE first ALLOW_CONNECTIONS false');
	$sql->("SELECT pg_terminate_backend($manager)");
	wait_for_sql($small, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $manager");
	$s->query('COMMIT');
	like($s->error, qr/WARNING:  01000: the transaction is committed, but/,
		'a release is not applied without a manager');
	$s->quit;
	wait_for_sql($small, 'SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ' . $s->pid);
	$sql->('DROP DATABASE first');
	$sql->('CREATE DATABASE second');
	$sql->('CREATE EXTENSION lock_election', 'second');
	wait_for_sql($small, 'SELECT count(*) = 1 FROM lock_election.manager', 't', dbname => 'second');
	is($sql->(q{SELECT acquire_lock('x') IS NOT NULL}, 'second'), 't', 'the next database gets an entry');
	is($sql->('SELECT releases FROM lock_election.stat', 'second'), '0',
		'the next database does not apply the release of the dropped one');

	# A database that does not allow connections does not keep its entry, either.
	$sql->('CREATE DATABASE third');
	$sql->('ALTER DATABASE second ALLOW_CONNECTIONS false');
	$sql->(q{SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = 'second' AND backend_type = 'lock_election manager'});
	$sql->('CREATE EXTENSION lock_election', 'third');
	like($sql->(q{SELECT acquire_lock('x')}, 'third'), qr/^\d+$/,
		'another database gets the entry of a database without connections');
	$sql->('ALTER DATABASE second ALLOW_CONNECTIONS true');
	my $log = -s $small->logfile;
	$small->stop;
	left_in_peace($small, $log, 'managers exit normally when the server stops');
};

subtest 'the library is not preloaded' => sub {
	$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
	$node->restart;
	my @calls = (
		'acquire_lock($$x$$)', 'try_acquire_lock($$x$$)', 'renew_lock($$x$$, 1)', 'release_lock($$x$$)', 'release_lock($$x$$, 1)',
		'is_held($$x$$, 1)', 'force_release_lock($$x$$)', 'force_release_role($$pg_monitor$$)', 'enqueue_lock($$x$$)', 'enqueue_permit($$x$$, 1)', 'enqueue_locks($${x}$$)', 'await_lock($$x$$, 1)', 'await_locks($${x}$$, 1)',
		'try_acquire_each($${x}$$)', 'enqueue_each($${x}$$)', 'release_each($${x}$$, $${1}$$)', 'acquire_locks($${x}$$)', 'release_locks($${x}$$, 1)', 'fence_lock($$x$$, 1)', 'acquire_permit($$x$$, 1)', 'set_permits($$x$$, 1)',
		'campaign($$x$$, $$me$$)', 'enqueue_candidate($$x$$, $$me$$)', 'await_leadership($$x$$, 1)', 'proclaim($$x$$, 1, $$me$$)',
		'renew_leadership($$x$$, 1)', 'resign($$x$$, 1)', 'current_leader($$x$$)', 'is_leader($$x$$, 1)', 'fence_leader($$x$$, 1)', 'force_resign($$x$$)',
		'grant_lease()', 'keep_alive(1)', 'revoke_lease(1)', 'lease_time_to_live(1)', 'lease_holds(1)', 'lease_sync(1, 1)', 'evict_lock($$x$$)', 'evict_leader($$x$$)', 'lock_election.look()',
		'lock_election.look_leases()', 'lock_election.manager_info()', 'lock_election.counters()', 'lock_election.histograms()',
		'lock_election.stat_reset()', 'advance_revision(1)', 'observe_election($$x$$)', 'election_history($$x$$)');
	# functions that need no manager
	my @others = ('compare_and_set($$x$$, 0, $$y$$)', 'read_versioned($$x$$)', 'advisory_acquire($$x$$)', 'advisory_release($$x$$)', 'lock_election.health()');
	unlike(error_of("SELECT * FROM $_"), qr/ERROR/, "$_ works") foreach @others;
	foreach my $from (@calls, map { "lock_election.$_" } qw(locks elections waiters leases manager stat histogram))
	{
		my $error = error_of("SELECT * FROM $from");
		like($error, qr/ERROR:  55000: lock_election is not in shared_preload_libraries\nHINT:  .*shared_preload_libraries = 'lock_election'/, $from);
	}
	is(one(q{SELECT count(*) FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e' JOIN pg_extension e ON e.oid = d.refobjid WHERE e.extname = 'lock_election' AND prorettype <> 'trigger'::regtype AND proname <> 'role_oid'}),
		@calls + @others, 'the lists contain all functions');
	my $said = error_of('DROP EXTENSION lock_election; CREATE EXTENSION lock_election; CREATE DATABASE u; ALTER DATABASE u CONNECTION LIMIT 9; DROP DATABASE u');
	unlike($said, qr/ERROR/, 'commands for extensions and databases work');
	like($said, qr/WARNING:  01000: lock_election is not in shared_preload_libraries\nHINT:  .*shared_preload_libraries = 'lock_election'/, 'commands warn about shared_preload_libraries');
};

$node->stop;
done_testing();
