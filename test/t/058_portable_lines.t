# The portable edition: blocked calls form a queue of advisory locks, the line. Tests the order of calls among each
# other and relative to places, which requests they delay, and that they leave nothing behind if they end in another
# way.
# Promises: F, M
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Cluster;
use Test::More;
use Time::HiRes qw(time sleep);

my $node = new_node('main', portable => 1);

# Number of advisory locks of calls that wait or have waited.
sub advisory { return one(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database IS NOT NULL}); }

# Starts a call that waits, and returns its session when the call is in the line.
sub stand
{
	my ($sql, %opts) = @_;
	my $s = session($node, %opts);

	$s->async($sql);
	waiting($s);
	return $s;
}

sub hold { my ($s, $name) = @_; return $s->query("SELECT acquire_lock('$name', '1 h')"); }

# Enqueues a place that no call waits for.
sub place { my ($s, $name) = @_; return $s->query("SELECT token FROM enqueue_lock('$name', '1 h')"); }

sub current_user { return one('SELECT current_user'); }

subtest 'first come, first served' => sub {
	my $h = session($node);
	my $token = hold($h, 'order');
	my @line = map { stand(q{SELECT acquire_lock('order', '1 h')}) } 1 .. 10;
	my ($turn, $before) = (0, $token);

	is($h->query("SELECT release_lock('order', $token)"), 't', 'the holder releases the lock with ten calls in the line');
	while (my $s = shift @line)
	{
		my $got = $s->wait;

		$turn++;
		die "turn $turn: token $got after $before" if $got <= $before;
		$before = $got;
		# Enough time for another call of the line to be granted by mistake.
		is($h->query(q{SELECT pg_sleep(0.15); SELECT try_acquire_lock('order') IS NULL}), "\nt", "turn $turn: a try fails while another call of the line holds the lock") if $turn % 4 == 1;
		die "turn $turn: two at a time" if grep { $_->ready } @line;
		is($s->query("SELECT release_lock('order', $got)"), 't', "turn $turn: released");
		is($h->query(q{SELECT try_acquire_lock('order') IS NULL}), 't', 'a try does not overtake the line') if @line;
		$s->quit;
	}
	is(advisory(), 0, 'no advisory lock is left');
	$h->quit;
};

subtest 'calls and places in one queue' => sub {
	my ($h, $p) = (session($node), session($node));
	my $token = hold($h, 'mixed');
	my (@order, @tokens);

	# The order of arrival: P1 W1 P2 W2 P3.
	my $p1 = place($p, 'mixed');
	my $w1 = stand(q{SELECT acquire_lock('mixed', '1 h')});
	my $p2 = place($p, 'mixed');
	my $w2 = stand(q{SELECT acquire_lock('mixed', '1 h')});
	my $p3 = place($p, 'mixed');
	my %names = (p1 => $p1, p2 => $p2, p3 => $p3);
	is(one(q{SELECT string_agg(CASE pid WHEN } . $w1->pid . q{ THEN 'w1' WHEN } . $w2->pid . qq{ THEN 'w2' ELSE 'p' END || ' ' || coalesce(token = ANY ('{$p1,$p2,$p3}'), false) || ' ' || role, ', '
		ORDER BY queue_position) FROM lock_election.waiters WHERE name = 'mixed'}), join(', ', map { "$_ " . current_user() } 'p true', 'w1 false', 'p true', 'p true', 'w2 false'), 'the view waiters shows all calls and places in order');
	is(one(q{SELECT waiters FROM lock_election.locks WHERE name = 'mixed'}), 5, 'the view locks counts all calls and places');
	my $holder = sub { return one(q{SELECT coalesce(max(token), 0) FROM lock_election.locks WHERE name = 'mixed'}); };

	$h->query("SELECT release_lock('mixed', $token)");
	foreach my $turn (1 .. 5)
	{
		wait_for_sql($node, q{SELECT count(*) = 1 FROM lock_election.locks WHERE name = 'mixed'});
		my $now = $holder->();
		my ($who) = grep { $names{$_} == $now } sort keys %names;

		# A release grants the lock to a place; a call retries soon.
		$who //= !grep({ $_ eq 'w1' } @order) ? do { is($w1->wait, $now, 'the first call returns the token of the view'); 'w1' } : do { is($w2->wait, $now, 'the second call returns the token of the view'); 'w2' };
		push @order, $who;
		push @tokens, $now;
		one("SELECT release_lock('mixed', $now)");
	}
	is("@order", 'p1 w1 p2 p3 w2', 'the first call of the line is ordered among places by the time at which it became first');
	is_deeply(\@tokens, [ sort { $a <=> $b } @tokens ], 'tokens grow in the order of grants');
	is(advisory(), 0, 'no advisory lock is left');
	$_->quit foreach $h, $p, $w1, $w2;
};

# The installing role is not a member of pg_read_all_stats: PostgreSQL may show more to the reader of the view than to
# it.
subtest 'waiting_since in the view waiters' => sub {
	my $h = session($node);
	my $token = hold($h, 'since');
	my $before = one('SELECT clock_timestamp()');

	one('CREATE ROLE worker LOGIN; CREATE ROLE stranger');
	my @line = map { stand(q{SELECT acquire_lock('since', '1 h')}, user => 'worker') } 1 .. 2;
	my $seen = sub {
		my ($role) = @_;
		my $reader = session($node);
		my $rows = $reader->query("SET ROLE $role; " . qq{SELECT string_agg(coalesce(pid::text, '-') || ' ' || coalesce((waiting_since BETWEEN '$before' AND clock_timestamp())::text, '-'), ', '
			ORDER BY queue_position) FROM lock_election.waiters WHERE name = 'since'});

		$reader->quit;
		return $rows;
	};
	my $all = join ', ', map { $_->pid . ' true' } @line;

	is($seen->('NONE'), $all, 'a member of pg_read_all_stats sees pid and waiting_since of all calls');
	is($seen->('worker'), $all, 'the role itself sees pid and waiting_since of its calls');
	is($seen->('stranger'), '- -, - true', 'another role does not see waiting_since of the first call');
	$h->query("SELECT release_lock('since', $token)");
	foreach my $s (@line)
	{
		one("SELECT force_release_lock('since')") if $s->wait;
		$s->quit;
	}
	$h->quit;
};

subtest 'a stream of places' => sub {
	my ($h, $p) = (session($node), session($node));
	my $token = hold($h, 'stream');
	my $w = stand(q{SELECT acquire_lock('stream', '1 h')});
	my %places;

	foreach my $n (1 .. 50)
	{
		$places{ place($p, 'stream') } = 1;
		$p->query("SELECT release_lock('stream', $token)");
		wait_for_sql($node, q{SELECT count(*) = 1 FROM lock_election.locks WHERE name = 'stream'});
		$token = one(q{SELECT token FROM lock_election.locks WHERE name = 'stream'});
		last if !$places{$token};
	}
	is(keys %places, 1, 'a stream of new places does not delay a call that waits');
	one("SELECT release_lock('stream', " . $w->wait . ')');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'stream'}), 1, 'the next place is granted after the call');
	$_->quit foreach $h, $p, $w;
};

subtest 'several names, permits, readers, elections' => sub {
	my ($h, $p) = (session($node), session($node));
	my ($a, $b) = (hold($h, 'a'), hold($h, 'b'));
	my $w = stand(q{SELECT acquire_locks('{b,a}', '1 h')});
	my $one = stand(q{SELECT acquire_lock('a', '1 h')});
	my ($place) = split /\|/, $p->query(q{SELECT token, granted FROM enqueue_locks('{b,c}', '1 h')});

	$h->query("SELECT release_lock('a', $a)");
	is($h->query(q{SELECT pg_sleep(0.3); SELECT try_acquire_lock('a') IS NULL}), "\nt", 'a call that waits for two names keeps the free one from later requests');
	ok(!$one->ready && !$w->ready, 'a call that waits for two names keeps the free one from later calls of the line');
	$h->query("SELECT release_lock('b', $b)");
	my $got = $w->wait;
	like($got, qr/^\d+$/, 'the call is granted both names at the same time');
	is($p->query("SELECT await_locks('{b,c}', $place)"), 'f', 'a place for several names waits for an earlier call for one of them');
	one("SELECT release_locks('{a,b}', $got)");
	like($one->wait, qr/^\d+$/, 'the next call for one of the names is granted');
	is($p->query("SELECT await_locks('{b,c}', $place)"), 't', 'the place for several names is granted last');
	$_->quit foreach $w, $one;

	my $permit = $h->query(q{SELECT acquire_permit('two', 1, '1 h')});
	my @line = map { stand(q{SELECT acquire_permit('two', 1, '1 h')}) } 1 .. 2;
	$h->query("SELECT release_lock('two', $permit)");
	$permit = $line[0]->wait;
	ok(!$line[1]->ready, 'the second call for the only permit waits');
	one("SELECT release_lock('two', $permit)");
	like($line[1]->wait, qr/^\d+$/, 'the second call is granted the permit after its release');
	$_->quit foreach @line;

	my $writer = hold($h, 'read');
	my @readers = map { stand(q{SELECT acquire_lock('read', '1 h', mode => 'shared')}) } 1 .. 3;
	my $second = stand(q{SELECT acquire_lock('read', '1 h')});
	my $late = stand(q{SELECT acquire_lock('read', '1 h', mode => 'shared')});
	$h->query("SELECT release_lock('read', $writer)");
	my @tokens = map { $_->wait } @readers;
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'read' AND mode = 'shared'}), 3, 'three readers hold the lock together');
	is($h->query(q{SELECT pg_sleep(0.3); SELECT try_acquire_lock('read', mode => 'shared') IS NULL}), "\nt", 'a try by a reader does not overtake a waiting writer');
	ok(!$second->ready && !$late->ready, 'a reader of the line does not overtake a waiting writer');
	one("SELECT release_lock('read', $_)") foreach @tokens;
	$writer = $second->wait;
	ok(!$late->ready, 'a writer holds the lock alone');
	one("SELECT release_lock('read', $writer)");
	like($late->wait, qr/^\d+$/, 'the reader behind the writer is granted the lock');
	$_->quit foreach @readers, $second, $late;

	my $term = $h->query(q{SELECT campaign('boss', 'h', '1 h')});
	my @candidates = map { stand("SELECT campaign('boss', 'c$_', '1 h')") } 1 .. 2;
	$h->query("SELECT resign('boss', $term)");
	$term = $candidates[0]->wait;
	ok(!$candidates[1]->ready, 'the second candidate waits');
	one("SELECT resign('boss', $term)");
	like($candidates[1]->wait, qr/^\d+$/, 'the second candidate is elected after the first one resigns');
	is(advisory(), 0, 'no advisory lock is left');
	$_->quit foreach @candidates, $h, $p;
};

subtest 'a call for two names that is first in the line of only one' => sub {
	my ($h, $p) = (session($node), session($node));
	# A call for both names enters the line of $x first.
	my ($x, $y) = split /\n/, one(q{SELECT n FROM unnest('{x,y}'::text[]) n ORDER BY hashtextextended(n COLLATE "C", 4809)});
	my %tokens = map { ($_ => hold($h, $_)) } $x, $y;
	my ($place) = split /\|/, $p->query(q{SELECT token FROM enqueue_locks('{x,y}', '1 h')});
	my $one = stand("SELECT acquire_lock('$y', '1 h')");
	my $both = stand(q{SELECT acquire_locks('{x,y}', '1 h')});
	my ($late) = split /\|/, $p->query(q{SELECT token FROM enqueue_locks('{x,y}', '1 h')});

	$h->query("SELECT release_lock('$_', $tokens{$_})") foreach $x, $y;
	is($p->query("SELECT await_locks('{x,y}', $place, '10 s')"), 't', 'a place is not delayed by a call that came later at one of its names');
	one("SELECT release_locks('{x,y}', $place)");
	my $second = $one->wait;
	cmp_ok($second, '>', $place, 'the first call in the line of the other name is next');
	ok(!$both->ready, 'the call for both names still waits');
	one("SELECT release_lock('$y', $second)");
	is($p->query("SELECT await_locks('{x,y}', $late, '10 s')"), 't', 'a place is not delayed by a call that was not yet first at both names');
	one("SELECT release_locks('{x,y}', $late)");
	cmp_ok($both->wait, '>', $late, 'the call for both names is last, and has the highest token');
	$_->quit foreach $h, $p, $one, $both;
};

subtest 're-entry while other calls wait' => sub {
	my ($h, $x) = (session($node), session($node));
	my $token = $h->query(q{SELECT acquire_lock('more', '1 h', owner => 'o')});
	my $w = stand(q{SELECT acquire_lock('more', '1 h')});

	# Another session is inside the critical section of the name for longer than an attempt waits to enter it.
	$x->query(q{BEGIN; SELECT token FROM enqueue_lock('more', '1 h')});
	$h->async(q{SELECT acquire_lock('more', '1 h', owner => 'o')});
	wait_for_sql($node, q{SELECT clock_timestamp() - query_start > '1 s' FROM pg_stat_activity WHERE pid = } . $h->pid);
	$x->query('ROLLBACK');
	is($h->wait(20), $token, 'a re-entry does not wait behind calls that wait for the first hold');
	one("SELECT release_lock('more', $token, all_holds => true)");
	cmp_ok($w->wait, '>', $token, 'the waiting call is granted the lock after all holds are released');
	$_->quit foreach $h, $x, $w;
};

subtest 'calls that end without a grant' => sub {
	my $h = session($node);
	my $token = hold($h, 'away');
	my @line = map { stand(q{SELECT acquire_lock('away', '1 h')}) } 1 .. 4;

	# The first call is cancelled, the third one is terminated, and another one times out.
	my $timed = session($node);
	my $began = time;
	is($timed->query(q{SET lock_timeout = '1 h'; SELECT acquire_lock('away', '1 h', wait => '400 ms') IS NULL; SHOW lock_timeout}), "t\n1h", 'a wait times out, and leaves lock_timeout unchanged');
	cmp_ok(time - $began, '>=', 0.4, 'the wait does not time out too early');
	is($timed->query(q{SET lock_timeout = '300 ms'; SELECT acquire_lock('away', '1 h')}), '', 'lock_timeout ends a wait');
	like($timed->error, qr/55P03.*canceling statement due to lock timeout/, 'the error of lock_timeout is that of PostgreSQL');
	is($timed->query(q{SET lock_timeout = '400 ms'; SELECT acquire_lock('away', '1 h', wait => '50 ms') IS NULL; SHOW lock_timeout}), "t\n400ms", 'the shorter one of wait and lock_timeout ends the wait');
	is($timed->query(q{BEGIN; SELECT acquire_lock('away', '1 h', wait => '50 ms') IS NULL}), 't', 'a transaction can continue after a wait that timed out');
	is(one('SELECT count(*) FROM pg_locks WHERE pid = ' . $timed->pid . q{ AND locktype = 'advisory'}), 0, 'a call that timed out keeps no advisory lock');
	$timed->query('ROLLBACK; RESET lock_timeout');
	one('SELECT pg_cancel_backend(' . $line[0]->pid . ')');
	$line[0]->wait;
	like($line[0]->error, qr/57014/, 'the first call of the line is cancelled');
	one('SELECT pg_terminate_backend(' . $line[2]->pid . ')');
	$line[2]->wait;
	$line[2]->quit;
	$h->query("SELECT release_lock('away', $token)");
	my $second = $line[1]->wait;
	ok(!$line[3]->ready, 'the second call holds the lock, and the fourth waits');

	# A place behind a call, on a free name: when the call is finished, the place must be granted.
	my $client = session($node);
	my $place = place($client, 'away');
	one("SELECT release_lock('away', $second)");
	my $fourth = $line[3]->wait;
	one("SELECT release_lock('away', $fourth)");
	is($client->query("SELECT await_lock('away', $place)"), 't', 'the place behind the calls is granted');
	one("SELECT release_lock('away', $place)");
	is(advisory(), 0, 'no advisory lock is left');
	$_->quit foreach $h, $timed, $client, @line[ 0, 1, 3 ];
};

# client_connection_check_interval exists since PostgreSQL 14, and needs a poll() that reports closed connections, as on
# Linux.
subtest 'clients that are killed' => sub {
	plan skip_all => 'PostgreSQL cannot check connections here' if one(q{SELECT count(*) FROM pg_settings WHERE name = 'client_connection_check_interval'}) == 0;
	my $h = session($node);
	my $token = hold($h, 'killed');
	my @line = map { stand(q{SELECT acquire_lock('killed', '1 h')}, connstr => q{options='-c client_connection_check_interval=20ms'}) } 1 .. 3;

	$line[$_]->kill foreach 0, 1;
	wait_for_sql($node, q{SELECT count(*) = 1 FROM lock_election.waiters WHERE name = 'killed'});
	is(one(q{SELECT pid FROM lock_election.waiters WHERE name = 'killed'}), $line[2]->pid, 'the calls of killed clients leave the line');
	$h->query("SELECT release_lock('killed', $token)");
	$token = $line[2]->wait;
	is(one("SELECT release_lock('killed', $token)"), 't', 'the call of the client that is alive is granted the lock');
	is(advisory(), 0, 'no advisory lock is left');
	$_->quit foreach $h, $line[2];
};

subtest 'two transactions that wait for each other' => sub {
	my ($x, $y) = map { session($node) } 1 .. 2;

	$x->query(q{BEGIN; SELECT acquire_lock('left', '1 h')});
	$y->query(q{BEGIN; SELECT acquire_lock('right', '1 h')});
	$x->async(q{SELECT acquire_lock('right', '1 h')});
	wait_for_sql($node, 'SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND pid = ' . $x->pid);
	$y->async(q{SELECT acquire_lock('left', '1 h')});
	my @errors = map { $_->wait; $_->error } $y, $x;
	is(scalar(grep { /40P01/ } @errors), 1, 'one of two deadlocked calls gets a deadlock error') or diag explain \@errors;
	$_->query('ROLLBACK') foreach $x, $y;
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name IN ('left', 'right')}), 0, 'no lock is left after the rollbacks');
	$_->quit foreach $x, $y;
};

# A place is granted between two statements of a function that examines it: the function stops there until the grant.
subtest 'a place that is granted while a function examines it' => sub {
	my ($h, $p, $gate) = map { session($node) } 1 .. 3;
	my $definition = one(q{SELECT pg_get_functiondef('_lock_election.lease_lives'::regproc)});

	foreach my $case ([ q{SELECT await_lock('seen', %s)}, 'await_lock' ], [ q{SELECT release_lock('seen', %s)}, 'release_lock' ])
	{
		my ($sql, $what) = @$case;
		my $token = hold($h, 'seen');
		my $place = place($p, 'seen');

		$gate->query('SELECT pg_advisory_lock(58)');
		# release_lock() continues without the critical section if it cannot enter it.
		$gate->query(q{BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('seen', 4803))}) if $what eq 'release_lock';
		one(q{CREATE OR REPLACE FUNCTION _lock_election.lease_lives(number int8) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
			BEGIN
				IF pg_backend_pid() = } . $p->pid . q{ THEN PERFORM pg_advisory_lock_shared(58), pg_advisory_unlock_shared(58); END IF;
				RETURN EXISTS (SELECT FROM _lock_election.lease l WHERE l.id = number AND l.expires_at > clock_timestamp());
			END $$});
		$p->async(sprintf $sql, $place);
		wait_for_sql($node, q{SELECT count(*) > 0 FROM pg_locks WHERE objid = 58 AND NOT granted AND pid = } . $p->pid);
		$gate->query('COMMIT') if $what eq 'release_lock';
		$h->query("SELECT release_lock('seen', $token)");
		is(one(q{SELECT token FROM lock_election.locks WHERE name = 'seen'}), $place, "$what: the place is granted");
		$gate->query('SELECT pg_advisory_unlock(58)');
		is($p->wait, 't', "$what: the place is not reported as lost");
		one($definition);
		one("SELECT release_lock('seen', $place)");
		is(one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'seen'}), 0, "$what: the lock is released");
	}
	$_->quit foreach $h, $p, $gate;
};

# The transaction that grants the place is stopped after the ttl of the hold has started. A renewal of the place in this
# moment would state a time that the hold does not have.
subtest 'a place that is being granted is not renewed' => sub {
	my ($h, $p, $gate) = map { session($node) } 1 .. 3;
	my $definition = one(q{SELECT pg_get_functiondef('_lock_election.drop_group'::regproc)});
	my $token = hold($h, 'granting');
	my $place = place($p, 'granting');
	my $asks = qq{SELECT await_lock('granting', $place)};

	is($p->query($asks), 'f', 'the place waits');
	$gate->query('SELECT pg_advisory_lock(58)');
	one(q{CREATE OR REPLACE FUNCTION _lock_election.drop_group(number int8) RETURNS void LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_lock_shared(58), pg_advisory_unlock_shared(58); END $$});
	$h->async("SELECT release_lock('granting', $token)");
	wait_for_sql($node, q{SELECT count(*) > 0 FROM pg_locks WHERE objid = 58 AND NOT granted AND pid = } . $h->pid);
	is($p->query($asks), '', 'a call that waits too long for the grant fails');
	like($p->error, qr/55P03.*could not keep the place/, 'the error says that the place could not be renewed');
	$p->async($asks);
	sleep 0.1;
	ok(!$p->ready, 'a call waits for the grant');
	$gate->query('SELECT pg_advisory_unlock(58)');
	is($p->wait, 't', 'the call returns the grant');
	is($h->wait, 't', 'the lock was released');
	one($definition);
	one("SELECT release_lock('granting', $place)");
	$_->quit foreach $h, $p, $gate;
};

done_testing();
