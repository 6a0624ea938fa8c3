# Races: a process is held at a fault point of the server until another event has happened.
# Promises: L, G
# Needs: faults
use strict;
use warnings;
use LePoints;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

# Few enough that a test can take all of them.
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

# --- a grant meets what ends its wait ---

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
	is($a->wait, 't', 'the release is answered');
	cmp_ok(is_free('x', 'and the grant is given back'), '>', $token, 'with a higher token');
	nothing_left($node);
}

# Two ends of a release in a row, the second while the manager still writes what it did at the first. How long the next one waits.
sub two_ends
{
	my $token = acquire($a, 'r', q{'1 h'});

	$a->query("BEGIN; SELECT release_lock('r'); SAVEPOINT s");
	shorten($c, 'r', $token, '300 ms');
	ok(wait_until(sub { $c->query("SELECT is_held('r', $token)") eq 'f' }), 'the TTL ends');
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
	like($b->wait, qr/^\d+$/, 'the second end lets the next one in');
	my $took = time - $start;
	$c->wait;
	$_->[0]->query("SELECT release_lock('$_->[1]')") foreach [ $c, 'other' ], [ $b, 'r' ];
	nothing_left($node);
	return $took;
}

# A lost one would be made up for by a retry after 1 s; on a busy machine it may take as long now and then.
{
	my $took;

	for (1 .. 3) { last if ($took = two_ends()) < 0.7; }
	cmp_ok($took, '<', 0.7, 'at once');
}

# Who may set the permits of a name that nobody uses, while somebody else comes to use it.
$free->query('CREATE ROLE one; CREATE ROLE other');
$a->query('SET ROLE one');
$b->query('SET ROLE other');
fault("set('request-before-post', 'wait', skip => 1, pid => " . $a->pid . ')');
$a->async(q{SELECT set_permits('few', 100)});
stopped('request-before-post');
like($b->query(q{SELECT acquire_permit('few', 1, '1 h')}), qr/^\d+$/, 'a permit, after the rights were looked at');
go_on('request-before-post');
$a->wait;
like($a->error, qr/42501: permission denied to change the permits of "few"/, 'they are looked at again');
is($b->query(q{SELECT acquire_permit('few', 1, wait => '0')}) . $b->error, '', 'the number is what it was');
is($b->query(q{SELECT set_permits('few', 2)}), '1', 'its holder may set it');
$b->query(q{SELECT release_lock('few')});

# Again and again: each time until it may do so, or it is given up.
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
	is($a->wait, $rounds == 3 ? '50' : '', $rounds == 3 ? 'a holder whose role it is a member of' : 'others come and go');
	like($a->error, qr/ERROR:  40001: the holders of "few" have changed too often while their roles were read\n/, 'it is given up') if $rounds > 3;
	is($come, $rounds == 3 ? 3 : 21, 'after so many times');
	is($b->query(q{SELECT set_permits('few', 50), release_lock('few')}), '100|t', 'the number is the new one') if $rounds == 3;
}
$_->query('RESET ROLE') foreach $a, $b;
$free->query('DROP ROLE one; DROP ROLE other');
nothing_left($node);

# What is to be released at the commit ends between the first look and the fence.
foreach my $each (0, 1)
{
	my ($x, $y) = map { acquire($a, $_, q{'1 h'}) } 'x', 'y';
	my $release = $each ? "string_agg(name || ' ' || released, ', ') FROM release_each('{y,x}', '{$y,$x}')" : "release_lock('x', $x)";

	stop_at('request-done', $a->pid);
	$a->async("BEGIN; SELECT $release");
	stopped('request-done');
	$free->query(q{SELECT force_release_lock('x')});
	go_on('request-done');
	is($a->wait, $each ? 'y true, x false' : 'f', 'what has ended meanwhile is not released');
	is($a->query('COMMIT') . $a->error, '', 'nor is that an error');
	$free->query(q{SELECT force_release_lock('y')});
	nothing_left($node);
}

# The session that is to flush for others is stopped: before it does, in the middle, and before it knows.  Nor does the WAL
# writer do it.
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
		ok(wait_until(sub { $s->ready }), "$point: $name has its answer without it");
		like($s->wait, qr/^\d+$/, 'and its lock');
	}
	kill 'CONT', $walwriter;
	go_on($point);
	like($a->wait, qr/^\d+$/, 'and then it has its own');
	$a->query(q{SELECT release_lock('leader')});
	$b->query(q{SELECT release_lock('other')});
	$c->query(q{SELECT release_lock('another')});
	nothing_left($node);
}

# It ends instead: somebody else flushes for those that came meanwhile.
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
	like($b->wait, qr/^\d+$/, "$how: others have their answers");
	$s->wait;
	is_free($name, 'and what it was granted is given back');
	$b->query(q{SELECT release_lock('other')});
	nothing_left($node);
	$s->quit;
}

# The grant is seen, and not yet noted.
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
		is($c->query(q{SELECT try_acquire_lock('x')}), '', "$point: granted");
		$free->query("SELECT pg_${how}_backend(" . $s->pid . ')');
		$s->wait;
		go_on($point);
		is_free('x', "$how: it is given back");
		$s->quit;
	}
}

# A cancel meets the grant of a wait that has set the socket's timeouts: they are put back.
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
	like($s->error, qr/57014/, 'cancelled when it was granted');
	go_on('request-granted');
	is($s->query($show), $before, 'the timeout of the socket is as before the wait');
	is_free('x', 'and the lock is given back');
	$s->quit;
}

# The manager is in the middle of the grant, and b, which waits for this many milliseconds, has not given up; if it has, it
# waits for longer.
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

# lock_timeout and the call's own wait strike while the manager is in the middle of the grant.
foreach my $end ([ q{SET lock_timeout = MS}, q{NULL}, qr/55P03/, qr/^$/ ], [ q{RESET lock_timeout}, q{'MS ms'}, qr/^$/, qr/^$|^\d+$/ ])
{
	my ($set, $wait, $error, $answer) = @$end;
	my $ms = stop_in_grant($set, $wait);

	if ($wait eq 'NULL') { wait_until(sub { $b->ready }) or die 'lock_timeout does not end it'; }
	else { $free->query("SELECT pg_sleep($ms / 1000.0 + 0.1)"); }
	go_on('batch-written');
	my $out = $b->wait;
	like($b->error, $error, "$set: a timeout while it is granted");
	like($out, $answer, 'granted or not');
	$b->query(q{RESET lock_timeout});
	$b->query("SELECT release_lock('x', $out)") if $out;
	$a->wait;
	is_free('x', 'nobody has it after that');
	nothing_left($node);
}

# --- release, fence and renewal meet the end of the TTL ---

{
	my $token = acquire($a, 'x', q{'1 h'});

	$b->async(q{SELECT acquire_lock('x', '1 h')});
	waiting($b);
	$a->query('SET lock_election.durable_release = on');    # else it does not ask the manager
	stop_at('request-before-post', $a->pid);
	$a->async("SELECT release_lock('x', $token)");
	stopped('request-before-post');
	shorten($c, 'x', $token, '300 ms');
	my $next = $b->wait;
	cmp_ok($next, '>', $token, 'a release that comes too late: the next one is granted');
	go_on('request-before-post');
	is($a->wait, 'f', 'and is not released');
	is($b->query("SELECT is_held('x', $next)"), 't', 'it holds on');
	$b->query("SELECT release_lock('x', $next)");
	$a->query('RESET lock_election.durable_release');

	# the session knows that it holds it, and its time is over before it can mail that
	$token = acquire($a, 'x', q{'1 min'});
	stop_at('release-before-post', $a->pid);
	$a->async("SELECT release_lock('x', $token)");
	stopped('release-before-post');
	shorten($c, 'x', $token, '300 ms');
	is($b->query(q{SELECT acquire_lock('x', '1 h') > } . $token), 't', 'the next one is granted');
	go_on('release-before-post');
	is($a->wait, 't', 'it was held when it was released');
	is($b->query(q{SELECT count(*) FROM lock_election.locks WHERE name = 'x'}), 1, 'the next one holds on');
	$b->query(q{SELECT force_release_lock('x')});
}

# Between the share lock and the check: the lease ends before, or it does not end.
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
	ok(!$b->ready, "$point: nobody is granted it") unless $granted;
	go_on($point);
	$a->wait;
	if ($point eq 'fence-checked')
	{
		is($a->error, '', 'fenced');
		ok(!$b->ready, 'and still nobody else');
	}
	else
	{
		like($a->error, qr/LE001/, 'or it is no fence');
	}
	$a->query('ROLLBACK');
	$granted ||= $b->wait;
	cmp_ok($granted, '>', $token, 'the next one');
	$b->query("SELECT release_lock('x', $granted)");
	nothing_left($node);
}

# Before the wake-up of the end of a fence: the next one has to wait for no more than the manager's own look.
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
	cmp_ok($next, '>', $token, 'a fence whose end nobody tells is noticed');
	go_on('xact-before-unfence');
	$a->wait;
	$b->query("SELECT release_lock('x', $next)");
	nothing_left($node);
}

# --- a commit gives back what PostgreSQL has locked before it gives back ours ---

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
		is($c->query('BEGIN; LOCK TABLE locked NOWAIT; ROLLBACK') . $c->error, '', "$end: the table is free before the lock is");
		is($c->query(q{SELECT name FROM lock_election.locks}), 'x', 'which is still held');
		go_on('xact-locks-released');
		$s->wait;
		acquire($s, 'x', q{'1 h'}) if $end eq 'COMMIT';
		$token = $s->query(q{SELECT token FROM lock_election.locks});
	}
	$s->query("SELECT release_lock('x', $token)");
	$s->quit;
	nothing_left($node);
}

# --- a batch that is committed fails after its answers ---

# A session ends in its fence, in one batch. Its mailbox, which was given back, is found empty by the next one.
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
	fault(q{set('reload-begun', 'error', times => 1)}); # else it is looked at once more, and emptied
	go_on('manager-took');
	$c->wait;
	my @next = map { session($node) } 1 .. 3;
	is(join(' ', map { $_->query(q{SELECT is_held('nothing', 1)}) . $_->error } @next), 'f f f', 'the next ones are served');
	$_->quit foreach @next;
	$c->query(q{SELECT force_release_lock('x')});
	nothing_left($node);
}

# --- a commit meets a crash ---

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
	ok($held eq 't' || $written eq '1', "$point: who has released has written (held $held, written $written)");
	$c->query(q{SELECT force_release_lock('x')});
	cmp_ok(is_free('x', 'the lock goes on'), '>', $token, 'with a higher token');
}

# --- a commit that fails after it has made room for its releases ---

{
	my $segments = sub { return scalar(() = glob($node->data_dir . '/pg_dynshmem/*')) };
	my $names = q{ARRAY(SELECT repeat('n', 250) || i FROM generate_series(1, 50) i)};
	my $before = $segments->();
	my $token = $a->query("SELECT acquire_locks($names, '1 h')");

	$a->query("BEGIN; SELECT release_locks($names, $token)");
	fault(q{set('xact-before-commit', 'error')});
	$a->query('COMMIT');
	like($a->error, qr/fault at/, 'a commit fails');
	is($segments->(), $before, 'the memory of its releases is given back');
	is($c->query('SELECT count(*) FROM lock_election.locks'), '50', 'and they are not made');
	is($a->query("BEGIN; SELECT release_locks($names, $token); COMMIT"), 't', 'another commit makes them');
	is($segments->(), $before, 'and gives the memory back');
	nothing_left($node);
}

# The manager cannot read the releases of a commit, for a while.
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
	like($a->error, qr/WARNING: .*the transaction is committed, but the locks that it releases may still be held/, 'a commit whose releases cannot be read');
	rename $hidden, $segment or die "$segment: $!";
	ok(wait_for_sql($node, 'SELECT count(*) = 0 FROM lock_election.locks'), 'they are made when they can be');
	nothing_left($node);
}

# A batch with a commit's releases fails, and is done again: one hold of two is released once.
foreach my $names (1, 60)
{
	my $list = "ARRAY(SELECT 'hold ' || i FROM generate_series(1, $names) i)";
	my $token = $a->query("SELECT acquire_locks($list, '1 h', owner => 'me')");

	is($a->query("SELECT acquire_locks($list, '1 h', owner => 'me')"), $token, "$names locks, two holds each");
	$a->query("BEGIN; SELECT release_locks($list, $token)");
	fault(q{set('batch-written', 'error')});
	$a->query('COMMIT');
	is($c->query('SELECT count(*), min(holds), max(holds) FROM lock_election.locks'), "$names|1|1", 'a release that was tried twice is made once');
	is($a->query("SELECT release_locks($list, $token)"), 't', 'the other hold');
	nothing_left($node);
}

# --- a manager that is held up ---

# Longer than the TTL: who has renewed in time, as far as he knows, loses nothing, and who waits gets nothing.
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
	is($a->wait, '00:00:02', "$point: a lease that was renewed while the manager stood still goes on");
	$c->wait;
	ok(!$b->ready, 'nobody else is granted the lock');
	is($a->query("SELECT release_lock('x', $token)"), 't', 'it is held');
	my $next = $b->wait;
	cmp_ok($next, '>', $token, 'and handed on');
	$b->query("SELECT release_lock('x', $next)");
}

# A call does without its answer 2 s after its own wait, whether the manager has taken it or not.  After 5 s it would do so in
# any case; on a busy machine not always in time.
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
		is($a->wait . $b->wait . $a->error . $b->error, '', 'two that try are answered by a manager that stands still');
		$in_time = time < $start + 4.5;
		ok(!$c->ready, 'who has no wait of its own waits on');
		go_on('batch-begun');
		is($c->wait, 't', 'and is answered');
		last if $in_time;
	}
	ok($in_time, 'both of them as soon as that may be');
	is($a->query("SELECT release_lock('held', $token)"), 't', 'released');
	nothing_left($node);
}

# --- an end that is seen before it is told ---

# A manager that tries again looks at every mailbox: it clears one that was linked for it meanwhile. A session of another
# database that takes over that mailbox is none of its business.
{
	my $s = session($node);
	my $fill = $connections - 4;

	$node->safe_psql('postgres', 'CREATE DATABASE other');
	$node->safe_psql('other', 'CREATE EXTENSION lock_election');
	$node->safe_psql('other', q{SELECT release_lock('y', acquire_lock('y'))});
	$s->query(q{SELECT is_held('x', 1)});
	# No batch is still to come for what was released: it would meet the fault instead of this one's.
	foreach my $dbname ('postgres', 'other')
	{
		wait_until(sub { $node->safe_psql($dbname, 'SELECT count(*) FROM _lock_election.slot') eq '0' });
	}
	fault("set('batch-written', 'error', times => 2)");
	acquire($c, 'x', q{'1 h'});
	like($c->error, qr/fault at/, 'a batch that fails, and again');
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
		'all of the other database are answered by their own manager');
	is($c->wait, 'f', 'and so is this one');
	is($c->query('SELECT count(*) FROM lock_election.locks'), '0', 'which has nothing of theirs');
	$_->quit foreach @others;
	$free->query('DROP DATABASE other WITH (FORCE)');    # its manager would come to points that are set for this one's
}

# A session ends while the manager clears the mailboxes up after DROP EXTENSION: the next session of its number finds the mailbox free.
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

	# their releases come before the manager has looked at their mailboxes, and after it
	$_->async('COMMIT') foreach @commits;
	asking($_) foreach @commits;
	$s->quit;
	wait_until(sub { $free->query('SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $s->pid) eq '0' }) or die 'it does not end';
	go_on('extension-gone');
	foreach my $session (@commits)
	{
		$session->wait;
		like($session->error, qr/\A\S* ?WARNING:  55000: extension lock_election was dropped before the locks of this transaction were released\n(?:LOCATION:.*\n)?\z/, 'a commit is told');
		is($session->query('SELECT pg_current_xact_id_if_assigned() IS NULL AND now() = statement_timestamp()'), 't', 'and is done');
	}
	wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'dropped' AND backend_type = 'lock_election manager'}, '0');
	$node->safe_psql('dropped', 'CREATE EXTENSION lock_election');
	my @next = map { session($node, dbname => 'dropped') } 1 .. 4;
	$_->query(q{SET statement_timeout = '20 s'}) foreach @next;
	is(join('', map { $_->query(q{SELECT is_held('x', 1)}) . $_->error } @next), 'ffff', 'the end of a session is not lost when the extension is dropped');
	$_->quit foreach @next, @commits;
}

# The extension is dropped while the manager is busy, and a commit mails its releases to it: before it looks whether it is
# still wanted, and in the middle of a batch.
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
	is($free->query('SELECT 1'), '1', 'another database goes on');
	$node->safe_psql('dropped', 'DROP EXTENSION lock_election');
	$s->async('COMMIT');
	asking($s);
	go_on($point);
	$s->wait;
	like($s->error, $gone, "$point: a commit is told that nothing is left to release");
	$_->wait foreach $t, $waits;
	like($waits->error, qr/ERROR:  55000: extension lock_election was dropped/, 'who waits is told');
	like($t->error, qr/ERROR:  55000: extension lock_election was dropped/, 'and who has just come');
	is($waits->query('ROLLBACK') . $waits->error, '', 'a rollback has nobody to tell');
	is($segments->(), $before, 'the memory of the releases is given back');
	$node->safe_psql('dropped', 'CREATE EXTENSION lock_election');
	is(join('', map { $_->query(q{SELECT release_lock('x', acquire_lock('x'))}) . $_->error } $s, $t, $waits), 'ttt', 'all go on with the next one');
	$_->quit foreach $s, $t, $waits;
}
$free->query('DROP DATABASE dropped WITH (FORCE)');

# --- what a view has shown goes away, before it asks for the next page ---

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
	cmp_ok($rows, '<', 120, 'holders that have gone between two pages are not shown');
	is($slots, $rows, 'none is shown twice');
	is($owners, $a->query("SELECT string_agg(i::text, ' ' ORDER BY i) FROM held WHERE $kept"), 'and each of the others is');
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
	cmp_ok($last, '>', 5, 'a page of waiters');
	is(join(' ', map { "$_->[0]|$_->[1]" } @shown[ 0 .. $last - 1 ]), join(' ', map { "$_|$_" } 1 .. $last), 'has them in their order');
	is(join(' ', map { "$_->[0]|$_->[1]" } @shown[ $last .. $#shown ]),
		join(' ', map { 16 * $_ . "|$_" } grep { 16 * $_ > $last } 1 .. 15), 'and the next one goes on where it has ended, though its last one has gone');
	$a->query('SELECT force_release_lock(\'queue\')');
	$a->query("SELECT release_lock('queue', token) FROM queued WHERE $kept");
	nothing_left($node);
}

# --- a manager that takes long to load ---

# Whoever waits without a limit does not lose patience meanwhile, 5 s where there is no manager; a try is told.
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
	like($error, qr/57P03: the lock_election manager of database "postgres" is not running\nDETAIL:  It is still loading the locks of this database\.\nHINT:  Try again later\./, 'a try is told that it loads');
	ok(!wait_until(sub { $a->ready || $b->ready }, 7 + $start - time), 'the others wait on');
	go_on('load-before-meta');
	is($a->wait, 't', 'until it has loaded');
	is($a->query("SELECT release_lock('loading', $token)"), 't', 'what was held is held');
	like($b->wait, qr/^\d+$/, 'and the waiter is granted it');
	$b->query(q{SELECT release_lock('loading')});
	nothing_left($node);
}

# A worker of an earlier launcher has not taken its entry yet: the next launcher waits 10 s for it before it starts another one.
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
	cmp_ok(time - $start, '>=', 10, 'when the first one has had its time');
	go_on('manager-before-entry');
	ok(wait_until(sub { !kill 0, $late }), 'which comes too late, and leaves');
	is($a->query("SELECT release_lock('adopted', $token)"), 't', 'and the lock is still held');
	nothing_left($node);
	unlike(slurp_file($node->logfile, $log), qr/PID $late\) exited with exit code/, 'it has left as one that is done');
}

# A dump is restored while a manager starts that has not seen it: its incarnation stays, and tokens go on above it.
{
	my $token = acquire($a, 'restored', q{'1 h'});
	my $pid = $free->query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election manager' AND datname = 'postgres'});
	my $floor = ($token >> 28) + 1000;

	$a->query("SELECT release_lock('restored', $token)");
	stop_at('load-before-meta');
	kill 'TERM', $pid;
	stopped('load-before-meta');
	is($free->query("INSERT INTO _lock_election.incarnation_floor VALUES ($floor)") . $free->error, '', 'a restore brings its incarnation');
	go_on('load-before-meta');
	cmp_ok(acquire($a, 'restored', q{'1 h'}) >> 28, '>', $floor, 'and tokens go on above it');
	$a->query(q{SELECT release_lock('restored')});
	nothing_left($node);
}

# What a manager has granted before it stands still, and nobody has waited for, is undone.
foreach my $point (qw(batch-applied batch-written batch-committed))
{
	stop_at($point);
	$a->query('BEGIN');
	is($a->query(q{SELECT acquire_lock('stood still', '1 h', wait => '0')}), '', "$point: a try ends without its answer");
	$a->query('COMMIT');
	go_on($point);
	is_free('stood still', 'and its grant is undone');
	nothing_left($node);
}

# --- a failed batch meets renewals ---

# The reading takes 3 s once: leases go on by that, not by twice that.
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
	cmp_ok($moved, '>', 2.9, 'a pause is counted');
	cmp_ok($moved, '<', $pause + 0.1, 'once');
	$a->query(q{SELECT release_lock('once')});
	fault('clear()');
}

# Each request of it is replayed slowly: what is renewed meanwhile, in time, stays.
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
		is($renewed, 't', 'a renewal in time comes before what expires after a replay');
	}
	fault('clear()');
	$_->wait foreach $b, @many;
	$_->quit foreach @many;
	$c->query("SELECT force_release_lock('replayed $_')") foreach 0 .. 6;
}

# Each commit takes more than a second: no lease is to be cut short by a pause, but all pauses together do not stop the clock.
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
	cmp_ok($left, '>', 0, 'a lease ends, though every batch is slow');
	fault('clear()');
	like($b->wait, qr/^\d+$/, 'and the next one is granted');
	$b->query(q{SELECT release_lock('slow')});
	$c->wait foreach 1 .. $left;
	ok(wait_until(sub { my $n = () = $told->(); return $n > 0 && $n == $stalls->() - $stalled; }), 'the log tells of each pause');
	my @wrong = grep { my ($took, $moved) = /(\d+)/g; $took < 1000 || $took > 1000 * (time - $start) || $moved > $took } $told->();
	is("@wrong", '', 'how long it took, and how much of that does not count');
}

# --- a database has another name, which the launcher has not read and the caches of other processes do not know yet ---

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
		no warnings 'inplace'; # some have ended meanwhile
		return grep { /lock_election manager (?:old|new)_name/ } <>;
	};
	ok(wait_until($started), 'its manager starts again');
	go_on('reserve-released');
	$a->wait;
	is($node->safe_psql('new_name', q{SELECT count(*) FROM lock_election.locks}), 1, 'the lock is there');
	like(slurp_file($node->logfile, $log), qr/manager started\n.*CONTEXT:  lock_election manager new_name\n/, 'and the log has the new name');
	$free->query('DROP DATABASE new_name WITH (FORCE)');
}

# --- a lock is lost, and the manager goes away before it has said who holds it ---

{
	my @calls = ("await_lock('x', 42)", "fence_lock('x', 42)");

	foreach my $call (@calls)
	{
		fault(q{set('request-before-post', 'wait', skip => 1, pid => } . $a->pid . ')');
		$a->async("SELECT $call");
		stopped('request-before-post');
		stop_at('manager-start');
		$free->query(q{SELECT pg_terminate_backend(pid) FROM lock_election.manager}); # of this database alone
		stopped('manager-start');
		go_on('request-before-post');
		$a->wait;
		like($a->error, qr/ERROR:  LE001: .*\nDETAIL:  Nothing is known about it: it ended long ago, or was never granted\.\n/, "$call: lost, whatever becomes of the detail");
		go_on('manager-start');
	}
	is($a->query(q{SELECT release_lock('x', acquire_lock('x'))}), 't', 'and the session goes on');
	nothing_left($node);
}

# --- the manager has an error outside of a transaction, while it has a lock that every commit needs ---

{
	my $fenced = session($node);
	my $log = -s $node->logfile;

	$free->query(q{CREATE TABLE written (); ALTER SYSTEM SET lock_election.fence_timeout = '500 ms'; SELECT pg_reload_conf()});
	$fenced->query(q{BEGIN; SELECT fence_lock('x', acquire_lock('x', '1 s'))});
	fault(q{set('fence-pids-locked', 'error')});
	$b->async(q{SELECT acquire_lock('x', wait => '20 s')});
	ok(wait_until(sub { $node->log_contains(qr/ERROR: .*fence-pids-locked/, $log) }), 'an error');
	is($a->query('INSERT INTO written DEFAULT VALUES') . $a->error, '', 'and others commit');
	like($b->wait, qr/^\d+$/, 'the fence is ended later');
	$free->query('DROP TABLE written; ALTER SYSTEM RESET lock_election.fence_timeout; SELECT pg_reload_conf()');
	$b->query(q{SELECT release_lock('x')});
	$fenced->kill;
	nothing_left($node);
}

# --- a transaction ends, or its process, between two looks at who fences ---

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
	is($b->wait, '1', 'released by force');
	my $told = join(' ', $b->error =~ /is fenced by the transaction of process (\d+)/g);
	is($told, $end ? '' : $pid, $end ? "$end: nobody is told to fence it" : 'the process that fences it is told');
	$fences->quit if $end ne 'quit';
	nothing_left($node);
}

# --- an entry is freed, and taken again, while a session waits for what the one before has left in its mailbox ---

# From PostgreSQL 16 on, a new process gets the number that has been free for longest: not that of the session before.
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
	my $new = session($node, dbname => 'again');    # gets what has become free last
	stop_at('attach-refused', $new->pid);
	$new->async(q{SELECT acquire_lock('y')});
	stopped('attach-refused');
	kill 'CONT', $manager;
	$admin->query('DROP EXTENSION lock_election');
	ok(wait_until(sub { return $workers->() eq '' }), 'the manager has gone');
	$free->query('SELECT pg_sleep(0.5)');    # the launcher frees the entry
	go_on('attach-refused');
	$new->wait;
	like($new->error, qr/ERROR:  /, 'there is nobody to ask');
	$admin->query('CREATE EXTENSION lock_election');
	foreach my $turn (1 .. 3)
	{
		is($new->query(q{SELECT release_lock('y', acquire_lock('y'))}) . $new->error, 't', "then the session is served, time $turn");
	}
	$_->quit foreach $admin, $new;
	$free->query('DROP DATABASE again');
	nothing_left($node);
}

# The tests of everything else, and everybody, have a build without.
{
	my $traces = qr/le_fault|batch-committed/;
	my @dirs = map { chomp; $_ } map { `$_ --pkglibdir` } $ENV{PG_CONFIG}, "$ENV{LE_FAULTS_TREE}/bin/pg_config";
	my ($normal, $faults) = map { slurp_file("$_/lock_election.so") } @dirs;

	unlike($normal, $traces, 'the normal library has no fault points');
	like($faults, $traces, 'this one has');
}

{
	$node->safe_psql('postgres', 'CREATE ROLE nobody_in_particular');
	$a->query(q{SET ROLE nobody_in_particular; SELECT fault_set('attach', 'kill')});
	like($a->error, qr/42501/, 'only a superuser sets a fault');
	$a->query('RESET ROLE');
	nothing_left($node);
}

$node->stop;
done_testing();
