#!/usr/bin/perl
# report.pl RESULTS ABOUT: writes RESULTS/results.md, and the data of the plots to RESULTS/plots, from
# RESULTS/results.csv and from the lines "key: value" of the file ABOUT.
use strict;
use warnings;
use List::Util qw(max min uniq);

my ($results, $about) = @ARGV;
my $us = 'lock_election';
my (%rows, @order, %skipped);

sub value
{
	my ($row, $key) = @_;
	return defined $row->{$key} && $row->{$key} ne '' ? $row->{$key} : undef;
}

sub read_results
{
	open(my $csv, '<', "$results/results.csv") or die "results.csv: $!";
	chomp(my $head = <$csv>);
	my @columns = split(/,/, $head);
	while (my $line = <$csv>)
	{
		chomp $line;
		my %row;
		@row{@columns} = split(/,/, $line, scalar @columns);
		if ($row{extra} eq 'skipped')
		{
			$skipped{ $row{workload} }{ $row{system} } = 1;
			next;
		}
		$row{$1} = $2 while $row{extra} =~ /(\w+)=(\S*)/g;
		my $key = join('|', @row{qw(workload system clients)});
		push @order, $key if !$rows{$key};
		$rows{$key}{ $row{round} } = \%row;
	}
}

sub median
{
	my @v = sort { $a <=> $b } @_;
	return @v ? ($v[int((@v - 1) / 2)] + $v[int(@v / 2)]) / 2 : undef;
}

# Returns the figure of each round in which it was measured.
sub figures
{
	my ($workload, $system, $clients, $key) = @_;
	my $rounds = $rows{"$workload|$system|$clients"} or return;
	return grep { defined } map { value($rounds->{$_}, $key) } sort { $a <=> $b } keys %$rounds;
}

# Returns the median of the rounds' ratios of system $a to system $b.
sub ratio
{
	my ($workload, $clients, $key, $a, $b) = @_;
	my ($rows_a, $rows_b) = map { $rows{"$workload|$_|$clients"} } $a, $b;
	return if !$rows_a || !$rows_b;
	my @ratios;
	for my $round (keys %$rows_a)
	{
		my $of_b = $rows_b->{$round} or next;
		my ($x, $y) = (value($rows_a->{$round}, $key), value($of_b, $key));
		push @ratios, $x / $y if defined $x && $y && $y > 0;
	}
	return median(@ratios);
}

sub number
{
	my ($x) = @_;
	return '-' if !defined $x;
	my $text = sprintf(abs($x) >= 100 ? '%.0f' : abs($x) >= 10 ? '%.1f' : abs($x) >= 0.1 ? '%.2f' : '%.3f', $x);
	1 while $text =~ s/^(-?\d+)(\d{3})/$1,$2/;
	return $text;
}

sub spread
{
	my @v = @_;
	return '-' if !@v;
	return number($v[0]) if max(@v) == min(@v);
	return sprintf('%s [%s .. %s]', number(median(@v)), number(min(@v)), number(max(@v)));
}

# --- tables ---------------------------------------------------------------------------------------------------------

# workload, title, unit of the rate, figure that is compared, meaning of the latency
my @tables = (
	[ 'pairs', 'Acquire and release of random names', 'pairs/s', 'rate', 'of a pair' ],
	[ 'each', '100 random names in one call, each for itself', 'pairs/s', 'rate', 'of the two calls, for 100 pairs' ],
	[ 'each single', 'The same clients with a call a name', 'pairs/s', 'rate', 'of a pair' ],
	[ 'hot', 'One hot lock', 'hand-offs/s', 'p50', 'from the sending of the release to the answer of the next holder' ],
	[ 'try', 'Attempts at a lock that somebody else holds', 'attempts/s', 'rate', 'of an attempt' ],
	[ 'renew', 'Renewals', 'renewals/s', 'rate', 'of a renewal' ],
	[ 'crash', 'Leaders that die', undef, 'p50',
		'from the end of the TTL, counted from the answer of the last renewal, to the answer of the next leader' ],
	[ 'resign', 'Leaders that resign', undef, 'p50', 'from the sending of the resignation to the answer of the next leader' ],
	[ 'queue', 'A queue', undef, 'p50', 'from the sending of the release to the answer of the next in the queue' ],
	[ 'snapshot pairs', 'Random names beside a transaction that holds a snapshot', 'pairs/s', 'rate', 'of a pair' ],
	[ 'snapshot hot', 'A hot lock beside a transaction that holds a snapshot', 'hand-offs/s', 'rate',
		'from the sending of the release to the answer of the next holder' ],
	[ 'busy pairs', 'Random names beside 32 clients that read', 'pairs/s', 'rate', 'of a pair' ],
	[ 'busy hot', 'One hot lock beside 32 clients that read', 'hand-offs/s', 'rate',
		'from the sending of the release to the answer of the next holder' ],
	[ 'databases', 'Random names in several databases at a time', 'pairs/s', 'rate', 'of a pair' ],
	[ 'held pairs', 'Acquire and release of random names beside many held locks', 'pairs/s', 'rate', 'of a pair' ],
);

# Returns the other figures of a workload, besides rate and latency.
sub remark
{
	my ($workload, @key) = @_;
	my ($own, $ops) = map { median(figures(@key, $_)) } qw(own ops);
	return sprintf('%.0f %% of the grants were to the client that had released', 100 * $own / ($own + $ops))
		if $workload eq 'hot' && $own;
	my ($ttl, $early) = map { [ figures(@key, $_) ] } qw(ttl early);
	return sprintf('TTL %s ms%s', number($ttl->[0]), max(@$early) > 0 ? ', **granted early**' : '') if @$ttl;
	return "$1 database" . ($1 == 1 ? '' : 's') if $key[0] =~ /^databases (\d+)/;
	my ($queued, $entered) = map { median(figures(@key, $_)) } qw(queued entered);
	return sprintf('%s in the queue, entered at %s/s', number($queued), number($entered)) if $queued;
	my @lasts = map { my @s = split(/:/); $s[-1] / max(1, $s[0]) } figures(@key, 'seconds');
	return sprintf('last second / first: %.2f', median(@lasts)) if @lasts;
	return '';
}

sub table
{
	my ($workload, $title, $counts, $compared, $latency) = @{ $_[0] };
	my @keys = grep { /^\Q$workload\E(?: \d+)?\|/ } @order;
	return '' if !@keys && !$skipped{$workload};
	my $text = "## $title\n\nLatency: $latency. Ratio: lock_election's " . ($compared eq 'rate' ? $counts : 'p50') . " divided by that of the system.\n\n";
	$text .= '| system | clients |' . ($counts ? " $counts |" : '') . " p50, us | p99, us | ratio | |\n";
	$text .= '|---|---:|' . ($counts ? '---:|' : '') . "---:|---:|---:|---|\n";
	my %place = map { $order[$_] => $_ } 0 .. $#order;
	my ($clients) = sub { (split(/\|/, $_[0]))[2] };
	for my $key (sort { (split(/\|/, $a))[0] cmp (split(/\|/, $b))[0] || $clients->($a) <=> $clients->($b)
		|| by_system((split(/\|/, $a))[1], (split(/\|/, $b))[1]) } @keys)
	{
		my ($w, $system, $n) = my @key = split(/\|/, $key);
		$text .= "| $system | $n |";
		$text .= ' ' . spread(figures(@key, 'rate')) . ' |' if $counts;
		$text .= ' ' . spread(figures(@key, $_)) . ' |' for qw(p50 p99);
		$text .= ' ' . ($system eq $us ? '' : number(ratio($w, $n, $compared, $us, $system))) . ' | ' . remark($workload, @key) . " |\n";
	}
	$text .= "| $_ | - |" . ($counts ? ' - |' : '') . " - | - | - | skipped |\n"
		for sort { by_system($a, $b) } uniq(map { keys %{ $skipped{$_} } } grep { /^\Q$workload\E(?: \d+)?$/ } keys %skipped);
	return "$text\n";
}

my %rank;
@rank{ 'lock_election', 'lock_election-async', 'portable', 'table', 'advisory', 'select1', 'etcd', 'zookeeper', 'redis', 'valkey', 'redis-everysec', 'redis-memory' } = 0 .. 11;

sub by_system
{
	return $rank{ $_[0] } <=> $rank{ $_[1] };
}

sub costs
{
	my ($shared) = @_;
	my $text = "## Memory and WAL\n\n| what | system | |\n|---|---|---:|\n";
	for my $key (grep { /^(?:held )?pairs\|(?:lock_election|lock_election-async|portable|table)\|/ } @order)
	{
		my ($workload, $system, $clients) = my @key = split(/\|/, $key);
		my @wal = figures(@key, 'wal');
		my @all = figures(@key, 'all');
		$text .= "| bytes of WAL a pair, $workload, $clients clients | $system | " . spread(map { $wal[$_] / $all[$_] } 0 .. $#wal) . " |\n";
	}
	for my $key (grep { /^held\|/ } @order)
	{
		my ($workload, $system) = my @key = split(/\|/, $key);
		my ($held) = figures(@key, 'ops');
		my ($rate) = figures(@key, 'rate');
		$text .= sprintf("| locks held, taken at %s/s without flushes where that can be chosen | %s | %s |\n", number($rate), $system, number($held));
		for (['memory', $system eq $us ? 'of the manager, by its own count' : 'of the server'], ['anonymous', 'of the process, by the kernel'], ['disk', 'on disk'])
		{
			my ($bytes) = figures(@key, $_->[0]);
			next if $system =~ m{^(?:portable|table)$} && $_->[0] ne 'disk' || $system ne $us && $_->[0] eq 'anonymous';
			$text .= sprintf("| bytes a held lock, %s | %s | %s |\n", $_->[1], $system, number($bytes / $held));
		}
	}
	if (defined $shared && $shared =~ /^(\d+) bytes for (\d+)/)
	{
		$text .= sprintf("| bytes of shared memory a connection | %s | %s |\n", $us, number($1 / $2));
	}
	return "$text\n";
}

# --- data of the plots ----------------------------------------------------------------------------------------------

sub write_file
{
	my ($name, $text) = @_;
	open(my $out, '>', $name) or die "$name: $!";
	print $out $text;
	close($out);
}

# Writes a block for each system, with its name as title and lines of clients, median, minimum and maximum of $key. A
# system with fewer than three numbers of clients is only in the tables, because its points would not show a curve.
sub plot_by_clients
{
	my ($workload, $key, $name) = @_;
	my $text = '';
	for my $system (sort { by_system($a, $b) } uniq(map { (split(/\|/))[1] } grep { /^\Q$workload\E\|/ } @order))
	{
		my @clients = sort { $a <=> $b } map { (split(/\|/))[2] } grep { /^\Q$workload|$system\E\|/ } @order;

		next if @clients < 3;
		$text .= "\n\n" if $text ne '';
		$text .= "\"$system\"\n";
		for my $clients (@clients)
		{
			my @v = figures($workload, $system, $clients, $key);
			$text .= join(' ', $clients, median(@v), min(@v), max(@v)) . "\n";
		}
	}
	write_file("$results/plots/$name", $text) if $text ne '';
}

# Writes a line for each system: medians of p50 and p99 in milliseconds. A latency may be negative by less than a round
# trip; it is shown as 0.01 ms.
sub plot_latency
{
	my ($workload, $clients) = @_;
	my $text = '';
	for my $system (sort { by_system($a, $b) } map { (split(/\|/))[1] } grep { /^\Q$workload\E\|[^|]*\|$clients$/ } @order)
	{
		$text .= "\"$system\" " . join(' ', map { max(0.01, median(figures($workload, $system, $clients, $_)) / 1000) } qw(p50 p99)) . "\n";
	}
	write_file("$results/plots/$workload-$clients", $text) if $text ne '';
}

# Writes a block for each workload and system, with lines of second and median rate.
sub plot_snapshot
{
	my $text = '';
	for my $key (grep { /^snapshot / } @order)
	{
		my ($workload, $system, $clients) = split(/\|/, $key);
		my @rounds = map { [ split(/:/) ] } figures($workload, $system, $clients, 'seconds');
		$text .= "\n\n" if $text ne '';
		$text .= "\"$system, " . ($workload =~ /pairs/ ? 'random names' : 'hot lock') . "\"\n";
		for my $second (0 .. $#{ $rounds[0] })
		{
			$text .= join(' ', $second + 0.5, median(map { $_->[$second] } @rounds)) . "\n";
		}
	}
	write_file("$results/plots/snapshot", $text) if $text ne '';
}

# --- all of it ------------------------------------------------------------------------------------------------------

read_results();
open(my $in, '<', $about) or die "$about: $!";
my (@about, $shared);
while (<$in>)
{
	chomp;
	if (/^shared memory: (.*)/) { $shared = $1; }
	else { push @about, "- $_\n"; }
}
my $text = "# lock_election and its peers\n\nMade by `make bench`. Medians of the rounds, with the lowest and the highest in brackets.\n\n@about\n";
$text =~ s/^ -/-/mg;
$text .= table($_) for @tables;
$text .= costs($shared);
if (open(my $failures, '<', "$results/failures"))
{
	my @failures = <$failures>;
	$text .= "## Failures\n\n" . join('', map { "- $_" } @failures) if @failures;
}
write_file("$results/results.md", $text);
mkdir "$results/plots";
plot_by_clients('pairs', 'rate', 'pairs');
plot_by_clients('hot', 'p50', 'hot-p50');
plot_by_clients('hot', 'p99', 'hot-p99');
plot_latency('crash', 8);
plot_latency('resign', 2);
plot_snapshot();
