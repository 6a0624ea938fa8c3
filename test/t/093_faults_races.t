# Races: a process is stopped at a fault point of the server until another event has happened.
# Promises: L, G
# Needs: faults
use strict;
use warnings;
use LePoints;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

# So few that a test can use all of them.
my $connections = 12;
my $node = new_node('main', faults => 1, conf => "autovacuum = off\nlisten_addresses = '127.0.0.1'\nmax_connections = $connections\ndynamic_shared_memory_type = mmap\n");
my ($a, $b, $c, $free) = map { session($node) } 1 .. 4;
points_by(\$free);

sub acquire { my ($s, $name, $ttl, $wait) = @_; return $s->query("SELECT acquire_lock('$name', $ttl)"); }

sub is_free
{
	my ($name, $test_name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $token = $c->query("SELECT acquire_lock('$name', wait => '20 s')");
	like($token, qr/^\d+$/, $test_name);
	$c->query("SELECT release_lock('$name', $token)");
	return $token;
}

# --- a grant coincides with the end of its wait ---

foreach my $point (qw(batch-before-expiry batch-applied batch-written batch-committed))
{
	my $token = acquire($a, 'x', q{'1 h'});

	$b->async(q{SELECT acquire_lock('x', '1 h')});
	waiting($b);
	stop_at($point);
	$a->async("SELECT release_lock('x', $token)");
	stopped($point);
	$free->query('SELECT pg_cancel_backend(' . $b->pid . ')');
	$b->wait;
	like($b->error, qr/57014/, "$point: a wait is cancelled while it is granted");
	go_on($point);
	is($a->wait, 't', "$point: the release returns true");
	cmp_ok(is_free('x', "$point: the cancelled grant is undone"), '>', $token, "$point: the next token is higher");
	nothing_left($node);
}

# A rollback to a savepoint, and a rollback while the manager still writes the first. Returns how long the waiter waits.
sub two_ends
{
	my $token = acquire($a, 'r', q{'1 h'});

	$a->query("BEGIN; SELECT release_lock('r'); SAVEPOINT s");
	shorten($c, 'r', $token, '300 ms');
	ok(wait_until(sub { $c->query("SELECT is_held('r', $token)") eq 'f' }), 'the TTL expires');
	$b->async("SELECT acquire_lock('r')");
	waiting($b);
	stop_at('manager-took');
	$c->async("SELECT acquire_lock('other')");
	stopped('manager-took');
	$a->query('ROLLBACK TO s');
	stop_at('batch-written');
	go_on('manager-took');
	stopped('batch-written');
	$a->query('ROLLBACK');
	go_on('batch-written');
	my $start = time;
	like($b->wait, qr/^\d+$/, 'the waiter is granted the lock after the second rollback');
	my $took = time - $start;
	$c->wait;
	$_->[0]->query("SELECT release_lock('$_->[1]')") foreach [ $c, 'other' ], [ $b, 'r' ];
	nothing_left($node);
	return $took;
}

# A retry after 1 s would replace a lost wake-up. On a busy machine, a wake-up can take as long.
{
	my $took;

	for (1 .. 3) { last if ($took = two_ends()) < 0.7; }
	cmp_ok($took, '<', 0.7, 'the waiter is granted the lock immediately after the second rollback');
}

# set_permits() for an unused name, while another session starts to use it: the privileges must be checked again.
$free->query('CREATE ROLE one; CREATE ROLE other');
$a->query('SET ROLE one');
$b->query('SET ROLE other');
fault("set('request-before-post', 'wait', skip => 1, pid => " . $a->pid . ')');
$a->async(q{SELECT set_permits('few', 100)});
stopped('request-before-post');
like($b->query(q{SELECT acquire_permit('few', 1, '1 h')}), qr/^\d+$/, 'another role acquires a permit after the first check of the privileges');
go_on('request-before-post');
$a->wait;
like($a->error, qr/42501: permission denied to change the permits of "few"/, 'set_permits() checks the privileges again');
is($b->query(q{SELECT acquire_permit('few', 1, wait => '0')}) . $b->error, '', 'the number of permits is unchanged');
is($b->query(q{SELECT set_permits('few', 2)}), '1', 'the holder can change the number of permits');
$b->query(q{SELECT release_lock('few')});

# The holders change before each retry: until set_permits() succeeds, or gives up.
$free->query('GRANT other TO one');
foreach my $rounds (3, 1000)
{
	my $pid = $a->pid;
	my $come = 0;
	my $is_asked = sub { wait_until(sub { $a->ready || fault(q{waiting('request-before-post')}) ne '0' }); return !$a->ready; };

	fault("set('request-before-post', 'wait', skip => 1, pid => $pid)");
	$a->async(q{SELECT set_permits('few', 100)});
	while ($come < $rounds && $is_asked->())
	{
		$b->query(q{SELECT acquire_permit('few', 50, '1 h')});
		$come++;
		stop_at('request-done', $pid);
		go_on('request-before-post');
		stopped('request-done');
		$b->query(q{SELECT release_lock('few')}) if $come < $rounds;
		fault("set('request-before-post', 'wait', skip => 1, pid => $pid)") if $come < $rounds;
		go_on('request-done');
	}
	fault('clear()');
	is($a->wait, $rounds == 3 ? '50' : '', $rounds == 3 ? 'set_permits() succeeds for a member of the role of the holder' : 'set_permits() returns nothing when it gives up');
	like($a->error, qr/ERROR:  40001: the holders of "few" have changed too often while their roles were read\n/, 'set_permits() gives up when the holders change too often') if $rounds > 3;
	is($come, $rounds == 3 ? 3 : 21, 'set_permits() retries as often as expected');
	is($b->query(q{SELECT set_permits('few', 50), release_lock('few')}), '100|t', 'the new number of permits applies') if $rounds == 3;
}
$_->query('RESET ROLE') foreach $a, $b;
$free->query('DROP ROLE one; DROP ROLE other');
nothing_left($node);

# A lock that is to be released at commit ends between the first check and the fence.
foreach my $each (0, 1)
{
	my ($x, $y) = map { acquire($a, $_, q{'1 h'}) } 'x', 'y';
	my $release = $each ? "string_agg(name || ' ' || released, ', ') FROM release_each('{y,x}', '{$y,$x}')" : "release_lock('x', $x)";

	stop_at('request-done', $a->pid);
	$a->async("BEGIN; SELECT $release");
	stopped('request-done');
	$free->query(q{SELECT force_release_lock('x')});
	go_on('request-done');
	is($a->wait, $each ? 'y true, x false' : 'f', 'a lock that has ended in the meantime is not released');
	is($a->query('COMMIT') . $a->error, '', 'a release of a lock that has ended is no error');
	$free->query(q{SELECT force_release_lock('y')});
	nothing_left($node);
}

# The session that leads the group flush is stopped before, in or after the flush. The WAL writer is stopped, too.
foreach my $point (qw(request-answered flush-before flush-done flush-passed-on))
{
	my $walwriter = stop_walwriter($node);

	stop_at($point);
	$a->async(q{SELECT acquire_lock('leader')});
	stopped($point);
	foreach my $other ([ $b, 'other' ], [ $c, 'another' ])
	{
		my ($s, $name) = @$other;
		$s->async("SELECT acquire_lock('$name', '1 min')");
		ok(wait_until(sub { $s->ready }), "$point: $name gets its reply without the stopped leader");
		like($s->wait, qr/^\d+$/, "$point: $name is granted its lock");
	}
	kill 'CONT', $walwriter;
	go_on($point);
	like($a->wait, qr/^\d+$/, "$point: the leader is granted its lock later");
	$a->query(q{SELECT release_lock('leader')});
	$b->query(q{SELECT release_lock('other')});
	$c->query(q{SELECT release_lock('another')});
	nothing_left($node);
}

# The leader ends instead: another session flushes for those that have come in the meantime.
foreach my $how (qw(cancel terminate))
{
	my $s = session($node);
	my $name = "ended by $how";

	stop_at('request-answered', $s->pid);
	$s->async("SELECT acquire_lock('$name')");
	stopped('request-answered');
	$b->async(q{SELECT acquire_lock('other')});
	$free->query("SELECT pg_${how}_backend(" . $s->pid . ')');
	go_on('request-answered');
	like($b->wait, qr/^\d+$/, "$how: other sessions get their replies");
	$s->wait;
	is_free($name, "$how: the grant of the ended leader is undone");
	$b->query(q{SELECT release_lock('other')});
	nothing_left($node);
	$s->quit;
}

# A session ends after its grant, but before it has recorded the grant.
foreach my $point (qw(request-answered request-done durable-before durable-after))
{
	foreach my $how (qw(cancel terminate))
	{
		my $token = acquire($a, 'x', q{'1 h'});
		my $s = session($node);

		$s->async(q{SELECT acquire_lock('x', '1 h')});
		waiting($s);
		stop_at($point, $s->pid);
		$a->query("SELECT release_lock('x', $token)");
		stopped($point);
		is($c->query(q{SELECT try_acquire_lock('x')}), '', "$point: the lock is granted");
		$free->query("SELECT pg_${how}_backend(" . $s->pid . ')');
		$s->wait;
		go_on($point);
		is_free('x', "$how: the grant is undone");
		$s->quit;
	}
}

# A cancel coincides with a grant. The wait has set the timeouts of the socket, which must be restored.
{
	my $token = acquire($a, 'x', q{'1 h'});
	my $s = session($node, connstr => 'host=127.0.0.1');
	my $show = 'SHOW tcp_user_timeout';
	my $before = $s->query($show);

	stop_at('request-granted', $s->pid);
	$s->async(q{SELECT acquire_lock('x', '1 h')});
	waiting($s);
	$free->query('SELECT pg_sleep(1.5)');
	$a->query("SELECT release_lock('x', $token)");
	stopped('request-granted');
	$free->query('SELECT pg_cancel_backend(' . $s->pid . ')');
	$s->wait;
	like($s->error, qr/57014/, 'the call is cancelled when it was granted');
	go_on('request-granted');
	is($s->query($show), $before, 'the timeout of the socket is restored');
	is_free('x', 'the grant is undone');
	$s->quit;
}

# Stops the manager in the middle of the grant, while b, whose wait is some milliseconds, has not given up yet. If b has
# given up, retries with a longer wait. Returns the wait in milliseconds.
sub stop_in_grant
{
	my ($set, $wait) = @_;

	for (my $ms = 200; $ms < 20000; $ms *= 2)
	{
		my $token = acquire($a, 'x', q{'1 h'});
		my $pid = $b->pid;

		$b->query($set =~ s/MS/$ms/r);
		$b->async("SELECT acquire_lock('x', '1 h', wait => " . $wait =~ s/MS/$ms/r . ')');
		my $is_there = wait_until(sub { $b->ready || $c->query("SELECT count(*) FROM lock_election.waiters WHERE pid = $pid") eq '1' });
		stop_at('batch-written');
		$a->async("SELECT release_lock('x', $token)");
		stopped('batch-written');
		return $ms if $is_there && !$b->ready;
		go_on('batch-written');
		$_->wait foreach $a, $b;
	}
	die 'it does not wait';
}

# lock_timeout, or the wait of the call, ends while the manager is in the middle of the grant.
foreach my $end ([ q{SET lock_timeout = MS}, q{NULL}, qr/55P03/, qr/^$/ ], [ q{RESET lock_timeout}, q{'MS ms'}, qr/^$/, qr/^$|^\d+$/ ])
{
	my ($set, $wait, $error, $answer) = @$end;
	my $ms = stop_in_grant($set, $wait);

	if ($wait eq 'NULL') { wait_until(sub { $b->ready }) or die 'lock_timeout does not end it'; }
	else { $free->query("SELECT pg_sleep($ms / 1000.0 + 0.1)"); }
	go_on('batch-written');
	my $out = $b->wait;
	like($b->error, $error, "$set: a timeout during the grant");
	like($out, $answer, "$set: the call is granted or not");
	$b->query(q{RESET lock_timeout});
	$b->query("SELECT release_lock('x', $out)") if $out;
	$a->wait;
	is_free('x', 'the lock is free afterwards');
	nothing_left($node);
}

# --- releases, fences and renewals coincide with the end of the TTL ---

{
	my $token = acquire($a, 'x', q{'1 h'});

	$b->async(q{SELECT acquire_lock('x', '1 h')});
	waiting($b);
	$a->query('SET lock_election.durable_release = on'); # otherwise the session does not wait for the manager
	stop_at('request-before-post', $a->pid);
	$a->async("SELECT release_lock('x', $token)");
	stopped('request-before-post');
	shorten($c, 'x', $token, '300 ms');
	my $next = $b->wait;
	cmp_ok($next, '>', $token, 'the waiter is granted the lock before a late release');
	go_on('request-before-post');
	is($a->wait, 'f', 'the late release returns false');
	is($b->query("SELECT is_held('x', $next)"), 't', 'the next holder keeps the lock');
	$b->query("SELECT release_lock('x', $next)");
	$a->query('RESET lock_election.durable_release');

	# The session knows that it holds the lock, but the TTL expires before it has mailed the release.
	$token = acquire($a, 'x', q{'1 min'});
	stop_at('release-before-post', $a->pid);
	$a->async("SELECT release_lock('x', $token)");
	stopped('release-before-post');
	shorten($c, 'x', $token, '300 ms');
	is($b->query(q{SELECT acquire_lock('x', '1 h') > } . $token), 't', 'the next holder is granted the lock');
	go_on('release-before-post');
	is($a->wait, 't', 'the release returns true, because the lock was held when it was called');
	is($b->query(q{SELECT count(*) FROM lock_election.locks WHERE name = 'x'}), 1, 'the next holder keeps the lock');
	$b->query(q{SELECT force_release_lock('x')});
}

# The TTL expires before, between and after the two steps of a fence: the share lock and the check.
foreach my $point (qw(fence-before-lock fence-locked fence-checked))
{
	my $token = acquire($a, 'x', q{'1 h'});

	$a->query('BEGIN');
	$b->async(q{SELECT acquire_lock('x', '1 h')});
	waiting($b);
	stop_at($point, $a->pid);
	$a->async("SELECT fence_lock('x', $token)");
	stopped($point);
	shorten($c, 'x', $token, '200 ms');
	wait_for_sql($node, "SELECT is_held('x', $token)", 'f');
	my $granted = $point eq 'fence-before-lock' ? $b->wait : '';
	ok(!$b->ready, "$point: the waiter is not granted the lock") unless $granted;
	go_on($point);
	$a->wait;
	if ($point eq 'fence-checked')
	{
		is($a->error, '', "$point: the lock is fenced");
		ok(!$b->ready, "$point: the waiter is not granted the fenced lock");
	}
	else
	{
		like($a->error, qr/LE001/, "$point: the expired lock cannot be fenced");
	}
	$a->query('ROLLBACK');
	$granted ||= $b->wait;
	cmp_ok($granted, '>', $token, "$point: the waiter is granted the lock");
	$b->query("SELECT release_lock('x', $granted)");
	nothing_left($node);
}

# The fence has ended, but the backend has not woken up the manager: the manager's own check must notice it.
{
	my $token = acquire($a, 'x', q{'1 h'});

	$a->query("BEGIN; SELECT fence_lock('x', $token)");
	$b->async(q{SELECT acquire_lock('x', '1 h')});
	waiting($b);
	shorten($c, 'x', $token, '200 ms');
	wait_for_sql($node, "SELECT is_held('x', $token)", 'f');
	stop_at('xact-before-unfence', $a->pid);
	$a->async('COMMIT');
	stopped('xact-before-unfence');
	my $next = $b->wait;
	cmp_ok($next, '>', $token, 'the manager notices the end of a fence without a wake-up');
	go_on('xact-before-unfence');
	$a->wait;
	$b->query("SELECT release_lock('x', $next)");
	nothing_left($node);
}

# --- a commit releases the locks of PostgreSQL before those of lock_election ---

{
	my $s = session($node);
	my $token = acquire($s, 'x', q{'1 h'});

	$node->safe_psql('postgres', 'CREATE TABLE locked ()');
	foreach my $end ('COMMIT', 'ROLLBACK')
	{
		$s->query("BEGIN; LOCK TABLE locked; SELECT release_lock('x', $token)");
		stop_at('xact-locks-released', $s->pid);
		$s->async($end);
		stopped('xact-locks-released');
		is($c->query('BEGIN; LOCK TABLE locked NOWAIT; ROLLBACK') . $c->error, '', "$end: the table lock is released first");
		is($c->query(q{SELECT name FROM lock_election.locks}), 'x', "$end: the lock is still held");
		go_on('xact-locks-released');
		$s->wait;
		acquire($s, 'x', q{'1 h'}) if $end eq 'COMMIT';
		$token = $s->query(q{SELECT token FROM lock_election.locks});
	}
	$s->query("SELECT release_lock('x', $token)");
	$s->quit;
	nothing_left($node);
}

# --- a committed batch fails after its replies ---

# A session with a fence ends, all in one batch. Its mailbox, now free, must be empty for the next session.
{
	my $s = session($node);
	my $pid = $s->pid;
	my $token = acquire($s, 'x', q{'1 h'});

	$s->query("BEGIN; SELECT fence_lock('x', $token)");
	stop_at('manager-took');
	$c->async(q{SELECT is_held('nothing', 1)});
	stopped('manager-took');
	$s->quit;
	wait_until(sub { $free->query("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") eq '0' }) or die 'it does not end';
	fault(q{set('batch-done', 'error', times => 1)});
	fault(q{set('reload-begun', 'error', times => 1)}); # otherwise the mailbox is checked again and cleared
	go_on('manager-took');
	$c->wait;
	my @next = map { session($node) } 1 .. 3;
	is(join(' ', map { $_->query(q{SELECT is_held('nothing', 1)}) . $_->error } @next), 'f f f', 'the next sessions are served');
	$_->quit foreach @next;
	$c->query(q{SELECT force_release_lock('x')});
	nothing_left($node);
}

# --- a commit coincides with a crash ---

foreach my $point (qw(xact-before-locks xact-locks-released release-before-post release-posted batch-written batch-committed))
{
	my ($s, $t) = (session($node), session($node));
	my $token = acquire($s, 'x', q{'1 h'});

	$node->safe_psql('postgres', 'CREATE TABLE IF NOT EXISTS t (n text); TRUNCATE t');
	$s->query("BEGIN; SELECT fence_lock('x', $token); INSERT INTO t VALUES ('$point'); SELECT release_lock('x', $token)");
	$t->async(q{SELECT acquire_lock('x', '1 h')});
	waiting($t);
	fault("set('$point', 'kill')");
	$s->query('COMMIT');
	$t->wait;
	$_->quit foreach $s, $t;
	wait_until(sub { $node->psql('postgres', 'SELECT 1') == 0 }) or die 'the server does not come back';
	($a, $b, $c, $free) = map { session($node) } 1 .. 4;
	my $written = $c->query('SELECT count(*) FROM t');
	my $held = $c->query("SELECT is_held('x', $token)");
	ok($held eq 't' || $written eq '1', "$point: the lock is released only if the write is committed (held $held, written $written)");
	$c->query(q{SELECT force_release_lock('x')});
	cmp_ok(is_free('x', "$point: the lock can be acquired after the crash"), '>', $token, "$point: the next token is higher");
}

# --- a commit fails after it has allocated memory for its releases ---

{
	my $segments = sub { return scalar(() = glob($node->data_dir . '/pg_dynshmem/*')) };
	my $names = q{ARRAY(SELECT repeat('n', 250) || i FROM generate_series(1, 50) i)};
	my $before = $segments->();
	my $token = $a->query("SELECT acquire_locks($names, '1 h')");

	$a->query("BEGIN; SELECT release_locks($names, $token)");
	fault(q{set('xact-before-commit', 'error')});
	$a->query('COMMIT');
	like($a->error, qr/fault at/, 'a commit fails');
	is($segments->(), $before, 'the memory of its releases is freed');
	is($c->query('SELECT count(*) FROM lock_election.locks'), '50', 'its locks are not released');
	is($a->query("BEGIN; SELECT release_locks($names, $token); COMMIT"), 't', 'another commit releases the locks');
	is($segments->(), $before, 'the memory of that commit is freed');
	nothing_left($node);
}

# The manager temporarily cannot read the releases of a commit.
{
	my $dir = $node->data_dir . '/pg_dynshmem';
	my $names = q{ARRAY(SELECT repeat('n', 250) || i FROM generate_series(1, 50) i)};
	my $token = $a->query("SELECT acquire_locks($names, '1 h')");
	my %before = map { $_ => 1 } glob("$dir/*");

	stop_at('release-before-post', $a->pid);
	$a->async("BEGIN; SELECT release_locks($names, $token); COMMIT");
	stopped('release-before-post');
	my ($segment) = grep { !$before{$_} } glob("$dir/*");
	my $hidden = $node->data_dir . '/hidden';
	rename $segment, $hidden or die "$segment: $!";
	go_on('release-before-post');
	$a->wait;
	like($a->error, qr/WARNING: .*the transaction is committed, but the locks that it releases may still be held/, 'a commit warns that its releases cannot be read');
	rename $hidden, $segment or die "$segment: $!";
	ok(wait_for_sql($node, 'SELECT count(*) = 0 FROM lock_election.locks'), 'the locks are released when the releases can be read again');
	nothing_left($node);
}

# A batch with the releases of a commit fails and is replayed: only one of two holds must be released.
foreach my $names (1, 60)
{
	my $list = "ARRAY(SELECT 'hold ' || i FROM generate_series(1, $names) i)";
	my $token = $a->query("SELECT acquire_locks($list, '1 h', owner => 'me')");

	is($a->query("SELECT acquire_locks($list, '1 h', owner => 'me')"), $token, "$names locks have two holds each");
	$a->query("BEGIN; SELECT release_locks($list, $token)");
	fault(q{set('batch-written', 'error')});
	$a->query('COMMIT');
	is($c->query('SELECT count(*), min(holds), max(holds) FROM lock_election.locks'), "$names|1|1", "$names locks: a replayed release takes one hold");
	is($a->query("SELECT release_locks($list, $token)"), 't', "$names locks: the other hold is released");
	nothing_left($node);
}

# --- a manager that is stopped ---

# Longer than the TTL: a holder that has renewed in time by its own clock keeps the lock.
foreach my $point (qw(manager-took batch-before-expiry batch-written batch-committed batch-before-mailboxes batch-done))
{
	my $token = acquire($a, 'x', q{'1 h'});

	$b->async(q{SELECT acquire_lock('x', '1 h')});
	waiting($b);
	shorten($c, 'x', $token, '2 s');
	my $end = time + 2.5;
	stop_at($point);
	$c->async(q{SELECT release_lock('other', acquire_lock('other'))});
	stopped($point);
	$a->async("SELECT renew_lock('x', $token)");
	wait_until(sub { time > $end });
	go_on($point);
	is($a->wait, '00:00:02', "$point: a lease that was renewed while the manager was stopped is kept");
	$c->wait;
	ok(!$b->ready, "$point: the waiter is not granted the lock");
	is($a->query("SELECT release_lock('x', $token)"), 't', "$point: the holder releases the lock");
	my $next = $b->wait;
	cmp_ok($next, '>', $token, "$point: the waiter is granted the released lock");
	$b->query("SELECT release_lock('x', $next)");
}

# A call with a wait gives up 2 s after the end of its wait, whether the manager has taken its request or not. After 5 s
# it gives up in any case; on a busy machine it may exceed these limits.
{
	my $token = acquire($a, 'held', q{'1 h'});
	my $in_time;

	foreach (1 .. 5)
	{
		my $start = time;

		stop_at('batch-begun');
		$a->async(q{SELECT try_acquire_lock('taken')});
		stopped('batch-begun');
		$b->async(q{SELECT try_acquire_lock('not taken')});
		$c->async("SELECT is_held('held', $token)");
		asking($_) foreach $b, $c;
		is($a->wait . $b->wait . $a->error . $b->error, '', 'two tries return while the manager is stopped');
		$in_time = time < $start + 4.5;
		ok(!$c->ready, 'a call without a wait keeps waiting');
		go_on('batch-begun');
		is($c->wait, 't', 'a call without a wait gets its reply');
		last if $in_time;
	}
	ok($in_time, 'both tries return within 4.5 s');
	is($a->query("SELECT release_lock('held', $token)"), 't', 'the lock is released');
	nothing_left($node);
}

# --- a session or the extension ends before the manager knows ---

# A manager that retries a failed batch checks every mailbox, and clears those that were linked to it. It must ignore a
# mailbox that a session of another database has taken over in the meantime.
{
	my $s = session($node);
	my $fill = $connections - 4;

	$node->safe_psql('postgres', 'CREATE DATABASE other');
	$node->safe_psql('other', 'CREATE EXTENSION lock_election');
	$node->safe_psql('other', q{SELECT release_lock('y', acquire_lock('y'))});
	$s->query(q{SELECT is_held('x', 1)});
	# Wait until all releases are written: a later batch with them would run into the fault.
	foreach my $dbname ('postgres', 'other')
	{
		wait_until(sub { $node->safe_psql($dbname, 'SELECT count(*) FROM _lock_election.slot') eq '0' });
	}
	fault("set('batch-written', 'error', times => 2)");
	acquire($c, 'x', q{'1 h'});
	like($c->error, qr/fault at/, 'a batch fails twice');
	stop_at('manager-took');
	$c->async(q{SELECT is_held('x', 1)});
	stopped('manager-took');
	$free->query('SELECT pg_sleep(1.1)');
	$s->quit;
	wait_until(sub { $free->query('SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $s->pid) eq '0' }) or die 'it does not end';
	stop_at('batch-done');
	go_on('manager-took');
	stopped('batch-done');
	my @others = map { session($node, dbname => 'other') } 1 .. $fill;
	$others[$_]->async("SELECT acquire_lock('y$_')") foreach 0 .. $#others;
	go_on('batch-done');
	is(join(' ', map { $others[$_]->query("SELECT is_held('y$_', " . $others[$_]->wait . ')') } 0 .. $#others), join(' ', ('t') x $fill),
		'all sessions of the other database are served by their own manager');
	is($c->wait, 'f', 'the session of this database is served');
	is($c->query('SELECT count(*) FROM lock_election.locks'), '0', 'no lock of the other database is in this one');
	$_->quit foreach @others;
	$free->query('DROP DATABASE other WITH (FORCE)'); # otherwise its manager would stop at the following fault points
}

# A session ends while the manager clears the mailboxes after DROP EXTENSION. Its mailbox must become free.
{
	$node->safe_psql('postgres', 'CREATE DATABASE dropped');
	$node->safe_psql('dropped', 'CREATE EXTENSION lock_election');
	my $s = session($node, dbname => 'dropped');
	my @commits = map { session($node, dbname => 'dropped') } 1 .. 2;

	$s->query(q{SELECT acquire_lock('x', NULL)});
	$_->query(q{SELECT acquire_lock('by ' || pg_backend_pid(), '1 h')}) foreach @commits;
	$_->query(q{BEGIN; SELECT release_lock('by ' || pg_backend_pid())}) foreach @commits;
	stop_at('extension-gone');
	$node->safe_psql('dropped', 'DROP EXTENSION lock_election');
	stopped('extension-gone');

	# One commit mails its releases before the manager has cleared its mailbox, the other one after that.
	$_->async('COMMIT') foreach @commits;
	asking($_) foreach @commits;
	$s->quit;
	wait_until(sub { $free->query('SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $s->pid) eq '0' }) or die 'it does not end';
	go_on('extension-gone');
	foreach my $session (@commits)
	{
		$session->wait;
		like($session->error, qr/\A\S* ?WARNING:  55000: extension lock_election was dropped before the locks of this transaction were released\n(?:LOCATION:.*\n)?\z/, 'a commit warns that the extension was dropped');
		is($session->query('SELECT pg_current_xact_id_if_assigned() IS NULL AND now() = statement_timestamp()'), 't', 'the transaction is committed nevertheless');
	}
	wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'dropped' AND backend_type = 'lock_election manager'}, '0');
	$node->safe_psql('dropped', 'CREATE EXTENSION lock_election');
	my @next = map { session($node, dbname => 'dropped') } 1 .. 4;
	$_->query(q{SET statement_timeout = '20 s'}) foreach @next;
	is(join('', map { $_->query(q{SELECT is_held('x', 1)}) . $_->error } @next), 'ffff', 'the end of a session is not lost when the extension is dropped');
	$_->quit foreach @next, @commits;
}

# The extension is dropped while the manager is busy, and a commit mails its releases: before the manager checks whether
# the extension still exists, and in the middle of a batch.
foreach my $point (qw(manager-took batch-horizon))
{
	my $segments = sub { return scalar(() = glob($node->data_dir . '/pg_dynshmem/*')) };
	my ($s, $t, $waits) = map { session($node, dbname => 'dropped') } 1 .. 3;
	my $names = q{ARRAY(SELECT repeat('n', 250) || i FROM generate_series(1, 50) i)};
	my $token = $s->query("SELECT acquire_locks($names, '1 h')");
	my $gone = qr/WARNING:  55000: extension lock_election was dropped before the locks of this transaction were released/;

	$waits->query(q{BEGIN; SELECT acquire_lock('open', '1 h')});
	$waits->async(q{SELECT acquire_locks(ARRAY[repeat('n', 250) || 7], '1 h')});
	wait_for_sql($node, 'SELECT count(*) = 1 FROM lock_election.waiters', 't', dbname => 'dropped');
	$s->query("BEGIN; SELECT release_locks($names, $token)");
	my $before = $segments->();
	stop_at($point);
	$t->async(q{SELECT acquire_lock('new', '1 h')});
	stopped($point);
	is($free->query('SELECT 1'), '1', "$point: another database works");
	$node->safe_psql('dropped', 'DROP EXTENSION lock_election');
	$s->async('COMMIT');
	asking($s);
	go_on($point);
	$s->wait;
	like($s->error, $gone, "$point: the commit warns that the extension was dropped");
	$_->wait foreach $t, $waits;
	like($waits->error, qr/ERROR:  55000: extension lock_election was dropped/, "$point: a waiter gets an error");
	like($t->error, qr/ERROR:  55000: extension lock_election was dropped/, "$point: a new request gets an error");
	is($waits->query('ROLLBACK') . $waits->error, '', "$point: a rollback has no warning");
	is($segments->(), $before, "$point: the memory of the releases is freed");
	$node->safe_psql('dropped', 'CREATE EXTENSION lock_election');
	is(join('', map { $_->query(q{SELECT release_lock('x', acquire_lock('x'))}) . $_->error } $s, $t, $waits), 'ttt', "$point: all sessions work with the new extension");
	$_->quit foreach $s, $t, $waits;
}
$free->query('DROP DATABASE dropped WITH (FORCE)');

# --- rows of a view disappear before it reads the next page ---

{
	my $stop = sub { fault(q{set('request-before-post', 'wait', skip => 1, pid => } . $b->pid . ')'); };
	my $names = 'FROM generate_series(1, 240) i';
	my $kept = 'i % 16 = 0';

	$a->query("CREATE TEMP TABLE held AS SELECT i, acquire_lock('shared', '1 h', mode => 'shared', owner => i::text) AS token $names");
	$stop->();
	$b->async(q{SELECT count(*), count(DISTINCT slot), string_agg(owner, ' ' ORDER BY owner::int) FILTER (WHERE owner::int % 16 = 0)
		FROM lock_election.locks WHERE name = 'shared'});
	stopped('request-before-post');
	$a->query("SELECT release_lock('shared', token) FROM held WHERE NOT $kept");
	go_on('request-before-post');
	my ($rows, $slots, $owners) = split /\|/, $b->wait;
	cmp_ok($rows, '<', 120, 'holders that have ended between two pages are not shown');
	is($slots, $rows, 'no holder is shown twice');
	is($owners, $a->query("SELECT string_agg(i::text, ' ' ORDER BY i) FROM held WHERE $kept"), 'each remaining holder is shown');
	$a->query("SELECT force_release_lock('shared')");

	my $token = acquire($c, 'queue', q{'1 h'});
	$a->query("CREATE TEMP TABLE queued AS SELECT i, (enqueue_lock('queue', '1 h', owner => i::text)).token $names");
	$stop->();
	$b->async(q{SELECT owner, queue_position FROM lock_election.waiters WHERE name = 'queue' ORDER BY owner::int});
	stopped('request-before-post');
	$a->query("SELECT release_lock('queue', token) FROM queued WHERE NOT $kept");
	go_on('request-before-post');
	my @shown = map { [ split /\|/ ] } split /\n/, $b->wait;
	my ($last) = grep { $shown[$_][0] != $_ + 1 } 0 .. $#shown;
	cmp_ok($last, '>', 5, 'the first page has waiters');
	is(join(' ', map { "$_->[0]|$_->[1]" } @shown[ 0 .. $last - 1 ]), join(' ', map { "$_|$_" } 1 .. $last), 'the first page has the waiters in order');
	is(join(' ', map { "$_->[0]|$_->[1]" } @shown[ $last .. $#shown ]),
		join(' ', map { 16 * $_ . "|$_" } grep { 16 * $_ > $last } 1 .. 15), 'the next page continues at the right waiter, although the last one of the first page has gone');
	$a->query('SELECT force_release_lock(\'queue\')');
	$a->query("SELECT release_lock('queue', token) FROM queued WHERE $kept");
	nothing_left($node);
}

# --- a manager that loads slowly ---

# Without a manager, unlimited waits give up after 5 s. While one loads they keep waiting, and a try gets an error.
{
	my $token = acquire($a, 'loading', q{'1 h'});
	my $pid = $free->query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election manager' AND datname = 'postgres'});

	$b->async(q{SELECT acquire_lock('loading', '1 h')});
	waiting($b);
	stop_at('load-before-meta');
	kill 'TERM', $pid;
	stopped('load-before-meta');
	my $start = time;
	$a->async("SELECT is_held('loading', $token)");
	my $error = $c->query(q{SELECT try_acquire_lock('loading')}) . $c->error;
	like($error, qr/57P03: the lock_election manager of database "postgres" is not running\nDETAIL:  It is still loading the locks of this database\.\nHINT:  Try again later\./, 'a try gets the error that the manager is loading');
	ok(!wait_until(sub { $a->ready || $b->ready }, 7 + $start - time), 'calls with an unlimited wait keep waiting');
	go_on('load-before-meta');
	is($a->wait, 't', 'such a call gets its reply when the manager has loaded');
	is($a->query("SELECT release_lock('loading', $token)"), 't', 'the lock is still held, and is released');
	like($b->wait, qr/^\d+$/, 'the waiter is granted the lock');
	$b->query(q{SELECT release_lock('loading')});
	nothing_left($node);
}

# A worker of an earlier launcher has not taken its entry yet: the next launcher waits 10 s before it starts another.
{
	my $manager = q{backend_type = 'lock_election manager' AND datname = 'postgres'};
	my ($old, $launcher) = split /\|/,
		$free->query("SELECT max(pid) FILTER (WHERE $manager), max(pid) FILTER (WHERE backend_type = 'lock_election launcher') FROM pg_stat_activity");
	my $token = acquire($a, 'adopted', q{'1 h'});
	my $log = -s $node->logfile;

	stop_at('manager-before-entry');
	kill 'TERM', $old;
	stopped('manager-before-entry');
	my $late = fault(q{waiting('manager-before-entry')});
	my $start = time;
	kill 'TERM', $launcher;
	ok(wait_until(sub { $free->query("SELECT count(*) FROM pg_stat_activity WHERE $manager") eq '1' }), 'another worker starts');
	cmp_ok(time - $start, '>=', 10, 'the other worker starts after 10 s');
	go_on('manager-before-entry');
	ok(wait_until(sub { !kill 0, $late }), 'the late worker exits');
	is($a->query("SELECT release_lock('adopted', $token)"), 't', 'the lock is still held, and is released');
	nothing_left($node);
	unlike(slurp_file($node->logfile, $log), qr/PID $late\) exited with exit code/, 'the late worker exits without an error');
}

# A dump is restored after a starting manager has read the old incarnation: the restored one must take effect.
{
	my $token = acquire($a, 'restored', q{'1 h'});
	my $pid = $free->query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election manager' AND datname = 'postgres'});
	my $floor = ($token >> 28) + 1000;

	$a->query("SELECT release_lock('restored', $token)");
	stop_at('load-before-meta');
	kill 'TERM', $pid;
	stopped('load-before-meta');
	is($free->query("INSERT INTO _lock_election.incarnation_floor VALUES ($floor)") . $free->error, '', 'a restore inserts its incarnation');
	go_on('load-before-meta');
	cmp_ok(acquire($a, 'restored', q{'1 h'}) >> 28, '>', $floor, 'the next token is above the restored incarnation');
	$a->query(q{SELECT release_lock('restored')});
	nothing_left($node);
}

# The manager stops after a grant; the try gives up, so its grant must be undone.
foreach my $point (qw(batch-applied batch-written batch-committed))
{
	stop_at($point);
	$a->query('BEGIN');
	is($a->query(q{SELECT acquire_lock('stood still', '1 h', wait => '0')}), '', "$point: a try returns without a reply");
	$a->query('COMMIT');
	go_on($point);
	is_free('stood still', "$point: its grant is undone");
	nothing_left($node);
}

# --- a failed batch coincides with renewals ---

# The reload takes 3 s. Leases are extended by this pause once, not twice.
{
	my $end = q{SELECT extract(epoch FROM expires_at) FROM lock_election.locks WHERE name = 'once'};

	acquire($a, 'once', q{'1 h'});
	my $before = $a->query($end);
	my $start = time;
	stop_at('reload-begun');
	fault(q{set('batch-written', 'error')});
	$c->async(q{SELECT release_lock('cause', acquire_lock('cause', '1 h'))});
	stopped('reload-begun');
	my $stopped = time;
	wait_until(sub { time > $stopped + 3 });
	go_on('reload-begun');
	$c->wait;
	my $pause = time - $start;
	my $moved = $a->query($end) - $before;
	cmp_ok($moved, '>', 2.9, 'the deadline is extended by the pause');
	cmp_ok($moved, '<', $pause + 0.1, 'the deadline is extended only once');
	$a->query(q{SELECT release_lock('once')});
	fault('clear()');
}

# Each request of the failed batch is replayed slowly: a lease that is renewed in time during the replay is kept.
{
	my $token = acquire($a, 'meanwhile', q{'1 h'});
	my @many = map { session($node) } 1 .. 6;
	my $start = time;
	shorten($c, 'meanwhile', $token, '3 s');
	stop_at('batch-committed');
	$b->async(q{SELECT acquire_lock('replayed 6', '1 h')});
	stopped('batch-committed');
	$many[$_]->async("SELECT acquire_lock('replayed $_', '1 h')") foreach 0 .. $#many;
	asking($_) foreach @many;
	fault(q{set('replay', 'sleep', 600, times => 0)});
	fault(q{set('batch-written', 'error')});
	go_on('batch-committed');
	wait_until(sub { fault(q{hits('replay')}) > 0 });
	$a->async("SELECT renew_lock('meanwhile', $token) IS NOT NULL");
	my $late = time - $start;
	my $renewed = $a->wait;
  SKIP: {
		skip "the machine was too busy to renew in time: $late s", 1 if $late > 2.5;
		is($renewed, 't', 'a renewal in time is processed before the expiry after a replay');
	}
	fault('clear()');
	$_->wait foreach $b, @many;
	$_->quit foreach @many;
	$c->query("SELECT force_release_lock('replayed $_')") foreach 0 .. 6;
}

# Each commit takes more than a second. A pause must not shorten a lease, but all of them must not stop the clock.
{
	my $token = acquire($a, 'slow', q{'1 h'});
	my ($left, $log, $start) = (20, -s $node->logfile, time);
	my $stalls = sub { return $free->query('SELECT stalls FROM lock_election.stat'); };
	my $told = sub { return slurp_file($node->logfile, $log) =~ /the lock_election manager did not run for (\d+ ms; all leases are extended by \d+) ms\n/g; };
	my $stalled = $stalls->();

	$b->async(q{SELECT acquire_lock('slow', '1 min')});
	waiting($b);
	shorten($c, 'slow', $token, '2 s');
	fault(q{set('batch-committed', 'sleep', 1100, times => 0)});
	$c->async(q{SELECT release_lock('busy', acquire_lock('busy', '1 h'))}) foreach 1 .. $left;
	wait_until(sub { $c->wait, $left-- while $left > 0 && $c->ready; return $left == 0 || $b->ready; });
	cmp_ok($left, '>', 0, 'a lease expires although every batch is slow');
	fault('clear()');
	like($b->wait, qr/^\d+$/, 'the waiter is granted the lock');
	$b->query(q{SELECT release_lock('slow')});
	$c->wait foreach 1 .. $left;
	ok(wait_until(sub { my $n = () = $told->(); return $n > 0 && $n == $stalls->() - $stalled; }), 'the log reports each pause');
	my @wrong = grep { my ($took, $moved) = /(\d+)/g; $took < 1000 || $took > 1000 * (time - $start) || $moved > $took } $told->();
	is("@wrong", '', 'the log reports the length of each pause, and a smaller extension');
}

# --- a database is renamed, but the launcher and the caches of other processes do not know it yet ---

{
	my $log = -s $node->logfile;

	$free->query('CREATE DATABASE old_name');
	$node->safe_psql('old_name', q{CREATE EXTENSION lock_election});
	$node->safe_psql('old_name', q{SELECT acquire_lock('x', '1 h')});
	stop_at('reserve-taken', $a->pid);
	$a->async('ALTER DATABASE old_name RENAME TO new_name');
	stopped('reserve-taken');
	stop_at('launcher-scanned');
	stopped('launcher-scanned');
	stop_at('reserve-released', $a->pid);
	go_on('reserve-taken');
	stopped('reserve-released');
	go_on('launcher-scanned');
	my $started = sub {
		local @ARGV = glob('/proc/[0-9]*/cmdline');
		no warnings 'inplace'; # some processes have ended in the meantime
		return grep { /lock_election manager (?:old|new)_name/ } <>;
	};
	ok(wait_until($started), 'the manager of the renamed database starts again');
	go_on('reserve-released');
	$a->wait;
	is($node->safe_psql('new_name', q{SELECT count(*) FROM lock_election.locks}), 1, 'the lock is kept');
	like(slurp_file($node->logfile, $log), qr/manager started\n.*CONTEXT:  lock_election manager new_name\n/, 'the log has the new name');
	$free->query('DROP DATABASE new_name WITH (FORCE)');
}

# --- a lock is lost, and the manager exits before it has said who holds it ---

{
	my @calls = ("await_lock('x', 42)", "fence_lock('x', 42)");

	foreach my $call (@calls)
	{
		fault(q{set('request-before-post', 'wait', skip => 1, pid => } . $a->pid . ')');
		$a->async("SELECT $call");
		stopped('request-before-post');
		stop_at('manager-start');
		$free->query(q{SELECT pg_terminate_backend(pid) FROM lock_election.manager}); # only of this database
		stopped('manager-start');
		go_on('request-before-post');
		$a->wait;
		like($a->error, qr/ERROR:  LE001: .*\nDETAIL:  Nothing is known about it: it ended long ago, or was never granted\.\n/, "$call: the lock is reported as lost although no details are available");
		go_on('manager-start');
	}
	is($a->query(q{SELECT release_lock('x', acquire_lock('x'))}), 't', 'the session can continue');
	nothing_left($node);
}

# --- the manager has an error outside of a transaction, while it holds an LWLock that every commit needs ---

{
	my $fenced = session($node);
	my $log = -s $node->logfile;

	$free->query(q{CREATE TABLE written (); ALTER SYSTEM SET lock_election.fence_timeout = '500 ms'; SELECT pg_reload_conf()});
	$fenced->query(q{BEGIN; SELECT fence_lock('x', acquire_lock('x', '1 s'))});
	fault(q{set('fence-pids-locked', 'error')});
	$b->async(q{SELECT acquire_lock('x', wait => '20 s')});
	ok(wait_until(sub { $node->log_contains(qr/ERROR: .*fence-pids-locked/, $log) }), 'the manager has an error');
	is($a->query('INSERT INTO written DEFAULT VALUES') . $a->error, '', 'other sessions can commit');
	like($b->wait, qr/^\d+$/, 'the fence is ended later');
	$free->query('DROP TABLE written; ALTER SYSTEM RESET lock_election.fence_timeout; SELECT pg_reload_conf()');
	$b->query(q{SELECT release_lock('x')});
	$fenced->kill;
	nothing_left($node);
}

# --- a fencing transaction or its process ends while the manager collects the pids ---

foreach my $end ('', 'COMMIT', 'quit')
{
	my $fences = session($node);
	my $pid = $fences->pid;

	$fences->query(q{BEGIN; SELECT fence_lock('x', acquire_lock('x', '1 h', owner => 'somebody'))});
	stop_at('fence-pids-locked', $b->pid);
	$b->async(q{SELECT force_release_lock('x')});
	stopped('fence-pids-locked');
	$fences->query($end) if $end eq 'COMMIT';
	$fences->quit if $end eq 'quit';
	wait_until(sub { $free->query("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") eq '0' }) or die 'it does not end' if $end eq 'quit';
	go_on('fence-pids-locked');
	is($b->wait, '1', 'the lock is released by force');
	my $told = join(' ', $b->error =~ /is fenced by the transaction of process (\d+)/g);
	is($told, $end ? '' : $pid, $end ? "$end: no fencing process is reported" : 'the fencing process is reported');
	$fences->quit if $end ne 'quit';
	nothing_left($node);
}

# --- a database entry is freed and reused while a session waits for a mailbox that its predecessor has left ---

# From PostgreSQL 16 on, a new process gets the number that has been free for the longest time.
if ($free->query('SHOW server_version_num') < 160000)
{
	my $workers = sub { return $free->query("SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE datname = 'again' AND backend_type = 'lock_election manager'") };

	$free->query('CREATE DATABASE again');
	my ($admin, $old) = map { session($node, dbname => 'again') } 1 .. 2;
	$admin->query('CREATE EXTENSION lock_election');
	$old->query(q{SELECT acquire_lock('x')});
	my $manager = $workers->();
	kill 'STOP', $manager;
	$old->quit;
	my $new = session($node, dbname => 'again'); # gets the number that was freed last
	stop_at('attach-refused', $new->pid);
	$new->async(q{SELECT acquire_lock('y')});
	stopped('attach-refused');
	kill 'CONT', $manager;
	$admin->query('DROP EXTENSION lock_election');
	ok(wait_until(sub { return $workers->() eq '' }), 'the manager has exited');
	$free->query('SELECT pg_sleep(0.5)'); # until the launcher has freed the entry
	go_on('attach-refused');
	$new->wait;
	like($new->error, qr/ERROR:  /, 'the session gets an error without a manager');
	$admin->query('CREATE EXTENSION lock_election');
	foreach my $turn (1 .. 3)
	{
		is($new->query(q{SELECT release_lock('y', acquire_lock('y'))}) . $new->error, 't', "the session is served afterwards, call $turn");
	}
	$_->quit foreach $admin, $new;
	$free->query('DROP DATABASE again');
	nothing_left($node);
}

# All other tests, and users, have a library without fault points.
{
	my $traces = qr/le_fault|batch-committed/;
	my @dirs = map { chomp; $_ } map { `$_ --pkglibdir` } $ENV{PG_CONFIG}, "$ENV{LE_FAULTS_TREE}/bin/pg_config";
	my ($normal, $faults) = map { slurp_file("$_/lock_election.so") } @dirs;

	unlike($normal, $traces, 'the normal library has no fault points');
	like($faults, $traces, 'the library of this test has fault points');
}

{
	$node->safe_psql('postgres', 'CREATE ROLE nobody_in_particular');
	$a->query(q{SET ROLE nobody_in_particular; SELECT fault_set('attach', 'kill')});
	like($a->error, qr/42501/, 'only a superuser can set a fault');
	$a->query('RESET ROLE');
	nothing_left($node);
}

$node->stop;
done_testing();
