# bad-night.pl BEGIN SECONDS QUERIES: runs the collector's queries once a second, and prints for each second: second,
# up, held, waiting, oldest wait, grants/s, leader changes, and p50 and p99 of the waits that ended in the last 5
# seconds. A server that does not reply within 0.9 s is not up.
use strict;
use warnings;
use Time::HiRes qw(time sleep);

use constant WINDOW => 5;

my ($begin, $seconds, $file) = @ARGV;
my $yaml = do { open my $f, '<', $file or die "$file: $!\n"; local $/; <$f> };
my %query = map { $_ => $yaml =~ /^$_:\n  query: \|\n((?:    .*\n)+)/m ? $1 : die "no $_\n" } qw(lock_election lock_election_wait);
my $sql = "SELECT l.up, l.held, l.waiting, l.oldest_wait_seconds, l.grants_total, l.leader_changes_total,
	array_to_string(w.seconds, ','), array_to_string(w.seconds_bucket || w.seconds_count, ',')
	FROM ($query{lock_election}) l, ($query{lock_election_wait}) w";
my @taken;

$| = 1;
foreach my $second (0 .. $seconds)
{
	my $left = $begin + $second - time;

	sleep($left) if $left > 0;
	my @row = split /\|/, ask() // '';
	my $before = $taken[-1];
	push @taken, @row ? { at => time, row => \@row } : undef;
	next if $second == 0;
	if (!@row) { print join("\t", $second, 0, ('NaN') x 7), "\n"; next; }
	my $grants = $before ? ($row[4] - $before->{row}[4]) / ($taken[-1]{at} - $before->{at}) : 'NaN';
	my $old = (grep { defined } @taken[ ($second > WINDOW ? $second - WINDOW : 0) .. $second - 1 ])[0];

	# After a failover, the new server's counters start at zero.
	($grants, $old) = ('NaN', undef) if $grants ne 'NaN' && $grants < 0 || $old && $old->{row}[4] > $row[4];
	print join("\t", $second, @row[ 0 .. 3 ], $grants, $row[5], map { quantile($_, $old, \@row) } 0.5, 0.99), "\n";
}

sub ask
{
	my $pid = open my $psql, '-|' or do
	{
		open STDERR, '>', '/dev/null';
		exec 'timeout', '0.9', 'psql', '-XAtqc', $sql or die;
	};
	my $line = <$psql>;

	return close $psql && defined $line ? $line =~ s/\n//r : undef;
}

# Returns a quantile in the same way as Prometheus: assumes that waits are evenly distributed within a bucket.
sub quantile
{
	my ($q, $old, $row) = @_;
	my @bounds = split /,/, $row->[6];
	my @counts = split /,/, $row->[7];
	my ($low, $below) = (0, 0);

	return 'NaN' unless $old;
	my @before = split /,/, $old->{row}[7];
	@counts = map { $counts[$_] - $before[$_] } 0 .. $#counts;
	return 'NaN' if $counts[-1] == 0;
	foreach my $i (0 .. $#bounds)
	{
		return $low + ($bounds[$i] - $low) * ($q * $counts[-1] - $below) / ($counts[$i] - $below) if $counts[$i] >= $q * $counts[-1];
		($low, $below) = ($bounds[$i], $counts[$i]);
	}
	return $low;
}
