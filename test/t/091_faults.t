# Every named point in the server, and whatever may happen there: a delay, an error, the end of the process. What was
# answered holds, and nothing is left behind.
use strict;
use warnings;
use LeFaults;
use LeTest;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', faults => 1, conf => "autovacuum = off\n");
my $w = LeFaults->new($node);
my %points = LeFaults::points();
my $n = 0;

$w->keep;
foreach my $point (sort keys %points)
{
	my @actions = qw(release terminate);

	push @actions, 'error', 'fatal' if $points{$point};
	push @actions, 'cancel' if $point =~ /^(?:attach|request|durable|fence|xact|subxact|release|session)/;
	foreach my $action (@actions)
	{
		my $start = time;

		is($w->run($point, $action), '', sprintf '%s at %s (%.0f ms)', $action, $point, (time - $start) * 1000);
		$n++;
	}
}
note "$n combinations of a point and an action";
$node->stop;
done_testing();
