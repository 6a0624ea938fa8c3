# Processes without work sleep: the manager, the launcher, the notifier, a waiting session, and callers that wait for a
# stuck process. Measures their processor time in all states in which the manager has no work.
# Promises: -
# Needs: faults
use strict;
use warnings;
use LePoints;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

my $node = new_node('main', faults => 1, conf => "autovacuum = off\n");
my ($s, $waiter, $free) = map { session($node) } 1 .. 3;
points_by(\$free);

sub worker { return $free->query("SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election $_[0]'"); }

# Each process checks for work once a second. One percent of a processor is much more than this takes, and much less
# than the share of a process that does not sleep, even on a machine where fifty processes compete for the processor.
my $seconds = 3;

sub are_idle
{
	my ($state, %pid) = @_;
	my $scans = sub { return fault(q{hits('launcher-scanned')}); };
	my %used = map { $_ => cpu_time($pid{$_}) } keys %pid;
	my ($start, $before) = (time, $scans->());

	$free->query("SELECT pg_sleep($seconds)");
	my $allowed = 0.01 * (time - $start);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	cmp_ok($scans->() - $before, '<=', 2 + (time - $start) / 5, "$state: the launcher reads the databases every five seconds") if $pid{launcher};
	foreach my $name (sort keys %pid)
	{
		my $used = cpu_time($pid{$name}) - $used{$name};
		note(sprintf '%s: the %s uses %.2f ms', $state, $name, 1000 * $used);
		cmp_ok($used, '<', $allowed, "$state: the $name sleeps");
	}
	return;
}

# Grants a place, which is announced.
sub announce
{
	my $held = $s->query(q{SELECT acquire_lock('announced')});
	my $token = $s->query(q{SELECT token FROM enqueue_lock('announced')});

	$s->query("SELECT release_lock('announced', $held)");
	$s->query("SELECT await_lock('announced', $token, NULL)");
	$s->query("SELECT release_lock('announced', $token)");
	return wait_until(sub { worker('notifier') }) || die 'no notifier runs';
}

# Return how often the manager has checked the sizes of the tables, and how often it has pruned the history.
sub looks { return fault("hits('shrink-done')"); }

sub pruned { return fault("hits('history-pruned')"); }

sub beat { return $s->query(q{SELECT release_lock('beat', acquire_lock('beat'))}); }

my ($manager, $launcher) = map { worker($_) } 'manager', 'launcher';

announce();
is($free->query(q{SELECT fault_hits('shrink-done') = 0 OR started < clock_timestamp() - interval '4.9 s' FROM lock_election.manager}), 't', 'a starting manager serves waiting calls before it checks the sizes of its tables');
are_idle('after some requests', manager => $manager, launcher => $launcher, notifier => worker('notifier'));

my $token = $s->query(q{SELECT acquire_lock('held', '1 h')});
$waiter->async(q{SELECT acquire_lock('held', '1 h')});
wait_for_sql($node, 'SELECT count(*) FROM lock_election.waiters', '1');

# The manager checks the sizes once within five seconds after the last batch, and prunes the history twice after its
# start.
beat();
wait_for_sql($node, 'SELECT count(*) FROM _lock_election.slot', '1');
my $before = looks();
wait_until(sub { looks() > $before }, 20);
$before = looks();
cmp_ok($before, '>', 0, 'the sizes of the tables are checked');
my $pruned = pruned();
cmp_ok($pruned, '>=', 2, 'the history is pruned');
$seconds = 6;
are_idle('while a session waits', manager => $manager, launcher => $launcher, 'session that waits' => $waiter->pid);
$seconds = 3;
is(looks(), $before, 'the sizes are not checked while nothing is written');
is(pruned(), $pruned, 'the history is not pruned while nothing is written');
my $start = time;
beat() foreach 1 .. 20;
cmp_ok(looks() - $before, '<=', 1 + (time - $start) / 5, 'the sizes are not checked after each of many batches');

# Counts how often a waiting session falls asleep in each of its turns: first on its bell, where waking it is cheap, and
# then on its latch. A signal ends the sleep on the latch; on a busy machine, it sometimes ends the sleep on the bell.
SKIP: {
	skip 'the system has no futexes', 1 if $^O ne 'linux';
	my $pid = $waiter->pid;
	skip 'the kernel does not count context switches', 1 unless defined times_asleep($pid);
	my $most = 0;

	for (my $try = 0; $try < 5 && $most < 1.5; $try++)
	{
		fault("set('request-before-wait', 'sleep', times => 0, pid => $pid)");
		my $before = times_asleep($pid);
		foreach my $n (1 .. 12)
		{
			kill 'HUP', $pid;
			wait_until(sub { fault("hits('request-before-wait')") >= $n }) or die 'the session does not wake up';
			sleep 0.15;
		}
		my $per_turn = (times_asleep($pid) - $before) / fault("hits('request-before-wait')");
		note("it sleeps $per_turn times in a turn");
		$most = $per_turn if $per_turn > $most;
		fault('clear()');
	}
	cmp_ok($most, '>=', 1.5, 'a waiting session sleeps on its bell first');
}
$s->query("SELECT release_lock('held', $token)");
like($waiter->wait, qr/^\d+$/, 'the waiting session is granted the lock');
$waiter->query(q{SELECT release_lock('held')});

# The manager checks all mailboxes again after a second, once. No batch for released locks is pending.
wait_for_sql($node, 'SELECT count(*) FROM _lock_election.slot', '0');
fault(q{set('batch-written', 'error', times => 2)});
$s->query(q{SELECT acquire_lock('fails', '1 h')});
like($s->error, qr/fault at/, 'a batch fails, and again with its only request');
fault('clear()');
are_idle('after a batch that has failed', manager => $manager);

# The manager retries loading its tables once a second, however soon this fails.
fault(q{set('reload-loaded', 'error', times => 0)});
fault(q{set('batch-written', 'error')});
$s->query(q{SELECT acquire_lock('fails', '1 h')});
like($s->error, qr/fault at/, 'a batch fails');
are_idle('while the tables cannot be loaded', manager => $manager);
fault('clear()');
is($s->query(q{SELECT release_lock('fails', acquire_lock('fails', wait => '20 s'))}), 't',
	'requests succeed when the tables can be loaded');

# Deadlines are on a clock that stops during a stall. The manager checks the clock now and then, even if it has nothing
# else to do. Some time after its last batch, it checks the sizes of the tables.
my $looks = fault(q{hits('shrink-done')});
$s->query(q{SELECT acquire_lock('stall', '1 h')});
wait_until(sub { fault(q{hits('shrink-done')}) > $looks }) or die 'the manager does not check the sizes';
my $log = -s $node->logfile;
stop_asleep($manager);
$free->query('SELECT pg_sleep(4)');
kill 'CONT', $manager;
ok(wait_until(sub { $node->log_contains(qr/the lock_election manager did not run for \d+ ms/, $log) }), 'the log reports the stall');
$s->query(q{SELECT release_lock('stall')});
$s->query(q{SELECT acquire_lock('short', '4 s')});
are_idle('after a stall, until a lock expires', manager => $manager);
wait_for_sql($node, 'SELECT count(*) FROM lock_election.locks', '0');
are_idle('after the lock has expired', manager => $manager);

# After the stall, deadlines are on a shifted clock. Checks a delayed write of a release, an expiry, and the deletion of
# their rows.
my $batches = sub { return fault(q{hits('batch-applied')}); };
$before = $batches->();
my $told = $s->query(q{SELECT acquire_lock('told', '1 min')});
is($s->query("SELECT release_lock('told', $told)"), 't', 'release_lock() returns true');
wait_for_sql($node, q{SELECT count(*) FROM _lock_election.slot WHERE name = 'told' AND holds > 0}, '0');
$s->query(q{SELECT acquire_lock('short', '1 s')});
wait_for_sql($node, 'SELECT count(*) FROM _lock_election.slot', '0');
cmp_ok($batches->() - $before, '<=', 20, 'only the necessary batches are made');

is(worker('manager'), $manager, 'the manager was not replaced');

# --- calls that wait for a stuck process ---

# Includes a session that is not served yet, and one whose release waits in its commit.
my ($asks, $commits, $leads, $gone) = map { session($node) } 1 .. 4;
my %stuck = ('session that asks' => $asks->pid, 'session that commits' => $commits->pid, 'candidate' => $leads->pid);

$s->query(q{SELECT campaign('e', 'one', '1 h')});
$leads->async(q{SELECT campaign('e', 'two', '1 h')});
waiting($leads);
$commits->query(q{SELECT acquire_lock('commits', '1 h'); BEGIN; SELECT release_lock('commits')});

# The tables can be neither written nor read: the manager retries.
my $locker = session($node);
$locker->query('BEGIN; LOCK TABLE _lock_election.slot');
$asks->async(q{SELECT acquire_lock('asks', '1 h')});
$commits->async('COMMIT');
asking($_) foreach $asks, $commits;
are_idle('the tables are locked', manager => $manager, launcher => $launcher, %stuck);
$locker->query('ROLLBACK');
$asks->wait;
$commits->wait;
$s->query(q{SELECT force_release_lock(name) FROM lock_election.locks});

# No reply is sent, and a new session gets the mailbox of an ended session whose mail was not read.
$gone->query(q{SELECT is_held('x', 1)});
$commits->query(q{SELECT acquire_lock('commits', '1 h'); BEGIN; SELECT release_lock('commits')});
stop_asleep($manager);
$gone->quit;
wait_for_sql($node, 'SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $gone->pid, '0');
my $fresh = session($node);
$asks->async(q{SELECT acquire_lock('asks', '1 h')});
$commits->async('COMMIT');
$fresh->async(q{SELECT is_held('x', 1)});
asking($_) foreach $asks, $commits, $fresh;
are_idle('the manager is stopped', launcher => $launcher, 'new session' => $fresh->pid, %stuck);
kill 'CONT', $manager;
$_->wait foreach $asks, $commits, $fresh;
$s->query(q{SELECT force_release_lock(name) FROM lock_election.locks; SELECT force_resign('e')});
my $term = $leads->wait;
is($leads->query("SELECT resign('e', $term)"), 't', 'the candidate is elected');

# The next manager is loading its tables. Waiting calls check for it less and less often, and do not disturb the
# launcher.
$s->query(q{SELECT acquire_lock('held', '1 h')});
$waiter->async(q{SELECT acquire_lock('held', '1 h')});
waiting($waiter);
stop_at('load-before-meta');
kill 'TERM', $manager;
stopped('load-before-meta');
$asks->async(q{SELECT acquire_lock('asks', '1 h')});
$fresh->quit;
$fresh = session($node);
$fresh->async(q{SELECT is_held('x', 1)});
asking($_) foreach $asks, $fresh;
$free->query('SELECT pg_sleep(2)');
my %asleep = map { $_ => times_asleep($_) } $launcher, $waiter->pid, $asks->pid, $fresh->pid;
are_idle('while a manager loads its tables', launcher => $launcher, 'session that waits' => $waiter->pid, 'session that asks' => $asks->pid, 'new session' => $fresh->pid);
SKIP: {
	skip 'the kernel does not count context switches', 1 if grep { !defined $_ } values %asleep;
	my @often = grep { $_ > 10 * $seconds } map { times_asleep($_) - $asleep{$_} } keys %asleep;
	is("@often", '', 'no process wakes up more often than ten times a second');
}
go_on('load-before-meta');
$_->wait foreach $asks, $fresh;
$s->query(q{SELECT force_release_lock(name) FROM lock_election.locks});
$waiter->wait;
$s->query(q{SELECT force_release_lock(name) FROM lock_election.locks});
$_->quit foreach $asks, $commits, $leads, $fresh, $locker;
nothing_left($node);
$_->quit foreach $s, $waiter, $free;
# Stopping the server ends the sleep of the manager, which must not be reported as a stall. The sleep lasts as long as
# the manager has nothing to do.
$free->query('SELECT pg_sleep(4)');
$log = -s $node->logfile;
$node->stop;
is(join(' ', grep { $_ > 3000 } slurp_file($node->logfile, $log) =~ /the lock_election manager did not run for (\d+) ms/g), '', 'the sleep before the stop is not reported as a stall');
done_testing();
