# A manager that is stopped or cannot write: every call ends within its own limits, other databases are not affected,
# and nothing that ended meanwhile is lost.
# Promises: A
use strict;
use warnings;
use LeTest;
use LeWire;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

# A call gives up waiting for the reply 2 s after its own wait ends, see LE_TAKE_GRACE; the rest is for a busy machine.
# Without that, only the test would end the call.
use constant IN_TIME => 30;

my $node = new_node('main', conf => "autovacuum = off\n");
my $admin;
my $stopped = 0;

END { kill 'CONT', $stopped if $stopped; }

# Stops the manager while it sleeps; at other times it may hold a PostgreSQL lock that others need.
sub stop_manager
{
	my $pid = one('SELECT pid FROM lock_election.manager');

	wait_until(
		sub {
			kill 'STOP', $stopped = $pid;
			return 1 if admin("SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $pid") eq 't';
			go_on();
			return 0;
		}) or die 'the manager was not stopped in its sleep';
	return;
}

sub go_on
{
	kill 'CONT', $stopped;
	$stopped = 0;
	return;
}

# Runs a statement in a connection that has not used the extension.
sub admin { $admin->query($_[0]); return $admin->wait('Z'); }

sub backends { return admin("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND $_[0]"); }

# Returns the result of a statement, after its errors. Checks that the statement did not take too long.
sub answer
{
	my ($s, $sql, $test_name) = @_;
	my $start = time;
	my $answer = $s->query($sql, 60);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	cmp_ok(time - $start, '<', IN_TIME, "$test_name: returns in time");
	return $s->error . $answer;
}

one('CREATE DATABASE other');
one('CREATE EXTENSION lock_election', 'other');
$admin = LeWire->new($node, dbname => 'template1');
my $keep = session($node, dbname => 'other');
$keep->query(q{SELECT acquire_lock('up', '1 h')});

# Sessions use the extension and end. The next sessions get their proc numbers.
sub use_and_end
{
	my ($n, $between) = @_;
	my @sessions = map { session($node) } 1 .. $n;

	$_->query(q{SELECT is_held('x', 1)}) foreach @sessions;
	$between->();
	$_->quit foreach @sessions;
	wait_until(sub { backends('pid IN (' . join(',', map { $_->pid } @sessions) . ')') eq '0' }) or die 'the sessions do not end';
	return;
}

sub other_database_works
{
	my ($n, $test_name) = @_;
	my @next = map { session($node, dbname => 'other') } 1 .. $n;
	my $start = time;

	$next[$_]->async("SELECT try_acquire_lock('free $_', NULL) IS NOT NULL") foreach 0 .. $#next;
	is(join('', map { $_->wait } @next), 't' x $n, $test_name);
	cmp_ok(time - $start, '<', IN_TIME, 'the calls in the other database return in time');
	$_->quit foreach @next;
	return;
}

subtest 'the manager of another database is stopped' => sub {
	use_and_end(12, \&stop_manager);
	other_database_works(14, 'calls of the other database succeed while a manager is stopped');
	go_on();
	nothing_left($node, 'no entry is left over', dbname => 'other') if one(q{SELECT force_release_lock('up')}, 'other');
	$keep->query(q{SELECT acquire_lock('up', '1 h')});
};

subtest 'the manager of another database cannot write' => sub {
	my ($locker, $failing) = (session($node), session($node));

	use_and_end(12, sub {
		$locker->query('BEGIN; LOCK TABLE _lock_election.slot');
		$failing->query(q{SELECT acquire_lock('fails', '1 h')});
		like($failing->error, qr/55P03/, 'a batch fails');
	});
	other_database_works(14, 'calls of the other database succeed while a manager cannot write');

	# Sessions of the same database get an error with the reason.
	my @same = map { session($node) } 1 .. 3;
	like(answer($_, q{SELECT acquire_lock('same', '1 h')}, 'the same database'), qr/55P03: the tables of extension lock_election are locked/, 'the error says that the tables are locked')
	  foreach @same;
	$locker->query('ROLLBACK');
	like($_->query(q{SELECT release_lock('same', acquire_lock('same', '1 h'))}), qr/t/, 'the session works after the tables are unlocked') foreach @same;
	$_->quit foreach $locker, $failing, @same;
	nothing_left($node);
};

subtest 'calls end in time while the manager is stopped' => sub {
	my ($old, $fresh, $holder, $busy) = map { session($node) } 1 .. 4;
	my $token = $holder->query(q{SELECT acquire_lock('held', '1 h')});

	$old->query(q{SELECT is_held('x', 1)});
	stop_manager();
	foreach my $s ($old, $fresh)
	{
		my $who = $s == $old ? 'an old session' : 'a new session';
		my ($start, $took);

		is(answer($s, q{SELECT acquire_lock('a', '1 h', wait => '500 ms')}, "$who, wait"), '',
			'acquire_lock() returns NULL');
		is(answer($s, q{SELECT try_acquire_lock('b')}, "$who, try"), '',
			'try_acquire_lock() returns NULL while an earlier request has no reply');
		is(answer($s, q{SELECT campaign('e', 'me', wait => '100 ms')}, "$who, campaign"), '',
			'campaign() returns NULL');
		is(answer($s, q{SELECT await_lock('a', 1, wait => '100 ms')}, "$who, await"), 'f',
			'await_lock() returns false');
		is(answer($s, q{SELECT * FROM try_acquire_each('{e1,e2}')}, "$who, each of several"), "e1|\ne2|", 'try_acquire_each() returns NULL for each name') if $s == $old;
		$s->query(q{SET lock_timeout = '300 ms'});
		# On a busy machine, the first try may take too long.
		foreach my $try (1 .. 5)
		{
			$start = time;
			like(answer($s, q{SELECT acquire_lock('a', '1 h')}, "$who, lock_timeout"), qr/ERROR:  55P03: canceling statement due to lock timeout/, 'lock_timeout raises 55P03');
			last if ($took = time - $start) < 2;
		}
		cmp_ok($took, '<', 2, 'lock_timeout takes effect on time in a wait for a lock');
		$start = time;
		like(answer($s, q{SELECT is_held('a', 1)}, "$who, lock_timeout, another call"), qr/ERROR:  55P03/, 'lock_timeout raises 55P03 in another call');
		cmp_ok(time - $start, '>=', 2,
			'a call that waits for no lock gives the manager at least 2 s despite lock_timeout');
		$s->query(q{RESET lock_timeout; SET statement_timeout = '300 ms'});
		like(answer($s, q{SELECT acquire_lock('a', '1 h')}, "$who, statement_timeout"), qr/ERROR:  57014/,
			'statement_timeout raises 57014');
		$s->query(q{RESET statement_timeout});
	}

	# Clients that disappear while they wait: one before its request is posted, one while it waits for the reply.
	my @gone = map { LeWire->new($node) } 1 .. 2;
	$gone[0]->query(q{SET statement_timeout = '100 ms'});
	$gone[0]->wait('Z');
	$gone[0]->query(q{SELECT acquire_lock('gone', '1 h')});
	$gone[0]->wait('Z');
	$gone[0]->query(q{RESET statement_timeout});
	$gone[0]->wait('Z');
	$_->query(q{SELECT acquire_lock('gone', '1 h')}) foreach @gone;
	my $pids = 'pid IN (' . join(',', map { $_->pid } @gone) . ')';
	wait_until(sub { backends("$pids AND state = 'active'") eq '2' }) or die 'the sessions do not wait';
	$_->{socket}->close foreach @gone;
	ok(wait_until(sub { backends($pids) eq '0' }), 'backends notice that their clients are gone');
	go_on();
	is($holder->query("SELECT is_held('held', $token)"), 't', 'the manager works again');
	foreach my $name ('a', 'b', 'e1', 'e2', 'gone')
	{
		like($busy->query("SELECT acquire_lock('$name', '1 h', wait => '20 s')"), qr/^\d+$/, "a lock whose call gave up is free: $name");
	}
	$busy->query(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach $old, $fresh, $holder, $busy;
	nothing_left($node);
};

# An acquire that gave up waiting for the reply is undone, and nothing else of its transaction.
subtest 'a grant after the call gave up is undone' => sub {
	my ($s, $next) = map { session($node) } 1 .. 2;
	my $count = 'count(*) FROM lock_election.locks WHERE name IN';

	$s->query(q{BEGIN; SELECT acquire_lock('before', '1 h'); SAVEPOINT s; SELECT acquire_lock('inner', '1 h')});
	stop_manager();
	is(answer($s, q{SELECT try_acquire_lock('late', '1 h')}, 'try'), '', 'try_acquire_lock() returns NULL');
	is(answer($s, q{SELECT try_acquire_lock('late too', '1 h')}, 'again'), '',
		'a second try_acquire_lock() returns NULL');
	go_on();
	like($s->query(q{SELECT acquire_lock('after', '1 h')}), qr/^\d+$/, 'the transaction continues');
	is(one(q{SELECT string_agg(name, ' ' ORDER BY name) FROM lock_election.locks}), 'after before inner',
		'the transaction keeps its other locks');
	is($next->query(q{SELECT acquire_lock('late', '1 h', wait => '20 s') IS NOT NULL}), 't', 'the lock of the call that gave up is granted to another session');
	$s->query('ROLLBACK TO s');
	is(one(q{SELECT string_agg(name, ' ' ORDER BY name) FROM lock_election.locks}), 'before late',
		'ROLLBACK TO undoes the acquires after the savepoint');
	$s->query(q{SAVEPOINT t; SELECT acquire_lock('kept', '1 h'); SAVEPOINT u; RELEASE u; RELEASE t; SAVEPOINT v; SELECT acquire_lock('undone', '1 h'); ROLLBACK TO v});
	is($s->error, '', 'acquires in more savepoints succeed');
	is(one(q{SELECT string_agg(name, ' ' ORDER BY name) FROM lock_election.locks}), 'before kept late',
		'ROLLBACK TO undoes only the acquires of its savepoint');
	$s->query(q{SAVEPOINT w; SELECT acquire_lock('w1', '1 h'); SAVEPOINT x; SELECT acquire_lock('x1', '1 h'); RELEASE x; SELECT acquire_lock('w2', '1 h'); ROLLBACK TO w; COMMIT});
	is(one(q{SELECT string_agg(name, ' ' ORDER BY name) FROM lock_election.locks}), 'before kept late',
		'ROLLBACK TO undoes the acquires of inner savepoints');

	# A named owner that already holds the lock keeps its first hold.
	$s->query(q{SELECT acquire_lock('again', '1 h', owner => 'me')});
	stop_manager();
	is(answer($s, q{SELECT try_acquire_lock('again', '1 h', owner => 'me')}, 'once more'), '',
		'try_acquire_lock() of another hold returns NULL');
	go_on();
	$s->query('SELECT 1');
	is($s->query(q{SELECT release_lock('again', token) FROM lock_election.locks WHERE name = 'again'}), 't',
		'the first hold is released');
	is(one("SELECT $count ('again')"), '0', 'one release ends the lock, so it had one hold');

	# A place is kept.
	my $place = $s->query(q{SELECT token FROM enqueue_lock('late', '1 h')});
	stop_manager();
	is(answer($s, "SELECT await_lock('late', $place, wait => '100 ms')", 'await'), 'f', 'await_lock() returns false');
	go_on();
	$next->query(q{SELECT release_lock('late')});
	is($s->query("SELECT await_lock('late', $place, wait => '20 s')"), 't',
		'await_lock() returns true after the release');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach $s, $next;
	nothing_left($node);
};

# Events while the manager is stopped: a rollback, a release at commit, the end of a bound lock, and the end of the
# session.
subtest 'events while the manager is stopped' => sub {
	my ($undone, $bound, $released) = map { session($node) } 1 .. 3;

	$undone->query(q{BEGIN; SELECT acquire_lock('undone', '1 h')});
	$bound->query(q{SELECT acquire_lock('bound', NULL)});
	$released->query(q{SELECT acquire_lock('released', '1 h')});
	$released->query(q{BEGIN; SELECT release_lock('released')});
	stop_manager();
	$released->query('COMMIT', 20);
	$_->quit foreach $undone, $bound, $released;
	my $pids = 'pid IN (' . join(',', map { $_->pid } $undone, $bound, $released) . ')';
	wait_until(sub { backends($pids) eq '0' }) or die 'the sessions do not end';

	# New sessions get the proc numbers of the ended ones, and give up waiting.
	my @next = map { session($node) } 1 .. 4;
	$_->async(q{SELECT try_acquire_lock('bound', '1 h')}) foreach @next;
	is(join('', map { $_->wait } @next), '', 'new sessions are not granted the lock while the manager is stopped');
	my @other = map { session($node, dbname => 'other') } 1 .. 4;
	$_->query(q{SELECT is_held('x', 1)}) foreach @other;
	$_->quit foreach @next;
	go_on();
	nothing_left($node, 'the manager handles all events after it continues');
	$_->quit foreach @other;
};

# Otherwise the next connection, which gets the same mailbox, would have to wait for this.
subtest 'an exiting session that leaves many locks waits for the manager' => sub {
	my $exists = sub { return kill 0, $_[0]->pid };
	my $locks = sub {
		my ($s, $n) = @_;
		$s->query("SELECT count(acquire_lock(pg_backend_pid() || ' ' || i, NULL)) FROM generate_series(1, $n) i");
		return $s;
	};
	my $late = $locks->(session($node), 16);
	my %seen;

	# All must end within the 5 s for which they wait. On a busy machine, this may take several tries.
	foreach my $try (1 .. 10)
	{
		my ($few, $many, $open) = ($locks->(session($node), 15), $locks->(session($node), 16), session($node));

		$open->query(q{BEGIN; SELECT acquire_lock('open', '1 h')});
		stop_manager();
		my $start = time;
		$_->quit foreach $many, $open, $few;
		wait_until(sub { !$exists->($few) }) or die 'the session with few locks does not end';
		%seen = (many => $exists->($many), open => $exists->($open));

		# The processor time of the exit itself is spent by now.
		my $used = sub { return eval { cpu_time($many->pid) + cpu_time($open->pid) } // 0 };
		my $before = $used->();
		admin('SELECT pg_sleep(1)');
		$seen{used} = $used->() - $before;
		go_on();
		wait_until(sub { !$exists->($many) && !$exists->($open) }) or die 'the sessions do not end';
		$seen{took} = time - $start;
		last if $seen{many} && $seen{open} && $seen{took} < 5;
	}
	ok($seen{many}, 'a session that leaves many locks waits for the manager, unlike one that leaves few');
	ok($seen{open}, 'a session that leaves an open transaction waits for the manager');
	cmp_ok($seen{used}, '<', 0.15, 'the exiting sessions sleep while they wait');
	cmp_ok($seen{took}, '<', 5, 'the exiting sessions end as soon as the manager has read their mail');

	# The wait at the exit is limited.
	stop_manager();
	my $start = time;
	$late->quit;
	ok(wait_until(sub { !$exists->($late) }), 'an exiting session stops waiting for a stopped manager');
	cmp_ok(time - $start, '>=', 5, 'an exiting session waits 5 s for a stopped manager');
	go_on();
	nothing_left($node);
};

# Each request fails, and the client immediately sends the next one: the manager applies the requests one by one while
# this continues.
subtest 'the manager exits on SIGTERM while all requests fail' => sub {
	my ($locker, @clients) = map { session($node) } 1 .. 4;
	my $token = $locker->query(q{SELECT acquire_lock('refused', '1 h')});

	$locker->query("BEGIN; SELECT FROM _lock_election.slot WHERE token = $token FOR UPDATE");
	foreach my $client (@clients)
	{
		$client->async("SELECT release_lock('refused', $token)") for 1 .. 200;
	}
	wait_until(sub { one('SELECT failed_batches FROM lock_election.stat') > 5 }) or die 'no batch fails';
	my $pid = one('SELECT pid FROM lock_election.manager');
	kill 'TERM', $pid;
	ok(wait_until(sub { !kill 0, $pid }, IN_TIME), 'the manager exits');
	$locker->query('ROLLBACK');
	$_->kill foreach @clients;
	$locker->query("SELECT force_release_lock('refused')");
	nothing_left($node);
	$locker->quit;
};

# The manager treats the request as waiting, because it cannot read that the call was cancelled.
subtest 'a wait is cancelled while the manager cannot write' => sub {
	my ($holder, $waits, $other, $locker) = map { session($node) } 1 .. 4;

	$holder->query(q{SELECT acquire_lock('x', '1 h')});
	$waits->async(q{SELECT acquire_lock('x', '1 h')});
	waiting($waits);
	$locker->query('BEGIN; LOCK TABLE _lock_election.slot');
	like(answer($other, q{SELECT acquire_lock('y')}, 'another session'), qr/55P03/,
		'another session gets the error that the tables are locked');
	one('SELECT pg_cancel_backend(' . $waits->pid . ')');
	$waits->wait;
	like($waits->error, qr/57014/, 'the wait is cancelled');
	is(answer($other, q{SELECT is_held('x', 1)}, 'a look of another session'), 'f',
		'is_held() of another session succeeds');
	is(answer($waits, q{SELECT is_held('x', 1)}, 'one of this session, whose wait has left nothing to write'), 'f', 'is_held() of the cancelled session succeeds, because its wait left nothing to write');
	$locker->query('ROLLBACK');
	is($waits->query(q{SELECT is_held('x', 1)}), 'f', 'is_held() succeeds after the tables are unlocked');
	$holder->query(q{SELECT release_lock('x')});
	$_->quit foreach $holder, $waits, $other, $locker;
	nothing_left($node);
};

# No reply will come: a session that waits in its commit exits like the others, and does not wait until its time limit.
subtest 'the postmaster dies while a commit waits' => sub {
	my $s = session($node);
	my ($pid, $log) = ($s->pid, -s $node->logfile);

	my $behind = session($node);

	$s->query(q{SELECT acquire_lock('last', '1 h'); BEGIN; SELECT release_lock('last')});
	stop_manager();

	# A call that waits behind an earlier request, for whose reply the session gave up waiting.
	$behind->query(q{SET statement_timeout = '300 ms'});
	$behind->query(q{SELECT acquire_lock('given up', '1 h')});
	$behind->query(q{RESET statement_timeout});
	$behind->async(q{SELECT acquire_lock('behind', '1 h')});
	my $start = time;
	$s->async('COMMIT');
	wait_until(sub { backends("pid = $pid AND wait_event_type = 'Extension'") eq '1' }) or die 'the commit does not wait';
	$node->kill9;
	my $in_time = time - $start < 4;
	ok(wait_until(sub { !kill 0, $pid }), 'the waiting commit ends after the death of the postmaster');
	ok(wait_until(sub { !kill 0, $behind->pid }), 'the call that polls for the earlier reply ends, too');
	ok(!$in_time || !$node->log_contains(qr/did not answer within 5 seconds/, $log),
		'the waiting commit ends without waiting for its time limit');
	go_on();
	ok(wait_until(sub { $node->start(fail_ok => 1) }), 'the server starts again');
};

$node->stop;
done_testing();
