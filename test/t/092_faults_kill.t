# A process is killed (-9) at every named point in the server: the postmaster restarts all others, and what was answered is
# there afterwards.
use strict;
use warnings;
use LeFaults;
use LeTest;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', faults => 1, conf => "autovacuum = off\n");
my $w = LeFaults->new($node);
my %points = LeFaults::points();

$w->keep;
foreach my $point (sort keys %points)
{
	my $start = time;

	is($w->run($point, 'kill'), '', sprintf 'kill at %s (%.0f ms)', $point, (time - $start) * 1000);
}
note keys(%points) . ' points';
$node->stop;
done_testing();
