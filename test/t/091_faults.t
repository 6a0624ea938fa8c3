# Every named point in the server, and everything that can happen there: whatever is interrupted, what was answered holds,
# and nothing is left behind.
use strict;
use warnings;
use LeFaults;
use LeTest;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', faults => 1, conf => "autovacuum = off\n");
my $w = LeFaults->new($node);
my @plain;

$w->keep;

# --- what the workload passes ---
$w->{restart} = 1;
$w->{database} = 1;
$w->queue_of_waiters;
$w->processes;
$w->others;
is(join('; ', @{ $w->{wrong} }), '', 'the workload');
my %reached = map { $_ => 1 } split /\n/, $w->control('SELECT fault_points()');
note join ' ', sort keys %reached;

my @points = @ENV{LE_POINT} ? split(/,/, $ENV{LE_POINT}) : sort keys %reached;
my @actions = $ENV{LE_ACTION} ? split(/,/, $ENV{LE_ACTION}) : qw(sleep error fatal release terminate cancel kill);
my $n = 0;
foreach my $point (@points)
{
	foreach my $action (@actions)
	{
		my $start = time;
		my %opts;
		$opts{restart} = 1 if $point =~ /^(?:manager|load|finish|launcher|history)/;
		$opts{database} = 1 if $point =~ /^(?:hold|launcher-probe)/;
		my $wrong = $w->run($point, $action, %opts);
		is($wrong, '', sprintf '%s at %s (%.0f ms)', $action, $point, (time - $start) * 1000);
		$n++;
	}
}
note "$n combinations";
done_testing();
