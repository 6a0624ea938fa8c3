# A role with only CONNECT and EXECUTE makes all known attacks at once, under the default limits. Other roles must not
# notice more of it than of a role that uses as many connections for something harmless: in turns of a few seconds, the
# same connections attack, and count numbers. The throughput and the latency of another session are compared between
# both turns; a second server, which is not attacked, shows how busy the machine was. ABUSE_SECONDS: duration;
# ABUSE_FACTOR: allowed loss. `make abuse` runs for ten minutes with the promised factor of two, and needs an idle
# machine. In a few seconds next to other tests only the means are compared, with a factor of ten: that finds only
# attacks that stop the others.
# Promises: -
use strict;
use warnings;
use LeTest;
use LeWire;
use List::Util qw(max sum);
use PostgreSQL::Test::Utils;
use POSIX ();
use Test::More;
use Time::HiRes qw(time sleep);

my $seconds = $ENV{ABUSE_SECONDS} // max(16, budget(32));
my $factor = $ENV{ABUSE_FACTOR};
my $turn = 4;           # seconds
my $settles = 1;        # seconds at the start of a turn that do not count: requests of the previous turn may still run
my $only = $ENV{ABUSE_ONLY};
my $node = new_node('main', conf => <<'CONF');
max_connections = 120
deadlock_timeout = '500ms'
log_statement = none
log_min_messages = warning
log_min_error_statement = panic
max_wal_size = 4GB
CONF

one('CREATE ROLE mallory LOGIN; CREATE ROLE bob LOGIN');
my $quiet = new_node('quiet', conf => "log_statement = none\n");

# --- the attackers: one process for each attack, with its own connections ---

my $started = time;
my $ends = $started + $seconds;

sub attacks { return int((time - $started) / $turn) % 2 == 1; }

sub mallory { return LeWire->new($node, user => 'mallory'); }

sub run
{
	my ($session, @statements) = @_;
	my $answer;

	foreach my $sql (@statements)
	{
		$session->query($sql);
		$answer = $session->wait('Z');
	}
	return $answer;
}

# Sends a statement without waiting for its result.
sub post { my ($session, $sql) = @_; $session->query($sql); return; }

sub names { my ($prefix, $n) = @_; return "ARRAY(SELECT '$prefix' || i FROM generate_series(1, $n) AS i)"; }

my $long = q{repeat('x', 240)};
my $groups = q{SELECT count(acquire_locks(ARRAY(SELECT '%s' || j || '-' || i FROM generate_series(1, 1000) AS i), ttl => %s, lease => %s)) FROM generate_series(1, %d) AS j};

# Waiters for the same thousand names, which another session holds in an open transaction, next to an open fence.
sub crowd_before_names
{
	my ($prefix, $n, $end) = @_;
	my ($holder, $fence, @waiters) = map { mallory() } 1 .. $n + 2;

	run($fence, 'BEGIN', "SELECT fence_lock('f$prefix', acquire_lock('f$prefix'))");
	run($holder, 'BEGIN', 'SELECT acquire_locks(' . names($prefix, 1000) . ')');
	post($_, 'SELECT acquire_locks(' . names($prefix, 1000) . ')') foreach @waiters;
	sleep 1;
	$end->($holder, @waiters);
	$_->cut foreach $fence, $holder, @waiters;
	return;
}

my %attacks = (
	'many locks, revoked with their lease' => sub {
		my ($s) = @_;
		my $lease = run($s, q{SELECT grant_lease('24 days')});

		run($s, sprintf($groups, 'a', q{'24 days'}, $lease, 10), "SELECT revoke_lease($lease)");
	},
	'many locks, rolled back' => sub { run($_[0], 'BEGIN', sprintf($groups, 'b', q{'1 h'}, 'NULL', 10), 'ROLLBACK'); },
	'many locks that end with their session' => sub {
		my $s = mallory();
		run($s, sprintf($groups, 'c', 'NULL', 'NULL', 5));
		$s->cut;
	},
	'many names, each granted separately' => sub {
		my ($s) = @_;
		my $n = names('each', 1000);
		my $tokens = run($s, "SELECT array_agg(token) FROM try_acquire_each($n, '1 h')");

		run($s, "SELECT * FROM release_each($n, '$tokens')");
	},
	'many places, each enqueued separately' => sub {
		my ($s) = @_;
		my $lease = run($s, 'SELECT grant_lease()');

		run($s, map({ 'SELECT count(token) FROM enqueue_each(' . names("place$_-", 1000) . ", lease => $lease)" } 1 .. 5), "SELECT revoke_lease($lease)");
	},
	'held names, requested by many sessions' => sub {
		my ($s) = @_;
		my @crowd = map { mallory() } 1 .. 12;
		my $n = names('held', 1000);
		my $end = time + $turn / 2;

		run($s, 'BEGIN', "SELECT count(token) FROM try_acquire_each($n)");
		while (time < $end)
		{
			post($_, "SELECT count(token) FROM try_acquire_each($n)") foreach @crowd;
			$_->wait('Z') foreach @crowd;
			post($_, "SELECT count(*) FROM release_each($n, array_fill(1, ARRAY[1000]))") foreach @crowd;
			$_->wait('Z') foreach @crowd;
		}
		run($s, 'ROLLBACK');
		$_->quit foreach @crowd;
	},
	'names that are closed' => sub {
		run($_[0], q{SELECT count(release_lock(n, acquire_lock(n), hold_for => '24 h')) FROM (SELECT 'closed' || (random() * 1e9)::int AS n FROM generate_series(1, 1000)) AS s});
	},
	'long names and values' => sub {
		run($_[0], "SELECT acquire_locks(ARRAY(SELECT $long || (random() * 1e9)::int || '-' || i FROM generate_series(1, 1000) AS i), ttl => '24 days')",
			q{DO $$ BEGIN FOR i IN 1 .. 50 LOOP PERFORM campaign((random() * 1e9)::int::text, repeat('x', 4096), '24 days'); END LOOP; END $$});
	},
	'proclaims' => sub { run($_[0], q{DO $$ DECLARE t bigint := campaign('e', 'x', wait => '0', owner => 'me'); BEGIN FOR i IN 1 .. 200 LOOP PERFORM proclaim('e', t, repeat(chr(65 + i % 26), 4096)); END LOOP; END $$}); },
	'keys' => sub { run($_[0], q{SELECT count(compare_and_set((random() * 1e9)::int::text, 0, repeat('x', 4096))) FROM generate_series(1, 100)}); },
	'the search for deadlocks, cut off' => sub { crowd_before_names('d', 12, sub { }); },
	'the search for deadlocks, cancelled' => sub { crowd_before_names('e', 12, sub { my ($holder, @waiters) = @_; $_->cancel foreach @waiters; }); },
	'a name with very many holders' => sub {
		run($_[0], q{SELECT count(acquire_lock('crowd', '1 h', mode => 'shared', owner => i::text)) FROM generate_series(1, 3000) AS i},
			q{SELECT force_release_lock('crowd')});
	},
	'permits' => sub {
		run($_[0], q{SELECT count(acquire_permit('permits', 30000, '1 h', owner => i::text)) FROM generate_series(1, 2000) AS i},
			map({ "SELECT set_permits('permits', $_)" } 20000, 30000, 2000), q{SELECT force_release_lock('permits')});
	},
	'a long queue, and reads of the views' => sub {
		run($_[0], q{SELECT count(token) FROM (SELECT (enqueue_lock('line', '1 h', owner => (random() * 1e9)::int::text)).token FROM generate_series(1, 1000) AS i) AS s},
			map({ "SELECT count(*) FROM lock_election.$_" } 'waiters', 'locks', 'leases'));
	},
	'views' => sub { run($_[0], map({ "SELECT * FROM lock_election.$_ LIMIT 1" } 'locks', 'waiters', 'leases', 'elections', 'manager')); },
	'a commit that releases very many locks' => sub {
		run($_[0], q{SELECT count(acquire_lock('r' || i, '1 h', owner => 'me')) FROM generate_series(1, 1000) AS i}, 'BEGIN',
			q{SELECT count(release_lock('r' || i, acquire_lock('r' || i, '1 h', owner => 'me'), all_holds => true)) FROM generate_series(1, 1000) AS i}, 'COMMIT');
	},
	'places that are announced' => sub {
		run($_[0], 'LISTEN "x"', q{SELECT token FROM (SELECT (enqueue_lock('announced', '1 min', owner => i::text)).token FROM generate_series(1, 100) AS i) AS s},
			map { q{SELECT force_release_lock('announced')} } 1 .. 100);
	},
	'renaming the database' => sub { run($_[0], 'BEGIN', 'SAVEPOINT s', 'ALTER DATABASE postgres RENAME TO mine', 'ROLLBACK TO s', 'DROP EXTENSION lock_election', 'ROLLBACK'); },
	'the end of all entries of the role' => sub { sleep 1.5; run($_[0], q{SELECT force_release_role('mallory')}); },
);
my @attacks = grep { !defined $only || /$only/ } sort keys %attacks;

# Runs an attack in its turns. In the other turns, runs a harmless query.
sub attacker
{
	my ($attack, $counts) = @_;
	my $s = mallory();
	my $rounds = 0;

	while (time < $ends)
	{
		if (attacks())
		{
			$attack->($s);
			$rounds++;
			sleep 0.01 if $s->error =~ / 53400 /; # at a limit: an immediately failing client does not retry in a tight loop
		}
		else { run($s, 'SELECT count(*) FROM generate_series(1, 1000)'); }
	}
	append_to_file($counts, $rounds);
	return;
}

my (%children, $dir);
$dir = PostgreSQL::Test::Utils::tempdir();
foreach my $attack (@attacks)
{
	my $counts = "$dir/" . $attack =~ s/\W+/_/gr;
	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		my $ok = eval { attacker($attacks{$attack}, $counts); 1 };
		print STDERR "# $attack: $@" unless $ok;
		POSIX::_exit($ok ? 0 : 1);
	}
	$children{$attack} = [ $pid, $counts ];
}

# --- the session that is measured ---

my $bob = LeWire->new($node, user => 'bob');
my %session = (bob => $bob, control => LeWire->new($quiet));
my $lease = run($bob, q{SELECT grant_lease('10 s')});
my $held = run($bob, "SELECT acquire_lock('of bob', lease => $lease)");
my $postmaster = one('SELECT pg_postmaster_start_time()');
my $manager = one('SELECT pid FROM lock_election.manager');
my (%times, @errors, $kept_at);

run($_, q{SELECT release_lock('bob', acquire_lock('bob'))}) foreach values %session;
while (time < $ends)
{
	foreach my $who (sort keys %session)
	{
		my $start = time;
		my $slice = int(($start - $started) / $turn);

		run($session{$who}, q{SELECT release_lock('bob', acquire_lock('bob'))});
		push @errors, $session{$who}->error if $session{$who}->error ne '';
		push @{ $times{$who}[$slice % 2] }, (time - $start) * 1000 if $start - $started - $slice * $turn > $settles;
	}
	if (!defined $kept_at || time - $kept_at > 0.5)
	{
		push @errors, 'the lease has ended' if run($bob, "SELECT keep_alive($lease)") eq '';
		$kept_at = time;
	}
}

is("@errors", '', 'no error in the session that is measured');
is(run($bob, "SELECT is_held('of bob', $held)"), 't', 'a lock on a lease that was kept alive is held');
foreach my $attack (@attacks)
{
	my ($pid, $counts) = @{ $children{$attack} };

	waitpid $pid, 0;
	is($?, 0, "$attack: the attacker exits with 0");
	my $rounds = -e $counts ? slurp_file($counts) : 0;
	cmp_ok($rounds, '>', 0, "$attack: the number of rounds");
	diag(sprintf '%4d times %s', $rounds, $attack);
}

sub figures
{
	my @sorted = sort { $a <=> $b } @_;
	my %r = (mean => sum(@sorted) / @sorted, p50 => $sorted[ @sorted / 2 ], p99 => $sorted[ @sorted * 0.99 ], longest => $sorted[-1]);

	return \%r;
}

my %harmless = map { $_ => figures(@{ $times{$_}[0] }) } keys %session;
my %attacked = map { $_ => figures(@{ $times{$_}[1] }) } keys %session;

# Returns the value in the harmless turns, increased by the factor by which the control session was slower in the
# attacked turns.
sub harmless
{
	my ($what) = @_;
	return $harmless{bob}{$what} * max(1, $attacked{control}{$what} / $harmless{control}{$what});
}

foreach my $case ([ 'harmless', \%harmless ], [ 'attacked', \%attacked ])
{
	my ($title, $of) = @$case;
	diag(sprintf '%s: %-7s mean %6.2f ms, p50 %6.2f ms, p99 %7.2f ms, longest %7.1f ms', $title, $_, @{ $of->{$_} }{qw(mean p50 p99 longest)})
	  foreach sort keys %session;
}
cmp_ok($attacked{bob}{mean}, '<', ($factor // 10) * harmless('mean'),
	'mean duration during attacks, in ms, against the harmless turns');
SKIP:
{
	skip 'only in a run of its own: make abuse', 2 unless defined $factor;
	cmp_ok($attacked{bob}{p50}, '<', $factor * harmless('p50'),
		'median duration during attacks, in ms, against the harmless turns');
	cmp_ok($attacked{bob}{p99}, '<', 100 + $factor * harmless('p99'),
		'99th percentile during attacks, in ms, against the harmless turns');
}
is(one('SELECT pg_postmaster_start_time()'), $postmaster, 'the server has not restarted');
is(one('SELECT pid FROM lock_election.manager'), $manager, 'the manager has not restarted');
one(q{SELECT force_release_role('mallory')});
run($bob, "SELECT revoke_lease($lease)");
nothing_left($node, undef, timeout => 30);
$_->quit foreach values %session;
$_->stop foreach $node, $quiet;
done_testing();
