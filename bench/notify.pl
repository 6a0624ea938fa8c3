# Measures for bench/notify.sh hand-offs of a lock between two queue places, while other sessions listen for other
# locks. Prints a line for each number of listening sessions: for a hand-off, the microseconds from the release to the
# notification of the next place, and the microseconds of processor time of all the server's processes.
use strict;
use warnings;
use LeTest;
use LeWire;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my @waiters = split / /, $ENV{WAITERS};
my $most = (sort { $a <=> $b } @waiters)[-1];
my $node = new_node('notify', conf => 'max_connections = ' . ($most + 50) . "\nlog_statement = none\nautovacuum = off\n");

# Returns the microseconds of processor time of the postmaster's children, none of which ends during a measurement.
sub server_time
{
	my ($postmaster) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');
	my @children = map { m{/(\d+)/stat$} } grep { (eval { slurp_file($_) } // '') =~ /\) . $postmaster / } glob '/proc/[0-9]*/stat';
	my $seconds = 0;

	$seconds += cpu_time($_) foreach @children;
	return $seconds * 1e6;
}

# Hands off the lock several times to the next place, and waits for its notification in another session. Returns the
# microseconds of a hand-off.
sub hand_offs
{
	my ($times, $taker, $listener) = @_;
	my $took = 0;

	$taker->query(q{SELECT acquire_lock('hot', '1 h')});
	my $held = $taker->wait('Z');

	foreach (1 .. $times)
	{
		$taker->query(q{SELECT token FROM enqueue_lock('hot', '1 h')});
		my $next = $taker->wait('Z');
		my $start = time;
		$taker->query("SELECT release_lock('hot', $held)");
		$taker->wait('Z');
		$listener->wait('A');
		$took += time - $start;
		$held = $next;
	}
	$taker->query("SELECT release_lock('hot', $held)");
	$taker->wait('Z');
	return $took / $times * 1e6;
}

sub median { my @sorted = sort { $a <=> $b } @_; return $sorted[ $#sorted / 2 ]; }

my ($taker, $listener) = map { LeWire->new($node) } 1, 2;
$taker->query(q{SELECT channel, release_lock('hot', token) FROM enqueue_lock('hot')});
my ($channel) = $taker->wait('Z') =~ /^([^|]*)/;
$listener->query(qq{LISTEN "$channel"});
$listener->wait('Z');

my @idle;
foreach my $waiters (sort { $a <=> $b } @waiters)
{
	my (@us, @cpu);

	while (@idle < $waiters)
	{
		my $w = LeWire->new($node);
		my $n = @idle;
		$w->query("SELECT channel FROM enqueue_lock('cold $n', '1 h')");
		my $cold = $w->wait('Z');
		$w->query(qq{LISTEN "$cold"});
		$w->wait('Z');
		push @idle, $w;
	}
	foreach (1 .. $ENV{ROUNDS})
	{
		my $before = server_time();
		push @us, hand_offs($ENV{HAND_OFFS}, $taker, $listener);
		push @cpu, (server_time() - $before) / $ENV{HAND_OFFS};
	}
	diag(sprintf '%d listen: %.0f us to the notification, %.0f us of processor time a hand-off', $waiters, median(@us),
		median(@cpu));
}
pass('measured, PostgreSQL ' . one($node, 'SHOW server_version'));
$node->stop('immediate');
done_testing();
