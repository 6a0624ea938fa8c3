# Prints tables of the figures of bench/libraries.sh: pairs/s with their ratio to direct calls, the latency of an
# acquire, and the processor time for a pair.
use strict;
use warnings;

my (%of, %seen, @order);
open my $in, '<', shift // die or die $!;
my @columns = split /\s+/, <$in>;
while (<$in>)
{
	chomp;
	my %row;
	@row{@columns} = split /\t/;
	my $table = "$row{flush} $row{language}";
	push @order, $table unless $seen{$table}++;
	push @{ $of{$table}{systems} }, $row{system} unless $seen{"$table $row{system}"}++;
	push @{ $of{$table}{workloads} }, $row{workload} unless $seen{"$table workload $row{workload}"}++;
	push @{ $of{$table}{rows}{ $row{workload} }{ $row{system} } }, \%row;
}

sub median
{
	my ($rows, $column) = @_;
	return undef if !$rows;
	my @sorted = sort { $a <=> $b } map { $_->{$column} } @$rows;
	return $sorted[ @sorted / 2 ];
}

sub thousands { my ($n) = @_; 1 while $n =~ s/^(\d+)(\d{3})/$1,$2/; return $n; }

my %title = (own => 'each a name of its own', hot => 'all the same name', processes => 'processes, all the same name');
foreach my $table (@order)
{
	my ($flush, $language) = split / /, $table;
	my ($systems, $workloads, $rows) = @{ $of{$table} }{qw(systems workloads rows)};
	print "\n## $language, ", ($flush ? "flushes that take $flush us longer" : q{this machine's disk}), "\n";
	foreach my $what (
		[ 'Pairs a second, and the ratio to direct', sub {
			my ($r, $base) = @_;
			my ($pairs, $direct) = (median($r, 'pairs'), median($base, 'pairs'));
			return thousands($pairs) . ($direct ? sprintf ' (%.2f)', $pairs / $direct : '');
		} ],
		[ 'What an acquire takes, p50 / p99, us', sub { return join ' / ', map { thousands(median($_[0], $_)) } qw(p50_us p99_us); } ],
		[ 'Processor time of client + server for a pair, us', sub { return join ' + ', map { thousands(median($_[0], $_)) } qw(client_us server_us); } ])
	{
		my ($heading, $cell) = @$what;
		print "\n$heading\n\n| workers | ", join(' | ', @$systems), " |\n|---|", '---:|' x @$systems, "\n";
		foreach my $w (@$workloads)
		{
			my ($which, $n) = split m{/}, $w;
			my $base = sub { my ($s) = @_; return $rows->{$w}{ $s =~ /-asyncio$/ ? 'direct-asyncio' : 'direct' }; };
			print "| $n, $title{$which} | ", join(' | ', map { $rows->{$w}{$_} ? $cell->($rows->{$w}{$_}, $base->($_)) : '-' } @$systems), " |\n";
		}
	}
}
