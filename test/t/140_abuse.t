# An ordinary role, even a hostile one, can harm only itself. The effect of each attack is measured on another session,
# bob's: the processor time of the manager while bob acquires and releases, which other processes of the machine may
# delay but do not increase; and the duration of these calls, compared with a session of a second server that is not
# attacked.
# Promises: -
use strict;
use warnings;
use LeTest;
use LeWire;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

my $node = new_node('main', conf => <<'CONF');
max_connections = 200
deadlock_timeout = '500ms'
log_statement = none
lock_election.max_waiters_per_lock = 0
CONF

sub set
{
	my ($setting, $value) = @_;
	one("ALTER SYSTEM SET lock_election.$setting = '$value'");
	$node->reload;
	return wait_for_sql($node, "SHOW lock_election.$setting", $value);
}

one('CREATE ROLE mallory LOGIN; CREATE ROLE bob LOGIN');
my $bob = LeWire->new($node, user => 'bob');
my $quiet = new_node('quiet');
my $control = LeWire->new($quiet);
my $manager = one('SELECT pid FROM lock_election.manager');

# Acquires and releases once in each session, at the same time. Returns the durations, and the CPU time of the
# attacked manager, in ms.
sub pair
{
	my %session = (attacked => $bob, control => $control);
	my ($start, $before, %took) = (time, cpu_time($manager));

	$_->query(q{SELECT release_lock('bob', acquire_lock('bob'))}) foreach values %session;
	while (my @left = grep { !defined $took{$_} } keys %session)
	{
		my @ready = IO::Select->new(map { $session{$_}{socket} } @left)->can_read;
		foreach my $who (@left)
		{
			next unless grep { $_ == $session{$who}{socket} } @ready;
			$session{$who}->wait('Z');
			$took{$who} = (time - $start) * 1000;
			$took{work} = (cpu_time($manager) - $before) * 1000 if $who eq 'attacked';
		}
	}
	return \%took;
}

# Returns the longest value, the median if there are at least 20 values, and the 99th percentile if there are at least
# 200.
sub summary
{
	my @sorted = sort { $a <=> $b } @_;

	return { median => @sorted < 20 ? undef : $sorted[ @sorted / 2 ], p99 => @sorted < 200 ? undef : $sorted[ @sorted * 0.99 ], longest => $sorted[-1], third => $sorted[-3] // $sorted[-1] };
}

sub measure
{
	my ($seconds, $until) = @_;
	my $end = time + $seconds;
	my @pairs;

	do { push @pairs, pair() } while time < $end && !($until && $until->());
	return map { my $who = $_; $who => summary(map { $_->{$who} } @pairs) } qw(attacked control work);
}

# The design limits the work of the manager to 100 ms. Durations are compared with those of the control session, by a
# wide factor, because a busy machine gives the control more than its share, and can delay a single call of either by
# any time below LE_ANSWER_GRACE. Some kernels count the time of other processes as that of a process, so the third
# longest work counts: an attack lasts, and would increase many of them.
sub bounded
{
	my ($test_name, %r) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach my $what (grep { defined $r{attacked}{$_} } qw(median p99 longest))
	{
		diag(sprintf '%s: %s %.2f ms, control %.2f ms, work %.2f ms', $test_name, $what, map { $r{$_}{$what} } qw(attacked control work));
	}
	foreach my $what (grep { defined $r{attacked}{$_} } qw(median p99))
	{
		cmp_ok($r{attacked}{$what}, '<', 20 + 20 * $r{control}{$what}, "$test_name: duration of others, $what, in ms");
	}
	cmp_ok($r{attacked}{longest}, '<', 5000, "$test_name: longest duration of others, in ms");
	return cmp_ok($r{work}{third}, '<', 100, "$test_name: work of the manager before the reply to others, in ms");
}

sub mallory { return LeWire->new($node, user => 'mallory'); }

sub attack
{
	my ($session, $sql) = @_;
	$session->query($sql);
	return;
}

# Runs a statement while bob continues to acquire and release.
sub bounded_during
{
	my ($test_name, $session, $sql) = @_;
	my $done = 0;

	attack($session, $sql);
	my %r = measure(30, sub { $done ||= IO::Select->new($session->{socket})->can_read(0) ? 1 : 0; return $done; });
	$session->wait('Z');
	is($session->error, '', "$test_name: no error");
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return bounded($test_name, %r);
}

my $names = q{ARRAY(SELECT 'n' || i FROM generate_series(1, 1000) AS i)};
my $many = q{SELECT count(acquire_locks(ARRAY(SELECT 'm' || j || '-' || i FROM generate_series(1, 1000) AS i), ttl => '1 h', lease => %s)) FROM generate_series(1, 40) AS j};

subtest 'the search for deadlocks' => sub {
	my $holder = mallory();
	my @waiters = map { mallory() } 1 .. 60;
	my $fence = mallory();

	foreach my $sql ('BEGIN', q{SELECT fence_lock('f', acquire_lock('f'))})
	{
		attack($fence, $sql);
		$fence->wait('Z');
	}
	foreach my $sql ('BEGIN', "SELECT acquire_locks($names)")
	{
		attack($holder, $sql);
		$holder->wait('Z');
	}
	attack($_, "SELECT acquire_locks($names)") foreach @waiters;
	ok(wait_until(sub { one(q{SELECT count(*) FROM lock_election.waiters WHERE name = 'n1'}) eq '60' }), 'all 60 wait');
	bounded('60 waiters for the same 1000 names', measure(4));
	$_->cut foreach @waiters, $holder, $fence;
	bounded('the sessions of 60 waiters end', measure(3));
	nothing_left($node, undef, timeout => 30);
};

# Each of many connections requests a thousand names at a time with acquire_each etc., in a loop, until it is
# cancelled.
my $loop = q{DO $$
DECLARE
	names text[] := ARRAY(SELECT '%s' || i FROM generate_series(1, 1000) AS i);
	leased bigint;
BEGIN
	LOOP
		%s
	END LOOP;
END $$};
my %of_each = (
	'names that are held' => q{PERFORM count(token) FROM try_acquire_each(names, '1 h', owner => 'me'); COMMIT;},
	'tokens that hold nothing' => q{PERFORM count(*) FROM release_each(names, array_fill(1, ARRAY[1000])); COMMIT;},
	'places, rolled back' => q{PERFORM count(token) FROM enqueue_each(names, '1 h'); ROLLBACK;},
	'places on a lease' => q{leased := grant_lease(); PERFORM count(token) FROM enqueue_each(names, lease => leased); COMMIT; PERFORM revoke_lease(leased); COMMIT;},
	'names of its own, rolled back' => q{PERFORM count(token) FROM try_acquire_each(names, '1 h'); ROLLBACK;},
	'names of its own on a lease' => q{leased := grant_lease(); PERFORM count(token) FROM try_acquire_each(names, lease => leased); COMMIT; PERFORM revoke_lease(leased); COMMIT;},
);

subtest 'a thousand names at a time, each granted separately' => sub {
	my $m = mallory();

	foreach my $what (sort keys %of_each)
	{
		my @crowd = map { mallory() } 1 .. 60;
		my $n = 0;

		attack($m, "SELECT count(token) FROM try_acquire_each($names, '1 h')");
		is($m->wait('Z'), '1000', 'a thousand names are held');
		attack($_, sprintf $loop, $what =~ /its own/ ? $n++ . '-' : 'n', $of_each{$what}) foreach @crowd;
		bounded("60 connections, $what", measure(3));
		foreach my $s (@crowd)
		{
			$s->cancel;
			$s->wait('Z');
			like($s->error, qr/^ERROR 57014 /, 'the loop has run until it was cancelled');
			$s->quit;
		}
		wait_for_sql($node, q{SELECT count(*) FROM lock_election.locks WHERE lease IS NULL AND name <> 'bob'}, '1000');
		one(q{SELECT force_release_role('mallory')});    # includes the leases of cancelled loops
		nothing_left($node, undef, timeout => 30);
	}
	$m->quit;
};

subtest 'ends of very many locks' => sub {
	my $m = mallory();
	my $lease;

	attack($m, q{SELECT grant_lease('1 h')});
	$lease = $m->wait('Z');
	attack($m, sprintf $many, $lease);
	is($m->wait('Z'), '40', '40,000 locks on a lease');
	attack($m, "SELECT count(token) FROM (SELECT (enqueue_lock('queue', owner => i::text, lease => $lease)).token FROM generate_series(0, 1000) AS i) AS s");
	is($m->wait('Z'), '1001', '1,001 places in one queue, on the same lease');
	bounded_during('lease_holds', $m, "SELECT count(*) FROM generate_series(1, 10) AS i, LATERAL (SELECT count(*) FROM lease_holds($lease + 0 * i)) AS h");
	attack($m, "SELECT count(*), max(queue_position), sum(queue_position) FROM lease_holds($lease)");
	is($m->wait('Z'), '41001|1000|500500', 'lease_holds() returns all locks and places');
	bounded_during('revoke_lease', $m, "SELECT revoke_lease($lease)");

	attack($m, 'BEGIN');
	$m->wait('Z');
	attack($m, sprintf $many, 'NULL');
	$m->wait('Z');
	attack($m, 'ROLLBACK');
	bounded('a rollback', measure(3));    # the reply comes before all locks are undone
	$m->wait('Z');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE role = 'mallory'::regrole}), '0',
		'the rollback has undone all locks');

	(my $bound = $many) =~ s/'1 h'/NULL/;
	attack($m, sprintf $bound, 'NULL');
	$m->wait('Z');
	$m->cut;
	bounded('the end of a session', measure(3));
	nothing_left($node, undef, timeout => 30);
};

subtest 'a name with very many holders' => sub {
	my $m = mallory();

	attack($m, q{SELECT count(acquire_lock('crowd', '1 h', mode => 'shared', owner => i::text)) FROM generate_series(1, 20000) AS i});
	is($m->wait('Z'), '20000', '20,000 shared holders');
	bounded_during('force_release_lock', $m, q{SELECT force_release_lock('crowd')});
	bounded('the rows of released holders are deleted', measure(3));
	attack($m, q{SELECT count(acquire_permit('crowd', 30000, '1 h', owner => i::text)) FROM generate_series(1, 20000) AS i});
	is($m->wait('Z'), '20000', '20,000 holders of permits');
	bounded_during('set_permits', $m, q{SELECT set_permits('crowd', 25000)});
	attack($m, q{SELECT count(token) FROM (SELECT (enqueue_permit('crowd', 25000, '1 h', owner => i::text)).token FROM generate_series(1, 6000) AS i) AS s});
	is($m->wait('Z'), '6000', '6,000 places, of which 5,000 are granted immediately');
	bounded_during('set_permits() grants waiters', $m, q{SELECT set_permits('crowd', 27000)});
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name = 'crowd'}), '26000', 'all waiters were granted');
	is(one(q{SELECT force_release_role('mallory')}), '26000', 'force_release_role ends them');
	nothing_left($node);
};

subtest 'a long queue' => sub {
	my $m = mallory();
	my $view = q{SELECT count(*), max(queue_position) FROM lock_election.waiters};
	my $reader = LeWire->new($node);
	my $worked = sub { return cpu_time($manager) + cpu_time($reader->pid); };
	my $took = sub {
		my $before = $worked->();
		attack($reader, $view);
		is($reader->wait('Z'), "$_[0]|$_[0]", "the view shows $_[0] places");
		return $worked->() - $before;
	};

	attack($m, q{SELECT count(token) FROM (SELECT (enqueue_lock('line', '1 h', owner => i::text)).token FROM generate_series(1, 5001) AS i) AS s});
	$m->wait('Z');
	my $small = $took->(5000);
	attack($m, q{SELECT count(token) FROM (SELECT (enqueue_lock('line', '1 h', owner => i::text)).token FROM generate_series(1, 35000) AS i) AS s});
	$m->wait('Z');
	my $large = $took->(40000);
	cmp_ok($large, '<', 20 * $small + 0.2, 'the work of the view grows about linearly with the number of places');
	$reader->quit;

	my @readers = map { mallory() } 1 .. 20;
	attack($_, $view) foreach @readers;
	bounded('20 readers of the view', measure(3));
	$_->wait('Z') foreach @readers;
	$_->quit foreach @readers;
	is(one(q{SELECT force_release_role('mallory')}), '40001', 'force_release_role ends all places');
	nothing_left($node);
};

subtest 'a commit that releases very many locks' => sub {
	my $m = mallory();

	attack($m, $_), $m->wait('Z') foreach q{SELECT count(acquire_lock('r' || i, '1 h', owner => 'me')) FROM generate_series(1, 3000) AS i}, 'BEGIN',
	  q{SELECT count(*) FILTER (WHERE release_lock(name, token)) FROM lock_election.locks WHERE owner = 'me'};
	bounded_during('COMMIT with 3,000 releases', $m, 'COMMIT');
	nothing_left($node);
	$m->quit;
};

subtest 'limits of a role' => sub {
	set('max_memory_per_role', '8MB');
	like(error_of(q{SELECT acquire_lock(repeat('x', 200) || i, '1 h') FROM generate_series(1, 100000) AS i}, user => 'mallory'),
		qr/53400: .*role "mallory".*lock_election\.max_memory_per_role \(8 MB\)/s, 'max_memory_per_role');
	like(one(q{SELECT acquire_lock('one more')}), qr/^\d+$/, 'max_memory_per_role of one role does not limit others');
	one(q{SELECT release_lock('one more', token) FROM lock_election.locks WHERE name = 'one more'});
	set('max_memory_per_role', '128MB');

	set('max_locks_per_role', '10');
	like(error_of(q{SELECT release_lock(i::text, acquire_lock(i::text), hold_for => '1 h') FROM generate_series(1, 100) AS i}, user => 'mallory'),
		qr/53400: .*max_locks_per_role \(10\)/s, 'closed names count for max_locks_per_role');
	one(q{SELECT force_release_role('mallory')});
	set('max_locks_per_role', '100000');
	like(error_of(q{SELECT release_lock('x', acquire_lock('x'), hold_for => '2 days')}, user => 'mallory'), qr/53400: .*max_hold_for \(1d\)/s, 'max_hold_for');
	set('max_ttl', '1min');
	like(error_of(q{SELECT acquire_lock('x', '2 min')}, user => 'mallory'), qr/53400: .*max_ttl \(1min\)/s, 'max_ttl');
	set('max_ttl', '24d');

	set('max_history_per_role', '1MB');
	my $proclaims = q{DO $$ DECLARE t bigint := campaign('e', 'x'); BEGIN FOR i IN 1 .. 1000 LOOP PERFORM proclaim('e', t, repeat('x', 4096)); END LOOP; END $$};
	like(error_of($proclaims, user => 'mallory'), qr/53400: .*max_history_per_role \(1 MB\)/s, 'max_history_per_role');
	like(one(q{SELECT campaign('theirs', 'me')}), qr/^\d+$/, 'max_history_per_role of one role does not limit others');
	one(q{SELECT force_resign('theirs'), force_resign('e')});
	my $pid = one('SELECT pid FROM lock_election.manager');
	one("SELECT pg_terminate_backend($pid)");
	wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
	ok(wait_until(sub { error_of(q{SELECT campaign('e', 'x', wait => '0')}, user => 'mallory') =~ /53400/ }), 'a new manager counts the history, too');
	one(q{ALTER TABLE _lock_election.history DISABLE TRIGGER ALL;
		UPDATE _lock_election.history SET at = now() - interval '8 days';
		ALTER TABLE _lock_election.history ENABLE ALWAYS TRIGGER refuse_write;
		ALTER TABLE _lock_election.history ENABLE ALWAYS TRIGGER refuse_row});
	$pid = one('SELECT pid FROM lock_election.manager');
	one("SELECT pg_terminate_backend($pid)");
	wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
	wait_for_sql($node, 'SELECT count(*) = 0 FROM _lock_election.history');
	is(error_of(q{SELECT resign('e', campaign('e', 'x'))}, user => 'mallory'), '', 'expired history does not count');
	set('max_history_per_role', '256MB');

	set('max_keys_per_role', '1MB');
	like(error_of(q{DO $$ BEGIN FOR i IN 1 .. 1000 LOOP PERFORM compare_and_set(i::text, 0, repeat('x', 4096)); COMMIT; END LOOP; END $$}, user => 'mallory'),
		qr/53400: .*role "mallory".*max_keys_per_role \(1 MB\)/s, 'max_keys_per_role');
	is($node->safe_psql('postgres', q{SELECT compare_and_set('theirs', 0, 'x')}, extra_params => [ '-U', 'bob' ]), '1', 'max_keys_per_role of one role does not limit others');
	is($node->safe_psql('postgres', q{SELECT compare_and_set('1', 1, 'short')}, extra_params => [ '-U', 'mallory' ]), '2', 'at the limit, a shorter value can be set');

	# As with an UPDATE of any table, and as documented in the guide.
	is(error_of(q{DO $$ BEGIN FOR i IN 1 .. 1000 LOOP PERFORM compare_and_set('2', i, repeat(chr(65 + i % 26), 4096)); END LOOP; END $$}, user => 'mallory'),
		'', 'at the limit, a value of the same length can be set any number of times');
	is(one(q{SELECT pg_relation_size('_lock_election.versioned') > 4 * 1024 * 1024}), 't', 'older row versions are not bounded');
	one(q{SELECT force_release_role('mallory')});
	nothing_left($node);
};

subtest 'a dropped role' => sub {
	one('CREATE ROLE gone LOGIN');
	my $g = LeWire->new($node, user => 'gone');
	attack($g, $_), $g->wait('Z') foreach q{SELECT acquire_lock('g', '1 h')}, q{SELECT (enqueue_lock('g', '1 h')).token}, q{SELECT grant_lease('1 h')},
	  q{SELECT campaign('g', 'me', '1 h')}, q{SELECT release_lock('g2', acquire_lock('g2'), hold_for => '1 h')};
	$g->quit;
	like(error_of(q{SELECT force_release_role('gone')}, user => 'mallory'), qr/42501/, 'another role cannot end the locks of a role');
	one('DROP ROLE gone');
	my $oid = one(q{SELECT DISTINCT role::oid FROM lock_election.locks});
	like(error_of("SELECT force_release_role($oid)", user => 'mallory'), qr/42501/,
		'another role cannot end the locks of a dropped role');
	is(one("SELECT force_release_role('$oid')"), '5',
		'an administrator can end the locks of a dropped role, by its OID');
	like(one(q{SELECT try_acquire_lock('g2')}), qr/^\d+$/, 'a name closed by the dropped role is open');
	one(q{SELECT force_release_lock('g2')});
	like(error_of(q{SELECT force_release_role(NULL)}), qr/22023/, 'force_release_role(NULL)');
	like(error_of(q{SELECT force_release_role('-')}), qr/22023/, 'force_release_role of no role');
	nothing_left($node);
};

subtest 'more locks than fit into max_memory' => sub {
	my $locks = q{SELECT count(acquire_locks(ARRAY(SELECT repeat('x', 200) || j || '-' || i FROM generate_series(1, 1000) AS i), ttl => '1 h')) FROM generate_series(1, 40) AS j};
	my $last = q{try_acquire_lock(repeat('x', 200) || '40-1000')};

	$node->safe_psql('postgres', $locks, extra_params => [ '-U', 'mallory' ]);
	my $postmaster = one('SELECT pg_postmaster_start_time()');
	set('max_memory', '16MB');
	like(error_of(q{SELECT acquire_lock(i::text, '1 h') FROM generate_series(1, 1000) AS i}), qr/53400: .*max_memory \(16 MB\)/s, 'above max_memory, an acquire fails');
	my $pid = one('SELECT pid FROM lock_election.manager');
	one("SELECT pg_terminate_backend($pid)");
	wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
	is(one('SELECT held FROM lock_election.manager'), '40000',
		'a new manager loads all locks although they exceed max_memory');
	ok($node->log_contains(qr/the locks of this database take \d+ MB, more than lock_election\.max_memory \(16 MB\)/), 'the log reports that the locks exceed max_memory');
	like(error_of(q{SELECT acquire_lock('more', '1 h')}), qr/53400: .*max_memory \(16 MB\)/s,
		'after the load, an acquire fails');
	set('max_memory', '512MB');
	is(one(q{SELECT release_lock('more', acquire_lock('more', '1 h'))}), 't',
		'an acquire succeeds with a larger max_memory');
	is(one("SELECT $last IS NULL"), 't', 'the last loaded lock is held');
	is(one(q{SELECT force_release_role('mallory')}), '40000', 'all loaded locks belong to the role');
	is(one('SELECT pg_postmaster_start_time()'), $postmaster, 'the server has not restarted');
	nothing_left($node);
};

$_->quit foreach $bob, $control;
$_->stop foreach $node, $quiet;
done_testing();
