# Who has nothing to do sleeps: the manager, the launcher, the notifier and a session that waits.  The processor time that they
# use is looked at, in all states that the manager can be in without having anything to do.
# Promises: -
# Needs: faults
use strict;
use warnings;
use LePoints;
use LeTest;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', faults => 1, conf => "autovacuum = off\n");
my ($s, $waiter, $free) = map { session($node) } 1 .. 3;
points_by(\$free);

sub worker { return $free->query("SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election $_[0]'"); }

# Each of them looks around once a second. A hundredth of a processor is much more than that takes, and much less than what
# a process gets that does not sleep, also on a machine where fifty of them want one.
sub are_idle
{
	my ($state, %pid) = @_;
	my %used = map { $_ => cpu_time($pid{$_}) } keys %pid;
	my $start = time;

	$free->query('SELECT pg_sleep(3)');
	my $allowed = 0.01 * (time - $start);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach my $name (sort keys %pid)
	{
		my $used = cpu_time($pid{$name}) - $used{$name};
		note(sprintf '%s: the %s uses %.2f ms', $state, $name, 1000 * $used);
		cmp_ok($used, '<', $allowed, "$state: the $name sleeps");
	}
	return;
}

# A place that is granted is announced.
sub announce
{
	my $held = $s->query(q{SELECT acquire_lock('announced')});
	my $token = $s->query(q{SELECT token FROM enqueue_lock('announced')});

	$s->query("SELECT release_lock('announced', $held)");
	$s->query("SELECT await_lock('announced', $token, NULL)");
	$s->query("SELECT release_lock('announced', $token)");
	return wait_until(sub { worker('notifier') }) || die 'there is no notifier';
}

my ($manager, $launcher) = map { worker($_) } 'manager', 'launcher';

announce();
are_idle('after some requests', manager => $manager, launcher => $launcher, notifier => worker('notifier'));

my $token = $s->query(q{SELECT acquire_lock('held', '1 h')});
$waiter->async(q{SELECT acquire_lock('held', '1 h')});
wait_for_sql($node, 'SELECT count(*) FROM lock_election.waiters', '1');
are_idle('somebody waits', manager => $manager, launcher => $launcher, 'session that waits' => $waiter->pid);
$s->query("SELECT release_lock('held', $token)");
like($waiter->wait, qr/^\d+$/, 'and is granted the lock');
$waiter->query(q{SELECT release_lock('held')});

# All mailboxes are looked at again after a second, once.  No batch is still to come for what was released.
wait_for_sql($node, 'SELECT count(*) FROM _lock_election.slot', '0');
fault(q{set('batch-written', 'error', times => 2)});
$s->query(q{SELECT acquire_lock('fails', '1 h')});
like($s->error, qr/fault at/, 'a batch fails, and again with this request alone');
fault('clear()');
are_idle('after a batch that has failed', manager => $manager);

# Deadlines are on a clock that stands still meanwhile.
$s->query(q{SELECT acquire_lock('stall', '1 h')});
my $log = -s $node->logfile;
kill 'STOP', $manager;
$free->query('SELECT pg_sleep(4)');
kill 'CONT', $manager;
$s->query(q{SELECT release_lock('stall')});
ok($node->log_contains(qr/the lock_election manager did not run for \d+ ms/, $log), 'the manager has not run for some seconds');
$s->query(q{SELECT acquire_lock('short', '4 s')});
are_idle('after a stall, until a lock expires', manager => $manager);
wait_for_sql($node, 'SELECT count(*) FROM lock_election.locks', '0');
are_idle('when it has expired', manager => $manager);

is(worker('manager'), $manager, 'it was the same manager all the time');
nothing_left($node);
$_->quit foreach $s, $waiter, $free;
$node->stop;
done_testing();
