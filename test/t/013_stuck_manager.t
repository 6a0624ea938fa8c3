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

# A call does without an answer 2 s after its own wait, see LE_TAKE_GRACE; the rest is for a busy machine. Nothing else ends it
# here but the test.
use constant IN_TIME => 30;

my $node = new_node('main', conf => "autovacuum = off\n");
my $admin;
my $stopped = 0;

END { kill 'CONT', $stopped if $stopped; }

# Stopped in its sleep: elsewhere it may hold a lock that others need.
sub stop_manager
{
	my $pid = one('SELECT pid FROM lock_election.manager');

	wait_until(
		sub {
			kill 'STOP', $stopped = $pid;
			return 1 if admin("SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $pid") eq 't';
			go_on();
			return 0;
		}) or die 'the manager does not sleep';
	return;
}

sub go_on
{
	kill 'CONT', $stopped;
	$stopped = 0;
	return;
}

# Asked without the library.
sub admin { $admin->query($_[0]); return $admin->wait('Z'); }

sub backends { return admin("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND $_[0]"); }

# The answer to a statement, errors before it; ok if it came in time.
sub answer
{
	my ($s, $sql, $test_name) = @_;
	my $start = time;
	my $answer = $s->query($sql, 60);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	cmp_ok(time - $start, '<', IN_TIME, "$test_name: in time");
	return $s->error . $answer;
}

one('CREATE DATABASE other');
one('CREATE EXTENSION lock_election', 'other');
$admin = LeWire->new($node, dbname => 'template1');
my $keep = session($node, dbname => 'other');
$keep->query(q{SELECT acquire_lock('up', '1 h')});

# The proc numbers of sessions that end are given to the next ones.
sub use_and_end
{
	my ($n, $between) = @_;
	my @sessions = map { session($node) } 1 .. $n;

	$_->query(q{SELECT is_held('x', 1)}) foreach @sessions;
	$between->();
	$_->quit foreach @sessions;
	wait_until(sub { backends('pid IN (' . join(',', map { $_->pid } @sessions) . ')') eq '0' }) or die 'they do not end';
	return;
}

sub other_database_works
{
	my ($n, $test_name) = @_;
	my @next = map { session($node, dbname => 'other') } 1 .. $n;
	my $start = time;

	$next[$_]->async("SELECT try_acquire_lock('free $_', NULL) IS NOT NULL") foreach 0 .. $#next;
	is(join('', map { $_->wait } @next), 't' x $n, $test_name);
	cmp_ok(time - $start, '<', IN_TIME, 'in time');
	$_->quit foreach @next;
	return;
}

subtest 'the manager of another database is stopped' => sub {
	use_and_end(12, \&stop_manager);
	other_database_works(14, 'sessions of the other database are answered');
	go_on();
	nothing_left($node, 'nothing is left', dbname => 'other') if one(q{SELECT force_release_lock('up')}, 'other');
	$keep->query(q{SELECT acquire_lock('up', '1 h')});
};

subtest 'the manager of another database cannot write' => sub {
	my ($locker, $failing) = (session($node), session($node));

	use_and_end(12, sub {
		$locker->query('BEGIN; LOCK TABLE _lock_election.slot');
		$failing->query(q{SELECT acquire_lock('fails', '1 h')});
		like($failing->error, qr/55P03/, 'a batch fails');
	});
	other_database_works(14, 'sessions of the other database are answered');

	# of this one they are told
	my @same = map { session($node) } 1 .. 3;
	like(answer($_, q{SELECT acquire_lock('same', '1 h')}, 'the same database'), qr/55P03: the tables of extension lock_election are locked/, 'why it has to wait')
	  foreach @same;
	$locker->query('ROLLBACK');
	like($_->query(q{SELECT release_lock('same', acquire_lock('same', '1 h'))}), qr/t/, 'then it goes on') foreach @same;
	$_->quit foreach $locker, $failing, @same;
	nothing_left($node);
};

subtest 'limits of a call' => sub {
	my ($old, $fresh, $holder, $busy) = map { session($node) } 1 .. 4;
	my $token = $holder->query(q{SELECT acquire_lock('held', '1 h')});

	$old->query(q{SELECT is_held('x', 1)});
	stop_manager();
	foreach my $s ($old, $fresh)
	{
		my $who = $s == $old ? 'an old session' : 'a new session';
		my ($start, $took);

		is(answer($s, q{SELECT acquire_lock('a', '1 h', wait => '500 ms')}, "$who, wait"), '', 'NULL');
		is(answer($s, q{SELECT try_acquire_lock('b')}, "$who, try"), '', 'NULL, behind an unanswered one');
		is(answer($s, q{SELECT campaign('e', 'me', wait => '100 ms')}, "$who, campaign"), '', 'NULL');
		is(answer($s, q{SELECT await_lock('a', 1, wait => '100 ms')}, "$who, await"), 'f', 'not yet');
		is(answer($s, q{SELECT * FROM try_acquire_each('{e1,e2}')}, "$who, each of several"), "e1|\ne2|", 'NULL for each') if $s == $old;
		$s->query(q{SET lock_timeout = '300 ms'});
		# on a busy machine not at the first try
		foreach my $try (1 .. 5)
		{
			$start = time;
			like(answer($s, q{SELECT acquire_lock('a', '1 h')}, "$who, lock_timeout"), qr/ERROR:  55P03: canceling statement due to lock timeout/, 'strikes');
			last if ($took = time - $start) < 2;
		}
		cmp_ok($took, '<', 2, 'as soon as it says, in a wait for a lock');
		$start = time;
		like(answer($s, q{SELECT is_held('a', 1)}, "$who, lock_timeout, another call"), qr/ERROR:  55P03/, 'strikes as well');
		cmp_ok(time - $start, '>=', 2, 'but a call that waits for no lock gives the manager its time');
		$s->query(q{RESET lock_timeout; SET statement_timeout = '300 ms'});
		like(answer($s, q{SELECT acquire_lock('a', '1 h')}, "$who, statement_timeout"), qr/ERROR:  57014/, 'strikes');
		$s->query(q{RESET statement_timeout});
	}

	# clients that go away while they wait: before the request, and for its answer
	my @gone = map { LeWire->new($node) } 1 .. 2;
	$gone[0]->query(q{SET statement_timeout = '100 ms'});
	$gone[0]->wait('Z');
	$gone[0]->query(q{SELECT acquire_lock('gone', '1 h')});
	$gone[0]->wait('Z');
	$gone[0]->query(q{RESET statement_timeout});
	$gone[0]->wait('Z');
	$_->query(q{SELECT acquire_lock('gone', '1 h')}) foreach @gone;
	my $pids = 'pid IN (' . join(',', map { $_->pid } @gone) . ')';
	wait_until(sub { backends("$pids AND state = 'active'") eq '2' }) or die 'they do not wait';
	$_->{socket}->close foreach @gone;
	ok(wait_until(sub { backends($pids) eq '0' }), 'backends notice that their clients are gone');
	go_on();
	is($holder->query("SELECT is_held('held', $token)"), 't', 'the manager goes on');
	foreach my $name ('a', 'b', 'e1', 'e2', 'gone')
	{
		like($busy->query("SELECT acquire_lock('$name', '1 h', wait => '20 s')"), qr/^\d+$/, "what was given up is free: $name");
	}
	$busy->query(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach $old, $fresh, $holder, $busy;
	nothing_left($node);
};

# What a call does without is undone, and nothing else of its transaction.
subtest 'a late grant' => sub {
	my ($s, $next) = map { session($node) } 1 .. 2;
	my $count = 'count(*) FROM lock_election.locks WHERE name IN';

	$s->query(q{BEGIN; SELECT acquire_lock('before', '1 h'); SAVEPOINT s; SELECT acquire_lock('inner', '1 h')});
	stop_manager();
	is(answer($s, q{SELECT try_acquire_lock('late', '1 h')}, 'try'), '', 'NULL');
	is(answer($s, q{SELECT try_acquire_lock('late too', '1 h')}, 'again'), '', 'NULL');
	go_on();
	like($s->query(q{SELECT acquire_lock('after', '1 h')}), qr/^\d+$/, 'the transaction goes on');
	is(one(q{SELECT string_agg(name, ' ' ORDER BY name) FROM lock_election.locks}), 'after before inner', 'with what it had');
	is($next->query(q{SELECT acquire_lock('late', '1 h', wait => '20 s') IS NOT NULL}), 't', 'and not with what it did without');
	$s->query('ROLLBACK TO s');
	is(one(q{SELECT string_agg(name, ' ' ORDER BY name) FROM lock_election.locks}), 'before late', 'a savepoint undoes what came after it');
	$s->query(q{SAVEPOINT t; SELECT acquire_lock('kept', '1 h'); SAVEPOINT u; RELEASE u; RELEASE t; SAVEPOINT v; SELECT acquire_lock('undone', '1 h'); ROLLBACK TO v});
	is($s->error, '', 'more savepoints');
	is(one(q{SELECT string_agg(name, ' ' ORDER BY name) FROM lock_election.locks}), 'before kept late', 'each its own');
	$s->query(q{SAVEPOINT w; SELECT acquire_lock('w1', '1 h'); SAVEPOINT x; SELECT acquire_lock('x1', '1 h'); RELEASE x; SELECT acquire_lock('w2', '1 h'); ROLLBACK TO w; COMMIT});
	is(one(q{SELECT string_agg(name, ' ' ORDER BY name) FROM lock_election.locks}), 'before kept late', 'what is inside goes along');

	# a lock of a named owner that it holds already keeps its first hold
	$s->query(q{SELECT acquire_lock('again', '1 h', owner => 'me')});
	stop_manager();
	is(answer($s, q{SELECT try_acquire_lock('again', '1 h', owner => 'me')}, 'once more'), '', 'NULL');
	go_on();
	$s->query('SELECT 1');
	is($s->query(q{SELECT release_lock('again', token) FROM lock_election.locks WHERE name = 'again'}), 't', 'released');
	is(one("SELECT $count ('again')"), '0', 'it was held once');

	# a place in a queue is kept
	my $place = $s->query(q{SELECT token FROM enqueue_lock('late', '1 h')});
	stop_manager();
	is(answer($s, "SELECT await_lock('late', $place, wait => '100 ms')", 'await'), 'f', 'not yet');
	go_on();
	$next->query(q{SELECT release_lock('late')});
	is($s->query("SELECT await_lock('late', $place, wait => '20 s')"), 't', 'but later');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach $s, $next;
	nothing_left($node);
};

# Ended while nobody reads: a rollback, a release at commit, a bound lock, and the session itself.
subtest 'what ends meanwhile' => sub {
	my ($undone, $bound, $released) = map { session($node) } 1 .. 3;

	$undone->query(q{BEGIN; SELECT acquire_lock('undone', '1 h')});
	$bound->query(q{SELECT acquire_lock('bound', NULL)});
	$released->query(q{SELECT acquire_lock('released', '1 h')});
	$released->query(q{BEGIN; SELECT release_lock('released')});
	stop_manager();
	$released->query('COMMIT', 20);
	$_->quit foreach $undone, $bound, $released;
	my $pids = 'pid IN (' . join(',', map { $_->pid } $undone, $bound, $released) . ')';
	wait_until(sub { backends($pids) eq '0' }) or die 'they do not end';

	# new sessions take their numbers, and give up
	my @next = map { session($node) } 1 .. 4;
	$_->async(q{SELECT try_acquire_lock('bound', '1 h')}) foreach @next;
	is(join('', map { $_->wait } @next), '', 'nobody is granted anything');
	my @other = map { session($node, dbname => 'other') } 1 .. 4;
	$_->query(q{SELECT is_held('x', 1)}) foreach @other;
	$_->quit foreach @next;
	go_on();
	nothing_left($node, 'all of it is read later');
	$_->quit foreach @other;
};

# Else the next connection would wait for that, which gets the same mailbox.
subtest 'a session that leaves much waits for its end' => sub {
	my $exists = sub { return kill 0, $_[0]->pid };
	my $locks = sub {
		my ($s, $n) = @_;
		$s->query("SELECT count(acquire_lock(pg_backend_pid() || ' ' || i, NULL)) FROM generate_series(1, $n) i");
		return $s;
	};
	my $late = $locks->(session($node), 16);
	my %seen;

	# all of it within the 5 s that they wait, which on a busy machine may take several tries
	foreach my $try (1 .. 10)
	{
		my ($few, $many, $open) = ($locks->(session($node), 15), $locks->(session($node), 16), session($node));

		$open->query(q{BEGIN; SELECT acquire_lock('open', '1 h')});
		stop_manager();
		my $start = time;
		$_->quit foreach $many, $open, $few;
		wait_until(sub { !$exists->($few) }) or die 'one that leaves little does not end';
		%seen = (many => $exists->($many), open => $exists->($open));

		# the exit itself is done by now
		my $used = sub { return eval { cpu_time($many->pid) + cpu_time($open->pid) } // 0 };
		my $before = $used->();
		admin('SELECT pg_sleep(1)');
		$seen{used} = $used->() - $before;
		go_on();
		wait_until(sub { !$exists->($many) && !$exists->($open) }) or die 'they do not end';
		$seen{took} = time - $start;
		last if $seen{many} && $seen{open} && $seen{took} < 5;
	}
	ok($seen{many}, 'one that leaves little does not: one that leaves many locks is still there then');
	ok($seen{open}, 'and one that leaves a transaction');
	cmp_ok($seen{used}, '<', 0.15, 'they sleep');
	cmp_ok($seen{took}, '<', 5, 'until that is read');

	# not for ever
	stop_manager();
	my $start = time;
	$late->quit;
	ok(wait_until(sub { !$exists->($late) }), 'nor longer than that is borne');
	cmp_ok(time - $start, '>=', 5, 'which is 5 s');
	go_on();
	nothing_left($node);
};

# Each is refused, and asks again at once: the manager has something to do one by one for as long as they go on.
subtest 'asked to leave while all that is asked fails' => sub {
	my ($locker, @clients) = map { session($node) } 1 .. 4;
	my $token = $locker->query(q{SELECT acquire_lock('refused', '1 h')});

	$locker->query("BEGIN; SELECT FROM _lock_election.slot WHERE token = $token FOR UPDATE");
	foreach my $client (@clients)
	{
		$client->async("SELECT release_lock('refused', $token)") for 1 .. 200;
	}
	wait_until(sub { one('SELECT failed_batches FROM lock_election.stat') > 5 }) or die 'none fails';
	my $pid = one('SELECT pid FROM lock_election.manager');
	kill 'TERM', $pid;
	ok(wait_until(sub { !kill 0, $pid }, IN_TIME), 'it goes');
	$locker->query('ROLLBACK');
	$_->kill foreach @clients;
	$locker->query("SELECT force_release_lock('refused')");
	nothing_left($node);
	$locker->quit;
};

# Its request is one that waits, as far as the manager knows, which cannot read that it was given up.
subtest 'a wait is cancelled while the manager cannot write' => sub {
	my ($holder, $waits, $other, $locker) = map { session($node) } 1 .. 4;

	$holder->query(q{SELECT acquire_lock('x', '1 h')});
	$waits->async(q{SELECT acquire_lock('x', '1 h')});
	waiting($waits);
	$locker->query('BEGIN; LOCK TABLE _lock_election.slot');
	like(answer($other, q{SELECT acquire_lock('y')}, 'another session'), qr/55P03/, 'which is told so');
	one('SELECT pg_cancel_backend(' . $waits->pid . ')');
	$waits->wait;
	like($waits->error, qr/57014/, 'the wait is cancelled');
	is(answer($other, q{SELECT is_held('x', 1)}, 'a look of another session'), 'f', 'is answered');
	is(answer($waits, q{SELECT is_held('x', 1)}, 'one of this session, whose wait has left nothing to write'), 'f', 'is answered');
	$locker->query('ROLLBACK');
	is($waits->query(q{SELECT is_held('x', 1)}), 'f', 'then they are answered');
	$holder->query(q{SELECT release_lock('x')});
	$_->quit foreach $holder, $waits, $other, $locker;
	nothing_left($node);
};

# Nobody will answer: a session that waits in its commit ends with the others, and does not wait for what its limit would tell.
subtest 'the postmaster dies while a commit waits' => sub {
	my $s = session($node);
	my ($pid, $log) = ($s->pid, -s $node->logfile);

	my $behind = session($node);

	$s->query(q{SELECT acquire_lock('last', '1 h'); BEGIN; SELECT release_lock('last')});
	stop_manager();

	# a call that waits behind an earlier one, which it was to do without
	$behind->query(q{SET statement_timeout = '300 ms'});
	$behind->query(q{SELECT acquire_lock('given up', '1 h')});
	$behind->query(q{RESET statement_timeout});
	$behind->async(q{SELECT acquire_lock('behind', '1 h')});
	my $start = time;
	$s->async('COMMIT');
	wait_until(sub { backends("pid = $pid AND wait_event_type = 'Extension'") eq '1' }) or die 'it does not wait';
	$node->kill9;
	my $in_time = time - $start < 4;
	ok(wait_until(sub { !kill 0, $pid }), 'it ends');
	ok(wait_until(sub { !kill 0, $behind->pid }), 'so does one that looks again and again');
	ok(!$in_time || !$node->log_contains(qr/did not answer within 5 seconds/, $log), 'at once');
	go_on();
	ok(wait_until(sub { $node->start(fail_ok => 1) }), 'the server starts again');
};

$node->stop;
done_testing();
